package operation

import (
	"fmt"
	"slices"
	"time"

	"github.com/opledger/opledger/events"
)

// Decision is what a person decided, and what he had seen.
type Decision struct {
	Word events.DecisionWord
	// SeenVersion is the version that was on the screen.
	SeenVersion uint64
	Actor       string
	Reason      string
	// ExternalID comes with confirm.
	ExternalID string
	// Until comes with postpone, Assignee with assign.
	Until    time.Time
	Assignee string
}

// Refusal says why a decision or an approval is not taken, and what to do
// first. The zero value means: it is taken.
type Refusal struct {
	Reason RefusalReason
	Text   string
}

// RefusalReason is why a decision is refused. The list is closed.
type RefusalReason string

// The reasons of a refusal.
const (
	RefusalNone         RefusalReason = ""
	RefusalAbsent       RefusalReason = "not_found"
	RefusalMoved        RefusalReason = "version_moved"
	RefusalFinal        RefusalReason = "already_final"
	RefusalNotFinal     RefusalReason = "not_final"
	RefusalAttemptOpen  RefusalReason = "attempt_open"
	RefusalInDoubt      RefusalReason = "outcome_unknown"
	RefusalNothingToDo  RefusalReason = "nothing_to_decide"
	RefusalIncomplete   RefusalReason = "incomplete"
	RefusalApproval     RefusalReason = "approval_missing"
	RefusalDigest       RefusalReason = "digest_mismatch"
	RefusalNotRequired  RefusalReason = "approval_not_required"
	RefusalNoLookup     RefusalReason = "no_lookup"
	RefusalUnrenderable RefusalReason = "arguments_erased"
)

// RefusalReasons lists every reason of a refusal.
func RefusalReasons() []RefusalReason {
	return []RefusalReason{
		RefusalAbsent, RefusalMoved, RefusalFinal, RefusalNotFinal, RefusalAttemptOpen, RefusalInDoubt,
		RefusalNothingToDo, RefusalIncomplete, RefusalApproval, RefusalDigest, RefusalNotRequired,
		RefusalNoLookup, RefusalUnrenderable,
	}
}

