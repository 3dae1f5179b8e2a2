package projections

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash/maphash"
	"runtime"
	"strings"
	"sync"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

const (
	// maxHeldStates is how many states are held at a time while the whole log
	// is folded. Where more operations are open at once, the rest waits for
	// another pass over the log.
	maxHeldStates = 50_000
	// maxPasses bounds the passes.
	maxPasses = 1000
	// chunkSize is how many messages go to a shard at a time.
	chunkSize = 256
	// progressEvery is after how many messages progress is told.
	progressEvery = 1024
)

// folding is one operation while the whole log is folded.
type folding struct {
	key, tenant, operationID string
	hash                     uint64
	state                    operation.State
}

// folder folds all operations of the log up to a sequence number, with bounded
// memory: operations are spread over shards by hash, a state is let go as soon
// as its operation is closed, and what does not fit waits for another pass.
type folder struct {
	part
	upTo    uint64
	maxHeld int
	seed    maphash.Seed
	// prefix begins the subjects of all events.
	prefix string
	shards []*shard
	// each, if not nil, is told of every message in order, in the first pass.
	each func(events.Record)
	// record, if not nil, is told of every event after it was folded.
	record func(sh *shard, f *folding, r events.Record, a operation.Anomaly) error
	// done is told of every operation when it was folded. One that went on
	// after it had been closed is told twice, the newer state later.
	done     func(ctx context.Context, sh *shard, f *folding) error
	progress func(done, total uint64)

	passes int
	events uint64
}

// shard folds its share of the operations in a goroutine of its own.
type shard struct {
	f    *folder
	held map[string]*folding
	// finished were closed and let go, again need another pass, only is what
	// this pass is for (nil: everything). Hashes may collide: that costs work.
	finished, again, only map[uint64]struct{}
	// entries is what the bucket holds of this shard's operations.
	entries map[uint64]*entryNote
	w       *writer
	count   counts
}

// entryNote remembers an entry without its value.
type entryNote struct {
	rev, lastSeq uint64
	sum          [16]byte
	seen         bool
	matched      bool
}

// counts counts how operations ended.
type counts struct {
	operations, written, equal, newer, unstorable, left int
}

func sum16(data []byte) (short [16]byte) {
	sum := sha256.Sum256(data)
	copy(short[:], sum[:])
	return short
}

func newFolder(p part, upTo uint64, maxHeld int) *folder {
	f := &folder{
		part: p, upTo: upTo, seed: maphash.MakeSeed(),
		prefix: strings.TrimSuffix(p.Subjects.AllEvents(""), ">"),
	}
	n := runtime.GOMAXPROCS(0)
	f.maxHeld = max(maxHeld/n, 1)
	for range n {
		f.shards = append(f.shards, &shard{f: f, entries: map[uint64]*entryNote{}})
	}
	return f
}

func (f *folder) hash(key string) uint64 { return maphash.String(f.seed, key) }

func (f *folder) shard(hash uint64) *shard { return f.shards[hash%uint64(len(f.shards))] }

// note reads which entries the bucket holds.
func (f *folder) note(ctx context.Context, b *bucket) (entries int, err error) {
	err = b.each(ctx, ">", func(key string, v value) error {
		if _, _, ok := splitKey(key); !ok {
			return nil // the checkpoint, or of the snapshot
		}
		brief, _ := briefIn(v)
		h := f.hash(key)
		notes := f.shard(h).entries
		if notes[h] == nil {
			entries++
		}
		notes[h] = &entryNote{rev: v.rev, lastSeq: brief.lastSeq, sum: sum16(v.data)}
		return nil
	})
	return entries, err
}

// run makes passes until every operation is done.
func (f *folder) run(ctx context.Context) error {
	for more := f.upTo > 0; more; f.passes++ {
		if f.passes == maxPasses {
			return fmt.Errorf("projections: not folded after %d passes", maxPasses)
		}
		if err := f.pass(ctx); err != nil {
			return err
		}
		more = false
		for _, sh := range f.shards {
			sh.only, sh.again = sh.again, nil
			more = more || len(sh.only) > 0
		}
	}
	return nil
}

