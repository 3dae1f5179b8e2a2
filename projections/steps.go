package projections

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// ErrRevision says that a key has another revision than a write expected.
var ErrRevision = errRevision

// cells is the bucket of operations as the rules of the projector need it, and
// the log behind it. The real one is *bucket.
type cells interface {
	last(ctx context.Context, key string) (value, error)
	message(key string, data []byte, rev uint64) *nats.Msg
	put(ctx context.Context, m *nats.Msg) (uint64, error)
	send(m *nats.Msg) (jetstream.PubAckFuture, error)
	failed(m *nats.Msg, err error) error
	remove(ctx context.Context, key string, rev uint64, ttl time.Duration) error
	truth(ctx context.Context, tenant, operationID string) (operation.State, error)
	// answers returns an error if the log as a whole can't be read.
	answers(ctx context.Context) error
	pause(ctx context.Context, d time.Duration) error
	// room is how large an entry may be, in bytes.
	room() int64
	logger() *slog.Logger
}

func (b *bucket) send(m *nats.Msg) (jetstream.PubAckFuture, error) {
	return b.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
}

func (b *bucket) answers(ctx context.Context) error {
	_, _, _, _, err := b.Log.Extent(ctx)
	return err
}

func (b *bucket) pause(ctx context.Context, d time.Duration) error { return pause(ctx, d) }

func (b *bucket) room() int64 { return b.Conn.MaxPayload() - headerRoom }

func (b *bucket) logger() *slog.Logger { return b.log }

// Cells is one value per key under compare-and-swap, and the log behind them, of
// whoever runs the rules of the projector elsewhere than on NATS.
type Cells interface {
	// Last returns the value of a key with its revision, which is 0 if there is
	// none.
	Last(ctx context.Context, key string) (data []byte, rev uint64, err error)
	// Put writes a key if it still has the revision. ErrRevision: it has not;
	// after any other error nobody knows.
	Put(ctx context.Context, key string, data []byte, rev uint64) (uint64, error)
	// Truth folds an operation from the log.
	Truth(ctx context.Context, tenant, operation string) (operation.State, error)
	// Answers returns an error if the log as a whole can't be read.
	Answers(ctx context.Context) error
	// Pause waits.
	Pause(ctx context.Context, d time.Duration) error
}

// Stepper is the rules of the Projector without its goroutines, its checkpoint
// and NATS: it applies one batch of messages after the other in the caller's
// thread. It is not for use by several goroutines. After an error of Apply, or
// when the cells were lost, a new one begins at a message that is not too new:
// what was applied before is passed over.
type Stepper struct{ p *Projector }

// NewStepper returns a Stepper.
func NewStepper(c Cells, s events.Subjects) *Stepper {
	log := slog.New(slog.DiscardHandler)
	return &Stepper{&Projector{
		part: part{Config: Config{Subjects: s}, log: log}, cells: played{c, log},
		applied: func(operation.State) {}, cache: newCache(), held: map[string]*slot{},
	}}
}

// Apply folds a batch, in the order of the log, and writes the entries that it
// changed.
func (s *Stepper) Apply(ctx context.Context, batch []events.Record) error {
	if err := s.p.take(ctx, batch, time.Time{}); err != nil {
		return err
	}
	return s.p.write(ctx, s.p.all())
}

// EncodeEntry returns the entry of a state. Equal states have equal bytes.
func EncodeEntry(s operation.State) ([]byte, error) { return encodeState(s) }

// DecodeEntry returns the state of an entry.
func DecodeEntry(data []byte) (operation.State, error) { return decodeState(data) }

// played is Cells as the rules know them.
type played struct {
	c   Cells
	log *slog.Logger
}

// maxPlayed is the largest entry of Cells, in bytes.
const maxPlayed = 1 << 20

func (p played) last(ctx context.Context, key string) (value, error) {
	data, rev, err := p.c.Last(ctx, key)
	return value{rev: rev, data: data}, err
}

func (played) message(key string, data []byte, rev uint64) *nats.Msg {
	m := nats.NewMsg(key)
	m.Data = data
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, fmt.Sprint(rev))
	return m
}

func (p played) put(ctx context.Context, m *nats.Msg) (uint64, error) {
	var rev uint64
	if _, err := fmt.Sscan(m.Header.Get(jetstream.ExpectedLastSubjSeqHeader), &rev); err != nil {
		return 0, err
	}
	return p.c.Put(ctx, m.Subject, m.Data, rev)
}

func (p played) send(m *nats.Msg) (jetstream.PubAckFuture, error) {
	f := future{m: m, ok: make(chan *jetstream.PubAck, 1), err: make(chan error, 1)}
	if rev, err := p.put(context.Background(), m); err != nil {
		f.err <- err
	} else {
		f.ok <- &jetstream.PubAck{Sequence: rev}
	}
	return f, nil
}

func (played) failed(_ *nats.Msg, err error) error { return err }

func (played) remove(context.Context, string, uint64, time.Duration) error {
	return errors.New("projections: played cells have no unstorable entries")
}

func (p played) truth(ctx context.Context, tenant, operationID string) (operation.State, error) {
	return p.c.Truth(ctx, tenant, operationID)
}

func (p played) answers(ctx context.Context) error { return p.c.Answers(ctx) }

func (p played) pause(ctx context.Context, d time.Duration) error { return p.c.Pause(ctx, d) }

func (played) room() int64 { return maxPlayed }

func (p played) logger() *slog.Logger { return p.log }

// future is a write that has ended already.
type future struct {
	m   *nats.Msg
	ok  chan *jetstream.PubAck
	err chan error
}

// Ok implements jetstream.PubAckFuture.
func (f future) Ok() <-chan *jetstream.PubAck { return f.ok }

// Err implements jetstream.PubAckFuture.
func (f future) Err() <-chan error { return f.err }

// Msg implements jetstream.PubAckFuture.
func (f future) Msg() *nats.Msg { return f.m }
