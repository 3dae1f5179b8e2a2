package natsjournal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
)

const (
	// tailBatch is how many messages one fetch asks for at most, tailBytes how many
	// bytes: the fewer fetches, the less time the server waits for the next.
	tailBatch = 8192
	tailBytes = 8 << 20
	// tailWait is how long one fetch waits for messages that don't come. The
	// iterator of nats.go can stall for 30 s; a fetch this short can't.
	tailWait = time.Second
	// tailInactive is after what time the server forgets a consumer whose
	// reader has died.
	tailInactive = time.Minute
	// maxStalls is how many fetches in a row may bring nothing although the
	// server says that messages wait, before the consumer is made anew.
	maxStalls = 3
	// firstRetry and maxRetry bound the wait before a consumer is made anew.
	firstRetry = 20 * time.Millisecond
	maxRetry   = 2 * time.Second
)

// errGap: a message was lost on the way to us.
var errGap = errors.New("natsjournal: gap in delivery")

// tail reads a stream in order, without acknowledgements, and goes on after any
// trouble where it was.
type tail struct {
	j       *Journal
	stream  string
	filters []string
	from    uint64
	since   time.Time
	created time.Time
	// server is the run of the server that delivers.
	server string
	// reached: from was reached by reading, not just asked for.
	reached bool

	rhythm   rhythm
	each     func(jetstream.Msg, *jetstream.MsgMetadata) error
	caughtUp func() error
}

// stopped carries an error of a callback through the retries.
type stopped struct{ err error }

func (s stopped) Error() string { return s.err.Error() }

// Tail calls each for every message of a stream whose subject matches one of
// the filters (none: all), in order, from sequence number from on, for ever.
// caughtUp is called whenever everything that was stored so far has been
// delivered, and then about once a second while nothing comes. It goes on by
// itself after a server restart, a lost connection or a lost consumer. It ends
// with the error of a callback, with ctx's error, with ErrNotFound when the
// stream is gone and with ErrReplaced when it is another one now.
func (j *Journal) Tail(ctx context.Context, stream string, filters []string, from uint64,
	each func(jetstream.Msg, *jetstream.MsgMetadata) error, caughtUp func() error,
) error {
	t := &tail{j: j, stream: stream, filters: filters, from: max(from, 1), each: each, caughtUp: caughtUp}
	return t.run(ctx)
}

func (t *tail) run(ctx context.Context) error {
	pause := firstRetry
	for {
		before := t.from
		err := t.session(ctx)
		var stop stopped
		switch {
		case errors.As(err, &stop):
			return stop.err
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrReplaced), errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("natsjournal: tail %s: %w", t.stream, translate(err))
		}
		if t.from != before {
			pause = firstRetry
		}
		t.j.log.LogAttrs(ctx, slog.LevelDebug, "reading anew", slog.String("stream", t.stream),
			slog.Uint64("seq", t.from), slog.Any("err", err))
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, maxRetry)
	}
}

// session reads through one consumer until it fails.
func (t *tail) session(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, t.j.call)
	defer cancel()
	t.server = t.j.run()
	s, err := t.j.js.Stream(call, t.stream)
	if err != nil {
		return err
	}
	created := s.CachedInfo().Created
	if t.created.IsZero() {
		t.created = created
	}
	if !created.Equal(t.created) {
		return ErrReplaced
	}
	if t.reached && s.CachedInfo().State.LastSeq+1 < t.from {
		return ErrReplaced // it went back behind what was read already
	}
	c, err := s.CreateConsumer(call, t.config())
	if err != nil {
		return err
	}
	defer t.drop(ctx, c)
	if c.CachedInfo().NumPending == 0 {
		if err := t.caughtUp(); err != nil {
			return stopped{err}
		}
	}
	var consumed uint64
	t.rhythm = t.j.rhythm(t.stream)
	for stalls := 0; ; {
		n, err := t.fetch(ctx, c, t.rhythm.next(ctx, tailBatch), &consumed)
		if err != nil {
			return err
		}
		if n > 0 {
			stalls = 0
			continue
		}
		pending, err := t.idle(ctx, c, consumed)
		if err != nil {
			return err
		}
		if !pending {
			stalls = 0
		} else if stalls++; stalls >= maxStalls {
			return fmt.Errorf("natsjournal: %d fetches brought nothing", stalls)
		}
	}
}

func (t *tail) config() jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, FilterSubjects: t.filters, MemoryStorage: true,
		Replicas: 1, InactiveThreshold: tailInactive, DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq: t.from,
	}
	if !t.since.IsZero() && t.from <= 1 {
		since := t.since
		cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, 0, &since
	}
	return cfg
}

// fetch hands on one batch. consumed counts the messages of this consumer: a number
// that is left out is a message that was lost on the way.
func (t *tail) fetch(ctx context.Context, c jetstream.Consumer, atMost int, consumed *uint64) (int, error) {
	fctx, cancel := context.WithTimeout(ctx, tailWait)
	defer cancel()
	batch, err := c.Fetch(atMost, jetstream.FetchContext(fctx), jetstream.FetchMaxBytes(tailBytes))
	if err != nil {
		return 0, err
	}
	n := 0
	for msg := range batch.Messages() {
		meta, err := msg.Metadata()
		if err != nil {
			return n, err
		}
		if meta.Sequence.Consumer != *consumed+1 {
			return n, errGap
		}
		*consumed++
		n++
		t.rhythm.saw(msg, meta)
		if t.stream == t.j.names.Events {
			if err := t.j.settle(ctx, meta.Sequence.Stream, t.server); err != nil {
				return n, err
			}
		}
		if err := t.each(msg, meta); err != nil {
			return n, stopped{err}
		}
		t.from, t.reached = meta.Sequence.Stream+1, true
		if meta.NumPending == 0 {
			if err := t.caughtUp(); err != nil {
				return n, stopped{err}
			}
		}
		if ctx.Err() != nil {
			return n, ctx.Err()
		}
	}
	if err := batch.Error(); err != nil && fctx.Err() == nil {
		return n, err
	}
	return n, ctx.Err()
}

