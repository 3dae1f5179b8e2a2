package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// callTimeout bounds one request to the log or to a bucket.
const callTimeout = 2 * time.Second

var (
	errNoVerdict   = errors.New("sim: no verdict of the log")
	errUnavailable = errors.New("sim: the log does not answer")
)

// journal plays the log: one subject per operation, compare-and-swap on the last
// message of the subject, time stamps of its own. What is acknowledged stays.
type journal struct {
	w         *world
	seq       uint64
	ops       map[string]*opLog
	list      []*opLog
	records   []events.Record // by sequence number, less one; scopes have no body
	scopes    map[string]events.ScopeTaken
	downUntil time.Duration
	// skew is how far the leader's clock is from the true time.
	skew time.Duration
}

// opLog is one operation: its messages, their fold, and the account that the
// checks keep of it.
type opLog struct {
	*account
	key, tenant, id string
	last            uint64
	records         []events.Record
	state           operation.State
}

func opKey(tenant, op string) string { return tenant + "." + op }

func (j *journal) stamp() time.Time { return begin.Add(j.w.now + j.skew) }

func (j *journal) op(tenant, id string) *opLog {
	key := opKey(tenant, id)
	l := j.ops[key]
	if l == nil {
		l = &opLog{key: key, tenant: tenant, id: id, account: newAccount()}
		j.ops[key] = l
		j.list = append(j.list, l)
	}
	return l
}

// ack is the answer to one publish.
type ack struct {
	signal
	stored bool
	seq    uint64
}

// publish sends one message on its way. What becomes of it does not depend on
// whether its sender still lives.
func (j *journal) publish(store func() (uint64, bool)) *ack {
	w, a := j.w, &ack{}
	way := w.latency()
	switch {
	case w.hit(appendLost):
		return a
	case w.hit(appendLate):
		way = w.long()
	case w.hit(logSlow):
		way = w.between(time.Second, 40*time.Second)
	}
	w.after(way, func() {
		if w.now < j.downUntil {
			if w.rng.IntN(2) == 0 {
				return
			}
			w.at(j.downUntil+w.latency(), func() { j.arrive(a, store) })
			return
		}
		j.arrive(a, store)
	})
	return a
}

func (j *journal) arrive(a *ack, store func() (uint64, bool)) {
	a.seq, a.stored = store()
	if !j.w.hit(ackLost) {
		j.w.after(j.w.latency(), func() { a.fire(j.w) })
	}
}

// Append implements writer.Journal as package natsjournal does it: the same
// event is published until there is a verdict, or until ctx ends.
func (j *journal) Append(ctx context.Context, e events.Event, expected uint64) (events.Record, error) {
	w, t := j.w, j.w.enter()
	if err := ctx.Err(); err != nil {
		return events.Record{}, err
	}
	if _, starts := e.Data.(events.AttemptStarted); starts && t.p.alarmed && t.began >= t.p.alarmFrom {
		w.fail("I16: no attempt starts on an integrity alarm", "%s", e.Operation)
	}
	body, err := events.Encode(e)
	if err != nil {
		return events.Record{}, err
	}
	rec := events.Record{Event: e, Body: body, Subject: e.Tenant + "." + e.Operation}
	if w.decode {
		rec = events.DecodeRecord(rec.Subject, 0, time.Time{}, body)
	}
	l := j.op(e.Tenant, e.Operation)
	store := func() (uint64, bool) { return j.store(l, rec, expected) }
	for n := 0; ; n++ {
		a := j.publish(store)
		once, cancel := t.p.clock().Timeout(ctx, callTimeout)
		answered := t.await(once, &a.signal, 0)
		cancel()
		switch {
		case answered && a.stored:
			l.acked(rec.ID)
			return events.Record{Event: rec.Event, Seq: a.seq, Body: body, Subject: rec.Subject}, nil
		case answered:
			t.pass(w.latency())
			if first, found := l.after(expected); found && first.ID == rec.ID {
				l.acked(rec.ID)
				return first, nil
			} else if found {
				return events.Record{}, fmt.Errorf("sim: %s: %w", rec.Subject, events.ErrConflict)
			}
		}
		if ctx.Err() != nil {
			return events.Record{}, fmt.Errorf("%w: %w", errNoVerdict, ctx.Err())
		}
		t.p.clock().Sleep(ctx, min(time.Duration(n+1)*20*time.Millisecond, 500*time.Millisecond))
		if ctx.Err() != nil {
			return events.Record{}, fmt.Errorf("%w: %w", errNoVerdict, ctx.Err())
		}
	}
}

