package operation_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// brain is the code under test as functions, so that a planted bug can take the
// place of one of them.
type brain struct {
	evolve   func(operation.State, events.Record) (operation.State, operation.Anomaly)
	next     func(operation.State, operation.Contract, operation.Params) operation.Step
	answered func(operation.State, operation.Contract, string, operation.Outcome, operation.Params) []events.Payload
	looked   func(operation.State, operation.Contract, operation.Look, operation.Params) []events.Payload
	decided  func(operation.State, operation.Contract, operation.Decision, operation.Params) ([]events.Payload, operation.Refusal)
	approved func(operation.State, operation.Grant, operation.Params) ([]events.Payload, operation.Refusal)
	dispatch func(operation.State, string, string) []events.Payload
	window   func(time.Time, time.Time, time.Duration) bool
}

func realBrain() brain {
	return brain{
		evolve: operation.Evolve, next: operation.Next, answered: operation.Answered, looked: operation.Looked,
		decided: operation.Decided, approved: operation.Approved, dispatch: operation.Dispatch,
		window: operation.KeyWindow,
	}
}

// oracle is an independent reading of design section 3: it keeps what the
// events say of each attempt and of the permit, by the table of moves, and
// nothing else. It shares no code with the fold.
type oracle struct {
	known    bool // the intent was recorded
	any      bool // some event was recorded
	second   bool // so that an intent comes too late
	intentAt time.Time
	attempts []oracleAttempt
	permit   oraclePermit
	final    operation.Status
	review   bool
	hold     bool
	sighted  bool
	refused  bool
	norepeat bool
	granted  time.Time // until when an approval of this intent is valid
	risk     bool      // an attempt was started on a person's or a declared risk
}

type oracleAttempt struct {
	id, permit string
	state      operation.AttemptState
	sentAt     time.Time
	notSent    bool
}

type oraclePermit struct {
	id         string
	basis      events.Basis
	validUntil time.Time
	used       bool
}

func (o *oracle) clone() *oracle {
	c := *o
	c.attempts = slices.Clone(o.attempts)
	return &c
}

func (o *oracle) attempt(id string) *oracleAttempt {
	for i := range o.attempts {
		if o.attempts[i].id == id {
			return &o.attempts[i]
		}
	}
	return nil
}

func (o *oracle) has(state operation.AttemptState) bool {
	return slices.ContainsFunc(o.attempts, func(a oracleAttempt) bool { return a.state == state })
}

func (o *oracle) status() operation.Status {
	switch {
	case o.final != operation.StatusAbsent:
		return o.final
	case o.has(operation.AttemptOpen):
		return operation.StatusInFlight
	case o.has(operation.AttemptUnresolved):
		return operation.StatusUnknown
	case o.any:
		return operation.StatusPending
	}
	return operation.StatusAbsent
}

// firstSend is the earliest moment at which a request can have left.
func (o *oracle) firstSend() (first time.Time) {
	for _, a := range o.attempts {
		if !a.notSent && (first.IsZero() || a.sentAt.Before(first)) {
			first = a.sentAt
		}
	}
	return first
}

func (o *oracle) see() { o.sighted, o.permit = true, oraclePermit{} }

