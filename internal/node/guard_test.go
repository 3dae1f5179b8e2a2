package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/integrity"
	"github.com/opledger/opledger/internal/natsjournal"
)

// fakeLog is a log in memory that can be damaged.
type fakeLog struct {
	mu      sync.Mutex
	ledger  string
	created time.Time
	recs    []events.Record
	// now is the log's clock.
	now time.Time
	err error
	// hidden: the server does not deliver messages from this one on.
	hidden uint64
	// unread: no message can be read by its number.
	unread error
	// acked is what was promised to this process.
	acked uint64
	moved chan struct{}
}

func newFakeLog(n int) *fakeLog {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	l := &fakeLog{ledger: "l-1", created: noon, now: noon, moved: make(chan struct{})}
	for range n {
		l.put("opledger.events.acme.op-1", []byte(`{"id":"e"}`))
	}
	return l
}

func (l *fakeLog) put(subject string, body []byte) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.now.Add(time.Second)
	seq := uint64(1)
	if n := len(l.recs); n > 0 {
		seq = l.recs[n-1].Seq + 1
	}
	l.recs = append(l.recs, events.Record{Subject: subject, Seq: seq, Stamp: l.now, Body: body})
	close(l.moved)
	l.moved = make(chan struct{})
	return seq
}

func (l *fakeLog) change(fn func(*fakeLog)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn(l)
	close(l.moved)
	l.moved = make(chan struct{})
}

func (l *fakeLog) Info(context.Context) (natsjournal.Info, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := natsjournal.Info{Created: l.created, Ledger: l.ledger, Messages: uint64(len(l.recs))}
	if n := len(l.recs); n > 0 {
		i.First, i.Last = l.recs[0].Seq, l.recs[n-1].Seq
	}
	return i, l.err
}

func (l *fakeLog) Read(_ context.Context, seq uint64) (events.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unread != nil {
		return events.Record{}, l.unread
	}
	for _, r := range l.recs {
		if r.Seq == seq {
			return r, l.err
		}
	}
	return events.Record{}, natsjournal.ErrNotFound
}

func (l *fakeLog) Alarms(context.Context) (out []events.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.recs {
		if r.Subject == "opledger.system.alarm" {
			out = append(out, r)
		}
	}
	return out, l.err
}

