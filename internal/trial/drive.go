package trial

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/dispatch"
	"github.com/opledger/opledger/operation"
)

// at puts something on the agenda; the caller holds the lock.
func (w *World) at(t time.Time, do func(ctx context.Context)) {
	w.order++
	w.agenda.add(entry{at: t, order: w.order, do: do})
}

// schedule has a role plan an operation; the caller holds the lock.
func (w *World) schedule(it *item, at time.Time, least uint64) {
	it.min = max(it.min, least)
	if it.running {
		if it.again.IsZero() || at.Before(it.again) {
			it.again = at
		}
		return
	}
	if it.queued && !at.Before(it.at) {
		return
	}
	it.at, it.queued = at, true
	w.order++
	w.agenda.add(entry{at: at, order: w.order, item: it})
}

// item returns the item of a role and an operation; the caller holds the lock.
func (w *World) item(role int, op string) *item {
	k := itemKey{role, op}
	if w.items[k] == nil {
		w.items[k] = &item{itemKey: k}
	}
	return w.items[k]
}

// wake passes the news on to every role, as the consumers of the log do.
func (w *World) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	for _, op := range slices.Sorted(maps.Keys(w.news)) {
		version := w.news[op]
		w.schedule(w.item(reconcilerRole, op), now, version)
		if w.cfg.Fault.Behind > 0 {
			version = 0 // the executors' news has no version to insist on
		}
		for role := range w.processes {
			w.schedule(w.item(role, op), now, version)
		}
	}
	clear(w.news)
}

// pop takes what is due next, with everything else that is due for the same
// operation at the same time. It returns false if there is nothing.
func (w *World) pop() (due []*item, do func(context.Context), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.agenda.Len() > 0 {
		e := w.agenda.next()
		if e.item != nil && (!e.item.queued || !e.item.at.Equal(e.at)) {
			continue // it was put down for an earlier time, and had its turn
		}
		w.clock.advance(e.at)
		if e.item == nil {
			return nil, e.do, true
		}
		e.item.queued = false
		due = append(due, e.item)
		for role := range w.processes {
			other := w.item(role, e.item.op)
			if other != e.item && other.queued && !other.at.After(w.clock.Now()) {
				other.queued = false
				due = append(due, other)
			}
		}
		return due, nil, true
	}
	return nil, nil, false
}

// Run goes on until nothing is due any more: every operation is final, or waits
// for a person, or can't go on for a reason outside that lasts.
func (w *World) Run(ctx context.Context) error {
	limit := cmp.Or(w.cfg.Steps, DefaultSteps) * max(len(w.ops), 1)
	for range limit {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.wake()
		due, do, ok := w.pop()
		if !ok {
			if more, err := w.decide(ctx); err != nil || !more {
				return err
			}
			continue
		}
		if w.clock.Now().Sub(begin()) > Horizon {
			return fmt.Errorf("%w: %s of virtual time", ErrBound, Horizon)
		}
		if do != nil {
			do(ctx)
		}
		if err := w.play(ctx, due); err != nil {
			return err
		}
		if w.stuck() {
			return nil
		}
	}
	return fmt.Errorf("%w: %d steps", ErrBound, limit)
}

// stuck reports whether nothing happens any more but blocked attempts.
func (w *World) stuck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.blocked < maxBlocked {
		return false
	}
	for _, e := range w.agenda {
		if e.do != nil {
			return false
		}
	}
	return true
}

// play plans what is due, lets the runs go, and waits until each is back or
// waits for an answer that is kept back.
func (w *World) play(ctx context.Context, due []*item) error {
	for _, it := range due {
		w.mu.Lock()
		it.running, it.again = true, time.Time{}
		least := it.min
		var p *process
		var planner dispatch.Planner = w.recon
		if it.role >= 0 {
			p = w.processes[it.role]
			planner = p.plain
			if w.keepsNext() {
				planner = p.quick
			}
		}
		w.mu.Unlock()
		plan, err := planner.Plan(ctx, dispatch.Key{Tenant: tenant, Operation: it.op}, least)
		w.mu.Lock()
		switch {
		case err != nil:
			w.finish(it, dispatch.Again{At: w.clock.Now().Add(time.Second)})
		case plan.Run == nil:
			w.finish(it, plan.Again)
		default:
			w.launch(ctx, p, it, plan.Run)
		}
		w.mu.Unlock()
	}
	return w.settle()
}

