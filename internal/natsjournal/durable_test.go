package natsjournal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
)

// disk is a barrier that knows what is durable: what a stream had stored when a sync
// that has ended began.
type disk struct {
	js      jetstream.JetStream
	syncs   atomic.Int64
	durable atomic.Uint64
	// hold, if not nil, holds up every sync until it can be received from.
	hold chan struct{}
	fail atomic.Bool
}

func (d *disk) Sync(stream string) error {
	info, err := streamInfo(context.Background(), d.js, stream)
	if err != nil {
		return err
	}
	if d.hold != nil {
		<-d.hold
	}
	if d.fail.Load() {
		return errors.New("input/output error")
	}
	d.syncs.Add(1)
	d.durable.Store(info.State.LastSeq)
	return nil
}

// behind is a journal whose server leaves the syncing to a disk.
func behind(t *testing.T) (*Journal, *disk) {
	t.Helper()
	s := natstest.Server(t)
	d := &disk{js: natstest.JetStream(t, natstest.Connect(t, s))}
	return setup(t, s, Config{Topology: Topology{Tenants: []string{"acme"}}, Barrier: d}), d
}

// I2, I10: what an append returned, and what was read, is durable.
func TestNothingLeavesTheJournalBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	j, d := behind(t)
	check := func(what string, seq uint64) {
		if durable := d.durable.Load(); seq > durable {
			t.Errorf("%s: message %d left the journal while %d were durable", what, seq, durable)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	const operations, each = 40, 3
	var read, write sync.WaitGroup
	var seen atomic.Int64
	read.Go(func() {
		_ = j.Walk(ctx, 1, 0, func(r events.Record) error { // ends with ctx
			check("walk", r.Seq)
			if seen.Add(1) == operations*(each+1) {
				cancel()
			}
			return nil
		})
	})
	for i := range operations {
		write.Go(func() {
			op := fmt.Sprintf("op-%d", i)
			var records []events.Record
			for range each {
				e, expected := after(op, records)
				r, err := j.Append(t.Context(), e, expected)
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				check("append", r.Seq)
				records = load(t, j, op)
				check("load", records[len(records)-1].Seq)
			}
			seq, err := j.AppendSystem(t.Context(), events.System{Kind: events.SystemCheckpoint, Time: time.Now(), Actor: "test"})
			if err != nil {
				t.Errorf("append a record: %v", err)
			}
			check("record", seq)
		})
	}
	write.Wait()
	read.Wait()
	if n := d.syncs.Load(); n >= operations*(each+1) {
		t.Errorf("%d syncs for %d messages", n, operations*(each+1))
	}
}

// An event is told of once it has its place, and acknowledged once it is durable.
func TestWhatIsStoredIsToldOfBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	j, d := behind(t)
	d.hold = make(chan struct{})
	e, expected := after("op-1", nil)
	told, acked := make(chan events.Record, 1), make(chan events.Record, 1)
	go func() {
		r, err := j.AppendStored(t.Context(), e, expected, func(r events.Record) { told <- r })
		if err != nil {
			t.Error(err)
		}
		acked <- r
	}()
	early := <-told
	select {
	case <-acked:
		t.Error("acknowledged before it was durable")
	default:
	}
	d.hold <- struct{}{}
	if r := <-acked; r.Seq != early.Seq || r.ID != early.ID || events.Digest(r.Body) != events.Digest(early.Body) {
		t.Errorf("told of %v, acknowledged %v", early, r)
	}
	close(d.hold)
	if stored := load(t, j, "op-1"); len(stored) != 1 || stored[0].Seq != early.Seq {
		t.Errorf("stored %v", stored)
	}

	safe := journal(t) // its server syncs
	e, expected = after("op-1", nil)
	if _, err := safe.AppendStored(t.Context(), e, expected, func(events.Record) { t.Error("told of an event that was durable at once") }); err != nil {
		t.Error(err)
	}
}

// Those that wait while a sync is under way share the next one.
func TestThoseThatWaitShareASync(t *testing.T) {
	t.Parallel()
	j, d := behind(t)
	d.hold = make(chan struct{})
	go func() {
		for range 2 { // while one is held up, all others arrive
			for !allWait(j, 100) {
				time.Sleep(time.Millisecond)
			}
			d.hold <- struct{}{}
		}
		close(d.hold)
	}()
	many(t, j, "op", 100)
	if n := d.syncs.Load(); n > 3 {
		t.Errorf("%d syncs for 100 appends that waited together", n)
	}
}

// allWait reports whether n messages are stored and waited for, or durable already.
func allWait(j *Journal, n uint64) bool {
	j.durable.mu.Lock()
	defer j.durable.mu.Unlock()
	return j.durable.stored >= n
}

// I2: an append whose sync failed has no verdict.
func TestAFailedSyncIsNoAcknowledgement(t *testing.T) {
	t.Parallel()
	j, d := behind(t)
	d.fail.Store(true)
	e, expected := after("op-1", nil)
	_, err := j.Append(t.Context(), e, expected)
	wantError(t, err, ErrNoVerdict)
	_, err = j.AppendSystem(t.Context(), events.System{Kind: events.SystemCheckpoint, Time: time.Now(), Actor: "test"})
	wantError(t, err, ErrNoVerdict)
	if _, err := j.Refuse(t.Context(), "acme", []byte(`{}`)); err == nil {
		t.Error("a refusal that is not durable was stored for good")
	}
	if err := j.SyncBucket(t.Context(), j.names.Contracts); err == nil {
		t.Error("a bucket that is not durable is durable")
	}
}

// A tool that is connected to a server of another process has that process sync. If
// it does not answer, nothing is promised.
func TestAnotherProcessIsAskedForTheSync(t *testing.T) {
	t.Parallel()
	opts := natstest.Options(t.TempDir())
	opts.ServerName = BarrierServer + "test"
	s := started(t, opts)
	d := &disk{js: natstest.JetStream(t, natstest.Connect(t, s))}
	owner := setup(t, s, Config{Barrier: d})
	tool := setup(t, s, Config{CallTimeout: 300 * time.Millisecond})
	e, expected := after("op-1", nil)
	_, err := tool.Append(t.Context(), e, expected)
	wantError(t, err, ErrNoVerdict)

	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- owner.ServeBarrier(ctx) }()
	for tool.settle(t.Context(), 1) != nil {
		time.Sleep(time.Millisecond) // it does not serve yet
	}
	e, expected = after("op-2", nil)
	r, err := tool.Append(t.Context(), e, expected)
	if err != nil {
		t.Fatal(err)
	}
	if durable := d.durable.Load(); r.Seq > durable {
		t.Errorf("message %d was acknowledged while %d were durable", r.Seq, durable)
	}
	for _, err := range []error{
		tool.SyncBucket(t.Context(), tool.names.Contracts),
		func() error { _, err := tool.Refuse(t.Context(), "acme", []byte(`{}`)); return err }(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	d.fail.Store(true)
	if err := tool.SyncBucket(t.Context(), tool.names.Contracts); err == nil {
		t.Error("a bucket that is not durable is durable")
	}
	e, expected = after("op-3", nil)
	_, err = tool.Append(t.Context(), e, expected)
	wantError(t, err, ErrNoVerdict)
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func started(t testing.TB, opts *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// I13: the same as without a barrier, under the same faults.
func TestAppendsBehindABarrierAreStoredOnceUnderRandomFaults(t *testing.T) {
	t.Parallel()
	j, _ := behind(t)
	storedOnceUnderFaults(t, j)
}
