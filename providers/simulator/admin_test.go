package simulator_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/providers/simulator"
)

func TestSettingsChangeAtRunTime(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	got, err := b.admin.PatchSettings(t.Context(), map[string]any{"keys": true, "index_lag": "1.5s"})
	if err != nil || !got.Keys || got.IndexLag != simulator.Duration(1500*time.Millisecond) || got.PageSize != 50 {
		t.Fatalf("settings %+v, err %v", got, err)
	}
	now, err := b.admin.Settings(t.Context())
	if err != nil || now != got {
		t.Fatalf("settings %+v, err %v", now, err)
	}
	now, err = b.admin.SetSettings(t.Context(), simulator.Settings{})
	if err != nil || now.Keys || now.IndexLag != 0 || now.KeyRetention != simulator.Duration(24*time.Hour) {
		t.Fatalf("settings %+v, err %v", now, err)
	}
}

func TestWrongAdminInputIsRefused(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	for _, c := range []struct{ method, path, body string }{
		{"PATCH", "settings", `{"mismatch":"maybe"}`},
		{"PATCH", "settings", `{"index_lag":5}`},
		{"PATCH", "settings", `{"index_lag":"-5s"}`},
		{"PATCH", "settings", `{"flaky_index":1.5}`},
		{"PATCH", "settings", `{"nonsense":1}`},
		{"PATCH", "settings", `{} {}`},
		{"POST", "rules", `{"do":"explode"}`},
		{"POST", "rules", `{"do":"delay"}`},
		{"POST", "rules", `{"do":"status","status":100}`},
		{"POST", "rules", `{"do":"refuse","nth":-1}`},
		{"POST", "rules", ``},
		{"POST", "accounts", `{"token":"x"}`},
		{"POST", "accounts", `{"token":"x","account":"y","revoke":true}`},
		{"GET", "held?wait=soon", ``},
		{"GET", "held?wait=5h", ``},
		{"GET", "requests?after=x", ``},
	} {
		r := b.do(call{method: c.method, path: "/_sim/" + c.path, body: c.body})
		if r.status != http.StatusBadRequest || r.code() != "invalid" {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, r.status, r.raw)
		}
	}
	b.wantStatus(b.do(call{method: "POST", path: "/_sim/objects"}), http.StatusNotFound, "not_found")
	if n := len(b.wire()); n != 0 {
		t.Fatalf("admin requests are in the log: %d", n)
	}
}

func TestTheAdminTokenGuardsAllButHealth(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{AdminToken: "let-me-in"})
	b.wantObjects(0)
	for _, token := range []string{"", "wrong"} {
		c, err := simulator.NewClient(simulator.ClientConfig{BaseURL: b.url + "/", AdminToken: token, HTTPClient: b.naive})
		if err != nil {
			t.Fatal(err)
		}
		var problem *simulator.APIError
		if err := c.Reset(t.Context()); !errors.As(err, &problem) || problem.Status != http.StatusUnauthorized {
			t.Errorf("err %v", err)
		}
		if err := c.Health(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestRulesCanBeTakenAway(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.Refuse})
	b.rule(simulator.Rule{Do: simulator.LoseRequest})
	if err := b.admin.DeleteRule(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	b.wantLost(b.create("a", ""))
	if err := b.admin.DeleteRule(t.Context(), 1); err == nil {
		t.Fatal("a rule was removed twice")
	}
	if err := b.admin.DeleteRules(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantStatus(b.create("a", ""), http.StatusCreated, "")
}

func TestAWaitEndsWithWhatThereIs(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	held, err := b.admin.WaitHeld(t.Context(), 1, time.Millisecond)
	if !errors.Is(err, simulator.ErrWait) || len(held) != 0 {
		t.Fatalf("held %v, err %v", held, err)
	}
	written, err := b.admin.WaitWritten(t.Context(), 1, time.Millisecond)
	if !errors.Is(err, simulator.ErrWait) || len(written) != 0 {
		t.Fatalf("written %v, err %v", written, err)
	}
}

func TestS5AResetForgetsEverythingAndReleasesWhatIsHeld(t *testing.T) {
	t.Parallel()
	b := start(t, keyed(simulator.Settings{Concurrent: simulator.ConcurrentWait}))
	b.rule(simulator.Rule{Do: simulator.Hold, Times: 1})
	first := b.background(call{body: task("a"), key: "k"})
	b.waitHeld(1)
	b.set(map[string]any{"search_outage": true})
	if err := b.admin.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantStatus(b.wait(first), http.StatusCreated, "")
	b.wantObjects(0)
	if rules, err := b.admin.Rules(t.Context()); err != nil || len(rules) != 0 {
		t.Fatalf("rules %v, err %v", rules, err)
	}
	if r := b.create("a", "k"); r.id() != "731" || r.header.Get("Idempotent-Replayed") != "" {
		t.Fatalf("reply %+v", r)
	}
	b.wantStatus(b.search("a"), http.StatusOK, "")
	if row := b.wire()[0]; row.Number != 1 {
		t.Fatalf("log %+v", row)
	}
}

func TestTheTruthTableCanBeFiltered(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.create("a", "")
	b.create("b", "")
	rows, err := b.admin.Objects(t.Context(), simulator.ObjectFilter{Label: "b", Account: "acct_1", Title: "b", ID: "732"})
	if err != nil || len(rows) != 1 || rows[0].Label != "b" {
		t.Fatalf("rows %+v, err %v", rows, err)
	}
	log, err := b.admin.Requests(t.Context(), 1)
	if err != nil || len(log.Items) != 1 || log.Items[0].Number != 2 || log.Received != 2 || log.Dropped != 0 {
		t.Fatalf("log %+v, err %v", log, err)
	}
}

// TestNothingIsLeftWhenServeHasReturned is not parallel: it looks at all
// goroutines of the process.
func TestNothingIsLeftWhenServeHasReturned(t *testing.T) {
	b := start(t, keyed(simulator.Settings{Concurrent: simulator.ConcurrentWait}))
	b.rule(simulator.Rule{Do: simulator.Hold, BodyContains: "hold"})
	b.rule(simulator.Rule{Do: simulator.Delay, BodyContains: "delay", After: simulator.Duration(time.Hour)})
	b.rule(simulator.Rule{Do: simulator.ApplyLate, BodyContains: "late", After: simulator.Duration(time.Hour)})
	var waiting []<-chan reply
	for _, name := range []string{"hold", "delay", "late"} {
		waiting = append(waiting, b.background(call{body: task(name), key: name}))
	}
	b.waitHeld(1)
	waiting = append(waiting, b.background(call{body: task("hold"), key: "hold"}))
	poll := make(chan struct{})
	go func() {
		defer close(poll)
		_, _ = b.admin.WaitWritten(t.Context(), 1, time.Minute) // its end is all that matters
	}()
	b.eventually("four requests", func() bool { return len(b.wire()) == 4 })
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	for _, ch := range waiting {
		if r := b.wait(ch); r.err == nil {
			t.Errorf("a connection was not closed: %+v", r)
		}
	}
	<-poll
	b.naive.CloseIdleConnections()
	var stacks string
	b.eventually("the end of all goroutines", func() bool {
		buf := make([]byte, 1<<20)
		stacks = string(buf[:runtime.Stack(buf, true)])
		return !strings.Contains(stacks, "simulator.(*Server)") && !strings.Contains(stacks, "net/http.(*conn)")
	})
}

func TestTheProviderComesBackWithItsData(t *testing.T) {
	t.Parallel()
	srv, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	naive := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for want := 1; want <= 2; want++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ctx, l) }()
		b := &bench{t: t, url: "http://" + l.Addr().String(), naive: naive}
		b.admin, err = simulator.NewClient(simulator.ClientConfig{BaseURL: b.url, HTTPClient: naive})
		if err != nil {
			t.Fatal(err)
		}
		b.create("a", "")
		b.wantObjects(want)
		cancel()
		if err := <-served; err != nil {
			t.Fatal(err)
		}
	}
}

