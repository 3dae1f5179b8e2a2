package operation

import (
	"slices"
	"time"

	"github.com/opledger/opledger/events"
)

// Answered decides what to append after an attempt ended with an outcome. It
// may be asked late: when somebody else has already recorded the attempt as
// unknown, or the operation is final. An empty answer means: nothing new.
//
// What an answer says about this request and what it says about the operation
// are kept apart: a definite no to attempt 2 proves nothing about attempt 1.
func Answered(s State, c Contract, attemptID string, o Outcome, p Params) []events.Payload {
	a, known := s.AttemptByID(attemptID)
	if !known {
		return nil
	}
	if s.Status.Final() {
		return answeredFinal(s, a, o, p)
	}
	if a.State != AttemptOpen && a.State != AttemptUnresolved {
		return answeredSettled(s, a, o, p)
	}
	late := a.State == AttemptUnresolved
	others := slices.ContainsFunc(s.Attempts, func(b Attempt) bool {
		return b.ID != a.ID && (b.State == AttemptUnresolved || b.State == AttemptOpen)
	})
	switch o.Word {
	case OutcomeSuccess:
		if o.ExternalID == "" {
			return answeredUnknown(c, a, o, events.UnknownUnidentified, p)
		}
		return answeredSuccess(s, c, a, o, late, p)
	case OutcomeRejected:
		return answeredRejected(s, c, a, o, others, p)
	case OutcomeNotApplied:
		return []events.Payload{notAppliedBy(s, c, a, o, events.ProofNotApplied, others, p)}
	case OutcomeNotSent:
		return []events.Payload{notAppliedBy(s, c, a, o, events.ProofNotSent, others, p)}
	case OutcomeBusy:
		if others {
			return []events.Payload{notAppliedBy(s, c, a, o, events.ProofBusy, others, p)}
		}
		return answeredUnknown(c, a, o, events.UnknownBusy, p)
	case OutcomeExists:
		return answeredUnknown(c, a, o, events.UnknownExists, p)
	case OutcomeMismatch:
		return answeredUnknown(c, a, o, events.UnknownMismatch, p)
	case OutcomeUnidentified:
		return answeredUnknown(c, a, o, events.UnknownUnidentified, p)
	case OutcomeUncertain:
	}
	reason := o.Unknown
	if reason == "" {
		reason = events.UnknownUnreadable
	}
	return answeredUnknown(c, a, o, reason, p)
}

func answeredSuccess(s State, c Contract, a Attempt, o Outcome, late bool, p Params) []events.Payload {
	var out []events.Payload
	via := events.ViaResponse
	if late {
		via = events.ViaLateResponse
		out = append(out, lateEvidence(a, o, events.FindingPresent, p))
	}
	return append(out, events.ResultConfirmed{
		ExternalID: o.ExternalID, Result: o.Result, Via: via, AttemptID: a.ID,
		ProviderRequestID: o.ProviderRequestID, Next: twinLook(s, c, a.ID, 0, false, p),
	})
}

func answeredRejected(s State, c Contract, a Attempt, o Outcome, others bool, p Params) []events.Payload {
	if s.Sighted || (others && (!o.AnswersKey || !answersAll(s, c, a))) {
		return []events.Payload{events.AttemptNotApplied{
			AttemptID: a.ID, Proof: events.ProofRefused, Reason: o.Reason,
			ProviderRequestID: o.ProviderRequestID,
			Next:              events.Next{Action: events.NextReconcile, At: p.Now},
		}}
	}
	covers := cover(s, "answers_key")
	return []events.Payload{events.Rejected{
		Reason: o.Reason, Via: events.ViaResponse, AttemptID: a.ID,
		ProviderRequestID: o.ProviderRequestID, Covers: covers,
	}}
}

// answersAll reports whether an answer that is valid for the key covers every
// attempt: no other one is under way, and the provider still knew the key of
// the first when each of them ended.
func answersAll(s State, c Contract, a Attempt) bool {
	end, ok := c.keyDeadline(s.FirstSend)
	return ok && !slices.ContainsFunc(s.Attempts, func(b Attempt) bool {
		doubt := b.ID == a.ID || b.State == AttemptUnresolved
		return (b.ID != a.ID && b.State == AttemptOpen) || (doubt && b.LeaseUntil.After(end))
	})
}

