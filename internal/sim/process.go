package sim

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/executor"
	"github.com/opledger/opledger/intake"
	"github.com/opledger/opledger/internal/clock"
	"github.com/opledger/opledger/internal/dispatch"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/reconciler"
)

// process is one server process: executor, reconciler and intake, wired as
// package internal/node wires them, and the clocks of its machine.
type process struct {
	w     *world
	name  string
	run   int
	alive bool
	tasks []*task

	// frozen: the whole process stands still until then.
	frozen time.Duration
	// slept is for how long the monotonic clock stood still; the wall clock is
	// wallOff from the true time, contract time offset from the monotonic clock.
	slept, wallOff, offset time.Duration
	stopping               bool
	stopAt                 time.Duration
	// blindUntil: it lacks a contract or a credential.
	blindUntil time.Duration
	alarmed    bool
	alarmFrom  time.Duration

	root   context.Context //nolint:containedctx // it is what ends with the process
	recent map[string]uint64
	writer *writer.Writer
	intake *intake.Service
	roles  []*role
	freed  func(dispatch.Key)
	// sole: a lock makes sure that earlier runs of it are dead.
	sole bool
}

func (p *process) mono() time.Duration { return p.w.now - p.slept }

func (p *process) wall() time.Time { return begin.Add(p.w.now + p.wallOff) }

// now is contract time: the log's clock as this process measured it, carried on
// by its monotonic clock.
func (p *process) now() time.Time {
	if p.w.hooks.now != nil {
		return p.w.hooks.now(p)
	}
	return begin.Add(p.mono() + p.offset)
}

func (p *process) clock() clock.Clock {
	if p.w.hooks.clock != nil {
		return p.w.hooks.clock(p)
	}
	return clocks{p}
}

func (p *process) worker() string { return fmt.Sprintf("%s#%d", p.name, p.run) }

// measure sets contract time by the log's clock, with an error.
func (p *process) measure() {
	p.offset = p.slept + p.w.log.skew + p.w.between(-100*time.Millisecond, 100*time.Millisecond)
}

// boot starts the process anew, with nothing but what the log and the buckets
// hold.
func (p *process) boot() {
	w := p.w
	p.run++
	p.alive, p.stopping, p.frozen, p.blindUntil = true, false, 0, 0
	p.alarmed = false
	p.recent = map[string]uint64{}
	p.measure()
	p.root = &root{p: p}
	w.say("process      %s starts", p.worker())
	var j writer.Journal = w.log
	if w.hooks.journal != nil {
		j = w.hooks.journal(p, j)
	}
	var err error
	p.writer, err = writer.New(writer.Config{
		Journal: j, Ledger: ledgerID, Now: p.now, NewID: w.newID,
		Observe: func(_, after operation.State, _ events.Event) {
			k := opKey(after.Tenant, after.OperationID)
			p.recent[k] = max(p.recent[k], after.Version)
		},
	})
	w.must(err)
	var rec recorder = p.writer
	if w.hooks.recorder != nil {
		rec = w.hooks.recorder(p, rec)
	}
	var st reader = &states{p: p}
	if w.hooks.states != nil {
		st = w.hooks.states(p, st)
	}
	predecessors := ""
	if p.sole {
		predecessors = p.name
	}
	xc := executor.Config{
		Recorder: rec, States: st, Claims: &w.claims, Stamps: w.log, Scopes: w.log, Adapters: p, Worker: p.worker(),
		LeaseGrace: leaseGrace, ClockError: clockError, Alarm: p.alarm, Now: p.now, Random: w.rng.Float64,
		Clock: p.clock(), NewID: w.newID, Logger: w.logger,
		Elsewhere: func(k dispatch.Key, version uint64) { p.roles[1].wake(k, version) },
		Free:      func(k dispatch.Key) { p.roles[0].wake(k, 0) },
	}
	if w.hooks.executor != nil {
		w.hooks.executor(p, &xc)
	}
	x, err := executor.New(xc)
	w.must(err)
	rc := reconciler.Config{
		Recorder: rec, States: st, Adapters: p, Worker: p.worker(), Predecessors: predecessors,
		LeaseGrace: leaseGrace, ClockError: clockError, Now: p.now, Random: w.rng.Float64,
		Clock: p.clock(), NewID: w.newID, Logger: w.logger,
	}
	r, err := reconciler.New(rc)
	w.must(err)
	taking := rec
	if w.hooks.intakeRecorder != nil {
		taking = w.hooks.intakeRecorder(p, rec)
	}
	ic := intake.Config{
		Recorder: taking, States: intakeStates{st, p}, Catalogue: catalogue{w}, Ledger: ledgerID, Scopes: nil,
		Tenants: []intake.Tenant{{ID: "acme"}, {ID: "beta", HoldRepeats: true}},
		Earlier: w.earlier, Actor: "intake", Now: p.now, Random: w.rng.Float64, NewID: w.newID, Logger: w.logger,
	}
	p.intake, err = intake.New(ic)
	w.must(err)
	p.roles = []*role{{p: p, name: "executor", planner: x, items: map[string]*item{}}, {p: p, name: "reconciler", planner: r, items: map[string]*item{}}}
	p.freed = x.Freed
	if w.entries.real {
		w.spawn(p, p.project)
	}
	run := p.run
	w.after(w.between(0, time.Minute), func() { w.sweep(p, run) })
	// What is open is found again through the index.
	for _, l := range w.log.list {
		if open(l.state) {
			for _, r := range p.roles {
				r.schedule(dispatch.Key{Tenant: l.tenant, Operation: l.id}, l.state.NextAt, 0)
			}
		}
	}
}

