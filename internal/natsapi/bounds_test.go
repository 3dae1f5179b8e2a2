package natsapi

import (
	"context"
	"fmt"
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
func serve(t *testing.T) (s *Server, svc *slow, ask func(tenant, verb string, n int), answers *nats.Subscription) {
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
	ask = func(tenant, verb string, n int) {
		t.Helper()
		for range n {
			if err := nc.PublishRequest(subjects.API(tenant, verb), inbox, []byte("{}")); err != nil {
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
	ask("acme", api.VerbWait, MaxWaiters)
	natstest.Eventually(t, patience, "as many waits as there may be", func() bool { return svc.waits.Load() == MaxWaiters })
	ask("acme", api.VerbWait, 1)
	m, err := answers.NextMsg(patience)
	if err != nil || !strings.Contains(string(m.Data), string(api.ProblemUnavailable)) || !strings.Contains(string(m.Data), "ask with get") {
		t.Fatalf("one wait more: got %v, %v", m, err)
	}
	ask("acme", api.VerbGet, MaxRequests+1)
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
	const waiting = 2 * MaxRequests
	for range MaxWaiters - waiting {
		s.waiters <- struct{}{} // others
	}
	ask("acme", api.VerbSubmit, waiting)
	natstest.Eventually(t, patience, "as many waits as there may be", func() bool { return svc.submits.Load() == waiting })
	ask("acme", api.VerbSubmit, 1)
	if m, err := answers.NextMsg(patience); err != nil || svc.turnedAway.Load() != 1 {
		t.Fatalf("one submit more: got %v, %v, %d turned away", m, err, svc.turnedAway.Load())
	}
	ask("acme", api.VerbWait, 1)
	if m, err := answers.NextMsg(patience); err != nil || !strings.Contains(string(m.Data), "ask with get") {
		t.Fatalf("one wait more: got %v, %v", m, err)
	}
	ask("acme", api.VerbGet, MaxRequests)
	natstest.Eventually(t, patience, "all the places of other requests", func() bool { return svc.gets.Load() == MaxRequests })
	stopped := make(chan error)
	go func() { stopped <- s.Stop() }()
	for n := range waiting {
		if m, err := answers.NextMsg(patience); err != nil || strings.Contains(string(m.Data), "cut off") {
			t.Fatalf("after %d answers: %v, %v", n, m, err)
		}
	}
	close(svc.release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// I14, I15: a tenant that is alone may have every place. Where another sends requests,
// too, it has its share; what it sends beyond its line is refused, another tenant's is
// begun at once, and what waits is begun in turn.
func TestAFloodOfOneTenantDelaysNoOther(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := newLine(func() time.Time { return now })
	begun := map[string]int{}
	var order []string
	enter := func(tenant string) bool {
		return l.enter(tenant, 1, func() { begun[tenant]++; order = append(order, tenant) })
	}
	for n := range MaxRequests + MaxTenantLine {
		if !enter("flood") {
			t.Fatalf("number %d was refused", n)
		}
	}
	if enter("flood") || begun["flood"] != MaxRequests {
		t.Errorf("got %d of the flood begun and one more taken, want %d and a refusal", begun["flood"], MaxRequests)
	}
	enter("calm")
	l.leave("flood") // the next place is the other tenant's
	if begun["calm"] != 1 {
		t.Error("the other tenant's request was not begun first")
	}
	for range MaxRequests - MaxTenantRequests - 1 {
		l.leave("flood") // goes down to its share
	}
	if begun["flood"] != MaxRequests || !enter("calm") || begun["calm"] != 2 {
		t.Errorf("got %d of the flood and %d of the other begun", begun["flood"], begun["calm"])
	}
	for n := range MaxRequests - MaxTenantRequests - 2 { // all places are taken
		enter(fmt.Sprintf("other-%d", n/MaxTenantRequests))
	}
	for range 3 {
		enter("calm")
	}
	order = nil
	for range 6 {
		l.leave("flood")
	}
	if want := "[flood calm flood calm flood calm]"; fmt.Sprint(order) != want {
		t.Errorf("got the turns %v, want %s", order, want)
	}
	now = now.Add(mixedFor)
	for n := range MaxRequests - MaxTenantRequests - 2 {
		l.leave(fmt.Sprintf("other-%d", n/MaxTenantRequests))
	}
	if l.free != 0 || len(l.turns) != 1 {
		t.Errorf("alone again, the flood leaves %d places unused", l.free)
	}
}

// What waits is bounded by its size, too, and what has left makes room.
func TestALineIsBoundedByItsBytes(t *testing.T) {
	t.Parallel()
	l := newLine(time.Now)
	nothing := func() {}
	for range MaxRequests {
		l.enter("acme", 1, nothing)
	}
	if !l.enter("acme", maxLineBytes, nothing) || l.enter("acme", 1, nothing) {
		t.Error("the line takes other than its bytes")
	}
	l.leave("acme")
	if !l.enter("acme", maxLineBytes, nothing) {
		t.Error("what has left the line still counts")
	}
	for range MaxRequests + 1 {
		l.leave("acme")
	}
	if l.free != MaxRequests || len(l.busy) != 0 || len(l.lines) != 0 || len(l.turns) != 0 {
		t.Errorf("left over: %d places, %v, %v, %v", l.free, l.busy, l.lines, l.turns)
	}
}
