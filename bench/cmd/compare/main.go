// Command compare measures the ledger beside what would be written by hand: the
// same callers, the same front, the same provider, the same disk, in turn.
// bench/compare.sh builds and starts it; docs/performance.md explains the figures.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// Bounds of a comparison.
const (
	maxRounds   = 99
	maxCallers  = 4096
	maxDuration = 10 * time.Minute
	maxLost     = 10_000
)

// Config says what to measure.
type Config struct {
	// Bin has the built commands, Dir takes the stores, Contract is the
	// provider's contract file, PostgresBin has initdb and postgres.
	Bin, Dir, Contract, PostgresBin string

	Rounds         int
	Systems        []string
	Callers        []int
	Delays         []time.Duration
	Warm, Duration time.Duration
	// Lost is how many operations lose their first answer; 0 leaves that out.
	Lost int
}

func (cfg Config) check() error {
	switch {
	case cfg.Bin == "" || cfg.Contract == "":
		return errors.New("compare: -bin and -contract are required; bench/compare.sh sets them")
	case cfg.Rounds < 1 || cfg.Rounds > maxRounds:
		return fmt.Errorf("compare: 1 to %d rounds", maxRounds)
	case cfg.Duration <= 0 || cfg.Duration > maxDuration || cfg.Warm < 0 || cfg.Warm > maxDuration:
		return fmt.Errorf("compare: a cell lasts up to %s", maxDuration)
	case slices.ContainsFunc(cfg.Callers, func(n int) bool { return n < 1 || n > maxCallers }):
		return fmt.Errorf("compare: 1 to %d callers", maxCallers)
	case slices.ContainsFunc(cfg.Delays, func(d time.Duration) bool { return d < 0 || d > time.Second }):
		return errors.New("compare: a provider's delay is 0s to 1s")
	case cfg.Lost < 0 || cfg.Lost > maxLost:
		return fmt.Errorf("compare: 0 to %d lost answers", maxLost)
	}
	for _, s := range cfg.Systems {
		if !slices.Contains(systems(), s) {
			return fmt.Errorf("compare: no system %q; there are %v", s, systems())
		}
	}
	return nil
}

func main() {
	cfg := Config{Systems: systems(), Callers: []int{1, 16, 128}, Delays: []time.Duration{0, 5 * time.Millisecond}}
	flag.StringVar(&cfg.Bin, "bin", "", "folder with the built commands")
	flag.StringVar(&cfg.Dir, "dir", "", "folder for the stores, on the disk to measure; it is made and removed")
	flag.StringVar(&cfg.Contract, "contract", "", "contract file of the provider")
	flag.StringVar(&cfg.PostgresBin, "postgres", "", "folder with initdb and postgres")
	flag.IntVar(&cfg.Rounds, "rounds", 3, "rounds; the order of the systems turns with each")
	flag.DurationVar(&cfg.Duration, "duration", 3*time.Second, "time of one cell")
	flag.DurationVar(&cfg.Warm, "warm", time.Second, "time before it that is not counted")
	flag.IntVar(&cfg.Lost, "lost", 100, "operations that lose their first answer, 0 for none")
	flag.Func("systems", fmt.Sprintf("systems, of %v", systems()), list(&cfg.Systems, func(s string) (string, error) { return s, nil }))
	flag.Func("callers", "callers of each cell (default 1,16,128)", list(&cfg.Callers, strconv.Atoi))
	flag.Func("delays", "how long the provider takes to answer (default 0s,5ms)", list(&cfg.Delays, time.ParseDuration))
	asJSON := flag.Bool("json", false, "print one JSON object per cell, summary and target")
	strict := flag.Bool("strict", false, "exit with 1 if a target is missed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	met, err := compare(ctx, cfg, newPrinter(os.Stdout, os.Stderr, *asJSON))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if *strict && !met {
		os.Exit(1)
	}
}

// list parses a flag with commas.
func list[T any](to *[]T, parse func(string) (T, error)) func(string) error {
	return func(text string) error {
		*to = nil
		for part := range strings.SplitSeq(text, ",") {
			v, err := parse(part)
			if err != nil {
				return err
			}
			*to = append(*to, v)
		}
		return nil
	}
}

