// Package executor sends a request at most once per permit.
//
// For an operation that may be attempted it probes the account, renders the
// request, wins the claim, journals AttemptStarted, and only then lets the
// adapter send one request; then it journals what the answer says. It never
// decides what an outcome means (package operation does), never sends without
// an acknowledged AttemptStarted (I2), and never repeats by itself: another
// attempt is another decision on a new state.
//
// A crash before AttemptStarted is acknowledged leaves at most an open attempt
// that was never sent; a crash after it leaves an attempt whose lease ends, and
// the reconciler records that its outcome is unknown (I20).
package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/clock"
	"github.com/opledger/opledger/internal/dispatch"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// Recorder appends events behind a state; see internal/writer.
type Recorder interface {
	Append(ctx context.Context, s operation.State, actor string, payloads ...events.Payload) (operation.State, error)
}

// States reads what is known of an operation.
type States interface {
	// State returns the projection's state, or folds from the log if that is
	// older than version min.
	State(ctx context.Context, tenant, operation string, min uint64) (operation.State, error)
	// Truth folds from the log.
	Truth(ctx context.Context, tenant, operation string) (operation.State, error)
}

// Claims are the exclusive rights to try the next attempt. They make contention
// cheap; what makes it safe is the log.
type Claims interface {
	// Take wins the claim or returns when the holder's lease ends. A claim of
	// an attempt that is settled holds nobody up. The error is for everything
	// else.
	Take(ctx context.Context, c Claim) (revision uint64, held time.Time, err error)
	Release(ctx context.Context, tenant, operation string, revision uint64) error
}

// Claim is what an executor asks for.
type Claim struct {
	Tenant, Operation string
	AttemptID, Worker string
	// Until is when the lease would end.
	Until time.Time
	// Settled tells whether the outcome of an attempt is recorded.
	Settled func(attemptID string) bool
}

// Stamps reads the log's own time stamp of a stored event.
type Stamps interface {
	Read(ctx context.Context, seq uint64) (events.Record, error)
}

// Scopes are the records of which operation took a conflict scope last.
type Scopes interface {
	// LastScope returns that operation and the place of its record; the zero value
	// if nobody has.
	LastScope(ctx context.Context, tenant, scope string) (events.ScopeTaken, error)
	// TakeScope records an attempt right behind that place, and when the newest
	// wish was recorded that was confirmed before. The error wraps
	// events.ErrConflict if somebody else came first; after any other error
	// nobody knows.
	TakeScope(ctx context.Context, tenant, scope, operation, attemptID, actor string, behind uint64, newest time.Time) error
}

// Adapters finds the adapter and the contract revision of an intent. The error
// wraps providers.ErrNotMine if this process can't serve it; others may.
type Adapters interface {
	For(ctx context.Context, intent events.IntentRecorded) (providers.Adapter, operation.Contract, error)
}

// Config is what an Executor needs.
type Config struct {
	Recorder Recorder
	States   States
	Claims   Claims
	Stamps   Stamps
	Scopes   Scopes
	Adapters Adapters
	// Worker names this process; unique among those that run.
	Worker string
	// LeaseGrace is how much longer than the request's total time a lease is.
	// It must outlast a failover of the log, which refuses appends for 4 to 8 s.
	// Zero means 10 s.
	LeaseGrace time.Duration
	// ClockError is how far two clocks of the cluster may be apart. Zero means
	// 500 ms.
	ClockError time.Duration
	// Width is how many requests of one provider account are under way at
	// once, unless the contract says less. Zero means 8.
	Width int
	// LastWords bounds how long an outcome is recorded after the run's context
	// ended. Zero means 5 s.
	LastWords time.Duration
	// Pause is the pause before something that failed for a local reason is
	// tried again. Zero means 1 s.
	Pause time.Duration
	// Alarm tells of an integrity alarm, as its text; while it is not empty no
	// attempt starts. It must be quick; nil means that there is none.
	Alarm func() string
	// LookFirst tells of an operation that was recorded at a moment whether its
	// first request may have been sent already, since when, by what the log has
	// lost; see operation.LookFirst. It must be quick; nil means: never.
	LookFirst func(recorded time.Time) (since time.Time, doubt bool)
	// Elsewhere hands over an operation for which there is something else to do
	// than an attempt. It may be nil: the sweeper finds such operations, too.
	Elsewhere func(k dispatch.Key, version uint64)
	// Free hands back an operation whose conflict scope may have become free.
	// It may be nil: each asks again by itself after a while.
	Free func(k dispatch.Key)
	// Now is contract time, Random draws from [0, 1).
	Now    func() time.Time
	Random func() float64
	// Clock is the time that leases and pauses are spent on; nil means the
	// machine's.
	Clock clock.Clock
	// NewID mints the ids of attempts; nil means events.NewID.
	NewID func() string
	// Observe may be nil.
	Observe Observer
	// Logger may be nil.
	Logger *slog.Logger
}

