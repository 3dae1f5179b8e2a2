package simulator_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opledger/opledger/providers/simulator"
)

func TestAPlainCreationCommitsOneObject(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	r := b.do(call{body: `{"title":"call Ann","label":"op-1","due":"2026-04-01","n":12345678901234567890}`, key: "k"})
	b.wantStatus(r, http.StatusCreated, "")
	if r.id() != "731" || r.body["account"] != "acct_1" || r.body["due"] != "2026-04-01" {
		t.Fatalf("answer %s", r.raw)
	}
	if _, err := time.Parse(time.RFC3339, r.body["created_at"].(string)); err != nil {
		t.Fatal(err)
	}
	if r.header.Get("X-Request-Id") == "" || r.header.Get("Content-Type") != "application/json" {
		t.Fatalf("headers %v", r.header)
	}
	o := b.wantObjects(1)[0]
	if o.ID != "731" || o.Label != "op-1" || o.IdempotencyKey != "k" || o.Request != 1 || string(o.Fields["n"]) != "12345678901234567890" {
		t.Fatalf("row %+v", o)
	}
	row := b.lastRequest()
	if row.Answer != "201" || row.ObjectID != "731" || row.Label != "op-1" || row.RequestID != r.header.Get("X-Request-Id") || len(row.BodySHA256) != 64 {
		t.Fatalf("log %+v", row)
	}
	if next := b.create("op-2", ""); next.id() != "732" {
		t.Fatalf("second id %q", next.id())
	}
}

func TestS4AWrongCreationLeavesNoObject(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.wantStatus(b.do(call{body: `{}`}), http.StatusUnprocessableEntity, "invalid")
	b.wantStatus(b.do(call{body: `{"title":""}`}), http.StatusUnprocessableEntity, "invalid")
	b.wantStatus(b.do(call{body: `{"title":7}`}), http.StatusUnprocessableEntity, "invalid")
	b.wantStatus(b.do(call{body: `null`}), http.StatusBadRequest, "invalid_json")
	b.wantStatus(b.do(call{body: task("a"), token: "unknown"}), http.StatusUnauthorized, "unauthorized")
	b.wantStatus(b.do(call{body: task("a"), path: "/v1/other"}), http.StatusNotFound, "not_found")
	b.wantStatus(b.do(call{method: http.MethodDelete}), http.StatusMethodNotAllowed, "method_not_allowed")
	b.wantStatus(b.do(call{body: strings.Repeat("x", 2<<20)}), http.StatusRequestEntityTooLarge, "body")
	b.wantObjects(0)
	if n := len(b.wire()); n != 8 {
		t.Fatalf("the log has %d rows, want 8", n)
	}
}

func TestALostRequestLeavesNoObject(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.LoseRequest, Nth: 2})
	b.create("a", "")
	b.wantLost(b.create("b", ""))
	b.create("c", "")
	b.wantObjects(2)
	if row := b.wire()[1]; row.Fault != simulator.LoseRequest || row.ObjectID != "" || row.Label != "b" {
		t.Fatalf("log %+v", row)
	}
}

func TestALostResponseLeavesAnObject(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.LoseResponse, Method: http.MethodPost, Times: 1})
	b.wantLost(b.create("a", ""))
	o := b.wantObjects(1)[0]
	if row := b.lastRequest(); row.ObjectID != o.ID || row.Fault != simulator.LoseResponse {
		t.Fatalf("log %+v", row)
	}
	if got := b.search("a").items(); len(got) != 1 {
		t.Fatalf("the search finds %v", got)
	}
}

func TestARefusalComesBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.Refuse, Times: 1, After: simulator.Duration(1500 * time.Millisecond)})
	b.rule(simulator.Rule{Do: simulator.Refuse, Times: 1, Headers: map[string]string{"X-Note": "n"}, Body: `{"error":{"code":"own"}}`})
	r := b.create("a", "")
	b.wantStatus(r, http.StatusServiceUnavailable, "unavailable")
	if got := r.header.Get("Retry-After"); got != "2" {
		t.Fatalf("Retry-After %q", got)
	}
	r = b.create("a", "")
	b.wantStatus(r, http.StatusServiceUnavailable, "own")
	if r.header.Get("X-Note") != "n" || r.header.Get("Retry-After") != "" {
		t.Fatalf("headers %v", r.header)
	}
	b.wantObjects(0)
}

func TestARateLimitSaysWhenToComeBack(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := start(t, simulator.Config{Now: c.now})
	after := simulator.Duration(3 * time.Second)
	b.rule(simulator.Rule{Do: simulator.RateLimit, Nth: 1, After: after})
	b.rule(simulator.Rule{Do: simulator.RateLimit, Nth: 2, After: after, RetryAsDate: true})
	b.rule(simulator.Rule{Do: simulator.RateLimit, Nth: 3})
	for _, want := range []string{"3", c.now().Add(3 * time.Second).Format(http.TimeFormat), ""} {
		r := b.create("a", "")
		b.wantStatus(r, http.StatusTooManyRequests, "rate_limited")
		if got := r.header.Get("Retry-After"); got != want {
			t.Fatalf("Retry-After %q, want %q", got, want)
		}
	}
	b.wantObjects(0)
}

