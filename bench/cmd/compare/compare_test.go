package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/opledger/opledger/bench/internal/load"
)

// Goal: an end is wrong when the provider's table contradicts it, whichever way.
func TestAnEndThatTheTableContradictsIsWrong(t *testing.T) {
	t.Parallel()
	table := map[string][]string{"one": {"a"}, "two": {"b", "c"}, "other": {"d"}, "failed-with": {"e"}}
	for op, c := range map[string]struct {
		end  load.Ended
		want int
	}{
		"one":            {load.Ended{ID: "a"}, 0},
		"two":            {load.Ended{ID: "c"}, 1},
		"other":          {load.Ended{ID: "x"}, 1},
		"none":           {load.Ended{ID: "a"}, 1},
		"failed-with":    {load.Ended{Err: "EOF"}, 1},
		"failed-without": {load.Ended{Err: "EOF"}, 0},
	} {
		if got := wrong(map[string]load.Ended{op: c.end}, table); got != c.want {
			t.Errorf("%s: %d wrong ends, want %d", op, got, c.want)
		}
	}
}

// Goal: a rate is held against the outbox of the same round, cell and delay, and
// never against another.
func TestARatioIsTakenWithinARound(t *testing.T) {
	t.Parallel()
	cell := func(round int, system string, callers int, delay, rate float64) Cell {
		return Cell{Round: round, System: system, Callers: callers, DelayMS: delay, OpsPerS: rate, MemoryMiB: rate / 10}
	}
	all := summarize([]Cell{
		cell(1, reference, 1, 0, 100), cell(1, ledger, 1, 0, 200), cell(1, ledger, 16, 0, 500),
		cell(2, ledger, 1, 0, 200), cell(2, reference, 1, 0, 400),
		cell(3, reference, 1, 0, 100), cell(3, ledger, 1, 0, 100),
		cell(1, reference, 1, 5, 7),
	})
	if len(all) != 4 || all[1].System != ledger || all[2].Callers != 16 {
		t.Fatalf("summaries: %+v", all)
	}
	if got := all[1]; !slices.Equal(got.Ratios, []float64{2, 0.5, 1}) || got.Ratio != 1 || got.OpsPerS != 200 || got.MemoryMiB != 20 || got.Rounds != 3 {
		t.Errorf("the ledger at 1 caller: %+v", got)
	}
	if got := all[2]; len(got.Ratios) != 0 || got.Ratio != 0 {
		t.Errorf("without a reference there is a ratio: %+v", got)
	}
}

// Goal: each bar is judged by its own figure, a bar at the limit is met, and
// what was not measured is not judged.
func TestTargetsSayWhereTheLedgerStands(t *testing.T) {
	t.Parallel()
	if got := targets(summarize([]Cell{{System: reference, Callers: 128, OpsPerS: 1}}), nil); len(got) != 0 {
		t.Errorf("targets without the ledger: %+v", got)
	}
	met := func(rate, p99, cpu, memory float64, lost Cell) (out []bool) {
		cells := []Cell{
			{Round: 1, System: reference, Callers: 128, OpsPerS: 1000},
			{Round: 1, System: ledger, Callers: 128, OpsPerS: rate, P99MS: p99, CPUMSPerOp: cpu, MemoryMiB: memory},
		}
		for _, b := range targets(summarize(cells), []Cell{{System: reference, WrongEnds: 100}, lost}) {
			out = append(out, b.Met)
		}
		return out
	}
	if got := met(2200, 60, 0.4, 120, Cell{System: ledger, Operations: 100}); !slices.Equal(got, []bool{true, true, true, true, true}) {
		t.Errorf("at the bars: %v", got)
	}
	if got := met(2199, 60.1, 0.41, 121, Cell{System: ledger, Operations: 99, Errors: 1}); !slices.Equal(got, []bool{false, false, false, false, false}) {
		t.Errorf("below the bars: %v", got)
	}
}

// Goal: every system has its turn as the first, and the systems of a cell follow
// each other directly.
func TestSystemsTakeTurns(t *testing.T) {
	t.Parallel()
	cfg := Config{Rounds: 3, Systems: []string{"a", "b"}, Callers: []int{1, 2}, Delays: []time.Duration{0}, Lost: 9}
	var order string
	for _, w := range cfg.plan() {
		if w.lost > 0 {
			order += "!"
		}
		order += w.system
	}
	if want := "abab" + "baba" + "abab" + "!a!b"; order != want {
		t.Errorf("order %s, want %s", order, want)
	}
}

func TestTheMedianIsTheMiddle(t *testing.T) {
	t.Parallel()
	for want, values := range map[float64][]float64{0: nil, 3: {3}, 2: {3, 1}, 5: {9, 5, 1}} {
		if got := median(values); got != want {
			t.Errorf("median of %v: %v, want %v", values, got, want)
		}
	}
}

// Goal: CPU time and memory of a process tree are read from the system. Method:
// this process is a tree; it has used memory, and uses CPU until that shows.
func TestAProcessTreeIsAccounted(t *testing.T) {
	t.Parallel()
	self := []int{os.Getpid()}
	pids, err := tree(self)
	if err != nil || pids[0] != self[0] {
		t.Fatalf("tree %v, %v", pids, err)
	}
	above, err := tree([]int{os.Getppid()})
	if err != nil || !slices.Contains(above, self[0]) {
		t.Errorf("this process is not below its parent: %v, %v", above, err)
	}
	if mib, err := memoryMiB(self); err != nil || mib < 1 || mib > 10_000 {
		t.Errorf("memory %v MiB, %v", mib, err)
	}
	before, err := cpuTime(self)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		now, err := cpuTime(self)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("CPU time went from %s to %s: %v", before, now, err)
		}
		if now > before {
			break
		}
	}
	if machine, err := machineTime(); err != nil || machine < before {
		t.Errorf("the machine has used %s, this process %s: %v", machine, before, err)
	}
}

// Goal: with -json every line is an object that says what it is.
func TestEveryLineOfJSONSaysWhatItIs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newPrinter(&out, &out, true)
	cells := []Cell{{Kind: "cell", Round: 1, System: reference, Callers: 1, OpsPerS: 1}, {Kind: "cell", Round: 1, System: ledger, Callers: 1, OpsPerS: 1}}
	if err := p.machine(Machine{Kind: "machine"}); err != nil {
		t.Fatal(err)
	}
	if err := p.cell(cells[1]); err != nil {
		t.Fatal(err)
	}
	all := summarize(cells)
	if err := p.end(all, nil, targets(all, nil)); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for dec := json.NewDecoder(&out); dec.More(); {
		var line struct {
			Kind string `json:"kind"`
		}
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, line.Kind)
	}
	if want := []string{"machine", "cell", "summary", "summary", "target", "target"}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
}

func TestWhatCanNotBeMeasuredIsRefused(t *testing.T) {
	t.Parallel()
	good := Config{Bin: "b", Contract: "c", Rounds: 1, Systems: systems(), Callers: []int{1}, Delays: []time.Duration{0}, Duration: time.Second}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Config){
		"no commands": func(c *Config) { c.Bin = "" }, "no rounds": func(c *Config) { c.Rounds = 0 },
		"no time": func(c *Config) { c.Duration = 0 }, "no callers": func(c *Config) { c.Callers = []int{0} },
		"a long delay": func(c *Config) { c.Delays = []time.Duration{time.Hour} }, "a strange system": func(c *Config) { c.Systems = []string{"x"} },
		"many lost answers": func(c *Config) { c.Lost = maxLost + 1 },
	} {
		cfg := good
		if spoil(&cfg); cfg.check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
