package operation_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

var update = flag.Bool("update", false, "write the golden files anew")

const rule = "----"

// teller plays a story: each line above the rule is something that happens; the
// lines below say what the ledger makes of it.
type teller struct {
	*journal
	c   operation.Contract
	out strings.Builder
}

// Stories of testdata/*.txt, one per file. The first lines of each file name
// the case and the invariant. Run with -update to write what follows the rule.
func TestStoriesEndAsTold(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			story, want, ok := strings.Cut(string(body), rule+"\n")
			if !ok {
				t.Fatalf("%s: no line %q", file, rule)
			}
			got := tell(t, story)
			if *update {
				if err := os.WriteFile(file, []byte(story+rule+"\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

func tell(t *testing.T, story string) string {
	t.Helper()
	x := &teller{journal: newJournal(t)}
	for line := range strings.Lines(story) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fmt.Fprintln(&x.out, line)
		x.line(line)
	}
	return x.out.String()
}

func (x *teller) print(format string, args ...any) {
	fmt.Fprintf(&x.out, "    "+format+"\n", args...)
}

// arguments splits "word a=1 b" into words and named values.
func arguments(line string) (words []string, named map[string]string) {
	named = map[string]string{}
	for f := range strings.FieldsSeq(line) {
		if k, v, ok := strings.Cut(f, "="); ok {
			named[k] = v
		} else {
			words = append(words, f)
		}
	}
	return words, named
}

func (x *teller) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		x.t.Fatalf("%q: %v", text, err)
	}
	return d
}

func (x *teller) line(line string) {
	x.t.Helper()
	words, named := arguments(line)
	switch words[0] {
	case "contract":
		x.contract(words[1], named)
		return
	case "intent":
		x.intent(named)
	case "next":
		x.follow()
	case "attempt":
		x.attempt(named)
	case "answer":
		x.answered(words[1], words[2], named)
	case "look":
		x.looked(words[1:], named)
	case "decide":
		x.decided(words[1], named)
	case "approve":
		x.approve(named)
	case "damage":
		x.show(events.OutcomeUnknown{Reason: events.UnknownLogDamage})
	case "stray":
		x.raw(events.Record{Seq: x.s.LastSeq + 1, Stamp: x.now, Body: []byte("?"), Err: errors.New("no event")})
	case "say":
		x.print("%s", operation.Say(x.s))
		return
	default:
		if d, ok := strings.CutPrefix(words[0], "+"); ok {
			x.wait(x.duration(d))
			return
		}
		x.t.Fatalf("story: %q is not a command", line)
	}
	x.state()
}

func (x *teller) contract(name string, named map[string]string) {
	all := map[string]func() operation.Contract{
		"k1": contractK1, "k1label": contractK1Label, "k2": contractK2, "k4": contractK4,
		"k4absent": contractK4Absent, "k5": contractK5,
	}
	x.c = all[name]()
	for k, v := range named {
		switch k {
		case "deadline":
			x.c.Deadline = x.duration(v)
		case "retention":
			x.c.Retention = x.duration(v)
		case "margin":
			x.c.Margin = x.duration(v)
		default:
			x.t.Fatalf("story: contract %s", k)
		}
	}
	x.print("%s, lag %s, late_apply %s", x.c.Class, x.c.Lookup.Lag, x.c.LateApply)
}

func (x *teller) intent(named map[string]string) {
	i := intentOf(x.c)
	for k, v := range named {
		switch k {
		case "approval":
			i.Approval = &events.Approval{Required: true, Deadline: x.now.Add(x.duration(v))}
		case "hold":
			i.Hold = v
		case "on_unknown":
			i.OnUnknown = events.OnUnknown(v)
		case "deadline":
			i.Limits = &events.Limits{Deadline: x.now.Add(x.duration(v))}
		default:
			x.t.Fatalf("story: intent %s", k)
		}
	}
	x.show(i)
}

// show appends events and prints them.
func (x *teller) show(payloads ...events.Payload) {
	x.t.Helper()
	for _, p := range payloads {
		a := x.put(p)
		text := x.relative(describe(p))
		if a.Reason != operation.AnomalyNone {
			text += "  ANOMALY " + string(a.Reason)
		}
		x.print("%s", text)
	}
}

// relative shortens the ids of permits, which are only counted here.
func (x *teller) relative(text string) string { return text }

func (x *teller) follow() operation.Step {
	for range 20 {
		step := x.next(x.c)
		switch step.Do {
		case operation.DoAppend:
			x.print("next: %s", step.Reason)
			x.show(step.Append...)
			continue
		case operation.DoAttempt:
			x.print("next: %s, an attempt may start%s", step.Reason, by(step.PermitID))
		case operation.DoLook:
			x.print("next: %s, look", step.Reason)
		case operation.DoWait:
			x.print("next: %s, wait%s", step.Reason, x.until(step.At))
		}
		return step
	}
	x.t.Fatal("Next appends without end")
	return operation.Step{}
}

func by(permit string) string {
	if permit == "" {
		return ""
	}
	return " by " + permit
}

func (x *teller) until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " until +" + t.Sub(begin).String()
}