func notAppliedBy(s State, c Contract, a Attempt, o Outcome, proof events.Proof, others bool, p Params) events.Payload {
	retryAt := p.Now.Add(max(o.RetryAfter, c.Backoff.Wait(max(s.Started, 1), p.Random)))
	if end := c.deadline(s); !end.IsZero() && retryAt.After(end) {
		retryAt = end // then it is given up, whatever the provider asked for
	}
	next := events.Next{Action: events.NextAttempt, At: retryAt}
	givenBack := a.PermitID != "" && s.Permit != nil && s.Permit.ID == a.PermitID
	if others && !givenBack {
		next.Action = events.NextReconcile
	}
	return events.AttemptNotApplied{
		AttemptID: a.ID, Proof: proof, Reason: o.Reason, ProviderRequestID: o.ProviderRequestID,
		RetryAt: retryAt, Next: next,
	}
}

// answeredUnknown records that the outcome is not known, once: an attempt that
// is recorded as unknown already stays what it is.
func answeredUnknown(c Contract, a Attempt, o Outcome, reason events.UnknownReason, p Params) []events.Payload {
	if a.State == AttemptUnresolved {
		switch reason {
		case events.UnknownExists, events.UnknownMismatch, events.UnknownUnidentified:
			// Late news that something is there.
			e := lateEvidence(a, o, events.FindingContradiction, p)
			e.Reason = string(reason)
			e.Next = events.Next{Action: events.NextReconcile, At: p.Now}
			return []events.Payload{e}
		case events.UnknownTimeout, events.UnknownConnectionLost, events.UnknownServerError,
			events.UnknownLeaseExpired, events.UnknownUnreadable, events.UnknownBusy,
			events.UnknownShutdown, events.UnknownAdapterError, events.UnknownLogDamage:
		}
		return nil
	}
	t := o.Transport
	u := events.OutcomeUnknown{
		AttemptID: a.ID, Reason: reason, Transport: &t, ProviderRequestID: o.ProviderRequestID,
		NoRepeat: o.Final, Next: afterUnknown(c, p),
	}
	switch reason {
	case events.UnknownExists, events.UnknownUnidentified:
		u.Next.At = p.Now // there is something to find: look now
	case events.UnknownMismatch:
		u.NoRepeat = true
		u.Next = events.Next{Action: events.NextDecision}
		return []events.Payload{u, events.ReviewOpened{
			Reason: events.ReviewMismatch,
			Text:   "the provider says that this key was used with other content; the first request may have had its effect",
			Next:   events.Next{Action: events.NextDecision},
		}}
	case events.UnknownTimeout, events.UnknownConnectionLost, events.UnknownServerError,
		events.UnknownLeaseExpired, events.UnknownUnreadable, events.UnknownBusy,
		events.UnknownShutdown, events.UnknownAdapterError, events.UnknownLogDamage:
	}
	return []events.Payload{u}
}

// answeredSettled: an answer to an attempt that was proven not applied.
func answeredSettled(s State, a Attempt, o Outcome, p Params) []events.Payload {
	if !showsEffect(o) || a.State == AttemptApplied {
		return nil
	}
	// The provider broke its word: the effect is there after all.
	e := lateEvidence(a, o, events.FindingContradiction, p)
	e.Next = events.Next{Action: s.NextAction, At: s.NextAt}
	if o.Word != OutcomeSuccess || o.ExternalID == "" {
		return []events.Payload{e} // nothing to confirm with: a person looks
	}
	return []events.Payload{
		e,
		events.ResultConfirmed{
			ExternalID: o.ExternalID, Result: o.Result, Via: events.ViaLateResponse, AttemptID: a.ID,
			ProviderRequestID: o.ProviderRequestID,
		},
	}
}

