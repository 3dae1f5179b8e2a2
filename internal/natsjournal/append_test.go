package natsjournal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
)

func TestAppendedEventComesBackByteForByte(t *testing.T) {
	t.Parallel()
	j := journal(t)
	r := appendNext(t, j, "op")
	back, err := j.Read(t.Context(), r.Seq)
	if err != nil {
		t.Fatal(err)
	}
	if string(back.Body) != string(r.Body) || back.ID != r.ID || back.Subject != r.Subject {
		t.Errorf("read back another event: got %s, want %s", back.Body, r.Body)
	}
	if !r.Stamp.IsZero() || back.Stamp.IsZero() {
		t.Errorf("stamps: appended %v, want zero; read %v, want the log's", r.Stamp, back.Stamp)
	}
	if back.Ledger != j.Ledger() {
		t.Errorf("ledger: got %q, want %q", back.Ledger, j.Ledger())
	}
	m, err := j.js.Stream(t.Context(), j.names.Events)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := m.GetMsg(t.Context(), r.Seq)
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]string{
		"Content-Type": events.ContentType, events.HeaderKind: "IntentRecorded", jetstream.MsgIDHeader: r.ID,
		jetstream.ExpectedLastSubjSeqHeader: "0", "Nats-Expected-Last-Subject-Sequence-Subject": "",
	} {
		if got := raw.Header.Get(header); got != want {
			t.Errorf("header %s: got %q, want %q", header, got, want)
		}
	}
}

// Every single and every double fault on the way of an event ends in success,
// stored, and one time only: nobody else competes.
func TestEveryAmbiguityOfOwnEventEndsInSuccess(t *testing.T) {
	t.Parallel()
	j := journal(t)
	for a := range faults {
		for b := range faults {
			op := fmt.Sprintf("op-%d-%d", a, b)
			breakNext(j, script(a, b))
			e, expected := after(op, nil)
			r, err := j.Append(t.Context(), e, expected)
			if err != nil {
				t.Fatalf("faults %d, %d: %v", a, b, err)
			}
			records := load(t, j, op)
			if len(records) != 1 || records[0].ID != e.ID || records[0].Seq != r.Seq {
				t.Fatalf("faults %d, %d: got %d records, append said %d", a, b, len(records), r.Seq)
			}
		}
	}
}

// The same faults, with another's event in the place: always a conflict, and
// ours is never stored.
func TestEveryAmbiguityBehindForeignWinnerEndsInConflict(t *testing.T) {
	t.Parallel()
	j := journal(t)
	for a := range faults {
		for b := range faults {
			op := fmt.Sprintf("op-%d-%d", a, b)
			j.tr = connection{j.nc}
			first := appendNext(t, j, op)
			breakNext(j, script(a, b))
			e, expected := after(op, nil)
			_, err := j.Append(t.Context(), e, expected)
			wantError(t, err, ErrConflict)
			records := load(t, j, op)
			if len(records) != 1 || records[0].ID != first.ID {
				t.Fatalf("faults %d, %d: got %d records, want the winner alone", a, b, len(records))
			}
		}
	}
}

func TestLostAckOfOwnEventIsSuccessEvenWhenOthersFollowed(t *testing.T) {
	t.Parallel()
	j := journal(t)
	e, expected := after("op", nil)
	// The first publish is stored and its answer lost; before the second one
	// somebody else builds on it.
	calls := 0
	breakNext(j, func() fault {
		calls++
		if calls == 1 {
			return loseAnswer
		}
		if calls == 2 {
			other := *j
			other.tr = connection{j.nc}
			other.commit = newCommitter(&other, true)
			next, after := after("op", load(t, &other, "op"))
			if _, err := other.Append(t.Context(), next, after); err != nil {
				t.Errorf("append on top: %v", err)
			}
		}
		return none
	})
	r, err := j.Append(t.Context(), e, expected)
	if err != nil {
		t.Fatal(err)
	}
	if r.Stamp.IsZero() || r.ID != e.ID {
		t.Errorf("got record %q with stamp %v, want ours as read back", r.ID, r.Stamp)
	}
	if n := len(load(t, j, "op")); n != 2 {
		t.Errorf("got %d records, want 2", n)
	}
}

