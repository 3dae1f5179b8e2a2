package operation

import (
	"slices"
	"time"

	"github.com/opledger/opledger/events"
)

// AnomalyReason says in which way an event contradicts the fold.
type AnomalyReason string

// The anomalies.
const (
	AnomalyNone             AnomalyReason = ""
	AnomalyMalformed        AnomalyReason = "malformed"
	AnomalyUnknownKind      AnomalyReason = "unknown_kind"
	AnomalyForeign          AnomalyReason = "foreign_event"
	AnomalyVersion          AnomalyReason = "version_gap"
	AnomalyChain            AnomalyReason = "chain_broken"
	AnomalyNoIntent         AnomalyReason = "no_intent"
	AnomalySecondIntent     AnomalyReason = "second_intent"
	AnomalyApproval         AnomalyReason = "approval_of_other_intent"
	AnomalyAttemptOpen      AnomalyReason = "attempt_while_open"
	AnomalyAttemptNoPermit  AnomalyReason = "attempt_without_permit"
	AnomalyAttemptFinal     AnomalyReason = "attempt_after_final"
	AnomalyAttemptRepeated  AnomalyReason = "attempt_id_repeated"
	AnomalyAttemptUnknown   AnomalyReason = "attempt_not_known"
	AnomalyAttemptSettled   AnomalyReason = "attempt_already_settled"
	AnomalyContradiction    AnomalyReason = "contradiction"
	AnomalyPermitForbidden  AnomalyReason = "permit_forbidden"
	AnomalyRejectedInDoubt  AnomalyReason = "rejected_in_doubt"
	AnomalyFinalTwice       AnomalyReason = "final_twice"
	AnomalyReviewNotOpen    AnomalyReason = "review_not_open"
	AnomalyErasedWhileDoubt AnomalyReason = "erased_in_doubt"
)

// AnomalyReasons lists every anomaly.
func AnomalyReasons() []AnomalyReason {
	return []AnomalyReason{
		AnomalyMalformed, AnomalyUnknownKind, AnomalyForeign, AnomalyVersion, AnomalyChain,
		AnomalyNoIntent, AnomalySecondIntent, AnomalyApproval, AnomalyAttemptOpen,
		AnomalyAttemptNoPermit, AnomalyAttemptFinal, AnomalyAttemptRepeated,
		AnomalyAttemptUnknown, AnomalyAttemptSettled, AnomalyContradiction,
		AnomalyPermitForbidden, AnomalyRejectedInDoubt, AnomalyFinalTwice,
		AnomalyReviewNotOpen, AnomalyErasedWhileDoubt,
	}
}

// Anomaly is what the fold reports of an event that contradicts it. The zero
// value means: none.
type Anomaly struct {
	Reason AnomalyReason `json:"reason"`
	Seq    uint64        `json:"seq"`
}

