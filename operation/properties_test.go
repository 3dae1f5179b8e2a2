package operation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// history is one property over random histories: it returns the violation, or
// nothing.
type history struct {
	name string
	run  func(b brain, ch *chooser) string
}

func histories() []history {
	return []history{
		{"fold", foldFollowsTheEvents},
		{"redelivery", redeliveryChangesNothing},
		{"aliasing", foldNeverTouchesItsInput},
		{"stray", strayMessagesMoveTheSequence},
		{"late proof", lateProofSettlesItsAttempt},
		{"duplicates", twoObjectsAreTold},
	}
}

var everySymbol = append(alphabet(), rare()...)

// grow makes a random history: mostly of events that follow from one another.
func grow(b brain, ch *chooser, each func(before, after operation.State, r events.Record, a operation.Anomaly) string) (operation.State, string) {
	var s operation.State
	now := begin
	step := func(p events.Payload) string {
		r := lightRecord(s, now, p)
		after, a := b.evolve(s, r)
		v := each(s, after, r, a)
		s, now = after, now.Add(time.Duration(1+ch.pick(40))*time.Second)
		return v
	}
	if ch.pick(20) != 19 {
		if v := step(intentOf(contractK1())); v != "" {
			return s, v
		}
	}
	for range 3 + ch.pick(20) {
		if v := step(everySymbol[ch.pick(len(everySymbol))].make(s)); v != "" {
			return s, v
		}
	}
	return s, ""
}

// I1, I3, I4, I5, I12, I13 over long histories, by the oracle.
func foldFollowsTheEvents(b brain, ch *chooser) string {
	o := &oracle{}
	_, v := grow(b, ch, func(before, after operation.State, r events.Record, _ operation.Anomaly) string {
		o.apply(r.ID, r.Stamp, r.Data)
		if before.Status.Final() && before.Status != after.Status {
			return "final changed (I1)"
		}
		if after.Version != before.Version+1 || after.LastSeq != before.LastSeq+1 {
			return "version or sequence did not advance (I13)"
		}
		if err := o.agrees(after); err != nil {
			return err.Error()
		}
		if err := settled(after); err != nil {
			return err.Error()
		}
		for _, c := range []operation.Contract{contractK1Label(), contractK4Absent(), contractK5()} {
			now := r.Stamp.Add(time.Duration(ch.pick(4)) * time.Hour)
			step := b.next(after, c, operation.Params{Now: now, NewID: "n", ClockError: testClock, Lease: testLease})
			if err := o.allows(after, step, now); err != nil {
				return err.Error()
			}
		}
		return ""
	})
	return v
}

func redeliveryChangesNothing(b brain, ch *chooser) string {
	var seen []events.Record
	_, v := grow(b, ch, func(_, after operation.State, r events.Record, _ operation.Anomaly) string {
		seen = append(seen, r)
		again, a := b.evolve(after, seen[ch.pick(len(seen))])
		if a.Reason != operation.AnomalyNone {
			return "a redelivered record is an anomaly"
		}
		if d := cmp.Diff(after, again); d != "" {
			return "a redelivered record changed the state: " + d
		}
		return ""
	})
	return v
}

