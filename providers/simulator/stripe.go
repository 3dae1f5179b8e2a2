package simulator

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	stripePage   = 10
	stripeIDSize = 24
)

// stripeV1 speaks as Stripe's API v1.
//
// Sources (Stripe docs "Idempotent requests"
// and "Advanced error handling", stripe-go v85.0.0, stripe-stateful-mock
// 0.0.16): the key and its 24 hours, 255 characters, errors 400
// idempotency_error and 409 idempotency_key_in_use, stored 4xx and 5xx, no
// storing of failed validation, 401 and 429, the headers Idempotent-Replayed and
// Original-Request, the lag of the search. Chosen: the figure of that lag, the
// type of a key in use, the code of the rate limit, and the few fields of an
// object beyond those a request can set.
func stripeV1() dialect {
	intents := stripeKind{object: "payment_intent", path: "/v1/payment_intents", view: stripeIntent, required: []string{"amount", "currency"}}
	customers := stripeKind{object: "customer", path: "/v1/customers", view: stripeCustomer}
	return dialect{
		name: "stripe-v1", about: "Stripe API v1: payment intents and customers, keys with stored errors (K1)",
		settings: Settings{
			Keys: true, Mismatch: Mismatch400, Concurrent: Concurrent409, StoreErrors: StoreAll,
			SearchLag: Duration(time.Minute), ClientIDsOff: true, PageSize: 100,
		},
		auth:            firstOf(inScheme("Bearer"), basicUser),
		label:           []string{"/metadata/opledger"},
		invalidUnstored: true,
		newID: func(st *state, _ *exchange, collection string) string {
			prefix := map[string]string{"/v1/payment_intents": "pi_", "/v1/customers": "cus_"}[collection]
			return wordID(prefix, st.next(), stripeIDSize)
		},
		requestID: "Request-Id",
		replayed:  stripeReplayed,
		errors: []shape{
			{trouble: badToken, status: 401, kind: "invalid_request_error"},
			{trouble: noPath, status: 404, kind: "invalid_request_error"},
			{trouble: noObject, status: 404, code: "resource_missing", kind: "invalid_request_error"},
			{trouble: badContent, status: 400, code: "parameter_missing", kind: "invalid_request_error"},
			{trouble: badCursor, status: 400, code: "resource_missing", kind: "invalid_request_error"},
			{trouble: keyMismatch, status: 400, kind: "idempotency_error"},
			{trouble: longKey, status: 400, kind: "idempotency_error"},
			{trouble: keyInUse, status: 409, code: "idempotency_key_in_use", kind: "idempotency_error"},
			{trouble: rateLimited, status: 429, code: "rate_limit", kind: "invalid_request_error"},
		},
		errorBody: stripeError,
		routes: slices.Concat(
			intents.routes(), customers.routes(),
			[]route{{method: http.MethodGet, pattern: "/v1/account", op: opAccount, run: stripeAccount}},
		),
	}
}

func stripeReplayed(first string) map[string]string {
	return map[string]string{"Idempotent-Replayed": "true", "Original-Request": first}
}

func stripeAccount(_ *state, x *exchange, _ time.Time) answer {
	return jsonAnswer(http.StatusOK, map[string]any{
		"id": x.account, "object": "account", "charges_enabled": true, "details_submitted": true,
		"payouts_enabled": true, "country": "US", "default_currency": "usd", "type": "standard",
	})
}

// stripeError leaves the code out where Stripe has none. Its 402 is a card that
// was declined.
func stripeError(f failure) any {
	if f.status == http.StatusPaymentRequired {
		return map[string]any{"error": map[string]any{
			"type": "card_error", "code": "card_declined", "decline_code": "generic_decline", "message": f.message,
		}}
	}
	e := map[string]any{"type": f.kind, "message": f.message}
	if f.kind == "" {
		e["type"] = "api_error"
		if f.status < 500 {
			e["type"] = "invalid_request_error"
		}
	}
	if f.code != string(f.trouble) || f.trouble == keyInUse {
		e["code"] = f.code
	}
	if f.field != "" {
		e["param"] = f.field
	}
	return map[string]any{"error": e}
}

// stripeKind is one kind of object of API v1.
type stripeKind struct {
	object, path string
	required     []string
	view         func(*object) map[string]any
}

