package natsjournal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
)

const patience = 30 * time.Second

func TestReplayPassesWhatItsOptionsSelect(t *testing.T) {
	t.Parallel()
	j := journal(t)
	for range 3 { // sequences 1 to 9
		appendNext(t, j, "a")
		appendNext(t, j, "b")
		if _, err := j.AppendSystem(t.Context(), events.System{Kind: events.SystemCheckpoint}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.js.Publish(t.Context(), "opledger.events.globex.c", []byte("{")); err != nil { // 10
		t.Fatal(err)
	}
	tenth, err := j.Read(t.Context(), 10)
	if err != nil || tenth.Err == nil {
		t.Fatalf("got %+v, %v, want a malformed record", tenth, err)
	}
	for name, c := range map[string]struct {
		options ReplayOptions
		want    []uint64
	}{
		"everything":          {ReplayOptions{System: true}, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		"events":              {ReplayOptions{}, []uint64{1, 2, 4, 5, 7, 8, 10}},
		"one tenant":          {ReplayOptions{Tenant: "acme"}, []uint64{1, 2, 4, 5, 7, 8}},
		"one operation":       {ReplayOptions{Tenant: "acme", Operation: "b"}, []uint64{2, 5, 8}},
		"a range":             {ReplayOptions{FromSeq: 3, ToSeq: 6}, []uint64{4, 5}},
		"a range in a gap":    {ReplayOptions{FromSeq: 9, ToSeq: 9}, nil},
		"beyond the end":      {ReplayOptions{FromSeq: 11}, nil},
		"since the last":      {ReplayOptions{Since: tenth.Stamp}, []uint64{10}},
		"an absent operation": {ReplayOptions{Tenant: "acme", Operation: "z"}, nil},
		"follow up to eight":  {ReplayOptions{Follow: true, ToSeq: 8}, []uint64{1, 2, 4, 5, 7, 8}},
	} {
		var got, progress []uint64
		c.options.Progress = func(seq uint64) { progress = append(progress, seq) }
		err := j.Replay(t.Context(), c.options, func(r events.Record) error {
			got = append(got, r.Seq)
			return nil
		})
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) || fmt.Sprint(progress) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %v, progress %v, error %v, want %v", name, got, progress, err, c.want)
		}
	}
}

func TestReplayOfAnEmptyJournalEnds(t *testing.T) {
	t.Parallel()
	j := journal(t)
	err := j.Replay(t.Context(), ReplayOptions{}, func(events.Record) error { return errors.New("there is nothing") })
	if err != nil {
		t.Error(err)
	}
}

func TestReplayEndsWithTheErrorOfItsReader(t *testing.T) {
	t.Parallel()
	j := journal(t)
	appendNext(t, j, "op")
	boom := errors.New("boom")
	wantError(t, j.Replay(t.Context(), ReplayOptions{}, func(events.Record) error { return boom }), boom)
}

// A walk goes on in order and without a gap while its consumer is deleted under
// it and while the server restarts.
func TestWalkSurvivesLossOfConsumerAndServer(t *testing.T) {
	t.Parallel()
	node := natstest.NewNode(t)
	j := setup(t, node, Config{CallTimeout: 500 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen atomic.Uint64
	done := make(chan error, 1)
	go func() {
		done <- j.Walk(ctx, 1, 0, func(r events.Record) error {
			if r.Seq != seen.Load()+1 {
				return fmt.Errorf("got sequence %d after %d", r.Seq, seen.Load())
			}
			seen.Store(r.Seq)
			return nil
		})
	}()
	reach := func(want uint64) {
		t.Helper()
		natstest.Eventually(t, patience, fmt.Sprintf("reading up to %d", want), func() bool {
			select {
			case err := <-done:
				t.Fatalf("walk ended: %v", err)
			default:
			}
			return seen.Load() >= want
		})
	}
	for range 10 {
		appendNext(t, j, "op")
	}
	reach(10)
	for name := range j.consumerNames(t) {
		if err := j.js.DeleteConsumer(t.Context(), j.names.Events, name); err != nil {
			t.Fatal(err)
		}
	}
	appendNext(t, j, "op")
	reach(11)
	node.Stop()
	node.Start()
	natstest.Eventually(t, patience, "reconnecting", j.nc.IsConnected)
	appendNext(t, j, "op")
	reach(12)
	cancel()
	wantError(t, <-done, context.Canceled)
}

func (j *Journal) consumerNames(t *testing.T) map[string]bool {
	t.Helper()
	s, err := j.js.Stream(t.Context(), j.names.Events)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for name := range s.ConsumerNames(t.Context()).Name() {
		names[name] = true
	}
	return names
}

func TestWalkOfALostStreamEnds(t *testing.T) {
	t.Parallel()
	j := journal(t)
	appendNext(t, j, "op")
	err := j.Walk(t.Context(), 1, 0, func(events.Record) error {
		return j.js.DeleteStream(t.Context(), j.names.Events)
	})
	wantError(t, err, ErrNotFound)
}

func TestReplayLeavesNoConsumerBehind(t *testing.T) {
	t.Parallel()
	j := journal(t)
	appendNext(t, j, "op")
	if err := j.Replay(t.Context(), ReplayOptions{}, func(events.Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if names := j.consumerNames(t); len(names) != 0 {
		t.Errorf("got consumers %v, want none", names)
	}
}

// A durable hands out every event at least once, across its deletion and a
// server restart, and tells its lag.
func TestFollowSurvivesLossOfConsumerAndServer(t *testing.T) {
	t.Parallel()
	node := natstest.NewNode(t)
	j := setup(t, node, Config{CallTimeout: 500 * time.Millisecond})
	appendNext(t, j, "before")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	seen := map[uint64]bool{}
	done := make(chan error, 1)
	go func() {
		done <- j.Follow(ctx, FollowOptions{Durable: "exec"}, func(r Hint) {
			mu.Lock()
			seen[r.Seq] = true
			mu.Unlock()
		})
	}()
	has := func(seq uint64) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return seen[seq] }
	}
	natstest.Eventually(t, patience, "creating the consumer", func() bool {
		_, err := j.Lag(t.Context(), "exec")
		return err == nil
	})
	r := appendNext(t, j, "op")
	natstest.Eventually(t, patience, "the first event", has(r.Seq))
	if err := j.js.DeleteConsumer(t.Context(), j.names.Events, "exec"); err != nil {
		t.Fatal(err)
	}
	r = appendNext(t, j, "op")
	natstest.Eventually(t, patience, "the event after the deletion", has(r.Seq))
	node.Stop()
	node.Start()
	natstest.Eventually(t, patience, "reconnecting", j.nc.IsConnected)
	r = appendNext(t, j, "op")
	natstest.Eventually(t, patience, "the event after the restart", has(r.Seq))
	natstest.Eventually(t, patience, "acknowledging everything", func() bool {
		lag, err := j.Lag(t.Context(), "exec")
		return err == nil && lag.Pending == 0 && lag.AckPending == 0
	})
	if has(1)() {
		t.Error("a new consumer was handed an event from before its creation")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFollowAllBeginsWithTheFirstEvent(t *testing.T) {
	t.Parallel()
	j := journal(t)
	appendNext(t, j, "op")
	if _, err := j.js.Publish(t.Context(), "opledger.events.acme.bad", []byte("{")); err != nil {
		t.Fatal(err)
	}
	appendNext(t, j, "op")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	err := j.Follow(ctx, FollowOptions{Durable: "all", All: true}, func(r Hint) {
		got = append(got, fmt.Sprint(r.Seq, r.Operation, r.Kind, r.Version))
		if r.Seq == 3 {
			cancel()
		}
	})
	if err != nil || fmt.Sprint(got) != "[1opIntentRecorded1 2bad0 3opReviewUpdated2]" {
		t.Errorf("got %v, error %v, want all three, the second malformed", got, err)
	}
}

// A hint costs one message without a body and no acknowledgement. Two processes that
// share the consumer get each event once between them, and what waits for nobody is
// counted.
func TestFollowersShareHintsWithoutAcknowledgingThem(t *testing.T) {
	t.Parallel()
	j := journal(t)
	appendNext(t, j, "before")
	var mu sync.Mutex
	seen := map[string]int{}
	follow := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- j.Follow(ctx, FollowOptions{Durable: "exec"}, func(h Hint) {
				mu.Lock()
				defer mu.Unlock()
				seen[h.ID]++
			})
		}()
		return func() {
			t.Helper()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	stopFirst, stopSecond := follow(), follow()
	natstest.Eventually(t, patience, "creating the consumer", func() bool {
		_, err := j.Lag(t.Context(), "exec")
		return err == nil
	})
	want := map[string]int{}
	for range 200 {
		want[appendNext(t, j, "op").ID] = 1
	}
	natstest.Eventually(t, patience, "handing out", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == len(want) })
	if !maps.Equal(seen, want) {
		t.Errorf("got %v, want each of the %d events once", seen, len(want))
	}
	c, err := j.js.Consumer(t.Context(), j.names.Events, "exec")
	if err != nil {
		t.Fatal(err)
	}
	if i := c.CachedInfo(); !i.Config.HeadersOnly || i.Config.AckPolicy != jetstream.AckNonePolicy || i.NumAckPending != 0 {
		t.Errorf("got %+v, want headers only and nothing to acknowledge", i)
	}
	stopFirst()
	stopSecond()
	natstest.Eventually(t, patience, "the fetches of the stopped ones to end", func() bool {
		c, err := j.js.Consumer(t.Context(), j.names.Events, "exec")
		return err == nil && c.CachedInfo().NumWaiting == 0
	})
	for range 7 {
		appendNext(t, j, "op")
	}
	natstest.Eventually(t, patience, "counting the 7 events that nobody has taken", func() bool {
		lag, err := j.Lag(t.Context(), "exec")
		return err == nil && lag == (Lag{Pending: 7})
	})
}

// A consumer from before, which wants every event to be acknowledged, stays what it
// is and gets that.
func TestFollowAcknowledgesWhereTheConsumerWantsIt(t *testing.T) {
	t.Parallel()
	j := journal(t)
	_, err := j.js.CreateConsumer(t.Context(), j.names.Events, jetstream.ConsumerConfig{
		Durable: "exec", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute, MaxAckPending: 2048,
		FilterSubject: j.subjects.AllEvents(""), MaxDeliver: -1, DeliverPolicy: jetstream.DeliverNewPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hints := make(chan Hint, 10)
	done := make(chan error, 1)
	go func() { done <- j.Follow(ctx, FollowOptions{Durable: "exec"}, func(h Hint) { hints <- h }) }()
	r := appendNext(t, j, "op")
	if h, want := <-hints, (Hint{Tenant: "acme", Operation: "op", ID: r.ID, Kind: events.KindIntentRecorded, Version: 1, Seq: r.Seq}); h != want {
		t.Errorf("got %+v, want %+v", h, want)
	}
	var last *jetstream.ConsumerInfo
	natstest.Eventually(t, patience, "the acknowledgement", func() bool {
		c, err := j.js.Consumer(t.Context(), j.names.Events, "exec")
		if err == nil {
			last = c.CachedInfo()
		}
		return err == nil && last.AckFloor.Stream == r.Seq && last.NumAckPending == 0
	})
	if last.Config.AckPolicy != jetstream.AckExplicitPolicy || last.Config.HeadersOnly {
		t.Errorf("got %+v, want the consumer as it was", last.Config)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An event whose headers don't say what it is was not stored by this program: its
// body is read.
func TestFollowReadsTheBodyOfAnEventWithoutHeaders(t *testing.T) {
	t.Parallel()
	j := journal(t)
	e, _ := after("op", []events.Record{appendNext(t, j, "op")})
	e.Ledger = j.Ledger()
	body, err := events.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.js.Publish(t.Context(), "opledger.events.acme.op", body); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got Hint
	err = j.Follow(ctx, FollowOptions{Durable: "all", All: true}, func(h Hint) {
		if got = h; h.Seq == 2 {
			cancel()
		}
	})
	if want := (Hint{Tenant: "acme", Operation: "op", Kind: events.KindReviewUpdated, Version: 2, Seq: 2}); err != nil || got != want {
		t.Errorf("got %+v, error %v, want %+v", got, err, want)
	}
}

// An intent is removed from the inbox only after its handler returned nil, and
// one that fails again and again does not hold up the others (I10, I14).
func TestInboxKeepsAnIntentUntilItIsHandled(t *testing.T) {
	t.Parallel()
	j := journal(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	handled, refused := map[string]uint64{}, 0
	done := make(chan error, 1)
	go func() {
		done <- j.Inbox(ctx, "acme", func(_ context.Context, m InboxMessage) error {
			mu.Lock()
			defer mu.Unlock()
			body := string(m.Data)
			if body == "poison" || (body == "later" && m.Deliveries < 2) {
				refused++
				return errors.New("not yet")
			}
			handled[body] = m.Deliveries
			return nil
		})
	}()
	for _, body := range []string{"poison", "later", "now"} {
		if _, err := j.js.Publish(t.Context(), j.subjects.Inbox("acme"), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, patience, "handling both good intents", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return handled["later"] >= 2 && handled["now"] >= 1
	})
	natstest.Eventually(t, patience, "removing them", func() bool {
		info, err := streamInfo(t.Context(), j.js, j.names.Intents("acme"))
		return err == nil && info.State.Msgs == 1
	})
	lag, err := j.InboxLag(t.Context(), "acme")
	if err != nil || lag.AckPending != 1 {
		t.Errorf("got lag %+v, error %v, want the poisoned one pending", lag, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// I10: what the inbox acknowledged is handled, although the server was stopped
// in between and the first handler died with it.
func TestAcknowledgedIntentOutlivesServerRestart(t *testing.T) {
	t.Parallel()
	node := natstest.NewNode(t)
	j := setup(t, node, Config{Topology: Topology{Tenants: []string{"acme"}}, CallTimeout: 500 * time.Millisecond})
	for i := range 20 {
		if _, err := j.js.Publish(t.Context(), j.subjects.Inbox("acme"), []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	handled, restarted := map[string]bool{}, make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- j.Inbox(ctx, "acme", func(_ context.Context, m InboxMessage) error {
			<-restarted
			mu.Lock()
			defer mu.Unlock()
			handled[string(m.Data)] = true
			return nil
		})
	}()
	natstest.Eventually(t, patience, "handing out", func() bool {
		lag, err := j.InboxLag(t.Context(), "acme")
		return err == nil && lag.AckPending > 0
	})
	node.Stop()
	node.Start()
	close(restarted)
	natstest.Eventually(t, 6*InboxAckWait, "handling all of them", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(handled) == 20
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestInboxOfAnUnknownTenantIsAnError(t *testing.T) {
	t.Parallel()
	j := journal(t)
	err := j.Inbox(t.Context(), "nobody", func(context.Context, InboxMessage) error { return nil })
	wantError(t, err, ErrNotFound)
}

func TestRefusalIsStored(t *testing.T) {
	t.Parallel()
	j := journal(t)
	if _, err := j.Refuse(t.Context(), "acme", []byte(`{"reason":"bad"}`)); err != nil {
		t.Fatal(err)
	}
	s, err := j.js.Stream(t.Context(), j.names.Refused)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(t.Context(), j.subjects.Refused("acme"))
	if err != nil || string(m.Data) != `{"reason":"bad"}` {
		t.Errorf("got %v, error %v", m, err)
	}
}

// Publishers of a tenant choose message ids; the short window keeps one from
// using up the id of another for long (facts: Msg-Id poisoning).
func TestInboxForgetsMessageIDsQuickly(t *testing.T) {
	t.Parallel()
	j := journal(t)
	publish := func() *jetstream.PubAck {
		ack, err := j.js.Publish(t.Context(), j.subjects.Inbox("acme"), []byte("x"), jetstream.WithMsgID("same"))
		if err != nil {
			t.Fatal(err)
		}
		return ack
	}
	publish()
	natstest.Eventually(t, patience, "forgetting the id", func() bool { return !publish().Duplicate })
}
