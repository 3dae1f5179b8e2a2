package operation_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// variant is the code under test with one planted bug.
type variant struct {
	name  string
	plant func(b *brain)
	in    string // the setting that shows it, where others would waste time
}

// onEvent changes what the fold makes of one event.
func onEvent(change func(before, after operation.State, r events.Record) operation.State) func(*brain) {
	return func(b *brain) {
		evolve := b.evolve
		b.evolve = func(s operation.State, r events.Record) (operation.State, operation.Anomaly) {
			after, a := evolve(s, r)
			if after.LastSeq == s.LastSeq {
				return after, a // a redelivery; the bug is elsewhere
			}
			return change(s, after, r), a
		}
	}
}

// onNext changes what Next decides.
func onNext(change func(s operation.State, c operation.Contract, p operation.Params, step operation.Step) operation.Step) func(*brain) {
	return func(b *brain) {
		next := b.next
		b.next = func(s operation.State, c operation.Contract, p operation.Params) operation.Step {
			return change(s, c, p, next(s, c, p))
		}
	}
}

// onContract lets the decisions read the contract wrongly.
func onContract(change func(*operation.Contract)) func(*brain) {
	return func(b *brain) {
		next, looked, answered := b.next, b.looked, b.answered
		b.next = func(s operation.State, c operation.Contract, p operation.Params) operation.Step {
			change(&c)
			return next(s, c, p)
		}
		b.looked = func(s operation.State, c operation.Contract, l operation.Look, p operation.Params) []events.Payload {
			change(&c)
			return looked(s, c, l, p)
		}
		b.answered = func(s operation.State, c operation.Contract, id string, o operation.Outcome, p operation.Params) []events.Payload {
			change(&c)
			return answered(s, c, id, o, p)
		}
	}
}

func onLook(change func(s operation.State, c operation.Contract, l *operation.Look, out []events.Payload) []events.Payload) func(*brain) {
	return func(b *brain) {
		looked := b.looked
		b.looked = func(s operation.State, c operation.Contract, l operation.Look, p operation.Params) []events.Payload {
			change(s, c, &l, nil)
			return change(s, c, &l, looked(s, c, l, p))
		}
	}
}

func onOutcome(change func(s operation.State, o *operation.Outcome)) func(*brain) {
	return func(b *brain) {
		answered := b.answered
		b.answered = func(s operation.State, c operation.Contract, id string, o operation.Outcome, p operation.Params) []events.Payload {
			change(s, &o)
			return answered(s, c, id, o, p)
		}
	}
}

// kindOf is the kind of a record, or "" for a stray message.
func kindOf(r events.Record) events.Kind {
	if r.Data == nil {
		return ""
	}
	return r.Data.Kind()
}

func setAttempts(s operation.State, from, to operation.AttemptState) operation.State {
	s.Attempts = slices.Clone(s.Attempts)
	for i := range s.Attempts {
		if s.Attempts[i].State == from {
			s.Attempts[i].State = to
		}
	}
	return s
}

func inDoubt(s operation.State) bool { return s.Status == operation.StatusUnknown }

func variants() []variant {
	out := slices.Concat(foldVariants(), decisionVariants(), evidenceVariants())
	for i := range out {
		switch out[i].name {
		case "the lag of the lookup is ignored", "an incomplete page counts as absence", "a search outage counts as absence",
			"an empty look inside the lag counts as absence", "a look under another account counts":
			out[i].in = "K4 with absence"
		case "the stamp of a key attempt is not checked again", "a refusal for the key counts after the key is forgotten",
			"key retention without margin":
			out[i].in = "K1"
		}
	}
	return out
}

