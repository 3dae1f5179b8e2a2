package projections

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// maxClosed is how many closed operations an index remembers, so that an older
// entry that arrives late does not open them again.
const maxClosed = 16_384

// Open is what the index keeps of an operation that is not closed: not final,
// or final with an open review.
type Open struct {
	Tenant      string
	OperationID string
	// Version and LastSeq are those of the state, hints for the reader.
	Version uint64
	LastSeq uint64
	Status  operation.Status
	// StatusSince is when the status began, RecordedAt when the intent was
	// recorded, both by the log's clock.
	StatusSince    time.Time
	RecordedAt     time.Time
	Provider       string
	Account        string
	Action         string
	ContractDigest string
	RequestID      string
	ConflictScope  string
	Labels         map[string]string
	// NextAction happens at NextAt. A zero NextAt of an action that is waited
	// for means: at once.
	NextAction events.NextAction
	NextAt     time.Time
	// ReviewReason is empty if no review is open.
	ReviewReason string
	ReviewSince  time.Time
	Hold         string
	Halted       string
	Undetermined bool
	// FirstSend is when the key was first sent; its retention counts from it.
	FirstSend time.Time
}

func openOf(s operation.State) Open {
	o := Open{
		Tenant: s.Tenant, OperationID: s.OperationID, Version: s.Version, LastSeq: s.LastSeq,
		Status: s.Status, StatusSince: s.StatusSince, RecordedAt: s.RecordedAt,
		Provider: s.Intent.Provider, Account: s.Intent.Account.Name, Action: s.Intent.Action,
		ContractDigest: s.Intent.ContractRef.Digest, RequestID: s.Intent.RequestID,
		ConflictScope: s.Intent.ConflictScope, Labels: maps.Clone(s.Intent.Labels),
		NextAction: s.NextAction, NextAt: s.NextAt, Hold: s.Hold, Halted: s.Halted,
		Undetermined: s.Undetermined, FirstSend: s.FirstSend,
	}
	if s.Review != nil {
		o.ReviewReason, o.ReviewSince = string(s.Review.Reason), s.Review.OpenedAt
	}
	return o
}

// CountKey is what operations are counted by.
type CountKey struct {
	Provider string
	Status   operation.Status
}

// Counts counts the operations of an index.
type Counts struct {
	Operations map[CountKey]int
	// Oldest is the earliest StatusSince of each status.
	Oldest map[operation.Status]time.Time
	// Reviews counts the open ones, Undetermined the operations of which a
	// person said that nobody can find out.
	Reviews      int
	Undetermined int
}

// Index keeps the open operations in memory: those in the bucket, kept up to
// date by Run, and whatever Apply is told. It may lag like the bucket; what it
// names must be looked at before it is acted on. Its methods may be called at
// the same time.
type Index struct {
	part
	b *bucket

	mu      sync.Mutex
	open    map[string]*item
	due     map[events.NextAction]*dueHeap
	closed  *recent
	wishes  *wishes
	changed chan struct{}
	ready   bool
	subs    map[string]map[*subscription]struct{}
	listen  func(o Open, first bool)
	// created tells the bucket that was read up to revision rev; saved is that of
	// the snapshot in it.
	created    time.Time
	rev, saved uint64
	// partial: an entry could not be read, so that there is no snapshot.
	partial bool
	// worth is a field for tests.
	worth uint64
}

type subscription struct {
	ch      chan operation.State
	lastSeq uint64
}

// NewIndex returns an empty index. It is complete once Ready.
func NewIndex(cfg Config) (*Index, error) {
	p, err := cfg.open()
	if err != nil {
		return nil, err
	}
	return &Index{
		part: p, b: p.bucket("OPERATIONS"), open: map[string]*item{}, due: make(map[events.NextAction]*dueHeap),
		closed: newRecent(maxClosed), wishes: newWishes(), changed: make(chan struct{}), subs: map[string]map[*subscription]struct{}{}, worth: worthwhile,
	}, nil
}

