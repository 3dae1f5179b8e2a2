package simulator_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger/providers/simulator"
)

func TestAHalfOpenConnectionIsReadAndNeverAnswered(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.HalfOpen})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan reply, 1)
	go func() { left <- b.doContext(ctx, call{body: task("a")}) }()
	b.eventually("the request in the log", func() bool { return len(b.wire()) == 1 })
	if row := b.lastRequest(); row.Answer != "pending" || row.Fault != simulator.HalfOpen {
		t.Fatalf("log %+v", row)
	}
	cancel()
	if r := b.wait(left); !errors.Is(r.err, context.Canceled) {
		t.Fatalf("reply %+v", r)
	}
	b.eventually("the end of the connection", func() bool { return b.lastRequest().Answer == "none" })
	b.wantObjects(0)
}

func TestAReusedConnectionIsClosedBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.LoseRequest, Reused: true, Times: 1})
	b.wantStatus(b.create("a", ""), http.StatusCreated, "")
	b.wantStatus(b.create("b", ""), http.StatusCreated, "") // a new connection each time
	reusing := &http.Client{Transport: &http.Transport{}}
	defer reusing.CloseIdleConnections()
	b.naive = reusing
	b.wantStatus(b.create("c", ""), http.StatusCreated, "")
	b.wantLost(b.create("d", ""))
	b.wantStatus(b.create("e", ""), http.StatusCreated, "")
	b.wantObjects(4)
}

// certificate is one for 127.0.0.1, and the roots that trust it.
func certificate(t *testing.T) (server *tls.Config, roots *x509.CertPool) {
	t.Helper()
	made := httptest.NewUnstartedServer(nil)
	made.StartTLS()
	defer made.Close()
	roots = x509.NewCertPool()
	roots.AddCert(made.Certificate())
	return &tls.Config{Certificates: made.TLS.Certificates}, roots
}

func TestATLSHandshakeFailsByRuleAndWithoutACertificate(t *testing.T) {
	t.Parallel()
	config, roots := certificate(t)
	secure := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	overTLS := func(cfg simulator.Config) (plain, b *bench) {
		plain = start(t, cfg)
		again := *plain
		again.naive, again.url = secure, strings.Replace(plain.url, "http:", "https:", 1)
		return plain, &again
	}
	plain, b := overTLS(simulator.Config{TLS: config})
	plain.rule(simulator.Rule{Do: simulator.TLSFailure, Nth: 2})
	b.wantStatus(b.create("a", ""), http.StatusCreated, "")
	if r := b.create("b", ""); r.err == nil || !strings.Contains(r.err.Error(), "handshake failure") {
		t.Fatalf("reply %+v", r)
	}
	b.wantStatus(b.create("c", ""), http.StatusCreated, "")
	plain.wantObjects(2)
	if n := len(plain.wire()); n != 2 {
		t.Fatalf("the log has %d rows: a failed handshake is no request", n)
	}
	if _, err := plain.admin.AddRule(t.Context(), simulator.Rule{Do: simulator.TLSFailure, Method: "POST"}); err == nil {
		t.Fatal("a rule for handshakes cannot look at a method")
	}
	if _, b := overTLS(simulator.Config{}); b.create("a", "").err == nil {
		t.Fatal("TLS without a certificate was answered")
	}
}

func TestALateApplicationFollowsTheClockThatTheTestMoves(t *testing.T) {
	t.Parallel()
	c := newClock()
	settings := simulator.Settings{Keys: true}
	b := start(t, simulator.Config{Settings: settings, Now: c.now, LateByClock: true})
	b.rule(simulator.Rule{Do: simulator.ApplyLate, After: simulator.Duration(time.Hour), BodyContains: `"slow"`, Times: 1})
	b.rule(simulator.Rule{Do: simulator.ApplyLate, After: simulator.Duration(time.Minute), BodyContains: `"quick"`})
	received := c.now()
	b.wantLost(b.create("slow", "k"))
	b.wantLost(b.create("quick", ""))
	if got := b.search("slow").items(); len(got) != 0 {
		t.Fatalf("the search finds %v too early", got)
	}
	b.wantStatus(b.create("slow", "k"), http.StatusConflict, "idempotency_key_in_use")
	b.wantObjects(0)
	c.advance(2 * time.Hour)
	rows := b.wantObjects(2)
	if rows[0].Title != "quick" || !rows[1].CreatedAt.Equal(received.Add(time.Hour)) {
		t.Fatalf("rows %+v", rows)
	}
	r := b.create("slow", "k")
	b.wantStatus(r, http.StatusCreated, "")
	if r.id() != rows[1].ID {
		t.Fatalf("id %q, want the one that was applied late", r.id())
	}
}

