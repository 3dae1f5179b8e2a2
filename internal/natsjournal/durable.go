package natsjournal

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// A server may leave it to the process that runs it to sync what it has written.
// Then an acknowledgement is no promise yet, and a message can be read before it is
// durable. So nothing leaves this package before it is: an append returns, and a
// message is handed on, only behind a sync that began after the message was stored.
// Whoever acts on what he got from here acts on what a power loss leaves.

// Barrier syncs what a server has written.
type Barrier interface {
	// Sync returns nil when every message that the stream had stored before the
	// call is durable. It may be called by one goroutine at a time for a stream.
	Sync(stream string) error
}

// BarrierServer begins the names of servers whose messages are durable only behind
// the barrier of the process that they are part of.
const BarrierServer = "opledger-barrier-"

// BehindBarrier reports whether the server of a connection leaves the syncing to its
// process.
func BehindBarrier(nc *nats.Conn) bool {
	return strings.HasPrefix(nc.ConnectedServerName(), BarrierServer)
}

// durability lets those that wait at the same moment share a sync.
type durability struct {
	// sync makes durable what was stored before the call, and returns up to where if
	// it knows more than it was told.
	sync func() (last uint64, err error)
	// synced: everything up to it is durable.
	synced atomic.Uint64

	mu sync.Mutex
	// stored is the highest sequence number that is known to be stored.
	stored uint64
	// rounds counts the syncs that have begun.
	rounds  uint64
	waiting []*syncing
	running bool
}

// syncing waits for everything up to seq, or for the end of a round.
type syncing struct {
	seq, round uint64
	done       chan error
}

// wait returns nil when the message seq, which is stored, is durable. An error of ctx
// says nothing of it.
func (d *durability) wait(ctx context.Context, seq uint64) error {
	if seq <= d.synced.Load() {
		return nil
	}
	d.mu.Lock()
	if seq <= d.synced.Load() {
		d.mu.Unlock()
		return nil
	}
	d.stored = max(d.stored, seq)
	return d.join(ctx, seq)
}

// flush returns nil when everything is durable that was stored before the call.
func (d *durability) flush(ctx context.Context) error {
	d.mu.Lock()
	return d.join(ctx, 0)
}

// join waits for a sync. The caller holds the lock, and loses it.
func (d *durability) join(ctx context.Context, seq uint64) error {
	w := &syncing{seq: seq, round: d.rounds + 1, done: make(chan error, 1)}
	d.waiting = append(d.waiting, w)
	if !d.running {
		d.running = true
		go d.run()
	}
	d.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run syncs until nobody waits.
func (d *durability) run() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.waiting) > 0 {
		d.rounds++
		covers := d.stored
		d.mu.Unlock()
		last, err := d.sync()
		d.mu.Lock()
		if err == nil {
			d.synced.Store(max(d.synced.Load(), covers, last))
		}
		d.release(err)
	}
	d.running = false
}

// release lets those go that the last round was for.
func (d *durability) release(err error) {
	rest := d.waiting[:0]
	for _, w := range d.waiting {
		switch {
		case w.round <= d.rounds:
			w.done <- err
		case w.seq > 0 && w.seq <= d.synced.Load():
			w.done <- nil
		default:
			rest = append(rest, w)
		}
	}
	clear(d.waiting[len(rest):])
	d.waiting = rest
}

// behind reports whether an acknowledgement is no promise yet.
func (j *Journal) behind() bool { return j.barrier != nil || BehindBarrier(j.nc) }

// settle returns nil when a message of the journal, which is stored, is durable.
func (j *Journal) settle(ctx context.Context, seq uint64) error {
	if !j.behind() {
		return nil
	}
	if err := j.durable.wait(ctx, seq); err != nil {
		return fmt.Errorf("natsjournal: make message %d durable: %w", seq, err)
	}
	return nil
}

// SyncBucket returns nil when everything is durable that a bucket had stored before
// the call.
func (j *Journal) SyncBucket(ctx context.Context, bucket string) error {
	return j.syncStream(ctx, BucketStream(bucket))
}

// syncStream is for the streams beside the journal, which are seldom written.
func (j *Journal) syncStream(ctx context.Context, stream string) error {
	if j.barrier != nil {
		return j.barrier.Sync(stream)
	}
	if !BehindBarrier(j.nc) {
		return nil
	}
	_, err := j.askForSync(ctx, stream)
	return err
}

// newDurability returns how the journal's messages become durable behind a barrier:
// by this process, or by the one that has it.
func newDurability(j *Journal) *durability {
	if j.barrier == nil {
		return &durability{sync: func() (uint64, error) { return j.askForSync(context.Background(), j.names.Events) }}
	}
	return &durability{sync: func() (uint64, error) { return 0, j.barrier.Sync(j.names.Events) }}
}

// synced is the answer of the process with the barrier.
type synced struct {
	Seq uint64 `json:"seq"`
	Err string `json:"err,omitempty"`
}

// askForSync asks the process with the barrier to sync a stream.
func (j *Journal) askForSync(ctx context.Context, stream string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, j.call)
	defer cancel()
	msg := nats.NewMsg(j.subjects.Barrier())
	msg.Data = []byte(stream)
	answer, err := j.tr.request(ctx, msg)
	if err != nil {
		return 0, fmt.Errorf("ask for a sync: %w", err)
	}
	var s synced
	if err := json.Unmarshal(answer.Data, &s); err != nil {
		return 0, fmt.Errorf("ask for a sync: %w", err)
	}
	if s.Err != "" {
		return 0, fmt.Errorf("ask for a sync: %s", s.Err)
	}
	return s.Seq, nil
}

// flush makes everything durable that a stream has stored; of the journal it returns up
// to where.
func (j *Journal) flush(ctx context.Context, stream string) (uint64, error) {
	switch stream {
	case j.names.Events:
	case j.names.Refused, BucketStream(j.names.Contracts):
		return 0, j.barrier.Sync(stream)
	default:
		return 0, fmt.Errorf("%w: %q needs no sync", ErrNotFound, stream)
	}
	ctx, cancel := context.WithTimeout(ctx, j.call)
	defer cancel()
	info, err := streamInfo(ctx, j.js, j.names.Events)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, j.durable.flush(ctx)
}

// ServeBarrier answers other processes that ask for a sync, until ctx ends.
func (j *Journal) ServeBarrier(ctx context.Context) error {
	sub, err := j.nc.Subscribe(j.subjects.Barrier(), func(m *nats.Msg) {
		go func() {
			var s synced
			var err error
			if s.Seq, err = j.flush(ctx, string(m.Data)); err != nil {
				s.Err = err.Error()
			}
			body, err := json.Marshal(s)
			if err == nil {
				err = m.Respond(body)
			}
			if err != nil { // no answer is no promise
				j.log.LogAttrs(ctx, slog.LevelWarn, "sync not answered", slog.Any("err", err))
			}
		}()
	})
	if err != nil {
		return fmt.Errorf("natsjournal: serve the barrier: %w", err)
	}
	<-ctx.Done()
	return sub.Unsubscribe()
}
