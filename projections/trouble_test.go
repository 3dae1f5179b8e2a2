package projections

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
)

// troubled is a log whose reads of single operations fail a few times.
type troubled struct {
	Log
	fail atomic.Int32
}

func (f *troubled) Load(ctx context.Context, tenant, op string) ([]events.Record, error) {
	if f.fail.Add(-1) >= 0 {
		return nil, errors.New("timeout")
	}
	return f.Log.Load(ctx, tenant, op)
}

// I9: a moment's trouble while an operation is read leaves no entry wrong, and
// the index learns of the operation.
func TestTransientReadErrorLeavesNoEntryWrong(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	x := l.index()
	f := &troubled{Log: l.cfg.Log}
	l.cfg.Log = f
	p := l.projector(x.Apply)
	run(t, p.Run)
	l.append("w", intent("w"))
	l.caughtUp(p)
	l.overwrite("acme.a", "junk") // so that the write has to be settled
	f.fail.Store(3)
	l.append("a", intent("a"))
	l.append("b", intent("b"))
	l.caughtUp(p)
	natstest.Eventually(t, patience, "the index to know it", func() bool { _, ok := x.Get("acme", "a"); return ok })
	l.checkEntries()
}

// A graceful stop never vouches for a bucket that took the place of the one that
// was written to.
func TestStopVouchesForNoOtherBucket(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	for i := range 5 {
		l.append(fmt.Sprintf("op-%d", i), intent("x"))
	}
	p := l.projector(nil)
	stop := run(t, p.Run)
	l.caughtUp(p)
	if err := l.js.DeleteKeyValue(t.Context(), l.b.name); err != nil {
		t.Fatal(err)
	}
	if err := l.j.EnsureBucket(t.Context(), l.b.name); err != nil {
		t.Fatal(err)
	}
	stop()
	p = l.projector(nil)
	run(t, p.Run)
	l.caughtUp(p)
	natstest.Eventually(t, patience, "every entry", func() bool { return len(l.bucketBytes()) == 5 })
	l.checkEntries()
}
