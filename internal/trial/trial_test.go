package trial_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/executor"
	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// config is a run of a shipped contract.
func config(t *testing.T, contract string, f trial.Fault) trial.Config {
	t.Helper()
	file, settings, err := trial.Shipped(contract)
	if err != nil {
		t.Fatal(err)
	}
	return trial.Config{
		File: file, Action: "task.create", Args: json.RawMessage(`{"title":"call back"}`), Settings: settings, Fault: f, Seed: 7,
	}
}

func run(t *testing.T, cfg trial.Config) trial.Report {
	t.Helper()
	r, err := trial.Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(r.Events, "\n"))
	}
	return r
}

func loseEvery() trial.Fault {
	return trial.Fault{Writes: []trial.Write{{Rule: &simulator.Rule{Do: simulator.LoseResponse}}}}
}

// I11, cases 33 and 35: a thousand operations whose answers are lost half of the
// time, at a provider whose searches come back empty one time in twenty: no
// operation has two objects, and none is said to be absent while it is there.
func TestAThousandOperationsSurviveRandomEmptySearches(t *testing.T) {
	t.Parallel()
	lose := simulator.Rule{Do: simulator.LoseResponse, Probability: 0.5}
	for contract, f := range map[string]trial.Fault{
		"sim-crm": {
			Settings: func(s *simulator.Settings) { s.FlakyIndex = 0.05 },
			Rules:    []simulator.Rule{{Method: "POST", Do: lose.Do, Probability: lose.Probability}},
		},
		"sim-unique": {Rules: []simulator.Rule{
			{Method: "PUT", Do: lose.Do, Probability: lose.Probability},
			{Method: "GET", PathPrefix: "/v1/tasks/", Do: simulator.StatusOnly, Status: 404, Probability: 0.05},
		}},
	} {
		t.Run(contract, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, contract, f)
			c, _ := cfg.File.Contract(cfg.Action)
			reports, err := trial.RunMany(t.Context(), cfg, 1000)
			if err != nil {
				t.Fatal(err)
			}
			byLook := 0
			for _, r := range reports {
				if r.Objects != 1 || r.Status != operation.StatusConfirmed || len(r.Judge(c)) > 0 {
					t.Errorf("%s: %s, %d objects, %q\n%s", r.Operation, r.Ending(), r.Objects, r.Judge(c), strings.Join(r.Events, "\n"))
				}
				if r.Via == events.ViaLookup {
					byLook++
				}
			}
			if byLook < 200 {
				t.Errorf("got %d of 1000 confirmed by a lookup; the fault was hardly played", byLook)
			}
		})
	}
}

// The virtual clock makes a schedule of an hour and a retention of a day cost
// next to nothing, and the log shows the times that the contract declares.
func TestHoursTakeNoTime(t *testing.T) {
	t.Parallel()
	r := run(t, config(t, "sim-crm", trial.Fault{Writes: []trial.Write{{Rule: &simulator.Rule{Do: simulator.LoseRequest}}}}))
	if want := 2*time.Second + 10*time.Second + 30*time.Second + 2*time.Minute + 10*time.Minute + time.Hour; r.Took != want {
		t.Errorf("got %s of virtual time, want the whole schedule, %s", r.Took, want)
	}
}

// A wait for an answer that never comes ends, in virtual time, with the total
// that the contract declares, and its lease with the lease that it would have.
func TestATimeoutIsAsLongAsTheContractSays(t *testing.T) {
	t.Parallel()
	r := run(t, config(t, "sim-keyed-nolookup", trial.Fault{Writes: []trial.Write{{Nth: 1, Wire: trial.WireHalfOpen}}}))
	// total 10 s; the lease of 20 s and the error of the clocks come before a repeat.
	for at, kind := range map[string]events.Kind{"+10s": events.KindOutcomeUnknown, "+20.5s": events.KindAttemptStarted} {
		if !slices.ContainsFunc(r.Events, func(line string) bool {
			return strings.HasPrefix(line, at+" ") && strings.Contains(line, string(kind))
		}) {
			t.Errorf("no %s at %s:\n%s", kind, at, strings.Join(r.Events, "\n"))
		}
	}
}

// Equal seeds give equal runs, in everything but the names that are drawn anew.
func TestARunCanBeRepeated(t *testing.T) {
	t.Parallel()
	f := trial.Fault{Rules: []simulator.Rule{{Method: "POST", Do: simulator.LoseResponse, Probability: 0.6}}}
	one, two := run(t, config(t, "sim-keyed-nolookup", f)), run(t, config(t, "sim-keyed-nolookup", f))
	if !slices.Equal(one.Events, two.Events) {
		t.Errorf("got\n%s\nand\n%s", strings.Join(one.Events, "\n"), strings.Join(two.Events, "\n"))
	}
}

