package kills

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Bounds of a run.
const (
	// MaxKills bounds a run.
	MaxKills = 100_000
	// MaxRounds bounds a run on a cluster.
	MaxRounds = 10_000
	// maxRate is the most intents of one world in a second.
	maxRate = 1000
	// The longest waits before a kill: in readiness, and since a start.
	readyWait, startWait = 350 * time.Millisecond, 120 * time.Millisecond
	// earlyShare is the share of kills that hit a process that is not up yet,
	// allShare that of kills that hit all processes at once.
	earlyShare, allShare = 0.15, 0.08
	// upTime bounds the wait for a process before the next kill.
	upTime = 60 * time.Second
)

// Config says what to kill.
type Config struct {
	Binaries Binaries
	// Dir gets a folder for each world; it must exist.
	Dir string
	// Seed decides who is killed and when, and what the load and the providers do.
	// How processes and disks share time with it is not decided by it.
	Seed uint64
	// Kills is the number of kills, Round that of one world; then everything is
	// audited and a new world begins.
	Kills, Round int
	// Parallel is how many worlds are run at the same time.
	Parallel int
	// Rate is how many intents each world's load hands in per second.
	Rate int
	// Keep keeps the folders of worlds in which nothing was found.
	Keep bool
	// Log is told of each world.
	Log io.Writer
}

// Check says what is wrong with a configuration.
func (cfg Config) Check() error {
	switch {
	case cfg.Kills < 1 || cfg.Kills > MaxKills || cfg.Round < 1:
		return fmt.Errorf("kills: 1 to %d kills, and at least 1 in a round", MaxKills)
	case cfg.Parallel < 1 || cfg.Parallel > 16:
		return errors.New("kills: 1 to 16 worlds at the same time")
	case cfg.Rate < 1 || cfg.Rate > maxRate:
		return fmt.Errorf("kills: 1 to %d intents per second", maxRate)
	}
	return nil
}

// Report is the outcome of a run.
type Report struct {
	Seed    uint64  `json:"seed"`
	Kills   int     `json:"kills"`
	Worlds  int     `json:"worlds"`
	Seconds float64 `json:"seconds"`
	// KillsPerS counts from the first start to the last audit.
	KillsPerS float64 `json:"kills_per_s"`
	// Of are the kills by world and process.
	Of map[string]int `json:"kills_of"`
	// Early are kills of a process that was not up yet.
	Early int `json:"kills_while_starting"`
	// Unanswered are requests of the load without an answer; each was repeated.
	Unanswered int64 `json:"unanswered_requests"`
	// Repeated and Conflicts are acknowledged intents that were handed in again,
	// with the same and with other content.
	Repeated  int64 `json:"repeated_intents"`
	Conflicts int64 `json:"conflicts_refused"`
	// Ends are processes that ended by themselves and were started again.
	Ends int `json:"ended_by_themselves"`
	Verdict
}

// Right reports whether nothing was found.
func (r *Report) Right() bool { return r.Found == 0 }

// setUp is a way to run the ledger.
type setUp string

// The set-ups that are run in turn.
const (
	embedded setUp = "embedded"
	external setUp = "external"
)

