package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

func newExplain() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "explain OPERATION", Args: cobra.ExactArgs(1),
		Short: "Tell why an operation is in its state, what is known, and what happens next",
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, c *opledger.Client) error {
				a, err := c.Get(ctx, api.GetRequest{OperationID: args[0], Detail: true})
				if err != nil {
					return err
				}
				if a.State == nil {
					return errNoState
				}
				if t.output != "table" {
					return printJSON(cmd.OutOrStdout(), a, t.output == "jsonl")
				}
				return explain(cmd.OutOrStdout(), a)
			})
		},
	}
	t.flags(cmd)
	return cmd
}

// explain tells the story of an operation. Arguments are shown: whoever may read
// the operation may read them.
func explain(w io.Writer, a api.Answer) error {
	s := *a.State
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	fmt.Fprintln(t, a.Say)
	fmt.Fprintln(t)
	row("operation", "%s of tenant %s, version %d", s.OperationID, s.Tenant, s.Version)
	row("status", "%s since %s (%s)", status(a), clock(s.StatusSince), age(a))
	row("wish", "%s at %s, account %s%s", s.Intent.Action, s.Intent.Provider, s.Intent.Account.Name, bracket(s.Intent.ProviderID))
	row("arguments", "%s", s.Intent.Args)
	row("intent digest", "%s", s.Intent.IntentDigest)
	row("contract", "%s revision %d, %s", s.Intent.ContractRef.Name, s.Intent.Revision, s.Intent.Digest)
	row("key, label", "%s, %s", s.Intent.IdempotencyKey, operation.Label(s.Intent.IdempotencyKey))
	explainOrigin(row, s)
	explainRequest(row, a)
	row("recorded", "%s", clock(s.RecordedAt))
	explainPermission(row, a)
	for _, at := range s.Attempts {
		row(fmt.Sprintf("attempt %d", at.Number), "%s", attemptLine(at))
	}
	for _, e := range s.Evidence {
		row("evidence", "%s %s: %s%s%s", clock(e.AskedAt), e.Source, e.Finding, idList(e.ExternalIDs), bracket(why(s, e)))
	}
	if s.EvidenceCount > len(s.Evidence) {
		row("", "and %d earlier observations", s.EvidenceCount-len(s.Evidence))
	}
	explainEnd(row, s)
	explainReview(row, s)
	for _, an := range s.Anomalies {
		row("anomaly", "%s at sequence %d", an.Reason, an.Seq)
	}
	row("next", "%s", nextLine(a))
	if s.Review != nil {
		row("decide", "opledger resolve %s --expect-version %d --reason … (%s)", s.OperationID, s.Version, choices(s.Status))
	}
	return t.Flush()
}

// explainOrigin tells where the wish comes from, so that two texts of one user
// request are noticed.
func explainOrigin(row func(string, string, ...any), s operation.State) {
	i := s.Intent
	if i.RequestID != "" {
		row("user request", "%s", i.RequestID)
	}
	var from []string
	if o := i.Origin; o != nil {
		for _, part := range [][2]string{{"agent", o.Agent}, {"run", o.Run}, {"tool", o.Tool}, {"call", o.ToolCallID}} {
			if part[1] != "" {
				from = append(from, part[0]+" "+part[1])
			}
		}
	}
	if i.RequestedBy != "" {
		from = append(from, "for "+i.RequestedBy)
	}
	if len(from) > 0 {
		row("origin", "%s", strings.Join(from, ", "))
	}
	if i.PossibleRepeatOf != "" {
		row("repeat?", "%s has the same user request, provider, account and action; compare the two", i.PossibleRepeatOf)
	}
	if i.RepeatOf != "" {
		row("repeats", "%s, on purpose", i.RepeatOf)
	}
}

// explainRequest shows what is sent, as the approver of it must see it, and
// whom it waits for.
func explainRequest(row func(string, string, ...any), a api.Answer) {
	var r providers.Redacted
	if len(a.Request) > 0 && json.Unmarshal(a.Request, &r) == nil {
		row("request", "%s %s", r.Method, r.URL)
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			row("", "%s: %s", name, r.Header[name])
		}
		if r.Body != "" {
			row("", "%s", r.Body)
		}
	}
	if scope := a.State.Intent.ConflictScope; scope != "" {
		row("conflict scope", "%s%s", scope, after(", last taken by ", a.ScopeTakenBy))
	}
}

func explainEnd(row func(string, string, ...any), s operation.State) {
	if s.Result != nil {
		row("result", "%s, via %s at %s", s.Result.ExternalID, s.Result.Via, clock(s.Result.At))
		for _, at := range doubts(s) {
			row("", "attempt %d has no known outcome", at.Number)
		}
	}
	if s.Rejection != nil {
		row("rejection", "%s, via %s at %s", s.Rejection.Reason, s.Rejection.Via, clock(s.Rejection.At))
	}
	if len(s.ExternalIDs) > 1 {
		row("objects", "%s", strings.Join(s.ExternalIDs, ", "))
	}
}

// doubts are the attempts of a confirmed operation that may have made a second
// object. Where nothing says which attempt made the first one, one of them did.
func doubts(s operation.State) []operation.Attempt {
	open := s.Unresolved()
	if s.Result.AttemptID == "" && len(open) == 1 {
		return nil
	}
	return open
}

func explainReview(row func(string, string, ...any), s operation.State) {
	if r := s.Review; r != nil {
		row("review", "%s since %s: %s", r.Reason, clock(r.OpenedAt), r.Text)
		if r.Assignee != "" {
			row("", "assigned to %s", r.Assignee)
		}
		if !r.Until.IsZero() {
			row("", "postponed until %s", clock(r.Until))
		}
		if r.Note != "" {
			row("", "note: %s", r.Note)
		}
	}
	if d := s.Decided; d != nil {
		row("decided", "%s%s at %s%s", d.Decision, by(d.Actor), clock(d.At), after(": ", d.Reason))
	}
}