// Observer is told what the log does not show.
type Observer struct {
	// Outcome: an attempt ended with this word.
	Outcome func(provider, action string, word operation.OutcomeWord)
	// ClaimConflict: another worker holds the claim.
	ClaimConflict func()
	// AppendConflict: the claim was won, but the log had moved.
	AppendConflict func()
	// Blocked: an attempt that is due can't be made, for this reason.
	Blocked func(provider string, reason BlockedReason)
}

// BlockedReason says why an attempt that is due can't be made. The list is
// closed.
type BlockedReason string

// The reasons that block attempts.
const (
	// BlockedProbe: the account could not be asked for; the provider may be
	// down, or the credential wrong.
	BlockedProbe BlockedReason = "account_probe"
	// BlockedClaim: the claims can't be reached.
	BlockedClaim BlockedReason = "claims"
	// BlockedLog: the log does not take events.
	BlockedLog BlockedReason = "log"
	// BlockedAlarm: an integrity alarm stands; no attempt starts (I16).
	BlockedAlarm BlockedReason = "integrity_alarm"
)

// Executor plans and runs attempts. It is safe for concurrent use.
type Executor struct {
	cfg Config

	mu      sync.Mutex
	blocked map[string]block // by lane
	queues  queues
}

// block is why nothing is tried in a lane for a while.
type block struct {
	failures int
	until    time.Time
	reason   BlockedReason
}

// blockedError is a local reason why an attempt was not made.
type blockedError struct {
	reason BlockedReason
	err    error
}

// Error implements error.
func (e *blockedError) Error() string { return string(e.reason) + ": " + e.err.Error() }

// Unwrap returns the cause.
func (e *blockedError) Unwrap() error { return e.err }

// maxBlock is the longest pause of a lane that is blocked.
const maxBlock = time.Minute

