package projections

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/internal/natstest"
	"github.com/opledger/opledger/operation"
)

const patience = 30 * time.Second

// ledger is a journal with everything that projects it.
type ledger struct {
	t   testing.TB
	nc  *nats.Conn
	js  jetstream.JetStream
	j   *natsjournal.Journal
	cfg Config
	b   *bucket
	// store reads through the projection.
	store *Store
}

func newLedger(t testing.TB, s nats.InProcessConnProvider) *ledger {
	t.Helper()
	nc := natstest.Connect(t, s)
	l := &ledger{t: t, nc: nc, js: natstest.JetStream(t, nc)}
	topology := natsjournal.Topology{}
	if _, err := natsjournal.Setup(t.Context(), l.js, topology); err != nil {
		t.Fatalf("setup: %v", err)
	}
	l.open(topology)
	return l
}

func (l *ledger) open(topology natsjournal.Topology) {
	l.t.Helper()
	var err error
	l.j, err = natsjournal.Open(l.t.Context(), l.nc, natsjournal.Config{Topology: topology, CallTimeout: time.Second})
	if err != nil {
		l.t.Fatalf("open: %v", err)
	}
	l.cfg = Config{
		Conn: l.nc, Prefix: l.j.Names().Prefix, Subjects: topology.Subjects, Log: l.j, Streams: l.j,
		CallTimeout: time.Second,
	}
	if l.store, err = NewStore(l.cfg); err != nil {
		l.t.Fatalf("store: %v", err)
	}
	l.b = l.store.b
}

// draft makes the next event of an operation from its state.
func draft(tenant, op string, s operation.State, data events.Payload) events.Event {
	return events.Event{
		ID: events.NewID(), Tenant: tenant, Operation: op, Version: s.Version + 1, Prev: s.Head,
		Time: time.Now(), Actor: "test", Data: data,
	}
}

// intent is a typical first event.
func intent(op string) events.IntentRecorded {
	return events.IntentRecorded{
		Provider: "crm", Account: events.Account{Name: "main", ProviderID: "a1"}, Action: "task.create",
		Args: []byte(`{"title":"ring <back> & forth"}`), ArgsDigest: "sha256-jcs:1", IntentDigest: "sha256:" + op,
		ContractRef: events.ContractRef{Name: "crm", Revision: 1, Digest: "sha256:c"},
		OnUnknown:   events.OnUnknownContract, IdempotencyKey: "key-" + op,
		Labels: map[string]string{"b": "2", "a": "1"},
	}
}

// append appends one event to an operation of tenant acme.
func (l *ledger) append(op string, data events.Payload) operation.State {
	l.t.Helper()
	s, err := l.store.Truth(l.t.Context(), "acme", op)
	if err != nil {
		l.t.Fatalf("truth: %v", err)
	}
	r, err := l.j.Append(l.t.Context(), draft("acme", op, s, data), s.LastSeq)
	if err != nil {
		l.t.Fatalf("append: %v", err)
	}
	if r.Stamp.IsZero() {
		if r, err = l.j.Read(l.t.Context(), r.Seq); err != nil {
			l.t.Fatalf("read: %v", err)
		}
	}
	s, _ = operation.Evolve(s, r)
	return s
}

// stray stores bytes on the subject of an operation without compare-and-swap.
func (l *ledger) stray(op, body string) {
	l.t.Helper()
	subject, err := l.cfg.Subjects.Operation("acme", op)
	if err != nil {
		l.t.Fatal(err)
	}
	// A publish under way when a connection breaks is never answered.
	id := events.NewID()
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
		_, err := l.js.Publish(ctx, subject, []byte(body), jetstream.WithMsgID(id))
		cancel()
		if err == nil {
			return
		}
		if try == 10 {
			l.t.Fatal(err)
		}
	}
}

// history appends n random events to operations drawn from a few: valid ones,
// contradicting ones, and now and then a message that is no event.
func (l *ledger) history(rng *rand.Rand, operations, n int) {
	l.t.Helper()
	for range n {
		op := fmt.Sprintf("op-%03d", rng.IntN(operations))
		if rng.IntN(40) == 0 {
			l.stray(op, `{"no":"event"}`)
			continue
		}
		s, err := l.store.Truth(l.t.Context(), "acme", op)
		if err != nil {
			l.t.Fatal(err)
		}
		e := draft("acme", op, s, anyPayload(rng, op, s))
		if rng.IntN(60) == 0 {
			e.Version++ // a gap
		}
		if _, err := l.j.Append(l.t.Context(), e, s.LastSeq); err != nil {
			l.t.Fatal(err)
		}
	}
}

