package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// dialect makes the core speak as one provider: its routes, its credential, its
// bodies and its errors. The package comment says how to write one.
type dialect struct {
	// name is the name of the preset, and about its one line of help.
	name, about string
	// settings is the provider's standing behaviour.
	settings Settings
	// routes are tried in order.
	routes []route

	// auth finds the credential.
	auth func(*exchange) string
	// plain marks the project's own tasks: their routes read the body themselves,
	// and a rule's status has the body of an internal error. Elsewhere a body that
	// cannot be decoded is refused, and a status has the body that goes with it.
	plain bool
	// label are the places of the label in the body, as JSON Pointers. A label
	// that the ledger made is found wherever it stands.
	label []string
	// key finds the idempotency key. Nil means the header Idempotency-Key.
	key func(*exchange) string
	// maxKey is the greatest length of a key. Zero means 255.
	maxKey int
	// invalidUnstored says that a request which fails the validation leaves its
	// key free, also where other errors of the client are stored.
	invalidUnstored bool
	// newID makes the id of an object of a collection.
	newID func(st *state, x *exchange, collection string) string

	// requestID is the header with the provider's id of the request; empty if it
	// has none.
	requestID string
	// headers are the further headers of every answer.
	headers map[string]string
	// keyTaken are headers of the answer to the first request with a key.
	keyTaken map[string]string
	// replayed are the headers that mark a replay; the argument is the id of the
	// first request. Nil means Idempotent-Replayed: true.
	replayed func(first string) map[string]string

	// errors says status and code of each trouble where they differ from the
	// plain ones.
	errors []shape
	// errorBody is the body of an error.
	errorBody func(failure) any
	// dressError adds what an error has beside its body. It may be nil.
	dressError func(failure, answer) answer
}

// dialects lists every preset, in the order of the help.
func dialects() []dialect {
	all := []dialect{
		plain("crm", "plain tasks without keys, a list that is one second behind (class K4)",
			Settings{IndexLag: Duration(time.Second), ClientIDsOff: true}),
		plain("keyed", "plain tasks with keys that are kept for 24 hours (class K1)",
			Settings{Keys: true, ClientIDsOff: true}),
		plain("nothing", "plain tasks without keys, chosen ids and lists (class K5)",
			Settings{SearchOff: true, ClientIDsOff: true}),
		plain("unique", "plain tasks with ids that the client chooses (class K2)", Settings{}),
		stripeV1(),
		linear(),
		githubIssuesAPI(),
		resend(),
		zendesk(),
		kubernetes(),
		salesforce(),
		stripeV2(),
		telegram(),
		shopify(),
		braintree(),
	}
	for i := range all {
		all[i].routes = append(all[i].routes, routesOf(moreKinds(all[i].name))...)
	}
	for _, r := range restProviders() {
		all = append(all, r.dialect())
	}
	return all
}

// dialectOf returns the dialect of a name. Empty means the plain one.
func dialectOf(name string) (*dialect, error) {
	if name == "" {
		d := plain("", "", Settings{})
		return &d, nil
	}
	all := dialects()
	for i := range all {
		if all[i].name == name {
			return &all[i], nil
		}
	}
	return nil, fmt.Errorf("simulator: no preset %q; there are %q", name, Presets())
}

// operation is what a route does, for the request log and the counts.
type operation string

const (
	opCreate  operation = "create"
	opUpsert  operation = "upsert"
	opRead    operation = "read"
	opList    operation = "list"
	opSearch  operation = "search"
	opAccount operation = "account"
)

// writes reports whether a request of this kind is a wish to change something.
func (o operation) writes() bool { return o == opCreate || o == opUpsert }

// route is one operation of the provider surface.
type route struct {
	method  string
	pattern string // a path; {name} stands for a part of one segment
	op      operation
	keyed   bool                   // honours the idempotency key
	chosen  func(*exchange) string // the id that the client chose, for the log
	graphQL map[string]resolver    // the root fields of a GraphQL endpoint
	run     func(st *state, x *exchange, now time.Time) answer
}

