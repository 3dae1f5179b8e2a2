package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opledger/opledger/internal/clock"
)

// What runs beside is waited for until some time after the context's end, and
// can be waited for again.
func TestWorkBesideIsWaitedForUntilItsGraceIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clock.Real(nil)
		ended := c.Beside(func() { time.Sleep(10 * time.Second) })
		soon, cancel := c.Timeout(t.Context(), 2*time.Second)
		defer cancel()
		began := c.Monotonic()
		if ended(soon, time.Second) {
			t.Error("the work ended before its time")
		}
		if waited := c.Monotonic() - began; waited != 3*time.Second {
			t.Errorf("waited for %s, the limit and its grace are 3 s", waited)
		}
		if !ended(t.Context(), 0) {
			t.Error("the work did not end")
		}
		if waited := c.Monotonic() - began; waited != 10*time.Second {
			t.Errorf("waited for %s, the work took 10 s", waited)
		}
	})
}

// A context that outlives another ends some time after it, a pause with it.
func TestContextOutlivesAnotherByItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clock.Real(nil)
		ctx, stop := context.WithCancel(t.Context())
		late, cancel := c.Outlive(ctx, 5*time.Second)
		defer cancel()
		time.AfterFunc(time.Second, stop)
		began := c.Wall()
		c.Sleep(ctx, time.Minute)
		if slept := c.Wall().Sub(began); slept != time.Second {
			t.Errorf("slept for %s beyond its context", slept)
		}
		<-late.Done()
		if lived := c.Wall().Sub(began); lived != 6*time.Second {
			t.Errorf("lived for %s, expected 6 s", lived)
		}
	})
}
