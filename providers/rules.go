package providers

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// test is what a condition asks of a value.
type test string

// The tests.
const (
	testEquals   test = "equals"
	testPrefix   test = "prefix"
	testContains test = "contains"
	testExists   test = "exists"
	testAbsent   test = "absent"
)

// condition is one test over a header or over the values of a pointer.
type condition struct {
	header string
	at     pointer
	test   test
	want   tree
	// soft conditions are evidence for a person; they never confirm.
	soft bool
}

// rule is one line of the outcomes: the first that matches gives the word.
type rule struct {
	word       operation.OutcomeWord
	status     statusSet
	header     []condition
	body       []condition
	externalID externalID
	final      bool
	answersKey bool
}

// externalID is where the id of the object stands: in the answer, or in the
// request where the client chose it.
type externalID struct {
	at    pointer
	own   template
	given bool
}

// idle reports whether the condition compares with an optional argument that
// is missing: it then says nothing.
func (c condition) idle(s scope) bool {
	r, whole := c.want.leaf.whole()
	if !whole || !r.optional {
		return false
	}
	_, err := s.value(r)
	return err != nil
}

// holds evaluates the condition over a document.
func (c condition) holds(s scope, doc any) (bool, error) {
	return c.among(s, c.at.find(doc))
}

func (c condition) inHeader(s scope, h http.Header) (bool, error) {
	var found []any
	for _, v := range h.Values(c.header) {
		found = append(found, v)
	}
	return c.among(s, found)
}

func (c condition) among(s scope, found []any) (bool, error) {
	switch c.test {
	case testExists:
		return len(found) > 0, nil
	case testAbsent:
		return len(found) == 0, nil
	case testEquals, testPrefix, testContains:
	}
	want, ok, err := s.render(c.want)
	if err != nil || !ok {
		return false, err
	}
	for _, v := range found {
		if c.compare(v, want) {
			return true, nil
		}
	}
	return false, nil
}

func (c condition) compare(got, want any) bool {
	if c.test == testEquals {
		return equalValues(got, want, len(c.want.refs()) > 0)
	}
	g, ok := got.(string)
	w, isText := asText(want)
	if !ok || !isText || w == "" {
		return false // everything contains the empty text: that proves nothing
	}
	if c.test == testPrefix {
		return strings.HasPrefix(g, w)
	}
	return strings.Contains(g, w)
}

// equalValues compares two JSON values. A value that comes from a template may
// stand as text on one side and as number on the other.
func equalValues(got, want any, loose bool) bool {
	g, gNumber := got.(json.Number)
	w, wNumber := want.(json.Number)
	if gNumber && wNumber {
		return equalNumbers(g, w)
	}
	a, aScalar := asText(got)
	b, bScalar := asText(want)
	switch {
	case aScalar && bScalar && (loose || sameType(got, want)):
		return a == b
	case aScalar || bScalar:
		return false
	}
	x, errX := encodeJSON(got)
	y, errY := encodeJSON(want)
	return errX == nil && errY == nil && string(x) == string(y)
}

func sameType(a, b any) bool {
	_, aText := a.(string)
	_, bText := b.(string)
	_, aBool := a.(bool)
	_, bBool := b.(bool)
	return aText == bText && aBool == bBool
}

func equalNumbers(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, errX := a.Float64()
	y, errY := b.Float64()
	const exact = 1 << 53
	return errX == nil && errY == nil && x == y && math.Abs(x) < exact
}

// answer is what came back, whole.
type answer struct {
	status int
	header http.Header
	body   []byte
	doc    any
	docErr error // the body is not JSON
}

// newAnswer reads the body as JSON, if it is.
func newAnswer(status int, h http.Header, body []byte) answer {
	a := answer{status: status, header: h, body: body}
	a.doc, a.docErr = decodeJSON(body)
	return a
}

var errUnreadable = errors.New("providers: a rule asks for the body and it is not JSON")