// showsEffect reports whether an answer says that something exists.
func showsEffect(o Outcome) bool {
	return o.Word == OutcomeSuccess || o.Word == OutcomeUnidentified || o.Word == OutcomeExists
}

// answeredFinal: what arrives after the end is evidence, a duplicate or an
// effect after a rejection. A confirmed success never goes back to unknown.
func answeredFinal(s State, a Attempt, o Outcome, p Params) []events.Payload {
	known := o.Word != OutcomeSuccess || o.ExternalID == "" || slices.Contains(s.ExternalIDs, o.ExternalID)
	if !showsEffect(o) || (known && s.Status != StatusRejected) {
		return nil
	}
	e := lateEvidence(a, o, events.FindingContradiction, p)
	return unlessRepeated(s, e, afterFinal(s, []string{o.ExternalID}, "late_response")...)
}

// afterFinal tells of objects that a final operation should not have.
func afterFinal(s State, ids []string, how string) []events.Payload {
	wait := events.Next{Action: events.NextDecision}
	if s.Status == StatusRejected {
		return []events.Payload{events.ReviewOpened{
			Reason: events.ReviewEffectAfterRejection,
			Text:   reviewText(events.ReviewEffectAfterRejection), Next: wait,
		}}
	}
	all := slices.Concat(s.ExternalIDs, ids)
	slices.Sort(all)
	return []events.Payload{
		events.DuplicateFound{ExternalIDs: slices.Compact(all), How: how},
		events.ReviewOpened{
			Reason: events.ReviewDuplicate,
			Text:   reviewText(events.ReviewDuplicate), Next: wait,
		},
	}
}

func reviewText(reason events.ReviewReason) string {
	switch reason { //nolint:exhaustive // the others have texts of their own
	case events.ReviewEffectAfterRejection:
		return "an object of this operation exists although it was rejected"
	case events.ReviewAmbiguous:
		return "objects look like this operation's, but none carries its key, id or label"
	}
	return "the provider holds more than one object of this operation; one has to be cleaned up"
}

func lateEvidence(a Attempt, o Outcome, finding events.Finding, p Params) events.EvidenceRecorded {
	e := events.EvidenceRecorded{
		Source: events.SourceLateResponse, Finding: finding, AskedAt: p.Now, AttemptID: a.ID,
		ProviderRequestID: o.ProviderRequestID, Reason: o.Reason,
	}
	if o.ExternalID != "" {
		e.ExternalIDs = []string{o.ExternalID}
	}
	return e
}

// Looked decides what to append after one look at the provider, or after
// evidence that somebody handed in. Evidence under another account is void
// (I8). An empty look counts toward absence only if it began late enough, apart
// enough, over complete pages, and nothing was ever sighted (I11).
func Looked(s State, c Contract, l Look, p Params) []events.Payload {
	e := events.EvidenceRecorded{
		Source: l.Source, Finding: events.FindingInconclusive, AskedAt: l.AskedAt, AskedVersion: l.AskedVersion,
		AccountProbed: l.AccountProbed, AttemptID: l.AttemptID, Lookup: l.Name, PagesComplete: l.PagesComplete,
		LagMS: c.Lookup.Lag.Milliseconds(), WeakMatches: l.Weak, ProviderRequestID: l.ProviderRequestID, Reason: l.Reason,
	}
	if s.Status == StatusAbsent {
		return nil
	}
	if !l.AccountOK {
		e.WeakMatches = nil
		if s.Status.Final() {
			// Void; the looks for a second object go on.
			e.Reason = "account_mismatch"
			e.Next = events.Next{Action: s.NextAction, At: s.NextAt}
			if l.Source == events.SourceLookup {
				e.Next = twinLook(s, c, s.Result.attempt(), s.Looks+1, true, p)
			}
			return unlessRepeated(s, e)
		}
		return lookedWrongAccount(s, e)
	}
	if s.Status.Final() {
		return lookedFinal(s, c, e, l, p)
	}
	looks := s.Looks
	if l.Source == events.SourceLookup {
		looks++
	}
	switch {
	case len(l.Matches) > 0 && len(s.Attempts) == 0:
		// It is there, and nothing was ever sent: that is no confirmation.
		e.Finding, e.ExternalIDs = events.FindingContradiction, l.Matches
		return lookedReview(s, e, events.ReviewContradiction,
			"an object with this operation's label exists although nothing was ever sent for it")
	case len(l.Matches) > 0:
		return lookedPresent(s, c, e, l, p)
	case len(l.Weak) > 0:
		return lookedReview(s, e, events.ReviewAmbiguous, reviewText(events.ReviewAmbiguous))
	case !l.Failed && countable(s, c, l, p):
		e.Finding = events.FindingAbsent
	}
	empty := s.EmptyReads
	if e.Finding == events.FindingAbsent {
		empty++
	}
	e.Next = afterLook(s, c, p, l.AskedAt, looks, empty)
	if s.Review != nil {
		e.Next = events.Next{Action: events.NextDecision}
	} else if l.Source != events.SourceLookup || s.Status != StatusUnknown {
		// What decides nothing moves no schedule and no backoff.
		e.Next = events.Next{Action: s.NextAction, At: s.NextAt}
	}
	return unlessRepeated(s, e)
}

