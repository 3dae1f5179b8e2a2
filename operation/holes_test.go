package operation_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Each test here is a hole that was found in review; it failed before the
// core was mended.

func absentPermit(j *journal) events.RetryPermitted {
	return events.RetryPermitted{
		PermitID: "p1", Basis: events.BasisAbsentProven, ValidUntil: j.now.Add(time.Hour), RetryAt: j.now,
		ContractDigest: "sha256:contract",
	}
}

// A look that began before the outcome, by the clock of whoever looked, does not
// count as one; it is made again, but not at once: a clock that is behind must
// not ask the provider over and over (found by the simulation).
func TestLooksOfAClockThatIsBehindAreSpaced(t *testing.T) {
	t.Parallel()
	c := contractK1Label()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	lost := j.now
	for range 2 * len(c.Lookup.Schedule) {
		j.wait(3 * time.Minute)
		behind := lookOf(lost.Add(-time.Second))
		before := j.now
		j.must(operation.Looked(j.s, c, behind, j.params())...)
		if j.s.NextAction == events.NextReconcile && !j.s.NextAt.After(before) {
			t.Fatalf("look %d is followed by another at once", j.s.Looks)
		}
	}
	if step := operation.Next(j.s, c, j.params()); step.Do == operation.DoLook {
		t.Errorf("another look is due at once: %s", step.Reason)
	}
}

// A look found our object, and a crash came before the confirmation that the same
// decision was writing. However often that happens, the operation is looked at
// again: what was found once is no question to a person (found by kills).
func TestCrashBetweenEvidenceAndConfirmationIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []operation.Contract{contractK1Label(), contractK2(), contractK4()} {
		j := started(t, c)
		j.start("a1", "")
		j.lost(c, "a1")
		for range 2 * len(c.Lookup.Schedule) {
			j.wait(24 * time.Hour)
			if step := j.next(c); step.Do != operation.DoLook {
				t.Fatalf("%s: after %d looks that found it: %+v", c.Class, j.s.Looks, step)
			}
			out := operation.Looked(j.s, c, lookOf(j.now, "obj-1"), j.params())
			if len(out) < 2 || out[1].Kind() != events.KindResultConfirmed {
				t.Fatalf("%s: a look that found it leads to %v", c.Class, kinds(out))
			}
			j.must(out[0])
		}
		j.wait(24 * time.Hour)
		j.must(operation.Looked(j.s, c, lookOf(j.now), j.params())...)
		if step := j.next(c); step.Do == operation.DoLook {
			t.Errorf("%s: looks go on although the last one found nothing", c.Class)
		}
	}
}

func operatorPermit(j *journal) events.RetryPermitted {
	p := absentPermit(j)
	p.Basis = events.BasisOperator
	return p
}

// I4: a permit that was written for one situation never serves a later one.
// Attempt 1 turns out not applied, attempt 2 needs no permit and is lost; the
// permit that proved the absence of attempt 1 says nothing about attempt 2.
func TestUnusedPermitDiesWithTheNextAttempt(t *testing.T) {
	t.Parallel()
	c := contractK4Absent()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.wait(5 * time.Minute).must(absentPermit(j))
	j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeNotApplied})
	j.start("a2", "")
	j.lost(c, "a2")
	if step := j.wait(testLease + time.Second).next(c); step.Do == operation.DoAttempt {
		t.Fatalf("attempt 3 may start with permit %q, which was written before attempt 2", step.PermitID)
	}
}

// I4: what was sighted while the permitted attempt was under way voids that
// permit too: it is not given back by a 429.
func TestSightingVoidsAPermitInUse(t *testing.T) {
	t.Parallel()
	for _, finding := range []events.Finding{events.FindingPresent, events.FindingContradiction} {
		c := contractK5()
		j := started(t, c)
		j.start("a1", "")
		j.lost(c, "a1")
		j.must(operatorPermit(j))
		j.start("a2", "p1")
		j.must(events.EvidenceRecorded{Source: events.SourceLateResponse, Finding: finding, AskedAt: j.now, AttemptID: "a1"})
		j.answer(c, "a2", operation.Outcome{Word: operation.OutcomeNotApplied})
		if step := j.wait(time.Minute).next(c); step.Do == operation.DoAttempt {
			t.Errorf("%s: attempt may start with permit %q although something was seen since", finding, step.PermitID)
		}
	}
}

