package trial_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/catalogue"
	"github.com/opledger/opledger/providers/simulator"
)

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// request is what a world hands in for an operation.
func request(cfg trial.Config, id string) api.SubmitRequest {
	return api.SubmitRequest{OperationID: id, Provider: cfg.File.Provider, Account: "main", Action: cfg.Action, Args: cfg.Args, OnUnknown: cfg.OnUnknown}
}

// again hands in the same operation once more, with other labels.
func again(t *testing.T, w *trial.World, cfg trial.Config, id string) func(context.Context) {
	t.Helper()
	return func(ctx context.Context) {
		r := request(cfg, id)
		r.Labels = map[string]string{"run": w.Now().Format("150405")}
		if a, p := w.Intake().Submit(ctx, trial.Tenant, marshal(t, r)); p != nil || !a.Repeated {
			t.Errorf("again: got %+v, %v, want the stored state", a, p)
		}
	}
}

// hook hands in what a webhook said.
func hook(t *testing.T, w *trial.World, account, externalID string, labelled bool) (api.Answer, *api.Problem) {
	t.Helper()
	s, err := w.State(t.Context(), "op-1")
	if err != nil {
		t.Fatal(err)
	}
	r := api.EvidenceRequest{
		OperationID: "op-1", Source: events.SourceWebhook, AccountProviderID: account, ExternalID: externalID, Actor: "hook",
	}
	if labelled {
		r.Label = operation.Label(s.Intent.IdempotencyKey)
	}
	return w.Intake().Evidence(t.Context(), trial.Tenant, marshal(t, r))
}

// Case D45 (fjordllc/bootcamp#4268): the provider says that the key was used with
// other content: a person is asked, both digests are there, and it is not
// rejected, since the first request may have happened.
func TestCaseD45MismatchIsAskedAboutAndNotRejected(t *testing.T) {
	t.Parallel()
	const body = `{"error":{"code":"idempotency_mismatch"}}`
	each(t, []string{"sim-keyed", "sim-keyed-nolookup"}, func(t *testing.T, contract string) {
		for _, status := range []int{400, 422} {
			for _, first := range []simulator.Fault{simulator.LoseResponse, simulator.LoseRequest} {
				f := hide(fault(write(1, simulator.Rule{Do: first}), write(2, simulator.Rule{Do: simulator.StatusOnly, Status: status, Body: body})), time.Hour)
				x := play(t, caseConfig(t, contract, f))
				if x.Status != operation.StatusUnknown || x.Review != events.ReviewMismatch || len(x.writes) != 2 {
					x.wrong("%d after %s: got %s, %d sends", status, first, x.Ending(), len(x.writes))
				}
				for _, a := range x.state.Attempts {
					if a.RequestDigest == "" || a.RequestDigest != x.state.Attempts[0].RequestDigest {
						x.wrong("attempt %d has the digest %q", a.Number, a.RequestDigest)
					}
				}
			}
		}
		// Already the first answer says so: somebody else has used the key.
		x := play(t, caseConfig(t, contract, fault(write(1, simulator.Rule{Do: simulator.StatusOnly, Status: 400, Body: body}))))
		x.want(operation.StatusUnknown, 1, 0)
		if x.Review != events.ReviewMismatch {
			x.wrong("review %q", x.Review)
		}
	})
}

// Cases D46, D51 (stripe/stripe-java#389, Adyen/adyen-commercetools#1305): what
// the caller changes between two attempts changes no byte of the second one, and
// the provider replays its stored answer.
func TestCaseD46AndD51EveryAttemptHasTheFirstOnesBytes(t *testing.T) {
	t.Parallel()
	for _, contract := range []string{"sim-keyed", "sim-keyed-nolookup"} {
		cfg := caseConfig(t, contract, hide(fault(
			write(1, simulator.Rule{Do: simulator.LoseResponse}), write(2, simulator.Rule{Do: simulator.LoseResponse}),
			write(3, simulator.Rule{Do: simulator.RateLimit}),
		), time.Hour))
		w := begin(t, cfg)
		for d := range 20 {
			w.After(time.Duration(d)*5*time.Second, again(t, w, cfg, "op-1"))
		}
		w.After(3*time.Second, func(ctx context.Context) {
			r := request(cfg, "op-1")
			r.Args = json.RawMessage(`{"title":"call back","note":"second thoughts"}`)
			if _, p := w.Intake().Submit(ctx, trial.Tenant, marshal(t, r)); p == nil || p.Code != api.ProblemConflict {
				t.Errorf("got %v, want a conflict", p)
			}
		})
		x := end(t, w, cfg)
		x.want(operation.StatusConfirmed, 4, 1)
		for _, q := range x.writes {
			if q.BodySHA256 != x.writes[0].BodySHA256 || q.IdempotencyKey != x.writes[0].IdempotencyKey {
				x.wrong("request %d differs from the first", q.Number)
			}
		}
	}
}

