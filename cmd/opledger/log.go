package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/integrity"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/internal/node"
	"github.com/opledger/opledger/projections"
)

// logFlags are those of the commands that read the log itself. They need the
// ledger's own credentials, and so the configuration file.
type logFlags struct {
	config, url string
	// tenant is what --tenant says; see tenantOr.
	tenant string
}

func (l *logFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.config, "config", "", "configuration file with the ledger's own credentials (OPLEDGER_CONFIG)")
	cmd.Flags().StringVar(&l.url, "nats-url", "", "where the server listens, if the configuration does not say")
}

func (l *logFlags) tenantFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.tenant, "tenant", "", `only this tenant (OPLEDGER_TENANT; default: the only one of --config; "" is all)`)
}

func (l *logFlags) open(cmd *cobra.Command) (*node.Log, error) {
	cfg, err := loadConfig(l.config)
	if err != nil {
		return nil, err
	}
	return l.openAs(cmd, cfg)
}

// openFor opens the log and says which tenant the command is about; empty means
// all.
func (l *logFlags) openFor(cmd *cobra.Command) (*node.Log, string, error) {
	cfg, err := loadConfig(l.config)
	if err != nil {
		return nil, "", err
	}
	tenant := l.tenant
	if !cmd.Flags().Changed("tenant") {
		tenant = tenantOf(cfg, os.Getenv("OPLEDGER_TENANT"))
	}
	if tenant != "" {
		if err := events.CheckID("tenant", tenant); err != nil {
			return nil, "", usage("%w", err)
		}
	}
	log, err := l.openAs(cmd, cfg)
	return log, tenant, err
}

func (l *logFlags) openAs(cmd *cobra.Command, cfg *config.Config) (*node.Log, error) {
	log, err := logger(cfg, cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	return node.OpenLog(cmd.Context(), cfg, l.url, log)
}

func newEvents() *cobra.Command {
	var l logFlags
	var o natsjournal.ReplayOptions
	var kinds []string
	var since time.Duration
	var until string
	cmd := &cobra.Command{
		Use: "events", Short: "Replay the log as jsonl, one stored event per line, and follow it", Args: cobra.NoArgs,
		Long: `Replay the log. Each line is an event exactly as it is stored (a CloudEvent), so
an export can be verified: "prev" is the SHA-256 of the line before it in the same
operation.`,
		Example: "  opledger events --config opledger.yaml --tenant acme --kind OutcomeUnknown --follow",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, k := range kinds {
				if !slices.Contains(events.Kinds(), events.Kind(k)) {
					return usage("--kind %q is not one of %v", k, events.Kinds())
				}
			}
			var end time.Time
			if until != "" {
				t, err := time.Parse(time.RFC3339, until)
				if err != nil {
					return usage("--until must be like 2026-11-30T12:00:00Z")
				}
				end = t
			}
			if since > 0 {
				o.Since = time.Now().Add(-since)
			}
			log, tenant, err := l.openFor(cmd)
			if err != nil {
				return err
			}
			defer func() { _ = log.Close() }()
			if o.Tenant = tenant; o.Operation != "" && tenant == "" {
				return usage("--operation needs --tenant")
			}
			err = log.Journal.Replay(cmd.Context(), o, func(r events.Record) error {
				if !end.IsZero() && r.Stamp.After(end) {
					return errEnough
				}
				return printEvent(cmd.OutOrStdout(), cmd.ErrOrStderr(), r, kinds)
			})
			if errors.Is(err, errEnough) || (o.Follow && errors.Is(err, context.Canceled)) {
				return nil
			}
			return err
		},
	}
	l.flags(cmd)
	l.tenantFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Operation, "operation", "", "only this operation")
	f.StringSliceVar(&kinds, "kind", nil, "only these kinds")
	f.Uint64Var(&o.FromSeq, "from-seq", 0, "begin with this sequence number")
	f.DurationVar(&since, "since", 0, "begin so long ago, such as 2h")
	f.StringVar(&until, "until", "", "end at this time, such as 2026-11-30T12:00:00Z")
	f.BoolVar(&o.Follow, "follow", false, "go on with what comes")
	return cmd
}

