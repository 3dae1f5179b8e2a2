package executor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/executor"
	"github.com/opledger/opledger/internal/dispatch"
	"github.com/opledger/opledger/internal/memledger"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// scoped is a world of operations that share one conflict scope.
type scoped struct {
	*world

	mu   sync.Mutex
	sent map[string]int
	// answer says what happens to a request of an operation.
	answer func(op string) operation.Outcome
	freed  []string
	// ahead is how far the clock of this process is before the log's.
	ahead time.Duration
	// lateOf says how late the requests of an operation may land, where it differs.
	lateOf map[string]time.Duration
	doubts map[string]bool
}

// Prepare names the operation in the request, so that Do knows it.
func (x *scoped) Prepare(c providers.Call) (*providers.Request, error) {
	return &providers.Request{Digest: c.Operation}, nil
}

func (x *scoped) Probe(context.Context, providers.Call) (string, error) { return "acct_1", nil }

func (x *scoped) Do(_ context.Context, r *providers.Request) operation.Outcome {
	x.mu.Lock()
	x.sent[r.Digest]++
	x.mu.Unlock()
	return x.answer(r.Digest)
}

func (x *scoped) Lookup(context.Context, providers.Call) operation.Look {
	return operation.Look{Failed: true}
}

func (x *scoped) Contract(string) (operation.Contract, bool) { return x.a.contract, true }

func (x *scoped) For(_ context.Context, i events.IntentRecorded) (providers.Adapter, operation.Contract, error) {
	c := x.a.contract
	if late, differs := x.lateOf[strings.TrimPrefix(i.IntentDigest, "sha256-jcs:")]; differs {
		c.LateApply = late
	}
	return x, c, nil
}

func newScoped(t *testing.T, class operation.Class, ops ...string) *scoped {
	t.Helper()
	x := &scoped{
		world: &world{t: t, ledger: memledger.New(time.Now), a: &adapter{contract: operation.Contract{
			Provider: "crm", Action: "contact.upsert", Class: class, Scoped: true, Proof: operation.ProofDocumented,
			KeySupported: class == operation.ClassUpsert, Retention: operation.Forever,
			Total: 5 * time.Second, LateApply: 20 * time.Second, MaxAttempts: 3,
		}}},
		sent: make(map[string]int), doubts: make(map[string]bool),
		answer: func(string) operation.Outcome { return success("731") },
	}
	var err error
	if x.w, err = writer.New(writer.Config{Journal: x.ledger, Ledger: ledgerID, Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		x.append(operation.State{Tenant: "acme", OperationID: op}, events.IntentRecorded{
			Provider: "crm", Account: events.Account{Name: "main", ProviderID: "acct_1"}, Action: "contact.upsert",
			IntentDigest: "sha256-jcs:" + op, OnUnknown: events.OnUnknownContract, ConflictScope: "contact-7",
		})
		time.Sleep(time.Second)
	}
	return x
}

func (x *scoped) executor(name string) *executor.Executor {
	x.t.Helper()
	e, err := executor.New(executor.Config{
		Recorder: x.w, States: ownClock{x.ledger, x.ahead}, Claims: x.ledger, Stamps: x.ledger, Scopes: x.ledger, Adapters: x, Worker: name,
		LeaseGrace: 10 * time.Second, Now: time.Now, Random: func() float64 { return 0 },
		Free: func(k dispatch.Key) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.freed = append(x.freed, k.Operation)
		},
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return e
}

func (x *scoped) work(e *executor.Executor, op string) dispatch.Again {
	p, err := e.Plan(context.Background(), dispatch.Key{Tenant: "acme", Operation: op}, 0)
	if err != nil || p.Run == nil {
		return p.Again
	}
	return p.Run(context.Background())
}

func (x *scoped) of(op string) operation.State {
	x.t.Helper()
	s, err := x.ledger.Truth(context.Background(), "acme", op)
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

func (x *scoped) sends(op string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sent[op]
}

func uncertain() operation.Outcome {
	return operation.Outcome{Word: operation.OutcomeUncertain, Unknown: events.UnknownTimeout}
}

// Case A20: an unknown outcome blocks its own scope; when it is settled, those
// that wait are told and run.
func TestUnknownOutcomeBlocksItsScopeUntilItIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newScoped(t, operation.ClassLabel, "op-1", "op-3")
		x.answer = func(op string) operation.Outcome {
			if op == "op-1" {
				return uncertain()
			}
			return success("732")
		}
		e := x.executor("w")
		x.work(e, "op-1")
		again := x.work(e, "op-3")
		if x.sends("op-3") != 0 || x.of("op-3").Started != 0 || again.At.IsZero() {
			t.Fatalf("op-3 sent %d requests, started %d, again at %v; want it to wait", x.sends("op-3"), x.of("op-3").Started, again.At)
		}
		s := x.of("op-1")
		x.append(s, events.Rejected{
			Reason: "nothing there", Via: events.ViaOperator, SeenVersion: s.Version,
			Covers: []events.Covered{{AttemptID: s.Attempts[0].ID, By: "operator"}},
		})
		e.Freed(dispatch.Key{Tenant: "acme", Operation: "op-1"})
		if len(x.freed) != 1 || x.freed[0] != "op-3" {
			t.Fatalf("told %v, want op-3", x.freed)
		}
		x.work(e, "op-3")
		if got := x.of("op-3").Status; got != operation.StatusConfirmed {
			t.Errorf("op-3 is %s, want confirmed", got)
		}
	})
}

