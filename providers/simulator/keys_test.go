package simulator_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/opledger/opledger/providers/simulator"
)

func keyed(s simulator.Settings) simulator.Config {
	s.Keys = true
	return simulator.Config{Settings: s, Tokens: map[string]string{simulator.DefaultToken: "acct_1", "other": "acct_2"}}
}

func (b *bench) wantReplay(r, first reply) {
	b.t.Helper()
	if r.err != nil || r.header.Get("Idempotent-Replayed") != "true" || string(r.raw) != string(first.raw) || r.status != first.status {
		b.t.Fatalf("got %d %s %v, want a replay of %d %s", r.status, r.raw, r.err, first.status, first.raw)
	}
	if !b.lastRequest().Replayed {
		b.t.Fatal("the log does not say that the answer was a replay")
	}
}

func TestAKeyIsIgnoredWhenKeysAreOff(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.create("a", "k")
	b.create("a", "k")
	b.wantObjects(2)
}

func TestARepeatedKeyIsReplayed(t *testing.T) {
	t.Parallel()
	b := start(t, keyed(simulator.Settings{}))
	first := b.create("a", "k")
	again := b.create("a", "k")
	b.wantReplay(again, first)
	if first.header.Get("Idempotent-Replayed") != "" || first.header.Get("X-Request-Id") == again.header.Get("X-Request-Id") {
		t.Fatal("each answer needs its own X-Request-Id, and only a replay says so")
	}
	b.wantObjects(1)
}

func TestAKeyIsFoundAfterALostResponse(t *testing.T) {
	t.Parallel()
	b := start(t, keyed(simulator.Settings{}))
	b.rule(simulator.Rule{Do: simulator.LoseResponse, Times: 1})
	b.wantLost(b.create("a", "k"))
	if r := b.create("a", "k"); r.id() != "731" || r.header.Get("Idempotent-Replayed") != "true" {
		t.Fatalf("reply %+v", r)
	}
	b.wantObjects(1)
}

func TestAKeyBelongsToAnAccount(t *testing.T) {
	t.Parallel()
	b := start(t, keyed(simulator.Settings{}))
	b.create("a", "k")
	b.wantStatus(b.do(call{body: task("a"), key: "k", token: "other"}), http.StatusCreated, "")
	rows := b.wantObjects(2)
	if rows[0].Account == rows[1].Account {
		t.Fatalf("rows %+v", rows)
	}
}

func TestAKeyIsForgottenAfterItsRetention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		early, kept time.Duration
	}{
		"as promised": {0, time.Hour},
		"early":       {20 * time.Minute, 40 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := newClock()
			cfg := keyed(simulator.Settings{KeyRetention: simulator.Duration(time.Hour), KeyForgetEarly: simulator.Duration(c.early)})
			cfg.Now = clk.now
			b := start(t, cfg)
			first := b.create("a", "k")
			clk.advance(c.kept - time.Second)
			b.wantReplay(b.create("a", "k"), first)
			clk.advance(time.Second)
			b.wantStatus(b.create("a", "k"), http.StatusCreated, "")
			b.wantObjects(2)
		})
	}
}

func TestAKeyWithAnotherBodyFollowsTheMismatchPolicy(t *testing.T) {
	t.Parallel()
	b := start(t, keyed(simulator.Settings{}))
	first := b.create("a", "k")
	b.wantStatus(b.create("b", "k"), http.StatusBadRequest, "idempotency_mismatch")
	b.set(map[string]any{"mismatch": "422"})
	b.wantStatus(b.create("b", "k"), http.StatusUnprocessableEntity, "idempotency_mismatch")
	b.set(map[string]any{"mismatch": "replay"})
	b.wantReplay(b.create("b", "k"), first)
	b.wantObjects(1)
}

// TestTwoConcurrentRequestsWithOneKeyFollowThePolicy keeps the first request in
// progress while the second comes in.
func TestTwoConcurrentRequestsWithOneKeyFollowThePolicy(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, p simulator.ConcurrentPolicy) (*bench, <-chan reply, <-chan reply) {
		b := start(t, keyed(simulator.Settings{Concurrent: p}))
		b.rule(simulator.Rule{Do: simulator.Hold, Times: 1})
		first := b.background(call{body: task("a"), key: "k"})
		b.waitHeld(1)
		second := b.background(call{body: task("a"), key: "k"})
		b.eventually("the second request", func() bool { return len(b.wire()) == 2 })
		return b, first, second
	}
	t.Run("409", func(t *testing.T) {
		t.Parallel()
		b, first, second := begin(t, simulator.Concurrent409)
		b.wantStatus(b.wait(second), http.StatusConflict, "idempotency_key_in_use")
		b.release()
		b.wantStatus(b.wait(first), http.StatusCreated, "")
		if r := b.create("a", "k"); r.id() != "731" {
			t.Fatalf("afterwards the key answers %+v", r)
		}
		b.wantObjects(1)
	})
	t.Run("wait", func(t *testing.T) {
		t.Parallel()
		b, first, second := begin(t, simulator.ConcurrentWait)
		if got := b.lastRequest().Answer; got != "pending" {
			t.Fatalf("the second request has the answer %s already", got)
		}
		b.release()
		one := b.wait(first)
		b.wantStatus(one, http.StatusCreated, "")
		b.wantReplay(b.wait(second), one)
		b.wantObjects(1)
	})
	t.Run("second", func(t *testing.T) {
		t.Parallel()
		b, first, second := begin(t, simulator.ConcurrentSecond)
		two := b.wait(second)
		b.wantStatus(two, http.StatusCreated, "")
		b.release()
		one := b.wait(first)
		b.wantObjects(2)
		if one.id() == two.id() {
			t.Fatalf("both answers name %s", one.id())
		}
		b.wantReplay(b.create("a", "k"), one)
	})
}