func (k stripeKind) routes() []route {
	return []route{
		{method: http.MethodPost, pattern: k.path, op: opCreate, keyed: true, run: k.create},
		{method: http.MethodGet, pattern: k.path, op: opList, run: k.list},
		{method: http.MethodGet, pattern: k.path + "/search", op: opSearch, run: k.search},
		{method: http.MethodGet, pattern: k.path + "/{id}", op: opRead, run: k.read},
	}
}

func (k stripeKind) create(st *state, x *exchange, now time.Time) answer {
	for _, field := range k.required {
		if textAt(x.args, "/"+field) == "" {
			return x.missing(field)
		}
	}
	if _, ok := numberAt(x.args, "/amount"); x.args["amount"] != nil && !ok {
		return x.failed(failure{shape: shape{trouble: badContent}, message: "Invalid integer: " + textAt(x.args, "/amount"), field: "amount"})
	}
	o := x.make(k.path, textAt(x.args, "/description"), x.args)
	return st.create(x, o, now, func(o *object) answer { return jsonAnswer(http.StatusOK, k.show(o)) })
}

func (k stripeKind) show(o *object) any {
	v := k.view(o)
	v["id"], v["object"], v["livemode"], v["created"] = o.ID, k.object, false, o.ShownAt.Unix()
	v["metadata"], v["description"] = mapAt(o.args, "/metadata"), o.args["description"]
	return v
}

func (k stripeKind) read(st *state, x *exchange, now time.Time) answer {
	if o := st.read(x, k.path, x.vars["id"], now); o != nil {
		return jsonAnswer(http.StatusOK, k.show(o))
	}
	return x.failed(failure{shape: shape{trouble: noObject}, field: "id", message: "No such " + k.object + ": '" + x.vars["id"] + "'"})
}

// list shows the newest first, as Stripe does.
func (k stripeKind) list(st *state, x *exchange, now time.Time) answer {
	limit, wrong := x.limit("limit", stripePage)
	if wrong != nil {
		return *wrong
	}
	bounds := map[string]func(created, bound int64) bool{
		"created[gte]": func(c, b int64) bool { return c >= b }, "created[gt]": func(c, b int64) bool { return c > b },
		"created[lte]": func(c, b int64) bool { return c <= b }, "created[lt]": func(c, b int64) bool { return c < b },
	}
	var tests []func(int64) bool
	for param, holds := range bounds {
		text := x.query.Get(param)
		if text == "" {
			continue
		}
		bound, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return x.failed(failure{shape: shape{trouble: badContent}, message: "Invalid timestamp: " + text, field: "created"})
		}
		tests = append(tests, func(created int64) bool { return holds(created, bound) })
	}
	found, wrong := st.visible(x, k.path, inList, now, func(o *object) bool {
		return !slices.ContainsFunc(tests, func(holds func(int64) bool) bool { return !holds(o.ShownAt.Unix()) })
	})
	if wrong != nil {
		return *wrong
	}
	slices.Reverse(found)
	page, more, ok := pageAfter(found, x.query.Get("starting_after"), limit)
	if !ok {
		return x.failed(failure{shape: shape{trouble: badCursor}, field: "starting_after", message: "No such " + k.object})
	}
	return jsonAnswer(http.StatusOK, map[string]any{"object": "list", "url": k.path, "has_more": more, "data": views(page, k.show)})
}

// search knows metadata['name']:'value', joined by AND.
func (k stripeKind) search(st *state, x *exchange, now time.Time) answer {
	clause := regexp.MustCompile(`^metadata\[["']([^"']+)["']\]:["']([^"']*)["']$`)
	want := map[string]string{}
	for part := range strings.SplitSeq(x.query.Get("query"), " AND ") {
		m := clause.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return x.failed(failure{shape: shape{trouble: badContent}, field: "query", message: "the simulator searches metadata['name']:'value' only"})
		}
		want[m[1]] = m[2]
	}
	found, wrong := st.visible(x, k.path, inSearch, now, func(o *object) bool {
		for name, value := range want {
			if mapAt(o.args, "/metadata")[name] != value {
				return false
			}
		}
		return true
	})
	if wrong != nil {
		return *wrong
	}
	slices.Reverse(found)
	limit, wrong := x.limit("limit", stripePage)
	if wrong != nil {
		return *wrong
	}
	from, _ := strconv.Atoi(x.query.Get("page"))
	page, more := pageNumber(found, from, limit)
	body := map[string]any{"object": "search_result", "url": k.path + "/search", "has_more": more, "next_page": nil, "data": views(page, k.show)}
	if more {
		body["next_page"] = strconv.Itoa(max(from, 1) + 1)
	}
	return jsonAnswer(http.StatusOK, body)
}

