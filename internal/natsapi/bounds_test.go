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
	gets, waits, submits, turnedAway atomic.Int64
	release                          chan struct{}
}

// SubmitAndWait has the intent recorded at once.
func (s *slow) SubmitAndWait(_ context.Context, _ string, _ []byte, wait func() (context.Context, bool)) (api.Answer, *api.Problem) {
	ctx, ok := wait()
	if !ok {
		s.turnedAway.Add(1)
		return api.Answer{}, nil
	}
	if _, bounded := ctx.Deadline(); bounded {
		return api.Answer{}, api.NewProblem(api.ProblemUnavailable, "cut off with the request")
	}
	s.submits.Add(1)
	select {
	case <-s.release:
	case <-ctx.Done():
	}
	return api.Answer{}, nil
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

const patience = 20 * time.Second

// serve runs a slow service. ask sends n requests, whose answers come one after
// the other.
func serve(t *testing.T) (s *Server, svc *slow, ask func(verb string, n int), answers *nats.Subscription) {
	t.Helper()
	nc := natstest.Connect(t, natstest.Server(t))
	svc = &slow{release: make(chan struct{})}
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
	if answers, err = nc.SubscribeSync(inbox); err != nil {
		t.Fatal(err)
	}
	ask = func(verb string, n int) {
		t.Helper()
		for range n {
			if err := nc.PublishRequest(subjects.API("acme", verb), inbox, []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s, svc, ask, answers
}

// So many requests are answered at once and no more; those beyond it wait their
// turn and are answered. A wait beyond its bound is refused and says what to do;
// neither takes the other's places.
func TestRequestsAtOnceAreBoundedExactly(t *testing.T) {
	t.Parallel()
	_, svc, ask, answers := serve(t)
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

// A submit that waits counts among the waits and takes no place of the requests
// that are answered at once, nor is it cut off with them; one that finds no room to
// wait is answered at once. Those that wait are answered when the server stops.
func TestSubmitsThatWaitTakeThePlacesOfWaits(t *testing.T) {
	t.Parallel()
	s, svc, ask, answers := serve(t)
	ask(api.VerbSubmit, MaxWaiters)
	natstest.Eventually(t, patience, "as many waits as there may be", func() bool { return svc.submits.Load() == MaxWaiters })
	ask(api.VerbSubmit, 1)
	if m, err := answers.NextMsg(patience); err != nil || svc.turnedAway.Load() != 1 {
		t.Fatalf("one submit more: got %v, %v, %d turned away", m, err, svc.turnedAway.Load())
	}
	ask(api.VerbWait, 1)
	if m, err := answers.NextMsg(patience); err != nil || !strings.Contains(string(m.Data), "ask with get") {
		t.Fatalf("one wait more: got %v, %v", m, err)
	}
	ask(api.VerbGet, MaxRequests)
	natstest.Eventually(t, patience, "all the places of other requests", func() bool { return svc.gets.Load() == MaxRequests })
	stopped := make(chan error)
	go func() { stopped <- s.Stop() }()
	for n := range MaxWaiters {
		if m, err := answers.NextMsg(patience); err != nil || strings.Contains(string(m.Data), "cut off") {
			t.Fatalf("after %d answers: %v, %v", n, m, err)
		}
	}
	close(svc.release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
