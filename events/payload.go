package events

import (
	"encoding/json"
	"time"
)

// Payload is what one kind of event carries beside the common fields.
type Payload interface {
	Kind() Kind
}

// Next is what the decider of an event laid down about the time after it,
// jitter included. The fold copies it and reads neither a contract nor a clock.
type Next struct {
	Action NextAction `json:"next_action,omitempty"`
	At     time.Time  `json:"next_at,omitzero"`
}

// Account names an account of a provider: our name for it and the provider's
// own id, as the contract's account probe returns it.
type Account struct {
	Name       string `json:"account"`
	ProviderID string `json:"account_provider_id,omitempty"`
}

// ContractRef names the revision of a provider contract.
type ContractRef struct {
	Name     string `json:"contract_name"`
	Revision int    `json:"contract_revision"`
	Digest   string `json:"contract_digest"`
}

// Sealed is protected arguments: ciphertext that only the named key opens.
type Sealed struct {
	KeyID      string `json:"key_id"`
	Ciphertext []byte `json:"ciphertext"`
}

// Source names the event of another system that an intent answers.
type Source struct {
	System  string `json:"source,omitempty"`
	EventID string `json:"source_event_id,omitempty"`
	// Slot keeps several operations of one source event apart.
	Slot string `json:"slot,omitempty"`
}

// Origin says which agent run asked.
type Origin struct {
	Agent      string `json:"agent,omitempty"`
	Run        string `json:"run,omitempty"`
	Tool       string `json:"tool,omitempty"`
	ToolCallID string `json:"tool_call_id,omitempty"`
}

// Approval is the requirement that a person allows an operation before it runs.
type Approval struct {
	Required bool `json:"required,omitempty"`
	// Deadline is when the wish is given up if nobody approved.
	Deadline time.Time `json:"deadline,omitzero"`
}

// Limits bound an operation. Zero means: by contract.
type Limits struct {
	Deadline    time.Time `json:"deadline,omitzero"`
	MaxAttempts int       `json:"max_attempts,omitempty"`
}