// Evolve folds one stored message into the state. It is total over every pair
// of state and kind, never panics on data, and reads only the record: bytes,
// sequence and the log's time stamp. Messages that were folded before (by
// sequence) are passed over, so a redelivery is harmless.
//
// A message that contradicts the state never makes the fold forget the outside
// world: an AttemptStarted that breaks a rule still is an open attempt, a
// ResultConfirmed for an unknown attempt still confirms. Both set Halted, and
// nothing further is permitted until a person resumes.
func Evolve(s State, r events.Record) (State, Anomaly) {
	if r.Seq != 0 && r.Seq <= s.LastSeq {
		return s, Anomaly{}
	}
	if r.Err != nil || r.Data == nil {
		s.LastSeq = r.Seq
		return s.halt(r, AnomalyMalformed)
	}
	if s.Version > 0 && (r.Tenant != s.Tenant || r.Operation != s.OperationID) {
		s.LastSeq = r.Seq
		return s.halt(r, AnomalyForeign)
	}
	found := AnomalyNone
	note := func(reason AnomalyReason) {
		if found == AnomalyNone {
			found = reason
		}
	}
	switch {
	case r.Version != s.Version+1:
		note(AnomalyVersion)
	case r.Prev != s.Head:
		note(AnomalyChain)
	case s.Version == 0 && r.Data.Kind() != events.KindIntentRecorded:
		note(AnomalyNoIntent)
	}
	before := s.Status
	s.Tenant, s.OperationID = r.Tenant, r.Operation
	s.Version = max(s.Version+1, r.Version)
	s.Head = events.Digest(r.Body)
	s.LastSeq = r.Seq
	s.UpdatedAt = r.Stamp.UTC()
	next, reason := s.apply(r)
	note(reason)
	s = next
	if word, reason := decisionOf(r.Data); word != "" {
		s.Decided = &Settlement{Decision: word, Actor: r.Actor, Reason: reason, At: r.Stamp.UTC()}
	}
	if !emptyLook(r.Data) {
		s.Substantive = s.Version
	}
	s.FirstSend = s.firstSend()
	s.FollowUp = time.Time{}
	if followed(r.Data) && !s.status().Final() && s.Review == nil {
		s.FollowUp = r.Stamp.UTC().Add(FollowUpTime)
	}
	s.Status = s.status()
	s.Undetermined = s.Undetermined && (s.Status == StatusUnknown || s.Status == StatusInFlight)
	if s.Status != before {
		s.StatusSince = r.Stamp.UTC()
	}
	s = s.withNext(r)
	if found != AnomalyNone {
		return s.halt(r, found)
	}
	return s, Anomaly{}
}

// Fold evolves the zero state over records in order.
func Fold(records []events.Record) State {
	var s State
	for _, r := range records {
		s, _ = Evolve(s, r)
	}
	return s
}

func (s State) halt(r events.Record, reason AnomalyReason) (State, Anomaly) {
	a := Anomaly{Reason: reason, Seq: r.Seq}
	if s.Halted == "" {
		s.Halted = string(reason)
	}
	s.Anomalies = append(slices.Clip(s.Anomalies), a)
	if n := len(s.Anomalies); n > MaxAnomaliesKept {
		s.Anomalies = slices.Clone(s.Anomalies[n-MaxAnomaliesKept:])
	}
	// Whoever works through open operations must see it at once.
	if s.Version > 0 && s.Review == nil {
		if _, open := s.Open(); !open {
			s.NextAction, s.NextAt = events.NextReconcile, r.Stamp.UTC()
		}
	}
	return s, a
}

// apply folds the kind's own fields. Closed list: a kind that is not on it is
// Unrecognized.
func (s State) apply(r events.Record) (State, AnomalyReason) {
	switch d := r.Data.(type) {
	case events.IntentRecorded:
		return s.intent(r, d)
	case events.ApprovalGranted:
		return s.approval(r, d)
	case events.AttemptStarted:
		return s.started(r, d)
	case events.AttemptNotApplied:
		return s.notApplied(r, d)
	case events.OutcomeUnknown:
		return s.unknown(r, d)
	case events.EvidenceRecorded:
		return s.evidence(r, d)
	case events.RetryPermitted:
		return s.permitted(d)
	case events.ReviewOpened:
		return s.reviewOpened(r, d)
	case events.ReviewUpdated:
		return s.reviewUpdated(d)
	case events.ReviewClosed:
		return s.reviewClosed(d)
	case events.ResultConfirmed:
		return s.confirmed(r, d)
	case events.Rejected:
		return s.rejected(r, d)
	case events.DuplicateFound:
		s = s.sighted()
		s.Duplicate, s.ToReview = true, events.ReviewDuplicate
		for _, id := range d.ExternalIDs {
			s = s.withExternalID(id)
		}
		return s, AnomalyNone
	case events.ArgumentsErased:
		s.Erased = true
		if s.status() == StatusUnknown || s.status() == StatusInFlight {
			return s, AnomalyErasedWhileDoubt
		}
		return s, AnomalyNone
	}
	return s, AnomalyUnknownKind
}

