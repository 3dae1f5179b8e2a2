package kills

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func TestALinkForwardsIsSilentAndIsCut(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	g := newGroup(ctx)
	defer g.wait()
	defer cancel()
	echo, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	p, err := newProxy(ctx, g, echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	read := func(limit time.Duration) error {
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	send := func() {
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if err := read(5 * time.Second); err != nil {
		t.Fatalf("an open link: %v", err)
	}
	p.set(silent)
	send()
	if err := read(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a silent link: %v", err)
	}
	p.set(open)
	if err := read(5 * time.Second); err != nil {
		t.Fatalf("a link that is open again: %v", err)
	}
	p.set(cut)
	if err := read(5 * time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a cut link: %v", err)
	}
}