// I3, section 3: an attempt id that appears twice never takes the first
// attempt out of doubt.
func TestRepeatedAttemptIDHidesNothing(t *testing.T) {
	t.Parallel()
	c := contractK5()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	if a := j.put(attemptOf("a1", 2, "")); a.Reason != operation.AnomalyAttemptRepeated {
		t.Fatalf("got anomaly %q, want %q", a.Reason, operation.AnomalyAttemptRepeated)
	}
	if j.s.Status != operation.StatusInFlight || len(j.s.Unresolved()) != 1 {
		t.Fatalf("got %s with %d unresolved, want in_flight with 1", j.s.Status, len(j.s.Unresolved()))
	}
	j.put(events.AttemptNotApplied{AttemptID: "a1", Proof: events.ProofNotSent})
	if j.s.Status != operation.StatusInFlight {
		t.Fatalf("one outcome settled both attempts: %s", j.s.Status)
	}
	step := j.wait(time.Hour).do(c)
	if j.s.Status != operation.StatusUnknown || step.Reason != operation.ReasonReviewOpen {
		t.Errorf("got %s (%s), want unknown under review", j.s.Status, step.Reason)
	}
}

// I4: something was seen, and then every attempt is said to be not applied.
// That is a contradiction for a person, not a licence to send.
func TestSightedOperationIsNeverSentFromPending(t *testing.T) {
	t.Parallel()
	c := contractK4()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.must(events.EvidenceRecorded{
		Source: events.SourceWebhook, Finding: events.FindingPresent, AskedAt: j.now, ExternalIDs: []string{"T-1"},
	})
	j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeNotApplied})
	step := j.wait(time.Hour).do(c)
	if step.Do == operation.DoAttempt || j.s.Review == nil {
		t.Errorf("got %v (%s), review %v; want an open review", step.Do, step.Reason, j.s.Review)
	}
}

// I19: a refusal of the only attempt does not reject what was seen.
func TestRefusalDoesNotRejectWhatWasSeen(t *testing.T) {
	t.Parallel()
	c := contractK4()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.must(events.EvidenceRecorded{
		Source: events.SourceWebhook, Finding: events.FindingPresent, AskedAt: j.now, ExternalIDs: []string{"T-1"},
	})
	j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeRejected, Reason: "quota"})
	j.wait(time.Hour).do(c)
	if j.s.Status == operation.StatusRejected || j.s.Review == nil {
		t.Errorf("got %s, review %v; want an open review", j.s.Status, j.s.Review)
	}
}

// Section 4: a refusal ends repeats. Proven absence of the other attempt then
// makes it Rejected, never another attempt.
func TestRefusalEndsRepeatsEvenAfterProvenAbsence(t *testing.T) {
	t.Parallel()
	c := contractK4Absent()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.must(operatorPermit(j))
	j.start("a2", "p1")
	j.answer(c, "a2", operation.Outcome{Word: operation.OutcomeRejected, Reason: "quota"})
	j.wait(5 * time.Minute).look(c)
	j.wait(time.Minute).look(c)
	if step := j.do(c); step.Do == operation.DoAttempt || step.Reason == operation.ReasonPermitWaiting {
		t.Fatalf("got %s after a refusal, want the operation rejected", step.Reason)
	}
	if j.s.Status != operation.StatusRejected || j.s.Rejection.Via != events.ViaAbsence {
		t.Errorf("got %s, want rejected via absence", j.s.Status)
	}
}

// Section 4: rejected only if no attempt is open. A late refusal of attempt 1
// that is valid for the key waits for attempt 2.
func TestRefusalForTheKeyWaitsForAnOpenAttempt(t *testing.T) {
	t.Parallel()
	c := contractK1()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.wait(time.Minute).must(events.RetryPermitted{
		PermitID: "p1", Basis: events.BasisKeyRetention, ValidUntil: j.now.Add(time.Hour), RetryAt: j.now,
		ContractDigest: c.Digest,
	})
	j.start("a2", "p1")
	refusal := operation.Outcome{Word: operation.OutcomeRejected, Reason: "card", AnswersKey: true}
	j.answer(c, "a1", refusal)
	if j.s.Status != operation.StatusInFlight {
		t.Fatalf("got %s, want in_flight", j.s.Status)
	}
	j.answer(c, "a2", refusal)
	if j.s.Status != operation.StatusRejected {
		t.Errorf("got %s, want rejected", j.s.Status)
	}
}

// I19: after the key's retention the provider judges attempt 2 by itself, so
// its refusal says nothing about attempt 1, whatever the contract's rule.
func TestRefusalForTheKeyCountsOnlyInsideTheKeyWindow(t *testing.T) {
	t.Parallel()
	c := contractK1()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.wait(30 * time.Hour).must(operatorPermit(j))
	j.start("a2", "p1")
	j.answer(c, "a2", operation.Outcome{Word: operation.OutcomeRejected, Reason: "card", AnswersKey: true})
	if j.s.Status != operation.StatusUnknown {
		t.Errorf("got %s, want unknown: attempt 1 may have had its effect", j.s.Status)
	}
}

// I19: an effect of a rejected operation is shown to a person even if its id
// had been seen before the rejection, or is not known.
func TestEffectAfterRejectionIsAlwaysShown(t *testing.T) {
	t.Parallel()
	c := contractK4()
	rejected := func(t *testing.T) *journal {
		j := started(t, c)
		j.start("a1", "")
		j.lost(c, "a1")
		j.must(events.EvidenceRecorded{
			Source: events.SourceWebhook, Finding: events.FindingPresent, AskedAt: j.now, ExternalIDs: []string{"T-1"},
		})
		if r := j.decide(c, operation.Decision{Word: events.DecideReject}); r.Reason != "" {
			t.Fatal(r)
		}
		return j
	}
	for name, o := range map[string]operation.Outcome{
		"known id":     {Word: operation.OutcomeSuccess, ExternalID: "T-1"},
		"new id":       {Word: operation.OutcomeSuccess, ExternalID: "T-2"},
		"no id":        {Word: operation.OutcomeSuccess},
		"unidentified": {Word: operation.OutcomeUnidentified},
	} {
		j := rejected(t)
		j.answer(c, "a1", o)
		if j.s.Review == nil || j.s.Review.Reason != events.ReviewEffectAfterRejection {
			t.Errorf("%s: late answer: got review %v", name, j.s.Review)
		}
		if operation.RetrySafe(j.s) {
			t.Errorf("%s: RetrySafe although an effect was seen", name)
		}
	}
	j := rejected(t)
	l := lookOf(j.now, "T-1")
	l.Source = events.SourceWebhook
	j.must(operation.Looked(j.s, c, l, j.params())...)
	if j.s.Review == nil {
		t.Error("webhook: no review")
	}
	if again := operation.Looked(j.s, c, l, j.params()); len(again) != 0 {
		t.Errorf("the same webhook again: got %v, want nothing", kinds(again))
	}
}

// I19: a success that names no object never confirms an attempt that was
// proven not applied; it goes to a person.
func TestSuccessWithoutIDNeverConfirmsASettledAttempt(t *testing.T) {
	t.Parallel()
	c := contractK4()
	for _, word := range []operation.OutcomeWord{operation.OutcomeSuccess, operation.OutcomeUnidentified, operation.OutcomeExists} {
		j := started(t, c)
		j.start("a1", "")
		j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeNotApplied})
		j.answer(c, "a1", operation.Outcome{Word: word})
		step := j.wait(time.Hour).do(c)
		if j.s.Status != operation.StatusPending || step.Do == operation.DoAttempt || j.s.Review == nil {
			t.Errorf("%s: got %s, %s, review %v; want pending under review", word, j.s.Status, step.Reason, j.s.Review)
		}
	}
}

func undetermined(t *testing.T, c operation.Contract) *journal {
	t.Helper()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.must(events.ReviewOpened{Reason: events.ReviewNoEvidence})
	if r := j.decide(c, operation.Decision{Word: events.DecideUndetermined}); r.Reason != "" {
		t.Fatal(r)
	}
	if !j.s.Undetermined || j.s.NextAction != events.NextNone {
		t.Fatalf("undetermined %v, next %s", j.s.Undetermined, j.s.NextAction)
	}
	return j
}