func (s State) intent(r events.Record, d events.IntentRecorded) (State, AnomalyReason) {
	if s.Version > 1 || s.Intent.IntentDigest != "" {
		return s, AnomalySecondIntent
	}
	s.Intent = d
	s.Hold = d.Hold
	s.Traceparent = r.Traceparent
	s.RecordedAt = r.Stamp.UTC()
	return s, AnomalyNone
}

func (s State) approval(r events.Record, d events.ApprovalGranted) (State, AnomalyReason) {
	if d.IntentDigest != s.Intent.IntentDigest {
		return s, AnomalyApproval
	}
	s.Approval = &Approval{Approver: d.Approver, GrantedAt: r.Stamp.UTC(), ExpiresAt: utc(d.ExpiresAt)}
	return s, AnomalyNone
}

func (s State) started(r events.Record, d events.AttemptStarted) (State, AnomalyReason) {
	found := AnomalyNone
	_, open := s.Open()
	switch {
	case s.status().Final():
		found = AnomalyAttemptFinal
	case open:
		found = AnomalyAttemptOpen
	case len(s.Unresolved()) > 0 && (s.Permit == nil || s.Permit.Used || s.Permit.ID != d.PermitID):
		found = AnomalyAttemptNoPermit
	}
	s.Started++
	s.EmptyReads, s.Looks, s.LookDue, s.Undetermined = 0, 0, false, false
	var basis events.Basis
	if s.Permit != nil && s.Permit.ID == d.PermitID {
		p := *s.Permit
		p.Used = true
		s.Permit, basis = &p, p.Basis
	} else {
		s.Permit = nil // it was written before this attempt and says nothing of it
	}
	a := Attempt{
		ID: d.AttemptID, Number: d.Number, State: AttemptOpen, Worker: d.Worker,
		StartedAt: r.Stamp.UTC(), LeaseUntil: r.Stamp.UTC().Add(d.Lease()),
		RequestDigest: d.RequestDigest, PermitID: d.PermitID, PermitBasis: basis,
	}
	if s.attempt(d.AttemptID) >= 0 {
		// Outcomes name the earlier attempt; this one is known by its event.
		a.ID, found = r.ID, AnomalyAttemptRepeated
	}
	s.Attempts = append(slices.Clip(s.Attempts), a)
	if len(s.Attempts) > MaxAttemptsKept {
		i := slices.IndexFunc(s.Attempts, func(a Attempt) bool { return a.Proof == events.ProofNotSent })
		if i >= 0 {
			s.Attempts = slices.Delete(slices.Clone(s.Attempts), i, i+1)
		}
	}
	return s, found
}

func (s State) notApplied(r events.Record, d events.AttemptNotApplied) (State, AnomalyReason) {
	i := s.attempt(d.AttemptID)
	if i < 0 {
		return s, AnomalyAttemptUnknown
	}
	a := s.Attempts[i]
	switch a.State {
	case AttemptOpen, AttemptUnresolved:
	case AttemptApplied:
		return s, AnomalyContradiction
	case AttemptNotApplied, AttemptRefused:
		return s, AnomalyAttemptSettled
	}
	a.State = AttemptNotApplied
	if d.Proof == events.ProofRefused {
		a.State = AttemptRefused
		s.Permit, s.NoRepeat = nil, true
	} else if s.Permit != nil && s.Permit.Used && s.Permit.ID == a.PermitID && a.PermitID != "" {
		p := *s.Permit
		p.Used = false
		s.Permit = &p
	}
	a.Proof, a.Reason = d.Proof, d.Reason
	s = s.withAttempt(i, a.ended(r, d.ProviderRequestID))
	return s, AnomalyNone
}

