package projections

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
	"github.com/opledger/opledger/operation"
)

// State reads the entry where that is new enough, and the log everywhere else:
// entry missing, too old, unreadable, bucket gone.
func TestStateIsAtLeastAsNewAsAskedFor(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	check := func(when string, min, want uint64) {
		t.Helper()
		s, err := l.store.State(t.Context(), "acme", "op", min)
		if err != nil || s.Version != want {
			t.Errorf("%s: got version %d, error %v, want %d", when, s.Version, err, want)
		}
	}
	if s, err := l.store.State(t.Context(), "acme", "op", 0); err != nil || s.Status != operation.StatusAbsent || s.LastSeq != 0 {
		t.Errorf("absent: got %+v, error %v", s, err)
	}
	l.append("op", intent("op"))
	check("without an entry", 0, 1)
	p := l.projector(nil)
	stop := run(t, p.Run)
	l.caughtUp(p)
	stop()
	l.append("op", events.ReviewUpdated{Decision: events.DecideNote})
	check("an old entry is enough", 1, 1)
	check("a newer version is asked for", 2, 2)
	check("a version that is not there yet", 9, 2)
	l.overwrite("acme.op", "{")
	check("an unreadable entry", 0, 2)
	if err := l.js.DeleteKeyValue(t.Context(), l.b.name); err != nil {
		t.Fatal(err)
	}
	check("without a bucket", 0, 2)
	if _, err := l.store.State(t.Context(), "acme", "a.b", 0); !errors.Is(err, events.ErrInvalidID) {
		t.Errorf("got error %v, want an invalid id", err)
	}
}