func open(s operation.State) bool {
	return s.Version > 0 && (!s.Status.Final() || s.Review != nil || (s.NextAction != "" && s.NextAction != events.NextNone))
}

func (p *process) alarm() string {
	if p.alarmed {
		return "the log lost its tail"
	}
	return ""
}

// die ends the process where it is. What it has sent goes on without it.
func (p *process) die() {
	p.w.say("process      %s dies", p.worker())
	p.alive = false
	for _, t := range p.tasks {
		t.kill()
	}
	p.tasks = nil
	for _, r := range p.roles {
		r.gone = true
	}
}

// recorder and reader are what the real parts are given.
type recorder interface {
	Append(ctx context.Context, s operation.State, actor string, payloads ...events.Payload) (operation.State, error)
}

type reader interface {
	State(ctx context.Context, tenant, operation string, min uint64) (operation.State, error)
	Truth(ctx context.Context, tenant, operation string) (operation.State, error)
}

// role is a dispatcher of one process, without lanes: what waits is lost with
// the process.
type role struct {
	p       *process
	name    string
	planner dispatch.Planner
	items   map[string]*item
	gone    bool
}

type item struct {
	key      dispatch.Key
	at       time.Duration
	turn     uint64
	min      uint64
	queued   bool
	working  bool
	again    bool
	againAt  time.Duration
	failures int
}

func (r *role) wake(k dispatch.Key, min uint64) { r.put(k, r.p.w.now, min) }

// schedule plans an operation at a moment of contract time.
func (r *role) schedule(k dispatch.Key, at time.Time, min uint64) {
	r.put(k, r.p.w.now+max(0, at.Sub(r.p.now())), min)
}

func (r *role) put(k dispatch.Key, at time.Duration, min uint64) {
	if r.gone {
		return
	}
	name := opKey(k.Tenant, k.Operation)
	it := r.items[name]
	if it == nil {
		it = &item{key: k}
		r.items[name] = it
	}
	it.min = max(it.min, min)
	switch {
	case it.working:
		if !it.again || at < it.againAt {
			it.again, it.againAt = true, at
		}
	case !it.queued, at < it.at:
		r.queue(it, at)
	}
}

func (r *role) queue(it *item, at time.Duration) {
	it.queued, it.at = true, at
	it.turn++
	turn := it.turn
	r.p.w.at(at, func() { r.begin(it, turn) })
}

func (r *role) begin(it *item, turn uint64) {
	w := r.p.w
	if r.gone || it.turn != turn || !it.queued {
		return
	}
	if w.now < r.p.frozen {
		w.at(r.p.frozen, func() { r.begin(it, turn) })
		return
	}
	if r.p.stopping {
		return
	}
	it.queued, it.working, it.again = false, true, false
	w.spawn(r.p, func() { r.work(it) })
}

func (r *role) work(it *item) {
	w, t := r.p.w, r.p.w.cur
	t.began, t.role = w.now, r
	w.say("role         %s of %s plans %s", r.name, r.p.worker(), it.key.Operation)
	planning, cancel := clocks{r.p}.Timeout(r.p.root, 30*time.Second)
	plan, err := r.planner.Plan(planning, it.key, it.min)
	cancel()
	if err != nil {
		it.failures++
		r.finish(it, r.p.now().Add(min(time.Second<<min(it.failures-1, 6), time.Minute)), 0)
		return
	}
	it.failures = 0
	again := plan.Again
	if w.talk {
		w.say("role         %s of %s: run %v, again at %s", r.name, r.p.worker(), plan.Run != nil, again.At.Sub(begin))
	}
	if plan.Run != nil {
		t.pass(w.between(0, 5*time.Millisecond)) // in its lane
		again = plan.Run(r.p.root)
	}
	r.finish(it, again.At, again.Min)
}

func (r *role) finish(it *item, again time.Time, min uint64) {
	it.working = false
	it.min = max(it.min, min)
	at, known := time.Duration(0), false
	if !again.IsZero() {
		at, known = r.p.w.now+max(0, again.Sub(r.p.now())), true
	}
	if it.again && (!known || it.againAt < at) {
		at, known = it.againAt, true
	}
	it.again = false
	if !known {
		delete(r.items, opKey(it.key.Tenant, it.key.Operation))
		return
	}
	r.queue(it, at)
}

// quietLogger drops everything.
func quietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }
