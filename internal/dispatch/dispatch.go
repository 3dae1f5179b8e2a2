// Package dispatch keeps the work of a role going: operations wait for their
// time in memory, are planned by a few planners, and run in lanes (one per
// provider account), so that a stuck provider holds up nobody else (I14).
//
// It knows nothing of operations but their names. Nothing here is needed for
// safety: an operation planned twice, too late or on old news is refused by the
// log. What is waiting is lost with the process and found again through the
// index of open operations.
package dispatch

import (
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Key names an operation.
type Key struct {
	Tenant, Operation string
}

// Plan is what a role wants to do with an operation.
type Plan struct {
	// Lane is where Run runs; empty means that there is nothing to run.
	Lane string
	// Width is how many runs the lane admits at once; zero means 1. Spacing is
	// the least time between the starts of two; zero means none.
	Width   int
	Spacing time.Duration
	// Until is when the chance to do it ends. Of a tenant's operations that wait
	// for the lane, the one whose chance ends first goes first. Zero means never:
	// such operations take turns with the others, the longest due first.
	Until time.Time
	// Run does the work and returns when to plan the operation again.
	Run func(ctx context.Context) Again
	// Again is when to plan the operation again if there is nothing to run.
	Again Again
}

// Again says when to plan an operation again. The zero value means: not before
// news of it.
type Again struct {
	At time.Time
	// Min is the lowest version that the next plan may be made on: what was
	// just written must be seen, or the same would be done again.
	Min uint64
	// More is how many requests the run has made beyond the one that its start
	// stands for; in a lane with a spacing the next start waits for them, too.
	More int
}

// Planner decides what to do with an operation. min is the lowest version that
// the decision may be made on, as the news that woke it said.
type Planner interface {
	Plan(ctx context.Context, k Key, min uint64) (Plan, error)
}

// Config is what a Dispatcher needs.
type Config struct {
	Planner Planner
	// Planners is how many operations are planned at once; zero means 8.
	Planners int
	// PlanTimeout bounds one planning; zero means 30 s.
	PlanTimeout time.Duration
	// Retry is the pause after a planning error; zero means 1 s. It doubles
	// with each error in a row of one operation, up to 1 min.
	Retry time.Duration
	// Drain is how long running work may take after the context ended; then
	// its own context ends. Zero means 10 s.
	Drain time.Duration
	// Pace keeps the starts in a lane apart; dispatchers that share one do so
	// together. Nil means one of its own.
	Pace *Pace
	// Go calls work in a goroutine of its own; nil means a new one.
	Go func(work func())
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Logger may be nil.
	Logger *slog.Logger
}

// Dispatcher runs the work of one role. It is safe for concurrent use.
type Dispatcher struct {
	cfg Config

	mu     sync.Mutex
	kick   chan struct{}
	queue  timers
	alarms timers // lanes whose next start has its time
	items  map[Key]*item
	lanes  map[string]*lane
	busy   int // planners at work
	active int // planners and runs at work
	plans  uint64
	idle   *sync.Cond
}

type item struct {
	key   Key
	at    time.Time
	index int // in the queue, -1 if not queued
	min   uint64
	// least is the lowest version that the plan under way may be made on.
	least uint64
	// working: being planned or run, or parked in a lane. again: woken
	// meanwhile.
	working  bool
	again    bool
	failures int
	// turn is the lane that let the item out of its queue, keeps a place for it
	// and waits to hear whether it takes it. due is when it was to be planned
	// before it had to wait, until when its chance ends.
	turn       string
	due, until time.Time
	// timed: it was let out at a time to start, which is its own.
	timed bool
	// lane is set in the alarm of a lane, which is no operation.
	lane string
}

type lane struct {
	// width and spacing are those of the last plan.
	width   int
	spacing time.Duration
	running int
	// promised is how many places are kept for items that were let out, so that
	// a newcomer does not take them. gifts are the times to start of those that
	// did not take theirs.
	promised, gifts int
	// parked are the operations that wait for a run, by tenant; turns are the
	// tenants that have some, in the order in which they are served.
	parked map[string]*parked
	turns  []string
	// slot is the time of the next start, if it is booked; alarm wakes the lane
	// then.
	slot   time.Time
	booked bool
	alarm  *item
}

// New returns a Dispatcher; Run starts it.
func New(cfg Config) (*Dispatcher, error) {
	if cfg.Planner == nil {
		return nil, errors.New("dispatch: planner is required")
	}
	if cfg.Planners <= 0 {
		cfg.Planners = 8
	}
	if cfg.PlanTimeout <= 0 {
		cfg.PlanTimeout = 30 * time.Second
	}
	if cfg.Retry <= 0 {
		cfg.Retry = time.Second
	}
	if cfg.Drain <= 0 {
		cfg.Drain = 10 * time.Second
	}
	if cfg.Pace == nil {
		cfg.Pace = NewPace()
	}
	if cfg.Go == nil {
		cfg.Go = func(work func()) { go work() }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Dispatcher{
		cfg: cfg, kick: make(chan struct{}, 1),
		items: make(map[Key]*item), lanes: make(map[string]*lane),
	}
	d.idle = sync.NewCond(&d.mu)
	return d, nil
}

// Wake plans an operation now, on at least version min, also if a plan on that
// version is under way.
func (d *Dispatcher) Wake(k Key, min uint64) { d.schedule(k, d.cfg.Now(), min, false) }

// News plans an operation now, on at least that version. A plan or a run under way
// that is on it, or on a later one, needs no repeat: the same news comes by
// several ways. Version 0 is news of which nothing is known.
func (d *Dispatcher) News(k Key, version uint64) { d.schedule(k, d.cfg.Now(), version, true) }

// Schedule plans an operation, as of that version, at the given time, unless it is
// planned earlier or a plan or a run on that version is under way, which says
// itself when it is to be planned again.
func (d *Dispatcher) Schedule(k Key, at time.Time, version uint64) { d.schedule(k, at, version, true) }

// Settled forgets an operation for which there is nothing to do as of that version,
// unless there is later news of it.
func (d *Dispatcher) Settled(k Key, version uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if it := d.items[k]; it != nil && !it.working && it.turn == "" && it.min <= version {
		heap.Remove(&d.queue, it.index)
		delete(d.items, k)
	}
}

// Plans returns how often operations were planned so far.
func (d *Dispatcher) Plans() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.plans
}

// Waiting returns how many operations wait or run.
func (d *Dispatcher) Waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.items)
}