func TestAKeyIsInFlightUntilALateApplication(t *testing.T) {
	t.Parallel()
	b := start(t, keyed(simulator.Settings{Concurrent: simulator.ConcurrentWait}))
	b.rule(simulator.Rule{Do: simulator.ApplyLate, After: simulator.Duration(50 * time.Millisecond), Times: 1})
	b.wantLost(b.create("a", "k"))
	if r := b.create("a", "k"); r.id() != "731" {
		t.Fatalf("reply %+v", r)
	}
	b.wantObjects(1)
}

func TestAWaitingRequestRunsWhenTheFirstDecidedNothing(t *testing.T) {
	t.Parallel()
	b := start(t, keyed(simulator.Settings{Concurrent: simulator.ConcurrentWait}))
	b.rule(simulator.Rule{Do: simulator.Hold, Times: 1})
	first := b.background(call{body: `{"label":"a"}`, key: "k"})
	b.waitHeld(1)
	second := b.background(call{body: `{"label":"a"}`, key: "k"})
	b.eventually("the second request", func() bool { return len(b.wire()) == 2 })
	b.release()
	b.wantStatus(b.wait(first), http.StatusUnprocessableEntity, "invalid")
	r := b.wait(second)
	b.wantStatus(r, http.StatusUnprocessableEntity, "invalid")
	if r.header.Get("Idempotent-Replayed") != "" {
		t.Fatal("an error that is not stored was replayed")
	}
	b.wantObjects(0)
}

func TestErrorsAreStoredUnderAKeyAsThePolicySays(t *testing.T) {
	t.Parallel()
	// Each case sends a creation that answers an error, and then its repeat.
	for name, c := range map[string]struct {
		policy      simulator.StorePolicy
		rule        simulator.Rule
		repeat      int
		replayed    bool
		wantObjects int
	}{
		"none, 500 without a commit": {simulator.StoreNone, simulator.Rule{Do: simulator.StatusOnly}, 201, false, 1},
		"none, 500 after a commit":   {simulator.StoreNone, simulator.Rule{Do: simulator.StatusAfterCommit}, 201, true, 1},
		"none, 418 without a commit": {simulator.StoreNone, simulator.Rule{Do: simulator.StatusOnly, Status: 418}, 201, false, 1},
		"4xx, 418 without a commit":  {simulator.Store4xx, simulator.Rule{Do: simulator.StatusOnly, Status: 418}, 418, true, 0},
		"4xx, 500 without a commit":  {simulator.Store4xx, simulator.Rule{Do: simulator.StatusOnly}, 201, false, 1},
		"all, 500 without a commit":  {simulator.StoreAll, simulator.Rule{Do: simulator.StatusOnly}, 500, true, 0},
		"all, 500 after a commit":    {simulator.StoreAll, simulator.Rule{Do: simulator.StatusAfterCommit}, 500, true, 1},
		"all, a refusal":             {simulator.StoreAll, simulator.Rule{Do: simulator.Refuse}, 201, false, 1},
		"all, a rate limit":          {simulator.StoreAll, simulator.Rule{Do: simulator.RateLimit}, 201, false, 1},
		"all, a lost response":       {simulator.StoreAll, simulator.Rule{Do: simulator.LoseResponse}, 201, true, 1},
		"all, a garbage answer":      {simulator.StoreAll, simulator.Rule{Do: simulator.Garbage}, 201, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, keyed(simulator.Settings{StoreErrors: c.policy}))
			c.rule.Times = 1
			b.rule(c.rule)
			b.create("a", "k")
			r := b.create("a", "k")
			if r.status != c.repeat || (r.header.Get("Idempotent-Replayed") == "true") != c.replayed {
				t.Fatalf("the repeat got %d %v, want %d, replayed %v", r.status, r.header, c.repeat, c.replayed)
			}
			b.wantObjects(c.wantObjects)
		})
	}
}

func TestAStoredValidationErrorIsReplayed(t *testing.T) {
	t.Parallel()
	b := start(t, keyed(simulator.Settings{StoreErrors: simulator.Store4xx}))
	first := b.do(call{body: `{}`, key: "k"})
	b.wantStatus(first, http.StatusUnprocessableEntity, "invalid")
	b.wantReplay(b.do(call{body: `{}`, key: "k"}), first)
}
