package projections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

const (
	// maxBatch is how many messages are folded before their entries are
	// written, at most.
	maxBatch = 512
	// checkpointEvery is after how many messages a checkpoint is written even
	// while there is work; otherwise one is written every watchEvery.
	checkpointEvery = 10_000
	// watchEvery is how often the bucket is looked at.
	watchEvery = time.Second
	// stopWithin bounds the work after the end of Run's context.
	stopWithin = 5 * time.Second
)

// errLost: the bucket lost entries or is another one; it must be made anew.
var errLost = errors.New("projections: the bucket of operations was lost")

// Projector keeps the entries of all operations up to date.
type Projector struct {
	part
	b *bucket
	// cells is b; a Stepper has others.
	cells   cells
	applied func(operation.State)

	cache *cache
	// mark is up to where everything is applied, saved the last checkpoint.
	mark, saved checkpoint
	seq         atomic.Uint64
	// created and lastRev tell whether the bucket is still the same.
	created time.Time
	lastRev uint64

	rebuilding sync.Mutex
	// maxHeld is a field for tests.
	maxHeld int
}

// NewProjector returns a projector. applied, if not nil, is told every state
// after its entry was written; it must not block. The same state may come twice
// and, while a rebuild runs, an older one after a newer one. Index.Apply is
// made for it.
func NewProjector(cfg Config, applied func(operation.State)) (*Projector, error) {
	p, err := cfg.open()
	if err != nil {
		return nil, err
	}
	if applied == nil {
		applied = func(operation.State) {}
	}
	b := p.bucket("OPERATIONS")
	return &Projector{part: p, b: b, cells: b, applied: applied, cache: newCache(), maxHeld: maxHeldStates}, nil
}

// checkpoint says up to which message everything is applied.
type checkpoint struct {
	FoldVersion int `json:"fold_version"`
	// Created is when the journal was created: sequence numbers of another one
	// mean nothing.
	Created time.Time `json:"created"`
	Seq     uint64    `json:"seq"`
	// EventID and Digest are those of the message with that number: after a
	// loss of the log's tail the number may be given to another message.
	EventID string `json:"event_id,omitempty"`
	Digest  string `json:"digest,omitempty"`
	// Clean: the projector was stopped in order. On one node entries are
	// written without waiting for the disk, so after any other end the bucket
	// is made anew.
	Clean bool `json:"clean"`
}

// Run projects until ctx ends; then it returns nil. It begins behind the
// checkpoint if that fits to the log, and makes the whole bucket anew
// otherwise. Server restarts and the loss of the bucket are mended by
// themselves. A crash leaves the entries at most a little old; the next Run
// goes on. Several projectors at the same time are harmless.
func (p *Projector) Run(ctx context.Context) error {
	wait := firstPause
	for ctx.Err() == nil {
		before := p.seq.Load()
		err := p.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if p.seq.Load() != before {
			wait = firstPause
		}
		p.log.LogAttrs(ctx, slog.LevelWarn, "projector begins anew", slog.Any("err", err))
		_ = pause(ctx, wait)
		wait = min(2*wait, maxPause)
	}
	return nil
}

// Applied returns the sequence number up to which everything is applied.
func (p *Projector) Applied() uint64 { return p.seq.Load() }

// Lag returns how many messages of the log are not applied yet.
func (p *Projector) Lag(ctx context.Context) (uint64, error) {
	_, _, last, _, err := p.Log.Extent(ctx)
	if err != nil {
		return 0, err
	}
	return last - min(last, p.seq.Load()), nil
}

func (p *Projector) session(ctx context.Context) error {
	p.cache = newCache()
	if err := p.resume(ctx); err != nil {
		return err
	}
	walking, cancel := context.WithCancel(ctx)
	records := make(chan events.Record, maxBatch)
	ended := make(chan error, 1)
	go func() {
		ended <- p.Log.Walk(walking, p.mark.Seq+1, 0, func(r events.Record) error {
			select {
			case records <- r:
				return nil
			case <-walking.Done():
				return walking.Err()
			}
		})
		close(ended)
	}()
	defer func() {
		cancel()
		for range ended { // its last word
		}
	}()
	err := p.follow(ctx, records, ended)
	if ctx.Err() != nil && !errors.Is(err, errLost) {
		return p.stop(ctx)
	}
	return err
}

