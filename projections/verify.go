package projections

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

const (
	// MaxProblems is how many problems a VerifyReport lists. All are counted.
	MaxProblems = 1000
	// maxSuspects bounds the operations that are looked at once more.
	maxSuspects = 10_000
)

// ProblemKind says what Verify found. Beside these, every AnomalyReason of the
// fold is one (version_gap, chain_broken, malformed …).
type ProblemKind string

// The kinds of problem that are no anomaly of the fold.
const (
	// LogFirstSequence: the log does not begin with sequence number 1.
	LogFirstSequence ProblemKind = "log_first_sequence"
	// LogDeleted: sequence numbers are missing in the log.
	LogDeleted ProblemKind = "log_deleted"
	// CheckpointMissing: the bucket was never completed, or was lost.
	CheckpointMissing ProblemKind = "checkpoint_missing"
	// EntryMissing: an operation has no entry.
	EntryMissing ProblemKind = "entry_missing"
	// EntryUnstorable: an operation can't have an entry; it is too large.
	EntryUnstorable ProblemKind = "entry_unstorable"
	// EntryUnreadable: the entry is not what this or another version writes.
	EntryUnreadable ProblemKind = "entry_unreadable"
	// EntryFoldVersion: another version of the fold made the entry.
	EntryFoldVersion ProblemKind = "entry_fold_version"
	// EntryStale: the entry misses events from before the checkpoint.
	EntryStale ProblemKind = "entry_stale"
	// EntryDiffers: the entry is not the fold of the log up to its sequence.
	EntryDiffers ProblemKind = "entry_differs"
	// EntryWithoutLog: the log has no such operation.
	EntryWithoutLog ProblemKind = "entry_without_log"
	// OperationUnreadable: the operation could not be read from the log.
	OperationUnreadable ProblemKind = "operation_unreadable"
)

// Problem is one thing that is not as it must be.
type Problem struct {
	Tenant, OperationID string
	Kind                ProblemKind
	Detail              string
	// Seq is the sequence number in the log, 0 where there is none.
	Seq uint64
}

// VerifyReport says what was compared and what was found.
type VerifyReport struct {
	// UpTo is the last sequence number that was read.
	UpTo       uint64
	Events     uint64
	Operations int
	Entries    int
	// Problems lists the first MaxProblems, Total counts all.
	Problems []Problem
	Total    int
	// Accepted counts what is damaged and was accepted; see VerifyOptions.
	Accepted int
	Duration time.Duration
}

// VerifyOptions says what Verify holds the log against. The zero value: nothing
// may be missing.
type VerifyOptions struct {
	// Each, if not nil, is told of every message of the log, in order:
	// Subject, Seq, Stamp and Body.
	Each func(events.Record)
	// First, Deleted and Seq are what was accepted when an integrity alarm was
	// cleared: the first sequence number (zero: 1), how many are missing, and up
	// to which message broken chains are no news.
	First   uint64
	Deleted int
	Seq     uint64
	// Progress may be nil.
	Progress func(done, total uint64)
}

// OK reports whether nothing was found.
func (r VerifyReport) OK() bool { return r.Total == 0 }

// verifying is a run of Verify.
type verifying struct {
	p          *Projector
	o          VerifyOptions
	checkpoint uint64
	mu         sync.Mutex
	report     VerifyReport
	listed     map[Problem]bool
	suspects   map[string]bool
	operations map[*shard]int
}

// Verify reads the whole log and the whole bucket and changes nothing: each
// entry must be, byte for byte, the encoding of the fold of the log up to the
// entry's own sequence number (I9); hashes must chain and versions have no gap
// (I13); nothing may be missing in the log. It may run while the ledger works:
// what merely lags is no problem.
func (p *Projector) Verify(ctx context.Context, o VerifyOptions) (VerifyReport, error) {
	began := time.Now()
	v := &verifying{p: p, o: o, listed: map[Problem]bool{}, suspects: map[string]bool{}, operations: map[*shard]int{}}
	_, first, last, deleted, err := p.Log.Extent(ctx)
	if err != nil {
		return v.report, fmt.Errorf("projections: verify: %w", err)
	}
	v.report.UpTo = last
	if want := max(o.First, 1); last > 0 && first != want {
		v.found(Problem{Kind: LogFirstSequence, Seq: first, Detail: fmt.Sprintf("the log must begin with %d", want)})
	}
	if deleted != o.Deleted {
		v.found(Problem{Kind: LogDeleted, Detail: fmt.Sprintf("%d sequence numbers are missing, %d were accepted", deleted, o.Deleted)})
	}
	if err := v.readCheckpoint(ctx); err != nil {
		return v.report, fmt.Errorf("projections: verify: %w", err)
	}
	f := newFolder(p.part, last, p.maxHeld)
	f.progress, f.each, f.record, f.done = o.Progress, o.Each, v.record, v.done
	if v.report.Entries, err = f.note(ctx, p.b); err != nil && !bucketMissing(ctx, p.b) {
		return v.report, fmt.Errorf("projections: verify: %w", err)
	}
	if err := f.run(ctx); err != nil {
		return v.report, fmt.Errorf("projections: verify: %w", err)
	}
	if err := v.recheck(ctx, f); err != nil {
		return v.report, fmt.Errorf("projections: verify: %w", err)
	}
	v.report.Events, v.report.Duration = f.events, time.Since(began)
	for _, n := range v.operations {
		v.report.Operations += n
	}
	return v.report, nil
}

