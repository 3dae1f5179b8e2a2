package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/opledger/opledger/internal/bench"
)

// runIsolation measures what callers lose by what happens beside them.
func runIsolation(ctx context.Context, out, progress io.Writer, cfg bench.Isolation, asJSON bool) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	if !asJSON {
		fmt.Fprintln(t, "case\tops/s alone\tbeside\tratio\tp99 ms alone\tbeside\tratio\tMiB alone\tbeside\tflood/s\trefused\tunknown\tsettled in s\trequests/s\tmost\tlimit\torder\tends\t")
	}
	wrong := 0
	err := bench.RunIsolation(ctx, cfg, func(b bench.Beside) error {
		if !b.Right() {
			wrong++
		}
		if asJSON {
			return printJSON(out, b, true)
		}
		fmt.Fprintf(progress, "%s: %s\n", b.Case, b.What)
		ends := "right"
		if !b.Right() {
			ends = fmt.Sprintf("%d duplicate, %d unsettled, %d without answer", b.Duplicates, b.Unsettled, b.Errors)
		}
		_, err := fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.2f\t%.1f\t%.1f\t%.2f\t%.0f\t%.0f\t%.0f\t%d\t%d\t%.1f\t%.0f\t%d\t%d\t%.2f\t%s\t\n",
			b.Case, b.OpsPerSAlone, b.OpsPerS, b.RateRatio, b.P99MSAlone, b.P99MS, b.P99Ratio, b.RSSMiBAlone, b.RSSMiB,
			b.Taken, b.Refused, b.Unknown, b.Seconds, b.RequestsPerS, b.MostPerS, b.Limit, b.Order, ends)
		return err
	})
	if err != nil {
		return err
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if wrong > 0 {
		return &codeError{code: exitError, err: fmt.Errorf("%d cases did not end as they must", wrong)}
	}
	return nil
}