func (s State) unknown(r events.Record, d events.OutcomeUnknown) (State, AnomalyReason) {
	s.NoRepeat = s.NoRepeat || d.NoRepeat
	switch d.Reason {
	case events.UnknownExists, events.UnknownMismatch, events.UnknownUnidentified:
		s = s.sighted()
	case events.UnknownTimeout, events.UnknownConnectionLost, events.UnknownServerError,
		events.UnknownLeaseExpired, events.UnknownUnreadable, events.UnknownBusy,
		events.UnknownShutdown, events.UnknownAdapterError:
	case events.UnknownLogDamage:
		return s.lost(r, r.ID, d.Reason, utc(d.Since)), AnomalyNone
	}
	i := s.attempt(d.AttemptID)
	if i < 0 {
		// It may have happened, although the log does not know its start.
		id := d.AttemptID
		if id == "" {
			id = r.ID
		}
		return s.lost(r, id, d.Reason, time.Time{}), AnomalyAttemptUnknown
	}
	a := s.Attempts[i]
	if a.State != AttemptOpen {
		return s, AnomalyAttemptSettled
	}
	a.State, a.Unknown, a.Transport = AttemptUnresolved, d.Reason, d.Transport
	return s.withAttempt(i, a.ended(r, d.ProviderRequestID)), AnomalyNone
}

// lost adds an attempt in doubt whose start is missing from the log. It may have
// been sent as early as the intent was recorded, or since an earlier moment: the
// intent in the log may be the repeat of one that was lost with it.
func (s State) lost(r events.Record, id string, reason events.UnknownReason, since time.Time) State {
	a := Attempt{
		ID: id, State: AttemptUnresolved, StartedAt: s.RecordedAt, LeaseUntil: r.Stamp.UTC(),
		EndedAt: r.Stamp.UTC(), Unknown: reason,
	}
	if a.StartedAt.IsZero() {
		a.StartedAt = r.Stamp.UTC()
	}
	if !since.IsZero() && since.Before(a.StartedAt) {
		a.StartedAt = since
	}
	s.Attempts = append(slices.Clip(s.Attempts), a)
	s.EmptyReads, s.Looks = 0, 0
	return s
}

func (s State) evidence(r events.Record, d events.EvidenceRecorded) (State, AnomalyReason) {
	s.EvidenceCount++
	s.Evidence = append(slices.Clip(s.Evidence), Evidence{
		EventID: r.ID, Source: d.Source, Finding: d.Finding, AskedAt: utc(d.AskedAt),
		AccountProbed: d.AccountProbed, ExternalIDs: d.ExternalIDs, WeakMatches: d.WeakMatches,
		PagesComplete: d.PagesComplete, LagMS: d.LagMS, Reason: d.Reason,
	})
	if n := len(s.Evidence); n > MaxEvidenceKept {
		s.Evidence = slices.Clone(s.Evidence[n-MaxEvidenceKept:])
	}
	void := d.AccountProbed != "" && s.Intent.ProviderID != "" && d.AccountProbed != s.Intent.ProviderID
	if d.Source == events.SourceLookup {
		s.Looks++
		s.LookDue = false
		if d.AskedAt.After(s.LastLook) && !void {
			s.LastLook = utc(d.AskedAt)
		}
	}
	if void {
		return s, AnomalyNone // what another account shows is not about this operation (I8)
	}
	switch d.Finding {
	case events.FindingPresent, events.FindingContradiction:
		known := len(s.ExternalIDs)
		for _, id := range d.ExternalIDs {
			s = s.withExternalID(id)
		}
		s = s.sighted()
		if s.Rejection != nil {
			s.ToReview = events.ReviewEffectAfterRejection
		} else if s.Result != nil && len(s.ExternalIDs) > known {
			s.ToReview = events.ReviewDuplicate
		}
	case events.FindingAbsent:
		s.EmptyReads++
		s.LastEmpty = utc(d.AskedAt)
	case events.FindingInconclusive:
		if len(d.WeakMatches) > 0 && s.Review == nil && !s.status().Final() {
			s.ToReview = events.ReviewAmbiguous
		}
	}
	return s, AnomalyNone
}

