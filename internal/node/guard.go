package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/integrity"
	"github.com/opledger/opledger/internal/natsjournal"
)

// guard holds the log against itself and against the high-water mark of this
// process, at the start and for as long as it runs. While it has not checked the
// whole log, or while it alarms, this process starts no attempt (I16); outcomes
// of those under way are still recorded.
//
// An alarm ends with a record in the log by which a person accepted the log as
// it is. From then on first requests are looked for before they are sent, for as
// long as that record says.
type guard struct {
	cfg  guardConfig
	base time.Time

	mu    sync.Mutex
	audit *integrity.Audit
	// mark is what this process has seen at the latest, apart from what the
	// audit has passed; nil if there is none. saved is what the file holds.
	mark  *integrity.Mark
	saved integrity.Mark
	// target is where the log ended when the audit began; checked is set when
	// it was reached without trouble or with an alarm.
	target  uint64
	checked bool
	alarm   *alarm
	// clearings are those in the log; standing: an alarm was recorded after the
	// last one.
	clearings []integrity.Clearing
	standing  bool
	// accepted is what was accepted by the last clearing.
	accepted integrity.Base
	// looked is when the last good look was, by the monotonic clock, and
	// connects the number of connections up to then.
	looked   time.Duration
	connects uint64
	// moved is when the audit last got on, at which message.
	moved   time.Duration
	movedTo uint64
	// checkpointed is the last message that a checkpoint of this process names.
	checkpointed   uint64
	checkpointedAt time.Duration
	// kick asks for a look at once.
	kick chan struct{}
	// suspect is what looks at a replicated log have found since suspected, behind
	// since when it ends before what was seen; both are zero if all is well.
	suspect           string
	suspected, behind time.Duration
}

// alarm is what is wrong with the log.
type alarm struct {
	text     string
	findings []integrity.Finding
	// cleared is the last clearing that was known when the alarm was raised.
	cleared  string
	recorded bool
}

// guardConfig is what a guard needs.
type guardConfig struct {
	Log      guardedLog
	Subjects events.Subjects
	// File is the high-water mark.
	File string
	// Actor signs what the guard records.
	Actor string
	// Checkpoints: this process writes them.
	Checkpoints bool
	// Replicated: several servers keep the log. One that was cut off tells of its
	// past until it notices, and one that takes over needs a moment until it
	// delivers; what a look finds is believed when looks have found it for long.
	Replicated bool
	// Connects counts the connections so far; nil means that there is one.
	Connects func() uint64
	// Forget is called before an alarm ends: what this process remembers of
	// operations may be lost. It may be nil.
	Forget func()
	Logger *slog.Logger
}

// guardedLog is what a guard reads of the log.
type guardedLog interface {
	Info(ctx context.Context) (natsjournal.Info, error)
	Read(ctx context.Context, seq uint64) (events.Record, error)
	Alarms(ctx context.Context) ([]events.Record, error)
	Walk(ctx context.Context, from, to uint64, fn func(events.Record) error) error
	AppendSystem(ctx context.Context, s events.System) (uint64, error)
	// Acked is the last message that was promised to this process, which the audit may
	// not have read yet.
	Acked() uint64
	ForgetAcked()
}

const (
	guardEvery   = 3 * time.Second
	guardTimeout = 2 * time.Second
	// guardStale is how old a verdict may be, and how long the audit may stand
	// still before that is an alarm.
	guardStale = 10 * time.Second
	// settleTime is how long looks at a replicated log must find the same until it is
	// believed. A leader without its majority needs 10 s to notice.
	settleTime = 30 * time.Second
	// markEvery is the least time between two writes of the mark.
	markEvery = 250 * time.Millisecond
	// checkpointEvery is after how many messages a checkpoint is recorded, and
	// checkpointIdle after what time if there were fewer.
	checkpointEvery = 1000
	checkpointIdle  = time.Hour
	// firstVerdict is how long a start waits for the audit before it goes on
	// without; attempts wait for it in any case.
	firstVerdict = time.Second
	// longLog is how many messages are not checked within that.
	longLog = 200_000
)

func newGuard(cfg guardConfig) (*guard, error) {
	g := &guard{cfg: cfg, base: time.Now(), kick: make(chan struct{}, 1)}
	var err error
	if g.mark, err = integrity.Load(cfg.File); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	if g.mark = telling(g.mark); g.mark != nil {
		g.saved = *g.mark
	}
	return g, nil
}

func (g *guard) now() time.Duration { return time.Since(g.base) }

