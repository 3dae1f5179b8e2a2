package sim

import (
	"context"
	"iter"
	"time"
)

// occurrence is something that happens at a moment of the schedule.
type occurrence struct {
	at time.Duration
	n  uint64
	do func()
}

// agenda is a heap of occurrences by time; what is due at the same time happens
// in the order in which it was laid down.
type agenda []occurrence

func sooner(a, b occurrence) bool { return a.at < b.at || (a.at == b.at && a.n < b.n) }

func (a *agenda) push(o occurrence) {
	*a = append(*a, o)
	h := *a
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !sooner(h[i], h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (a *agenda) pop() occurrence {
	h := *a
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h[last] = occurrence{}
	h = h[:last]
	*a = h
	for i := 0; ; {
		small := 2*i + 1
		if small >= len(h) {
			return top
		}
		if r := small + 1; r < len(h) && sooner(h[r], h[small]) {
			small = r
		}
		if !sooner(h[small], h[i]) {
			return top
		}
		h[i], h[small] = h[small], h[i]
		i = small
	}
}

func (w *world) at(at time.Duration, do func()) {
	w.laid++
	w.agenda.push(occurrence{at: max(at, w.now), n: w.laid, do: do})
}

func (w *world) after(d time.Duration, do func()) { w.at(w.now+d, do) }

// killed unwinds a task whose process has crashed.
type killed struct{}

// task is one thread of a process: a coroutine that runs real code and gives the
// control back whenever that code waits for anything.
type task struct {
	w     *world
	p     *process
	co    *coroutine
	body  func()
	turn  uint64 // a wake-up that was meant for an earlier wait is void
	done  bool
	dead  bool
	ended signal
	// resident: it never ends by itself.
	resident bool
	// awaiting: it waits with a context, and looks at it again when woken.
	awaiting bool
	// began is when it began, role whose work it is.
	began time.Duration
	role  *role
	// entering is the state on which the task wants to enter a conflict scope.
	entering pendingScope
}

// coroutine is a thread that is used again for one task after the other.
type coroutine struct {
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	t     *task
}

// pool keeps coroutines from one schedule to the next.
type pool struct{ idle []*coroutine }

func (p *pool) take() *coroutine {
	if n := len(p.idle); n > 0 {
		co := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return co
	}
	co := &coroutine{}
	co.next, co.stop = iter.Pull(func(yield func(struct{}) bool) {
		co.yield = yield
		for {
			co.t.run()
			if co.t.dead || !yield(struct{}{}) {
				return
			}
		}
	})
	return co
}

// run executes the body, and ends quietly if the process crashed meanwhile.
func (t *task) run() {
	defer func() {
		t.done = true
		switch r := recover().(type) {
		case nil, killed:
		default:
			if t.dead {
				return // it fell over its own end
			}
			t.w.fail("no part of the ledger panics", "panic: %v", r)
		}
	}()
	t.body()
}

// spawn starts a thread of a process.
func (w *world) spawn(p *process, body func()) *task {
	t := &task{w: w, p: p, body: body}
	p.tasks = append(p.tasks, t)
	w.after(0, t.start)
	return t
}

func (t *task) start() {
	if t.dead {
		return
	}
	t.co = t.w.pool.take()
	t.co.t = t
	t.resume()
}

// resume lets the task go on until it waits again.
func (t *task) resume() {
	if t.done || t.dead || t.co == nil {
		return
	}
	if t.w.now < t.p.frozen { // the whole process stands still
		turn := t.turn
		t.w.at(t.p.frozen, func() { t.wake(turn) })
		return
	}
	before := t.w.cur
	t.w.cur = t
	t.co.next()
	t.w.cur = before
	if t.done {
		t.finish()
	}
}

// wake resumes a task if it still is in the wait that the wake-up is for.
func (t *task) wake(turn uint64) {
	if t.turn == turn {
		t.resume()
	}
}

func (t *task) finish() {
	if t.co != nil && !t.dead {
		t.w.pool.idle = append(t.w.pool.idle, t.co)
	}
	t.co = nil
	for i, other := range t.p.tasks {
		if other == t {
			t.p.tasks = append(t.p.tasks[:i], t.p.tasks[i+1:]...)
			break
		}
	}
	t.ended.fire(t.w)
}

// kill abandons a task for ever, wherever it is: what it has given away (a
// publish, a request) goes on without it.
func (t *task) kill() {
	t.dead = true
	if t.co != nil && !t.done {
		t.w.cur, t.w.unwinding = t, true
		t.co.stop()
		t.w.cur, t.w.unwinding = nil, false
	}
	t.done = true
}

// park gives the control back.
func (t *task) park() {
	if t.dead || !t.co.yield(struct{}{}) {
		t.dead = true
		panic(killed{})
	}
}

// pass lets time pass for a task.
func (t *task) pass(d time.Duration) {
	if t.dead {
		panic(killed{})
	}
	t.turn++
	turn := t.turn
	t.w.after(d, func() { t.wake(turn) })
	t.park()
}

// signal is something that a task can wait for.
type signal struct {
	fired   bool
	waiting []waiter
}

type waiter struct {
	t    *task
	turn uint64
}

func (s *signal) fire(w *world) {
	if s.fired {
		return
	}
	s.fired = true
	for _, x := range s.waiting {
		w.after(0, func() { x.t.wake(x.turn) })
	}
	s.waiting = nil
}

// await waits for a signal, but no longer than grace after ctx ended, and
// reports whether it came.
func (t *task) await(ctx context.Context, s *signal, grace time.Duration) bool {
	for {
		if t.dead {
			panic(killed{})
		}
		if s != nil && s.fired {
			return true
		}
		end, known := endOf(ctx, t.p)
		if known && t.p.mono() >= end+grace {
			return false
		}
		t.turn++
		turn := t.turn
		if s != nil {
			s.waiting = append(s.waiting, waiter{t, turn})
		}
		if known {
			t.w.after(end+grace-t.p.mono(), func() { t.wake(turn) })
		}
		t.awaiting = true
		t.park()
		t.awaiting = false
	}
}

// span is a context of a process. Times are on its monotonic clock.
type span struct {
	p         *process
	parent    context.Context //nolint:containedctx // it is a context itself
	limit     time.Duration
	limited   bool
	outlives  time.Duration
	late      bool
	cancelled bool
}

// Done implements context.Context: nobody waits on it, the clock is asked.
func (s *span) Done() <-chan struct{} { return nil }

// Deadline implements context.Context.
func (s *span) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (s *span) Value(any) any { return nil }

// Err implements context.Context.
func (s *span) Err() error {
	if s.cancelled {
		return context.Canceled
	}
	if end, known := s.end(); known && s.p.mono() >= end {
		return context.DeadlineExceeded
	}
	return nil
}

func (s *span) end() (time.Duration, bool) {
	end, known := s.limit, s.limited
	above, has := endOf(s.parent, s.p)
	if s.late {
		above += s.outlives
	}
	if has && (!known || above < end) {
		end, known = above, true
	}
	return end, known
}

// endOf returns when a context ends, on the monotonic clock of its process.
func endOf(ctx context.Context, p *process) (time.Duration, bool) {
	switch c := ctx.(type) {
	case *span:
		if c.cancelled {
			return 0, true
		}
		return c.end()
	case *root:
		return c.p.stopAt, c.p.stopping
	}
	return 0, false
}

// root is the context of a process; it ends when the process is told to stop.
type root struct{ p *process }

// Deadline implements context.Context.
func (r *root) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (r *root) Value(any) any { return nil }

// Done implements context.Context.
func (r *root) Done() <-chan struct{} { return nil }

// Err implements context.Context.
func (r *root) Err() error {
	if r.p.stopping {
		return context.Canceled
	}
	return nil
}

// clocks implements clock.Clock for a process.
type clocks struct{ p *process }

// Monotonic implements clock.Clock.
func (c clocks) Monotonic() time.Duration { return c.p.mono() }

// Wall implements clock.Clock.
func (c clocks) Wall() time.Time { return c.p.wall() }

// Timeout implements clock.Clock.
func (c clocks) Timeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	s := &span{p: c.p, parent: ctx, limit: c.p.mono() + d, limited: true}
	return s, func() { s.cancelled = true }
}

// Outlive implements clock.Clock.
func (c clocks) Outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	s := &span{p: c.p, parent: ctx, outlives: d, late: true}
	return s, func() { s.cancelled = true }
}

// Sleep implements clock.Clock.
func (c clocks) Sleep(ctx context.Context, d time.Duration) {
	s := &span{p: c.p, parent: ctx, limit: c.p.mono() + d, limited: true}
	c.p.w.cur.await(s, nil, 0)
}

// Beside implements clock.Clock.
func (c clocks) Beside(work func()) func(context.Context, time.Duration) bool {
	t := c.p.w.spawn(c.p, work)
	return func(ctx context.Context, grace time.Duration) bool {
		return c.p.w.cur.await(ctx, &t.ended, grace)
	}
}
