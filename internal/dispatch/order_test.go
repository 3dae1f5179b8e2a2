package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opledger/opledger/internal/dispatch"
)

// A crowd of operations is due at once, each with a chance that ends at a time of
// its own: the one that ends first goes first, however they came. Those without an
// end take turns with them, so that new work goes on.
func TestWhoseChanceEndsFirstGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const crowd, rest = 2000, 100
		began := time.Now()
		var mu sync.Mutex
		var ends []time.Duration
		restDone := time.Duration(0)
		d, stop := start(t, func(_ context.Context, k dispatch.Key, _ uint64) (dispatch.Plan, error) {
			var n int
			_, _ = fmt.Sscan(k.Operation, &n) // the keys are numbers
			var until time.Time
			if n < crowd { // 7919 is prime: every end occurs once, in no order
				until = began.Add(time.Hour + time.Duration(n*7919%crowd)*time.Minute)
			}
			return dispatch.Plan{Lane: "l", Until: until, Run: func(context.Context) dispatch.Again {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				if until.IsZero() {
					restDone = time.Since(began)
				} else {
					ends = append(ends, until.Sub(began))
				}
				return dispatch.Again{}
			}}, nil
		})
		for i := range crowd + rest {
			d.Wake(key(i), 0)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		stop()
		// The first few started before the others were known.
		if len(ends) != crowd || !slices.IsSorted(ends[4:]) {
			t.Errorf("got %d runs, in the order %v …", len(ends), ends[:min(20, len(ends))])
		}
		if want := (2*rest + 4) * time.Second; restDone > want {
			t.Errorf("those without an end were done after %s, want %s", restDone, want)
		}
	})
}

// A lane with a spacing lets tenants start in turn: a tenant's crowd delays no other
// by more than a start of its own each.
func TestSpacingIsSharedByTenantsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var calm []time.Time
		d, stop := start(t, func(_ context.Context, k dispatch.Key, _ uint64) (dispatch.Plan, error) {
			return dispatch.Plan{Lane: "l", Width: 9, Spacing: 100 * time.Millisecond, Run: func(context.Context) dispatch.Again {
				mu.Lock()
				defer mu.Unlock()
				if k.Tenant == "calm" {
					calm = append(calm, time.Now())
				}
				return dispatch.Again{}
			}}, nil
		})
		for i := range 10_000 {
			d.Wake(key(i), 0)
		}
		synctest.Wait()
		began := time.Now()
		for i := range 10 {
			d.Wake(dispatch.Key{Tenant: "calm", Operation: fmt.Sprint(i)}, 0)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(calm) != 10 || calm[9].Sub(began) > 2100*time.Millisecond {
			t.Errorf("got %d starts of the calm tenant, at %v after they came", len(calm), calm)
		}
		stop()
	})
}

// Two dispatchers with one pace keep to it together and start in turn; a run that
// made more requests than one delays the next start for each.
func TestSharedPaceIsKeptTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const spacing = 100 * time.Millisecond
		var mu sync.Mutex
		var at []time.Time
		count := map[string]int{}
		pace := dispatch.NewPace()
		run := func(name string, more int) (stop func()) {
			d, err := dispatch.New(dispatch.Config{Pace: pace, Planner: planner(func(context.Context, dispatch.Key, uint64) (dispatch.Plan, error) {
				return dispatch.Plan{Lane: "l", Width: 4, Spacing: spacing, Run: func(context.Context) dispatch.Again {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, time.Now())
					count[name]++
					return dispatch.Again{More: more}
				}}, nil
			})})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- d.Run(ctx) }()
			for i := range 1000 {
				d.Wake(key(i), 0)
			}
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		stops := []func(){run("attempts", 0), run("looks", 1)}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		mu.Lock()
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap < spacing {
				t.Errorf("starts %d and %d are %s apart", i-1, i, gap)
			}
		}
		// In 30 s there are 300 requests: each look makes two, each attempt one.
		if a, l := count["attempts"], count["looks"]; a+2*l < 290 || a+2*l > 302 || a < l-5 || a > l+5 {
			t.Errorf("got %d attempts and %d looks, want about 100 of each", a, l)
		}
		mu.Unlock()
		for _, stop := range stops {
			stop()
		}
	})
}

// Actions of one account may have limits of their own: one without a spacing does not
// let out those that have one before their time.
func TestASpacingHoldsBesideAnActionWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const spaced = 20
		began := time.Now()
		var mu sync.Mutex
		var starts []time.Duration
		d, stop := start(t, func(_ context.Context, k dispatch.Key, _ uint64) (dispatch.Plan, error) {
			p := dispatch.Plan{Lane: "l", Width: 8, Run: func(context.Context) dispatch.Again {
				time.Sleep(time.Second)
				return dispatch.Again{}
			}}
			if k.Operation != "free" {
				p.Spacing = 10 * time.Second
				p.Run = func(context.Context) dispatch.Again {
					mu.Lock()
					defer mu.Unlock()
					starts = append(starts, time.Since(began))
					return dispatch.Again{}
				}
			}
			return p, nil
		})
		for i := range spaced {
			d.Wake(key(i), 0)
		}
		for range 10 {
			time.Sleep(15 * time.Second)
			d.Wake(dispatch.Key{Tenant: "acme", Operation: "free"}, 0)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		stop()
		if len(starts) != spaced {
			t.Fatalf("got %d starts, want %d", len(starts), spaced)
		}
		for i, at := range starts[1:] {
			if gap := at - starts[i]; gap < 10*time.Second {
				t.Errorf("start %d came %s after the one before it", i+2, gap)
			}
		}
	})
}
