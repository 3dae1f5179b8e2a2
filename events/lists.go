package events

// Kind is the kind of an event. The five kinds of the core vocabulary are
// IntentRecorded, AttemptStarted, OutcomeUnknown, ResultConfirmed and Rejected;
// the others exist because permits, evidence, review and duplicates must be in
// the log too, or the projection could not be rebuilt from it.
type Kind string

// The kinds of event.
const (
	KindIntentRecorded    Kind = "IntentRecorded"
	KindApprovalGranted   Kind = "ApprovalGranted"
	KindAttemptStarted    Kind = "AttemptStarted"
	KindAttemptNotApplied Kind = "AttemptNotApplied"
	KindOutcomeUnknown    Kind = "OutcomeUnknown"
	KindEvidenceRecorded  Kind = "EvidenceRecorded"
	KindRetryPermitted    Kind = "RetryPermitted"
	KindReviewOpened      Kind = "ReviewOpened"
	KindReviewUpdated     Kind = "ReviewUpdated"
	KindReviewClosed      Kind = "ReviewClosed"
	KindResultConfirmed   Kind = "ResultConfirmed"
	KindRejected          Kind = "Rejected"
	KindDuplicateFound    Kind = "DuplicateFound"
	KindArgumentsErased   Kind = "ArgumentsErased"
)

// Kinds lists every kind of event in the order of a typical life.
func Kinds() []Kind {
	return []Kind{
		KindIntentRecorded, KindApprovalGranted, KindAttemptStarted, KindAttemptNotApplied,
		KindOutcomeUnknown, KindEvidenceRecorded, KindRetryPermitted, KindReviewOpened,
		KindReviewUpdated, KindReviewClosed, KindResultConfirmed, KindRejected,
		KindDuplicateFound, KindArgumentsErased,
	}
}

// NextAction says what happens next to an operation that is not final.
type NextAction string

// The next actions.
const (
	// NextAttempt: an executor starts an attempt at next_at.
	NextAttempt NextAction = "attempt"
	// NextOutcome: an attempt is under way; its lease ends at next_at.
	NextOutcome NextAction = "await_outcome"
	// NextReconcile: the reconciler looks or decides at next_at.
	NextReconcile NextAction = "reconcile"
	// NextApproval: a person must approve until next_at.
	NextApproval NextAction = "await_approval"
	// NextDecision: a person must decide.
	NextDecision NextAction = "await_decision"
	// NextNone: nothing happens by itself any more.
	NextNone NextAction = "none"
)

// NextActions lists every next action.
func NextActions() []NextAction {
	return []NextAction{NextAttempt, NextOutcome, NextReconcile, NextApproval, NextDecision, NextNone}
}

// UnknownReason says why an outcome is not known.
type UnknownReason string

// The reasons of OutcomeUnknown.
const (
	// UnknownTimeout: no answer within the time of the request.
	UnknownTimeout UnknownReason = "timeout"
	// UnknownConnectionLost: the connection broke after bytes were written.
	UnknownConnectionLost UnknownReason = "connection_lost"
	// UnknownServerError: the provider answered that it failed.
	UnknownServerError UnknownReason = "server_error"
	// UnknownLeaseExpired: the worker never told its outcome.
	UnknownLeaseExpired UnknownReason = "lease_expired"
	// UnknownUnreadable: the answer could not be read or matched no rule.
	UnknownUnreadable UnknownReason = "unreadable_answer"
	// UnknownUnidentified: applied, but the answer names no object.
	UnknownUnidentified UnknownReason = "applied_unidentified"
	// UnknownExists: an object with this id exists; it must be verified.
	UnknownExists UnknownReason = "exists"
	// UnknownMismatch: the key or id was used with other content.
	UnknownMismatch UnknownReason = "mismatch"
	// UnknownBusy: the provider is processing a request with this key.
	UnknownBusy UnknownReason = "busy"
	// UnknownShutdown: the worker stopped before the outcome was known.
	UnknownShutdown UnknownReason = "shutdown"
	// UnknownAdapterError: the adapter failed; what it sent is not known.
	UnknownAdapterError UnknownReason = "adapter_error"
	// UnknownLogDamage: the log was damaged; names no attempt.
	UnknownLogDamage UnknownReason = "log_damage"
)

