package operation_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Holes that an attack on the decisions found; each test failed before.

// Late_apply counts from the outcome although the request lives until the lease's end.
func TestRepeatWaitsForWhatMayStillLandAfterTheLease(t *testing.T) {
	c := contractK1()
	c.LateApply = 60 * time.Second // not concurrent safe
	j := started(t, c)
	j.start("a1", "") // lease 30 s
	j.wait(c.Total)   // soft timeout; the request stays on the wire until the lease's end
	j.lost(c, "a1")
	lease := j.s.Attempts[0].LeaseUntil
	step := j.next(c)
	p := step.Append[0].(events.RetryPermitted)
	if p.RetryAt.Before(lease.Add(c.LateApply)) {
		t.Errorf("repeat at lease+%s, the first may still land until lease+%s", p.RetryAt.Sub(lease), c.LateApply)
	}
}

// Final + halted is never woken.
func TestContradictionOfAFinalOperationIsShown(t *testing.T) {
	c := contractK1()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	if a := j.put(attemptOf("a2", 2, "")); a.Reason != operation.AnomalyAttemptNoPermit {
		t.Fatal(a)
	}
	j.answer(c, "a2", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "x"})
	if j.s.NextAction == events.NextNone && j.next(c).Do == operation.DoAppend {
		t.Error("a review is wanted and nothing wakes it")
	}
}

// Malformed message during flight, then confirmed.
func TestMalformedMessageBeforeTheEndIsShown(t *testing.T) {
	c := contractK1()
	j := started(t, c)
	j.start("a1", "")
	j.raw(events.DecodeRecord("opledger.events.acme.op-1", j.s.LastSeq+1, j.now, []byte("junk")))
	j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "x"})
	if j.s.NextAction == events.NextNone && j.next(c).Do == operation.DoAppend {
		t.Error("a review is wanted and nothing wakes it")
	}
}

// Undetermined and pending.
func TestUndeterminedEndsWhenTheDoubtDoes(t *testing.T) {
	c := contractK5()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.do(c)
	if r := j.decide(c, operation.Decision{Word: events.DecideUndetermined}); r.Reason != "" {
		t.Fatal(r)
	}
	j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeNotApplied})
	if j.s.Status == operation.StatusPending && j.s.NextAction == events.NextNone {
		t.Error("pending, and nothing will ever happen")
	}
}

// Absence counted before log damage covers the damaged attempt.
func TestReadsFromBeforeTheDoubtProveNoAbsence(t *testing.T) {
	c := contractK4Absent()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.wait(10 * time.Minute)
	j.look(c)
	j.wait(time.Minute)
	j.look(c)
	j.must(events.OutcomeUnknown{Reason: events.UnknownLogDamage, Next: events.Next{Action: events.NextReconcile, At: j.now}})
	j.wait(time.Second)
	j.look(c)
	j.wait(time.Second)
	step := j.next(c)
	for _, p := range step.Append {
		if r, ok := p.(events.RetryPermitted); ok && r.Basis == events.BasisAbsentProven {
			t.Error("absence proven by reads from before the doubtful attempt")
		}
	}
}

// Deadline later than retry-after.
func TestRetryAfterIsCappedAtTheDeadline(t *testing.T) {
	c := contractK5()
	c.Deadline = time.Hour
	j := started(t, c)
	j.start("a1", "")
	j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeNotApplied, RetryAfter: 24 * time.Hour})
	if j.s.NextAt.After(begin.Add(c.Deadline)) {
		t.Error("next_at lies behind the deadline")
	}
}

// Void evidence of a webhook opens a review.
func TestVoidEvidenceFromOutsideStopsNothing(t *testing.T) {
	c := contractK4()
	j := started(t, c)
	l := lookOf(j.now, "x")
	l.Source, l.AccountProbed, l.AccountOK = events.SourceWebhook, "acct_other", false
	out := operation.Looked(j.s, c, l, j.params())
	j.must(out...)
	if j.s.Review != nil {
		t.Errorf("evidence of another account is void, and yet stops the operation: %s", j.s.Review.Text)
	}
}

// Weak webhook repeated.
func TestWeakEvidenceRepeatedIsRecordedOnce(t *testing.T) {
	c := contractK4()
	j := started(t, c)
	for range 3 {
		l := lookOf(j.now)
		l.Source, l.Weak = events.SourceWebhook, []string{"w"}
		j.must(operation.Looked(j.s, c, l, j.params())...)
	}
	if j.s.EvidenceCount > 1 {
		t.Errorf("the same weak observation recorded %d times", j.s.EvidenceCount)
	}
}

// Webhook confirms what was never sent.
func TestLabelOfAnUnsentOperationConfirmsNothing(t *testing.T) {
	c := contractK4()
	j := started(t, c)
	l := lookOf(j.now, "x")
	l.Source = events.SourceWebhook
	j.must(operation.Looked(j.s, c, l, j.params())...)
	if j.s.Status != operation.StatusPending || j.s.Review == nil || !j.s.Sighted {
		t.Errorf("got %s, review %v, sighted %t; want a person asked", j.s.Status, j.s.Review, j.s.Sighted)
	}
}

// Crash between weak evidence and its review.
func TestCrashAfterAWeakMatchStillAsksAPerson(t *testing.T) {
	c := contractK4Absent()
	c.Lookup.Schedule = []time.Duration{10 * time.Second}
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.wait(10 * time.Minute)
	j.look(c)
	j.wait(time.Minute)
	l := lookOf(j.now)
	l.Weak = []string{"w"}
	out := operation.Looked(j.s, c, l, j.params())
	j.must(out[0])
	j.wait(time.Minute)
	j.do(c)
	if j.s.Review == nil || j.s.Review.Reason != events.ReviewAmbiguous {
		t.Errorf("got review %v, next %s; want the ambiguous match shown", j.s.Review, j.s.NextAction)
	}
}

// Times at the edge of what JSON holds do not make a state that can't be stored.
func TestTimesAtTheEdgeKeepTheStateStorable(t *testing.T) {
	west := time.FixedZone("west", -23*3600)
	j := started(t, contractK5())
	j.must(events.ApprovalGranted{Approver: "ann", IntentDigest: testDigest, ExpiresAt: time.Date(9999, 12, 31, 23, 59, 59, 0, west)})
	if _, err := json.Marshal(j.s); err != nil {
		t.Errorf("the state can't be stored: %v", err)
	}
}
