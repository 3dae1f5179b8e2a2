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
	// holdFor is how long the entry of an operation that goes its way may wait for
	// the operation's next event, so that it is written once for all of them.
	holdFor = 200 * time.Millisecond
	// maxHeldEntries bounds the entries that wait.
	maxHeldEntries = 4096
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
	// held are the operations whose entries are to be written, by key; order has
	// them as they came, and ready those that need not wait.
	held         map[string]*slot
	order, ready []*slot
	// last is the last message that was folded; nil if that is the one of mark.
	last *events.Record
	// mark is up to where everything was written, when it was last asked for;
	// saved is the last checkpoint.
	mark, saved checkpoint
	// folded is the number of the last message that was folded, seq up to where
	// everything is written.
	folded, seq atomic.Uint64
	// created and lastRev tell whether the bucket is still the same.
	created time.Time
	lastRev uint64

	rebuilding sync.Mutex
	// maxHeld is a field for tests.
	maxHeld int
}

// NewProjector returns a projector. applied, if not nil, is told every state that
// was folded from the log, before its entry is written; it must not block. The same
// state may come twice and, while a rebuild runs or after trouble, an older one
// after a newer one. Index.Apply is made for it.
func NewProjector(cfg Config, applied func(operation.State)) (*Projector, error) {
	p, err := cfg.open()
	if err != nil {
		return nil, err
	}
	if applied == nil {
		applied = func(operation.State) {}
	}
	b := p.bucket("OPERATIONS")
	return &Projector{part: p, b: b, cells: b, applied: applied, cache: newCache(), held: map[string]*slot{}, maxHeld: maxHeldStates}, nil
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
//
// An entry follows the log within a moment. Only that of an operation which goes its
// way (pending or in flight, nothing that keeps it) may wait for the operation's next
// event, for holdFor: most operations are over by then and are written once.
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

// Applied returns the sequence number up to which every entry is written.
func (p *Projector) Applied() uint64 { return p.seq.Load() }

// Lag returns how many messages of the log are not folded yet.
func (p *Projector) Lag(ctx context.Context) (uint64, error) {
	_, _, last, _, err := p.Log.Extent(ctx)
	if err != nil {
		return 0, err
	}
	return last - min(last, p.folded.Load()), nil
}

func (p *Projector) session(ctx context.Context) error {
	p.cache, p.held, p.order, p.ready, p.last = newCache(), map[string]*slot{}, nil, nil, nil
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
	over := time.NewTimer(holdFor)
	defer over.Stop()
	for {
		if len(p.order) > 0 {
			over.Reset(time.Until(p.order[0].since.Add(holdFor)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-watch.C:
			if err := p.watch(ctx); err != nil {
				return err
			}
			continue
		case <-over.C:
		case r := <-records:
			if err := p.take(ctx, gather(r, records), time.Now()); err != nil {
				return err
			}
		}
		if err := p.write(ctx, p.due(time.Now())); err != nil {
			return err
		}
		if p.folded.Load()-p.saved.Seq >= checkpointEvery {
			if err := p.save(ctx, false); err != nil {
				return err
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
		cp.Created.Equal(created) && cp.Seq <= last && (cp.Clean || info.Config.Replicas > 1)
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
	p.folded.Store(cp.Seq)
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
	if p.folded.Load() == p.saved.Seq {
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

// save writes everything that waits, and then the checkpoint.
func (p *Projector) save(ctx context.Context, clean bool) error {
	if err := p.write(ctx, p.all()); err != nil {
		return err
	}
	if r := p.last; r != nil {
		p.mark.Seq, p.mark.EventID, p.mark.Digest = r.Seq, idOf(p.Subjects, *r), events.Digest(r.Body)
		p.last = nil
	}
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
	if err := p.Streams.SyncBucket(ctx, p.b.name); err != nil {
		return err // nor where the disk is not to be trusted
	}
	return p.save(ctx, true)
}

// take folds a batch and tells the states.
func (p *Projector) take(ctx context.Context, batch []events.Record, now time.Time) error {
	var same map[string]*slot // loaded, and not changed by the batch
	for _, r := range batch {
		tenant, operationID, err := p.Subjects.ParseOperation(r.Subject)
		if err != nil {
			continue // belongs to no operation
		}
		key := entryKey(tenant, operationID)
		d := decodeRecord(r, tenant, operationID)
		s := p.held[key]
		if s == nil {
			s = same[key]
		}
		if s == nil {
			if s, err = p.load(ctx, key, d, tenant, operationID); err != nil {
				return err
			}
		}
		if !fold(s, d) {
			if same == nil {
				same = make(map[string]*slot)
			}
			same[key] = s
			continue
		}
		p.hold(s, r.Seq, now)
	}
	last := batch[len(batch)-1]
	p.last = &last
	p.folded.Store(last.Seq)
	return nil
}

// hold keeps a slot that a message has changed until it is due, and tells its state.
func (p *Projector) hold(s *slot, seq uint64, now time.Time) {
	if !s.held {
		s.held, s.since, s.first = true, now, seq
		p.held[s.key] = s
		p.order = append(p.order, s)
	}
	known := !s.refold && !s.leave
	if known {
		p.tell(s)
	}
	if !s.ready && (!known || !goesItsWay(s.state)) {
		s.ready = true
		p.ready = append(p.ready, s)
	}
}

// goesItsWay reports whether an operation will soon have its next event, and nobody
// but its executor waits for that.
func goesItsWay(s operation.State) bool {
	return (s.Status == operation.StatusPending || s.Status == operation.StatusInFlight) && s.Started <= 1 &&
		(s.NextAction == events.NextAttempt || s.NextAction == events.NextOutcome) && s.Review == nil && s.Hold == "" && s.Halted == ""
}

// due takes out what is to be written by now.
func (p *Projector) due(now time.Time) []*slot {
	out := p.ready
	p.ready = nil
	for _, s := range out {
		p.release(s)
	}
	for len(p.order) > 0 {
		s := p.order[0]
		if s.held && len(p.held) <= maxHeldEntries && now.Sub(s.since) < holdFor {
			break
		}
		if p.order = p.order[1:]; s.held {
			p.release(s)
			out = append(out, s)
		}
	}
	return out
}

// all takes out everything that is to be written.
func (p *Projector) all() []*slot {
	out := make([]*slot, 0, len(p.held))
	for _, s := range p.order {
		if s.held {
			p.release(s)
			out = append(out, s)
		}
	}
	p.order, p.ready = nil, nil
	return out
}

func (p *Projector) release(s *slot) {
	s.held = false
	delete(p.held, s.key)
}

// write writes slots that were taken out. After an error they wait again: whoever
// stops vouches for everything up to the last message that was folded.
func (p *Projector) write(ctx context.Context, slots []*slot) error {
	if len(slots) > 0 {
		if err := p.flush(ctx, slots); err != nil {
			for _, s := range slots {
				s.held, p.held[s.key] = true, s
			}
			p.order = append(slots, p.order...)
			return err
		}
	}
	seq := p.folded.Load()
	if len(p.order) > 0 { // as due and all left it, the first one is held
		seq = p.order[0].first - 1
	}
	p.seq.Store(seq)
	return nil
}

// tell tells the state of a slot, once.
func (p *Projector) tell(s *slot) {
	if s.told != s.state.LastSeq {
		s.told = s.state.LastSeq
		p.applied(s.state)
	}
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

// flush writes slots.
func (p *Projector) flush(ctx context.Context, slots []*slot) error {
	w := &writer{b: p.cells, done: p.keep, limit: maxPendingWrites / 4}
	for _, s := range slots {
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
		p.tell(s)
	case newer:
		p.cache.drop(s.key)
		if !s.leave {
			p.tell(s)
		}
	case unstorable:
		p.cache.drop(s.key)
		p.tell(s)
	case left:
		p.cache.drop(s.key)
	}
}
