package providers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// The encodings of a body.
const (
	encodingJSON    = "json"
	encodingForm    = "form"
	encodingGraphQL = "graphql" // a JSON body of query and variables
	encodingNone    = "none"
)

// MaxRequestBytes is the largest body of a request.
const MaxRequestBytes = 1 << 20

// The headers below are part of every request digest. Changing them changes the
// digest of requests whose first attempt is already journaled, and sends those
// operations to review: don't.
const (
	userAgent  = "opledger"
	acceptJSON = "application/json"
)

// requestTemplate is a request of a contract.
type requestTemplate struct {
	method   string
	path     template
	query    map[string]template
	headers  map[string]template // by canonical name
	encoding string
	body     tree
	form     map[string]tree
}

// keyTemplate is where the operation's key goes. In body and in path it is
// already part of the request's template; the contract only names the place.
type keyTemplate struct {
	in      string
	name    string
	value   template
	maxLen  int
	methods []string
}

// The places of a key.
const (
	keyInHeader = "header"
	keyInBody   = "body"
	keyInPath   = "path"
)

func (r requestTemplate) refs() []ref {
	out := append(r.path.refs(), r.body.refs()...)
	for _, t := range r.query {
		out = append(out, t.refs()...)
	}
	for _, t := range r.headers {
		out = append(out, t.refs()...)
	}
	for _, t := range r.form {
		out = append(out, t.refs()...)
	}
	return out
}

// header is a rendered header; its secrets are still references.
type header struct {
	name  string
	value []piece
}

// rendered is a request before it is on the wire.
type rendered struct {
	method  string
	url     *url.URL
	headers []header // sorted by name
	body    []byte
	graphql bool
}

// render builds the request.
func (r requestTemplate) render(s scope, base *url.URL) (rendered, error) {
	path, err := s.escapedPath(r.path)
	if err != nil {
		return rendered{}, err
	}
	out := rendered{method: r.method, graphql: r.encoding == encodingGraphQL}
	if out.url, err = under(base, path); err != nil {
		return rendered{}, err
	}
	query := url.Values{}
	for name, t := range r.query {
		v, ok, err := s.optionalText(t)
		if err != nil {
			return rendered{}, err
		}
		if ok {
			query.Set(name, v)
		}
	}
	out.url.RawQuery = query.Encode()
	set := map[string][]piece{"User-Agent": {{text: userAgent}}, "Accept": {{text: acceptJSON}}}
	var contentType string
	if out.body, contentType, err = r.renderBody(s); err != nil {
		return rendered{}, err
	}
	if contentType != "" {
		set["Content-Type"] = []piece{{text: contentType}}
	}
	for name, t := range r.headers {
		_, ok, err := s.optionalText(t)
		if err != nil {
			return rendered{}, err
		}
		if ok {
			set[name], _ = s.pieces(t) // it has just been rendered
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !safeHeader(showPieces(set[name])) {
			return rendered{}, fmt.Errorf("providers: header %s has a control character", name)
		}
		out.headers = append(out.headers, header{name, set[name]})
	}
	return out, nil
}

// under puts an escaped path under the base URL. Neither host nor scheme can
// change by it.
func under(base *url.URL, path string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSuffix(base.String(), "/") + path)
	if err != nil || u.Host != base.Host || u.Scheme != base.Scheme || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || u.ForceQuery {
		return nil, errors.New("providers: the path does not stay under the base URL")
	}
	return u, nil
}

func (r requestTemplate) renderBody(s scope) (body []byte, contentType string, err error) {
	switch r.encoding {
	case encodingJSON, encodingGraphQL:
		v, _, err := s.render(r.body)
		if err != nil {
			return nil, "", err
		}
		body, err = encodeJSON(v)
		if err != nil {
			return nil, "", err
		}
		contentType = "application/json"
	case encodingForm:
		form := url.Values{}
		for name, t := range r.form {
			v, ok, err := s.render(t)
			if err != nil {
				return nil, "", err
			}
			text, scalar := asText(v)
			if ok && !scalar {
				return nil, "", fmt.Errorf("providers: the form member %q is null, an object or a list", name)
			}
			if ok {
				form.Set(name, text)
			}
		}
		body, contentType = []byte(form.Encode()), "application/x-www-form-urlencoded"
	case encodingNone:
	}
	if len(body) > MaxRequestBytes {
		return nil, "", fmt.Errorf("providers: the body has %d bytes, the limit is %d", len(body), MaxRequestBytes)
	}
	return body, contentType, nil
}