func anyPayload(rng *rand.Rand, op string, s operation.State) events.Payload {
	if s.Version == 0 {
		return intent(op)
	}
	attempt := fmt.Sprintf("attempt-%d", rng.IntN(3))
	at := time.Date(2030, 1, 1, 0, 0, rng.IntN(50), 123, time.FixedZone("x", 3600))
	switch rng.IntN(9) {
	case 0, 1:
		return events.AttemptStarted{AttemptID: attempt, Number: s.Started + 1, Worker: "w", LeaseMS: 1000}
	case 2:
		return events.OutcomeUnknown{
			AttemptID: attempt, Reason: events.UnknownTimeout, Transport: &events.Transport{},
			Next: events.Next{Action: events.NextReconcile, At: at},
		}
	case 3:
		return events.AttemptNotApplied{AttemptID: attempt, Proof: events.ProofNotSent}
	case 4:
		return events.EvidenceRecorded{
			Source: events.SourceLookup, Finding: events.FindingInconclusive, AskedAt: at,
			ExternalIDs: []string{}, WeakMatches: []string{"T-1 <&>\u2028"},
		}
	case 5:
		return events.ReviewOpened{Reason: events.ReviewNoEvidence, Text: "ä\x00"}
	case 6:
		return events.ReviewUpdated{Decision: events.DecidePostpone, Until: at}
	case 7:
		return events.RetryPermitted{PermitID: attempt, Basis: events.BasisOperator, ValidUntil: at, RetryAt: at}
	}
	return events.ResultConfirmed{ExternalID: "T-7", Via: events.ViaResponse, AttemptID: attempt, Result: []byte(`{"a": [1,  2]}`)}
}

// projector makes a projector; run starts it and returns what stops it.
func (l *ledger) projector(applied func(operation.State)) *Projector {
	l.t.Helper()
	p, err := NewProjector(l.cfg, applied)
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

func run(t testing.TB, what func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- what(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// caughtUp waits until the projector has applied the whole log.
func (l *ledger) caughtUp(p *Projector) {
	l.t.Helper()
	natstest.Eventually(l.t, patience, "applying the whole log", func() bool {
		_, _, last, _, err := l.j.Extent(l.t.Context())
		return err == nil && p.Applied() >= last
	})
}

// bucketBytes returns all entries as they are.
func (l *ledger) bucketBytes() map[string]string {
	l.t.Helper()
	out := map[string]string{}
	err := l.b.each(l.t.Context(), ">", func(key string, v value) error {
		if key != checkpointKey {
			out[key] = string(v.data)
		}
		return nil
	})
	if err != nil {
		l.t.Fatalf("bucket: %v", err)
	}
	return out
}

// folded returns what the entries must be: the fold of the log.
func (l *ledger) folded() map[string]string {
	l.t.Helper()
	states := map[string]operation.State{}
	err := l.j.Replay(l.t.Context(), natsjournal.ReplayOptions{}, func(r events.Record) error {
		tenant, op, err := l.cfg.Subjects.ParseOperation(r.Subject)
		if err != nil {
			return err
		}
		key := entryKey(tenant, op)
		states[key], _ = operation.Evolve(states[key], r)
		return nil
	})
	if err != nil {
		l.t.Fatalf("replay: %v", err)
	}
	out := map[string]string{}
	for key, s := range states {
		data, err := encodeState(s)
		if err != nil {
			l.t.Fatal(err)
		}
		out[key] = string(data)
	}
	return out
}

// checkEntries fails unless the bucket is the fold of the log, byte for byte.
func (l *ledger) checkEntries() {
	l.t.Helper()
	got, want := l.bucketBytes(), l.folded()
	for key, entry := range want {
		if got[key] != entry {
			l.t.Errorf("entry %s\ngot  %s\nwant %s", key, got[key], entry)
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			l.t.Errorf("entry %s has no operation", key)
		}
	}
}

func (l *ledger) checkVerified(p *Projector) {
	l.t.Helper()
	report, err := p.Verify(l.t.Context(), VerifyOptions{})
	if err != nil {
		l.t.Fatalf("verify: %v", err)
	}
	for _, problem := range report.Problems {
		switch problem.Kind { // what history does on purpose
		case ProblemKind(operation.AnomalyMalformed), ProblemKind(operation.AnomalyVersion):
		case EntryMissing, EntryStale, EntryDiffers, EntryUnreadable, EntryUnstorable, EntryWithoutLog,
			EntryFoldVersion, CheckpointMissing, LogDeleted, LogFirstSequence, OperationUnreadable,
			ProblemKind(operation.AnomalyChain), ProblemKind(operation.AnomalyForeign):
			l.t.Errorf("verify found %+v", problem)
		}
	}
}

// overwrite puts bytes into the bucket behind everybody's back.
func (l *ledger) overwrite(key, data string) {
	l.t.Helper()
	if _, err := l.js.Publish(l.t.Context(), l.b.subject(key), []byte(data)); err != nil {
		l.t.Fatal(err)
	}
}

func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func seeded(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