// findRoute finds the request's route, or takes one that answers 404 or 405.
func (x *exchange) findRoute(u *url.URL) {
	none := noPath
	for _, r := range x.dialect.routes {
		vars, ok := matchPath(r.pattern, u.EscapedPath())
		if !ok {
			continue
		}
		if r.method == x.method {
			x.route, x.vars = r, vars
			if r.graphQL != nil {
				x.readGraphQL()
			}
			return
		}
		none = noMethod
	}
	x.route = route{run: func(_ *state, x *exchange, _ time.Time) answer {
		if none == noMethod {
			return x.fail(none, "the path has no such method")
		}
		return x.fail(none, "there is no such path")
	}}
}

// matchPath holds a path against a pattern and returns the values of its names.
func matchPath(pattern, path string) (map[string]string, bool) {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return nil, false
	}
	var vars map[string]string
	for i, segment := range want {
		before, rest, named := strings.Cut(segment, "{")
		if !named {
			if segment != got[i] {
				return nil, false
			}
			continue
		}
		name, after, _ := strings.Cut(rest, "}")
		value, ok := strings.CutPrefix(got[i], before)
		if !ok {
			return nil, false
		}
		if value, ok = strings.CutSuffix(value, after); !ok || value == "" {
			return nil, false
		}
		value, err := url.PathUnescape(value)
		if err != nil {
			return nil, false
		}
		if vars == nil {
			vars = make(map[string]string)
		}
		vars[name] = value
	}
	return vars, true
}

// The places of a credential.

func bearer(x *exchange) string {
	token, _ := strings.CutPrefix(x.header.Get("Authorization"), "Bearer ")
	return token
}

// inScheme is the credential of another scheme, such as "token".
func inScheme(name string) func(*exchange) string {
	return func(x *exchange) string {
		scheme, token, ok := strings.Cut(x.header.Get("Authorization"), " ")
		if !ok || !strings.EqualFold(scheme, name) {
			return ""
		}
		return token
	}
}

// inHeader is a header's whole value.
func inHeader(name string) func(*exchange) string {
	return func(x *exchange) string { return x.header.Get(name) }
}

// basicUser is the user of basic authentication.
func basicUser(x *exchange) string {
	user, _, _ := (&http.Request{Header: x.header}).BasicAuth()
	return user
}

// basicPassword is the password of basic authentication.
func basicPassword(x *exchange) string {
	_, password, _ := (&http.Request{Header: x.header}).BasicAuth()
	return password
}

// inPath is a name of the route's pattern.
func inPath(name string) func(*exchange) string {
	return func(x *exchange) string { return x.vars[name] }
}

// inBody is a text in the decoded body.
func inBody(pointer string) func(*exchange) string {
	return func(x *exchange) string { return textAt(x.args, pointer) }
}

// firstOf is the first place that has something.
func firstOf(places ...func(*exchange) string) func(*exchange) string {
	return func(x *exchange) string {
		for _, place := range places {
			if text := place(x); text != "" {
				return text
			}
		}
		return ""
	}
}

// trouble is a reason for an error. Each dialect has its own shape for it.
type trouble string

const (
	badToken    trouble = "unauthorized"
	noPath      trouble = "no_path"
	noMethod    trouble = "method_not_allowed"
	noObject    trouble = "not_found"
	noSearch    trouble = "no_search"
	badBody     trouble = "invalid_json"
	badContent  trouble = "invalid"
	badQuery    trouble = "invalid_query"
	badLimit    trouble = "invalid_limit"
	badCursor   trouble = "invalid_cursor"
	longBody    trouble = "body"
	longKey     trouble = "idempotency_key_too_long"
	keyMismatch trouble = "idempotency_mismatch"
	keyInUse    trouble = "idempotency_key_in_use"
	idTaken     trouble = "exists"
	searchDown  trouble = "search_unavailable"
	rateLimited trouble = "rate_limited"
	unavailable trouble = "unavailable"
	internal    trouble = "internal"
	tableFull   trouble = "full"
)

// shape is how a trouble looks: its HTTP status, the provider's code and, where
// the provider has one, the type of the error.
type shape struct {
	trouble    trouble
	status     int
	code, kind string
	wire       int // the HTTP status, where it is not the status that is meant
}