// launch starts a run; the caller holds the lock.
func (w *World) launch(ctx context.Context, p *process, it *item, run func(context.Context) dispatch.Again) {
	f := &flight{it: it}
	w.flights = append(w.flights, f)
	ctx, cancel := context.WithCancel(ctx)
	if p != nil {
		p.kill = append(p.kill, cancel)
	}
	go func() {
		defer cancel()
		next := run(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		f.done, f.next = true, next
		w.moved.Broadcast()
	}()
}

// finish puts an item down for its next time; the caller holds the lock.
func (w *World) finish(it *item, next dispatch.Again) {
	at := next.At
	if !it.again.IsZero() && (at.IsZero() || it.again.Before(at)) {
		at = it.again
	}
	it.running, it.again = false, time.Time{}
	it.min = max(it.min, next.Min)
	if !at.IsZero() {
		if now := w.clock.Now(); at.Before(now) {
			at = now
		}
		w.schedule(it, at, next.Min)
	}
}

// settle waits until nothing moves.
func (w *World) settle() error {
	over := time.AfterFunc(patience, func() { w.fail(errors.New("trial: a run does not come back")) })
	defer over.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.failure == nil && w.moving() {
		w.moved.Wait()
	}
	left := w.flights[:0]
	for _, f := range w.flights {
		if !f.done {
			left = append(left, f)
			continue
		}
		w.finish(f.it, f.next)
	}
	w.flights = left
	for i, p := range w.processes {
		if !w.dead[p.name] {
			continue
		}
		fresh, err := w.newProcess()
		if err != nil {
			return err
		}
		w.processes[i] = fresh
		for _, op := range w.ops {
			w.schedule(w.item(i, op), w.clock.Now(), 0)
		}
	}
	return w.failure
}

func (w *World) moving() bool {
	for _, f := range w.flights {
		if !f.done && !f.parked {
			return true
		}
	}
	return false
}

// decide lets a person make the next decision where one is asked for.
func (w *World) decide(ctx context.Context) (bool, error) {
	if w.dealt >= len(w.cfg.Decisions) {
		return false, nil
	}
	for _, op := range w.ops {
		s, err := w.ledger.Truth(ctx, tenant, op)
		if err != nil {
			return false, err
		}
		if s.Review == nil {
			continue
		}
		req := api.DecideRequest{
			OperationID: op, Decision: w.cfg.Decisions[w.dealt], ExpectVersion: s.Version, Actor: "person", Reason: "trial",
		}
		if req.Decision == events.DecideConfirm {
			objects, err := w.objects(ctx, op)
			if err != nil {
				return false, err
			}
			if len(objects) > 0 {
				req.ExternalID = objects[0].ID
			}
		}
		raw, err := json.Marshal(req)
		if err != nil {
			return false, err
		}
		w.dealt++
		if _, p := w.intake.Decide(ctx, tenant, raw); p != nil {
			return false, fmt.Errorf("trial: decide %s: %w", req.Decision, p)
		}
		return true, nil
	}
	return false, nil
}

// State returns what the ledger knows of an operation.
func (w *World) State(ctx context.Context, op string) (operation.State, error) {
	return w.ledger.Truth(ctx, tenant, op)
}

func localClient(h http.Handler) *http.Client { return &http.Client{Transport: local{h}} }

func unescape(path string) string {
	if plain, err := url.PathUnescape(path); err == nil {
		return plain
	}
	return path
}