func foldVariants() []variant {
	return []variant{
		{name: "late not_applied of attempt 1 hides open attempt 2", plant: onEvent(func(_, after operation.State, r events.Record) operation.State {
			if kindOf(r) == events.KindAttemptNotApplied && after.Status == operation.StatusInFlight {
				after = setAttempts(after, operation.AttemptOpen, operation.AttemptNotApplied)
				after.Status = operation.StatusPending
			}
			return after
		})},
		{name: "the status is set per event", plant: onEvent(func(_, after operation.State, r events.Record) operation.State {
			switch kindOf(r) {
			case events.KindAttemptStarted:
				after.Status = operation.StatusInFlight
			case events.KindAttemptNotApplied:
				after.Status = operation.StatusPending
			case events.KindOutcomeUnknown:
				after.Status = operation.StatusUnknown
			}
			return after
		})},
		{name: "late unknown over a success", plant: onEvent(func(_, after operation.State, r events.Record) operation.State {
			if kindOf(r) == events.KindOutcomeUnknown && after.Status == operation.StatusConfirmed {
				after.Status, after.Result = operation.StatusUnknown, nil
			}
			return after
		})},
		{name: "present evidence does not void a permit", plant: onEvent(func(before, after operation.State, r events.Record) operation.State {
			if kindOf(r) == events.KindEvidenceRecorded && after.Permit == nil {
				after.Permit = before.Permit
			}
			return after
		})},
		{name: "what was sighted while the permit was in use does not void it", plant: onEvent(func(before, after operation.State, r events.Record) operation.State {
			if kindOf(r) == events.KindEvidenceRecorded && before.Permit != nil && before.Permit.Used {
				after.Permit = before.Permit
			}
			return after
		})},
		{name: "a permit outlives an attempt that does not use it", plant: onEvent(func(before, after operation.State, r events.Record) operation.State {
			if kindOf(r) == events.KindAttemptStarted && after.Permit == nil {
				after.Permit = before.Permit
			}
			return after
		})},
		{name: "empty reads from before a later attempt count as absence", plant: onEvent(func(before, after operation.State, r events.Record) operation.State {
			if kindOf(r) == events.KindAttemptStarted {
				after.EmptyReads, after.Looks, after.LastLook = before.EmptyReads, before.Looks, r.Stamp.Add(time.Hour)
			}
			return after
		})},
		{name: "a not-sent first attempt starts the retention clock", plant: onEvent(func(_, after operation.State, _ events.Record) operation.State {
			if len(after.Attempts) > 0 {
				after.FirstSend = after.Attempts[0].StartedAt
			}
			return after
		})},
		{name: "the last attempt starts the retention clock", plant: onEvent(func(_, after operation.State, _ events.Record) operation.State {
			if n := len(after.Attempts); n > 0 && after.Attempts[n-1].Proof != events.ProofNotSent {
				after.FirstSend = after.Attempts[n-1].StartedAt
			}
			return after
		})},
		{name: "a permit is consumed by a 429", plant: onEvent(func(before, after operation.State, r events.Record) operation.State {
			if kindOf(r) == events.KindAttemptNotApplied {
				after.Permit = before.Permit
			}
			return after
		})},
		{name: "a stray message does not move the sequence", plant: onEvent(func(before, after operation.State, r events.Record) operation.State {
			if r.Err != nil {
				after.LastSeq = before.LastSeq
			}
			return after
		})},
		{name: "a repeated attempt id replaces the attempt in doubt", plant: onEvent(func(before, after operation.State, r events.Record) operation.State {
			d, ok := r.Data.(events.AttemptStarted)
			if _, again := before.AttemptByID(d.AttemptID); ok && again {
				after.Attempts = slices.Clone(before.Attempts)
				for i := range after.Attempts {
					if after.Attempts[i].ID == d.AttemptID {
						after.Attempts[i].State = operation.AttemptOpen
					}
				}
			}
			return after
		})},
		{name: "a rejection needs no cover", plant: onEvent(func(before, after operation.State, r events.Record) operation.State {
			if d, ok := r.Data.(events.Rejected); ok && !before.Status.Final() {
				after.Status, after.Rejection = operation.StatusRejected, &operation.Rejection{Reason: d.Reason}
			}
			return after
		})},
		{name: "the fold changes the state that it was given", plant: func(b *brain) {
			evolve := b.evolve
			b.evolve = func(s operation.State, r events.Record) (operation.State, operation.Anomaly) {
				if _, ok := r.Data.(events.OutcomeUnknown); ok {
					for i := range s.Attempts {
						if s.Attempts[i].State == operation.AttemptOpen {
							s.Attempts[i].Reason = "touched"
						}
					}
				}
				return evolve(s, r)
			}
		}},
		{name: "a redelivered record is folded again", plant: func(b *brain) {
			evolve := b.evolve
			b.evolve = func(s operation.State, r events.Record) (operation.State, operation.Anomaly) {
				if r.Seq <= s.LastSeq {
					s.LastSeq = r.Seq - 1
				}
				return evolve(s, r)
			}
		}},
	}
}

