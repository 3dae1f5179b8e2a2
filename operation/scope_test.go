package operation_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

func contractK3() operation.Contract {
	c := contractK1()
	c.Class, c.Retention, c.Margin, c.Scoped = operation.ClassUpsert, operation.Forever, 0, true
	return c
}

// Section 7: who took the conflict scope last decides whether the next one may
// enter: an operation in doubt holds it, a settled one does not.
func TestScopeIsHeldByWhoIsInDoubt(t *testing.T) {
	t.Parallel()
	c := contractK3()
	enter := operation.Step{Do: operation.DoAttempt, Reason: operation.ReasonFirstAttempt}
	rows := []struct {
		name string
		last func(j *journal)
		want operation.Doing
		why  operation.Reason
	}{
		{"nothing sent yet", func(*journal) {}, operation.DoAttempt, enter.Reason},
		{"attempt open", func(j *journal) { j.start("a1", "") }, operation.DoWait, operation.ReasonScopeHeld},
		{"outcome unknown", func(j *journal) { j.start("a1", ""); j.lost(c, "a1") }, operation.DoWait, operation.ReasonScopeHeld},
		{"proven not applied", func(j *journal) {
			j.start("a1", "")
			j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeNotApplied})
		}, operation.DoAttempt, enter.Reason},
		{"rejected", func(j *journal) {
			j.start("a1", "")
			j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeRejected, Reason: "no"})
		}, operation.DoAttempt, enter.Reason},
		{"confirmed", func(j *journal) {
			j.start("a1", "")
			j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "C-1"})
		}, operation.DoAttempt, enter.Reason},
		{"undetermined", func(j *journal) {
			j.start("a1", "")
			j.lost(c, "a1")
			j.must(events.ReviewOpened{Reason: events.ReviewNoEvidence})
			j.decide(c, operation.Decision{Word: events.DecideUndetermined})
		}, operation.DoWait, operation.ReasonScopeHeld},
		{"a message that can't be read", func(j *journal) {
			j.s, _ = operation.Evolve(j.s, events.Record{Seq: j.s.LastSeq + 1, Stamp: j.now, Err: errors.New("damaged")})
		}, operation.DoWait, operation.ReasonScopeHeld},
	}
	for _, row := range rows {
		last := started(t, c)
		row.last(last)
		self := last.s
		self.OperationID, self.Attempts, self.RecordedAt = "op-2", nil, last.now.Add(time.Hour)
		got := operation.EnterScope(self, last.s, taken(last.s), c, enter, last.params())
		if got.Do != row.want || got.Reason != row.why {
			t.Errorf("%s: got %v %s, want %v %s", row.name, got.Do, got.Reason, row.want, row.why)
		}
		if got := operation.EnterScope(last.s, last.s, taken(last.s), c, enter, last.params()); got.Do != operation.DoAttempt {
			t.Errorf("%s: an operation waits for itself: %+v", row.name, got)
		}
	}
	// Named by the log and missing from it: nobody knows, so nobody enters.
	self := started(t, c).s
	if got := operation.EnterScope(self, operation.State{Tenant: "acme", OperationID: "gone"}, events.ScopeTaken{}, c, enter, started(t, c).params()); got.Reason != operation.ReasonScopeHeld {
		t.Errorf("a holder without events: got %s, want it to hold", got.Reason)
	}
}

// taken is the record of an operation's last attempt.
func taken(s operation.State) events.ScopeTaken {
	t := events.ScopeTaken{Operation: s.OperationID, Seq: s.LastSeq, At: s.UpdatedAt}
	if n := len(s.Attempts); n > 0 {
		t.Attempt, t.At = s.Attempts[n-1].ID, s.Attempts[n-1].StartedAt
	}
	return t
}

// The log names the attempt that took the scope, and the holder's own messages do
// not: one of them is lost, and nobody knows what it did (I16).
func TestScopeIsHeldWhereTheAttemptThatTookItIsMissing(t *testing.T) {
	t.Parallel()
	c := contractK3()
	last := started(t, c).s
	self := last
	self.OperationID = "op-2"
	rec := taken(last)
	rec.Attempt = "a1"
	enter := operation.Step{Do: operation.DoAttempt}
	if got := operation.EnterScope(self, last, rec, c, enter, started(t, c).params()); got.Reason != operation.ReasonScopeHeld {
		t.Errorf("got %v %s, want it held", got.Do, got.Reason)
	}
}

// An attempt that was started and never took the scope was never sent: nobody
// came between, and no person is asked.
func TestAttemptThatNeverTookTheScopeIsRepeatedWithoutAPerson(t *testing.T) {
	t.Parallel()
	c := contractK3()
	other := started(t, c)
	other.start("b1", "")
	other.answer(c, "b1", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "C-1"})
	last := other.s
	last.OperationID = "op-2"
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	before := taken(last)
	before.At = j.s.Attempts[0].StartedAt.Add(-time.Second)
	enter := operation.Step{Do: operation.DoAttempt, PermitID: "p1"}
	if got := operation.EnterScope(j.s, last, before, c, enter, j.params()); got.Do != operation.DoAttempt {
		t.Errorf("got %v %s, want the attempt", got.Do, got.Reason)
	}
}

