package executor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

const ledgerID = "6f1c3c0e-2f44-4ad0-9a0e-0d8f5b7f2b11"

// adapter plays a provider; do says what happens to a request.
type adapter struct {
	contract operation.Contract
	account  string
	digest   string
	do       func(ctx context.Context, n int) operation.Outcome
	// got, if set, is shown each request first.
	got func(r *providers.Request)

	mu    sync.Mutex
	sends int
}

func (a *adapter) Prepare(providers.Call) (*providers.Request, error) {
	if a.digest == "" {
		return nil, errors.New("no template")
	}
	return &providers.Request{Digest: a.digest}, nil
}

func (a *adapter) Probe(context.Context, providers.Call) (string, error) { return a.account, nil }

func (a *adapter) Do(ctx context.Context, r *providers.Request) operation.Outcome {
	if a.got != nil {
		a.got(r)
	}
	a.mu.Lock()
	a.sends++
	n := a.sends
	a.mu.Unlock()
	return a.do(ctx, n)
}

func (a *adapter) Lookup(context.Context, providers.Call) operation.Look {
	return operation.Look{Failed: true}
}

func (a *adapter) Contract(string) (operation.Contract, bool) { return a.contract, true }

func (a *adapter) For(context.Context, events.IntentRecorded) (providers.Adapter, operation.Contract, error) {
	return a, a.contract, nil
}

func (a *adapter) sent() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sends
}

func success(id string) operation.Outcome {
	return operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: id}
}

type world struct {
	t      *testing.T
	ledger *memledger.Ledger
	a      *adapter
	w      *writer.Writer
}

// newWorld records one intent of a K4 action.
func newWorld(t *testing.T, do func(ctx context.Context, n int) operation.Outcome) *world {
	t.Helper()
	x := &world{t: t, ledger: memledger.New(time.Now), a: &adapter{
		account: "acct_1", digest: "sha256:r1", do: do,
		contract: operation.Contract{Provider: "crm", Action: "task.create", Class: operation.ClassLabel, Total: 5 * time.Second},
	}}
	var err error
	if x.w, err = writer.New(writer.Config{Journal: x.ledger, Ledger: ledgerID, Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	x.append(operation.State{Tenant: "acme", OperationID: "op-1"}, events.IntentRecorded{
		Provider: "crm", Account: events.Account{Name: "main", ProviderID: "acct_1"}, Action: "task.create",
		IntentDigest: "sha256-jcs:i", OnUnknown: events.OnUnknownContract,
	})
	return x
}

func (x *world) append(s operation.State, p ...events.Payload) operation.State {
	x.t.Helper()
	s, err := x.w.Append(x.t.Context(), s, "test", p...)
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

func (x *world) state() operation.State {
	x.t.Helper()
	s, err := x.ledger.Truth(context.Background(), "acme", "op-1")
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

func (x *world) kinds() []events.Kind {
	x.t.Helper()
	recs, err := x.ledger.Load(context.Background(), "acme", "op-1")
	if err != nil {
		x.t.Fatal(err)
	}
	var out []events.Kind
	for _, r := range recs {
		out = append(out, r.Data.Kind())
	}
	return out
}

func (x *world) executor(name string) *executor.Executor {
	x.t.Helper()
	e, err := executor.New(executor.Config{
		Recorder: x.w, States: x.ledger, Claims: x.ledger, Stamps: x.ledger, Scopes: x.ledger, Adapters: x.a, Worker: name,
		LeaseGrace: 10 * time.Second, Now: time.Now, Random: func() float64 { return 0 },
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return e
}

// work plans op-1 and runs what was planned.
func work(ctx context.Context, e *executor.Executor) (dispatch.Again, error) {
	p, err := e.Plan(ctx, dispatch.Key{Tenant: "acme", Operation: "op-1"}, 0)
	if err != nil || p.Run == nil {
		return p.Again, err
	}
	return p.Run(ctx), nil
}

func mustWork(t *testing.T, e *executor.Executor) dispatch.Again {
	t.Helper()
	again, err := work(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// Case F78: a hundred executors, one operation: one AttemptStarted, one request.
func TestHundredExecutorsSendOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome {
			time.Sleep(time.Second)
			return success("731")
		})
		var wg sync.WaitGroup
		for i := range 100 {
			e := x.executor(fmt.Sprintf("w%d", i))
			wg.Go(func() { _, _ = work(t.Context(), e) })
		}
		wg.Wait()
		if x.a.sent() != 1 || x.state().Status != operation.StatusConfirmed {
			t.Errorf("got %d requests and %s, want 1 and confirmed", x.a.sent(), x.state().Status)
		}
		if got := x.kinds(); len(got) != 3 {
			t.Errorf("got %v", got)
		}
	})
}

// I3: the log is the fence: even if the claims bucket is lost between claim and
// append, one attempt starts.
func TestLostClaimsStillSendOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome {
			time.Sleep(time.Second)
			return success("731")
		})
		x.ledger.BeforeAppend = func(events.Event) error { x.ledger.LoseClaims(); return nil }
		var wg sync.WaitGroup
		for i := range 20 {
			e := x.executor(fmt.Sprintf("w%d", i))
			wg.Go(func() { _, _ = work(t.Context(), e) })
		}
		wg.Wait()
		if x.a.sent() != 1 {
			t.Errorf("got %d requests, want 1", x.a.sent())
		}
	})
}

