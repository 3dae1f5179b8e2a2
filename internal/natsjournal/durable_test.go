package natsjournal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
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
	for tool.settle(t.Context(), 1, tool.run()) != nil {
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

// meddled does something after a publish of an event, before its answer is heard.
type meddled struct {
	transport
	do func()
}

func (m *meddled) request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	answer, err := m.transport.request(ctx, msg)
	if do := m.do; do != nil && strings.Contains(msg.Subject, ".events.") {
		m.do = nil
		do()
	}
	return answer, err
}

// host is a server whose power is cut, with the process that has the barrier.
type host struct {
	t    *testing.T
	dir  string
	port int
	srv  *server.Server
	nc   *nats.Conn
	*Journal
	disk *disk
}

func (h *host) boot() {
	h.t.Helper()
	opts := natstest.Options(h.dir)
	opts.ServerName, opts.DontListen, opts.Host, opts.Port = BarrierServer+"test", false, "127.0.0.1", cmp.Or(h.port, -1)
	h.srv = started(h.t, opts)
	h.port = h.srv.Addr().(*net.TCPAddr).Port
	h.nc = h.connect()
	js := natstest.JetStream(h.t, h.nc)
	if _, err := Setup(h.t.Context(), js, Topology{}); err != nil {
		h.t.Fatal(err)
	}
	h.disk = &disk{js: js}
	var err error
	if h.Journal, err = Open(h.t.Context(), h.nc, Config{Barrier: h.disk}); err != nil {
		h.t.Fatal(err)
	}
	go func() { _ = h.ServeBarrier(h.t.Context()) }() // until the test ends
}

func (h *host) connect() *nats.Conn {
	h.t.Helper()
	nc, err := nats.Connect(h.srv.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(nc.Close)
	return nc
}

func (h *host) halt() {
	h.nc.Close()
	h.srv.Shutdown()
	h.srv.WaitForShutdown()
}

// tool is a journal of another process, which asks for its syncs.
func (h *host) tool() (*Journal, *meddled) {
	h.t.Helper()
	tool, err := Open(h.t.Context(), h.connect(), Config{CallTimeout: time.Second})
	if err != nil {
		h.t.Fatal(err)
	}
	m := &meddled{transport: tool.tr}
	tool.tr = m
	for tool.settle(h.t.Context(), 0, tool.run()) != nil {
		time.Sleep(time.Millisecond) // it does not serve yet
	}
	return tool, m
}

// I2: an acknowledgement behind which the connection broke is no promise: nobody has
// said that the message is durable.
func TestALostConnectionPromisesNothing(t *testing.T) {
	t.Parallel()
	h := &host{t: t, dir: t.TempDir()}
	h.boot()
	tool, m := h.tool()
	m.do = func() {
		h.halt()
		for tool.nc.IsConnected() {
			time.Sleep(time.Millisecond)
		}
	}
	e, expected := after("op-1", nil)
	_, err := tool.Append(t.Context(), e, expected)
	wantError(t, err, ErrNoVerdict)
}

// I2: what a server acknowledged before its power was cut is not durable because it
// syncs now, nor is another message that gets its number.
func TestAnotherRunOfTheServerPromisesNothing(t *testing.T) {
	t.Parallel()
	h := &host{t: t, dir: filepath.Join(t.TempDir(), "store")}
	h.boot()
	for i := range 3 {
		appendNext(t, h.Journal, fmt.Sprintf("before-%d", i))
	}
	tool, m := h.tool()
	durable := filepath.Join(t.TempDir(), "durable")
	if err := os.CopyFS(durable, os.DirFS(h.dir)); err != nil {
		t.Fatal(err)
	}
	m.do = func() {
		h.halt()
		h.dir = durable
		h.boot()
		for tool.nc.ConnectedServerId() != h.srv.ID() {
			time.Sleep(time.Millisecond)
		}
	}
	e, expected := after("op-1", nil)
	if r, err := tool.Append(t.Context(), e, expected); err == nil {
		t.Errorf("message %d was acknowledged, and lost", r.Seq)
	}
	for tool.settle(t.Context(), 0, tool.run()) != nil {
		time.Sleep(time.Millisecond)
	}
	e, expected = after("op-2", nil)
	r, err := tool.Append(t.Context(), e, expected)
	if err != nil {
		t.Fatal(err)
	}
	if durable := h.disk.durable.Load(); r.Seq > durable {
		t.Errorf("message %d was acknowledged while %d were durable", r.Seq, durable)
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
