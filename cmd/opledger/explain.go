package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/operation"
)

func newExplain() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "explain OPERATION", Args: cobra.ExactArgs(1),
		Short: "Tell why an operation is in its state, what is known, and what happens next",
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.with(func(c *opledger.Client) error {
				a, err := c.Get(cmd.Context(), api.GetRequest{OperationID: args[0], Detail: true})
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

func sortByAge(answers []api.Answer) {
	slices.SortFunc(answers, func(a, b api.Answer) int { return a.StatusSince.Compare(b.StatusSince) })
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
	row("recorded", "%s", clock(s.RecordedAt))
	explainPermission(row, s)
	for _, at := range s.Attempts {
		row(fmt.Sprintf("attempt %d", at.Number), "%s", attemptLine(at))
	}
	for _, e := range s.Evidence {
		row("evidence", "%s %s: %s%s%s", clock(e.AskedAt), e.Source, e.Finding, idList(e.ExternalIDs), bracket(e.Reason))
	}
	if s.EvidenceCount > len(s.Evidence) {
		row("", "and %d earlier observations", s.EvidenceCount-len(s.Evidence))
	}
	if s.Result != nil {
		row("result", "%s, via %s at %s", s.Result.ExternalID, s.Result.Via, clock(s.Result.At))
	}
	if s.Rejection != nil {
		row("rejection", "%s, via %s at %s", s.Rejection.Reason, s.Rejection.Via, clock(s.Rejection.At))
	}
	if len(s.ExternalIDs) > 1 {
		row("objects", "%s", strings.Join(s.ExternalIDs, ", "))
	}
	if s.Review != nil {
		row("review", "%s since %s: %s", s.Review.Reason, clock(s.Review.OpenedAt), s.Review.Text)
	}
	for _, an := range s.Anomalies {
		row("anomaly", "%s at sequence %d", an.Reason, an.Seq)
	}
	row("next", "%s", next(a))
	if s.Review != nil {
		row("decide", "opledger resolve %s --expect-version %d --reason … (--confirm ID | --reject | --permit | --look | …)", s.OperationID, s.Version)
	}
	return t.Flush()
}

func explainPermission(row func(string, string, ...any), s operation.State) {
	if s.Intent.Approval != nil && s.Intent.Approval.Required {
		if s.Approval == nil {
			row("approval", "required until %s; opledger approve %s --digest %s", clock(s.Intent.Approval.Deadline), s.OperationID, s.Intent.IntentDigest)
		} else {
			row("approval", "by %s, valid until %s", s.Approval.Approver, clock(s.Approval.ExpiresAt))
		}
	}
	if s.Hold != "" {
		row("hold", "%s", s.Hold)
	}
	if s.Halted != "" {
		row("halted", "%s; nothing is sent until a person resumes", s.Halted)
	}
	if p := s.Permit; p != nil {
		state := "unused"
		if p.Used {
			state = "used"
		}
		row("permit", "%s by %s, not before %s, until %s", state, p.Basis, clock(p.RetryAt), clock(p.ValidUntil))
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

func idList(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return " " + strings.Join(ids, ", ")
}