// I2, case A17: the append of AttemptStarted is not acknowledged: nothing is
// sent, whether it was stored or not.
func TestNothingIsSentWithoutAnAcknowledgedStart(t *testing.T) {
	for name, stored := range map[string]bool{"not stored": false, "stored": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newWorld(t, func(context.Context, int) operation.Outcome { return success("731") })
				lose := func(e events.Event) error {
					if e.Data.Kind() == events.KindAttemptStarted {
						return errors.New("no verdict")
					}
					return nil
				}
				if stored {
					x.ledger.AfterAppend = lose
				} else {
					x.ledger.BeforeAppend = lose
				}
				again := mustWork(t, x.executor("w"))
				if x.a.sent() != 0 {
					t.Errorf("got %d requests, want none", x.a.sent())
				}
				if s := x.state(); s.Status != operation.StatusPending || again.At.IsZero() {
					t.Errorf("got %s, again %v; want pending, and another try", s.Status, again)
				}
			})
		})
	}
}

// Case A20 in the executor's part, I14: the outcome is kept at while the log
// refuses appends.
func TestOutcomeIsRecordedAfterTheLogComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome { return success("731") })
		down := 30
		x.ledger.BeforeAppend = func(e events.Event) error {
			if e.Data.Kind() == events.KindResultConfirmed && down > 0 {
				down--
				return errors.New("no leader")
			}
			return nil
		}
		mustWork(t, x.executor("w"))
		if x.state().Status != operation.StatusConfirmed || x.a.sent() != 1 {
			t.Errorf("got %s after %d requests, want confirmed after 1", x.state().Status, x.a.sent())
		}
	})
}

// Cases F69, F71: no answer in time is unknown; the late answer confirms, and
// nothing goes back.
func TestLateAnswerConfirms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome {
			time.Sleep(7 * time.Second) // total is 5 s, the lease 15 s
			return success("731")
		})
		mustWork(t, x.executor("w"))
		want := []events.Kind{
			events.KindIntentRecorded, events.KindAttemptStarted, events.KindOutcomeUnknown,
			events.KindEvidenceRecorded, events.KindResultConfirmed,
		}
		if got := x.kinds(); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// An adapter is told which attempt sends its request. A sign of life prolongs
