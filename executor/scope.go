package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/dispatch"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// A conflict scope is entered in three steps, so that of two operations of one
// scope at most one is ever in doubt:
//
//  1. read who took it last, and then that operation: is it in doubt?
//  2. append AttemptStarted;
//  3. append ScopeTaken right behind what was read in step 1; only then send.
//
// Of two that pass step 1 at the same time one loses step 3 and sends nothing.
// Whoever passes step 1 later finds the winner's attempt in the log, since step
// 2 comes before step 3. A crash between the two leaves an attempt in doubt that
// was never sent, like a crash right before the first byte.

// enter decides what is next, and lets an attempt wait for its conflict scope.
func (x *Executor) enter(ctx context.Context, f flight, m moment) (flight, error) {
	p := x.params(f.c, m)
	f.step = operation.Next(f.s, f.c, p)
	scope := f.s.Intent.ConflictScope
	if f.step.Do != operation.DoAttempt || scope == "" {
		return f, nil
	}
	taken, err := x.cfg.Scopes.LastScope(ctx, f.s.Tenant, scope)
	if err != nil {
		return f, fmt.Errorf("executor: read conflict scope %s: %w", scope, err)
	}
	f.behind, f.newest = taken.Seq, taken.Newest
	holder := taken.Operation
	if taken.Seq == 0 || holder == f.s.OperationID {
		return f, nil
	}
	waiting := dispatch.Key{Tenant: f.s.Tenant, Operation: f.s.OperationID}
	held := dispatch.Key{Tenant: f.s.Tenant, Operation: holder}
	x.queues.add(held, waiting) // before the look, so that no news is missed
	last, err := x.cfg.States.Truth(ctx, f.s.Tenant, holder)
	if err != nil {
		return f, fmt.Errorf("executor: read %s, which took conflict scope %s: %w", holder, scope, err)
	}
	f.newest = operation.NewestWish(last, taken)
	c, s, err := x.scopeTerms(ctx, f, last)
	if err != nil {
		return f, err
	}
	f.step = operation.EnterScope(s, last, taken, c, f.step, p)
	if f.step.Reason != operation.ReasonScopeHeld {
		x.queues.leave(waiting)
		return f, nil
	}
	if again := m.now.Add(scopePause(m.now.Sub(f.s.UpdatedAt))); f.step.At.IsZero() || again.Before(f.step.At) {
		f.step.At = again
	}
	return f, nil
}

// unknownLateApply is how long after the end of a request it may still land if
// this process does not know its contract.
const unknownLateApply = 24 * time.Hour

// scopeTerms returns what the entry is judged by: the holder's requests land late
// by the holder's contract, and the order of wishes is that of the log's clock.
func (x *Executor) scopeTerms(ctx context.Context, f flight, last operation.State) (operation.Contract, operation.State, error) {
	c, s := f.c, f.s
	if _, open := last.Open(); last.Status.Final() && (open || len(last.Unresolved()) > 0) {
		_, of, err := x.cfg.Adapters.For(ctx, last.Intent)
		switch {
		case errors.Is(err, providers.ErrNotMine):
			of.LateApply = unknownLateApply
		case err != nil:
			return c, s, fmt.Errorf("executor: contract of %s: %w", last.OperationID, err)
		}
		c.LateApply = max(c.LateApply, of.LateApply)
	}
	if c.Class == operation.ClassUpsert && !f.newest.IsZero() && s.Started == 0 {
		own, err := x.cfg.States.Truth(ctx, s.Tenant, s.OperationID)
		if err != nil {
			return c, s, fmt.Errorf("executor: read %s: %w", s.OperationID, err)
		}
		s.RecordedAt = own.RecordedAt
	}
	return c, s, nil
}

// The pause before a held scope is looked at again, whatever news was missed,
// grows with the time that the operation has waited.
const (
	minScopePause = time.Second
	maxScopePause = 30 * time.Second
)

func scopePause(waited time.Duration) time.Duration {
	return min(max(waited/4, minScopePause), maxScopePause)
}

// take records that the attempt takes the conflict scope, and says why the
// request may not be sent, or "".
func (x *Executor) take(ctx context.Context, f flight) string {
	scope := f.s.Intent.ConflictScope
	if scope == "" {
		return ""
	}
	ctx, cancel := x.cfg.Clock.Timeout(ctx, x.lease(f.c))
	defer cancel()
	err := x.cfg.Scopes.TakeScope(ctx, f.s.Tenant, scope, f.s.OperationID, f.attempt, x.cfg.Worker, f.behind, f.newest)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, events.ErrConflict):
		return "another operation took the conflict scope"
	}
	return "that the conflict scope is taken could not be recorded"
}

// Freed tells that an operation may hold its conflict scope no longer; those
// that wait for it are planned again.
func (x *Executor) Freed(k dispatch.Key) {
	for _, waiting := range x.queues.takeAll(k) {
		if x.cfg.Free != nil {
			x.cfg.Free(waiting)
		}
	}
}

// maxQueued bounds the operations that wait for news of a holder. Others ask
// again after their pause.
const maxQueued = 10_000

// queues are the operations that wait, by the one that holds their scope.
type queues struct {
	mu sync.Mutex
	by map[dispatch.Key]map[dispatch.Key]struct{}
	// of is the holder that each waits for, one at a time: so its length
	// counts the waiters.
	of map[dispatch.Key]dispatch.Key
}

func (q *queues) add(holder, waiting dispatch.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(waiting)
	if len(q.of) >= maxQueued {
		return
	}
	if q.by == nil {
		q.by = make(map[dispatch.Key]map[dispatch.Key]struct{})
		q.of = make(map[dispatch.Key]dispatch.Key)
	}
	if q.by[holder] == nil {
		q.by[holder] = make(map[dispatch.Key]struct{})
	}
	q.by[holder][waiting], q.of[waiting] = struct{}{}, holder
}

func (q *queues) leave(waiting dispatch.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(waiting)
}

func (q *queues) drop(waiting dispatch.Key) {
	holder, known := q.of[waiting]
	if !known {
		return
	}
	delete(q.of, waiting)
	delete(q.by[holder], waiting)
	if len(q.by[holder]) == 0 {
		delete(q.by, holder)
	}
}

func (q *queues) takeAll(holder dispatch.Key) []dispatch.Key {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]dispatch.Key, 0, len(q.by[holder]))
	for k := range q.by[holder] {
		out = append(out, k)
		delete(q.of, k)
	}
	delete(q.by, holder)
	return out
}