func TestACutAfterTheHeadersLeavesAnObjectAndNoBody(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.CutHeaders})
	r := b.create("a", "")
	if r.status != http.StatusCreated || r.header.Get("X-Request-Id") == "" || !errors.Is(r.err, io.ErrUnexpectedEOF) || len(r.raw) != 0 {
		t.Fatalf("reply %+v", r)
	}
	b.wantObjects(1)
	if got := b.lastRequest().Answer; got != "201" {
		t.Fatalf("answer %q", got)
	}
}

func TestACutInTheBodyLeavesAnObjectAndHalfABody(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.CutBody})
	r := b.create("a", "")
	length, err := strconv.Atoi(r.header.Get("Content-Length"))
	if err != nil || !errors.Is(r.err, io.ErrUnexpectedEOF) || len(r.raw) != length/2 || len(r.raw) == 0 {
		t.Fatalf("length %d, got %q, err %v", length, r.raw, r.err)
	}
	b.wantObjects(1)
}

func TestADelayedAnswerCommitsAtOnce(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.Delay, After: simulator.Duration(time.Hour), BodyContains: "long"})
	b.rule(simulator.Rule{Do: simulator.Delay, After: simulator.Duration(30 * time.Millisecond), BodyContains: "short"})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan reply, 1)
	go func() { left <- b.doContext(ctx, call{body: task("long")}) }()
	b.eventually("the commit while the client waits", func() bool { return len(b.truth()) == 1 })
	cancel()
	if r := b.wait(left); !errors.Is(r.err, context.Canceled) {
		t.Fatalf("reply %+v", r)
	}
	began := time.Now()
	b.wantStatus(b.create("short", ""), http.StatusCreated, "")
	if took := time.Since(began); took < 30*time.Millisecond {
		t.Fatalf("the delay took %s", took)
	}
	b.wantObjects(2)
}

func TestALateApplicationCommitsAfterTheConnectionIsGone(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	after := 40 * time.Millisecond
	b.rule(simulator.Rule{Do: simulator.ApplyLate, After: simulator.Duration(after)})
	b.wantLost(b.create("a", ""))
	b.eventually("the commit", func() bool { return len(b.truth()) == 1 })
	o, row := b.truth()[0], b.lastRequest()
	if o.CreatedAt.Sub(row.ReceivedAt) < after || row.ObjectID != o.ID || row.Answer != "none" {
		t.Fatalf("received %s, committed %s, log %+v", row.ReceivedAt, o.CreatedAt, row)
	}
}

func TestALateApplicationIsLostWhenTheServerEnds(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.ApplyLate, After: simulator.Duration(time.Hour)})
	b.wantLost(b.create("a", ""))
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
}

func TestAHeldAnswerIsWrittenWhenItIsReleased(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.Hold, Times: 2})
	first := b.background(call{body: task("a")})
	if held := b.waitHeld(1); held[0].Request != 1 || held[0].ObjectID != "731" || held[0].Method != http.MethodPost {
		t.Fatalf("held %+v", held)
	}
	b.wantObjects(1)
	if got := b.lastRequest().Answer; got != "pending" {
		t.Fatalf("answer %q", got)
	}
	second := b.background(call{body: task("b")})
	b.waitHeld(2)
	if n, err := b.admin.Release(t.Context(), 2); n != 1 || err != nil {
		t.Fatalf("released %d, err %v", n, err)
	}
	written, err := b.admin.WaitWritten(t.Context(), 1, patience)
	if err != nil || written[0].Request != 2 || !written[0].OK {
		t.Fatalf("written %+v, err %v", written, err)
	}
	b.wantStatus(b.wait(second), http.StatusCreated, "")
	b.release()
	b.wantStatus(b.wait(first), http.StatusCreated, "")
	if written, err := b.admin.WaitWritten(t.Context(), 2, patience); err != nil || written[1].Request != 1 {
		t.Fatalf("written %+v, err %v", written, err)
	}
}

func TestAHeldAnswerOfAClientThatLeftIsNotWritten(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.Hold})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan reply, 1)
	go func() { left <- b.doContext(ctx, call{body: task("a")}) }()
	b.waitHeld(1)
	cancel()
	b.wait(left)
	// The server sees the end of the connection a moment later; until then the
	// write can still succeed. The log and the list must agree in either case.
	b.release()
	written, err := b.admin.WaitWritten(t.Context(), 1, patience)
	if err != nil {
		t.Fatal(err)
	}
	if answer := b.lastRequest().Answer; written[0].OK != (answer == "201") {
		t.Fatalf("written %+v, log %q", written[0], answer)
	}
	b.wantObjects(1)
}

func TestAStatusRuleCommitsNothing(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.StatusOnly, Nth: 1})
	b.rule(simulator.Rule{Do: simulator.StatusOnly, Nth: 2, Status: 200, Body: `{"ok":false}`})
	b.wantStatus(b.create("a", ""), http.StatusInternalServerError, "internal")
	if r := b.create("a", ""); r.status != http.StatusOK || r.body["ok"] != false {
		t.Fatalf("reply %+v", r)
	}
	b.wantObjects(0)
}

