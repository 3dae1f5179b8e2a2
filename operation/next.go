package operation

import (
	"fmt"
	"slices"
	"time"

	"github.com/opledger/opledger/events"
)

// Bounds and defaults of the decisions.
const (
	// MaxAttemptsEver bounds the attempts of one operation, even those that
	// are proven not to have reached the provider.
	MaxAttemptsEver = 1000
	// DefaultApprovalDeadline is how long an operation waits for an approval
	// if neither intent nor contract says so.
	DefaultApprovalDeadline = 7 * 24 * time.Hour
	// OperatorPermitLife is how long a person's permit can be used.
	OperatorPermitLife = time.Hour
	// DefaultSpacing is the time between looks after the schedule's end, where
	// absence can still be proven.
	DefaultSpacing = time.Minute
	// MaxExtraLooks bounds the looks after the schedule's end that absence
	// would need: a search that stays down ends in a review.
	MaxExtraLooks = 60
)

// Reason says why a decision is what it is. The list is closed.
type Reason string

// The reasons of Next and EnterScope.
const (
	ReasonAbsent            Reason = "absent"
	ReasonFinal             Reason = "final"
	ReasonUndetermined      Reason = "undetermined"
	ReasonHalted            Reason = "halted"
	ReasonHold              Reason = "hold"
	ReasonReviewOpen        Reason = "review_open"
	ReasonLeaseRunning      Reason = "lease_running"
	ReasonLeaseOver         Reason = "lease_over"
	ReasonErased            Reason = "arguments_erased"
	ReasonDeadline          Reason = "deadline_passed"
	ReasonAttemptsExhausted Reason = "attempts_exhausted"
	ReasonApprovalMissing   Reason = "approval_missing"
	ReasonApprovalExpired   Reason = "approval_expired"
	ReasonApprovalDeadline  Reason = "approval_deadline_passed"
	ReasonBackoff           Reason = "backoff"
	ReasonFirstAttempt      Reason = "no_effect_possible"
	ReasonRefused           Reason = "refused"
	ReasonPermitWaiting     Reason = "permit_waiting"
	ReasonPermitted         Reason = "permitted"
	ReasonLookWaiting       Reason = "look_waiting"
	ReasonLookDue           Reason = "look_due"
	ReasonKeyPermit         Reason = "key_permit"
	ReasonAbsenceProven     Reason = "absence_proven"
	ReasonDeclaredRisk      Reason = "declared_risk"
	ReasonNoWayLeft         Reason = "no_way_left"
	ReasonTwinLook          Reason = "twin_look"
	ReasonFollowUp          Reason = "follow_up"
	// The two of EnterScope.
	ReasonScopeHeld      Reason = "scope_held"
	ReasonScopeOvertaken Reason = "scope_overtaken"
)

// Reasons lists every reason of Next and EnterScope.
func Reasons() []Reason {
	return []Reason{
		ReasonAbsent, ReasonFinal, ReasonUndetermined, ReasonHalted, ReasonHold, ReasonReviewOpen,
		ReasonLeaseRunning, ReasonLeaseOver, ReasonErased, ReasonDeadline,
		ReasonAttemptsExhausted, ReasonApprovalMissing, ReasonApprovalExpired,
		ReasonApprovalDeadline, ReasonBackoff, ReasonFirstAttempt, ReasonRefused,
		ReasonPermitWaiting, ReasonPermitted, ReasonLookWaiting, ReasonLookDue, ReasonKeyPermit,
		ReasonAbsenceProven, ReasonDeclaredRisk, ReasonNoWayLeft, ReasonTwinLook, ReasonFollowUp,
		ReasonScopeHeld, ReasonScopeOvertaken,
	}
}

// Doing is what a step asks for.
type Doing int

// What a step can ask for.
const (
	// DoWait: nothing before Step.At (or, if that is zero, before an event).
	DoWait Doing = iota
	// DoAttempt: an attempt may start now.
	DoAttempt
	// DoLook: one look at the provider is due now.
	DoLook
	// DoAppend: the events in Step.Append are to be appended.
	DoAppend
)

