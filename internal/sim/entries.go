package sim

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/projections"
)

// entries plays the bucket of operations. In some schedules the real projector
// writes it, from both processes, entries encoded and decoded; in the others,
// for speed, a plain one that folds each message.
type entries struct {
	w    *world
	real bool
	// cells are the entries of the real projector; bell rings at news; epoch
	// grows when the bucket is lost.
	cells      map[string]cell
	rev        uint64
	bell       *signal
	epoch      int
	checkpoint int

	now, before map[string]operation.State
	applied     int // records of the log
	due         bool
}

// cell is the last value of a key.
type cell struct {
	rev   uint64
	data  []byte
	state operation.State
}

func newEntries(w *world, projected bool) *entries {
	return &entries{w: w, real: projected, cells: map[string]cell{}, bell: &signal{}, now: map[string]operation.State{}, before: map[string]operation.State{}}
}

// read returns an entry from some replica.
func (e *entries) read(key string) (operation.State, bool) {
	s, found := e.now[key]
	if old, was := e.before[key]; was && e.w.hit(entryStale) {
		return old, true
	}
	return s, found
}

// news lets the projector follow, some time later.
func (e *entries) news() {
	switch {
	case e.w.hit(projectorPowerLoss):
		// Without waiting for the disk any entry may be gone, not only the last.
		for _, l := range e.w.log.list {
			if e.w.rng.IntN(2) == 0 {
				delete(e.now, l.key)
				delete(e.cells, l.key)
			}
		}
		e.begin()
	case e.w.hit(bucketLost):
		clear(e.now)
		clear(e.before)
		clear(e.cells)
		e.begin()
	}
	if e.real {
		e.bell.fire(e.w)
		e.bell = &signal{}
		return
	}
	if e.due {
		return
	}
	e.due = true
	lag := e.w.between(time.Millisecond, 50*time.Millisecond)
	if e.w.hit(projectorCrash) {
		lag = e.w.long()
	}
	e.w.after(lag, e.follow)
}

// begin makes everything anew: an unclean stop leaves no checkpoint to trust.
func (e *entries) begin() {
	if e.w.hooks.trustCheckpoint {
		return
	}
	e.applied, e.checkpoint = 0, 0
	e.epoch++
}

// follow is the plain projector.
func (e *entries) follow() {
	e.due = false
	for ; e.applied < len(e.w.log.records); e.applied++ {
		r := e.w.log.records[e.applied]
		if r.Subject == "" {
			continue
		}
		l := e.w.log.ops[r.Subject]
		s, found := e.now[l.key]
		if found && r.Seq <= s.LastSeq {
			continue
		}
		before := s
		if r.Err != nil || r.Version != s.Version+1 || r.Prev != s.Head {
			s = l.state // a fold from the log
		} else {
			s, _ = operation.Evolve(s, r)
		}
		if found {
			e.before[l.key] = before
		}
		e.now[l.key] = s
	}
}

// settled reports whether the entries have followed the log.
func (e *entries) settled() bool {
	if !e.real {
		return e.applied >= len(e.w.log.records)
	}
	for _, l := range e.w.log.list {
		if e.now[l.key].LastSeq != l.last {
			return false
		}
	}
	return true
}

// maxBatch is how many messages one step of the projector takes.
const maxBatch = 64