// I12: a person who decides on an undetermined operation takes it up again;
// his decision is never accepted and then without effect.
func TestDecisionTakesUpAnUndeterminedOperation(t *testing.T) {
	t.Parallel()
	c := contractK4()
	j := undetermined(t, c)
	j.decide(c, operation.Decision{Word: events.DecidePermit})
	if step := j.next(c); step.Do != operation.DoAttempt {
		t.Errorf("permit: got %s, want an attempt", step.Reason)
	}
	j = undetermined(t, c)
	j.decide(c, operation.Decision{Word: events.DecideLook})
	if step := j.next(c); step.Do != operation.DoLook {
		t.Errorf("look: got %s, want a look", step.Reason)
	}
	// A new finding opens the question again.
	j = undetermined(t, c)
	l := lookOf(j.now)
	l.Source, l.Weak = events.SourceWebhook, []string{"T-9"}
	j.must(operation.Looked(j.s, c, l, j.params())...)
	if j.s.Undetermined || j.s.Review == nil {
		t.Errorf("weak match: undetermined %v, review %v; want an open review", j.s.Undetermined, j.s.Review)
	}
}

// I12: an attempt that was started on an undetermined operation (against the
// rules) still ends by its lease.
func TestOpenAttemptEndsEvenIfUndetermined(t *testing.T) {
	t.Parallel()
	c := contractK5()
	j := undetermined(t, c)
	j.put(attemptOf("a2", 2, ""))
	j.wait(time.Hour).do(c)
	if j.s.Status != operation.StatusUnknown || j.s.Review == nil {
		t.Errorf("got %s, review %v; want unknown under review", j.s.Status, j.s.Review)
	}
}

// I4: "nobody can find out" takes back a permit that was not used.
func TestUndeterminedVoidsThePermit(t *testing.T) {
	t.Parallel()
	c := contractK4()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.must(operatorPermit(j))
	j.must(operation.Dispatch(j.s, "acct_2", testRequest)...)
	j.decide(c, operation.Decision{Word: events.DecideUndetermined})
	j.decide(c, operation.Decision{Word: events.DecideLook})
	if step := j.next(c); step.Do == operation.DoAttempt {
		t.Errorf("attempt with the permit %q of before", step.PermitID)
	}
}

// Section 9: permit lifts time limits for the one attempt, also where no
// earlier attempt had an effect.
func TestPermitLiftsTheDeadlineOfAPendingOperation(t *testing.T) {
	t.Parallel()
	c := contractK4()
	c.Deadline = time.Hour
	j := started(t, c)
	j.start("a1", "")
	j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeNotSent})
	j.wait(2 * time.Hour)
	if r := j.decide(c, operation.Decision{Word: events.DecidePermit}); r.Reason != "" {
		t.Fatal(r)
	}
	step := j.next(c)
	if step.Do != operation.DoAttempt || step.PermitID == "" {
		t.Fatalf("got %s, want an attempt that uses the permit", step.Reason)
	}
	j.start("a2", step.PermitID)
	j.lost(c, "a2")
	if step := j.next(c); step.Do == operation.DoAttempt {
		t.Error("the permit was used twice")
	}
}

