package natsjournal

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// On one node that syncs every message, a message costs one sync of the disk, and
// the stream takes one after the other: appends at the same time wait for each
// other. An atomic batch costs a few syncs, whatever it holds (nats-server 2.15
// stages it in files of its own). So appends that wait at the same moment go
// together: one by one while they are few, as one batch across operations when
// they are many.
//
// Nothing of what makes an append safe depends on it. Each event keeps its own
// compare-and-swap and its own id; a batch is taken or refused as a whole. Only a
// plain acknowledgement of the whole batch is a verdict. After anything else each
// event goes alone and in doubt, as after any answer that is none.
const (
	// maxBatch is how many events go together; the server's limit is 1000.
	maxBatch = 256
	// maxBatchBytes bounds what their bodies hold together.
	maxBatchBytes = 4 << 20
	// minBatch is the smallest batch that is ever worth its files.
	minBatch = 4
	// sureBatch is worth it whatever the last measurements say.
	sureBatch = 48
	// The first guesses of what a single append and a batch take.
	firstSingle = time.Millisecond
	firstBatch  = 6 * time.Millisecond
)

// Headers of atomic batches (nats-server ADR-50).
const (
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
)

// committer hands appends over to the stream.
type committer struct {
	j *Journal
	// apart: never in batches.
	apart bool

	mu    sync.Mutex
	queue []*waiting
	// draining: somebody takes the queue.
	draining bool
	// single and batch are what an append alone and a batch have taken lately.
	single, batch time.Duration
}

// waiting is one append in the queue.
type waiting struct {
	ctx     context.Context //nolint:containedctx // that of whoever waits
	msg     *nats.Msg
	verdict chan pubAck
}

func newCommitter(j *Journal, apart bool) *committer {
	return &committer{j: j, apart: apart, single: firstSingle, batch: firstBatch}
}

// publish hands one append over and returns what the stream said of it. When ctx
// ends first, it may still be published if that is under way.
func (c *committer) publish(ctx context.Context, msg *nats.Msg) pubAck {
	if c.apart {
		return c.j.publish(ctx, msg)
	}
	w := &waiting{ctx: ctx, msg: msg, verdict: make(chan pubAck, 1)}
	c.mu.Lock()
	c.queue = append(c.queue, w)
	if !c.draining {
		c.draining = true
		go c.drain() //nolint:contextcheck // it serves all that wait, not this one
	}
	c.mu.Unlock()
	select {
	case ack := <-w.verdict:
		return ack
	case <-ctx.Done():
		return pubAck{err: ctx.Err()}
	}
}

// drain takes the queue round by round until nobody waits.
func (c *committer) drain() {
	for {
		round := c.next()
		if len(round) == 0 {
			return
		}
		c.mu.Lock()
		together := c.worth(len(round))
		c.mu.Unlock()
		began := time.Now()
		if together {
			c.together(round)
		} else {
			c.oneByOne(round)
		}
		c.learn(together, len(round), time.Since(began))
	}
}

// next takes the next round: one append of a subject at most, since the second
// one's compare-and-swap would be held against the state before the batch.
func (c *committer) next() []*waiting {
	c.mu.Lock()
	defer c.mu.Unlock()
	var round, rest []*waiting
	subjects := make(map[string]bool)
	size := 0
	for _, w := range c.queue {
		if w.ctx.Err() != nil {
			continue // given up, and never published
		}
		full := len(round) == maxBatch || (size > 0 && size+len(w.msg.Data) > maxBatchBytes)
		if full || subjects[w.msg.Subject] {
			rest = append(rest, w)
			continue
		}
		size += len(w.msg.Data)
		subjects[w.msg.Subject] = true
		round = append(round, w)
	}
	c.queue = rest
	c.draining = len(round) > 0
	return round
}

// worth reports whether n appends are quicker as a batch.
func (c *committer) worth(n int) bool {
	return n >= sureBatch || (n >= minBatch && time.Duration(n)*c.single > c.batch)
}

// learn keeps a moving mean of what both ways take.
func (c *committer) learn(together bool, n int, took time.Duration) {
	const weight = 8
	c.mu.Lock()
	defer c.mu.Unlock()
	if together {
		c.batch += (took - c.batch) / weight
		return
	}
	c.single += (took/time.Duration(n) - c.single) / weight
}

func (c *committer) oneByOne(round []*waiting) {
	var wg sync.WaitGroup
	for _, w := range round {
		wg.Go(func() { w.verdict <- c.j.publish(context.Background(), w.msg) })
	}
	wg.Wait()
}

// together publishes a round as one atomic batch.
func (c *committer) together(round []*waiting) {
	acks, err := c.j.publishBatch(context.Background(), round)
	for i, w := range round {
		if err != nil {
			// Nobody knows, or it is refused as a whole: each goes on alone.
			w.verdict <- pubAck{err: fmt.Errorf("in a batch of %d: %w", len(round), err)}
			continue
		}
		w.verdict <- acks[i]
	}
}

// batchAck is the answer to the last message of a batch.
type batchAck struct {
	pubAck
	Batch string `json:"batch"`
	Count int    `json:"count"`
}

func (j *Journal) publishBatch(ctx context.Context, round []*waiting) ([]pubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, j.call)
	defer cancel()
	id := nuid.Next()
	var answer *nats.Msg
	for i, w := range round {
		m := &nats.Msg{Subject: w.msg.Subject, Data: w.msg.Data, Header: maps.Clone(w.msg.Header)}
		m.Header.Set(headerBatchID, id)
		m.Header.Set(headerBatchSequence, strconv.Itoa(i+1))
		var err error
		if i < len(round)-1 {
			err = j.tr.publish(m)
		} else {
			m.Header.Set(headerBatchCommit, "1")
			answer, err = j.tr.request(ctx, m)
		}
		if err != nil {
			return nil, err
		}
	}
	var ack batchAck
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return nil, fmt.Errorf("unreadable acknowledgement: %w", err)
	}
	n := uint64(len(round))
	switch {
	case ack.Error != nil:
		return nil, ack.Error
	case ack.Duplicate || ack.Stream != j.names.Events || ack.Batch != id || uint64(ack.Count) != n || ack.Seq < n:
		return nil, fmt.Errorf("acknowledgement of another batch: %d messages up to %d", ack.Count, ack.Seq)
	}
	// The messages of a batch stand side by side; the answer names the last.
	acks := make([]pubAck, n)
	for i := range acks {
		acks[i] = pubAck{Stream: ack.Stream, Seq: ack.Seq - n + 1 + uint64(i), answered: true}
	}
	return acks, nil
}