func (l *fakeLog) Walk(ctx context.Context, from, to uint64, fn func(events.Record) error) error {
	for next := from; ; {
		l.mu.Lock()
		moved, end := l.moved, uint64(0)
		var todo []events.Record
		for _, r := range l.recs {
			if end = r.Seq; r.Seq >= next && (l.hidden == 0 || r.Seq < l.hidden) {
				todo = append(todo, r)
			}
		}
		l.mu.Unlock()
		if end+1 < next {
			return natsjournal.ErrReplaced
		}
		for _, r := range todo {
			if err := fn(r); err != nil || r.Seq == to {
				return err
			}
			next = r.Seq + 1
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
}

func (l *fakeLog) AppendSystem(_ context.Context, s events.System) (uint64, error) {
	body, err := events.EncodeSystem(s)
	if err != nil {
		return 0, err
	}
	return l.put("opledger.system."+s.Kind.Name(), body), nil
}

func (l *fakeLog) Acked() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

func (l *fakeLog) ForgetAcked() { l.change(func(l *fakeLog) { l.acked = 0 }) }

func (l *fakeLog) count(kind events.SystemKind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.recs {
		if s, err := events.DecodeSystem(r.Body); err == nil && s.Kind == kind {
			n++
		}
	}
	return n
}

// guarded is a running guard.
type guarded struct {
	*guard
	t    *testing.T
	log  *fakeLog
	file string
	end  func()
}

func runGuard(t *testing.T, l *fakeLog, file string) *guarded {
	t.Helper()
	g, err := newGuard(guardConfig{Log: l, File: file, Actor: "w-1", Checkpoints: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.run(ctx) }()
	x := &guarded{guard: g, t: t, log: l, file: file}
	x.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(x.end)
	x.until("a verdict", g.Checked)
	return x
}

func (x *guarded) until(what string, ok func() bool) {
	x.t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("no %s; alarm %q", what, x.Alarm())
		}
	}
}

// damages are what can happen to a log of 100 messages that a mark knows.
func damages() map[string]func(*fakeLog) {
	return map[string]func(*fakeLog){
		"created anew": func(l *fakeLog) { l.created = l.created.Add(time.Hour) },
		"belongs to":   func(l *fakeLog) { l.ledger = "l-2" },
		"ends with":    func(l *fakeLog) { l.recs = l.recs[:73] },
		"missing":      func(l *fakeLog) { l.recs = append(l.recs[:40:40], l.recs[43:]...) },
		"1 to 11":      func(l *fakeLog) { l.recs = l.recs[11:] },
		"another message stands": func(l *fakeLog) {
			l.recs = append(l.recs[:99:99], events.Record{Seq: 100, Subject: "opledger.events.acme.op-2", Body: []byte("other")})
		},
		"not what it was": func(l *fakeLog) { l.recs[50].Body = []byte(`{"id":"f"}`) },
	}
}

// I16: what happened to the log while the process was down is seen at its start,
// before an attempt could start, by the mark that the process keeps outside.
func TestGuardSeesAtTheStartWhatHappenedWhileItWasDown(t *testing.T) {
	t.Parallel()
	for want, damage := range damages() {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			l, file := newFakeLog(100), filepath.Join(t.TempDir(), "mark", "highwater.json")
			g := runGuard(t, l, file)
			g.end()
			if text := g.Alarm(); text != "" {
				t.Fatalf("a whole log alarms: %s", text)
			}
			l.change(damage)
			g = runGuard(t, l, file)
			if got := g.Alarm(); !strings.Contains(got, want) {
				t.Errorf("got alarm %q", got)
			}
			g.end()
			// The mark stays the evidence: the next start alarms again, also
			// when the log has grown past it.
			for range 30 {
				l.put("opledger.events.acme.op-9", []byte(`{"id":"g"}`))
			}
			if again := runGuard(t, l, file); again.Alarm() == "" {
				t.Error("the second start on the damaged log does not alarm")
			}
		})
	}
}

// I16: damage that the server does not tell of raises an alarm while the process
// runs, which is recorded in the log and stays.
func TestGuardSeesDamageThatTheServerHides(t *testing.T) {
	t.Parallel()
	for name, damage := range damages() {
		if name == "not what it was" || name == "belongs to" {
			continue // seen when the log is read anew
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newFakeLog(100)
			g := runGuard(t, l, filepath.Join(t.TempDir(), "highwater.json"))
			l.change(damage)
			g.look(t.Context())
			if !g.Raised() {
				t.Fatal("no alarm")
			}
			g.record(t.Context())
			if n := l.count(events.SystemAlarmRaised); n != 1 {
				t.Errorf("%d records of the alarm", n)
			}
			g.record(t.Context())
			if n := l.count(events.SystemAlarmRaised); n != 1 {
				t.Errorf("%d records of one alarm", n)
			}
		})
	}
}