// nothing: the outcome is unknown at the same time, and says when it came.
func TestSignsOfLifeShowInTheEvidenceAndProlongNothing(t *testing.T) {
	for name, want := range map[string]string{
		"silent": "no answer in time", "alive": "no answer in time; the last sign of life came 2s before",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newWorld(t, func(ctx context.Context, _ int) operation.Outcome {
					<-ctx.Done()
					return operation.Outcome{Word: operation.OutcomeUncertain}
				})
				attempt := ""
				x.a.got = func(r *providers.Request) {
					attempt = r.AttemptID
					if name == "alive" {
						time.Sleep(3 * time.Second) // of 5
						r.Alive(time.Now())
					}
				}
				mustWork(t, x.executor("w"))
				recs, err := x.ledger.Load(t.Context(), "acme", "op-1")
				if err != nil || len(recs) != 3 {
					t.Fatalf("got %v, %v", x.kinds(), err)
				}
				unknown, ok := recs[2].Data.(events.OutcomeUnknown)
				if !ok || unknown.Transport == nil || unknown.Transport.Error != want || unknown.Transport.DurationMS != 5000 {
					t.Errorf("got %+v, want the error %q after 5 s", recs[2].Data, want)
				}
				if attempt == "" || attempt != unknown.AttemptID {
					t.Errorf("attempt of the request: got %q, want %q", attempt, unknown.AttemptID)
				}
			})
		})
	}
}

// Case F69, I1: a slow "no answer" after somebody else confirmed is ignored.
func TestUnknownAfterConfirmedIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, nil)
		x.a.do = func(context.Context, int) operation.Outcome {
			time.Sleep(4 * time.Second)
			s := x.state()
			x.append(s, events.ResultConfirmed{ExternalID: "731", Via: events.ViaWebhook})
			return operation.Outcome{Word: operation.OutcomeUncertain, Unknown: events.UnknownConnectionLost}
		}
		mustWork(t, x.executor("w"))
		if got := x.kinds(); got[len(got)-1] != events.KindResultConfirmed || x.state().Status != operation.StatusConfirmed {
			t.Errorf("got %v", got)
		}
	})
}

// Case F72: a worker that was frozen after its claim notices that its lease has
// no time left and sends nothing.
func TestFrozenWorkerSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome { return success("731") })
		x.ledger.AfterAppend = func(e events.Event) error {
			if e.Data.Kind() == events.KindAttemptStarted {
				time.Sleep(11 * time.Second) // the lease is 15 s, the request may take 5
			}
			return nil
		}
		mustWork(t, x.executor("w"))
		s := x.state()
		if x.a.sent() != 0 || s.Status != operation.StatusPending || s.Attempts[0].Proof != events.ProofNotSent {
			t.Errorf("got %d requests and %+v, want nothing sent and so recorded", x.a.sent(), s.Attempts)
		}
	})
}

// slowStamps reads the log's time stamps late.
type slowStamps struct {
	*memledger.Ledger
	after time.Duration
}

func (l slowStamps) Read(ctx context.Context, seq uint64) (events.Record, error) {
	time.Sleep(l.after)
	return l.Ledger.Read(ctx, seq)
}

// Case F72: the time that the log's stamp takes to be read back counts, too; the
// lease is judged right before the first byte (found by the simulation).
func TestSlowReadOfTheStampSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome { return success("731") })
		// The stamp is read where something depends on it: here an approval.
		s := x.append(operation.State{Tenant: "acme", OperationID: "op-2"}, events.IntentRecorded{
			Provider: "crm", Account: events.Account{Name: "main", ProviderID: "acct_1"}, Action: "task.create",
			IntentDigest: "sha256-jcs:i", Approval: &events.Approval{Required: true, Deadline: time.Now().Add(time.Hour)},
		})
		x.append(s, events.ApprovalGranted{Approver: "ann", IntentDigest: "sha256-jcs:i", ExpiresAt: time.Now().Add(time.Hour)})
		e, err := executor.New(executor.Config{
			Recorder: x.w, States: x.ledger, Claims: x.ledger, Scopes: x.ledger, Adapters: x.a, Worker: "w",
			Stamps:     slowStamps{x.ledger, 11 * time.Second}, // the lease is 15 s, the request may take 5
			LeaseGrace: 10 * time.Second, Now: time.Now, Random: func() float64 { return 0 },
		})
		if err != nil {
			t.Fatal(err)
		}
		p, err := e.Plan(t.Context(), dispatch.Key{Tenant: "acme", Operation: "op-2"}, 0)
		if err != nil || p.Run == nil {
			t.Fatalf("got %+v, %v, want a run", p, err)
		}
		p.Run(t.Context())
		if s, err = x.ledger.Truth(t.Context(), "acme", "op-2"); err != nil {
			t.Fatal(err)
		}
		if x.a.sent() != 0 || s.Status != operation.StatusPending || s.Attempts[0].Proof != events.ProofNotSent {
			t.Errorf("got %d requests and %+v, want nothing sent and so recorded", x.a.sent(), s.Attempts)
		}
	})
}