// A request that may still land late keeps the scope even after its operation
// was confirmed by another attempt.
func TestConfirmedOperationKeepsItsScopeWhileAnotherRequestMayLand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newScoped(t, operation.ClassUpsert, "op-1", "op-2")
		n := 0
		x.answer = func(string) operation.Outcome {
			if n++; n == 1 {
				return uncertain()
			}
			return success("731")
		}
		e := x.executor("w")
		x.work(e, "op-1")
		s := x.of("op-1")
		x.append(s, events.RetryPermitted{
			PermitID: "p", Basis: events.BasisKeyRetention, ValidUntil: time.Now().Add(time.Hour), RetryAt: time.Now(),
			Next: events.Next{Action: events.NextAttempt, At: time.Now()},
		})
		x.work(e, "op-1")
		s = x.of("op-1")
		if s.Status != operation.StatusConfirmed || len(s.Unresolved()) != 1 {
			t.Fatalf("op-1 is %s with %d attempts in doubt, want confirmed with 1", s.Status, len(s.Unresolved()))
		}
		again := x.work(e, "op-2")
		if x.sends("op-2") != 0 || again.At.IsZero() {
			t.Fatal("op-2 must wait for what may still land")
		}
		time.Sleep(time.Minute)
		x.work(e, "op-2")
		if got := x.of("op-2").Status; got != operation.StatusConfirmed {
			t.Errorf("op-2 is %s after the time in which a request may land, want confirmed", got)
		}
	})
}

// K3: what was wished earlier never overwrites what was written for a later
// wish without a person.
func TestOlderWishDoesNotOverwriteANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newScoped(t, operation.ClassUpsert, "older", "newer")
		e := x.executor("w")
		x.work(e, "newer")
		x.work(e, "older")
		s := x.of("older")
		if x.sends("older") != 0 || s.Review == nil || s.Review.Reason != events.ReviewOvertaken {
			t.Fatalf("older sent %d requests, review %+v; want none, and scope_overtaken", x.sends("older"), s.Review)
		}
		x.append(s, events.RetryPermitted{
			PermitID: "p", Basis: events.BasisOperator, ValidUntil: time.Now().Add(time.Hour), RetryAt: time.Now(),
			SeenVersion: s.Version, Reason: "wanted", Next: events.Next{Action: events.NextAttempt, At: time.Now()},
		})
		x.work(e, "older")
		if got := x.of("older").Status; got != operation.StatusConfirmed {
			t.Errorf("a person permitted it and it is %s, want confirmed", got)
		}
	})
}

// K3: that a third operation took the scope in between and wrote nothing does not
// make the newest wish forgotten.
func TestOlderWishIsHeldBackThoughTheLastToTakeTheScopeWroteNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newScoped(t, operation.ClassUpsert, "older", "newer", "refused", "refused-too")
		x.answer = func(op string) operation.Outcome {
			if op == "newer" {
				return success("731")
			}
			return operation.Outcome{Word: operation.OutcomeRejected, Reason: "no"}
		}
		e := x.executor("w")
		for _, op := range []string{"newer", "refused", "refused-too"} {
			x.work(e, op)
		}
		x.work(e, "older")
		if s := x.of("older"); x.sends("older") != 0 || s.Review == nil || s.Review.Reason != events.ReviewOvertaken {
			t.Errorf("older sent %d requests, review %+v; want none, and scope_overtaken", x.sends("older"), s.Review)
		}
	})
}

// ownClock shows operations with the time stamps of a process that wrote them
// itself and has not read them back.
type ownClock struct {
	*memledger.Ledger
	ahead time.Duration
}

func (o ownClock) State(ctx context.Context, tenant, op string, min uint64) (operation.State, error) {
	s, err := o.Ledger.State(ctx, tenant, op, min)
	s.RecordedAt = s.RecordedAt.Add(o.ahead)
	return s, err
}

// K3: which wish is older is the log's clock's to say, not that of the process
// that wrote it.
func TestOrderOfWishesIsThatOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newScoped(t, operation.ClassUpsert, "older", "newer")
		x.ahead = 5 * time.Second
		e := x.executor("w")
		x.work(e, "newer")
		x.work(e, "older")
		if s := x.of("older"); x.sends("older") != 0 || s.Review == nil {
			t.Errorf("older sent %d requests, review %+v; want none, and scope_overtaken", x.sends("older"), s.Review)
		}
	})
}