// I16: the audit may be a moment behind the end. What is missing before it, and what was
// promised to this process and is gone, alarms all the same.
func TestGuardSeesDamageWhileItIsBehind(t *testing.T) {
	t.Parallel()
	for want, damage := range map[string]func(*fakeLog){
		"3 messages are missing":   func(l *fakeLog) { l.recs = append(l.recs[:40:40], l.recs[43:]...) },
		"ends with message 100":    func(l *fakeLog) { l.recs = l.recs[:100] },
		"messages 103 to 105":      func(l *fakeLog) { l.recs = l.recs[:102] },
		"the log was created anew": func(l *fakeLog) { l.created, l.recs = l.created.Add(time.Hour), l.recs[:1] },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			l := newFakeLog(100)
			g := runGuard(t, l, filepath.Join(t.TempDir(), "highwater.json"))
			l.change(func(l *fakeLog) { l.hidden = 101 })
			for range 5 {
				l.put("opledger.events.acme.op-1", []byte(`{"id":"e"}`))
			}
			l.change(func(l *fakeLog) { l.acked = 105 })
			if g.look(t.Context()); g.Alarm() != "" {
				t.Fatalf("a whole log alarms: %s", g.Alarm())
			}
			l.mu.Lock()
			damage(l) // and nobody is told
			l.mu.Unlock()
			if g.look(t.Context()); !g.Raised() || !strings.Contains(g.Alarm(), want) {
				t.Errorf("got alarm %q", g.Alarm())
			}
		})
	}
}

// What was promised and is gone alarms once, not again after a person has accepted it.
func TestAnAcceptedLossOfPromisedMessagesAlarmsNoMore(t *testing.T) {
	t.Parallel()
	l := newFakeLog(100)
	g := runGuard(t, l, filepath.Join(t.TempDir(), "highwater.json"))
	l.change(func(l *fakeLog) { l.acked = 105 })
	g.look(t.Context())
	g.until("alarm", g.Raised)
	g.record(t.Context())
	g.clear(time.Time{}, l.now)
	g.until("end of the alarm", func() bool { return g.Alarm() == "" })
	if g.look(t.Context()); g.Alarm() != "" {
		t.Errorf("alarms again: %s", g.Alarm())
	}
}

// A server that tells of an end and lets nothing be read, as one without a leader does, is
// no witness of a loss, nor of the contrary.
func TestAnEndThatCannotBeReadIsNoVerdict(t *testing.T) {
	t.Parallel()
	l := newFakeLog(100)
	g := runGuard(t, l, filepath.Join(t.TempDir(), "highwater.json"))
	l.change(func(l *fakeLog) { l.acked, l.unread = 105, errors.New("JetStream system temporarily unavailable") })
	g.guard.mu.Lock()
	g.guard.looked -= 2 * guardStale
	g.guard.mu.Unlock()
	if g.look(t.Context()); g.Raised() || !strings.Contains(g.Alarm(), "could not be looked at") {
		t.Errorf("got alarm %q", g.Alarm())
	}
	l.change(func(l *fakeLog) { l.unread = nil })
	if g.look(t.Context()); !g.Raised() {
		t.Error("no alarm, although the end can be read")
	}
}

// A clearing that went with the end of the log accepts nothing: what was promised stays
// known.
func TestALostClearingForgetsNoPromise(t *testing.T) {
	t.Parallel()
	l := newFakeLog(100)
	g := runGuard(t, l, filepath.Join(t.TempDir(), "highwater.json"))
	g.clear(time.Time{}, l.now)
	g.until("reading the clearing", func() bool { m, _ := g.good(); return m.Seq == 101 })
	l.change(func(l *fakeLog) { l.acked = 105 })
	l.change(func(l *fakeLog) { l.recs = l.recs[:100] })
	g.until("alarm", g.Raised)
	if got := l.Acked(); got != 105 {
		t.Errorf("%d is remembered, 105 was promised", got)
	}
}

// I16: an end that goes back behind what was read is noticed by the reading itself.
func TestGuardSeesAnEndThatGoesBack(t *testing.T) {
	t.Parallel()
	g := runGuard(t, newFakeLog(100), filepath.Join(t.TempDir(), "highwater.json"))
	g.log.put("opledger.events.acme.op-1", []byte(`{"id":"e"}`))
	g.until("message 101", func() bool { m, _ := g.good(); return m.Seq == 101 })
	g.log.change(func(l *fakeLog) { l.recs = l.recs[:100] })
	g.until("alarm", g.Raised)
}

