package events

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// scan reads a body that has exactly the form that Encode gives it: the same
// members in the same order, without white space, texts without escapes. Of
// anything else it says nothing (ok is false), and Decode reads it with
// encoding/json. So it decides nothing about what is an event; it is only faster,
// because it looks at each byte once.
func scan(body []byte) (e Event, ok bool) {
	s := scanner{b: body}
	s.word(`{"specversion":"` + SpecVersion + `"`)
	text(&s, "id", &e.ID)
	text(&s, "source", &e.Ledger)
	var kind []byte
	if s.member("type") {
		kind = s.plain()
	}
	text(&s, "subject", &e.Operation)
	s.moment("time", &e.Time)
	s.word(`,"datacontenttype":"application/json"`)
	text(&s, "tenantid", &e.Tenant)
	text(&s, "traceparent", &e.Traceparent)
	s.word(`,"data":`)
	s.open()
	same := s.same("event_id", e.ID) && s.same("operation_id", e.Operation) && s.same("tenant", e.Tenant)
	number(&s, "version", &e.Version)
	text(&s, "prev", &e.Prev)
	text(&s, "actor", &e.Actor)
	if s.bad || !same || !bytes.HasPrefix(kind, []byte(TypePrefix)) {
		return Event{}, false
	}
	e.Data = s.payload(Kind(kind[len(TypePrefix):]))
	s.end()
	s.end()
	if s.bad || s.i != len(body) || !strings.HasPrefix(e.Ledger, ledgerSource) || e.Data == nil {
		return Event{}, false
	}
	e.Ledger = e.Ledger[len(ledgerSource):]
	return e, e.check() == nil
}

// payload reads the rest of data. The kinds that need a person are left out: they
// are rare.
func (s *scanner) payload(kind Kind) Payload {
	switch kind { //nolint:exhaustive // see above
	case KindIntentRecorded:
		return s.intentRecorded()
	case KindAttemptStarted:
		return s.attemptStarted()
	case KindAttemptNotApplied:
		return s.attemptNotApplied()
	case KindOutcomeUnknown:
		return s.outcomeUnknown()
	case KindEvidenceRecorded:
		return s.evidenceRecorded()
	case KindRetryPermitted:
		return s.retryPermitted()
	case KindReviewOpened:
		return s.reviewOpened()
	case KindResultConfirmed:
		return s.resultConfirmed()
	case KindRejected:
		return s.rejected()
	}
	s.bad = true
	return nil
}

func (s *scanner) intentRecorded() (p IntentRecorded) {
	text(s, "provider", &p.Provider)
	s.account(&p.Account)
	text(s, "action", &p.Action)
	text(s, "schema_version", &p.SchemaVersion)
	s.raw("args", &p.Args)
	text(s, "args_digest", &p.ArgsDigest)
	text(s, "intent_digest", &p.IntentDigest)
	text(s, "contract_name", &p.ContractRef.Name)
	number(s, "contract_revision", &p.Revision)
	text(s, "contract_digest", &p.Digest)
	text(s, "on_unknown", &p.OnUnknown)
	text(s, "idempotency_key", &p.IdempotencyKey)
	text(s, "request_id", &p.RequestID)
	text(s, "source", &p.System)
	text(s, "source_event_id", &p.EventID)
	text(s, "slot", &p.Slot)
	if s.member("origin") {
		o := new(Origin)
		s.open()
		text(s, "agent", &o.Agent)
		text(s, "run", &o.Run)
		text(s, "tool", &o.Tool)
		text(s, "tool_call_id", &o.ToolCallID)
		s.end()
		p.Origin = o
	}
	text(s, "requested_by", &p.RequestedBy)
	text(s, "basis", &p.Basis)
	if s.member("approval") {
		a := new(Approval)
		s.open()
		s.flag("required", &a.Required)
		s.moment("deadline", &a.Deadline)
		s.end()
		p.Approval = a
	}
	s.labels("labels", &p.Labels)
	text(s, "conflict_scope", &p.ConflictScope)
	text(s, "repeat_of", &p.RepeatOf)
	text(s, "possible_repeat_of", &p.PossibleRepeatOf)
	text(s, "hold", &p.Hold)
	text(s, "compensates", &p.Compensates)
	if s.member("limits") {
		l := new(Limits)
		s.open()
		s.moment("deadline", &l.Deadline)
		number(s, "max_attempts", &l.MaxAttempts)
		s.end()
		p.Limits = l
	}
	return p
}

func (s *scanner) attemptStarted() (p AttemptStarted) {
	text(s, "attempt_id", &p.AttemptID)
	number(s, "number", &p.Number)
	text(s, "worker", &p.Worker)
	number(s, "claim_revision", &p.ClaimRevision)
	number(s, "lease_ms", &p.LeaseMS)
	text(s, "request_digest", &p.RequestDigest)
	text(s, "account_probed", &p.AccountProbed)
	text(s, "permit_id", &p.PermitID)
	return p
}

