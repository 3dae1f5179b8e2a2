package projections

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// RebuildReport says what a rebuild did.
type RebuildReport struct {
	// Marker is the sequence number up to which the log was folded.
	Marker uint64
	// Events and Operations were folded. Passes over the log; more than one
	// where very many operations are open at once. An operation that went on
	// after it had been closed may be counted twice in a rebuild that large.
	Events     uint64
	Operations int
	Passes     int
	// Written entries were missing or different, Equal ones were right, Newer
	// ones fold further than the marker, Removed ones had no operation.
	Written, Equal, Newer, Removed int
	// Unstorable operations have no entry because they are too large; they are
	// always folded from the log. Left ones could not be read.
	Unstorable, Left int
	Duration         time.Duration
}

// Rebuild makes the entries of all operations anew while everything else goes
// on. It appends a marker to the log, folds everything up to it and writes
// every entry that is not newer and not equal, under compare-and-swap. Entries
// of operations that the log does not have are removed. progress, which may be
// nil, is told sequence numbers. A crash leaves some entries old and some new;
// each is right for the log up to its own sequence number.
func (p *Projector) Rebuild(ctx context.Context, progress func(done, total uint64)) (RebuildReport, error) {
	if err := p.Streams.EnsureBucket(ctx, p.b.name); err != nil {
		return RebuildReport{}, fmt.Errorf("projections: rebuild: %w", err)
	}
	marker, err := p.Log.AppendSystem(ctx, events.System{
		ID: events.NewID(), Kind: events.SystemRebuildMarker, Time: time.Now(), Actor: "projector",
		Data: map[string]any{"fold_version": operation.FoldVersion},
	})
	if err != nil {
		return RebuildReport{}, fmt.Errorf("projections: rebuild: %w", err)
	}
	return p.rebuild(ctx, marker, progress)
}

// rebuild folds everything up to a sequence number.
func (p *Projector) rebuild(ctx context.Context, upTo uint64, progress func(done, total uint64)) (RebuildReport, error) {
	p.rebuilding.Lock()
	defer p.rebuilding.Unlock()
	began := time.Now()
	f := newFolder(p.part, upTo, p.maxHeld)
	f.progress, f.done = progress, p.compare
	if _, err := f.note(ctx, p.b); err != nil {
		return RebuildReport{}, fmt.Errorf("projections: rebuild: %w", err)
	}
	var telling sync.Mutex
	for _, sh := range f.shards {
		sh.w = &writer{b: p.b, limit: max(1, maxPendingWrites/(2*len(f.shards))), done: func(s *slot) {
			sh.count.add(s.result)
			if s.result == written {
				telling.Lock()
				p.applied(s.state)
				telling.Unlock()
			}
		}}
	}
	if err := f.run(ctx); err != nil {
		return RebuildReport{}, fmt.Errorf("projections: rebuild: %w", err)
	}
	removed, err := p.removeUnseen(ctx, f)
	if err != nil {
		return RebuildReport{}, fmt.Errorf("projections: rebuild: %w", err)
	}
	report := RebuildReport{Marker: upTo, Events: f.events, Passes: f.passes, Removed: removed, Duration: time.Since(began)}
	for _, sh := range f.shards {
		report.Operations += sh.count.operations
		report.Written += sh.count.written
		report.Equal += sh.count.equal
		report.Newer += sh.count.newer
		report.Unstorable += sh.count.unstorable
		report.Left += sh.count.left
	}
	return report, nil
}

func (c *counts) add(r result) {
	c.operations++
	switch r {
	case written:
		c.written++
	case equal:
		c.equal++
	case newer:
		c.newer++
	case unstorable:
		c.unstorable++
	case left:
		c.left++
	}
}

// compare compares a folded operation with its entry and sends it on its way
// where they differ.
func (p *Projector) compare(ctx context.Context, sh *shard, g *folding) error {
	s := &slot{key: g.key, tenant: g.tenant, operationID: g.operationID, state: g.state}
	if n := sh.entries[g.hash]; n != nil {
		n.seen = true
		s.rev = n.rev
		if n.lastSeq > g.state.LastSeq {
			return p.compareNewer(ctx, sh, s, n)
		}
		data, err := encodeState(g.state)
		if err == nil && sum16(data) == n.sum {
			sh.count.add(equal)
			return nil
		}
	}
	return sh.w.write(ctx, s)
}

// compareNewer judges an entry that folds further than the marker: right for an
// operation that went on, wrong if it was made from another log.
func (p *Projector) compareNewer(ctx context.Context, sh *shard, s *slot, n *entryNote) error {
	if ok, err := sh.w.fold(ctx, s); !ok {
		return err
	}
	if s.state.LastSeq >= n.lastSeq {
		sh.count.add(newer)
		return nil
	}
	s.replace = true
	return sh.w.write(ctx, s)
}

// removeUnseen removes the entries of operations that the log does not have.
func (p *Projector) removeUnseen(ctx context.Context, f *folder) (removed int, err error) {
	err = f.eachUnseen(ctx, p.b, func(key, tenant, operationID string, v value) error {
		state, err := p.truth(ctx, tenant, operationID)
		if err != nil || state.LastSeq > 0 { // stored after the marker
			return err
		}
		err = p.b.remove(ctx, key, v.rev, 0)
		if err == nil {
			removed++
		}
		if errors.Is(err, errRevision) {
			return nil
		}
		return err
	})
	return removed, err
}

// eachUnseen passes the entries that belong to no operation of the log.
func (f *folder) eachUnseen(ctx context.Context, b *bucket, fn func(key, tenant, operationID string, v value) error) error {
	unseen := 0
	for _, sh := range f.shards {
		for _, n := range sh.entries {
			if !n.seen {
				unseen++
			}
		}
	}
	if unseen == 0 {
		return nil
	}
	return b.each(ctx, ">", func(key string, v value) error {
		h := f.hash(key)
		n := f.shard(h).entries[h]
		if n == nil || n.seen {
			return nil
		}
		tenant, operationID, ok := splitKey(key)
		if !ok || checkIDs(tenant, operationID) != nil {
			return nil // not ours
		}
		return fn(key, tenant, operationID, v)
	})
}