func stripeIntent(o *object) map[string]any {
	amount, _ := numberAt(o.args, "/amount")
	status := "requires_payment_method"
	if textAt(o.args, "/confirm") == "true" {
		status = "succeeded"
	}
	return map[string]any{
		"amount": amount, "amount_received": 0, "amount_capturable": 0, "currency": strings.ToLower(textAt(o.args, "/currency")),
		"client_secret": o.ID + "_secret_sim", "customer": o.args["customer"], "capture_method": "automatic_async",
		"confirmation_method": "automatic", "payment_method": o.args["payment_method"],
		"payment_method_types": []string{"card"}, "status": status,
	}
}

func stripeCustomer(o *object) map[string]any {
	return map[string]any{
		"name": o.args["name"], "email": o.args["email"], "phone": o.args["phone"], "balance": 0, "delinquent": false,
	}
}

const stripeAccounts = "/v2/core/accounts"

// stripeV2 speaks as Stripe's API v2, for accounts.
//
// Sources (Stripe docs "Idempotent requests",
// the paragraph on v2): keys on POST for 30 days, a success that is not executed
// again, a failed request that is run again with the same key and answered with
// an updated response, GET /v1/account as the account probe. Unknown, and chosen
// as in v1: the answers to another body and to a key in use. Chosen: that a
// replay shows the present state.
func stripeV2() dialect {
	d := stripeV1()
	d.name, d.about = "stripe-v2", "Stripe API v2: accounts, a failed request is run again under its key (K1)"
	d.settings = Settings{
		Keys: true, KeyRetention: Duration(720 * time.Hour), Mismatch: Mismatch400, Concurrent: Concurrent409,
		StoreErrors: StoreReexecute, Replay: ReplayCurrent, ClientIDsOff: true, PageSize: 100,
	}
	d.newID = func(st *state, _ *exchange, _ string) string { return wordID("acct_", st.next(), 16) }
	d.routes = []route{
		{method: http.MethodPost, pattern: stripeAccounts, op: opCreate, keyed: true, run: stripeV2Create},
		{method: http.MethodGet, pattern: stripeAccounts, op: opList, run: stripeV2List},
		{method: http.MethodGet, pattern: stripeAccounts + "/{id}", op: opRead, run: stripeV2Read},
		{method: http.MethodGet, pattern: "/v1/account", op: opAccount, run: stripeAccount},
	}
	return d
}

func stripeV2Account(o *object) any {
	return map[string]any{
		"id": o.ID, "object": "v2.core.account", "livemode": false, "created": o.ShownAt.Format(shownTime),
		"display_name": o.args["display_name"], "contact_email": o.args["contact_email"], "metadata": mapAt(o.args, "/metadata"),
	}
}

func stripeV2Create(st *state, x *exchange, now time.Time) answer {
	return st.create(x, x.make(stripeAccounts, textAt(x.args, "/display_name"), x.args), now, func(o *object) answer {
		return jsonAnswer(http.StatusOK, stripeV2Account(o))
	})
}

func stripeV2Read(st *state, x *exchange, now time.Time) answer {
	if o := st.read(x, stripeAccounts, x.vars["id"], now); o != nil {
		return jsonAnswer(http.StatusOK, stripeV2Account(o))
	}
	return x.fail(noObject, "No such account: '"+x.vars["id"]+"'")
}

// stripeV2List goes on by the address of the next page.
func stripeV2List(st *state, x *exchange, now time.Time) answer {
	limit, wrong := x.limit("limit", stripePage)
	if wrong != nil {
		return *wrong
	}
	found, wrong := st.visible(x, stripeAccounts, inList, now, every)
	if wrong != nil {
		return *wrong
	}
	slices.Reverse(found)
	page, more, ok := pageAfter(found, x.query.Get("page"), limit)
	if !ok {
		return x.fail(badCursor, "the page is not of this list")
	}
	body := map[string]any{"data": views(page, stripeV2Account), "next_page_url": nil, "previous_page_url": nil}
	if more {
		body["next_page_url"] = fmt.Sprintf("%s?limit=%d&page=%s", stripeAccounts, limit, page[len(page)-1].ID)
	}
	return jsonAnswer(http.StatusOK, body)
}
