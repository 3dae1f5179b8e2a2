package trial_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// Rows of the acceptance cases that concern what a provider, a network and a
// process do. The provider's own tables are the judge: "sends" counts the writes
// that reached it. docs/cases.md lists all rows.

// everyClass are the shipped contracts, one for each kind of promise.
func everyClass() []string {
	return []string{"sim-keyed", "sim-keyed-nolookup", "sim-unique", "sim-upsert", "sim-crm", "sim-nothing"}
}

// withLookup are those that can be looked for.
func withLookup() []string { return []string{"sim-keyed", "sim-unique", "sim-upsert", "sim-crm"} }

// neverRepeated are those where a repeat may be a second effect.
func neverRepeated() []string { return []string{"sim-crm", "sim-nothing"} }

// caseConfig is a run of a shipped contract, with pieces of its text replaced.
func caseConfig(t *testing.T, contract string, f trial.Fault, edits ...string) trial.Config {
	t.Helper()
	file, settings, err := trial.Shipped(contract)
	if err != nil {
		t.Fatal(err)
	}
	text := string(file.Bytes())
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(text, edits[i]) {
			t.Fatalf("%s does not contain %q", contract, edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	if file, err = providers.Parse(contract+".yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	args := `{"title":"call back"}`
	if contract == "sim-upsert" {
		args = `{"title":"call back","ref":"task-7"}`
	}
	return trial.Config{File: file, Action: file.Actions()[0], Args: json.RawMessage(args), Settings: settings, Fault: f, Seed: 7}
}

// seen is how a run ended, by the ledger and by the provider's own log.
type seen struct {
	trial.Report
	t     *testing.T
	world *trial.World
	state operation.State
	// writes are the requests that came to create or change something.
	writes []simulator.Request
	log    []events.Record
}

// begin starts a world with one operation.
func begin(t *testing.T, cfg trial.Config) *trial.World {
	t.Helper()
	w, err := trial.NewWorld(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	if err := w.Submit(t.Context(), "op-1"); err != nil {
		t.Fatal(err)
	}
	return w
}

// end runs a world to its end and tells of op-1.
func end(t *testing.T, w *trial.World, cfg trial.Config) seen {
	t.Helper()
	all := ends(t, w, cfg)
	return all[0]
}

// ends runs a world to its end and tells of every operation.
func ends(t *testing.T, w *trial.World, cfg trial.Config) []seen {
	t.Helper()
	ctx := t.Context()
	ran := w.Run(ctx)
	reports, err := w.Reports(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if ran != nil {
		t.Fatalf("%v\n%s", ran, strings.Join(reports[0].Events, "\n"))
	}
	if len(reports) == 1 {
		// Everything there is of the one operation. With several executors the
		// world does not know whose a row is: requests overtake each other.
		objects, err := w.Sim().Objects(ctx, simulator.ObjectFilter{})
		if err != nil {
			t.Fatal(err)
		}
		reports[0].Objects, reports[0].ObjectIDs = len(objects), nil
		for _, o := range objects {
			reports[0].ObjectIDs = append(reports[0].ObjectIDs, o.ID)
		}
	}
	log, err := w.Sim().Requests(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := cfg.File.Contract(cfg.Action)
	var out []seen
	for _, r := range reports {
		x := seen{Report: r, t: t, world: w}
		if x.state, err = w.State(ctx, r.Operation); err != nil {
			t.Fatal(err)
		}
		if x.log, err = w.Log(ctx, r.Operation); err != nil {
			t.Fatal(err)
		}
		for _, q := range log.Items {
			if q.Operation != "create" && q.Operation != "upsert" {
				continue
			}
			if len(reports) == 1 || q.Label == operation.Label(x.state.Intent.IdempotencyKey) {
				x.writes = append(x.writes, q)
			}
		}
		// Of several upserts of one object only the first makes a row.
		if len(reports) == 1 || c.Class != operation.ClassUpsert {
			for _, wrong := range r.Judge(c) {
				x.wrong("%s", wrong)
			}
		}
		out = append(out, x)
	}
	return out
}

func play(t *testing.T, cfg trial.Config) seen {
	t.Helper()
	return end(t, begin(t, cfg), cfg)
}

func (x seen) wrong(format string, args ...any) {
	x.t.Helper()
	x.t.Errorf(format+"\n%s", append(args, strings.Join(x.Events, "\n"))...)
}

// want holds status, requests at the provider and rows of its table.
func (x seen) want(status operation.Status, sends, objects int) {
	x.t.Helper()
	if x.Status != status || len(x.writes) != sends || x.Objects != objects {
		x.wrong("got %s, %d sends, %d objects; want %s, %d, %d", x.Ending(), len(x.writes), x.Objects, status, sends, objects)
	}
}

// count returns how many events of a kind there are.
func (x seen) count(kind events.Kind) int {
	n := 0
	for _, r := range x.log {
		if r.Data.Kind() == kind {
			n++
		}
	}
	return n
}

// unknownFirst reports that the outcome was once recorded as not known.
func (x seen) unknownFirst() {
	x.t.Helper()
	if x.count(events.KindOutcomeUnknown) == 0 {
		x.wrong("no outcome was recorded as unknown")
	}
}

// each runs a case for several contracts.
func each(t *testing.T, contracts []string, do func(t *testing.T, contract string)) {
	t.Helper()
	for _, c := range contracts {
		t.Run(c, func(t *testing.T) {
			t.Parallel()
			do(t, c)
		})
	}
}

// write is a fault of one write, played by the provider.
func write(nth int, r simulator.Rule) trial.Write { return trial.Write{Nth: nth, Rule: new(r)} }

func fault(writes ...trial.Write) trial.Fault { return trial.Fault{Writes: writes} }

// hide keeps every object from all reads for a time.
func hide(f trial.Fault, d time.Duration) trial.Fault {
	f.Settings = func(s *simulator.Settings) { s.IndexLag, s.ReadLag = simulator.Duration(d), simulator.Duration(d) }
	return f
}

// lostAnswers are all the ways in which the answer to something done gets lost.
func lostAnswers() map[string]trial.Fault {
	return map[string]trial.Fault{
		"dropped":            fault(write(1, simulator.Rule{Do: simulator.LoseResponse})),
		"reset":              fault(write(1, simulator.Rule{Do: simulator.LoseResponse, Reset: true})),
		"cut in the headers": fault(write(1, simulator.Rule{Do: simulator.CutHeaders})),
		"cut in the body":    fault(write(1, simulator.Rule{Do: simulator.CutBody})),
		"never comes":        fault(trial.Write{Nth: 1, Wire: trial.WireHalfAnswer}),
		"worker dies":        {Crashes: []trial.Crash{{}}},
	}
}

// Case A7 (crewAIInc/crewAI#5802): the worker is killed after the commit, before
// the result; the task is run again: sends = 1, then the look confirms.
func TestCaseA7KilledWorkerAndARepeatedTaskSendOnce(t *testing.T) {
	t.Parallel()
	each(t, withLookup(), func(t *testing.T, contract string) {
		for _, crashes := range [][]trial.Crash{{{}}, {{}, {}}, {{At: events.KindOutcomeUnknown}}} {
			cfg := caseConfig(t, contract, trial.Fault{Crashes: crashes})
			w := begin(t, cfg)
			for _, d := range []time.Duration{time.Second, 21 * time.Second, time.Hour} {
				w.After(d, again(t, w, cfg, "op-1"))
			}
			x := end(t, w, cfg)
			x.want(operation.StatusConfirmed, 1, 1)
			if crashes[0].At == "" && x.Via != events.ViaLookup {
				x.wrong("confirmed via %s, want by a look", x.Via)
			}
		}
	})
}

// Case A3 (langchain-ai/langgraph#6663): the same id with other arguments after
// the confirmation: a conflict that names both digests; nothing is sent.
func TestCaseA3OtherArgumentsAfterTheConfirmationAreAConflict(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		cfg := caseConfig(t, contract, trial.Fault{})
		w := begin(t, cfg)
		end(t, w, cfg).want(operation.StatusConfirmed, 1, 1)
		for _, change := range []func(*api.SubmitRequest){
			func(r *api.SubmitRequest) {
				r.Args = json.RawMessage(strings.Replace(string(r.Args), "call back", "call Bob", 1))
			},
			func(r *api.SubmitRequest) {
				r.Args = json.RawMessage(strings.Replace(string(r.Args), "}", `,"note":"x"}`, 1))
			},
			func(r *api.SubmitRequest) { r.Account = "other" },
			func(r *api.SubmitRequest) { r.Action = "task.drop" },
			func(r *api.SubmitRequest) { r.Provider = "erp" },
		} {
			r := request(cfg, "op-1")
			change(&r)
			_, p := w.Intake().Submit(t.Context(), trial.Tenant, marshal(t, r))
			if p == nil || p.Code != api.ProblemConflict || p.Status != 409 || p.RetrySafe || len(p.Fields) == 0 || p.RecordedDigest == "" || p.ReceivedDigest == "" {
				t.Errorf("got %+v, want a conflict", p)
			}
		}
		end(t, w, cfg).want(operation.StatusConfirmed, 1, 1)
	})
}

// Case B22 (SzamosiMate/tapir-archicad-MCP#23): the host did it and the answer is
// lost, and nothing can be looked up: unknown, then a person; no second send.
func TestCaseB22LostAnswerWithoutALookupIsAskedAboutAndNeverSentAgain(t *testing.T) {
	t.Parallel()
	for name, f := range lostAnswers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := caseConfig(t, "sim-nothing", f)
			w := begin(t, cfg)
			for _, d := range []time.Duration{time.Second, time.Minute, 24 * time.Hour} {
				w.After(d, again(t, w, cfg, "op-1"))
			}
			x := end(t, w, cfg)
			x.want(operation.StatusUnknown, 1, 1)
			if x.Review != events.ReviewNoEvidence || len(x.Permits) > 0 {
				x.wrong("review %q, permits %v", x.Review, x.Permits)
			}
		})
	}
}

// Case B24 (Noveum/orbit#407): the lease of a worker that died after the commit
// ends: unknown, sends = 1, never "still processing".
func TestCaseB24LeaseThatEndsAfterTheCommitIsUnknown(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		x := play(t, caseConfig(t, contract, trial.Fault{Crashes: []trial.Crash{{}}}))
		x.unknownFirst()
		switch contract {
		case "sim-nothing":
			x.want(operation.StatusUnknown, 1, 1)
		case "sim-keyed-nolookup":
			x.want(operation.StatusConfirmed, 2, 1) // by the key, which is the only way to the truth
		default:
			x.want(operation.StatusConfirmed, 1, 1)
		}
	})
}

