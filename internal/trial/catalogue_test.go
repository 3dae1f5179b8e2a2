package trial_test

import (
	"strings"
	"testing"

	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/providers/catalogue"
)

// A contract of the catalogue whose provider the simulator plays keeps every
// promise that can be tried there, and survives every fault: nothing is said
// that the provider's table contradicts.
func TestTheCatalogueKeepsItsPromisesWhereTheSimulatorSpeaksItsLanguage(t *testing.T) {
	t.Parallel()
	played := 0
	for _, name := range catalogue.Names() {
		f, err := catalogue.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		settings, err := trial.SettingsFor(f)
		if err != nil {
			continue // the simulator has no such dialect; counted below
		}
		t.Run(name, func(t *testing.T) {
			spoken := 0
			for _, action := range f.Actions() {
				args, err := trial.Args(f, action)
				if err != nil {
					t.Fatal(err)
				}
				got, err := trial.Try(t.Context(), f, action, args, trial.Target{Settings: settings})
				if err != nil {
					t.Fatal(err)
				}
				if lies := broken(got); len(lies) > 0 {
					t.Errorf("%s: got lies %q\n%s", action, lies, text(got))
				}
				if got[1].Name != trial.PromiseSuccess {
					t.Fatalf("the second promise is %q", got[1].Name)
				}
				if got[1].Verdict != trial.Kept {
					t.Logf("the dialect does not speak %s: %s", action, got[1].Observed)
					continue
				}
				spoken++
				column := trial.Column{Title: name, File: f, Action: action, Args: args, Settings: settings}
				cells, err := column.Play(t.Context(), trial.Faults())
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range cells {
					if len(c.Wrong) > 0 && !strings.HasSuffix(c.Fault, "reads lie") {
						t.Errorf("%s, %s: %q\n%s", action, c.Fault, c.Wrong, strings.Join(c.Report.Events, "\n"))
					}
				}
			}
			if spoken > 0 {
				played++
			}
		})
	}
	if played < 2 {
		t.Errorf("got %d contracts with a dialect, want stripe-v1 and linear at least", played)
	}
}