// Step is what comes next for an operation.
type Step struct {
	Do     Doing
	Reason Reason
	// At is when to ask again; zero means: not before another event.
	At time.Time
	// Append holds what to append, in order.
	Append []events.Payload
	// PermitID is the permit that an attempt uses, or empty where none is
	// needed. ValidUntil is its limit; zero means none.
	PermitID   string
	ValidUntil time.Time
}

// Params are the outside values of a decision.
type Params struct {
	// Now is contract time: the log's clock.
	Now time.Time
	// Random is from [0, 1), for jitter.
	Random float64
	// NewID is a fresh id for a permit, should one be written.
	NewID string
	// ClockError is how far two clocks of the cluster may be apart.
	ClockError time.Duration
	// Lease is how long an attempt that starts now may take.
	Lease time.Duration
}

// Next decides what comes next. It is a function of its arguments only, total
// over every state; the executor acts on DoAttempt, the reconciler on DoLook
// and DoAppend.
func Next(s State, c Contract, p Params) Step {
	switch {
	case s.Status == StatusAbsent:
		return Step{Reason: ReasonAbsent}
	case s.Status.Final():
		return nextFinal(s, c, p)
	}
	if a, open := s.Open(); open {
		end := a.LeaseUntil.Add(p.ClockError)
		if p.Now.Before(end) {
			return Step{Reason: ReasonLeaseRunning, At: end}
		}
		return LeaseOver(s, c, a, p)
	}
	if s.Review != nil {
		if s.LookDue && c.Lookup.Available && s.Status == StatusUnknown {
			return Step{Do: DoLook, Reason: ReasonLookDue}
		}
		step := Step{Reason: ReasonReviewOpen}
		if s.Review.Until.After(p.Now) {
			step.At = s.Review.Until
		}
		return step
	}
	if p.Now.Before(s.FollowUp) {
		return Step{Reason: ReasonFollowUp, At: s.FollowUp}
	}
	if s.ToReview == events.ReviewAmbiguous {
		return review(ReasonReviewOpen, s.ToReview, reviewText(s.ToReview))
	}
	if s.Halted != "" {
		return review(ReasonHalted, events.ReviewContradiction,
			"the log contradicts itself ("+s.Halted+"); nothing is sent until a person resumes")
	}
	if s.Undetermined {
		return Step{Reason: ReasonUndetermined}
	}
	if s.Hold != "" {
		return Step{Reason: ReasonHold}
	}
	if s.Status == StatusUnknown {
		return nextUnknown(s, c, p)
	}
	return nextPending(s, c, p)
}

// LeaseOver records that the owner of an open attempt never told its outcome.
// Next does so after the lease; whoever knows that the owner is dead may do so
// at once. It frees nothing at the provider: a repeat still waits for the
// lease's end.
func LeaseOver(s State, c Contract, a Attempt, p Params) Step {
	return appending(ReasonLeaseOver, events.OutcomeUnknown{
		AttemptID: a.ID, Reason: events.UnknownLeaseExpired, Next: afterUnknown(c, p),
	})
}