// Run reads the bucket, or the snapshot in it and what was written since, and
// then follows it until ctx ends; then it returns nil.
// It goes on by itself after server restarts and after the loss of the bucket,
// which takes nothing out of the index.
func (x *Index) Run(ctx context.Context) error {
	wait := firstPause
	from := x.restore(ctx)
	for ; ctx.Err() == nil; from = 1 {
		began := time.Now()
		x.bucketIs(ctx, from)
		err := x.Streams.Tail(ctx, x.b.stream(), nil, from,
			func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
				x.entry(ctx, m, meta.Sequence.Stream)
				x.readTo(meta.Sequence.Stream)
				return nil
			},
			func() error {
				x.complete()
				return nil
			})
		if ctx.Err() != nil {
			break
		}
		x.log.LogAttrs(ctx, slog.LevelDebug, "index reads the bucket anew", slog.Any("err", err))
		if time.Since(began) > maxPause {
			wait = firstPause
		}
		_ = pause(ctx, wait)
		wait = min(2*wait, maxPause)
	}
	return nil
}

// entry takes in one message of the bucket, decoding only what matters.
func (x *Index) entry(ctx context.Context, m jetstream.Msg, rev uint64) {
	key := x.b.key(m.Subject())
	tenant, operationID, ok := splitKey(key)
	if !ok {
		return // the checkpoint
	}
	if removed(m.Headers()) {
		x.remove(key)
		return
	}
	v := value{rev: rev, header: m.Headers(), data: m.Data()}
	if b, ok := briefIn(v); ok && !x.interested(key, tenant, operationID, b) {
		return
	}
	state, err := decodeState(v.data)
	if err != nil { // of another version, or damaged
		state, err = x.truth(ctx, tenant, operationID)
	}
	if err != nil {
		x.log.LogAttrs(ctx, slog.LevelWarn, "entry can't be read", slog.String("tenant", tenant),
			slog.String("operation_id", operationID), slog.Any("err", err))
		x.mu.Lock()
		x.partial = true // the next start looks again
		x.mu.Unlock()
		return
	}
	x.apply(key, state)
}

// interested reports whether an entry would change anything, beside the wish
// that it notes.
func (x *Index) interested(key, tenant, operationID string, b brief) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wishes.note(tenant, b.wish, operationID)
	for sub := range x.subs[key] {
		if b.lastSeq > sub.lastSeq {
			return true
		}
	}
	if it := x.open[key]; it != nil {
		return b.lastSeq > it.LastSeq
	}
	return b.open && b.lastSeq > x.closed.get(key)
}

func (x *Index) remove(key string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if it := x.open[key]; it != nil {
		x.drop(key, it)
		x.tell()
	}
}

func (x *Index) complete() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ready {
		x.ready = true
		x.tell()
	}
}

// Ready reports whether the whole bucket was read once.
func (x *Index) Ready() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ready
}

// Apply takes in a state. One that is not newer than what the index has is
// passed over. It never blocks.
func (x *Index) Apply(s operation.State) { x.apply(entryKey(s.Tenant, s.OperationID), s) }

// Seen returns the last sequence number of an operation that the index was told
// of; 0 if it knows of none.
func (x *Index) Seen(tenant, operationID string) uint64 {
	key := entryKey(tenant, operationID)
	x.mu.Lock()
	defer x.mu.Unlock()
	if it := x.open[key]; it != nil {
		return it.LastSeq
	}
	return x.closed.get(key)
}

// Tell hands a state to those who wait for the operation, and takes note of a new
// wish: one that was just written, before the projection has it. It never blocks.
func (x *Index) Tell(s operation.State) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.Version == 1 {
		x.wishes.note(s.Tenant, wishOf(s.Intent), s.OperationID)
	}
	for sub := range x.subs[entryKey(s.Tenant, s.OperationID)] {
		sub.offer(s)
	}
}

func (x *Index) apply(key string, s operation.State) {
	if s.Version == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wishes.note(s.Tenant, wishOf(s.Intent), s.OperationID)
	for sub := range x.subs[key] {
		sub.offer(s)
	}
	it := x.open[key]
	switch {
	case it != nil && s.LastSeq <= it.LastSeq, it == nil && s.LastSeq <= x.closed.get(key):
		return
	case !isOpen(s):
		x.closed.put(key, s.LastSeq)
		if it == nil {
			return
		}
		x.drop(key, it)
		if x.listen != nil {
			x.listen(Open{
				Tenant: s.Tenant, OperationID: s.OperationID, Version: s.Version, LastSeq: s.LastSeq,
				Status: s.Status, NextAction: events.NextNone,
			}, !x.ready)
		}
	default:
		if it != nil {
			x.heap(it.NextAction).remove(it)
		}
		it = &item{Open: openOf(s), key: key}
		x.open[key] = it
		x.heap(it.NextAction).add(it)
		if x.listen != nil {
			x.listen(it.Open, !x.ready)
		}
	}
	x.tell()
}

