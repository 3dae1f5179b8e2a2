package providers

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

// P5: what a name resolves to is judged when it is dialed. Columns: allowed as it
// is, and with allow_loopback.
func TestOnlyPlacesThatARequestMayGoToAreDialed(t *testing.T) {
	t.Parallel()
	type verdict struct{ plain, loopback bool }
	yes, loop, no := verdict{true, true}, verdict{false, true}, verdict{false, false}
	tests := map[string]verdict{
		// Public and private networks. A provider may be inside the house.
		"93.184.216.34": yes, "2606:2800::1": yes, "10.1.2.3": yes, "172.16.0.1": yes, "192.168.1.1": yes,
		"100.64.0.1": yes, "fd12:3456::1": yes, "198.18.0.1": yes,
		// This machine, in every form.
		"127.0.0.1": loop, "127.255.255.254": loop, "::1": loop, "0.0.0.0": loop, "::": loop,
		"::ffff:127.0.0.1": loop, "::ffff:0.0.0.0": loop, "::127.0.0.1": loop, "::ffff:0:127.0.0.1": loop,
		"64:ff9b::127.0.0.1": loop, "64:ff9b::7f00:1": loop, "2002:7f00:1::": loop, "2002:7f00:0001::1": loop,
		"fe00::5efe:127.0.0.1": loop, "2606:2800::200:5efe:7f00:1": loop,
		// This network.
		"0.0.0.1": no, "0.1.2.3": no, "::2": no, "::ffff:0.0.0.1": no,
		// Link-local, with or without a zone, and what hides it.
		"169.254.169.254": no, "169.254.170.2": no, "169.254.0.1": no, "fe80::1": no, "fe80::1%eth0": no, "febf::1": no,
		"::ffff:169.254.169.254": no, "::ffff:a9fe:a9fe": no, "::169.254.169.254": no, "::ffff:0:169.254.169.254": no,
		"64:ff9b::a9fe:a9fe": no, "64:ff9b::169.254.169.254": no, "2002:a9fe:a9fe::1": no,
		"fd00::5efe:169.254.169.254": no, "2606:2800::5efe:a9fe:a9fe": no,
		// Metadata outside the link-local ranges, and what hides it.
		"fd00:ec2::254": no, "fd00:ec2::23": no, "fd20:ce::254": no, "100.100.100.200": no, "168.63.129.16": no, "192.0.0.192": no,
		"::ffff:100.100.100.200": no, "64:ff9b::6464:64c8": no, "2002:a83f:8110::": no, "::192.0.0.192": no,
		// Where an IPv4 address hides at a place that can't be known.
		"64:ff9b:1::a9fe:a9fe": no, "2001:0:4136:e378:8000:63bf:3fff:fdd2": no,
		// Multicast, broadcast, reserved.
		"224.0.0.1": no, "239.255.255.255": no, "ff02::1": no, "ff01::1": no, "ff0e::1": no, "255.255.255.255": no, "240.0.0.1": no,
		"::ffff:224.0.0.1": no, "64:ff9b::e000:1": no,
	}
	for text, want := range tests {
		addr := netip.MustParseAddr(text)
		if got := (verdict{checkAddress(addr, false) == nil, checkAddress(addr, true) == nil}); got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}

func TestABaseURLIsAHostAndNothingThatHidesSomething(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "x", "ftp://h", "http://", "https://u@h", "https://u:p@h", "https://h?x", "https://h?", "https://h#f", "https:h", "//h", "https://h:x",
		"file:///etc", "gopher://h", "HTTPS:h", "https://h@evil", "https://u%40h@evil",
		// http to another machine.
		"http://h", "http://10.0.0.1", "http://localhost.evil", "http://127.0.0.1.evil",
		// Addresses in other spellings.
		"https://2130706433", "https://0x7f000001", "https://0x7f.0.0.1", "https://0177.0.0.1", "https://017700000001", "https://127.1",
		"https://127.0.1", "https://127.0.0.01", "https://0x7f.1", "https://1.2.3.4.5", "https://256.256.256.256", "https://99999999999999999999",
		"https://0", "https://0xA9FEA9FE", "https://0b1",
		// Dots.
		"https://localhost.", "https://127.0.0.1.", "https://h.", "https://.h", "https://a..h", "https://.", "https://h./x",
		// Letters that only look like those of an address or a host.
		"https://127\u30020\u30020\u30021", "https://127\uff0e0\uff0e0\uff0e1", "https://127\uff610\uff610\uff611", "https://\uff11\uff12\uff17.0.0.1",
		"https://\u2460\u2461\u2466.0.0.1", "https://ex\u00e4mple.com", "https://local\u00adhost", "https://h\u200b",
		// Escapes, spaces, control characters, brackets.
		"https://%31%32%37.0.0.1", "https://h%2eevil", "https://h evil", "https://h\tx", "https://h\x00x", "https://h\r\nx", "https://h\\@evil", "https://h\\.evil",
		"https://[127.0.0.1]", "https://[::1", "https://::1", "https://[fe80::1%25eth0]", "https://[::1%25lo]", "https://h<x", "https://h*", "https://*.h",
		"https://" + strings.Repeat("a.", 127) + "aa",
		// Paths that lead upwards.
		"https://h/..", "https://h/a/../b", "https://h/%2e%2e/b", "https://h/a%2f..%2fb", "https://h/a\\..\\b", "https://h/./b",
	} {
		if u, err := checkBaseURL(bad); !errors.Is(err, ErrEgress) {
			t.Errorf("%q: got %v, %v", bad, u, err)
		}
	}
	for _, good := range []string{
		"https://h", "https://api.example.com", "https://API.example.com:8443/v2/", "https://my_host-1.internal", "https://xn--exmple-cua.com",
		"https://10.1.2.3", "https://[2606:2800::1]:443", "https://1.1.1.1", "https://1a.example", "https://example.a1",
		"http://localhost:8099", "http://127.0.0.1:8099", "http://[::1]:8099/v1", "http://[::ffff:127.0.0.1]", "https://h/a..b/c.",
	} {
		if _, err := checkBaseURL(good); err != nil {
			t.Errorf("%q: got %v", good, err)
		}
	}
	base, err := checkBaseURL("https://h:8443/v2/")
	if err != nil {
		t.Fatal(err)
	}
	if u, err := under(base, "/a%2Fb"); err != nil || u.String() != "https://h:8443/v2/a%2Fb" {
		t.Errorf("got %v, %v", u, err)
	}
	for _, path := range []string{"@evil/x", ".evil/x", ":1/x", "?x", "#x"} {
		if u, err := under(&url.URL{Scheme: "https", Host: "h"}, path); err == nil {
			t.Errorf("path %q: got %v", path, u)
		}
	}
}

