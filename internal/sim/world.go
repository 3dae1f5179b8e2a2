package sim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/dispatch"
	"github.com/opledger/opledger/operation"
)

const (
	// secret is in every wish's arguments and must not be in any log line.
	secret = "canary-7f3a"
	// calmTime bounds how long a schedule goes on after the faults' end.
	calmTime = 12 * time.Hour
	// maxSteps bounds the occurrences of one schedule.
	maxSteps = 60_000
	// scanOften is how many schedules have one whose log lines are read.
	scanOften = 16
	// compareOften is how many schedules have one whose states are compared
	// field by field.
	compareOften = 8
	// projectOften is how many schedules have one whose entries are written by
	// the real projector.
	projectOften = 8
)

// world is one schedule.
type world struct {
	seed      uint64
	rng       *rand.Rand
	now       time.Duration
	calmFrom  time.Duration
	agenda    agenda
	laid      uint64
	cur       *task
	unwinding bool
	pool      *pool
	swarm     swarm
	kinds     *[faultCount]faultInfo
	hooks     *hooks
	stats     *Stats
	logger    *slog.Logger
	// decode: events are read back from their bytes.
	decode bool

	log      *journal
	entries  *entries
	claims   claims
	services []*service
	procs    []*process
	wishes   []*wish
	landed   map[string]*request
	requests int
	ids      uint64
	over     bool

	violation  *Violation
	talk       bool
	transcript *strings.Builder
}

// Stats counts what happened, over any number of schedules.
type Stats struct {
	Schedules, Operations, Attempts, Requests, Effects, Events int
	Confirmed, Rejected, Undetermined, Duplicates              int
	Steps                                                      int
	Simulated                                                  time.Duration
	Faults                                                     [faultCount]int
	Reasons                                                    map[operation.Reason]int
}

func newStats() *Stats {
	return &Stats{Reasons: make(map[operation.Reason]int)}
}

func newWorld(seed uint64, h *hooks, pl *pool, stats *Stats, kinds *[faultCount]faultInfo, all []setting) *world {
	w := &world{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 0x6f706c6564676572)), pool: pl, hooks: h, stats: stats, kinds: kinds,
		landed: map[string]*request{}, logger: quietLogger(),
	}
	w.agenda = make(agenda, 0, 256)
	w.log = &journal{w: w, ops: map[string]*opLog{}, scopes: map[string]events.ScopeTaken{}}
	w.entries = newEntries(w, seed%projectOften == 3)
	w.claims = claims{w: w, held: map[string]claim{}}
	w.choose(kinds)
	w.decode = seed%scanOften == 0
	if seed%scanOften == 1 {
		w.logger = slog.New(&scanner{w: w})
	}
	n := 1 + w.rng.IntN(2)
	for range n {
		w.services = append(w.services, &service{
			setting: all[w.rng.IntN(len(all))], w: w, keys: map[string]*storedKey{}, account: ourAccount,
		})
	}
	return w
}

func (w *world) service(name string) *service {
	for _, s := range w.services {
		if s.name == name {
			return s
		}
	}
	return w.services[0]
}

// enter is the begin of every call out of the real code: the task may be dead,
// and its process may die in the middle of the call.
func (w *world) enter() *task {
	t := w.cur
	if t == nil || t.dead {
		panic(killed{})
	}
	p := t.p
	switch {
	case w.hit(crashAtCall):
		w.after(w.between(0, 40*time.Millisecond), func() { w.crash(p) })
	case w.hit(pause):
		w.after(w.between(0, 40*time.Millisecond), func() { w.freeze(p, false) })
	case w.hit(machineSleep):
		w.after(w.between(0, 40*time.Millisecond), func() { w.freeze(p, true) })
	}
	return t
}

func (w *world) newID() string {
	w.ids++
	id := []byte("018f0000-0000-7000-8000-000000000000")
	for i, n := len(id)-1, w.ids; n > 0; i, n = i-1, n/16 {
		id[i] = "0123456789abcdef"[n%16]
	}
	return string(id)
}