// Case D48 (beam-community/stripity-stripe#564): the key is in use while the first
// request still runs: busy, unknown, later the same key; never a new one.
func TestCaseD48BusyKeyIsTriedLaterWithTheSameKey(t *testing.T) {
	t.Parallel()
	for _, contract := range []string{"sim-keyed", "sim-keyed-nolookup"} {
		for _, held := range []time.Duration{25 * time.Second, 35 * time.Second} {
			f := hide(fault(trial.Write{Nth: 1, Wire: trial.WireHeld, After: held}), held)
			x := play(t, caseConfig(t, contract, f, "first: 1s", "first: 30s"))
			if x.Status != operation.StatusConfirmed || x.Objects != 1 || len(x.writes) < 2 {
				x.wrong("got %s, %d objects, %d sends", x.Ending(), x.Objects, len(x.writes))
			}
			for _, q := range x.writes {
				if q.IdempotencyKey != x.state.Intent.IdempotencyKey {
					x.wrong("a new key %q", q.IdempotencyKey)
				}
			}
		}
		// Already the first answer says so: nothing is concluded from it.
		x := play(t, caseConfig(t, contract, fault(write(1, simulator.Rule{
			Do: simulator.StatusOnly, Status: 409, Body: `{"error":{"code":"idempotency_key_in_use"}}`,
		}))))
		x.unknownFirst()
		x.want(operation.StatusConfirmed, 2, 1)
		if x.writes[0].IdempotencyKey != x.writes[1].IdempotencyKey || x.state.Attempts[0].Unknown != events.UnknownBusy {
			x.wrong("keys %q and %q, attempt 1 %s", x.writes[0].IdempotencyKey, x.writes[1].IdempotencyKey, x.state.Attempts[0].Unknown)
		}
	}
}

// Case D49 (triggerdotdev/trigger.dev!4953): a key is kept for 24 h, the margin is
// 1 h: a repeat at 22 h is allowed, at 23 h 30 it is not.
func TestCaseD49RepeatEndsBeforeTheProviderForgetsTheKey(t *testing.T) {
	t.Parallel()
	each(t, []string{"sim-keyed", "sim-keyed-nolookup"}, func(t *testing.T, contract string) {
		for _, c := range []struct {
			after   time.Duration
			allowed bool
		}{
			{22 * time.Hour, true},
			{22*time.Hour + 55*time.Minute, true},
			{23*time.Hour + time.Minute, false},
			{23*time.Hour + 30*time.Minute, false},
			{25 * time.Hour, false},
		} {
			f := hide(fault(
				write(1, simulator.Rule{Do: simulator.LoseResponse}),
				write(2, simulator.Rule{Do: simulator.RateLimit, After: simulator.Duration(c.after)}),
			), 1000*time.Hour)
			x := play(t, caseConfig(t, contract, f))
			if c.allowed {
				x.want(operation.StatusConfirmed, 3, 1)
			} else if x.want(operation.StatusUnknown, 2, 1); x.Review != events.ReviewKeyExpired {
				x.wrong("after %s: review %q", c.after, x.Review)
			}
		}
	})
}

// Case D54 (LeanerCloud/CUDly#1774): every attempt after an unknown outcome has a
// permit of its own, written after that outcome; without one nothing is sent.
func TestCaseD54EachRepeatHasAPermitOfItsOwn(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		for _, do := range []simulator.Fault{simulator.LoseResponse, simulator.LoseRequest, simulator.StatusOnly} {
			cfg := caseConfig(t, contract, hide(trial.Fault{Writes: []trial.Write{{Rule: &simulator.Rule{Do: do}}}}, 1000*time.Hour))
			x := play(t, cfg)
			permits, used, looked := map[string]bool{}, 0, false
			for _, r := range x.log {
				switch d := r.Data.(type) {
				case events.EvidenceRecorded:
					looked = true
				case events.RetryPermitted:
					if permits[d.PermitID] {
						x.wrong("permit %s twice", d.PermitID)
					}
					if contract != "sim-keyed-nolookup" && !looked {
						x.wrong("a permit without a look since the outcome")
					}
					permits[d.PermitID] = true
				case events.AttemptStarted:
					if d.Number > 1 && !permits[d.PermitID] {
						x.wrong("attempt %d without a permit", d.Number)
					}
					if d.PermitID != "" {
						delete(permits, d.PermitID) // it is used up
						used++
					}
					looked = false
				}
			}
			if used != x.state.Started-1 || (slices.Contains(neverRepeated(), contract) && used > 0) {
				x.wrong("%s: %d permits used for %d attempts", do, used, x.state.Started)
			}
		}
	})
}

