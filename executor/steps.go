package executor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// The steps of an attempt. Each does one thing and returns; none reads a clock,
// draws a random number, waits or starts a goroutine: that is the runner's
// (executor.go), which puts them together with timers and a request under way.
// So the same steps run in a single thread under a simulated clock.

// moment are the outside values of a step.
type moment struct {
	// now is contract time, random from [0, 1).
	now    time.Time
	random float64
	// id is fresh; it names an attempt or a permit.
	id string
}

// moment takes the values of now.
func (x *Executor) moment() moment {
	return moment{now: x.cfg.Now(), random: x.cfg.Random(), id: x.cfg.NewID()}
}

func (x *Executor) params(c operation.Contract, m moment) operation.Params {
	return operation.Params{
		Now: m.now, Random: m.random, NewID: m.id, ClockError: x.cfg.ClockError, Lease: x.lease(c),
	}
}

func (x *Executor) lease(c operation.Contract) time.Duration { return c.Total + x.cfg.LeaseGrace }

// flight is one attempt from decision to outcome.
type flight struct {
	s    operation.State
	c    operation.Contract
	a    providers.Adapter
	step operation.Step
	// behind is the place in the conflict scope that the attempt is taken after,
	// newest when the newest wish was recorded that is confirmed in it.
	behind uint64
	newest time.Time
	// req and probed are there once the request was checked.
	req    *providers.Request
	probed string
	// attempt and revision are there once the claim is won.
	attempt  string
	revision uint64
	// began and beganWall are from before the append of AttemptStarted.
	began     time.Duration
	beganWall time.Time
	// stamp is the log's, of AttemptStarted.
	stamp time.Time
}

// attrs adds what a line of the log says of every attempt.
func (f flight) attrs(more ...slog.Attr) []slog.Attr {
	more = append(more, slog.String("tenant", f.s.Tenant), slog.String("operation_id", f.s.OperationID))
	if f.attempt != "" {
		more = append(more, slog.String("attempt_id", f.attempt))
	}
	return more
}

func (f flight) call() providers.Call {
	return providers.Call{
		Tenant: f.s.Tenant, Operation: f.s.OperationID, Intent: f.s.Intent,
		FirstSend: f.s.FirstSend, AttemptID: f.attempt,
		// A repeat asks anew whose account it is; a first send may use what
		// is known of the credential.
		Fresh: f.s.Started > 0,
	}
}

func (f flight) settled(attemptID string) bool {
	a, known := f.s.AttemptByID(attemptID)
	return known && a.State != operation.AttemptOpen
}

// check renders the request, probes the account and holds both against the
// intent and the first attempt. If they don't fit, a review is recorded instead,
// and the flight is not ready.
func (x *Executor) check(ctx context.Context, f flight) (_ flight, ready bool, err error) {
	f.req, err = f.a.Prepare(f.call())
	if err != nil {
		_, err = x.cfg.Recorder.Append(ctx, f.s, x.cfg.Worker, events.ReviewOpened{
			Reason: events.ReviewCannotRender, Text: err.Error(),
			Next: events.Next{Action: events.NextDecision},
		})
		return f, false, err
	}
	if f.probed, err = f.a.Probe(ctx, f.call()); err != nil {
		return f, false, &blockedError{BlockedProbe, err}
	}
	if instead := operation.Dispatch(f.s, f.probed, f.req.Digest); len(instead) > 0 {
		_, err = x.cfg.Recorder.Append(ctx, f.s, x.cfg.Worker, instead...)
		return f, false, err
	}
	if text := x.alarm(); text != "" {
		return f, false, &blockedError{BlockedAlarm, errors.New(text)}
	}
	// After the alarm: who does not see it any more knows what was lost.
	if x.cfg.LookFirst != nil {
		if since, doubt := x.cfg.LookFirst(f.s.RecordedAt); doubt {
			if instead := operation.LookFirst(f.s, since); len(instead) > 0 {
				_, err = x.cfg.Recorder.Append(ctx, f.s, x.cfg.Worker, instead...)
				return f, false, err
			}
		}
	}
	return f, true, nil
}