func TestAllowedHostsAreExactOrBelowAName(t *testing.T) {
	t.Parallel()
	list := []string{"api.example.com", "*.crm.example", "10.1.2.3", "2606:2800::1"}
	for host, want := range map[string]bool{
		"api.example.com": true, "API.Example.com": true, "x.api.example.com": false, "example.com": false, "notapi.example.com": false,
		"a.crm.example": true, "a.b.CRM.example": true, "crm.example": false, ".crm.example": false, "evilcrm.example": false, "a.crm.example.evil": false,
		"10.1.2.3": true, "10.1.2.4": false, "2606:2800:0::1": true, "2606:2800::2": false,
	} {
		if got := hostAllowed(list, host); got != want {
			t.Errorf("%s: got %t, want %t", host, got, want)
		}
	}
	if !hostAllowed(nil, "anything.example") {
		t.Error("an empty list refuses")
	}
	for _, good := range list {
		if err := CheckHostPattern(good); err != nil {
			t.Errorf("%q: got %v", good, err)
		}
	}
	for _, bad := range []string{"", "*", "*.", "*.*", "a.*", "*a.example", "*.10.0.0.1", "*.::1", "https://h", "h:443", "h/x", "h.", "2130706433", "ex\u00e4mple.com"} {
		if err := CheckHostPattern(bad); !errors.Is(err, ErrEgress) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

// nameserver answers every question for an IPv4 address with these, and is
// asked by the resolver that it returns.
func nameserver(t *testing.T, answers ...netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		const typeA = 1
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			end := 12 // the question: a name, its type, its class
			for end < n && buf[end] != 0 {
				end += int(buf[end]) + 1
			}
			out := bytes.Clone(buf[:end+5])
			binary.BigEndian.PutUint16(out[2:], 0x8180)
			binary.BigEndian.PutUint64(out[4:], 1<<48) // one question, nothing else
			if binary.BigEndian.Uint16(out[end+1:]) == typeA {
				binary.BigEndian.PutUint16(out[6:], uint16(len(answers)))
				for _, a := range answers {
					ip := a.As4()
					out = append(out, 0xc0, 12, 0, typeA, 0, 1, 0, 0, 0, 60, 0, 4)
					out = append(out, ip[:]...)
				}
			}
			_, _ = conn.WriteTo(out, from) // the resolver asks again
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// P5: a name that leads to a place that is refused is refused when it is dialed,
// whatever it led to before.
func TestANameThatLeadsToARefusedPlaceIsNotDialed(t *testing.T) {
	t.Parallel()
	server := &counting{}
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	here := netip.MustParseAddrPort(s.Listener.Addr().String())
	for name, tt := range map[string]struct {
		answers  []netip.Addr
		loopback bool
		sent     bool
	}{
		"loopback":               {[]netip.Addr{here.Addr()}, false, false},
		"loopback, allowed":      {[]netip.Addr{here.Addr()}, true, true},
		"metadata":               {[]netip.Addr{netip.MustParseAddr("169.254.169.254")}, true, false},
		"all zero":               {[]netip.Addr{netip.MustParseAddr("0.0.0.0")}, false, false},
		"several, one of them":   {[]netip.Addr{netip.MustParseAddr("169.254.169.254"), here.Addr()}, true, true},
		"several, none of which": {[]netip.Addr{netip.MustParseAddr("169.254.169.254"), here.Addr()}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &dialer{
				net: net.Dialer{ControlContext: dialControl(tt.loopback), Resolver: nameserver(t, tt.answers...)},
				tls: &tls.Config{MinVersion: tls.VersionTLS12},
			}
			_, port, err := net.SplitHostPort(s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			x := send(t.Context(), d.transport(false), keyedRequest(t, "http://provider.example:"+port, "{}"))
			if (x.err == nil) != tt.sent || x.transport.BytesSent != tt.sent || !tt.sent && x.transport.Error != wordEgress {
				t.Errorf("got %v, %+v", x.err, x.transport)
			}
		})
	}
}

// P5: whatever goes wrong above it, the wire of an account opens connections to that
// account's host only.
func TestAnAccountsWireDialsItsOwnHostOnly(t *testing.T) {
	t.Parallel()
	server := &counting{}
	mine, other := httptest.NewServer(server), httptest.NewServer(server)
	t.Cleanup(mine.Close)
	t.Cleanup(other.Close)
	w, err := newWire(wireConfig{origin: mine.Listener.Addr().String(), allowLoopback: true, minTLS: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	if x := send(t.Context(), w.fresh, keyedRequest(t, mine.URL, "{}")); x.err != nil {
		t.Errorf("own host: got %v", x.err)
	}
	for _, target := range []string{other.URL, strings.Replace(other.URL, "http:", "https:", 1)} {
		x := send(t.Context(), w.fresh, keyedRequest(t, target, "{}"))
		if !errors.Is(x.err, ErrEgress) || x.transport.BytesSent {
			t.Errorf("%s: got %v, %+v", target, x.err, x.transport)
		}
	}
	for text, want := range map[string]string{
		"https://h": "h:443", "http://localhost": "localhost:80", "https://h:8443/x": "h:8443", "https://[2606:2800::1]": "[2606:2800::1]:443",
	} {
		base, err := checkBaseURL(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := originOf(base); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestNoProxyIsTakenFromTheEnvironmentAndNothingIsUnpacked(t *testing.T) {
	t.Parallel()
	w, err := newWire(wireConfig{minTLS: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range []*http.Transport{w.fresh, w.pooled} {
		if tr.Proxy != nil || !tr.DisableCompression || tr.MaxResponseHeaderBytes != maxAnswerHeader {
			t.Errorf("got %+v", tr)
		}
	}
}

// raw answers the first request of a connection with bytes, as fast or as slow
// as write likes.
func raw(t *testing.T, write func(ctx context.Context, conn net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				req, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				if _, err := io.ReadAll(req.Body); err == nil {
					write(t.Context(), conn)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// again writes until the client has had enough, or the test ends.
func again(ctx context.Context, conn net.Conn, text string, pause time.Duration) {
	tick := time.NewTicker(max(pause, time.Nanosecond))
	defer tick.Stop()
	for {
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// An answer costs a bounded time and a bounded amount of memory, whatever the
// peer does.
func TestAnAnswerIsBoundedInTimeAndSize(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\n"
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(make([]byte, 8*MaxAnswerBytes)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	hold := func(ctx context.Context, conn net.Conn, text string) {
		_, _ = io.WriteString(conn, text) // the client may be gone
		<-ctx.Done()
	}
	for name, tt := range map[string]struct {
		write func(context.Context, net.Conn)
		quick bool // it ends long before the time is over
		word  string
	}{
		"says nothing": {func(ctx context.Context, c net.Conn) { hold(ctx, c, "") }, false, wordTimeout},
		"headers drip": {func(ctx context.Context, c net.Conn) {
			_, _ = io.WriteString(c, head)
			again(ctx, c, "X: y\r\n", 5*time.Millisecond)
		}, false, wordTimeout},
		"headers never end": {func(ctx context.Context, c net.Conn) {
			_, _ = io.WriteString(c, head)
			again(ctx, c, strings.Repeat("X: y\r\n", 1000), 0)
		}, true, wordMalformed},
		"one endless header": {func(ctx context.Context, c net.Conn) {
			_, _ = io.WriteString(c, head+"X: ")
			again(ctx, c, strings.Repeat("y", 10000), 0)
		}, true, wordMalformed},
		"body drips": {func(ctx context.Context, c net.Conn) {
			_, _ = io.WriteString(c, head+"\r\n")
			again(ctx, c, "x", 5*time.Millisecond)
		}, false, wordTimeout},
		"body never ends": {func(ctx context.Context, c net.Conn) {
			_, _ = io.WriteString(c, head+"\r\n")
			again(ctx, c, strings.Repeat("x", 1<<20), 0)
		}, true, wordTooLong},
		"length is a lie":     {func(ctx context.Context, c net.Conn) { hold(ctx, c, head+"Content-Length: 10\r\n\r\nx") }, false, wordTimeout},
		"endless early hints": {func(ctx context.Context, c net.Conn) { again(ctx, c, "HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n", 0) }, true, ""},
		"switches protocols": {func(ctx context.Context, c net.Conn) {
			hold(ctx, c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		}, true, wordMalformed},
		"no HTTP": {func(ctx context.Context, c net.Conn) { hold(ctx, c, "SSH-2.0-x\r\n\r\n") }, true, wordMalformed},
		"chunks never end": {func(ctx context.Context, c net.Conn) {
			_, _ = io.WriteString(c, head+"Transfer-Encoding: chunked\r\n\r\n")
			again(ctx, c, "1\r\nx\r\n", 5*time.Millisecond)
		}, false, wordTimeout},
		"packed": {func(_ context.Context, c net.Conn) {
			_, _ = io.WriteString(c, head+"Content-Encoding: gzip\r\n\r\n"+bomb.String())
		}, true, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := time.Second
			if tt.quick {
				limit = 30 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			w, err := newWire(wireConfig{allowLoopback: true, minTLS: tls.VersionTLS12})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan exchange, 1)
			url := raw(t, tt.write)
			go func() { done <- send(ctx, w.fresh, keyedRequest(t, url, "{}")) }()
			select {
			case x := <-done:
				if tt.word == "-" {
					if x.err != nil || len(x.body) != bomb.Len() || newAnswer(x.status, x.header, x.body).docErr == nil {
						t.Errorf("got %v, %d bytes, want them as they came", x.err, len(x.body))
					}
					return
				}
				if x.err == nil || !x.transport.BytesSent || tt.word != "" && x.transport.Error != tt.word || len(x.body) > MaxAnswerBytes {
					t.Errorf("got %v, %d bytes, %+v", x.err, len(x.body), x.transport)
				}
				if tt.quick && ctx.Err() != nil {
					t.Error("it took all the time there was")
				}
			case <-time.After(limit + 10*time.Second):
				t.Fatal("the request has not ended")
			}
		})
	}
}

// I18: what an answer holds does not come back in an error or a reason.
func TestAnErrorOfTheTransportHoldsNothingOfTheAnswer(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"VALUE VALUE\r\n\r\n", "HTTP/1.1 VALUE\r\n\r\n", "HTTP/1.1 200 OK\r\nVALUE\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: VALUE\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: VALUE\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nVALUE\r\n",
	} {
		w, err := newWire(wireConfig{allowLoopback: true, minTLS: tls.VersionTLS12})
		if err != nil {
			t.Fatal(err)
		}
		url := raw(t, func(_ context.Context, c net.Conn) { _, _ = io.WriteString(c, answer) })
		x := send(t.Context(), w.fresh, keyedRequest(t, url, "{}"))
		if x.err == nil || x.transport.Error == "" || strings.Contains(x.transport.Error, "VALUE") {
			t.Errorf("%q: got %v, %+v", answer, x.err, x.transport)
		}
	}
}

// FuzzLink: whatever a provider writes into the header Link, the next page is at
// the origin of the one before.
func FuzzLink(f *testing.F) {
	for _, s := range []string{
		"", "</x?page=2>; rel=next", `<https://h/x>; rel="last next", <https://h/y>; rel=prev`, "<//evil>; rel=next", "<https://u:p@h/>; rel=next",
		"<https:opaque>; rel=next", "<\\\\evil>; rel=next", "<https://h:443/>;rel=next", "<>;rel=next;;", "<a>;rel", "<a>; rel=\"", "<%zz>; rel=next", "<https://h@evil/>; rel=next",
	} {
		f.Add(s)
	}
	at := &url.URL{Scheme: "https", Host: "h", Path: "/v1/list", RawQuery: "a=b"}
	f.Fuzz(func(t *testing.T, link string) {
		c, more, err := nextLink(http.Header{"Link": {link}}, at)
		if err != nil || !more {
			return
		}
		u, err := url.Parse(c.url.String())
		if err != nil || u.Scheme != "https" || u.Host != "h" || u.User != nil || u.Opaque != "" || u.Fragment != "" || c.text == "" {
			t.Errorf("%q leads to %q, %v", link, c.text, err)
		}
	})
}

// FuzzBaseURL: a base URL that is taken names one host in one spelling.
func FuzzBaseURL(f *testing.F) {
	for _, s := range []string{"https://h", "http://127.0.0.1:8/x", "https://[::1]", "https://0x7f.1", "https://h.", "https://a@b", "https://h/%2e%2e", "https://\uff11.0.0.1", "https://h\\@evil"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := checkBaseURL(text)
		if err != nil {
			return
		}
		again, err := url.Parse(u.String())
		if err != nil || again.Host != u.Host || again.User != nil || again.RawQuery != "" || strings.ContainsAny(u.Host, "@%/\\ \r\n\t") {
			t.Errorf("%q: got %q, %v", text, u, err)
		}
		if next, err := under(u, "/v1/x"); err == nil && (next.Host != u.Host || !strings.HasSuffix(next.EscapedPath(), "/v1/x")) {
			t.Errorf("%q: got %q", text, next)
		}
	})
}
