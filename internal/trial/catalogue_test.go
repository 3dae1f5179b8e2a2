package trial_test

import (
	"slices"
	"testing"

	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/catalogue"
)

// A contract of the catalogue keeps every promise that can be tried against the
// simulator's dialect of its provider. An assumed promise is none.
func TestTheCatalogueKeepsItsPromises(t *testing.T) {
	t.Parallel()
	spoken := 0
	for _, name := range catalogue.Names() {
		f, err := catalogue.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		settings, err := trial.SettingsFor(f)
		if err != nil {
			t.Logf("%v", err)
			continue
		}
		for _, action := range f.Actions() {
			args, err := trial.Args(f, action)
			if err != nil {
				t.Fatal(err)
			}
			got, err := trial.Try(t.Context(), f, action, args, trial.Target{Settings: settings})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range got {
				place := name + "/" + action + "/" + p.Name
				if p.Verdict == trial.Lie && f.Proof != operation.ProofAssumed {
					t.Errorf("%s is a lie\n%s", place, text(got))
				}
			}
			if slices.ContainsFunc(got, func(p trial.Promise) bool { return p.Name == trial.PromiseSuccess && p.Verdict == trial.Kept }) {
				spoken++
			}
		}
	}
	if spoken < 30 {
		t.Errorf("%d actions succeeded, want 30 at least", spoken)
	}
}