func (w *world) must(err error) {
	if err != nil {
		panic(err) // the wiring is wrong, not the schedule
	}
}

func (w *world) say(format string, args ...any) {
	if w.talk {
		fmt.Fprintf(w.transcript, "%14s  %s\n", w.now.Round(time.Millisecond), fmt.Sprintf(format, args...))
	}
}

// run plays the schedule to its end and returns what a check found.
func (w *world) run() *Violation {
	w.calmFrom = w.between(8*time.Minute, 50*time.Minute)
	sole := w.rng.Float64() < w.swarm.rate[wrongPredecessor]
	if sole {
		w.stats.Faults[wrongPredecessor]++
	}
	for i := range 2 {
		p := &process{w: w, name: fmt.Sprintf("n%d", i+1), sole: sole}
		w.procs = append(w.procs, p)
		p.boot()
	}
	for i := range 1 + w.rng.IntN(3) {
		w.after(w.between(0, 5*time.Minute), func() {
			x := w.newWish(i + 1)
			w.wishes = append(w.wishes, x)
			w.submit(x)
		})
	}
	w.after(6*time.Minute, w.look)
	w.trouble()
	w.at(w.calmFrom, w.calm)
	end := w.calmFrom + calmTime
	steps := 0
	for len(w.agenda) > 0 && w.violation == nil && !w.over {
		o := w.agenda.pop()
		if o.at > end {
			break
		}
		w.now = o.at
		o.do()
		if steps++; steps > maxSteps {
			w.fail("liveness: a schedule comes to rest", "%d steps", steps)
		}
	}
	if w.violation == nil {
		w.rest()
	}
	for _, p := range w.procs {
		for _, t := range p.tasks {
			t.kill()
		}
	}
	w.stats.Schedules++
	w.stats.Steps += steps
	w.stats.Simulated += w.now
	return w.violation
}

// trouble plays what happens to machines, log and provider from time to time.
func (w *world) trouble() {
	if w.now >= w.calmFrom {
		return
	}
	for _, p := range w.procs {
		switch {
		case w.hit(crash):
			w.crash(p)
		case w.hit(stop):
			w.stop(p)
		}
		if w.hit(wallJump) {
			p.wallOff = w.between(-10*time.Minute, 10*time.Minute)
		}
		if w.hit(alarm) {
			p.alarmed, p.alarmFrom = true, w.now
			w.after(w.long(), func() { p.alarmed = false })
		}
		if w.hit(hintOfNothing) && p.alive {
			for _, r := range p.roles {
				r.wake(dispatch.Key{Tenant: "acme", Operation: "nothing"}, 0)
			}
		}
	}
	if w.hit(logDown) {
		w.log.downUntil = w.now + w.long()
	}
	if w.hit(logFailover) {
		w.log.skew = w.between(-100*time.Millisecond, 100*time.Millisecond)
		w.log.downUntil = max(w.log.downUntil, w.now+w.between(4*time.Second, 8*time.Second))
	}
	for _, s := range w.services {
		if w.hit(accountSwitched) {
			s.account = "acct_2"
			back := w.long()
			if w.rng.IntN(2) == 0 {
				back = w.between(20*time.Second, 2*time.Minute)
			}
			w.after(back, func() { s.account = ourAccount })
		}
		if w.hit(outage) {
			s.downUntil = w.now + w.long()
		}
	}
	for _, l := range w.log.list {
		if l.recorded.IsZero() {
			continue
		}
		switch {
		case w.hit(strayMessage):
			w.stray(l)
		case w.hit(erasure):
			w.record(l, func(s operation.State) events.Payload {
				if _, open := s.Open(); open || len(s.Unresolved()) > 0 {
					return nil
				}
				return events.ArgumentsErased{KeyID: "k1"}
			})
		case w.hit(logDamage):
			w.record(l, func(s operation.State) events.Payload {
				if s.Status.Final() {
					return nil
				}
				return events.OutcomeUnknown{Reason: events.UnknownLogDamage, Next: events.Next{Action: events.NextReconcile, At: s.UpdatedAt}}
			})
		case l.state.Version == 1 && w.seed%2048 == 9 && w.hit(longHistory):
			w.history(l)
		}
	}
	w.after(w.between(20*time.Second, 3*time.Minute), w.trouble)
}