// New returns an Executor.
func New(cfg Config) (*Executor, error) {
	switch {
	case cfg.Recorder == nil || cfg.States == nil || cfg.Claims == nil || cfg.Stamps == nil || cfg.Scopes == nil || cfg.Adapters == nil:
		return nil, errors.New("executor: recorder, states, claims, stamps, scopes and adapters are required")
	case cfg.Worker == "" || cfg.Now == nil || cfg.Random == nil:
		return nil, errors.New("executor: worker, clock and random source are required")
	}
	if cfg.LeaseGrace <= 0 {
		cfg.LeaseGrace = 10 * time.Second
	}
	if cfg.ClockError <= 0 {
		cfg.ClockError = 500 * time.Millisecond
	}
	if cfg.Width <= 0 {
		cfg.Width = 8
	}
	if cfg.LastWords <= 0 {
		cfg.LastWords = 5 * time.Second
	}
	if cfg.Pause <= 0 {
		cfg.Pause = time.Second
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real(nil)
	}
	if cfg.NewID == nil {
		cfg.NewID = events.NewID
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Executor{cfg: cfg, blocked: make(map[string]block)}, nil
}

// Plan implements dispatch.Planner: an operation that may be attempted now gets
// a run in the lane of its provider account; everything else waits.
func (x *Executor) Plan(ctx context.Context, k dispatch.Key, min uint64) (dispatch.Plan, error) {
	s, err := x.cfg.States.State(ctx, k.Tenant, k.Operation, min)
	if err != nil {
		return dispatch.Plan{}, fmt.Errorf("executor: read %s: %w", k.Operation, err)
	}
	if s.Status == operation.StatusAbsent || s.Status.Final() {
		return dispatch.Plan{}, nil
	}
	a, c, err := x.cfg.Adapters.For(ctx, s.Intent)
	if errors.Is(err, providers.ErrNotMine) {
		return dispatch.Plan{Again: dispatch.Again{At: x.cfg.Now().Add(time.Minute)}}, nil
	}
	if err != nil {
		return dispatch.Plan{}, fmt.Errorf("executor: adapter of %s: %w", k.Operation, err)
	}
	f := flight{s: s, c: c, a: a}
	if f, err = x.enter(ctx, f, x.moment()); err != nil {
		return dispatch.Plan{}, err
	}
	step := f.step
	switch step.Do {
	case operation.DoAttempt:
	case operation.DoWait:
		return dispatch.Plan{Again: dispatch.Again{At: step.At, Min: s.Version}}, nil
	case operation.DoLook, operation.DoAppend:
		if step.Reason == operation.ReasonScopeOvertaken {
			_, err := x.cfg.Recorder.Append(ctx, s, x.cfg.Worker, step.Append...)
			return dispatch.Plan{}, err
		}
		// The reconciler's, which may not have been told of it.
		if x.cfg.Elsewhere != nil {
			x.cfg.Elsewhere(k, s.Version)
		}
		return dispatch.Plan{}, nil
	}
	lane := s.Intent.Provider + "/" + s.Intent.Account.Name
	if until, blocked := x.blockedUntil(lane); blocked {
		return dispatch.Plan{Again: dispatch.Again{At: until, Min: s.Version}}, nil
	}
	width, spacing := x.cfg.Width, time.Duration(0)
	if l, ok := a.(providers.Limited); ok {
		w, sp := l.Limit(s.Intent.Action)
		spacing = sp
		if w > 0 && w < width {
			width = w
		}
	}
	return dispatch.Plan{
		Lane: lane, Width: width, Spacing: spacing, Until: step.ValidUntil,
		Run: func(ctx context.Context) dispatch.Again {
			ctx, sent := providers.Counted(ctx)
			again := x.run(ctx, lane, f)
			again.More = max(sent()-1, 0)
			return again
		},
	}, nil
}

func (x *Executor) run(ctx context.Context, lane string, f flight) dispatch.Again {
	if until, blocked := x.blockedUntil(lane); blocked {
		return dispatch.Again{At: until}
	}
	again, err := x.attempt(ctx, f)
	if err == nil {
		x.mu.Lock()
		delete(x.blocked, lane)
		x.mu.Unlock()
		return dispatch.Again{At: again}
	}
	if errors.Is(err, events.ErrConflict) {
		// Somebody else moved it: decide anew, on no older state.
		if x.cfg.Observe.AppendConflict != nil {
			x.cfg.Observe.AppendConflict()
		}
		x.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "decision overtaken", f.attrs()...)
		return dispatch.Again{At: x.cfg.Now(), Min: f.s.Version + 1}
	}
	if be, ok := errors.AsType[*blockedError](err); ok {
		until := x.block(ctx, lane, f.s.Intent, be)
		return dispatch.Again{At: until}
	}
	x.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "attempt not made", f.attrs(slog.Any("err", err))...)
	return dispatch.Again{At: x.cfg.Now().Add(x.cfg.Pause)}
}

func (x *Executor) blockedUntil(lane string) (time.Time, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	until := x.blocked[lane].until
	return until, x.cfg.Now().Before(until)
}

