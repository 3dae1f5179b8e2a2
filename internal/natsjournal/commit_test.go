package natsjournal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
)

// eager makes every round of two or more a batch.
func eager(j *Journal) {
	j.commit.mu.Lock()
	defer j.commit.mu.Unlock()
	j.commit.single = time.Hour
}

// counting counts what is published in batches and alone.
type counting struct {
	transport
	batched, alone atomic.Int64
}

func (c *counting) publish(msg *nats.Msg) error {
	c.batched.Add(1)
	return c.transport.publish(msg)
}

func (c *counting) request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	switch {
	case msg.Header.Get(headerBatchCommit) != "":
		c.batched.Add(1)
	case len(msg.Header) > 0:
		c.alone.Add(1)
	}
	return c.transport.request(ctx, msg)
}

// many appends the next event of n operations at the same time.
func many(t testing.TB, j *Journal, prefix string, n int) (acked map[string]events.Record) {
	t.Helper()
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	acked = make(map[string]events.Record)
	for i := range n {
		wg.Go(func() {
			op := fmt.Sprintf("%s-%d", prefix, i)
			e, expected := after(op, nil)
			r, err := j.Append(context.Background(), e, expected)
			if err != nil {
				t.Errorf("append %s: %v", op, err)
				return
			}
			mu.Lock()
			acked[op] = r
			mu.Unlock()
		})
	}
	wg.Wait()
	return acked
}

// Appends that wait at the same moment go together, and each gets its own place.
func TestWaitingAppendsGoTogether(t *testing.T) {
	t.Parallel()
	j := journal(t)
	eager(j)
	c := &counting{transport: j.tr}
	j.tr = c
	acked := many(t, j, "op", 200)
	for op, r := range acked {
		stored := load(t, j, op)
		if len(stored) != 1 || stored[0].ID != r.ID || stored[0].Seq != r.Seq {
			t.Fatalf("%s: stored %v, acknowledged as %s at %d", op, stored, r.ID, r.Seq)
		}
	}
	if c.batched.Load() < 150 {
		t.Errorf("%d of 200 appends went in batches, %d alone", c.batched.Load(), c.alone.Load())
	}
}