// follow applies what comes until ctx ends or something fails.
func (p *Projector) follow(ctx context.Context, records <-chan events.Record, ended <-chan error) error {
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-watch.C:
			if err := p.watch(ctx); err != nil {
				return err
			}
		case r := <-records:
			if err := p.apply(ctx, gather(r, records)); err != nil {
				return err
			}
			if p.mark.Seq-p.saved.Seq >= checkpointEvery {
				if err := p.save(ctx, false); err != nil {
					return err
				}
			}
		}
	}
}

// gather takes what is there without waiting.
func gather(first events.Record, records <-chan events.Record) []events.Record {
	batch := []events.Record{first}
	for len(batch) < maxBatch {
		select {
		case r := <-records:
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

// resume finds out where to go on.
func (p *Projector) resume(ctx context.Context) error {
	if err := p.Streams.EnsureBucket(ctx, p.b.name); err != nil {
		return fmt.Errorf("projections: bucket %s: %w", p.b.name, err)
	}
	info, err := p.b.info(ctx)
	if err != nil {
		return err
	}
	p.created, p.lastRev = info.Created, info.State.LastSeq
	created, _, last, _, err := p.Log.Extent(ctx)
	if err != nil {
		return err
	}
	v, err := p.b.last(ctx, checkpointKey)
	if err != nil {
		return err
	}
	var cp checkpoint
	ok := v.rev != 0 && !v.deleted && json.Unmarshal(v.data, &cp) == nil && cp.FoldVersion == operation.FoldVersion &&
		cp.Created.Equal(created) && cp.Seq <= last && (cp.Clean || info.Config.PersistMode != jetstream.AsyncPersistMode)
	if ok && cp.Seq > 0 {
		if ok, err = p.fits(ctx, cp); err != nil {
			return err
		}
	}
	if !ok {
		p.log.LogAttrs(ctx, slog.LevelInfo, "making the projection anew", slog.Uint64("seq", last))
		if cp, err = p.remake(ctx, created, last); err != nil {
			return err
		}
	}
	p.mark = cp
	if err := p.save(ctx, false); err != nil {
		return err
	}
	p.seq.Store(cp.Seq)
	return nil
}

// fits reports whether the log still has the message of the checkpoint.
func (p *Projector) fits(ctx context.Context, cp checkpoint) (bool, error) {
	r, err := p.Log.Read(ctx, cp.Seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return r.ID == cp.EventID && events.Digest(r.Body) == cp.Digest, nil
}

// remake makes the whole bucket anew up to seq.
func (p *Projector) remake(ctx context.Context, created time.Time, seq uint64) (checkpoint, error) {
	cp := checkpoint{FoldVersion: operation.FoldVersion, Created: created}
	if _, err := p.rebuild(ctx, seq, nil); err != nil {
		return cp, err
	}
	if seq == 0 {
		return cp, nil
	}
	r, err := p.Log.Read(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return cp, nil // a damaged log; the next start does it again
	}
	if err != nil {
		return cp, err
	}
	cp.Seq, cp.EventID, cp.Digest = seq, r.ID, events.Digest(r.Body)
	return cp, nil
}

// watch looks whether the bucket is still there, and writes a checkpoint.
func (p *Projector) watch(ctx context.Context) error {
	if err := p.same(ctx); err != nil {
		return err
	}
	if p.mark.Seq == p.saved.Seq {
		return nil
	}
	return p.save(ctx, false)
}

// same reports errLost if the bucket is gone, or not the one that was written to.
func (p *Projector) same(ctx context.Context) error {
	info, err := p.b.info(ctx)
	switch {
	case errors.Is(err, errGone):
		return errLost
	case err != nil:
		return err
	case !info.Created.Equal(p.created), info.State.LastSeq < p.lastRev:
		return errLost
	}
	return nil
}

// save writes the checkpoint.
func (p *Projector) save(ctx context.Context, clean bool) error {
	cp := p.mark
	cp.Clean = clean
	data, err := json.Marshal(cp)
	if err != nil {
		return fmt.Errorf("projections: checkpoint: %w", err)
	}
	m := nats.NewMsg(p.b.subject(checkpointKey))
	m.Data = data
	rev, err := p.b.put(ctx, m)
	if err != nil {
		return err
	}
	p.saved, p.lastRev = cp, max(p.lastRev, rev)
	return nil
}

// stop leaves a checkpoint that says that nothing is on its way.
func (p *Projector) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := p.same(ctx); err != nil {
		return err // the checkpoint would vouch for another bucket
	}
	return p.save(ctx, true)
}

// apply folds a batch and writes the entries that it changed.
func (p *Projector) apply(ctx context.Context, batch []events.Record) error {
	slots := map[string]*slot{}
	var order []*slot
	for _, r := range batch {
		tenant, operationID, err := p.Subjects.ParseOperation(r.Subject)
		if err != nil {
			continue // belongs to no operation
		}
		key := entryKey(tenant, operationID)
		d := decodeRecord(r, tenant, operationID)
		s := slots[key]
		if s == nil {
			if s, err = p.load(ctx, key, d, tenant, operationID); err != nil {
				return err
			}
			slots[key] = s
		}
		if changed := fold(s, d); changed && (len(order) == 0 || order[len(order)-1] != s) {
			order = append(order, s)
		}
	}
	if err := p.flush(ctx, order); err != nil {
		return err
	}
	last := batch[len(batch)-1]
	p.mark.Seq, p.mark.EventID, p.mark.Digest = last.Seq, idOf(p.Subjects, last), events.Digest(last.Body)
	p.seq.Store(last.Seq)
	return nil
}

// idOf returns the id of a message as Log.Read tells it.
func idOf(subjects events.Subjects, r events.Record) string {
	if tenant, operationID, err := subjects.ParseOperation(r.Subject); err == nil {
		return decodeRecord(r, tenant, operationID).ID
	}
	s, err := events.DecodeSystem(r.Body)
	if err != nil {
		return ""
	}
	return s.ID
}

// fold folds one message into a slot. What does not follow the state without a
// gap is left to a fold from the log.
func fold(s *slot, d events.Record) (changed bool) {
	if d.Seq <= s.state.LastSeq && !s.refold {
		return false
	}
	if s.leave || s.refold {
		return true
	}
	if d.Err != nil || d.Version != s.state.Version+1 || d.Prev != s.state.Head {
		s.refold = true
		return true
	}
	s.state, _ = operation.Evolve(s.state, d)
	return true
}

// load returns the operation as its entry has it before the record d. The first
// event of an operation needs no look: should there be an entry already, the
// write is refused and settled.
func (p *Projector) load(ctx context.Context, key string, d events.Record, tenant, operationID string) (*slot, error) {
	s := &slot{key: key, tenant: tenant, operationID: operationID}
	if c, ok := p.cache.get(key); ok {
		s.state, s.rev = c.state, c.rev
		return s, nil
	}
	if d.Err == nil && d.Version == 1 && d.Prev == "" {
		return s, nil
	}
	v, err := p.cells.last(ctx, key)
	if err != nil {
		return nil, err
	}
	if s.rev = v.rev; v.rev == 0 || v.deleted {
		return s, nil
	}
	if s.state, err = decodeState(v.data); err != nil {
		s.leave = foldOf(v) > operation.FoldVersion
		s.refold = !s.leave
	}
	return s, nil
}

// foldOf returns the fold version of an entry, or 0.
func foldOf(v value) int {
	var head struct {
		FoldVersion int `json:"fold_version"`
	}
	_ = json.Unmarshal(v.data, &head) // 0 is an answer
	return head.FoldVersion
}

// flush writes slots; one that was changed twice is written once.
func (p *Projector) flush(ctx context.Context, order []*slot) error {
	w := &writer{b: p.cells, done: p.keep, limit: maxPendingWrites / 4}
	sent := map[*slot]bool{}
	for _, s := range order {
		if sent[s] {
			continue
		}
		sent[s] = true
		if err := w.write(ctx, s); err != nil {
			return err
		}
	}
	return w.flush(ctx)
}

// keep remembers what was written and tells it on.
func (p *Projector) keep(s *slot) {
	switch s.result {
	case written, equal:
		p.lastRev = max(p.lastRev, s.rev)
		if isOpen(s.state) {
			p.cache.put(cached{key: s.key, state: s.state, rev: s.rev, size: len(s.data)})
		} else { // seldom asked for again
			p.cache.drop(s.key)
		}
		p.applied(s.state)
	case newer:
		p.cache.drop(s.key)
		if !s.leave {
			p.applied(s.state)
		}
	case unstorable:
		p.cache.drop(s.key)
		p.applied(s.state)
	case left:
		p.cache.drop(s.key)
	}
}
