package natsjournal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
)

const (
	// firstPause and maxPause bound the wait between two publishes of the same
	// event, before jitter.
	firstPause = 2 * time.Millisecond
	maxPause   = 500 * time.Millisecond
	// maxSystemTries bounds the publishes of one system record.
	maxSystemTries = 8
)

// Error codes of nats-server 2.15 that say "another write is there or on its
// way" and never who won.
const (
	codeWrongSequence         jetstream.ErrorCode = 10071
	codeDuplicateInProcess    jetstream.ErrorCode = 10158
	codeWrongSequenceConstant jetstream.ErrorCode = 10164
)

// Append stores an event right after the message expected on its operation's
// subject (0: as the first). The sequence is that of the last message in the
// fold on which the decision was made.
//
// With a nil error the event is stored, one time, and Record.Seq is its place;
// Record.Stamp is the log's time stamp where it had to be read back, else zero
// (see Read). ErrConflict: another message took the place, this one is not
// stored and never will be. ErrTooLarge, ErrRefused: nothing was stored.
// ErrNoVerdict: ctx ended first; the event may be stored, or become so. Until
// then Append goes on, so ctx is what bounds it. A crash during Append leaves
// the event stored or not; whoever folds the operation next sees which.
func (j *Journal) Append(ctx context.Context, e events.Event, expected uint64) (events.Record, error) {
	return j.AppendStored(ctx, e, expected, nil)
}

// AppendStored is Append, and tells of the event, if not nil, as soon as it is stored
// and nobody else can take its place, where it is not durable yet. It may be lost
// then by a power loss; what is appended behind it is durable only together with it.
// stored must be quick.
func (j *Journal) AppendStored(ctx context.Context, e events.Event, expected uint64, stored func(events.Record)) (events.Record, error) {
	if e.Ledger == "" {
		e.Ledger = j.ledger
	}
	if e.Ledger != j.ledger {
		return events.Record{}, fmt.Errorf("natsjournal: append: event of another ledger %q", e.Ledger)
	}
	subject, err := j.subjects.Operation(e.Tenant, e.Operation)
	if err != nil {
		return events.Record{}, err
	}
	body, err := events.Encode(e)
	if err != nil {
		return events.Record{}, err
	}
	if limit := j.nc.MaxPayload() - headerRoom; int64(len(body)) > limit {
		return events.Record{}, fmt.Errorf("natsjournal: append to %s: %w: %d bytes, at most %d",
			subject, ErrTooLarge, len(body), limit)
	}
	a := j.appending(subject, e.ID, string(e.Data.Kind()), body, expected)
	a.msg.Header.Set(events.HeaderVersion, strconv.FormatUint(e.Version, 10))
	if stored != nil {
		a.stored = func(seq uint64) { stored(events.Record{Event: e, Seq: seq, Subject: subject, Body: body}) }
	}
	r, err := a.run(ctx)
	if err != nil {
		return events.Record{}, fmt.Errorf("natsjournal: append %s to %s after %d: %w", e.Data.Kind(), subject, expected, err)
	}
	if r.Body == nil {
		r.Event, r.Subject, r.Body = e, subject, body
	}
	return r, nil
}

// appending is one event on its way.
type appending struct {
	j        *Journal
	subject  string
	body     []byte
	expected uint64
	msg      *nats.Msg
	// stored, if not nil, is told when the message is stored and not durable yet.
	stored func(seq uint64)
	// last is what went wrong last, for the error text.
	last error
}

