package reconciler_test

import (
	"context"
	"errors"
	"sync/atomic"
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

const ledgerID = "6f1c3c0e-2f44-4ad0-9a0e-0d8f5b7f2b11"

// adapter plays a provider that is only looked at.
type adapter struct {
	contract operation.Contract
	look     func(n int) operation.Look
	looks    atomic.Int32
	notMine  bool
}

func (a *adapter) Prepare(providers.Call) (*providers.Request, error) {
	return nil, errors.New("the reconciler never sends")
}
func (a *adapter) Probe(context.Context, providers.Call) (string, error) { return "acct_1", nil }
func (a *adapter) Do(context.Context, *providers.Request) operation.Outcome {
	panic("the reconciler never sends")
}

func (a *adapter) Lookup(context.Context, providers.Call) operation.Look {
	l := a.look(int(a.looks.Add(1)))
	l.AskedAt = time.Now()
	return l
}
func (a *adapter) Contract(string) (operation.Contract, bool) { return a.contract, true }
func (a *adapter) For(context.Context, events.IntentRecorded) (providers.Adapter, operation.Contract, error) {
	if a.notMine {
		return nil, operation.Contract{}, providers.ErrNotMine
	}
	return a, a.contract, nil
}

func found(ids ...string) operation.Look {
	return operation.Look{AccountOK: true, AccountProbed: "acct_1", PagesComplete: true, Matches: ids}
}

type world struct {
	t      *testing.T
	ledger *memledger.Ledger
	a      *adapter
	w      *writer.Writer
	r      *reconciler.Reconciler
}

func newWorld(t *testing.T, predecessors string, look func(n int) operation.Look) *world {
	t.Helper()
	x := &world{t: t, ledger: memledger.New(time.Now), a: &adapter{look: look, contract: operation.Contract{
		Provider: "crm", Action: "task.create", Class: operation.ClassLabel, Proof: operation.ProofDocumented,
		Total: 5 * time.Second, LateApply: 2 * time.Second,
		Lookup: operation.Lookup{Available: true, Lag: time.Minute, Schedule: []time.Duration{time.Second, 10 * time.Second, time.Minute}},
	}}}
	var err error
	if x.w, err = writer.New(writer.Config{Journal: x.ledger, Ledger: ledgerID, Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	if x.r, err = reconciler.New(reconciler.Config{
		Recorder: x.w, States: x.ledger, Adapters: x.a, Worker: "me#2", Predecessors: predecessors,
		Now: time.Now, Random: func() float64 { return 0 },
	}); err != nil {
		t.Fatal(err)
	}
	_, err = x.w.Append(t.Context(), operation.State{Tenant: "acme", OperationID: "op-1"}, "t",
		events.IntentRecorded{
			Provider: "crm", Account: events.Account{Name: "main", ProviderID: "acct_1"}, Action: "task.create",
			IntentDigest: "sha256-jcs:i", OnUnknown: events.OnUnknownContract,
		},
		events.AttemptStarted{AttemptID: "a1", Number: 1, Worker: "me#1", LeaseMS: 15_000, RequestDigest: "sha256:r"})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *world) state() operation.State {
	x.t.Helper()
	s, err := x.ledger.Truth(context.Background(), "acme", "op-1")
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

// start drives the reconciler, as the dispatcher does, until it is stopped.
func (x *world) start() (stop func()) {
	x.t.Helper()
	ctx, cancel := context.WithCancel(x.t.Context())
	disp, err := dispatch.New(dispatch.Config{Planner: x.r})
	if err != nil {
		x.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = disp.Run(ctx); close(done) }()
	disp.Wake(dispatch.Key{Tenant: "acme", Operation: "op-1"}, 0)
	return func() { cancel(); <-done }
}

// run drives the reconciler for a while.
func (x *world) run(d time.Duration) {
	x.t.Helper()
	stop := x.start()
	time.Sleep(d)
	synctest.Wait()
	stop()
}

// Cases G80, F76: a worker that dies leaves an unknown outcome when its lease
// is over, never earlier; then it is looked for.
func TestLeaseEndBecomesUnknownAndIsLookedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, "", func(int) operation.Look { return found("731") })
		x.run(14 * time.Second)
		if s := x.state(); s.Status != operation.StatusInFlight {
			t.Errorf("after 14 s: got %s, want in_flight", s.Status)
		}
		x.run(3 * time.Second)
		s := x.state()
		if s.Status != operation.StatusConfirmed || s.Result.Via != events.ViaLookup || s.Started != 1 {
			t.Errorf("got %s, %+v", s.Status, s.Result)
		}
	})
}