// Case B24 (Noveum/orbit!455): a definite no ends the operation at once.
func TestCaseB24DefiniteNoIsRejectedAtOnce(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		for _, status := range []int{400, 404, 405, 422} {
			x := play(t, caseConfig(t, contract, fault(write(1, simulator.Rule{Do: simulator.StatusOnly, Status: status}))))
			x.want(operation.StatusRejected, 1, 0)
			if x.Took != 0 || x.Via != events.ViaResponse || len(x.Attempts) != 1 {
				x.wrong("status %d: rejected after %s via %s, %d attempts", status, x.Took, x.Via, len(x.Attempts))
			}
		}
	})
}

// Case B26 (ComposioHQ/composio#3654): a rate limit and a connection that never
// carried a byte are tried again; an answer that never comes is unknown.
func TestCaseB26OnlyWhatNeverHappenedIsSentAgain(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		for name, c := range map[string]struct {
			fault trial.Fault
			sends int
		}{
			"429":                    {fault(write(1, simulator.Rule{Do: simulator.RateLimit})), 2},
			"429 three times":        {fault(trial.Write{Nth: 1, Last: 3, Rule: &simulator.Rule{Do: simulator.RateLimit}}), 4},
			"429 with a long pause":  {fault(write(1, simulator.Rule{Do: simulator.RateLimit, After: simulator.Duration(time.Hour)})), 2},
			"refused connection":     {trial.Fault{NoKeepAlive: true, Writes: []trial.Write{{Nth: 1, Wire: trial.WireRefused}}}, 1},
			"refused, twice":         {trial.Fault{NoKeepAlive: true, Writes: []trial.Write{{Nth: 1, Last: 2, Wire: trial.WireRefused}}}, 1},
			"certificate of nobody":  {trial.Fault{TLS: true, NoKeepAlive: true, Writes: []trial.Write{{Nth: 1, Wire: trial.WireBadTLS}}}, 1},
			"refused, then answered": {trial.Fault{NoKeepAlive: true, Writes: []trial.Write{{Nth: 1, Wire: trial.WireRefused}, write(2, simulator.Rule{Do: simulator.RateLimit})}}, 2},
		} {
			x := play(t, caseConfig(t, contract, c.fault))
			if x.want(operation.StatusConfirmed, c.sends, 1); x.count(events.KindOutcomeUnknown) > 0 {
				x.wrong("%s: unknown, although nothing can have happened", name)
			}
		}
	})
	each(t, neverRepeated(), func(t *testing.T, contract string) {
		for _, wire := range []trial.Wire{trial.WireHalfOpen, trial.WireHalfAnswer} {
			x := play(t, caseConfig(t, contract, fault(trial.Write{Nth: 1, Wire: wire})))
			if x.unknownFirst(); x.Sent != 1 || len(x.Attempts) != 1 {
				x.wrong("%d sent in %d attempts after a timeout, want 1", x.Sent, len(x.Attempts))
			}
		}
	})
}