// UnknownReasons lists every reason of OutcomeUnknown.
func UnknownReasons() []UnknownReason {
	return []UnknownReason{
		UnknownTimeout, UnknownConnectionLost, UnknownServerError, UnknownLeaseExpired,
		UnknownUnreadable, UnknownUnidentified, UnknownExists, UnknownMismatch, UnknownBusy,
		UnknownShutdown, UnknownAdapterError, UnknownLogDamage,
	}
}

// Proof says how it is known that an attempt changed nothing.
type Proof string

// The proofs of AttemptNotApplied.
const (
	// ProofNotSent: the transport proves that no byte of the request left.
	ProofNotSent Proof = "not_sent"
	// ProofNotApplied: a rule of the contract says so of this answer.
	ProofNotApplied Proof = "not_applied"
	// ProofBusy: refused because an earlier request with the key is running.
	ProofBusy Proof = "busy"
	// ProofRefused: a definite no to this request; it will not be repeated.
	ProofRefused Proof = "refused"
)

// Proofs lists every proof of AttemptNotApplied.
func Proofs() []Proof { return []Proof{ProofNotSent, ProofNotApplied, ProofBusy, ProofRefused} }

// EvidenceSource says where an observation comes from.
type EvidenceSource string

// The sources of evidence.
const (
	SourceLookup       EvidenceSource = "lookup"
	SourceLateResponse EvidenceSource = "late_response"
	SourceWebhook      EvidenceSource = "webhook"
	SourcePerson       EvidenceSource = "person"
)

// EvidenceSources lists every source of evidence.
func EvidenceSources() []EvidenceSource {
	return []EvidenceSource{SourceLookup, SourceLateResponse, SourceWebhook, SourcePerson}
}

// Finding is what an observation shows. An empty look inside the bounds of the
// contract is inconclusive, not absent (I11).
type Finding string

// The findings.
const (
	// FindingPresent: an object that carries our own key, id or label.
	FindingPresent Finding = "present"
	// FindingAbsent: an empty read that counts toward proven absence.
	FindingAbsent Finding = "absent"
	// FindingInconclusive: says nothing either way.
	FindingInconclusive Finding = "inconclusive"
	// FindingContradiction: does not fit with what is known.
	FindingContradiction Finding = "contradiction"
)

// Findings lists every finding.
func Findings() []Finding {
	return []Finding{FindingPresent, FindingAbsent, FindingInconclusive, FindingContradiction}
}

// Basis is the ground on which a permit allows one more attempt.
type Basis string

// The bases of RetryPermitted.
const (
	BasisKeyRetention Basis = "key_retention"
	BasisAbsentProven Basis = "absent_proven"
	BasisOperator     Basis = "operator"
	BasisDeclaredRisk Basis = "declared_risk"
)

// Bases lists every basis of a permit.
func Bases() []Basis {
	return []Basis{BasisKeyRetention, BasisAbsentProven, BasisOperator, BasisDeclaredRisk}
}

// ReviewReason says why a person must look.
type ReviewReason string

// The reasons of ReviewOpened.
const (
	// ReviewNoEvidence: the contract offers neither evidence nor a safe repeat.
	ReviewNoEvidence ReviewReason = "no_evidence_possible"
	// ReviewEvidenceExhausted: the schedule of lookups ended without an answer.
	ReviewEvidenceExhausted ReviewReason = "evidence_exhausted"
	// ReviewKeyExpired: the provider may have forgotten the key.
	ReviewKeyExpired ReviewReason = "key_retention_over"
	// ReviewAccountMismatch: the credential now belongs to another account.
	ReviewAccountMismatch ReviewReason = "account_mismatch"
	// ReviewRequestChanged: the rendered request differs from the first one.
	ReviewRequestChanged ReviewReason = "request_changed"
	// ReviewMismatch: the provider says that the key has other content.
	ReviewMismatch ReviewReason = "key_mismatch"
	// ReviewAmbiguous: objects were found that may or may not be ours.
	ReviewAmbiguous ReviewReason = "ambiguous_match"
	// ReviewDuplicate: more than one outside object of one operation.
	ReviewDuplicate ReviewReason = "duplicate_found"
	// ReviewEffectAfterRejection: an effect of a rejected operation.
	ReviewEffectAfterRejection ReviewReason = "effect_after_rejection"
	// ReviewContradiction: the log or the provider contradicts itself.
	ReviewContradiction ReviewReason = "contradiction"
	// ReviewAttemptsExhausted: no attempts left.
	ReviewAttemptsExhausted ReviewReason = "attempts_exhausted"
	// ReviewDeadline: the deadline passed while the outcome is unknown.
	ReviewDeadline ReviewReason = "deadline_passed"
	// ReviewApprovalExpired: the approval ran out before the effect was known.
	ReviewApprovalExpired ReviewReason = "approval_expired"
	// ReviewPolicy: the intent says on_unknown: review_only.
	ReviewPolicy ReviewReason = "review_only"
	// ReviewRefused: a repeat was refused while an earlier attempt is unresolved.
	ReviewRefused ReviewReason = "refused_while_unknown"
	// ReviewCannotRender: the frozen request can't be built.
	ReviewCannotRender ReviewReason = "request_unrenderable"
	// ReviewOvertaken: another operation of the conflict scope came between.
	ReviewOvertaken ReviewReason = "scope_overtaken"
)

