package providers_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// rawPeer is a provider that writes bytes of our choice as its answer, whatever
// they are, and keeps the bytes of the requests, apart from those for the account.
type rawPeer struct {
	listener net.Listener

	mu     sync.Mutex
	answer []byte
	got    []rawRequest
}

// rawRequest is what stood on one connection.
type rawRequest struct {
	*http.Request
	head, body string
	// more is how many bytes came behind the request; err is why it is none.
	more int
	err  error
}

func newRawPeer(t testing.TB) *rawPeer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &rawPeer{listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return p
}

func (p *rawPeer) url() string { return "http://" + p.listener.Addr().String() }

// serve answers one request of a connection and closes it.
func (p *rawPeer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	var read bytes.Buffer
	in := bufio.NewReader(io.TeeReader(conn, &read))
	var x rawRequest
	x.Request, x.err = http.ReadRequest(in)
	if x.err == nil {
		var body []byte
		body, x.err = io.ReadAll(x.Body)
		x.body, x.more = string(body), in.Buffered()
	}
	x.head, _, _ = strings.Cut(read.String(), "\r\n\r\n")
	if x.err == nil && x.URL.Path == "/v1/account" {
		_, _ = conn.Write(response(200, "", `{"id":"`+testAccount+`"}`))
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, x)
	_, _ = conn.Write(p.answer)
}

// next sets the answer and forgets the requests so far.
func (p *rawPeer) next(answer []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer, p.got = answer, nil
}

func (p *rawPeer) requests() []rawRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}

func response(status int, header, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n%s", status, len(body), header, body)
}

// rawSeeds are answers of every kind: right, wrong, cut off, and not HTTP.
func rawSeeds(right string) [][]byte {
	return [][]byte{
		response(200, "", right), response(201, "", right), response(404, "", `{}`), response(422, "", `{"error":{"code":"invalid"}}`),
		response(429, "Retry-After: 99999999999999999999\r\n", ""), response(429, "Retry-After: Mon, 01 Jan 0001 00:00:00 GMT\r\n", ""),
		response(302, "Location: http://169.254.169.254/\r\n", ""), response(200, "Content-Encoding: gzip\r\n", "\x1f\x8b"),
		response(200, "", `{"id":1e999}`), response(200, "", `{"id":"`+strings.Repeat("x", 600)+`"}`), response(200, "", strings.Repeat("[", 50)),
		response(200, "X-Request-Id: a\tb\r\n", "{}"), response(200, "", `{"id":"a\u0000b"}`), response(200, "", `{"id":"a","id":"b"}`),
		[]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"), []byte("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
		[]byte("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), []byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching\r\n\r\n"),
		[]byte("HTTP/1.1 103 Early\r\nLink: <x>\r\n\r\n"), []byte("HTTP/2.0 200 OK\r\n\r\n"), []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		{},
		[]byte("\x15\x03\x01"), []byte("200"),
	}
}

