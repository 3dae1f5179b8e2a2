package simulator_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/providers/simulator"
)

// preset serves a preset with a clock that the test moves.
func preset(t *testing.T, name string) (*bench, *clock) {
	t.Helper()
	settings, err := simulator.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	c := newClock()
	return start(t, simulator.Config{Settings: settings, Now: c.now}), c
}

// at follows names into the reply; nil if there is nothing.
func (r reply) at(path string) any {
	var v any = r.body
	for name := range strings.SplitSeq(path, ".") {
		switch m := v.(type) {
		case map[string]any:
			v = m[name]
		case []any:
			if len(m) == 0 {
				return nil
			}
			v = m[0].(map[string]any)[name]
		default:
			return nil
		}
	}
	return v
}

// want fails unless the reply has the status and, by pairs, the values.
func (b *bench) want(r reply, status int, pairs ...any) {
	b.t.Helper()
	if r.err != nil || r.status != status {
		b.t.Fatalf("got status %d err %v, want %d: %s", r.status, r.err, status, r.raw)
	}
	for i := 0; i < len(pairs); i += 2 {
		if got := r.at(pairs[i].(string)); got != pairs[i+1] {
			b.t.Fatalf("%s is %v, want %v: %s", pairs[i], got, pairs[i+1], r.raw)
		}
	}
}

const (
	form       = "application/x-www-form-urlencoded"
	intents    = "/v1/payment_intents"
	intentForm = "amount=2000&currency=USD&metadata[opledger]=op-1&metadata%5Bother%5D=x"
)

func TestStripeV1AnswersWithTheShapesOfStripe(t *testing.T) {
	t.Parallel()
	b, c := preset(t, "stripe-v1")
	r := b.do(call{path: intents, body: intentForm, key: "k1", contentType: form})
	b.want(r, 200, "object", "payment_intent", "amount", 2000.0, "currency", "usd", "metadata.opledger", "op-1", "metadata.other", "x")
	id := r.id()
	if !strings.HasPrefix(id, "pi_") || len(id) != 27 || r.header.Get("Request-Id") == "" || r.header.Get("Idempotent-Replayed") != "" {
		t.Fatalf("id %q, headers %v", id, r.header)
	}
	if row := b.lastRequest(); row.Label != "op-1" || row.IdempotencyKey != "k1" || row.Operation != "create" {
		t.Fatalf("log %+v", row)
	}

	again := b.do(call{path: intents, body: intentForm, key: "k1", contentType: form})
	b.want(again, 200, "id", id)
	if again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Original-Request") != r.header.Get("Request-Id") {
		t.Fatalf("headers %v", again.header)
	}
	b.want(b.do(call{path: intents, body: intentForm + "&description=x", key: "k1", contentType: form}), 400, "error.type", "idempotency_error")
	b.want(b.do(call{path: intents, body: "amount=1", key: "k2", contentType: form}), 400,
		"error.type", "invalid_request_error", "error.param", "currency")
	b.want(b.do(call{path: intents, body: intentForm, key: "k2", contentType: form}), 200)
	b.wantObjects(2)

	b.want(b.do(call{method: "GET", path: intents + "/" + id}), 200, "id", id)
	b.want(b.do(call{method: "GET", path: intents + "/pi_none"}), 404, "error.code", "resource_missing", "error.type", "invalid_request_error")
	b.want(b.do(call{method: "GET", path: "/v1/account"}), 200, "id", "acct_1", "object", "account")
	b.want(b.do(call{method: "GET", path: "/v1/account", token: "wrong"}), 401, "error.type", "invalid_request_error")

	find := intents + "/search?query=metadata%5B'opledger'%5D%3A'op-1'"
	if r := b.do(call{method: "GET", path: find}); len(r.at("data").([]any)) != 0 {
		t.Fatalf("the search is not behind: %s", r.raw)
	}
	c.advance(time.Minute)
	b.want(b.do(call{method: "GET", path: find}), 200, "object", "search_result", "data.metadata.opledger", "op-1")
}

func TestStripeV1ListsByTimeAndByTheLastID(t *testing.T) {
	t.Parallel()
	b, c := preset(t, "stripe-v1")
	for range 3 {
		b.want(b.do(call{path: "/v1/customers", body: "name=Ann", contentType: form}), 200, "object", "customer", "name", "Ann")
		c.advance(time.Second)
	}
	rows := b.wantObjects(3)
	first := b.do(call{method: "GET", path: "/v1/customers?limit=2"})
	b.want(first, 200, "object", "list", "has_more", true, "data.id", rows[2].ID)
	b.want(b.do(call{method: "GET", path: "/v1/customers?limit=2&starting_after=" + rows[1].ID}), 200, "has_more", false, "data.id", rows[0].ID)
	b.want(b.do(call{method: "GET", path: "/v1/customers?created[gte]=1772366402"}), 200, "has_more", false, "data.id", rows[2].ID)
	b.want(b.do(call{method: "GET", path: "/v1/customers?starting_after=cus_none"}), 400, "error.type", "invalid_request_error")
}

// Stripe's clients tell a declined card from other errors by its type.
func TestStripeV1DeclinesACard(t *testing.T) {
	t.Parallel()
	b, _ := preset(t, "stripe-v1")
	b.rule(simulator.Rule{Do: simulator.StatusOnly, Status: http.StatusPaymentRequired, Times: 1})
	for range 2 { // the second is the stored answer
		b.want(b.do(call{path: intents, body: intentForm, key: "k1", contentType: form}), 402,
			"error.type", "card_error", "error.code", "card_declined", "error.decline_code", "generic_decline")
	}
	b.wantObjects(0)
}

// Stripe's documentation: the result of a request that failed after it had begun
// to execute is stored, a 500 too.
func TestStripeV1StoresA500AndRefusesAKeyInUse(t *testing.T) {
	t.Parallel()
	b, _ := preset(t, "stripe-v1")
	b.rule(simulator.Rule{Do: simulator.StatusAfterCommit, Nth: 1, Method: http.MethodPost})
	b.rule(simulator.Rule{Do: simulator.Hold, BodyContains: "amount=7", Times: 1})
	for _, replayed := range []string{"", "true"} {
		r := b.do(call{path: intents, body: intentForm, key: "k1", contentType: form})
		b.want(r, 500, "error.type", "api_error")
		if got := r.header.Get("Idempotent-Replayed"); got != replayed {
			t.Fatalf("Idempotent-Replayed %q, want %q", got, replayed)
		}
	}
	held := b.background(call{path: intents, body: "amount=7&currency=eur", key: "k2", contentType: form})
	b.waitHeld(1)
	b.want(b.do(call{path: intents, body: "amount=7&currency=eur", key: "k2", contentType: form}), 409, "error.code", "idempotency_key_in_use")
	b.release()
	b.want(b.wait(held), 200)
	b.wantObjects(2)
}
