package operation

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/opledger/opledger/events"
)

// Status is what the ledger knows of an operation. It is computed from the
// events, never set by one.
type Status string

// The statuses. The zero value is StatusAbsent.
const (
	// StatusAbsent: nothing is recorded under this id.
	StatusAbsent Status = ""
	// StatusPending: recorded, and no request can have had an effect.
	StatusPending Status = "pending"
	// StatusInFlight: an attempt is under way.
	StatusInFlight Status = "in_flight"
	// StatusUnknown: the request may have changed the outside world and
	// nothing confirms it yet.
	StatusUnknown Status = "unknown"
	// StatusConfirmed: the provider has it. Final.
	StatusConfirmed Status = "confirmed"
	// StatusRejected: a definite no, and nothing happened. Final.
	StatusRejected Status = "rejected"
)

// Statuses lists every status but StatusAbsent.
func Statuses() []Status {
	return []Status{StatusPending, StatusInFlight, StatusUnknown, StatusConfirmed, StatusRejected}
}

// Final reports whether nothing can move the status any more.
func (s Status) Final() bool { return s == StatusConfirmed || s == StatusRejected }

// AttemptState is what is known of one attempt by itself.
type AttemptState string

// The states of an attempt. Moves: open to any; unresolved to not_applied,
// refused and applied; not_applied and refused to applied (with an anomaly);
// nothing else.
const (
	AttemptOpen       AttemptState = "open"
	AttemptUnresolved AttemptState = "unresolved"
	AttemptNotApplied AttemptState = "not_applied"
	AttemptRefused    AttemptState = "refused"
	AttemptApplied    AttemptState = "applied"
)

// Bounds of what a state keeps. The log keeps everything.
const (
	// MaxEvidenceKept is the number of observations kept in the state.
	MaxEvidenceKept = 16
	// MaxAnomaliesKept is the number of anomalies kept in the state.
	MaxAnomaliesKept = 8
	// MaxAttemptsKept is the number of attempts kept; beyond it the oldest
	// attempts that were proven not sent are dropped.
	MaxAttemptsKept = 64
	// FollowUpTime is how long a decision of several events may take.
	FollowUpTime = 5 * time.Second
	// MaxExternalIDs is the number of external ids kept.
	MaxExternalIDs = 32
)

// Attempt is one request handed to the transport.
type Attempt struct {
	ID     string       `json:"attempt_id"`
	Number int          `json:"number"`
	State  AttemptState `json:"state"`
	Worker string       `json:"worker,omitempty"`
	// StartedAt is the log's time stamp of AttemptStarted.
	StartedAt  time.Time `json:"started_at"`
	LeaseUntil time.Time `json:"lease_until"`
	// EndedAt is the log's time stamp of the event that first gave an outcome.
	EndedAt       time.Time `json:"ended_at,omitzero"`
	RequestDigest string    `json:"request_digest,omitempty"`
	PermitID      string    `json:"permit_id,omitempty"`
	// PermitBasis is the ground of the permit that the attempt used.
	PermitBasis       events.Basis         `json:"permit_basis,omitempty"`
	Proof             events.Proof         `json:"proof,omitempty"`
	Unknown           events.UnknownReason `json:"unknown_reason,omitempty"`
	Reason            string               `json:"reason,omitempty"`
	ProviderRequestID string               `json:"provider_request_id,omitempty"`
	Transport         *events.Transport    `json:"transport,omitempty"`
}

// Permit is the recorded reason why one more attempt is allowed.
type Permit struct {
	ID         string       `json:"permit_id"`
	Basis      events.Basis `json:"basis"`
	ValidUntil time.Time    `json:"valid_until"`
	RetryAt    time.Time    `json:"retry_at"`
	Used       bool         `json:"used,omitempty"`
}