// I20: what a dead predecessor left is recorded as unknown at once.
func TestDeadPredecessorsAttemptIsUnknownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, "me", func(int) operation.Look { return found("731") })
		x.run(2 * time.Second)
		if s := x.state(); s.Status != operation.StatusConfirmed {
			t.Errorf("got %s, want confirmed", s.Status)
		}
	})
}

// I11, cases C33, C35: empty looks inside the lag are inconclusive; the schedule
// goes on until the object shows.
func TestEmptyLooksInsideTheLagAreInconclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, "me", func(n int) operation.Look {
			if n < 3 {
				return found()
			}
			return found("731")
		})
		x.run(2 * time.Minute)
		s := x.state()
		if s.Status != operation.StatusConfirmed || x.a.looks.Load() != 3 {
			t.Errorf("got %s after %d looks", s.Status, x.a.looks.Load())
		}
		for _, e := range s.Evidence[:2] {
			if e.Finding != events.FindingInconclusive {
				t.Errorf("got finding %s", e.Finding)
			}
		}
	})
}

// I4, I12, cases C39, C42: looks that never find anything end with a question to
// a person, never with a repeat.
func TestScheduleEndsInAReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, "me", func(int) operation.Look { return found() })
		x.run(time.Hour)
		s := x.state()
		if s.Status != operation.StatusUnknown || s.Review == nil || s.Review.Reason != events.ReviewEvidenceExhausted || s.Permit != nil {
			t.Errorf("got %s, review %+v, permit %+v", s.Status, s.Review, s.Permit)
		}
		if x.a.looks.Load() != 3 {
			t.Errorf("got %d looks, want the 3 of the schedule", x.a.looks.Load())
		}
	})
}

// I8: a look under another account is void and asks a person.
func TestLookUnderAnotherAccountIsVoid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, "me", func(int) operation.Look {
			l := found("731")
			l.AccountOK, l.AccountProbed = false, "acct_2"
			return l
		})
		x.run(time.Minute)
		s := x.state()
		if s.Status != operation.StatusUnknown || s.Review == nil || s.Review.Reason != events.ReviewAccountMismatch || len(s.ExternalIDs) != 0 {
			t.Errorf("got %s, review %+v", s.Status, s.Review)
		}
	})
}

// Two objects with our label: a duplicate is found, the earliest confirms, and a
// person is told.
func TestTwoObjectsAreADuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, "me", func(int) operation.Look { return found("731", "732") })
		x.run(time.Minute)
		s := x.state()
		if s.Status != operation.StatusConfirmed || s.Result.ExternalID != "731" || !s.Duplicate || s.Review == nil {
			t.Errorf("got %s %+v, duplicate %t, review %+v", s.Status, s.Result, s.Duplicate, s.Review)
		}
	})
}

// Case F77: two reconcilers on one operation end in one state.
func TestTwoReconcilersAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, "me", func(int) operation.Look {
			time.Sleep(100 * time.Millisecond)
			return found("731")
		})
		other := x.start()
		x.run(2 * time.Minute)
		other()
		s := x.state()
		if s.Status != operation.StatusConfirmed || s.Duplicate || len(s.Anomalies) != 0 {
			t.Errorf("got %s, duplicate %t, anomalies %v", s.Status, s.Duplicate, s.Anomalies)
		}
	})
}

// What this process can't serve is left to others; that a lease is over needs no
// contract and is recorded.
func TestOperationWithoutContractIsLeftToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, "me", func(int) operation.Look { return found("731") })
		x.a.notMine = true
		x.run(10 * time.Minute)
		if s := x.state(); s.Version != 3 || s.Status != operation.StatusUnknown || x.a.looks.Load() != 0 {
			t.Errorf("got version %d, %s, %d looks; want just the end of the lease", s.Version, s.Status, x.a.looks.Load())
		}
	})
}

// A projection that is behind shows an attempt as open whose lease is over, and
// the log has its result: the compare-and-swap refuses, and nothing is recorded.
func TestAStaleProjectionEndsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, "", func(int) operation.Look { return found("732") })
		s := x.state()
		if _, err := x.w.Append(t.Context(), s, "w", events.ResultConfirmed{ExternalID: "731", Via: events.ViaResponse, AttemptID: "a1"}); err != nil {
			t.Fatal(err)
		}
		x.ledger.HoldBack("acme", "op-1", 2)
		x.run(time.Hour)
		if s := x.state(); s.Version != 3 || s.Status != operation.StatusConfirmed || s.Result.ExternalID != "731" || x.a.looks.Load() != 0 {
			t.Errorf("got version %d, %s, %+v after %d looks", s.Version, s.Status, s.Result, x.a.looks.Load())
		}
	})
}