// Run kills until the number is reached. The error is a failure of the harness;
// what was found about the ledger is in the report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if err := cfg.Check(); err != nil {
		return Report{}, err
	}
	began := time.Now()
	r := Report{Seed: cfg.Seed, Of: make(map[string]int)}
	var mu sync.Mutex
	var failed error
	rounds := make(chan int)
	var wg sync.WaitGroup
	for range cfg.Parallel {
		wg.Go(func() {
			for n := range rounds {
				one, err := cfg.round(ctx, n, min(cfg.Round, cfg.Kills-n*cfg.Round))
				mu.Lock()
				r.plus(one)
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	for n := 0; n*cfg.Round < cfg.Kills; n++ {
		rounds <- n
	}
	close(rounds)
	wg.Wait()
	r.Seconds = time.Since(began).Seconds()
	r.KillsPerS = float64(r.Kills) / r.Seconds
	return r, failed
}

func (r *Report) plus(o Report) {
	r.Worlds += o.Worlds
	r.Kills += o.Kills
	r.Early += o.Early
	r.Unanswered += o.Unanswered
	r.Repeated += o.Repeated
	r.Conflicts += o.Conflicts
	r.Ends += o.Ends
	for k, n := range o.Of {
		r.Of[k] += n
	}
	r.Verdict.plus(o.Verdict)
}

// round runs one world through its kills and its audit.
func (cfg Config) round(ctx context.Context, n, kills int) (Report, error) {
	kind := embedded
	if n%2 == 1 {
		kind = external
	}
	dir := filepath.Join(cfg.Dir, fmt.Sprintf("world-%03d-%s", n, kind))
	r := Report{Worlds: 1, Of: make(map[string]int)}
	if err := ctx.Err(); err != nil {
		return r, err
	}
	seed := cfg.Seed + uint64(n)
	w, err := newWorld(ctx, cfg.Binaries, dir, seed)
	if err != nil {
		return r, err
	}
	defer w.close()
	switch kind {
	case embedded:
		err = w.embedded()
	case external:
		err = w.external()
	}
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := w.underLoad(ctx, cfg.Rate, seed, func(ctx context.Context) error {
		return w.killAll(ctx, kills, func(p *process, up bool) {
			r.Kills++
			r.Of[string(kind)+"/"+p.name]++
			if !up {
				r.Early++
			}
		})
	}); err != nil {
		return r, fmt.Errorf("%s: %w", dir, err)
	}
	killed := time.Since(began)
	if r.Verdict, err = w.audit(ctx); err != nil {
		return r, fmt.Errorf("%s: %w", dir, err)
	}
	w.counts(&r)
	_, _ = fmt.Fprintf(cfg.Log, "%s: %d kills in %s, audit %s; %d operations, %d found\n",
		dir, r.Kills, killed.Round(time.Millisecond), (time.Since(began) - killed).Round(time.Millisecond), r.Operations, r.Found)
	for _, p := range r.Problems {
		_, _ = fmt.Fprintln(cfg.Log, "found:", p)
	}
	w.tellEnds(cfg.Log)
	if r.Found == 0 && !cfg.Keep {
		w.close()
		return r, os.RemoveAll(dir)
	}
	return r, nil
}

// counts takes over what the load and the processes counted.
func (w *world) counts(r *Report) {
	r.Unanswered, r.Repeated, r.Conflicts = w.load.unanswered.Load(), w.load.repeated.Load(), w.load.conflicts.Load()
	for _, p := range w.processes() {
		p.mu.Lock()
		r.Ends += len(p.ends)
		p.mu.Unlock()
	}
}

// tellEnds tells of the processes that ended by themselves: the last thing that each
// said.
func (w *world) tellEnds(log io.Writer) {
	for _, p := range w.processes() {
		p.mu.Lock()
		said := make(map[string]int)
		for _, end := range p.ends {
			lines := strings.Split(strings.TrimSpace(end), "\n")
			said[lines[len(lines)-1]]++
		}
		for text, n := range said {
			_, _ = fmt.Fprintf(log, "%s ended by itself, %d times: %s\n", p.name, n, text)
		}
		p.mu.Unlock()
	}
}

// underLoad starts everything, runs fn while the load goes on, and returns when
// every intent of the load is acknowledged.
func (w *world) underLoad(ctx context.Context, rate int, seed uint64, fn func(context.Context) error) error {
	if err := w.start(ctx); err != nil {
		return err
	}
	var err error
	if w.load, err = newLoad(w, rate); err != nil {
		return err
	}
	stop, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	loading, giveUp := context.WithCancel(ctx)
	defer giveUp()
	go func() { ended <- w.load.run(loading, stop, seed) }()
	err = errors.Join(fn(ctx), w.running.failed())
	end()
	select {
	case lost := <-ended:
		return errors.Join(err, lost)
	case <-time.After(settleTime):
		giveUp()
		return errors.Join(err, fmt.Errorf("kills: intents got no answer within %s after the last kill; %w", settleTime, <-ended))
	}
}

// killAll kills at random moments until the number is reached.
func (w *world) killAll(ctx context.Context, kills int, told func(p *process, up bool)) error {
	all := w.processes()
	for n := 0; n < kills && ctx.Err() == nil; {
		targets := all
		if w.rnd.Float64() >= allShare {
			targets = all[w.rnd.IntN(len(all)):][:1]
		}
		if w.rnd.Float64() < earlyShare {
			pause(ctx, time.Duration(w.rnd.Int64N(int64(startWait))))
		} else {
			if !until(ctx, upTime, targets[0].isUp) {
				return fmt.Errorf("kills: %s is not up %s after a kill; see %s", targets[0].name, upTime, w.dir)
			}
			pause(ctx, time.Duration(w.rnd.Int64N(int64(readyWait))))
		}
		for _, p := range targets {
			up := p.isUp()
			if n < kills && p.kill(false) {
				told(p, up)
				n++
			}
		}
	}
	return errors.Join(ctx.Err(), w.allUp(ctx, startTime))
}