// nextPending decides where no earlier attempt can have had an effect.
func nextPending(s State, c Contract, p Params) Step {
	permit, end := s.operatorPermit(p.Now), c.deadline(s)
	if s.unsendable() {
		return review(ReasonErased, events.ReviewCannotRender,
			"the arguments were erased, or the intent is missing; cancel or reject it")
	}
	if permit != nil {
		end = time.Time{} // a person's permit lifts the limits once
	} else if s.Sighted {
		return review(ReasonNoWayLeft, events.ReviewAmbiguous,
			"something was seen that may be our object, although no attempt is said to have been applied")
	} else if a, ok := s.refused(); ok {
		return appending(ReasonRefused, events.Rejected{
			Reason: a.Reason, Via: events.ViaResponse, AttemptID: a.ID,
			ProviderRequestID: a.ProviderRequestID, Covers: cover(s, "not_applied"),
		})
	}
	if !end.IsZero() && !p.Now.Before(end) {
		return appending(ReasonDeadline, events.Rejected{
			Reason: "the deadline passed before anything could be done", Via: events.ViaExpired,
			Covers: cover(s, "not_applied"),
		})
	}
	if step, stop := nextApproval(s, p, end); stop {
		return step
	}
	if s.Started >= MaxAttemptsEver && permit == nil {
		return review(ReasonAttemptsExhausted, events.ReviewAttemptsExhausted,
			fmt.Sprintf("%d attempts were made and none reached the provider", s.Started))
	}
	if s.NextAction == events.NextAttempt && p.Now.Before(s.NextAt) {
		return Step{Reason: ReasonBackoff, At: earliest(s.NextAt, end)}
	}
	if permit != nil {
		return Step{Do: DoAttempt, Reason: ReasonPermitted, PermitID: permit.ID, ValidUntil: permit.ValidUntil}
	}
	return Step{Do: DoAttempt, Reason: ReasonFirstAttempt}
}

// nextApproval reports whether a missing or expired approval stops everything.
func nextApproval(s State, p Params, end time.Time) (Step, bool) {
	if s.approved(p.Now) {
		return Step{}, false
	}
	limit := s.approvalLimit()
	if p.Now.Before(limit) {
		reason := ReasonApprovalMissing
		if s.Approval != nil {
			reason = ReasonApprovalExpired
		}
		return Step{Reason: reason, At: earliest(limit, end)}, true
	}
	return appending(ReasonApprovalDeadline, events.Rejected{
		Reason: "nobody approved it in time", Via: events.ViaExpired, Covers: cover(s, "not_applied"),
	}), true
}

// nextUnknown decides where the outcome of at least one attempt is not known.
func nextUnknown(s State, c Contract, p Params) Step {
	if m := s.Permit; m != nil && !m.Used && p.Now.Before(m.ValidUntil) && permitStands(s, c, p, m) {
		// A permit that was given back waits out the backoff of that attempt.
		at := m.RetryAt
		if s.NextAction == events.NextAttempt && s.NextAt.After(at) {
			at = s.NextAt
		}
		if p.Now.Before(at) {
			return Step{Reason: ReasonPermitWaiting, At: at}
		}
		return Step{Do: DoAttempt, Reason: ReasonPermitted, PermitID: m.ID, ValidUntil: m.ValidUntil}
	}
	// One look that began after the last attempt's end comes before any repeat.
	looked := s.Looks > 0 && s.LastLook.After(s.lastOutcome())
	more := s.LookDue || s.Looks < len(c.Lookup.Schedule) || absenceOpen(s, c, s.Looks, s.EmptyReads) || foundLast(s, c)
	if c.Lookup.Available && (!looked || s.LookDue) {
		return look(s, p)
	}
	if step, ok := rejectAbsent(s, c); ok {
		return step
	}
	if step, ok := permitRepeat(s, c, p); ok {
		return step
	}
	if c.Lookup.Available && more {
		return look(s, p)
	}
	if step, ok := permitRisk(s, c, p); ok {
		return step
	}
	reason, text := whyReview(s, c, p)
	return review(ReasonNoWayLeft, reason, text)
}

func look(s State, p Params) Step {
	if s.NextAction == events.NextReconcile && p.Now.Before(s.NextAt) {
		return Step{Reason: ReasonLookWaiting, At: s.NextAt}
	}
	return Step{Do: DoLook, Reason: ReasonLookDue}
}

// foundLast reports whether the last look found the object, and a crash came before
// the confirmation: another look makes the same decision again.
func foundLast(s State, c Contract) bool {
	if len(s.Evidence) == 0 || s.Looks >= len(c.Lookup.Schedule)+MaxExtraLooks {
		return false
	}
	e := s.Evidence[len(s.Evidence)-1]
	return e.Source == events.SourceLookup && e.Finding == events.FindingPresent &&
		(e.AccountProbed == "" || e.AccountProbed == s.Intent.ProviderID)
}

