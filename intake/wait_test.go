package intake_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/intake"
	"github.com/opledger/opledger/internal/memledger"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
)

// announced is a ledger that tells subscribers of what the test writes.
type announced struct {
	*memledger.Ledger
	news chan operation.State
	// subscribed is how often somebody asked for news, ended how often one
	// wanted no more.
	subscribed, ended int
}

func (a *announced) Subscribe(string, string) (<-chan operation.State, func()) {
	a.subscribed++
	return a.news, func() { a.ended++ }
}

// waiting is a service whose subscribers are told of news.
func waiting(t *testing.T) (*fixture, *announced) {
	t.Helper()
	f := newFixture(t)
	a := &announced{Ledger: f.ledger, news: make(chan operation.State, 8)}
	clock := func() time.Time { return f.now }
	w, err := writer.New(writer.Config{Journal: f.ledger, Ledger: ledgerID, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	f.Service, err = intake.New(intake.Config{
		Recorder: w, States: a, Catalogue: f.shop, Ledger: ledgerID, Now: clock, Random: rand.Float64,
		Tenants: []intake.Tenant{{ID: "acme"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f, a
}

// move records what happens to op-1 next, and tells nobody.
func (f *fixture) move(t *testing.T, payloads ...events.Payload) operation.State {
	t.Helper()
	s, err := f.ledger.Truth(t.Context(), "acme", "op-1")
	if err != nil {
		t.Fatal(err)
	}
	w, err := writer.New(writer.Config{Journal: f.ledger, Ledger: ledgerID, Now: func() time.Time { return f.now }})
	if err != nil {
		t.Fatal(err)
	}
	if s, err = w.Append(t.Context(), s, "w", payloads...); err != nil {
		t.Fatal(err)
	}
	return s
}

func patient(ms int64) []byte {
	return fmt.Appendf(nil, `{"operation_id":"op-1","provider":"crm","account":"main","action":"task.create","args":{"title":"a"},"wait_ms":%d}`, ms)
}

// room lets whoever wants to wait do so for as long as the test runs.
func room(t *testing.T) func() (context.Context, bool) {
	return func() (context.Context, bool) { return t.Context(), true }
}

// A submit that waits is answered at the moment that the operation is final or a
// review is open, and else when its time is over, with the state as it is then.
func TestASubmitThatWaitsIsAnsweredWhenTheOperationIsSettled(t *testing.T) {
	for name, c := range map[string]struct {
		then   []events.Payload
		want   time.Duration
		status operation.Status
	}{
		"final":        {[]events.Payload{events.Rejected{Reason: "no", Via: events.ViaCancelled}}, time.Second, operation.StatusRejected},
		"under review": {[]events.Payload{events.ReviewOpened{Reason: events.ReviewDeadline}}, time.Second, operation.StatusPending},
		"under way":    {[]events.Payload{events.AttemptStarted{AttemptID: "a1", Number: 1, LeaseMS: 1000}}, 5 * time.Second, operation.StatusInFlight},
		"nothing":      {nil, 5 * time.Second, operation.StatusPending},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, l := waiting(t)
				go func() {
					time.Sleep(time.Second) // of the bubble's clock
					if c.then != nil {
						l.news <- f.move(t, c.then...)
					}
				}()
				began := time.Now()
				a, p := f.SubmitAndWait(t.Context(), "acme", patient(5000), room(t))
				if took := time.Since(began); p != nil || took != c.want || a.Status != c.status || a.Repeated {
					t.Errorf("got %+v, %v after %s; want %s after %s", a, p, took, c.status, c.want)
				}
				if l.subscribed != 1 || l.ended != 1 {
					t.Errorf("%d subscriptions, %d ended; want one of each", l.subscribed, l.ended)
				}
			})
		})
	}
}

// What happens right behind the append is news to a submit that waits: it asked
// for them before.
func TestASubmitThatWaitsMissesNothingBehindItsAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := waiting(t)
		f.ledger.AfterAppend = func(events.Event) error { // before the submit hears of it
			f.ledger.AfterAppend = nil
			l.news <- f.move(t, events.Rejected{Reason: "no", Via: events.ViaCancelled})
			return nil
		}
		began := time.Now()
		a, p := f.SubmitAndWait(t.Context(), "acme", patient(60_000), room(t))
		if took := time.Since(began); p != nil || a.Status != operation.StatusRejected || took != 0 {
			t.Errorf("got %+v, %v after %s; want it rejected at once", a, p, took)
		}
	})
}

// A repeat waits, too, and what was told before it came is known to it.
func TestARepeatWaitsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l := waiting(t)
		mustSubmit(t, f, "acme", patient(60_000))
		if l.subscribed != 0 {
			t.Error("a submit that does not wait subscribed")
		}
		began := time.Now()
		a, p := f.SubmitAndWait(t.Context(), "acme", patient(3000), room(t))
		if took := time.Since(began); p != nil || !a.Repeated || a.Status != operation.StatusPending || took != 3*time.Second {
			t.Errorf("got %+v, %v after %s; want the repeat to wait its time", a, p, took)
		}
		f.move(t, events.Rejected{Reason: "no", Via: events.ViaCancelled})
		l.HoldBack("acme", "op-1", 1)
		nobody := func() (context.Context, bool) {
			t.Error("there was nothing to wait for")
			return nil, false
		}
		if a, p := f.SubmitAndWait(t.Context(), "acme", patient(3000), nobody); p != nil || !a.Repeated || a.Status != operation.StatusRejected {
			t.Errorf("got %+v, %v; want what is in the log", a, p)
		}
	})
}

// The wait of a submit is bounded like any other. Without one, and where there is
// no room to wait, the intent is recorded and the answer comes at once.
func TestTheWaitOfASubmitIsBoundedExactly(t *testing.T) {
	full := func() (context.Context, bool) { return nil, false }
	for _, c := range []struct {
		ms   int64
		room bool
		want time.Duration
	}{
		{intake.MaxWait.Milliseconds() - 1, true, intake.MaxWait - time.Millisecond},
		{intake.MaxWait.Milliseconds(), true, intake.MaxWait},
		{intake.MaxWait.Milliseconds() + 1, true, intake.MaxWait},
		{1<<53 - 1, true, intake.MaxWait},
		{1, true, time.Millisecond}, {0, true, 0}, {-1, true, 0}, {5000, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, _ := waiting(t)
			wait := full
			if c.room {
				wait = room(t)
			}
			began := time.Now()
			a, p := f.SubmitAndWait(t.Context(), "acme", patient(c.ms), wait)
			if took := time.Since(began); p != nil || a.Status != operation.StatusPending || took != c.want {
				t.Errorf("%d ms, room %v: got %+v, %v after %s, want %s", c.ms, c.room, a, p, took, c.want)
			}
			if n := f.count(t, "acme", "op-1"); n != 1 {
				t.Errorf("got %d events, want 1", n)
			}
		})
	}
}

// The wait is no part of the intent: it changes no digest and makes no conflict.
func TestTheWaitIsNoPartOfTheIntent(t *testing.T) {
	f, _ := waiting(t)
	a := mustSubmit(t, f, "acme", patient(1))
	b := mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
	if !b.Repeated || a.IntentDigest != b.IntentDigest {
		t.Errorf("got %+v and %+v, want one intent", a, b)
	}
	if _, p := f.SubmitAndWait(t.Context(), "acme", []byte(`{"operation_id":"op-1","wait_ms":"5 s"}`), room(t)); p == nil || p.Code != api.ProblemMalformed {
		t.Errorf("got %v, want it malformed", p)
	}
}
