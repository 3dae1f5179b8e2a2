package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/demo"
)

func newDemo() *cobra.Command {
	var all, asJSON, keep bool
	var names []string
	var parallel int
	cmd := &cobra.Command{
		Use: "demo", Short: "Play what goes wrong, with a plain retry loop and through the ledger", Args: cobra.NoArgs,
		Long: `Play a lost response against the provider simulator twice: with a plain retry
loop, which makes two tasks, and through the ledger, which makes one. Everything
runs on this machine, in processes of its own and a temporary folder. Exit code 0
only if the simulator's own object table says so.`,
		Example: "  opledger demo\n  opledger demo --all\n  opledger demo --all --json\n  opledger demo --scenario killed-before-record",
		RunE: func(cmd *cobra.Command, _ []string) error {
			scenarios, err := choose(all, names)
			if err != nil {
				return &codeError{code: exitUsage, err: err}
			}
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			dir, err := os.MkdirTemp("", "opledger-demo-")
			if err != nil {
				return err
			}
			if keep {
				fmt.Fprintln(cmd.ErrOrStderr(), "configuration, stores and logs stay in", dir)
			} else {
				defer func() { _ = os.RemoveAll(dir) }()
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Minute)
			defer cancel()
			out := cmd.OutOrStdout()
			story := !asJSON && len(scenarios) == 1
			if story {
				fmt.Fprintf(out, "Playing: %s. This takes a few seconds.\n\n", scenarios[0].Title)
			}
			failed := 0
			err = playAll(ctx, binary, dir, scenarios, parallel, func(r demo.Result) error {
				if !r.OK {
					failed++
				}
				switch {
				case asJSON:
					return printJSON(out, r, true)
				case story:
					return tell(out, r)
				}
				return tellLine(out, r)
			})
			if err != nil {
				return err
			}
			if failed > 0 {
				return &codeError{code: exitError, err: fmt.Errorf("%d of %d scenarios did not end as they must", failed, len(scenarios))}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "play every scenario")
	f.BoolVar(&asJSON, "json", false, "print one JSON object per scenario")
	f.StringSliceVar(&names, "scenario", nil, "play these")
	f.IntVar(&parallel, "parallel", max(runtime.NumCPU(), 2), "so many scenarios at once")
	f.BoolVar(&keep, "keep", false, "keep the folder with configuration, store and logs")
	cmd.AddCommand(newPlain())
	return cmd
}

func choose(all bool, names []string) ([]demo.Scenario, error) {
	if all {
		return demo.All(), nil
	}
	if len(names) == 0 {
		names = []string{demo.Default}
	}
	var out []demo.Scenario
	for _, n := range names {
		s, err := demo.Named(n)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// playAll plays scenarios side by side and shows them in their order.
func playAll(ctx context.Context, binary, dir string, scenarios []demo.Scenario, parallel int, show func(demo.Result) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	type end struct {
		r   demo.Result
		err error
	}
	ends := make([]chan end, len(scenarios))
	slots := make(chan struct{}, max(parallel, 1))
	for i, s := range scenarios {
		ends[i] = make(chan end, 1)
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r, err := s.Run(ctx, binary, dir)
			ends[i] <- end{r, err}
		})
	}
	var errs []error
	for _, c := range ends {
		e := <-c
		if e.err != nil {
			errs = append(errs, e.err)
			e.r.Problem = e.err.Error()
		}
		if err := show(e.r); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

func tellLine(w io.Writer, r demo.Result) error {
	plain := "-"
	if r.Plain != nil {
		plain = fmt.Sprint(r.Plain.Objects)
	}
	mark := "ok"
	if !r.OK {
		mark = "WRONG: " + r.Problem
	}
	review := ""
	if r.Ledger.Review {
		review = " + review"
	}
	_, err := fmt.Fprintf(w, "%-26s %-3s plain %s   ledger %d, %s%s after %d attempt(s)   %s\n",
		r.Scenario, r.Class, plain, r.Ledger.Objects, r.Ledger.Status, review, r.Ledger.Attempts, mark)
	return err
}

// tell tells one scenario as a story: a table and the time line of the events.
func tell(w io.Writer, r demo.Result) error {
	t := tabwriter.NewWriter(w, 0, 4, 3, ' ', 0)
	fmt.Fprintln(t, "\tOBJECTS AT THE PROVIDER\tWHAT THE CALLER KNOWS")
	if r.Plain != nil {
		fmt.Fprintf(t, "plain retry loop\t%d\t\"Done\"\n", r.Plain.Objects)
	}
	if r.Meanwhile != "" {
		fmt.Fprintf(t, "through the ledger, at first\t\t%s\n", r.Meanwhile)
	}
	fmt.Fprintf(t, "through the ledger\t%d\t%s\n", r.Ledger.Objects, r.Ledger.Say)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nThe ledger's log of the operation:")
	t = tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, rec := range r.Log {
		fmt.Fprintf(t, "  +%.2fs\t%s\t%s\n", rec.Stamp.Sub(r.Log[0].Stamp).Seconds(), rec.Data.Kind(), gist(rec.Data))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if !r.OK {
		_, err := fmt.Fprintf(w, "\nWRONG: %s\n", r.Problem)
		return err
	}
	_, err := fmt.Fprintln(w, "\nThe provider's own object table agrees.")
	return err
}

// gist says in a few words what an event says.
func gist(p events.Payload) string {
	switch d := p.(type) {
	case events.IntentRecorded:
		return fmt.Sprintf("%s at %s, arguments frozen as %.23s…", d.Action, d.Provider, d.ArgsDigest)
	case events.AttemptStarted:
		return fmt.Sprintf("attempt %d; durable before the first byte leaves", d.Number)
	case events.OutcomeUnknown:
		return "it may have happened: " + string(d.Reason)
	case events.EvidenceRecorded:
		if len(d.ExternalIDs) > 0 {
			return fmt.Sprintf("%s: %s, object %s", d.Source, d.Finding, d.ExternalIDs[0])
		}
		return fmt.Sprintf("%s: %s (an empty search does not prove absence)", d.Source, d.Finding)
	case events.RetryPermitted:
		return fmt.Sprintf("one more attempt by %s, until %s", d.Basis, d.ValidUntil.Format(time.TimeOnly))
	case events.ResultConfirmed:
		return fmt.Sprintf("object %s, via %s", d.ExternalID, d.Via)
	case events.Rejected:
		return fmt.Sprintf("%s, via %s", d.Reason, d.Via)
	case events.ReviewOpened:
		return fmt.Sprintf("%s: %s", d.Reason, d.Text)
	case events.AttemptNotApplied:
		return fmt.Sprintf("%s %s", d.Proof, d.Reason)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%.80s", raw)
}

// newPlain is the naive loop as a process of its own, so that it can be killed.
func newPlain() *cobra.Command {
	var p demo.Plain
	cmd := &cobra.Command{
		Use: "plain", Hidden: true, Args: cobra.NoArgs, Short: "The counter-example: send, and on trouble send again",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.Token = os.Getenv(demo.EnvToken)
			id, err := p.Run(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.URL, "url", "", "provider")
	f.StringVar(&p.Title, "title", "", "title of the task")
	f.StringVar(&p.Key, "key", "", "idempotency key")
	f.IntVar(&p.Tries, "tries", 2, "how often")
	f.DurationVar(&p.Pause, "pause", 0, "pause between two tries")
	f.DurationVar(&p.Timeout, "timeout", time.Second, "time of one try")
	return cmd
}
