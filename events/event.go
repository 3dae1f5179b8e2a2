package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Wire constants of format v1.
const (
	SpecVersion = "1.0"
	ContentType = "application/cloudevents+json"
	TypePrefix  = "io.opledger.v1."

	// HeaderKind carries the kind beside the body, for consumers that filter
	// without decoding.
	HeaderKind = "Opledger-Kind"
	// HeaderVersion carries the version of the operation, for the same.
	HeaderVersion = "Opledger-Version"
)

// MaxEventSize is the largest body of an event, in bytes. The default payload
// limit of a NATS server is 1 MiB.
const MaxEventSize = 512 << 10

// ErrConflict is what a journal answers to an append when another message
// already follows the expected one. The decision that was to be recorded is
// thrown away and made anew on the new state, never re-based.
var ErrConflict = errors.New("events: another event came first")

// MaxVersion is the largest version, the largest integer that every JSON reader
// keeps exact.
const MaxVersion = 1<<53 - 1

// ErrMalformed is returned for bytes that are not an event of format v1.
var ErrMalformed = errors.New("events: malformed event")

// Event is one fact about one operation.
type Event struct {
	// ID is random (UUIDv7), minted for each decision, never reused.
	ID string
	// Ledger is the id of the ledger that wrote the event, a UUID.
	Ledger    string
	Tenant    string
	Operation string
	// Version counts 1, 2, 3 … within the operation.
	Version uint64
	// Prev is the digest of the stored body of the previous event of the
	// operation; empty in the first.
	Prev string
	// Time is the writer's wall clock, for display only. Contract time is the
	// time stamp of the log.
	Time        time.Time
	Actor       string
	Traceparent string
	Data        Payload
}

// Record is an event as the log holds it.
type Record struct {
	Event
	// Seq is the sequence number in the log.
	Seq uint64
	// Stamp is the log's own time stamp.
	Stamp time.Time
	// Body is the stored body, byte for byte.
	Body []byte
	// Subject is where it is stored.
	Subject string
	// Err is set when the body is not a well-formed event. Such a record
	// still takes a sequence number.
	Err error
}