func (o *oracle) apply(id string, stamp time.Time, p events.Payload) {
	o.any = true
	defer func() { o.second = true }()
	switch d := p.(type) {
	case events.IntentRecorded:
		if !o.known && !o.second {
			o.known, o.intentAt, o.hold = true, stamp, d.Hold != ""
		}
	case events.ApprovalGranted:
		if d.IntentDigest == testDigest {
			o.granted = d.ExpiresAt
		}
	case events.AttemptStarted:
		if o.permit.id != "" && o.permit.id == d.PermitID {
			o.permit.used = true
			o.risk = o.risk || o.permit.basis == events.BasisOperator || o.permit.basis == events.BasisDeclaredRisk
		} else {
			o.permit = oraclePermit{}
		}
		a := oracleAttempt{id: d.AttemptID, permit: d.PermitID, state: operation.AttemptOpen, sentAt: stamp}
		if o.attempt(a.id) != nil {
			a.id = id
		}
		o.attempts = append(o.attempts, a)
	case events.AttemptNotApplied:
		a := o.attempt(d.AttemptID)
		if a == nil || (a.state != operation.AttemptOpen && a.state != operation.AttemptUnresolved) {
			return
		}
		a.state, a.notSent = operation.AttemptNotApplied, d.Proof == events.ProofNotSent
		if d.Proof == events.ProofRefused {
			a.state, o.permit, o.refused, o.norepeat = operation.AttemptRefused, oraclePermit{}, true, true
		} else if o.permit.id != "" && o.permit.id == a.permit {
			o.permit.used = false
		}
	case events.OutcomeUnknown:
		o.unknown(id, stamp, d)
	case events.EvidenceRecorded:
		if d.AccountProbed == "" || d.AccountProbed == testAccount {
			if d.Finding == events.FindingPresent || d.Finding == events.FindingContradiction {
				o.see()
			}
		}
	case events.RetryPermitted:
		o.permitted(d)
	case events.ReviewOpened:
		o.review = true
	case events.ReviewUpdated:
		o.hold = o.hold && d.Decision != events.DecideResume
	case events.ReviewClosed:
		o.closed(d)
	case events.ResultConfirmed:
		if a := o.attempt(d.AttemptID); a != nil {
			a.state = operation.AttemptApplied
		}
		if o.final == operation.StatusAbsent {
			o.final, o.review, o.permit = operation.StatusConfirmed, false, oraclePermit{}
		}
	case events.Rejected:
		o.rejected(d)
	case events.DuplicateFound:
		o.see()
	}
}

func (o *oracle) unknown(id string, stamp time.Time, d events.OutcomeUnknown) {
	o.norepeat = o.norepeat || d.NoRepeat
	switch d.Reason {
	case events.UnknownExists, events.UnknownMismatch, events.UnknownUnidentified:
		o.see()
	case events.UnknownLogDamage:
		o.attempts = append(o.attempts, oracleAttempt{id: id, state: operation.AttemptUnresolved, sentAt: o.lostFrom(stamp)})
		return
	}
	switch a := o.attempt(d.AttemptID); {
	case a == nil:
		o.attempts = append(o.attempts, oracleAttempt{id: d.AttemptID, state: operation.AttemptUnresolved, sentAt: o.lostFrom(stamp)})
	case a.state == operation.AttemptOpen:
		a.state = operation.AttemptUnresolved
	}
}

// lostFrom is when an attempt that the log lost can have been sent.
func (o *oracle) lostFrom(stamp time.Time) time.Time {
	if o.intentAt.IsZero() {
		return stamp
	}
	return o.intentAt
}

func (o *oracle) permitted(d events.RetryPermitted) {
	byPerson := d.Basis == events.BasisOperator
	if o.final != operation.StatusAbsent || o.has(operation.AttemptOpen) || (o.sighted && !byPerson) ||
		(o.norepeat && d.Basis == events.BasisKeyRetention) {
		return
	}
	o.permit = oraclePermit{id: d.PermitID, basis: d.Basis, validUntil: d.ValidUntil}
	o.review = o.review && !byPerson // a person's permit settles the review
}

func (o *oracle) closed(d events.ReviewClosed) {
	if !o.review {
		return
	}
	o.review = false
	switch d.Decision {
	case events.DecideResume, events.DecideAcknowledge:
		o.hold = false
	case events.DecideUndetermined:
		o.permit = oraclePermit{}
	}
}

func (o *oracle) rejected(d events.Rejected) {
	if o.final != operation.StatusAbsent {
		return
	}
	for _, a := range o.attempts {
		answers := d.Via == events.ViaResponse && d.AttemptID == a.id
		named := slices.ContainsFunc(d.Covers, func(c events.Covered) bool { return c.AttemptID == a.id })
		if (a.state == operation.AttemptOpen && !answers) || (a.state == operation.AttemptUnresolved && !answers && !named) {
			return
		}
	}
	for i, a := range o.attempts {
		if a.state == operation.AttemptOpen || a.state == operation.AttemptUnresolved {
			o.attempts[i].state = operation.AttemptRefused
		}
	}
	o.final, o.review, o.permit = operation.StatusRejected, false, oraclePermit{}
}