// calm ends the faults: everything is up, and stays so.
func (w *world) calm() {
	w.say("calm         no more faults")
	for _, s := range w.services {
		s.account, s.downUntil = ourAccount, 0
	}
	w.log.downUntil = 0
	for _, p := range w.procs {
		p.alarmed, p.blindUntil = false, 0
	}
	w.entries.news()
}

// sweep is the net under all hints: what is due by its entry is planned.
func (w *world) sweep(p *process, run int) {
	if !p.alive || p.run != run {
		return
	}
	for _, l := range w.log.list {
		s, found := w.entries.now[l.key]
		if !found || s.NextAt.IsZero() || s.NextAt.After(p.now()) || !open(s) {
			continue
		}
		for _, r := range p.roles {
			r.wake(dispatch.Key{Tenant: l.tenant, Operation: l.id}, 0)
		}
	}
	w.after(w.between(90*time.Second, 150*time.Second), func() { w.sweep(p, run) })
}

func (w *world) crash(p *process) {
	if !p.alive {
		return
	}
	p.die()
	w.restart(p)
}

func (w *world) restart(p *process) {
	down := w.between(100*time.Millisecond, 10*time.Second)
	if w.hit(longRestart) {
		down = w.long()
	}
	w.after(down, p.boot)
}

// stop lets a process end in order: nothing begins, what runs may say its last
// words, then it ends.
func (w *world) stop(p *process) {
	if !p.alive || p.stopping {
		return
	}
	w.say("process      %s is told to stop", p.worker())
	p.stopping, p.stopAt = true, p.mono()
	for _, t := range append([]*task(nil), p.tasks...) {
		if t.awaiting {
			w.after(0, t.resume)
		}
	}
	run := p.run
	w.after(w.between(5*time.Second, 8*time.Second), func() {
		if p.alive && p.run == run {
			p.die()
			w.restart(p)
		}
	})
}

// freeze stops a process for a while: it is paused, or its machine sleeps, and
// the monotonic clock with it.
func (w *world) freeze(p *process, asleep bool) {
	if !p.alive || w.now < p.frozen {
		return
	}
	d := w.long()
	w.say("process      %s stands still for %s (asleep: %v)", p.name, d, asleep)
	p.frozen = w.now + d
	if !asleep {
		return
	}
	w.at(p.frozen, func() { p.slept += d })
	w.at(p.frozen+w.between(0, 5*time.Second), p.measure) // it notices that its clocks have come apart
}

// stray puts a message on the subject that is no event.
func (w *world) stray(l *opLog) {
	w.log.store(l, events.DecodeRecord(l.key, 0, time.Time{}, []byte("no event")), l.last)
}

// record appends an event that neither role writes, under compare-and-swap.
func (w *world) record(l *opLog, payload func(operation.State) events.Payload) {
	for _, p := range w.procs {
		if p.alive && !p.stopping {
			w.spawn(p, func() {
				s, err := w.log.Truth(p.root, l.tenant, l.id)
				if err != nil {
					return
				}
				if d := payload(s); d != nil {
					_, _ = p.writer.Append(p.root, s, "keeper", d) // or not: it is only trouble
				}
			})
			return
		}
	}
}

// history gives an operation a past of attempts that were never sent.
func (w *world) history(l *opLog) {
	put := func(d events.Payload) {
		e := events.Event{
			ID: w.newID(), Ledger: ledgerID, Tenant: l.tenant, Operation: l.id, Version: l.state.Version + 1, Prev: l.state.Head, Data: d,
		}
		w.log.store(l, events.Record{Event: e, Body: []byte(e.ID), Subject: l.key}, l.last)
		l.acked(e.ID)
	}
	for n := range operation.MaxAttemptsEver {
		id := w.newID()
		put(events.AttemptStarted{AttemptID: id, Number: n + 1, Worker: "past", LeaseMS: 1})
		put(events.AttemptNotApplied{AttemptID: id, Proof: events.ProofNotSent, Next: events.Next{Action: events.NextAttempt, At: w.log.stamp()}})
	}
}

