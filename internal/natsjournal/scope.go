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

// LastScope returns the operation that took a conflict scope last, and the
// sequence number of that record: "" and 0 if nobody has. It reads from the
// stream's leader. A record that can't be read is an error: whoever may not
// know who holds a scope must not enter it.
func (j *Journal) LastScope(ctx context.Context, tenant, scope string) (operation string, seq uint64, err error) {
	subject, err := j.subjects.Scope(tenant, scope)
	if err != nil {
		return "", 0, err
	}
	m, err := j.getPatiently(ctx, getRequest{LastFor: subject})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return "", 0, fmt.Errorf("natsjournal: read %s: %w", subject, err)
	case errors.Is(err, ErrNotFound):
		return "", 0, nil
	case err != nil:
		return "", 0, fmt.Errorf("natsjournal: read %s: %w", subject, err)
	}
	s, err := events.DecodeSystem(m.Data)
	if err != nil {
		return "", 0, fmt.Errorf("natsjournal: read %s: %w", subject, err)
	}
	operation, _ = s.Data["operation_id"].(string)
	if err := events.CheckID("operation_id", operation); s.Kind != events.SystemScopeTaken || err != nil {
		return "", 0, fmt.Errorf("natsjournal: read %s: message %d names no operation", subject, m.Seq)
	}
	return operation, m.Seq, nil
}

// TakeScope records that an attempt of an operation takes a conflict scope, right
// after the record with sequence number expected (0: as the first). The errors
// are those of Append. After an error other than ErrConflict the record may be
// stored; whoever got one must not send.
func (j *Journal) TakeScope(ctx context.Context, tenant, scope, operation, attemptID, actor string, expected uint64) error {
	subject, err := j.subjects.Scope(tenant, scope)
	if err != nil {
		return err
	}
	s := events.System{
		ID: events.NewID(), Ledger: j.ledger, Kind: events.SystemScopeTaken, Time: time.Now(), Actor: actor,
		Data: map[string]any{"tenant": tenant, "conflict_scope": scope, "operation_id": operation, "attempt_id": attemptID},
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
