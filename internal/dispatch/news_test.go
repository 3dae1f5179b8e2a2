package dispatch_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opledger/opledger/internal/dispatch"
)

// The same news comes by several ways: from who wrote it, from the log, from the
// index. It is planned once; later news, news of an unknown version and a wake are
// planned again.
func TestTheSameNewsIsPlannedOnce(t *testing.T) {
	for what, row := range map[string]struct {
		meanwhile func(d *dispatch.Dispatcher)
		want      string
	}{
		"the same news":     {func(d *dispatch.Dispatcher) { d.News(key(1), 3); d.News(key(1), 2) }, "[3]"},
		"the same, to come": {func(d *dispatch.Dispatcher) { d.Schedule(key(1), time.Now().Add(time.Second), 3) }, "[3]"},
		"later news":        {func(d *dispatch.Dispatcher) { d.News(key(1), 4) }, "[3 4]"},
		"unknown news":      {func(d *dispatch.Dispatcher) { d.News(key(1), 0) }, "[3 3]"},
		"a wake":            {func(d *dispatch.Dispatcher) { d.Wake(key(1), 3) }, "[3 3]"},
		"later, to come":    {func(d *dispatch.Dispatcher) { d.Schedule(key(1), time.Now().Add(time.Second), 4) }, "[3 4]"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mins []uint64
				d, stop := start(t, func(_ context.Context, _ dispatch.Key, min uint64) (dispatch.Plan, error) {
					mins = append(mins, min)
					return dispatch.Plan{Lane: "l", Run: func(context.Context) dispatch.Again {
						time.Sleep(time.Second)
						return dispatch.Again{}
					}}, nil
				})
				d.News(key(1), 3)
				synctest.Wait()
				row.meanwhile(d)
				time.Sleep(time.Minute)
				synctest.Wait()
				if fmt.Sprint(mins) != row.want || d.Plans() != uint64(len(mins)) || d.Waiting() != 0 {
					t.Errorf("got plans on versions %v (%d counted), want %s", mins, d.Plans(), row.want)
				}
				stop()
			})
		})
	}
}

// What was to be looked at later is forgotten once there is nothing to do, but not
// against later news, and not under a plan.
func TestWhatIsSettledIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plans := map[dispatch.Key]int{}
		d, stop := start(t, func(_ context.Context, k dispatch.Key, _ uint64) (dispatch.Plan, error) {
			if plans[k]++; k == key(3) && plans[k] == 1 {
				time.Sleep(time.Second)
				return dispatch.Plan{Again: dispatch.Again{At: time.Now().Add(time.Second)}}, nil
			}
			return dispatch.Plan{}, nil
		})
		later := time.Now().Add(10 * time.Second)
		d.Schedule(key(1), later, 2)
		d.Schedule(key(2), later, 4)
		d.News(key(3), 2)
		synctest.Wait()
		for i := range 5 {
			d.Settled(key(i), 3)
		}
		if got := d.Waiting(); got != 2 {
			t.Errorf("got %d waiting, want the one with later news and the one under way", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if plans[key(1)] != 0 || plans[key(2)] != 1 || plans[key(3)] != 2 || d.Waiting() != 0 {
			t.Errorf("got plans %v", plans)
		}
		stop()
	})
}
