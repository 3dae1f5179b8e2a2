package operation_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Rows of the acceptance cases that concern the core alone. More of them are
// stories in testdata (B22, C33, D45, D48, D49, E61, F69 to F72, G80, G81, H89,
// H91, H93): each names its row in its first lines.

// Case A3, I6: the same operation with other content is a conflict that names
// the fields; labels, limits and request_id are not content.
func TestRepeatWithOtherContentNamesTheFields(t *testing.T) {
	t.Parallel()
	first := intentOf(contractK4())
	for name, row := range map[string]struct {
		change func(*events.IntentRecorded)
		want   []string
	}{
		"same":     {func(*events.IntentRecorded) {}, nil},
		"args":     {func(i *events.IntentRecorded) { i.ArgsDigest = "sha256-jcs:other" }, []string{"args"}},
		"account":  {func(i *events.IntentRecorded) { i.Account.Name = "second" }, []string{"account"}},
		"provider": {func(i *events.IntentRecorded) { i.Provider = "erp" }, []string{"provider"}},
		"all": {func(i *events.IntentRecorded) {
			i.Action, i.ArgsDigest, i.Provider, i.Account.Name = "x", "y", "z", "w"
		}, []string{"account", "action", "args", "provider"}},
		"what is not content": {func(i *events.IntentRecorded) {
			i.Labels, i.RequestID = map[string]string{"a": "b"}, "r-2"
			i.Limits, i.Origin = &events.Limits{MaxAttempts: 9}, &events.Origin{ToolCallID: "c-2"}
			i.Basis, i.RequestedBy, i.Hold = "other", "bob", "x"
		}, nil},
	} {
		repeat := first
		row.change(&repeat)
		if diff := cmp.Diff(row.want, operation.Difference(first, repeat)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Cases A6, D54, A7: whatever is asked how often, an unknown outcome under a
// contract without key or lookup never gives a second attempt.
func TestAskingOftenNeverSendsTwice(t *testing.T) {
	t.Parallel()
	c := contractK5()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	text := ""
	for range 6 {
		if step := j.wait(time.Hour).do(c); step.Do == operation.DoAttempt {
			t.Fatal("a second attempt")
		}
		said := operation.Say(j.s)
		if text != "" && said != text {
			t.Errorf("got %q, then %q", text, said)
		}
		text = said
	}
}

// Case A17, I2: Next never asks for an append of AttemptStarted: only the
// executor starts an attempt, and only where Next said so.
func TestNextNeverStartsAnAttemptByItself(t *testing.T) {
	t.Parallel()
	for name, s := range everyState(t) {
		step := operation.Next(s, contractK4Absent(), operation.Params{Now: begin.Add(48 * time.Hour), NewID: "n"})
		for _, p := range step.Append {
			if p.Kind() == events.KindAttemptStarted {
				t.Errorf("%s: appends %s", name, p.Kind())
			}
		}
	}
}

// Case F70, I1: after a confirmation nothing moves the status, whatever arrives
// in whatever order.
func TestOlderNewsNeverFlipsAConfirmation(t *testing.T) {
	t.Parallel()
	c := contractK4()
	for _, word := range append(operation.OutcomeWords(), "") {
		j := started(t, c)
		j.start("a1", "")
		j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "T-1"})
		j.answer(c, "a1", operation.Outcome{Word: word, ExternalID: "T-1", Reason: "old"})
		if j.s.Status != operation.StatusConfirmed || j.s.Result.ExternalID != "T-1" || j.s.Review != nil {
			t.Errorf("%s: got %s, review %v", word, j.s.Status, j.s.Review)
		}
	}
}

// Case F77, I3: two recoverers decide the same on the same state; the loser's
// events, had they been appended too, would be seen as an anomaly.
func TestSecondRecovererIsSeen(t *testing.T) {
	t.Parallel()
	c := contractK1()
	j := started(t, c)
	j.start("a1", "")
	step := j.wait(time.Minute).next(c)
	j.must(step.Append...)
	for _, p := range step.Append {
		if a := j.put(p); a.Reason != operation.AnomalyAttemptSettled {
			t.Errorf("the second %s: got anomaly %q", p.Kind(), a.Reason)
		}
	}
	if j.s.Status != operation.StatusUnknown {
		t.Errorf("got %s", j.s.Status)
	}
}

// Case G81, I12: however long a worker is dead, the attempt is unknown right
// after its lease: never stuck before, never free after.
func TestDeadWorkerLeavesUnknown(t *testing.T) {
	t.Parallel()
	for _, c := range []operation.Contract{contractK1(), contractK1Label(), contractK2(), contractK4(), contractK4Absent(), contractK5()} {
		for _, wait := range []time.Duration{testLease + testClock, time.Hour, 1000 * time.Hour} {
			j := started(t, c)
			j.start("a1", "")
			if step := j.next(c); step.Reason != operation.ReasonLeaseRunning || !step.At.Equal(begin.Add(testLease+testClock)) {
				t.Errorf("%s: got %s until %s", c.Class, step.Reason, step.At)
			}
			j.wait(wait)
			if step := j.next(c); step.Reason != operation.ReasonLeaseOver {
				t.Errorf("%s after %s: got %s", c.Class, wait, step.Reason)
			}
			j.must(j.next(c).Append...)
			if j.s.Status != operation.StatusUnknown {
				t.Errorf("%s after %s: got %s", c.Class, wait, j.s.Status)
			}
		}
	}
}

// Case H94, I7: an approval is taken for exactly the recorded intent, once.
func TestApprovalBindsTheIntentDigest(t *testing.T) {
	t.Parallel()
	c := contractK5()
	j := newJournal(t)
	i := intentOf(c)
	i.Approval = &events.Approval{Required: true, Deadline: begin.Add(time.Hour)}
	j.must(i)
	grant := operation.Grant{Approver: "ann", IntentDigest: testDigest, ExpiresAt: begin.Add(time.Minute)}
	for name, row := range map[string]struct {
		change func(*operation.Grant)
		want   operation.RefusalReason
	}{
		"other digest": {func(g *operation.Grant) { g.IntentDigest = "sha256-jcs:other" }, operation.RefusalDigest},
		"no digest":    {func(g *operation.Grant) { g.IntentDigest = "" }, operation.RefusalDigest},
		"no approver":  {func(g *operation.Grant) { g.Approver = "" }, operation.RefusalIncomplete},
		"expired":      {func(g *operation.Grant) { g.ExpiresAt = begin }, operation.RefusalIncomplete},
		"right":        {func(*operation.Grant) {}, operation.RefusalNone},
	} {
		g := grant
		row.change(&g)
		if _, refusal := operation.Approved(j.s, g, j.params()); refusal.Reason != row.want {
			t.Errorf("%s: got %q, want %q", name, refusal.Reason, row.want)
		}
	}
	out, _ := operation.Approved(j.s, grant, j.params())
	j.must(out...)
	if out, refusal := operation.Approved(j.s, grant, j.params()); len(out) != 0 || refusal.Reason != operation.RefusalNone {
		t.Errorf("the same approval again: %v, %q", kinds(out), refusal.Reason)
	}
	// An event of another intent, had it got into the log, is not taken either.
	if a := j.put(events.ApprovalGranted{Approver: "eve", IntentDigest: "sha256-jcs:other", ExpiresAt: begin.Add(time.Hour)}); a.Reason != operation.AnomalyApproval || j.s.Approval.Approver != "ann" {
		t.Errorf("got anomaly %q, approver %s", a.Reason, j.s.Approval.Approver)
	}
}

// Case D46, I5: the request of a repeat is byte-equal to the first one's.
func TestChangedRequestIsNotSent(t *testing.T) {
	t.Parallel()
	c := contractK1()
	j := started(t, c)
	if out := operation.Dispatch(j.s, testAccount, testRequest); len(out) != 0 {
		t.Errorf("first: %v", kinds(out))
	}
	j.start("a1", "")
	j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeNotSent})
	out := operation.Dispatch(j.s, testAccount, "sha256:other")
	j.must(out...)
	if j.s.Review == nil || j.s.Review.Reason != events.ReviewRequestChanged {
		t.Errorf("got %v", kinds(out))
	}
}
