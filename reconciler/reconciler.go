// Package reconciler turns unknown into known, or into a question for a person.
//
// It works through operations that wait for no answer any more: a lease that
// ended becomes an unknown outcome, an unknown outcome is looked for as the
// contract's schedule says, and what the looks show goes to the pure core,
// which confirms, permits one more attempt, or opens a review. It never sends a
// request that changes anything.
//
// A crash loses nothing: what is due is a function of the log.
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
	State(ctx context.Context, tenant, operation string, min uint64) (operation.State, error)
	Truth(ctx context.Context, tenant, operation string) (operation.State, error)
}

// Adapters finds the adapter and the contract revision of an intent. The error
// wraps providers.ErrNotMine if this process can't serve it; others may.
type Adapters interface {
	For(ctx context.Context, intent events.IntentRecorded) (providers.Adapter, operation.Contract, error)
}

// Config is what a Reconciler needs.
type Config struct {
	Recorder Recorder
	States   States
	Adapters Adapters
	// Worker names this process.
	Worker string
	// Predecessors is the part of a worker name that all earlier runs of this
	// process share, followed by "#"; set it only where a lock makes sure that
	// those are dead. Their open attempts are recorded as unknown at once.
	Predecessors string
	// LeaseGrace and ClockError are as in package executor.
	LeaseGrace time.Duration
	ClockError time.Duration
	// LookTimeout bounds one lookup with all its pages. Zero means 30 s.
	LookTimeout time.Duration
	// Width is how many lookups of one provider account run at once, unless the
	// contract says less. Zero means 4.
	Width int
	// Now is the wall clock, Random draws from [0, 1).
	Now    func() time.Time
	Random func() float64
	// Clock bounds looks and their recording; nil means the machine's.
	Clock clock.Clock
	// NewID mints the ids of permits; nil means events.NewID.
	NewID func() string
	// Observe may be nil: told of every look and of every decision's reason.
	Observe Observer
	// Logger may be nil.
	Logger *slog.Logger
}

// Observer is told what the log does not show.
type Observer struct {
	// Looked: a lookup ended; result is a finding, or "failed".
	Looked func(provider, result string)
	// Lagged: our own operations prove that the lookup lagged for at least seen;
	// declared is what the contract says.
	Lagged func(provider, action string, seen, declared time.Duration)
	// Decided: the core decided to append, for this reason.
	Decided func(reason operation.Reason)
}

// Reconciler plans and runs looks and decisions. It is safe for concurrent use.
type Reconciler struct{ cfg Config }