// Cases B28, D52 (elizaOS/eliza#22382, gocardless/gocardless-pro-python#12): the
// caller gives no key: it is derived from the operation and the same on every
// attempt, whatever made the attempt necessary.
func TestCaseB28AndD52EveryAttemptHasTheOneKeyOfItsOperation(t *testing.T) {
	t.Parallel()
	each(t, []string{"sim-keyed", "sim-keyed-nolookup", "sim-unique"}, func(t *testing.T, contract string) {
		method := "POST"
		if contract == "sim-unique" {
			method = "PUT"
		}
		f := trial.Fault{Rules: []simulator.Rule{
			{Method: method, Do: simulator.LoseRequest, Probability: 0.3},
			{Method: method, Do: simulator.LoseResponse, Probability: 0.3},
			{Method: method, Do: simulator.RateLimit, Probability: 0.3},
			{Method: method, Do: simulator.StatusOnly, Status: 500, Probability: 0.3},
		}}
		cfg := caseConfig(t, contract, hide(f, time.Hour))
		w := begin(t, cfg)
		for _, id := range []string{"op-2", "op-3", "op-4", "op-5", "op-6", "op-7", "op-8"} {
			if err := w.Submit(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		keys, repeats := map[string]bool{}, 0
		for _, x := range ends(t, w, cfg) {
			if x.Objects > 1 {
				x.wrong("%d objects", x.Objects)
			}
			for _, q := range x.writes {
				if q.IdempotencyKey != x.state.Intent.IdempotencyKey || q.BodySHA256 != x.writes[0].BodySHA256 {
					x.wrong("request %d has key %q and body %s, want %q and %s", q.Number, q.IdempotencyKey, q.BodySHA256, x.state.Intent.IdempotencyKey, x.writes[0].BodySHA256)
				}
			}
			keys[x.state.Intent.IdempotencyKey] = true
			repeats += max(len(x.writes)-1, 0)
		}
		if len(keys) != 8 || repeats < 5 {
			t.Errorf("got %d keys for 8 operations, %d repeats", len(keys), repeats)
		}
	})
}

// Case B30 (voygr-tech/placecall!35): the provider itself says that the state of
// a key is not known: unknown, a look is laid down, the same key is kept.
func TestCaseB30ProviderThatDoesNotKnowItsKeyIsUnknown(t *testing.T) {
	t.Parallel()
	const body = `{"error":{"code":"provider_unknown"}}`
	const busy, mapped = "      # A request with this key is still running.\n",
		"      - {is: uncertain, status: [409], body: [{at: /error/code, equals: provider_unknown}]}\n"
	each(t, []string{"sim-keyed", "sim-keyed-nolookup"}, func(t *testing.T, contract string) {
		for name, edits := range map[string][]string{"mapped": {busy, mapped + busy}, "not mapped": nil} {
			for _, do := range []simulator.Fault{simulator.StatusOnly, simulator.StatusAfterCommit} {
				cfg := caseConfig(t, contract, fault(write(1, simulator.Rule{Do: do, Status: 409, Body: body})), edits...)
				x := play(t, cfg)
				x.unknownFirst()
				sends := 2
				if contract == "sim-keyed" && do == simulator.StatusAfterCommit {
					sends = 1 // the look finds it
				}
				x.want(operation.StatusConfirmed, sends, 1)
				if contract == "sim-keyed" {
					if x.Looks == 0 || x.state.LastLook.IsZero() {
						x.wrong("%s: nobody looked", name)
					}
				}
				for _, q := range x.writes {
					if q.IdempotencyKey != x.state.Intent.IdempotencyKey {
						x.wrong("%s: key %q, want %q", name, q.IdempotencyKey, x.state.Intent.IdempotencyKey)
					}
				}
			}
		}
	})
}

// Case B32 (superdesigndev/treg!87): two operations with equal arguments are two
// wishes: two sends, in every class and also beside lost answers.
func TestCaseB32EqualArgumentsUnderTwoIDsAreSentTwice(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		cfg := caseConfig(t, contract, trial.Fault{})
		w := begin(t, cfg)
		if err := w.Submit(t.Context(), "op-2"); err != nil {
			t.Fatal(err)
		}
		all := ends(t, w, cfg)
		for _, x := range all {
			if x.Status != operation.StatusConfirmed || x.Sent != 1 {
				x.wrong("%s: got %s, %d sent", x.Operation, x.Ending(), x.Sent)
			}
		}
		if contract != "sim-upsert" && all[0].ExternalID == all[1].ExternalID {
			t.Errorf("one object, %s, for two wishes", all[0].ExternalID)
		}
	})
}