// I16: while the log was not read to its end, and when nobody could look at it,
// no attempt starts; that is no alarm.
func TestNoVerdictIsNoLicence(t *testing.T) {
	t.Parallel()
	l := newFakeLog(10)
	l.hidden = 5
	g, err := newGuard(guardConfig{Log: l, File: filepath.Join(t.TempDir(), "f"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil || g.Alarm() == "" {
		t.Fatalf("got alarm %q before anything was read, %v", g.Alarm(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = g.session(ctx)
	if got := g.Alarm(); !strings.Contains(got, "message 4 of 10") || g.Raised() {
		t.Errorf("got %q", got)
	}
	// It is one when the server goes on not to deliver.
	g.moved -= 2 * guardStale
	g.look(t.Context())
	if !g.Raised() || !strings.Contains(g.Alarm(), "does not deliver") {
		t.Errorf("got %q", g.Alarm())
	}

	x := runGuard(t, newFakeLog(10), filepath.Join(t.TempDir(), "f"))
	x.log.change(func(l *fakeLog) { l.err = errors.New("timeout") })
	x.look(t.Context())
	if x.Alarm() != "" {
		t.Errorf("a look that failed alarms: %s", x.Alarm())
	}
	x.guard.mu.Lock()
	x.guard.looked -= 2 * guardStale
	x.guard.mu.Unlock()
	if got := x.Alarm(); !strings.Contains(got, "could not be looked at") || x.Raised() {
		t.Errorf("got %q", got)
	}
}

// I16: while nobody answers, nobody delivers: what waits when the log is back after a
// failover is no alarm (found by kills of the leader of a cluster).
func TestWhatWaitsAfterAnOutageIsNoAlarm(t *testing.T) {
	t.Parallel()
	l := newFakeLog(10)
	l.hidden = 5
	g, err := newGuard(guardConfig{Log: l, File: filepath.Join(t.TempDir(), "f"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = g.session(ctx)
	g.moved -= 2 * guardStale
	l.change(func(l *fakeLog) { l.err = errors.New("no leader") })
	g.look(t.Context())
	l.change(func(l *fakeLog) { l.err = nil })
	g.look(t.Context())
	if g.Raised() {
		t.Errorf("the outage alarms: %s", g.Alarm())
	}
}

// I16: a server of several that was cut off tells of its past. Nothing starts while
// it does, and it is no alarm unless it goes on for long.
func TestAServerThatWasCutOffStopsAttemptsAndRaisesNoAlarm(t *testing.T) {
	t.Parallel()
	l := newFakeLog(100)
	g, err := newGuard(guardConfig{Log: l, File: filepath.Join(t.TempDir(), "f"), Replicated: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	session := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return g.session(ctx)
	}
	_ = session()
	if g.Alarm() != "" || !g.Checked() {
		t.Fatalf("got %q", g.Alarm())
	}
	all := l.recs
	l.change(func(l *fakeLog) { l.recs = all[:90] })
	g.look(t.Context())
	if g.Raised() || !strings.Contains(g.Alarm(), "cut off") {
		t.Errorf("got %q", g.Alarm())
	}
	if err := session(); err == nil || !strings.Contains(err.Error(), "100 was seen") || g.Raised() {
		t.Errorf("the audit began anew on the past: %v", err)
	}
	l.change(func(l *fakeLog) { l.recs = all })
	g.look(t.Context())
	if got := g.Alarm(); got != "" {
		t.Errorf("after its return: %q", got)
	}
	l.change(func(l *fakeLog) { l.recs = all[:90] })
	g.look(t.Context())
	g.suspected -= 2 * settleTime
	g.look(t.Context())
	if !g.Raised() {
		t.Error("a log that stays shorter is no alarm")
	}
}

// I16: after the connection was lost the verdict from before it is none.
func TestAVerdictDoesNotOutliveItsConnection(t *testing.T) {
	t.Parallel()
	connects := uint64(0)
	g, err := newGuard(guardConfig{
		Log: newFakeLog(3), File: filepath.Join(t.TempDir(), "f"), Logger: slog.New(slog.DiscardHandler),
		Connects: func() uint64 { return connects },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = g.session(ctx)
	if g.Alarm() != "" {
		t.Fatalf("got %q", g.Alarm())
	}
	connects++
	if got := g.Alarm(); !strings.Contains(got, "connection") {
		t.Errorf("got %q", got)
	}
	g.look(t.Context())
	if g.Alarm() != "" {
		t.Errorf("after a look: %q", g.Alarm())
	}
}

// clear accepts the log as it is.
func (x *guarded) clear(since, until time.Time) {
	x.t.Helper()
	info, _ := x.log.Info(x.t.Context())
	a := integrity.NewAudit(integrity.AuditConfig{Ledger: info.Ledger, Created: info.Created})
	for _, r := range x.log.recs {
		a.Add(r)
	}
	data, err := integrity.Clearing{Reason: "seen", Accepted: a.Base(), Since: since, Until: until}.Data()
	if err != nil {
		x.t.Fatal(err)
	}
	if _, err := x.log.AppendSystem(x.t.Context(), events.System{ID: events.NewID(), Kind: events.SystemAlarmCleared, Data: data}); err != nil {
		x.t.Fatal(err)
	}
}

// I16, section 10: only a recorded clearing ends an alarm. From then on what was
// accepted is the base, first requests are looked for, and a second damage
// alarms again. The clearing of an earlier damage ends nothing.
func TestOnlyARecordedClearingEndsAnAlarm(t *testing.T) {
	t.Parallel()
	for name, damage := range damages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, file := newFakeLog(100), filepath.Join(t.TempDir(), "highwater.json")
			runGuard(t, l, file).end()
			l.change(damage)
			g := runGuard(t, l, file)
			if _, doubt := g.LookFirst(l.now); doubt || !g.Raised() {
				t.Fatalf("doubt %t, alarm %q", doubt, g.Alarm())
			}
			since, until := l.created.Add(time.Minute), l.now.Add(24*time.Hour)
			l.now = l.now.Add(time.Hour)
			g.clear(since, until)
			g.until("end of the alarm", func() bool { return g.Alarm() == "" })
			for at, want := range map[time.Time]bool{l.now: true, until.Add(time.Second): false} {
				if s, doubt := g.LookFirst(at); doubt != want || (doubt && !s.Equal(since)) {
					t.Errorf("at %s: doubt %t since %s", at, doubt, s)
				}
			}
			l.put("opledger.events.acme.op-1", []byte(`{"id":"h"}`))
			g.end()
			g = runGuard(t, l, file)
			if text := g.Alarm(); text != "" {
				t.Fatalf("what was accepted alarms again: %s", text)
			}
			g.end()
			l.change(func(l *fakeLog) { l.recs = l.recs[:len(l.recs)-1] })
			if g = runGuard(t, l, file); !g.Raised() {
				t.Error("the second damage does not alarm")
			}
		})
	}
}

// An older copy of the log that holds an earlier clearing is not cleared by it.
func TestTheClearingOfAnEarlierDamageClearsNothing(t *testing.T) {
	t.Parallel()
	l, file := newFakeLog(100), filepath.Join(t.TempDir(), "highwater.json")
	g := runGuard(t, l, file)
	g.clear(time.Time{}, l.now)
	l.put("opledger.events.acme.op-1", []byte(`{"id":"h"}`))
	g.until("mark behind the clearing", func() bool {
		m, err := integrity.Load(file)
		return err == nil && m != nil && m.Seq == 102
	})
	g.end()
	l.change(func(l *fakeLog) { l.recs = l.recs[:101] }) // the clearing is still there
	if g = runGuard(t, l, file); !g.Raised() {
		t.Error("no alarm")
	}
}

// An alarm that another process recorded stops this one, too, and survives a
// restart of everything.
func TestARecordedAlarmStopsEveryProcess(t *testing.T) {
	t.Parallel()
	l := newFakeLog(5)
	g := runGuard(t, l, filepath.Join(t.TempDir(), "f"))
	other := &guard{cfg: g.cfg}
	other.alarm = &alarm{text: "gone back", findings: []integrity.Finding{{Kind: integrity.WentBack}}}
	other.record(t.Context())
	g.until("alarm", g.Raised)
	if !strings.Contains(g.Alarm(), "gone back") {
		t.Errorf("got %q", g.Alarm())
	}
	if again := runGuard(t, l, filepath.Join(t.TempDir(), "f")); !again.Raised() {
		t.Error("a new process does not alarm")
	}
	if n := l.count(events.SystemAlarmRaised); n != 1 {
		t.Errorf("%d records of one alarm", n)
	}
}

// Checkpoints are recorded as the log grows, and a new process without a mark
// finds by them what was changed in the middle.
func TestCheckpointsFindWhatWasChangedWithoutAMark(t *testing.T) {
	t.Parallel()
	l := newFakeLog(100)
	g := runGuard(t, l, filepath.Join(t.TempDir(), "f"))
	for l.count(events.SystemCheckpoint) < 3 {
		n := l.count(events.SystemCheckpoint)
		for range checkpointEvery {
			l.put("opledger.events.acme.op-1", []byte(`{"id":"e"}`))
		}
		g.until("checkpoint", func() bool { return l.count(events.SystemCheckpoint) > n })
	}
	g.end()
	if whole := runGuard(t, l, filepath.Join(t.TempDir(), "f")); whole.Raised() {
		t.Fatalf("a whole log alarms: %s", whole.Alarm())
	} else {
		whole.end()
	}
	l.change(func(l *fakeLog) { l.recs[1500].Body = []byte(`{"id":"x"}`) })
	found := runGuard(t, l, filepath.Join(t.TempDir(), "f"))
	if !found.Raised() || len(found.alarm.findings) != 1 {
		t.Fatalf("got %+v", found.alarm)
	}
	if f := found.alarm.findings[0]; f.Kind != integrity.CheckpointDiffers || f.From > 1501 || f.To < 1501 || f.To-f.From > 2*checkpointEvery {
		t.Errorf("got %+v, want a range around 1501", f)
	}
}

// I16: a long log is not waited for at the start, and no attempt starts before all
// of it was checked.
func TestALongLogHoldsUpAttemptsAndNotTheStart(t *testing.T) {
	t.Parallel()
	n := &Node{}
	g, err := newGuard(guardConfig{Log: newFakeLog(0), File: filepath.Join(t.TempDir(), "f"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	n.guard = g
	short := newFakeLog(100)
	info, _ := short.Info(t.Context())
	if g.begin(info, nil); g.long() {
		t.Error("100 messages are a long log")
	}
	info.Last, info.Messages = longLog+1, longLog+1
	g.begin(info, nil)
	n.awaitVerdict(t.Context()) // returns, though nobody checks anything
	for range 3 {
		if g.Alarm() == "" || n.Checking() == "" || !g.long() {
			t.Fatalf("a log that is being checked: alarm %q, checking %q", g.Alarm(), n.Checking())
		}
		if err := g.add(t.Context(), events.Record{Seq: g.audit.Seq() + 1, Subject: "opledger.events.acme.op-1"}); err != nil {
			t.Fatal(err)
		}
	}
	info.Last, info.Messages = 4, 4
	g.begin(info, nil)
	for seq := uint64(1); seq <= 4; seq++ {
		if err := g.add(t.Context(), short.recs[seq-1]); err != nil {
			t.Fatal(err)
		}
	}
	if g.Alarm() != "" || n.Checking() != "" {
		t.Errorf("a log that was checked: alarm %q, checking %q", g.Alarm(), n.Checking())
	}
}