func newRefused() *cobra.Command {
	var l logFlags
	var follow bool
	cmd := &cobra.Command{
		Use: "refused", Short: "Show what the durable inbox could not accept, as jsonl, and follow it", Args: cobra.NoArgs,
		Long: `Show the intents that were handed in by the durable inbox and not accepted. Each
line is a problem object with tenant, request_digest (SHA-256 of the bytes that
were received), received_at and inbox_seq; it never holds arguments. They are kept
for 30 days.`,
		Example: "  opledger refused --config opledger.yaml --follow",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, tenant, err := l.openFor(cmd)
			if err != nil {
				return err
			}
			defer func() { _ = log.Close() }()
			err = log.Refused(cmd.Context(), tenant, follow, func(body []byte) error {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", body)
				return err
			})
			if follow && errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		},
	}
	l.flags(cmd)
	l.tenantFlag(cmd)
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with what comes")
	return cmd
}

var errEnough = errors.New("enough")

func printEvent(out, errOut io.Writer, r events.Record, kinds []string) error {
	if r.Err != nil {
		_, err := fmt.Fprintf(errOut, "opledger: message %d is not an event: %v\n", r.Seq, r.Err)
		return err
	}
	if len(kinds) > 0 && !slices.Contains(kinds, string(r.Data.Kind())) {
		return nil
	}
	_, err := fmt.Fprintf(out, "%s\n", r.Body)
	return err
}

// sayEvery is how often a long walk says how far it is, where there is no bar.
const sayEvery = 5 * time.Second

// progress shows a bar on a terminal, and a line now and then elsewhere.
func progress(cmd *cobra.Command, what string) (func(done, total uint64), func()) {
	f, ok := cmd.ErrOrStderr().(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return lines(cmd.ErrOrStderr(), what, sayEvery), func() {}
	}
	bar := progressbar.NewOptions64(-1, progressbar.OptionSetDescription(what), progressbar.OptionSetWriter(f),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish())
	return func(done, total uint64) {
		bar.ChangeMax64(int64(total))
		_ = bar.Set64(int64(done))
	}, func() { _ = bar.Finish() }
}

// lines returns what says how far a walk is, at most once in a while.
func lines(w io.Writer, what string, every time.Duration) func(done, total uint64) {
	said := time.Now()
	return func(done, total uint64) {
		if time.Since(said) < every {
			return
		}
		said = time.Now()
		fmt.Fprintf(w, "%s: %d of %d messages (%d %%)\n", what, done, total, 100*done/max(total, 1))
	}
}

// throughLog opens the log and walks through all of it, showing how far it is.
func throughLog[R any](
	cmd *cobra.Command, l logFlags, what string,
	walk func(*node.Log, context.Context, func(done, total uint64)) (R, error),
) (R, error) {
	log, err := l.open(cmd)
	if err != nil {
		var none R
		return none, err
	}
	defer func() { _ = log.Close() }()
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(heapFactor))
	}
	show, done := progress(cmd, what)
	defer done()
	return walk(log, cmd.Context(), show)
}

// heapFactor lets the heap of a walk through the whole log grow further than Go's
// own 100 does before it is cleaned: a third of the memory more for a fifth of the
// time less. GOGC in the environment wins.
const heapFactor = 200

func rebuild(l *node.Log, ctx context.Context, show func(done, total uint64)) (projections.RebuildReport, error) { //nolint:revive // like a method expression
	return l.Projector.Rebuild(ctx, show)
}

