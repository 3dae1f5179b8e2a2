package projections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// A snapshot is the index as it was when a process stopped, kept in the bucket
// itself, so that the next start need not read all entries to find the open ones.
// It says up to which revision of the bucket it goes; what was written later is
// read as ever, so an old snapshot is as right as a new one and only slower. It
// holds for the bucket that it lies in and for the version that wrote it; where
// anything is missing or does not fit, the whole bucket is read.
const (
	// snapshotFormat is the version of what is written. A change of Open is a
	// change of it.
	snapshotFormat = 1
	// snapshotKey names the head. It and the parts can't be keys of operations:
	// those have two tokens.
	snapshotKey = "_index"
	// partSize is about how large a part is, in bytes; maxParts bounds them.
	partSize = 256 << 10
	maxParts = 400
	// worthwhile is how many messages of the bucket a snapshot must save reading.
	worthwhile = 10_000
)

// snapshotHead is written after its parts: the bucket keeps the order.
type snapshotHead struct {
	Format      int       `json:"format"`
	FoldVersion int       `json:"fold_version"`
	ID          string    `json:"id"`
	Created     time.Time `json:"created"`
	Rev         uint64    `json:"rev"`
	Parts       int       `json:"parts"`
	// LogCreated is when the log was created; Seq and Digest are those of its newest
	// message in the snapshot. A log that went back has other ones.
	LogCreated time.Time `json:"log_created"`
	Seq        uint64    `json:"seq,omitempty"`
	Digest     string    `json:"digest,omitempty"`
}

// snapshotPart has some of the open operations and of the wishes, in order.
type snapshotPart struct {
	ID     string      `json:"id"`
	Open   []Open      `json:"open,omitempty"`
	Wishes [][3]string `json:"wishes,omitempty"`
}

func partKey(n int) string { return fmt.Sprintf("%s-%d", snapshotKey, n) }

// Save writes a snapshot, if the index is complete and the next start has enough
// of it. Call it when Run has ended and nothing is applied any more. A crash
// leaves the snapshot before, or none.
func (x *Index) Save(ctx context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ready || x.partial || x.rev < x.saved+x.worth {
		return nil
	}
	info, err := x.b.info(ctx)
	if err != nil {
		return fmt.Errorf("projections: snapshot: %w", err)
	}
	if !info.Created.Equal(x.created) {
		return nil // it is another bucket, which was not read yet
	}
	head := snapshotHead{
		Format: snapshotFormat, FoldVersion: operation.FoldVersion, ID: events.NewID(), Created: x.created, Rev: x.rev,
	}
	for _, it := range x.open {
		head.Seq = max(head.Seq, it.LastSeq)
	}
	if err := x.logIs(ctx, &head); err != nil {
		return fmt.Errorf("projections: snapshot: %w", err)
	}
	part, size := snapshotPart{ID: head.ID}, 0
	flush := func(least int) error {
		if size < least {
			return nil
		}
		if head.Parts++; head.Parts > maxParts {
			return errLargeSnapshot
		}
		err := x.write(ctx, partKey(head.Parts-1), part)
		part, size = snapshotPart{ID: head.ID}, 0
		return err
	}
	for _, it := range x.open {
		part.Open = append(part.Open, it.Open)
		size += sizeOf(it.Open)
		if err = flush(partSize); err != nil {
			break
		}
	}
	for n := 0; err == nil && n < len(x.wishes.order); n++ {
		k := x.wishes.order[(x.wishes.next+n)%len(x.wishes.order)]
		tenant, wish, _ := splitKey(k)
		part.Wishes = append(part.Wishes, [3]string{tenant, wish, x.wishes.first[k]})
		size += len(k) + 64
		err = flush(partSize)
	}
	if err == nil {
		err = flush(1)
	}
	if err == nil {
		err = x.write(ctx, snapshotKey, head)
	}
	if errors.Is(err, errLargeSnapshot) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("projections: snapshot: %w", err)
	}
	return nil
}

