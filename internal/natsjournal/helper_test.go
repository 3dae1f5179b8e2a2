package natsjournal

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
)

// setup sets a ledger up on s and opens it.
func setup(t testing.TB, s nats.InProcessConnProvider, cfg Config) *Journal {
	t.Helper()
	nc := natstest.Connect(t, s)
	if _, err := Setup(t.Context(), natstest.JetStream(t, nc), cfg.Topology); err != nil {
		t.Fatalf("setup: %v", err)
	}
	j, err := Open(t.Context(), nc, cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return j
}

func journal(t testing.TB) *Journal {
	return setup(t, natstest.Server(t), Config{Topology: Topology{Tenants: []string{"acme"}}})
}

// after drafts the next event of an operation: an intent first, then notes.
func after(operation string, records []events.Record) (e events.Event, expected uint64) {
	e = events.Event{
		ID: events.NewID(), Tenant: "acme", Operation: operation, Version: 1,
		Time: time.Now(), Data: events.IntentRecorded{Provider: "crm", Action: "task.create"},
	}
	for _, r := range records {
		expected = r.Seq
		if r.Err == nil {
			e.Version, e.Prev = r.Version+1, events.Digest(r.Body)
		}
	}
	if e.Version > 1 {
		e.Data = events.ReviewUpdated{Decision: events.DecideNote, SeenVersion: e.Version - 1}
	}
	return e, expected
}

// appendNext appends one event to an operation, whatever is there.
func appendNext(t testing.TB, j *Journal, operation string) events.Record {
	t.Helper()
	records, err := j.Load(t.Context(), "acme", operation)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	e, expected := after(operation, records)
	r, err := j.Append(t.Context(), e, expected)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return r
}

// checkChain fails unless the versions have no gap and each event names the
// digest of the one before it (I13). It returns how often each id is stored.
func checkChain(t testing.TB, records []events.Record) map[string]int {
	t.Helper()
	ids := map[string]int{}
	prev := ""
	for i, r := range records {
		if r.Err != nil {
			t.Fatalf("record %d: %v", i, r.Err)
		}
		if r.Version != uint64(i+1) || r.Prev != prev {
			t.Fatalf("record %d: version %d, prev %q, want %d, %q", i, r.Version, r.Prev, i+1, prev)
		}
		prev = events.Digest(r.Body)
		ids[r.ID]++
	}
	return ids
}

func load(t testing.TB, j *Journal, operation string) []events.Record {
	t.Helper()
	records, err := j.Load(t.Context(), "acme", operation)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return records
}

// fault is what goes wrong with one request.
type fault int

const (
	none        fault = iota
	losePublish       // it never arrives, no answer
	loseAnswer        // it arrives, the answer is lost
	duplicate         // it arrives, the answer says duplicate
	inFlight          // 10164 although nothing is there
	inProcess         // 10158
	unnumbered        // it arrives, the answer is 10071 without a number
	unavailable       // 503, did not arrive
	disconnect        // it arrives, the connection breaks
	nobody            // no responders, did not arrive
	garbage           // it arrives, the answer can't be read
	otherStream       // it arrives, somebody else acknowledges
	faults
)

// faulty breaks publishes as told; reads are broken by brokenReads.
type faulty struct {
	inner transport
	mu    sync.Mutex
	// next returns what happens to the next publish.
	next        func() fault
	brokenReads func() bool
}

func (f *faulty) request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	f.mu.Lock()
	what, read := none, len(msg.Header) == 0
	broken := read && f.brokenReads != nil && f.brokenReads()
	if !read {
		what = f.next()
	}
	f.mu.Unlock()
	if broken {
		return nil, context.DeadlineExceeded
	}
	switch what {
	case losePublish:
		return nil, context.DeadlineExceeded
	case inFlight:
		return answer(`{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"}}`), nil
	case inProcess:
		return answer(`{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"}}`), nil
	case unavailable:
		return answer(`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`), nil
	case nobody:
		return nil, nats.ErrNoResponders
	}
	got, err := f.inner.request(ctx, msg)
	if err != nil {
		return nil, err
	}
	switch what {
	case loseAnswer:
		return nil, context.DeadlineExceeded
	case disconnect:
		return nil, nats.ErrDisconnected
	case duplicate:
		var ack pubAck
		if json.Unmarshal(got.Data, &ack) == nil && ack.Error == nil {
			return answer(`{"stream":"OPLEDGER_EVENTS","seq":1,"duplicate":true}`), nil
		}
	case unnumbered:
		return answer(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence"}}`), nil
	case garbage:
		return answer(`<html>`), nil
	case otherStream:
		return answer(`{"stream":"OTHER","seq":99}`), nil
	}
	return got, nil
}

// publish breaks what gets no answer of its own: it is lost where the fault of a
// publish is that it never arrives.
func (f *faulty) publish(msg *nats.Msg) error {
	f.mu.Lock()
	what := f.next()
	f.mu.Unlock()
	switch what {
	case losePublish, unavailable, inFlight, inProcess:
		return nil
	case nobody:
		return nats.ErrNoResponders
	case disconnect:
		return nats.ErrDisconnected
	}
	return f.inner.publish(msg)
}

func answer(body string) *nats.Msg { return &nats.Msg{Data: []byte(body)} }

// script breaks the first publishes as listed and none after them.
func script(list ...fault) func() fault {
	return func() fault {
		if len(list) == 0 {
			return none
		}
		f := list[0]
		list = list[1:]
		return f
	}
}

// breakNext puts faults between j and its connection.
func breakNext(j *Journal, next func() fault) *faulty {
	f := &faulty{inner: connection{j.nc}, next: next}
	j.tr = f
	return f
}

func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}
