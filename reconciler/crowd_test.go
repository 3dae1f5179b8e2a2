package reconciler_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/dispatch"
	"github.com/opledger/opledger/internal/memledger"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/reconciler"
)

// limited is an adapter whose contract allows so much, and notes its looks.
type limited struct {
	adapter
	mu    sync.Mutex
	at    []time.Time
	order []time.Time
}

func (a *limited) Limit(string) (int, time.Duration) { return 2, 20 * time.Millisecond }

func (a *limited) Lookup(_ context.Context, c providers.Call) operation.Look {
	a.mu.Lock()
	a.at, a.order = append(a.at, time.Now()), append(a.order, c.Intent.Limits.Deadline)
	a.mu.Unlock()
	l := found("731-" + c.Operation)
	l.AskedAt = time.Now()
	time.Sleep(time.Millisecond) // the next one may run beside it
	return l
}

func (a *limited) For(context.Context, events.IntentRecorded) (providers.Adapter, operation.Contract, error) {
	return a, a.contract, nil
}

// Many outcomes are unknown at once. Their looks keep to the contract's rate, and the
// operation whose time for a repeat ends first is looked for first, however they came.
func TestManyUnknownAtOnceGoByTheirRetryWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const crowd, spacing = 1000, 20 * time.Millisecond
		began := time.Now()
		ledger := memledger.New(time.Now)
		a := &limited{adapter: adapter{contract: operation.Contract{
			Provider: "pay", Action: "charge", Class: operation.ClassKey, Proof: operation.ProofDocumented,
			KeySupported: true, Retention: 24 * time.Hour, Margin: time.Hour, Total: 5 * time.Second,
			Lookup: operation.Lookup{Available: true, Schedule: []time.Duration{time.Minute, time.Hour}},
		}}}
		w, err := writer.New(writer.Config{Journal: ledger, Ledger: ledgerID, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		r, err := reconciler.New(reconciler.Config{
			Recorder: w, States: ledger, Adapters: a, Worker: "me#2", Predecessors: "me",
			Now: time.Now, Random: func() float64 { return 0 },
		})
		if err != nil {
			t.Fatal(err)
		}
		d, err := dispatch.New(dispatch.Config{Planner: r})
		if err != nil {
			t.Fatal(err)
		}
		id := func(i int) string { return fmt.Sprintf("op-%d", i) }
		for i := range crowd { // 619 is prime to the crowd: every end occurs once, in no order
			_, err := w.Append(t.Context(), operation.State{Tenant: "acme", OperationID: id(i)}, "t",
				events.IntentRecorded{
					Provider: "pay", Account: events.Account{Name: "main", ProviderID: "acct_1"}, Action: "charge",
					IntentDigest: "sha256-jcs:i", OnUnknown: events.OnUnknownContract,
					Limits: &events.Limits{Deadline: began.Add(2*time.Hour + time.Duration(i*619%crowd)*time.Minute)},
				},
				events.AttemptStarted{AttemptID: "a1", Number: 1, Worker: "me#1", LeaseMS: 15_000, RequestDigest: "sha256:r"},
				events.OutcomeUnknown{
					AttemptID: "a1", Reason: events.UnknownConnectionLost,
					Next: events.Next{Action: events.NextReconcile, At: began.Add(time.Minute)},
				})
			if err != nil {
				t.Fatal(err)
			}
			d.Schedule(dispatch.Key{Tenant: "acme", Operation: id(i)}, began.Add(time.Minute), 0)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		time.Sleep(time.Minute + crowd*spacing + time.Second)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for i := range crowd {
			if s, err := ledger.Truth(t.Context(), "acme", id(i)); err != nil || s.Status != operation.StatusConfirmed || s.Started != 1 {
				t.Fatalf("%s: got %s after %d attempts, %v", id(i), s.Status, s.Started, err)
			}
		}
		for i := 1; i < len(a.at); i++ {
			if gap := a.at[i].Sub(a.at[i-1]); gap < spacing {
				t.Errorf("looks %d and %d are %s apart", i-1, i, gap)
			}
		}
		const first = 10 // began while the others were not known yet
		if len(a.order) != crowd || !slices.IsSortedFunc(a.order[first:], time.Time.Compare) {
			t.Errorf("got %d looks, in another order than that of their windows", len(a.order))
		}
	})
}
