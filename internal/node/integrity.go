package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/integrity"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/projections"
)

// Verified is what a verification of log and projection found.
type Verified struct {
	projections.VerifyReport
	// Damage is what the log shows when it is held against itself and against
	// the high-water mark; Damages counts all.
	Damage  []integrity.Finding
	Damages int
	// Mark is the high-water mark that was used, nil if there is none, or if it
	// is older than the last clearing.
	Mark *integrity.Mark
	// Log is the log up to UpTo.
	Log integrity.Mark
	// Checkpoints counts those that were compared.
	Checkpoints int
	// Alarm is the recorded alarm that stands, "" if none does.
	Alarm string
}

// OK reports whether nothing was found.
func (v Verified) OK() bool { return v.VerifyReport.OK() && v.Damages == 0 && v.Alarm == "" }

// alarms is what the log says of alarms.
type alarms struct {
	cleared integrity.Clearing
	// raised is the alarm that stands, since when the log may have lost
	// something, and when it was raised.
	raised string
	since  time.Time
	at     time.Time
}

// unknownSince is the earliest moment of all: nobody knows when the damage began.
func unknownSince() time.Time { return time.Unix(0, 0).UTC() }

func (l *Log) alarms(ctx context.Context) (alarms, error) {
	records, err := l.Journal.Alarms(ctx)
	if err != nil {
		return alarms{}, err
	}
	var a alarms
	for _, r := range records {
		s, err := events.DecodeSystem(r.Body)
		if err != nil {
			a.raised, a.since = fmt.Sprintf("message %d is a record of an alarm that can't be read", r.Seq), unknownSince()
			continue
		}
		if s.Kind == events.SystemAlarmCleared {
			c, err := integrity.ReadClearing(r)
			if err == nil {
				a = alarms{cleared: c}
				continue
			}
			a.raised, a.since = err.Error(), unknownSince()
			continue
		}
		since := unknownSince()
		if text, ok := s.Data["since"].(string); ok {
			if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
				since = t
			}
		}
		if a.raised == "" {
			a.raised, a.at = fmt.Sprint(s.Data["reason"]), r.Stamp
		}
		if a.since.IsZero() || since.Before(a.since) {
			a.since = since
		}
	}
	return a, nil
}

// audit begins an audit of the log against the mark of this configuration.
func (l *Log) audit(ctx context.Context, cleared integrity.Clearing) (*integrity.Audit, *integrity.Mark, error) {
	mark, err := integrity.Load(l.mark)
	if err != nil {
		return nil, nil, fmt.Errorf("node: %w", err)
	}
	if mark = telling(mark); mark != nil && cleared.Stamp.After(mark.Stamp) {
		mark = nil
	}
	info, err := l.Journal.Info(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("node: %w", err)
	}
	return integrity.NewAudit(integrity.AuditConfig{
		Subjects: l.subjects, Ledger: info.Ledger, Created: info.Created, Base: cleared.Accepted, Mark: mark,
	}), mark, nil
}

// Verify checks log and projection and changes nothing. progress may be nil.
func (l *Log) Verify(ctx context.Context, progress func(done, total uint64)) (Verified, error) {
	var v Verified
	a, err := l.alarms(ctx)
	if err != nil {
		return v, err
	}
	audit, mark, err := l.audit(ctx, a.cleared)
	if err != nil {
		return v, err
	}
	base := a.cleared.Accepted
	v.VerifyReport, err = l.Projector.Verify(ctx, projections.VerifyOptions{
		Each: audit.Add, First: base.First, Deleted: int(base.Deleted), Seq: base.Seq, Progress: progress,
	})
	if err != nil {
		return v, err
	}
	audit.End()
	v.Damage, v.Damages = audit.Findings()
	v.Mark, v.Log, v.Alarm = mark, audit.Mark(), a.raised
	v.Checkpoints, _ = audit.Checked()
	return v, nil
}

// ClearOptions says who accepts the log as it is, and why.
type ClearOptions struct {
	Actor, Reason string
	// LookFirst is for how long first requests are looked for before they are
	// sent: as long as somebody may hand in again what the log has lost.
	LookFirst time.Duration
	// Since is the last moment before the damage; zero means what the alarm, or
	// else this look at the log, says of it.
	Since time.Time
	// Progress may be nil.
	Progress func(done, total uint64)
}

// Cleared is what Clear did.
type Cleared struct {
	integrity.Clearing
	// Alarm is the recorded alarm that stood, "" if none did.
	Alarm string
	// Damage is what this look at the log found.
	Damage []integrity.Finding
}

// ErrReadAnew says that the server's own picture of its files is wrong: it counts
// messages that it can't read, and takes no events behind them. The embedded
// server reads its files anew at each start.
var ErrReadAnew = errors.New("node: the alarm stands: stop the server, delete index.db in the msgs folder of the journal's stream, start it, and clear again")

const (
	// maxClearTries bounds the appends to one operation that others write to.
	maxClearTries = 8
	// DefaultLookFirst is for how long repeats of lost operations are expected.
	DefaultLookFirst = 7 * 24 * time.Hour
)