var errLargeSnapshot = errors.New("projections: the snapshot is too large")

// logIs notes the log that a snapshot is of.
func (x *Index) logIs(ctx context.Context, head *snapshotHead) error {
	var err error
	if head.LogCreated, _, _, _, err = x.Log.Extent(ctx); err != nil || head.Seq == 0 {
		return err
	}
	r, err := x.Log.Read(ctx, head.Seq)
	head.Digest = events.Digest(r.Body)
	return err
}

// fits reports whether the log still is the one that a snapshot is of.
func (x *Index) fits(ctx context.Context, head snapshotHead) bool {
	now := snapshotHead{Seq: head.Seq}
	return x.logIs(ctx, &now) == nil && now.LogCreated.Equal(head.LogCreated) && now.Digest == head.Digest
}

// sizeOf is about how many bytes an open operation takes.
func sizeOf(o Open) int {
	size := 1024 + len(o.ConflictScope) + len(o.RequestID) + len(o.Hold) + len(o.Halted)
	for k, v := range o.Labels {
		size += len(k) + len(v) + 8
	}
	return size
}

func (x *Index) write(ctx context.Context, key string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	m := nats.NewMsg(x.b.subject(key))
	m.Data = data
	_, err = x.b.put(ctx, m)
	return err
}

// bucketIs notes which bucket is about to be read, and from where on. Without an
// answer it is none.
func (x *Index) bucketIs(ctx context.Context, from uint64) {
	var created time.Time
	if info, err := x.b.info(ctx); err == nil {
		created = info.Created
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.created, x.rev, x.saved = created, from-1, from-1
}

// readTo notes up to where the bucket was read.
func (x *Index) readTo(rev uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rev = rev
}

// restore takes in a snapshot, if there is one that fits, and returns the
// revision with which reading goes on.
func (x *Index) restore(ctx context.Context) (from uint64) {
	head, parts, err := x.snapshot(ctx)
	if err != nil || head.Rev == 0 {
		return 1
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, part := range parts {
		for _, o := range part.Open {
			key := entryKey(o.Tenant, o.OperationID)
			if x.open[key] != nil || o.LastSeq <= x.closed.get(key) {
				continue // Apply was quicker
			}
			it := &item{Open: o, key: key}
			x.open[key] = it
			x.heap(it.NextAction).add(it)
			if x.listen != nil {
				x.listen(o, true)
			}
		}
		for _, w := range part.Wishes {
			x.wishes.note(w[0], w[1], w[2])
		}
	}
	x.tell()
	return head.Rev + 1
}

// snapshot reads the snapshot; the head is zero where none fits.
func (x *Index) snapshot(ctx context.Context) (head snapshotHead, parts []snapshotPart, err error) {
	info, err := x.b.info(ctx)
	if err != nil {
		return head, nil, err
	}
	v, err := x.b.last(ctx, snapshotKey)
	if err != nil || v.rev == 0 || v.deleted {
		return head, nil, err
	}
	if err := json.Unmarshal(v.data, &head); err != nil {
		return snapshotHead{}, nil, err
	}
	if head.Format != snapshotFormat || head.FoldVersion != operation.FoldVersion || !head.Created.Equal(info.Created) ||
		head.Rev >= v.rev || head.Parts > maxParts || !x.fits(ctx, head) {
		return snapshotHead{}, nil, nil
	}
	for n := range head.Parts {
		v, err := x.b.last(ctx, partKey(n))
		if err != nil {
			return snapshotHead{}, nil, err
		}
		var part snapshotPart                                                         // Open has no tags: its form is that of snapshotFormat
		if v.rev == 0 || json.Unmarshal(v.data, &part) != nil || part.ID != head.ID { //nolint:musttag // see above
			return snapshotHead{}, nil, nil
		}
		parts = append(parts, part)
	}
	return head, parts, nil
}