func (d *Dispatcher) schedule(k Key, at time.Time, min uint64, news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	it := d.items[k]
	if news && min > 0 && it != nil && it.working && min <= it.least {
		return
	}
	if it == nil {
		it = &item{key: k, index: -1}
		d.items[k] = it
	}
	it.min = max(it.min, min)
	switch {
	case it.working:
		// The run that is going on may have read older news.
		if it.again && it.at.Before(at) {
			at = it.at
		}
		it.again, it.at = true, at
	case it.index < 0:
		it.at = at
		heap.Push(&d.queue, it)
	case at.Before(it.at):
		it.at = at
		heap.Fix(&d.queue, it.index)
	}
	d.nudge()
}

func (d *Dispatcher) nudge() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, then starts nothing more, lets running work end
// within Drain, ends its context after that, and returns when all of it has
// returned.
func (d *Dispatcher) Run(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), stopping{}, ctx))
	defer stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait := d.start(work)
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-d.kick:
		case <-timer.C:
		}
	}
	drain := time.AfterFunc(d.cfg.Drain, stop)
	defer drain.Stop()
	d.mu.Lock()
	for d.active > 0 {
		d.idle.Wait()
	}
	d.mu.Unlock()
	return nil
}

// stopping is the key of the outer context in that of a run.
type stopping struct{}

// Stopping reports, in a run, whether the dispatcher was told to stop: what has
// not begun need not begin.
func Stopping(ctx context.Context) bool {
	outer, ok := ctx.Value(stopping{}).(context.Context)
	return ok && outer.Err() != nil
}

// start begins planning whatever is due and returns how long to wait.
func (d *Dispatcher) start(ctx context.Context) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, longest := d.cfg.Now(), time.Hour
	for len(d.alarms) > 0 {
		it := d.alarms[0]
		if wait := it.at.Sub(now); wait > 0 {
			longest = min(wait, longest)
			break
		}
		heap.Pop(&d.alarms)
		if l := d.lanes[it.lane]; l != nil {
			d.advance(it.lane, l)
		}
	}
	for len(d.queue) > 0 && d.busy < d.cfg.Planners {
		it := d.queue[0]
		if wait := it.at.Sub(now); wait > 0 {
			return min(wait, longest)
		}
		heap.Pop(&d.queue)
		d.begin(ctx, it)
	}
	return longest
}

// begin plans an item; the caller holds the lock.
func (d *Dispatcher) begin(ctx context.Context, it *item) {
	it.working, it.again = true, false
	if it.turn == "" {
		it.due = it.at
	}
	least := it.min
	it.least = least
	d.plans++
	d.busy++
	d.active++
	d.cfg.Go(func() {
		planning, cancel := context.WithTimeout(ctx, d.cfg.PlanTimeout)
		plan, err := d.cfg.Planner.Plan(planning, it.key, least)
		cancel()
		d.mu.Lock()
		d.busy--
		l := d.planned(ctx, it, plan, err)
		if l != nil {
			if len(d.queue) > 0 {
				d.nudge() // a planner is free
			}
			d.mu.Unlock()
			again := plan.Run(ctx)
			d.mu.Lock()
			d.ran(it, plan, l, again)
		}
		d.ended()
		d.mu.Unlock()
	})
}

