package natsjournal

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Of those that take a conflict scope behind the same record one wins, whatever
// becomes of its answer.
func TestOneOfSixteenTakesTheScope(t *testing.T) {
	t.Parallel()
	j := journal(t)
	var behind uint64
	for round := range 10 {
		var (
			mu   sync.Mutex
			wins []string
			wg   sync.WaitGroup
		)
		for i := range 16 {
			wg.Go(func() {
				op := fmt.Sprintf("op-%d-%d", round, i)
				err := j.TakeScope(t.Context(), "acme", "contact-7", op, "a1", "w", behind, time.Time{})
				switch {
				case err == nil:
					mu.Lock()
					wins = append(wins, op)
					mu.Unlock()
				case !errors.Is(err, ErrConflict):
					t.Errorf("got error %v, want conflict", err)
				}
			})
		}
		wg.Wait()
		got, err := j.LastScope(t.Context(), "acme", "contact-7")
		if err != nil || len(wins) != 1 || got.Operation != wins[0] || got.Seq <= behind || got.Attempt != "a1" || got.At.IsZero() {
			t.Fatalf("round %d: winners %v, holder %q at %d, error %v", round, wins, got.Operation, got.Seq, err)
		}
		behind = got.Seq
	}
	if got, err := j.LastScope(t.Context(), "other", "contact-7"); got.Seq != 0 || err != nil {
		t.Errorf("another tenant: %q at %d, error %v; want nobody (I15)", got.Operation, got.Seq, err)
	}
}

// Every fault on the way of the record ends in its being stored once, or in a
// conflict with somebody else's.
func TestScopeIsTakenOnceDespiteFaults(t *testing.T) {
	t.Parallel()
	j := journal(t)
	for a := range faults {
		for b := range faults {
			scope := fmt.Sprintf("s-%d-%d", a, b)
			breakNext(j, script(a, b))
			if err := j.TakeScope(t.Context(), "acme", scope, "op", "a1", "w", 0, time.Time{}); err != nil {
				t.Fatalf("faults %d, %d: %v", a, b, err)
			}
			breakNext(j, script(a, b))
			wantError(t, j.TakeScope(t.Context(), "acme", scope, "other", "a2", "w", 0, time.Time{}), ErrConflict)
			if got, err := j.LastScope(t.Context(), "acme", scope); got.Operation != "op" || err != nil {
				t.Fatalf("faults %d, %d: holder %q, error %v", a, b, got.Operation, err)
			}
		}
	}
}

// A record that can't be read is no licence to enter.
func TestUnreadableScopeIsAnError(t *testing.T) {
	t.Parallel()
	newest := time.Date(2026, 12, 1, 10, 0, 0, 7, time.UTC)
	j := journal(t)
	for _, body := range []string{
		"", "{", `{"type":"io.opledger.v1.Checkpoint","data":{}}`,
		`{"type":"io.opledger.v1.ScopeTaken","data":{"operation_id":"a.b"}}`,
		`{"type":"io.opledger.v1.ScopeTaken","data":{"operation_id":"op","newest_confirmed":"today"}}`,
	} {
		m := nats.NewMsg("opledger.scopes.acme.s1")
		m.Data = []byte(body)
		if _, err := j.nc.RequestMsgWithContext(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if got, err := j.LastScope(t.Context(), "acme", "s1"); err == nil {
			t.Errorf("body %q: holder %q, want an error", body, got.Operation)
		}
	}
	if err := j.TakeScope(t.Context(), "acme", "s2", "op", "a1", "w", 0, newest); err != nil {
		t.Fatal(err)
	}
	if got, err := j.LastScope(t.Context(), "acme", "s2"); err != nil || !got.Newest.Equal(newest) {
		t.Errorf("newest wish %v, error %v; want %v", got.Newest, err, newest)
	}
	if err := j.TakeScope(t.Context(), "acme", "a.b", "op", "a1", "w", 0, time.Time{}); err == nil {
		t.Error("a scope that is no id was taken")
	}
}
