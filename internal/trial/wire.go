package trial

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxBody is the largest body of a request that the network carries.
const maxBody = 4 << 20

// sending is a write on its way, from the moment when the adapter is asked to
// send it.
type sending struct {
	op     string
	method string
	// path and body are empty where they hold something that is not shown as it
	// is sent.
	path  string
	body  string
	wire  Wire
	after time.Duration
	// at is the virtual time of the sending; over says that the wait for the
	// answer has ended.
	at   time.Time
	over bool
	// arrived is closed when the network has read the request; answered is
	// what ends the wait of its connection, with an answer or without one.
	arrived  chan struct{}
	answered chan bool
}

// wire is the network between the adapter and the provider. It sees every
// request, knows whose it is, and keeps back what it is told to keep back.
type wire struct {
	provider http.Handler
	// later runs something in virtual time.
	later func(after time.Duration, do func(ctx context.Context))
	// untilHeld waits until the provider keeps an answer back.
	untilHeld func(ctx context.Context)

	url string

	mu       sync.Mutex
	ln       net.Listener
	server   *http.Server
	writing  *sending
	badTLS   bool
	owners   []string       // whose the provider's requests are, by their number less one
	writes   map[string]int // requests on the wire by operation
	good     tls.Certificate
	bad      tls.Certificate
	isTLS    bool
	finished sync.WaitGroup
}

// newWire starts the network. It ends with close.
func newWire(
	ctx context.Context, provider http.Handler, f Fault, untilHeld func(context.Context), later func(time.Duration, func(context.Context)),
) (*wire, error) {
	x := &wire{provider: provider, untilHeld: untilHeld, later: later, writes: make(map[string]int), isTLS: f.TLS}
	if f.TLS {
		var err error
		if x.good, err = certificate(); err != nil {
			return nil, err
		}
		if x.bad, err = certificate(); err != nil {
			return nil, err
		}
	}
	x.server = &http.Server{
		Handler: x, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // broken handshakes are played
	}
	x.server.SetKeepAlivesEnabled(!f.NoKeepAlive)
	if err := x.listen(ctx, "127.0.0.1:0"); err != nil {
		return nil, err
	}
	scheme := "http"
	if f.TLS {
		scheme = "https"
	}
	x.url = scheme + "://" + x.ln.Addr().String()
	return x, nil
}

// listen opens the network's end at an address.
func (x *wire) listen(ctx context.Context, addr string) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("trial: listen: %w", err)
	}
	x.ln = ln
	if x.isTLS {
		ln = tls.NewListener(ln, &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: x.certificate,
		})
	}
	x.finished.Go(func() { _ = x.server.Serve(ln) }) // it ends when its listener does
	return nil
}

// reopen listens again where it listened before.
func (x *wire) reopen(ctx context.Context) error {
	const tries = 50
	var err error
	for range tries {
		if err = x.listen(ctx, x.ln.Addr().String()); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return err
}

func (x *wire) close() {
	x.mu.Lock()
	s := x.server
	x.mu.Unlock()
	_ = s.Close() // there is nothing to save
	x.finished.Wait()
}

func (x *wire) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.badTLS {
		return &x.bad, nil
	}
	return &x.good, nil
}

// begin says that the adapter is about to send a write.
func (x *wire) begin(s *sending) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing = s
	x.badTLS = s.wire == WireBadTLS
	if s.wire == WireRefused {
		_ = x.ln.Close() // from now on connections are refused
	}
}

// end says that the adapter has come back.
func (x *wire) end(ctx context.Context, s *sending) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.badTLS = false
	if x.writing == s {
		x.writing = nil
	}
	if s.wire == WireRefused {
		return x.reopen(ctx)
	}
	return nil
}

// take returns the write that a request is, or nil for any other request.
func (x *wire) take(r *http.Request, body []byte) *sending {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.writing
	if s == nil || r.Method != s.method || (s.path != "" && r.URL.Path != s.path) || (s.body != "" && string(body) != s.body) {
		return nil
	}
	x.writing = nil
	x.writes[s.op]++
	return s
}

// ServeHTTP carries one request.
func (x *wire) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return // it never was whole
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s := x.take(r, body)
	if s == nil {
		x.pass(w, r, "")
		return
	}
	switch s.wire {
	case WireOpen, WireRefused, WireBadTLS:
		x.pass(w, r, s.op)
	case WireSlow, WireHalfAnswer:
		a := x.collect(r, body, s.op)
		close(s.arrived)
		if !<-s.answered {
			panic(http.ErrAbortHandler)
		}
		a.copyTo(w)
	case WireHeld:
		// The provider itself keeps the answer, whether the client waits or not.
		late, done := r.Clone(context.WithoutCancel(r.Context())), make(chan *kept, 1)
		x.finished.Go(func() { done <- x.collect(late, body, s.op) })
		x.untilHeld(r.Context())
		close(s.arrived)
		select {
		case a := <-done:
			a.copyTo(w)
		case <-s.answered:
			panic(http.ErrAbortHandler)
		}
	case WireHalfOpen:
		close(s.arrived)
		<-s.answered
		panic(http.ErrAbortHandler)
	case WireTwice:
		x.collect(r, body, s.op)
		x.again(r, body, s)
		panic(http.ErrAbortHandler)
	case WireLate:
		x.again(r, body, s)
		panic(http.ErrAbortHandler)
	}
}

// again delivers a request later, when nobody listens any more.
func (x *wire) again(r *http.Request, body []byte, s *sending) {
	late := r.Clone(context.WithoutCancel(r.Context()))
	x.later(s.after, func(context.Context) { x.collect(late, body, s.op) })
}

// pass hands a request to the provider.
func (x *wire) pass(w http.ResponseWriter, r *http.Request, op string) {
	x.mu.Lock()
	x.owners = append(x.owners, op)
	x.mu.Unlock()
	x.provider.ServeHTTP(w, r)
}

// collect hands a request to the provider and keeps the answer.
func (x *wire) collect(r *http.Request, body []byte, op string) *kept {
	a := &kept{header: make(http.Header)}
	r.Body = io.NopCloser(bytes.NewReader(body))
	x.pass(a, r, op)
	return a
}

// owner returns whose the request with a number is.
func (x *wire) owner(number int64) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if number < 1 || number > int64(len(x.owners)) {
		return ""
	}
	return x.owners[number-1]
}

// sent returns how many requests of an operation were on the wire.
func (x *wire) sent(op string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.writes[op]
}

// kept is an answer that is kept.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (k *kept) Header() http.Header { return k.header }

// WriteHeader implements http.ResponseWriter.
func (k *kept) WriteHeader(status int) { k.status = status }

// Write implements http.ResponseWriter.
func (k *kept) Write(p []byte) (int, error) { return k.body.Write(p) }

// FlushError implements what http.ResponseController asks for.
func (k *kept) FlushError() error { return nil }

func (k *kept) copyTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), k.header)
	w.WriteHeader(max(k.status, http.StatusOK))
	_, _ = w.Write(k.body.Bytes()) // the client may be gone
}

// local is a RoundTripper that calls a handler without a network.
type local struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	k := &kept{header: make(http.Header)}
	l.handler.ServeHTTP(k, r)
	return &http.Response{
		StatusCode: max(k.status, http.StatusOK), Header: k.header, Request: r,
		Body: io.NopCloser(&k.body), ContentLength: int64(k.body.Len()),
	}, nil
}

// certificate makes a certificate for this machine that nobody else vouches for.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("trial: certificate: %w", err)
	}
	now := time.Now()
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "trial"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("trial: certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// pemOf returns a certificate as a CA file holds it.
func pemOf(c tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
}