func newRebuild() *cobra.Command {
	var l logFlags
	var t target
	cmd := &cobra.Command{
		Use: "rebuild", Short: "Make the projection anew from the log, also while the ledger runs", Args: cobra.NoArgs,
		Long: `Make the projection anew: fold every operation up to a marker that is appended for
it, and write what differs by compare-and-swap, never an older version over a
newer one. Nothing else needs to stop.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.checkOutput(); err != nil {
				return err
			}
			r, err := throughLog(cmd, l, "rebuild", rebuild)
			if err != nil {
				return err
			}
			if t.output != "table" {
				return printJSON(cmd.OutOrStdout(), map[string]any{
					"operations": r.Operations, "events": r.Events, "marker": r.Marker, "passes": r.Passes,
					"written": r.Written, "equal": r.Equal, "newer": r.Newer, "removed": r.Removed,
					"unstorable": r.Unstorable, "left": r.Left, "seconds": r.Duration.Seconds(),
				}, t.output == "jsonl")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"%d operations from %d messages in %.1f s: %d written, %d equal, %d newer already, %d removed\n",
				r.Operations, r.Events, r.Duration.Seconds(), r.Written, r.Equal, r.Newer, r.Removed)
			return err
		},
	}
	l.flags(cmd)
	t.outputFlag(cmd)
	return cmd
}

func newVerify() *cobra.Command {
	var l logFlags
	var t target
	cmd := &cobra.Command{
		Use: "verify", Short: "Check the log and the projection: nothing missing, chains, checkpoints, projection = fold(log)", Args: cobra.NoArgs,
		Long: `Check that nothing is missing from the log: it begins with message 1, no number is
left out, it agrees with every checkpoint in it and with the high-water mark of this
configuration; that versions have no gap and hash chains hold; and that every entry of
the projection is byte for byte the fold of its operation. Damage is named by the
messages between which it lies. What was accepted by "opledger integrity clear" is no
damage any more. Exit code 1 if anything is not as it must be.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.checkOutput(); err != nil {
				return err
			}
			r, err := throughLog(cmd, l, "verify", (*node.Log).Verify)
			if err != nil {
				return err
			}
			return printVerify(cmd, t.output, r)
		},
	}
	l.flags(cmd)
	t.outputFlag(cmd)
	return cmd
}

func printVerify(cmd *cobra.Command, output string, r node.Verified) error {
	total := r.Total + r.Damages
	if output != "table" {
		problems := make([]map[string]any, 0, len(r.Problems))
		for _, p := range r.Problems {
			problems = append(problems, map[string]any{
				"kind": p.Kind, "tenant": p.Tenant, "operation_id": p.OperationID, "detail": p.Detail, "seq": p.Seq,
			})
		}
		v := map[string]any{
			"ok": r.OK(), "operations": r.Operations, "entries": r.Entries, "events": r.Events, "up_to": r.UpTo,
			"problems": problems, "damage": damage(r.Damage), "total": total, "accepted": r.Accepted,
			"checkpoints": r.Checkpoints, "digest": r.Log.Rolling, "seconds": r.Duration.Seconds(),
		}
		if r.Mark != nil {
			v["high_water"] = r.Mark.Seq
		}
		if r.Alarm != "" {
			v["alarm"] = r.Alarm
		}
		if err := printJSON(cmd.OutOrStdout(), v, output == "jsonl"); err != nil {
			return err
		}
	} else {
		out := cmd.OutOrStdout()
		if r.Alarm != "" {
			fmt.Fprintln(out, "integrity alarm:", r.Alarm)
		}
		for _, f := range r.Damage {
			fmt.Fprintf(out, "%s: %s\n", f.Kind, f)
		}
		for _, p := range r.Problems {
			fmt.Fprintln(out, strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", p.Kind, p.Tenant, p.OperationID, p.Detail)))
		}
		fmt.Fprintf(out, "%d operations, %d messages, %d checkpoints: %d problem(s)\n", r.Operations, r.Events, r.Checkpoints, total)
		if r.Mark == nil {
			fmt.Fprintln(out, "no high-water mark of this configuration, or none since the last clearing: a loss at the end would not show")
		}
		if r.Accepted > 0 {
			fmt.Fprintf(out, "%d broken chain(s) were accepted when an alarm was cleared\n", r.Accepted)
		}
	}
	if total > 0 {
		return &codeError{code: exitError, err: fmt.Errorf("%d problem(s) found", total)}
	}
	if r.Alarm != "" {
		return &codeError{code: exitError, err: errors.New("an integrity alarm stands; opledger integrity clear ends it")}
	}
	return nil
}

func damage(found []integrity.Finding) []map[string]any {
	out := make([]map[string]any, 0, len(found))
	for _, f := range found {
		d := map[string]any{"kind": f.Kind, "detail": f.Detail}
		if f.From > 0 {
			d["from"], d["to"] = f.From, f.To
		}
		if !f.Since.IsZero() {
			d["since"] = f.Since.UTC()
		}
		out = append(out, d)
	}
	return out
}
