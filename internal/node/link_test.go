package node

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/natstest"
)

// swallowing is a way to a server that can begin to swallow everything, like a
// network that drops packets: no connection breaks.
type swallowing struct {
	address string
	silent  atomic.Bool
	taken   atomic.Int32
}

func newSwallowing(t *testing.T, to string) *swallowing {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	s := &swallowing{address: ln.Addr().String()}
	forward := func(dst, src net.Conn) {
		buf := make([]byte, 4<<10)
		for {
			n, err := src.Read(buf)
			if err == nil && !s.silent.Load() {
				_, err = dst.Write(buf[:n])
			}
			if err != nil {
				_ = errors.Join(src.Close(), dst.Close())
				return
			}
		}
	}
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			s.taken.Add(1)
			t.Cleanup(func() { _ = errors.Join(in.Close(), out.Close()) })
			go forward(out, in)
			go forward(in, out)
		}
	}()
	return s
}

// Goal: a server that is not heard any more is left for another one of the cluster
// within seconds, though no connection breaks. Method: two ways to a server, of which
// the one in use begins to swallow everything.
func TestAServerThatIsNotHeardIsLeft(t *testing.T) {
	t.Parallel()
	url := natstest.Listening(t).ClientURL()
	ways := []*swallowing{newSwallowing(t, strings.TrimPrefix(url, "nats://")), newSwallowing(t, strings.TrimPrefix(url, "nats://"))}
	cfg, err := config.Parse("test.yaml", []byte("tenants: [{id: acme}]\nnats: {url: \"nats://"+ways[0].address+",nats://"+ways[1].address+"\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := connect(cfg, nil, "test", slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	used, other := ways[0], ways[1]
	if other.taken.Load() > 0 {
		used, other = other, used
	}
	used.silent.Store(true)
	natstest.Eventually(t, 10*pingEvery, "the turn to the other server", func() bool { return other.taken.Load() > 0 && nc.IsConnected() })
}
