package dispatch_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opledger/opledger/internal/dispatch"
)

// Who waited for its slot outside the lane and then passes leaves the lane to the next: nobody is parked for ever.
func TestOperationThatPassesAtItsSlotLetsTheNextGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		plans := map[dispatch.Key]int{}
		ran := map[dispatch.Key]bool{}
		d, stop := start(t, func(_ context.Context, k dispatch.Key, _ uint64) (dispatch.Plan, error) {
			mu.Lock()
			defer mu.Unlock()
			plans[k]++
			if k == key(1) && plans[k] == 3 { // planned, let out, and at its slot: settled meanwhile
				return dispatch.Plan{}, nil
			}
			return dispatch.Plan{Lane: "l", Width: 1, Spacing: 10 * time.Second, Run: func(context.Context) dispatch.Again {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				ran[k] = true
				return dispatch.Again{}
			}}, nil
		})
		for i := range 3 {
			d.Wake(key(i), 0)
			synctest.Wait()
		}
		time.Sleep(24 * time.Hour)
		for range 10 { // the sweeper
			d.Wake(key(2), 5)
			time.Sleep(15 * time.Second)
		}
		synctest.Wait()
		mu.Lock()
		t.Logf("plans %v ran %v waiting %d", plans, ran, d.Waiting())
		if !ran[key(2)] {
			t.Error("operation 2 is parked for ever")
		}
		mu.Unlock()
		stop()
	})
}

// A second wake does not let an operation jump its slot.
func TestSecondWakeDoesNotJumpTheSpacing(t *testing.T) {
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
			d.Wake(key(i), 1) // the consumer
		}
		synctest.Wait()
		for i := range 20 {
			d.Schedule(key(i), time.Now(), 1) // the index tells of the same event
		}
		synctest.Wait()
		mu.Lock()
		n := len(starts)
		mu.Unlock()
		if n > 1 {
			t.Errorf("%d starts at %v, spacing is 100ms", n, starts)
		}
		time.Sleep(time.Minute)
		stop()
	})
}