func (f *folder) pass(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var shards sync.WaitGroup
	in := make([]chan []events.Record, len(f.shards))
	for i, sh := range f.shards {
		in[i] = make(chan []events.Record, 8)
		sh.held, sh.finished, sh.again = map[string]*folding{}, map[uint64]struct{}{}, map[uint64]struct{}{}
		if f.passes > 0 && sh.only == nil {
			sh.only = map[uint64]struct{}{}
		}
		shards.Go(func() {
			if err := sh.run(ctx, in[i]); err != nil {
				cancel(err)
			}
		})
	}
	err := f.spread(ctx, in)
	if err != nil {
		cancel(err) // half a log is no fold
	}
	for _, c := range in {
		close(c)
	}
	shards.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// spread reads the log and gives each shard its messages.
func (f *folder) spread(ctx context.Context, in []chan []events.Record) error {
	chunks := make([][]events.Record, len(in))
	send := func(i int) error {
		select {
		case in[i] <- chunks[i]:
			chunks[i] = nil
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := f.Log.Walk(ctx, 1, f.upTo, func(r events.Record) error {
		if f.progress != nil && (r.Seq%progressEvery == 0 || r.Seq == f.upTo) {
			f.progress(r.Seq, f.upTo)
		}
		if f.each != nil && f.passes == 0 {
			f.each(r)
		}
		key, ok := strings.CutPrefix(r.Subject, f.prefix)
		if !ok {
			return nil
		}
		if f.passes == 0 {
			f.events++
		}
		i := int(f.hash(key) % uint64(len(in)))
		if chunks[i] == nil {
			chunks[i] = make([]events.Record, 0, chunkSize)
		}
		if chunks[i] = append(chunks[i], r); len(chunks[i]) < chunkSize {
			return nil
		}
		return send(i)
	})
	if err != nil {
		return err
	}
	for i, chunk := range chunks {
		if len(chunk) > 0 {
			if err := send(i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (sh *shard) run(ctx context.Context, in <-chan []events.Record) error {
	for chunk := range in {
		for _, r := range chunk {
			if err := sh.fold(ctx, r); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, g := range sh.held {
		if err := sh.f.done(ctx, sh, g); err != nil {
			return err
		}
	}
	if sh.w != nil {
		return sh.w.flush(ctx)
	}
	return nil
}

func (sh *shard) fold(ctx context.Context, r events.Record) error {
	f := sh.f
	key := strings.TrimPrefix(r.Subject, f.prefix)
	h := f.hash(key)
	if !sh.wants(h) {
		return nil
	}
	g := sh.held[key]
	if g == nil {
		if len(sh.held) >= f.maxHeld {
			sh.again[h] = struct{}{}
			return nil
		}
		tenant, operationID, err := f.Subjects.ParseOperation(r.Subject)
		if err != nil {
			return nil // no operation can have this subject
		}
		g = &folding{key: key, tenant: tenant, operationID: operationID, hash: h}
		sh.held[key] = g
	}
	d := decodeRecord(r, g.tenant, g.operationID)
	var a operation.Anomaly
	g.state, a = operation.Evolve(g.state, d)
	if f.record != nil {
		if err := f.record(sh, g, d, a); err != nil {
			return err
		}
	}
	// Let go of what is closed once there is a fair number of others, in the
	// first pass only, so that each further pass settles what it holds for good.
	if sh.only == nil && len(sh.held) > f.maxHeld/8 && g.state.Version > 0 && !isOpen(g.state) {
		delete(sh.held, key)
		sh.finished[h] = struct{}{}
		return f.done(ctx, sh, g)
	}
	return nil
}

// wants reports whether an operation is folded in this pass. What has missed a
// message must wait for the next one.
func (sh *shard) wants(h uint64) bool {
	if sh.only != nil {
		if _, ok := sh.only[h]; !ok {
			return false
		}
	}
	if _, ok := sh.again[h]; ok {
		return false
	}
	if _, ok := sh.finished[h]; ok {
		sh.again[h] = struct{}{}
		return false
	}
	return true
}