// Case D55 (akash-network/console!3449): the looks end and the outcome stays
// unknown; the webhook that arrives later confirms, once, however often it comes.
func TestCaseD55WebhookAfterTheLastLookConfirmsOnce(t *testing.T) {
	t.Parallel()
	each(t, []string{"sim-crm", "sim-nothing"}, func(t *testing.T, contract string) {
		cfg := caseConfig(t, contract, hide(fault(write(1, simulator.Rule{Do: simulator.LoseResponse})), 1000*time.Hour))
		w := begin(t, cfg)
		x := end(t, w, cfg)
		x.want(operation.StatusUnknown, 1, 1)
		if x.Review == "" {
			x.wrong("nobody is asked")
		}
		id := x.ObjectIDs[0]
		for range 3 {
			if a, p := hook(t, w, simulator.DefaultAccount, id, true); p != nil || a.Status != operation.StatusConfirmed || a.ExternalID != id || a.Review != "" {
				t.Errorf("got %+v, %v", a, p)
			}
		}
		x = end(t, w, cfg)
		x.want(operation.StatusConfirmed, 1, 1)
		if x.count(events.KindResultConfirmed) != 1 || x.Via != events.ViaWebhook || x.Duplicate {
			x.wrong("%d confirmations, via %s, duplicate %t", x.count(events.KindResultConfirmed), x.Via, x.Duplicate)
		}
	})
	// It arrives while the looks go on: they end.
	cfg := caseConfig(t, "sim-crm", hide(fault(write(1, simulator.Rule{Do: simulator.LoseResponse})), 1000*time.Hour))
	w := begin(t, cfg)
	w.After(45*time.Second, func(ctx context.Context) {
		objects, err := w.Sim().Objects(ctx, simulator.ObjectFilter{})
		if err != nil || len(objects) != 1 {
			t.Errorf("got %v, %v", objects, err)
			return
		}
		if _, p := hook(t, w, simulator.DefaultAccount, objects[0].ID, true); p != nil {
			t.Error(p)
		}
	})
	x := end(t, w, cfg)
	if x.want(operation.StatusConfirmed, 1, 1); x.Looks != 3 {
		x.wrong("%d looks, want the 3 before the webhook", x.Looks)
	}
}

// Case D58 (zendesk_api_client_rb#510): the key that a contract declares arrives
// at the provider, where it declares it.
func TestCaseD58TheDeclaredKeyArrives(t *testing.T) {
	t.Parallel()
	names := everyClass()
	for _, contract := range names {
		cfg := caseConfig(t, contract, trial.Fault{})
		c, _ := cfg.File.Contract(cfg.Action)
		x := play(t, cfg)
		if got := x.writes[0].IdempotencyKey; (c.Class == operation.ClassKey || c.Class == operation.ClassClientID) && got != x.state.Intent.IdempotencyKey {
			x.wrong("%s: the provider saw the key %q, want %q", contract, got, x.state.Intent.IdempotencyKey)
		}
	}
	tried := 0
	for _, name := range catalogue.Names() {
		f, err := catalogue.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		settings, err := trial.SettingsFor(f)
		if err != nil {
			continue // no preset speaks it
		}
		for _, action := range f.Actions() {
			c, _ := f.Contract(action)
			if c.Class != operation.ClassKey || c.Proof == operation.ProofAssumed {
				continue
			}
			args, err := trial.Args(f, action)
			if err != nil {
				t.Fatal(err)
			}
			cfg := trial.Config{File: f, Action: action, Args: args, Settings: settings, Seed: 1}
			x := play(t, cfg)
			if len(x.writes) == 0 || x.writes[0].IdempotencyKey == "" {
				x.wrong("%s %s: %d writes, no key", name, action, len(x.writes))
			}
			tried++
		}
	}
	if tried < 5 {
		t.Errorf("only %d keyed actions of the catalogue were tried", tried)
	}
}

