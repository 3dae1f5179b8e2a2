package examples_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opledger/opledger/providers/simulator"
)

// Goal: the counter-example. A loop that sends again after an error reports one
// task, and the provider has two, for one wish. Method: one answer is lost; the
// judge is the provider's object table. Without the lost answer there is one, so
// it is the fault that shows the loop's mistake.
func TestANaiveRetryMakesTheEffectTwice(t *testing.T) {
	for lost, want := range []int{1, 2} {
		settings, err := simulator.Preset("crm")
		if err != nil {
			t.Fatal(err)
		}
		sim, err := simulator.New(simulator.Config{Settings: settings})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(sim)
		t.Cleanup(srv.Close)
		t.Cleanup(sim.Close) // runs first, see Server.Close
		admin, err := simulator.NewClient(simulator.ClientConfig{BaseURL: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		for range lost {
			rule := simulator.Rule{Do: simulator.LoseResponse, Method: "POST", Times: 1}
			if _, err := admin.AddRule(t.Context(), rule); err != nil {
				t.Fatal(err)
			}
		}
		out, err := python(t, "naive/retry.py", srv.URL, "Call Ada").Output()
		if err != nil {
			t.Fatalf("retry.py: %v", err)
		}
		objects, err := admin.Objects(t.Context(), simulator.ObjectFilter{Label: "wish-1"})
		if err != nil {
			t.Fatal(err)
		}
		sends, err := admin.Sends(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(objects) != want || len(sends) != 1 || sends[0].Sends != want || sends[0].Objects != want {
			t.Errorf("%d lost answers: %d objects, want %d; sends %+v", lost, len(objects), want, sends)
		}
		if id := objects[len(objects)-1].ID; strings.TrimSpace(string(out)) != "created task "+id {
			t.Errorf("the loop says %q, the last object is %s", out, id)
		}
	}
}
