package judges_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/opledger/opledger/providers/simulator"
)

const patience = 20 * time.Second

// bench is a simulator of Stripe, its admin client, and Stripe's own client with
// its usual settings.
type bench struct {
	t      *testing.T
	admin  *simulator.Client
	stripe *stripe.Client
	url    string

	mu    sync.Mutex
	moved time.Duration // how far the test has moved the provider's clock
}

func start(t *testing.T) *bench {
	t.Helper()
	settings, err := simulator.Preset("stripe-v1")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t}
	sim, err := simulator.New(simulator.Config{Settings: settings, Now: b.now})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	t.Cleanup(func() {
		_ = b.admin.Reset(context.Background()) // lets go of what is held
		srv.Close()
	})
	b.url = srv.URL
	b.stripe = b.client(simulator.DefaultToken, srv.Client())
	b.admin, err = simulator.NewClient(simulator.ClientConfig{BaseURL: srv.URL, HTTPClient: &http.Client{}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// client is Stripe's client with nothing changed but the address and the log.
func (b *bench) client(token string, over *http.Client) *stripe.Client {
	return stripe.NewClient(token, stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(b.url), HTTPClient: over, LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})))
}

func (b *bench) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Add(b.moved)
}

func (b *bench) advance(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moved += d
}

func (b *bench) rule(r simulator.Rule) {
	b.t.Helper()
	if _, err := b.admin.AddRule(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
}

// want holds the simulator's own count: how many creations came over the wire, how
// many different keys they had, and how many objects there are.
func (b *bench) want(sends, keys, objects int) {
	b.t.Helper()
	log, err := b.admin.Requests(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	got, seen := 0, map[string]bool{}
	for _, row := range log.Items {
		if row.Operation == "create" {
			got++
			seen[row.IdempotencyKey] = true
		}
	}
	rows, err := b.admin.Objects(b.t.Context(), simulator.ObjectFilter{})
	if err != nil {
		b.t.Fatal(err)
	}
	if got != sends || len(seen) != keys || len(rows) != objects || seen[""] {
		b.t.Fatalf("%d sends with %d keys made %d objects, want %d, %d, %d: %+v", got, len(seen), len(rows), sends, keys, objects, log.Items)
	}
}

// intent is a wish. Its metadata has several members, so that an unstable order
// of them would show.
func intent(key string, amount int64) *stripe.PaymentIntentCreateParams {
	p := &stripe.PaymentIntentCreateParams{
		Amount: new(amount), Currency: stripe.String("usd"), Description: stripe.String("two books & a pen"),
		Metadata: map[string]string{"opledger": "wish-1", "a": "1", "b": "2", "c": "3", "d": "4"},
	}
	if key != "" {
		p.SetIdempotencyKey(key)
	}
	return p
}

func (b *bench) create(p *stripe.PaymentIntentCreateParams) *stripe.PaymentIntent {
	b.t.Helper()
	got, err := b.stripe.V1PaymentIntents.Create(b.t.Context(), p)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

// refused fails unless the client made Stripe's own error of it, with the id of
// the request.
func (b *bench) refused(err error, status int, kind stripe.ErrorType, code stripe.ErrorCode) {
	b.t.Helper()
	e, ok := errors.AsType[*stripe.Error](err)
	if !ok {
		b.t.Fatalf("got %v, want a *stripe.Error", err)
	}
	if e.HTTPStatusCode != status || e.Type != kind || e.Code != code || e.RequestID == "" || e.Msg == "" {
		b.t.Fatalf("got %d %s %s, request %q: %v, want %d %s %s", e.HTTPStatusCode, e.Type, e.Code, e.RequestID, e, status, kind, code)
	}
}

func TestStripeGoSeesTheReplayOfAKey(t *testing.T) {
	t.Parallel()
	b := start(t)
	first := b.create(intent("k1", 2000))
	if first.Object != "payment_intent" || first.Amount != 2000 || first.Currency != stripe.CurrencyUSD || first.Description != "two books & a pen" ||
		first.Metadata["opledger"] != "wish-1" || len(first.Metadata) != 5 || first.Status != stripe.PaymentIntentStatusRequiresPaymentMethod ||
		first.Livemode || b.now().Sub(time.Unix(first.Created, 0)) > time.Minute {
		t.Fatalf("got %+v", first)
	}
	again := b.create(intent("k1", 2000))
	if again.ID != first.ID || again.Created != first.Created {
		t.Fatalf("got %s and then %s", first.ID, again.ID)
	}
	was, is := first.LastResponse, again.LastResponse
	if was.Header.Get("Idempotent-Replayed") != "" || is.Header.Get("Idempotent-Replayed") != "true" ||
		is.Header.Get("Original-Request") != was.RequestID || is.RequestID == was.RequestID || was.RequestID == "" {
		t.Fatalf("headers %v and then %v", was.Header, is.Header)
	}
	b.want(2, 1, 1)
}

func TestStripeGoSeesAnotherBodyUnderTheKeyAsItsIdempotencyError(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.create(intent("k1", 2000))
	_, err := b.stripe.V1PaymentIntents.Create(t.Context(), intent("k1", 2001))
	b.refused(err, http.StatusBadRequest, stripe.ErrorTypeIdempotency, "")
	if _, ok := errors.AsType[*stripe.IdempotencyError](err); !ok {
		t.Fatalf("got %T, want *stripe.IdempotencyError inside", err)
	}
	b.want(2, 1, 1)
}

func TestStripeGoSeesAKeyInUseAndDoesNotRepeatIt(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.rule(simulator.Rule{Do: simulator.Hold, Method: http.MethodPost, Times: 1})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := b.stripe.V1PaymentIntents.Create(ctx, intent("k1", 2000))
		done <- err
	}()
	if _, err := b.admin.WaitHeld(ctx, 1, patience); err != nil {
		t.Fatal(err)
	}
	_, err := b.stripe.V1PaymentIntents.Create(ctx, intent("k1", 2000))
	b.refused(err, http.StatusConflict, stripe.ErrorTypeIdempotency, stripe.ErrorCodeIdempotencyKeyInUse)
	if _, err := b.admin.Release(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b.want(2, 1, 1)
}

// Without a key of the caller's the client makes one for each call.
func TestStripeGoRepeatsALostAnswerUnderItsOwnKey(t *testing.T) {
	t.Parallel()
	for _, fault := range []simulator.Fault{simulator.LoseResponse, simulator.LoseRequest, simulator.CutHeaders, simulator.CutBody} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			b := start(t)
			b.rule(simulator.Rule{Do: fault, Method: http.MethodPost, Nth: 1})
			b.create(intent("", 2000))
			b.want(2, 1, 1)
		})
	}
}