// choices are the decisions that can be made about an operation of a status.
func choices(s operation.Status) string {
	switch s {
	case operation.StatusConfirmed, operation.StatusRejected:
		return "--acknowledge | --assign WHO | --note TEXT"
	case operation.StatusUnknown:
		return "--confirm ID | --reject | --permit | --look | …"
	case operation.StatusPending:
		return "--reject | --permit | --resume | …"
	case operation.StatusInFlight, operation.StatusAbsent:
	}
	return "--confirm ID | --assign WHO | --note TEXT | …"
}

// nextLine says what happens next, and what it means if that is overdue by the
// server's clock.
func nextLine(a api.Answer) string {
	late := a.NextAction == events.NextAttempt && !a.NextAt.IsZero() && now(a).Sub(a.NextAt) > overdue
	switch a.NextReason { //nolint:exhaustive // the others are told by what comes next
	case operation.ReasonScopeHeld:
		return "waits for " + a.ScopeTakenBy + ", which is in doubt and holds the conflict scope"
	case operation.ReasonApprovalExpired:
		return fmt.Sprintf("waits for a new approval: the last one expired at %s; opledger approve %s --digest %s",
			clock(a.State.Approval.ExpiresAt), a.OperationID, a.IntentDigest)
	}
	if late {
		return fmt.Sprintf("%s due since %s, not sent yet; the executor's log and opledger_attempts_blocked_total say why",
			a.NextAction, clock(a.NextAt))
	}
	return next(a) + bracket(string(a.NextReason))
}

// now is the server's clock.
func now(a api.Answer) time.Time { return a.StatusSince.Add(time.Duration(a.AgeMS) * time.Millisecond) }

// overdue is how late an attempt is before that is worth a word.
const overdue = time.Second

// why says why evidence shows what it shows.
func why(s operation.State, e operation.Evidence) string {
	if e.Finding != events.FindingInconclusive || e.Reason != "" {
		return e.Reason
	}
	lag := time.Duration(e.LagMS) * time.Millisecond
	switch {
	case len(e.WeakMatches) > 0:
		return "looks like it, without its key, id or label: " + strings.Join(e.WeakMatches, ", ")
	case lag > 0 && e.AskedAt.Before(lastEnd(s, e.AskedAt).Add(lag)):
		return fmt.Sprintf("inside the lag of %s; an empty search says nothing", lag)
	case !e.PagesComplete:
		return "not every page was read; an empty search says nothing"
	}
	return "an empty search does not prove absence"
}

// lastEnd is when the last attempt ended that began before a look.
func lastEnd(s operation.State, look time.Time) time.Time {
	var end time.Time
	for _, at := range s.Attempts {
		if at.State == operation.AttemptNotApplied || at.State == operation.AttemptRefused || at.StartedAt.After(look) {
			continue
		}
		for _, t := range []time.Time{at.EndedAt, at.LeaseUntil} {
			if t.After(end) {
				end = t
			}
		}
	}
	return end
}

func explainPermission(row func(string, string, ...any), a api.Answer) {
	s := *a.State
	if s.Intent.Approval != nil && s.Intent.Approval.Required {
		switch {
		case s.Approval != nil && !now(a).Before(s.Approval.ExpiresAt):
			row("approval", "by %s, expired at %s", s.Approval.Approver, clock(s.Approval.ExpiresAt))
		case s.Approval != nil:
			row("approval", "by %s, valid until %s", s.Approval.Approver, clock(s.Approval.ExpiresAt))
		case s.Status.Final():
			row("approval", "was required, never given")
		default:
			row("approval", "required until %s; opledger approve %s --digest %s", clock(s.Intent.Approval.Deadline), s.OperationID, s.Intent.IntentDigest)
		}
	}
	if s.Hold != "" {
		row("hold", "%s; nothing is sent until a person decides: opledger resolve %s --expect-version %d --resume, or opledger cancel %s", s.Hold, s.OperationID, s.Version, s.OperationID)
	}
	if s.Halted != "" {
		row("halted", "%s; nothing is sent until a person resumes", s.Halted)
	}
	if p := s.Permit; p != nil {
		state := "unused"
		if p.Used {
			state = "used"
		}
		row("permit", "%s, %s by %s, not before %s, until %s", p.ID, state, p.Basis, clock(p.RetryAt), clock(p.ValidUntil))
	}
	if !s.FirstSend.IsZero() {
		row("first send", "%s; the provider's memory of the key counts from here", clock(s.FirstSend))
	}
}

func attemptLine(a operation.Attempt) string {
	var line strings.Builder
	fmt.Fprintf(&line, "%s by %s: %s", clock(a.StartedAt), a.Worker, a.State)
	for _, part := range []string{string(a.Proof), string(a.Unknown), a.Reason, a.ProviderRequestID} {
		line.WriteString(bracket(part))
	}
	if a.PermitID != "" {
		fmt.Fprintf(&line, ", permit %s%s", a.PermitID, bracket(string(a.PermitBasis)))
	}
	if a.State == operation.AttemptOpen {
		line.WriteString(", lease until " + clock(a.LeaseUntil))
	}
	if a.Transport != nil && a.Transport.Error != "" {
		line.WriteString(": " + a.Transport.Error)
	}
	return line.String()
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func bracket(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func by(who string) string { return after(" by ", who) }

// after puts text behind a mark, if there is a text.
func after(mark, text string) string {
	if text == "" {
		return ""
	}
	return mark + text
}

func idList(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return " " + strings.Join(ids, ", ")
}