// absenceOpen reports whether further empty reads could still prove absence.
func absenceOpen(s State, c Contract, looks, emptyReads int) bool {
	return c.Absence.Provable && !s.Sighted && emptyReads < max(c.Absence.EmptyReads, 1) &&
		looks < len(c.Lookup.Schedule)+MaxExtraLooks
}

// absenceProven reports whether enough empty reads counted.
func absenceProven(s State, c Contract) bool {
	return c.Absence.Provable && !s.Sighted && s.EmptyReads >= max(c.Absence.EmptyReads, 1)
}

// rejectAbsent ends an operation that was refused once and whose other attempts
// are proven absent: a refusal ends repeats.
func rejectAbsent(s State, c Contract) (Step, bool) {
	a, ok := s.refused()
	if !ok || !absenceProven(s, c) {
		return Step{}, false
	}
	return appending(ReasonRefused, events.Rejected{
		Reason: a.Reason, Via: events.ViaAbsence, AttemptID: a.ID,
		ProviderRequestID: a.ProviderRequestID, Covers: cover(s, string(events.BasisAbsentProven)),
	}), true
}

// permitStands reports whether an unused permit may still be used: a key permit
// falls when an answer forbade repeats, everything but a person's permit falls
// when something was sighted, and each needs a valid approval.
func permitStands(s State, c Contract, p Params, m *Permit) bool {
	if !s.approved(p.Now) || s.unsendable() {
		return false
	}
	switch m.Basis {
	case events.BasisOperator:
		return true
	case events.BasisKeyRetention:
		end, ok := c.keyDeadline(s.FirstSend)
		return ok && !s.NoRepeat && !s.Sighted && p.Now.Add(p.Lease).Before(end)
	case events.BasisAbsentProven:
		return !s.NoRepeat && !s.Sighted
	case events.BasisDeclaredRisk:
		return !s.Sighted
	}
	return false
}

// permitRepeat writes a permit by key or by proven absence, where one is safe.
func permitRepeat(s State, c Contract, p Params) (Step, bool) {
	if s.Sighted || s.NoRepeat || s.unsendable() || s.Intent.OnUnknown == events.OnUnknownReview ||
		s.counted() >= c.maxAttempts(s.Intent) || s.Started >= MaxAttemptsEver || !s.approved(p.Now) {
		return Step{}, false
	}
	end := c.deadline(s)
	permit := events.RetryPermitted{
		PermitID: p.NewID, MarginMS: c.Margin.Milliseconds(), Account: s.Intent.Account,
		RequestDigest: s.RequestDigest(), ContractDigest: c.Digest, Evidence: s.looksSinceOutcome(),
	}
	retryAt := p.Now.Add(c.Backoff.Wait(s.counted(), p.Random))
	if m := s.lastEnd().Add(p.ClockError); retryAt.Before(m) {
		retryAt = m
	}
	if m := s.lastEnd().Add(c.LateApply); !c.ConcurrentSafe && retryAt.Before(m) {
		retryAt = m
	}
	if limit, ok := c.keyDeadline(s.FirstSend); ok {
		if !end.IsZero() && end.Before(limit) {
			limit = end
		}
		if retryAt.Add(p.Lease).Before(limit) {
			permit.Basis, permit.ValidUntil, permit.RetryAt = events.BasisKeyRetention, limit, retryAt
			return permitting(ReasonKeyPermit, permit), true
		}
	}
	if absenceProven(s, c) {
		limit := p.Now.Add(OperatorPermitLife)
		if !end.IsZero() && end.Before(limit) {
			limit = end
		}
		if retryAt.Before(limit) {
			permit.Basis, permit.ValidUntil, permit.RetryAt = events.BasisAbsentProven, limit, retryAt
			return permitting(ReasonAbsenceProven, permit), true
		}
	}
	return Step{}, false
}