func refuse(reason RefusalReason, format string, args ...any) ([]events.Payload, Refusal) {
	return nil, Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

// Decided turns a person's decision into events. It is refused if anything but
// an empty look followed the version that he saw, so that nobody decides on
// what he has not seen.
func Decided(s State, c Contract, d Decision, p Params) ([]events.Payload, Refusal) {
	switch {
	case s.Status == StatusAbsent:
		return refuse(RefusalAbsent, "no such operation")
	case d.Actor == "" || d.Reason == "":
		return refuse(RefusalIncomplete, "a decision needs an actor and a reason")
	case d.SeenVersion < s.Substantive || d.SeenVersion > s.Version:
		return refuse(RefusalMoved, "you saw version %d, the operation is at %d: look at it again", d.SeenVersion, s.Version)
	}
	switch d.Word {
	case events.DecideConfirm:
		return decideConfirm(s, c, d, p)
	case events.DecideReject:
		return decideReject(s, d)
	case events.DecidePermit:
		return decidePermit(s, c, d, p)
	case events.DecideResume:
		return decideResume(s, d)
	case events.DecideLook:
		return decideLook(s, c, d, p)
	case events.DecidePostpone, events.DecideAssign, events.DecideNote:
		return decideUpdate(s, d, p)
	case events.DecideUndetermined:
		return decideUndetermined(s, d)
	case events.DecideCancel:
		return decideCancel(s, d)
	case events.DecideAcknowledge:
		if !s.Status.Final() {
			return refuse(RefusalNotFinal, "only the review of a final operation is acknowledged; decide confirm, reject, permit or undetermined")
		}
		if s.Review == nil {
			return refuse(RefusalNothingToDo, "no review is open")
		}
		return closing(d), Refusal{}
	}
	return refuse(RefusalIncomplete, "%q is not a decision", d.Word)
}

// A decision is one event, so that no crash and nobody else can come between
// its parts: a final event and a person's permit close the review by themselves,
// ReviewClosed is for decisions that do nothing else.
func closing(d Decision) []events.Payload {
	return []events.Payload{events.ReviewClosed{Decision: d.Word, Text: d.Reason, SeenVersion: d.SeenVersion}}
}

func one(p events.Payload) ([]events.Payload, Refusal) { return []events.Payload{p}, Refusal{} }

func decideConfirm(s State, c Contract, d Decision, p Params) ([]events.Payload, Refusal) {
	switch {
	case s.Status.Final():
		return refuse(RefusalFinal, "it is %s already", s.Status)
	case d.ExternalID == "":
		return refuse(RefusalIncomplete, "confirm needs the provider's id of the object")
	case len(s.Attempts) == 0:
		return refuse(RefusalNothingToDo, "nothing was ever sent; there is nothing to confirm")
	}
	// One of the attempts in doubt made the object, no matter which; another
	// may have made a second one.
	maker := ""
	for _, a := range s.Attempts {
		if a.State == AttemptOpen || a.State == AttemptUnresolved {
			maker = a.ID
		}
	}
	return one(events.ResultConfirmed{
		ExternalID: d.ExternalID, Via: events.ViaOperator, Reason: d.Reason, SeenVersion: d.SeenVersion,
		Next: twinLook(s, c, maker, 0, false, p),
	})
}

func decideReject(s State, d Decision) ([]events.Payload, Refusal) {
	if s.Status.Final() {
		return refuse(RefusalFinal, "it is %s already", s.Status)
	}
	if a, open := s.Open(); open {
		return refuse(RefusalAttemptOpen, "attempt %d is under way until %s; decide after that", a.Number, stamp(a.LeaseUntil))
	}
	return one(events.Rejected{
		Reason: d.Reason, Via: events.ViaOperator, Covers: cover(s, "operator"), SeenVersion: d.SeenVersion,
	})
}

func decidePermit(s State, c Contract, d Decision, p Params) ([]events.Payload, Refusal) {
	if s.Status.Final() {
		return refuse(RefusalFinal, "it is %s already", s.Status)
	}
	if a, open := s.Open(); open {
		return refuse(RefusalAttemptOpen, "attempt %d is under way until %s; decide after that", a.Number, stamp(a.LeaseUntil))
	}
	switch {
	case s.unsendable():
		return refuse(RefusalUnrenderable, "the arguments were erased, or the intent is missing; it can't be sent any more")
	case !s.approved(p.Now):
		return refuse(RefusalApproval, "it needs a valid approval first: opledger approve %s --digest %s", s.OperationID, s.Intent.IntentDigest)
	case s.Halted != "" || s.Hold != "":
		return refuse(RefusalNothingToDo, "it is held (%s%s): decide resume first", s.Hold, s.Halted)
	}
	return one(events.RetryPermitted{
		PermitID: p.NewID, Basis: events.BasisOperator, ValidUntil: p.Now.Add(OperatorPermitLife),
		Account: s.Intent.Account, RequestDigest: s.RequestDigest(), ContractDigest: c.Digest,
		RetryAt: p.Now, Reason: d.Reason, SeenVersion: d.SeenVersion,
		Next: events.Next{Action: events.NextAttempt, At: p.Now},
	})
}

func decideResume(s State, d Decision) ([]events.Payload, Refusal) {
	if s.Status.Final() {
		return refuse(RefusalFinal, "it is %s already; acknowledge its review instead", s.Status)
	}
	if s.Review != nil {
		return closing(d), Refusal{}
	}
	if s.Hold == "" && s.Halted == "" {
		return refuse(RefusalNothingToDo, "it is neither held nor halted")
	}
	return []events.Payload{events.ReviewUpdated{
		Decision: d.Word, Text: d.Reason, SeenVersion: d.SeenVersion,
	}}, Refusal{}
}

func decideLook(s State, c Contract, d Decision, p Params) ([]events.Payload, Refusal) {
	switch {
	case s.Status != StatusUnknown:
		return refuse(RefusalNothingToDo, "it is %s; only an unknown outcome is looked for", s.Status)
	case !c.Lookup.Available:
		return refuse(RefusalNoLookup, "the contract has no lookup")
	}
	return []events.Payload{events.ReviewUpdated{
		Decision: d.Word, Text: d.Reason, SeenVersion: d.SeenVersion,
		Next: events.Next{Action: events.NextReconcile, At: p.Now},
	}}, Refusal{}
}

func decideUpdate(s State, d Decision, p Params) ([]events.Payload, Refusal) {
	if s.Review == nil {
		return refuse(RefusalNothingToDo, "no review is open")
	}
	until := s.Review.Until
	if d.Word == events.DecidePostpone {
		until = d.Until
	}
	u := events.ReviewUpdated{
		Decision: d.Word, Text: d.Reason, SeenVersion: d.SeenVersion, Until: until, Assignee: d.Assignee,
		Next: events.Next{Action: events.NextDecision, At: until},
	}
	switch {
	case d.Word == events.DecidePostpone && !d.Until.After(p.Now):
		return refuse(RefusalIncomplete, "postpone needs a time in the future")
	case d.Word == events.DecideAssign && d.Assignee == "":
		return refuse(RefusalIncomplete, "assign needs somebody")
	}
	return []events.Payload{u}, Refusal{}
}

func decideUndetermined(s State, d Decision) ([]events.Payload, Refusal) {
	switch {
	case s.Status != StatusUnknown:
		return refuse(RefusalNothingToDo, "it is %s; only an unknown outcome can be undetermined", s.Status)
	case s.Review == nil:
		return refuse(RefusalNothingToDo, "no review is open: the ledger is still looking")
	}
	return closing(d), Refusal{}
}

func decideCancel(s State, d Decision) ([]events.Payload, Refusal) {
	if s.Status.Final() {
		return refuse(RefusalFinal, "it is %s already", s.Status)
	}
	if a, open := s.Open(); open {
		return refuse(RefusalAttemptOpen, "attempt %d is under way; it can't be called back", a.Number)
	}
	if len(s.Unresolved()) > 0 {
		return refuse(RefusalInDoubt, "it may have happened already; that can't be cancelled, only settled")
	}
	return one(events.Rejected{
		Reason: d.Reason, Via: events.ViaCancelled, Covers: cover(s, "not_applied"), SeenVersion: d.SeenVersion,
	})
}

// Grant is a person's approval of exactly one intent.
type Grant struct {
	Approver     string
	IntentDigest string
	ExpiresAt    time.Time
	Reason       string
}

// Approved turns an approval into events. It binds the intent digest, and so
// tenant, operation, provider, account, action, arguments, contract and the
// on_unknown choice (I7). Granting the same again changes nothing.
func Approved(s State, g Grant, p Params) ([]events.Payload, Refusal) {
	switch {
	case s.Status == StatusAbsent:
		return refuse(RefusalAbsent, "no such operation")
	case g.Approver == "":
		return refuse(RefusalIncomplete, "an approval needs an approver")
	case g.IntentDigest != s.Intent.IntentDigest:
		return refuse(RefusalDigest, "the approval names %s, the intent is %s", g.IntentDigest, s.Intent.IntentDigest)
	case s.Status.Final():
		return refuse(RefusalFinal, "it is %s already", s.Status)
	case !s.approvalRequired():
		return refuse(RefusalNotRequired, "neither the contract nor the intent asks for an approval")
	case !g.ExpiresAt.After(p.Now):
		return refuse(RefusalIncomplete, "the approval would be expired already")
	}
	if a := s.Approval; a != nil && a.Approver == g.Approver && a.ExpiresAt.Equal(g.ExpiresAt) {
		return nil, Refusal{}
	}
	return []events.Payload{events.ApprovalGranted{
		Approver: g.Approver, IntentDigest: g.IntentDigest, ExpiresAt: g.ExpiresAt, Reason: g.Reason,
	}}, Refusal{}
}

// Difference names the fields in which a repeated intent differs from the
// recorded one: the content is the bound arguments, provider, account and
// action; labels, limits and request_id are not compared. Empty means: a
// repeat.
func Difference(recorded, repeated events.IntentRecorded) []string {
	var fields []string
	for _, f := range []struct {
		name string
		a, b string
	}{
		{"provider", recorded.Provider, repeated.Provider},
		{"account", recorded.Account.Name, repeated.Account.Name},
		{"action", recorded.Action, repeated.Action},
		{"args", recorded.ArgsDigest, repeated.ArgsDigest},
	} {
		if f.a != f.b {
			fields = append(fields, f.name)
		}
	}
	slices.Sort(fields)
	return fields
}