func decisionVariants() []variant {
	attempt := operation.Step{Do: operation.DoAttempt, Reason: operation.ReasonFirstAttempt}
	return []variant{
		{name: "an expired permit leaves pending", plant: onNext(func(s operation.State, _ operation.Contract, p operation.Params, step operation.Step) operation.Step {
			if m := s.Permit; inDoubt(s) && m != nil && !m.Used && !p.Now.Before(m.ValidUntil) {
				return attempt
			}
			return step
		})},
		{name: "the end of the lease frees the operation", plant: onNext(func(s operation.State, _ operation.Contract, _ operation.Params, step operation.Step) operation.Step {
			if step.Reason == operation.ReasonLeaseOver {
				a, _ := s.Open()
				step.Append = []events.Payload{events.AttemptNotApplied{
					AttemptID: a.ID, Proof: events.ProofNotSent, Next: events.Next{Action: events.NextAttempt, At: begin.Add(time.Second)},
				}}
			}
			return step
		})},
		{name: "key retention ignored", plant: onContract(func(c *operation.Contract) {
			if c.KeySupported {
				c.Retention = operation.Forever
			}
		})},
		{name: "key retention without margin", plant: onContract(func(c *operation.Contract) { c.Margin = 0 })},
		{name: "the stamp of a key attempt is not checked again", plant: func(b *brain) {
			b.window = func(time.Time, time.Time, time.Duration) bool { return true }
		}},
		{name: "a repeat does not wait for what may still land", plant: onContract(func(c *operation.Contract) { c.LateApply = 0 })},
		{name: "5xx treated as a rejection", plant: onOutcome(func(_ operation.State, o *operation.Outcome) {
			if o.Unknown == events.UnknownServerError {
				*o = operation.Outcome{Word: operation.OutcomeRejected, Reason: "500"}
			}
		})},
		{name: "a time-out treated as not sent", plant: onOutcome(func(_ operation.State, o *operation.Outcome) {
			if o.Unknown == events.UnknownTimeout {
				*o = operation.Outcome{Word: operation.OutcomeNotSent}
			}
		})},
		{name: "4xx of attempt 2 rejects while attempt 1 is unresolved", plant: func(b *brain) {
			answered := b.answered
			b.answered = func(s operation.State, c operation.Contract, id string, o operation.Outcome, p operation.Params) []events.Payload {
				if o.Word == operation.OutcomeRejected && !s.Status.Final() {
					d := events.Rejected{Reason: o.Reason, Via: events.ViaResponse, AttemptID: id}
					for _, a := range s.Attempts {
						d.Covers = append(d.Covers, events.Covered{AttemptID: a.ID, By: "answer"})
					}
					return []events.Payload{d}
				}
				return answered(s, c, id, o, p)
			}
		}},
		{name: "a refusal for the key counts after the key is forgotten", plant: func(b *brain) {
			answered := b.answered
			b.answered = func(s operation.State, c operation.Contract, id string, o operation.Outcome, p operation.Params) []events.Payload {
				if o.AnswersKey {
					c.KeySupported, c.Retention, c.Proof = true, operation.Forever, operation.ProofDocumented
				}
				return answered(s, c, id, o, p)
			}
		}},
		{name: "a refusal does not end repeats", plant: onNext(func(s operation.State, c operation.Contract, p operation.Params, step operation.Step) operation.Step {
			if step.Reason == operation.ReasonRefused {
				return attempt
			}
			return step
		})},
		{name: "a decision is not bound to the version seen", plant: func(b *brain) {
			decided := b.decided
			b.decided = func(s operation.State, c operation.Contract, d operation.Decision, p operation.Params) ([]events.Payload, operation.Refusal) {
				d.SeenVersion = s.Version
				return decided(s, c, d, p)
			}
		}},
		{name: "an approval is not bound to the digest", plant: func(b *brain) {
			approved := b.approved
			b.approved = func(s operation.State, g operation.Grant, p operation.Params) ([]events.Payload, operation.Refusal) {
				g.IntentDigest = s.Intent.IntentDigest
				return approved(s, g, p)
			}
		}},
		{name: "an approval is checked once, not at each dispatch", plant: onNext(func(s operation.State, _ operation.Contract, _ operation.Params, step operation.Step) operation.Step {
			if step.Reason == operation.ReasonApprovalExpired {
				return attempt
			}
			return step
		})},
		{name: "the current account instead of the bound one", plant: func(b *brain) {
			b.dispatch = func(operation.State, string, string) []events.Payload { return nil }
		}},
		{name: "a second attempt while one is open", plant: onNext(func(_ operation.State, _ operation.Contract, _ operation.Params, step operation.Step) operation.Step {
			if step.Reason == operation.ReasonLeaseRunning {
				return attempt
			}
			return step
		})},
		{name: "an attempt under review", plant: onNext(func(s operation.State, _ operation.Contract, _ operation.Params, step operation.Step) operation.Step {
			if step.Reason == operation.ReasonReviewOpen {
				return attempt
			}
			return step
		})},
		{name: "review only repeats all the same", plant: func(b *brain) {
			next := b.next
			b.next = func(s operation.State, c operation.Contract, p operation.Params) operation.Step {
				if s.Intent.OnUnknown == events.OnUnknownReview {
					s.Intent.OnUnknown = events.OnUnknownContract
				}
				step := next(s, c, p)
				return step
			}
		}},
	}
}