func TestAListenerThatFailsEndsServeWithAnError(t *testing.T) {
	t.Parallel()
	srv, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := srv.Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("err %v", err)
	}
}

func TestTheHandlerWorksInATestServerAndCloses(t *testing.T) {
	t.Parallel()
	srv, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(srv)
	naive := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	b := &bench{t: t, url: ts.URL, naive: naive}
	b.admin, err = simulator.NewClient(simulator.ClientConfig{BaseURL: ts.URL, HTTPClient: naive})
	if err != nil {
		t.Fatal(err)
	}
	b.rule(simulator.Rule{Do: simulator.Hold})
	ch := b.background(call{body: task("a")})
	b.waitHeld(1)
	srv.Close()
	ts.Close()
	if r := b.wait(ch); r.err == nil {
		t.Fatalf("the held connection was not closed: %+v", r)
	}
}

func TestARecorderCannotBeHungUpOnAndAborts(t *testing.T) {
	t.Parallel()
	srv, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	send := func(method, path, body string) (w *httptest.ResponseRecorder, aborted any) {
		defer func() { aborted = recover() }()
		w = httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+simulator.DefaultToken)
		srv.ServeHTTP(w, r)
		return w, nil
	}
	send("POST", "/_sim/rules", `{"do":"lose_response"}`)
	_, aborted := send("POST", tasks, task("a"))
	if err, ok := aborted.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		t.Fatalf("recovered %v", aborted)
	}
	w, _ := send("GET", "/_sim/objects", "")
	var body struct{ Items []simulator.Object }
	if err := json.NewDecoder(io.Reader(w.Body)).Decode(&body); err != nil || len(body.Items) != 1 {
		t.Fatalf("objects %+v, err %v", body, err)
	}
}

func TestAWrongConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	for _, cfg := range []simulator.Config{
		{Settings: simulator.Settings{PageSize: -1}},
		{Settings: simulator.Settings{UniqueID: "sometimes"}},
		{Tokens: map[string]string{"": "a"}},
		{Tokens: map[string]string{"t": ""}},
	} {
		if _, err := simulator.New(cfg); err == nil {
			t.Errorf("accepted %+v", cfg)
		}
	}
	for _, base := range []string{"", "localhost:80", "ftp://x", "http://", "http://a b"} {
		if _, err := simulator.NewClient(simulator.ClientConfig{BaseURL: base}); err == nil {
			t.Errorf("accepted %q", base)
		}
	}
}
