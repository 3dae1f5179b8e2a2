package natsjournal

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
)

// gatherFor is how long messages may gather that are known already.
const gatherFor = 20 * time.Millisecond

// rhythm says when a reader of the journal asks for more, and for how much. What this
// process has written into the log it need not hear from there: its writer has told whom
// it concerns. While only such events come, they gather for a moment and are read
// together, which costs a fraction of reading each as it comes. Where others write, too,
// each is read as it comes: an event of theirs can be late by gatherFor once, and then for
// the length of a fetch none is.
type rhythm struct {
	// own reports whether an event is ours; nil means that none is.
	own func(id string) bool
	// some: the last fetch brought something; foreign: something that is not ours.
	some, foreign bool
	// pending is how many messages were stored behind the last one.
	pending uint64
}

func (j *Journal) rhythm(stream string) rhythm {
	if stream != j.names.Events {
		return rhythm{}
	}
	return rhythm{own: j.own}
}

// next returns how many messages to ask for, at most that many, and may let some
// gather before.
func (r *rhythm) next(ctx context.Context, atMost int) int {
	gather := r.own != nil && r.some && !r.foreign
	r.some, r.foreign = false, false
	switch {
	case !gather:
		return atMost
	case r.pending > 0: // all that have gathered, and no wait for more
		return int(min(r.pending, uint64(atMost)))
	}
	timer := time.NewTimer(gatherFor)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return 1 // it tells how many there are
}

// saw takes note of a message. What is not an event of an operation has no hurry.
func (r *rhythm) saw(m jetstream.Msg, meta *jetstream.MsgMetadata) {
	r.some, r.pending = true, meta.NumPending
	if r.own == nil || r.foreign || m.Headers().Get(events.HeaderVersion) == "" {
		return
	}
	r.foreign = !r.own(m.Headers().Get(jetstream.MsgIDHeader))
}