func (s *scanner) attemptNotApplied() (p AttemptNotApplied) {
	text(s, "attempt_id", &p.AttemptID)
	text(s, "proof", &p.Proof)
	text(s, "reason", &p.Reason)
	text(s, "provider_request_id", &p.ProviderRequestID)
	s.moment("retry_at", &p.RetryAt)
	s.next(&p.Next)
	return p
}

func (s *scanner) outcomeUnknown() (p OutcomeUnknown) {
	text(s, "attempt_id", &p.AttemptID)
	text(s, "reason", &p.Reason)
	if s.member("transport") {
		t := new(Transport)
		s.open()
		number(s, "status", &t.Status)
		s.flag("bytes_sent", &t.BytesSent)
		number(s, "answer_bytes", &t.AnswerBytes)
		text(s, "error", &t.Error)
		number(s, "duration_ms", &t.DurationMS)
		s.flag("conn_reused", &t.ConnReused)
		text(s, "remote", &t.RemoteServer)
		s.end()
		p.Transport = t
	}
	text(s, "provider_request_id", &p.ProviderRequestID)
	s.flag("no_repeat", &p.NoRepeat)
	s.moment("since", &p.Since)
	s.next(&p.Next)
	return p
}

func (s *scanner) evidenceRecorded() (p EvidenceRecorded) {
	text(s, "evidence_source", &p.Source)
	text(s, "finding", &p.Finding)
	s.moment("asked_at", &p.AskedAt)
	number(s, "asked_version", &p.AskedVersion)
	text(s, "account_probed", &p.AccountProbed)
	text(s, "attempt_id", &p.AttemptID)
	text(s, "lookup", &p.Lookup)
	s.flag("pages_complete", &p.PagesComplete)
	number(s, "lag_ms", &p.LagMS)
	s.texts("external_ids", &p.ExternalIDs)
	s.texts("weak_matches", &p.WeakMatches)
	text(s, "provider_request_id", &p.ProviderRequestID)
	text(s, "reason", &p.Reason)
	s.next(&p.Next)
	return p
}

func (s *scanner) retryPermitted() (p RetryPermitted) {
	text(s, "permit_id", &p.PermitID)
	text(s, "basis", &p.Basis)
	s.moment("valid_until", &p.ValidUntil)
	number(s, "margin_ms", &p.MarginMS)
	s.account(&p.Account)
	text(s, "request_digest", &p.RequestDigest)
	text(s, "contract_digest", &p.ContractDigest)
	s.texts("evidence", &p.Evidence)
	s.moment("retry_at", &p.RetryAt)
	text(s, "reason", &p.Reason)
	number(s, "seen_version", &p.SeenVersion)
	s.next(&p.Next)
	return p
}

func (s *scanner) reviewOpened() (p ReviewOpened) {
	text(s, "reason", &p.Reason)
	text(s, "text", &p.Text)
	s.next(&p.Next)
	return p
}

func (s *scanner) resultConfirmed() (p ResultConfirmed) {
	text(s, "external_id", &p.ExternalID)
	s.raw("result", &p.Result)
	text(s, "via", &p.Via)
	text(s, "attempt_id", &p.AttemptID)
	text(s, "provider_request_id", &p.ProviderRequestID)
	text(s, "reason", &p.Reason)
	number(s, "seen_version", &p.SeenVersion)
	s.next(&p.Next)
	return p
}

func (s *scanner) rejected() (p Rejected) {
	text(s, "reason", &p.Reason)
	text(s, "via", &p.Via)
	text(s, "attempt_id", &p.AttemptID)
	text(s, "provider_request_id", &p.ProviderRequestID)
	// covers is for decodeAny: after several attempts, which are few.
	number(s, "seen_version", &p.SeenVersion)
	return p
}

func (s *scanner) account(a *Account) {
	text(s, "account", &a.Name)
	text(s, "account_provider_id", &a.ProviderID)
}

func (s *scanner) next(n *Next) {
	text(s, "next_action", &n.Action)
	s.moment("next_at", &n.At)
}

// scanner walks over a body. Once bad is set, nothing that it returned counts.
type scanner struct {
	b   []byte
	i   int
	bad bool
	// first: no member of the object has been read yet.
	first bool
}

// maxScanDepth is how deep values may be nested.
const maxScanDepth = 64

// word reads exactly these bytes.
func (s *scanner) word(w string) {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		s.bad = true
		return
	}
	s.i += len(w)
}