// I12, I19: a crash between the events of one decision leaves no duplicate and
// no effect after rejection without a review.
func TestCrashBetweenEventsLeavesNoFindingUnseen(t *testing.T) {
	t.Parallel()
	c := contractK4()
	lookedTwo := func(j *journal) []events.Payload {
		return operation.Looked(j.s, c, lookOf(j.now, "T-1", "T-2"), j.params())
	}
	for n := 1; n <= 4; n++ {
		j := started(t, c)
		j.start("a1", "")
		j.lost(c, "a1")
		j.must(lookedTwo(j)[:n]...)
		for range 5 {
			if step := j.wait(10 * time.Minute).do(c); step.Do == operation.DoLook {
				j.must(lookedTwo(j)...)
			}
		}
		if j.s.Status != operation.StatusConfirmed || j.s.Review == nil || j.s.Review.Reason != events.ReviewDuplicate {
			t.Errorf("crash after %d events: got %s, review %v; want confirmed, duplicate under review", n, j.s.Status, j.s.Review)
		}
		j.decide(c, operation.Decision{Word: events.DecideAcknowledge})
		if step := j.do(c); step.Reason != operation.ReasonFinal || j.s.Review != nil {
			t.Errorf("after the acknowledgement: got %s, review %v", step.Reason, j.s.Review)
		}
	}
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.decide(c, operation.Decision{Word: events.DecideReject})
	j.must(operation.Answered(j.s, c, "a1", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "T-1"}, j.params())[0])
	if j.s.NextAction != events.NextReconcile {
		t.Errorf("effect after rejection: next is %s, so nobody looks", j.s.NextAction)
	}
	j.do(c)
	if j.s.Review == nil || j.s.Review.Reason != events.ReviewEffectAfterRejection {
		t.Errorf("effect after rejection: got review %v", j.s.Review)
	}
}

// Section 9: who confirms or rejects has settled the contradiction too; no
// second review asks him again.
func TestOperatorDecisionEndsAHalt(t *testing.T) {
	t.Parallel()
	c := contractK5()
	for _, word := range []events.DecisionWord{events.DecideConfirm, events.DecideReject} {
		j := started(t, c)
		j.start("a1", "")
		j.lost(c, "a1")
		j.put(attemptOf("a2", 2, "")) // no permit
		j.lost(c, "a2")
		j.do(c)
		if j.s.Halted == "" || j.s.Review == nil {
			t.Fatal("not halted")
		}
		j.decide(c, operation.Decision{Word: word, ExternalID: "T-1"})
		if step := j.do(c); step.Reason != operation.ReasonFinal || j.s.Review != nil || j.s.Halted != "" {
			t.Errorf("%s: got %s, review %v, halted %q", word, step.Reason, j.s.Review, j.s.Halted)
		}
	}
}

// I7: where the intent is missing from the log, nothing is ever sent: neither
// account nor approval requirement is known.
func TestNoAttemptWithoutARecordedIntent(t *testing.T) {
	t.Parallel()
	c := contractK1()
	j := newJournal(t)
	j.put(events.ApprovalGranted{Approver: "ann", ExpiresAt: j.now.Add(time.Hour)})
	for range 3 {
		if step := j.wait(time.Minute).do(c); step.Do == operation.DoAttempt {
			t.Fatal("an attempt without an intent")
		}
		j.decide(c, operation.Decision{Word: events.DecideResume})
	}
	j.do(c)
	j.decide(c, operation.Decision{Word: events.DecidePermit})
	if step := j.do(c); step.Do == operation.DoAttempt {
		t.Error("an attempt without an intent, by permit")
	}
}

// Style 14: looks that never count (search down, pages missing) end in a review.
func TestLookingEndsWhereLooksNeverCount(t *testing.T) {
	t.Parallel()
	c := contractK4Absent()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	for range 500 {
		switch step := j.do(c); {
		case step.Do == operation.DoLook:
			l := lookOf(j.now)
			l.Failed, l.PagesComplete = true, false
			j.must(operation.Looked(j.s, c, l, j.params())...)
		case j.s.Review != nil:
			return
		default:
			j.now = step.At
		}
	}
	t.Errorf("after %d looks there is no review", j.s.Looks)
}

// I12: evidence from outside that decides nothing moves neither the schedule of
// looks nor the backoff of a pending operation.
func TestEvidenceFromOutsideMovesNoSchedule(t *testing.T) {
	t.Parallel()
	c := contractK4()
	webhook := func(j *journal, reason string) {
		l := lookOf(j.now)
		l.Source, l.Reason = events.SourceWebhook, reason
		j.must(operation.Looked(j.s, c, l, j.params())...)
	}
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	want := j.s.NextAt
	for i := range 5 {
		webhook(j.wait(time.Second), strings.Repeat("x", i+1))
	}
	if !j.s.NextAt.Equal(want) || j.s.NextAction != events.NextReconcile {
		t.Errorf("unknown: next %s at %s, want reconcile at %s", j.s.NextAction, j.s.NextAt, want)
	}
	j = started(t, c)
	j.start("a1", "")
	j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeNotApplied, RetryAfter: time.Hour})
	webhook(j, "pending")
	if step := j.next(c); step.Do == operation.DoAttempt || j.s.NextAction != events.NextAttempt {
		t.Errorf("pending: got %s with next %s, want the backoff kept", step.Reason, j.s.NextAction)
	}
}

