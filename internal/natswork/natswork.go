// Package natswork carries messages to the workers of remote contracts over core
// NATS, as requests with one or more answers. It decides nothing: what an answer
// means is for package providers.
//
// A message is published once. The server hands it to one member of the workers'
// queue group, or says that there is none; it is in no stream, and nobody
// delivers it again (I3).
package natswork

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/providers"
)

// MaxMessages bounds the messages that are read for one request.
const MaxMessages = 4096

// Config is what a Line needs.
type Config struct {
	// Conn should keep nothing for later while it is not connected
	// (nats.ReconnectBufSize(-1)): a worker refuses what comes too late, but then
	// the time is lost.
	Conn     *nats.Conn
	Subjects events.Subjects
}

// Line leads to the workers of every provider. It is safe for concurrent use.
type Line struct{ cfg Config }

var _ providers.Line = (*Line)(nil)

// New returns a Line.
func New(cfg Config) (*Line, error) {
	if cfg.Conn == nil {
		return nil, errors.New("natswork: a connection is required")
	}
	return &Line{cfg}, nil
}

// Ask implements [providers.Line].
func (l *Line) Ask(ctx context.Context, provider, action string, body []byte, more func([]byte) bool) ([]byte, error) {
	inbox := l.cfg.Conn.NewInbox()
	sub, err := l.cfg.Conn.SubscribeSync(inbox)
	if err != nil {
		return nil, notDelivered(err) // nothing was published yet
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be closed
	subject := l.cfg.Subjects.Work(provider, action)
	if err := l.cfg.Conn.PublishMsg(&nats.Msg{Subject: subject, Reply: inbox, Data: body}); err != nil {
		return nil, published(err)
	}
	heard := false
	for range MaxMessages {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrNoResponders) && !heard:
			return nil, notDelivered(err)
		case err != nil:
			return nil, fmt.Errorf("natswork: %s: %w", subject, err)
		case !more(m.Data):
			return m.Data, nil
		}
		heard = true
	}
	return nil, fmt.Errorf("natswork: %s: %d messages without an answer", subject, MaxMessages)
}

// published reads the error of a publish. Only what the client refuses before it
// writes has not left; a write that failed may have left in part or whole.
func published(err error) error {
	for _, before := range []error{
		nats.ErrInvalidConnection, nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrReconnectBufExceeded,
		nats.ErrMaxPayload, nats.ErrBadSubject,
	} {
		if errors.Is(err, before) {
			return notDelivered(err)
		}
	}
	return fmt.Errorf("natswork: publish: %w", err)
}

func notDelivered(err error) error {
	return fmt.Errorf("%w: natswork: %w", providers.ErrNotDelivered, err)
}
