package providers_test

import (
	"cmp"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// world is a simulator with its admin client and an adapter for it.
type world struct {
	sim     *simulator.Client
	adapter *providers.HTTP
	call    providers.Call
}

func newWorld(t *testing.T, preset, contract string) *world {
	t.Helper()
	settings, err := simulator.Preset(preset)
	if err != nil {
		t.Fatal(err)
	}
	settings.IndexLag = 0
	server, err := simulator.New(simulator.Config{Settings: settings, Tokens: map[string]string{testToken: testAccount}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	t.Cleanup(server.Close)
	client, err := simulator.NewClient(simulator.ClientConfig{BaseURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	file := load(t, contract, nil)
	call := testCall(file, `{"title":"call back"}`)
	if contract == "sim-upsert" {
		call.Intent.Action, call.Intent.Args = "task.upsert", []byte(`{"ref":"r-1","title":"call back"}`)
	}
	return &world{client, newHTTP(t, file, s.URL), call}
}

func (w *world) fault(t *testing.T, f simulator.Fault) {
	t.Helper()
	r := simulator.Rule{Do: f, Method: cmp.Or(map[string]string{"unique": "PUT", "upsert": "PATCH"}[w.call.Intent.Provider], "POST"), Times: 1}
	switch f {
	case simulator.Refuse, simulator.RateLimit:
		r.After = simulator.Duration(3 * time.Second)
	case simulator.Delay, simulator.ApplyLate:
		r.After = simulator.Duration(time.Millisecond)
	case simulator.LoseRequest, simulator.LoseResponse, simulator.CutHeaders, simulator.CutBody, simulator.Hold,
		simulator.StatusOnly, simulator.StatusAfterCommit, simulator.Garbage, simulator.DuplicateDelivery:
	}
	if _, err := w.sim.AddRule(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func (w *world) objects(t *testing.T) []simulator.Object {
	t.Helper()
	all, err := w.sim.Objects(t.Context(), simulator.ObjectFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// For every fault of the simulator, the word is one that the truth table bears
// out: success has an object, rejected, not_applied and not_sent have none.
func TestEveryFaultGetsAWordThatIsTrue(t *testing.T) {
	t.Parallel()
	contracts := map[string]string{
		"sim-crm": "crm", "sim-keyed": "keyed", "sim-unique": "unique", "sim-nothing": "nothing", "sim-upsert": "salesforce",
	}
	for contract, preset := range contracts {
		t.Run(contract, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, preset, contract)
			for _, f := range append(simulator.Faults(), "") {
				if f == simulator.Hold || f == simulator.HalfOpen || f == simulator.ApplyLate {
					continue // they need a second actor, or a client that gives up
				}
				if err := w.sim.Reset(t.Context()); err != nil {
					t.Fatal(err)
				}
				if f != "" {
					w.fault(t, f)
				}
				o := doOnce(t, w.adapter, w.call)
				n := len(w.objects(t))
				switch o.Word {
				case operation.OutcomeSuccess:
					if n == 0 || w.objects(t)[0].ID != o.ExternalID {
						t.Errorf("%s: success with %d objects", f, n)
					}
				case operation.OutcomeRejected, operation.OutcomeNotApplied, operation.OutcomeNotSent:
					if n > 0 {
						t.Errorf("%s: %s with %d objects", f, o.Word, n)
					}
				case operation.OutcomeBusy, operation.OutcomeExists, operation.OutcomeMismatch:
					t.Errorf("%s: got %s on the first attempt", f, o.Word)
				case operation.OutcomeUncertain, operation.OutcomeUnidentified:
					if f == "" || f == simulator.Refuse || f == simulator.RateLimit || f == simulator.Delay {
						t.Errorf("%q: got %s (%s)", f, o.Word, o.Reason)
					}
				}
				if f == simulator.RateLimit && o.RetryAfter != 3*time.Second {
					t.Errorf("%s: got retry after %s", f, o.RetryAfter)
				}
			}
		})
	}
}

func TestALostAnswerIsFoundByItsLabelOrItsID(t *testing.T) {
	t.Parallel()
	for contract, preset := range map[string]string{"sim-crm": "crm", "sim-keyed": "keyed", "sim-unique": "unique", "sim-upsert": "salesforce"} {
		t.Run(contract, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, preset, contract)
			if look := w.adapter.Lookup(t.Context(), w.call); look.Failed || !look.PagesComplete || len(look.Matches) > 0 {
				t.Fatalf("before: got %+v", look)
			}
			w.fault(t, simulator.LoseResponse)
			if o := doOnce(t, w.adapter, w.call); o.Word != operation.OutcomeUncertain || o.Unknown != events.UnknownConnectionLost {
				t.Fatalf("got %+v", o)
			}
			look := w.adapter.Lookup(t.Context(), w.call)
			if len(look.Matches) != 1 || look.Matches[0] != w.objects(t)[0].ID || !look.AccountOK || len(look.Result) == 0 {
				t.Errorf("after: got %+v", look)
			}
		})
	}
}

func TestARepeatWithTheSameKeyOrIDMakesNoSecondObject(t *testing.T) {
	t.Parallel()
	keyed, unique := newWorld(t, "keyed", "sim-keyed-nolookup"), newWorld(t, "unique", "sim-unique")
	upsert := newWorld(t, "salesforce", "sim-upsert")
	for w, second := range map[*world]operation.OutcomeWord{
		keyed: operation.OutcomeSuccess, unique: operation.OutcomeExists, upsert: operation.OutcomeSuccess,
	} {
		w.fault(t, simulator.LoseResponse)
		if o := doOnce(t, w.adapter, w.call); o.Word != operation.OutcomeUncertain {
			t.Errorf("first: got %s", o.Word)
		}
		if o := doOnce(t, w.adapter, w.call); o.Word != second {
			t.Errorf("second: got %s, want %s", o.Word, second)
		}
		if n := len(w.objects(t)); n != 1 {
			t.Errorf("objects: got %d, want 1", n)
		}
	}
	keyed.call.Intent.Args = []byte(`{"title":"something else"}`)
	if o := doOnce(t, keyed.adapter, keyed.call); o.Word != operation.OutcomeMismatch {
		t.Errorf("another body: got %s, want mismatch", o.Word)
	}
}

func TestAKeyInFlightIsBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "keyed", "sim-keyed")
	w.fault(t, simulator.Hold)
	first := make(chan operation.Outcome, 1)
	r, err := w.adapter.Prepare(w.call)
	if err != nil {
		t.Fatal(err)
	}
	go func() { first <- w.adapter.Do(t.Context(), r) }()
	if _, err := w.sim.WaitHeld(t.Context(), 1, time.Minute); err != nil {
		t.Fatal(err)
	}
	if o := doOnce(t, w.adapter, w.call); o.Word != operation.OutcomeBusy {
		t.Errorf("second: got %s, want busy", o.Word)
	}
	if _, err := w.sim.Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if o := <-first; o.Word != operation.OutcomeSuccess {
		t.Errorf("first: got %s, want success", o.Word)
	}
}