// S5: what was to come late does not come after a reset.
func TestS5AResetForgetsWhatWasToCommitByTheClock(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := start(t, simulator.Config{Now: c.now, LateByClock: true})
	b.rule(simulator.Rule{Do: simulator.ApplyLate, After: simulator.Duration(time.Minute)})
	b.wantLost(b.create("a", ""))
	if err := b.admin.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Hour)
	b.wantObjects(0)
}

func TestADelayAsksTheConfiguredSleep(t *testing.T) {
	t.Parallel()
	var slept []time.Duration
	var mu sync.Mutex
	b := start(t, simulator.Config{Sleep: func(_ context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		slept = append(slept, d)
		if len(slept) == 2 {
			return errors.New("the run is over")
		}
		return nil
	}})
	b.rule(simulator.Rule{Do: simulator.Delay, After: simulator.Duration(time.Hour)})
	b.wantStatus(b.create("a", ""), http.StatusCreated, "")
	b.wantLost(b.create("b", ""))
	b.wantObjects(2)
	if len(slept) != 2 || slept[0] != time.Hour {
		t.Fatalf("slept %v", slept)
	}
}

func TestAReplayIsMarkedBareOrCurrent(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{Settings: simulator.Settings{Keys: true}})
	first := b.create("a", "k")
	edited := "edited"
	if _, err := b.admin.EditObject(t.Context(), "", first.id(), simulator.ObjectEdit{Title: &edited}); err != nil {
		t.Fatal(err)
	}
	for form, want := range map[simulator.ReplayPolicy]struct{ marker, title string }{
		simulator.ReplayMarked: {"true", "a"}, simulator.ReplayBare: {"", "a"}, simulator.ReplayCurrent: {"", "edited"},
	} {
		b.set(map[string]any{"replay": form})
		r := b.create("a", "k")
		if r.header.Get("Idempotent-Replayed") != want.marker || r.body["title"] != want.title || r.id() != first.id() {
			t.Errorf("%s: %v %s", form, r.header, r.raw)
		}
	}
	b.wantObjects(1)
}

func TestAKeyIsForgottenWithAnErrorWhereTheProviderDoesSo(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{Settings: simulator.Settings{Keys: true, StoreErrors: simulator.StoreForget}})
	b.rule(simulator.Rule{Do: simulator.StatusAfterCommit, Nth: 1})
	b.wantStatus(b.create("a", "k"), http.StatusInternalServerError, "internal")
	b.wantStatus(b.create("a", "k"), http.StatusCreated, "")
	b.wantObjects(2)
}

func TestAKeyBelongsToAnAccountAPathOrEveryone(t *testing.T) {
	t.Parallel()
	for scope, want := range map[simulator.KeyScope]int{simulator.ScopeAccount: 2, simulator.ScopePath: 2, simulator.ScopeShared: 1} {
		b := start(t, simulator.Config{
			Settings: simulator.Settings{Keys: true, KeyScope: scope, Mismatch: simulator.MismatchReplay},
			Tokens:   map[string]string{simulator.DefaultToken: "a", "other": "b"},
		})
		b.wantStatus(b.create("x", "k"), http.StatusCreated, "")
		b.wantStatus(b.do(call{body: task("x"), key: "k", token: "other"}), http.StatusCreated, "")
		if n := len(b.truth()); n != want {
			t.Errorf("%s: %d objects, want %d", scope, n, want)
		}
	}
}

func TestAnotherBodyUnderAKeyIsRefusedAsThePolicySays(t *testing.T) {
	t.Parallel()
	for policy, status := range map[simulator.MismatchPolicy]int{
		simulator.Mismatch400: 400, simulator.Mismatch409: 409, simulator.Mismatch422: 422, simulator.MismatchReplay: 201,
	} {
		b := start(t, simulator.Config{Settings: simulator.Settings{Keys: true, Mismatch: policy}})
		b.create("a", "k")
		if r := b.create("b", "k"); r.status != status || r.status == 201 && r.body["title"] != "a" {
			t.Errorf("%s: %d %s", policy, r.status, r.raw)
		}
		b.wantObjects(1)
	}
}

func TestATakenIDComparesTheContentWhereTheProviderDoes(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	put := func(name string) reply {
		return b.do(call{method: http.MethodPut, path: tasks + "/x", body: task(name)})
	}
	b.wantStatus(put("a"), http.StatusCreated, "")
	b.wantStatus(put("a"), http.StatusConflict, "exists")
	b.set(map[string]any{"unique_compare": true})
	b.wantStatus(put("a"), http.StatusCreated, "")
	b.wantStatus(put("b"), http.StatusConflict, "exists")
	b.wantObjects(1)
}

