package intake_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/intake"
	"github.com/opledger/opledger/operation"
)

// with adds members to a wish.
func with(id, members string) []byte {
	return fmt.Appendf(nil, `{"operation_id":%q,"provider":"crm","account":"main","action":"task.create","args":{"title":"a"},%s}`, id, members)
}

func intentOf(t *testing.T, f *fixture, tenant, op string) events.IntentRecorded {
	t.Helper()
	s, err := f.ledger.Truth(t.Context(), tenant, op)
	if err != nil {
		t.Fatal(err)
	}
	return s.Intent
}

// The conflict scope comes from the contract where it derives one, and else from
// whoever hands the intent in.
func TestConflictScopeIsDerivedOrHandedIn(t *testing.T) {
	f := newFixture(t)
	mustSubmit(t, f, "acme", with("op-1", `"conflict_scope":"task-7"`))
	if got := intentOf(t, f, "acme", "op-1").ConflictScope; got != "task-7" {
		t.Errorf("got scope %q, want the one handed in", got)
	}
	if _, p := f.Submit(t.Context(), "acme", with("op-2", `"conflict_scope":"a.b"`)); p == nil || p.Code != api.ProblemInvalidID {
		t.Errorf("got %v, want invalid_id", p)
	}
	f.shop.contract.Scoped = true
	mustSubmit(t, f, "acme", wish("op-3", `{"title":"x"}`))
	if got := intentOf(t, f, "acme", "op-3").ConflictScope; got != "crm-x" {
		t.Errorf("got scope %q, want the derived one", got)
	}
	if _, p := f.Submit(t.Context(), "acme", with("op-4", `"conflict_scope":"task-7"`)); p == nil || p.Code != api.ProblemNotAllowed {
		t.Errorf("got %v, want not_allowed: nobody may choose another scope than the contract's", p)
	}
}

// Section 11: two texts of one user request are two operations; the second one
// names the first, is never merged, and is held where the tenant asks for it.
func TestPossibleRepeatIsFlaggedAndHeldButNeverMerged(t *testing.T) {
	f := newFixture(t)
	f.earlier = map[string]string{"acme/r-1": "op-1", "careful/r-1": "op-1"}
	a := mustSubmit(t, f, "acme", with("op-2", `"request_id":"r-1"`))
	if a.PossibleRepeatOf != "op-1" || a.Hold != "" || a.Repeated || a.Status != operation.StatusPending {
		t.Errorf("got %+v, want it flagged and free to go", a)
	}
	a = mustSubmit(t, f, "acme", with("op-3", `"request_id":"r-1","repeat_of":"op-1"`))
	if a.PossibleRepeatOf != "" {
		t.Errorf("case D56: a repeat on purpose is flagged as %q", a.PossibleRepeatOf)
	}
	a = mustSubmit(t, f, "careful", with("op-2", `"request_id":"r-1"`))
	if a.PossibleRepeatOf != "op-1" || a.Hold != intake.HoldPossibleRepeat || a.NextAction != events.NextDecision {
		t.Fatalf("got %+v, want it held", a)
	}
	page, p := f.List(t.Context(), "careful", []byte(`{"review":true}`))
	if p != nil || len(page.Operations) != 1 {
		t.Fatalf("what is held must be among what waits for a person: %+v, %v", page, p)
	}
	a, p = f.Decide(t.Context(), "careful", fmt.Appendf(nil, `{"operation_id":"op-2","decision":"resume","expect_version":%d,"actor":"ann","reason":"both are wanted"}`, a.Version))
	if p != nil || a.Hold != "" || a.NextAction != events.NextAttempt {
		t.Errorf("got %+v, %v; want it to go on", a, p)
	}
}

// H94: with detail the answer shows the request that the approver allows, and who
// took the conflict scope last.
func TestDetailShowsTheRequestAndTheHolderOfTheScope(t *testing.T) {
	f := newFixture(t)
	mustSubmit(t, f, "acme", with("op-2", `"conflict_scope":"task-7"`))
	if err := f.ledger.TakeScope(context.Background(), "acme", "task-7", "op-1", "a1", "w", 0, time.Time{}); err != nil {
		t.Fatal(err)
	}
	a, p := f.Get(t.Context(), "acme", []byte(`{"operation_id":"op-2","detail":true}`))
	if p != nil || a.ScopeTakenBy != "op-1" || !strings.Contains(string(a.Request), `"url":"https://crm.example.com"`) {
		t.Errorf("got request %s, scope taken by %q, %v", a.Request, a.ScopeTakenBy, p)
	}
	if a, p := f.Wait(t.Context(), "acme", []byte(`{"operation_id":"op-2","detail":true,"timeout_ms":1}`)); p != nil || a.ScopeTakenBy != "op-1" {
		t.Errorf("a wait whose time is over says that the scope was taken by %q, %v; want op-1", a.ScopeTakenBy, p)
	}
	if a, p := f.Get(t.Context(), "acme", []byte(`{"operation_id":"op-2"}`)); p != nil || a.Request != nil || a.ScopeTakenBy != "" {
		t.Errorf("without detail: %s, %q, %v; want neither", a.Request, a.ScopeTakenBy, p)
	}
}