// after returns the first message behind a sequence number.
func (l *opLog) after(seq uint64) (events.Record, bool) {
	i := slices.IndexFunc(l.records, func(r events.Record) bool { return r.Seq > seq })
	if i < 0 {
		return events.Record{}, false
	}
	return l.records[i], true
}

// store is the log itself.
func (j *journal) store(l *opLog, rec events.Record, expected uint64) (uint64, bool) {
	_, intent := rec.Data.(events.IntentRecorded)
	if l.last != expected && !j.w.hooks.noFence && (!intent || !j.w.hooks.noIntentFence) {
		return 0, false
	}
	j.seq++
	rec.Seq, rec.Stamp = j.seq, j.stamp()
	l.last = rec.Seq
	l.records = append(l.records, rec)
	j.records = append(j.records, rec)
	before := l.state
	var found operation.Anomaly
	l.state, found = operation.Evolve(l.state, rec)
	j.w.stored(l, before, rec, found.Reason)
	return rec.Seq, true
}

// ready lets the time of a read pass. It fails while the log is down.
func (j *journal) ready(ctx context.Context) error {
	t := j.w.enter()
	if err := ctx.Err(); err != nil {
		return err
	}
	t.pass(j.w.latency())
	if j.w.now < j.downUntil {
		t.pass(callTimeout)
		return errUnavailable
	}
	return nil
}

// Load implements projections.Log.
func (j *journal) Load(ctx context.Context, tenant, op string) ([]events.Record, error) {
	if err := j.ready(ctx); err != nil {
		return nil, err
	}
	return slices.Clip(j.op(tenant, op).records), nil
}

// Read implements executor.Stamps.
func (j *journal) Read(ctx context.Context, seq uint64) (events.Record, error) {
	if err := j.ready(ctx); err != nil {
		return events.Record{}, err
	}
	if j.w.hit(logSlow) {
		j.w.cur.pass(j.w.between(time.Second, 40*time.Second))
	}
	if seq == 0 || seq > j.seq {
		return events.Record{}, fmt.Errorf("sim: no message %d", seq)
	}
	return j.records[seq-1], nil
}

// LastScope implements executor.Scopes.
func (j *journal) LastScope(ctx context.Context, tenant, scope string) (events.ScopeTaken, error) {
	if err := j.ready(ctx); err != nil {
		return events.ScopeTaken{}, err
	}
	taken := j.scopes[opKey(tenant, scope)]
	j.w.cur.entering.armed, j.w.cur.entering.taken = taken.Seq > 0, taken
	return taken, nil
}

// TakeScope implements executor.Scopes.
func (j *journal) TakeScope(ctx context.Context, tenant, scope, op, attemptID, _ string, behind uint64, newest time.Time) error {
	w, t := j.w, j.w.enter()
	if err := ctx.Err(); err != nil {
		return err
	}
	key := opKey(tenant, scope)
	var ours uint64
	store := func() (uint64, bool) {
		if j.scopes[key].Seq != behind && !w.hooks.noScopeFence {
			return 0, false
		}
		j.seq++
		j.records = append(j.records, events.Record{Seq: j.seq, Stamp: j.stamp()})
		j.scopes[key] = events.ScopeTaken{Operation: op, Attempt: attemptID, Seq: j.seq, At: j.stamp(), Newest: newest}
		ours = j.seq
		w.say("log     %4d scope %s taken by %s", j.seq, scope, op)
		return j.seq, true
	}
	for {
		a := j.publish(store)
		once, cancel := t.p.clock().Timeout(ctx, callTimeout)
		answered := t.await(once, &a.signal, 0)
		cancel()
		switch {
		case answered && a.stored, answered && ours != 0:
			return nil
		case answered:
			return fmt.Errorf("sim: scope %s: %w", scope, events.ErrConflict)
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", errNoVerdict, ctx.Err())
		}
	}
}

// pendingScope remembers on which state a task asked for its conflict scope.
type pendingScope struct {
	s     operation.State
	c     operation.Contract
	taken events.ScopeTaken
	armed bool
}

// Truth implements executor.States: the fold of the log as its leader has it.
func (j *journal) Truth(ctx context.Context, tenant, op string) (operation.State, error) {
	if err := j.ready(ctx); err != nil {
		return operation.State{}, err
	}
	l := j.op(tenant, op)
	if e := &j.w.cur.entering; e.armed {
		e.armed = false
		j.w.enteredScope(e, l.state)
	}
	return l.state, nil
}
