package operation_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

var advice = regexp.MustCompile(`(?i)\b(retry|retrying|again|resend|repeat|repeated|try)\b`)

func everyState(t *testing.T) map[string]operation.State {
	t.Helper()
	c := contractK4()
	states := map[string]operation.State{}
	for _, j := range byStatus(t) {
		name := string(j.s.Status)
		states["plain "+name] = j.s
		if j.s.Version > 0 {
			j.put(events.ReviewOpened{Reason: events.ReviewEvidenceExhausted})
			states["review "+name] = j.s
		}
	}
	permitted := started(t, c)
	permitted.start("a1", "")
	permitted.lost(c, "a1")
	permitted.must(operatorPermit(permitted))
	states["permitted"] = permitted.s
	states["undetermined"] = undetermined(t, c).s
	two := started(t, c)
	two.start("a1", "")
	two.lost(c, "a1")
	two.look(c, "T-1", "T-2")
	states["duplicate"] = two.s
	approval := newJournal(t)
	i := intentOf(c)
	i.Approval = &events.Approval{Required: true, Deadline: begin.Add(time.Hour)}
	approval.must(i)
	states["approval"] = approval.s
	refused := started(t, c)
	refused.start("a1", "")
	refused.answer(c, "a1", operation.Outcome{Word: operation.OutcomeNotApplied, RetryAfter: time.Hour})
	states["backoff"] = refused.s
	after := started(t, c)
	after.start("a1", "")
	after.lost(c, "a1")
	after.decide(c, operation.Decision{Word: events.DecideReject})
	after.answer(c, "a1", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "T-1"})
	states["effect after rejection"] = after.s
	return states
}

// Cases A5, A18, E63: no sentence invites a retry; for an unknown outcome it
// says that it is checked, and by when; retry_safe is said of a rejection only.
func TestNoSentenceInvitesARetry(t *testing.T) {
	t.Parallel()
	for name, s := range everyState(t) {
		text := operation.Say(s)
		if word := advice.FindString(text); word != "" {
			t.Errorf("%s: %q says %q", name, text, word)
		}
		if text == "" || strings.Contains(text, "failed") || strings.Contains(text, "idle") || strings.Contains(text, "  ") {
			t.Errorf("%s: %q", name, text)
		}
		if operation.RetrySafe(s) != (name == "plain rejected") {
			t.Errorf("%s: RetrySafe is %v", name, operation.RetrySafe(s))
		}
		if s.Status != operation.StatusUnknown {
			continue
		}
		if !strings.Contains(text, "check") && !s.Undetermined {
			t.Errorf("%s: %q does not say that it is being checked", name, text)
		}
		if s.Review == nil && !s.Undetermined && !strings.Contains(text, "by 20") {
			t.Errorf("%s: %q does not say by when", name, text)
		}
	}
}

// The words come from the action's name, for every shape of it.
func TestSentenceFitsTheAction(t *testing.T) {
	t.Parallel()
	for action, want := range map[string]string{
		"task.create":          "The task T-1 was created at crm.",
		"message.send":         "The message T-1 was sent at crm.",
		"invoice.pay":          "The invoice T-1 was paid at crm.",
		"issue_comment.add":    "The issue comment T-1 was added at crm.",
		"ticket.reply":         "The ticket T-1 was replied at crm.",
		"deploy":               "The action deploy T-1 was carried out at crm.",
		"crm.contact.update":   "The crm contact T-1 was updated at crm.",
		"subscription.cancel":  "The subscription T-1 was cancelled at crm.",
		"calendar.event.apply": "The calendar event T-1 was applied at crm.",
	} {
		c := contractK4()
		c.Action = action
		j := started(t, c)
		j.start("a1", "")
		j.answer(c, "a1", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "T-1"})
		if got := operation.Say(j.s); got != want {
			t.Errorf("%s: got %q, want %q", action, got, want)
		}
	}
}
