package kills

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// link is what a proxy does with its connections.
type link int

const (
	// open forwards.
	open link = iota
	// cut closes what is connected and takes nothing new.
	cut
	// silent keeps every connection, takes new ones, and forwards nothing: a
	// network that swallows packets.
	silent
)

// proxy is a TCP connection between two processes that can be cut.
type proxy struct {
	address, to string
	ln          net.Listener

	mu    sync.Mutex
	state link
	// changed is closed when the state changes.
	changed chan struct{}
	conns   map[net.Conn]bool
}

// newProxy listens and forwards to an address until ctx ends.
func newProxy(ctx context.Context, g *group, to string) (*proxy, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("kills: proxy: %w", err)
	}
	p := &proxy{address: ln.Addr().String(), to: to, ln: ln, changed: make(chan struct{}), conns: make(map[net.Conn]bool)}
	context.AfterFunc(ctx, func() {
		_ = ln.Close()
		p.set(cut)
	})
	g.go1(func(ctx context.Context) error {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return nil //nolint:nilerr // it was closed
			}
			go p.serve(ctx, conn)
		}
	})
	return p, nil
}

// set changes what the proxy does.
func (p *proxy) set(s link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == s {
		return
	}
	p.state = s
	close(p.changed)
	p.changed = make(chan struct{})
	if s == cut {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

func (p *proxy) now() (link, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.changed
}

// keep notes a connection, or closes it when the link is cut.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == cut {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

func (p *proxy) serve(ctx context.Context, in net.Conn) {
	if !p.keep(in) {
		return
	}
	defer p.drop(in)
	if !p.pass(ctx) {
		return
	}
	out, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", p.to)
	if err != nil || !p.keep(out) {
		return
	}
	defer p.drop(out)
	done := make(chan struct{})
	go func() {
		p.copy(ctx, out, in)
		p.drop(out)
		close(done)
	}()
	p.copy(ctx, in, out)
	p.drop(in)
	<-done
}

// copy forwards what comes, while the link is open.
func (p *proxy) copy(ctx context.Context, to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !p.pass(ctx) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits while the link is silent and reports whether it is open.
func (p *proxy) pass(ctx context.Context) bool {
	for {
		state, changed := p.now()
		switch state {
		case open:
			return true
		case cut:
			return false
		case silent:
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// used reports whether something is connected through the link.
func (p *proxy) used() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) > 0
}