func evidenceVariants() []variant {
	emptyIsAbsent := func(s operation.State, c operation.Contract, l *operation.Look, out []events.Payload) []events.Payload {
		for i, p := range out {
			if e, ok := p.(events.EvidenceRecorded); ok && e.Finding == events.FindingInconclusive && len(l.Matches) == 0 && !l.Failed {
				e.Finding = events.FindingAbsent
				out[i] = e
			}
		}
		return out
	}
	return []variant{
		{name: "empty look => new attempt", plant: onNext(func(s operation.State, _ operation.Contract, _ operation.Params, step operation.Step) operation.Step {
			if inDoubt(s) && s.Looks > 0 && s.EmptyReads+len(s.ExternalIDs) == 0 && s.Review == nil && !s.Sighted {
				return operation.Step{Do: operation.DoAttempt, Reason: operation.ReasonAbsenceProven}
			}
			return step
		})},
		{name: "an empty look inside the lag counts as absence", plant: onLook(emptyIsAbsent)},
		{name: "the lag of the lookup is ignored", plant: onContract(func(c *operation.Contract) { c.Lookup.Lag = 0 })},
		{name: "an incomplete page counts as absence", plant: onLook(func(_ operation.State, _ operation.Contract, l *operation.Look, out []events.Payload) []events.Payload {
			l.PagesComplete = true
			return out
		})},
		{name: "a search outage counts as absence", plant: onLook(func(_ operation.State, _ operation.Contract, l *operation.Look, out []events.Payload) []events.Payload {
			if l.Failed {
				l.Failed, l.PagesComplete = false, true
			}
			return out
		})},
		{name: "a look under another account counts", plant: onLook(func(_ operation.State, _ operation.Contract, l *operation.Look, out []events.Payload) []events.Payload {
			l.AccountOK, l.AccountProbed = true, testAccount
			return out
		})},
		{name: "what was sighted does not forbid absence", plant: onEvent(func(_, after operation.State, _ events.Record) operation.State {
			after.Sighted = false
			return after
		})},
		{name: "absence can be proven where the contract denies it", plant: onContract(func(c *operation.Contract) {
			if !c.Absence.Provable && c.Lookup.Available {
				c.Absence = operation.Absence{Provable: true, EmptyReads: 1}
				c.Lookup.Lag, c.LateApply = 0, 0
			}
		})},
		{name: "evidence that arrives late is dropped", plant: func(b *brain) {
			answered := b.answered
			b.answered = func(s operation.State, c operation.Contract, id string, o operation.Outcome, p operation.Params) []events.Payload {
				if a, ok := s.AttemptByID(id); ok && a.State == operation.AttemptUnresolved {
					return nil
				}
				return answered(s, c, id, o, p)
			}
		}},
		{name: "two objects confirm silently", plant: onLook(func(_ operation.State, _ operation.Contract, l *operation.Look, out []events.Payload) []events.Payload {
			return slices.DeleteFunc(out, func(p events.Payload) bool {
				return p.Kind() == events.KindDuplicateFound || p.Kind() == events.KindReviewOpened
			})
		})},
	}
}

// find looks for a violation by the properties first, then in the closed loop.
func find(b brain, in string, limit int) (found string, runs int) {
	for seed := uint64(1); seed <= 60; seed++ {
		for _, check := range histories() {
			runs++
			if v := check.run(b, &chooser{rng: seeded(seed)}); v != "" {
				return check.name + ": " + v, runs
			}
		}
	}
	for seed := uint64(1); runs < limit; seed++ {
		for _, st := range settings() {
			if in != "" && st.name != in {
				continue
			}
			runs++
			if v := newWorld(b, st, &chooser{rng: seeded(seed)}).run(); v != "" {
				return st.name + ": " + v, runs
			}
		}
	}
	return "", runs
}

// A test of the tests: every planted bug is found by the closed loop or by the
// properties, and the code without one is not accused.
func TestEveryPlantedBugIsFound(t *testing.T) {
	t.Parallel()
	const limit = 30_000
	if v, runs := find(realBrain(), "", 1500); v != "" {
		t.Fatalf("the code itself is accused after %d runs: %s", runs, v)
	}
	lines := make([]string, len(variants()))
	t.Run("group", func(t *testing.T) {
		for i, v := range variants() {
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				b := realBrain()
				v.plant(&b)
				found, runs := find(b, v.in, limit)
				if found == "" {
					t.Errorf("not found in %d runs", runs)
				}
				lines[i] = fmt.Sprintf("%-60s after %6d runs  %.140s", v.name, runs, found)
			})
		}
	})
	for _, line := range lines {
		t.Log(line)
	}
}