// FuzzAnswer: whatever stands on the wire as answer to a request, the request was
// sent once and nothing is taken for "not sent"; a success names an object, and
// what is kept of the answer is small and holds no secret (P1, P3, I18).
func FuzzAnswer(f *testing.F) {
	for _, raw := range rawSeeds(`{"id":"T-1","title":"a","note":"` + testToken + `"}`) {
		f.Add(raw)
	}
	peer := newRawPeer(f)
	file := load(f, "sim-keyed", map[string]string{"total": "1s"})
	h := newHTTP(f, file, peer.url())
	c := testCall(file, `{"title":"a"}`)
	words := operation.OutcomeWords()
	f.Fuzz(func(t *testing.T, raw []byte) {
		peer.next(raw)
		h.Close() // no connection that the peer has closed: a request on it is in doubt and arrives nowhere
		if _, err := h.Probe(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		r, err := h.Prepare(c)
		if err != nil {
			t.Fatal(err)
		}
		o := h.Do(t.Context(), r)
		if n := len(peer.requests()); n != 1 {
			t.Fatalf("got %d requests on the wire, want 1: %+v", n, o)
		}
		if o.Word == operation.OutcomeNotSent || !o.Transport.BytesSent || !slices.Contains(words, o.Word) {
			t.Errorf("got %+v of a request that was sent", o)
		}
		if (o.Word == operation.OutcomeSuccess) != (o.ExternalID != "") || len(o.ExternalID) > providers.MaxExternalID {
			t.Errorf("%s names the object %q", o.Word, o.ExternalID)
		}
		if o.RetryAfter < 0 || o.RetryAfter > 24*time.Hour || len(o.ProviderRequestID) > 128 || len(o.Reason) > 200 || strings.ContainsAny(o.ExternalID+o.ProviderRequestID+o.Reason, "\r\n\x00") {
			t.Errorf("out of bounds: %+v", o)
		}
		if len(o.Result) > 0 && !json.Valid(o.Result) || bytes.Contains(o.Result, []byte(testToken)) || strings.Contains(o.Reason+o.Transport.Error+o.ExternalID+o.ProviderRequestID, testToken) {
			t.Errorf("kept of the answer: %s, %+v", o.Result, o.Transport)
		}
	})
}

// FuzzLook: whatever a search is answered with, a look that failed is not
// complete, and an object is the operation's own only if its mark stands in the
// answer.
func FuzzLook(f *testing.F) {
	right := `{"items":[` + task("T-1", testLabel, "a", "2026-01-01T00:00:00Z") + `],"next_cursor":""}`
	for _, raw := range rawSeeds(right) {
		f.Add(raw)
	}
	for _, body := range []string{
		`{"items":null}`, `{"items":{}}`, `{"items":[null,1,[],{}]}`, `{"items":[],"next_cursor":7}`, `{"items":[],"next_cursor":"c1"}`, `{}`,
		`{"items":[` + task("", testLabel, "a", "x") + `]}`, `{"items":[` + task("T-1", testLabel[:8], "a", "") + `]}`,
	} {
		f.Add(response(200, "", body))
	}
	peer := newRawPeer(f)
	file := load(f, "sim-crm", map[string]string{"total": "1s"})
	h := newHTTP(f, file, peer.url())
	c := testCall(file, `{"title":"a"}`)
	f.Fuzz(func(t *testing.T, raw []byte) {
		peer.next(raw)
		h.Close()
		l := h.Lookup(t.Context(), c)
		if l.Failed && (l.PagesComplete || l.Reason == "") || len(l.Reason) > 300 || strings.ContainsAny(l.Reason, "\r\n\x00") {
			t.Errorf("got %+v", l)
		}
		if !l.AccountOK || l.AccountProbed != testAccount {
			t.Errorf("the search changed the account: %+v", l)
		}
		if len(l.Matches) > 0 && !marked(raw) {
			t.Errorf("%v is taken for the operation's own without its mark in the answer", l.Matches)
		}
		if len(l.Matches) > providers.MaxMatches || len(l.Weak) > providers.MaxMatches || len(l.Result) > 0 && !json.Valid(l.Result) {
			t.Errorf("got %+v", l)
		}
		for _, id := range append(slices.Clone(l.Matches), l.Weak...) {
			if id == "" || len(id) > providers.MaxExternalID || strings.ContainsAny(id, "\r\n\x00") {
				t.Errorf("match %q", id)
			}
		}
	})
}

// marked reports whether the answer holds the label: as it is, or written with
// escapes or in chunks, which only a decoder sees through.
func marked(raw []byte) bool {
	return bytes.Contains(raw, []byte(testLabel)) || bytes.ContainsAny(raw, `\`) || bytes.Contains(bytes.ToLower(raw), []byte("chunked"))
}

// FuzzWire: what stands on the wire is one request, to the place, under the
// headers and with the fields of the contract, whatever the arguments hold: they
// become neither a second request nor a header.
func FuzzWire(f *testing.F) {
	for _, s := range []string{
		"x", "..", "a/b", "%2e%2e", "//evil", "a\r\nb", "a\nX-Evil: 1", "?#", "${secret.token}", "\x00", "@evil.com", "é", "\\", "a;b", " ", "\t", "x HTTP/1.1\r\n\r\nGET /",
		"&on=false", "=", "%0d%0aX: 1", "\u2028", "\x7f", "\u0085",
	} {
		f.Add(s, s)
	}
	peer := newRawPeer(f)
	peer.next(response(200, "", `{"id":"T-1"}`))
	file := exotic(f)
	h, err := providers.NewHTTP(providers.HTTPConfig{File: file, Accounts: map[string]providers.Account{"main": {
		BaseURL: peer.url() + "/base/", AllowLoopback: true, Values: map[string]string{"region": "eu"},
		Secrets: map[string]providers.SecretRef{"token": secretRef(f, testToken)},
	}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(h.Close)
	headers := []string{"Accept", "Connection", "Content-Length", "Content-Type", "Host", "User-Agent", "X-Api-Key", "X-Own", "X-Text"}
	f.Fuzz(func(t *testing.T, where, text string) {
		args, err := json.Marshal(map[string]any{"where": where, "text": text, "deep": map[string]any{"n": 1}})
		if err != nil {
			return
		}
		r, err := h.Prepare(exoticCall(file, string(args)))
		if err != nil {
			return // a value that does not fit is refused before anything is sent
		}
		peer.next(response(200, "", `{"id":"T-1"}`))
		h.Close()
		o := h.Do(t.Context(), r)
		got := peer.requests()
		if len(got) != 1 || got[0].err != nil || got[0].more != 0 || o.Word != operation.OutcomeSuccess {
			t.Fatalf("%q, %q: got %+v and %+v", where, text, got, o)
		}
		x := got[0]
		if x.Method != http.MethodPost || x.Host != peer.listener.Addr().String() || !strings.HasPrefix(x.RequestURI, "/base/a/") || strings.Count(x.RequestURI, "/") != 4 {
			t.Errorf("%q: got %s %s to %s", where, x.Method, x.RequestURI, x.Host)
		}
		if want := "/base/a/" + clean(where) + "/b"; x.URL.Path != want {
			t.Errorf("%q: got the path %q, want %q", where, x.URL.Path, want)
		}
		if q := x.URL.Query(); len(q) != 2 || q.Get("q") != clean(text) || q.Get("fixed") != "${literal}" {
			t.Errorf("%q: got the query %v", text, q)
		}
		for line := range strings.SplitSeq(x.head, "\r\n") {
			name, _, isHeader := strings.Cut(line, ": ")
			if strings.HasPrefix(line, "POST ") {
				continue
			}
			if !isHeader || !slices.Contains(headers, name) {
				t.Errorf("%q, %q: the header line %q", where, text, line)
			}
		}
		if x.Header.Get("X-Api-Key") != testToken || strings.Contains(x.RequestURI+x.body, testToken) {
			t.Errorf("%q, %q: the secret is not in its header only", where, text)
		}
		if x.body != "acct=eu&meta%5Bkey%5D="+testLabel+"&n=1&on=true" {
			t.Errorf("body: %q", x.body)
		}
	})
}

// clean is a text as JSON holds it: each byte that is no UTF-8 is replaced.
func clean(s string) string { return string([]rune(s)) }

// FuzzWork: whatever a worker answers, more than "uncertain" needs a JSON object
// for this attempt; a success names an object under the account of the operation
// (I8), and an object is the operation's own only with its mark.
func FuzzWork(f *testing.F) {
	head := `"attempt_id":"attempt-1","account_id":"` + testAccount + `"`
	for _, raw := range []string{
		`{` + head + `,"outcome":"success","external_id":"T-1","result":{"pin":"1234"}}`, `{` + head + `,"outcome":"rejected","code":"x","answers":"key"}`,
		`{` + head + `,"outcome":"not_applied","retry_after_ms":-1}`, `{` + head + `,"outcome":"not_applied","retry_after_ms":1e99}`,
		`{"attempt_id":"attempt-1","account_id":"acct_2","outcome":"success","external_id":"T-1"}`, `{"attempt_id":"attempt-2","outcome":"not_applied"}`,
		`{` + head + `,"complete":true,"objects":[{"external_id":"T-1","mark":"` + testLabel + `"}]}`, `{` + head + `,"complete":true,"objects":[{"external_id":"T-1","mark":"` + testKey + `"}]}`,
		`{` + head + `,"complete":true,"objects":[null,1,{"alike":true}]}`, `{"failed":{"a":1}}`, `{"heartbeat":true}`, "", "null", "[]", "{", "\xff", `{"attempt_id":["attempt-1"]}`,
		`{` + head + `,` + head + `,"outcome":"success"}`,
	} {
		f.Add([]byte(raw))
	}
	file := parseRemote(f)
	l := &line{}
	w := newRemote(f, file, l)
	c := testCall(file, `{"title":"x","pin":"1234-5678"}`)
	f.Fuzz(func(t *testing.T, raw []byte) {
		l.got, l.answer = nil, func(_ map[string]any, more func([]byte) bool) (string, error) {
			if more(raw) {
				return "", context.DeadlineExceeded // a sign of life, and then nothing
			}
			return string(raw), nil
		}
		var doc map[string]any
		object := json.Unmarshal(raw, &doc) == nil && doc != nil
		o := doRemote(t, w, c)
		if len(l.got) != 1 || !slices.Contains(operation.OutcomeWords(), o.Word) || o.Word == operation.OutcomeNotSent {
			t.Errorf("got %+v after %d messages", o, len(l.got))
		}
		if o.Word != operation.OutcomeUncertain && (!object || doc["attempt_id"] != "attempt-1") {
			t.Errorf("got %s from %q", o.Word, raw)
		}
		if o.Word == operation.OutcomeSuccess && (o.ExternalID == "" || len(o.ExternalID) > providers.MaxExternalID || doc["account_id"] != testAccount) {
			t.Errorf("got %+v from %q", o, raw)
		}
		if o.RetryAfter < 0 || o.RetryAfter > 24*time.Hour || len(o.Result) > 0 && !json.Valid(o.Result) || bytes.Contains(o.Result, []byte("1234-5678")) || len(o.Reason) > 300 {
			t.Errorf("out of bounds: %+v", o)
		}
		look := w.Lookup(t.Context(), c)
		if look.Failed && look.PagesComplete || look.PagesComplete && !object {
			t.Errorf("got %+v", look)
		}
		if len(look.Matches) > 0 && (!look.AccountOK || !strings.Contains(fmt.Sprint(doc["objects"]), testLabel) && !strings.Contains(fmt.Sprint(doc["objects"]), testKey)) {
			t.Errorf("%v is taken for the operation's own: %q", look.Matches, raw)
		}
		if id, err := w.Probe(t.Context(), c); err == nil && (id == "" || !object) {
			t.Errorf("probe: got %q from %q", id, raw)
		}
	})
}