// A batch that is refused because of one event harms no other: that one is a
// conflict, the others are stored once.
func TestOneConflictInABatchIsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	j := journal(t)
	for i := 0; i < 64; i += 8 {
		appendNext(t, j, fmt.Sprintf("op-%d", i)) // these appends come too late
	}
	eager(j)
	var (
		wg        sync.WaitGroup
		conflicts atomic.Int64
	)
	for i := range 64 {
		wg.Go(func() {
			e, expected := after(fmt.Sprintf("op-%d", i), nil)
			_, err := j.Append(t.Context(), e, expected)
			switch {
			case i%8 == 0 && errors.Is(err, ErrConflict):
				conflicts.Add(1)
			case i%8 != 0 && err == nil:
			default:
				t.Errorf("op-%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if conflicts.Load() != 8 {
		t.Errorf("%d conflicts, want 8", conflicts.Load())
	}
	for i := range 64 {
		if n := len(load(t, j, fmt.Sprintf("op-%d", i))); n != 1 {
			t.Errorf("op-%d has %d events, want 1", i, n)
		}
	}
}

// Random faults on the members and on the commit of batches: what was
// acknowledged is stored once, what lost is not stored, and the events of each
// operation keep their order (I13).
func TestBatchedAppendsAreStoredOnceUnderRandomFaults(t *testing.T) {
	t.Parallel()
	j := journal(t)
	eager(j)
	storedOnceUnderFaults(t, j)
}

func storedOnceUnderFaults(t *testing.T, j *Journal) {
	t.Helper()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		rate := rapid.IntRange(0, 60).Draw(rt, "percent of publishes that fail")
		operations := rapid.IntRange(2, 12).Draw(rt, "operations")
		var mu sync.Mutex
		f := breakNext(j, func() fault {
			mu.Lock()
			defer mu.Unlock()
			if rng.IntN(100) >= rate {
				return none
			}
			return 1 + fault(rng.IntN(int(faults)-1))
		})
		defer func() { j.tr = f.inner }()
		var wg sync.WaitGroup
		for i := range operations {
			wg.Go(func() {
				op := fmt.Sprintf("run-%d-op-%d", runs, i)
				acked, lost := compete(rt, j, op, 1+i%2)
				clean := *j
				clean.tr = connection{j.nc}
				records, err := clean.Load(context.Background(), "acme", op)
				if err != nil {
					rt.Errorf("load: %v", err)
					return
				}
				stored := checkChain(t, records)
				for _, id := range acked {
					if stored[id] != 1 {
						rt.Errorf("an acknowledged event is stored %d times", stored[id])
					}
				}
				for _, id := range lost {
					if stored[id] != 0 {
						rt.Errorf("an event that lost is stored")
					}
				}
				if len(stored) != len(acked) {
					rt.Errorf("%d stored, %d acknowledged", len(stored), len(acked))
				}
			})
		}
		wg.Wait()
	})
}

// stuck answers nothing until it is let go, and notes what it is asked.
type stuck struct {
	transport
	free  chan struct{}
	asked chan string
}

func (s *stuck) request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	s.asked <- msg.Subject
	select {
	case <-s.free:
		return nil, nats.ErrTimeout
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// While the stream does not answer, those that give up leave the queue: what
// nobody waits for any more is not published when it answers again.
func TestWhoGivesUpInTheQueueIsNotPublishedLater(t *testing.T) {
	t.Parallel()
	j := &Journal{call: time.Minute}
	s := &stuck{free: make(chan struct{}), asked: make(chan string, 10)}
	j.tr = s
	c := newCommitter(j, false)
	ctx, giveUp := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.publish(t.Context(), nats.NewMsg("first")) })
	if got := <-s.asked; got != "first" {
		t.Fatalf("asked %s, want first", got)
	}
	wg.Go(func() { c.publish(ctx, nats.NewMsg("given-up")) })
	natstest.Eventually(t, 10*time.Second, "one in the queue", func() bool { return c.waiting() == 1 })
	giveUp()
	wg.Go(func() { c.publish(t.Context(), nats.NewMsg("last")) })
	natstest.Eventually(t, 10*time.Second, "two in the queue", func() bool { return c.waiting() == 2 })
	close(s.free)
	wg.Wait()
	natstest.Eventually(t, 10*time.Second, "the end of the queue", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.draining
	})
	close(s.asked)
	for got := range s.asked {
		if got != "last" {
			t.Errorf("asked %s after that, want last only", got)
		}
	}
}

func (c *committer) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}

// A batch is bounded in bytes, too: many large events are not one request.
func TestBatchIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	c := newCommitter(nil, false)
	for i := range 20 {
		m := nats.NewMsg(fmt.Sprintf("s.%d", i))
		m.Data = make([]byte, events.MaxEventSize)
		c.queue = append(c.queue, &waiting{ctx: t.Context(), msg: m})
	}
	n := 0
	for round := c.next(); len(round) > 0; round = c.next() {
		bytes := 0
		for _, w := range round {
			bytes += len(w.msg.Data)
		}
		if n += len(round); bytes > maxBatchBytes {
			t.Errorf("a round of %d bytes, at most %d", bytes, maxBatchBytes)
		}
	}
	if n != 20 {
		t.Errorf("%d of 20 came out", n)
	}
}

// Appends to one subject at the same time never share a batch.
func TestOneSubjectNeverStandsTwiceInABatch(t *testing.T) {
	t.Parallel()
	c := newCommitter(nil, false)
	for i := range 10 {
		c.queue = append(c.queue, &waiting{ctx: t.Context(), msg: nats.NewMsg(fmt.Sprintf("s.%d", i%3))})
	}
	var sizes []int
	for round := c.next(); len(round) > 0; round = c.next() {
		seen := make(map[string]bool)
		for _, w := range round {
			if seen[w.msg.Subject] {
				t.Fatalf("%s stands twice in a round", w.msg.Subject)
			}
			seen[w.msg.Subject] = true
		}
		sizes = append(sizes, len(round))
	}
	if fmt.Sprint(sizes) != "[3 3 3 1]" {
		t.Errorf("rounds of %v, want all ten in four", sizes)
	}
}