// safeHeader refuses what could end a header or split the request.
func safeHeader(value string) bool {
	for i := range len(value) {
		if c := value[i]; (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}

// undigested lists the headers that a request digest leaves out: credentials,
// date and trace.
func undigested(name, authHeader string) bool {
	switch name {
	case authHeader, "Authorization", "Proxy-Authorization", "Cookie",
		"Date", "Traceparent", "Tracestate", "Baggage":
		return true
	}
	return false
}

// digest covers method, URL, body and all headers but credentials, date and
// trace. Secrets stand as references.
func (r rendered) digest(authHeader string) string {
	b := make([]byte, 0, len(r.body)+usualHead)
	field := func(s string) { b = appendField(b, s) }
	field("opledger-request-v1")
	field(r.method)
	field(r.url.String())
	for _, hd := range r.headers {
		if !undigested(hd.name, authHeader) {
			field(hd.name)
			field(showPieces(hd.value))
		}
	}
	field("")
	field(string(r.body))
	return digestOf(b)
}

// usualHead is room for all of most requests but the body.
const usualHead = 512

// appendField adds a text with its length, so that no two lists of texts give
// the same bytes.
func appendField(b []byte, s string) []byte {
	b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
	return append(append(b, s...), '\n')
}

func writeField(h hash.Hash, s string) {
	_, _ = h.Write(appendField(nil, s)) // a hash takes everything
}

// Request is one rendered request. It is sent at most once. It never shows
// itself in a log; see [Request.Redacted].
type Request struct {
	// Digest covers method, URL, body and all headers but credentials, date and
	// trace; it is the same for every attempt of an operation.
	Digest string
	// AttemptID names the attempt that sends the request, for an adapter whose
	// other end repeats it in its answer. The executor sets it before Do; it is
	// never part of what the digest covers (I17).
	AttemptID string

	rendered
	shown   Redacted // empty if all that is rendered may be shown
	owner   Adapter
	content any
	account *account
	action  *action
	bound   string // the provider's own id of the account, as the intent has it
	scope   scope
	used    atomic.Bool
	alive   atomic.Pointer[time.Time]
}

// NewRequest makes the request of an adapter of your own. The digest covers all
// that is sent, shown is what a person may see of it, and content comes back
// from [Request.Take].
func NewRequest(owner Adapter, digest string, shown Redacted, content any) *Request {
	return &Request{Digest: digest, shown: shown, owner: owner, content: content}
}

// Take hands the content to its owner, once. After that, and to another adapter,
// it reports false: a request is sent at most once.
func (r *Request) Take(owner Adapter) (content any, ok bool) {
	if r == nil || r.owner != owner || r.used.Swap(true) {
		return nil, false
	}
	return r.content, true
}

// Alive notes a sign of life from the other end while the request is under way.
// It prolongs nothing and proves nothing.
func (r *Request) Alive(at time.Time) { r.alive.Store(&at) }

// LastAlive returns when the last sign of life came, or zero.
func (r *Request) LastAlive() time.Time {
	if at := r.alive.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Redacted is a request as it may be shown to a person who decides about it:
// secrets stand as references, secret and personal arguments as "***".
type Redacted struct {
	Method string            `json:"method"`
	URL    string            `json:"url"`
	Header map[string]string `json:"header"`
	Body   string            `json:"body,omitempty"`
}

// Redacted returns the request for showing.
func (r *Request) Redacted() Redacted {
	out := r.shown
	if r.url != nil && out.Method == "" {
		out = r.show()
	}
	out.Header = maps.Clone(out.Header)
	return out
}

// String shows method and digest only.
func (r *Request) String() string { return r.verb() + " request " + r.Digest }

func (r *Request) verb() string { return cmp.Or(r.method, r.shown.Method) }

// Format shows method and digest only, whatever the verb.
func (r *Request) Format(f fmt.State, _ rune) { fmt.Fprint(f, r.String()) }

// LogValue shows method and digest only.
func (r *Request) LogValue() slog.Value { return slog.StringValue(r.String()) }

// MarshalJSON shows method and digest only.
func (r *Request) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"method": r.verb(), "request_digest": r.Digest})
}

func (r rendered) show() Redacted {
	out := Redacted{Method: r.method, URL: r.url.String(), Body: string(r.body), Header: make(map[string]string)}
	for _, h := range r.headers {
		out.Header[h.name] = showPieces(h.value)
	}
	return out
}

// canonical returns the canonical form of a header name, if it is one.
func canonical(name string) (string, bool) {
	for _, c := range name {
		if !strings.ContainsRune("!#$%&'*+-.^_`|~", c) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return "", false
		}
	}
	return textproto.CanonicalMIMEHeaderKey(name), name != ""
}

// ownHeader reports a header that the transport alone may write.
func ownHeader(name string) bool {
	switch name {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Expect", "Te",
		"Trailer", "Upgrade", "Accept-Encoding", "Cookie", "Set-Cookie":
		return true
	}
	return strings.HasPrefix(name, "Proxy-")
}

// httpMethods lists the methods that a template may use.
func httpMethods() []string {
	return []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
}
