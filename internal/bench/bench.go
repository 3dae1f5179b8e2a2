package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opledger/opledger/providers/simulator"
)

// Load says what the provider does to the callers' operations.
type Load string

// The loads.
const (
	// LoadHappy: every request is answered.
	LoadHappy Load = "happy"
	// LoadLost: one answer in ten is lost after the provider committed.
	LoadLost Load = "lost"
	// LoadMixed: three providers of the classes K1, K2 and K4 in turn.
	LoadMixed Load = "mixed"
)

// Loads lists every load.
func Loads() []Load { return []Load{LoadHappy, LoadLost, LoadMixed} }

// Bounds of a benchmark.
const (
	MaxCallers  = 4096
	MaxDuration = 10 * time.Minute
	// settleTime bounds the wait for operations that are not final when a cell
	// ends.
	settleTime = time.Minute
)

// Config says what to measure.
type Config struct {
	// Binary is the ledger's, Dir where stores and logs go.
	Binary, Dir string
	// Callers and Delays span the cells of each load; every caller has one
	// operation under way.
	Callers []int
	Delays  []time.Duration
	Loads   []Load
	// Duration of one cell, after Warm.
	Duration, Warm time.Duration
	// Apart has the ledger store every event alone, for comparison.
	Apart bool
}

// Cell is the measurement of one cell. Rates are per second, sizes in bytes
// unless they say otherwise. CPU and memory are those of the ledger's process
// alone; syncs are those of the whole block device, negative where the system
// does not count them.
type Cell struct {
	Load    Load    `json:"load"`
	Callers int     `json:"callers"`
	DelayMS float64 `json:"delay_ms"`

	Operations int     `json:"operations"`
	OpsPerS    float64 `json:"ops_per_s"`
	P50MS      float64 `json:"p50_ms"`
	P99MS      float64 `json:"p99_ms"`
	CPUMSPerOp float64 `json:"cpu_ms_per_op"`
	// RSSMiB is the most that was seen.
	RSSMiB         float64 `json:"rss_mib"`
	DiskBytesPerOp float64 `json:"disk_bytes_per_op"`
	FsyncsPerOp    float64 `json:"fsyncs_per_op"`

	// FsyncPerS is how often this disk syncs 4 KiB, PublishPerS what a bare
	// JetStream server that syncs each message takes from 64 publishers, both
	// measured right before the cell.
	FsyncPerS   float64 `json:"fsync_per_s"`
	PublishPerS float64 `json:"publish_per_s"`
	// OpsPerFsync is OpsPerS over FsyncPerS, OpsPerPublish over PublishPerS.
	OpsPerFsync   float64 `json:"ops_per_fsync_ratio"`
	OpsPerPublish float64 `json:"ops_per_publish_ratio"`

	Verdict
}

// Verdict is what the simulator's object table says of the operations.
type Verdict struct {
	// Lost counts answers that the simulator threw away.
	Lost int `json:"lost_answers"`
	// WrongEnds are confirmed operations without their object, and rejected ones
	// with one; Duplicates are operations with several objects.
	WrongEnds  int `json:"wrong_ends"`
	Duplicates int `json:"duplicates"`
	// Unsettled operations were neither final nor before a person a minute
	// after the load ended; Reviews wait for a person; Errors are submits
	// without an answer.
	Unsettled int `json:"unsettled"`
	Reviews   int `json:"reviews"`
	Errors    int `json:"errors"`
}

// plus adds two verdicts up.
func (v Verdict) plus(o Verdict) Verdict {
	v.Lost += o.Lost
	v.WrongEnds += o.WrongEnds
	v.Duplicates += o.Duplicates
	v.Unsettled += o.Unsettled
	v.Reviews += o.Reviews
	v.Errors += o.Errors
	return v
}

// Right reports whether every operation ended as the provider's table says.
func (v Verdict) Right() bool { return v.WrongEnds+v.Duplicates+v.Unsettled+v.Errors == 0 }

// Totals sums up all cells.
type Totals struct {
	Total      bool    `json:"total"`
	Cells      int     `json:"cells"`
	Operations int     `json:"operations"`
	Seconds    float64 `json:"seconds"`
	Verdict
}

