package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/opledger/opledger/internal/bench"
)

func newBench() *cobra.Command {
	var cfg bench.Config
	var loads []string
	var asJSON, isolation bool
	var cases []string
	var beside bench.Isolation
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure the ledger on this machine, with its disk as the yardstick", Args: cobra.NoArgs,
		Long: `Run the ledger in a process of its own, with the durable setting, under callers
that each have one operation under way, against the simulator in this process.
Each cell has a fresh store and measures the disk's sync rate and the publish rate
of a bare JetStream server right before: compare ratios, not machines. The last
object has the totals; exit code 0 only if every operation ended as the
simulator's object table says.

With --isolation it measures instead what callers keep of their rate beside a provider
that never answers, a tenant that floods, and many unknown outcomes at once.

Loads: ` + fmt.Sprint(bench.Loads()) + `: lost throws one answer in ten away, mixed goes
to providers of the classes K1, K2 and K4.`,
		Example: "  opledger bench\n  opledger bench --callers 1,16,128 --duration 3s --json\n  opledger bench --loads lost --callers 128",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, l := range loads {
				cfg.Loads = append(cfg.Loads, bench.Load(l))
			}
			for _, c := range cases {
				beside.Cases = append(beside.Cases, bench.Case(c))
			}
			check := cfg.Check
			if isolation {
				check = beside.Check
			}
			if err := check(); err != nil {
				return &codeError{code: exitUsage, err: err}
			}
			var err error
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			if cfg.Dir, err = os.MkdirTemp(os.Getenv("OPLEDGER_BENCH_DIR"), "opledger-bench-"); err != nil {
				return err
			}
			defer func() { _ = os.RemoveAll(cfg.Dir) }()
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if isolation {
				beside.Binary, beside.Dir = cfg.Binary, cfg.Dir
				return runIsolation(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), beside, asJSON)
			}
			return runBench(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), cfg, asJSON)
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&cfg.Callers, "callers", []int{1, 16, 128}, "callers of each cell, with one operation under way each")
	f.DurationSliceVar(&cfg.Delays, "delays", []time.Duration{0, 5 * time.Millisecond}, "how long the provider takes to answer")
	f.StringSliceVar(&loads, "loads", []string{string(bench.LoadHappy)}, "what the provider does: happy, lost, mixed")
	f.DurationVar(&cfg.Duration, "duration", 3*time.Second, "time of one cell")
	f.DurationVar(&cfg.Warm, "warm", 500*time.Millisecond, "time before it that is not counted")
	f.BoolVar(&cfg.Apart, "apart", false, "store every event alone, to compare with")
	f.BoolVar(&isolation, "isolation", false, "measure what callers lose by what happens beside them, instead of cells")
	f.StringSliceVar(&cases, "cases", []string{"stuck", "flood", "unknown"}, "with --isolation: what happens beside the callers")
	f.IntVar(&beside.Callers, "isolation-callers", 8, "with --isolation: callers with one operation under way each")
	f.IntVar(&beside.Waiting, "waiting", 10_000, "with --isolation: operations that wait, or are unknown")
	f.DurationVar(&beside.Segment, "segment", 2*time.Second, "with --isolation: time of one measurement")
	f.IntVar(&beside.Rounds, "rounds", 5, "with --isolation: measurements of each kind, in turn")
	f.IntVar(&beside.Rate, "rate", 500, "with --isolation: requests per second that the contract of the unknown outcomes allows")
	f.BoolVar(&asJSON, "json", false, "print one JSON object per cell and one with the totals")
	return cmd
}

func runBench(ctx context.Context, out, progress io.Writer, cfg bench.Config, asJSON bool) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	if !asJSON {
		n := len(cfg.Loads) * len(cfg.Delays) * len(cfg.Callers)
		fmt.Fprintf(progress, "%d cells of %s each\n", n, cfg.Duration+cfg.Warm)
		fmt.Fprintln(t, "load\tcallers\tdelay\tops/s\tp50 ms\tp99 ms\tCPU ms/op\tMiB\tbytes/op\tsyncs/op\tsyncs/s\tpublish/s\tops/sync\tops/publish\tends\t")
	}
	total, err := bench.Run(ctx, cfg, func(c bench.Cell) error {
		if asJSON {
			return printJSON(out, c, true)
		}
		fmt.Fprintf(progress, "%s, %d callers, %g ms: %.0f operations per second\n", c.Load, c.Callers, c.DelayMS, c.OpsPerS)
		_, err := fmt.Fprintf(t, "%s\t%d\t%g\t%.0f\t%.1f\t%.1f\t%.3f\t%.0f\t%.0f\t%.2f\t%.0f\t%.0f\t%.2f\t%.2f\t%s\t\n",
			c.Load, c.Callers, c.DelayMS, c.OpsPerS, c.P50MS, c.P99MS, c.CPUMSPerOp, c.RSSMiB, c.DiskBytesPerOp, c.FsyncsPerOp,
			c.FsyncPerS, c.PublishPerS, c.OpsPerFsync, c.OpsPerPublish, ends(c.Verdict))
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		if err := printJSON(out, total, true); err != nil {
			return err
		}
	} else if err := t.Flush(); err != nil {
		return err
	}
	if !total.Right() {
		return &codeError{code: exitError, err: fmt.Errorf("not every operation ended as the provider's table says: %s", ends(total.Verdict))}
	}
	return nil
}

// ends tells in a word how the operations ended.
func ends(v bench.Verdict) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{v.WrongEnds, "wrong"}, {v.Duplicates, "duplicate"}, {v.Unsettled, "unsettled"}, {v.Errors, "without answer"}, {v.Reviews, "in review"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return "right"
	}
	return strings.Join(parts, ", ")
}