// I12: a remark or an assignment does not bring a postponed review back, and a
// wait never names a time that has passed.
func TestPostponementHoldsUntilItsTime(t *testing.T) {
	t.Parallel()
	c := contractK5()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.do(c)
	until := j.now.Add(time.Hour)
	j.decide(c, operation.Decision{Word: events.DecidePostpone, Until: until})
	j.decide(c, operation.Decision{Word: events.DecideNote})
	j.decide(c, operation.Decision{Word: events.DecideAssign, Assignee: "bob"})
	if !j.s.Review.Until.Equal(until) || !j.s.NextAt.Equal(until) {
		t.Errorf("got until %s, next %s; want %s", j.s.Review.Until, j.s.NextAt, until)
	}
	if step := j.next(c); !step.At.Equal(until) {
		t.Errorf("before: got %s, want %s", step.At, until)
	}
	if step := j.wait(2 * time.Hour).next(c); !step.At.IsZero() {
		t.Errorf("after: got %s, want no time", step.At)
	}
}

// I8: a look under another account is void: it is not the look that must come
// before a repeat, and what it claims to have seen is not ours.
func TestLookUnderAnotherAccountIsVoid(t *testing.T) {
	t.Parallel()
	c := contractK1Label()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	l := lookOf(j.wait(time.Minute).now, "T-1")
	l.AccountProbed, l.AccountOK = "acct_2", false
	j.must(operation.Looked(j.s, c, l, j.params())...)
	j.decide(c, operation.Decision{Word: events.DecideResume})
	if step := j.wait(time.Minute).do(c); step.Do != operation.DoLook {
		t.Errorf("got %s, want a look that counts before any repeat", step.Reason)
	}
	j.must(events.EvidenceRecorded{
		Source: events.SourceWebhook, Finding: events.FindingPresent, AskedAt: j.now, AccountProbed: "acct_2",
		ExternalIDs: []string{"T-1"},
	})
	if j.s.Sighted || len(j.s.ExternalIDs) != 0 {
		t.Error("an object of another account was taken for ours")
	}
}

// Section 9: a look-alike is not an empty look: who decided before it was seen
// looks again.
func TestWeakMatchMovesTheVersionThatDecisionsAreBoundTo(t *testing.T) {
	t.Parallel()
	c := contractK4()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.must(events.ReviewOpened{Reason: events.ReviewEvidenceExhausted})
	seen := j.s.Version
	l := lookOf(j.now)
	l.Weak = []string{"T-9"}
	j.must(operation.Looked(j.s, c, l, j.params())...)
	if r := j.decide(c, operation.Decision{Word: events.DecidePermit, SeenVersion: seen}); r.Reason != operation.RefusalMoved {
		t.Errorf("got %q, want %q", r.Reason, operation.RefusalMoved)
	}
}

// I19: the sentence for a rejected operation does not deny an effect that was
// seen after the end.
func TestSayNeverDeniesAnEffectThatWasSeen(t *testing.T) {
	t.Parallel()
	c := contractK4()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.decide(c, operation.Decision{Word: events.DecideReject})
	j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "T-1"})
	if text := operation.Say(j.s); strings.Contains(text, "nothing was") || !strings.Contains(text, "a person") {
		t.Errorf("got %q", text)
	}
}

// I5: an attempt that the log lost may have been sent right after the intent,
// so the key's clock starts there.
func TestLogDamageStartsTheKeyClockAtTheIntent(t *testing.T) {
	t.Parallel()
	c := contractK1()
	j := started(t, c)
	j.wait(20 * time.Hour).must(events.OutcomeUnknown{Reason: events.UnknownLogDamage})
	j.must(operatorPermit(j))
	j.start("a2", "p1")
	j.lost(c, "a2")
	if !j.s.FirstSend.Equal(begin) {
		t.Errorf("got first send %s, want %s", j.s.FirstSend, begin)
	}
	if step := j.wait(5 * time.Hour).do(c); step.Do == operation.DoAttempt || j.s.Review == nil {
		t.Errorf("got %s, want a review: the key may be forgotten", step.Reason)
	}
}

