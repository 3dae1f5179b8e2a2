package catalogue_test

import (
	"encoding/json"
	"maps"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// presets names the simulator's preset of a contract where it has another name.
func preset(contract string) string {
	switch contract {
	case "github":
		return "github-issues"
	}
	return contract
}

// ground is a provider that speaks the wire shape of a contract, and the adapter
// that calls it.
type ground struct {
	subject

	t      *testing.T
	action string
	server *simulator.Server
	sim    *simulator.Client
	http   *providers.HTTP
	mu     sync.Mutex
	now    time.Time
}

func newGround(t *testing.T, s subject, action string) *ground {
	t.Helper()
	settings, err := simulator.Preset(preset(s.name))
	if err != nil {
		t.Fatal(err)
	}
	g := &ground{subject: s, t: t, action: action, now: firstSend}
	tokens := map[string]string{}
	for _, name := range s.Secrets {
		tokens[secretValue(name)] = simulator.DefaultAccount
	}
	if g.server, err = simulator.New(simulator.Config{Settings: settings, Tokens: tokens, Now: g.clock}); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(g.server)
	t.Cleanup(func() { g.server.Close(); web.Close() })
	if g.sim, err = simulator.NewClient(simulator.ClientConfig{BaseURL: web.URL}); err != nil {
		t.Fatal(err)
	}
	// Without a probe the account is the configured one. A dialect may show it in
	// a form of its own, such as a number: an operator writes down what he sees.
	g.Account = simulator.DefaultAccount
	g.http = g.adapter(t, s.file, web.URL)
	if g.Account, err = g.http.Probe(t.Context(), g.call(t, s.file, action, testKey)); err != nil || g.Account == "" {
		t.Fatalf("account: %q, %v", g.Account, err)
	}
	return g
}

func (g *ground) clock() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

func (g *ground) pass(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = g.now.Add(d)
}

func (g *ground) rule(r simulator.Rule) {
	g.t.Helper()
	if _, err := g.sim.AddRule(g.t.Context(), r); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) do(c providers.Call) operation.Outcome {
	g.t.Helper()
	r, err := g.http.Prepare(c)
	if err != nil {
		g.t.Fatal(err)
	}
	return g.http.Do(g.t.Context(), r)
}

func (g *ground) objects() []simulator.Object {
	g.t.Helper()
	found, err := g.sim.Objects(g.t.Context(), simulator.ObjectFilter{})
	if err != nil {
		g.t.Fatal(err)
	}
	return found
}

func (g *ground) want(got operation.Outcome, word operation.OutcomeWord, objects int) {
	g.t.Helper()
	if got.Word != word {
		g.t.Errorf("outcome: got %s (%s), want %s", got.Word, got.Reason, word)
	}
	if n := len(g.objects()); n != objects {
		g.t.Errorf("objects: got %d, want %d", n, objects)
	}
}

// eachSpoken runs a test for every action, each with a provider of its own.
func eachSpoken(t *testing.T, test func(g *ground, c providers.Call, contract operation.Contract)) {
	t.Helper()
	eachAction(t, func(t *testing.T, s subject, action string) {
		g := newGround(t, s, action)
		contract, _ := s.file.Contract(action)
		test(g, g.call(t, s.file, action, testKey), contract)
	})
}

func TestAProviderOfTheSameShapeAnswersWithSuccessAndAnAccount(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(g *ground, c providers.Call, _ operation.Contract) {
		o := g.do(c)
		g.want(o, operation.OutcomeSuccess, 1)
		if o.ExternalID == "" {
			g.t.Error("the success names no object")
		}
	})
}

// onWrite restricts a rule to the action's own request.
func (g *ground) onWrite(r simulator.Rule) simulator.Rule {
	g.t.Helper()
	method, path := g.write(g.t, g.action)
	plain, err := url.PathUnescape(path)
	if err != nil {
		g.t.Fatal(err)
	}
	r.Method, r.PathPrefix = method, plain
	if g.raw.Actions[g.action].Request.Encoding == "graphql" {
		r.BodyContains = "mutation"
	}
	return r
}

func (g *ground) look(c providers.Call) operation.Look {
	g.t.Helper()
	c.FirstSend = firstSend
	return g.http.Lookup(g.t.Context(), c)
}

// I1: after a lost answer a repeat with the same key or id makes no second
// object, and a lookup finds the one that is there.
func TestALostAnswerLeadsToOneObjectThatIsFound(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(g *ground, c providers.Call, contract operation.Contract) {
		g.rule(g.onWrite(simulator.Rule{Nth: 1, Do: simulator.LoseResponse}))
		g.want(g.do(c), operation.OutcomeUncertain, 1)
		there := g.objects()[0]
		if contract.MaxAttempts > 1 {
			again := g.do(c)
			switch contract.Class {
			case operation.ClassClientID:
				g.want(again, operation.OutcomeExists, 1)
			case operation.ClassKey, operation.ClassUpsert:
				g.want(again, operation.OutcomeSuccess, 1)
				if again.ExternalID != there.ID {
					g.t.Errorf("the repeat names %s, the object is %s", again.ExternalID, there.ID)
				}
			case operation.ClassLabel, operation.ClassNone:
				g.t.Errorf("class %s allows %d attempts", contract.Class, contract.MaxAttempts)
			}
		}
		if !contract.Lookup.Available {
			return
		}
		if early := g.look(c); len(early.Matches) > 1 || early.Failed {
			g.t.Errorf("a look before the lag is over: %+v", early)
		}
		g.pass(contract.Lookup.Lag)
		if late := g.look(c); len(late.Matches) != 1 || late.Failed || !late.PagesComplete {
			g.t.Errorf("a look after the lag: %+v", late)
		}
	})
}