func TestAStatusAfterTheCommitLeavesAnObject(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.StatusAfterCommit, Status: 502})
	b.wantStatus(b.create("a", ""), http.StatusBadGateway, "internal")
	b.wantObjects(1)
	if got := b.lastRequest().Answer; got != "502" {
		t.Fatalf("answer %q", got)
	}
}

func TestAGarbageAnswerLeavesAnObject(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.Garbage})
	r := b.create("a", "")
	if r.status != http.StatusOK || json.Valid(r.raw) {
		t.Fatalf("status %d, body %q", r.status, r.raw)
	}
	b.wantObjects(1)
}

func TestADuplicateDeliveryMakesTwoObjectsWithoutAKey(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.DuplicateDelivery, Times: 2})
	r := b.create("a", "k")
	rows := b.wantObjects(2)
	if r.id() != rows[0].ID || rows[0].Request != rows[1].Request {
		t.Fatalf("answer %q, rows %+v", r.id(), rows)
	}
	if log := b.wire(); len(log) != 1 || log[0].ObjectID != rows[0].ID || log[0].DuplicateObjectID != rows[1].ID {
		t.Fatalf("log %+v", log)
	}
	b.set(map[string]any{"keys": true})
	b.wantStatus(b.create("b", "k2"), http.StatusCreated, "")
	b.wantObjects(3)
	if b.lastRequest().Replayed {
		t.Fatal("the answer of the first delivery is no replay")
	}
}

// TestAClosedConnectionCarriesNoByte looks at the bytes on the connection.
func TestAClosedConnectionCarriesNoByte(t *testing.T) {
	t.Parallel()
	for _, do := range []simulator.Fault{simulator.LoseRequest, simulator.LoseResponse, simulator.ApplyLate} {
		for _, reset := range []bool{false, true} {
			t.Run(string(do)+" reset "+strconv.FormatBool(reset), func(t *testing.T) {
				t.Parallel()
				b := start(t, simulator.Config{})
				b.rule(simulator.Rule{Do: do, Reset: reset, After: simulator.Duration(time.Millisecond)})
				conn, err := net.Dial("tcp", b.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
					t.Fatal(err)
				}
				body := task("a")
				_, err = io.WriteString(conn, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+simulator.DefaultToken+
					"\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(conn)
				if len(got) != 0 || (err != nil) != reset || (reset && !errors.Is(err, syscall.ECONNRESET)) {
					t.Fatalf("read %q, err %v", got, err)
				}
			})
		}
	}
}

// TestS3TheLogCountsWireSends uses a client that resends on its own: Go's
// transport does so for a request with an Idempotency-Key on a used connection.
func TestS3TheLogCountsWireSends(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.naive = &http.Client{Transport: &http.Transport{}}
	defer b.naive.CloseIdleConnections()
	b.rule(simulator.Rule{Do: simulator.LoseResponse, Nth: 2})
	b.wantStatus(b.create("a", "k1"), http.StatusCreated, "")
	b.wantStatus(b.create("b", "k2"), http.StatusCreated, "")
	if n := len(b.wire()); n != 3 {
		t.Fatalf("the log has %d rows, want 3 for two calls", n)
	}
	b.wantObjects(3)
}

func TestARuleMatchesOnlyWhatItNames(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{
		Name: "second b", Method: http.MethodPost, PathPrefix: "/v1/tasks", BodyContains: `"b"`, Nth: 2, Do: simulator.Refuse,
	})
	for _, name := range []string{"a", "b", "a"} {
		b.wantStatus(b.create(name, ""), http.StatusCreated, "")
	}
	b.wantStatus(b.do(call{method: http.MethodPut, path: tasks + "/x", body: task("b")}), http.StatusCreated, "")
	b.wantStatus(b.create("b", ""), http.StatusServiceUnavailable, "unavailable")
	if row := b.lastRequest(); row.RuleName != "second b" || row.Rule != 1 {
		t.Fatalf("log %+v", row)
	}
	b.wantStatus(b.create("b", ""), http.StatusCreated, "")
	rules, err := b.admin.Rules(t.Context())
	if err != nil || len(rules) != 1 || rules[0].Matched != 3 || rules[0].Fired != 1 {
		t.Fatalf("rules %+v, err %v", rules, err)
	}
}

func TestAProbabilityWithASeedRepeatsItself(t *testing.T) {
	t.Parallel()
	run := func() string {
		b := start(t, simulator.Config{Settings: simulator.Settings{Seed: 42}})
		b.rule(simulator.Rule{Do: simulator.Refuse, Probability: 0.5})
		var pattern strings.Builder
		for range 40 {
			pattern.WriteString(strconv.Itoa(b.create("a", "").status/100) + " ")
		}
		return pattern.String()
	}
	first := run()
	if first != run() || !strings.Contains(first, "2") || !strings.Contains(first, "5") {
		t.Fatalf("pattern %s", first)
	}
}
