package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opledger/opledger/internal/dispatch"
)

type planner func(ctx context.Context, k dispatch.Key, min uint64) (dispatch.Plan, error)

func (p planner) Plan(ctx context.Context, k dispatch.Key, min uint64) (dispatch.Plan, error) {
	return p(ctx, k, min)
}

func start(t *testing.T, p planner) (*dispatch.Dispatcher, func()) {
	t.Helper()
	d, err := dispatch.New(dispatch.Config{Planner: p, Planners: 4, Drain: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return d, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func key(i int) dispatch.Key { return dispatch.Key{Tenant: "t", Operation: fmt.Sprint(i)} }

// I14: a lane whose work never ends holds up its own operations only.
func TestStuckLaneHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done := map[string]bool{}
		d, stop := start(t, func(_ context.Context, k dispatch.Key, _ uint64) (dispatch.Plan, error) {
			if k.Tenant == "stuck" {
				return dispatch.Plan{Lane: "stuck", Width: 2, Run: func(ctx context.Context) dispatch.Again {
					<-ctx.Done()
					return dispatch.Again{}
				}}, nil
			}
			return dispatch.Plan{Lane: "good", Run: func(context.Context) dispatch.Again {
				mu.Lock()
				defer mu.Unlock()
				done[k.Operation] = true
				return dispatch.Again{}
			}}, nil
		})
		for i := range 500 {
			d.Wake(dispatch.Key{Tenant: "stuck", Operation: fmt.Sprint(i)}, 0)
		}
		for i := range 50 {
			d.Wake(key(i), 0)
		}
		synctest.Wait()
		if len(done) != 50 {
			t.Errorf("got %d of 50 done beside the stuck lane", len(done))
		}
		if got := d.Waiting(); got != 500 {
			t.Errorf("got %d waiting, want the 500 stuck ones", got)
		}
		stop()
	})
}

// A lane goes on when an operation that waited for it has nothing to do any
// more: its turn passes to the next.
func TestParkedOperationThatPassesLetsTheNextGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		plans, ran := map[dispatch.Key]int{}, 0
		d, stop := start(t, func(_ context.Context, k dispatch.Key, _ uint64) (dispatch.Plan, error) {
			mu.Lock()
			defer mu.Unlock()
			plans[k]++
			if plans[k] > 1 && k != key(9) {
				return dispatch.Plan{}, nil // settled while it was parked
			}
			return dispatch.Plan{Lane: "l", Run: func(context.Context) dispatch.Again {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				ran++
				return dispatch.Again{}
			}}, nil
		})
		for i := range 10 {
			d.Wake(key(i), 0)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if ran != 2 || d.Waiting() != 0 {
			t.Errorf("got %d runs and %d waiting, want 2 (the first and the last) and 0", ran, d.Waiting())
		}
		stop()
	})
}

// An operation is never planned or run twice at once, and news that arrives
// meanwhile is not lost.
func TestNewsDuringARunPlansAgainWithItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mins []uint64
		running := 0
		d, stop := start(t, func(_ context.Context, _ dispatch.Key, min uint64) (dispatch.Plan, error) {
			mins = append(mins, min)
			return dispatch.Plan{Lane: "l", Width: 9, Run: func(context.Context) dispatch.Again {
				running++
				if running > 1 {
					t.Error("two runs of one operation at once")
				}
				time.Sleep(time.Second)
				running--
				return dispatch.Again{}
			}}, nil
		})
		d.Wake(key(1), 3)
		synctest.Wait()
		d.Wake(key(1), 7)
		d.Wake(key(1), 5)
		time.Sleep(time.Minute)
		synctest.Wait()
		if fmt.Sprint(mins) != "[3 7]" {
			t.Errorf("got plans on versions %v, want [3 7]", mins)
		}
		stop()
	})
}

// Planning errors back off, and the operation comes back by itself.
func TestPlanningErrorComesBackLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, n := time.Now(), 0
		var last time.Duration
		d, stop := start(t, func(context.Context, dispatch.Key, uint64) (dispatch.Plan, error) {
			n++
			last = time.Since(began)
			if n < 4 {
				return dispatch.Plan{}, errors.New("down")
			}
			return dispatch.Plan{}, nil
		})
		d.Wake(key(1), 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n != 4 || last != 7*time.Second || d.Waiting() != 0 {
			t.Errorf("got %d plans, the last after %s, %d waiting; want 4 after 1+2+4 s and 0", n, last, d.Waiting())
		}
		stop()
	})
}

// I20: at the end nothing new starts, and work under way gets the drain time
// before its context ends.
func TestShutdownDrainsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended time.Duration
		began := time.Now()
		d, stop := start(t, func(context.Context, dispatch.Key, uint64) (dispatch.Plan, error) {
			return dispatch.Plan{Lane: "l", Run: func(ctx context.Context) dispatch.Again {
				<-ctx.Done()
				ended = time.Since(began)
				return dispatch.Again{}
			}}, nil
		})
		d.Wake(key(1), 0)
		synctest.Wait()
		stop()
		if ended != time.Second {
			t.Errorf("the run's context ended after %s, want the drain time of 1s", ended)
		}
	})
}

// A lane with a spacing starts no two runs closer together, whoever waits.
func TestSpacingKeepsStartsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var starts []time.Duration
		began := time.Now()
		d, stop := start(t, func(context.Context, dispatch.Key, uint64) (dispatch.Plan, error) {
			return dispatch.Plan{Lane: "l", Width: 9, Spacing: 100 * time.Millisecond, Run: func(context.Context) dispatch.Again {
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, time.Since(began))
				return dispatch.Again{}
			}}, nil
		})
		for i := range 20 {
			d.Wake(key(i), 0)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(starts) != 20 || starts[19] != 1900*time.Millisecond {
			t.Fatalf("got %d starts at %v, want 20 in 1.9 s", len(starts), starts)
		}
		for i := 1; i < len(starts); i++ {
			if gap := starts[i] - starts[i-1]; gap < 100*time.Millisecond {
				t.Errorf("starts %d and %d are %s apart", i-1, i, gap)
			}
		}
		stop()
	})
}