func (s State) permitted(d events.RetryPermitted) (State, AnomalyReason) {
	byPerson := d.Basis == events.BasisOperator
	_, open := s.Open()
	if s.status().Final() || open || (s.Sighted && !byPerson) ||
		(s.NoRepeat && d.Basis == events.BasisKeyRetention) {
		return s, AnomalyPermitForbidden
	}
	if byPerson {
		// He has seen everything: his permit settles the review.
		s.Review, s.Halted = nil, ""
	}
	s.Undetermined = false
	s.RiskTaken = s.RiskTaken || d.Basis == events.BasisDeclaredRisk
	s.Permit = &Permit{ID: d.PermitID, Basis: d.Basis, ValidUntil: utc(d.ValidUntil), RetryAt: utc(d.RetryAt)}
	return s, AnomalyNone
}

func (s State) reviewOpened(r events.Record, d events.ReviewOpened) (State, AnomalyReason) {
	at := r.Stamp.UTC()
	if s.Review != nil {
		at = s.Review.OpenedAt
	}
	s.Review = &Review{Reason: d.Reason, Text: d.Text, OpenedAt: at}
	s.ToReview, s.Undetermined = "", false
	return s, AnomalyNone
}

func (s State) reviewUpdated(d events.ReviewUpdated) (State, AnomalyReason) {
	if d.Decision == events.DecideResume {
		s.Hold, s.Halted = "", ""
	}
	if d.Decision == events.DecideLook {
		s.LookDue, s.Undetermined = true, false
	}
	if s.Review == nil {
		if d.Decision == events.DecideResume || d.Decision == events.DecideLook || d.Decision == events.DecideNote {
			return s, AnomalyNone
		}
		return s, AnomalyReviewNotOpen
	}
	review := *s.Review
	if d.Decision == events.DecidePostpone {
		review.Until = utc(d.Until)
	}
	if d.Assignee != "" {
		review.Assignee = d.Assignee
	}
	if d.Text != "" {
		review.Note = d.Text
	}
	s.Review = &review
	return s, AnomalyNone
}

func (s State) reviewClosed(d events.ReviewClosed) (State, AnomalyReason) {
	if s.Review == nil {
		return s, AnomalyReviewNotOpen
	}
	s.Review = nil
	switch d.Decision {
	case events.DecideUndetermined:
		s.Undetermined, s.Halted, s.Permit = true, "", nil
	case events.DecideResume, events.DecideAcknowledge:
		s.Hold, s.Halted = "", ""
	case events.DecidePermit:
		// A person has seen everything: what was sighted no longer forbids.
		s.Halted = ""
	case events.DecideConfirm, events.DecideReject, events.DecideLook, events.DecidePostpone,
		events.DecideAssign, events.DecideNote, events.DecideCancel:
	}
	return s, AnomalyNone
}

func (s State) confirmed(r events.Record, d events.ResultConfirmed) (State, AnomalyReason) {
	s = s.withExternalID(d.ExternalID)
	found := AnomalyNone
	if i := s.attempt(d.AttemptID); i >= 0 {
		a := s.Attempts[i]
		if a.State == AttemptNotApplied || a.State == AttemptRefused {
			found = AnomalyContradiction
		}
		a.State = AttemptApplied
		s = s.withAttempt(i, a.ended(r, d.ProviderRequestID))
	} else if d.AttemptID != "" {
		found = AnomalyAttemptUnknown
	}
	if s.Result != nil || s.Rejection != nil {
		return s, AnomalyFinalTwice
	}
	s.Result = &Result{ExternalID: d.ExternalID, Body: d.Result, Via: d.Via, AttemptID: d.AttemptID, At: r.Stamp.UTC()}
	s.Review, s.Permit, s.Undetermined = nil, nil, false
	if d.Via == events.ViaOperator {
		s.Halted = "" // who settles it has seen the contradiction
	}
	return s, found
}