// planned returns the lane in which the plan is to run now, or nil if it is not.
func (d *Dispatcher) planned(ctx context.Context, it *item, plan Plan, err error) *lane {
	turn, timed := it.turn, it.timed
	it.timed = false
	if turn != "" {
		it.turn = ""
		l := d.lanes[turn]
		l.promised--
		if err != nil || plan.Lane != turn || plan.Run == nil {
			if timed {
				l.gifts++
			}
			d.advance(turn, l) // it passed: the next one may go
		}
	}
	if err != nil {
		it.failures++
		pause := min(d.cfg.Retry<<min(it.failures-1, 6), time.Minute)
		d.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "planning failed",
			slog.String("tenant", it.key.Tenant), slog.String("operation_id", it.key.Operation),
			slog.Any("err", err))
		d.finish(it, Again{At: d.cfg.Now().Add(pause)})
		return nil
	}
	it.failures = 0
	if plan.Lane == "" || plan.Run == nil {
		d.finish(it, plan.Again)
		return nil
	}
	l := d.lanes[plan.Lane]
	if l == nil {
		l = &lane{parked: make(map[string]*parked)}
		d.lanes[plan.Lane] = l
	}
	l.width, l.spacing, it.until = max(plan.Width, 1), plan.Spacing, plan.Until
	switch mine := turn == plan.Lane; {
	case l.running+l.promised >= l.width:
		if mine && timed {
			l.gifts++
		}
		l.park(it)
		return nil
	case l.spacing <= 0 || (mine && timed):
	case len(l.turns) > 0 || !d.mayStart(plan.Lane, l):
		l.park(it)
		d.advance(plan.Lane, l)
		return nil
	default:
		l.booked = false
	}
	l.running++
	return l
}

// ran puts an item back after its run in a lane.
func (d *Dispatcher) ran(it *item, plan Plan, l *lane, again Again) {
	if plan.Spacing > 0 && again.More > 0 {
		d.cfg.Pace.delay(plan.Lane, d.cfg.Now(), time.Duration(again.More)*plan.Spacing)
	}
	l.running--
	d.advance(plan.Lane, l)
	d.finish(it, again)
}

// mayStart reports whether the next start in a lane with a spacing has its time,
// which is booked if it is not yet.
func (d *Dispatcher) mayStart(name string, l *lane) bool {
	now := d.cfg.Now()
	if !l.booked || now.After(l.slot.Add(l.spacing)) { // what was missed is lost
		l.slot, l.booked = d.cfg.Pace.book(name, now, l.spacing), true
	}
	return !now.Before(l.slot)
}

// advance plans waiting items of a lane anew, as many as there are places for and
// times to start: what they wanted to do may be out of date.
func (d *Dispatcher) advance(name string, l *lane) {
	for len(l.turns) > 0 && l.running+l.promised < l.width {
		timed := true
		switch {
		case l.gifts > 0:
			l.gifts--
		case l.spacing <= 0:
			timed = false
		case d.mayStart(name, l):
			l.booked = false
		default:
			d.ring(name, l)
			return
		}
		it := l.next()
		it.again, it.working = false, false
		it.at = time.Time{} // before all that has no turn
		it.turn, it.timed = name, timed
		l.promised++
		heap.Push(&d.queue, it)
		d.nudge()
	}
	if len(l.turns) == 0 {
		l.gifts = 0
		if l.running == 0 && l.promised == 0 {
			delete(d.lanes, name)
		}
	}
}

// ring wakes a lane when its next start has its time.
func (d *Dispatcher) ring(name string, l *lane) {
	switch {
	case l.alarm == nil || l.alarm.index < 0:
		l.alarm = &item{lane: name, at: l.slot}
		heap.Push(&d.alarms, l.alarm)
	default:
		l.alarm.at = l.slot
		heap.Fix(&d.alarms, l.alarm.index)
	}
	d.nudge()
}

// finish puts an item back into the queue, or forgets it.
func (d *Dispatcher) finish(it *item, again Again) {
	it.working = false
	it.min = max(it.min, again.Min)
	at := again.At
	if it.again && (at.IsZero() || it.at.Before(at)) {
		at = it.at
	}
	it.again = false
	if at.IsZero() {
		delete(d.items, it.key)
		return
	}
	it.at = at
	heap.Push(&d.queue, it)
	d.nudge()
}

func (d *Dispatcher) ended() {
	d.active--
	d.nudge()
	if d.active == 0 {
		d.idle.Broadcast()
	}
}

// timers is a heap of items by time.
type timers []*item

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at.Before(t[j].at) }

func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	it := x.(*item)
	it.index = len(*t)
	*t = append(*t, it)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	old := *t
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	it.index = -1
	return it
}