// Case E60 (probot/probot#921): the provider says 500 and has done it: unknown,
// then the look confirms; one object.
func TestCaseE60ServerErrorAfterTheCommitIsLookedFor(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		for _, status := range []int{500, 502, 503, 504, 520} {
			x := play(t, caseConfig(t, contract, fault(write(1, simulator.Rule{Do: simulator.StatusAfterCommit, Status: status, Body: "<html>sorry</html>"}))))
			x.unknownFirst()
			switch contract {
			case "sim-nothing":
				x.want(operation.StatusUnknown, 1, 1)
			case "sim-keyed-nolookup":
				x.want(operation.StatusConfirmed, 2, 1)
			default:
				x.want(operation.StatusConfirmed, 1, 1)
			}
		}
	})
}

// Case E61 (key0ai/key0#115): attempt 1 is unknown, attempt 2 gets a definite
// "already used": that proves nothing about attempt 1, so it is looked for.
func TestCaseE61DefiniteNoToARepeatProvesNothingAboutTheFirst(t *testing.T) {
	t.Parallel()
	each(t, []string{"sim-keyed", "sim-keyed-nolookup", "sim-unique", "sim-upsert"}, func(t *testing.T, contract string) {
		for _, status := range []int{400, 404, 405, 422} {
			no := simulator.Rule{Do: simulator.StatusOnly, Status: status, Body: `{"error":{"code":"nonce_used"}}`}
			f := hide(fault(write(1, simulator.Rule{Do: simulator.LoseResponse}), write(2, no)), 15*time.Second)
			x := play(t, caseConfig(t, contract, f))
			if contract == "sim-keyed-nolookup" {
				if x.want(operation.StatusUnknown, 2, 1); x.Review != events.ReviewRefused {
					x.wrong("review %q", x.Review)
				}
				continue
			}
			x.want(operation.StatusConfirmed, 2, 1)
			if x.Via != events.ViaLookup {
				x.wrong("confirmed via %s", x.Via)
			}
		}
	})
}

// Case E62 (x402-foundation/x402#1062): only what is tied to the operation moves
// it: news without its mark or from another account neither rejects nor confirms.
func TestCaseE62EvidenceThatIsNotTiedToTheOperationMovesNothing(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		cfg := caseConfig(t, contract, hide(fault(trial.Write{Rule: &simulator.Rule{Do: simulator.LoseResponse}}), 1000*time.Hour))
		w := begin(t, cfg)
		w.After(time.Second, func(context.Context) {
			for _, account := range []string{"acct_2", ""} {
				for _, labelled := range []bool{true, false} {
					if a, p := hook(t, w, account, "tx-1", labelled); p != nil || a.Status.Final() {
						t.Errorf("got %+v, %v", a, p)
					}
				}
			}
			if a, p := hook(t, w, simulator.DefaultAccount, "tx-2", false); p != nil || a.Status.Final() || a.Review == "" {
				t.Errorf("got %+v, %v, want a question to a person", a, p)
			}
		})
		x := end(t, w, cfg)
		if x.Status != operation.StatusUnknown || x.Review == "" || len(x.writes) != 1 {
			x.wrong("got %s, %d sends", x.Ending(), len(x.writes))
		}
	})
}

// Case E64 (n8n-io/n8n#14423): a 2xx with a body that nobody expected is looked
// for and then shown to a person; it is never sent again.
func TestCaseE64UnexpectedSuccessIsNeverSentAgain(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		statuses := []int{200, 201, 202, 204, 207}
		for i, body := range []string{"", "<html>thanks</html>", "{}", "[]", "null", `{"ok":true}`, `{"id":null}`, `{"id":{"a":1}}`, `{"data":{"id":"1"}}`} {
			for _, do := range []simulator.Fault{simulator.StatusOnly, simulator.StatusAfterCommit} {
				for _, lag := range []time.Duration{0, 1000 * time.Hour} {
					status := statuses[i%len(statuses)]
					f := hide(fault(write(1, simulator.Rule{Do: do, Status: status, Body: body})), lag)
					x := play(t, caseConfig(t, contract, f))
					if len(x.writes) != 1 || (x.Status != operation.StatusConfirmed && x.Review == "") {
						x.wrong("%s, %d %q: got %s, %d sends", do, status, body, x.Ending(), len(x.writes))
					}
					if x.Status == operation.StatusConfirmed && do == simulator.StatusOnly {
						x.wrong("confirmed, and nothing was done")
					}
				}
			}
		}
	})
}

