package writer_test

import (
	"errors"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/memledger"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
)

const ledgerID = "6f1c3c0e-2f44-4ad0-9a0e-0d8f5b7f2b11"

func newWriter(t *testing.T, l *memledger.Ledger, observe writer.Observer) *writer.Writer {
	t.Helper()
	w, err := writer.New(writer.Config{Journal: l, Ledger: ledgerID, Now: time.Now, Observe: observe})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func intent() events.IntentRecorded {
	return events.IntentRecorded{
		Provider: "crm", Account: events.Account{Name: "main"}, Action: "task.create",
		IntentDigest: "sha256-jcs:i", OnUnknown: events.OnUnknownContract,
	}
}

// I13: what is appended in one go forms one chain without gap, and each event is
// told once it is stored.
func TestEventsOfOneDecisionFormAChain(t *testing.T) {
	l := memledger.New(time.Now)
	told := 0
	w := newWriter(t, l, func(before, after operation.State, _ events.Event) {
		told++
		if after.Version != before.Version+1 {
			t.Errorf("told of version %d after %d", after.Version, before.Version)
		}
	})
	s, err := w.Append(t.Context(), operation.State{Tenant: "acme", OperationID: "op-1"}, "test", intent(),
		events.AttemptStarted{AttemptID: "a1", Number: 1, LeaseMS: 1000},
		events.OutcomeUnknown{AttemptID: "a1", Reason: events.UnknownTimeout})
	if err != nil || s.Version != 3 || told != 3 || len(s.Anomalies) != 0 {
		t.Fatalf("got version %d, %d told, anomalies %v, %v", s.Version, told, s.Anomalies, err)
	}
	truth, err := l.Truth(t.Context(), "acme", "op-1")
	if err != nil || truth.Version != 3 || truth.Head != s.Head || truth.LastSeq != s.LastSeq {
		t.Errorf("the log folds to %+v, %v", truth, err)
	}
}

// A decision that loses its place in the middle says what is stored and is never
// put behind the other's event.
func TestLostDecisionIsNotRebased(t *testing.T) {
	l := memledger.New(time.Now)
	w := newWriter(t, l, nil)
	s, err := w.Append(t.Context(), operation.State{Tenant: "acme", OperationID: "op-1"}, "test", intent())
	if err != nil {
		t.Fatal(err)
	}
	other := newWriter(t, l, nil)
	n := 0
	l.BeforeAppend = func(events.Event) error {
		if n++; n == 2 {
			l.BeforeAppend = nil
			truth, err := l.Truth(t.Context(), "acme", "op-1")
			if err != nil {
				return err
			}
			_, err = other.Append(t.Context(), truth, "other", events.OutcomeUnknown{AttemptID: "a1", Reason: events.UnknownLeaseExpired})
			return err
		}
		return nil
	}
	s, err = w.Append(t.Context(), s, "test", events.AttemptStarted{AttemptID: "a1", Number: 1, LeaseMS: 1000},
		events.AttemptNotApplied{AttemptID: "a1", Proof: events.ProofNotSent})
	if !errors.Is(err, events.ErrConflict) || s.Version != 2 {
		t.Fatalf("got version %d, %v, want the first event and a conflict", s.Version, err)
	}
	truth, err := l.Truth(t.Context(), "acme", "op-1")
	if err != nil || truth.Version != 3 || truth.Status != operation.StatusUnknown {
		t.Errorf("the log folds to version %d, %s, %v", truth.Version, truth.Status, err)
	}
}
