package providers

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
)

// counting counts requests and can break the connection of the next ones.
type counting struct {
	n    atomic.Int32
	drop atomic.Bool
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.n.Add(1)
	if c.drop.Load() {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close() // that is the point
		}
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func keyedRequest(t testing.TB, base, body string) *http.Request {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	r := rendered{method: http.MethodPost, url: u, body: []byte(body), headers: []header{{"Idempotency-Key", []piece{{text: "k"}}}}}
	return r.request(credential{}, true)
}

// P1: Go's transport sends a request with an Idempotency-Key again when a
// reused connection breaks. The first half shows that it still does, so that
// the second half proves something.
func TestTheTransportsHiddenRepeatIsHeldDown(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"{}", ""} {
		req := keyedRequest(t, "http://h", body)
		if req.GetBody != nil || req.Body == nil || req.Body == http.NoBody {
			t.Errorf("body %q: the transport could repeat this request", body)
		}
		server := &counting{}
		s := httptest.NewServer(server)
		t.Cleanup(s.Close)
		w, err := newWire(wireConfig{allowLoopback: true, minTLS: tls.VersionTLS12})
		if err != nil {
			t.Fatal(err)
		}
		plain := &http.Transport{}
		for _, tt := range []struct {
			name string
			do   func() error
			want int32
		}{
			{"plain", func() error {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader(body))
				if err != nil {
					return err
				}
				req.Header.Set("Idempotency-Key", "k")
				resp, err := plain.RoundTrip(req)
				if err == nil {
					_, err = readAnswer(resp)
				}
				return err
			}, 2},
			{"ours", func() error { return send(t.Context(), w.pooled, keyedRequest(t, s.URL, body)).err }, 1},
		} {
			server.drop.Store(false)
			if err := tt.do(); err != nil {
				t.Fatal(err)
			}
			server.n.Store(0)
			server.drop.Store(true)
			if err := tt.do(); err == nil {
				t.Errorf("%s: a broken connection gave no error", tt.name)
			}
			if got := server.n.Load(); got != tt.want {
				t.Errorf("%s, body %q: got %d requests on the wire, want %d", tt.name, body, got, tt.want)
			}
		}
	}
}

// P1, the second line of defence: if the transport takes a second connection
// for one request, that connection takes no byte.
func TestASecondConnectionOfOneRequestTakesNoByte(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer func() { _ = theirs.Close() }()
	first, second := &wireConn{Conn: ours}, &wireConn{Conn: ours}
	var w watch
	w.gotConn(traceOf(first))
	w.gotConn(traceOf(second))
	if _, err := second.Write([]byte("x")); !errors.Is(err, errSealed) {
		t.Errorf("got %v", err)
	}
	if w.sent() {
		t.Error("sent: got true, and no byte was written")
	}
	if _, err := first.Write([]byte("x")); !errors.Is(err, errSealed) {
		t.Errorf("a write after the verdict: got %v", err)
	}
}

// P2: bytes that left in the middle of the headers are bytes that left, even
// though the transport's trace has not reported them.
func TestLargeHeadersCountAsSent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 16)) // the beginning of the headers is enough
		_ = conn.Close()
	}()
	w, err := newWire(wireConfig{allowLoopback: true, minTLS: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	req := keyedRequest(t, "http://"+l.Addr().String(), "{}")
	req.Header.Set("X-Large", strings.Repeat("x", 8<<20))
	x := send(t.Context(), w.fresh, req)
	if x.err == nil || !x.transport.BytesSent {
		t.Errorf("got %v, %+v", x.err, x.transport)
	}
}

func TestAConnectionThatIsNotOursIsInDoubt(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	var w watch
	w.gotConn(traceOf(ours))
	if !w.sent() {
		t.Error("sent: got false for a connection that can't be watched")
	}
}

func TestTLSIsVerifiedAndAFailedHandshakeIsNotSent(t *testing.T) {
	t.Parallel()
	server := &counting{}
	s := httptest.NewUnstartedServer(server)
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	strict, err := newWire(wireConfig{allowLoopback: true, minTLS: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	x := send(t.Context(), strict.pooled, keyedRequest(t, s.URL, "{}"))
	if x.err == nil || x.transport.BytesSent || x.transport.Error != wordTLS {
		t.Errorf("unknown authority: got %v, %+v", x.err, x.transport)
	}
	ca := t.TempDir() + "/ca.pem"
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := newWire(wireConfig{allowLoopback: true, minTLS: tls.VersionTLS12, caFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		x = send(t.Context(), w.pooled, keyedRequest(t, s.URL, "{}"))
		if x.err != nil || x.status != 201 || x.transport.ConnReused != (i == 1) {
			t.Errorf("known authority: got %v, %+v", x.err, x.transport)
		}
	}
	server.drop.Store(true)
	x = send(t.Context(), w.pooled, keyedRequest(t, s.URL, "{}"))
	if x.err == nil || !x.transport.BytesSent || server.n.Load() != 3 {
		t.Errorf("dropped: got %v, %+v, %d requests", x.err, x.transport, server.n.Load())
	}
}

func TestLoopbackIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	server := &counting{}
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	w, err := newWire(wireConfig{minTLS: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	x := send(t.Context(), w.pooled, keyedRequest(t, s.URL, "{}"))
	if !errors.Is(x.err, ErrEgress) || x.transport.BytesSent || x.transport.Error != wordEgress || server.n.Load() != 0 {
		t.Errorf("got %v, %+v", x.err, x.transport)
	}
}

func TestAContextThatEndsWhileDialingIsNotSent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w, err := newWire(wireConfig{allowLoopback: true, minTLS: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	x := send(ctx, w.pooled, keyedRequest(t, "http://127.0.0.1:9", "{}"))
	if x.err == nil || x.transport.BytesSent || x.transport.Error != wordCanceled {
		t.Errorf("got %v, %+v", x.err, x.transport)
	}
}

func traceOf(c net.Conn) httptrace.GotConnInfo { return httptrace.GotConnInfo{Conn: c} }

// P2: a connection that breaks while the body is being written has carried bytes,
// and who knows what the provider makes of them.
func TestAResetWhileTheBodyIsWrittenIsInDoubt(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 4096)) // the headers and the beginning of the body
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset instead of an orderly end
		}
		_ = conn.Close()
	}()
	w, err := newWire(wireConfig{allowLoopback: true, minTLS: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	x := send(t.Context(), w.fresh, keyedRequest(t, "http://"+l.Addr().String(), strings.Repeat("x", 16<<20)))
	if x.err == nil || !x.transport.BytesSent || x.transport.Error == "" {
		t.Errorf("got %v, %+v, want doubt", x.err, x.transport)
	}
}

// P2: a name that can't be resolved has sent nothing, and says so.
func TestANameThatIsNotResolvedIsNotSent(t *testing.T) {
	t.Parallel()
	d := &dialer{net: net.Dialer{ControlContext: dialControl(true), Resolver: nameserver(t)}, tls: &tls.Config{MinVersion: tls.VersionTLS12}}
	x := send(t.Context(), d.transport(false), keyedRequest(t, "http://provider.example:80", "{}"))
	if x.err == nil || x.transport.BytesSent || x.transport.Error != wordNoHost {
		t.Errorf("got %v, %+v", x.err, x.transport)
	}
}