// Case C33 (stripe/stripe-node#1487): the index is 20 s behind; looks at 1, 5 and
// 10 s find nothing and mean nothing, the one at 25 s confirms; sends = 1.
func TestCaseC33LookAfterTheLagConfirms(t *testing.T) {
	t.Parallel()
	const lag, schedule = "lag: 5s", "schedule: [2s, 10s, 30s, 2m, 10m, 1h]"
	for name, c := range map[string]struct {
		lag      time.Duration
		schedule string
		at       time.Duration
		looks    int
	}{
		"as reported":      {20 * time.Second, "1s, 4s, 5s, 15s", 25 * time.Second, 4},
		"exactly the lag":  {10 * time.Second, "1s, 4s, 5s, 15s", 10 * time.Second, 3},
		"in the last look": {59 * time.Minute, "1s, 4s, 5s, 1h", time.Hour + 10*time.Second, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := hide(fault(write(1, simulator.Rule{Do: simulator.LoseResponse})), c.lag)
			x := play(t, caseConfig(t, "sim-crm", f, lag, "lag: 1h", schedule, "schedule: ["+c.schedule+"]"))
			x.want(operation.StatusConfirmed, 1, 1)
			if x.Took != c.at || x.Looks != c.looks || x.Via != events.ViaLookup {
				x.wrong("confirmed after %s, %d looks, via %s", x.Took, x.Looks, x.Via)
			}
			for _, e := range x.state.Evidence[:c.looks-1] {
				if e.Finding != events.FindingInconclusive {
					x.wrong("an empty look inside the lag is %s", e.Finding)
				}
			}
		})
	}
}

