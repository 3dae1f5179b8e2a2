package intake_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
)

// Rows of docs/faults.md that concern intake alone.

// I10: the append of an intent lands after its client has given up, while the
// repeat is already on its way: one intent, and the repeat is told so.
func TestAnIntentThatLandsLateIsFoundByTheRepeat(t *testing.T) {
	f := newFixture(t)
	var late events.Event
	f.ledger.BeforeAppend = func(e events.Event) error {
		late = e
		return errors.New("no verdict")
	}
	if _, p := f.Submit(t.Context(), "acme", wish("op-1", `{"title":"a"}`)); p == nil || p.Code != api.ProblemUnavailable {
		t.Fatalf("got %v, want unavailable", p)
	}
	f.ledger.BeforeAppend = func(events.Event) error { // right before the repeat's own append
		f.ledger.BeforeAppend = nil
		_, err := f.ledger.Append(t.Context(), late, 0)
		return err
	}
	if a := mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`)); !a.Repeated {
		t.Errorf("got %+v, want a repeat", a)
	}
	if n := f.count(t, "acme", "op-1"); n != 1 {
		t.Errorf("got %d events, want 1", n)
	}
	if _, p := f.Submit(t.Context(), "acme", wish("op-1", `{"title":"b"}`)); p == nil || p.Code != api.ProblemConflict {
		t.Errorf("other content: got %v, want a conflict", p)
	}
}

// I6: clients that hand in different contents under one id at the same moment:
// one content is recorded, those who sent it are told so, the others get a conflict.
func TestOneOfManyContentsUnderOneIDWins(t *testing.T) {
	for round := range 20 {
		f := newFixture(t)
		var wg sync.WaitGroup
		problems, answers := make([]*api.Problem, 16), make([]api.Answer, 16)
		for i := range problems {
			wg.Go(func() {
				answers[i], problems[i] = f.Submit(context.Background(), "acme", wish("op-1", fmt.Sprintf(`{"title":"t%d"}`, i%4)))
			})
		}
		wg.Wait()
		s, err := f.ledger.Truth(t.Context(), "acme", "op-1")
		if err != nil || s.Version != 1 {
			t.Fatalf("round %d: got version %d, %v", round, s.Version, err)
		}
		for i, p := range problems {
			won := string(s.Intent.Args) == fmt.Sprintf(`{"priority":3,"title":"t%d"}`, i%4)
			if won && (p != nil || answers[i].IntentDigest != s.Intent.IntentDigest) || !won && (p == nil || p.Code != api.ProblemConflict) {
				t.Errorf("round %d, client %d, recorded %s: got %+v, %v", round, i, s.Intent.Args, answers[i], p)
			}
		}
	}
}

// I12: the answer to a decision was lost, the operation went on and came back
// into review. The same decision again is for what was seen then: it is refused
// and shows what there is now; taken, it would be a second effect.
func TestADecisionIsNotRepeatedOntoWhatWasNotSeen(t *testing.T) {
	f := newFixture(t)
	mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
	w, err := writer.New(writer.Config{Journal: f.ledger, Ledger: ledgerID, Now: func() time.Time { return f.now }})
	if err != nil {
		t.Fatal(err)
	}
	lose := func(n int, permit string) operation.State {
		t.Helper()
		s, err := f.ledger.Truth(t.Context(), "acme", "op-1")
		if err != nil {
			t.Fatal(err)
		}
		attempt := fmt.Sprintf("attempt-%d", n)
		s, err = w.Append(t.Context(), s, "w",
			events.AttemptStarted{AttemptID: attempt, Number: n, PermitID: permit, Worker: "w", LeaseMS: 1000, RequestDigest: "sha256:r"},
			events.OutcomeUnknown{AttemptID: attempt, Reason: events.UnknownConnectionLost}, events.ReviewOpened{Reason: events.ReviewNoEvidence})
		if err != nil || len(s.Anomalies) > 0 {
			t.Fatalf("attempt %d: %v, %v", n, err, s.Anomalies)
		}
		return s
	}
	seen := lose(1, "")
	decision := fmt.Appendf(nil, `{"operation_id":"op-1","decision":"permit","expect_version":%d,"actor":"ada","reason":"not there"}`, seen.Version)
	f.ledger.AfterAppend = func(events.Event) error { return errors.New("no verdict") }
	if _, p := f.Decide(t.Context(), "acme", decision); p == nil || p.Code != api.ProblemUnavailable {
		t.Fatalf("got %v, want unavailable", p)
	}
	f.ledger.AfterAppend = nil
	s, err := f.ledger.Truth(t.Context(), "acme", "op-1")
	if err != nil || s.Permit == nil {
		t.Fatalf("the decision is not recorded: %v, %+v", err, s)
	}
	now := lose(2, s.Permit.ID)
	_, p := f.Decide(t.Context(), "acme", decision)
	if p == nil || p.Reason != string(operation.RefusalMoved) || p.Answer == nil || p.Answer.Version != now.Version {
		t.Errorf("got %+v, want it refused with the state at version %d", p, now.Version)
	}
	if s, err = f.ledger.Truth(t.Context(), "acme", "op-1"); err != nil || s.Version != now.Version || s.Started != 2 {
		t.Errorf("got version %d, %d starts, %v", s.Version, s.Started, err)
	}
	// Two persons decide on the same version: one wins.
	for i, word := range []string{"reject", "permit"} {
		_, p := f.Decide(t.Context(), "acme", fmt.Appendf(nil,
			`{"operation_id":"op-1","decision":%q,"expect_version":%d,"actor":"bob","reason":"r"}`, word, now.Version))
		if (p != nil) != (i == 1) {
			t.Errorf("%s: got %v", word, p)
		}
	}
}
