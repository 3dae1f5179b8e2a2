// Command run plays schedules of the simulation.
//
//	go run ./internal/sim/run --schedules 100000 --json    # the large run
//	go run ./internal/sim/run --planted all --json         # a test of the test
//	go run ./internal/sim/run --seed 17                    # one schedule, told
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/opledger/opledger/internal/sim"
)

// complete is after how many schedules every kind of fault and every reason must
// have occurred.
const complete = 3000

// heapFactor trades memory, of which a schedule takes little, for time.
const heapFactor = 1600

func main() {
	debug.SetGCPercent(heapFactor)
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	schedules := flags.Int("schedules", 2000, "how many schedules to play")
	first := flags.Uint64("first", 1, "the seed of the first schedule; the others follow")
	seed := flags.Uint64("seed", 0, "play this one schedule and print its transcript")
	planted := flags.String("planted", "", "plant this bug, or all one after the other, and tell after how many schedules it is found")
	limit := flags.Int("limit", 20_000, "after how many schedules a planted bug counts as not found")
	list := flags.Bool("list", false, "list the planted bugs")
	asJSON := flags.Bool("json", false, "print one JSON object")
	where := flags.String("transcript", "", "write the transcript of a failing schedule to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r := sim.NewRunner()
	switch {
	case *list:
		for _, b := range sim.Bugs() {
			fmt.Fprintln(out, b.Name)
		}
		return nil
	case *seed != 0:
		return tell(out, r, *seed, *planted)
	case *planted != "":
		return find(out, r, *planted, *first, *limit, *asJSON)
	}
	return play(out, r, *first, *schedules, *asJSON, *where)
}

func tell(out io.Writer, r *sim.Runner, seed uint64, planted string) error {
	text, v, err := r.Told(seed, planted)
	if err != nil {
		return err
	}
	fmt.Fprint(out, text)
	if v != nil {
		return errors.New(v.String())
	}
	return nil
}

// processor returns the processor time of this process.
func processor() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func play(out io.Writer, r *sim.Runner, first uint64, schedules int, asJSON bool, where string) error {
	began, spent := time.Now(), processor()
	var found *sim.Violation
	violations := 0
	for n := range schedules {
		if v := r.Schedule(first + uint64(n)); v != nil {
			violations++
			if found == nil {
				found = v
			}
		}
	}
	report := r.Report()
	report.Seed, report.Violations, report.First = first, violations, found
	report.PerSecond = int(float64(schedules) / time.Since(began).Seconds())
	report.PerProcessorSecond = int(float64(schedules) / (processor() - spent).Seconds())
	if found != nil && where != "" {
		text, _, err := r.Told(found.Seed, "")
		if err != nil {
			return err
		}
		if err := os.WriteFile(where, []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := show(out, report, asJSON); err != nil {
		return err
	}
	if found == nil && schedules >= complete && len(report.Missing) > 0 {
		return fmt.Errorf("sim: did not occur: %s", strings.Join(report.Missing, ", "))
	}
	if found != nil {
		return fmt.Errorf("%s\nreplay: go run ./internal/sim/run --seed %d", found, found.Seed)
	}
	return nil
}

func show(out io.Writer, report sim.Report, asJSON bool) error {
	enc := json.NewEncoder(out)
	if !asJSON {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(report)
}

// discovery is how a planted bug was found.
type discovery struct {
	Bug       string `json:"bug"`
	Schedules int    `json:"schedules,omitempty"`
	Check     string `json:"check,omitempty"`
	Seed      uint64 `json:"seed,omitempty"`
}

func find(out io.Writer, r *sim.Runner, name string, first uint64, limit int, asJSON bool) error {
	var all struct {
		Planted int         `json:"planted"`
		Found   int         `json:"found"`
		Limit   int         `json:"limit"`
		Seed    uint64      `json:"seed"`
		Bugs    []discovery `json:"bugs"`
	}
	all.Limit, all.Seed = limit, first
	var missed []string
	for _, b := range sim.Bugs() {
		if name != "all" && name != b.Name {
			continue
		}
		all.Planted++
		d := discovery{Bug: b.Name}
		n, v := r.Find(b, first, limit)
		if v == nil {
			missed = append(missed, b.Name)
		} else {
			all.Found++
			d.Schedules, d.Check, d.Seed = n, v.Check, v.Seed
		}
		all.Bugs = append(all.Bugs, d)
		if !asJSON {
			fmt.Fprintf(out, "%6d  %-66s %s\n", d.Schedules, d.Bug, d.Check)
		}
	}
	switch {
	case all.Planted == 0:
		return fmt.Errorf("sim: no planted bug is named %q; --list names them", name)
	case asJSON:
		if err := json.NewEncoder(out).Encode(all); err != nil {
			return err
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("sim: not found within %d schedules: %s", limit, strings.Join(missed, "; "))
	}
	return nil
}