// run publishes until there is a verdict. doubtful means that an earlier
// publish of this event was not plainly acknowledged, so it may be stored.
func (a *appending) run(ctx context.Context) (events.Record, error) {
	if err := ctx.Err(); err != nil {
		return events.Record{}, err
	}
	pause, behind, unanswered := firstPause, 0, false
	for doubtful := false; ; doubtful = true {
		var ack pubAck
		run := a.j.run()
		if doubtful {
			ack = a.j.publish(ctx, a.msg) // alone
		} else {
			ack = a.j.commit.publish(ctx, a.msg)
		}
		a.last = ack.err
		unanswered = unanswered || !ack.tells(a.j.names.Events)
		if ack.plain(a.j.names.Events, a.expected) {
			if a.stored != nil && a.j.barrier != nil {
				a.stored(ack.Seq)
			}
			if err := a.j.settle(ctx, ack.Seq, run); err != nil {
				return events.Record{}, fmt.Errorf("%w: %w", ErrNoVerdict, err)
			}
			a.j.promised(ack.Seq)
			return events.Record{Seq: ack.Seq}, nil
		}
		if !doubtful {
			if ack.definite() {
				return events.Record{}, ack.refusal()
			}
			continue // the same event once more, at once
		}
		r, verdict, err := a.ask(ctx, ack)
		if verdict {
			return r, err
		}
		if err != nil {
			a.last = err
		}
		// A subject that never reached the expected sequence will not take the
		// event: the decision was made on a state that this log does not have. If a
		// publish got no answer, that may as well come from a server of a cluster
		// that was cut off and does not know yet, while the others have stored it.
		if last, ok := ack.lastSequence(); err == nil && ok && last < a.expected {
			if behind++; behind == maxBehind {
				verdict := ErrConflict
				if unanswered {
					verdict = ErrNoVerdict
				}
				return events.Record{}, fmt.Errorf("%w: the subject ends with %d", verdict, last)
			}
		}
		if ack.definite() {
			return events.Record{}, fmt.Errorf("%w: %w", ErrNoVerdict, ack.refusal())
		}
		if a.j.denied(a.subject) {
			return events.Record{}, fmt.Errorf("%w: %w", ErrNoVerdict, ErrDenied)
		}
		if errors.Is(a.last, nats.ErrConnectionClosed) {
			return events.Record{}, fmt.Errorf("%w: %w", ErrNoVerdict, a.last)
		}
		if !sleep(ctx, pause) {
			return events.Record{}, fmt.Errorf("%w: %w (last: %w)", ErrNoVerdict, ctx.Err(), a.last)
		}
		pause = min(2*pause, maxPause)
	}
}

// ask reads the first message after the expected one. It gives a verdict only
// if the stream answered the publish before it: on one node that answer proves
// that what was written earlier is on the disk. The read without an answer only
// tells whether the stream is gone.
func (a *appending) ask(ctx context.Context, ack pubAck) (r events.Record, verdict bool, err error) {
	run := a.j.run()
	m, err := a.j.get(ctx, getRequest{Seq: a.expected + 1, NextFor: a.subject})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return r, true, fmt.Errorf("%w: %w", ErrNoVerdict, err)
	case errors.Is(err, ErrNotFound):
		return r, false, nil // nothing there: publish the same again
	case err != nil:
		return r, false, err
	case !ack.tells(a.j.names.Events):
		return r, false, nil
	}
	if err := a.j.settle(ctx, m.Seq, run); err != nil {
		return r, false, err
	}
	// Ours means the same bytes, and so the same event id.
	if events.Digest(m.Data) == events.Digest(a.body) {
		a.j.promised(m.Seq)
		return a.j.decode(m), true, nil
	}
	return r, true, fmt.Errorf("%w: message %d is there", ErrConflict, m.Seq)
}

// pubAck is the answer to a publish.
type pubAck struct {
	Stream    string              `json:"stream"`
	Seq       uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
	Error     *jetstream.APIError `json:"error"`

	// answered: the server answered this publish, whatever it said.
	answered bool
	err      error
}

func (j *Journal) publish(ctx context.Context, msg *nats.Msg) pubAck {
	ctx, cancel := context.WithTimeout(ctx, j.call)
	defer cancel()
	answer, err := j.tr.request(ctx, msg)
	if err != nil {
		return pubAck{err: err}
	}
	if seq, ok := plainAck(answer.Data, j.names.Events); ok {
		return pubAck{Stream: j.names.Events, Seq: seq, answered: true}
	}
	var ack pubAck
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return pubAck{err: fmt.Errorf("unreadable acknowledgement: %w", err)}
	}
	ack.answered = true
	switch {
	case ack.Error != nil:
		ack.err = ack.Error
	case ack.Duplicate:
		ack.err = fmt.Errorf("duplicate of %d", ack.Seq)
	}
	return ack
}

// plainAck reads an acknowledgement of the journal's stream that says nothing but the
// number, in the form in which nats-server 2.15 writes it; false for everything else.
func plainAck(data []byte, stream string) (seq uint64, ok bool) {
	rest, a := bytes.CutPrefix(data, []byte(`{"stream":"`))
	rest, b := bytes.CutPrefix(rest, []byte(stream))
	rest, c := bytes.CutPrefix(rest, []byte(`","seq":`))
	rest, d := bytes.CutSuffix(rest, []byte(`}`))
	if !a || !b || !c || !d || bytes.HasPrefix(rest, []byte("0")) {
		return 0, false
	}
	seq, err := strconv.ParseUint(string(rest), 10, 64)
	return seq, err == nil
}