func TestTwoUpsertsAtOnceBothCreateWhereTheGuardIsWeak(t *testing.T) {
	t.Parallel()
	for policy, want := range map[simulator.UniquePolicy]int{simulator.UniqueStrict: 1, simulator.UniqueWeak: 2} {
		b, _ := preset(t, "salesforce")
		b.set(map[string]any{"unique_id": policy})
		b.rule(simulator.Rule{Do: simulator.Hold, Nth: 1})
		c := post("/services/data/v60.0/sobjects/Account/Ext__c/op-1", `{"Name":"Ann"}`)
		c.method = http.MethodPatch
		first := b.background(c)
		b.waitHeld(1)
		b.do(c)
		b.release()
		b.want(b.wait(first), 201)
		b.wantObjects(want)
		third := b.do(c)
		if want == 1 {
			b.want(third, 200, "created", false)
			continue
		}
		var urls []string
		if err := json.Unmarshal(third.raw, &urls); third.status != 300 || err != nil || len(urls) != 2 {
			t.Fatalf("several matches: %d %s", third.status, third.raw)
		}
	}
}

func TestErrorsHideInABodyWithStatus200(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{Settings: simulator.Settings{Keys: true, StoreErrors: simulator.StoreAll, ErrorsInBody: true}})
	b.wantStatus(b.do(call{body: `{}`, key: "k"}), http.StatusOK, "invalid")
	b.wantStatus(b.do(call{body: task("a"), token: "unknown"}), http.StatusOK, "unauthorized")
	b.rule(simulator.Rule{Do: simulator.RateLimit, Nth: 1})
	b.rule(simulator.Rule{Do: simulator.Refuse, Nth: 2})
	b.wantStatus(b.create("a", ""), http.StatusOK, "rate_limited")
	b.wantStatus(b.create("a", ""), http.StatusServiceUnavailable, "unavailable")
	b.wantObjects(0)
}

func TestAPersonChangesTheObjectBeforeAnyoneLooks(t *testing.T) {
	t.Parallel()
	for human, look := range map[simulator.Human]func(b *bench, o simulator.Object){
		simulator.HumanEdit: func(b *bench, o simulator.Object) {
			if o.Title != simulator.EditedTitle || len(b.search("a").items()) != 1 {
				t.Errorf("row %+v", o)
			}
		},
		simulator.HumanRelabel: func(b *bench, o simulator.Object) {
			if o.Label != "" || len(b.search("a").items()) != 0 {
				t.Errorf("row %+v", o)
			}
		},
		simulator.HumanDelete: func(b *bench, o simulator.Object) {
			if !o.Deleted || len(b.search("a").items()) != 0 {
				t.Errorf("row %+v", o)
			}
		},
	} {
		b := start(t, simulator.Config{})
		b.rule(simulator.Rule{Do: simulator.LoseResponse, Human: human, Times: 1, Method: http.MethodPost})
		b.wantLost(b.create("a", ""))
		look(b, b.wantObjects(1)[0])
	}
}

// The label stands inside a text here, and the title in the body that is kept.
func TestAPersonChangesAnIssueAsItsProviderShowsIt(t *testing.T) {
	t.Parallel()
	b, _ := preset(t, "github-issues")
	b.set(map[string]any{"index_lag": "0s"})
	const mark = "opl0123456789abcdef0123456789abcdef"
	b.rule(simulator.Rule{Do: simulator.Pass, Human: simulator.HumanEdit, Nth: 1})
	b.rule(simulator.Rule{Do: simulator.Pass, Human: simulator.HumanRelabel, Nth: 2})
	for range 2 {
		b.want(b.do(post("/repos/a/b/issues", `{"title":"call Ann","body":"x `+mark+`"}`)), 201, "title", "call Ann")
	}
	b.want(b.do(get("/repos/a/b/issues/1")), 200, "title", simulator.EditedTitle, "body", "x "+mark)
	b.want(b.do(get("/repos/a/b/issues/2")), 200, "title", "call Ann", "body", "x ")
}

func TestASideObjectHasTheTitleAndNoLabel(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.Pass, Side: true, Method: http.MethodPost})
	r := b.create("a", "k")
	rows := b.wantObjects(2)
	side := rows[1]
	if r.id() != rows[0].ID || rows[0].Side || !side.Side || side.Title != "a" || side.Label != "" || side.IdempotencyKey != "" {
		t.Fatalf("rows %+v", rows)
	}
	if row := b.wire()[0]; row.ObjectID != rows[0].ID || row.DuplicateObjectID != "" {
		t.Fatalf("log %+v", row)
	}
	if sends, err := b.admin.Sends(t.Context()); err != nil || sends[0].Objects != 1 {
		t.Fatalf("sends %+v, err %v", sends, err)
	}
}

