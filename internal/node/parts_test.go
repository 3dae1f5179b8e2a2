package node

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/natstest"
	"github.com/opledger/opledger/operation"
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
func TestRecentForgetsTheLongestUntouched(t *testing.T) {
	r := newRecent()
	wrote := func(op string, version uint64) {
		r.wrote(operation.State{Tenant: "acme", OperationID: op, Version: version})
	}
	wrote("a", 1)
	for i := range maxRecent - 1 {
		wrote(fmt.Sprint(i), 1)
	}
	wrote("a", 2)
	wrote("z", 1)
	if r.version("acme", "a") != 2 || r.version("acme", "z") != 1 || r.version("acme", "0") != 0 {
		t.Errorf("got a %d, z %d, 0 %d; want 2, 1 and 0 forgotten",
			r.version("acme", "a"), r.version("acme", "z"), r.version("acme", "0"))
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
