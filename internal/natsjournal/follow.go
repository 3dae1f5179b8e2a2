package natsjournal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
)

const (
	// InboxAckWait is after what time an intent that was handed out and not
	// acknowledged is handed out again, and bounds one call of the handler. After
	// a crash an intent that was being handled waits so long.
	InboxAckWait = 10 * time.Second
	// followBatch is how many messages one fetch of a durable asks for.
	followBatch = 256
	// inboxPending bounds the messages of an inbox that are out and not
	// acknowledged.
	inboxPending = 2048
	// inboxDurable is the name of the consumer of an inbox.
	inboxDurable = "intake"
	// inboxFirstDelay and inboxMaxDelay bound the wait before an intent that
	// could not be handled is handed out again.
	inboxFirstDelay = 250 * time.Millisecond
	inboxMaxDelay   = time.Minute
)

// durable is a pull consumer that outlives its reader and is made anew when it is
// gone.
type durable struct {
	j      *Journal
	stream string
	// config is what a new one is made with. One that is there stays as it is,
	// and policy says how it wants its messages acknowledged.
	config jetstream.ConsumerConfig
	policy jetstream.AckPolicy
	batch  int
	// gather: own events may gather, where none can come again.
	gather bool
	rhythm rhythm
	// floor is the last sequence that was handed on; 0 if none. A consumer
	// that has to be made anew begins behind it.
	floor  func() uint64
	handle func(context.Context, jetstream.Msg, *jetstream.MsgMetadata)
}

func (d *durable) run(ctx context.Context) error {
	pause := firstRetry
	for ctx.Err() == nil {
		worked, err := d.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("natsjournal: consume %s: %w", d.stream, translate(err))
		}
		if worked {
			pause = firstRetry
		}
		d.j.log.LogAttrs(ctx, slog.LevelDebug, "consuming anew", slog.String("stream", d.stream), slog.Any("err", err))
		if !sleep(ctx, pause) {
			break
		}
		pause = min(2*pause, maxRetry)
	}
	return nil
}

func (d *durable) session(ctx context.Context) (worked bool, err error) {
	c, err := d.consumer(ctx)
	if err != nil {
		return false, err
	}
	d.policy = c.CachedInfo().Config.AckPolicy
	d.rhythm = rhythm{}
	if d.gather && d.policy == jetstream.AckNonePolicy {
		d.rhythm = d.j.rhythm(d.stream)
	}
	for {
		n, err := d.fetch(ctx, c, d.rhythm.next(ctx, d.batch))
		worked = worked || n > 0
		if err != nil {
			return worked, err
		}
	}
}

// consumer returns the durable as it is, or creates it.
func (d *durable) consumer(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, d.j.call)
	defer cancel()
	c, err := d.j.js.Consumer(ctx, d.stream, d.config.Durable)
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return c, err
	}
	cfg := d.config
	if floor := d.floor(); floor > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, floor+1
	}
	return d.j.js.CreateConsumer(ctx, d.stream, cfg)
}

func (d *durable) fetch(ctx context.Context, c jetstream.Consumer, atMost int) (int, error) {
	fctx, cancel := context.WithTimeout(ctx, tailWait)
	defer cancel()
	batch, err := c.Fetch(atMost, jetstream.FetchContext(fctx))
	if err != nil {
		return 0, err
	}
	n := 0
	for msg := range batch.Messages() {
		if ctx.Err() != nil {
			if d.policy != jetstream.AckNonePolicy {
				_ = msg.Nak() // somebody else may have it at once
			}
			continue
		}
		meta, err := msg.Metadata()
		if err != nil {
			return n, err
		}
		n++
		d.rhythm.saw(msg, meta)
		d.handle(ctx, msg, meta)
	}
	if err := batch.Error(); err != nil && fctx.Err() == nil {
		return n, err
	}
	return n, ctx.Err()
}

// FollowOptions configures Follow.
type FollowOptions struct {
	// Durable is the name of the consumer. It keeps its place on the server.
	Durable string
	// All: a new consumer begins with the first event. Otherwise it begins
	// with the events that are stored after its creation.
	All bool
	// Gather: no other process is likely to follow by that name, so that events of this
	// one may gather. Others would get them meanwhile.
	Gather bool
}

