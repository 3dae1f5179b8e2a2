package providers

import (
	"crypto/tls"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Bounds of a contract.
const (
	maxActions  = 256
	maxOutcomes = 128
	maxLookups  = 8
	maxSchedule = 64
	maxRequests = 100 // attempts that a contract may allow
)

// Parse reads, compiles and judges a contract file. The name stands in errors
// and, without ".yaml", becomes the file's name. Every fault is a [LoadError]
// with file, line and field; what can't be safe is refused (P4).
func Parse(name string, data []byte) (*File, error) {
	d := &decoder{file: name, lines: make(map[string]int)}
	var spec fileSpec
	if err := d.document(data, &spec); err != nil {
		return nil, err
	}
	c := &compiler{d: d, spec: &spec}
	short := strings.TrimSuffix(strings.TrimSuffix(name, ".yaml"), ".yml")
	f := c.file(short[strings.LastIndexByte(short, '/')+1:])
	f.data, f.digest = slices.Clone(data), digestOf(data)
	for _, name := range f.Actions() {
		f.actions[name].contract.Digest = f.digest
		c.lint(f, f.actions[name], spec.Actions[name], "actions["+name+"]")
	}
	if err := errors.Join(c.faults...); err != nil {
		return nil, err
	}
	return f, nil
}

// compiler turns the spec into a File and collects every fault on the way.
type compiler struct {
	d      *decoder
	spec   *fileSpec
	faults []error
}

// refuse notes a fault at a path.
func (c *compiler) refuse(path, format string, args ...any) {
	const enough = 20
	if len(c.faults) < enough {
		c.faults = append(c.faults, c.d.at(path, format, args...))
	}
}

func (c *compiler) try(path string, err error) {
	if err != nil {
		c.refuse(path, "%s", err)
	}
}

func (c *compiler) template(path, text string, where place) template {
	t, err := compile(text, where)
	c.try(path, err)
	return t
}

func (c *compiler) pointer(path, text string) pointer {
	p, err := parsePointer(text)
	c.try(path, err)
	return p
}

func (c *compiler) pointers(path string, texts []string) []pointer {
	var out []pointer
	for i, text := range texts {
		out = append(out, c.pointer(path+"["+strconv.Itoa(i)+"]", text))
	}
	return out
}

func (c *compiler) header(path, name string) string {
	canon, ok := canonical(name)
	if !ok || ownHeader(canon) {
		c.refuse(path, "%q is no header that a contract may use", clip(name))
	}
	return canon
}

// word checks a value against a closed list.
func word[T ~string](c *compiler, path, value string, allowed ...T) T {
	if !slices.Contains(allowed, T(value)) {
		c.refuse(path, "must be one of %v, not %q", allowed, clip(value))
	}
	return T(value)
}

func (c *compiler) file(name string) *File {
	s := c.spec
	if s.Contract != formatV1 {
		c.refuse("contract", "must be %s", formatV1)
	}
	c.try("provider", events.CheckID("provider", s.Provider))
	if s.APIVersion == "" {
		c.refuse("api_version", "is missing")
	}
	if s.Revision < 1 {
		c.refuse("revision", "must be 1 or more")
	}
	proof := word(c, "proof", s.Proof, operation.ProofDocumented, operation.ProofVerifiedLive, operation.ProofAssumed)
	if proof != operation.ProofAssumed && len(s.Cite) == 0 {
		c.refuse("cite", "a promise that is %s needs a source", proof)
	}
	f := &File{
		Name: name, Provider: s.Provider, APIVersion: s.APIVersion, Revision: s.Revision,
		Proof: proof, Cite: s.Cite, conn: c.connection(), actions: make(map[string]*action),
	}
	if len(s.Actions) == 0 || len(s.Actions) > maxActions {
		c.refuse("actions", "there must be 1 to %d actions", maxActions)
		return f
	}
	for _, name := range slices.Sorted(maps.Keys(s.Actions)) {
		c.try("actions["+name+"]", events.CheckAction(name))
		f.actions[name] = c.action(f, name, s.Actions[name], "actions["+name+"]")
	}
	return f
}

func (c *compiler) connection() connection {
	s := c.spec.Connection
	out := connection{
		baseURL:       c.template("connection.base_url", s.BaseURL, inConnection()),
		allowLoopback: s.AllowLoopback,
		minTLS:        tls.VersionTLS12,
	}
	if s.BaseURL == "" {
		c.refuse("connection.base_url", "is missing")
	}
	if text, err := (scope{}).text(out.baseURL); err == nil {
		_, err := checkBaseURL(text)
		c.try("connection.base_url", err)
	}
	switch s.TLS.MinVersion {
	case "", "1.2":
	case "1.3":
		out.minTLS = tls.VersionTLS13
	default:
		c.refuse("connection.tls.min_version", `must be "1.2" or "1.3"`)
	}
	if s.Auth != nil {
		out.authHeader = c.header("connection.auth.header", s.Auth.Header)
		out.authValue = c.template("connection.auth.value", s.Auth.Value, inConnectionHeader())
		if len(out.authValue) == 0 {
			c.refuse("connection.auth.value", "is missing")
		}
	}
	if s.RequestIDHeader != "" {
		out.requestIDHeader = c.header("connection.request_id_header", s.RequestIDHeader)
	}
	if p := s.AccountProbe; p != nil {
		path := "connection.account_probe"
		out.probe = &probe{
			request: c.request(path+".request", p.Request, inConnection(), inConnectionHeader(), true),
			account: c.pointer(path+".account", p.Account),
			cache:   p.Cache.d,
		}
		if p.Account == "" {
			c.refuse(path+".account", "must say where the account's id is")
		}
	}
	return out
}

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
	for _, p := range t {
		if strings.ContainsAny(p.text, "?#\\ \t\r\n\x00") {
			c.refuse(at, "must be an escaped path without a query")
		}
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
			c.refuse(path+".encoding", "a body needs the encoding json or form")
		}
	default:
		word(c, path+".encoding", s.Encoding, encodingJSON, encodingForm, encodingNone)
	}
}