func TestARequestIsAnsweredAsAnotherAccount(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.Pass, AsAccount: "acct_2", Nth: 2})
	for _, want := range []string{"acct_1", "acct_2", "acct_1"} {
		if r := b.create("a", ""); r.body["account"] != want {
			t.Fatalf("account %v, want %s", r.body["account"], want)
		}
	}
	if row := b.wire()[1]; row.Account != "acct_2" {
		t.Fatalf("log %+v", row)
	}
}

// Every setting can hold for one request, by its number or by chance.
func TestASettingHoldsForTheRequestsThatARulePicks(t *testing.T) {
	t.Parallel()
	c := newClock()
	b := start(t, simulator.Config{Settings: simulator.Settings{Keys: true}, Now: c.now})
	with := func(r simulator.Rule, patch string) {
		t.Helper()
		r.Do, r.With = simulator.Pass, json.RawMessage(patch)
		b.rule(r)
	}
	with(simulator.Rule{Method: http.MethodPost, Nth: 2}, `{"index_lag":"1m"}`)
	with(simulator.Rule{Method: http.MethodPost, Nth: 4}, `{"key_forget_early":"24h"}`)
	with(simulator.Rule{Method: http.MethodGet, Nth: 3}, `{"search_outage":true}`)
	b.create("a", "k")
	b.create("b", "")
	if len(b.search("a").items()) != 1 || len(b.search("b").items()) != 0 {
		t.Fatal("only the second object lags")
	}
	b.wantStatus(b.search("a"), http.StatusServiceUnavailable, "search_unavailable")
	b.create("a", "k")
	b.wantObjects(2)
	b.create("a", "k")
	b.wantObjects(3)

	for _, patch := range []string{`{"dialect":"linear"}`, `{"seed":7}`, `{"no":1}`, `{"mismatch":"x"}`, `[]`} {
		_, err := b.admin.AddRule(t.Context(), simulator.Rule{Do: simulator.Pass, With: json.RawMessage(patch)})
		if err == nil {
			t.Errorf("the patch %s was taken", patch)
		}
	}
}

func TestSameSeedAndOrderGiveTheSameFaultsOfEveryKnob(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) string {
		b := start(t, simulator.Config{Settings: simulator.Settings{Seed: seed}})
		b.rule(simulator.Rule{Do: simulator.LoseResponse, Probability: 0.2, Method: http.MethodPost})
		b.rule(simulator.Rule{Do: simulator.Pass, Probability: 0.3, Side: true, Method: http.MethodPost})
		b.rule(simulator.Rule{Do: simulator.Pass, Probability: 0.5, With: json.RawMessage(`{"flaky_index":0.5}`), Method: http.MethodGet})
		var seen strings.Builder
		for range 30 {
			b.create("a", "")
			seen.WriteString(string(b.lastRequest().Fault) + string(rune('0'+len(b.truth())%10)))
			if len(b.search("a").items()) == 0 {
				seen.WriteString("empty ")
			}
		}
		return seen.String()
	}
	first := run(1)
	if first != run(1) || first == run(2) || !strings.Contains(first, "lose_response") || !strings.Contains(first, "empty") {
		t.Fatalf("run %s", first)
	}
}

func TestSendsAreCountedByWish(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{Settings: simulator.Settings{Keys: true}})
	b.rule(simulator.Rule{Do: simulator.LoseResponse, Nth: 1})
	b.create("a", "k1") // lost, and sent again with a new key
	b.create("a", "k2")
	b.create("b", "k3")
	b.create("b", "k3")
	b.do(call{body: `{"title":"c"}`})
	b.do(call{body: `{"title":"c"}`})
	b.search("a")
	sends, err := b.admin.Sends(t.Context())
	if err != nil || len(sends) != 3 {
		t.Fatalf("sends %+v, err %v", sends, err)
	}
	for i, want := range []simulator.Sends{{Label: "a", Sends: 2, Objects: 2}, {Label: "b", Sends: 2, Objects: 1}, {Sends: 2, Objects: 2}} {
		got := sends[i]
		if got.Label != want.Label || got.Sends != want.Sends || got.Objects != want.Objects || len(got.Requests) != 2 {
			t.Errorf("sends %+v, want %+v", got, want)
		}
	}
	if len(sends[0].Keys) != 2 || len(sends[1].Keys) != 1 {
		t.Errorf("keys %v and %v", sends[0].Keys, sends[1].Keys)
	}
}
