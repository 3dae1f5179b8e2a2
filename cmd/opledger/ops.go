package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// actor is who decides: --actor, or the user of this machine.
func actor(flag string) string {
	if flag != "" {
		return flag
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

func newSubmit() *cobra.Command {
	var t target
	var s submission
	cmd := &cobra.Command{
		Use:   "submit",
		Short: "Hand in an intent, or read what is stored under its id",
		Long: `Hand in an intent. Sending the same operation id with the same content again
is always safe: it returns what is stored. Other content under the same id is a
conflict (exit code 6), and nothing is sent because of it.`,
		Example: `  opledger submit --id task-42 --provider crm --account main --action task.create \
      --args '{"title":"Call Ada"}' --wait 30s
  opledger submit --file intent.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := s.body(cmd)
			if err != nil {
				return err
			}
			return t.with(cmd.Context(), func(ctx context.Context, c *opledger.Client) error {
				return submit(ctx, cmd.OutOrStdout(), c, raw, s.wait, t.output)
			})
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	return cmd
}

// submit hands in an intent and waits for its end. Once the intent is recorded,
// what goes wrong later does not hide that.
func submit(ctx context.Context, out io.Writer, c *opledger.Client, raw []byte, wait time.Duration, output string) error {
	a, err := c.SubmitRaw(ctx, raw)
	if err != nil {
		return err
	}
	if wait > 0 && !a.Status.Final() {
		later, err := c.Wait(ctx, api.GetRequest{OperationID: a.OperationID}, wait)
		if err != nil {
			return errors.Join(printAnswer(out, output, a), &codeError{
				code: exitOpen, err: fmt.Errorf("recorded; opledger wait %s: %w", a.OperationID, because(ctx, err)),
			})
		}
		later.Repeated = a.Repeated
		a = later
	}
	if err := printAnswer(out, output, a); err != nil {
		return err
	}
	return statusCode(a, wait > 0)
}

// submission is what the flags of submit say.
type submission struct {
	r          api.SubmitRequest
	file, args string
	labels     []string
	approval   bool
	wait       time.Duration
}

// intentFlags are the flags that --file takes the place of.
func intentFlags() []string {
	return []string{
		"id", "source", "source-event-id", "slot", "request-id", "provider", "account", "action",
		"args", "label", "on-unknown", "require-approval",
	}
}

func (s *submission) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.r.OperationID, "id", "", "operation id, issued by the application (never by the model)")
	f.StringVar(&s.r.Source, "source", "", "instead of --id: the system of the event that this answers")
	f.StringVar(&s.r.SourceEventID, "source-event-id", "", "instead of --id: the id of that event")
	f.StringVar(&s.r.Slot, "slot", "", "keeps several operations of one source event apart")
	f.StringVar(&s.r.RequestID, "request-id", "", "the user's request that led to it")
	f.StringVar(&s.r.Provider, "provider", "", "outside system")
	f.StringVar(&s.r.Account, "account", "", "account of the provider")
	f.StringVar(&s.r.Action, "action", "", "action, such as task.create")
	f.StringVar(&s.args, "args", "", "arguments, a JSON object")
	f.StringVar(&s.file, "file", "", "the whole intent as JSON, from a file or - for standard input; instead of the flags above")
	f.StringSliceVar(&s.labels, "label", nil, "name=value, may be repeated")
	f.StringVar((*string)(&s.r.OnUnknown), "on-unknown", "", "by_contract, review_only or declared_risk")
	f.BoolVar(&s.approval, "require-approval", false, "ask for a person's approval even if the contract does not")
	f.DurationVar(&s.wait, "wait", 0, "wait until it is final")
}

// body returns the request as JSON: the file as it is, or made of the flags.
func (s *submission) body(cmd *cobra.Command) ([]byte, error) {
	if s.file != "" {
		for _, name := range intentFlags() {
			if cmd.Flags().Changed(name) {
				return nil, usage("--file holds the whole intent; --%s can't be given too", name)
			}
		}
		return submitBody(cmd.InOrStdin(), s.file)
	}
	if s.args == "" {
		return nil, usage("--args or --file is required")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s.args), &object); err != nil || object == nil {
		return nil, usage("--args is not a JSON object, such as '{\"title\":\"Call Ada\"}'")
	}
	switch {
	case s.r.OperationID == "" && s.r.Source == "" && s.r.SourceEventID == "":
		return nil, usage("--id is required, or --source and --source-event-id that it is derived from")
	case (s.r.Source == "") != (s.r.SourceEventID == ""):
		return nil, usage("--source and --source-event-id go together")
	}
	var err error
	if s.r.Labels, err = labelMap(s.labels); err != nil {
		return nil, err
	}
	if s.approval {
		s.r.RequireApproval = &api.RequireApproval{}
	}
	s.r.Args = json.RawMessage(s.args)
	return json.Marshal(s.r)
}

func submitBody(stdin io.Reader, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(stdin, 1<<20))
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, usage("--file: %w", err)
	}
	return raw, nil
}

func labelMap(labels []string) (map[string]string, error) {
	if len(labels) == 0 {
		return nil, nil
	}
	m := make(map[string]string)
	for _, l := range labels {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return nil, usage("--label must be name=value, not %q", l)
		}
		m[name] = value
	}
	return m, nil
}

func newGet() *cobra.Command {
	var t target
	var detail bool
	cmd := &cobra.Command{
		Use: "get OPERATION", Short: "Show the state of an operation", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, c *opledger.Client) error {
				a, err := c.Get(ctx, api.GetRequest{OperationID: args[0], Detail: detail})
				if err != nil {
					return err
				}
				if err := printAnswer(cmd.OutOrStdout(), t.output, a); err != nil {
					return err
				}
				return statusCode(a, false)
			})
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&detail, "detail", false, "with -o json: add attempts, evidence and the intent")
	return cmd
}

func newWait() *cobra.Command {
	var t target
	var until time.Duration
	cmd := &cobra.Command{
		Use: "wait OPERATION", Short: "Wait until an operation is final or needs a person", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, c *opledger.Client) error {
				a, err := c.Wait(ctx, api.GetRequest{OperationID: args[0]}, until)
				if err != nil {
					return err
				}
				if err := printAnswer(cmd.OutOrStdout(), t.output, a); err != nil {
					return err
				}
				return statusCode(a, true)
			})
		},
	}
	t.flags(cmd)
	cmd.Flags().DurationVar(&until, "for", time.Minute, "how long to wait")
	return cmd
}

func newList() *cobra.Command {
	var t target
	var r api.ListRequest
	var statuses []string
	var older time.Duration
	cmd := &cobra.Command{
		Use: "list", Short: "List operations", Args: cobra.NoArgs,
		Long: "List the operations of the tenant, ordered by id. It reads the tenant's whole projection.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range statuses {
				if !slices.Contains(operation.Statuses(), operation.Status(s)) {
					return usage("--status %q is not one of %v", s, operation.Statuses())
				}
				r.Status = append(r.Status, operation.Status(s))
			}
			if r.Limit < 1 || r.Limit > maxPage {
				return usage("--limit must be 1 to %d, not %d", maxPage, r.Limit)
			}
			r.OlderThanMS = older.Milliseconds()
			return t.with(cmd.Context(), func(ctx context.Context, c *opledger.Client) error {
				page, err := c.List(ctx, r)
				if err != nil {
					return err
				}
				if err := printAnswers(cmd.OutOrStdout(), t.output, page.Operations); err != nil {
					return err
				}
				if page.Cursor != "" {
					fmt.Fprintln(cmd.ErrOrStderr(), "more: --cursor", page.Cursor)
				}
				return nil
			})
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&statuses, "status", nil, "pending, in_flight, unknown, confirmed, rejected")
	f.BoolVar(&r.Review, "review", false, "only those that wait for a person: with an open review, or held")
	f.StringVar(&r.RequestID, "request", "", "only those of this user request")
	f.StringVar(&r.ExternalID, "external-id", "", "only those with this id at the provider")
	f.StringVar(&r.Label, "label", "", "only those with this label: name or name=value")
	f.StringVar(&r.Provider, "provider", "", "only those of this provider")
	f.DurationVar(&older, "older", 0, "only those that have had their status for longer")
	f.IntVar(&r.Limit, "limit", 100, "at most so many, up to 1000")
	f.StringVar(&r.Cursor, "cursor", "", "go on behind this operation id")
	return cmd
}

// maxPage is the longest page of a list that the service gives.
const maxPage = 1000

func newReviews() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "reviews", Short: "List all that waits for a person, oldest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, c *opledger.Client) error {
				open, err := reviews(ctx, c)
				if err != nil {
					return err
				}
				return printReviews(cmd.OutOrStdout(), t.output, open)
			})
		},
	}
	t.flags(cmd)
	return cmd
}

// reviews reads every page of what has an open review, oldest review first.
func reviews(ctx context.Context, c *opledger.Client) ([]api.Answer, error) {
	var open []api.Answer
	r := api.ListRequest{Review: true, Limit: maxPage}
	for {
		page, err := c.List(ctx, r)
		if err != nil {
			return nil, err
		}
		open = append(open, page.Operations...)
		if page.Cursor <= r.Cursor { // empty at the end; pages only go up
			break
		}
		r.Cursor = page.Cursor
	}
	slices.SortStableFunc(open, func(a, b api.Answer) int { return waitsSince(a).Compare(waitsSince(b)) })
	return open, nil
}

func newApprove() *cobra.Command {
	var t target
	var r api.ApproveRequest
	var valid time.Duration
	cmd := &cobra.Command{
		Use: "approve OPERATION --digest DIGEST", Short: "Allow exactly one intent", Args: cobra.ExactArgs(1),
		Long: `Allow exactly the intent with this digest: tenant, operation, provider, account,
action, arguments, contract and the on_unknown choice. "opledger explain" shows it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.IntentDigest == "" {
				return usage("--digest is required: the intent_digest that \"opledger explain %s\" shows", args[0])
			}
			r.OperationID, r.ExpiresAt, r.Approver = args[0], time.Now().Add(valid), actor(r.Approver)
			return t.with(cmd.Context(), func(ctx context.Context, c *opledger.Client) error {
				a, err := c.Approve(ctx, r)
				if err != nil {
					return err
				}
				return printAnswer(cmd.OutOrStdout(), t.output, a)
			})
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&r.IntentDigest, "digest", "", "digest of the intent")
	f.DurationVar(&valid, "for", 24*time.Hour, "how long it is valid; each dispatch checks it")
	f.StringVar(&r.Approver, "actor", "", "who approves (default: the user of this machine)")
	f.StringVar(&r.Reason, "reason", "", "why")
	return cmd
}

func newCancel() *cobra.Command {
	var t target
	var r api.CancelRequest
	cmd := &cobra.Command{
		Use: "cancel OPERATION", Short: "Withdraw a wish that can't have had an effect", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.OperationID, r.Actor = args[0], actor(r.Actor)
			return t.with(cmd.Context(), func(ctx context.Context, c *opledger.Client) error {
				a, err := c.Cancel(ctx, r)
				if err != nil {
					return err
				}
				return printAnswer(cmd.OutOrStdout(), t.output, a)
			})
		},
	}
	t.flags(cmd)
	cmd.Flags().StringVar(&r.Actor, "actor", "", "who cancels (default: the user of this machine)")
	cmd.Flags().StringVar(&r.Reason, "reason", "cancelled", "why")
	return cmd
}

func newResolve() *cobra.Command {
	var t target
	var r api.DecideRequest
	var word struct {
		reject, permit, resume, look, undetermined, ack bool
		confirm, assign, note                           string
		postpone                                        time.Duration
	}
	cmd := &cobra.Command{
		Use: "resolve OPERATION (--confirm ID | --reject | --permit | …) --expect-version N --reason TEXT", Args: cobra.ExactArgs(1),
		Short: "Decide what no machine can",
		Long: `Decide about an operation. The decision is bound to the version that you saw: if
more than an empty look has followed it, the decision is refused.

  --confirm ID     the effect happened; ID is the provider's id of the object
  --reject         nothing happened
  --permit         one more attempt; the effect may then happen twice
  --resume         close the review and let the ledger decide anew; lifts a hold
                   or a halt
  --look           look at the provider again now; only for an unknown outcome
  --postpone 2h    ask again later
  --assign WHO     somebody else looks
  --note TEXT      a remark, nothing else
  --undetermined   nobody can find out; the status stays unknown
  --acknowledge    the review of a final operation is settled`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var words []events.DecisionWord
			add := func(given bool, w events.DecisionWord) {
				if given {
					words = append(words, w)
				}
			}
			add(word.confirm != "", events.DecideConfirm)
			add(word.reject, events.DecideReject)
			add(word.permit, events.DecidePermit)
			add(word.resume, events.DecideResume)
			add(word.look, events.DecideLook)
			add(word.postpone > 0, events.DecidePostpone)
			add(word.assign != "", events.DecideAssign)
			add(word.note != "", events.DecideNote)
			add(word.undetermined, events.DecideUndetermined)
			add(word.ack, events.DecideAcknowledge)
			switch {
			case len(words) != 1:
				return usage("exactly one decision is needed (see --help)")
			case r.ExpectVersion == 0:
				return usage("--expect-version is required: the version that you saw (opledger explain %s)", args[0])
			}
			r.Reason = cmp.Or(r.Reason, word.note)
			if r.Reason == "" {
				return usage("--reason is required")
			}
			r.OperationID, r.Decision, r.Actor = args[0], words[0], actor(r.Actor)
			r.ExternalID, r.Assignee = word.confirm, word.assign
			if word.postpone > 0 {
				r.Until = time.Now().Add(word.postpone)
			}
			return t.with(cmd.Context(), func(ctx context.Context, c *opledger.Client) error {
				a, err := c.Decide(ctx, r)
				if err != nil {
					return err
				}
				return printAnswer(cmd.OutOrStdout(), t.output, a)
			})
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&word.confirm, "confirm", "", "it happened: the provider's id of the object")
	f.BoolVar(&word.reject, "reject", false, "nothing happened")
	f.BoolVar(&word.permit, "permit", false, "one more attempt, at your risk")
	f.BoolVar(&word.resume, "resume", false, "close the review and let the ledger decide anew; lifts a hold or a halt")
	f.BoolVar(&word.look, "look", false, "look again now")
	f.DurationVar(&word.postpone, "postpone", 0, "ask again later")
	f.StringVar(&word.assign, "assign", "", "who looks")
	f.StringVar(&word.note, "note", "", "a remark")
	f.BoolVar(&word.undetermined, "undetermined", false, "nobody can find out")
	f.BoolVar(&word.ack, "acknowledge", false, "settle the review of a final operation")
	f.Uint64Var(&r.ExpectVersion, "expect-version", 0, "the version that you saw")
	f.StringVar(&r.Reason, "reason", "", "why")
	f.StringVar(&r.Actor, "actor", "", "who decides (default: the user of this machine)")
	return cmd
}

var errNoState = errors.New("the server sent no detail")
