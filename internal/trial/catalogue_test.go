package trial_test

import (
	"slices"
	"testing"

	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/catalogue"
)

// bentPresets are the promises that a preset of the simulator can't keep for an
// action, and why.
func bentPresets() map[string]string {
	return map[string]string{
		"paypal/capture.refund/" + trial.PromiseRetention: "a preset keeps all keys equally long, PayPal keeps those of refunds longer",
	}
}

// A contract of the catalogue keeps every promise that can be tried against the
// simulator's dialect of its provider. An assumed promise is none.
func TestTheCatalogueKeepsItsPromises(t *testing.T) {
	t.Parallel()
	bent, spoken := bentPresets(), 0
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
				_, known := bent[place]
				lie := p.Verdict == trial.Lie && f.Proof != operation.ProofAssumed
				if lie != known {
					t.Errorf("%s: a lie: %t, known as one: %t\n%s", place, lie, known, text(got))
				}
				delete(bent, place)
			}
			if slices.ContainsFunc(got, func(p trial.Promise) bool { return p.Name == trial.PromiseSuccess && p.Verdict == trial.Kept }) {
				spoken++
			}
		}
	}
	if len(bent) > 0 || spoken < 30 {
		t.Errorf("never tried: %v; %d actions succeeded, want 30 at least", bent, spoken)
	}
}