// I12: an event that hands the operation to a person, without the review that
// should have followed it, is still worked through by the reconciler.
func TestHandOverWithoutReviewIsReconciled(t *testing.T) {
	t.Parallel()
	c := contractK5()
	j := started(t, c)
	j.start("a1", "")
	out := operation.Answered(j.s, c, "a1", operation.Outcome{Word: operation.OutcomeMismatch}, j.params())
	j.must(out[0])
	if j.s.NextAction != events.NextReconcile || j.s.NextAt.IsZero() {
		t.Errorf("got next %s at %s, want reconcile now", j.s.NextAction, j.s.NextAt)
	}
	j.must(out[1:]...)
	if j.s.NextAction != events.NextDecision {
		t.Errorf("got next %s, want await_decision", j.s.NextAction)
	}
}

// Section 4: deadline left is part of sendable, for a declared risk as well.
func TestDeclaredRiskEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	c := contractK5()
	c.Deadline = 10 * time.Minute
	j := newJournal(t)
	i := intentOf(c)
	i.OnUnknown, i.Approval = events.OnUnknownRisk, &events.Approval{Required: true}
	j.must(i, events.ApprovalGranted{Approver: "ann", IntentDigest: testDigest, ExpiresAt: begin.Add(24 * time.Hour)})
	j.start("a1", "")
	j.lost(c, "a1")
	j.do(c)
	if j.s.Permit == nil {
		t.Fatal("no permit")
	}
	if step := j.wait(11 * time.Minute).next(c); step.Do == operation.DoAttempt {
		t.Error("an attempt after the deadline")
	}
}

// Section 9: what log damage left in doubt can be confirmed by a person.
func TestConfirmIsPossibleAfterLogDamage(t *testing.T) {
	t.Parallel()
	c := contractK5()
	j := started(t, c)
	j.must(events.OutcomeUnknown{Reason: events.UnknownLogDamage})
	if r := j.decide(c, operation.Decision{Word: events.DecideConfirm, ExternalID: "T-1"}); r.Reason != "" {
		t.Errorf("refused: %s", r.Text)
	}
}

// I12: waiting for an approval has an end, and the operation's own deadline is
// not slept through.
func TestWaitForApprovalHasAnEnd(t *testing.T) {
	t.Parallel()
	c := contractK5()
	c.Deadline = time.Hour
	j := newJournal(t)
	i := intentOf(c)
	i.Approval = &events.Approval{Required: true}
	j.must(i)
	if j.s.NextAction != events.NextApproval || j.s.NextAt.IsZero() {
		t.Errorf("got next %s at %s, want a time", j.s.NextAction, j.s.NextAt)
	}
	if step := j.next(c); !step.At.Equal(begin.Add(time.Hour)) {
		t.Errorf("got wait until %s, want the deadline %s", step.At, begin.Add(time.Hour))
	}
}

// I4: a decision of one kind of event never leaves the list of payloads that
// the fold takes without an anomaly, whatever was there before.
func TestRefusedWhileUnknownNeedsAPerson(t *testing.T) {
	t.Parallel()
	c := contractK5()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.must(operatorPermit(j))
	j.start("a2", "p1")
	out := j.answer(c, "a2", operation.Outcome{Word: operation.OutcomeRejected, Reason: "quota"})
	if diff := cmp.Diff([]events.Kind{events.KindAttemptNotApplied}, kinds(out)); diff != "" {
		t.Fatal(diff)
	}
	j.do(c)
	if j.s.Review == nil || j.s.Review.Reason != events.ReviewRefused {
		t.Errorf("got review %v", j.s.Review)
	}
	if slices.ContainsFunc(j.s.Attempts, func(a operation.Attempt) bool { return a.State == operation.AttemptOpen }) {
		t.Error("an attempt is open")
	}
}