// Check says what is wrong with a configuration.
func (cfg Config) Check() error {
	switch {
	case len(cfg.Callers) == 0 || len(cfg.Delays) == 0 || len(cfg.Loads) == 0:
		return errors.New("bench: callers, delays and loads are required")
	case cfg.Duration <= 0 || cfg.Duration > MaxDuration:
		return fmt.Errorf("bench: a cell lasts up to %s", MaxDuration)
	case slices.ContainsFunc(cfg.Callers, func(n int) bool { return n < 1 || n > MaxCallers }):
		return fmt.Errorf("bench: 1 to %d callers", MaxCallers)
	case slices.ContainsFunc(cfg.Delays, func(d time.Duration) bool { return d < 0 || d > time.Second }):
		return errors.New("bench: a provider delay is 0s to 1s")
	}
	for _, l := range cfg.Loads {
		if !slices.Contains(Loads(), l) {
			return fmt.Errorf("bench: no load %q; there are %v", l, Loads())
		}
	}
	return nil
}

// Run measures every cell, each on a fresh store, and tells of it when it is
// done.
func Run(ctx context.Context, cfg Config, told func(Cell) error) (Totals, error) {
	began := time.Now()
	total := Totals{Total: true}
	if err := cfg.Check(); err != nil {
		return total, err
	}
	for _, load := range cfg.Loads {
		for _, delay := range cfg.Delays {
			for _, callers := range cfg.Callers {
				cell, err := cfg.cell(ctx, load, delay, callers, total.Cells)
				if err != nil {
					return total, err
				}
				total.Cells++
				total.Operations += cell.Operations
				total.Verdict = total.plus(cell.Verdict)
				total.Seconds = time.Since(began).Seconds()
				if err := told(cell); err != nil {
					return total, err
				}
			}
		}
	}
	return total, nil
}

func (cfg Config) cell(ctx context.Context, load Load, delay time.Duration, callers, n int) (Cell, error) {
	dir := filepath.Join(cfg.Dir, fmt.Sprintf("cell-%02d", n))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Cell{}, fmt.Errorf("bench: %w", err)
	}
	cell := Cell{Load: load, Callers: callers, DelayMS: ms(delay)}
	var err error
	if cell.FsyncPerS, err = SyncRate(dir, baselineTime); err != nil {
		return cell, err
	}
	if cell.PublishPerS, err = publishRate(ctx, filepath.Join(dir, "baseline"), baselineTime); err != nil {
		return cell, err
	}
	w, err := newWorld(ctx, cfg, dir, load, delay)
	if err != nil {
		return cell, err
	}
	defer w.close()
	if err := w.measure(ctx, cfg, &cell); err != nil {
		return cell, err
	}
	cell.OpsPerFsync, cell.OpsPerPublish = ratio(cell.OpsPerS, cell.FsyncPerS), ratio(cell.OpsPerS, cell.PublishPerS)
	return cell, nil
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// provider is one simulated provider of a load.
type provider struct {
	name, contract, preset string
	sim                    *simulator.Server
	url                    string
}

// providersOf are the providers that a load's operations go to in turn.
func providersOf(load Load) []*provider {
	keyed := &provider{name: "keyed", contract: "sim-keyed", preset: "keyed"}
	if load != LoadMixed {
		return []*provider{keyed}
	}
	return []*provider{
		keyed, {name: "unique", contract: "sim-unique", preset: "unique"}, {name: "crm", contract: "sim-crm", preset: "crm"},
	}
}

// serve runs the provider on a loopback address until ctx ends.
func (p *provider) serve(ctx context.Context, load Load, delay time.Duration) error {
	settings, err := simulator.Preset(p.preset)
	if err != nil {
		return err
	}
	settings.IndexLag = 0
	if p.sim, err = simulator.New(simulator.Config{Settings: settings}); err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	p.url = "http://" + ln.Addr().String()
	go func() { _ = p.sim.Serve(ctx, ln) }() // ends with ctx; what fails shows in the load
	c, err := simulator.NewClient(simulator.ClientConfig{BaseURL: p.url})
	if err != nil {
		return err
	}
	for _, r := range rules(load, delay) {
		if _, err := c.AddRule(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// lostShare is the share of answers that are lost.
const lostShare = 0.1

// rules make the faults and the delay of a load. The first rule that applies to
// a request plays it.
func rules(load Load, delay time.Duration) []simulator.Rule {
	var out []simulator.Rule
	if load == LoadLost {
		out = append(out, simulator.Rule{Name: "lost", PathPrefix: "/v1/tasks", Method: "POST", Probability: lostShare, Do: simulator.LoseResponse})
	}
	if delay > 0 {
		out = append(out, simulator.Rule{PathPrefix: "/v1/tasks", Do: simulator.Delay, After: simulator.Duration(delay)})
	}
	return out
}