// Case E66 (PostHog/posthog!77601): the answer to a reply is lost; its mark stands
// in the text, and the list confirms it: one object.
func TestCaseE66LostReplyIsFoundByTheMarkInItsText(t *testing.T) {
	t.Parallel()
	f, err := catalogue.Load("github")
	if err != nil {
		t.Fatal(err)
	}
	settings, err := trial.SettingsFor(f)
	if err != nil {
		t.Fatal(err)
	}
	args, err := trial.Args(f, "comment.create")
	if err != nil {
		t.Fatal(err)
	}
	for name, fault := range lostAnswers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := trial.Config{File: f, Action: "comment.create", Args: args, Settings: settings, Fault: fault, Seed: 1}
			w := begin(t, cfg)
			// Others with the same text are there, too.
			for n := range 3 {
				if err := w.Submit(t.Context(), fmt.Sprintf("op-%d", n+2)); err != nil {
					t.Fatal(err)
				}
			}
			for _, x := range ends(t, w, cfg) {
				if x.Status != operation.StatusConfirmed || x.Objects != 1 || x.Sent != 1 || x.ExternalID != x.ObjectIDs[0] {
					x.wrong("%s: got %s, %d objects, %d sent", x.Operation, x.Ending(), x.Objects, x.Sent)
				}
			}
		})
	}
}

// Case E68 (JSONbored/loopover#2423): what was approved and then failed is
// rejected or unknown; that it was approved is never the last word.
func TestCaseE68ApprovedAndFailedIsNotAccepted(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		for name, c := range map[string]struct {
			fault trial.Fault
			want  operation.Status
		}{
			"refused": {fault(write(1, simulator.Rule{Do: simulator.StatusOnly, Status: 422})), operation.StatusRejected},
			"lost":    {hide(fault(trial.Write{Rule: &simulator.Rule{Do: simulator.LoseResponse}}), 1000*time.Hour), operation.StatusUnknown},
			"error":   {hide(fault(trial.Write{Rule: &simulator.Rule{Do: simulator.StatusOnly}}), 1000*time.Hour), operation.StatusUnknown},
			"revoked": {fault(trial.Write{Nth: 1, Rule: &simulator.Rule{Do: simulator.StatusOnly, Status: 401}, Then: trial.ThenRevoke}), operation.StatusPending},
		} {
			x := play(t, caseConfig(t, contract, c.fault, "    on_unknown:", "    approval: {required: true, deadline: 24h}\n    on_unknown:"))
			a := api.NewAnswer(x.state, x.world.Now())
			if x.state.Approval == nil || a.Status != c.want || (a.Status == operation.StatusUnknown && a.RetrySafe) {
				x.wrong("%s: got %s, approval %v, %q", name, x.Ending(), x.state.Approval, a.Say)
			}
		}
	})
}

// Cases F69, F71, F72, F76 (openclaw/openclaw!104632, aegra/aegra!547): the worker
// lives on beyond its lease while another one takes over: that one may only look;
// a success that comes late is kept; sends = 1.
func TestCaseF72LostLeaseIsLookedForAndNeverSentAgain(t *testing.T) {
	t.Parallel()
	each(t, []string{"sim-crm", "sim-nothing"}, func(t *testing.T, contract string) {
		for name, writes := range map[string]trial.Write{
			"answer inside the lease": {Nth: 1, Wire: trial.WireSlow, After: 15 * time.Second},
			"answer after the lease":  {Nth: 1, Wire: trial.WireHeld, After: 35 * time.Second},
			"answer after an hour":    {Nth: 1, Wire: trial.WireHeld, After: time.Hour},
		} {
			for _, executors := range []int{1, 2, 4} {
				for _, hidden := range []time.Duration{0, time.Minute} {
					x := play(t, caseConfig(t, contract, hide(trial.Fault{Executors: executors, Writes: []trial.Write{writes}}, hidden)))
					if x.unknownFirst(); len(x.writes) != 1 || x.Objects != 1 || x.count(events.KindResultConfirmed) > 1 || x.Duplicate {
						x.wrong("%s, %d executors: got %s, %d sends", name, executors, x.Ending(), len(x.writes))
					}
					if contract == "sim-crm" && x.Status != operation.StatusConfirmed {
						x.wrong("%s, %d executors: got %s", name, executors, x.Ending())
					}
				}
			}
		}
	})
}

