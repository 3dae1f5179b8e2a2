package executor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/executor"
	"github.com/opledger/opledger/operation"
)

// Rows of docs/faults.md that concern the executor alone.

// An executor that dies between its claim and AttemptStarted delays the operation
// by its claim, and no longer: nothing was sent, and another one sends.
func TestClaimOfADeadWorkerDelaysAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome { return success("731") })
		end := time.Now().Add(15 * time.Second)
		if _, _, err := x.ledger.Take(t.Context(), executor.Claim{
			Tenant: "acme", Operation: "op-1", AttemptID: "of-the-dead", Worker: "dead", Until: end, Settled: func(string) bool { return false },
		}); err != nil {
			t.Fatal(err)
		}
		e := x.executor("w")
		again := mustWork(t, e)
		if x.a.sent() != 0 || x.state().Status != operation.StatusPending || again.At.Before(end) || again.At.After(end.Add(10*time.Second)) {
			t.Errorf("beside the claim: got %d requests, %s, again %v; the claim ends %v", x.a.sent(), x.state().Status, again.At, end)
		}
		time.Sleep(time.Until(again.At))
		mustWork(t, e)
		if x.a.sent() != 1 || x.state().Status != operation.StatusConfirmed {
			t.Errorf("behind the claim: got %d requests, %s", x.a.sent(), x.state().Status)
		}
	})
}

// I2: an AttemptStarted that lands in the log after its executor has given up is
// an attempt without a sender: nobody sends it, however often it is planned.
func TestAStartThatLandsLateIsNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome { return success("731") })
		var late events.Event
		x.ledger.BeforeAppend = func(e events.Event) error {
			if e.Data.Kind() == events.KindAttemptStarted {
				late = e
				return errors.New("no verdict")
			}
			return nil
		}
		mustWork(t, x.executor("w"))
		x.ledger.BeforeAppend = nil
		if late.ID == "" {
			t.Fatal("no start was tried")
		}
		if _, err := x.ledger.Append(t.Context(), late, x.state().LastSeq); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			mustWork(t, x.executor("w"))
			mustWork(t, x.executor("w2"))
			time.Sleep(time.Minute)
		}
		if s := x.state(); x.a.sent() != 0 || s.Started != 1 {
			t.Errorf("got %d requests, %d starts", x.a.sent(), s.Started)
		}
	})
}

// The answer to the append of an outcome is lost, again and again: it is recorded
// once, and the request was sent once.
func TestAnOutcomeWhoseAnswerIsLostIsRecordedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newWorld(t, func(context.Context, int) operation.Outcome { return success("731") })
		lost := 0
		x.ledger.AfterAppend = func(e events.Event) error {
			if e.Data.Kind() == events.KindResultConfirmed && lost < 5 {
				lost++
				return errors.New("no verdict")
			}
			return nil
		}
		mustWork(t, x.executor("w"))
		s := x.state()
		if s.Status != operation.StatusConfirmed || s.Duplicate || len(s.Anomalies) > 0 || len(x.kinds()) != 3 || x.a.sent() != 1 || lost == 0 {
			t.Errorf("got %v, %+v after %d requests and %d lost answers", x.kinds(), s, x.a.sent(), lost)
		}
	})
}

// I1: whoever ended the lease meanwhile, because he took the worker for dead or
// because his clock is ahead: the success is recorded behind it and confirms.
func TestSuccessBehindAnEarlyUnknownConfirms(t *testing.T) {
	for name, before := range map[string]func(attempt string) []events.Payload{
		"unknown": func(attempt string) []events.Payload {
			return []events.Payload{events.OutcomeUnknown{AttemptID: attempt, Reason: events.UnknownLeaseExpired}}
		},
		"unknown and in review": func(attempt string) []events.Payload {
			return []events.Payload{
				events.OutcomeUnknown{AttemptID: attempt, Reason: events.UnknownLeaseExpired},
				events.ReviewOpened{Reason: events.ReviewNoEvidence},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newWorld(t, nil)
				x.a.do = func(context.Context, int) operation.Outcome {
					s := x.state()
					x.append(s, before(s.Attempts[0].ID)...)
					time.Sleep(2 * time.Second)
					return success("731")
				}
				mustWork(t, x.executor("w"))
				s := x.state()
				if s.Status != operation.StatusConfirmed || s.Result.ExternalID != "731" || s.Review != nil || s.Duplicate || x.a.sent() != 1 {
					t.Errorf("got %s, %+v, review %+v: %v", s.Status, s.Result, s.Review, x.kinds())
				}
			})
		})
	}
}

// I19: a reconciler confirms in the same moment. One object is one result; two
// are a duplicate for a person, and the first result stays.
func TestConfirmationBesideAnotherIsOneResultOrADuplicate(t *testing.T) {
	for id, duplicate := range map[string]bool{"731": false, "732": true} {
		t.Run(id, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newWorld(t, nil)
				x.a.do = func(context.Context, int) operation.Outcome {
					s := x.state()
					x.append(s, events.OutcomeUnknown{AttemptID: s.Attempts[0].ID, Reason: events.UnknownLeaseExpired},
						events.ResultConfirmed{ExternalID: "731", Via: events.ViaLookup, AttemptID: s.Attempts[0].ID})
					return success(id)
				}
				mustWork(t, x.executor("w"))
				s := x.state()
				if s.Status != operation.StatusConfirmed || s.Result.ExternalID != "731" || s.Duplicate != duplicate || (s.Review != nil) != duplicate {
					t.Errorf("got %s, %+v, duplicate %t, review %+v: %v", s.Status, s.Result, s.Duplicate, s.Review, x.kinds())
				}
			})
		})
	}
}