func (g *guard) connections() uint64 {
	if g.cfg.Connects == nil {
		return 0
	}
	return g.cfg.Connects()
}

// Alarm says why no attempt may start, or "". A verdict that is too old, or from
// before the connection was lost, is none.
func (g *guard) Alarm() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.alarm != nil:
		return g.alarm.text
	case !g.checked:
		return g.progress()
	case g.suspect != "":
		return "perhaps from a server that was cut off: " + g.suspect
	}
	if g.connections() != g.connects {
		select {
		case g.kick <- struct{}{}:
		default:
		}
		return "the log has not been looked at since the connection came back"
	}
	if age := g.now() - g.looked; age > guardStale {
		return fmt.Sprintf("the log could not be looked at for %s", age.Round(time.Second))
	}
	return ""
}

func (g *guard) progress() string {
	if g.audit == nil {
		return "the log has not been checked yet"
	}
	return fmt.Sprintf("the log is being checked: message %d of %d", g.audit.Seq(), g.target)
}

// Raised reports whether an alarm stands.
func (g *guard) Raised() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.alarm != nil
}

// Checked reports whether there is a verdict on the whole log.
func (g *guard) Checked() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.checked || g.alarm != nil
}

// long reports whether the log that is being checked is a long one.
func (g *guard) long() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.target > longLog
}

// LookFirst tells of an operation that was recorded at a moment whether its first
// request may have been sent already by what the log has lost, and since when.
func (g *guard) LookFirst(recorded time.Time) (since time.Time, doubt bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.clearings {
		if recorded.After(c.Until) {
			continue
		}
		if !doubt || c.Since.Before(since) {
			since = c.Since
		}
		doubt = true
	}
	return since, doubt
}

// errAgain: the audit begins anew.
var errAgain = errors.New("node: the log is checked anew")

// session audits the log from its first message on and then goes on with what
// comes, until something makes it begin anew.
func (g *guard) session(ctx context.Context) error {
	info, err := g.cfg.Log.Info(ctx)
	if err != nil {
		return err
	}
	if seen, waits := g.waitsFor(info.Last); waits {
		return fmt.Errorf("node: the log ends with message %d, and %d was seen; perhaps the server was cut off", info.Last, seen)
	}
	records, err := g.cfg.Log.Alarms(ctx)
	if err != nil {
		return err
	}
	g.begin(info, records)
	err = g.cfg.Log.Walk(ctx, 1, 0, func(r events.Record) error { return g.add(ctx, r) })
	if ctx.Err() == nil && errors.Is(err, natsjournal.ErrReplaced) {
		return errAgain // the audit that follows says what that means
	}
	return err
}

// waitsFor reports whether a replicated log that ends before what was seen may still
// turn out to be a server that was cut off.
func (g *guard) waitsFor(last uint64) (seen uint64, waits bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mark != nil {
		seen = g.mark.Seq
	}
	if g.audit != nil {
		seen = max(seen, g.audit.Seq())
	}
	if !g.cfg.Replicated || last >= seen {
		g.behind = 0
		return seen, false
	}
	if g.behind == 0 {
		g.behind = g.now()
	}
	return seen, g.now()-g.behind < settleTime
}

// settles reports whether what a look found is to be found by later looks, too,
// before it is believed.
func (g *guard) settles(found []integrity.Finding) bool {
	if len(found) == 0 {
		g.suspect, g.suspected = "", 0
		return false
	}
	if !g.cfg.Replicated || found[0].Kind == integrity.OtherLog {
		return false
	}
	if g.suspect == "" {
		g.suspected = g.now()
	}
	g.suspect = found[0].String()
	return g.now()-g.suspected < settleTime
}

