package providertest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// Received is one request as it came off the wire.
type Received struct {
	Method string
	Path   string
	Query  string
	Header http.Header
	Body   []byte
	// Remote tells connections apart.
	Remote string
}

// Peer is the provider's end of the wire.
type Peer struct {
	// URL is the base URL of the peer.
	URL string

	server *httptest.Server
	mu     sync.Mutex
	usual  http.Handler
	next   []http.HandlerFunc
	seen   []Received
	// named is the account that the usual answers name, and account the one
	// that reads are answered for instead, if it is set.
	named, account string
}

// NewPeer starts a peer that answers as usual says. It ends with the test.
func NewPeer(t testing.TB, usual http.Handler) *Peer {
	t.Helper()
	p := &Peer{usual: usual}
	p.server = httptest.NewServer(http.HandlerFunc(p.serve))
	p.URL = p.server.URL
	t.Cleanup(p.server.Close)
	return p
}

func (p *Peer) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the request never was whole
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	handler := p.usual
	p.mu.Lock()
	p.seen = append(p.seen, Received{
		Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		Header: r.Header.Clone(), Body: body, Remote: r.RemoteAddr,
	})
	if len(p.next) > 0 && r.Method != http.MethodGet {
		handler = p.next[0]
		p.next = p.next[1:]
	}
	named, account := p.named, p.account
	p.mu.Unlock()
	if account != "" && r.Method == http.MethodGet {
		renamed(handler, w, r, named, account)
		return
	}
	handler.ServeHTTP(w, r)
}

// Next answers the next write, that is every request but a GET, in another way.
func (p *Peer) Next(h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = append(p.next, h)
}

// Seen returns every request so far.
func (p *Peer) Seen() []Received {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// Writes returns every request so far but GETs.
func (p *Peer) Writes() []Received {
	return slices.DeleteFunc(p.Seen(), func(r Received) bool { return r.Method == http.MethodGet })
}

// Close stops the peer: further connections are refused.
func (p *Peer) Close() { p.server.Close() }

// Drop closes the connection without an answer.
func Drop(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = conn.Close() // that is the point
}

// Cut answers with a status and a body that breaks off.
func Cut(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer func() { _ = conn.Close() }() // that is the point
		fmt.Fprintf(buf, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			status, len(body)+100, body)
		_ = buf.Flush() // the client may be gone
	}
}

// Answer answers with a status and a JSON body.
func Answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // the client may be gone
	}
}

// Hold tells arrived that the request is here, and answers nothing until the
// client is gone or the test ends.
func Hold(arrived chan<- struct{}, end <-chan struct{}) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-end:
		}
		panic(http.ErrAbortHandler)
	}
}