// A repeat is never sent after another operation of the scope came between.
func TestRepeatAfterAnotherOperationOfTheScopeNeedsAPerson(t *testing.T) {
	t.Parallel()
	c := contractK3()
	other := started(t, c)
	other.start("b1", "")
	other.answer(c, "b1", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "C-1"})
	last := other.s
	last.OperationID = "op-2"
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	after := taken(last)
	after.At = j.now
	got := operation.EnterScope(j.s, last, after, c, operation.Step{Do: operation.DoAttempt, Reason: operation.ReasonPermitted, PermitID: "p1"}, j.params())
	if got.Do != operation.DoAppend || got.Reason != operation.ReasonScopeOvertaken {
		t.Fatalf("got %v %s, want a review", got.Do, got.Reason)
	}
	j.must(got.Append...)
	if j.s.Review == nil || j.s.Review.Reason != events.ReviewOvertaken || j.s.Status != operation.StatusUnknown {
		t.Errorf("got %s, review %+v", j.s.Status, j.s.Review)
	}
	j.must(operatorPermit(j))
	if got := operation.EnterScope(j.s, last, after, c, operation.Step{Do: operation.DoAttempt, PermitID: "p1"}, j.params()); got.Do != operation.DoAttempt {
		t.Errorf("a person permitted it: got %v %s, want the attempt", got.Do, got.Reason)
	}
}

// Section 8: where the provider guards the chosen id only loosely, a confirmed
// operation is looked for once more, after all that may land is visible; a blind
// look does not count.
func TestTwinOfALooselyGuardedIDIsLookedForOnce(t *testing.T) {
	t.Parallel()
	c := contractK2()
	c.UniqueWeak = true
	c.Lookup.Lag = time.Minute
	j := started(t, c)
	j.start("a1", "")
	j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "E-1"})
	if j.s.NextAction != events.NextReconcile {
		t.Fatalf("next %s, want a look", j.s.NextAction)
	}
	if from := j.s.Attempts[0].LeaseUntil.Add(c.LateApply + c.Lookup.Lag); j.s.NextAt.Before(from) {
		t.Errorf("the look is due at %v, before %v when everything is visible", j.s.NextAt, from)
	}
	j.now = j.s.NextAt
	blind := lookOf(j.now)
	blind.Failed, blind.PagesComplete = true, false
	j.must(operation.Looked(j.s, c, blind, j.params())...)
	if j.s.NextAction != events.NextReconcile {
		t.Fatalf("next %s after a blind look, want another", j.s.NextAction)
	}
	j.now = j.s.NextAt
	seen := *j
	j.must(operation.Looked(j.s, c, lookOf(j.now, "E-1"), j.params())...)
	if j.s.NextAction != events.NextNone || j.s.Review != nil {
		t.Errorf("one object: next %s, review %+v; want the end", j.s.NextAction, j.s.Review)
	}
	twin := &seen
	twin.must(operation.Looked(twin.s, c, lookOf(twin.now, "E-1", "E-2"), twin.params())...)
	if !twin.s.Duplicate || twin.s.Status != operation.StatusConfirmed {
		t.Errorf("two objects: duplicate %v, %s; want it found and confirmed", twin.s.Duplicate, twin.s.Status)
	}
}

// Section 8: a contract may ask for a share of the confirmed operations to be
// looked for once more; the same operation is always judged the same, and a
// second object that the network made is found.
func TestVerifiedOperationsAreLookedForOnceMore(t *testing.T) {
	t.Parallel()
	c := contractK4()
	confirm := func(key string) *journal {
		j := newJournal(t)
		i := intentOf(c)
		i.IdempotencyKey = key
		j.must(i)
		j.start("a1", "")
		j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "T-1"})
		return j
	}
	for share, want := range map[float64][2]int{0: {0, 0}, 0.25: {180, 320}, 1: {1000, 1000}} {
		c.VerifyShare = share
		looked := 0
		for n := range 1000 {
			if confirm(fmt.Sprint(n)).s.NextAction == events.NextReconcile {
				looked++
			}
		}
		if looked < want[0] || looked > want[1] {
			t.Errorf("share %g: %d of 1000 are looked for, want %v", share, looked, want)
		}
	}
	c.VerifyShare = 1
	j := confirm("k")
	j.now = j.s.NextAt
	unseen := lookOf(j.now)
	if got, want := operation.SeenLag(j.s, c, unseen), j.now.Sub(j.s.Result.At); got != want {
		t.Errorf("an object that is confirmed and not seen proves a lag of %v, want %v", got, want)
	}
	j.must(operation.Looked(j.s, c, lookOf(j.now, "T-1", "T-2"), j.params())...)
	if !j.s.Duplicate || j.s.Review == nil || j.s.Review.Reason != events.ReviewDuplicate {
		t.Errorf("duplicate %v, review %+v; want the second object found", j.s.Duplicate, j.s.Review)
	}
}