// New returns a Reconciler.
func New(cfg Config) (*Reconciler, error) {
	if cfg.Recorder == nil || cfg.States == nil || cfg.Adapters == nil {
		return nil, errors.New("reconciler: recorder, states and adapters are required")
	}
	if cfg.Worker == "" || cfg.Now == nil || cfg.Random == nil {
		return nil, errors.New("reconciler: worker, clock and random source are required")
	}
	if cfg.LeaseGrace <= 0 {
		cfg.LeaseGrace = 10 * time.Second
	}
	if cfg.ClockError <= 0 {
		cfg.ClockError = 500 * time.Millisecond
	}
	if cfg.LookTimeout <= 0 {
		cfg.LookTimeout = 30 * time.Second
	}
	if cfg.Width <= 0 {
		cfg.Width = 4
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
	return &Reconciler{cfg: cfg}, nil
}

// recordTimeout bounds the recording of one look; after it the look is made anew.
const recordTimeout = time.Minute

// maxDecisions bounds how many decisions without a look follow each other for
// one operation before it is put back into the queue.
const maxDecisions = 8

// Plan implements dispatch.Planner: decisions are appended at once, a look gets
// a run in the lane of its provider account.
func (r *Reconciler) Plan(ctx context.Context, k dispatch.Key, min uint64) (dispatch.Plan, error) {
	s, err := r.cfg.States.State(ctx, k.Tenant, k.Operation, min)
	if err != nil {
		return dispatch.Plan{}, fmt.Errorf("reconciler: read %s: %w", k.Operation, err)
	}
	if s.Status == operation.StatusAbsent {
		return dispatch.Plan{}, nil
	}
	a, c, err := r.cfg.Adapters.For(ctx, s.Intent)
	if errors.Is(err, providers.ErrNotMine) {
		return r.notMine(ctx, s)
	}
	if err != nil {
		return dispatch.Plan{}, fmt.Errorf("reconciler: adapter of %s: %w", k.Operation, err)
	}
	for range maxDecisions {
		step := r.next(s, c)
		switch step.Do {
		case operation.DoAttempt:
			return dispatch.Plan{}, nil // the executor's
		case operation.DoWait:
			return dispatch.Plan{Again: dispatch.Again{At: step.At, Min: s.Version}}, nil
		case operation.DoLook:
			return r.lookPlan(s, c, a), nil
		case operation.DoAppend:
			s, err = r.cfg.Recorder.Append(ctx, s, r.cfg.Worker, step.Append...)
			if errors.Is(err, events.ErrConflict) {
				s, err = r.cfg.States.Truth(ctx, k.Tenant, k.Operation)
			} else if err == nil {
				r.decided(ctx, s, step)
			}
			if err != nil {
				return dispatch.Plan{}, err
			}
		}
	}
	return dispatch.Plan{Again: dispatch.Again{At: r.cfg.Now(), Min: s.Version}}, nil
}

// lookPlan has a look run in the lane of the provider account, inside the contract's
// limits. Where many wait, those come first whose time for a repeat ends first.
func (r *Reconciler) lookPlan(s operation.State, c operation.Contract, a providers.Adapter) dispatch.Plan {
	width, spacing := r.cfg.Width, time.Duration(0)
	if l, ok := a.(providers.Limited); ok {
		w, sp := l.Limit(s.Intent.Action)
		spacing = sp
		if w > 0 && w < width {
			width = w
		}
	}
	return dispatch.Plan{
		Lane: s.Intent.Provider + "/" + s.Intent.Account.Name, Width: width, Spacing: spacing, Until: operation.RetryUntil(s, c),
		Run: func(ctx context.Context) dispatch.Again {
			ctx, sent := providers.Counted(ctx)
			again := r.look(ctx, s, c, a)
			again.More = max(sent()-1, 0)
			return again
		},
	}
}

// notMine leaves an operation to others, but records what needs no contract: that
// a lease is over.
func (r *Reconciler) notMine(ctx context.Context, s operation.State) (dispatch.Plan, error) {
	later := dispatch.Plan{Again: dispatch.Again{At: r.cfg.Now().Add(time.Minute)}}
	var c operation.Contract
	step := r.next(s, c)
	if step.Reason != operation.ReasonLeaseOver {
		return later, nil
	}
	_, err := r.cfg.Recorder.Append(ctx, s, r.cfg.Worker, step.Append...)
	if errors.Is(err, events.ErrConflict) {
		return later, nil
	}
	return later, err
}

// next is the core's decision, except that the attempts of a predecessor that
// is known to be dead need not be waited for.
func (r *Reconciler) next(s operation.State, c operation.Contract) operation.Step {
	p := r.params(c)
	if a, open := s.Open(); open && r.orphaned(a.Worker) {
		return operation.LeaseOver(s, c, a, p)
	}
	return operation.Next(s, c, p)
}

func (r *Reconciler) orphaned(worker string) bool {
	return r.cfg.Predecessors != "" && worker != r.cfg.Worker &&
		strings.HasPrefix(worker, r.cfg.Predecessors+"#")
}

func (r *Reconciler) params(c operation.Contract) operation.Params {
	return operation.Params{
		Now: r.cfg.Now(), Random: r.cfg.Random(), NewID: r.cfg.NewID(),
		ClockError: r.cfg.ClockError, Lease: c.Total + r.cfg.LeaseGrace,
	}
}

func (r *Reconciler) decided(ctx context.Context, s operation.State, step operation.Step) {
	if r.cfg.Observe.Decided != nil {
		r.cfg.Observe.Decided(step.Reason)
	}
	level := slog.LevelInfo
	if s.Review != nil {
		level = slog.LevelWarn
	}
	r.cfg.Logger.LogAttrs(ctx, level, "decision recorded", slog.String("tenant", s.Tenant),
		slog.String("operation_id", s.OperationID), slog.String("reason", string(step.Reason)),
		slog.String("status", string(s.Status)))
}

// look asks the provider once and records what that shows. The look stays what
// it was when another event comes first: it is judged again on the new state.
func (r *Reconciler) look(ctx context.Context, s operation.State, c operation.Contract, a providers.Adapter) dispatch.Again {
	log := r.cfg.Logger.With(slog.String("tenant", s.Tenant), slog.String("operation_id", s.OperationID))
	call := providers.Call{Tenant: s.Tenant, Operation: s.OperationID, Intent: s.Intent, FirstSend: s.FirstSend, Fresh: true}
	lookCtx, cancel := r.cfg.Clock.Timeout(ctx, r.cfg.LookTimeout)
	l := a.Lookup(lookCtx, call)
	cancel()
	if ctx.Err() != nil {
		return dispatch.Again{At: r.cfg.Now()}
	}
	l.Source, l.AskedVersion = events.SourceLookup, s.Version
	ctx, cancel = r.cfg.Clock.Timeout(ctx, recordTimeout)
	defer cancel()
	for range maxDecisions {
		payloads := operation.Looked(s, c, l, r.params(c))
		if len(payloads) == 0 {
			break // nothing new
		}
		after, err := r.cfg.Recorder.Append(ctx, s, r.cfg.Worker, payloads...)
		if err == nil {
			r.looked(ctx, log, s, l, payloads)
			r.lagged(ctx, log, s, c, l)
			return dispatch.Again{At: r.cfg.Now(), Min: after.Version}
		}
		if !errors.Is(err, events.ErrConflict) {
			log.LogAttrs(ctx, slog.LevelWarn, "evidence not recorded", slog.Any("err", err))
			break
		}
		if after.Version > s.Version && len(l.Matches) == 0 {
			// The evidence is stored, the rest is a new decision. What was
			// found is judged again until it is confirmed.
			return dispatch.Again{At: r.cfg.Now(), Min: after.Version + 1}
		}
		if s, err = r.cfg.States.Truth(ctx, s.Tenant, s.OperationID); err != nil {
			break
		}
	}
	return dispatch.Again{At: r.cfg.Now().Add(time.Second)}
}

func (r *Reconciler) looked(ctx context.Context, log *slog.Logger, s operation.State, l operation.Look, payloads []events.Payload) {
	result := string(events.FindingInconclusive)
	for _, p := range payloads {
		if e, ok := p.(events.EvidenceRecorded); ok {
			result = string(e.Finding)
		}
	}
	if l.Failed {
		result = "failed"
	}
	if r.cfg.Observe.Looked != nil {
		r.cfg.Observe.Looked(s.Intent.Provider, result)
	}
	log.LogAttrs(ctx, slog.LevelInfo, "evidence recorded", slog.String("result", result))
}

// lagged tells what a look that found the object proves about the lookup's lag.
// A declared lag that is too short lets empty reads count too early.
func (r *Reconciler) lagged(ctx context.Context, log *slog.Logger, s operation.State, c operation.Contract, l operation.Look) {
	seen := operation.SeenLag(s, c, l)
	if seen <= 0 {
		return
	}
	if r.cfg.Observe.Lagged != nil {
		r.cfg.Observe.Lagged(s.Intent.Provider, s.Intent.Action, seen, c.Lookup.Lag)
	}
	if seen > c.Lookup.Lag {
		log.LogAttrs(ctx, slog.LevelWarn, "the lookup lags longer than the contract says",
			slog.String("provider", s.Intent.Provider), slog.String("action", s.Intent.Action),
			slog.Duration("seen", seen), slog.Duration("declared", c.Lookup.Lag))
	}
}