// Cases C37, C42 (Flagsmith/flagsmith!5739, objectstack-ai/objectstack#14743): an
// index without a bound, or one of full text, finds nothing: that is no ground
// for a repeat, however long it lasts.
func TestCaseC37AndC42AnEmptyIndexIsNeverAGroundForARepeat(t *testing.T) {
	t.Parallel()
	for _, consistency := range []string{"eventual", "fulltext"} {
		for _, lag := range []string{"5s", "7d"} {
			for _, f := range []trial.Fault{
				hide(fault(write(1, simulator.Rule{Do: simulator.LoseResponse})), 100*24*time.Hour),
				fault(write(1, simulator.Rule{Do: simulator.LoseRequest})),
			} {
				x := play(t, caseConfig(t, "sim-crm", f, "consistency: eventual", "consistency: "+consistency, "lag: 5s", "lag: "+lag))
				if len(x.writes) != 1 || x.Status != operation.StatusUnknown || x.Review != events.ReviewEvidenceExhausted || len(x.Permits) > 0 || x.state.EmptyReads > 0 {
					x.wrong("%s, lag %s: got %s, %d sends, %d reads that count", consistency, lag, x.Ending(), len(x.writes), x.state.EmptyReads)
				}
			}
		}
	}
}

// Case C39 (getsentry/sentry-cocoa!8144): several executors, one operation, an
// index that is 60 s behind: one claim, one object.
func TestCaseC39SeveralExecutorsMakeOneObject(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		for _, n := range []int{2, 5} {
			for _, behind := range []uint64{0, 1} {
				for name, writes := range map[string][]trial.Write{
					"answered": nil, "lost": {write(1, simulator.Rule{Do: simulator.LoseResponse})},
				} {
					f := hide(trial.Fault{Executors: n, Behind: behind, Writes: writes}, time.Minute)
					x := play(t, caseConfig(t, contract, f))
					if x.Objects != 1 || (writes == nil && len(x.writes) != 1) || (slices.Contains(neverRepeated(), contract) && len(x.writes) != 1) {
						x.wrong("%d executors, %s: %d objects, %d sends", n, name, x.Objects, len(x.writes))
					}
				}
			}
		}
	})
}