// block keeps a whole lane from trying for a while, longer each time: what
// keeps one operation of an account from being sent keeps them all, and a wrong
// credential must not be tried over and over. It is said once per reason.
func (x *Executor) block(ctx context.Context, lane string, i events.IntentRecorded, e *blockedError) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.cfg.Now()
	b := x.blocked[lane]
	if now.Before(b.until) {
		return b.until // others of the lane failed at the same time
	}
	fresh := b.reason != e.reason
	if b.failures++; e.reason == BlockedAlarm {
		b.failures = 1 // to look again costs nothing, and a log that is being checked is soon done
	}
	b.reason = e.reason
	b.until = now.Add(min(x.cfg.Pause<<min(b.failures-1, 10), maxBlock))
	x.blocked[lane] = b
	if x.cfg.Observe.Blocked != nil {
		x.cfg.Observe.Blocked(i.Provider, e.reason)
	}
	level := slog.LevelDebug
	if fresh {
		level = slog.LevelWarn
	}
	x.cfg.Logger.LogAttrs(ctx, level, "attempts blocked", slog.String("provider", i.Provider),
		slog.String("account", i.Account.Name), slog.Any("err", e))
	return b.until
}

// attempt takes one operation from the decision to a recorded outcome, step by
// step. An error means that nothing was sent.
func (x *Executor) attempt(ctx context.Context, f flight) (time.Time, error) {
	f, ready, err := x.check(ctx, f)
	if err != nil || !ready {
		return time.Time{}, err
	}
	if dispatch.Stopping(ctx) {
		return x.cfg.Now(), nil
	}
	f, again, err := x.claim(ctx, f, x.moment())
	if err != nil || f.attempt == "" {
		return again, err
	}
	f.began, f.beganWall = x.cfg.Clock.Monotonic(), x.cfg.Clock.Wall()
	started, err := x.start(ctx, f)
	if errors.Is(err, events.ErrConflict) {
		x.release(ctx, f)
		return time.Time{}, err
	}
	if err != nil {
		x.takeBack(ctx, f)
		return time.Time{}, &blockedError{BlockedLog, err}
	}
	f = started
	if reason := x.take(ctx, f); reason != "" {
		x.record(ctx, f, operation.Outcome{Word: operation.OutcomeNotSent, Reason: reason})
		return time.Time{}, nil
	}
	f, err = x.stamped(ctx, f)
	reason := "the log's time stamp could not be read"
	if err == nil {
		reason = x.tooLate(ctx, f, x.spent(f)) // now, right before the first byte
	}
	if reason != "" {
		x.record(ctx, f, operation.Outcome{Word: operation.OutcomeNotSent, Reason: reason})
		return time.Time{}, nil
	}
	x.send(ctx, f)
	return time.Time{}, nil
}

// spent is how long the attempt has been under way. The monotonic clock stands
// still while the machine sleeps, the wall clock can be set back: the later one
// counts.
func (x *Executor) spent(f flight) time.Duration {
	return max(x.cfg.Clock.Monotonic()-f.began, x.cfg.Clock.Wall().Sub(f.beganWall))
}

// takeBack records an attempt whose start got no verdict as not sent, if it
// turns out to be stored.
func (x *Executor) takeBack(ctx context.Context, f flight) {
	late, stop := x.cfg.Clock.Outlive(ctx, x.cfg.LastWords)
	defer stop()
	truth, err := x.cfg.States.Truth(late, f.s.Tenant, f.s.OperationID)
	if err != nil {
		return // the lease will end
	}
	if _, stored := truth.AttemptByID(f.attempt); stored {
		f.s = truth
		x.record(ctx, f, operation.Outcome{Word: operation.OutcomeNotSent, Reason: "the log did not answer in time"})
	}
}

// send lets the adapter send, records the outcome, and waits for a late answer
// as long as the lease runs.
func (x *Executor) send(ctx context.Context, f flight) {
	// Whoever stops this process has waited for the drain time: then the
	// request is given up, and that it may have happened is recorded.
	hard, cancel := x.cfg.Clock.Timeout(ctx, x.lease(f.c)-(x.cfg.Clock.Monotonic()-f.began))
	defer cancel()
	f.req.AttemptID = f.attempt
	var o operation.Outcome // to be read once the work has ended
	ended := x.cfg.Clock.Beside(func() { o = do(hard, f.a, f.req) })
	soft, cancel := x.cfg.Clock.Timeout(context.WithoutCancel(ctx), f.c.Total)
	defer cancel()
	if ended(soft, 0) {
		x.record(ctx, f, o)
		return
	}
	f.s = x.record(ctx, f, operation.Outcome{
		Word: operation.OutcomeUncertain, Unknown: events.UnknownTimeout,
		Transport: events.Transport{Error: noAnswer(f.req.LastAlive(), x.cfg.Clock.Wall()), DurationMS: f.c.Total.Milliseconds()},
	})
	// An adapter that does not mind its context is waited for no longer: what
	// it does after the lease is nobody's any more.
	switch {
	case !ended(hard, x.cfg.LastWords):
		x.cfg.Logger.LogAttrs(ctx, slog.LevelError, "the adapter does not return after its context ended",
			slog.String("provider", f.s.Intent.Provider), slog.String("attempt_id", f.attempt))
	case o.Word != operation.OutcomeUncertain:
		x.record(ctx, f, o)
	}
}

