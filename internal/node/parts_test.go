package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/internal/natstest"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/projections"
)

// A server that does not know the ledger's user for a moment, as while it
// restarts, does not end the connection for ever.
func TestConnectionOutlivesAMomentOfRefusedCredentials(t *testing.T) {
	dir, port := t.TempDir(), -1
	boot := func(user string) *server.Server {
		o := natstest.Options(dir)
		o.DontListen, o.Host, o.Port = false, "127.0.0.1", port
		o.Username, o.Password = user, "pw"
		s, err := server.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(10 * time.Second) {
			t.Fatal("the server is not ready")
		}
		return s
	}
	halt := func(s *server.Server) { s.Shutdown(); s.WaitForShutdown() }
	s := boot("ledger")
	if _, err := fmt.Sscanf(s.ClientURL(), "nats://127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_LEDGER_PASSWORD", "pw")
	cfg := &config.Config{}
	cfg.NATS.URL, cfg.NATS.User, cfg.NATS.Password = s.ClientURL(), "ledger", "env://TEST_LEDGER_PASSWORD"
	var refused atomic.Int32
	log := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		if strings.Contains(strings.ToLower(string(p)), "authorization") {
			refused.Add(1)
		}
		return len(p), nil
	}), nil))
	nc, err := connect(cfg, nil, "test", log)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	halt(s)
	s = boot("another")
	natstest.Eventually(t, 20*time.Second, "three refusals", func() bool { return refused.Load() >= 3 || nc.IsClosed() })
	halt(s)
	s = boot("ledger")
	defer halt(s)
	natstest.Eventually(t, 20*time.Second, "the connection to be back", func() bool { return nc.IsConnected() })
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// What was written a moment ago is remembered, however long it was known before.
func TestMemoryForgetsTheLongestUntouched(t *testing.T) {
	m := newMemory()
	wrote := func(op string, seq uint64) {
		m.wrote(operation.State{Tenant: "acme", OperationID: op, Version: seq, LastSeq: seq})
	}
	version := func(op string) uint64 {
		k, _ := m.get("acme", op)
		return k.state.Version
	}
	wrote("a", 1)
	for i := range maxMemory - 1 {
		wrote(fmt.Sprint(i), 1)
	}
	wrote("a", 2)
	wrote("z", 1)
	if version("a") != 2 || version("z") != 1 || version("0") != 0 {
		t.Errorf("got a %d, z %d, 0 %d; want 2, 1 and 0 forgotten", version("a"), version("z"), version("0"))
	}
}

// I5: a decision that depends on time stamps rests on the log's, not on the clock
// of the process that has just written; and what is applied late takes nothing
// newer away.
func TestMemoryIsExactOnlyWithTheLogsTimeStamps(t *testing.T) {
	m := newMemory()
	s := operation.State{Tenant: "acme", OperationID: "op-1", Version: 1, LastSeq: 10, Status: operation.StatusPending}
	exact := func() bool { k, _ := m.get("acme", "op-1"); return k.exact() }
	m.wrote(s)
	if !exact() {
		t.Error("before the first attempt there is no time stamp that matters")
	}
	s.Version, s.LastSeq, s.Started, s.Status = 2, 12, 1, operation.StatusInFlight
	m.wrote(s)
	if exact() {
		t.Error("an attempt that was just written has this process's time stamps")
	}
	old := s
	old.Version, old.LastSeq = 1, 10
	m.applied(old)
	if k, _ := m.get("acme", "op-1"); k.state.Version != 2 || exact() {
		t.Errorf("an older state took the place of version 2: %d", k.state.Version)
	}
	m.applied(s)
	if !exact() {
		t.Error("folded from the log it is exact")
	}
	m.applied(operation.State{Tenant: "acme", OperationID: "other", LastSeq: 1})
	if _, known := m.get("acme", "other"); known {
		t.Error("what this process never wrote needs no room")
	}
}