// ReviewReasons lists every reason of ReviewOpened.
func ReviewReasons() []ReviewReason {
	return []ReviewReason{
		ReviewNoEvidence, ReviewEvidenceExhausted, ReviewKeyExpired, ReviewAccountMismatch,
		ReviewRequestChanged, ReviewMismatch, ReviewAmbiguous, ReviewDuplicate,
		ReviewEffectAfterRejection, ReviewContradiction, ReviewAttemptsExhausted, ReviewDeadline,
		ReviewApprovalExpired, ReviewPolicy, ReviewRefused, ReviewCannotRender, ReviewOvertaken,
	}
}

// Via is the way by which an operation became final.
type Via string

// The ways to a final event.
const (
	ViaResponse     Via = "response"
	ViaLookup       Via = "lookup"
	ViaLateResponse Via = "late_response"
	ViaWebhook      Via = "webhook"
	ViaOperator     Via = "operator"
	ViaApprover     Via = "approver"
	ViaCancelled    Via = "cancelled"
	ViaExpired      Via = "expired"
	ViaAbsence      Via = "absence"
)

// Vias lists every way to a final event.
func Vias() []Via {
	return []Via{
		ViaResponse, ViaLookup, ViaLateResponse, ViaWebhook, ViaOperator,
		ViaApprover, ViaCancelled, ViaExpired, ViaAbsence,
	}
}

// DecisionWord is what a person decided about an operation.
type DecisionWord string

// The decisions.
const (
	// DecideConfirm: the effect happened; the external id is named.
	DecideConfirm DecisionWord = "confirm"
	// DecideReject: nothing happened.
	DecideReject DecisionWord = "reject"
	// DecidePermit: one more attempt; the risk is the person's.
	DecidePermit DecisionWord = "permit"
	// DecideResume: a hold or a halt is lifted.
	DecideResume DecisionWord = "resume"
	// DecideLook: look again now.
	DecideLook DecisionWord = "look"
	// DecidePostpone: ask again later.
	DecidePostpone DecisionWord = "postpone"
	// DecideAssign: somebody else looks.
	DecideAssign DecisionWord = "assign"
	// DecideNote: a remark, nothing else.
	DecideNote DecisionWord = "note"
	// DecideUndetermined: nobody can find out.
	DecideUndetermined DecisionWord = "undetermined"
	// DecideCancel: the wish is withdrawn before anything was sent.
	DecideCancel DecisionWord = "cancel"
	// DecideAcknowledge: the review of a final operation is settled.
	DecideAcknowledge DecisionWord = "acknowledge"
)

// DecisionWords lists every decision.
func DecisionWords() []DecisionWord {
	return []DecisionWord{
		DecideConfirm, DecideReject, DecidePermit, DecideResume, DecideLook, DecidePostpone,
		DecideAssign, DecideNote, DecideUndetermined, DecideCancel, DecideAcknowledge,
	}
}

// OnUnknown is the choice, made with the intent, of what may be done when an
// outcome stays unknown.
type OnUnknown string

// The choices for an unknown outcome.
const (
	// OnUnknownContract: what the provider's contract makes safe.
	OnUnknownContract OnUnknown = "by_contract"
	// OnUnknownReview: look, but never repeat without a person.
	OnUnknownReview OnUnknown = "review_only"
	// OnUnknownRisk: one repeat although it may double the effect. Only where
	// the approval bound exactly this choice.
	OnUnknownRisk OnUnknown = "declared_risk"
)

// OnUnknowns lists every choice for an unknown outcome.
func OnUnknowns() []OnUnknown {
	return []OnUnknown{OnUnknownContract, OnUnknownReview, OnUnknownRisk}
}