func bucketMissing(ctx context.Context, b *bucket) bool {
	_, err := b.info(ctx)
	return errors.Is(err, errGone)
}

// readCheckpoint finds out what the entries must hold. Without a checkpoint
// that is everything.
func (v *verifying) readCheckpoint(ctx context.Context) error {
	last, err := v.p.b.last(ctx, checkpointKey)
	if err != nil && !errors.Is(err, errGone) {
		return err
	}
	var cp checkpoint
	if err != nil || last.rev == 0 || last.deleted || json.Unmarshal(last.data, &cp) != nil {
		v.found(Problem{Kind: CheckpointMissing, Detail: "rebuild the projection"})
		v.checkpoint = math.MaxUint64
		return nil
	}
	v.checkpoint = cp.Seq
	return nil
}

func (v *verifying) found(p Problem) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.listed[p] {
		return // seen in an earlier pass
	}
	v.report.Total++
	if len(v.report.Problems) < MaxProblems {
		v.listed[p] = true
		v.report.Problems = append(v.report.Problems, p)
	}
}

// record looks at one event and, where the entry ends with it, at the entry.
func (v *verifying) record(sh *shard, g *folding, r events.Record, a operation.Anomaly) error {
	if a.Reason != operation.AnomalyNone && r.Seq <= v.o.Seq && missing(a.Reason) {
		v.mu.Lock()
		v.report.Accepted++
		v.mu.Unlock()
	} else if a.Reason != operation.AnomalyNone {
		v.found(Problem{
			Tenant: g.tenant, OperationID: g.operationID, Kind: ProblemKind(a.Reason), Seq: r.Seq,
			Detail: "the event contradicts the ones before it",
		})
	}
	if n := sh.entries[g.hash]; n != nil && n.lastSeq == r.Seq {
		data, err := encodeState(g.state)
		n.matched = err == nil && sum16(data) == n.sum
	}
	return nil
}

// missing reports whether an anomaly says that something is missing before an
// event.
func missing(r operation.AnomalyReason) bool {
	return r == operation.AnomalyVersion || r == operation.AnomalyChain || r == operation.AnomalyNoIntent
}

// done marks operations that must be looked at once more, by themselves.
func (v *verifying) done(_ context.Context, sh *shard, g *folding) error {
	n := sh.entries[g.hash]
	v.mu.Lock()
	defer v.mu.Unlock()
	v.operations[sh]++
	if n != nil {
		n.seen = true
	}
	matched := n != nil && n.matched
	switch {
	case matched && n.lastSeq >= g.state.LastSeq:
	case len(v.suspects) < maxSuspects:
		v.suspects[g.key] = true
	case !matched && !v.suspects[g.key]:
		v.report.Total++ // too many to look at each
	}
	return nil
}

// recheck judges the suspects exactly: the entry is read first, then the log.
func (v *verifying) recheck(ctx context.Context, f *folder) error {
	for key := range v.suspects {
		tenant, operationID, _ := splitKey(key)
		if err := v.judge(ctx, key, tenant, operationID); err != nil {
			return err
		}
	}
	return f.eachUnseen(ctx, v.p.b, func(key, tenant, operationID string, _ value) error {
		return v.judge(ctx, key, tenant, operationID)
	})
}

func (v *verifying) judge(ctx context.Context, key, tenant, operationID string) error {
	found := func(kind ProblemKind, seq uint64, detail string) error {
		v.found(Problem{Tenant: tenant, OperationID: operationID, Kind: kind, Seq: seq, Detail: detail})
		return nil
	}
	e, err := v.p.b.last(ctx, key)
	if err != nil && !errors.Is(err, errGone) {
		return err
	}
	records, err := v.p.Log.Load(ctx, tenant, operationID)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return found(OperationUnreadable, 0, err.Error())
	}
	if e.rev == 0 || e.deleted {
		return v.judgeMissing(records, found)
	}
	if len(records) == 0 {
		return found(EntryWithoutLog, 0, "rebuild removes it")
	}
	state, err := decodeState(e.data)
	switch {
	case errors.Is(err, errFold):
		return found(EntryFoldVersion, 0, fmt.Sprintf("made by fold %d, this is %d", foldOf(e), operation.FoldVersion))
	case err != nil:
		return found(EntryUnreadable, 0, err.Error())
	}
	var want operation.State
	missed := uint64(0)
	for _, r := range records {
		if r.Seq <= state.LastSeq {
			want, _ = operation.Evolve(want, r)
		} else if r.Seq <= v.checkpoint && missed == 0 {
			missed = r.Seq
		}
	}
	data, err := encodeState(want)
	if err != nil || !bytes.Equal(data, e.data) {
		return found(EntryDiffers, state.LastSeq, fmt.Sprintf("entry of version %d, rebuild mends it", state.Version))
	}
	if missed != 0 && v.checkpoint != math.MaxUint64 {
		return found(EntryStale, missed, fmt.Sprintf("entry of version %d", state.Version))
	}
	return nil
}

func (v *verifying) judgeMissing(records []events.Record, found func(ProblemKind, uint64, string) error) error {
	if len(records) == 0 || records[0].Seq > v.checkpoint {
		return nil // nothing to hold yet
	}
	data, err := encodeState(operation.Fold(records))
	if err != nil || int64(len(data)) > v.p.Conn.MaxPayload()-headerRoom {
		return found(EntryUnstorable, 0, "always folded from the log")
	}
	return found(EntryMissing, records[0].Seq, "rebuild mends it")
}