func lookedPresent(s State, c Contract, e events.EvidenceRecorded, l Look, p Params) []events.Payload {
	e.Finding, e.ExternalIDs = events.FindingPresent, l.Matches
	out := []events.Payload{e}
	if len(l.Matches) > 1 {
		out = append(out, events.DuplicateFound{ExternalIDs: l.Matches, How: string(l.Source)})
	}
	confirmed := events.ResultConfirmed{
		ExternalID: l.Matches[0], Result: l.Result, Via: via(l.Source), AttemptID: l.AttemptID,
		ProviderRequestID: l.ProviderRequestID,
	}
	if u := s.Unresolved(); confirmed.AttemptID == "" && len(u) == 1 && u[0].Unknown != events.UnknownLogDamage {
		confirmed.AttemptID = u[0].ID
	}
	confirmed.Next = twinLook(s, c, confirmed.AttemptID, 0, false, p)
	out = append(out, confirmed)
	switch {
	case len(l.Matches) > 1:
		out = append(out, events.ReviewOpened{
			Reason: events.ReviewDuplicate,
			Text:   reviewText(events.ReviewDuplicate),
			Next:   events.Next{Action: events.NextDecision},
		})
	case c.SideObjects && len(l.Weak) > 0:
		out = append(out, sideObject())
	}
	return out
}

// sideObject tells of an object beside the confirmed one that looks alike and
// carries no mark of ours.
func sideObject() events.Payload {
	return events.ReviewOpened{
		Reason: events.ReviewAmbiguous,
		Text:   "it is confirmed; the provider also holds an object that looks like it and has no mark of this ledger: perhaps the provider made one by itself",
		Next:   events.Next{Action: events.NextDecision},
	}
}

func lookedWrongAccount(s State, e events.EvidenceRecorded) []events.Payload {
	if e.Reason == "" {
		e.Reason = "account_mismatch"
	}
	if e.Source != events.SourceLookup {
		// What somebody handed in under another account stops nothing.
		e.Next = events.Next{Action: s.NextAction, At: s.NextAt}
		return unlessRepeated(s, e)
	}
	return lookedReview(s, e, events.ReviewAccountMismatch,
		"the credential now belongs to account "+e.AccountProbed+", not to the one of this operation")
}

// lookedReview records what was seen and asks a person, unless one is asked.
func lookedReview(s State, e events.EvidenceRecorded, reason events.ReviewReason, text string) []events.Payload {
	wait := events.Next{Action: events.NextDecision}
	e.Next = wait
	if s.Review != nil {
		return unlessRepeated(s, e)
	}
	return unlessRepeated(s, e, events.ReviewOpened{Reason: reason, Text: text, Next: wait})
}