// Cases G80, G81 (powertools-lambda-python#1038, #8049): the worker dies: what is
// in progress becomes unknown when lease and grace are over, never later, and is
// never free.
func TestCaseG80AndG81DeadWorkersOperationIsUnknownAtItsLeaseEnd(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		for _, c := range []trial.Crash{{}, {At: events.KindAttemptStarted, Stored: true}} {
			x := play(t, caseConfig(t, contract, hide(trial.Fault{Crashes: []trial.Crash{c}, Executors: 2}, 1000*time.Hour)))
			var at time.Duration
			for _, r := range x.log {
				if _, ok := r.Data.(events.OutcomeUnknown); ok && at == 0 {
					at = r.Stamp.Sub(x.log[0].Stamp)
				}
			}
			// total 10 s, lease grace 10 s, and the error of the clocks.
			if at != 20*time.Second+500*time.Millisecond {
				x.wrong("unknown after %s, want at the end of the lease", at)
			}
			if slices.Contains(neverRepeated(), contract) && (x.Status != operation.StatusUnknown || x.Review == "" || x.Sent > 1 || len(x.Attempts) != 1) {
				x.wrong("got %s, %d sent", x.Ending(), x.Sent)
			}
		}
	})
}

// Case H91 (oomol-lab/wanta!148): a look under another account is void: what it
// finds or misses there is no evidence, and nothing is sent.
func TestCaseH91LookUnderAnotherAccountIsVoid(t *testing.T) {
	t.Parallel()
	each(t, withLookup(), func(t *testing.T, contract string) {
		for _, do := range []simulator.Fault{simulator.LoseResponse, simulator.LoseRequest} {
			cfg := caseConfig(t, contract, fault(trial.Write{Nth: 1, Rule: &simulator.Rule{Do: do}, Then: trial.ThenSwitch, Later: 500 * time.Millisecond}))
			x := play(t, cfg)
			if x.Status != operation.StatusUnknown || x.Review != events.ReviewAccountMismatch || len(x.writes) != 1 || x.state.EmptyReads > 0 || len(x.ExternalIDs) > 0 {
				x.wrong("got %s, %d sends, %d reads that count, ids %v", x.Ending(), len(x.writes), x.state.EmptyReads, x.ExternalIDs)
			}
		}
	})
}

// Case H98 (Cyrax321/CONTINUUM#42): on_unknown review_only: it may be looked for,
// and nothing permits a repeat.
func TestCaseH98ReviewOnlyLooksAndNeverPermits(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		for name, f := range lostAnswers() {
			for _, hidden := range []time.Duration{0, 1000 * time.Hour} {
				g := f
				cfg := caseConfig(t, contract, hide(g, hidden))
				cfg.OnUnknown = events.OnUnknownReview
				x := play(t, cfg)
				if len(x.Permits) > 0 || len(x.writes) != 1 {
					x.wrong("%s: permits %v, %d sends", name, x.Permits, len(x.writes))
				}
				found := hidden == 0 && slices.Contains(withLookup(), contract)
				if found != (x.Status == operation.StatusConfirmed) || (!found && x.Review != events.ReviewPolicy) {
					x.wrong("%s: got %s", name, x.Ending())
				}
			}
		}
	})
}

// Case A14 (openai/openai-agents-python#4254): an operation id among the arguments
// that the model makes up is refused: the schema does not know it.
func TestCaseA14OperationIDAmongTheArgumentsIsRefused(t *testing.T) {
	t.Parallel()
	each(t, everyClass(), func(t *testing.T, contract string) {
		cfg := caseConfig(t, contract, trial.Fault{})
		w, err := trial.NewWorld(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for _, name := range []string{"operation_id", "op_id", "idempotency_key"} {
			r := request(cfg, "op-9")
			r.Args = json.RawMessage(string(r.Args[:len(r.Args)-1]) + `,"` + name + `":"op-1"}`)
			if _, p := w.Intake().Submit(t.Context(), trial.Tenant, marshal(t, r)); p == nil || p.Code != api.ProblemInvalidArgs {
				t.Errorf("%s: got %v, want it refused", name, p)
			}
		}
	})
}
