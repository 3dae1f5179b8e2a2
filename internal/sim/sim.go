package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/opledger/opledger/operation"
)

// Runner plays schedules one after the other. It is for one goroutine.
type Runner struct {
	pool  pool
	kinds [faultCount]faultInfo
	all   []setting
	stats *Stats
}

// NewRunner returns a Runner.
func NewRunner() *Runner {
	return &Runner{kinds: faultList(), all: settings(), stats: newStats()}
}

func (r *Runner) world(seed uint64, h *hooks, stats *Stats) *world {
	return newWorld(seed, h, &r.pool, stats, &r.kinds, r.all)
}

// Schedule plays one schedule and returns what a check found, or nil.
func (r *Runner) Schedule(seed uint64) *Violation { return r.world(seed, &hooks{}, r.stats).run() }

// Told plays one schedule, with a planted bug unless bug is empty, and tells
// what happened.
func (r *Runner) Told(seed uint64, bug string) (string, *Violation, error) {
	h := &hooks{}
	if bug != "" {
		known := false
		for _, b := range Bugs() {
			if b.Name == bug {
				b.plant(h)
				known = true
			}
		}
		if !known {
			return "", nil, fmt.Errorf("sim: no planted bug is named %q", bug)
		}
	}
	w := r.world(seed, h, newStats())
	w.talk, w.transcript = true, &strings.Builder{}
	v := w.run()
	return w.transcript.String(), v, nil
}

// Find plays schedules from seed on with a planted bug and returns after how
// many it was found, and what a check said; nil if it was not within limit.
func (r *Runner) Find(b Bug, seed uint64, limit int) (int, *Violation) {
	for n := range limit {
		h := &hooks{}
		b.plant(h)
		if v := r.world(seed+uint64(n), h, newStats()).run(); v != nil {
			return n + 1, v
		}
	}
	return 0, nil
}

// Report is what a run did. Seed is that of its first schedule.
type Report struct {
	Schedules          int                      `json:"schedules"`
	Operations         int                      `json:"operations"`
	Attempts           int                      `json:"attempts"`
	Requests           int                      `json:"requests"`
	Effects            int                      `json:"effects"`
	Events             int                      `json:"events"`
	Steps              int                      `json:"steps"`
	Simulated          string                   `json:"simulated"`
	PerSecond          int                      `json:"schedules_per_second"`
	PerProcessorSecond int                      `json:"schedules_per_processor_second"`
	Confirmed          int                      `json:"confirmed"`
	Rejected           int                      `json:"rejected"`
	Undetermined       int                      `json:"undetermined"`
	Excused            int                      `json:"second_effects_by_breach_or_declared_risk"`
	Faults             map[string]int           `json:"faults"`
	Reasons            map[operation.Reason]int `json:"reasons"`
	Missing            []string                 `json:"did_not_occur"`
	Violations         int                      `json:"violations"`
	First              *Violation               `json:"first_violation,omitempty"`
	Seed               uint64                   `json:"seed"`
}

// Report returns what was counted so far.
func (r *Runner) Report() Report {
	s := r.stats
	out := Report{
		Schedules: s.Schedules, Operations: s.Operations, Attempts: s.Attempts, Requests: s.Requests, Effects: s.Effects,
		Events: s.Events, Steps: s.Steps, Simulated: s.Simulated.Round(time.Second).String(),
		Confirmed: s.Confirmed, Rejected: s.Rejected, Undetermined: s.Undetermined, Excused: s.Duplicates,
		Faults: map[string]int{}, Reasons: s.Reasons,
	}
	for f, kind := range r.kinds {
		out.Faults[kind.name] = s.Faults[f]
	}
	out.Missing = out.missing()
	return out
}

// missing names the kinds of trouble and the reasons of decisions that did not
// occur: what never happened was not tested.
func (r Report) missing() []string {
	out := []string{}
	for _, kind := range faultList() {
		if r.Faults[kind.name] == 0 {
			out = append(out, "fault "+kind.name)
		}
	}
	for _, reason := range operation.Reasons() {
		if r.Reasons[reason] == 0 {
			out = append(out, "reason "+string(reason))
		}
	}
	return out
}