func (r rule) matches(s scope, a answer) (bool, error) {
	if !r.status.has(a.status) {
		return false, nil
	}
	for _, c := range r.header {
		if ok, err := c.inHeader(s, a.header); err != nil || !ok {
			return false, err
		}
	}
	if len(r.body) > 0 && a.docErr != nil {
		return false, errUnreadable
	}
	for _, c := range r.body {
		if ok, err := c.holds(s, a.doc); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// judge says what an answer means. The first rule that matches decides; no
// match, and any trouble on the way, is uncertain (P3).
func (a *action) judge(s scope, ans answer) operation.Outcome {
	reason := a.reason(s, ans)
	for _, r := range a.outcomes {
		ok, err := r.matches(s, ans)
		if err != nil {
			return uncertain(ans.status, reason+", a rule could not be evaluated")
		}
		if ok {
			return r.outcome(s, ans, reason)
		}
	}
	return uncertain(ans.status, reason+", no rule of the contract matches")
}

func (r rule) outcome(s scope, ans answer, reason string) operation.Outcome {
	o := operation.Outcome{Word: r.word, Reason: reason, Final: r.final, AnswersKey: r.answersKey}
	switch r.word {
	case operation.OutcomeUncertain:
		u := uncertain(ans.status, reason)
		o.Unknown = u.Unknown
	case operation.OutcomeSuccess:
		if r.externalID.at != nil && ans.docErr != nil {
			return uncertain(ans.status, reason+", the answer is not JSON")
		}
		id, ok := r.externalID.from(s, ans.doc)
		if !ok {
			o.Word, o.Unknown = operation.OutcomeUnidentified, events.UnknownUnidentified
			o.Reason += ", the answer names no object"
			return o
		}
		o.ExternalID = id
	case operation.OutcomeExists:
		o.Unknown = events.UnknownExists
	case operation.OutcomeMismatch:
		o.Unknown = events.UnknownMismatch
	case operation.OutcomeBusy:
		o.Unknown = events.UnknownBusy
	case operation.OutcomeUnidentified:
		o.Unknown = events.UnknownUnidentified
	case operation.OutcomeRejected, operation.OutcomeNotApplied, operation.OutcomeNotSent:
	}
	return o
}

func uncertain(status int, reason string) operation.Outcome {
	o := operation.Outcome{Word: operation.OutcomeUncertain, Unknown: events.UnknownUnreadable, Reason: reason}
	if status >= 500 {
		o.Unknown = events.UnknownServerError
	}
	return o
}

// from returns the object's id.
func (e externalID) from(s scope, doc any) (string, bool) {
	if !e.given {
		return "", false
	}
	if e.at == nil {
		id, err := s.text(e.own)
		return id, err == nil && validID(id)
	}
	v, ok := e.at.first(doc)
	if !ok {
		return "", false
	}
	return idText(v)
}

// idText accepts texts and whole numbers.
func idText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, validID(v)
	case json.Number:
		return v.String(), !strings.ContainsAny(v.String(), ".eE")
	}
	return "", false
}

// MaxExternalID is the longest id of an outside object, in bytes.
const MaxExternalID = 512

func validID(id string) bool {
	return id != "" && len(id) <= MaxExternalID && safeHeader(id)
}

// reason describes an answer without its content: its status and, where it
// looks like one, the provider's error code.
func (a *action) reason(s scope, ans answer) string {
	reason := "status " + strconv.Itoa(ans.status)
	if !a.hasErrorCode || ans.docErr != nil {
		return reason
	}
	v, _ := a.errorCode.first(ans.doc)
	if code, ok := asText(v); ok && codeForm(code) && a.scrubber(s).text(code) == code {
		return reason + " " + code
	}
	return reason
}

// codeForm tells a code from prose, which could hold arguments.
func codeForm(code string) bool {
	if len(code) == 0 || len(code) > 64 {
		return false
	}
	for _, c := range code {
		if c != '_' && c != '-' && c != '.' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// maxRetryAfter bounds what a provider can ask for.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads Retry-After as seconds or as a date. A date is compared with
// the provider's own clock where the answer shows it.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		n = min(max(n, 0), int64(maxRetryAfter/time.Second))
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// maxRequestID is the longest provider's id of a request.
const maxRequestID = 128

// requestID returns the provider's own id of the request, if it has a form that
// may be logged.
func requestID(h http.Header, name string, cred credential) string {
	id := h.Get(name)
	if name == "" || len(id) > maxRequestID || !safeHeader(id) || cred.repeatedIn(id) {
		return ""
	}
	return id
}

func errNoAction(provider, action string) error {
	return fmt.Errorf("%w: provider %s has no action %s", ErrUnknownAction, provider, action)
}