// A scope that was handed in holds operations of different actions: what may land
// late is the holder's matter, not that of who waits.
func TestScopeIsHeldAsLongAsTheHoldersOwnContractLetsItLandLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newScoped(t, operation.ClassUpsert, "op-1", "op-2")
		n := 0
		x.answer = func(string) operation.Outcome {
			if n++; n == 1 {
				return uncertain()
			}
			return success("731")
		}
		e := x.executor("w")
		x.work(e, "op-1")
		x.append(x.of("op-1"), events.RetryPermitted{
			PermitID: "p", Basis: events.BasisKeyRetention, ValidUntil: time.Now().Add(time.Hour), RetryAt: time.Now(),
			Next: events.Next{Action: events.NextAttempt, At: time.Now()},
		})
		x.work(e, "op-1")
		x.lateOf = map[string]time.Duration{"op-1": 10 * time.Minute}
		time.Sleep(time.Minute)
		x.work(e, "op-2")
		if x.sends("op-2") != 0 {
			t.Fatal("op-2 was sent while a request of op-1 may land")
		}
		time.Sleep(10 * time.Minute)
		x.work(e, "op-2")
		if got := x.of("op-2").Status; got != operation.StatusConfirmed {
			t.Errorf("op-2 is %s, want confirmed", got)
		}
	})
}

// I2: nothing is sent unless it is acknowledged that the scope is taken,
// whether that record was stored or not.
func TestNothingIsSentWithoutAnAcknowledgedScope(t *testing.T) {
	for name, stored := range map[string]bool{"not stored": false, "stored": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newScoped(t, operation.ClassLabel, "op-1")
				lose := func(string) error { return errors.New("no verdict") }
				if stored {
					x.ledger.AfterScope = lose
				} else {
					x.ledger.BeforeScope = lose
				}
				e := x.executor("w")
				x.work(e, "op-1")
				s := x.of("op-1")
				if x.sends("op-1") != 0 || s.Status != operation.StatusPending || s.Attempts[0].Proof != events.ProofNotSent {
					t.Fatalf("sent %d requests, %s, %+v; want nothing sent, and so recorded", x.sends("op-1"), s.Status, s.Attempts)
				}
				x.ledger.BeforeScope, x.ledger.AfterScope = nil, nil
				time.Sleep(time.Hour)
				x.work(e, "op-1")
				if got := x.of("op-1").Status; got != operation.StatusConfirmed {
					t.Errorf("it is %s afterwards, want confirmed", got)
				}
			})
		})
	}
}

// Of the operations of one scope at most one is ever in doubt with a request on
// the wire, whatever fails between claim, log and scope.
func TestAtMostOneOperationOfAScopeIsInDoubt(t *testing.T) {
	const rounds = 150
	for seed := range uint64(rounds) {
		synctest.Test(t, func(t *testing.T) { playScope(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func playScope(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 7))
	var dice sync.Mutex
	chance := func(p float64) bool {
		dice.Lock()
		defer dice.Unlock()
		return random.Float64() < p
	}
	var ops []string
	for i := range 5 {
		ops = append(ops, fmt.Sprintf("op-%d", i))
	}
	x := newScoped(t, operation.ClassLabel, ops...)
	fail := func(p float64) func(string) error {
		return func(string) error {
			time.Sleep(time.Second)
			if chance(p) {
				return errors.New("no verdict")
			}
			return nil
		}
	}
	x.ledger.BeforeScope, x.ledger.AfterScope = fail(0.1), fail(0.1)
	x.ledger.BeforeAppend = func(e events.Event) error {
		if e.Data.Kind() == events.KindAttemptStarted {
			return fail(0.1)("")
		}
		return nil
	}
	x.answer = func(op string) operation.Outcome {
		if others := x.inDoubt(); len(others) > 0 {
			t.Errorf("%s is on the wire while %v may have had an effect", op, others)
		}
		x.doubt(op, true)
		time.Sleep(2 * time.Second)
		switch {
		case chance(0.4):
			return uncertain()
		case chance(0.3):
			x.doubt(op, false)
			return operation.Outcome{Word: operation.OutcomeNotApplied, Reason: "busy"}
		}
		x.doubt(op, false)
		return success("obj-" + op)
	}
	var wg sync.WaitGroup
	for w := range 4 {
		e := x.executor(fmt.Sprintf("w%d", w))
		wg.Go(func() {
			for range 60 {
				dice.Lock()
				op := ops[random.IntN(len(ops))]
				dice.Unlock()
				x.work(e, op)
				if s := x.of(op); s.Status == operation.StatusUnknown && chance(0.3) {
					x.settle(s)
				}
				time.Sleep(time.Second)
			}
		})
	}
	wg.Wait()
}

// settle plays the person who finds out that nothing happened.
func (x *scoped) settle(s operation.State) {
	var covers []events.Covered
	for _, a := range s.Attempts {
		covers = append(covers, events.Covered{AttemptID: a.ID, By: "operator"})
	}
	x.doubt(s.OperationID, false)
	_, _ = x.w.Append(context.Background(), s, "ann", events.Rejected{Reason: "looked", Via: events.ViaOperator, Covers: covers}) // another may have been first
}

// doubt notes whether a request of the operation may have had its effect.
func (x *scoped) doubt(op string, in bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.doubts[op] = in
}

// inDoubt lists the operations in doubt.
func (x *scoped) inDoubt() (ops []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for op, in := range x.doubts {
		if in {
			ops = append(ops, op)
		}
	}
	return ops
}
