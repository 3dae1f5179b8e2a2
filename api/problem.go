package api

import "fmt"

// ProblemCode is the stable name of a kind of problem; the type of the problem
// object is ProblemTypeBase plus the code. The list is closed.
type ProblemCode string

// ProblemTypeBase is the prefix of every problem type.
const ProblemTypeBase = "urn:opledger:problem:"

// The problems.
const (
	ProblemMalformed       ProblemCode = "malformed_request"
	ProblemTooLarge        ProblemCode = "too_large"
	ProblemInvalidID       ProblemCode = "invalid_id"
	ProblemInvalidArgs     ProblemCode = "invalid_args"
	ProblemUnknownProvider ProblemCode = "unknown_provider"
	ProblemUnknownAction   ProblemCode = "unknown_action"
	ProblemUnknownAccount  ProblemCode = "unknown_account"
	ProblemUnknownTenant   ProblemCode = "unknown_tenant"
	ProblemConflict        ProblemCode = "conflict"
	ProblemDigestMismatch  ProblemCode = "digest_mismatch"
	ProblemNotAllowed      ProblemCode = "not_allowed"
	ProblemNotSupported    ProblemCode = "not_supported"
	ProblemNotFound        ProblemCode = "not_found"
	ProblemRefused         ProblemCode = "decision_refused"
	ProblemUnavailable     ProblemCode = "unavailable"
)

// ProblemCodes lists every problem.
func ProblemCodes() []ProblemCode {
	return []ProblemCode{
		ProblemMalformed, ProblemTooLarge, ProblemInvalidID, ProblemInvalidArgs,
		ProblemUnknownProvider, ProblemUnknownAction, ProblemUnknownAccount, ProblemUnknownTenant,
		ProblemConflict, ProblemDigestMismatch, ProblemNotAllowed, ProblemNotSupported,
		ProblemNotFound, ProblemRefused, ProblemUnavailable,
	}
}

// Problem is an RFC 9457 problem object, the same over every transport. It
// never holds argument values.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Code is the last part of Type.
	Code        ProblemCode `json:"code"`
	OperationID string      `json:"operation_id,omitempty"`
	// Fields names what differs (conflict) or what is wrong.
	Fields []string `json:"fields,omitempty"`
	// RecordedDigest and ReceivedDigest come with a conflict.
	RecordedDigest string `json:"recorded_digest,omitempty"`
	ReceivedDigest string `json:"received_digest,omitempty"`
	// Reason refines a refused decision.
	Reason string `json:"reason,omitempty"`
	// Say is safe to show to a model or a user and never invites a blind
	// repeat; RetrySafe is always false: see Answer.
	Say       string `json:"say"`
	RetrySafe bool   `json:"retry_safe"`
	// Answer is the stored state, where there is one.
	Answer *Answer `json:"answer,omitempty"`
}

// Error implements error.
func (p *Problem) Error() string { return fmt.Sprintf("%s: %s", p.Code, p.Detail) }

// NewProblem makes a problem object. The text must not hold argument values.
func NewProblem(code ProblemCode, format string, args ...any) *Problem {
	title, status := code.facts()
	return &Problem{
		Type: ProblemTypeBase + string(code), Title: title, Status: status, Code: code,
		Detail: fmt.Sprintf(format, args...),
		Say:    "The ledger did not accept this: " + title + ". Nothing was sent because of it.",
	}
}

func (c ProblemCode) facts() (title string, status int) {
	switch c {
	case ProblemMalformed:
		return "the request is malformed", 400
	case ProblemTooLarge:
		return "the request is too large", 413
	case ProblemInvalidID:
		return "an id does not follow the rule", 400
	case ProblemInvalidArgs:
		return "the arguments do not fit the action", 422
	case ProblemUnknownProvider:
		return "no such provider is configured", 404
	case ProblemUnknownAction:
		return "the provider has no such action", 404
	case ProblemUnknownAccount:
		return "no such account of the provider is configured", 404
	case ProblemUnknownTenant:
		return "no such tenant is configured", 404
	case ProblemConflict:
		return "the operation id is taken by other content", 409
	case ProblemDigestMismatch:
		return "the digest does not fit the content", 422
	case ProblemNotAllowed:
		return "this is not allowed here", 403
	case ProblemNotSupported:
		return "this is not supported", 501
	case ProblemNotFound:
		return "no such operation is recorded", 404
	case ProblemRefused:
		return "the decision was refused", 409
	case ProblemUnavailable:
		return "the ledger can't answer right now", 503
	}
	return "unexpected problem", 500
}
