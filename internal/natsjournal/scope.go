package natsjournal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
)

// LastScope returns who took a conflict scope last. It reads from the stream's
// leader. A record that can't be read is an error: whoever may not know who holds
// a scope must not enter it.
func (j *Journal) LastScope(ctx context.Context, tenant, scope string) (events.ScopeTaken, error) {
	var none events.ScopeTaken
	subject, err := j.subjects.Scope(tenant, scope)
	if err != nil {
		return none, err
	}
	m, err := j.getPatiently(ctx, getRequest{LastFor: subject})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return none, fmt.Errorf("natsjournal: read %s: %w", subject, err)
	case errors.Is(err, ErrNotFound):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("natsjournal: read %s: %w", subject, err)
	}
	s, err := events.DecodeSystem(m.Data)
	if err != nil {
		return none, fmt.Errorf("natsjournal: read %s: %w", subject, err)
	}
	t := events.ScopeTaken{Seq: m.Seq, At: m.Time}
	t.Operation, _ = s.Data["operation_id"].(string)
	t.Attempt, _ = s.Data["attempt_id"].(string)
	if newest, told := s.Data["newest_confirmed"].(string); told {
		if t.Newest, err = time.Parse(time.RFC3339Nano, newest); err != nil {
			return none, fmt.Errorf("natsjournal: read %s: message %d: %w", subject, m.Seq, err)
		}
	}
	if err := events.CheckID("operation_id", t.Operation); s.Kind != events.SystemScopeTaken || err != nil {
		return none, fmt.Errorf("natsjournal: read %s: message %d names no operation", subject, m.Seq)
	}
	return t, nil
}

// TakeScope records that an attempt of an operation takes a conflict scope, right
// after the record with sequence number expected (0: as the first), and of when the
// newest wish is that was confirmed in it before. The errors are those of Append. After an error other than ErrConflict the record may be
// stored; whoever got one must not send.
func (j *Journal) TakeScope(ctx context.Context, tenant, scope, operation, attemptID, actor string, expected uint64, newest time.Time) error {
	subject, err := j.subjects.Scope(tenant, scope)
	if err != nil {
		return err
	}
	s := events.System{
		ID: events.NewID(), Ledger: j.ledger, Kind: events.SystemScopeTaken, Time: time.Now(), Actor: actor,
		Data: map[string]any{"tenant": tenant, "conflict_scope": scope, "operation_id": operation, "attempt_id": attemptID},
	}
	if !newest.IsZero() {
		s.Data["newest_confirmed"] = newest.UTC().Format(time.RFC3339Nano)
	}
	body, err := events.EncodeSystem(s)
	if err != nil {
		return err
	}
	if _, err := j.appending(subject, s.ID, string(s.Kind), body, expected).run(ctx); err != nil {
		return fmt.Errorf("natsjournal: take %s after %d: %w", subject, expected, err)
	}
	return nil
}

// appending prepares the compare-and-swap append of one message.
func (j *Journal) appending(subject, id, kind string, body []byte, expected uint64) *appending {
	a := &appending{j: j, subject: subject, body: body, expected: expected, msg: nats.NewMsg(subject)}
	a.msg.Data = body
	a.msg.Header.Set(jetstream.MsgIDHeader, id)
	a.msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(expected, 10))
	a.msg.Header.Set("Content-Type", events.ContentType)
	a.msg.Header.Set(events.HeaderKind, kind)
	return a
}
