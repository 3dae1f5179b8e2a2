package providers

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

func (c *compiler) request(path string, s requestSpec, where, whereHeader place, read bool) requestTemplate {
	out := requestTemplate{
		method: s.Method, encoding: s.Encoding,
		path:  c.template(path+".path", s.Path, where),
		query: make(map[string]template), headers: make(map[string]template), form: make(map[string]tree),
	}
	methods := httpMethods()
	if !read {
		methods = slices.DeleteFunc(methods, func(m string) bool { return m == http.MethodGet })
	} else {
		methods = []string{http.MethodGet, http.MethodPost}
	}
	word(c, path+".method", s.Method, methods...)
	c.path(path+".path", out.path)
	for name, text := range s.Query {
		out.query[name] = c.template(path+".query["+clip(name)+"]", text, where)
	}
	for name, text := range s.Headers {
		at := path + ".headers[" + clip(name) + "]"
		canon := c.header(at, name)
		if _, twice := out.headers[canon]; twice || canon == c.authHeader() {
			c.refuse(at, "header %s is given twice", canon)
		}
		out.headers[canon] = c.template(at, text, whereHeader)
	}
	c.body(path, s, &out, where)
	return out
}

func (c *compiler) authHeader() string {
	if c.spec.Connection.Auth == nil {
		return ""
	}
	name, _ := canonical(c.spec.Connection.Auth.Header)
	return name
}

func (c *compiler) path(at string, t template) {
	if len(t) == 0 || !strings.HasPrefix(t[0].text, "/") || strings.HasPrefix(t[0].text, "//") {
		c.refuse(at, "must begin with one /")
	}
	var shape strings.Builder
	for _, p := range t {
		if strings.ContainsAny(p.text, "?#\\ \t\r\n\x00") {
			c.refuse(at, "must be an escaped path without a query")
		}
		shape.WriteString(p.text)
		if p.ref != nil {
			shape.WriteString("x")
		}
	}
	if dotSegments(shape.String()) {
		c.refuse(at, "must not have a segment . or ..")
	}
}

func (c *compiler) body(path string, s requestSpec, out *requestTemplate, where place) {
	switch s.Encoding {
	case encodingJSON:
		if !s.Body.set {
			c.refuse(path+".body", "is missing")
		}
		t, err := compileTree(s.Body.v, where)
		c.try(path+".body", err)
		out.body = t
		c.spliced(path+".body", t)
	case encodingGraphQL:
		c.graphql(path, s, out, where)
	case encodingForm:
		members, ok := s.Body.v.(map[string]any)
		if !ok {
			c.refuse(path+".body", "a form is a flat mapping")
		}
		for name, v := range members {
			if _, scalar := asText(v); !scalar || strings.Contains(name, "${") {
				c.refuse(path+".body", "the form member %q must be text, a number or a boolean", clip(name))
				continue
			}
			t, err := compileTree(v, where)
			c.try(path+".body", err)
			out.form[name] = t
		}
	case encodingNone, "":
		out.encoding = encodingNone
		if s.Body.set {
			c.refuse(path+".encoding", "a body needs the encoding json, form or graphql")
		}
	default:
		word(c, path+".encoding", s.Encoding, encodingJSON, encodingForm, encodingGraphQL, encodingNone)
	}
}

// graphql compiles a body of query and variables. The query is literal: what an
// argument holds must never become part of it.
func (c *compiler) graphql(path string, s requestSpec, out *requestTemplate, where place) {
	if s.Method != http.MethodPost {
		c.refuse(path+".method", "a graphql request is a POST")
	}
	members, ok := s.Body.v.(map[string]any)
	if query, isText := members["query"].(string); !ok || !isText || query == "" {
		c.refuse(path+".body", "a graphql body has a query, which is text, and variables")
		return
	}
	for name, v := range members {
		text, isText := v.(string)
		_, isMapping := v.(map[string]any)
		switch {
		case name == "variables" && !isMapping:
			c.refuse(path+".body", "variables must be a mapping")
		case name == "variables":
		case name != "query" && name != "operationName":
			c.refuse(path+".body", "a graphql body has query, variables and operationName, not %q", clip(name))
		case !isText || strings.Contains(text, "${"):
			c.refuse(path+".body", "%s must be literal text: hand values over in variables", name)
		}
	}
	t, err := compileTree(s.Body.v, where)
	c.try(path+".body", err)
	out.body = t
}

// spliced refuses a GraphQL document in a json body that has values in it.
func (c *compiler) spliced(path string, body tree) {
	query := body.members["query"].leaf
	if len(query) < 2 {
		return
	}
	for _, begin := range []string{"{", "query", "mutation"} {
		if strings.HasPrefix(strings.TrimSpace(query[0].text), begin) {
			c.refuse(path, "values must not be spliced into a query: use encoding graphql and variables")
			return
		}
	}
}

