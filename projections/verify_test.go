package projections

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/internal/natstest"
	"github.com/opledger/opledger/operation"
)

// kinds returns what Verify finds, sorted.
func (l *ledger) kinds(p *Projector) []string {
	l.t.Helper()
	report, err := p.Verify(l.t.Context(), VerifyOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	var out []string
	for _, problem := range report.Problems {
		out = append(out, string(problem.Kind))
	}
	if report.Total != len(out) || report.OK() != (len(out) == 0) {
		l.t.Errorf("total %d, listed %d", report.Total, len(out))
	}
	slices.Sort(out)
	return out
}

// projected returns a ledger with three operations whose projector stopped.
func projected(t *testing.T) (*ledger, *Projector) {
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	stop := run(t, p.Run)
	for _, op := range []string{"a", "b", "c"} {
		l.append(op, intent(op))
		l.append(op, events.AttemptStarted{AttemptID: "1", Number: 1, LeaseMS: 1000})
	}
	l.caughtUp(p)
	stop()
	return l, p
}

func TestVerifyFindsEveryDamageOfEntries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(l *ledger)
		want   string
	}{
		"nothing": {func(*ledger) {}, ""},
		"one byte": {func(l *ledger) {
			l.overwrite("acme.a", strings.Replace(l.bucketBytes()["acme.a"], "crm", "crx", 1))
		}, "entry_differs"},
		"white space": {func(l *ledger) {
			l.overwrite("acme.a", l.bucketBytes()["acme.a"]+" ")
		}, "entry_differs"},
		"no JSON":      {func(l *ledger) { l.overwrite("acme.a", "{") }, "entry_unreadable"},
		"another fold": {func(l *ledger) { l.overwrite("acme.a", `{"fold_version":7,"state":{}}`) }, "entry_fold_version"},
		"an old entry": {func(l *ledger) {
			records, err := l.j.Load(t.Context(), "acme", "a")
			if err != nil {
				t.Fatal(err)
			}
			data, err := encodeState(operation.Fold(records[:1]))
			if err != nil {
				t.Fatal(err)
			}
			l.overwrite("acme.a", string(data))
		}, "entry_stale"},
		"a deleted entry": {func(l *ledger) {
			kv, err := l.js.KeyValue(t.Context(), l.b.name)
			if err != nil {
				t.Fatal(err)
			}
			if err := kv.Delete(t.Context(), "acme.b"); err != nil {
				t.Fatal(err)
			}
		}, "entry_missing"},
		"an entry of nothing": {func(l *ledger) {
			l.overwrite("acme.z", strings.ReplaceAll(l.bucketBytes()["acme.a"], `"a"`, `"z"`))
		}, "entry_without_log"},
		"an entry of another log": {func(l *ledger) {
			l.overwrite("acme.a", strings.Replace(l.bucketBytes()["acme.a"], `"last_seq":2`, `"last_seq":99`, 1))
		}, "entry_differs"},
		"a lost bucket": {func(l *ledger) {
			if err := l.js.DeleteKeyValue(t.Context(), l.b.name); err != nil {
				t.Fatal(err)
			}
		}, "checkpoint_missing entry_missing entry_missing entry_missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, p := projected(t)
			c.damage(l)
			if got := strings.Join(l.kinds(p), " "); got != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			if _, err := p.Rebuild(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			got := l.kinds(p)
			if name == "a lost bucket" { // its checkpoint comes with the next run
				got = slices.DeleteFunc(got, func(k string) bool { return k == string(CheckpointMissing) })
			}
			if len(got) != 0 {
				t.Errorf("after a rebuild: got %v, want nothing", got)
			}
		})
	}
}

func TestVerifyDoesNotMindLag(t *testing.T) {
	t.Parallel()
	l, p := projected(t)
	l.append("a", events.OutcomeUnknown{AttemptID: "1", Reason: events.UnknownTimeout})
	l.append("new", intent("new"))
	if got := l.kinds(p); len(got) != 0 {
		t.Errorf("got %v, want nothing", got)
	}
}

// I13: gaps, broken chains and whatever else is wrong in the log is named.
func TestVerifyFindsEveryDamageOfTheLog(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	s := l.append("gap", intent("gap"))
	e := draft("acme", "gap", s, events.ReviewUpdated{Decision: events.DecideNote})
	e.Version = 5
	if _, err := l.j.Append(t.Context(), e, s.LastSeq); err != nil {
		t.Fatal(err)
	}
	s = l.append("chain", intent("chain"))
	e = draft("acme", "chain", s, events.ReviewUpdated{Decision: events.DecideNote})
	e.Prev = "sha256:0"
	if _, err := l.j.Append(t.Context(), e, s.LastSeq); err != nil {
		t.Fatal(err)
	}
	l.stray("bad", "{")
	p := l.projector(nil)
	stop := run(t, p.Run)
	l.caughtUp(p)
	stop()
	want := []string{"chain_broken", "malformed", "version_gap"}
	if got := l.kinds(p); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	report, err := p.Verify(t.Context(), VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range report.Problems {
		if problem.Tenant != "acme" || problem.OperationID == "" || problem.Seq == 0 {
			t.Errorf("got %+v, want tenant, operation and sequence", problem)
		}
	}
}

func TestVerifyFindsMissingSequenceNumbers(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	js := natstest.JetStream(t, nc)
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "OPLEDGER_EVENTS", Subjects: []string{"opledger.events.*.*", "opledger.system.*"},
		Metadata: map[string]string{natsjournal.MetadataLedger: "0190a5b4-0000-4000-8000-000000000000"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := natsjournal.Setup(t.Context(), js, natsjournal.Topology{}); err != nil {
		t.Fatal(err)
	}
	l := &ledger{t: t, nc: nc, js: js}
	l.open(natsjournal.Topology{})
	for _, op := range []string{"a", "b", "c"} {
		l.append(op, intent(op))
		l.append(op, events.ReviewUpdated{Decision: events.DecideNote})
	}
	for _, seq := range []uint64{1, 4} {
		if err := s.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	p := l.projector(nil)
	if _, err := p.Rebuild(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"checkpoint_missing", "log_deleted", "log_first_sequence", "version_gap"}
	if got := l.kinds(p); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestVerifyWhileTheLedgerWorksFindsNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	run(t, p.Run)
	l.append("op", intent("op"))
	l.caughtUp(p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 5 {
			if report, err := p.Verify(t.Context(), VerifyOptions{}); err != nil || !report.OK() {
				t.Errorf("got %+v, %v, want nothing", report.Problems, err)
			}
		}
	}()
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); {
		l.append("op", events.ReviewUpdated{Decision: events.DecideNote})
		select {
		case <-done:
			return
		default:
		}
	}
	<-done
}
