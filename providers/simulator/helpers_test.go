package simulator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger/providers/simulator"
)

const (
	patience = 20 * time.Second
	tasks    = "/v1/tasks"
)

// bench is a simulator on loopback, its admin client and a naive client.
type bench struct {
	t     *testing.T
	url   string
	addr  string
	admin *simulator.Client
	naive *http.Client // one connection for each request, so that nothing is resent
	stop  func() error // ends Serve and returns what it returned
}

// start serves a simulator until the test ends.
func start(t *testing.T, cfg simulator.Config) *bench {
	t.Helper()
	srv, err := simulator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()
	naive := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	b := &bench{t: t, url: "http://" + l.Addr().String(), addr: l.Addr().String(), naive: naive}
	b.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-served:
			return err
		case <-time.After(patience):
			return errors.New("serve does not return")
		}
	})
	t.Cleanup(func() {
		if err := b.stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	b.admin, err = simulator.NewClient(simulator.ClientConfig{
		BaseURL: b.url, AdminToken: cfg.AdminToken, HTTPClient: naive,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// reply is what the naive client saw.
type reply struct {
	status int
	header http.Header
	body   map[string]any
	raw    []byte
	err    error
}

func (r reply) id() string {
	id, _ := r.body["id"].(string)
	return id
}

func (r reply) code() string {
	e, _ := r.body["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

func (r reply) items() []any {
	items, _ := r.body["items"].([]any)
	return items
}

// call is one request of the naive client.
type call struct {
	method      string // empty means POST
	path        string // empty means /v1/tasks
	body        string
	key         string
	contentType string // empty means none
	token       string // empty means the default token
	auth        string // the whole Authorization header, in place of the token
}

func (b *bench) do(c call) reply {
	return b.doContext(b.t.Context(), c)
}

func (b *bench) doContext(ctx context.Context, c call) reply {
	if c.method == "" {
		c.method = http.MethodPost
	}
	if c.path == "" {
		c.path = tasks
	}
	if c.token == "" {
		c.token = simulator.DefaultToken
	}
	req, err := http.NewRequestWithContext(ctx, c.method, b.url+c.path, bytes.NewReader([]byte(c.body)))
	if err != nil {
		return reply{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if c.auth != "" {
		req.Header.Set("Authorization", c.auth)
	}
	if c.contentType != "" {
		req.Header.Set("Content-Type", c.contentType)
	}
	if c.key != "" {
		req.Header.Set("Idempotency-Key", c.key)
	}
	resp, err := b.naive.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	r := reply{status: resp.StatusCode, header: resp.Header}
	r.raw, r.err = io.ReadAll(resp.Body)
	_ = json.Unmarshal(r.raw, &r.body) // some answers are garbage on purpose
	return r
}

// create posts a task whose title and label are the name.
func (b *bench) create(name, key string) reply {
	return b.do(call{body: task(name), key: key})
}

func task(name string) string {
	return `{"title":"` + name + `","label":"` + name + `"}`
}

func (b *bench) search(name string) reply {
	return b.do(call{method: http.MethodGet, path: tasks + "?label=" + name})
}

func (b *bench) rule(r simulator.Rule) {
	b.t.Helper()
	if _, err := b.admin.AddRule(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) set(patch map[string]any) {
	b.t.Helper()
	if _, err := b.admin.PatchSettings(b.t.Context(), patch); err != nil {
		b.t.Fatal(err)
	}
}

// truth returns the rows of the truth table.
func (b *bench) truth() []simulator.Object {
	b.t.Helper()
	rows, err := b.admin.Objects(b.t.Context(), simulator.ObjectFilter{})
	if err != nil {
		b.t.Fatal(err)
	}
	return rows
}

// wantObjects fails unless the truth table has n rows, and returns them.
func (b *bench) wantObjects(n int) []simulator.Object {
	b.t.Helper()
	rows := b.truth()
	if len(rows) != n {
		b.t.Fatalf("the truth table has %d objects, want %d: %+v", len(rows), n, rows)
	}
	return rows
}

// wire returns the rows of the request log.
func (b *bench) wire() []simulator.Request {
	b.t.Helper()
	log, err := b.admin.Requests(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return log.Items
}

func (b *bench) lastRequest() simulator.Request {
	b.t.Helper()
	rows := b.wire()
	if len(rows) == 0 {
		b.t.Fatal("the request log is empty")
	}
	return rows[len(rows)-1]
}

func (b *bench) wantStatus(r reply, status int, code string) {
	b.t.Helper()
	if r.err != nil || r.status != status || r.code() != code {
		b.t.Fatalf("got status %d code %q err %v, want %d %q", r.status, r.code(), r.err, status, code)
	}
}

// wantLost fails unless the client got no answer and the log says so.
func (b *bench) wantLost(r reply) {
	b.t.Helper()
	if r.err == nil {
		b.t.Fatalf("got status %d, want a broken connection", r.status)
	}
	if got := b.lastRequest().Answer; got != "none" {
		b.t.Fatalf("the log says the answer was %q, want none", got)
	}
}

// eventually looks again until it is true.
func (b *bench) eventually(what string, is func() bool) {
	b.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatalf("not in time: %s", what)
		}
	}
}

// background sends a request and returns the channel of its reply.
func (b *bench) background(c call) <-chan reply {
	ch := make(chan reply, 1)
	go func() { ch <- b.do(c) }()
	return ch
}

func (b *bench) wait(ch <-chan reply) reply {
	b.t.Helper()
	select {
	case r := <-ch:
		return r
	case <-time.After(patience):
		b.t.Fatal("no reply")
		return reply{}
	}
}

func (b *bench) waitHeld(n int) []simulator.HeldAnswer {
	b.t.Helper()
	held, err := b.admin.WaitHeld(b.t.Context(), n, patience)
	if err != nil {
		b.t.Fatal(err)
	}
	return held
}

func (b *bench) release() {
	b.t.Helper()
	if _, err := b.admin.Release(b.t.Context(), 0); err != nil {
		b.t.Fatal(err)
	}
}

// clock is a clock that the test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock {
	return &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// record sends a call to the server without a connection.
func record(srv *simulator.Server, c call) *httptest.ResponseRecorder {
	if c.method == "" {
		c.method = http.MethodPost
	}
	if c.auth == "" {
		c.auth = "Bearer " + simulator.DefaultToken
	}
	r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
	r.Header.Set("Authorization", c.auth)
	r.Header.Set("Content-Type", c.contentType)
	w := httptest.NewRecorder()
	srv.ServeHTTP(w, r)
	return w
}
