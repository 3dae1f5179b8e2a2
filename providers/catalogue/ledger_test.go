package catalogue_test

import (
	"flag"
	"slices"
	"testing"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

var everyFault = flag.Bool("every-fault", false, "play every fault against every action: a minute or two")

// chosenFaults are the faults that tell the classes apart. They are played in
// every run of the tests; -every-fault plays all.
func chosenFaults() []string {
	return []string{
		"none", "answer lost", "answer cut in the body", "500, done", "429", "answer lost, then 429", "crash after the send",
		"applied late, inside late_apply", "index behind, inside the lag",
	}
}

// I1: the whole ledger plays every action that a dialect speaks: no operation
// has an effect that it may not have, and what it says of an object is what the
// provider's own table says.
func TestTheLedgerPlaysEveryActionAgainstTheFaults(t *testing.T) {
	t.Parallel()
	faults := slices.DeleteFunc(trial.Faults(), func(f trial.Fault) bool {
		return !*everyFault && !slices.Contains(chosenFaults(), f.Name)
	})
	if len(faults) < len(chosenFaults()) {
		t.Fatalf("%d faults, the test knows %d by name", len(faults), len(chosenFaults()))
	}
	eachSpoken(t, func(g *ground, _ providers.Call, contract operation.Contract) {
		settings, err := simulator.Preset(preset(g.name))
		if err != nil {
			g.t.Fatal(err)
		}
		for _, f := range faults {
			r, err := trial.Run(g.t.Context(), trial.Config{
				File: g.file, Action: g.action, Args: jsonOf(g.Actions[g.action].Args),
				Settings: settings, ProviderID: g.Account, Fault: f, Seed: 1,
			})
			if err != nil {
				g.t.Fatalf("%s: %v", f.Name, err)
			}
			// The network of a trial tells a write from a read by its address, and
			// two executors at once read and write the same one with GraphQL.
			confused := g.raw.Actions[g.action].Request.Encoding == "graphql" && f.Name == "two executors"
			// Absence was proven by reads that lied, against the contract.
			astray := f.Name == "answer lost, then 422, reads lie" && contract.Absence.Provable
			if wrong := r.Judge(contract); len(wrong) > 0 && !confused && !astray {
				g.t.Errorf("%s: %v", f.Name, wrong)
			}
			if f.Name == "answer lost" {
				g.afterLoss(r, contract)
			}
		}
	})
}

// afterLoss: one object, known by its id, or a question to a person.
func (g *ground) afterLoss(r trial.Report, c operation.Contract) {
	g.t.Helper()
	repeats := c.MaxAttempts > 1
	if r.Objects != 1 || r.Sent > 1 && !repeats {
		g.t.Errorf("after a lost answer: %d objects by %d writes", r.Objects, r.Sent)
	}
	want := operation.StatusConfirmed
	if !repeats && !c.Lookup.Available {
		want = operation.StatusUnknown
	}
	if r.Status != want || want == operation.StatusUnknown && r.Review == "" {
		g.t.Errorf("after a lost answer: %s, want %s", r.Ending(), want)
	}
	if want == operation.StatusConfirmed && !repeats && r.Via != events.ViaLookup {
		g.t.Errorf("confirmed via %s although nothing was repeated", r.Via)
	}
}

// What an action promises is tried promise by promise, as `opledger contract test`
// does: none is a lie at a provider of its own shape.
func TestEveryPromiseIsKeptByADialectOfTheSameShape(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(g *ground, _ providers.Call, _ operation.Contract) {
		settings, err := simulator.Preset(preset(g.name))
		if err != nil {
			g.t.Fatal(err)
		}
		args := jsonOf(g.Actions[g.action].Args)
		promises, err := trial.Try(g.t.Context(), g.file, g.action, args, trial.Target{Settings: settings})
		if err != nil {
			g.t.Fatal(err)
		}
		kept := 0
		for _, p := range promises {
			switch p.Verdict {
			case trial.Lie:
				g.t.Errorf("%s: declared %s, observed %s", p.Name, p.Declared, p.Observed)
			case trial.Kept:
				kept++
			case trial.NotTried:
			}
		}
		if kept < 4 {
			g.t.Errorf("%d promises were kept; the others could not be tried", kept)
		}
	})
}