// Listen has fn called for every change of an open operation, and when it is closed:
// then there is no next action, and little more than its name is told. first says
// that the bucket was not read once yet, so that the operation may be an old one. fn
// must be quick and must not call methods of the index. Call it before Run.
func (x *Index) Listen(fn func(o Open, first bool)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.listen = fn
}

// offer hands a state to a waiter; one that was not taken yet is replaced.
func (s *subscription) offer(state operation.State) {
	if state.LastSeq <= s.lastSeq {
		return
	}
	s.lastSeq = state.LastSeq
	select {
	case <-s.ch:
	default:
	}
	s.ch <- state
}

func (x *Index) drop(key string, it *item) {
	delete(x.open, key)
	x.heap(it.NextAction).remove(it)
}

func (x *Index) heap(a events.NextAction) *dueHeap {
	h := x.due[a]
	if h == nil {
		h = &dueHeap{}
		x.due[a] = h
	}
	return h
}

func (x *Index) tell() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change.
func (x *Index) Changed() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.changed
}

// Get returns an open operation.
func (x *Index) Get(tenant, operationID string) (Open, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	it := x.open[entryKey(tenant, operationID)]
	if it == nil {
		return Open{}, false
	}
	return it.Open, true
}

// Due returns up to limit operations whose next action is wanted and due at
// now, the earliest first. It looks at little more than it returns. The same
// operation is returned until its state changes. want must not call methods of
// the index.
func (x *Index) Due(now time.Time, want func(events.NextAction) bool, limit int) []Open {
	x.mu.Lock()
	defer x.mu.Unlock()
	return earliest(x.wanted(want), now, limit)
}

// NextDue returns when the earliest of the wanted actions is due; false if
// there is none.
func (x *Index) NextDue(want func(events.NextAction) bool) (time.Time, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var at time.Time
	found := false
	for _, h := range x.wanted(want) {
		if first := (*h)[0]; !found || first.NextAt.Before(at) {
			at, found = first.NextAt, true
		}
	}
	return at, found
}

func (x *Index) wanted(want func(events.NextAction) bool) []*dueHeap {
	var out []*dueHeap
	for a, h := range x.due {
		if len(*h) > 0 && want(a) {
			out = append(out, h)
		}
	}
	return out
}

// Counts counts what is open, by a look at everything.
func (x *Index) Counts() Counts {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := Counts{Operations: map[CountKey]int{}, Oldest: make(map[operation.Status]time.Time)}
	for _, it := range x.open {
		c.Operations[CountKey{it.Provider, it.Status}]++
		if old, ok := c.Oldest[it.Status]; !ok || it.StatusSince.Before(old) {
			c.Oldest[it.Status] = it.StatusSince
		}
		if it.ReviewReason != "" {
			c.Reviews++
		}
		if it.Undetermined {
			c.Undetermined++
		}
	}
	return c
}

// Each calls fn for every open operation until it returns false. fn must not
// call methods of the index.
func (x *Index) Each(fn func(Open) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, it := range x.open {
		if !fn(it.Open) {
			return
		}
	}
}

// Subscribe returns a channel that receives the newest state of an operation
// whenever it changes, final ones included, and a function that ends it. A
// state that was not taken is replaced by the next one. What happened before
// the call is not told: subscribe first, then read the state.
func (x *Index) Subscribe(tenant, operationID string) (<-chan operation.State, func()) {
	key := entryKey(tenant, operationID)
	x.mu.Lock()
	defer x.mu.Unlock()
	sub := &subscription{ch: make(chan operation.State, 1), lastSeq: x.closed.get(key)}
	if it := x.open[key]; it != nil {
		sub.lastSeq = it.LastSeq
	}
	if x.subs[key] == nil {
		x.subs[key] = map[*subscription]struct{}{}
	}
	x.subs[key][sub] = struct{}{}
	return sub.ch, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.subs[key], sub)
		if len(x.subs[key]) == 0 {
			delete(x.subs, key)
		}
	}
}
