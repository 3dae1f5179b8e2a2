package natswork_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
	"github.com/opledger/opledger/internal/natswork"
	"github.com/opledger/opledger/providers"
)

const patience = 20 * time.Second

func newLine(t *testing.T, nc *nats.Conn) *natswork.Line {
	t.Helper()
	return newLineAt(t, nc, events.Subjects{})
}

func newLineAt(t *testing.T, nc *nats.Conn, s events.Subjects) *natswork.Line {
	t.Helper()
	l, err := natswork.New(natswork.Config{Conn: nc, Subjects: s})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func none([]byte) bool { return false }

// A message goes to one worker of several, and each message to one.
func TestEachMessageGoesToOneWorker(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	var got atomic.Int32
	for n := range 3 {
		nc := natstest.Connect(t, srv)
		// Members of one group may listen to all actions or to one.
		subject := []string{"opledger.work.files.>", "opledger.work.files.task.create"}[n%2]
		if _, err := nc.QueueSubscribe(subject, "workers", func(m *nats.Msg) {
			got.Add(1)
			_ = m.Respond(m.Data)
		}); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	l := newLine(t, natstest.Connect(t, srv))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n := range 20 {
		want := fmt.Sprint("message ", n)
		answer, err := l.Ask(ctx, "files", "task.create", []byte(want), none)
		if err != nil || string(answer) != want {
			t.Fatalf("got %q, %v, want %q", answer, err, want)
		}
	}
	if got.Load() != 20 {
		t.Errorf("deliveries: got %d, want 20", got.Load())
	}
}

// Signs of life come before the answer, and do not prolong the wait.
func TestSignsOfLifeComeBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	worker := natstest.Connect(t, srv)
	if _, err := worker.QueueSubscribe("opledger.work.files.>", "workers", func(m *nats.Msg) {
		for range 3 {
			_ = m.Respond([]byte("sign"))
		}
		if string(m.Data) == "answer" {
			_ = m.Respond([]byte("done"))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := worker.Flush(); err != nil {
		t.Fatal(err)
	}
	l := newLine(t, natstest.Connect(t, srv))
	signs := 0
	more := func(m []byte) bool {
		if string(m) != "sign" {
			return false
		}
		signs++
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := l.Ask(ctx, "files", "task.create", []byte("answer"), more)
	if err != nil || string(answer) != "done" || signs != 3 {
		t.Errorf("got %q, %v after %d signs, want done after 3", answer, err, signs)
	}
	short, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	if _, err := l.Ask(short, "files", "task.create", []byte("silence"), more); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, providers.ErrNotDelivered) {
		t.Errorf("got %v, want the end of the time and nothing proven", err)
	}
}

// Nothing is proven but what the server or the client says before anything left:
// nobody listens, the message is too large, there is no connection.
func TestOnlyWhatCannotHaveArrivedIsNotDelivered(t *testing.T) {
	t.Parallel()
	srv := natstest.NewNode(t)
	nc := natstest.Connect(t, srv, nats.ReconnectBufSize(-1), nats.ReconnectWait(50*time.Millisecond), nats.MaxReconnects(-1))
	l := newLine(t, nc)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ask := func(body []byte) error {
		_, err := l.Ask(ctx, "files", "task.create", body, none)
		return err
	}
	if err := ask(nil); !errors.Is(err, providers.ErrNotDelivered) || !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("nobody listens: got %v", err)
	}
	if err := ask([]byte(strings.Repeat("x", 2<<20))); !errors.Is(err, providers.ErrNotDelivered) {
		t.Errorf("too large: got %v", err)
	}
	// A worker that says the server's word after a sign of life proves nothing.
	worker := natstest.Connect(t, srv)
	if _, err := worker.QueueSubscribe("opledger.work.files.>", "workers", func(m *nats.Msg) {
		_ = m.Respond([]byte("sign"))
		_ = worker.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{"Status": {"503"}}})
	}); err != nil {
		t.Fatal(err)
	}
	if err := worker.Flush(); err != nil {
		t.Fatal(err)
	}
	_, err := l.Ask(ctx, "files", "task.create", nil, func(m []byte) bool { return string(m) == "sign" })
	if err == nil || errors.Is(err, providers.ErrNotDelivered) {
		t.Errorf("no responders after a sign of life: got %v", err)
	}
	srv.Stop()
	natstest.Eventually(t, patience, "the loss of the connection", func() bool { return nc.IsReconnecting() })
	if err := ask(nil); !errors.Is(err, providers.ErrNotDelivered) {
		t.Errorf("not connected: got %v", err)
	}
	nc.Close()
	if err := ask(nil); !errors.Is(err, providers.ErrNotDelivered) {
		t.Errorf("closed: got %v", err)
	}
}

// A worker that loses its connection after it got the message leaves everything
// open, and nobody delivers the message again.
func TestALostWorkerIsNotReplaced(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	first, second := natstest.Connect(t, srv), natstest.Connect(t, srv)
	got := make(chan struct{}, 2)
	if _, err := first.QueueSubscribe("opledger.work.files.>", "workers", func(*nats.Msg) { got <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if err := first.Flush(); err != nil {
		t.Fatal(err)
	}
	l := newLine(t, natstest.Connect(t, srv))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := l.Ask(ctx, "files", "task.create", nil, none)
		failed <- err
	}()
	<-got
	if _, err := second.QueueSubscribe("opledger.work.files.>", "workers", func(*nats.Msg) { got <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if err := <-failed; err == nil || errors.Is(err, providers.ErrNotDelivered) {
		t.Errorf("got %v, want an error that proves nothing", err)
	}
	if len(got) > 0 {
		t.Error("the message was delivered again")
	}
}

// I14: one message among a thousand ends every worker that reads it. It is handed
// to one of them, once; the others answer the other 999.
func TestOnePoisonedMessageAmongAThousandTakesOneWorker(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	var died, answered atomic.Int32
	for range 4 {
		nc := natstest.Connect(t, srv)
		if _, err := nc.QueueSubscribe("opledger.work.files.>", "workers", func(m *nats.Msg) {
			if string(m.Data) == "poison" {
				died.Add(1)
				nc.Close()
				return
			}
			answered.Add(1)
			_ = m.Respond(m.Data)
		}); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	l := newLine(t, natstest.Connect(t, srv))
	for n := range 1000 {
		if n == 500 {
			short, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
			_, err := l.Ask(short, "files", "task.create", []byte("poison"), none)
			stop()
			if err == nil || errors.Is(err, providers.ErrNotDelivered) {
				t.Errorf("poison: got %v, want an error that proves nothing", err)
			}
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		answer, err := l.Ask(ctx, "files", "task.create", fmt.Append(nil, n), none)
		cancel()
		if err != nil || string(answer) != fmt.Sprint(n) {
			t.Fatalf("message %d: got %q, %v", n, answer, err)
		}
	}
	if died.Load() != 1 || answered.Load() != 999 {
		t.Errorf("got %d workers gone and %d answers, want 1 and 999", died.Load(), answered.Load())
	}
}
