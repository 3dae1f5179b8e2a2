package projections

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// plainEntry is encodeState for what most operations are: wishes without
// extras, attempts that answered. Of a state with anything else in it, or with a
// text that JSON escapes, it says nothing (ok is false), and encoding/json writes
// it. What it writes is the same, byte for byte.
func plainEntry(s operation.State) (data []byte, ok bool) {
	rest := s
	rest.Tenant, rest.OperationID, rest.Status, rest.Version, rest.Head = "", "", "", 0, ""
	rest.LastSeq, rest.Substantive, rest.Started, rest.NextAction = 0, 0, 0, ""
	rest.RecordedAt, rest.UpdatedAt, rest.StatusSince, rest.FirstSend = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	rest.NextAt, rest.Attempts, rest.ExternalIDs, rest.Result = time.Time{}, nil, nil, nil
	i := &rest.Intent
	i.Provider, i.Account, i.Action, i.SchemaVersion, i.Args = "", events.Account{}, "", "", nil
	i.ArgsDigest, i.IntentDigest, i.ContractRef, i.OnUnknown, i.IdempotencyKey, i.RequestID = "", "", events.ContractRef{}, "", "", ""
	if !reflect.ValueOf(rest).IsZero() {
		return nil, false
	}
	w := plain{b: make([]byte, 0, 2048)}
	w.word(`{"fold_version":`)
	w.b = strconv.AppendInt(w.b, operation.FoldVersion, 10)
	w.word(`,"state":{`)
	w.text(`"tenant":`, s.Tenant)
	w.text(`,"operation_id":`, s.OperationID)
	w.text(`,"status":`, string(s.Status))
	w.number(`,"version":`, s.Version)
	w.text(`,"head":`, s.Head)
	w.number(`,"last_seq":`, s.LastSeq)
	w.number(`,"substantive_version":`, s.Substantive)
	w.moment(`,"recorded_at":`, s.RecordedAt)
	w.moment(`,"updated_at":`, s.UpdatedAt)
	w.moment(`,"status_since":`, s.StatusSince)
	w.intent(s.Intent)
	for n, a := range s.Attempts {
		w.attempt(n == 0, a)
	}
	if len(s.Attempts) > 0 {
		w.word("]")
	}
	w.number(`,"attempts_started":`, uint64(max(s.Started, 0)))
	if !s.FirstSend.IsZero() {
		w.moment(`,"first_send":`, s.FirstSend)
	}
	for n, id := range s.ExternalIDs {
		name := `,`
		if n == 0 {
			name = `,"external_ids":[`
		}
		w.text(name, id)
	}
	if len(s.ExternalIDs) > 0 {
		w.word("]")
	}
	if r := s.Result; r != nil {
		w.text(`,"result":{"external_id":`, r.ExternalID)
		w.raw(`,"body":`, r.Body)
		w.text(`,"via":`, string(r.Via))
		w.some(`,"attempt_id":`, r.AttemptID)
		w.moment(`,"at":`, r.At)
		w.word("}")
	}
	w.text(`,"next_action":`, string(s.NextAction))
	if !s.NextAt.IsZero() {
		w.moment(`,"next_at":`, s.NextAt)
	}
	w.word("}}")
	return w.b, !w.bad && s.Started >= 0
}

func (w *plain) intent(i events.IntentRecorded) {
	w.text(`,"intent":{"provider":`, i.Provider)
	w.text(`,"account":`, i.Account.Name)
	w.some(`,"account_provider_id":`, i.ProviderID)
	w.text(`,"action":`, i.Action)
	w.some(`,"schema_version":`, i.SchemaVersion)
	w.raw(`,"args":`, i.Args)
	w.text(`,"args_digest":`, i.ArgsDigest)
	w.text(`,"intent_digest":`, i.IntentDigest)
	w.text(`,"contract_name":`, i.ContractRef.Name)
	w.number(`,"contract_revision":`, uint64(max(i.Revision, 0)))
	w.text(`,"contract_digest":`, i.ContractRef.Digest)
	w.text(`,"on_unknown":`, string(i.OnUnknown))
	w.text(`,"idempotency_key":`, i.IdempotencyKey)
	w.some(`,"request_id":`, i.RequestID)
	w.word("}")
	w.bad = w.bad || i.Revision < 0
}

func (w *plain) attempt(first bool, a operation.Attempt) {
	rest := a
	rest.ID, rest.Number, rest.State, rest.Worker, rest.RequestDigest, rest.ProviderRequestID = "", 0, "", "", "", ""
	rest.StartedAt, rest.LeaseUntil, rest.EndedAt = time.Time{}, time.Time{}, time.Time{}
	w.bad = w.bad || !reflect.ValueOf(rest).IsZero() || a.Number < 0
	if first {
		w.word(`,"attempts":[`)
	} else {
		w.word(`,`)
	}
	w.text(`{"attempt_id":`, a.ID)
	w.number(`,"number":`, uint64(max(a.Number, 0)))
	w.text(`,"state":`, string(a.State))
	w.some(`,"worker":`, a.Worker)
	w.moment(`,"started_at":`, a.StartedAt)
	w.moment(`,"lease_until":`, a.LeaseUntil)
	if !a.EndedAt.IsZero() {
		w.moment(`,"ended_at":`, a.EndedAt)
	}
	w.some(`,"request_digest":`, a.RequestDigest)
	w.some(`,"provider_request_id":`, a.ProviderRequestID)
	w.word("}")
}

// plain writes JSON. Once bad is set, what it wrote does not count.
type plain struct {
	b   []byte
	bad bool
}

func (w *plain) word(s string) { w.b = append(w.b, s...) }

// text writes printable ASCII that needs no escape.
func (w *plain) text(name, s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			w.bad = true
			return
		}
	}
	w.b = append(append(append(append(w.b, name...), '"'), s...), '"')
}

// some writes a text that is left out when it is empty.
func (w *plain) some(name, s string) {
	if s != "" {
		w.text(name, s)
	}
}

func (w *plain) number(name string, n uint64) {
	w.b = strconv.AppendUint(append(w.b, name...), n, 10)
}

func (w *plain) moment(name string, t time.Time) {
	w.b = append(append(w.b, name...), '"')
	var err error
	if w.b, err = t.AppendText(w.b); err != nil {
		w.bad = true
	}
	w.b = append(w.b, '"')
}

// raw writes a value without white space, as encoding/json does; it is left out
// when it is empty.
func (w *plain) raw(name string, v []byte) {
	if len(v) == 0 {
		return
	}
	buf := bytes.NewBuffer(append(w.b, name...))
	// Builds of encoding/json differ in what they do to U+2028 and U+2029.
	w.bad = w.bad || bytes.Contains(v, []byte("\xe2\x80")) || json.Compact(buf, v) != nil
	w.b = buf.Bytes()
}