// project is the thread of a process in which the real projector runs.
func (p *process) project() {
	w, e, t, subjects := p.w, p.w.entries, p.w.cur, events.Subjects{}
	t.resident = true
	at, epoch := e.checkpoint, e.epoch
	step := projections.NewStepper(&bucket{e, p}, subjects)
	for {
		bell := e.bell
		if epoch != e.epoch { // it has seen that the bucket is another one
			at, epoch = 0, e.epoch
			step = projections.NewStepper(&bucket{e, p}, subjects)
		}
		var batch []events.Record
		to := min(at+maxBatch, len(w.log.records))
		for _, r := range w.log.records[at:to] {
			if r.Subject == "" {
				continue // the record of a scope
			}
			tenant, op, _ := strings.Cut(r.Subject, ".")
			r.Subject, _ = subjects.Operation(tenant, op)
			batch = append(batch, events.Record{Seq: r.Seq, Stamp: r.Stamp, Body: r.Body, Subject: r.Subject})
		}
		if len(batch) == 0 {
			if at = to; at < len(w.log.records) {
				continue
			}
			t.await(context.Background(), bell, 0)
			continue
		}
		if w.hit(projectorCrash) {
			t.pass(w.long())
			step, at = projections.NewStepper(&bucket{e, p}, subjects), e.checkpoint
			continue
		}
		t.pass(w.latency())
		if err := step.Apply(p.root, batch); err != nil {
			step, at = projections.NewStepper(&bucket{e, p}, subjects), e.checkpoint
			t.pass(w.between(time.Second, 5*time.Second))
			continue
		}
		if at = to; epoch == e.epoch && w.rng.IntN(3) == 0 {
			e.checkpoint = max(e.checkpoint, at)
		}
	}
}

// bucket is the bucket of operations as one process reaches it.
type bucket struct {
	e *entries
	p *process
}

// Last implements projections.Cells.
func (b *bucket) Last(_ context.Context, key string) (data []byte, rev uint64, err error) {
	b.e.w.enter().pass(b.e.w.latency())
	c := b.e.cells[key]
	return c.data, c.rev, nil
}

// Put implements projections.Cells.
func (b *bucket) Put(_ context.Context, key string, data []byte, rev uint64) (uint64, error) {
	e, w, t := b.e, b.e.w, b.e.w.enter()
	if w.hit(claimsDown) {
		t.pass(callTimeout)
		return 0, errBucket
	}
	t.pass(w.latency())
	old := e.cells[key]
	if old.rev != rev && !w.hooks.noRevision {
		return 0, projections.ErrRevision
	}
	s, err := projections.DecodeEntry(data)
	if err != nil {
		w.fail("I9: every entry can be read", "%s: %v", key, err)
	}
	if s.LastSeq < old.state.LastSeq {
		w.fail("I9: an entry never goes back", "%s from %d to %d", key, old.state.LastSeq, s.LastSeq)
	}
	e.rev++
	e.cells[key] = cell{e.rev, data, s}
	if old.rev != 0 {
		e.before[key] = old.state
	}
	e.now[key] = s
	written := e.rev
	w.say("entry        %s version %d by %s", key, s.Version, b.p.worker())
	if w.hit(ackLost) {
		t.pass(callTimeout)
		return 0, errBucket
	}
	t.pass(w.latency())
	return written, nil
}

// Truth implements projections.Cells.
func (b *bucket) Truth(ctx context.Context, tenant, op string) (operation.State, error) {
	if b.e.w.hooks.noRefold {
		b.e.w.enter()
		return b.e.now[opKey(tenant, op)], nil
	}
	return b.e.w.log.Truth(ctx, tenant, op)
}

// Answers implements projections.Cells.
func (b *bucket) Answers(ctx context.Context) error { return b.e.w.log.ready(ctx) }

// Pause implements projections.Cells.
func (b *bucket) Pause(ctx context.Context, d time.Duration) error {
	b.p.clock().Sleep(ctx, d)
	return ctx.Err()
}

// restEntry holds an entry against the fold of the log (I9): it may lag while
// the world moves, and not once it is at rest. The whole state is compared in
// some schedules, what names it in all.
func (w *world) restEntry(l *opLog) {
	if len(l.records) == 0 {
		return
	}
	e, found := w.entries.now[l.key]
	s := l.state
	same := found && e.Version == s.Version && e.LastSeq == s.LastSeq && e.Head == s.Head && e.Status == s.Status
	switch {
	case same && w.entries.real:
		want, err := projections.EncodeEntry(operation.Fold(l.records))
		same = err == nil && bytes.Equal(want, w.entries.cells[l.key].data)
	case same && w.seed%compareOften == 0:
		s = operation.Fold(l.records)
		same = reflect.DeepEqual(e, s) && reflect.DeepEqual(s, l.state)
	}
	if !same {
		w.fail("I9: at rest every entry is the fold of the log", "%s: entry of version %d, log of version %d", l.id, e.Version, s.Version)
	}
}
