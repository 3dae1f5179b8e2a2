package natsjournal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// A server may leave it to the process that runs it to sync what it has written.
// Then an acknowledgement is no promise yet, and a message can be read before it is
// durable. So nothing leaves this package before it is, but hints and what AppendStored
// tells of: an append returns, and a message is handed on, only behind a sync that
// began after the message was stored. Whoever acts on what he got from here acts on
// what a power loss leaves.

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
	// sync makes durable what was stored before the call. Unless it is mine, it tells
	// up to where, and of which run of the server.
	sync func() (synced, error)
	// mine: this process has the barrier, and lives no longer than its server.
	mine bool
	// remote: the server of the last connection leaves the syncing to another process.
	remote atomic.Bool
	// upTo: everything up to it is durable, in that run of the server.
	upTo atomic.Uint64

	mu  sync.Mutex
	run string
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
	run        string
	done       chan error
}

// wait returns nil when the message seq, which that run of the server has stored, is
// durable. An error of ctx says nothing of it.
func (d *durability) wait(ctx context.Context, seq uint64, run string) error {
	if d.mine && seq <= d.upTo.Load() {
		return nil
	}
	d.mu.Lock()
	if d.covers(seq, run) {
		d.mu.Unlock()
		return nil
	}
	d.stored = max(d.stored, seq)
	return d.join(ctx, seq, run)
}

func (d *durability) covers(seq uint64, run string) bool {
	return run == d.run && seq <= d.upTo.Load()
}

// flush returns nil when everything is durable that was stored before the call.
func (d *durability) flush(ctx context.Context) error {
	d.mu.Lock()
	return d.join(ctx, 0, "")
}

// join waits for a sync. The caller holds the lock, and loses it.
func (d *durability) join(ctx context.Context, seq uint64, run string) error {
	w := &syncing{seq: seq, run: run, round: d.rounds + 1, done: make(chan error, 1)}
	d.waiting = append(d.waiting, w)
	if !d.running {
		d.running = true
		go d.work()
	}
	d.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work syncs until nobody waits.
func (d *durability) work() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.waiting) > 0 {
		d.rounds++
		stored := d.stored
		d.mu.Unlock()
		s, err := d.sync()
		d.mu.Lock()
		if err == nil {
			if d.mine {
				s.Seq = stored
			}
			if s.Run != d.run { // another run may have lost what an earlier one had
				d.run = s.Run
				d.upTo.Store(0)
			}
			d.upTo.Store(max(d.upTo.Load(), s.Seq))
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
		case w.seq > 0 && d.covers(w.seq, w.run):
			w.done <- nil
		case w.round <= d.rounds && err == nil && w.seq > 0:
			w.done <- errOtherRun
		case w.round <= d.rounds:
			w.done <- err
		default:
			rest = append(rest, w)
		}
	}
	clear(d.waiting[len(rest):])
	d.waiting = rest
}

// errOtherRun: the server was started anew since it had stored something, and may have
// lost it.
var errOtherRun = errors.New("the server was started anew meanwhile")

// behind reports whether an acknowledgement is no promise yet. A connection that is
// lost at the moment counts as what it was.
func (j *Journal) behind() bool {
	if j.barrier != nil {
		return true
	}
	if j.nc.ConnectedServerName() != "" {
		j.durable.remote.Store(BehindBarrier(j.nc))
	}
	return j.durable.remote.Load()
}

// run names the run of the server whose next answers are to be settled: take it
// before the request. It is empty where it does not matter, and where there is no
// connection, which settles nothing.
func (j *Journal) run() string {
	if j.barrier != nil || !j.behind() {
		return ""
	}
	return j.nc.ConnectedServerId()
}

// settle returns nil when a message of the journal, which that run of the server has
// stored, is durable.
func (j *Journal) settle(ctx context.Context, seq uint64, run string) error {
	if !j.behind() {
		return nil
	}
	if err := j.durable.wait(ctx, seq, run); err != nil {
		return fmt.Errorf("natsjournal: make message %d durable: %w", seq, err)
	}
	return nil
}

// SyncBucket returns nil when everything is durable that a bucket had stored before
// the call.
func (j *Journal) SyncBucket(ctx context.Context, bucket string) error {
	return j.syncStream(ctx, BucketStream(bucket), j.run())
}

// syncStream is for the streams beside the journal, which are seldom written.
func (j *Journal) syncStream(ctx context.Context, stream, run string) error {
	if j.barrier != nil {
		return j.barrier.Sync(stream)
	}
	if !j.behind() {
		return nil
	}
	s, err := j.askForSync(ctx, stream)
	if err == nil && s.Run != run {
		err = errOtherRun
	}
	return err
}

// newDurability returns how the journal's messages become durable behind a barrier:
// by this process, or by the one that has it.
func newDurability(j *Journal) *durability {
	if j.barrier == nil {
		return &durability{sync: func() (synced, error) { return j.askForSync(context.Background(), j.names.Events) }}
	}
	return &durability{mine: true, sync: func() (synced, error) { return synced{}, j.barrier.Sync(j.names.Events) }}
}

// synced is the answer of the process with the barrier.
type synced struct {
	// Run is the id of the server, which is another one after each start.
	Run string `json:"run"`
	Seq uint64 `json:"seq"`
	Err string `json:"err,omitempty"`
}

// askForSync asks the process with the barrier to sync a stream.
func (j *Journal) askForSync(ctx context.Context, stream string) (s synced, err error) {
	ctx, cancel := context.WithTimeout(ctx, j.call)
	defer cancel()
	msg := nats.NewMsg(j.subjects.Barrier())
	msg.Data = []byte(stream)
	answer, err := j.tr.request(ctx, msg)
	if err != nil {
		return synced{}, fmt.Errorf("ask for a sync: %w", err)
	}
	if err := json.Unmarshal(answer.Data, &s); err != nil {
		return synced{}, fmt.Errorf("ask for a sync: %w", err)
	}
	if s.Err != "" {
		return synced{}, fmt.Errorf("ask for a sync: %s", s.Err)
	}
	return s, nil
}

// flush makes everything durable that a stream has stored; of the journal it returns up
// to where.
func (j *Journal) flush(ctx context.Context, stream string) (uint64, error) {
	switch stream {
	case j.names.Events:
	case j.names.Refused, BucketStream(j.names.Contracts), BucketStream(j.names.Operations):
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
			s := synced{Run: j.nc.ConnectedServerId()}
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