// noAnswer says that no answer came, and how long before now the other end was
// last heard of, if it was: silence after signs of life is another failure than
// silence from the start. Neither says that nothing happened.
func noAnswer(alive, now time.Time) string {
	if alive.IsZero() {
		return "no answer in time"
	}
	return fmt.Sprintf("no answer in time; the last sign of life came %s before", now.Sub(alive).Round(time.Millisecond))
}

// do calls the adapter. An adapter that panics has proven nothing.
func do(ctx context.Context, a providers.Adapter, req *providers.Request) (o operation.Outcome) {
	defer func() {
		if r := recover(); r != nil {
			o = operation.Outcome{
				Word: operation.OutcomeUncertain, Unknown: events.UnknownAdapterError,
				Reason: fmt.Sprintf("the adapter panicked: %T", r),
			}
		}
	}()
	o = a.Do(ctx, req)
	if o.Word == operation.OutcomeUncertain && ctx.Err() != nil && o.Unknown == "" {
		o.Unknown = events.UnknownShutdown
	}
	return o
}

// record journals an outcome under its own context: the provider may have
// acted, so it is kept at as long as the process lives, and for LastWords after
// it was told to stop. What is still not recorded then is left to the lease.
func (x *Executor) record(ctx context.Context, f flight, o operation.Outcome) operation.State {
	if x.cfg.Observe.Outcome != nil {
		x.cfg.Observe.Outcome(f.s.Intent.Provider, f.s.Intent.Action, o.Word)
	}
	late, stop := x.cfg.Clock.Outlive(ctx, x.cfg.LastWords)
	defer stop()
	for n := 1; ; n++ {
		s, err := x.answer(late, f, o, x.moment())
		if err == nil {
			level := slog.LevelInfo
			if s.Status == operation.StatusConfirmed {
				level = slog.LevelDebug // as it should be: the log of events tells of it
			}
			x.cfg.Logger.LogAttrs(ctx, level, "outcome recorded",
				f.attrs(slog.String("outcome", string(o.Word)), slog.String("status", string(s.Status)))...)
			return s
		}
		if !errors.Is(err, events.ErrConflict) {
			x.cfg.Logger.LogAttrs(ctx, slog.LevelError, "outcome not recorded yet", f.attrs(slog.Any("err", err))...)
		}
		x.cfg.Clock.Sleep(late, min(time.Duration(n)*20*time.Millisecond, time.Second))
		if late.Err() != nil {
			x.cfg.Logger.LogAttrs(ctx, slog.LevelError, "outcome left to the lease", f.attrs(slog.String("outcome", string(o.Word)))...)
			return f.s
		}
		if truth, err := x.cfg.States.Truth(late, f.s.Tenant, f.s.OperationID); err == nil {
			f.s = truth
		}
	}
}

// release gives a claim back whose attempt is not in the log. That of an attempt
// that is settled holds nobody up and ends with its lease by itself.
func (x *Executor) release(ctx context.Context, f flight) {
	late, stop := x.cfg.Clock.Outlive(ctx, x.cfg.LastWords)
	defer stop()
	if err := x.cfg.Claims.Release(late, f.s.Tenant, f.s.OperationID, f.revision); err != nil {
		// The claim ends with its lease.
		x.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "claim not released", slog.Any("err", err))
	}
}
