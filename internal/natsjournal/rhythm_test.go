package natsjournal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
)

type headed struct {
	jetstream.Msg
	headers nats.Header
}

func (h headed) Headers() nats.Header { return h.headers }

// What this process has written gathers and is read together. What others write is
// read as it comes: no wait between two fetches, and each asks for as much as it may.
func TestOnlyOwnEventsGather(t *testing.T) {
	t.Parallel()
	event := func(id string) headed {
		return headed{headers: nats.Header{jetstream.MsgIDHeader: {id}, events.HeaderVersion: {"1"}}}
	}
	system := headed{headers: nats.Header{jetstream.MsgIDHeader: {"theirs"}}}
	own := func(id string) bool { return id == "ours" }
	for name, c := range map[string]struct {
		own     func(string) bool
		seen    []headed
		pending uint64
		want    int
		waits   bool
	}{
		"nothing came":                      {own, nil, 0, 100, false},
		"ours":                              {own, []headed{event("ours"), event("ours")}, 0, 1, true},
		"ours, and more have gathered":      {own, []headed{event("ours")}, 42, 42, false},
		"ours, and more than one may fetch": {own, []headed{event("ours")}, 4200, 100, false},
		"ours and a system record":          {own, []headed{event("ours"), system}, 0, 1, true},
		"one of others between ours":        {own, []headed{event("ours"), event("theirs"), event("ours")}, 0, 100, false},
		"one of others, and more":           {own, []headed{event("theirs")}, 42, 100, false},
		"nobody knows whose":                {nil, []headed{event("ours")}, 0, 100, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := rhythm{own: c.own}
				for _, m := range c.seen {
					r.saw(m, &jetstream.MsgMetadata{NumPending: c.pending})
				}
				began := time.Now()
				if got := r.next(t.Context(), 100); got != c.want {
					t.Errorf("got a fetch of %d, want %d", got, c.want)
				}
				if got := time.Since(began); (got == gatherFor) != c.waits || (got != 0) != c.waits {
					t.Errorf("waited %s", got)
				}
				if got := r.next(t.Context(), 100); got != 100 { // and after a fetch that brought nothing
					t.Errorf("got a fetch of %d, want 100", got)
				}
			})
		})
	}
}

func TestNobodyGathersAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r, began := rhythm{own: func(string) bool { return true }, some: true}, time.Now()
		if r.next(ctx, 100); time.Since(began) != 0 {
			t.Errorf("waited %s", time.Since(began))
		}
	})
}

// Own events cost the server few requests, each for all that have gathered: those of a
// walk, and those of a follower that is alone. Where followers share a consumer, a request
// is open all the time, or another process would get what was meant for this one.
func TestOwnEventsAreAskedForTogether(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		read    func(context.Context, *Journal) error
		gathers bool
	}{
		"walk": {func(ctx context.Context, j *Journal) error {
			return j.Walk(ctx, 1, 0, func(events.Record) error { return nil })
		}, true},
		"follower that is alone": {func(ctx context.Context, j *Journal) error {
			return j.Follow(ctx, FollowOptions{Durable: "exec", Gather: true}, func(Hint) {})
		}, true},
		"follower": {func(ctx context.Context, j *Journal) error {
			return j.Follow(ctx, FollowOptions{Durable: "exec"}, func(Hint) {})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := setup(t, natstest.Server(t), Config{
				Topology: Topology{Tenants: []string{"acme"}}, Own: func(string) bool { return true },
			})
			var whole, one, some atomic.Int64
			_, err := j.nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT.>", func(m *nats.Msg) {
				var req struct {
					Batch int `json:"batch"`
				}
				switch err := json.Unmarshal(m.Data, &req); {
				case err != nil:
					t.Errorf("%s: %v", m.Data, err)
				case req.Batch == 1:
					one.Add(1)
				case req.Batch == tailBatch, req.Batch == followBatch:
					whole.Add(1)
				default:
					some.Add(1)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- c.read(ctx, j) }()
			written := 0
			natstest.Eventually(t, patience, "requests for what has gathered", func() bool {
				for range 20 {
					appendNext(t, j, fmt.Sprint("op-", written))
					written++
				}
				return some.Load() >= 3 || !c.gathers && whole.Load() >= 3
			})
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if gathered := one.Load() > 0 && some.Load() > 0; gathered != c.gathers {
				t.Errorf("%d events: %d requests for one, %d for what had gathered, %d for more", written, one.Load(), some.Load(), whole.Load())
			}
		})
	}
}

// Readers get every event once and in order, whoever has written which, while they
// read together, one by one, and change between the two.
func TestGatheringMissesNothing(t *testing.T) {
	t.Parallel()
	var theirs atomic.Bool
	j := setup(t, natstest.Server(t), Config{
		Topology: Topology{Tenants: []string{"acme"}}, Own: func(string) bool { return !theirs.Load() },
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var walked, hinted []uint64
	note := func(to *[]uint64, seq uint64) {
		mu.Lock()
		defer mu.Unlock()
		*to = append(*to, seq)
	}
	done := make(chan error, 2)
	go func() {
		done <- j.Walk(ctx, 1, 0, func(r events.Record) error { note(&walked, r.Seq); return nil })
	}()
	go func() {
		done <- j.Follow(ctx, FollowOptions{Durable: "exec", All: true, Gather: true}, func(h Hint) { note(&hinted, h.Seq) })
	}()
	var want []uint64
	for turn := range 6 {
		theirs.Store(turn%3 == 2)
		for i := range 40 {
			want = append(want, appendNext(t, j, fmt.Sprintf("op-%d-%d", turn, i)).Seq)
		}
		natstest.Eventually(t, patience, "reading", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(walked) >= len(want) && len(hinted) >= len(want)
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(walked, want) || !slices.Equal(hinted, want) {
		t.Errorf("walked %v, hinted %v, want 1 to %d", walked, hinted, len(want))
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