// begin starts an audit of the whole log.
func (g *guard) begin(info natsjournal.Info, records []events.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.audit != nil && g.checked {
		seen := g.saved // from before the alarm
		if g.alarm == nil {
			seen = g.audit.Mark()
		}
		g.mark = telling(&seen)
	}
	before := g.lastCleared()
	g.clearings, g.standing = nil, false
	var raised string
	var unreadable []integrity.Finding
	for _, r := range records {
		s, err := events.DecodeSystem(r.Body)
		switch {
		case err == nil && s.Kind == events.SystemAlarmRaised:
			g.standing = true
			raised, _ = s.Data["reason"].(string)
			raised = fmt.Sprintf("%s (raised by %s at %s)", raised, s.Actor, r.Stamp.UTC().Format(time.RFC3339))
		case err == nil && s.Kind == events.SystemAlarmCleared:
			c, err := integrity.ReadClearing(r)
			if err != nil {
				unreadable = append(unreadable, integrity.Finding{Kind: integrity.Unreadable, From: r.Seq, To: r.Seq, Detail: err.Error()})
				continue
			}
			g.clearings, g.standing, unreadable = append(g.clearings, c), false, nil
		default:
			unreadable = append(unreadable, integrity.Finding{Kind: integrity.Unreadable, From: r.Seq, To: r.Seq, Detail: "a record of an alarm that can't be read"})
		}
	}
	cleared, mark := g.lastCleared(), g.mark
	g.accepted = integrity.Base{First: 1}
	if cleared.ID != "" {
		g.accepted = cleared.Accepted
	}
	if cleared.Stamp.After(before.Stamp) {
		g.cfg.Log.ForgetAcked()
	}
	if mark != nil && cleared.Stamp.After(mark.Stamp) {
		mark = nil // what was accepted since is what counts
	}
	if g.alarm != nil && g.alarm.cleared != cleared.ID && mark == nil {
		if g.cfg.Forget != nil {
			g.cfg.Forget()
		}
		g.alarm = nil
	}
	g.audit = integrity.NewAudit(integrity.AuditConfig{
		Subjects: g.cfg.Subjects, Ledger: info.Ledger, Created: info.Created, Base: g.accepted, Mark: mark,
	})
	g.target, g.checked, g.connects = info.Last, false, g.connections()
	g.moved, g.movedTo = g.now(), 0
	g.checkpointed, g.checkpointedAt = 0, g.now()
	if g.standing {
		g.raise(raised, nil)
	}
	if len(unreadable) > 0 {
		g.raise("", unreadable)
	}
	if info.Last == 0 {
		g.judge()
	}
}

// telling passes on a mark that says something. One of an empty log does not.
func telling(m *integrity.Mark) *integrity.Mark {
	if m == nil || m.Seq == 0 {
		return nil
	}
	return m
}

func (g *guard) lastCleared() integrity.Clearing {
	if len(g.clearings) == 0 {
		return integrity.Clearing{}
	}
	return g.clearings[len(g.clearings)-1]
}

// add takes the next message of the log.
func (g *guard) add(ctx context.Context, r events.Record) error {
	if r.Subject == g.cfg.Subjects.System(events.SystemAlarmRaised.Name()) && r.Seq > g.targeted() {
		s, err := events.DecodeSystem(r.Body)
		if err != nil || s.Kind != events.SystemAlarmRaised || !g.Raised() {
			return errAgain // news about alarms
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.audit.Add(r)
	g.moved, g.movedTo = g.now(), r.Seq
	switch {
	case r.Seq >= g.target && !g.checked:
		g.judge()
	case g.checked && g.alarm == nil:
		if found, _ := g.audit.Findings(); len(found) > 0 {
			g.raise("", found)
		}
	}
	return ctx.Err()
}

func (g *guard) targeted() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.target
}

// judge ends the check of what was in the log when it began.
func (g *guard) judge() {
	g.audit.End()
	g.checked, g.looked = true, g.now()
	if g.now() > firstVerdict {
		g.cfg.Logger.LogAttrs(context.Background(), slog.LevelInfo, "the whole log is checked", slog.Uint64("seq", g.audit.Seq()))
	}
	if found, _ := g.audit.Findings(); len(found) > 0 {
		g.raise("", found)
	}
	if g.alarm != nil || g.mark != nil {
		return
	}
	level := slog.LevelWarn
	if g.audit.Seq() == 0 {
		level = slog.LevelInfo // a new ledger
	}
	n, _ := g.audit.Checked()
	g.cfg.Logger.LogAttrs(context.Background(), level,
		"no high-water mark of the log; one begins here, since the log agrees with itself",
		slog.Uint64("seq", g.audit.Seq()), slog.Int("checkpoints", n), slog.String("file", g.cfg.File))
}

// raise raises an alarm, if none stands.
func (g *guard) raise(text string, findings []integrity.Finding) {
	if g.alarm != nil {
		return
	}
	if text == "" {
		lines := make([]string, 0, maxAlarmFindings)
		for _, f := range findings[:min(len(findings), maxAlarmFindings)] {
			lines = append(lines, f.String())
		}
		if more := len(findings) - len(lines); more > 0 {
			lines = append(lines, fmt.Sprintf("and %d more", more))
		}
		text = strings.Join(lines, "; ")
	}
	g.alarm = &alarm{text: text, findings: findings, cleared: g.lastCleared().ID, recorded: g.standing}
	g.cfg.Logger.LogAttrs(context.Background(), slog.LevelError,
		"INTEGRITY ALARM: no attempt starts; run opledger verify, then opledger integrity clear", slog.String("what", text))
}

// maxAlarmFindings bounds the findings that an alarm names.
const maxAlarmFindings = 3

// look holds the state of the log's stream against what was read of it.
func (g *guard) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	g.mu.Lock()
	audit, checked, connects := g.audit, g.checked, g.connections()
	var seen integrity.Mark
	if audit != nil {
		seen = audit.Mark()
	}
	g.mu.Unlock()
	if audit == nil {
		return
	}
	acked := g.cfg.Log.Acked()
	info, err := g.cfg.Log.Info(ctx)
	if err != nil {
		g.mu.Lock()
		g.moved = g.now() // nobody could deliver
		g.mu.Unlock()
		return
	}
	found, err := g.compare(ctx, info, seen, acked)
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.audit != audit {
		return // it began anew
	}
	if info.Last <= g.audit.Seq() {
		g.moved = g.now()
	} else if g.now()-g.moved > guardStale {
		found = append(found, integrity.Finding{
			Kind: integrity.Unreadable, From: g.audit.Seq() + 1, To: info.Last, Since: seen.Stamp, Detail: "the server does not deliver them",
		})
	}
	if missing := missingOf(info); checked && missing != g.accepted.Deleted {
		found = append(found, integrity.Finding{
			Kind: integrity.Gap, From: 1, To: info.Last, Detail: fmt.Sprintf("%d messages are missing, %d were accepted", missing, g.accepted.Deleted),
		})
	}
	if g.settles(found) {
		return
	}
	if len(found) > 0 {
		g.raise("", found)
	}
	g.looked, g.connects = g.now(), connects
}