// Case F74: a second delivery while the request is under way sends nothing.
func TestRedeliveryDuringTheRequestSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome {
			time.Sleep(4 * time.Second)
			return success("731")
		})
		e := x.executor("w")
		go func() { _, _ = work(context.Background(), e) }()
		time.Sleep(time.Second)
		x.ledger.HoldBack("acme", "op-1", 1) // and its view is an old one
		again := mustWork(t, x.executor("w2"))
		if again.At.IsZero() {
			t.Error("the second delivery must come back later")
		}
		x.ledger.HoldBack("acme", "op-1", 0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if x.a.sent() != 1 || x.state().Status != operation.StatusConfirmed {
			t.Errorf("got %d requests, %s", x.a.sent(), x.state().Status)
		}
	})
}

// I8: a credential of another account sends nothing and asks a person.
func TestOtherAccountSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome { return success("731") })
		x.a.account = "acct_2"
		mustWork(t, x.executor("w"))
		s := x.state()
		if x.a.sent() != 0 || s.Started != 0 || s.Review == nil || s.Review.Reason != events.ReviewAccountMismatch {
			t.Errorf("got %d requests, review %+v", x.a.sent(), s.Review)
		}
	})
}

// A request that can't be built, or that changed since the first attempt, is
// not sent.
func TestChangedRequestSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome {
			return operation.Outcome{Word: operation.OutcomeNotSent, Reason: "refused"}
		})
		mustWork(t, x.executor("w"))
		x.a.digest = "sha256:r2"
		time.Sleep(time.Hour)
		mustWork(t, x.executor("w"))
		s := x.state()
		if x.a.sent() != 1 || s.Review == nil || s.Review.Reason != events.ReviewRequestChanged {
			t.Errorf("got %d requests, review %+v", x.a.sent(), s.Review)
		}
	})
}

// I20: when the process is told to stop, the request is given up after the
// drain time and recorded as possibly done.
func TestStopRecordsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(ctx context.Context, _ int) operation.Outcome {
			<-ctx.Done()
			return operation.Outcome{Word: operation.OutcomeUncertain}
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		if _, err := work(ctx, x.executor("w")); err != nil {
			t.Fatal(err)
		}
		s := x.state()
		if s.Status != operation.StatusUnknown || s.Attempts[0].Unknown != events.UnknownShutdown {
			t.Errorf("got %s, %+v", s.Status, s.Attempts)
		}
	})
}

// An adapter that panics has proven nothing.
func TestPanickingAdapterIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome { panic("secret") })
		mustWork(t, x.executor("w"))
		s := x.state()
		if s.Status != operation.StatusUnknown || s.Attempts[0].Unknown != events.UnknownAdapterError {
			t.Errorf("got %s, %+v", s.Status, s.Attempts)
		}
	})
}

// I4: an unknown outcome is never a licence: however often the executor is
// woken, nothing more is sent without a permit. Cases A6, A7, G81.
func TestUnknownIsNeverALicence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome {
			return operation.Outcome{Word: operation.OutcomeUncertain, Unknown: events.UnknownConnectionLost}
		})
		e := x.executor("w")
		for range 50 {
			mustWork(t, e)
			time.Sleep(time.Hour)
		}
		if x.a.sent() != 1 {
			t.Errorf("got %d requests, want 1", x.a.sent())
		}
	})
}

