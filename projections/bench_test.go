package projections

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
	"github.com/opledger/opledger/operation"
)

// fill stores n operations of three events each, without waiting for each.
func (l *ledger) fill(n int) {
	l.t.Helper()
	for i := range n {
		op := fmt.Sprintf("op-%07d", i)
		subject, err := l.cfg.Subjects.Operation("acme", op)
		if err != nil {
			l.t.Fatal(err)
		}
		var s operation.State
		for _, data := range []events.Payload{
			intent(op),
			events.AttemptStarted{AttemptID: "1", Number: 1, Worker: "w", LeaseMS: 30_000, RequestDigest: "sha256:r"},
			events.ResultConfirmed{ExternalID: "T-" + op, Via: events.ViaResponse, AttemptID: "1"},
		} {
			e := draft("acme", op, s, data)
			e.Ledger = l.j.Ledger()
			body, err := events.Encode(e)
			if err != nil {
				l.t.Fatal(err)
			}
			if _, err := l.js.PublishAsync(subject, body, jetstream.WithStallWait(time.Minute)); err != nil {
				l.t.Fatal(err)
			}
			s.Version, s.Head = e.Version, events.Digest(body)
		}
	}
	select {
	case <-l.js.PublishAsyncComplete():
	case <-time.After(10 * time.Minute):
		l.t.Fatal("not filled")
	}
}

// One operation is one operation of the ledger, three events long.
func BenchmarkRebuild(b *testing.B) {
	l := newLedger(b, natstest.Server(b))
	l.fill(b.N)
	p := l.projector(nil)
	b.ResetTimer()
	report, err := p.Rebuild(context.Background(), nil)
	if err != nil || report.Operations != b.N {
		b.Fatalf("got %+v, error %v", report, err)
	}
}

// One operation is three events that a projector which was stopped in order goes on
// with: read, folded, told and written.
func BenchmarkProject(b *testing.B) {
	l := newLedger(b, natstest.Server(b))
	project := func(until func(*Projector) bool) {
		p := l.projector(nil)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		for !until(p) {
			time.Sleep(time.Millisecond)
		}
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	checkpoint := func(*Projector) bool {
		v, err := l.projector(nil).b.last(context.Background(), checkpointKey)
		return err == nil && v.rev != 0
	}
	project(checkpoint) // of the empty log
	l.fill(b.N)
	_, _, last, _, err := l.j.Extent(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	project(func(p *Projector) bool { return p.Applied() >= last })
}

func BenchmarkVerify(b *testing.B) {
	l := newLedger(b, natstest.Server(b))
	l.fill(b.N)
	p := l.projector(nil)
	if _, err := p.Rebuild(context.Background(), nil); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	if _, err := p.Verify(context.Background(), VerifyOptions{}); err != nil {
		b.Fatal(err)
	}
}

// One operation is one message read and thrown away.
func BenchmarkWalk(b *testing.B) {
	l := newLedger(b, natstest.Server(b))
	l.fill(b.N/3 + 1)
	b.ResetTimer()
	if err := l.j.Walk(context.Background(), 1, uint64(b.N), func(events.Record) error { return nil }); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkClaimAndRelease(b *testing.B) {
	l := newLedger(b, natstest.Server(b))
	c := l.claims()
	now := time.Now()
	for i := range b.N {
		op := fmt.Sprint("op-", i)
		rev, err := c.Take(context.Background(), "acme", op, Claim{AttemptID: op, Until: now.Add(time.Minute)}, now, 0)
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Release(context.Background(), "acme", op, rev); err != nil {
			b.Fatal(err)
		}
	}
}