// missingOf counts the sequence numbers that are missing from the first on.
func missingOf(info natsjournal.Info) uint64 {
	if info.Last < info.Messages {
		return 0
	}
	return info.Last - info.Messages
}

// compare looks for what the audit, which only goes forward, does not see. Everything
// up to acked was in the log, too, before info was asked for.
func (g *guard) compare(ctx context.Context, info natsjournal.Info, seen integrity.Mark, acked uint64) ([]integrity.Finding, error) {
	last := max(seen.Seq, acked)
	switch {
	case info.Ledger != seen.Ledger || !info.Created.Equal(seen.Created):
		return []integrity.Finding{{Kind: integrity.OtherLog, Detail: fmt.Sprintf("the log was created anew at %s", info.Created.UTC().Format(time.RFC3339))}}, nil
	case info.Lost > 0:
		return []integrity.Finding{{Kind: integrity.Gap, From: 1, To: info.Last, Detail: fmt.Sprintf("the server has lost %d messages", info.Lost)}}, nil
	case info.Last < last:
		f := integrity.Finding{Kind: integrity.WentBack, From: info.Last + 1, To: last, Detail: fmt.Sprintf("the log ends with message %d", info.Last)}
		rec, err := g.cfg.Log.Read(ctx, info.Last)
		if err != nil && !errors.Is(err, natsjournal.ErrNotFound) {
			return nil, err // who does not let itself be read is no witness
		}
		f.Since = rec.Stamp
		return []integrity.Finding{f}, nil
	}
	if info.Last > seen.Seq {
		// The server says that it is there; reading may only lag behind.
		if _, err := g.cfg.Log.Read(ctx, info.Last); errors.Is(err, natsjournal.ErrNotFound) {
			return []integrity.Finding{{Kind: integrity.Gap, From: seen.Seq + 1, To: info.Last, Since: seen.Stamp, Detail: "the server counts them and can't read the last one"}}, nil
		}
	}
	if seen.Seq == 0 {
		return nil, nil
	}
	rec, err := g.cfg.Log.Read(ctx, seen.Seq)
	if err != nil && !errors.Is(err, natsjournal.ErrNotFound) {
		return nil, err
	}
	if err == nil && events.Digest(rec.Body) == seen.Message && rec.Stamp.Equal(seen.Stamp) {
		return nil, nil
	}
	return []integrity.Finding{{Kind: integrity.Changed, From: seen.Seq, To: seen.Seq, Detail: "it is not the message that was there"}}, nil
}

