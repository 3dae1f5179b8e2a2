package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"syscall"
	"time"

	ledgerbench "github.com/opledger/opledger/internal/bench"

	"github.com/opledger/opledger/bench/internal/load"
	"github.com/opledger/opledger/bench/internal/stub"
)

const (
	diskTime    = 300 * time.Millisecond
	lostCallers = 16
	maxTable    = 256 << 20
)

// Cell is one measurement: a system in one round under one load. CPU and memory
// are those of the system's server and front together.
type Cell struct {
	Kind    string  `json:"kind"`
	Round   int     `json:"round"`
	System  string  `json:"system"`
	Callers int     `json:"callers"`
	DelayMS float64 `json:"delay_ms"`

	Operations int     `json:"operations"`
	OpsPerS    float64 `json:"ops_per_s"`
	P50MS      float64 `json:"p50_ms"`
	P99MS      float64 `json:"p99_ms"`
	CPUMSPerOp float64 `json:"cpu_ms_per_op"`
	MemoryMiB  float64 `json:"memory_mib"`
	// FrontMiB is what the front has of that.
	FrontMiB float64 `json:"front_mib"`
	// FlushesPerOp are those of the whole disk, negative where they are not counted.
	FlushesPerOp float64 `json:"flushes_per_op"`

	// WrongEnds are operations whose end the provider's table contradicts: done
	// without exactly that one effect, or failed with one.
	WrongEnds int    `json:"wrong_ends"`
	Errors    int    `json:"errors"`
	Error     string `json:"error,omitempty"`

	// SyncsPerS is how often the disk synced 4 KiB right before, Load the load
	// average then, OtherCores what all other processes used meanwhile.
	SyncsPerS  float64 `json:"disk_syncs_per_s"`
	Load       float64 `json:"load"`
	OtherCores float64 `json:"other_cores"`
}

// wanted says what to measure.
type wanted struct {
	round, callers int
	system         string
	delay          time.Duration
	warm, duration time.Duration
	// lost makes it that many operations whose first answer is lost, instead of
	// a duration.
	lost int
}

func (b *bench) measure(ctx context.Context, w wanted) (Cell, error) {
	cell := Cell{Kind: "cell", Round: w.round, System: w.system, Callers: w.callers, DelayMS: ms(w.delay)}
	// What the system before has left to write is not this one's.
	syscall.Sync()
	var err error
	if cell.SyncsPerS, err = ledgerbench.SyncRate(b.dir, diskTime); err != nil {
		return cell, err
	}
	cell.Load = loadAverage()
	r, err := b.start(ctx, w.system, w.delay)
	if err != nil {
		return cell, err
	}
	defer r.stop()
	cfg := load.Config{URL: r.url, Prefix: fmt.Sprintf("r%d", w.round), Callers: w.callers, Duration: w.duration}
	if w.lost > 0 {
		cell.Kind, cfg.Prefix, cfg.Operations = "lost", stub.LostPrefix+cfg.Prefix, w.lost
	} else {
		load.Run(ctx, load.Config{URL: r.url, Prefix: "warm", Callers: w.callers, Duration: w.warm})
	}
	if err := r.drive(ctx, cfg, &cell); err != nil {
		return cell, fmt.Errorf("%s: %w%s", w.system, err, r.messages())
	}
	return cell, ctx.Err()
}

// used is what has been used up at one moment.
type used struct {
	at                       time.Time
	system, helpers, machine time.Duration
	flushes                  int64
}

func (r *running) look() (u used, err error) {
	if u.system, err = cpuTime(r.roots); err != nil {
		return u, err
	}
	// The comparison's own processes, without its children.
	for _, pid := range r.helpers {
		t, err := ownTime(pid)
		if err != nil {
			return u, err
		}
		u.helpers += t
	}
	u.flushes = ledgerbench.Flushes(r.dir)
	u.at = time.Now()
	u.machine, err = machineTime()
	return u, err
}

// drive runs the load and fills the cell in.
func (r *running) drive(ctx context.Context, cfg load.Config, cell *Cell) error {
	before, err := r.look()
	if err != nil {
		return err
	}
	result := load.Run(ctx, cfg)
	after, err := r.look()
	if err != nil {
		return err
	}
	if cell.MemoryMiB, err = memoryMiB(r.roots); err != nil {
		return err
	}
	if cell.FrontMiB, err = memoryMiB(r.roots[len(r.roots)-1:]); err != nil {
		return err
	}
	n := max(float64(len(result.Latency)), 1)
	cell.Operations = len(result.Latency)
	cell.OpsPerS = float64(len(result.Latency)) / result.Spent.Seconds()
	cell.P50MS, cell.P99MS = ms(result.Quantile(0.5)), ms(result.Quantile(0.99))
	cell.CPUMSPerOp = (after.system - before.system).Seconds() * 1000 / n
	cell.FlushesPerOp = -1
	if before.flushes >= 0 {
		cell.FlushesPerOp = float64(after.flushes-before.flushes) / n
	}
	others := (after.machine - before.machine) - (after.system - before.system) - (after.helpers - before.helpers)
	cell.OtherCores = max(others.Seconds(), 0) / after.at.Sub(before.at).Seconds()
	cell.Errors, cell.Error = result.Errors()
	table, err := r.table(ctx)
	if err != nil {
		return err
	}
	cell.WrongEnds = wrong(result.Ends, table)
	return nil
}

// table asks the provider for the effects of each operation.
func (r *running) table(ctx context.Context) (map[string][]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.provider+"/table", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var table map[string][]string
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxTable)).Decode(&table); err != nil {
		return nil, fmt.Errorf("compare: the provider's table: %w", err)
	}
	return table, nil
}

// wrong counts the ends that the provider's table contradicts.
func wrong(ends map[string]load.Ended, table map[string][]string) (n int) {
	for op, e := range ends {
		made := table[op]
		if e.Err == "" && !slices.Equal(made, []string{e.ID}) || e.Err != "" && len(made) > 0 {
			n++
		}
	}
	return n
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