// I4, section 10: after damage to the log the first request of an operation that
// was recorded since may be a repeat: it is put in doubt, not sent.
func TestAfterDamageAFirstRequestIsPutInDoubtInsteadOfSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome { return success("731") })
		damaged := time.Now().Add(-time.Hour)
		epoch := true
		e, err := executor.New(executor.Config{
			Recorder: x.w, States: x.ledger, Claims: x.ledger, Stamps: x.ledger, Scopes: x.ledger, Adapters: x.a, Worker: "w-1",
			Now: time.Now, Random: func() float64 { return 0 },
			LookFirst: func(time.Time) (time.Time, bool) { return damaged, epoch },
		})
		if err != nil {
			t.Fatal(err)
		}
		run := func() {
			p, err := e.Plan(t.Context(), dispatch.Key{Tenant: "acme", Operation: "op-1"}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if p.Run != nil {
				p.Run(t.Context())
			}
		}
		run()
		run()
		if s := x.state(); x.a.sent() != 0 || s.Status != operation.StatusUnknown || !s.FirstSend.Equal(damaged) {
			t.Fatalf("sent %d, status %s, first send %s", x.a.sent(), s.Status, s.FirstSend)
		}
		// Without damage the same operation is sent.
		x.append(operation.State{Tenant: "acme", OperationID: "op-2"}, x.state().Intent)
		epoch = false
		p, err := e.Plan(t.Context(), dispatch.Key{Tenant: "acme", Operation: "op-2"}, 0)
		if err != nil || p.Run == nil {
			t.Fatalf("got %+v, %v", p, err)
		}
		p.Run(t.Context())
		if x.a.sent() != 1 {
			t.Errorf("sent %d", x.a.sent())
		}
	})
}

// I16: an alarm that is raised between the check and the first byte still keeps
// the request from leaving.
func TestAlarmRaisedWhileRecordingSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome { return success("731") })
		alarm := ""
		x.ledger.AfterAppend = func(e events.Event) error {
			if e.Data.Kind() == events.KindAttemptStarted {
				alarm = "message 7 is missing"
			}
			return nil
		}
		e, err := executor.New(executor.Config{
			Recorder: x.w, States: x.ledger, Claims: x.ledger, Stamps: x.ledger, Scopes: x.ledger, Adapters: x.a, Worker: "w",
			Now: time.Now, Random: func() float64 { return 0 }, Alarm: func() string { return alarm },
		})
		if err != nil {
			t.Fatal(err)
		}
		mustWork(t, e)
		if s := x.state(); x.a.sent() != 0 || s.Status != operation.StatusPending || s.Attempts[0].Proof != events.ProofNotSent {
			t.Errorf("got %d requests, %s, %+v; want nothing sent, and so recorded", x.a.sent(), s.Status, s.Attempts)
		}
	})
}

// A lane that waits for the check of the log starts soon after its verdict, however
// long that took.
func TestALaneStartsSoonAfterTheVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome { return success("731") })
		verdict := time.Now().Add(5 * time.Minute)
		e, err := executor.New(executor.Config{
			Recorder: x.w, States: x.ledger, Claims: x.ledger, Stamps: x.ledger, Scopes: x.ledger, Adapters: x.a, Worker: "w",
			Now: time.Now, Random: func() float64 { return 0 }, Alarm: func() string {
				if time.Now().Before(verdict) {
					return "the log is being checked"
				}
				return ""
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for x.a.sent() == 0 {
			p, err := e.Plan(t.Context(), dispatch.Key{Tenant: "acme", Operation: "op-1"}, 0)
			if err != nil {
				t.Fatal(err)
			}
			again := p.Again
			if p.Run != nil {
				again = p.Run(t.Context())
			}
			time.Sleep(time.Until(again.At))
		}
		if late := time.Since(verdict); late < 0 || late > 2*time.Second {
			t.Errorf("sent %s after the verdict", late)
		}
	})
}