// run audits and looks until ctx ends; then it writes the last mark.
func (g *guard) run(ctx context.Context) error {
	var audits sync.WaitGroup
	audits.Go(func() {
		for ctx.Err() == nil {
			err := g.session(ctx)
			if errors.Is(err, errAgain) || ctx.Err() != nil {
				continue
			}
			g.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the log can't be checked; trying again", slog.Any("err", err))
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	look, write := time.NewTicker(guardEvery), time.NewTicker(markEvery)
	defer look.Stop()
	defer write.Stop()
	for {
		select {
		case <-ctx.Done():
			audits.Wait()
			return g.end(context.WithoutCancel(ctx))
		case <-look.C:
			g.look(ctx)
			g.record(ctx)
		case <-g.kick:
			g.look(ctx)
		case <-write.C:
			if err := g.save(false); err != nil {
				g.cfg.Logger.LogAttrs(ctx, slog.LevelError, "the high-water mark was not written", slog.Any("err", err))
			}
			g.checkpoint(ctx)
		}
	}
}

// good returns what the log is now, if there is a verdict and no alarm.
func (g *guard) good() (integrity.Mark, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.audit == nil || !g.checked || g.alarm != nil {
		return integrity.Mark{}, false
	}
	return g.audit.Mark(), true
}

// save writes the mark if it has changed. While an alarm stands it stays what it
// was: it is the evidence.
func (g *guard) save(clean bool) error {
	m, ok := g.good()
	if !ok || (m == g.saved && !clean) {
		return nil
	}
	if err := integrity.Save(g.cfg.File, m, clean); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.saved = m
	return nil
}

// end reads what came since and writes the last mark, within a bound.
func (g *guard) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	if m, ok := g.good(); ok {
		info, err := g.cfg.Log.Info(ctx)
		if err == nil && info.Last > m.Seq && info.Created.Equal(m.Created) {
			_ = g.cfg.Log.Walk(ctx, m.Seq+1, info.Last, func(r events.Record) error {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.audit.Add(r)
				return nil
			})
		}
		if found, _ := g.audit.Findings(); len(found) > 0 {
			return nil // the next start says so
		}
	}
	return g.save(true)
}

// checkpoint records the rolling digest of the log every so often.
func (g *guard) checkpoint(ctx context.Context) {
	m, ok := g.good()
	if !ok || !g.cfg.Checkpoints {
		return
	}
	g.mu.Lock()
	_, last := g.audit.Checked()
	last = max(last, g.checkpointed)
	due := m.Seq >= last+checkpointEvery || (m.Seq > last+1 && g.now()-g.checkpointedAt >= checkpointIdle)
	if due {
		g.checkpointed, g.checkpointedAt = m.Seq, g.now()
	}
	g.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	_, err := g.cfg.Log.AppendSystem(ctx, events.System{
		ID: events.NewID(), Kind: events.SystemCheckpoint, Time: time.Now(), Actor: g.cfg.Actor,
		Data: integrity.Checkpoint{Seq: m.Seq, Digest: m.Rolling}.Data(),
	})
	if err != nil {
		g.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the checkpoint was not recorded", slog.Any("err", err))
	}
}

// record writes an alarm into the log, if that still takes it and no alarm is
// recorded there already.
func (g *guard) record(ctx context.Context) {
	g.mu.Lock()
	var data map[string]any
	if a := g.alarm; a != nil && !a.recorded {
		data = raisedData(*a)
	}
	g.mu.Unlock()
	if data == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	_, err := g.cfg.Log.AppendSystem(ctx, events.System{
		ID: events.NewID(), Kind: events.SystemAlarmRaised, Time: time.Now(), Actor: g.cfg.Actor, Data: data,
	})
	if err != nil {
		g.cfg.Logger.LogAttrs(ctx, slog.LevelError, "the alarm was not recorded", slog.Any("err", err))
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alarm != nil {
		g.alarm.recorded = true
	}
}

// raisedData is the content of an IntegrityAlarmRaised record. since is the last
// moment before the damage, and missing where nobody knows it.
func raisedData(a alarm) map[string]any {
	findings := make([]map[string]any, 0, len(a.findings))
	var since time.Time
	known := len(a.findings) > 0
	for i, f := range a.findings {
		findings = append(findings, map[string]any{"kind": string(f.Kind), "from": f.From, "to": f.To, "detail": f.Detail})
		if i == 0 || f.Since.Before(since) {
			since = f.Since
		}
		known = known && !f.Since.IsZero()
	}
	data := map[string]any{"reason": a.text, "findings": findings}
	if known {
		data["since"] = since.UTC().Format(time.RFC3339Nano)
	}
	return data
}