// The table "Judged by" of the manual says what one call sends and makes when
// every answer is lost, and of which version.
func TestStripeGoSendsAsOftenAsTheManualSays(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `stripe-go` (\\S+) \\| `stripe-v1` \\| .* \\| (\\d+) \\| (\\d+) \\|$").FindStringSubmatch(string(manual))
	if row == nil {
		t.Fatal(`docs/simulator.md, "Judged by": there is no row for stripe-go`)
	}
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(module), "github.com/stripe/stripe-go/v85 v"+row[1]+"\n") {
		t.Fatalf("the manual has stripe-go %s, go.mod another", row[1])
	}
	b := start(t)
	b.rule(simulator.Rule{Do: simulator.LoseResponse, Method: http.MethodPost})
	if _, err := b.stripe.V1PaymentIntents.Create(t.Context(), intent("", 2000)); err == nil {
		t.Fatal("the call succeeded, with every answer lost")
	}
	sends, _ := strconv.Atoi(row[2]) // digits, by the pattern
	objects, _ := strconv.Atoi(row[3])
	b.want(sends, 1, objects)
}

func TestStripeGoMakesTwoObjectsOfTwoCallsWithoutAKey(t *testing.T) {
	t.Parallel()
	b := start(t)
	if one, two := b.create(intent("", 2000)), b.create(intent("", 2000)); one.ID == two.ID {
		t.Fatalf("both are %s", one.ID)
	}
	b.want(2, 2, 2)
}

