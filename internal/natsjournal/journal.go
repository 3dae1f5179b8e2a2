package natsjournal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
)

// Errors of the journal. JetStream's own are translated into these once.
var (
	// ErrConflict: another message took the place after the expected one. The
	// decision that led to the event must be thrown away and made anew.
	ErrConflict = errors.New("natsjournal: conflict")
	// ErrNoVerdict: it is not known whether the event is stored. It may still
	// become stored later. Only a read of the subject settles it.
	ErrNoVerdict = errors.New("natsjournal: no verdict")
	// ErrNotFound: no such message, stream or consumer.
	ErrNotFound = errors.New("natsjournal: not found")
	// ErrTooLarge: more bytes than the server takes, or more events of one
	// operation than MaxOperationEvents. Nothing was stored.
	ErrTooLarge = errors.New("natsjournal: too large")
	// ErrRefused: the server refused for good. Nothing was stored.
	ErrRefused = errors.New("natsjournal: refused")
	// ErrDenied: the connection may not publish on this subject.
	ErrDenied = errors.New("natsjournal: permission denied")
	// ErrReplaced: the stream was deleted and created anew.
	ErrReplaced = errors.New("natsjournal: stream was replaced")
)

// Bounds of the journal.
const (
	// DefaultCallTimeout bounds one request to the server.
	DefaultCallTimeout = 2 * time.Second
	// MaxOperationEvents is the largest number of messages that Load reads.
	MaxOperationEvents = 20_000
	// maxReadTries bounds the tries of one read.
	maxReadTries = 5
	// DefaultInboxParallel is how many intents of a tenant are handled at once.
	DefaultInboxParallel = 16
)

// Config configures Open.
type Config struct {
	// Topology must be the one given to Setup.
	Topology Topology
	// Domain is the JetStream domain. Empty means the connection's own.
	Domain string
	// CallTimeout bounds one request; a verdict may take several. Zero means
	// DefaultCallTimeout.
	CallTimeout time.Duration
	// InboxParallel is how many intents of one tenant are handled at the same
	// time. Zero means DefaultInboxParallel.
	InboxParallel int
	// Apart publishes every append alone. By default those that wait at the same
	// moment go together where that is quicker: on one node; replicated streams
	// group by themselves.
	Apart bool
	// Barrier is there where the server is part of this process and leaves the
	// syncing to it. Nil means that the server syncs before it acknowledges, or
	// that another process has the barrier, which is asked then.
	Barrier Barrier
	// Own reports whether this process is writing the event with that id, or has
	// written it lately, and so needs no reader to be quick about it. It may be nil.
	Own func(id string) bool
	// Logger may be nil.
	Logger *slog.Logger

	transport transport
}

// transport is the seam for fault injection: one request, one answer, and what
// gets no answer of its own.
type transport interface {
	request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error)
	publish(msg *nats.Msg) error
}

type connection struct{ nc *nats.Conn }

func (c connection) request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	return c.nc.RequestMsgWithContext(ctx, msg)
}

func (c connection) publish(msg *nats.Msg) error { return c.nc.PublishMsg(msg) }

// Journal is the log of one ledger. Its methods may be called at the same time.
type Journal struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	topology Topology
	names    Names
	subjects events.Subjects
	ledger   string
	api      string
	call     time.Duration
	parallel int
	log      *slog.Logger
	tr       transport
	commit   *committer
	barrier  Barrier
	own      func(id string) bool
	// acked is the highest sequence number of which an append was told that it is stored.
	acked   *atomic.Uint64
	durable *durability
	// most is MaxOperationEvents; tests make it smaller.
	most int
}