// Clear ends an integrity alarm: it accepts the log as it is now. First every
// operation that is not final is put in doubt, since the log may have lost that
// it was sent; then the clearing is recorded, and with it what was accepted and
// for how long first requests are looked for before they are sent. A crash in
// between leaves the alarm standing, and the next Clear goes on.
//
// It may be called without an alarm, after an older backup was restored.
func (l *Log) Clear(ctx context.Context, o ClearOptions) (Cleared, error) {
	var out Cleared
	if o.Actor == "" || o.Reason == "" || o.LookFirst < 0 {
		return out, errors.New("node: clear: actor and reason are required")
	}
	a, err := l.alarms(ctx)
	if err != nil {
		return out, err
	}
	audit, _, err := l.audit(ctx, a.cleared)
	if err != nil {
		return out, err
	}
	began := time.Now()
	open, err := l.Projector.Unfinished(ctx, audit.Add)
	if err != nil {
		return out, err
	}
	audit.End()
	out.Damage, _ = audit.Findings()
	out.Alarm = a.raised
	since := o.Since.UTC()
	if since.IsZero() {
		since = sinceOf(a, out.Damage)
	}
	raised := a.at
	if raised.IsZero() {
		raised = began
	}
	w, err := writer.New(writer.Config{Journal: journal{l.Journal}, Ledger: l.Journal.Ledger(), Now: time.Now})
	if err != nil {
		return out, err
	}
	var refused error
	for _, op := range open {
		did, err := l.putInDoubt(ctx, w, op, since, raised, o.Actor)
		if err != nil && ctx.Err() != nil {
			return out, ctx.Err()
		}
		if err != nil {
			refused = fmt.Errorf("node: clear: %s of %s takes no event: %w", op.OperationID, op.Tenant, err)
		}
		if did {
			out.InDoubt++
		}
	}
	if refused != nil {
		return out, fmt.Errorf("%w; %w", ErrReadAnew, refused)
	}
	// What is accepted includes what was just written.
	end, _, err := l.audit(ctx, integrity.Clearing{Stamp: time.Now().AddDate(1000, 0, 0)})
	if err != nil {
		return out, err
	}
	info, err := l.Journal.Info(ctx)
	if err == nil && info.Last > 0 {
		err = l.Journal.Walk(ctx, 1, info.Last, func(r events.Record) error {
			end.Add(r)
			if o.Progress != nil && r.Seq%1024 == 0 {
				o.Progress(r.Seq, info.Last)
			}
			return nil
		})
	}
	if err != nil {
		return out, fmt.Errorf("node: clear: %w", err)
	}
	out.Reason, out.Accepted, out.Since, out.Until = o.Reason, end.Base(), since, time.Now().Add(o.LookFirst).UTC()
	for _, f := range out.Damage {
		out.Lost = append(out.Lost, f.String())
	}
	data, err := out.Data()
	if err != nil {
		return out, err
	}
	out.ID, out.Actor = events.NewID(), o.Actor
	out.Seq, err = l.Journal.AppendSystem(ctx, events.System{
		ID: out.ID, Kind: events.SystemAlarmCleared, Time: time.Now(), Actor: o.Actor, Data: data,
	})
	if err != nil {
		return out, fmt.Errorf("node: clear: %w", err)
	}
	// Entries may know more than the log has left.
	if _, err := l.Projector.Rebuild(ctx, o.Progress); err != nil {
		return out, fmt.Errorf("node: the alarm is cleared, but the projection was not made anew; run opledger rebuild: %w", err)
	}
	if l.server == nil {
		return out, nil // the processes that run write their own marks
	}
	return out, l.markAnew(ctx, end)
}

// markAnew begins the high-water mark of a ledger that does not run at the end of
// the log.
func (l *Log) markAnew(ctx context.Context, audit *integrity.Audit) error {
	info, err := l.Journal.Info(ctx)
	if err == nil {
		err = l.Journal.Walk(ctx, audit.Seq()+1, info.Last, func(r events.Record) error { audit.Add(r); return nil })
	}
	if err == nil {
		err = integrity.Save(l.mark, audit.Mark(), true)
	}
	if err != nil {
		return fmt.Errorf("node: the alarm is cleared, but the high-water mark was not written: %w", err)
	}
	return nil
}

// sinceOf is the last moment before the damage. What was recorded with the alarm
// counts, since it was judged before the log went on; without an alarm it is what
// this look found.
func sinceOf(a alarms, found []integrity.Finding) time.Time {
	if a.raised != "" {
		return a.since
	}
	var since time.Time
	for i, f := range found {
		if i == 0 || f.Since.Before(since) {
			since = f.Since
		}
	}
	if since.IsZero() {
		return unknownSince()
	}
	return since.UTC()
}

// putInDoubt records that the log may have lost what happened to an operation.
func (l *Log) putInDoubt(ctx context.Context, w *writer.Writer, op projections.Unfinished, since, raised time.Time, actor string) (bool, error) {
	var err error
	for range maxClearTries {
		var records []events.Record
		if records, err = l.Journal.Load(ctx, op.Tenant, op.OperationID); err != nil {
			return false, err
		}
		s := operation.Fold(records)
		if s.Version == 0 {
			return false, nil // nothing of it can be read
		}
		doubt := operation.Damaged(s, since, raised)
		if len(doubt) == 0 {
			return false, nil
		}
		if _, err = w.Append(ctx, s, actor, doubt...); !errors.Is(err, events.ErrConflict) {
			return err == nil, err
		}
	}
	return false, err
}
