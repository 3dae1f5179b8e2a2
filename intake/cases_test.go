package intake_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Rows of the acceptance cases on approvals and content. docs/cases.md lists all.

func withApproval(f *fixture, id, args string) []byte {
	return []byte(strings.Replace(string(wish(id, args)), `"args"`,
		`"require_approval":{},"approval":{"approver":"ada","expires_at":"`+f.now.Add(time.Hour).Format(time.RFC3339)+`"},"args"`, 1))
}

// Cases H93, H97 (mcp-hangar/mcp-hangar#674, orka-agents/orka!306): arguments that
// change after the approval are a conflict; the approval stays that of the
// recorded intent, and that of another operation does not fit.
func TestCaseH93AndH97ArgumentsChangedAfterTheApprovalAreAConflict(t *testing.T) {
	f := newFixture(t)
	f.shop.contract.ApprovalRequired = true
	a := mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
	b := mustSubmit(t, f, "acme", wish("op-2", `{"title":"a"}`))
	approve := func(id, digest string) *api.Problem {
		raw, err := json.Marshal(api.ApproveRequest{OperationID: id, IntentDigest: digest, Approver: "ada", ExpiresAt: f.now.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		_, p := f.Approve(t.Context(), "acme", raw)
		return p
	}
	if p := approve("op-2", a.IntentDigest); p == nil || p.Reason != string(operation.RefusalDigest) {
		t.Errorf("the approval of op-1 for op-2: got %v", p)
	}
	if p := approve("op-1", a.IntentDigest); p != nil {
		t.Fatal(p)
	}
	for _, raw := range [][]byte{
		wish("op-1", `{"title":"b"}`), wish("op-1", `{"title":"a","priority":1}`), wish("op-1", `{"title":"a","x":1}`),
	} {
		if _, p := f.Submit(t.Context(), "acme", raw); p == nil || p.Code != api.ProblemConflict || p.RetrySafe {
			t.Errorf("%s: got %v, want a conflict", raw, p)
		}
	}
	for id, approved := range map[string]bool{"op-1": true, "op-2": false} {
		s, err := f.ledger.Truth(t.Context(), "acme", id)
		if err != nil || (s.Approval != nil) != approved || (approved && s.Intent.IntentDigest != a.IntentDigest) {
			t.Errorf("%s: approval %+v, %v", id, s.Approval, err)
		}
	}
	if b.IntentDigest == a.IntentDigest {
		t.Error("two operations have one digest")
	}
}

// Case H93: the contract has changed since the operation was recorded: an approval
// that comes with a repeat saw the new one and is refused.
func TestCaseH93ChangedContractNeedsItsOwnApproval(t *testing.T) {
	for name, change := range map[string]func(*fixture, string) string{
		"contract": func(f *fixture, raw string) string { f.shop.digest = "sha256:c2"; return raw },
		"choice": func(f *fixture, raw string) string {
			return strings.Replace(raw, `"args"`, `"on_unknown":"review_only","args"`, 1)
		},
	} {
		f := newFixture(t)
		first := strings.Replace(string(wish("op-1", `{"title":"a"}`)), `"args"`, `"require_approval":{},"args"`, 1)
		a := mustSubmit(t, f, "trusted", []byte(first))
		_, p := f.Submit(t.Context(), "trusted", []byte(change(f, string(withApproval(f, "op-1", `{"title":"a"}`)))))
		if p == nil || p.Code != api.ProblemDigestMismatch || p.Answer == nil || p.Answer.IntentDigest != a.IntentDigest {
			t.Errorf("%s: got %+v, want the approval refused", name, p)
		}
		if s, err := f.ledger.Truth(t.Context(), "trusted", "op-1"); err != nil || s.Approval != nil {
			t.Errorf("%s: approval %+v, %v", name, s.Approval, err)
		}
	}
}

// Case H96: a difference that the contract ignores makes no other wish; but an
// approval that comes with it saw another text and is refused, and arguments that
// were erased are equal to nothing.
func TestCaseH96IgnoredArgumentIsNotWhatTheApproverSaw(t *testing.T) {
	f := newFixture(t)
	f.shop.contract.IgnoredArgs = []string{"note"}
	first := strings.Replace(string(wish("op-1", `{"title":"a","note":"x"}`)), `"args"`, `"require_approval":{},"args"`, 1)
	mustSubmit(t, f, "trusted", []byte(first))
	if a := mustSubmit(t, f, "trusted", wish("op-1", `{"title":"a","note":"y"}`)); !a.Repeated {
		t.Errorf("got %+v, want the stored operation", a)
	}
	if _, p := f.Submit(t.Context(), "trusted", withApproval(f, "op-1", `{"title":"a","note":"y"}`)); p == nil || p.Code != api.ProblemDigestMismatch {
		t.Errorf("got %v, want the approval refused", p)
	}
	if _, p := f.Submit(t.Context(), "trusted", wish("op-1", `{"title":"b","note":"x"}`)); p == nil || p.Code != api.ProblemConflict {
		t.Errorf("got %v, want a conflict", p)
	}
	a := mustSubmit(t, f, "trusted", withApproval(f, "op-1", `{"note":"x","title":"a"}`))
	if a.NextAction != events.NextAttempt {
		t.Errorf("the approval of the recorded text: got next %s", a.NextAction)
	}
}

// Case D56 (worldcoin/developer-portal!1608): a wanted repeat of the same arguments
// is an operation of its own, linked to the first and never held.
func TestCaseD56WantedRepeatIsAnOperationOfItsOwn(t *testing.T) {
	f := newFixture(t)
	f.earlier = map[string]string{"careful/r-1": "op-1"}
	a := mustSubmit(t, f, "careful", wish("op-1", `{"title":"a"}`))
	b := mustSubmit(t, f, "careful", []byte(strings.Replace(string(wish("op-2", `{"title":"a"}`)), `"args"`, `"request_id":"r-1","repeat_of":"op-1","args"`, 1)))
	s, err := f.ledger.Truth(t.Context(), "careful", "op-2")
	if err != nil || b.Repeated || a.IntentDigest == b.IntentDigest || s.Intent.RepeatOf != "op-1" || s.Hold != "" || s.NextAction != events.NextAttempt {
		t.Errorf("got %+v, state %+v, %v", b, s.Intent, err)
	}
}
