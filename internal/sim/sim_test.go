package sim

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var (
	schedules = flag.Int("schedules", 3000, "schedules of the small run")
	limit     = flag.Int("limit", 20_000, "after how many schedules a planted bug counts as not found")
)

// keep saves the transcript of a schedule that failed.
func keep(t *testing.T, v *Violation) {
	t.Helper()
	text, _, err := NewRunner().Told(v.Seed, "")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.CreateTemp("", "opledger-schedule-*.txt") //nolint:usetesting // it outlives the test
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	t.Fatalf("%v\ntranscript: %s\nreplay: go run ./internal/sim/run --seed %d", v, file.Name(), v.Seed)
}

// I1 to I20: no schedule of the real code under swarms of faults breaks an
// invariant or the provider's world, and every kind of fault and every reason of
// a decision occurs: what never happened was not tested.
func TestNoScheduleBreaksAnInvariant(t *testing.T) {
	t.Parallel()
	r := NewRunner()
	for seed := range *schedules {
		if v := r.Schedule(uint64(seed + 1)); v != nil {
			keep(t, v)
		}
	}
	report := r.Report()
	t.Logf("%d schedules from seed 1: %d operations, %d attempts, %d effects, %d events", report.Schedules, report.Operations, report.Attempts, report.Effects, report.Events)
	if missing := report.Missing; len(missing) > 0 {
		t.Errorf("did not occur in %d schedules: %s", *schedules, strings.Join(missing, ", "))
	}
}

// A schedule is a function of its seed: played twice, it is told the same way,
// byte for byte.
func TestScheduleIsAFunctionOfItsSeed(t *testing.T) {
	t.Parallel()
	one, two := NewRunner(), NewRunner()
	for seed := uint64(1); seed <= 500; seed++ {
		a, _, err := one.Told(seed, "")
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := two.Told(seed, "")
		if err != nil {
			t.Fatal(err)
		}
		if a != b {
			t.Fatalf("seed %d is told in two ways", seed)
		}
	}
}

// A test of the test: every planted bug is found.
func TestEveryPlantedBugIsFound(t *testing.T) {
	t.Parallel()
	for _, b := range Bugs() {
		n, v := NewRunner().Find(b, 1, *limit)
		if v == nil {
			t.Errorf("%s: not found in %d schedules", b.Name, *limit)
			continue
		}
		t.Logf("%6d  %-66s %s", n, b.Name, v.Check)
	}
}

// Code without a planted bug is not accused, and a planted one does not stay.
func TestPlantedBugsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	r := NewRunner()
	for _, b := range Bugs()[:5] {
		_, _ = r.Find(b, 1, 50)
	}
	for seed := uint64(1); seed <= 200; seed++ {
		if v := r.Schedule(seed); v != nil {
			keep(t, v)
		}
	}
}