// permitRisk writes the one repeat that the approval declared, if it did.
func permitRisk(s State, c Contract, p Params) (Step, bool) {
	if s.Intent.OnUnknown != events.OnUnknownRisk || !c.RiskAllowed || s.RiskTaken || s.Sighted ||
		s.unsendable() || !s.approvalRequired() || !s.approved(p.Now) {
		return Step{}, false
	}
	if _, refused := s.refused(); refused {
		return Step{}, false
	}
	retryAt := p.Now
	if m := s.lastEnd().Add(max(p.ClockError, c.LateApply)); retryAt.Before(m) {
		retryAt = m
	}
	limit := retryAt.Add(OperatorPermitLife)
	if end := c.deadline(s); !end.IsZero() && end.Before(limit) {
		limit = end
	}
	if !retryAt.Before(limit) {
		return Step{}, false
	}
	return permitting(ReasonDeclaredRisk, events.RetryPermitted{
		PermitID: p.NewID, Basis: events.BasisDeclaredRisk, ValidUntil: limit,
		Account: s.Intent.Account, RequestDigest: s.RequestDigest(), ContractDigest: c.Digest,
		RetryAt: retryAt, Evidence: s.looksSinceOutcome(),
		Reason: "the approval by " + s.Approval.Approver + " bound on_unknown: declared_risk; the effect may happen twice",
	}), true
}

// whyReview names the strongest reason why no machine can go on.
func whyReview(s State, c Contract, p Params) (events.ReviewReason, string) {
	end := c.deadline(s)
	_, byKey := c.keyDeadline(s.FirstSend)
	switch {
	case s.unsendable():
		return events.ReviewCannotRender, "the arguments were erased, or the intent is missing"
	case s.Intent.OnUnknown == events.OnUnknownReview:
		return events.ReviewPolicy, "the intent says on_unknown: review_only"
	case s.Sighted:
		return events.ReviewAmbiguous, "something was seen that may be our object, but it could not be confirmed"
	case slices.ContainsFunc(s.Attempts, func(a Attempt) bool { return a.State == AttemptRefused }):
		return events.ReviewRefused, "a later request was refused while an earlier one is unresolved"
	case !s.approved(p.Now):
		return events.ReviewApprovalExpired, "the approval is not valid any more"
	case !end.IsZero() && !p.Now.Before(end):
		return events.ReviewDeadline, "the deadline passed while the outcome is unknown"
	case byKey && !s.NoRepeat && s.counted() >= c.maxAttempts(s.Intent):
		return events.ReviewAttemptsExhausted, fmt.Sprintf("%d attempts were made", s.counted())
	case byKey && !s.NoRepeat:
		return events.ReviewKeyExpired, "the provider may have forgotten the key: its retention less the margin is over"
	case absenceProven(s, c):
		return events.ReviewEvidenceExhausted, "it was not found where it should show by now, and after the answer that came no repeat can help"
	case c.Lookup.Available:
		return events.ReviewEvidenceExhausted, fmt.Sprintf("%d looks did not find it, and that does not prove absence", s.Looks)
	}
	return events.ReviewNoEvidence, "the contract offers neither evidence nor a safe repeat"
}

// nextFinal finishes what a final operation leaves: attempts that no key covers
// are looked for to the end of the schedule, since a second match is a
// duplicate; a contradiction is shown to a person.
func nextFinal(s State, c Contract, p Params) Step {
	if s.ToReview != "" && s.Review == nil {
		return review(ReasonReviewOpen, s.ToReview, reviewText(s.ToReview))
	}
	if s.Halted != "" && s.Review == nil {
		return review(ReasonHalted, events.ReviewContradiction,
			"what was recorded after the end contradicts it ("+s.Halted+")")
	}
	if s.NextAction != events.NextReconcile || !c.Lookup.Available {
		return Step{Reason: ReasonFinal}
	}
	if p.Now.Before(s.NextAt) {
		return Step{Reason: ReasonTwinLook, At: s.NextAt}
	}
	return Step{Do: DoLook, Reason: ReasonTwinLook}
}