func snapshot(s operation.State) string {
	b, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Two futures are grown from one state: neither may change it, nor the other.
func foldNeverTouchesItsInput(b brain, ch *chooser) string {
	s, _ := grow(b, ch, func(operation.State, operation.State, events.Record, operation.Anomaly) string { return "" })
	was := snapshot(s)
	one, _ := b.evolve(s, lightRecord(s, s.UpdatedAt, everySymbol[ch.pick(len(everySymbol))].make(s)))
	first := snapshot(one)
	for _, sym := range everySymbol {
		_, _ = b.evolve(s, lightRecord(s, s.UpdatedAt, sym.make(s)))
		if snapshot(s) != was {
			return sym.name + " changed the state that it was folded into"
		}
	}
	if snapshot(one) != first {
		return "one future changed another"
	}
	return ""
}

// A stray message on the subject moves the sequence that the next append is
// compared with, and nothing of what is known of the outside.
func strayMessagesMoveTheSequence(b brain, ch *chooser) string {
	s, _ := grow(b, ch, func(operation.State, operation.State, events.Record, operation.Anomaly) string { return "" })
	stray := events.Record{Seq: s.LastSeq + 1 + uint64(ch.pick(5)), Stamp: s.UpdatedAt, Body: []byte("?"), Err: errors.New("no event")}
	after, a := b.evolve(s, stray)
	switch {
	case after.LastSeq != stray.Seq:
		return fmt.Sprintf("after a stray message the sequence is %d, the log is at %d: every append loses", after.LastSeq, stray.Seq)
	case a.Reason != operation.AnomalyMalformed || after.Halted == "":
		return "a stray message is not reported"
	case after.Status != s.Status || after.Version != s.Version || after.Head != s.Head || !cmp.Equal(after.Attempts, s.Attempts):
		return "a stray message changed what is known"
	}
	return ""
}

// A proof that nothing was sent says what it says also when it comes late: it
// settles the attempt that it names, and only that one.
func lateProofSettlesItsAttempt(b brain, ch *chooser) string {
	s, _ := grow(b, ch, func(operation.State, operation.State, events.Record, operation.Anomaly) string { return "" })
	if s.Status.Final() {
		return ""
	}
	for _, a := range s.Attempts {
		if a.State != operation.AttemptUnresolved {
			continue
		}
		out := b.answered(s, contractK5(), a.ID, operation.Outcome{Word: operation.OutcomeNotSent}, operation.Params{Now: s.UpdatedAt, NewID: "n"})
		if len(out) != 1 || out[0].Kind() != events.KindAttemptNotApplied {
			return "the proof was dropped"
		}
		after, _ := b.evolve(s, lightRecord(s, s.UpdatedAt, out[0]))
		for i, was := range s.Attempts {
			if was.ID != a.ID && after.Attempts[i].State != was.State {
				return "the proof settled another attempt"
			}
		}
	}
	return ""
}

// Two objects that carry our own label are told, whatever went before.
func twoObjectsAreTold(b brain, ch *chooser) string {
	s, _ := grow(b, ch, func(operation.State, operation.State, events.Record, operation.Anomaly) string { return "" })
	if s.Status == operation.StatusAbsent {
		return ""
	}
	now := s.UpdatedAt.Add(time.Minute)
	for _, p := range b.looked(s, contractK4(), lookOf(now, "X-1", "X-2"), operation.Params{Now: now, NewID: "n"}) {
		s, _ = b.evolve(s, lightRecord(s, now, p))
	}
	if s.Review == nil || (s.Status == operation.StatusConfirmed && !s.Duplicate) {
		return "two objects, and nobody is told"
	}
	return ""
}

// The same properties under rapid, one function per invariant, so that a
// violation is shrunk to a short history.
func property(t *testing.T, run func(b brain, ch *chooser) string) {
	t.Helper()
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		script := rapid.SliceOfN(rapid.IntRange(0, 1<<20), 1, 40).Draw(rt, "choices")
		if v := run(realBrain(), &chooser{script: script, wrap: true}); v != "" {
			rt.Fatal(v)
		}
	})
}

func TestFinalIsFinal(t *testing.T) { // I1
	property(t, func(b brain, ch *chooser) string {
		_, v := grow(b, ch, func(before, after operation.State, _ events.Record, _ operation.Anomaly) string {
			if before.Status.Final() && (after.Status != before.Status || !cmp.Equal(before.Result, after.Result) || !cmp.Equal(before.Rejection, after.Rejection)) {
				return fmt.Sprintf("%s became %s", before.Status, after.Status)
			}
			return ""
		})
		return v
	})
}

