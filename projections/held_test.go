package projections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
	"github.com/opledger/opledger/operation"
)

// step is one message in the life of an operation, and how long after it the next
// comes.
type step struct {
	data events.Payload
	wait time.Duration
}

// The entry of an operation that goes its way is written once for its events; what
// somebody may wait for is written at once, and nothing waits longer than holdFor.
func TestOperationThatGoesItsWayIsWrittenOnce(t *testing.T) {
	t.Parallel()
	started := events.AttemptStarted{AttemptID: "a", Number: 1, Worker: "w", LeaseMS: 1000}
	confirmed := events.ResultConfirmed{ExternalID: "T-1", Via: events.ViaResponse, AttemptID: "a"}
	unknown := events.OutcomeUnknown{AttemptID: "a", Reason: events.UnknownTimeout, Next: events.Next{Action: events.NextReconcile, At: time.Now()}}
	short := holdFor / 4
	for name, row := range map[string]struct {
		steps []step
		want  string // the versions that were written
	}{
		"confirmed soon":    {[]step{{intent("op"), short}, {started, short}, {confirmed, 0}}, "[3]"},
		"confirmed late":    {[]step{{intent("op"), short}, {started, holdFor}, {confirmed, 0}}, "[2 3]"},
		"unknown":           {[]step{{intent("op"), short}, {started, short}, {unknown, short}, {confirmed, 0}}, "[3 4]"},
		"not attempted":     {[]step{{intent("op"), holdFor}}, "[1]"},
		"put up for review": {[]step{{intent("op"), short}, {events.ReviewOpened{Reason: events.ReviewNoEvidence, Next: events.Next{Action: events.NextDecision}}, 0}}, "[2]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, natstest.Server(t))
			var told []uint64
			p := l.projector(func(s operation.State) { told = append(told, s.Version) })
			if err := p.resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			var wrote []uint64
			write := func(slots []*slot) {
				for _, s := range slots {
					wrote = append(wrote, s.state.Version)
				}
				if err := p.write(t.Context(), slots); err != nil {
					t.Fatal(err)
				}
			}
			now := time.Now()
			for i, st := range row.steps {
				l.append("op", st.data)
				r, err := l.j.Read(t.Context(), uint64(i+1))
				if err != nil {
					t.Fatal(err)
				}
				if err := p.take(t.Context(), []events.Record{r}, now); err != nil {
					t.Fatal(err)
				}
				write(p.due(now))
				if want := uint64(i + 1); p.folded.Load() != want || len(told) != i+1 || (len(p.held) > 0) != (p.Applied() < want) {
					t.Errorf("after message %d: folded %d, told %v, written up to %d with %d held", want, p.folded.Load(), told, p.Applied(), len(p.held))
				}
				now = now.Add(st.wait)
				write(p.due(now))
			}
			if fmt.Sprint(wrote) != row.want || len(p.held) != 0 {
				t.Errorf("got versions %v written and %d held, want %s", wrote, len(p.held), row.want)
			}
			l.checkEntries()
		})
	}
}

// deaf is a bucket that does not get what is sent to it.
type deaf struct{ *bucket }

func (deaf) send(m *nats.Msg) (jetstream.PubAckFuture, error) {
	return future{m: m, ok: make(chan *jetstream.PubAck), err: make(chan error)}, nil
}

// The checkpoint of a stop vouches for every entry up to its message, also where the
// stop came while entries were being written.
func TestStopWhileWritingLeavesNothingUnwritten(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	if err := p.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	const operations = 50
	var batch []events.Record
	for n := range operations {
		op := fmt.Sprint("op-", n)
		l.append(op, intent(op))
		r, err := l.j.Read(t.Context(), uint64(n+1))
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, r)
	}
	now := time.Now()
	if err := p.take(t.Context(), batch, now); err != nil {
		t.Fatal(err)
	}
	p.cells = deaf{p.b}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := p.write(stopped, p.due(now.Add(holdFor))); !errors.Is(err, context.Canceled) {
		t.Fatalf("got error %v, want that of the context", err)
	}
	p.cells = p.b
	if err := p.stop(stopped); err != nil {
		t.Fatal(err)
	}
	v, err := l.b.last(t.Context(), checkpointKey)
	if err != nil {
		t.Fatal(err)
	}
	var cp checkpoint
	if err := json.Unmarshal(v.data, &cp); err != nil || !cp.Clean || cp.Seq != operations {
		t.Errorf("got checkpoint %s, error %v, want a clean one at %d", v.data, err, operations)
	}
	l.checkEntries()
}
