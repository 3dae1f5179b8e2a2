package projections

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/operation"
)

const (
	// maxSettleTries bounds the rounds in which one entry is written after a
	// first write failed.
	maxSettleTries = 16
	// firstPause and maxPause bound the waits between tries, before jitter.
	firstPause = 10 * time.Millisecond
	maxPause   = 2 * time.Second
	// headerRoom is what the headers of an entry may take, in bytes.
	headerRoom = 1 << 10
)

// result says how the write of an entry ended.
type result int

const (
	// written: the entry is the state that was to be written.
	written result = iota
	// equal: it was so before.
	equal
	// newer: the entry folds further already.
	newer
	// unstorable: the state has no entry; readers fold from the log.
	unstorable
	// left: the entry could not be settled, for a reason of its own.
	left
)

// slot is one operation on the way into its entry.
type slot struct {
	key, tenant, operationID string
	state                    operation.State
	// rev is the revision that the write expects.
	rev uint64
	// refold: the state can't be trusted; fold it from the log.
	refold bool
	// leave: the entry belongs to a newer version of the fold.
	leave bool
	// replace: the entry claims to fold further than the log goes; it is
	// replaced if it still has revision rev.
	replace bool

	data   []byte
	result result

	// held: waits to be written; ready: not for long. since and first are the time
	// and the number of the message that changed it first.
	held, ready bool
	since       time.Time
	first       uint64
	// told is the last sequence number of the state that was told.
	told uint64
}

// writer writes entries, many at a time.
type writer struct {
	b cells
	// done is told of every slot that reached its end.
	done func(*slot)
	// limit is how many writes may be on their way.
	limit   int
	pending []pendingWrite
}

type pendingWrite struct {
	s      *slot
	m      *nats.Msg
	future jetstream.PubAckFuture
}

// write sends a slot on its way. An error means that nothing can be written at
// the moment; what is wrong with a single operation ends in its result.
func (w *writer) write(ctx context.Context, s *slot) error {
	if s.leave {
		s.result = newer
		w.done(s)
		return nil
	}
	if s.refold {
		if ok, err := w.fold(ctx, s); !ok {
			return err
		}
	}
	if ok, err := w.encode(ctx, s); !ok {
		return err
	}
	if len(w.pending) >= w.limit {
		// The older half only, so that the server has something to do meanwhile.
		if err := w.await(ctx, (w.limit+1)/2); err != nil {
			return err
		}
	}
	m := w.message(s)
	future, err := w.b.send(m)
	if err != nil {
		return fmt.Errorf("projections: write %s: %w", s.key, err)
	}
	w.pending = append(w.pending, pendingWrite{s, m, future})
	return nil
}

func (w *writer) message(s *slot) *nats.Msg {
	m := w.b.message(s.key, s.data, s.rev)
	m.Header.Set(entryHeader, briefOf(s.state).String())
	return m
}

// flush waits for everything that is on its way.
func (w *writer) flush(ctx context.Context) error { return w.await(ctx, len(w.pending)) }

// await waits for the oldest n of those that are on their way.
func (w *writer) await(ctx context.Context, n int) error {
	pending := w.pending[:n]
	w.pending = slices.Clone(w.pending[n:])
	for _, p := range pending {
		select {
		case ack := <-p.future.Ok():
			p.s.rev, p.s.result = ack.Sequence, written
			w.done(p.s)
		case err := <-p.future.Err():
			if err = w.b.failed(p.m, err); errors.Is(err, errGone) {
				return err
			}
			if err := w.settle(ctx, p.s, err); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// An operation that can't be read from a log that can is tried so often, with
// such a pause, before it is left without its entry.
const (
	foldTries = 8
	foldPause = 250 * time.Millisecond
)

// fold folds a slot anew from the log. ok is false where that ended it.
func (w *writer) fold(ctx context.Context, s *slot) (ok bool, err error) {
	for tries := 1; ; tries++ {
		state, loadErr := w.b.truth(ctx, s.tenant, s.operationID)
		if loadErr == nil {
			s.state, s.refold = state, false
			return true, nil
		}
		// One operation that can't be read must not stop the others (I14); a
		// log that can't be read must. A moment's trouble is neither: an entry
		// that is left out stays wrong until the operation goes on.
		if w.b.answers(ctx) != nil {
			return false, loadErr
		}
		if err = loadErr; tries == foldTries {
			break
		}
		if err := w.b.pause(ctx, foldPause); err != nil {
			return false, err
		}
	}
	w.complain(ctx, s, "operation can't be folded from the log", err)
	s.result = left
	w.done(s)
	return false, nil
}

func (w *writer) complain(ctx context.Context, s *slot, message string, err error) {
	w.b.logger().LogAttrs(ctx, slog.LevelError, "entry not written", slog.String("reason", message), slog.String("tenant", s.tenant),
		slog.String("operation_id", s.operationID), slog.Any("err", err))
}

// encode makes the entry. A state that has none is taken out of the bucket.
func (w *writer) encode(ctx context.Context, s *slot) (ok bool, err error) {
	s.data, err = encodeState(s.state)
	if limit := w.b.room(); err == nil && int64(len(s.data)) > limit {
		err = fmt.Errorf("projections: entry of %d bytes, at most %d", len(s.data), limit)
	}
	if err == nil {
		return true, nil
	}
	w.complain(ctx, s, "operation has no entry; it is folded from the log", err)
	s.result = unstorable
	if s.rev != 0 {
		err := w.b.remove(ctx, s.key, s.rev, 0)
		if err != nil && !errors.Is(err, errRevision) {
			return false, err
		}
	}
	w.done(s)
	return false, nil
}

// settle ends a write that failed or whose answer is missing: it looks at the
// entry, folds the operation from the log and writes what folds further.
func (w *writer) settle(ctx context.Context, s *slot, cause error) error {
	wait := firstPause
	for range maxSettleTries {
		if errors.Is(cause, errGone) {
			return cause
		}
		settled, err := w.look(ctx, s)
		if err != nil {
			return err
		}
		if settled {
			w.done(s)
			return nil
		}
		if ok, err := w.fold(ctx, s); !ok {
			return err
		}
		if ok, err := w.encode(ctx, s); !ok {
			return err
		}
		var rev uint64
		if rev, cause = w.b.put(ctx, w.message(s)); cause == nil {
			s.rev, s.result = rev, written
			w.done(s)
			return nil
		}
		if err := w.b.pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, maxPause)
	}
	return fmt.Errorf("projections: %s not settled after %d rounds: %w", s.key, maxSettleTries, cause)
}

// look compares the slot with the entry as it is now.
func (w *writer) look(ctx context.Context, s *slot) (settled bool, err error) {
	v, err := w.b.last(ctx, s.key)
	if err != nil {
		return false, err
	}
	expected := s.rev
	s.rev = v.rev
	if v.rev == 0 || v.deleted {
		return false, nil
	}
	if bytes.Equal(v.data, s.data) {
		s.result = written
		return true, nil
	}
	if s.replace {
		if v.rev != expected { // somebody else replaced it
			s.result = newer
			return true, nil
		}
		return false, nil
	}
	if foldOf(v) > operation.FoldVersion {
		s.result = newer
		return true, nil
	}
	state, err := decodeState(v.data)
	if err == nil && state.LastSeq > s.state.LastSeq {
		s.state, s.data, s.result = state, v.data, newer
		return true, nil
	}
	return false, nil
}

// pause waits a random time up to d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