func (s State) rejected(r events.Record, d events.Rejected) (State, AnomalyReason) {
	if s.Result != nil || s.Rejection != nil {
		return s, AnomalyFinalTwice
	}
	// "Nothing happened" must be said of each attempt. A rejection that leaves
	// one in doubt does not end the operation.
	covered := make([]Attempt, len(s.Attempts))
	copy(covered, s.Attempts)
	for i, a := range covered {
		named := slices.ContainsFunc(d.Covers, func(c events.Covered) bool { return c.AttemptID == a.ID })
		byAnswer := d.Via == events.ViaResponse && d.AttemptID == a.ID
		switch a.State {
		case AttemptOpen:
			if !byAnswer {
				return s, AnomalyRejectedInDoubt
			}
		case AttemptUnresolved:
			if !named && !byAnswer {
				return s, AnomalyRejectedInDoubt
			}
		case AttemptApplied:
			return s, AnomalyContradiction
		case AttemptNotApplied, AttemptRefused:
			continue
		}
		a.State, a.Reason = AttemptRefused, d.Reason
		covered[i] = a.ended(r, d.ProviderRequestID)
	}
	if len(covered) > 0 {
		s.Attempts = covered
	}
	s.Rejection = &Rejection{Reason: d.Reason, Via: d.Via, At: r.Stamp.UTC()}
	s.Review, s.Permit, s.Undetermined = nil, nil, false
	if d.Via == events.ViaOperator {
		s.Halted = "" // who settles it has seen the contradiction
	}
	if d.AttemptID != "" && s.attempt(d.AttemptID) < 0 {
		return s, AnomalyAttemptUnknown
	}
	return s, AnomalyNone
}

func (a Attempt) ended(r events.Record, providerRequestID string) Attempt {
	if a.EndedAt.IsZero() {
		a.EndedAt = r.Stamp.UTC()
	}
	if providerRequestID != "" {
		a.ProviderRequestID = providerRequestID
	}
	return a
}

func (s State) withAttempt(i int, a Attempt) State {
	s.Attempts = slices.Clone(s.Attempts)
	s.Attempts[i] = a
	return s
}

// sighted notes that something was seen that may be our object. It voids the
// permit, also one in use: it is not given back to somebody who has not seen.
func (s State) sighted() State {
	s.Sighted, s.Permit = true, nil
	return s
}

func (s State) withExternalID(id string) State {
	if id == "" || slices.Contains(s.ExternalIDs, id) || len(s.ExternalIDs) >= MaxExternalIDs {
		return s
	}
	s.ExternalIDs = append(slices.Clip(s.ExternalIDs), id)
	return s
}

// firstSend is computed anew each time: proof that the first attempt was never
// sent takes it out again.
func (s State) firstSend() (first time.Time) {
	for _, a := range s.Attempts {
		if a.Proof == events.ProofNotSent {
			continue
		}
		if first.IsZero() || a.StartedAt.Before(first) {
			first = a.StartedAt
		}
	}
	return first
}

func (s State) status() Status {
	if s.Result != nil {
		return StatusConfirmed
	}
	if s.Rejection != nil {
		return StatusRejected
	}
	if _, open := s.Open(); open {
		return StatusInFlight
	}
	if len(s.Unresolved()) > 0 {
		return StatusUnknown
	}
	if s.Version == 0 {
		return StatusAbsent
	}
	return StatusPending
}

