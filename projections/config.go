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
)

// Errors of this package.
var (
	// ErrNotFound: no such contract.
	ErrNotFound = errors.New("projections: not found")
	// ErrDigest: the content does not have the digest that it is named by.
	ErrDigest = errors.New("projections: digest does not match")
)

// DefaultCallTimeout bounds one request to the server.
const DefaultCallTimeout = 2 * time.Second

// Log is what the projections read from the journal. Package natsjournal
// implements it.
type Log interface {
	// Load returns every message of an operation in order, decoded, from the
	// stream's leader; none if there are none.
	Load(ctx context.Context, tenant, operation string) ([]events.Record, error)
	// Read returns one message.
	Read(ctx context.Context, seq uint64) (events.Record, error)
	// Walk passes every message from one sequence number up to and including
	// another (0: for ever), in order, undecoded: Subject, Seq, Stamp, Body.
	Walk(ctx context.Context, from, to uint64, fn func(events.Record) error) error
	// Extent describes the whole log: when it was created, its first and last
	// sequence number, how many between them are missing.
	Extent(ctx context.Context) (created time.Time, first, last uint64, deleted int, err error)
	// AppendSystem stores a record that belongs to no operation.
	AppendSystem(ctx context.Context, s events.System) (seq uint64, err error)
}

// Streams is what the projections need of the streams behind their buckets.
// Package natsjournal implements it.
type Streams interface {
	// EnsureBucket creates a bucket again, as set-up does, if it is gone.
	EnsureBucket(ctx context.Context, bucket string) error
	// SyncBucket returns nil when everything is durable that a bucket had stored
	// before the call.
	SyncBucket(ctx context.Context, bucket string) error
	// Tail passes every message of a stream in order, for ever, and calls
	// caughtUp whenever nothing more is waiting.
	Tail(ctx context.Context, stream string, filters []string, from uint64,
		each func(jetstream.Msg, *jetstream.MsgMetadata) error, caughtUp func() error) error
}

// Config is shared by all parts of this package.
type Config struct {
	// Conn is the connection to NATS.
	Conn *nats.Conn
	// Domain is the JetStream domain. Empty means the connection's own.
	Domain string
	// Prefix begins the names of all buckets, such as "OPLEDGER". Required.
	Prefix string
	// Subjects are those of the ledger.
	Subjects events.Subjects
	Log      Log
	Streams  Streams
	// CallTimeout bounds one request. Zero means DefaultCallTimeout.
	CallTimeout time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

// part is what every part of the package has.
type part struct {
	Config
	js  jetstream.JetStream
	log *slog.Logger
}

func (c Config) open() (part, error) {
	if c.Conn == nil || c.Log == nil || c.Streams == nil || c.Prefix == "" {
		return part{}, errors.New("projections: Conn, Log, Streams and Prefix are required")
	}
	if c.CallTimeout < 0 {
		return part{}, errors.New("projections: negative CallTimeout")
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = DefaultCallTimeout
	}
	p := part{Config: c, log: c.Logger}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	opts := []jetstream.JetStreamOpt{
		jetstream.WithDefaultTimeout(c.CallTimeout),
		jetstream.WithPublishAsyncMaxPending(maxPendingWrites),
		jetstream.WithPublishAsyncTimeout(c.CallTimeout),
	}
	var err error
	if c.Domain != "" {
		p.js, err = jetstream.NewWithDomain(c.Conn, c.Domain, opts...)
	} else {
		p.js, err = jetstream.New(c.Conn, opts...)
	}
	if err != nil {
		return part{}, fmt.Errorf("projections: open: %w", err)
	}
	return p, nil
}

func (p part) bucket(name string) *bucket {
	api := jetstream.DefaultAPIPrefix
	if p.Domain != "" {
		api = "$JS." + p.Domain + ".API."
	}
	return &bucket{part: p, name: p.Prefix + "_" + name, api: api}
}
