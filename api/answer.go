package api

import (
	"encoding/json"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Answer is the state of an operation as callers see it.
type Answer struct {
	OperationID string           `json:"operation_id"`
	Tenant      string           `json:"tenant"`
	Status      operation.Status `json:"status"`
	Version     uint64           `json:"version"`
	// ExternalID is the provider's id of the confirmed object.
	ExternalID string          `json:"external_id,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Via        events.Via      `json:"via,omitempty"`
	// Reason explains a rejection or, for an unknown outcome, why it is so.
	Reason     string            `json:"reason,omitempty"`
	NextAction events.NextAction `json:"next_action"`
	NextAt     time.Time         `json:"next_at,omitzero"`
	// RetrySafe is true only when a new operation for the same wish can't
	// double anything. Sending the same operation id again is always safe.
	RetrySafe bool `json:"retry_safe"`
	// Say is one sentence that is safe to show to a model or a user.
	Say string `json:"say"`
	// Repeated: the operation was recorded before this request.
	Repeated bool                `json:"repeated,omitempty"`
	Review   events.ReviewReason `json:"review,omitempty"`
	// ReviewSince is when the open review was opened, Assignee who looks.
	ReviewSince  time.Time         `json:"review_since,omitzero"`
	Assignee     string            `json:"assignee,omitempty"`
	Undetermined bool              `json:"undetermined,omitempty"`
	Duplicate    bool              `json:"duplicate,omitempty"`
	Attempts     int               `json:"attempts"`
	AttemptID    string            `json:"attempt_id,omitempty"`
	Provider     string            `json:"provider"`
	Account      string            `json:"account"`
	Action       string            `json:"action"`
	RequestID    string            `json:"request_id,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	IntentDigest string            `json:"intent_digest"`
	RecordedAt   time.Time         `json:"recorded_at"`
	StatusSince  time.Time         `json:"status_since"`
	AgeMS        int64             `json:"age_ms"`
	// PossibleRepeatOf is an earlier operation of the same user request with
	// the same provider, account and action; a hint, whatever its arguments.
	PossibleRepeatOf string `json:"possible_repeat_of,omitempty"`
	// Hold is why it waits for a person, beside a review.
	Hold string `json:"hold,omitempty"`
	// NextReason says why what is next is next, or is waited for; Request is what
	// is sent, redacted; ScopeTakenBy is the other operation that took the
	// conflict scope last. All three where detail was asked for.
	NextReason   operation.Reason `json:"next_reason,omitempty"`
	Request      json.RawMessage  `json:"request,omitempty"`
	ScopeTakenBy string           `json:"scope_taken_by,omitempty"`
	// LastSeq is the place of the operation's last event in the journal. It is not
	// part of the answer that is sent.
	LastSeq uint64 `json:"-"`
	// State is the whole fold, where detail was asked for.
	State *operation.State `json:"state,omitempty"`
}

// NewAnswer makes the answer of a state. now is for the age.
func NewAnswer(s operation.State, now time.Time) Answer {
	a := Answer{
		OperationID: s.OperationID, Tenant: s.Tenant, Status: s.Status, Version: s.Version, LastSeq: s.LastSeq,
		NextAction: s.NextAction, NextAt: s.NextAt, RetrySafe: operation.RetrySafe(s), Say: operation.Say(s),
		Undetermined: s.Undetermined, Duplicate: s.Duplicate, Attempts: s.Started, Provider: s.Intent.Provider,
		Account: s.Intent.Account.Name, Action: s.Intent.Action, RequestID: s.Intent.RequestID,
		Labels: s.Intent.Labels, IntentDigest: s.Intent.IntentDigest, RecordedAt: s.RecordedAt,
		PossibleRepeatOf: s.Intent.PossibleRepeatOf, Hold: s.Hold,
		StatusSince: s.StatusSince, AgeMS: max(now.Sub(s.StatusSince), 0).Milliseconds(),
	}
	if n := len(s.Attempts); n > 0 {
		a.AttemptID = s.Attempts[n-1].ID
		if s.Status == operation.StatusUnknown {
			a.Reason = string(s.Attempts[n-1].Unknown)
		}
	}
	if s.Review != nil {
		a.Review, a.ReviewSince, a.Assignee = s.Review.Reason, s.Review.OpenedAt, s.Review.Assignee
	}
	if s.Result != nil {
		a.ExternalID, a.Result, a.Via = s.Result.ExternalID, s.Result.Body, s.Result.Via
	}
	if s.Rejection != nil {
		a.Reason, a.Via = s.Rejection.Reason, s.Rejection.Via
	}
	return a
}

// Page is a part of a list.
type Page struct {
	Operations []Answer `json:"operations"`
	// Cursor goes on behind this page; empty at the end.
	Cursor string `json:"cursor,omitempty"`
}