func (x *teller) attempt(named map[string]string) {
	step := x.follow()
	if step.Do != operation.DoAttempt {
		x.print("nothing is sent")
		return
	}
	account, request := testAccount, testRequest
	if v := named["account"]; v != "" {
		account = v
	}
	if v := named["request"]; v != "" {
		request = v
	}
	if out := operation.Dispatch(x.s, account, request); len(out) > 0 {
		x.show(out...)
		x.print("nothing is sent")
		return
	}
	x.show(attemptOf(fmt.Sprintf("a%d", x.s.Started+1), x.s.Started+1, step.PermitID))
	if !operation.KeyWindow(step.ValidUntil, x.now, testLease) {
		x.print("the stamp is too late for the permit")
	}
}

func (x *teller) answered(id, word string, named map[string]string) {
	o := operation.Outcome{Word: operation.OutcomeWord(word), ExternalID: named["id"], Reason: named["reason"]}
	switch word {
	case "timeout", "connection_lost", "server_error", "unreadable_answer":
		o = uncertain(events.UnknownReason(word))
	}
	o.AnswersKey, o.Final = named["answers"] == "key", named["final"] == "yes"
	if v := named["retry_after"]; v != "" {
		o.RetryAfter = x.duration(v)
	}
	out := operation.Answered(x.s, x.c, id, o, x.params())
	if len(out) == 0 {
		x.print("nothing new")
	}
	x.show(out...)
}

func (x *teller) looked(words []string, named map[string]string) {
	l := lookOf(x.now)
	for _, w := range words {
		switch w {
		case "empty":
		case "outage":
			l.Failed, l.PagesComplete, l.Reason = true, false, "outage"
		case "partial":
			l.PagesComplete = false
		case "webhook":
			l.Source = events.SourceWebhook
		default:
			l.Matches = append(l.Matches, w)
		}
	}
	if v := named["account"]; v != "" {
		l.AccountProbed, l.AccountOK = v, v == testAccount
	}
	if v := named["weak"]; v != "" {
		l.Weak = strings.Split(v, ",")
	}
	if v := named["began"]; v != "" {
		l.AskedAt = begin.Add(x.duration(v))
	}
	l.Reason += named["reason"]
	out := operation.Looked(x.s, x.c, l, x.params())
	if len(out) == 0 {
		x.print("nothing new")
	}
	x.show(out...)
}

func (x *teller) decided(word string, named map[string]string) {
	d := operation.Decision{
		Word: events.DecisionWord(word), Actor: "ann", Reason: "telephoned", SeenVersion: x.s.Version,
		ExternalID: named["id"], Assignee: named["assignee"],
	}
	if v := named["until"]; v != "" {
		d.Until = x.now.Add(x.duration(v))
	}
	if v := named["seen"]; v != "" {
		if _, err := fmt.Sscan(v, &d.SeenVersion); err != nil {
			x.t.Fatal(err)
		}
	}
	out, refusal := operation.Decided(x.s, x.c, d, x.params())
	if refusal.Reason != operation.RefusalNone {
		x.print("refused: %s: %s", refusal.Reason, refusal.Text)
	}
	x.show(out...)
}

func (x *teller) approve(named map[string]string) {
	g := operation.Grant{Approver: "ann", IntentDigest: testDigest, ExpiresAt: x.now.Add(time.Hour)}
	if v := named["for"]; v != "" {
		g.ExpiresAt = x.now.Add(x.duration(v))
	}
	if v := named["digest"]; v != "" {
		g.IntentDigest = v
	}
	out, refusal := operation.Approved(x.s, g, x.params())
	if refusal.Reason != operation.RefusalNone {
		x.print("refused: %s: %s", refusal.Reason, refusal.Text)
	}
	x.show(out...)
}

// state prints what the ledger now knows.
func (x *teller) state() {
	s := x.s
	text := fmt.Sprintf("= %s v%d, next %s%s", s.Status, s.Version, s.NextAction, x.at(s.NextAt))
	if s.Review != nil {
		text += ", review " + string(s.Review.Reason)
	}
	if m := s.Permit; m != nil && !m.Used {
		text += ", permit " + m.ID
	}
	for _, f := range []struct {
		on   bool
		text string
	}{
		{s.Halted != "", "halted " + s.Halted},
		{s.Hold != "", "hold " + s.Hold},
		{s.Sighted && !s.Status.Final(), "sighted"},
		{s.Duplicate, "duplicate"},
		{s.Undetermined, "undetermined"},
		{s.EmptyReads > 0 && !s.Status.Final(), fmt.Sprintf("empty reads %d", s.EmptyReads)},
	} {
		if f.on {
			text += ", " + f.text
		}
	}
	x.print("%s", text)
}

func (x *teller) at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " +" + t.Sub(begin).String()
}