// claim decides once more, since the probe took its time: approval, deadline and
// permit are judged at the moment of dispatch; then it takes the claim. Without
// an attempt id in the flight that it returns there is nothing to start, and
// again says when to look once more.
func (x *Executor) claim(ctx context.Context, f flight, m moment) (_ flight, again time.Time, err error) {
	if f, err = x.enter(ctx, f, m); err != nil {
		return f, time.Time{}, &blockedError{BlockedLog, err}
	}
	if f.step.Do != operation.DoAttempt {
		return f, m.now, nil
	}
	revision, held, err := x.cfg.Claims.Take(ctx, Claim{
		Tenant: f.s.Tenant, Operation: f.s.OperationID, AttemptID: m.id, Worker: x.cfg.Worker,
		Until: m.now.Add(x.lease(f.c)), Settled: f.settled,
	})
	if err != nil {
		return f, time.Time{}, &blockedError{BlockedClaim, err}
	}
	if !held.IsZero() {
		if x.cfg.Observe.ClaimConflict != nil {
			x.cfg.Observe.ClaimConflict()
		}
		return f, held.Add(x.cfg.ClockError), nil
	}
	f.attempt, f.revision = m.id, revision
	return f, time.Time{}, nil
}

// start journals AttemptStarted. If nobody knows whether it is stored, nothing
// may be sent (I2).
func (x *Executor) start(ctx context.Context, f flight) (flight, error) {
	ctx, cancel := x.cfg.Clock.Timeout(ctx, x.lease(f.c))
	defer cancel()
	s, err := x.cfg.Recorder.Append(ctx, f.s, x.cfg.Worker, events.AttemptStarted{
		AttemptID: f.attempt, Number: f.s.Started + 1, Worker: x.cfg.Worker, ClaimRevision: f.revision,
		LeaseMS: x.lease(f.c).Milliseconds(), RequestDigest: f.req.Digest, AccountProbed: f.probed,
		PermitID: f.step.PermitID,
	})
	if err != nil {
		return f, err
	}
	f.s = s
	return f, nil
}

// stamped reads the log's stamp of AttemptStarted back, where something is judged
// by it.
func (x *Executor) stamped(ctx context.Context, f flight) (flight, error) {
	approved := f.s.Intent.Approval != nil && f.s.Intent.Approval.Required
	if !approved && f.step.ValidUntil.IsZero() {
		return f, nil
	}
	rec, err := x.cfg.Stamps.Read(ctx, f.s.LastSeq)
	f.stamp = rec.Stamp
	return f, err
}

// alarm is the integrity alarm that stands, or "" (I16).
func (x *Executor) alarm() string {
	if x.cfg.Alarm == nil {
		return ""
	}
	return x.cfg.Alarm()
}

// tooLate says why the request may not be sent any more, or "" if it may: the
// key's window and the approval are judged by the log's clock, the lease by how
// long this process has spent on it, the reading of the stamp included (I5, I7).
func (x *Executor) tooLate(ctx context.Context, f flight, spent time.Duration) string {
	switch {
	case !operation.KeyWindow(f.step.ValidUntil, f.stamp, x.lease(f.c)):
		return "the permit's window closed while the attempt was being recorded"
	case !operation.ApprovedAt(f.s, f.stamp):
		return "the approval ran out while the attempt was being recorded"
	case x.alarm() != "":
		return "an integrity alarm was raised while the attempt was being recorded"
	case ctx.Err() != nil:
		return "the worker is stopping"
	case x.lease(f.c)-spent < f.c.Total:
		return "the lease has less time left than the request may take"
	}
	return ""
}

// answer records what an outcome says on the state of the flight, once.
func (x *Executor) answer(ctx context.Context, f flight, o operation.Outcome, m moment) (operation.State, error) {
	payloads := operation.Answered(f.s, f.c, f.attempt, o, x.params(f.c, m))
	return x.cfg.Recorder.Append(ctx, f.s, x.cfg.Worker, payloads...)
}