// P3: what is committed behind a server error is uncertain; what is refused by a
// rate limit or for its credential is not applied.
func TestRefusalsAndErrorsOfTheShapeAreReadRightly(t *testing.T) {
	t.Parallel()
	eachSpoken(t, func(g *ground, c providers.Call, _ operation.Contract) {
		g.rule(g.onWrite(simulator.Rule{Nth: 1, Do: simulator.RateLimit}))
		g.rule(g.onWrite(simulator.Rule{Nth: 2, Do: simulator.StatusAfterCommit, Status: 500}))
		g.want(g.do(c), operation.OutcomeNotApplied, 0)
		g.want(g.do(c), operation.OutcomeUncertain, 1)
	})
	eachSpoken(t, func(g *ground, c providers.Call, _ operation.Contract) {
		if err := g.sim.ChangeAccount(g.t.Context(), simulator.AccountChange{Token: secretValue(g.Secrets[0]), Revoke: true}); err != nil {
			g.t.Fatal(err)
		}
		g.want(g.do(c), operation.OutcomeNotApplied, 0)
	})
}

// says reports whether the contract has a rule with the word.
func (g *ground) says(word operation.OutcomeWord) bool {
	g.t.Helper()
	return slices.ContainsFunc(g.raw.Actions[g.action].Outcomes, func(n yaml.Node) bool {
		var rule struct{ Is string }
		return n.Decode(&rule) == nil && rule.Is == string(word)
	})
}

// keyed runs a test for every action of which the dialect keeps the key.
func eachKeyed(t *testing.T, test func(g *ground, c providers.Call)) {
	t.Helper()
	eachSpoken(t, func(g *ground, c providers.Call, contract operation.Contract) {
		s, err := g.sim.Settings(g.t.Context())
		if err != nil {
			g.t.Fatal(err)
		}
		if s.Keys && contract.Class == operation.ClassKey {
			test(g, c)
		}
	})
}

// I13: a key that comes back with other content is a mismatch; where the provider
// does not publish what it answers, the dialect replays the first result, and
// there is still one object.
func TestAKeyWithOtherContentIsAMismatch(t *testing.T) {
	t.Parallel()
	other := map[string]string{
		"adyen payment.create": `"amount":1001`, "paypal order.create": `"value":"100.01"`, "paypal order.capture": `"order_id":"X"`,
		"paypal capture.refund": `"value":"10.01"`, "resend email.send": `"subject":"other"`, "shopify inventory.adjust": `"delta":5`,
		"square payment.create": `"amount":1001`, "square customer.create": `"given_name":"Eve"`, "stripe-v1 customer.create": `"name":"Eve"`,
		"stripe-v1 payment_intent.create": `"amount":2001`, "stripe-v1 payment_intent.charge": `"amount":2001`, "stripe-v1 refund.create": `"amount":501`,
		"stripe-v2 event_destination.create": `"name":"other"`, "zendesk ticket.create": `"subject":"other"`,
	}
	eachKeyed(t, func(g *ground, c providers.Call) {
		g.want(g.do(c), operation.OutcomeSuccess, 1)
		change, ok := other[g.name+" "+g.action]
		if !ok {
			g.t.Fatal("the test knows no other content for this action")
		}
		var args, changed map[string]any
		if json.Unmarshal(c.Intent.Args, &args) != nil || json.Unmarshal([]byte("{"+change+"}"), &changed) != nil {
			g.t.Fatal("the arguments are no object")
		}
		maps.Copy(args, changed)
		c.Intent.Args = jsonOf(args)
		word := operation.OutcomeMismatch
		if !g.says(word) {
			word = operation.OutcomeSuccess
		}
		g.want(g.do(c), word, 1)
	})
}

// I14: a key whose first request still runs is busy, or uncertain where the
// provider does not say; there is one object in the end.
func TestAKeyInUseIsBusy(t *testing.T) {
	t.Parallel()
	eachKeyed(t, func(g *ground, c providers.Call) {
		g.rule(g.onWrite(simulator.Rule{Nth: 1, Do: simulator.Hold}))
		first := make(chan operation.Outcome, 1)
		r, err := g.http.Prepare(c)
		if err != nil {
			g.t.Fatal(err)
		}
		go func() { first <- g.http.Do(g.t.Context(), r) }()
		held, err := g.sim.WaitHeld(g.t.Context(), 1, 30*time.Second)
		if err != nil || len(held) != 1 {
			g.t.Fatalf("held: %v, %v", held, err)
		}
		word := operation.OutcomeBusy
		if !g.says(word) {
			word = operation.OutcomeUncertain
		}
		g.want(g.do(c), word, 1)
		if _, err := g.sim.Release(g.t.Context(), held[0].Request); err != nil {
			g.t.Fatal(err)
		}
		g.want(<-first, operation.OutcomeSuccess, 1)
	})
}