// Hint says that there is news of an operation.
type Hint struct {
	Tenant, Operation string
	// ID is the id of the event, or empty.
	ID string
	// Kind and Version are those of the event; empty and 0 if it is malformed.
	Kind    events.Kind
	Version uint64
	Seq     uint64
}

// Follow calls fn for every event of every operation, one after the other. Several
// processes that use the same name share the events. What an event comes down to
// here is a hint that names a version, so a new consumer hands out headers only
// and is not told that they came: a hint is handed out once, and lost with the
// process that had it, or with a restart of the server. Only an event without the
// headers is read in full.
//
// A consumer that is there already stays as it is. One that wants each event to be
// acknowledged gets that after fn has returned; it may hand an event out more than
// once and, after a redelivery, out of order.
//
// Follow goes on by itself after server restarts and after the loss of the
// consumer. It returns nil when ctx ends and an error that wraps ErrNotFound
// when the journal is gone.
func (j *Journal) Follow(ctx context.Context, o FollowOptions, fn func(Hint)) error {
	if o.Durable == "" {
		return errors.New("natsjournal: follow: no durable name")
	}
	info, err := j.Info(ctx)
	if err != nil {
		return err
	}
	floor := info.Last
	cfg := jetstream.ConsumerConfig{
		Durable: o.Durable, AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true,
		FilterSubject: j.subjects.AllEvents(""), DeliverPolicy: jetstream.DeliverNewPolicy,
	}
	if o.All {
		cfg.DeliverPolicy, floor = jetstream.DeliverAllPolicy, 0
	}
	d := &durable{
		j: j, stream: j.names.Events, config: cfg, batch: followBatch, gather: o.Gather,
		floor: func() uint64 { return floor },
	}
	d.handle = func(ctx context.Context, m jetstream.Msg, meta *jetstream.MsgMetadata) {
		if h, ok := j.hint(ctx, m, meta); ok {
			fn(h)
		}
		floor = max(floor, meta.Sequence.Stream)
		if d.policy != jetstream.AckNonePolicy {
			_ = m.Ack() // lost: handed out again
		}
	}
	return d.run(ctx)
}

// hint reads what a message says of its operation; false if its subject names
// none.
func (j *Journal) hint(ctx context.Context, m jetstream.Msg, meta *jetstream.MsgMetadata) (Hint, bool) {
	h := Hint{Seq: meta.Sequence.Stream, ID: m.Headers().Get(jetstream.MsgIDHeader)}
	var err error
	if h.Tenant, h.Operation, err = j.subjects.ParseOperation(m.Subject()); err != nil {
		j.log.LogAttrs(ctx, slog.LevelWarn, "event on a strange subject", slog.Uint64("seq", h.Seq))
		return h, false
	}
	h.Kind = events.Kind(m.Headers().Get(events.HeaderKind))
	h.Version, err = strconv.ParseUint(m.Headers().Get(events.HeaderVersion), 10, 64)
	if h.Kind != "" && err == nil {
		return h, true
	}
	r := j.decode(stored{Subject: m.Subject(), Seq: h.Seq, Data: m.Data(), Time: meta.Timestamp})
	if m.Headers().Get(nats.MsgSize) != "" { // came without its body
		if r, err = j.Read(ctx, h.Seq); err != nil {
			j.log.LogAttrs(ctx, slog.LevelWarn, "event can't be read", slog.Uint64("seq", h.Seq), slog.Any("err", err))
			r.Err = err
		}
	}
	h.Kind, h.Version = "", r.Version
	if r.Err == nil {
		h.Kind = r.Data.Kind()
	}
	return h, true
}

// Lag is how far a durable consumer is behind: Pending + AckPending messages.
type Lag struct {
	// Pending were never handed out, AckPending not acknowledged yet: 0 for a
	// consumer that acknowledges nothing.
	Pending     uint64
	AckPending  int
	Redelivered int
}

// Lag asks for the lag of a consumer made by Follow. ErrNotFound if there is
// none.
func (j *Journal) Lag(ctx context.Context, durable string) (Lag, error) {
	return j.lag(ctx, j.names.Events, durable)
}

// InboxLag asks for the lag of the inbox of a tenant.
func (j *Journal) InboxLag(ctx context.Context, tenant string) (Lag, error) {
	return j.lag(ctx, j.names.Intents(tenant), inboxDurable)
}

