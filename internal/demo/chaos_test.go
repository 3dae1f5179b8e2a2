package demo

import (
	"fmt"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/simulator"
)

const (
	chaosWishes = 60
	chaosKills  = 3
)

// Goal: I4, I10, I12, I19 for every class: whatever gets lost and whoever is
// killed, no operation has two objects, what is confirmed exists, what is
// rejected does not, and everything else is a question to a person. Method: a
// provider that loses requests and answers, fails after the commit and answers
// slowly; the whole ledger is killed three times; the provider's table judges.
func TestEveryClassKeepsItsWordUnderFaultsAndKills(t *testing.T) {
	k2 := class{name: "K2", provider: "unique", contract: "sim-unique", preset: "unique"}
	for _, c := range []struct {
		class class
		vars  map[string]string
		// open: lost requests can't be told from slow ones, so a person is asked.
		open bool
	}{
		{k1(), quick("margin", "1m", "lag", "600ms", "schedule", "300ms, 700ms, 1s"), false},
		{k2, quick("schedule", "200ms, 500ms", "settle", "200ms", "spacing", "200ms"), false},
		{k4(), quick("lag", "600ms", "schedule", "300ms, 700ms, 1s"), true},
		{k5(), quick(), true},
	} {
		t.Run(c.class.name, func(t *testing.T) {
			t.Parallel()
			method := "POST"
			if c.class.name == "K2" {
				method = "PUT"
			}
			fault := func(p float64, do simulator.Fault) simulator.Rule {
				return simulator.Rule{Method: method, PathPrefix: "/v1/tasks", Probability: p, Do: do, Status: 500}
			}
			slow := fault(0, simulator.Delay)
			slow.After = simulator.Duration(30 * time.Millisecond)
			settings := map[string]any{"index_lag": "200ms", "seed": 7}
			if c.class.name == "K5" || c.class.name == "K2" {
				delete(settings, "index_lag")
			}
			e := world(t, c.class, settings, fault(0.12, simulator.LoseResponse), fault(0.08, simulator.LoseRequest),
				fault(0.05, simulator.StatusAfterCommit), fault(0.05, simulator.CutBody), slow)
			e.listen = freeAddress(t)
			l, err := e.ledger(t.Context(), c.vars, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range chaosWishes {
				id := fmt.Sprintf("op-%02d", i)
				if i%(chaosWishes/(chaosKills+1)) == 10 {
					l.p.Kill()
					if l, err = e.serve(t.Context(), l.config); err != nil {
						t.Fatal(err)
					}
				}
				err := poll(t.Context(), func() (bool, error) { _, err := l.submit(t.Context(), id, "task "+id); return err == nil, nil })
				if err != nil {
					t.Fatal(err)
				}
			}
			judgeChaos(t, e, l, c.open)
			if out, code := e.tool(t, "verify", "--config", l.config); code != 0 {
				t.Errorf("verify: exit code %d\n%s", code, out)
			}
		})
	}
}

// judgeChaos waits until nothing happens by itself any more and holds every
// operation against the provider's table.
func judgeChaos(t *testing.T, e *env, l *ledger, open bool) {
	t.Helper()
	var all []api.Answer
	settled := func() bool {
		page, err := l.List(t.Context(), api.ListRequest{Limit: 1000})
		if err != nil || len(page.Operations) != chaosWishes {
			return false
		}
		all = page.Operations
		for _, a := range all {
			if !a.Status.Final() && a.Review == "" {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(90 * time.Second); !settled(); time.Sleep(100 * time.Millisecond) { // a poll
		if time.Now().After(deadline) {
			for _, a := range all {
				if !a.Status.Final() && a.Review == "" {
					t.Logf("%s: %s, next %s at %s", a.OperationID, a.Status, a.NextAction, a.NextAt)
				}
			}
			t.Fatalf("%d operations are recorded, and some neither end nor ask a person", len(all))
		}
	}
	objects, err := e.sim.Objects(t.Context(), simulator.ObjectFilter{})
	if err != nil {
		t.Fatal(err)
	}
	byTitle, byID := make(map[string]int), make(map[string]bool)
	for _, o := range objects {
		byTitle[o.Title]++
		byID[o.ID] = true
	}
	counts := make(map[operation.Status]int)
	for _, a := range all {
		counts[a.Status]++
		n := byTitle["task "+a.OperationID]
		switch {
		case n > 1:
			t.Errorf("%s has %d objects after %d attempts", a.OperationID, n, a.Attempts)
		case a.Status == operation.StatusConfirmed && (n != 1 || !byID[a.ExternalID]):
			t.Errorf("%s is confirmed as %q, and the provider holds %d", a.OperationID, a.ExternalID, n)
		case a.Status == operation.StatusRejected:
			t.Errorf("%s was rejected: %s", a.OperationID, a.Reason)
		case a.Status == operation.StatusUnknown && !open:
			t.Errorf("%s stayed unknown (%s) although the contract helps", a.OperationID, a.Review)
		}
	}
	t.Logf("%d objects; %v", len(objects), counts)
}