// I12: "undetermined" is a word about an unknown outcome; it ends with it, and
// does not stop the looks for a second object.
func TestUndeterminedEndsWithTheOperation(t *testing.T) {
	t.Parallel()
	c := contractK4()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.must(operatorPermit(j))
	j.start("a2", "p1")
	j.lost(c, "a2")
	j.must(events.ReviewOpened{Reason: events.ReviewEvidenceExhausted})
	j.decide(c, operation.Decision{Word: events.DecideUndetermined})
	j.answer(c, "a2", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "T-2"})
	if j.s.Undetermined || j.s.NextAction != events.NextReconcile {
		t.Errorf("got undetermined %v, next %s; want the looks for the twin", j.s.Undetermined, j.s.NextAction)
	}
}

// Section 8: a person confirms one object while two attempts are in doubt: the
// looks for the other go on.
func TestTwinIsLookedForAfterAPersonConfirmed(t *testing.T) {
	t.Parallel()
	c := contractK4()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	if j.decide(c, operation.Decision{Word: events.DecideConfirm, ExternalID: "T-1"}); j.s.NextAction != events.NextNone {
		t.Errorf("one attempt: next %s, want none", j.s.NextAction)
	}
	j = started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.must(operatorPermit(j))
	j.start("a2", "p1")
	j.lost(c, "a2")
	j.decide(c, operation.Decision{Word: events.DecideConfirm, ExternalID: "T-1"})
	if j.s.NextAction != events.NextReconcile {
		t.Errorf("two attempts: next %s, want reconcile", j.s.NextAction)
	}
}

// I8, section 8: a look under another account neither finds a twin nor ends the
// looks for it.
func TestTwinIsLookedForAfterAVoidLook(t *testing.T) {
	t.Parallel()
	c := contractK4()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.must(operatorPermit(j))
	j.start("a2", "p1")
	j.answer(c, "a2", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "T-2"})
	for looks := 0; j.s.NextAction == events.NextReconcile; looks++ {
		if looks > len(c.Lookup.Schedule) {
			t.Fatal("void looks go on for ever")
		}
		j.now = j.s.NextAt
		l := lookOf(j.now, "T-9")
		l.AccountProbed, l.AccountOK = "acct_2", looks > 0
		if l.AccountOK {
			l = lookOf(j.now, "T-1", "T-2")
		}
		j.must(operation.Looked(j.s, c, l, j.params())...)
	}
	if j.s.Review == nil || j.s.Review.Reason != events.ReviewDuplicate {
		t.Errorf("got review %v, want the twin", j.s.Review)
	}
}

// Section 3: an outcome that may have happened is kept even if the start of its
// attempt is missing from the log, and an unknown attempt that was refused is
// reported.
func TestOutcomeOfAMissingAttemptIsKept(t *testing.T) {
	t.Parallel()
	c := contractK1()
	j := started(t, c)
	a := j.wait(time.Hour).put(events.OutcomeUnknown{AttemptID: "a1", Reason: events.UnknownTimeout})
	if a.Reason != operation.AnomalyAttemptUnknown || j.s.Status != operation.StatusUnknown || !j.s.FirstSend.Equal(begin) {
		t.Errorf("got %q, %s, first send %s; want the doubt kept from the intent on", a.Reason, j.s.Status, j.s.FirstSend)
	}
	j.do(c)
	j.decide(c, operation.Decision{Word: events.DecideResume})
	if step := j.next(c); step.Do == operation.DoAttempt {
		t.Errorf("an attempt beside a lost one: %s", step.Reason)
	}
	j = started(t, c)
	if a := j.put(events.Rejected{Reason: "no", Via: events.ViaResponse, AttemptID: "a1"}); a.Reason != operation.AnomalyAttemptUnknown {
		t.Errorf("rejected: got %q, want %q", a.Reason, operation.AnomalyAttemptUnknown)
	}
}

// Versions beyond the range of a JSON number would make the count go back to
// zero: I13.
func TestVersionBeyondJSONIsMalformed(t *testing.T) {
	t.Parallel()
	_, err := events.Encode(events.Event{
		ID: "e", Ledger: testLedger, Tenant: "acme", Operation: "op-1", Version: 1 << 60, Time: begin,
		Data: events.DuplicateFound{},
	})
	if err == nil {
		t.Error("version 2^60 was taken")
	}
}