// A timeout of the client's, while the first request still runs: its own repeat
// meets the key in use.
func TestStripeGoMeetsItsOwnKeyInUseAfterATimeout(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.rule(simulator.Rule{Do: simulator.Hold, Method: http.MethodPost, Times: 1})
	hasty := b.client(simulator.DefaultToken, &http.Client{Timeout: time.Second})
	_, err := hasty.V1PaymentIntents.Create(t.Context(), intent("", 2000))
	b.refused(err, http.StatusConflict, stripe.ErrorTypeIdempotency, stripe.ErrorCodeIdempotencyKeyInUse)
	b.want(2, 1, 1)
}

func TestStripeGoSeesErrorsAsItsTypes(t *testing.T) {
	t.Parallel()
	b := start(t)
	noCurrency := intent("k1", 2000)
	noCurrency.Currency = nil
	_, err := b.stripe.V1PaymentIntents.Create(t.Context(), noCurrency)
	b.refused(err, http.StatusBadRequest, stripe.ErrorTypeInvalidRequest, stripe.ErrorCodeParameterMissing)
	_, typed := errors.AsType[*stripe.InvalidRequestError](err)
	if e, _ := errors.AsType[*stripe.Error](err); !typed || e.Param != "currency" {
		t.Fatalf("got %v", err)
	}
	// A failed validation is not stored: the same key works with what was missing.
	b.create(intent("k1", 2000))

	_, err = b.stripe.V1PaymentIntents.Retrieve(t.Context(), "pi_none", nil)
	b.refused(err, http.StatusNotFound, stripe.ErrorTypeInvalidRequest, stripe.ErrorCodeResourceMissing)
	_, err = b.client("sk_unknown", &http.Client{}).V1PaymentIntents.Create(t.Context(), intent("", 1))
	b.refused(err, http.StatusUnauthorized, stripe.ErrorTypeInvalidRequest, "")

	b.rule(simulator.Rule{Do: simulator.StatusOnly, Status: http.StatusPaymentRequired, Method: http.MethodPost, Times: 1})
	_, err = b.stripe.V1PaymentIntents.Create(t.Context(), intent("k2", 2000))
	b.refused(err, http.StatusPaymentRequired, stripe.ErrorTypeCard, stripe.ErrorCodeCardDeclined)
	if card, ok := errors.AsType[*stripe.CardError](err); !ok || card.DeclineCode == "" {
		t.Fatalf("got %v, want a card error with its reason", err)
	}
	// A declined card is stored: the key answers it again.
	_, err = b.stripe.V1PaymentIntents.Create(t.Context(), intent("k2", 2000))
	b.refused(err, http.StatusPaymentRequired, stripe.ErrorTypeCard, stripe.ErrorCodeCardDeclined)

	b.rule(simulator.Rule{Do: simulator.StatusAfterCommit, Method: http.MethodPost, Times: 1})
	for range 2 {
		_, err = b.stripe.V1PaymentIntents.Create(t.Context(), intent("k3", 2000))
		b.refused(err, http.StatusInternalServerError, stripe.ErrorTypeAPI, "")
	}
	b.want(7, 4, 2)
}

// Of the reasons of 429 the client repeats one.
func TestStripeGoRepeatsALockTimeoutAndNoOtherRateLimit(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.rule(simulator.Rule{
		Do: simulator.RateLimit, Method: http.MethodPost, Times: 2,
		Body: `{"error":{"type":"invalid_request_error","code":"lock_timeout","message":"locked"}}`,
	})
	b.create(intent("", 2000))
	b.want(3, 1, 1)
	b.rule(simulator.Rule{Do: simulator.RateLimit, Method: http.MethodPost, Times: 1})
	_, err := b.stripe.V1PaymentIntents.Create(t.Context(), intent("", 2000))
	b.refused(err, http.StatusTooManyRequests, stripe.ErrorTypeInvalidRequest, stripe.ErrorCodeRateLimit)
	b.want(4, 2, 1)
}