// plainShapes are the shapes of the plain dialect, and of every dialect that
// says nothing else.
func plainShapes() []shape {
	return []shape{
		{trouble: badToken, status: http.StatusUnauthorized},
		{trouble: noPath, status: http.StatusNotFound, code: "not_found"},
		{trouble: noMethod, status: http.StatusMethodNotAllowed},
		{trouble: noObject, status: http.StatusNotFound},
		{trouble: noSearch, status: http.StatusNotFound, code: "not_found"},
		{trouble: badBody, status: http.StatusBadRequest},
		{trouble: badContent, status: http.StatusUnprocessableEntity},
		{trouble: badQuery, status: http.StatusBadRequest},
		{trouble: badLimit, status: http.StatusBadRequest},
		{trouble: badCursor, status: http.StatusBadRequest},
		{trouble: longBody, status: http.StatusRequestEntityTooLarge},
		{trouble: longKey, status: http.StatusBadRequest},
		{trouble: keyMismatch, status: http.StatusBadRequest},
		{trouble: keyInUse, status: http.StatusConflict},
		{trouble: idTaken, status: http.StatusConflict},
		{trouble: searchDown, status: http.StatusServiceUnavailable},
		{trouble: rateLimited, status: http.StatusTooManyRequests},
		{trouble: unavailable, status: http.StatusServiceUnavailable},
		{trouble: internal, status: http.StatusInternalServerError},
		{trouble: tableFull, status: http.StatusInsufficientStorage},
	}
}

// shapeOf is the dialect's shape of a trouble, or else the plain one.
func shapeOf(t trouble, own []shape) shape {
	for _, s := range slices.Concat(own, plainShapes()) {
		if s.trouble == t {
			return s
		}
	}
	panic("simulator: no shape for " + string(t)) // a trouble without a row in plainShapes
}

// failure is one error before it has the provider's shape.
type failure struct {
	shape

	message string
	id      string // the object that is in the way, if any
	field   string // the field that is wrong, if any
	wait    time.Duration
}

// fail is the answer for a trouble.
func (x *exchange) fail(t trouble, message string) answer {
	return x.failed(failure{shape: shape{trouble: t}, message: message})
}

// missing is the answer where a field is not there.
func (x *exchange) missing(field string) answer {
	return x.failed(failure{shape: shape{trouble: badContent}, message: field + " is required", field: field})
}

// failed gives the failure the dialect's shape. A status that is set stays.
func (x *exchange) failed(f failure) answer {
	s := shapeOf(f.trouble, x.dialect.errors)
	if s.code == "" {
		s.code = string(f.trouble)
	}
	f.code, f.kind = s.code, s.kind
	if f.status == 0 {
		f.status = s.status
	}
	a := jsonAnswer(orNumber(s.wire, f.status), x.dialect.errorBody(f))
	if x.dialect.dressError != nil {
		a = x.dialect.dressError(f, a)
	}
	a.judged = f.status
	a.unstored = f.trouble == badContent && x.dialect.invalidUnstored
	if x.settings.ErrorsInBody && f.status < 500 {
		a.status = http.StatusOK
	}
	return a
}

// troubleOf is what a status usually means.
func troubleOf(status int) trouble {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return badContent
	case http.StatusUnauthorized:
		return badToken
	case http.StatusNotFound:
		return noObject
	case http.StatusConflict:
		return keyInUse
	case http.StatusTooManyRequests:
		return rateLimited
	case http.StatusServiceUnavailable:
		return unavailable
	}
	return internal
}

// answer is a response before it is on the wire.
type answer struct {
	status   int
	header   http.Header
	body     []byte
	judged   int           // the status by meaning, where the wire says another
	unstored bool          // no key keeps it
	again    func() answer // the same for the object's present state; may be nil
}

// meaning is the status that says what happened.
func (a answer) meaning() int {
	if a.judged != 0 {
		return a.judged
	}
	return a.status
}

func (a answer) good() bool { return a.meaning() >= 200 && a.meaning() < 300 }

// with returns the answer with one more header.
func (a answer) with(name, value string) answer {
	h := a.header.Clone()
	if h == nil {
		h = make(http.Header)
	}
	h.Set(name, value)
	a.header = h
	return a
}

func (a answer) withAll(headers map[string]string) answer {
	for name, value := range headers {
		a = a.with(name, value)
	}
	return a
}

// jsonAnswer panics on a value that cannot be encoded, which only a mistake in
// this package can cause.
func jsonAnswer(status int, v any) answer {
	body, err := json.Marshal(v)
	if err != nil {
		panic("simulator: encode an answer: " + err.Error())
	}
	return answer{status: status, body: append(body, '\n')}
}