// Open opens the journal that Setup created. It changes nothing. The
// connection should be made with nats.ReconnectBufSize(-1): a publish that is
// buffered while disconnected is safe, but only fails after CallTimeout.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Journal, error) {
	if err := cfg.Topology.check(); err != nil {
		return nil, err
	}
	if cfg.CallTimeout < 0 || cfg.InboxParallel < 0 {
		return nil, errors.New("natsjournal: negative CallTimeout or InboxParallel")
	}
	j := &Journal{
		nc: nc, topology: cfg.Topology, names: cfg.Topology.Names(), subjects: cfg.Topology.Subjects,
		api: jetstream.DefaultAPIPrefix, call: cfg.CallTimeout, parallel: cfg.InboxParallel,
		log: cfg.Logger, tr: cfg.transport, most: MaxOperationEvents, barrier: cfg.Barrier, own: cfg.Own, acked: new(atomic.Uint64),
	}
	if j.call == 0 {
		j.call = DefaultCallTimeout
	}
	if j.parallel == 0 {
		j.parallel = DefaultInboxParallel
	}
	if j.log == nil {
		j.log = slog.New(slog.DiscardHandler)
	}
	if j.tr == nil {
		j.tr = connection{nc}
	}
	j.durable = newDurability(j) //nolint:contextcheck // a sync serves all that wait, not this caller
	j.commit = newCommitter(j, cfg.Apart || cfg.Topology.replicas() > 1 || j.behind())
	var err error
	if cfg.Domain != "" {
		j.api = "$JS." + cfg.Domain + ".API."
		j.js, err = jetstream.NewWithDomain(nc, cfg.Domain)
	} else {
		j.js, err = jetstream.New(nc)
	}
	if err != nil {
		return nil, fmt.Errorf("natsjournal: open: %w", err)
	}
	info, err := streamInfo(ctx, j.js, j.names.Events)
	if err != nil {
		return nil, fmt.Errorf("natsjournal: open %s: %w", j.names.Events, err)
	}
	j.ledger = info.Config.Metadata[MetadataLedger]
	if j.ledger == "" {
		return nil, fmt.Errorf("natsjournal: open %s: %w: metadata %s", j.names.Events, ErrNotFound, MetadataLedger)
	}
	return j, nil
}

// Ledger returns the id of the ledger, a UUID that never changes.
func (j *Journal) Ledger() string { return j.ledger }

// Names returns the names of the ledger's streams and buckets.
func (j *Journal) Names() Names { return j.names }

// Info is the state of the journal's stream.
type Info struct {
	// Created is when the stream was created; another one means another log.
	Created time.Time
	// First and Last are sequence numbers. Last is 0 for an empty journal.
	First, Last uint64
	Messages    uint64
	// Subjects counts the subjects, one per operation and a few more.
	Subjects uint64
	// Deleted counts sequence numbers that are missing; it must be 0.
	Deleted int
	// Lost counts messages that the server itself says it has lost.
	Lost int
	// Ledger is the id of the ledger that the stream belongs to.
	Ledger string
}

// errNoLeader: servers without a leader answer for the state of a stream, each with
// what it has itself, which may lack what was acknowledged (nats-server 2.15).
var errNoLeader = errors.New("the stream has no leader")

// Info asks the stream's leader for the state of the journal. Nobody else's answer counts.
func (j *Journal) Info(ctx context.Context) (Info, error) {
	var info *jetstream.StreamInfo
	err := j.patiently(ctx, func(ctx context.Context) (err error) {
		info, err = streamInfo(ctx, j.js, j.names.Events)
		if err == nil && info.Cluster != nil && info.Cluster.Leader == "" {
			err = errNoLeader
		}
		return err
	})
	if err != nil {
		return Info{}, fmt.Errorf("natsjournal: info: %w", err)
	}
	s := info.State
	out := Info{
		Created: info.Created, First: s.FirstSeq, Last: s.LastSeq, Messages: s.Msgs,
		Subjects: s.NumSubjects, Deleted: s.NumDeleted, Ledger: info.Config.Metadata[MetadataLedger],
	}
	if s.Lost != nil {
		out.Lost = len(s.Lost.Msgs)
	}
	return out, nil
}

// Acked returns the highest sequence number that was promised to an append of this
// process: a journal that ends before it has lost messages.
func (j *Journal) Acked() uint64 { return j.acked.Load() }

// ForgetAcked is for a journal that was accepted as it is, with what it has lost.
func (j *Journal) ForgetAcked() { j.acked.Store(0) }

func (j *Journal) promised(seq uint64) {
	for {
		last := j.acked.Load()
		if seq <= last || j.acked.CompareAndSwap(last, seq) {
			return
		}
	}
}

// Extent is Info in the form that package projections asks for.
func (j *Journal) Extent(ctx context.Context) (created time.Time, first, last uint64, deleted int, err error) {
	i, err := j.Info(ctx)
	return i.Created, i.First, i.Last, i.Deleted, err
}

// Read returns the message with the sequence number seq, as the stream's leader
// has it. The error wraps ErrNotFound when there is none.
func (j *Journal) Read(ctx context.Context, seq uint64) (events.Record, error) {
	if seq == 0 {
		return events.Record{}, fmt.Errorf("natsjournal: read 0: %w", ErrNotFound)
	}
	m, err := j.getPatiently(ctx, getRequest{Seq: seq})
	if err != nil {
		return events.Record{}, fmt.Errorf("natsjournal: read %d: %w", seq, err)
	}
	return j.decode(m), nil
}

// maxAlarms bounds the records of integrity alarms that are read.
const maxAlarms = 10_000