func TestAtMostOneAttemptIsOpen(t *testing.T) { // I3
	property(t, func(b brain, ch *chooser) string {
		_, v := grow(b, ch, func(before, after operation.State, r events.Record, a operation.Anomaly) string {
			open := 0
			for _, x := range after.Attempts {
				if x.State == operation.AttemptOpen {
					open++
				}
			}
			if _, was := before.Open(); was && open > 1 && r.Data.Kind() == events.KindAttemptStarted && a.Reason == operation.AnomalyNone {
				return "a second open attempt is no anomaly"
			}
			if open > 0 && !after.Status.Final() && after.Status != operation.StatusInFlight {
				return "an open attempt is hidden by " + string(after.Status)
			}
			return ""
		})
		return v
	})
}

func TestNoAttemptBesideAnUnresolvedOneWithoutItsPermit(t *testing.T) { // I4
	property(t, foldFollowsTheEvents)
}

func TestKeyAttemptsEndBeforeTheKeyIsForgotten(t *testing.T) { // I5
	property(t, func(b brain, ch *chooser) string {
		c := contractK1()
		s, _ := grow(b, ch, func(operation.State, operation.State, events.Record, operation.Anomaly) string { return "" })
		now := s.UpdatedAt.Add(time.Duration(ch.pick(26*60)) * time.Minute)
		for range 3 {
			step := b.next(s, c, operation.Params{Now: now, NewID: "n", ClockError: testClock, Lease: testLease})
			if step.Do == operation.DoAttempt && s.Permit != nil && step.PermitID == s.Permit.ID && s.Permit.Basis == events.BasisKeyRetention {
				end := s.FirstSend.Add(c.Retention)
				if limit := s.FirstSend.Add(c.Retention - c.Margin); s.Permit.ValidUntil.Before(limit) {
					end = s.Permit.ValidUntil.Add(c.Margin)
				}
				if !now.Add(testLease + c.Margin).Before(s.FirstSend.Add(c.Retention)) {
					return fmt.Sprintf("attempt at %s, the key may be forgotten at %s", now, end)
				}
			}
			for _, p := range step.Append {
				if d, ok := p.(events.RetryPermitted); ok && d.Basis == events.BasisKeyRetention {
					if d.ValidUntil.After(s.FirstSend.Add(c.Retention - c.Margin)) {
						return "the permit outlives the retention less the margin"
					}
					now = d.RetryAt
				}
				s, _ = b.evolve(s, lightRecord(s, now, p))
			}
		}
		return ""
	})
}

func TestEmptyLookInsideTheBoundsIsInconclusive(t *testing.T) { // I11
	property(t, func(b brain, ch *chooser) string {
		c := contractK4Absent()
		s, _ := grow(b, ch, func(operation.State, operation.State, events.Record, operation.Anomaly) string { return "" })
		for range 6 {
			now := s.UpdatedAt.Add(time.Duration(ch.pick(240)) * time.Second)
			l := lookOf(now.Add(-time.Duration(ch.pick(120)) * time.Second))
			l.PagesComplete, l.Failed = ch.pick(4) != 3, ch.pick(6) == 5
			for _, p := range b.looked(s, c, l, operation.Params{Now: now, NewID: "n", ClockError: testClock}) {
				e, ok := p.(events.EvidenceRecorded)
				if ok && e.Finding == events.FindingAbsent {
					if v := absentIsAllowed(s, c, l); v != "" {
						return v
					}
				}
				s, _ = b.evolve(s, lightRecord(s, now, p))
			}
		}
		return ""
	})
}