func TestOneOfSixteenAppendersWins(t *testing.T) {
	t.Parallel()
	j := journal(t)
	var records []events.Record
	for round := range 20 {
		var (
			mu   sync.Mutex
			wins []string
			wg   sync.WaitGroup
		)
		for range 16 {
			wg.Go(func() {
				e, expected := after("op", records)
				_, err := j.Append(t.Context(), e, expected)
				switch {
				case err == nil:
					mu.Lock()
					wins = append(wins, e.ID)
					mu.Unlock()
				case !errors.Is(err, ErrConflict):
					t.Errorf("got error %v, want conflict", err)
				}
			})
		}
		wg.Wait()
		records = load(t, j, "op")
		if len(wins) != 1 || len(records) != round+1 || records[round].ID != wins[0] {
			t.Fatalf("round %d: %d winners, %d records", round, len(wins), len(records))
		}
	}
	checkChain(t, records)
}

// An event id that is used again with other content is a conflict, whether the
// server finds it by the sequence or by the id.
func TestSameIDWithOtherContentIsConflict(t *testing.T) {
	t.Parallel()
	j := journal(t)
	first := appendNext(t, j, "op")
	e, expected := after("op", nil)
	e.ID = first.ID
	_, err := j.Append(t.Context(), e, expected)
	wantError(t, err, ErrConflict)

	breakNext(j, script(duplicate, duplicate))
	_, err = j.Append(t.Context(), e, expected)
	wantError(t, err, ErrConflict)
}

func TestNoAnswerIsNoVerdictAlthoughTheEventIsStored(t *testing.T) {
	t.Parallel()
	j := journal(t)
	breakNext(j, func() fault { return loseAnswer })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	e, expected := after("op", nil)
	_, err := j.Append(ctx, e, expected)
	wantError(t, err, ErrNoVerdict)
	wantError(t, err, context.DeadlineExceeded)
	if n := len(load(t, j, "op")); n != 1 {
		t.Errorf("got %d records, want 1", n)
	}
}

func TestBrokenReadsDelayTheVerdict(t *testing.T) {
	t.Parallel()
	j := journal(t)
	reads := 0
	f := breakNext(j, script(loseAnswer))
	f.brokenReads = func() bool { reads++; return reads < 4 }
	e, expected := after("op", nil)
	if _, err := j.Append(t.Context(), e, expected); err != nil {
		t.Fatal(err)
	}
	f.brokenReads = nil
	if n := len(load(t, j, "op")); n != 1 {
		t.Errorf("got %d records, want 1", n)
	}
}

func TestAppendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	j := journal(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e, expected := after("op", nil)
	_, err := j.Append(ctx, e, expected)
	wantError(t, err, context.Canceled)
	if errors.Is(err, ErrNoVerdict) {
		t.Error("nothing was published, so there is nothing to judge")
	}
}

func TestTooLargeEventIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	opts := natstest.Options(t.TempDir())
	opts.MaxPayload = 64 << 10
	s := startServer(t, opts)
	j := setup(t, s, Config{})
	e, _ := after("op", nil)
	e.Data = events.IntentRecorded{Provider: "crm", Basis: strings.Repeat("x", 65<<10)}
	_, err := j.Append(t.Context(), e, 0)
	wantError(t, err, ErrTooLarge)
}

func TestMissingStreamIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	j := journal(t)
	if err := j.js.DeleteStream(t.Context(), j.names.Events); err != nil {
		t.Fatal(err)
	}
	e, expected := after("op", nil)
	_, err := j.Append(t.Context(), e, expected)
	wantError(t, err, ErrNotFound)
	wantError(t, err, ErrNoVerdict)
	_, err = j.Load(t.Context(), "acme", "op")
	wantError(t, err, ErrNotFound)
}