// A person's word is taken where no machine can go on; what it costs shows in
// the provider's table.
func TestAPersonDecidesWhereNoMachineCan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		decisions []events.DecisionWord
		fault     trial.Fault
		status    operation.Status
		objects   int
		sent      int
	}{
		"confirm names what is there": {
			decisions: []events.DecisionWord{events.DecideConfirm}, fault: loseEvery(),
			status: operation.StatusConfirmed, objects: 1, sent: 1,
		},
		"permit sends once more, at the person's risk": {
			decisions: []events.DecisionWord{events.DecidePermit}, fault: trial.Fault{Writes: loseEvery().Writes[:1]},
			status: operation.StatusUnknown, objects: 2, sent: 2,
		},
		"reject says that it did not happen": {
			decisions: []events.DecisionWord{events.DecideReject},
			fault:     trial.Fault{Writes: []trial.Write{{Rule: &simulator.Rule{Do: simulator.LoseRequest}}}},
			status:    operation.StatusRejected, objects: 0, sent: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, "sim-nothing", c.fault)
			cfg.Decisions = c.decisions
			r := run(t, cfg)
			if r.Status != c.status || r.Objects != c.objects || r.Sent != c.sent {
				t.Errorf("got %s, %d objects, %d requests\n%s", r.Ending(), r.Objects, r.Sent, strings.Join(r.Events, "\n"))
			}
		})
	}
}

// The risk that an approval declared is taken once.
func TestADeclaredRiskIsTakenOnce(t *testing.T) {
	t.Parallel()
	cfg := config(t, "sim-nothing", loseEvery())
	cfg.OnUnknown = events.OnUnknownRisk
	r := run(t, cfg)
	if !slices.Equal(r.Permits, []events.Basis{events.BasisDeclaredRisk}) || r.Sent != 2 || r.Review == "" {
		t.Errorf("got permits %v, %d requests, %s", r.Permits, r.Sent, r.Ending())
	}
}

// A run that can't end is an error, not a report that looks like an end.
func TestARunWithoutEndIsAnError(t *testing.T) {
	t.Parallel()
	f := trial.Fault{Writes: []trial.Write{{Rule: &simulator.Rule{Do: simulator.RateLimit, After: simulator.Duration(30 * 24 * time.Hour)}}}}
	cfg := config(t, "sim-keyed", f)
	cfg.Steps = 50
	if _, err := trial.Run(t.Context(), cfg); !errors.Is(err, trial.ErrBound) {
		t.Errorf("got %v, want ErrBound", err)
	}
}

// A credential that stays dead sends nothing, and the report says what it waits
// for.
func TestADeadCredentialBlocksAndSendsNothing(t *testing.T) {
	t.Parallel()
	f := trial.Fault{Writes: []trial.Write{{Nth: 1, Then: trial.ThenRevoke}}}
	r := run(t, config(t, "sim-crm", f))
	if r.Status != operation.StatusPending || r.Blocked != executor.BlockedProbe || r.Next != events.NextAttempt || r.Sent != 1 {
		t.Errorf("got %s, blocked %q, next %s, %d requests", r.Status, r.Blocked, r.Next, r.Sent)
	}
}

// directLabel is a contract without a key whose list is a direct read: one empty
// look, late enough, proves that nothing happened.
func directLabel(t *testing.T, f trial.Fault) trial.Config {
	t.Helper()
	cfg := config(t, "sim-crm", f)
	text := string(cfg.File.Bytes())
	for old, replacement := range map[string]string{
		"consistency: eventual":      "consistency: direct\n        proves: absence",
		"absence: {provable: false}": "absence: {provable: true, settle: 10s, empty_reads: 1}",
		"max_attempts: 1":            "max_attempts: 3",
	} {
		if !strings.Contains(text, old) {
			t.Fatalf("the contract has no %q", old)
		}
		text = strings.Replace(text, old, replacement, 1)
	}
	var err error
	if cfg.File, err = providers.Parse("direct-label.yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// I11: absence is concluded late enough: after the lease, late_apply, the lag and
// the time to settle. A request that is lost is then sent again; one that lands
// late is found instead, although the looks before it were empty.
func TestAbsenceIsNotConcludedBeforeAWriteCanHaveLanded(t *testing.T) {
	t.Parallel()
	gone := run(t, directLabel(t, trial.Fault{Writes: []trial.Write{{Nth: 1, Rule: &simulator.Rule{Do: simulator.LoseRequest}}}}))
	if gone.Objects != 1 || gone.Sent != 2 || !slices.Equal(gone.Permits, []events.Basis{events.BasisAbsentProven}) {
		t.Errorf("lost: got %s, %d objects, %d requests, permits %v\n%s", gone.Ending(), gone.Objects, gone.Sent, gone.Permits, strings.Join(gone.Events, "\n"))
	}
	for _, after := range []time.Duration{time.Second, 11 * time.Second, 25 * time.Second, 30 * time.Second} {
		late := run(t, directLabel(t, trial.Fault{Writes: []trial.Write{{Nth: 1, Wire: trial.WireLate, After: after}}}))
		if late.Objects != 1 || late.Sent != 1 || late.Via != events.ViaLookup {
			t.Errorf("%s late: got %s, %d objects, %d requests\n%s", after, late.Ending(), late.Objects, late.Sent, strings.Join(late.Events, "\n"))
		}
	}
}
