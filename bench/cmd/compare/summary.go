package main

import (
	"fmt"
	"slices"
	"time"
)

// Summary is a cell over all rounds: medians, and the rate as a ratio to that of
// the PostgreSQL outbox in the same round.
type Summary struct {
	Kind    string  `json:"kind"`
	System  string  `json:"system"`
	Callers int     `json:"callers"`
	DelayMS float64 `json:"delay_ms"`
	Rounds  int     `json:"rounds"`

	// Ratio is the median of Ratios, 0 where the reference was not measured.
	Ratio  float64   `json:"ratio_to_outbox"`
	Ratios []float64 `json:"ratios_per_round"`

	OpsPerS      float64 `json:"ops_per_s"`
	P50MS        float64 `json:"p50_ms"`
	P99MS        float64 `json:"p99_ms"`
	CPUMSPerOp   float64 `json:"cpu_ms_per_op"`
	FlushesPerOp float64 `json:"flushes_per_op"`
	// MemoryMiB is the most of all rounds; WrongEnds and Errors are added up.
	MemoryMiB float64 `json:"memory_mib"`
	WrongEnds int     `json:"wrong_ends"`
	Errors    int     `json:"errors"`
}

// Target is a bar for the ledger, and where it stands.
type Target struct {
	Kind string `json:"kind"`
	What string `json:"what"`
	// Bar is the least, or the most where AtMost is true.
	Bar    float64 `json:"bar"`
	AtMost bool    `json:"at_most"`
	Figure float64 `json:"figure"`
	Met    bool    `json:"met"`
}

// The bars. A rate is a ratio to the outbox.
const (
	targetCallers   = 128
	targetP99MS     = 60
	targetCPUMS     = 0.4
	targetMemoryMiB = 120
	targetWrongEnds = 0
)

// targetRate is the least ratio of the rates; ok is false where none is set.
func targetRate(callers int, delayMS float64) (bar float64, ok bool) {
	switch {
	case delayMS == 0 && callers == targetCallers:
		return 2.2, true
	case delayMS == 5 && callers == targetCallers:
		return 1.8, true
	case (delayMS == 0 || delayMS == 5) && (callers == 1 || callers == 16):
		return 1, true
	}
	return 0, false
}

type place struct {
	system  string
	callers int
	delay   float64
}

// summarize puts the rounds of each cell together, in the order of the first.
func summarize(cells []Cell) []Summary {
	type spot struct {
		place
		round int
	}
	base := make(map[spot]float64)
	rounds := make(map[place][]Cell)
	var order []place
	for _, c := range cells {
		p := place{c.System, c.Callers, c.DelayMS}
		if c.System == reference {
			base[spot{p, c.Round}] = c.OpsPerS
		}
		if _, seen := rounds[p]; !seen {
			order = append(order, p)
		}
		rounds[p] = append(rounds[p], c)
	}
	out := make([]Summary, 0, len(order))
	for _, p := range order {
		all := rounds[p]
		s := Summary{Kind: "summary", System: p.system, Callers: p.callers, DelayMS: p.delay, Rounds: len(all), Ratios: []float64{}}
		for _, c := range all {
			if b := base[spot{place{reference, p.callers, p.delay}, c.Round}]; b > 0 {
				s.Ratios = append(s.Ratios, c.OpsPerS/b)
			}
			s.MemoryMiB = max(s.MemoryMiB, c.MemoryMiB)
			s.WrongEnds += c.WrongEnds
			s.Errors += c.Errors
		}
		s.Ratio = median(s.Ratios)
		s.OpsPerS = medianOf(all, func(c Cell) float64 { return c.OpsPerS })
		s.P50MS = medianOf(all, func(c Cell) float64 { return c.P50MS })
		s.P99MS = medianOf(all, func(c Cell) float64 { return c.P99MS })
		s.CPUMSPerOp = medianOf(all, func(c Cell) float64 { return c.CPUMSPerOp })
		s.FlushesPerOp = medianOf(all, func(c Cell) float64 { return c.FlushesPerOp })
		out = append(out, s)
	}
	return out
}

func medianOf(cells []Cell, of func(Cell) float64) float64 {
	values := make([]float64, len(cells))
	for i, c := range cells {
		values[i] = of(c)
	}
	return median(values)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// targets holds the ledger's figures against the bars. What was not measured has
// no target.
func targets(all []Summary, lost []Cell) []Target {
	var out []Target
	add := func(what string, figure, bar float64, atMost bool) {
		t := Target{Kind: "target", What: what, Bar: bar, AtMost: atMost, Figure: figure}
		t.Met = !atMost && figure >= bar || atMost && figure <= bar
		out = append(out, t)
	}
	memory, measured := 0.0, false
	for _, s := range all {
		if s.System != ledger {
			continue
		}
		memory, measured = max(memory, s.MemoryMiB), true
		at := fmt.Sprintf("%d callers, %s", s.Callers, time.Duration(s.DelayMS*float64(time.Millisecond)))
		if bar, ok := targetRate(s.Callers, s.DelayMS); ok && len(s.Ratios) > 0 {
			add("rate over the outbox's, "+at, s.Ratio, bar, false)
		}
		if s.Callers == targetCallers {
			add("p99 ms, "+at, s.P99MS, targetP99MS, true)
			add("CPU ms per operation, "+at, s.CPUMSPerOp, targetCPUMS, true)
		}
	}
	if measured {
		add("memory MiB, the most of all cells", memory, targetMemoryMiB, true)
	}
	for _, c := range lost {
		if c.System == ledger || c.System == plain {
			add(fmt.Sprintf("wrong ends or errors of %d lost answers, %s", c.Operations+c.Errors, c.System), float64(c.WrongEnds+c.Errors), targetWrongEnds, true)
		}
	}
	return out
}