// char reads one byte and reports whether it is c; if not, it stays.
func (s *scanner) char(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

func (s *scanner) open() {
	if !s.char('{') {
		s.bad = true
	}
	s.first = true
}

func (s *scanner) end() {
	if !s.char('}') {
		s.bad = true
	}
	s.first = false
}

// member reports whether the next member is this one, and goes to its value.
func (s *scanner) member(name string) bool {
	i, n := s.i, len(name)
	if !s.first {
		if i >= len(s.b) || s.b[i] != ',' {
			return false
		}
		i++
	}
	if len(s.b)-i < n+3 || s.b[i+n+1] != '"' || s.b[i+n+2] != ':' || s.b[i] != '"' || string(s.b[i+1:i+1+n]) != name {
		return false
	}
	s.i, s.first = i+n+3, false
	return true
}

// plain reads a text without escapes and returns its bytes in the body.
func (s *scanner) plain() []byte {
	if !s.char('"') {
		s.bad = true
		return nil
	}
	ascii := true
	for i := s.i; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			out := s.b[s.i:i]
			s.i = i + 1
			s.bad = s.bad || !ascii && !utf8.Valid(out)
			return out
		case c < ' ' || c == '\\':
			s.bad = true
			return nil
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	s.bad = true
	return nil
}

// text reads a member that is a text, if it comes next.
func text[T ~string](s *scanner, name string, to *T) {
	if s.member(name) {
		*to = T(s.plain())
	}
}

// same reads a member that must be this text.
func (s *scanner) same(name, want string) bool {
	return s.member(name) && string(s.plain()) == want
}

// texts reads a member that is a list of texts.
func (s *scanner) texts(name string, to *[]string) {
	if !s.member(name) {
		return
	}
	if !s.char('[') {
		s.bad = true
		return
	}
	list := []string{}
	for !s.char(']') {
		if s.bad || len(list) > 0 && !s.char(',') {
			s.bad = true
			return
		}
		list = append(list, string(s.plain()))
	}
	*to = list
}

// labels reads a member that is an object of texts.
func (s *scanner) labels(name string, to *map[string]string) {
	if !s.member(name) {
		return
	}
	if !s.char('{') {
		s.bad = true
		return
	}
	m := make(map[string]string)
	for n := 0; !s.char('}'); n++ {
		if s.bad || n > 0 && !s.char(',') {
			s.bad = true
			return
		}
		k := s.plain()
		s.bad = s.bad || !s.char(':')
		m[string(k)] = string(s.plain())
	}
	*to = m
}

// number reads a member that is an integer of up to 18 digits.
func number[T ~int | ~int64 | ~uint64](s *scanner, name string, to *T) {
	if !s.member(name) {
		return
	}
	negative := s.char('-')
	from, v := s.i, int64(0)
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		if s.i-from == 18 {
			s.bad = true
			return
		}
		v = 10*v + int64(s.b[s.i]-'0')
		s.i++
	}
	if negative {
		v = -v
	}
	*to = T(v)
	if digits := s.i - from; digits == 0 || digits > 1 && s.b[from] == '0' || int64(*to) != v || negative && (v == 0 || *to > 0) {
		s.bad = true
	}
}

// flag reads a member that is true or false.
func (s *scanner) flag(name string, to *bool) {
	if !s.member(name) {
		return
	}
	if *to = s.i < len(s.b) && s.b[s.i] == 't'; *to {
		s.word("true")
	} else {
		s.word("false")
	}
}

// moment reads a member that is a time.
func (s *scanner) moment(name string, to *time.Time) {
	if !s.member(name) {
		return
	}
	from := s.i
	if s.plain(); s.bad || to.UnmarshalJSON(s.b[from:s.i]) != nil {
		s.bad = true
	}
}

// raw copies a member that is any value but null.
func (s *scanner) raw(name string, to *json.RawMessage) {
	if !s.member(name) {
		return
	}
	from := s.i
	if s.i < len(s.b) && s.b[s.i] == 'n' {
		s.bad = true
	}
	if s.value(0); !s.bad {
		*to = bytes.Clone(s.b[from:s.i])
	}
}

// value passes over a value.
func (s *scanner) value(depth int) {
	if s.bad || s.i >= len(s.b) || depth > maxScanDepth {
		s.bad = true
		return
	}
	switch s.b[s.i] {
	case '"':
		s.quoted()
	case '{':
		s.i++
		for n := 0; !s.char('}') && !s.bad; n++ {
			if n > 0 && !s.char(',') {
				s.bad = true
			}
			s.quoted()
			s.bad = s.bad || !s.char(':')
			s.value(depth + 1)
		}
	case '[':
		s.i++
		for n := 0; !s.char(']') && !s.bad; n++ {
			if n > 0 && !s.char(',') {
				s.bad = true
			}
			s.value(depth + 1)
		}
	case 't':
		s.word("true")
	case 'f':
		s.word("false")
	case 'n':
		s.word("null")
	default:
		s.figure()
	}
}

// quoted passes over a text, with or without escapes.
func (s *scanner) quoted() {
	if !s.char('"') {
		s.bad = true
		return
	}
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return
		case c < ' ':
			s.bad = true
			return
		case c == '\\':
			s.i++
			if s.i >= len(s.b) || strings.IndexByte(`"\/bfnrt`, s.b[s.i]) < 0 {
				s.bad = true // also \u: encoding/json knows them
				return
			}
		}
	}
	s.bad = true
}

// figure passes over a number.
func (s *scanner) figure() {
	s.char('-')
	if !s.char('0') {
		s.digits()
	}
	if s.char('.') {
		s.digits()
	}
	if s.char('e') || s.char('E') {
		if !s.char('+') {
			s.char('-')
		}
		s.digits()
	}
}

func (s *scanner) digits() {
	from := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	s.bad = s.bad || s.i == from
}