func TestForbiddenSubjectIsNamedAndNotWaitedFor(t *testing.T) {
	t.Parallel()
	opts := natstest.Options(t.TempDir())
	opts.Users = []*server.User{
		{Username: "core", Password: "p"},
		{Username: "agent", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{"$JS.API.>"}},
		}},
	}
	s := startServer(t, opts)
	core := natstest.Connect(t, s, nats.UserInfo("core", "p"))
	if _, err := Setup(t.Context(), natstest.JetStream(t, core), Topology{}); err != nil {
		t.Fatal(err)
	}
	j, err := Open(t.Context(), natstest.Connect(t, s, nats.UserInfo("agent", "p")), Config{CallTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	e, expected := after("op", nil)
	_, err = j.Append(t.Context(), e, expected)
	wantError(t, err, ErrDenied)
}

func TestEventOfAnotherLedgerIsRefused(t *testing.T) {
	t.Parallel()
	j := journal(t)
	e, expected := after("op", nil)
	e.Ledger = "00000000-0000-4000-8000-000000000000"
	if _, err := j.Append(t.Context(), e, expected); err == nil {
		t.Fatal("got no error")
	}
}

// Random faults, several appenders, one operation: what was acknowledged is
// stored one time, what lost is not stored, the chain holds (I13).
func TestAcknowledgedIsStoredOnceUnderRandomFaults(t *testing.T) {
	t.Parallel()
	j := journal(t)
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		op := fmt.Sprintf("op-%d", runs)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		rate := rapid.IntRange(0, 90).Draw(rt, "percent of publishes that fail")
		appenders := rapid.IntRange(1, 4).Draw(rt, "appenders")
		f := breakNext(j, func() fault {
			if rng.IntN(100) >= rate {
				return none
			}
			return 1 + fault(rng.IntN(int(faults)-1))
		})
		f.brokenReads = func() bool { return rng.IntN(100) < rate/2 }
		acked, lost := compete(rt, j, op, appenders)
		j.tr = connection{j.nc}
		stored := checkChain(t, load(t, j, op))
		for _, id := range acked {
			if stored[id] != 1 {
				rt.Fatalf("acknowledged event is stored %d times", stored[id])
			}
		}
		for _, id := range lost {
			if stored[id] != 0 {
				rt.Fatalf("an event that lost is stored")
			}
		}
		if len(stored) != len(acked) {
			rt.Fatalf("%d stored, %d acknowledged", len(stored), len(acked))
		}
	})
}