func (c *compiler) action(f *File, name string, s actionSpec, path string) *action {
	a := &action{name: name}
	class := word(c, path+".class", s.Class, operation.ClassKey, operation.ClassClientID,
		operation.ClassUpsert, operation.ClassLabel, operation.ClassNone)
	a.request = c.request(path+".request", s.Request, inRequest(), inHeader(), false)
	a.key = c.key(path+".key", s.Key)
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
	a.lookups = c.lookups(path+".lookups", s.Lookups)
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
	return a
}

func (c *compiler) key(path string, s *keySpec) *keyTemplate {
	if s == nil {
		return nil
	}
	k := &keyTemplate{
		in:     word(c, path+".in", s.In, keyInHeader, keyInBody, keyInPath),
		name:   s.Name,
		value:  c.template(path+".value", s.Value, inKey()),
		maxLen: s.MaxLen,
	}
	if k.in == keyInHeader {
		k.name = c.header(path+".name", s.Name)
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

func (c *compiler) contract(f *File, a *action, class operation.Class, s actionSpec, path string) operation.Contract {
	keyed := class == operation.ClassKey || class == operation.ClassClientID
	out := operation.Contract{
		Provider: f.Provider, Action: a.name, Class: class, Proof: f.Proof,
		KeySupported: keyed && a.key != nil, Margin: s.Retry.Margin.d,
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
		RiskAllowed:      slices.Contains(a.onUnknown, events.OnUnknownRisk),
		ApprovalRequired: s.Approval.Required, ApprovalDeadline: s.Approval.Deadline.d,
	}
	if keyed {
		out.Retention = s.Retry.Retention.d
	}
	for _, l := range a.lookups {
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

func (c *compiler) outcomes(path string, specs []outcomeSpec) []rule {
	if len(specs) > maxOutcomes {
		c.refuse(path, "%d rules, the limit is %d", len(specs), maxOutcomes)
	}
	out := make([]rule, 0, len(specs))
	words := slices.DeleteFunc(operation.OutcomeWords(), func(w operation.OutcomeWord) bool {
		return w == operation.OutcomeNotSent // proven by the transport, never by an answer
	})
	for i, s := range specs {
		at := path + "[" + strconv.Itoa(i) + "]"
		r := rule{word: word(c, at+".is", s.Is, words...), status: s.Status, final: s.Final}
		if len(s.Status) == 0 {
			c.refuse(at+".status", "is missing")
		}
		r.header = c.conditions(at+".header", s.Header, inRule(), true)
		r.body = c.conditions(at+".body", s.Body, inRule(), false)
		if s.Answers != "" {
			word(c, at+".answers", s.Answers, "key")
			r.answersKey = true
		}
		if s.ExternalID != "" {
			r.externalID = c.externalID(at+".external_id", s.ExternalID)
		}
		out = append(out, r)
	}
	return out
}

func (c *compiler) externalID(path, text string) externalID {
	if strings.HasPrefix(text, "/") {
		return externalID{at: c.pointer(path, text), given: true}
	}
	t := c.template(path, text, inRule())
	if !t.own() {
		c.refuse(path, "must be a JSON pointer, or a template with the operation's own id")
	}
	return externalID{own: t, given: true}
}

func (c *compiler) conditions(path string, specs []conditionSpec, where place, inHeader bool) []condition {
	var out []condition
	for i, s := range specs {
		at := path + "[" + strconv.Itoa(i) + "]"
		cond := c.condition(at, s, where)
		switch {
		case inHeader && (s.At != nil || s.Name == ""):
			c.refuse(at, "a header condition has a name, and no at")
		case inHeader:
			cond.header = c.header(at+".name", s.Name)
		case s.At == nil || s.Name != "":
			c.refuse(at, "a body condition has at, and no name")
		default:
			cond.at = c.pointer(at+".at", *s.At)
		}
		if s.Soft && !where.optional {
			c.refuse(at+".soft", "only a match rule can be soft")
		}
		out = append(out, cond)
	}
	return out
}

func (c *compiler) condition(at string, s conditionSpec, where place) condition {
	cond := condition{soft: s.Soft}
	var want any
	n := 0
	set := func(present bool, t test, v any) {
		if present {
			cond.test, want = t, v
			n++
		}
	}
	set(s.Equals.set, testEquals, s.Equals.v)
	set(s.Prefix != nil, testPrefix, deref(s.Prefix))
	set(s.Contains != nil, testContains, deref(s.Contains))
	set(s.Exists != nil, testExists, nil)
	set(s.Absent != nil, testAbsent, nil)
	if n != 1 {
		c.refuse(at, "must have exactly one of equals, prefix, contains, exists, absent")
	}
	if s.Exists != nil && !*s.Exists {
		cond.test = testAbsent
	}
	if s.Absent != nil && !*s.Absent {
		cond.test = testExists
	}
	if (cond.test == testPrefix || cond.test == testContains) && want == "" {
		c.refuse(at, "must not be empty: it would always match")
	}
	if cond.test == testEquals && want == nil {
		c.refuse(at, "null can't be compared: use absent")
	}
	t, err := compileTree(want, where)
	c.try(at, err)
	cond.want = t
	return cond
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (c *compiler) lookups(path string, specs []lookupSpec) []lookup {
	if len(specs) > maxLookups {
		c.refuse(path, "%d lookups, the limit is %d", len(specs), maxLookups)
	}
	out := make([]lookup, 0, len(specs))
	for i, s := range specs {
		out = append(out, c.lookup(path+"["+strconv.Itoa(i)+"]", s))
	}
	return out
}

func (c *compiler) lookup(at string, s lookupSpec) lookup {
	l := lookup{
		name:        s.Name,
		request:     c.request(at+".request", s.Request, inLookup(), inLookupHeader(), true),
		consistency: word(c, at+".consistency", s.Consistency, consistencyDirect, consistencyEventual, consistencyFulltext),
		lag:         s.Lag.d, skew: s.Skew.d,
		items:      c.pointer(at+".items", s.Items),
		match:      c.conditions(at+".match", s.Match, inMatch(), false),
		externalID: c.pointer(at+".external_id", s.ExternalID),
		createdAt:  c.pointer(at+".created_at", s.CreatedAt), hasCreatedAt: s.CreatedAt != "",
	}
	c.try(at+".name", events.CheckID("lookup", s.Name))
	if s.ExternalID == "" {
		c.refuse(at+".external_id", "is missing")
	}
	if len(s.Schedule) > maxSchedule {
		c.refuse(at+".schedule", "%d looks, the limit is %d", len(s.Schedule), maxSchedule)
	}
	for _, d := range s.Schedule {
		l.schedule = append(l.schedule, d.d)
	}
	if p := s.Paging; p != nil {
		l.paging = &paging{next: c.pointer(at+".paging.next", p.Next), param: p.Param, max: p.Max}
		if p.Next == "" || p.Param == "" || p.Max < 1 || p.Max > maxPages {
			c.refuse(at+".paging", "needs next, param and max from 1 to %d", maxPages)
		}
	}
	return l
}

// ErrUnknownAction is returned for an action that no contract describes.
var ErrUnknownAction = errors.New("providers: unknown action")