func TestStripeGoRepeatsAGatewaysPageButNoErrorOfTheProvider(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.rule(simulator.Rule{Do: simulator.Refuse, Method: http.MethodPost, Times: 2, Body: "<html>Bad Gateway</html>", Status: http.StatusBadGateway})
	b.create(intent("", 2000))
	b.want(3, 1, 1)
	b.rule(simulator.Rule{Do: simulator.Refuse, Method: http.MethodPost, Times: 1})
	_, err := b.stripe.V1PaymentIntents.Create(t.Context(), intent("", 2000))
	b.refused(err, http.StatusServiceUnavailable, stripe.ErrorTypeAPI, "")
	b.want(4, 2, 1)
}

func TestStripeGoPagesThroughAListAndASearch(t *testing.T) {
	t.Parallel()
	b := start(t)
	var made []string
	for i := range 7 {
		c, err := b.stripe.V1Customers.Create(t.Context(), &stripe.CustomerCreateParams{
			Name: stripe.String(fmt.Sprint("Ann ", i)), Email: stripe.String("ann@example.com"), Metadata: map[string]string{"opledger": "wish-1"},
		})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, c.ID)
	}
	slices.Reverse(made) // the newest comes first
	params := &stripe.CustomerListParams{}
	params.Limit = stripe.Int64(3)
	if got := collect(t, b.stripe.V1Customers.List(t.Context(), params).All(t.Context())); !slices.Equal(got, made) {
		t.Fatalf("the list has %v, want %v", got, made)
	}

	search := func() []string {
		query := &stripe.CustomerSearchParams{}
		query.Query, query.Limit = "metadata['opledger']:'wish-1'", stripe.Int64(3)
		return collect(t, b.stripe.V1Customers.Search(t.Context(), query).All(t.Context()))
	}
	if got := search(); len(got) != 0 {
		t.Fatalf("the search already has %v", got)
	}
	b.advance(time.Minute)
	if got := search(); !slices.Equal(got, made) {
		t.Fatalf("the search has %v, want %v", got, made)
	}
	since := &stripe.CustomerListParams{CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: b.now().Add(-30 * time.Second).Unix()}}
	if got := collect(t, b.stripe.V1Customers.List(t.Context(), since).All(t.Context())); len(got) != 0 {
		t.Fatalf("made in the last half minute: %v, want nothing", got)
	}
}

// collect gives the ids of all pages.
func collect(t *testing.T, all stripe.Seq2[*stripe.Customer, error]) []string {
	t.Helper()
	var ids []string
	all(func(c *stripe.Customer, err error) bool {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ID)
		return true
	})
	return ids
}

func TestStripeGoReadsTheAccountAndTheObject(t *testing.T) {
	t.Parallel()
	b := start(t)
	account, err := b.stripe.V1Accounts.Retrieve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if account.ID != simulator.DefaultAccount || account.Object != "account" {
		t.Fatalf("got %+v", account)
	}
	made := b.create(intent("k1", 2000))
	read, err := b.stripe.V1PaymentIntents.Retrieve(t.Context(), made.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if read.ID != made.ID || read.Amount != 2000 || read.Metadata["d"] != "4" {
		t.Fatalf("got %+v", read)
	}
}

// A key that the provider has forgotten makes a second object.
func TestStripeGoMakesASecondObjectAfterTheKeysTime(t *testing.T) {
	t.Parallel()
	b := start(t)
	first := b.create(intent("k1", 2000))
	b.advance(24 * time.Hour)
	if again := b.create(intent("k1", 2000)); again.ID == first.ID {
		t.Fatal("the key is still known")
	}
	b.want(2, 1, 2)
}
