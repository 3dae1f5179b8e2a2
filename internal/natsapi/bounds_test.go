package natsapi

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
)

// slow is a service that answers when it is released.
type slow struct {
	Service
	gets, waits atomic.Int64
	release     chan struct{}
}

func (s *slow) Get(context.Context, string, []byte) (api.Answer, *api.Problem) {
	s.gets.Add(1)
	<-s.release
	return api.Answer{}, nil
}

func (s *slow) Wait(ctx context.Context, _ string, _ []byte) (api.Answer, *api.Problem) {
	s.waits.Add(1)
	select {
	case <-s.release:
	case <-ctx.Done():
	}
	return api.Answer{}, nil
}

// So many requests are answered at once and no more; those beyond it wait their
// turn and are answered. A wait beyond its bound is refused and says what to do;
// neither takes the other's places.
func TestRequestsAtOnceAreBoundedExactly(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	svc := &slow{release: make(chan struct{})}
	subjects := events.Subjects{}
	s, err := Start(t.Context(), Config{Conn: nc, Subjects: subjects, Service: svc, Version: "0.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	inbox := nats.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(verb string, n int) {
		t.Helper()
		for range n {
			if err := nc.PublishRequest(subjects.API("acme", verb), inbox, []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
	}
	const patience = 20 * time.Second
	ask(api.VerbWait, MaxWaiters)
	natstest.Eventually(t, patience, "as many waits as there may be", func() bool { return svc.waits.Load() == MaxWaiters })
	ask(api.VerbWait, 1)
	m, err := answers.NextMsg(patience)
	if err != nil || !strings.Contains(string(m.Data), string(api.ProblemUnavailable)) || !strings.Contains(string(m.Data), "ask with get") {
		t.Fatalf("one wait more: got %v, %v", m, err)
	}
	ask(api.VerbGet, MaxRequests+1)
	natstest.Eventually(t, patience, "as many requests as there may be", func() bool { return svc.gets.Load() == MaxRequests })
	if m, err := answers.NextMsg(100 * time.Millisecond); err == nil {
		t.Errorf("one request more was answered: %s", m.Data)
	}
	if n := svc.gets.Load(); n != MaxRequests {
		t.Errorf("got %d requests at once, want %d", n, MaxRequests)
	}
	close(svc.release)
	for n := range MaxWaiters + MaxRequests + 1 {
		if _, err := answers.NextMsg(patience); err != nil {
			t.Fatalf("after %d answers: %v", n, err)
		}
	}
}