// I10: what is stored and not durable yet is for the executor, whose appends are
// durable only together with it. Nobody else is shown it.
func TestWhatIsNotDurableIsNotShown(t *testing.T) {
	index, err := projections.NewIndex(projections.Config{Conn: natstest.Connect(t, natstest.Server(t)), Prefix: "T", Log: &natsjournal.Journal{}, Streams: &natsjournal.Journal{}})
	if err != nil {
		t.Fatal(err)
	}
	shown := states{index: index, memory: newMemory(), follows: true, alarm: func() string { return "" }}
	executes := shown
	executes.early = true
	op := operation.State{Tenant: "acme", OperationID: "op-1", Version: 1, LastSeq: 7, Status: operation.StatusPending}
	check := func(when string, wantShown bool) {
		t.Helper()
		if _, ok := executes.remembered("acme", "op-1", 1); !ok {
			t.Errorf("%s: the executor does not know of it", when)
		}
		if _, ok := shown.remembered("acme", "op-1", 1); ok != wantShown {
			t.Errorf("%s: shown %v, want %v", when, ok, wantShown)
		}
	}
	shown.memory.stored(op)
	check("stored", false)
	shown.memory.wrote(op)
	check("durable", true)
	shown.memory.stored(op)
	check("durable, and told of once more", true)
	next := op
	next.Version, next.LastSeq = 2, 9
	shown.memory.stored(next)
	check("the next one stored", false)
	shown.memory.applied(next)
	check("the next one read from the log", true)
}

// What another process's projector wrote into the bucket before our own came that
// far has been told to those who wait here: the memory is not believed against it.
func TestMemoryIsNotBelievedWhereTheIndexHasSeenMore(t *testing.T) {
	srv := natstest.Server(t)
	index, err := projections.NewIndex(projections.Config{Conn: natstest.Connect(t, srv), Prefix: "T", Log: &natsjournal.Journal{}, Streams: &natsjournal.Journal{}})
	if err != nil {
		t.Fatal(err)
	}
	s := states{index: index, memory: newMemory(), follows: true, alarm: func() string { return "" }}
	op := operation.State{Tenant: "acme", OperationID: "op-1", Version: 1, LastSeq: 10, Status: operation.StatusPending, NextAction: events.NextAttempt}
	s.memory.wrote(op)
	index.Apply(op)
	if _, ok := s.remembered("acme", "op-1", 0); !ok {
		t.Error("what was just written is not remembered")
	}
	op.Version, op.LastSeq, op.Status, op.NextAction = 4, 40, operation.StatusConfirmed, events.NextNone
	index.Apply(op)
	if got, ok := s.remembered("acme", "op-1", 0); ok {
		t.Errorf("version %d is believed, and the index has seen 4", got.Version)
	}
}

// What this process writes wakes its roles when it is stored; the hint of it that comes
// back from the log is for others. One that comes before the acknowledgement waits for
// it, and is heeded if there is none: then nobody was woken.
func TestHintsOfOwnEventsWakeNobodyTwice(t *testing.T) {
	o, heeded := newOwn(), 0
	hint := func(id string) {
		heed := func() { heeded++ }
		if !o.wrote(id, heed) {
			heed()
		}
	}
	o.begin("early")
	hint("early") // of the executor
	hint("early") // of the reconciler
	if !o.knows("early") {
		t.Error("an event that is being written is not known as its own")
	}
	o.end("early", nil)
	hint("early") // handed out again
	o.begin("late")
	o.end("late", nil)
	hint("late")
	if heeded != 0 {
		t.Errorf("%d hints of own events were heeded", heeded)
	}
	o.begin("no verdict")
	hint("no verdict")
	hint("no verdict")
	o.end("no verdict", errors.New("nobody knows"))
	if heeded != 2 {
		t.Errorf("%d hints were heeded, want both of the event whose append failed", heeded)
	}
	if !o.knows("early") || !o.knows("late") || o.knows("no verdict") || o.knows("of another process") || o.knows("") {
		t.Error("own events are not those that were stored")
	}
	hint("no verdict")
	hint("of another process")
	hint("")
	if heeded != 5 {
		t.Errorf("%d hints were heeded, want 5", heeded)
	}
	for i := range 2 * maxOwn {
		id := fmt.Sprint(i)
		o.begin(id)
		o.end(id, nil)
	}
	if len(o.stored) != maxOwn || len(o.writing) != 0 {
		t.Errorf("%d stored and %d in writing are remembered, want %d and 0", len(o.stored), len(o.writing), maxOwn)
	}
}

type serverClock func() (time.Time, error)

func (f serverClock) Time(context.Context) (time.Time, error) { return f() }

// One slow answer does not move contract time: the quickest of a few counts.
func TestSlowAnswerDoesNotMoveContractTime(t *testing.T) {
	n := 0
	c, err := newClock(t.Context(), serverClock(func() (time.Time, error) {
		now := time.Now()
		if n++; n == 1 {
			<-time.After(700 * time.Millisecond) // the slow answer itself is what is tested
		}
		return now, nil
	}), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if off := time.Until(c.Now()); off.Abs() > 100*time.Millisecond {
		t.Errorf("contract time is off by %s although both clocks are one", off)
	}
}