func (c *compiler) action(f *File, name string, s actionSpec, path string) *action {
	a := &action{name: name}
	class := word(c, path+".class", s.Class, operation.ClassKey, operation.ClassClientID,
		operation.ClassUpsert, operation.ClassLabel, operation.ClassNone)
	a.request = c.request(path+".request", s.Request, inRequest(), inHeader(), false)
	a.key = c.key(path+".key", s.Key, class, s.Request.Method)
	if a.key != nil && a.key.in == keyInHeader {
		if _, twice := a.request.headers[a.key.name]; twice || a.key.name == c.authHeader() {
			c.refuse(path+".key.name", "header %s is given twice", a.key.name)
		}
		a.request.headers[a.key.name] = a.key.value
	}
	a.errorCode, a.hasErrorCode = c.pointer(path+".error_code", s.ErrorCode), s.ErrorCode != ""
	a.outcomes = c.outcomes(path+".outcomes", s.Outcomes)
	a.redact = c.pointers(path+".result.redact", s.Result.Redact)
	a.sensitive = append(c.pointers(path+".args.secret", s.Args.Secret), c.pointers(path+".args.personal", s.Args.Personal)...)
	a.scope, a.scoped = c.template(path+".scope", s.Scope, inScope()), s.Scope != ""
	a.lookups = c.lookups(path+".lookups", s.Lookups)
	for i, l := range a.lookups {
		a.lookups[i].confirms = a.confirms(l)
	}
	a.limits = Limits{Concurrency: s.Limits.Concurrency, Requests: s.Limits.Rate.n, Per: s.Limits.Rate.per}
	if s.Limits.Concurrency < 0 {
		c.refuse(path+".limits.concurrency", "must not be negative")
	}
	a.honourRetryAfter = s.Retry.Honour == nil
	if s.Retry.Honour != nil {
		for _, h := range *s.Retry.Honour {
			word(c, path+".retry.honour", h, "Retry-After")
			a.honourRetryAfter = true
		}
	}
	a.schema, a.schemaDoc = c.schema(path+".args.schema", s.Args.Schema)
	a.onUnknown = c.onUnknown(path+".on_unknown", s.OnUnknown)
	a.contract = c.contract(f, a, class, s, path)
	for i, l := range a.lookups {
		a.lookups[i].byID = a.byID(l)
	}
	return a
}

// key compiles the place of the key. Without methods, a key in a header (K1) is
// one that the provider honours for POST, as nearly all do; another key is part
// of the request itself.
func (c *compiler) key(path string, s *keySpec, class operation.Class, method string) *keyTemplate {
	if s == nil {
		return nil
	}
	k := &keyTemplate{
		in:     word(c, path+".in", s.In, keyInHeader, keyInBody, keyInPath),
		name:   s.Name,
		value:  c.template(path+".value", s.Value, inKey()),
		maxLen: s.MaxLen, methods: s.Methods,
	}
	if k.in == keyInHeader {
		k.name = c.header(path+".name", s.Name)
	}
	for i, m := range s.Methods {
		word(c, path+".methods["+strconv.Itoa(i)+"]", m, httpMethods()...)
	}
	if s.Methods == nil {
		k.methods = []string{method}
		if k.in == keyInHeader && class == operation.ClassKey {
			k.methods = []string{http.MethodPost}
		}
	}
	if s.MaxLen < 0 {
		c.refuse(path+".max_len", "must not be negative")
	}
	return k
}

func (c *compiler) onUnknown(path string, choices []string) []events.OnUnknown {
	out := []events.OnUnknown{events.OnUnknownContract, events.OnUnknownReview}
	for i, choice := range choices {
		v := word(c, path+"["+strconv.Itoa(i)+"]", choice, events.OnUnknowns()...)
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// The words of uniqueness.
const (
	uniqueStrict = "strict"
	uniqueWeak   = "weak"
)

func (c *compiler) contract(f *File, a *action, class operation.Class, s actionSpec, path string) operation.Contract {
	keyed := (class == operation.ClassKey || class == operation.ClassClientID) && a.key != nil ||
		class == operation.ClassUpsert && s.Retry.Retention.word == wordForever
	weak := word(c, path+".uniqueness", s.Uniqueness, "", uniqueStrict, uniqueWeak) == uniqueWeak
	out := operation.Contract{
		Provider: f.Provider, Action: a.name, Class: class, Proof: f.Proof,
		KeySupported: keyed, Margin: s.Retry.Margin.d, UniqueWeak: weak, VerifyShare: s.Verify, SideObjects: s.Side, Scoped: a.scoped,
		ConcurrentSafe: s.Timing.ConcurrentSafe,
		Total:          s.Timing.Total.d, LateApply: s.Timing.LateApply.d,
		MaxAttempts: max(s.Retry.MaxAttempts, 1), Deadline: s.Retry.Deadline.d,
		Backoff: operation.Backoff{
			First: s.Retry.Backoff.First.d, Factor: s.Retry.Backoff.Factor,
			Max: s.Retry.Backoff.Max.d, Jitter: s.Retry.Backoff.Jitter,
		},
		Absence: operation.Absence{
			Provable: s.Absence.Provable, Settle: s.Absence.Settle.d,
			EmptyReads: s.Absence.EmptyReads, Spacing: s.Absence.Spacing.d,
		},
		IgnoredArgs:      c.ignored(path+".args.ignore", a, s.Args.Ignore),
		RiskAllowed:      slices.Contains(a.onUnknown, events.OnUnknownRisk),
		ApprovalRequired: s.Approval.Required, ApprovalDeadline: s.Approval.Deadline.d,
	}
	if keyed {
		out.Retention = s.Retry.Retention.d
	}
	for _, l := range a.lookups {
		if !l.confirms {
			continue
		}
		out.Lookup.Available = true
		out.Lookup.Lag = max(out.Lookup.Lag, l.lag)
		if out.Lookup.Name == "" {
			out.Lookup.Name, out.Lookup.Schedule = l.name, l.schedule
		}
	}
	b := s.Retry.Backoff
	if b.Factor != 0 && (b.Factor < 1 || b.Factor > 100) || b.Jitter < 0 || b.Jitter > 1 {
		c.refuse(path+".retry.backoff", "factor must be from 1 to 100 and jitter from 0 to 1")
	}
	if s.Retry.Clock != "" && s.Retry.Clock != "first_send" {
		c.refuse(path+".retry.clock", "must be first_send")
	}
	if n := s.Retry.MaxAttempts; n < 0 || n > maxRequests {
		c.refuse(path+".retry.max_attempts", "must be from 1 to %d", maxRequests)
	}
	return out
}