// Alarms returns every record of an integrity alarm, raised or cleared, in order.
func (j *Journal) Alarms(ctx context.Context) ([]events.Record, error) {
	subject := j.subjects.System(events.SystemAlarmRaised.Name())
	var records []events.Record
	for next := uint64(1); len(records) < maxAlarms; {
		m, err := j.getPatiently(ctx, getRequest{Seq: next, NextFor: subject})
		if errors.Is(err, ErrNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return records, nil
		}
		if err != nil {
			return nil, fmt.Errorf("natsjournal: alarms: %w", err)
		}
		records = append(records, j.decode(m))
		next = m.Seq + 1
	}
	return nil, fmt.Errorf("natsjournal: alarms: %w: more than %d records", ErrTooLarge, maxAlarms)
}

// Load returns every message of an operation in order, as the stream's leader
// has them; none if the operation does not exist. Malformed ones come as
// records with Err set. More than MaxOperationEvents is ErrTooLarge.
func (j *Journal) Load(ctx context.Context, tenant, operation string) ([]events.Record, error) {
	subject, err := j.subjects.Operation(tenant, operation)
	if err != nil {
		return nil, err
	}
	var records []events.Record
	for next := uint64(1); len(records) <= j.most; {
		m, err := j.getPatiently(ctx, getRequest{Seq: next, NextFor: subject})
		if errors.Is(err, ErrNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return records, nil
		}
		if err != nil {
			return nil, fmt.Errorf("natsjournal: load %s: %w", subject, err)
		}
		records = append(records, j.decode(m))
		next = m.Seq + 1
	}
	return nil, fmt.Errorf("natsjournal: load %s: %w: more than %d events", subject, ErrTooLarge, j.most)
}

// decode makes a record of a stored message. An event that is stored under
// another operation's subject is malformed: the subject is what was compared.
func (j *Journal) decode(m stored) events.Record {
	tenant, operation, err := j.subjects.ParseOperation(m.Subject)
	if err != nil {
		r := events.Record{Seq: m.Seq, Stamp: m.Time, Body: m.Data, Subject: m.Subject}
		s, err := events.DecodeSystem(m.Data)
		r.ID, r.Ledger, r.Time, r.Actor, r.Err = s.ID, s.Ledger, s.Time, s.Actor, err
		return r
	}
	r := events.DecodeRecord(m.Subject, m.Seq, m.Time, m.Data)
	if r.Err == nil && (r.Tenant != tenant || r.Operation != operation) {
		return events.Record{
			Seq: m.Seq, Stamp: m.Time, Body: m.Data, Subject: m.Subject,
			Err: fmt.Errorf("%w: the event names another operation than its subject", events.ErrMalformed),
		}
	}
	return r
}

type getRequest struct {
	Seq     uint64 `json:"seq,omitempty"`
	NextFor string `json:"next_by_subj,omitempty"`
	LastFor string `json:"last_by_subj,omitempty"`
}

type stored struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

type getResponse struct {
	Error   *jetstream.APIError `json:"error"`
	Message *stored             `json:"message"`
}

// patiently makes a call that changes nothing, a few times if need be: a request
// that is under way when the connection breaks is never answered.
func (j *Journal) patiently(ctx context.Context, call func(context.Context) error) error {
	pause := firstPause
	for try := 1; ; try++ {
		short, cancel := context.WithTimeout(ctx, j.call)
		err := call(short)
		cancel()
		if err == nil || try == maxReadTries || errors.Is(err, ErrNotFound) || errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		if !sleep(ctx, pause) {
			return err
		}
		pause = min(4*pause, maxPause)
	}
}

func (j *Journal) getPatiently(ctx context.Context, req getRequest) (m stored, err error) {
	var run string
	err = j.patiently(ctx, func(ctx context.Context) error {
		run = j.run()
		m, err = j.get(ctx, req)
		return err
	})
	if err == nil {
		err = j.settle(ctx, m.Seq, run)
	}
	return m, err
}

// get reads one message from the stream's leader. Direct get would be faster,
// but on a replicated stream it is not read-your-writes (nats-server 2.15).
func (j *Journal) get(ctx context.Context, req getRequest) (stored, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return stored{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, j.call)
	defer cancel()
	msg := nats.NewMsg(j.api + "STREAM.MSG.GET." + j.names.Events)
	msg.Data = body
	answer, err := j.tr.request(ctx, msg)
	if err != nil {
		return stored{}, err
	}
	var resp getResponse
	if err := json.Unmarshal(answer.Data, &resp); err != nil {
		return stored{}, fmt.Errorf("unreadable answer: %w", err)
	}
	if resp.Error != nil {
		return stored{}, translate(resp.Error)
	}
	if resp.Message == nil {
		return stored{}, errors.New("answer without a message")
	}
	return *resp.Message, nil
}

// translate gives JetStream's errors the names of this package.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound),
		errors.Is(err, jetstream.ErrMsgNotFound):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum), errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return err
}