// news tells everybody who follows the log.
func (w *world) news(l *opLog) {
	w.entries.news()
	k := dispatch.Key{Tenant: l.tenant, Operation: l.id}
	version := l.state.Version
	freed := l.state.Status.Final()
	for _, p := range w.procs {
		lag := w.between(time.Millisecond, 60*time.Millisecond)
		switch {
		case w.hit(hintLost):
			lag = w.between(time.Minute, 6*time.Minute) // found by the sweeper
		case w.hit(hintLate):
			lag = w.long()
		}
		run := p.run
		w.after(lag, func() {
			if !p.alive || p.run != run {
				return
			}
			for _, r := range p.roles {
				r.wake(k, version)
			}
			if freed && p.freed != nil {
				p.freed(k)
			}
		})
	}
}

// decides is told on which state a role is about to decide.
func (w *world) decides(t *task, s operation.State) {
	if t.role == nil || s.OperationID == "" && s.Status != operation.StatusAbsent {
		return
	}
	var c operation.Contract
	if s.Status != operation.StatusAbsent {
		c = w.service(s.Intent.Provider).contract
	}
	step := operation.Next(s, c, operation.Params{Now: t.p.now(), ClockError: clockError, Lease: c.Total + leaseGrace})
	w.stats.Reasons[step.Reason]++
	if w.talk {
		w.say("role         %s of %s sees %s v%d: %s", t.role.name, t.p.worker(), s.OperationID, s.Version, step.Reason)
	}
	if step.Do == operation.DoAttempt {
		t.entering.s, t.entering.c = s, c
	}
}

func (w *world) enteredScope(e *pendingScope, last operation.State) {
	p := operation.Params{Now: w.cur.p.now(), ClockError: clockError, Lease: e.c.Total + leaseGrace}
	step := operation.Next(e.s, e.c, p)
	if step.Do != operation.DoAttempt {
		return
	}
	w.stats.Reasons[operation.EnterScope(e.s, last, e.taken, e.c, step, p).Reason]++
}

func describe(r events.Record) string {
	if r.Data == nil {
		return "no event"
	}
	text := ""
	switch d := r.Data.(type) {
	case events.IntentRecorded:
		text = d.Provider + " scope=" + d.ConflictScope + " hold=" + d.Hold
	case events.AttemptStarted:
		text = fmt.Sprintf("%s #%d by %s permit=%s", short(d.AttemptID), d.Number, d.Worker, short(d.PermitID))
	case events.AttemptNotApplied:
		text = short(d.AttemptID) + " " + string(d.Proof) + " " + d.Reason
	case events.OutcomeUnknown:
		text = short(d.AttemptID) + " " + string(d.Reason)
	case events.EvidenceRecorded:
		text = fmt.Sprintf("%s %s %v weak=%v under %s: %s", d.Source, d.Finding, d.ExternalIDs, d.WeakMatches, d.AccountProbed, d.Reason)
	case events.RetryPermitted:
		text = fmt.Sprintf("%s %s from %s until %s", short(d.PermitID), d.Basis, d.RetryAt.Sub(begin), d.ValidUntil.Sub(begin))
	case events.ReviewOpened:
		text = string(d.Reason)
	case events.ReviewUpdated:
		text = string(d.Decision)
	case events.ReviewClosed:
		text = string(d.Decision)
	case events.ResultConfirmed:
		text = d.ExternalID + " via " + string(d.Via)
	case events.Rejected:
		text = d.Reason + " via " + string(d.Via)
	case events.DuplicateFound:
		text = strings.Join(d.ExternalIDs, ",")
	case events.ApprovalGranted:
		text = "until " + d.ExpiresAt.Sub(begin).String()
	}
	return string(r.Data.Kind()) + " " + text
}
