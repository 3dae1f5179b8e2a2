package providers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/opledger/opledger/events"
)

// Bounds of the transport.
const (
	// MaxAnswerBytes is the largest body of an answer that is read.
	MaxAnswerBytes = 4 << 20
	// maxAnswerHeader is the largest header of an answer.
	maxAnswerHeader = 256 << 10
	// dialTimeout bounds a connection's making, TLS included.
	dialTimeout = 15 * time.Second
	// idleTimeout is how long an unused connection is kept. It is below the
	// idle timeout of common servers (5 s in Node.js), because a request that
	// meets a connection while it is being closed has an unknown outcome.
	idleTimeout = 4 * time.Second
	// maxIdle is the number of unused connections kept for each account. There
	// are never more than were under way at once, and idleTimeout ends them; fewer
	// would have a busy account make connections only to close them.
	maxIdle = 1024
)

var errSealed = errors.New("providers: the request is over; nothing more is written")

// wireConn is a connection that knows whether bytes of the current request were
// handed to it, and that can refuse all further ones. It stands above TLS, so
// that a handshake is not taken for a request. HTTP/1.1 has one request at a
// time on a connection.
type wireConn struct {
	net.Conn

	mu      sync.Mutex
	written bool
	sealed  bool
}

// Write notes that bytes may leave, then writes.
func (c *wireConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.sealed {
		c.mu.Unlock()
		return 0, errSealed
	}
	c.written = c.written || len(p) > 0
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// begin starts a new request.
func (c *wireConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = false
}

// seal refuses further bytes and reports whether there were any. Its answer is
// final: a write that the transport has not begun yet will fail.
func (c *wireConn) seal() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
	return c.written
}

// watch follows one request through the transport.
type watch struct {
	mu     sync.Mutex
	conns  []*wireConn
	blind  bool // a connection that can't be watched was used
	reused bool
	remote string
}

// gotConn is called when the transport has a connection for the request. A
// second call would be a repeat by the transport: its connection takes no byte
// (P1).
func (w *watch) gotConn(info httptrace.GotConnInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := info.Conn.(*wireConn)
	if !ok {
		w.blind = true
		return
	}
	if len(w.conns) > 0 {
		c.seal()
	} else {
		c.begin()
		w.reused, w.remote = info.Reused, c.RemoteAddr().String()
	}
	w.conns = append(w.conns, c)
}

// sent ends the request and reports whether any byte of it may have left (P2).
func (w *watch) sent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.blind
	for _, c := range w.conns {
		sent = c.seal() || sent
	}
	return sent
}

func (w *watch) seen() (reused bool, remote string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reused, w.remote
}

// wire sends requests of one account.
type wire struct {
	// fresh makes a connection for each request, pooled keeps them.
	fresh, pooled *http.Transport
}

// wireConfig is what a wire is made of.
type wireConfig struct {
	// origin is the only host:port that is dialed; empty means any.
	origin        string
	allowLoopback bool
	minTLS        uint16
	caFile        string
}

func newWire(cfg wireConfig) (*wire, error) {
	tlsConfig := &tls.Config{MinVersion: cfg.minTLS, NextProtos: []string{"http/1.1"}}
	if cfg.caFile != "" {
		pem, err := os.ReadFile(cfg.caFile)
		if err != nil {
			return nil, fmt.Errorf("providers: read CA file: %w", err)
		}
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("providers: the CA file holds no certificate")
		}
	}
	d := &dialer{
		net:    net.Dialer{Timeout: dialTimeout, ControlContext: dialControl(cfg.allowLoopback)},
		tls:    tlsConfig,
		origin: cfg.origin,
	}
	return &wire{fresh: d.transport(false), pooled: d.transport(true)}, nil
}

// dialer makes watched connections.
type dialer struct {
	net    net.Dialer
	tls    *tls.Config
	origin string
}

// transport is HTTP/1.1 only, without proxies from the environment and without
// hidden decompression.
func (d *dialer) transport(keep bool) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext:            d.dial,
		DialTLSContext:         d.dialTLS,
		Protocols:              &protocols,
		DisableKeepAlives:      !keep,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
	}
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.open(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: conn}, nil
}

// open connects to the account's host, and to no other.
func (d *dialer) open(ctx context.Context, network, address string) (net.Conn, error) {
	if d.origin != "" && !strings.EqualFold(address, d.origin) {
		return nil, fmt.Errorf("%w: it is not the account's host", ErrEgress)
	}
	conn, err := d.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("providers: dial: %w", err)
	}
	return conn, nil
}

