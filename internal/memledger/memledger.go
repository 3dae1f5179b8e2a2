// Package memledger is a ledger in memory for tests: a journal with
// compare-and-swap, the fold of it, claims, and hooks that play faults. It keeps
// the rules of the real one and none of its time.
package memledger

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/executor"
	"github.com/opledger/opledger/operation"
)

// Ledger is a journal, a projection that is never behind unless told so, and
// claims.
type Ledger struct {
	// Now is the log's clock.
	Now func() time.Time
	// BeforeAppend may refuse an append before it is stored; AfterAppend may
	// lose the answer of a stored one. Both may be nil.
	BeforeAppend func(e events.Event) error
	AfterAppend  func(e events.Event) error
	mu           sync.Mutex
	seq          uint64
	records      map[string][]events.Record
	claims       map[string]claim
	revision     uint64
	behind       map[string]uint64
	scopes       map[string]events.ScopeTaken
	// BeforeScope may refuse the record of a conflict scope before it is
	// stored, AfterScope lose its answer. Both may be nil.
	BeforeScope, AfterScope func(operation string) error
}

type claim struct {
	attempt, worker string
	until           time.Time
	revision        uint64
}

// New returns an empty ledger.
func New(now func() time.Time) *Ledger {
	return &Ledger{
		Now: now, records: make(map[string][]events.Record), claims: make(map[string]claim),
		behind: make(map[string]uint64), scopes: make(map[string]events.ScopeTaken),
	}
}

// LastScope implements executor.Scopes.
func (l *Ledger) LastScope(ctx context.Context, tenant, scope string) (events.ScopeTaken, error) {
	if err := ctx.Err(); err != nil {
		return events.ScopeTaken{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.scopes[key(tenant, scope)], nil
}

// TakeScope implements executor.Scopes.
func (l *Ledger) TakeScope(ctx context.Context, tenant, scope, operation, attemptID, _ string, expected uint64, newest time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.BeforeScope != nil {
		if err := l.BeforeScope(operation); err != nil {
			return err
		}
	}
	if err := l.takeScope(key(tenant, scope), events.ScopeTaken{Operation: operation, Attempt: attemptID, Newest: newest}, expected); err != nil {
		return err
	}
	if l.AfterScope != nil {
		return l.AfterScope(operation)
	}
	return nil
}

func (l *Ledger) takeScope(k string, t events.ScopeTaken, expected uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.scopes[k].Seq != expected {
		return fmt.Errorf("memledger: scope %s: %w", k, events.ErrConflict)
	}
	l.seq++
	t.Seq, t.At = l.seq, l.Now()
	l.scopes[k] = t
	return nil
}

func key(tenant, op string) string { return tenant + "." + op }

// Append implements writer.Journal.
func (l *Ledger) Append(ctx context.Context, e events.Event, expected uint64) (events.Record, error) {
	if err := ctx.Err(); err != nil {
		return events.Record{}, err
	}
	if l.BeforeAppend != nil {
		if err := l.BeforeAppend(e); err != nil {
			return events.Record{}, err
		}
	}
	body, err := events.Encode(e)
	if err != nil {
		return events.Record{}, err
	}
	rec, err := l.store(e, body, expected)
	if err != nil {
		return events.Record{}, err
	}
	if l.AfterAppend != nil {
		if err := l.AfterAppend(e); err != nil {
			return events.Record{}, err
		}
	}
	return rec, nil
}

func (l *Ledger) store(e events.Event, body []byte, expected uint64) (events.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key(e.Tenant, e.Operation)
	var last uint64
	if n := len(l.records[k]); n > 0 {
		last = l.records[k][n-1].Seq
	}
	if last != expected {
		return events.Record{}, fmt.Errorf("memledger: %s: %w", k, events.ErrConflict)
	}
	l.seq++
	rec := events.DecodeRecord(k, l.seq, l.Now(), body)
	l.records[k] = append(l.records[k], rec)
	return rec, nil
}

// Load returns the records of an operation.
func (l *Ledger) Load(_ context.Context, tenant, op string) ([]events.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]events.Record(nil), l.records[key(tenant, op)]...), nil
}

// Read returns the record with a sequence number.
func (l *Ledger) Read(_ context.Context, seq uint64) (events.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, recs := range l.records {
		for _, r := range recs {
			if r.Seq == seq {
				return r, nil
			}
		}
	}
	return events.Record{}, fmt.Errorf("memledger: no message %d", seq)
}

// Truth folds an operation.
func (l *Ledger) Truth(ctx context.Context, tenant, op string) (operation.State, error) {
	recs, err := l.Load(ctx, tenant, op)
	return operation.Fold(recs), err
}

// State folds an operation up to where its projection is held, but at least to
// version min.
func (l *Ledger) State(ctx context.Context, tenant, op string, min uint64) (operation.State, error) {
	recs, err := l.Load(ctx, tenant, op)
	l.mu.Lock()
	behind, ok := l.behind[key(tenant, op)]
	l.mu.Unlock()
	if ok && behind >= min && uint64(len(recs)) > behind {
		recs = recs[:behind]
	}
	return operation.Fold(recs), err
}

// Glance implements intake.States.
func (l *Ledger) Glance(ctx context.Context, tenant, op string) (operation.State, error) {
	return l.State(ctx, tenant, op, 0)
}

// Latest implements intake.States.
func (l *Ledger) Latest(ctx context.Context, tenant, op string) (operation.State, error) {
	return l.Truth(ctx, tenant, op)
}

// Scan passes every operation of a tenant.
func (l *Ledger) Scan(_ context.Context, tenant string, fn func(operation.State) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, recs := range l.records {
		if s := operation.Fold(recs); s.Tenant == tenant {
			if err := fn(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// Subscribe never tells news.
func (l *Ledger) Subscribe(string, string) (<-chan operation.State, func()) {
	return make(chan operation.State), func() {}
}

// Take implements executor.Claims.
func (l *Ledger) Take(_ context.Context, c executor.Claim) (uint64, time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key(c.Tenant, c.Operation)
	held, ok := l.claims[k]
	if ok && held.until.After(l.Now()) && !c.Settled(held.attempt) {
		return 0, held.until, nil
	}
	l.revision++
	l.claims[k] = claim{c.AttemptID, c.Worker, c.Until, l.revision}
	return l.revision, time.Time{}, nil
}

// Release implements executor.Claims.
func (l *Ledger) Release(_ context.Context, tenant, op string, revision uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := key(tenant, op); l.claims[k].revision == revision {
		delete(l.claims, k)
	}
	return nil
}

// HoldBack keeps the projection of an operation at an older version; zero lets
// it catch up.
func (l *Ledger) HoldBack(tenant, op string, version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if version == 0 {
		delete(l.behind, key(tenant, op))
		return
	}
	l.behind[key(tenant, op)] = version
}

// LoseClaims forgets every claim, as a lost bucket does.
func (l *Ledger) LoseClaims() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.claims)
}