// agrees compares the fold with the oracle: I1, I3, section 3.
func (o *oracle) agrees(s operation.State) error {
	if s.Status != o.status() {
		return fmt.Errorf("status %q, by the table of moves it is %q", s.Status, o.status())
	}
	for _, a := range o.attempts {
		got, ok := s.AttemptByID(a.id)
		if !ok || got.State != a.state {
			return fmt.Errorf("attempt %s is %q, by the table of moves it is %q", a.id, got.State, a.state)
		}
	}
	if (s.Review != nil) != o.review {
		return fmt.Errorf("review open: %v, by the events %v", s.Review != nil, o.review)
	}
	if !s.FirstSend.Equal(o.firstSend()) {
		return fmt.Errorf("first send %s, by the events %s (I5)", s.FirstSend, o.firstSend())
	}
	var got oraclePermit
	if m := s.Permit; m != nil {
		got = oraclePermit{id: m.ID, basis: m.Basis, validUntil: m.ValidUntil, used: m.Used}
	}
	if got != o.permit {
		return fmt.Errorf("permit %+v, by the events %+v (I4)", got, o.permit)
	}
	return nil
}

// allows judges a step of Next against what the events say: I1, I3, I4, I7,
// I12.
func (o *oracle) allows(s operation.State, step operation.Step, now time.Time) error {
	switch step.Do {
	case operation.DoAttempt:
		return o.allowsAttempt(s, step, now)
	case operation.DoWait:
		if !step.At.IsZero() {
			if !step.At.After(now) {
				return fmt.Errorf("%s: waits for %s, which has passed (I12)", step.Reason, step.At)
			}
			return nil
		}
		if o.final == operation.StatusAbsent && o.any && s.Review == nil && s.Hold == "" && !s.Undetermined {
			return fmt.Errorf("%s: waits without a time, a review or a hold (I12)", step.Reason)
		}
	case operation.DoAppend:
		if len(step.Append) == 0 {
			return fmt.Errorf("%s: appends nothing", step.Reason)
		}
	case operation.DoLook:
	}
	return nil
}

func (o *oracle) allowsAttempt(s operation.State, step operation.Step, now time.Time) error {
	switch {
	case !o.known:
		return fmt.Errorf("an attempt without an intent (I7)")
	case o.final != operation.StatusAbsent:
		return fmt.Errorf("an attempt after the end (I1)")
	case o.has(operation.AttemptOpen):
		return fmt.Errorf("an attempt while another is open (I3)")
	case o.review || o.hold || s.Halted != "":
		return fmt.Errorf("an attempt under review, hold or halt")
	case s.Intent.Approval != nil && !now.Before(o.granted):
		return fmt.Errorf("an attempt without a valid approval of this intent (I7)")
	}
	unproven := o.has(operation.AttemptUnresolved) || o.sighted || o.refused
	if !unproven {
		return nil
	}
	if step.PermitID == "" || step.PermitID != o.permit.id || o.permit.used || !now.Before(o.permit.validUntil) {
		return fmt.Errorf("an attempt beside an unresolved one by permit %q; the permit in force is %+v (I4)", step.PermitID, o.permit)
	}
	return nil
}

// settled reports I12 of the stored state: who reads only the projection knows
// when to ask again.
func settled(s operation.State) error {
	switch {
	case s.Status == operation.StatusAbsent, s.Status.Final(), s.Undetermined, s.Review != nil, s.Hold != "":
		return nil
	case s.NextAction != "" && s.NextAction != events.NextNone && s.NextAction != events.NextDecision && !s.NextAt.IsZero():
		return nil
	}
	return fmt.Errorf("%s: next %q at %s, no review, no hold (I12)", s.Status, s.NextAction, s.NextAt)
}