// IntentRecorded says: the wish is frozen. It is always the first event.
type IntentRecorded struct {
	Provider string `json:"provider"`
	Account
	Action        string          `json:"action"`
	SchemaVersion string          `json:"schema_version,omitempty"`
	Args          json.RawMessage `json:"args,omitempty"`
	ArgsSealed    *Sealed         `json:"args_sealed,omitempty"`
	ArgsDigest    string          `json:"args_digest"`
	IntentDigest  string          `json:"intent_digest"`
	ContractRef
	OnUnknown      OnUnknown `json:"on_unknown"`
	IdempotencyKey string    `json:"idempotency_key"`
	RequestID      string    `json:"request_id,omitempty"`
	Source
	Origin      *Origin `json:"origin,omitempty"`
	RequestedBy string  `json:"requested_by,omitempty"`
	// Basis says why the wish may be carried out, in the words of the caller.
	Basis            string            `json:"basis,omitempty"`
	Approval         *Approval         `json:"approval,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	ConflictScope    string            `json:"conflict_scope,omitempty"`
	RepeatOf         string            `json:"repeat_of,omitempty"`
	PossibleRepeatOf string            `json:"possible_repeat_of,omitempty"`
	// Hold is the reason why the operation waits for a person, or empty.
	Hold        string  `json:"hold,omitempty"`
	Compensates string  `json:"compensates,omitempty"`
	Limits      *Limits `json:"limits,omitempty"`
}

// ApprovalGranted says: a person allowed exactly this intent.
type ApprovalGranted struct {
	Approver     string    `json:"approver"`
	IntentDigest string    `json:"intent_digest"`
	ExpiresAt    time.Time `json:"expires_at"`
	Reason       string    `json:"reason,omitempty"`
}

// AttemptStarted says: this worker may send one request now.
type AttemptStarted struct {
	AttemptID string `json:"attempt_id"`
	Number    int    `json:"number"`
	Worker    string `json:"worker"`
	// ClaimRevision is the revision of the claim key, for audit only.
	ClaimRevision uint64 `json:"claim_revision,omitempty"`
	// LeaseMS is how long the worker may take, in milliseconds from the
	// log's time stamp of this event.
	LeaseMS       int64  `json:"lease_ms"`
	RequestDigest string `json:"request_digest"`
	// AccountProbed is the provider's own account id as just probed.
	AccountProbed string `json:"account_probed,omitempty"`
	PermitID      string `json:"permit_id,omitempty"`
}

// AttemptNotApplied says: this request provably changed nothing.
type AttemptNotApplied struct {
	AttemptID         string    `json:"attempt_id"`
	Proof             Proof     `json:"proof"`
	Reason            string    `json:"reason,omitempty"`
	ProviderRequestID string    `json:"provider_request_id,omitempty"`
	RetryAt           time.Time `json:"retry_at,omitzero"`
	Next
}

// Transport is what the transport saw of one request. It never holds bodies.
type Transport struct {
	Status       int    `json:"status,omitempty"`
	BytesSent    bool   `json:"bytes_sent,omitempty"`
	AnswerBytes  int    `json:"answer_bytes,omitempty"`
	Error        string `json:"error,omitempty"`
	DurationMS   int64  `json:"duration_ms,omitempty"`
	ConnReused   bool   `json:"conn_reused,omitempty"`
	RemoteServer string `json:"remote,omitempty"`
}

// OutcomeUnknown says: it may have happened.
type OutcomeUnknown struct {
	// AttemptID is empty only for the reason log_damage.
	AttemptID         string        `json:"attempt_id,omitempty"`
	Reason            UnknownReason `json:"reason"`
	Transport         *Transport    `json:"transport,omitempty"`
	ProviderRequestID string        `json:"provider_request_id,omitempty"`
	// NoRepeat: the answer says that a repeat with the same key can't help.
	NoRepeat bool `json:"no_repeat,omitempty"`
	// Since is the earliest moment at which it may have been sent, where that is
	// before the intent that is in the log: only for log_damage.
	Since time.Time `json:"since,omitzero"`
	Next
}

// EvidenceRecorded is one dated observation of the outside.
type EvidenceRecorded struct {
	Source  EvidenceSource `json:"evidence_source"`
	Finding Finding        `json:"finding"`
	// AskedAt is when the look began, AskedVersion the version it was asked on.
	AskedAt      time.Time `json:"asked_at"`
	AskedVersion uint64    `json:"asked_version,omitempty"`
	// AccountProbed is the account under which it was made, by provider id.
	AccountProbed string `json:"account_probed,omitempty"`
	AttemptID     string `json:"attempt_id,omitempty"`
	Lookup        string `json:"lookup,omitempty"`
	PagesComplete bool   `json:"pages_complete,omitempty"`
	// LagMS is the bound of the lookup's lag in force, in milliseconds.
	LagMS             int64    `json:"lag_ms,omitempty"`
	ExternalIDs       []string `json:"external_ids,omitempty"`
	WeakMatches       []string `json:"weak_matches,omitempty"`
	ProviderRequestID string   `json:"provider_request_id,omitempty"`
	Reason            string   `json:"reason,omitempty"`
	Next
}

// RetryPermitted says: one more attempt is allowed, and why.
type RetryPermitted struct {
	PermitID   string    `json:"permit_id"`
	Basis      Basis     `json:"basis"`
	ValidUntil time.Time `json:"valid_until"`
	MarginMS   int64     `json:"margin_ms,omitempty"`
	Account
	RequestDigest  string `json:"request_digest,omitempty"`
	ContractDigest string `json:"contract_digest"`
	// Evidence names the events that the permit rests on.
	Evidence []string  `json:"evidence,omitempty"`
	RetryAt  time.Time `json:"retry_at"`
	Reason   string    `json:"reason,omitempty"`
	// SeenVersion is the version that the person had seen, for basis operator.
	SeenVersion uint64 `json:"seen_version,omitempty"`
	Next
}

// ReviewOpened says: a person must look.
type ReviewOpened struct {
	Reason ReviewReason `json:"reason"`
	Text   string       `json:"text,omitempty"`
	Next
}

// ReviewUpdated says: a person looked without settling.
type ReviewUpdated struct {
	Decision    DecisionWord `json:"decision"`
	Text        string       `json:"text,omitempty"`
	SeenVersion uint64       `json:"seen_version"`
	Until       time.Time    `json:"until,omitzero"`
	Assignee    string       `json:"assignee,omitempty"`
	Next
}

// ReviewClosed says: a person settled it, or declared it undetermined.
type ReviewClosed struct {
	Decision    DecisionWord `json:"decision"`
	Text        string       `json:"text,omitempty"`
	SeenVersion uint64       `json:"seen_version"`
	Next
}

// ResultConfirmed says: the outside system has it. Final.
type ResultConfirmed struct {
	ExternalID        string          `json:"external_id"`
	Result            json.RawMessage `json:"result,omitempty"`
	Via               Via             `json:"via"`
	AttemptID         string          `json:"attempt_id,omitempty"`
	ProviderRequestID string          `json:"provider_request_id,omitempty"`
	Reason            string          `json:"reason,omitempty"`
	// SeenVersion is the version that the person had seen, for via operator.
	SeenVersion uint64 `json:"seen_version,omitempty"`
	// Next is set where another attempt may have made a second object: the
	// looks go on although the operation is final.
	Next
}

// Covered says what covers one attempt of a rejected operation.
type Covered struct {
	AttemptID string `json:"attempt_id"`
	By        string `json:"by"`
}

// Rejected says: a definite no, and nothing happened. Final.
type Rejected struct {
	Reason            string    `json:"reason"`
	Via               Via       `json:"via"`
	AttemptID         string    `json:"attempt_id,omitempty"`
	ProviderRequestID string    `json:"provider_request_id,omitempty"`
	Covers            []Covered `json:"covers,omitempty"`
	// SeenVersion is the version that the person had seen, for via operator
	// and cancelled.
	SeenVersion uint64 `json:"seen_version,omitempty"`
}

// DuplicateFound says: one operation has more than one outside object.
type DuplicateFound struct {
	ExternalIDs []string `json:"external_ids"`
	How         string   `json:"how"`
}

// ArgumentsErased says: the key of the sealed arguments is gone, and with it
// every further attempt.
type ArgumentsErased struct {
	KeyID string `json:"key_id"`
}

// Unrecognized is the payload of a kind that this version does not know.
type Unrecognized struct {
	Type string
	Data json.RawMessage
}

// Kind implements Payload.
func (IntentRecorded) Kind() Kind { return KindIntentRecorded }

// Kind implements Payload.
func (ApprovalGranted) Kind() Kind { return KindApprovalGranted }

// Kind implements Payload.
func (AttemptStarted) Kind() Kind { return KindAttemptStarted }

// Kind implements Payload.
func (AttemptNotApplied) Kind() Kind { return KindAttemptNotApplied }

// Kind implements Payload.
func (OutcomeUnknown) Kind() Kind { return KindOutcomeUnknown }

// Kind implements Payload.
func (EvidenceRecorded) Kind() Kind { return KindEvidenceRecorded }

// Kind implements Payload.
func (RetryPermitted) Kind() Kind { return KindRetryPermitted }

// Kind implements Payload.
func (ReviewOpened) Kind() Kind { return KindReviewOpened }

// Kind implements Payload.
func (ReviewUpdated) Kind() Kind { return KindReviewUpdated }

// Kind implements Payload.
func (ReviewClosed) Kind() Kind { return KindReviewClosed }

// Kind implements Payload.
func (ResultConfirmed) Kind() Kind { return KindResultConfirmed }

// Kind implements Payload.
func (Rejected) Kind() Kind { return KindRejected }

// Kind implements Payload.
func (DuplicateFound) Kind() Kind { return KindDuplicateFound }

// Kind implements Payload.
func (ArgumentsErased) Kind() Kind { return KindArgumentsErased }

// Kind implements Payload.
func (u Unrecognized) Kind() Kind { return Kind(u.Type) }

// Lease returns the duration of the lease.
func (a AttemptStarted) Lease() time.Duration { return time.Duration(a.LeaseMS) * time.Millisecond }

// Lag returns the bound of the lookup's lag.
func (e EvidenceRecorded) Lag() time.Duration { return time.Duration(e.LagMS) * time.Millisecond }