// idle looks at the consumer after a fetch that brought nothing.
func (t *tail) idle(ctx context.Context, c jetstream.Consumer, consumed uint64) (pending bool, err error) {
	call, cancel := context.WithTimeout(ctx, t.j.call)
	defer cancel()
	info, err := c.Info(call)
	if err != nil {
		return false, err
	}
	if info.Delivered.Consumer != consumed {
		return false, errGap
	}
	if info.NumPending > 0 {
		return true, nil
	}
	if err := t.caughtUp(); err != nil {
		return false, stopped{err}
	}
	return false, nil
}

// drop deletes the consumer; if that fails the server does it by itself.
func (t *tail) drop(ctx context.Context, c jetstream.Consumer) {
	if !t.j.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.j.call)
	defer cancel()
	_ = t.j.js.DeleteConsumer(ctx, t.stream, c.CachedInfo().Name)
}

// errEnd ends a bounded replay.
var errEnd = errors.New("natsjournal: end")

// Walk calls fn for every message of the journal, system records included,
// from sequence number from up to and including to, in order. A to of 0 means:
// for ever. The records are not decoded: only Subject, Seq, Stamp and Body are
// set, so that the caller decodes what it wants, where it wants. Walk returns
// nil after to, else the error of fn or of ctx, or an error that wraps
// ErrNotFound or ErrReplaced. A to that is not stored yet is waited for.
func (j *Journal) Walk(ctx context.Context, from, to uint64, fn func(events.Record) error) error {
	if to != 0 && from > to {
		return nil
	}
	err := j.Tail(ctx, j.names.Events, nil, from, func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
		if to != 0 && meta.Sequence.Stream > to {
			return errEnd
		}
		err := fn(events.Record{
			Subject: m.Subject(), Seq: meta.Sequence.Stream, Stamp: meta.Timestamp, Body: m.Data(),
		})
		if err == nil && meta.Sequence.Stream == to {
			return errEnd
		}
		return err
	}, func() error { return nil })
	if errors.Is(err, errEnd) {
		return nil
	}
	return err
}

// ReplayOptions says what Replay reads.
type ReplayOptions struct {
	// Tenant and Operation narrow it down; empty means all. Operation needs
	// Tenant.
	Tenant, Operation string
	// System: pass records that belong to no operation, too.
	System bool
	// FromSeq and ToSeq are the first and the last sequence number. Zero means
	// the beginning and the last one at the start.
	FromSeq, ToSeq uint64
	// Since leaves out what was stored earlier, by the log's clock. It is not
	// used together with FromSeq.
	Since time.Time
	// Follow: go on after the last one, until ctx ends or ToSeq is reached.
	Follow bool
	// Progress is told the sequence number of each record after it was handed
	// on; nil means nobody asks.
	Progress func(seq uint64)
}

// Replay calls fn for every record that the options select, decoded, in order.
// Malformed messages come with Err set. It returns nil at the end, else the
// error of fn or ctx.
func (j *Journal) Replay(ctx context.Context, o ReplayOptions, fn func(events.Record) error) error {
	filters, err := j.filters(o)
	if err != nil {
		return err
	}
	end := o.ToSeq
	if !o.Follow {
		info, err := j.Info(ctx)
		if err != nil {
			return err
		}
		if end = info.Last; o.ToSeq != 0 {
			end = min(end, o.ToSeq)
		}
		if end == 0 || o.FromSeq > end {
			return nil
		}
	}
	each := func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
		seq := meta.Sequence.Stream
		if end != 0 && seq > end {
			return errEnd
		}
		r := j.decode(stored{Subject: m.Subject(), Seq: seq, Data: m.Data(), Time: meta.Timestamp})
		if err := fn(r); err != nil {
			return err
		}
		if o.Progress != nil {
			o.Progress(seq)
		}
		if seq == end {
			return errEnd
		}
		return nil
	}
	caughtUp := func() error {
		if o.Follow {
			return nil
		}
		return errEnd
	}
	t := &tail{
		j: j, stream: j.names.Events, filters: filters, from: max(o.FromSeq, 1), since: o.Since,
		each: each, caughtUp: caughtUp,
	}
	if err := t.run(ctx); !errors.Is(err, errEnd) {
		return err
	}
	return nil
}

func (j *Journal) filters(o ReplayOptions) ([]string, error) {
	if o.Tenant != "" {
		if err := events.CheckID("tenant", o.Tenant); err != nil {
			return nil, err
		}
	}
	filter := j.subjects.AllEvents(o.Tenant)
	if o.Operation != "" {
		subject, err := j.subjects.Operation(o.Tenant, o.Operation)
		if err != nil {
			return nil, err
		}
		filter = subject
	}
	if o.System {
		return []string{filter, j.subjects.AllSystem()}, nil
	}
	return []string{filter}, nil
}
