package simulator

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
)

// errHandshake is why a connection ended before its first request.
var errHandshake = errors.New("simulator: the handshake failed")

// handshakeRecord is the first byte of a TLS connection. No HTTP request begins
// with it.
const handshakeRecord = 0x16

// listener looks at the first byte of each connection: TLS and plain HTTP are
// spoken on one port, so that the admin API can be reached in plain.
type listener struct {
	net.Listener

	server *Server
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &sniffed{Conn: conn, server: l.server, in: conn}, nil
}

// sniffed decides at the first read what its connection speaks.
type sniffed struct {
	net.Conn // the raw connection

	server *Server
	once   sync.Once
	in     net.Conn // what HTTP is read from
	err    error
}

// NetConn is the raw connection.
func (c *sniffed) NetConn() net.Conn { return c.Conn }

func (c *sniffed) Read(b []byte) (int, error) {
	c.once.Do(c.sniff)
	if c.err != nil {
		return 0, c.err
	}
	return c.in.Read(b)
}

func (c *sniffed) Write(b []byte) (int, error) { return c.in.Write(b) }

func (c *sniffed) Close() error { return c.in.Close() }

func (c *sniffed) sniff() {
	first := make([]byte, 1)
	if _, c.err = io.ReadFull(c.Conn, first); c.err != nil {
		return
	}
	begun := &prefixed{c.Conn, io.MultiReader(bytes.NewReader(first), c.Conn)}
	if first[0] != handshakeRecord {
		c.in = begun
		return
	}
	config := c.server.cfg.TLS
	if config == nil || c.server.failsHandshake() {
		// A fatal alert, handshake_failure.
		_, _ = c.Conn.Write([]byte{0x15, 3, 3, 0, 2, 2, 40}) // a client that is gone needs no alert
		c.err = errHandshake
		return
	}
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	c.in = tls.Server(begun, config)
}

// prefixed is a connection whose first byte has been read already.
type prefixed struct {
	net.Conn

	from io.Reader
}

func (p *prefixed) Read(b []byte) (int, error) { return p.from.Read(b) }

// failsHandshake counts the connection at the rules for handshakes.
func (s *Server) failsHandshake() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	fails := false
	for _, a := range s.st.rules {
		if a.Do == TLSFailure && a.counts() && !fails {
			fails = true
			a.Fired++
		}
	}
	return fails
}