func TestScanPassesTheOperationsOfOneTenantOrOfAll(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	for _, tenant := range []string{"acme", "globex"} {
		for i := range 3 {
			op := fmt.Sprint("op-", i)
			if _, err := l.j.Append(t.Context(), draft(tenant, op, operation.State{}, intent(op)), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := l.projector(nil)
	run(t, p.Run)
	l.caughtUp(p)
	for tenant, want := range map[string]int{"": 6, "globex": 3, "nobody": 0} {
		got := 0
		err := l.store.Scan(t.Context(), tenant, func(operation.State) error { got++; return nil })
		if err != nil || got != want {
			t.Errorf("tenant %q: got %d operations, error %v, want %d", tenant, got, err, want)
		}
	}
	boom := errors.New("boom")
	wantError(t, l.store.Scan(t.Context(), "", func(operation.State) error { return boom }), boom)
}

func (l *ledger) claims() *Claims {
	l.t.Helper()
	c, err := NewClaims(l.cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

func TestOneOfSixteenWorkersGetsTheClaim(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	c := l.claims()
	now := time.Now()
	round := func(until, now time.Time) {
		t.Helper()
		var mu sync.Mutex
		var wg sync.WaitGroup
		wins := 0
		for w := range 16 {
			wg.Go(func() {
				claim := Claim{AttemptID: events.NewID(), Worker: fmt.Sprint("w", w), Until: until}
				rev, err := c.Take(t.Context(), "acme", "op", claim, now, time.Second)
				var held *ClaimedError
				switch {
				case err == nil && rev > 0:
					mu.Lock()
					wins++
					mu.Unlock()
				case !errors.As(err, &held) || held.Held.Worker == "" || !errors.Is(err, ErrClaimed):
					t.Errorf("got error %v, want claimed", err)
				}
			})
		}
		wg.Wait()
		if wins != 1 {
			t.Errorf("got %d winners, want 1", wins)
		}
	}
	round(now.Add(time.Minute), now)
	round(now.Add(5*time.Minute), now.Add(2*time.Minute)) // the first is over
}

func TestClaimHoldsUntilItsEndPlusTheClockError(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	c := l.claims()
	now := time.Now()
	first := Claim{AttemptID: "1", Worker: "w1", Until: now.Add(time.Minute)}
	rev, err := c.Take(t.Context(), "acme", "op", first, now, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Take(t.Context(), "acme", "op", first, now, time.Second); err != nil || again != rev {
		t.Errorf("the same attempt again: got %d, %v, want %d", again, err, rev)
	}
	second := Claim{AttemptID: "2", Worker: "w2", Until: now.Add(2 * time.Minute)}
	_, err = c.Take(t.Context(), "acme", "op", second, now.Add(time.Minute+time.Second), time.Second)
	wantError(t, err, ErrClaimed)
	next, err := c.Take(t.Context(), "acme", "op", second, now.Add(time.Minute+time.Second+1), time.Second)
	if err != nil || next <= rev {
		t.Fatalf("after its end: got revision %d, error %v", next, err)
	}
	// The first owner comes late; its release must not free the second's claim.
	if err := c.Release(t.Context(), "acme", "op", rev); err != nil {
		t.Fatal(err)
	}
	third := Claim{AttemptID: "3", Worker: "w3", Until: now.Add(3 * time.Minute)}
	_, err = c.Take(t.Context(), "acme", "op", third, now, 0)
	wantError(t, err, ErrClaimed)
	if err := c.Release(t.Context(), "acme", "op", next); err != nil {
		t.Fatal(err)
	}
	if _, err = c.Take(t.Context(), "acme", "op", third, now, 0); err != nil {
		t.Errorf("after the release: %v", err)
	}
	if err := c.Release(t.Context(), "acme", "never", 17); err != nil {
		t.Errorf("release of nothing: %v", err)
	}
}

func TestClaimOfASettledAttemptIsTakenOver(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	c := l.claims()
	now := time.Now()
	if _, err := c.Take(t.Context(), "acme", "op", Claim{AttemptID: "1", Worker: "w1", Until: now.Add(time.Minute)}, now, 0); err != nil {
		t.Fatal(err)
	}
	second := Claim{AttemptID: "2", Worker: "w2", Until: now.Add(time.Minute)}
	_, err := c.TakeOver(t.Context(), "acme", "op", second, now, 0, func(id string) bool { return id != "1" })
	wantError(t, err, ErrClaimed)
	if _, err := c.TakeOver(t.Context(), "acme", "op", second, now, 0, func(id string) bool { return id == "1" }); err != nil {
		t.Error(err)
	}
}

// Claims leave nothing behind: the key of a released and of an expired claim
// goes away by itself, also after it was replaced.
func TestClaimsVanishFromTheBucket(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	c := l.claims()
	now := time.Now()
	past := now.Add(-time.Hour) // time to live: the smallest there is
	for i, op := range []string{"a", "b"} {
		if _, err := c.Take(t.Context(), "acme", op, Claim{AttemptID: "1", Until: past}, now, 0); err != nil {
			t.Fatal(err)
		}
		rev, err := c.Take(t.Context(), "acme", op, Claim{AttemptID: "2", Until: past}, now, 0)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := c.Release(t.Context(), "acme", op, rev); err != nil {
				t.Fatal(err)
			}
		}
	}
	natstest.Eventually(t, patience, "forgetting the claims", func() bool {
		info, err := c.b.info(t.Context())
		return err == nil && info.State.Msgs == 0
	})
	if _, err := c.Take(t.Context(), "acme", "a", Claim{AttemptID: "3", Until: now}, now, 0); err != nil {
		t.Error(err)
	}
}

func TestLostBucketOfClaimsIsCreatedAgain(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	c := l.claims()
	if err := l.js.DeleteKeyValue(t.Context(), c.b.name); err != nil {
		t.Fatal(err)
	}
	if err := c.Release(t.Context(), "acme", "op", 1); err != nil {
		t.Errorf("release: %v", err)
	}
	now := time.Now()
	if _, err := c.Take(t.Context(), "acme", "op", Claim{AttemptID: "1", Until: now.Add(time.Minute)}, now, 0); err != nil {
		t.Errorf("take: %v", err)
	}
}

func TestContractIsKeptByItsDigest(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	c, err := NewContracts(l.cfg)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte("name: crm\n")
	sum := sha256.Sum256(body)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	_, err = c.Get(t.Context(), digest)
	wantError(t, err, ErrNotFound)
	for range 2 {
		if err := c.Put(t.Context(), digest, body); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.Get(t.Context(), digest); err != nil || string(got) != string(body) {
		t.Errorf("got %q, error %v", got, err)
	}
	wantError(t, c.Put(t.Context(), digest, []byte("other")), ErrDigest)
	_, err = c.Get(t.Context(), "sha256:../x")
	wantError(t, err, ErrDigest)
	// Damage is found, and mended by the next Put.
	if _, err := l.js.Publish(t.Context(), c.b.subject("sha256-"+hex.EncodeToString(sum[:])), []byte("x")); err != nil {
		t.Fatal(err)
	}
	_, err = c.Get(t.Context(), digest)
	wantError(t, err, ErrDigest)
	if err := c.Put(t.Context(), digest, body); err != nil {
		t.Fatal(err)
	}
	if err := l.js.DeleteKeyValue(t.Context(), c.b.name); err != nil {
		t.Fatal(err)
	}
	_, err = c.Get(t.Context(), digest)
	wantError(t, err, ErrNotFound)
	if err := c.Put(t.Context(), digest, body); err != nil {
		t.Fatal(err)
	}
	if _, err = c.Get(t.Context(), digest); err != nil {
		t.Error(err)
	}
}