func absentIsAllowed(s operation.State, c operation.Contract, l operation.Look) string {
	if !l.PagesComplete || l.Failed || s.Sighted {
		return "absent by a look that shows nothing"
	}
	for _, a := range s.Attempts {
		if a.State == operation.AttemptNotApplied || a.State == operation.AttemptRefused {
			continue
		}
		end := later(a.LeaseUntil, a.EndedAt)
		if a.State == operation.AttemptOpen || l.AskedAt.Before(end.Add(c.LateApply+c.Lookup.Lag+c.Absence.Settle)) {
			return "absent although attempt " + a.ID + " may still land or not be visible"
		}
	}
	if !s.LastEmpty.IsZero() && l.AskedAt.Before(s.LastEmpty.Add(c.Absence.Spacing)) {
		return "absent too soon after the read before"
	}
	return ""
}

func TestEveryOperationHasSomethingNext(t *testing.T) { // I12
	property(t, func(b brain, ch *chooser) string {
		_, v := grow(b, ch, func(_, after operation.State, _ events.Record, _ operation.Anomaly) string {
			if err := settled(after); err != nil {
				return err.Error()
			}
			return ""
		})
		return v
	})
}

func TestVersionsAndChainsAreChecked(t *testing.T) { // I13
	property(t, func(b brain, ch *chooser) string {
		s, _ := grow(b, ch, func(operation.State, operation.State, events.Record, operation.Anomaly) string { return "" })
		r := lightRecord(s, s.UpdatedAt, everySymbol[ch.pick(len(everySymbol))].make(s))
		want := operation.AnomalyVersion
		switch ch.pick(3) {
		case 0:
			r.Version += 1 + uint64(ch.pick(5))
		case 1:
			r.Version = 1 + uint64(ch.pick(int(s.Version)+1))
			if r.Version == s.Version+1 {
				return ""
			}
		case 2:
			r.Prev, want = "sha256:other", operation.AnomalyChain
		}
		after, a := b.evolve(s, r)
		switch {
		case a.Reason != want:
			return fmt.Sprintf("got anomaly %q, want %q", a.Reason, want)
		case after.Version <= s.Version || after.Head == s.Head || after.LastSeq <= s.LastSeq:
			return "version, head or sequence did not advance"
		case after.Halted == "":
			return "not halted"
		}
		return ""
	})
}

func TestRedeliveredRecordsChangeNothing(t *testing.T) { // I9
	property(t, redeliveryChangesNothing)
}

func TestFoldNeverTouchesItsInput(t *testing.T) { // I9
	property(t, foldNeverTouchesItsInput)
}

func TestStrayMessageIsNoLivelock(t *testing.T) { // I14
	property(t, strayMessagesMoveTheSequence)
}

func TestStateSurvivesItsJSONForm(t *testing.T) { // I9
	property(t, func(b brain, ch *chooser) string {
		s, _ := grow(b, ch, func(operation.State, operation.State, events.Record, operation.Anomaly) string { return "" })
		var back operation.State
		if err := json.Unmarshal([]byte(snapshot(s)), &back); err != nil {
			return err.Error()
		}
		if snapshot(back) != snapshot(s) {
			return "the entry read back is written differently"
		}
		r := lightRecord(s, s.UpdatedAt, everySymbol[ch.pick(len(everySymbol))].make(s))
		one, _ := b.evolve(s, r)
		two, _ := b.evolve(back, r)
		if d := cmp.Diff(snapshot(one), snapshot(two)); d != "" {
			return "the fold goes on differently from the entry: " + d
		}
		return ""
	})
}

// I3: the late not_applied of attempt 1 says nothing about attempt 2.
func TestLateNotAppliedOfAttempt1NeverHidesOpenAttempt2(t *testing.T) {
	t.Parallel()
	c := contractK1()
	for _, proof := range events.Proofs() {
		j := started(t, c)
		j.start("a1", "")
		j.lost(c, "a1")
		j.wait(time.Minute).must(operatorPermit(j))
		j.start("a2", "p1")
		j.must(events.AttemptNotApplied{AttemptID: "a1", Proof: proof})
		if a, open := j.s.Open(); !open || a.ID != "a2" || j.s.Status != operation.StatusInFlight {
			t.Errorf("%s: got %s, open %v", proof, j.s.Status, open)
		}
	}
}