// Approval is the permission of a person that is in force.
type Approval struct {
	Approver  string    `json:"approver"`
	GrantedAt time.Time `json:"granted_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Review is an open question to a person.
type Review struct {
	Reason   events.ReviewReason `json:"reason"`
	Text     string              `json:"text,omitempty"`
	OpenedAt time.Time           `json:"opened_at"`
	Assignee string              `json:"assignee,omitempty"`
	Until    time.Time           `json:"until,omitzero"`
	Note     string              `json:"note,omitempty"`
}

// Evidence is one dated observation.
type Evidence struct {
	EventID       string                `json:"event_id"`
	Source        events.EvidenceSource `json:"source"`
	Finding       events.Finding        `json:"finding"`
	AskedAt       time.Time             `json:"asked_at"`
	AccountProbed string                `json:"account_probed,omitempty"`
	ExternalIDs   []string              `json:"external_ids,omitempty"`
	WeakMatches   []string              `json:"weak_matches,omitempty"`
	PagesComplete bool                  `json:"pages_complete,omitempty"`
	LagMS         int64                 `json:"lag_ms,omitempty"`
	Reason        string                `json:"reason,omitempty"`
}

// Result is the provider's confirmation.
type Result struct {
	ExternalID string          `json:"external_id"`
	Body       json.RawMessage `json:"body,omitempty"`
	Via        events.Via      `json:"via"`
	AttemptID  string          `json:"attempt_id,omitempty"`
	At         time.Time       `json:"at"`
}

func (r *Result) attempt() string {
	if r == nil {
		return ""
	}
	return r.AttemptID
}

// Rejection is the definite no.
type Rejection struct {
	Reason string     `json:"reason"`
	Via    events.Via `json:"via"`
	At     time.Time  `json:"at"`
}

// Settlement is a decision of a person.
type Settlement struct {
	Decision events.DecisionWord `json:"decision"`
	Actor    string              `json:"actor,omitempty"`
	Reason   string              `json:"reason,omitempty"`
	At       time.Time           `json:"at"`
}

// State is the fold of all events of one operation: what the ledger knows and
// why. Its JSON form is the projection's entry. States are values; Evolve never
// changes one that it was given.
type State struct {
	Tenant      string `json:"tenant"`
	OperationID string `json:"operation_id"`
	Status      Status `json:"status"`
	// Version, Head and LastSeq name the last well-formed event and the last
	// message of any kind: what the next append is compared with.
	Version uint64 `json:"version"`
	Head    string `json:"head"`
	LastSeq uint64 `json:"last_seq"`
	// Substantive is the version of the last event that was more than an
	// empty look; a person's decision is bound to it.
	Substantive uint64                `json:"substantive_version"`
	RecordedAt  time.Time             `json:"recorded_at"`
	UpdatedAt   time.Time             `json:"updated_at"`
	StatusSince time.Time             `json:"status_since"`
	Intent      events.IntentRecorded `json:"intent"`
	Traceparent string                `json:"traceparent,omitempty"`
	Approval    *Approval             `json:"approval,omitempty"`
	Attempts    []Attempt             `json:"attempts,omitempty"`
	// Started counts all attempts ever started.
	Started int `json:"attempts_started"`
	// FirstSend is when the key was first sent, leaving out attempts that are
	// proven not sent; zero if never. The retention of the key counts from it.
	FirstSend time.Time `json:"first_send,omitzero"`
	Permit    *Permit   `json:"permit,omitempty"`
	// RiskTaken: the repeat that the approval declared has been permitted.
	RiskTaken bool `json:"risk_taken,omitempty"`
	// NoRepeat: after an answer no repeat can help, so no machine permits one.
	NoRepeat bool `json:"no_repeat,omitempty"`
	// Sighted: something was seen that may be our object; such an operation is
	// never absent, and no repeat is permitted without a person.
	Sighted       bool       `json:"sighted,omitempty"`
	Evidence      []Evidence `json:"evidence,omitempty"`
	EvidenceCount int        `json:"evidence_count,omitempty"`
	// Looks counts lookups since the last attempt was started, LastLook when
	// the last of them began.
	Looks    int       `json:"looks,omitempty"`
	LastLook time.Time `json:"last_look,omitzero"`
	// LookDue: a person asked for one more look.
	LookDue bool `json:"look_due,omitempty"`
	// EmptyReads counts empty reads toward proven absence, LastEmpty when the
	// last counted one began.
	EmptyReads  int       `json:"empty_reads,omitempty"`
	LastEmpty   time.Time `json:"last_empty,omitzero"`
	ExternalIDs []string  `json:"external_ids,omitempty"`
	Duplicate   bool      `json:"duplicate,omitempty"`
	// ToReview: something was recorded that a person must see, and its review
	// is not open yet (a crash may lie between the two events).
	ToReview  events.ReviewReason `json:"to_review,omitempty"`
	Review    *Review             `json:"review,omitempty"`
	Hold      string              `json:"hold,omitempty"`
	Halted    string              `json:"halted,omitempty"`
	Anomalies []Anomaly           `json:"anomalies,omitempty"`
	Erased    bool                `json:"erased,omitempty"`
	Result    *Result             `json:"result,omitempty"`
	Rejection *Rejection          `json:"rejection,omitempty"`
	// Decided is the last decision of a person about the operation.
	Decided *Settlement `json:"decided,omitempty"`
	// Undetermined: a person declared that nobody can find out.
	Undetermined bool `json:"undetermined,omitempty"`
	// FollowUp: the decision that wrote the last event is writing more; until
	// then nobody else decides. A crash lets the time run out.
	FollowUp   time.Time         `json:"follow_up_until,omitzero"`
	NextAction events.NextAction `json:"next_action"`
	NextAt     time.Time         `json:"next_at,omitzero"`
}

// FoldVersion names this version of the fold. Within one fold version equal
// logs give byte-equal entries.
const FoldVersion = 1

// Open returns the attempt that is under way, if any.
func (s State) Open() (Attempt, bool) {
	for _, a := range s.Attempts {
		if a.State == AttemptOpen {
			return a, true
		}
	}
	return Attempt{}, false
}

// Unresolved returns the attempts whose outcome is not known.
func (s State) Unresolved() []Attempt {
	var out []Attempt
	for _, a := range s.Attempts {
		if a.State == AttemptUnresolved {
			out = append(out, a)
		}
	}
	return out
}

// AttemptByID returns an attempt of the operation.
func (s State) AttemptByID(id string) (Attempt, bool) {
	if i := s.attempt(id); i >= 0 {
		return s.Attempts[i], true
	}
	return Attempt{}, false
}

func (s State) attempt(id string) int {
	return slices.IndexFunc(s.Attempts, func(a Attempt) bool { return a.ID == id })
}

// RequestDigest returns the digest of the first request that was ever put
// together for the operation, or "" before the first attempt. Every later
// request must be byte-equal to it.
func (s State) RequestDigest() string {
	for _, a := range s.Attempts {
		if a.RequestDigest != "" {
			return a.RequestDigest
		}
	}
	return ""
}

// lastEnd returns the latest end of an attempt that is not known to be not
// applied: when its outcome was recorded or its lease ends, whichever is later.
func (s State) lastEnd() time.Time {
	var end time.Time
	for _, a := range s.Attempts {
		if a.State == AttemptNotApplied || a.State == AttemptRefused {
			continue
		}
		if a.LeaseUntil.After(end) {
			end = a.LeaseUntil
		}
		if a.EndedAt.After(end) {
			end = a.EndedAt
		}
	}
	return end
}

// lastOutcome returns when the latest outcome of an unresolved attempt was
// recorded: a look that begins later has seen the attempt's end.
func (s State) lastOutcome() time.Time {
	var end time.Time
	for _, a := range s.Attempts {
		if a.State == AttemptUnresolved && a.EndedAt.After(end) {
			end = a.EndedAt
		}
	}
	return end
}

// counted returns how many attempts count against the limit: those that are
// not proven not applied. Busy, not_sent and rate limits don't count.
func (s State) counted() int {
	n := 0
	for _, a := range s.Attempts {
		if a.State != AttemptNotApplied {
			n++
		}
	}
	return n
}

// approvalRequired reports whether a person must allow the operation.
func (s State) approvalRequired() bool {
	return s.Intent.Approval != nil && s.Intent.Approval.Required
}

// approvalLimit returns until when the ledger waits for an approval.
func (s State) approvalLimit() time.Time {
	if limit := s.Intent.Approval.Deadline; !limit.IsZero() {
		return limit.UTC()
	}
	return s.RecordedAt.Add(DefaultApprovalDeadline)
}

// unsendable reports whether the request can't be put together: its arguments
// were erased, or its intent is missing from the log.
func (s State) unsendable() bool { return s.Erased || s.RecordedAt.IsZero() }

// refused returns an attempt that got a definite no, if any. It ends repeats.
func (s State) refused() (Attempt, bool) {
	for _, a := range s.Attempts {
		if a.State == AttemptRefused {
			return a, true
		}
	}
	return Attempt{}, false
}

// operatorPermit returns the unused permit of a person that is valid at now, or
// nil. It lifts the limits of attempts and time for the attempt that uses it.
func (s State) operatorPermit(now time.Time) *Permit {
	if m := s.Permit; m != nil && m.Basis == events.BasisOperator && !m.Used && now.Before(m.ValidUntil) {
		return m
	}
	return nil
}

// ApprovedAt reports whether the approval, if one is required, is valid at a
// moment of the log's clock (I7).
func ApprovedAt(s State, at time.Time) bool { return s.approved(at) }

// approved reports whether the approval, if one is required, is valid at now.
func (s State) approved(now time.Time) bool {
	if !s.approvalRequired() {
		return true
	}
	return s.Approval != nil && now.Before(s.Approval.ExpiresAt)
}
