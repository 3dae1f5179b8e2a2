package trial_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/simulator"
)

// Case C38 (highlight/highlight!5782): the provider makes an object of its own,
// without our mark: a person is told, the operation stays confirmed, and nothing
// is sent.
func TestCaseC38ObjectOfTheProvidersOwnIsShownAndTheOperationStaysConfirmed(t *testing.T) {
	t.Parallel()
	const class, query = "    class: ", `, query: {label: "${op.label}"}`
	for _, contract := range []string{"sim-crm", "sim-keyed"} {
		edits := []string{class, "    side_objects: true\n" + class, query, ""}
		side := simulator.Rule{Method: "POST", Do: simulator.Pass, Side: true}
		for name, c := range map[string]struct {
			fault trial.Fault
			found bool
			via   events.Via
		}{
			"answered":                  {trial.Fault{Rules: []simulator.Rule{side}}, true, events.ViaResponse},
			"answered, nothing beside":  {trial.Fault{}, false, events.ViaResponse},
			"answer lost":               {fault(write(1, simulator.Rule{Do: simulator.LoseResponse, Side: true})), true, events.ViaLookup},
			"server error":              {fault(write(1, simulator.Rule{Do: simulator.StatusAfterCommit, Side: true})), true, events.ViaLookup},
			"worker dies":               {trial.Fault{Rules: []simulator.Rule{side}, Crashes: []trial.Crash{{}}}, true, events.ViaLookup},
			"answer lost, only our own": {fault(write(1, simulator.Rule{Do: simulator.LoseResponse})), false, events.ViaLookup},
			"the first look fails": {trial.Fault{Rules: []simulator.Rule{
				side, {Method: "GET", PathPrefix: "/v1/tasks", Times: 1, Do: simulator.RateLimit},
			}}, true, events.ViaResponse},
		} {
			x := play(t, caseConfig(t, contract, c.fault, edits...))
			if x.Status != operation.StatusConfirmed || x.Via != c.via || len(x.writes) != 1 || x.Duplicate {
				x.wrong("%s, %s: got %s, %d sends, duplicate %t", contract, name, x.Ending(), len(x.writes), x.Duplicate)
			}
			if (x.Review == events.ReviewAmbiguous) != c.found || x.count(events.KindReviewOpened) > 1 {
				x.wrong("%s, %s: review %q, %d opened", contract, name, x.Review, x.count(events.KindReviewOpened))
			}
			if weak := x.state.Evidence[len(x.state.Evidence)-1].WeakMatches; c.found && len(weak) != 1 {
				x.wrong("%s, %s: the evidence names %v", contract, name, weak)
			}
		}
	}
}

// The review of such an object is settled by a person, once.
func TestCaseC38ReviewOfAnObjectBesideIsAcknowledged(t *testing.T) {
	t.Parallel()
	cfg := caseConfig(t, "sim-crm", trial.Fault{Rules: []simulator.Rule{{Method: "POST", Do: simulator.Pass, Side: true}}},
		"    class: ", "    side_objects: true\n    class: ", `, query: {label: "${op.label}"}`, "")
	cfg.Decisions = []events.DecisionWord{events.DecideAcknowledge}
	x := play(t, cfg)
	x.want(operation.StatusConfirmed, 1, 2)
	if x.Review != "" || x.Looks != 1 {
		x.wrong("review %q, %d looks", x.Review, x.Looks)
	}
}

// Case H96 (DevilsAutumn/quater#72, hashgraph-online/hol-guard!2042): calls that
// mean the same are one operation, whatever their spelling, order, defaults or
// description; whatever else differs is a conflict, and what is sent is what was
// recorded first.
func TestCaseH96EqualCallsAreOneOperation(t *testing.T) {
	t.Parallel()
	const note = "          note: {type: string, maxLength: 10000}\n"
	edits := []string{
		note, note + "          id: {type: [integer, string]}\n          size: {type: integer, default: 3}\n          description: {type: string}\n",
		"      personal: [/contact]\n", "      personal: [/contact]\n      ignore: [/description]\n",
		`        note: "${args.note?}"` + "\n", `        note: "${args.description?}"` + "\n",
	}
	each(t, []string{"sim-crm", "sim-keyed-nolookup", "sim-unique"}, func(t *testing.T, contract string) {
		cfg := caseConfig(t, contract, hide(fault(write(1, simulator.Rule{Do: simulator.RateLimit, After: simulator.Duration(time.Hour)})), 0), edits...)
		cfg.Args = json.RawMessage(`{"title":"a","id":7,"description":"first words"}`)
		w := begin(t, cfg)
		hand := func(args string) (api.Answer, *api.Problem) {
			r := request(cfg, "op-1")
			r.Args = json.RawMessage(args)
			return w.Intake().Submit(t.Context(), trial.Tenant, marshal(t, r))
		}
		check := func(context.Context) {
			for _, args := range []string{
				`{"title":"a","id":7,"description":"first words"}`, `{"description":"first words","id":7.0,"title":"\u0061"}`,
				`{"title":"a","id":7,"size":3}`, `{"size":3,"id":7,"title":"a","description":"other words"}`, `{"title":"a","id":7,"description":""}`,
			} {
				if a, p := hand(args); p != nil || !a.Repeated {
					t.Errorf("%s: got %v, want the stored operation", args, p)
				}
			}
			for _, args := range []string{
				`{"title":"a","id":"7","description":"first words"}`, `{"title":"a","id":7,"size":4}`, `{"title":"b","id":7}`, `{"title":"a"}`,
				`{"title":"a","id":7,"size":"3"}`, `{"title":"a","id":7,"desc":"first words"}`, `{"title":"a","id":7,"description":5}`, `{}`,
			} {
				if _, p := hand(args); p == nil || p.Code != api.ProblemConflict {
					t.Errorf("%s: got %v, want a conflict", args, p)
				}
			}
		}
		check(t.Context())
		w.After(time.Minute, check)
		x := end(t, w, cfg)
		x.want(operation.StatusConfirmed, 2, 1)
		if x.writes[0].BodySHA256 != x.writes[1].BodySHA256 {
			x.wrong("the second request has other bytes")
		}
		check(t.Context())
	})
}