func compete(rt *rapid.T, j *Journal, op string, appenders int) (acked, lost []string) {
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	clean := *j
	clean.tr = connection{j.nc}
	for range appenders {
		wg.Go(func() {
			for range 3 {
				records, err := clean.Load(context.Background(), "acme", op)
				if err != nil {
					rt.Errorf("load: %v", err)
					return
				}
				e, expected := after(op, records)
				_, err = j.Append(context.Background(), e, expected)
				mu.Lock()
				switch {
				case err == nil:
					acked = append(acked, e.ID)
				case errors.Is(err, ErrConflict):
					lost = append(lost, e.ID)
				default:
					rt.Errorf("append: %v", err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return acked, lost
}

// The server dies while events are appended. Each append ends with a verdict
// once it is back, and nothing is stored twice.
func TestAppendOutlivesServerRestart(t *testing.T) {
	t.Parallel()
	node := natstest.NewNode(t)
	j := setup(t, node, Config{CallTimeout: 200 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	started := make(chan struct{}, 4)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			var records []events.Record
			for i := range 40 {
				e, expected := after(fmt.Sprintf("op-%d", w), records)
				r, err := j.Append(ctx, e, expected)
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				records = append(records, r)
				if i == 5 {
					started <- struct{}{}
				}
			}
		})
	}
	for range 4 {
		<-started
	}
	node.Stop()
	node.Start()
	wg.Wait()
	for w := range 4 {
		if got := len(checkChain(t, load(t, j, fmt.Sprintf("op-%d", w)))); got != 40 {
			t.Errorf("operation %d: got %d events, want 40", w, got)
		}
	}
}

func TestSystemRecordIsStoredOnceDespiteLostAnswer(t *testing.T) {
	t.Parallel()
	j := journal(t)
	breakNext(j, script(loseAnswer, losePublish))
	seq, err := j.AppendSystem(t.Context(), events.System{Kind: events.SystemRebuildMarker, Time: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	info, err := j.Info(t.Context())
	if err != nil || info.Last != 1 || seq != 1 {
		t.Errorf("got sequence %d, last %d, error %v, want 1, 1, nil", seq, info.Last, err)
	}
	r, err := j.Read(t.Context(), 1)
	if err != nil || r.Err != nil || r.ID == "" || r.Data != nil {
		t.Errorf("got record %+v, error %v, want a system record", r, err)
	}
}

func startServer(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("server not ready")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// A decision made on a state that the log does not have is a conflict, not a wait
// without end: the subject will never reach the expected sequence by itself.
func TestAppendBehindASequenceThatNeverWasIsAConflict(t *testing.T) {
	t.Parallel()
	j := journal(t)
	r := appendNext(t, j, "op")
	e, _ := after("op", []events.Record{r})
	_, err := j.Append(t.Context(), e, r.Seq+100)
	if !errors.Is(err, ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
}

// What ends before the expected sequence is a conflict, unless a publish went
// unanswered: then a server that is cut off may be telling of its own past, and the
// event may be stored on the others.
func TestALogThatIsBehindIsAConflictOnlyIfEveryPublishWasAnswered(t *testing.T) {
	t.Parallel()
	j := journal(t)
	appendNext(t, j, "op")
	e, expected := after("op", load(t, j, "op"))
	_, err := j.Append(t.Context(), e, expected+100)
	wantError(t, err, ErrConflict)
	for _, lost := range []fault{losePublish, unavailable, nobody, garbage} {
		breakNext(j, script(lost))
		_, err = j.Append(t.Context(), e, expected+100)
		wantError(t, err, ErrNoVerdict)
	}
	if n := len(load(t, j, "op")); n != 1 {
		t.Errorf("%d events are stored, want the first alone", n)
	}
}

// I6, I10: a repeat that comes after the server has forgotten the event's id is
// judged by the log alone: the own event is a success and stored once, another
// one under the same id is a conflict.
func TestARepeatBehindTheDuplicateWindowIsJudgedByTheLog(t *testing.T) {
	t.Parallel()
	j := setup(t, natstest.Server(t), Config{Topology: Topology{DuplicateWindow: time.Second}})
	e, expected := after("op", nil)
	calls := 0
	breakNext(j, func() fault {
		if calls++; calls == 1 {
			return loseAnswer
		}
		if calls == 2 { // an id that came behind the event's is forgotten: so is the event's
			forgotten := func() bool {
				ack, err := j.js.Publish(t.Context(), j.subjects.System("test"), []byte("{}"), jetstream.WithMsgID("behind"))
				return err == nil && !ack.Duplicate
			}
			if !forgotten() {
				t.Error("the probe's id was known before")
			}
			natstest.Eventually(t, patience, "forgetting ids", forgotten)
		}
		return none
	})
	r, err := j.Append(t.Context(), e, expected)
	if err != nil || r.ID != e.ID || calls < 2 {
		t.Fatalf("got %q, %v after %d publishes", r.ID, err, calls)
	}
	if n := len(load(t, j, "op")); n != 1 {
		t.Errorf("got %d records, want 1", n)
	}
	e.Time = e.Time.Add(time.Second) // other content
	_, err = j.Append(t.Context(), e, expected)
	wantError(t, err, ErrConflict)
}

// An operation is read with as many messages as the bound says, and refused with
// one more: reading has an end, whatever was stored.
func TestEventsOfAnOperationAreBoundedExactly(t *testing.T) {
	t.Parallel()
	j := journal(t)
	if j.most != MaxOperationEvents {
		t.Errorf("got a bound of %d, want %d", j.most, MaxOperationEvents)
	}
	j.most = 50
	for n := 1; n <= j.most+1; n++ {
		if _, err := j.js.Publish(t.Context(), "opledger.events.acme.op", []byte("{")); err != nil {
			t.Fatal(err)
		}
		if n < j.most-1 {
			continue
		}
		records, err := j.Load(t.Context(), "acme", "op")
		if n > j.most {
			wantError(t, err, ErrTooLarge)
		} else if err != nil || len(records) != n {
			t.Errorf("%d messages, the bound is %d: got %d, %v", n, j.most, len(records), err)
		}
	}
}

// The journal knows the last message that it promised to this process, whoever else has
// written since.
func TestTheLastPromiseIsKnown(t *testing.T) {
	t.Parallel()
	j := journal(t)
	appendNext(t, j, "op")
	second := appendNext(t, j, "op")
	if _, err := j.js.Publish(t.Context(), "opledger.events.acme.other", []byte("{")); err != nil {
		t.Fatal(err)
	}
	if got := j.Acked(); got != second.Seq {
		t.Errorf("got %d, want %d", got, second.Seq)
	}
	if _, err := j.Append(t.Context(), second.Event, 1); err != nil { // once more: it is there
		t.Fatal(err)
	}
	if got := j.Acked(); got != second.Seq {
		t.Errorf("got %d after a repeat, want %d", got, second.Seq)
	}
	seq, err := j.AppendSystem(t.Context(), events.System{Kind: events.SystemCheckpoint})
	if err != nil || j.Acked() != seq {
		t.Errorf("got %d, want %d, error %v", j.Acked(), seq, err)
	}
	if err := j.TakeScope(t.Context(), "acme", "contact-7", "op", "a1", "w", 0, time.Time{}); err != nil || j.Acked() != seq+1 {
		t.Errorf("got %d after a scope was taken, want %d, error %v", j.Acked(), seq+1, err)
	}
	j.ForgetAcked()
	if got := j.Acked(); got != 0 {
		t.Errorf("got %d after it was forgotten", got)
	}
}

// The short way to read an acknowledgement is taken for what the server says of a stored
// message, and says the same as the long one; for everything else it is not taken.
func TestPlainAcknowledgementsAreReadTheShortWay(t *testing.T) {
	t.Parallel()
	j := journal(t)
	msg := nats.NewMsg("opledger.events.acme.op")
	msg.Data = []byte("{")
	answer, err := j.nc.RequestMsgWithContext(t.Context(), msg)
	if err != nil {
		t.Fatal(err)
	}
	if seq, ok := plainAck(answer.Data, j.names.Events); !ok || seq != 1 {
		t.Errorf("%s: got %d, %t", answer.Data, seq, ok)
	}
	for _, text := range []string{
		`{"stream":"S","seq":18446744073709551615}`, `{"stream":"S","seq":18446744073709551616}`, `{"stream":"S","seq":1,"duplicate": true}`,
		`{"stream":"S2","seq":1}`, `{"stream":"S", "seq":1}`, `{"stream":"","seq":1}`, `{"stream":"S","domain":"d","seq":1}`, `{"stream":"S","seq":}`, `{"stream":"S","seq":-1}`,
		`{"stream":"S","seq":+1}`, `{"stream":"S","seq":007}`, `{"stream":"S","seq":0}`, `{"stream":"S","seq":1}}`, `{"error":{"code":503},"stream":"S","seq":0}`, `{"stream":"S","seq":1`, ``, `{}`, `-ERR`,
	} {
		seq, ok := plainAck([]byte(text), "S")
		var long pubAck
		err := json.Unmarshal([]byte(text), &long)
		if ok && (err != nil || long.Seq != seq || long.Stream != "S" || long.Duplicate || long.Error != nil) {
			t.Errorf("%s: got %d, the long way %+v, %v", text, seq, long, err)
		}
	}
}