// twinLook lays down the next look for a second object after a confirmation:
// needed where another attempt is open or unresolved and neither key nor unique
// id keeps the provider from having made two; and once, after everything that
// may still land is visible, where the provider guards the id only loosely or
// makes objects of its own, or the contract asks for it.
// looks counts those made so far, blind says that the last one saw nothing.
func twinLook(s State, c Contract, attemptID string, looks int, blind bool, p Params) events.Next {
	doubt := slices.ContainsFunc(s.Attempts, func(a Attempt) bool {
		return a.ID != attemptID && (a.State == AttemptOpen || a.State == AttemptUnresolved)
	})
	if !c.Lookup.Available || looks >= len(c.Lookup.Schedule) {
		return events.Next{}
	}
	at := p.Now.Add(c.Lookup.Schedule[looks])
	switch {
	case doubt && !c.KeySupported:
	case (c.UniqueWeak || c.SideObjects || c.verifies(s)) && (s.Result == nil || blind):
		if settled := countsFrom(s, c, p); at.Before(settled) {
			at = settled
		}
	default:
		return events.Next{}
	}
	return events.Next{Action: events.NextReconcile, At: at}
}

// afterUnknown lays down what follows an outcome that became unknown at p.Now.
func afterUnknown(c Contract, p Params) events.Next {
	at := p.Now
	if c.Lookup.Available && len(c.Lookup.Schedule) > 0 {
		at = at.Add(c.Lookup.Schedule[0])
	}
	return events.Next{Action: events.NextReconcile, At: at}
}

// afterLook lays down when the next look is due. looks counts this one too, which
// began at asked.
func afterLook(s State, c Contract, p Params, asked time.Time, looks, emptyReads int) events.Next {
	at := p.Now
	switch {
	case looks < len(c.Lookup.Schedule):
		at = at.Add(c.Lookup.Schedule[looks])
	case absenceOpen(s, c, looks, emptyReads):
		at = at.Add(spacing(c))
		if m := countsFrom(s, c, p); at.Before(m) {
			at = m
		}
	case !asked.After(s.lastOutcome()):
		// By the clock of whoever looked it began before the outcome, so it will
		// be made again; while that clock is behind, not over and over.
		at = at.Add(spacing(c))
	}
	return events.Next{Action: events.NextReconcile, At: at}
}

func spacing(c Contract) time.Duration {
	if c.Absence.Spacing > 0 {
		return c.Absence.Spacing
	}
	return DefaultSpacing
}

// countsFrom returns from when on an empty read may count toward absence.
func countsFrom(s State, c Contract, p Params) time.Time {
	return s.lastEnd().Add(p.ClockError + c.LateApply + c.Lookup.Lag + c.Absence.Settle)
}

// looksSinceOutcome names the observations that a permit rests on.
func (s State) looksSinceOutcome() []string {
	var ids []string
	for _, e := range s.Evidence {
		if e.AskedAt.After(s.lastOutcome()) {
			ids = append(ids, e.EventID)
		}
	}
	return ids
}

func cover(s State, by string) []events.Covered {
	var out []events.Covered
	for _, a := range s.Attempts {
		how := by
		if a.State == AttemptNotApplied || a.State == AttemptRefused {
			how = string(a.Proof)
		}
		out = append(out, events.Covered{AttemptID: a.ID, By: how})
	}
	return out
}

func appending(reason Reason, payloads ...events.Payload) Step {
	return Step{Do: DoAppend, Reason: reason, Append: payloads}
}

func permitting(reason Reason, permit events.RetryPermitted) Step {
	permit.Next = events.Next{Action: events.NextAttempt, At: permit.RetryAt}
	return appending(reason, permit)
}

func review(why Reason, reason events.ReviewReason, text string) Step {
	return appending(why, events.ReviewOpened{
		Reason: reason, Text: text, Next: events.Next{Action: events.NextDecision},
	})
}

func earliest(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}
