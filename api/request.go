package api

import (
	"encoding/json"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// SubmitRequest is an intent as a caller hands it in. The operation is named by
// OperationID, or by Source and SourceEventID, from which the id is derived.
type SubmitRequest struct {
	OperationID   string `json:"operation_id,omitempty"`
	Source        string `json:"source,omitempty"`
	SourceEventID string `json:"source_event_id,omitempty"`
	// Slot keeps several operations of one source event apart.
	Slot string `json:"slot,omitempty"`
	// RequestID is the user's request that led to the wish.
	RequestID string          `json:"request_id,omitempty"`
	Provider  string          `json:"provider"`
	Account   string          `json:"account"`
	Action    string          `json:"action"`
	Args      json.RawMessage `json:"args"`
	// ArgsDigest, if given, is compared with the digest of the bound arguments.
	ArgsDigest  string           `json:"args_digest,omitempty"`
	OnUnknown   events.OnUnknown `json:"on_unknown,omitempty"`
	RequestedBy string           `json:"requested_by,omitempty"`
	Basis       string           `json:"basis,omitempty"`
	Origin      *events.Origin   `json:"origin,omitempty"`
	// RequireApproval asks for a person's approval even if the contract does
	// not; Approval hands one in, where the tenant's configuration allows it.
	RequireApproval *RequireApproval  `json:"require_approval,omitempty"`
	Approval        *GivenApproval    `json:"approval,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Limits          *events.Limits    `json:"limits,omitempty"`
	// ConflictScope keeps operations of one scope from being in doubt at the
	// same time. Left out where the contract derives it from the arguments.
	ConflictScope string `json:"conflict_scope,omitempty"`
	// RepeatOf says that the wish repeats that operation on purpose: it is then
	// no possible repeat.
	RepeatOf    string `json:"repeat_of,omitempty"`
	Compensates string `json:"compensates,omitempty"`
	Traceparent string `json:"traceparent,omitempty"`
	// WaitMS has the answer wait, at most 60 s, until the operation is final or a
	// review is open. It is no part of the intent: a repeat may say something
	// else, and the durable inbox passes it over.
	WaitMS int64 `json:"wait_ms,omitempty"`
}

// RequireApproval asks for an approval.
type RequireApproval struct {
	Deadline time.Time `json:"deadline,omitzero"`
}

// GivenApproval is an approval that comes with the intent.
type GivenApproval struct {
	Approver  string    `json:"approver"`
	ExpiresAt time.Time `json:"expires_at"`
	Reason    string    `json:"reason,omitempty"`
}

// GetRequest asks for the state of an operation, named like in SubmitRequest.
type GetRequest struct {
	OperationID   string `json:"operation_id,omitempty"`
	Source        string `json:"source,omitempty"`
	SourceEventID string `json:"source_event_id,omitempty"`
	Slot          string `json:"slot,omitempty"`
	// Detail adds attempts, evidence and the intent.
	Detail bool `json:"detail,omitempty"`
}

// WaitRequest waits until an operation is final, or TimeoutMS is over.
type WaitRequest struct {
	GetRequest
	// TimeoutMS is at most 60 s.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// ListRequest filters the operations of a tenant.
type ListRequest struct {
	Status     []operation.Status `json:"status,omitempty"`
	Review     bool               `json:"review,omitempty"`
	RequestID  string             `json:"request_id,omitempty"`
	ExternalID string             `json:"external_id,omitempty"`
	// Label is "name" or "name=value".
	Label    string `json:"label,omitempty"`
	Provider string `json:"provider,omitempty"`
	// OlderThanMS leaves out operations that have had their status for less.
	OlderThanMS int64 `json:"older_than_ms,omitempty"`
	// Limit is at most 1000; zero means 100. Cursor goes on behind a page.
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// EvidenceRequest hands in an observation from outside.
type EvidenceRequest struct {
	OperationID string `json:"operation_id"`
	// Source is webhook or person.
	Source events.EvidenceSource `json:"evidence_source"`
	// AccountProviderID is the provider's id of the account that the
	// observation was made under; evidence of another account is void.
	AccountProviderID string `json:"account_provider_id"`
	// Label is the operation's own label as the object carries it. Without it
	// an object only looks like ours.
	Label      string          `json:"label,omitempty"`
	ExternalID string          `json:"external_id,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Actor      string          `json:"actor"`
	Reason     string          `json:"reason,omitempty"`
}

// ApproveRequest allows exactly the intent with this digest.
type ApproveRequest struct {
	OperationID  string    `json:"operation_id"`
	IntentDigest string    `json:"intent_digest"`
	Approver     string    `json:"approver"`
	ExpiresAt    time.Time `json:"expires_at"`
	Reason       string    `json:"reason,omitempty"`
}

// DecideRequest settles what no machine can.
type DecideRequest struct {
	OperationID   string              `json:"operation_id"`
	Decision      events.DecisionWord `json:"decision"`
	ExpectVersion uint64              `json:"expect_version"`
	Actor         string              `json:"actor"`
	Reason        string              `json:"reason"`
	ExternalID    string              `json:"external_id,omitempty"`
	Until         time.Time           `json:"until,omitzero"`
	Assignee      string              `json:"assignee,omitempty"`
}

// CancelRequest withdraws a wish that can't have had an effect.
type CancelRequest struct {
	OperationID string `json:"operation_id"`
	Actor       string `json:"actor"`
	Reason      string `json:"reason"`
}