func lookedFinal(s State, c Contract, e events.EvidenceRecorded, l Look, p Params) []events.Payload {
	var fresh []string
	for _, id := range l.Matches {
		if s.Status == StatusRejected || !slices.Contains(s.ExternalIDs, id) {
			fresh = append(fresh, id)
		}
	}
	if len(fresh) == 0 {
		switch {
		case l.Source == events.SourceLookup && c.SideObjects && len(l.Weak) > 0 && s.Status == StatusConfirmed && s.Review == nil:
			e.Next = events.Next{Action: events.NextReconcile, At: p.Now} // look again if a crash comes between the two
			return []events.Payload{e, sideObject()}
		case l.Source == events.SourceLookup:
			e.Next = twinLook(s, c, s.Result.attempt(), s.Looks+1, l.Failed || !l.PagesComplete, p) // none found: its schedule goes on
			return []events.Payload{e}
		case len(l.Matches) == 0:
			// What arrives after the end and names no object is kept and
			// changes nothing.
			e.Next = events.Next{Action: s.NextAction, At: s.NextAt}
			return unlessRepeated(s, e)
		}
		return nil
	}
	e.Finding, e.ExternalIDs = events.FindingContradiction, fresh
	return unlessRepeated(s, e, afterFinal(s, fresh, string(l.Source))...)
}

// countable reports whether an empty look counts toward proven absence.
func countable(s State, c Contract, l Look, p Params) bool {
	if !c.Absence.Provable || !l.PagesComplete || s.Sighted || l.Source != events.SourceLookup {
		return false
	}
	if _, open := s.Open(); open {
		return false
	}
	if l.AskedAt.Before(countsFrom(s, c, p)) {
		return false
	}
	return s.LastEmpty.IsZero() || !l.AskedAt.Before(s.LastEmpty.Add(spacing(c)))
}

// repeated reports whether evidence that arrived from outside was recorded
// before. Scheduled looks are each recorded: absence counts them.
func repeated(s State, e events.EvidenceRecorded) bool {
	if e.Source == events.SourceLookup {
		return false
	}
	return slices.ContainsFunc(s.Evidence, func(old Evidence) bool {
		return old.Source == e.Source && old.Finding == e.Finding && old.Reason == e.Reason &&
			old.AccountProbed == e.AccountProbed && slices.Equal(old.ExternalIDs, e.ExternalIDs) &&
			slices.Equal(old.WeakMatches, e.WeakMatches)
	})
}

// unlessRepeated returns evidence and what follows from it, or nothing if the
// evidence was recorded before.
func unlessRepeated(s State, e events.EvidenceRecorded, then ...events.Payload) []events.Payload {
	if repeated(s, e) {
		return nil
	}
	return append([]events.Payload{e}, then...)
}

func via(source events.EvidenceSource) events.Via {
	switch source {
	case events.SourceLookup:
		return events.ViaLookup
	case events.SourceLateResponse:
		return events.ViaLateResponse
	case events.SourceWebhook:
		return events.ViaWebhook
	case events.SourcePerson:
		return events.ViaOperator
	}
	return events.ViaLookup
}

// Dispatch checks, right before an attempt is journaled, what only the executor
// has seen: the account as probed and the request as rendered. It returns what
// to append instead of the attempt, or nothing if the attempt may start.
func Dispatch(s State, accountProbed, requestDigest string) []events.Payload {
	wait := events.Next{Action: events.NextDecision}
	if bound := s.Intent.ProviderID; bound != "" && accountProbed != bound {
		return []events.Payload{events.ReviewOpened{
			Reason: events.ReviewAccountMismatch, Next: wait,
			Text: "the credential belongs to account " + accountProbed + ", the operation is bound to " + bound,
		}}
	}
	if first := s.RequestDigest(); first != "" && first != requestDigest {
		return []events.Payload{events.ReviewOpened{
			Reason: events.ReviewRequestChanged, Next: wait,
			Text: "the request would differ from the first attempt's: " + requestDigest + " instead of " + first,
		}}
	}
	return nil
}

// KeyWindow reports whether an attempt whose AttemptStarted the log stamped at
// stamp still ends, lease included, before its permit does (I5).
func KeyWindow(validUntil, stamp time.Time, lease time.Duration) bool {
	return validUntil.IsZero() || stamp.Add(lease).Before(validUntil)
}