func (d *dialer) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := d.open(ctx, network, address)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err == nil {
		cfg := d.tls.Clone()
		cfg.ServerName = host
		secure := tls.Client(conn, cfg)
		if err = secure.HandshakeContext(ctx); err == nil {
			return &wireConn{Conn: secure}, nil
		}
	}
	_ = conn.Close() // the handshake's error is what counts
	return nil, fmt.Errorf("providers: tls handshake: %w", err)
}

// close drops the idle connections.
func (w *wire) close() {
	w.fresh.CloseIdleConnections()
	w.pooled.CloseIdleConnections()
}

// onceBody is a request body that is never NoBody and can't be read again:
// together with GetBody == nil it keeps Go's transport from sending a request a
// second time by itself (P1).
type onceBody struct{ io.Reader }

// Close does nothing.
func (onceBody) Close() error { return nil }

// exchange is what happened on the wire.
type exchange struct {
	status    int
	header    http.Header
	body      []byte
	err       error
	transport events.Transport
}

// send puts exactly one request on the wire and reads its answer whole.
func send(ctx context.Context, rt http.RoundTripper, req *http.Request) exchange {
	w := &watch{}
	start := time.Now()
	count(ctx)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: w.gotConn})
	req = req.WithContext(ctx)
	var x exchange
	resp, err := rt.RoundTrip(req) //nolint:bodyclose // readAnswer closes it
	answered := err == nil         // whatever its status is: "HTTP/1.1 000" is one too
	if answered {
		x.status, x.header = resp.StatusCode, resp.Header
		x.body, err = readAnswer(resp)
	}
	x.err = err
	x.transport = events.Transport{Status: x.status, AnswerBytes: len(x.body), BytesSent: answered}
	if err != nil {
		x.transport.Error = wordFor(ctx, err)
		x.transport.BytesSent = w.sent() || answered
	}
	x.transport.ConnReused, x.transport.RemoteServer = w.seen()
	x.transport.DurationMS = time.Since(start).Milliseconds()
	return x
}

var (
	errTooLong = errors.New("providers: the answer is too long")
	errSwitch  = errors.New("providers: malformed answer: it switches protocols and nobody asked")
)

// readAnswer reads the body of an answer, up to its bound. After a switch of
// protocols the body would be the naked connection, which ends with no context:
// it is not read.
func readAnswer(resp *http.Response) ([]byte, error) {
	defer func() { _ = resp.Body.Close() }() // what matters was read
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, errSwitch
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswerBytes+1))
	if err != nil {
		return data, fmt.Errorf("providers: read the answer: %w", err)
	}
	if len(data) > MaxAnswerBytes {
		return nil, errTooLong
	}
	return data, nil
}

// The words for a failed exchange. Errors of the transport can repeat parts of
// the answer, so only a word is kept (I18).
const (
	wordEgress    = "destination_refused"
	wordTimeout   = "timeout"
	wordCanceled  = "canceled"
	wordRefused   = "connection_refused"
	wordReset     = "connection_reset"
	wordClosed    = "connection_closed"
	wordNoHost    = "no_such_host"
	wordTLS       = "tls_failed"
	wordTooLong   = "answer_too_long"
	wordMalformed = "malformed_answer"
	wordTransport = "transport_error"
)

func wordFor(ctx context.Context, err error) string {
	var timeout net.Error
	var dns *net.DNSError
	text := err.Error()
	switch {
	case errors.Is(err, ErrEgress):
		return wordEgress
	case errors.Is(err, errTooLong):
		return wordTooLong
	case errors.Is(ctx.Err(), context.Canceled):
		return wordCanceled
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return wordTimeout
	case errors.As(err, &dns):
		return wordNoHost
	case errors.Is(err, syscall.ECONNREFUSED):
		return wordRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return wordReset
	case strings.Contains(text, "malformed"), strings.Contains(text, "headers exceeded"):
		return wordMalformed // before "connection broken", which the transport says of both
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		strings.Contains(text, "server closed"), strings.Contains(text, "connection broken"):
		return wordClosed
	case strings.Contains(text, "tls handshake"):
		return wordTLS
	}
	return wordTransport
}

// unknownFor translates the word of a request that may have had an effect.
func unknownFor(word string) events.UnknownReason {
	switch word {
	case wordTimeout:
		return events.UnknownTimeout
	case wordCanceled:
		return events.UnknownShutdown
	case wordTooLong, wordMalformed:
		return events.UnknownUnreadable
	}
	return events.UnknownConnectionLost
}