// Digest returns the digest of a stored body as the next event names it.
func Digest(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ledgerSource is the prefix of the CloudEvents source.
const ledgerSource = "/opledger/"

type envelope struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject,omitempty"`
	Time            time.Time       `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	TenantID        string          `json:"tenantid,omitempty"`
	Traceparent     string          `json:"traceparent,omitempty"`
	Data            json.RawMessage `json:"data"`
}

type common struct {
	EventID     string `json:"event_id"`
	OperationID string `json:"operation_id"`
	Tenant      string `json:"tenant"`
	Version     uint64 `json:"version"`
	Prev        string `json:"prev,omitempty"`
	Actor       string `json:"actor,omitempty"`
}

// Encode returns the body of an event: a CloudEvent in structured JSON mode.
// Equal events have equal bytes. It fails for an event that could not be
// decoded again, and for one larger than MaxEventSize.
func Encode(e Event) ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	if u, ok := e.Data.(Unrecognized); ok {
		return nil, fmt.Errorf("events: encode %s: %w: kind %q can't be written by this version", e.Data.Kind(), ErrMalformed, clip(u.Type, 40))
	}
	// The envelope, what all events have, and what this kind has are written one
	// behind the other, and what would close the one before is taken off.
	var b bytes.Buffer
	b.Grow(usualSize)
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(envelope{
		SpecVersion: SpecVersion, ID: e.ID, Source: ledgerSource + e.Ledger,
		Type: TypePrefix + string(e.Data.Kind()), Subject: e.Operation, Time: e.Time.UTC(),
		DataContentType: "application/json", TenantID: e.Tenant, Traceparent: e.Traceparent,
		Data: noData,
	})
	if err != nil {
		return nil, err
	}
	b.Truncate(b.Len() - len("0}\n"))
	err = enc.Encode(common{
		EventID: e.ID, OperationID: e.Operation, Tenant: e.Tenant,
		Version: e.Version, Prev: e.Prev, Actor: e.Actor,
	})
	if err != nil {
		return nil, err
	}
	b.Truncate(b.Len() - len("}\n"))
	own := b.Len()
	if err := enc.Encode(e.Data); err != nil {
		return nil, fmt.Errorf("events: encode %s: %w", e.Data.Kind(), err)
	}
	if b.Len() == own+len("{}\n") {
		b.Truncate(own)
		b.WriteByte('}')
	} else {
		b.Bytes()[own] = ','
		b.Truncate(b.Len() - len("\n"))
	}
	b.WriteByte('}')
	if b.Len() > MaxEventSize {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, b.Len(), MaxEventSize)
	}
	return b.Bytes(), nil
}

// usualSize is room for most events.
const usualSize = 1 << 10

// noData stands in the place of the data while the envelope is written.
var noData = json.RawMessage("0") //nolint:gochecknoglobals // a constant that Go can't write as one

// Decode reads a body. Members that this version does not know are ignored; a
// kind that it does not know becomes Unrecognized. The error wraps ErrMalformed
// and never repeats the content of the body.
func Decode(body []byte) (Event, error) {
	if e, ok := scan(body); ok {
		return e, nil
	}
	return decodeAny(body)
}

// decodeAny is Decode for every form that JSON allows.
func decodeAny(body []byte) (Event, error) {
	var env envelope
	if err := json.Unmarshal(body, &env); err != nil {
		return Event{}, fmt.Errorf("%w: %s", ErrMalformed, syntax(err))
	}
	kind, ok := strings.CutPrefix(env.Type, TypePrefix)
	if !ok {
		return Event{}, fmt.Errorf("%w: its type is not of format v1", ErrMalformed)
	}
	ledger, ok := strings.CutPrefix(env.Source, ledgerSource)
	if !ok {
		return Event{}, fmt.Errorf("%w: its source is not a ledger", ErrMalformed)
	}
	var c common
	if err := json.Unmarshal(env.Data, &c); err != nil {
		return Event{}, fmt.Errorf("%w: data: %s", ErrMalformed, syntax(err))
	}
	data, err := decodePayload(Kind(kind), env.Data)
	if err != nil {
		return Event{}, fmt.Errorf("%w: data of %s: %s", ErrMalformed, clip(kind, 40), syntax(err))
	}
	e := Event{
		ID: env.ID, Ledger: ledger, Tenant: c.Tenant, Operation: c.OperationID, Version: c.Version,
		Prev: c.Prev, Time: env.Time, Actor: c.Actor, Traceparent: env.Traceparent, Data: data,
	}
	if c.EventID != env.ID || c.OperationID != env.Subject || c.Tenant != env.TenantID {
		return Event{}, fmt.Errorf("%w: envelope and data disagree", ErrMalformed)
	}
	return e, e.check()
}

// DecodeRecord makes a record of a stored message. It never fails: what cannot
// be decoded has Err set and zero event fields.
func DecodeRecord(subject string, seq uint64, stamp time.Time, body []byte) Record {
	e, err := Decode(body)
	if err != nil {
		return Record{Seq: seq, Stamp: stamp, Body: body, Subject: subject, Err: err}
	}
	return Record{Event: e, Seq: seq, Stamp: stamp, Body: body, Subject: subject}
}

func (e Event) check() error {
	switch {
	case e.Data == nil:
		return fmt.Errorf("%w: no data", ErrMalformed)
	case e.ID == "" || len(e.ID) > MaxIDLength:
		return fmt.Errorf("%w: an id of %d bytes", ErrMalformed, len(e.ID))
	case e.Version == 0 || e.Version > MaxVersion:
		return fmt.Errorf("%w: version %d", ErrMalformed, e.Version)
	}
	if CheckID("tenant", e.Tenant) != nil {
		return fmt.Errorf("%w: tenant: %w", ErrMalformed, ErrInvalidID)
	}
	if CheckID("operation_id", e.Operation) != nil {
		return fmt.Errorf("%w: operation_id: %w", ErrMalformed, ErrInvalidID)
	}
	return nil
}

func decodePayload(kind Kind, data []byte) (Payload, error) {
	switch kind {
	case KindIntentRecorded:
		return decodeAs[IntentRecorded](data)
	case KindApprovalGranted:
		return decodeAs[ApprovalGranted](data)
	case KindAttemptStarted:
		return decodeAs[AttemptStarted](data)
	case KindAttemptNotApplied:
		return decodeAs[AttemptNotApplied](data)
	case KindOutcomeUnknown:
		return decodeAs[OutcomeUnknown](data)
	case KindEvidenceRecorded:
		return decodeAs[EvidenceRecorded](data)
	case KindRetryPermitted:
		return decodeAs[RetryPermitted](data)
	case KindReviewOpened:
		return decodeAs[ReviewOpened](data)
	case KindReviewUpdated:
		return decodeAs[ReviewUpdated](data)
	case KindReviewClosed:
		return decodeAs[ReviewClosed](data)
	case KindResultConfirmed:
		return decodeAs[ResultConfirmed](data)
	case KindRejected:
		return decodeAs[Rejected](data)
	case KindDuplicateFound:
		return decodeAs[DuplicateFound](data)
	case KindArgumentsErased:
		return decodeAs[ArgumentsErased](data)
	}
	return Unrecognized{Type: string(kind), Data: data}, nil
}

func decodeAs[P Payload](data []byte) (Payload, error) {
	var p P
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	return p, nil
}

// marshal encodes without HTML escaping and without a trailing newline.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// syntax describes a JSON error without the bytes that caused it: arguments
// must not reach a log through an error text.
func syntax(err error) string {
	if se, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("not JSON at byte %d", se.Offset)
	}
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("member %q has the wrong type at byte %d", clip(te.Field, 64), te.Offset)
	}
	return "not the JSON that was expected"
}