// withNext copies what the event laid down about the time after it, and fills
// in what follows from the state alone.
func (s State) withNext(r events.Record) State {
	if s.Status.Final() || s.Undetermined {
		s.NextAction, s.NextAt = events.NextNone, time.Time{}
		if n := nextOf(r.Data); n.Action == events.NextReconcile && !s.Undetermined {
			s.NextAction, s.NextAt = n.Action, utc(n.At)
		}
		switch {
		case s.Review != nil:
			s.NextAction, s.NextAt = events.NextDecision, time.Time{}
		case s.ToReview != "" || s.Halted != "":
			s.NextAction, s.NextAt = events.NextReconcile, r.Stamp.UTC()
		}
		return s
	}
	if a, open := s.Open(); open {
		s.NextAction, s.NextAt = events.NextOutcome, a.LeaseUntil
		return s
	}
	if !s.FollowUp.IsZero() {
		s.NextAction, s.NextAt = events.NextReconcile, s.FollowUp
		return s
	}
	if s.ToReview == events.ReviewAmbiguous && s.Review == nil {
		s.NextAction, s.NextAt = events.NextReconcile, r.Stamp.UTC()
		return s
	}
	// A hand-over to a person counts only once his review is open.
	handed := s.Review != nil || s.Hold != ""
	if n := nextOf(r.Data); n.Action != "" && (n.Action != events.NextDecision || handed) {
		s.NextAction, s.NextAt = n.Action, utc(n.At)
		return s
	}
	switch {
	case handed:
		s.NextAction, s.NextAt = events.NextDecision, time.Time{}
	case s.Status == StatusUnknown:
		s.NextAction, s.NextAt = events.NextReconcile, r.Stamp.UTC()
	case s.approvalRequired() && s.Approval == nil:
		s.NextAction, s.NextAt = events.NextApproval, s.approvalLimit()
	default:
		s.NextAction, s.NextAt = events.NextAttempt, r.Stamp.UTC()
	}
	return s
}

// decisionOf tells which decision of a person an event records, if it does.
func decisionOf(p events.Payload) (events.DecisionWord, string) {
	switch d := p.(type) {
	case events.ReviewUpdated:
		return d.Decision, d.Text
	case events.ReviewClosed:
		return d.Decision, d.Text
	case events.RetryPermitted:
		if d.Basis == events.BasisOperator {
			return events.DecidePermit, d.Reason
		}
	case events.ResultConfirmed:
		if d.Via == events.ViaOperator {
			return events.DecideConfirm, d.Reason
		}
	case events.Rejected:
		switch d.Via { //nolint:exhaustive // the others are no person's
		case events.ViaOperator:
			return events.DecideReject, d.Reason
		case events.ViaCancelled:
			return events.DecideCancel, d.Reason
		}
	}
	return "", ""
}

// followed reports whether the decision that wrote this event has more to
// write: what was sighted is confirmed next, what mismatched is put up for
// review.
func followed(p events.Payload) bool {
	switch d := p.(type) {
	case events.EvidenceRecorded:
		found := d.Finding == events.FindingPresent || d.Finding == events.FindingContradiction
		return (found && len(d.ExternalIDs) > 0) || len(d.WeakMatches) > 0
	case events.OutcomeUnknown:
		return d.Reason == events.UnknownMismatch
	case events.DuplicateFound:
		return true
	}
	return false
}

func nextOf(p events.Payload) events.Next {
	switch d := p.(type) {
	case events.AttemptNotApplied:
		return d.Next
	case events.OutcomeUnknown:
		return d.Next
	case events.EvidenceRecorded:
		return d.Next
	case events.RetryPermitted:
		return d.Next
	case events.ReviewOpened:
		return d.Next
	case events.ReviewUpdated:
		return d.Next
	case events.ReviewClosed:
		return d.Next
	case events.ResultConfirmed:
		return d.Next
	}
	return events.Next{}
}

func emptyLook(p events.Payload) bool {
	d, ok := p.(events.EvidenceRecorded)
	return ok && len(d.WeakMatches) == 0 &&
		(d.Finding == events.FindingInconclusive || d.Finding == events.FindingAbsent)
}

// utc is the form in which the state keeps a time that an event names. Years
// that JSON can't hold in UTC are brought back into it.
func utc(t time.Time) time.Time {
	u := t.UTC()
	switch {
	case u.Year() > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	case u.Year() < 1:
		return time.Time{}
	}
	return u
}