// Case C43 (SpillwaveSolutions/wiki_ticket_sdd#235): the create worked, and the
// read after it is turned away: confirmed first, the read is tried again apart.
func TestCaseC43ReadThatFailsAfterASuccessRepeatsTheReadOnly(t *testing.T) {
	t.Parallel()
	weak := []string{"class: K2", "class: K2\n    uniqueness: weak", "concurrent_safe: true", "concurrent_safe: false"}
	for name, r := range map[string]simulator.Rule{
		"rate limit":  {Do: simulator.RateLimit},
		"outage":      {Do: simulator.StatusOnly, Status: 503},
		"answer lost": {Do: simulator.LoseResponse},
		"no JSON":     {Do: simulator.StatusOnly, Status: 200, Body: "<html>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.Method, r.PathPrefix, r.Times = "GET", "/v1/tasks/", 2
			cfg := caseConfig(t, "sim-unique", trial.Fault{Rules: []simulator.Rule{r}}, weak...)
			x := play(t, cfg)
			x.want(operation.StatusConfirmed, 1, 1)
			if x.log[2].Data.Kind() != events.KindResultConfirmed || x.Looks != 3 || x.Review != "" {
				x.wrong("third event %s, %d looks, review %q; want the confirmation first, then 3 looks", x.log[2].Data.Kind(), x.Looks, x.Review)
			}
		})
	}
	each(t, everyClass(), func(t *testing.T, contract string) {
		f := trial.Fault{Settings: func(s *simulator.Settings) { s.SearchOutage = true }}
		play(t, caseConfig(t, contract, f)).want(operation.StatusConfirmed, 1, 1)
	})
}