func (j *Journal) lag(ctx context.Context, stream, durable string) (Lag, error) {
	ctx, cancel := context.WithTimeout(ctx, j.call)
	defer cancel()
	c, err := j.js.Consumer(ctx, stream, durable)
	if err != nil {
		return Lag{}, fmt.Errorf("natsjournal: lag of %s: %w", durable, translate(err))
	}
	i := c.CachedInfo()
	return Lag{Pending: i.NumPending, AckPending: i.NumAckPending, Redelivered: i.NumRedelivered}, nil
}

// InboxMessage is one intent as a publisher left it in a durable inbox.
type InboxMessage struct {
	Tenant string
	Data   []byte
	// Seq is the sequence number in the inbox, Stamp its time stamp.
	Seq     uint64
	Stamp   time.Time
	Headers map[string][]string
	// Deliveries counts how often it was handed out, this time included.
	Deliveries uint64
}

// Inbox calls fn for every message in the inbox of a tenant, several at the
// same time (Config.InboxParallel) and in no promised order. After nil the
// message is acknowledged and so removed; after an error it is handed out
// again, later each time. fn must bear a repeat: a crash between its return and
// the acknowledgement hands the message out again (I10).
//
// Inbox goes on by itself after server restarts and after the loss of the
// consumer. It returns nil when ctx ends, after all calls of fn have returned,
// and an error that wraps ErrNotFound when the tenant has no inbox.
func (j *Journal) Inbox(ctx context.Context, tenant string, fn func(context.Context, InboxMessage) error) error {
	if err := events.CheckID("tenant", tenant); err != nil {
		return err
	}
	slots := make(chan struct{}, j.parallel)
	var running sync.WaitGroup
	defer running.Wait()
	d := &durable{
		j: j, stream: j.names.Intents(tenant), batch: 2 * j.parallel,
		floor: func() uint64 { return 0 },
		config: jetstream.ConsumerConfig{
			Durable: inboxDurable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: InboxAckWait,
			MaxAckPending: inboxPending, MaxDeliver: -1,
		},
		handle: func(ctx context.Context, m jetstream.Msg, meta *jetstream.MsgMetadata) {
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				j.intent(ctx, tenant, m, meta, fn)
			})
		},
	}
	return d.run(ctx)
}

func (j *Journal) intent(ctx context.Context, tenant string, m jetstream.Msg, meta *jetstream.MsgMetadata,
	fn func(context.Context, InboxMessage) error,
) {
	call, cancel := context.WithTimeout(ctx, InboxAckWait)
	defer cancel()
	err := fn(call, InboxMessage{
		Tenant: tenant, Data: m.Data(), Seq: meta.Sequence.Stream, Stamp: meta.Timestamp,
		Headers: m.Headers(), Deliveries: meta.NumDelivered,
	})
	if err != nil {
		delay := inboxFirstDelay << min(meta.NumDelivered-1, 16)
		j.log.LogAttrs(ctx, slog.LevelWarn, "intent not handled", slog.String("tenant", tenant),
			slog.Uint64("seq", meta.Sequence.Stream), slog.Any("err", err))
		_ = m.NakWithDelay(min(delay, inboxMaxDelay))
		return
	}
	// fn has done its work, so the acknowledgement outlives the caller.
	ack, cancelAck := context.WithTimeout(context.WithoutCancel(ctx), j.call)
	defer cancelAck()
	if err := m.DoubleAck(ack); err != nil {
		j.log.LogAttrs(ctx, slog.LevelDebug, "acknowledgement lost", slog.String("tenant", tenant),
			slog.Uint64("seq", meta.Sequence.Stream), slog.Any("err", err))
	}
}

// Refuse tells a tenant that an intent of its inbox was not accepted. It
// returns the place of the refusal in its stream when it is stored for good.
func (j *Journal) Refuse(ctx context.Context, tenant string, body []byte) (seq uint64, err error) {
	if err := events.CheckID("tenant", tenant); err != nil {
		return 0, err
	}
	msg := nats.NewMsg(j.subjects.Refused(tenant))
	msg.Data = body
	msg.Header.Set(jetstream.MsgIDHeader, events.NewID())
	msg.Header.Set("Content-Type", "application/json")
	run := j.run()
	if seq, err = j.store(ctx, msg); err == nil {
		err = j.syncStream(ctx, j.names.Refused, run)
	}
	if err != nil {
		return 0, fmt.Errorf("natsjournal: refuse an intent of %s: %w", tenant, err)
	}
	return seq, nil
}