// compare runs all cells and reports whether the ledger met all targets that
// were measured.
func compare(ctx context.Context, cfg Config, p *printer) (met bool, err error) {
	if err := cfg.check(); err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp(cfg.Dir, "opledger-compare-")
	if err != nil {
		return false, fmt.Errorf("compare: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The user that PostgreSQL runs as passes through.
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the folders in it are closed
		return false, fmt.Errorf("compare: %w", err)
	}
	contract, err := filepath.Abs(cfg.Contract)
	if err != nil {
		return false, fmt.Errorf("compare: %w", err)
	}
	b := &bench{bin: cfg.Bin, dir: dir, contract: contract}
	m := Machine{Kind: "machine", Date: time.Now().UTC().Format(time.RFC3339), CPUs: runtime.NumCPU(), Go: runtime.Version(), Load: loadAverage()}
	if slices.Contains(cfg.Systems, reference) || slices.Contains(cfg.Systems, inline) {
		if b.pg, err = startPostgres(ctx, cfg.PostgresBin, filepath.Join(dir, "postgres")); err != nil {
			return false, err
		}
		defer b.pg.stop()
		m.Postgres, m.PostgresSettings = b.pg.version, b.pg.durable
	}
	if err := p.machine(m); err != nil {
		return false, err
	}
	var cells, lost []Cell
	for _, w := range cfg.plan() {
		c, err := b.measure(ctx, w)
		if err != nil {
			return false, err
		}
		if w.lost > 0 {
			lost = append(lost, c)
		} else {
			cells = append(cells, c)
		}
		if err := p.cell(c); err != nil {
			return false, err
		}
	}
	all := summarize(cells)
	bars := targets(all, lost)
	return !slices.ContainsFunc(bars, func(t Target) bool { return !t.Met }), p.end(all, lost, bars)
}

// plan lists what to measure: all systems of a cell directly after each other,
// and another one first in each round.
func (cfg Config) plan() (out []wanted) {
	for round := range cfg.Rounds {
		turn := round % len(cfg.Systems)
		order := slices.Concat(cfg.Systems[turn:], cfg.Systems[:turn])
		for _, delay := range cfg.Delays {
			for _, callers := range cfg.Callers {
				for _, s := range order {
					out = append(out, wanted{round: round + 1, system: s, callers: callers, delay: delay, warm: cfg.Warm, duration: cfg.Duration})
				}
			}
		}
	}
	if cfg.Lost > 0 {
		for _, s := range cfg.Systems {
			out = append(out, wanted{round: 1, system: s, callers: lostCallers, lost: cfg.Lost})
		}
	}
	return out
}

// Machine is what the figures were measured on.
type Machine struct {
	Kind string  `json:"kind"`
	Date string  `json:"date"`
	CPUs int     `json:"cpus"`
	Go   string  `json:"go"`
	Load float64 `json:"load"`
	// Postgres is the server's version, PostgresSettings what it says of itself.
	Postgres         string            `json:"postgres,omitempty"`
	PostgresSettings map[string]string `json:"postgres_settings,omitempty"`
}

// printer writes objects as they come, or tables at the end with a line of
// progress for each cell.
type printer struct {
	out, progress io.Writer
	json          *json.Encoder
}

func newPrinter(out, progress io.Writer, asJSON bool) *printer {
	p := &printer{out: out, progress: progress}
	if asJSON {
		p.json = json.NewEncoder(out)
	}
	return p
}

func (p *printer) machine(m Machine) error {
	if p.json != nil {
		return p.json.Encode(m)
	}
	_, err := fmt.Fprintf(p.out, "%s, %d CPUs, %s, PostgreSQL %s, load %.2f\n", m.Date, m.CPUs, m.Go, m.Postgres, m.Load)
	return err
}

func (p *printer) cell(c Cell) error {
	if p.json != nil {
		return p.json.Encode(c)
	}
	_, err := fmt.Fprintf(p.progress, "round %d, %s: %d callers, %g ms: %.0f/s; load %.1f, %.1f cores used by others, disk %.0f syncs/s%s\n",
		c.Round, c.System, c.Callers, c.DelayMS, c.OpsPerS, c.Load, c.OtherCores, c.SyncsPerS, withComma(firstLine(c.Error)))
	return err
}

func withComma(s string) string {
	if s == "" {
		return ""
	}
	return ", " + s
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

func (p *printer) end(all []Summary, lost []Cell, bars []Target) error {
	if p.json != nil {
		var errs []error
		for _, s := range all {
			errs = append(errs, p.json.Encode(s))
		}
		for _, t := range bars {
			errs = append(errs, p.json.Encode(t))
		}
		return errors.Join(errs...)
	}
	t := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\ndelay ms\tcallers\tsystem\tratio\tof the rounds\tops/s\tp50 ms\tp99 ms\tCPU ms/op\tMiB\tflushes/op\twrong\terrors\t")
	for _, s := range all {
		ratios := make([]string, len(s.Ratios))
		for i, r := range s.Ratios {
			ratios[i] = fmt.Sprintf("%.2f", r)
		}
		fmt.Fprintf(t, "%g\t%d\t%s\t%.2f\t%s\t%.0f\t%.1f\t%.1f\t%.2f\t%.0f\t%.2f\t%d\t%d\t\n", s.DelayMS, s.Callers, s.System, s.Ratio,
			strings.Join(ratios, " "), s.OpsPerS, s.P50MS, s.P99MS, s.CPUMSPerOp, s.MemoryMiB, s.FlushesPerOp, s.WrongEnds, s.Errors)
	}
	fmt.Fprintln(t, "\nlost answers\tsystem\tdone\terrors\twrong ends\tp99 ms\t")
	for _, c := range lost {
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%d\t%.0f\t\n", c.Operations+c.Errors, c.System, c.Operations, c.Errors, c.WrongEnds, c.P99MS)
	}
	fmt.Fprintln(t, "\ntarget\tbar\tfigure\t\t")
	for _, b := range bars {
		sign, verdict := "≥", "met"
		if b.AtMost {
			sign = "≤"
		}
		if !b.Met {
			verdict = "MISSED"
		}
		fmt.Fprintf(t, "%s\t%s %g\t%.2f\t%s\t\n", b.What, sign, b.Bar, b.Figure, verdict)
	}
	return t.Flush()
}