// maxBehind is how often the stream must say that a subject ends before the
// expected sequence until that is believed.
const maxBehind = 3

// lastSequence is the last sequence of the subject, where the server refused the
// expected one and said which it has.
func (a pubAck) lastSequence() (uint64, bool) {
	if a.Error == nil || a.Error.ErrorCode != codeWrongSequence {
		return 0, false
	}
	_, number, ok := strings.Cut(a.Error.Description, "wrong last sequence: ")
	if !ok {
		return 0, false
	}
	last, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
	return last, err == nil
}

func (a pubAck) plain(stream string, expected uint64) bool {
	return a.answered && a.err == nil && a.Stream == stream && a.Seq > expected
}

// tells reports whether the answer came from the stream's own write path, behind
// everything that was written before it. A failure of the server tells nothing.
func (a pubAck) tells(stream string) bool {
	if !a.answered || a.Error == nil {
		return a.answered && a.Stream == stream
	}
	switch a.Error.ErrorCode {
	case codeWrongSequence, codeWrongSequenceConstant, codeDuplicateInProcess:
		return true
	}
	return a.definite()
}

// definite reports whether the server said for good that it did not store it.
// Server-side failures (5xx) are not definite: the write may be on its way.
func (a pubAck) definite() bool {
	if errors.Is(a.err, nats.ErrMaxPayload) {
		return true
	}
	if !a.answered || a.Error == nil || a.Error.Code >= 500 {
		return false
	}
	switch a.Error.ErrorCode {
	case codeWrongSequence, codeWrongSequenceConstant, codeDuplicateInProcess:
		return false
	}
	return true
}

func (a pubAck) refusal() error {
	if err := translate(a.err); errors.Is(err, ErrTooLarge) || errors.Is(err, ErrNotFound) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrRefused, a.err)
}

// denied reports whether the server told this connection that it may not
// publish on subject. Such a publish gets no answer at all.
func (j *Journal) denied(subject string) bool {
	err := j.nc.LastError()
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), strconv.Quote(subject))
}

// AppendSystem stores a record that belongs to no operation and returns its
// sequence number. There is no compare-and-swap: the record's id keeps it
// single within the journal's duplicate window. After ErrNoVerdict it may be
// stored.
func (j *Journal) AppendSystem(ctx context.Context, s events.System) (uint64, error) {
	if s.Ledger == "" {
		s.Ledger = j.ledger
	}
	if s.ID == "" {
		s.ID = events.NewID()
	}
	body, err := events.EncodeSystem(s)
	if err != nil {
		return 0, err
	}
	msg := nats.NewMsg(j.subjects.System(s.Kind.Name()))
	msg.Data = body
	msg.Header.Set(jetstream.MsgIDHeader, s.ID)
	msg.Header.Set("Content-Type", events.ContentType)
	msg.Header.Set(events.HeaderKind, string(s.Kind))
	run := j.run()
	seq, err := j.store(ctx, msg)
	if err == nil {
		if err = j.settle(ctx, seq, run); err != nil {
			err = fmt.Errorf("%w: %w", ErrNoVerdict, err)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("natsjournal: append %s: %w", s.Kind, err)
	}
	j.promised(seq)
	return seq, nil
}

// store publishes a message that has an id of its own, a few times if need be.
func (j *Journal) store(ctx context.Context, msg *nats.Msg) (uint64, error) {
	pause := firstPause
	var last error
	for range maxSystemTries {
		ack := j.publish(ctx, msg)
		if ack.answered && ack.Error == nil && ack.Seq > 0 {
			return ack.Seq, nil
		}
		if last = ack.err; ack.definite() {
			return 0, ack.refusal()
		}
		if !sleep(ctx, pause) {
			return 0, fmt.Errorf("%w: %w (last: %w)", ErrNoVerdict, ctx.Err(), last)
		}
		pause = min(2*pause, maxPause)
	}
	return 0, fmt.Errorf("%w: %w", ErrNoVerdict, last)
}

// sleep waits a random time up to d and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
