package intake_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/intake"
	"github.com/opledger/opledger/internal/memledger"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
)

const ledgerID = "6f1c3c0e-2f44-4ad0-9a0e-0d8f5b7f2b11"

// shop is a catalogue with one provider, one account and one action.
type shop struct {
	contract operation.Contract
	// down: the store of old revisions does not answer.
	down bool
	// digest is that of the contract in force; empty means sha256:c1.
	digest string
}

func (s *shop) Offer(_ context.Context, provider, account, action string) (intake.Offer, error) {
	switch {
	case provider != "crm":
		return intake.Offer{}, intake.ErrNoProvider
	case action != "task.create":
		return intake.Offer{}, intake.ErrNoAction
	case account != "main":
		return intake.Offer{}, intake.ErrNoAccount
	}
	return intake.Offer{
		Contract: s.contract, Ref: events.ContractRef{Name: "crm", Revision: 1, Digest: cmp.Or(s.digest, "sha256:c1")},
		Account: events.Account{Name: account, ProviderID: "acct_1"}, SchemaVersion: "v1",
	}, nil
}

func (s *shop) Contract(context.Context, events.IntentRecorded) (operation.Contract, error) {
	return s.contract, nil
}

func (s *shop) Bind(_ context.Context, _ events.ContractRef, _, _ string, args []byte) ([]byte, error) {
	if s.down {
		return nil, errors.New("timeout")
	}
	var m map[string]any
	if err := json.Unmarshal(args, &m); err != nil {
		return nil, err
	}
	if _, ok := m["title"].(string); !ok {
		return nil, fmt.Errorf("%w: /title is required", intake.ErrArguments)
	}
	if _, ok := m["priority"]; !ok {
		m["priority"] = 3
	}
	return json.Marshal(m)
}

// Scope takes the title as the outside object.
func (s *shop) Scope(_ context.Context, _ events.ContractRef, provider, _ string, _ events.Account, args []byte) (string, error) {
	var m struct{ Title string }
	err := json.Unmarshal(args, &m)
	return provider + "-" + m.Title, err
}

func (s *shop) Render(_ context.Context, st operation.State) (json.RawMessage, error) {
	return json.Marshal(map[string]string{"method": "POST", "url": "https://crm.example.com", "body": string(st.Intent.Args)})
}

func (s *shop) Keep(context.Context, string) error { return nil }

type fixture struct {
	*intake.Service
	ledger *memledger.Ledger
	shop   *shop
	now    time.Time
	// earlier is what is known of a user request.
	earlier map[string]string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{shop: &shop{contract: operation.Contract{Provider: "crm", Action: "task.create", Class: operation.ClassLabel}}}
	f.now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return f.now }
	f.ledger = memledger.New(clock)
	f.serve(t, f.ledger)
	return f
}

// serve makes the service on what is known of operations.
func (f *fixture) serve(t *testing.T, states intake.States) {
	t.Helper()
	clock := func() time.Time { return f.now }
	w, err := writer.New(writer.Config{Journal: f.ledger, Ledger: ledgerID, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	f.Service, err = intake.New(intake.Config{
		Recorder: w, States: states, Catalogue: f.shop, Ledger: ledgerID, Now: clock, Random: rand.Float64,
		Tenants: []intake.Tenant{{ID: "acme"}, {ID: "trusted", ApprovalInSubmit: true}, {ID: "careful", HoldRepeats: true}},
		Earlier: func(tenant string, i events.IntentRecorded) string { return f.earlier[tenant+"/"+i.RequestID] },
		Scopes:  f.ledger,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// forgetful knows no operation at a glance.
type forgetful struct{ *memledger.Ledger }

func (forgetful) Glance(context.Context, string, string) (operation.State, error) {
	return operation.State{}, nil
}

// I10, I6: what is recorded is found, also where a glance does not show it: by the
// append, or because it could not be recorded any more.
func TestARepeatIsARepeatWhateverAGlanceShows(t *testing.T) {
	f := newFixture(t)
	mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
	f.serve(t, forgetful{f.ledger})
	if a := mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`)); !a.Repeated {
		t.Errorf("a repeat was taken for new: %+v", a)
	}
	if _, p := f.Submit(t.Context(), "acme", wish("op-1", `{"title":"b"}`)); p == nil || p.Code != api.ProblemConflict {
		t.Errorf("other content: %v", p)
	}
	gone := strings.Replace(string(wish("op-1", `{"title":"a"}`)), `"main"`, `"closed"`, 1)
	if _, p := f.Submit(t.Context(), "acme", []byte(gone)); p == nil || p.Code != api.ProblemConflict {
		t.Errorf("another account, which is not there: %v", p)
	}
	if _, p := f.Submit(t.Context(), "acme", []byte(strings.Replace(gone, "op-1", "op-2", 1))); p == nil || p.Code != api.ProblemUnknownAccount {
		t.Errorf("a new operation for an account that is not there: %v", p)
	}
	if n := f.count(t, "acme", "op-1"); n != 1 {
		t.Errorf("op-1 has %d events, want 1", n)
	}
}

func (f *fixture) count(t *testing.T, tenant, op string) int {
	t.Helper()
	recs, err := f.ledger.Load(t.Context(), tenant, op)
	if err != nil {
		t.Fatal(err)
	}
	return len(recs)
}

func wish(id, args string) []byte {
	return fmt.Appendf(nil, `{"operation_id":%q,"provider":"crm","account":"main","action":"task.create","args":%s}`, id, args)
}

func mustSubmit(t *testing.T, f *fixture, tenant string, raw []byte) api.Answer {
	t.Helper()
	a, p := f.Submit(t.Context(), tenant, raw)
	if p != nil {
		t.Fatalf("submit: %v", p)
	}
	return a
}

// I10, cases A2: ten publishes of one intent, in any form of the same content,
// give one event and ten equal answers.
func TestTenSubmitsOfOneIntentRecordItOnce(t *testing.T) {
	f := newFixture(t)
	forms := []string{`{"title":"a"}`, `{ "title" : "a" }`, `{"priority":3,"title":"a"}`, `{"title":"\u0061"}`, `{"priority":3.0,"title":"a"}`}
	var wg sync.WaitGroup
	answers := make([]api.Answer, 10)
	for i := range answers {
		wg.Go(func() {
			a, p := f.Submit(context.Background(), "acme", wish("op-1", forms[i%len(forms)]))
			if p != nil {
				t.Errorf("submit %d: %v", i, p)
			}
			answers[i] = a
		})
	}
	wg.Wait()
	if n := f.count(t, "acme", "op-1"); n != 1 {
		t.Errorf("got %d events, want 1", n)
	}
	for _, a := range answers {
		if a.IntentDigest != answers[0].IntentDigest || a.Status != operation.StatusPending || a.RetrySafe {
			t.Errorf("got %+v, want the same answer for all", a)
		}
	}
}

// I6, cases A3, H97: the same id with other content is a conflict that names
// both digests and what differs; nothing is stored.
func TestOtherContentUnderTheSameIDIsAConflict(t *testing.T) {
	f := newFixture(t)
	mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
	_, p := f.Submit(t.Context(), "acme", wish("op-1", `{"title":"b"}`))
	if p == nil || p.Code != api.ProblemConflict || p.Status != 409 {
		t.Fatalf("got %v, want a conflict", p)
	}
	if len(p.Fields) != 1 || p.Fields[0] != "args" || p.RecordedDigest == "" || p.ReceivedDigest == "" || p.RecordedDigest == p.ReceivedDigest {
		t.Errorf("got fields %v, digests %q and %q", p.Fields, p.RecordedDigest, p.ReceivedDigest)
	}
	if p.Answer == nil || p.Answer.OperationID != "op-1" || p.RetrySafe {
		t.Errorf("got %+v, want the stored state with it", p)
	}
	if n := f.count(t, "acme", "op-1"); n != 1 {
		t.Errorf("got %d events, want 1", n)
	}
}

// Cases D32, D56: equal text under another id is another wish.
func TestEqualTextUnderAnotherIDIsAnotherOperation(t *testing.T) {
	f := newFixture(t)
	a := mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
	b := mustSubmit(t, f, "acme", wish("op-2", `{"title":"a"}`))
	if a.IntentDigest == b.IntentDigest || b.Repeated {
		t.Errorf("got %+v and %+v, want two operations", a, b)
	}
}

// Labels, limits and request id are not content.
func TestRepeatWithOtherLabelsIsARepeat(t *testing.T) {
	f := newFixture(t)
	mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
	a := mustSubmit(t, f, "acme", []byte(`{"operation_id":"op-1","provider":"crm","account":"main","action":"task.create",
		"args":{"title":"a"},"labels":{"x":"y"},"request_id":"r-9","limits":{"max_attempts":1}}`))
	if !a.Repeated || a.RequestID != "" {
		t.Errorf("got %+v, want the stored state", a)
	}
}

// Cases A10, A14: the operation is found by its source event, whatever call id
// the framework makes up; an id sent along that does not fit is refused.
func TestSourceEventFindsTheSameOperation(t *testing.T) {
	f := newFixture(t)
	raw := func(extra string) []byte {
		return []byte(`{"source":"chat","source_event_id":"msg-7"` + extra + `,"provider":"crm","account":"main","action":"task.create","args":{"title":"a"}}`)
	}
	a := mustSubmit(t, f, "acme", raw(`,"origin":{"tool_call_id":"call_1"}`))
	b := mustSubmit(t, f, "acme", raw(`,"origin":{"tool_call_id":"call_2"}`))
	if a.OperationID != b.OperationID || !b.Repeated {
		t.Errorf("got %s and %s, want one operation", a.OperationID, b.OperationID)
	}
	if c := mustSubmit(t, f, "acme", raw(`,"slot":"2"`)); c.OperationID == a.OperationID {
		t.Error("another slot found the same operation")
	}
	if _, p := f.Submit(t.Context(), "acme", raw(`,"operation_id":"op-1"`)); p == nil || p.Code != api.ProblemInvalidID {
		t.Errorf("got %v, want the made-up id refused", p)
	}
	g, p := f.Get(t.Context(), "acme", []byte(`{"source":"chat","source_event_id":"msg-7"}`))
	if p != nil || g.OperationID != a.OperationID {
		t.Errorf("get by source event: %v, %v", g, p)
	}
}

// Bad input is answered with a problem object; nothing is stored, and no value
// is repeated in the text (I18).
func TestBadInputIsRefusedWithAProblem(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)
	cases := []struct {
		name string
		raw  string
		code api.ProblemCode
	}{
		{"not JSON", `{"operation_id":`, api.ProblemMalformed},
		{"two documents", string(wish("op-1", `{"title":"a"}`)) + "{}", api.ProblemMalformed},
		{"unknown member", `{"operation_id":"op-1","provider":"crm","acount":"main","action":"task.create","args":{}}`, api.ProblemMalformed},
		{"duplicate key", string(wish("op-1", `{"title":"a","title":"b"}`)), api.ProblemMalformed},
		{"invalid UTF-8", string(wish("op-1", "{\"title\":\"\xff\"}")), api.ProblemMalformed},
		{"lone surrogate", string(wish("op-1", `{"title":"\ud800"}`)), api.ProblemMalformed},
		{"integer beyond 2^53", string(wish("op-1", `{"title":"a","n":9007199254740993}`)), api.ProblemMalformed},
		{"integer beyond 2^53 in exponent form", string(wish("op-1", `{"title":"a","n":9007199254740993e0}`)), api.ProblemMalformed},
		{"too many digits", string(wish("op-1", `{"title":"a","n":0.12345678901234567890}`)), api.ProblemMalformed},
		{"vanishing number", string(wish("op-1", `{"title":"a","n":1e-999999999}`)), api.ProblemMalformed},
		{"endless number", string(wish("op-1", `{"title":"a","n":1e999999999}`)), api.ProblemMalformed},
		{"nested too deep", string(wish("op-1", `{"title":"a","d":`+deep+`}`)), api.ProblemMalformed},
		{"too large", string(wish("op-1", `{"title":"`+strings.Repeat("x", intake.MaxRequestSize)+`"}`)), api.ProblemTooLarge},
		{"args too large", string(wish("op-1", `{"title":"`+strings.Repeat("x", intake.MaxArgsSize)+`"}`)), api.ProblemTooLarge},
		{"id with a wildcard", string(wish("op.*", `{"title":"a"}`)), api.ProblemInvalidID},
		{"id too long", string(wish(strings.Repeat("a", 65), `{"title":"a"}`)), api.ProblemInvalidID},
		{"no id", string(wish("", `{"title":"a"}`)), api.ProblemInvalidID},
		{"args missing", `{"operation_id":"op-1","provider":"crm","account":"main","action":"task.create"}`, api.ProblemInvalidArgs},
		{"args not an object", string(wish("op-1", `[1]`)), api.ProblemInvalidArgs},
		{"args don't fit", string(wish("op-1", `{"tittle":"secret-word"}`)), api.ProblemInvalidArgs},
		{"unknown provider", strings.Replace(string(wish("op-1", `{"title":"a"}`)), `"crm"`, `"erp"`, 1), api.ProblemUnknownProvider},
		{"unknown action", strings.Replace(string(wish("op-1", `{"title":"a"}`)), `task.create`, `task.drop`, 1), api.ProblemUnknownAction},
		{"unknown account", strings.Replace(string(wish("op-1", `{"title":"a"}`)), `"main"`, `"other"`, 1), api.ProblemUnknownAccount},
		{"wrong type", `{"operation_id":7,"provider":"crm","account":"main","action":"task.create","args":{}}`, api.ProblemMalformed},
		{"unknown choice", strings.Replace(string(wish("op-1", `{"title":"a"}`)), `"args"`, `"on_unknown":"whatever","args"`, 1), api.ProblemMalformed},
		{"risk without contract", strings.Replace(string(wish("op-1", `{"title":"a"}`)), `"args"`, `"on_unknown":"declared_risk","args"`, 1), api.ProblemNotAllowed},
		{"approval by an agent", strings.Replace(string(wish("op-1", `{"title":"a"}`)), `"args"`, `"approval":{"approver":"me","expires_at":"2027-01-01T00:00:00Z"},"args"`, 1), api.ProblemNotAllowed},
		{"wrong digest", strings.Replace(string(wish("op-1", `{"title":"a"}`)), `"args"`, `"args_digest":"sha256-jcs:00","args"`, 1), api.ProblemDigestMismatch},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			_, p := f.Submit(t.Context(), "acme", []byte(c.raw))
			if p == nil || p.Code != c.code {
				t.Fatalf("got %v, want %s", p, c.code)
			}
			if p.Type != api.ProblemTypeBase+string(c.code) || p.Status < 400 || p.Title == "" || p.Say == "" || p.RetrySafe {
				t.Errorf("the problem object is incomplete: %+v", p)
			}
			if strings.Contains(p.Detail, "secret-word") || len(p.Detail) > 600 {
				t.Errorf("the detail repeats the content: %s", p.Detail)
			}
			if n := f.count(t, "acme", "op-1"); n != 0 {
				t.Errorf("got %d events, want none", n)
			}
		})
	}
}

// Limits hold at one below, at, and one above.
func TestArgumentSizeIsBoundedExactly(t *testing.T) {
	for _, extra := range []int{-1, 0, 1} {
		f := newFixture(t)
		frame := len(`{"title":""}`)
		args := `{"title":"` + strings.Repeat("x", intake.MaxArgsSize-frame+extra) + `"}`
		_, p := f.Submit(t.Context(), "acme", wish("op-1", args))
		if (p != nil) != (extra > 0) {
			t.Errorf("%d bytes beyond the limit: got %v", extra, p)
		}
	}
}

// A submit whose append is lost is told so; handing it in again finds out.
func TestUnansweredAppendIsUnavailableAndSafeToRepeat(t *testing.T) {
	f := newFixture(t)
	f.ledger.AfterAppend = func(events.Event) error { return errors.New("no verdict") }
	_, p := f.Submit(t.Context(), "acme", wish("op-1", `{"title":"a"}`))
	if p == nil || p.Code != api.ProblemUnavailable || !strings.Contains(p.Say, "not known") {
		t.Fatalf("got %v, want unavailable", p)
	}
	f.ledger.AfterAppend = nil
	if a := mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`)); !a.Repeated {
		t.Error("the second submit recorded it again")
	}
	if n := f.count(t, "acme", "op-1"); n != 1 {
		t.Errorf("got %d events, want 1", n)
	}
}

// I7, H93, H97: an approval binds the digest; another digest is refused, the
// right one lets the operation go, and an agent can't approve itself.
func TestApprovalBindsTheIntentDigest(t *testing.T) {
	f := newFixture(t)
	f.shop.contract.ApprovalRequired = true
	a := mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
	if a.NextAction != events.NextApproval {
		t.Fatalf("got next %s, want await_approval", a.NextAction)
	}
	approve := func(digest string) *api.Problem {
		raw, _ := json.Marshal(api.ApproveRequest{OperationID: "op-1", IntentDigest: digest, Approver: "ada", ExpiresAt: f.now.Add(time.Hour)})
		_, p := f.Approve(t.Context(), "acme", raw)
		return p
	}
	if p := approve("sha256-jcs:00"); p == nil || p.Reason != string(operation.RefusalDigest) {
		t.Errorf("got %v, want the other digest refused", p)
	}
	if p := approve(a.IntentDigest); p != nil {
		t.Errorf("got %v, want it approved", p)
	}
	g, _ := f.Get(t.Context(), "acme", []byte(`{"operation_id":"op-1"}`))
	if g.NextAction != events.NextAttempt {
		t.Errorf("got next %s, want attempt", g.NextAction)
	}
}

// 02 section 9: a repeat of a submit appends the approval that a crash left out.
func TestRepeatedSubmitAppendsTheMissingApproval(t *testing.T) {
	f := newFixture(t)
	f.shop.contract.ApprovalRequired = true
	raw := []byte(`{"operation_id":"op-1","provider":"crm","account":"main","action":"task.create","args":{"title":"a"},
		"approval":{"approver":"ada","expires_at":"2026-12-01T00:00:00Z"}}`)
	f.ledger.BeforeAppend = func(e events.Event) error {
		if e.Data.Kind() == events.KindApprovalGranted {
			return errors.New("crash")
		}
		return nil
	}
	if _, p := f.Submit(t.Context(), "trusted", raw); p == nil {
		t.Fatal("want the crash to show")
	}
	f.ledger.BeforeAppend = nil
	a := mustSubmit(t, f, "trusted", raw)
	if !a.Repeated || a.NextAction != events.NextAttempt || f.count(t, "trusted", "op-1") != 2 {
		t.Errorf("got %+v with %d events, want the approval added", a, f.count(t, "trusted", "op-1"))
	}
}

// I15: a tenant sees its own operations only.
func TestTenantsDoNotSeeEachOther(t *testing.T) {
	f := newFixture(t)
	mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
	if _, p := f.Get(t.Context(), "trusted", []byte(`{"operation_id":"op-1"}`)); p == nil || p.Code != api.ProblemNotFound {
		t.Errorf("got %v, want not found", p)
	}
	page, p := f.List(t.Context(), "trusted", []byte(`{}`))
	if p != nil || len(page.Operations) != 0 {
		t.Errorf("got %v, %v, want an empty list", page, p)
	}
	if _, p := f.Submit(t.Context(), "nobody", wish("op-1", `{"title":"a"}`)); p == nil || p.Code != api.ProblemUnknownTenant {
		t.Errorf("got %v, want the unknown tenant refused", p)
	}
}

// Evidence of another account is void (I8); an object without our label only
// looks like ours; with it, it confirms.
func TestEvidenceFromOutsideIsJudged(t *testing.T) {
	f := newFixture(t)
	mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
	s, err := f.ledger.Truth(t.Context(), "acme", "op-1")
	if err != nil {
		t.Fatal(err)
	}
	w, err := writer.New(writer.Config{Journal: f.ledger, Ledger: ledgerID, Now: func() time.Time { return f.now }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.Append(t.Context(), s, "w", events.AttemptStarted{AttemptID: "a1", Number: 1, LeaseMS: 1000},
		events.OutcomeUnknown{AttemptID: "a1", Reason: events.UnknownTimeout}); err != nil {
		t.Fatal(err)
	}
	hand := func(account, label string) (api.Answer, *api.Problem) {
		raw, _ := json.Marshal(api.EvidenceRequest{
			OperationID: "op-1", Source: events.SourceWebhook, AccountProviderID: account, Label: label,
			ExternalID: "731", Actor: "hook",
		})
		return f.Evidence(t.Context(), "acme", raw)
	}
	if a, p := hand("acct_2", operation.Label(s.Intent.IdempotencyKey)); p != nil || a.Status != operation.StatusUnknown || a.Review != "" {
		t.Errorf("other account: got %+v, %v", a, p)
	}
	if a, p := hand("acct_1", ""); p != nil || a.Status != operation.StatusUnknown {
		t.Errorf("no label: got %+v, %v", a, p)
	}
	if a, p := hand("acct_1", operation.Label(s.Intent.IdempotencyKey)); p != nil || a.Status != operation.StatusConfirmed || a.ExternalID != "731" {
		t.Errorf("own label: got %+v, %v", a, p)
	}
}

// Lists filter and page.
func TestListFiltersAndPages(t *testing.T) {
	f := newFixture(t)
	for i := range 25 {
		raw := fmt.Appendf(nil, `{"operation_id":"op-%02d","provider":"crm","account":"main","action":"task.create",
			"args":{"title":"a"},"request_id":"r-%d","labels":{"team":"t%d"}}`, i, i%5, i%2)
		mustSubmit(t, f, "acme", raw)
	}
	var ids []string
	cursor := ""
	for {
		page, p := f.List(t.Context(), "acme", fmt.Appendf(nil, `{"limit":10,"cursor":%q}`, cursor))
		if p != nil {
			t.Fatal(p)
		}
		for _, a := range page.Operations {
			ids = append(ids, a.OperationID)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if len(ids) != 25 || ids[0] != "op-00" || ids[24] != "op-24" {
		t.Errorf("got %v, want all in order", ids)
	}
	for filter, want := range map[string]int{
		`{"request_id":"r-1"}`: 5, `{"label":"team=t1"}`: 12, `{"label":"team"}`: 25, `{"label":"none"}`: 0,
		`{"status":["confirmed"]}`: 0, `{"status":["pending"]}`: 25, `{"review":true}`: 0, `{"external_id":"1"}`: 0,
		`{"provider":"crm"}`: 25, `{"older_than_ms":1000}`: 0,
	} {
		page, p := f.List(t.Context(), "acme", []byte(filter))
		if p != nil || len(page.Operations) != want {
			t.Errorf("%s: got %d, %v, want %d", filter, len(page.Operations), p, want)
		}
	}
}

// A decision needs the version that was seen, an actor and a reason.
func TestDecisionOnAnOldVersionIsRefused(t *testing.T) {
	f := newFixture(t)
	mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
	_, p := f.Decide(t.Context(), "acme", []byte(`{"operation_id":"op-1","decision":"reject","expect_version":9,"actor":"ada","reason":"no"}`))
	if p == nil || p.Code != api.ProblemRefused || p.Reason != string(operation.RefusalMoved) {
		t.Errorf("got %v, want version_moved", p)
	}
	a, p := f.Cancel(t.Context(), "acme", []byte(`{"operation_id":"op-1","actor":"ada","reason":"changed my mind"}`))
	if p != nil || a.Status != operation.StatusRejected || !a.RetrySafe || a.Via != events.ViaCancelled {
		t.Errorf("cancel: got %+v, %v", a, p)
	}
}

// A store that does not answer is no conflict: the agent must not be told that
// the wish on its way needs a new id.
func TestRepeatWhileTheContractStoreIsDownIsUnavailable(t *testing.T) {
	f := newFixture(t)
	mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
	f.shop.down = true
	if _, p := f.Submit(t.Context(), "acme", wish("op-1", `{"title":"a"}`)); p == nil || p.Code != api.ProblemUnavailable {
		t.Errorf("got %v, want unavailable", p)
	}
}

// I7: an approval that comes with a repeat never binds what its approver did
// not see.
func TestApprovalWithARepeatBindsOnlyWhatWasSeen(t *testing.T) {
	f := newFixture(t)
	f.shop.contract.RiskAllowed = true
	sub := func(extra string) *api.Problem {
		_, p := f.Submit(t.Context(), "trusted", fmt.Appendf(nil,
			`{"operation_id":"op-1","provider":"crm","account":"main","action":"task.create","args":{"title":"a"},"require_approval":{}%s}`, extra))
		return p
	}
	if p := sub(`,"on_unknown":"declared_risk"`); p != nil {
		t.Fatal(p)
	}
	if p := sub(`,"on_unknown":"review_only","approval":{"approver":"ann","expires_at":"2026-11-30T13:00:00Z"}`); p == nil || p.Code != api.ProblemDigestMismatch {
		t.Errorf("got %v, want the approval refused", p)
	}
	s, err := f.ledger.Truth(t.Context(), "trusted", "op-1")
	if err != nil || s.Approval != nil {
		t.Errorf("got approval %+v, %v, want none", s.Approval, err)
	}
}

// Members that differ only in the case of their letters are refused: the decoder
// would take the last one.
func TestMembersInOtherLettersAreRefused(t *testing.T) {
	f := newFixture(t)
	for _, raw := range []string{
		`{"operation_id":"op-a","provider":"crm","account":"main","action":"task.create","args":{"title":"a"},"ARGS":{"title":"b"}}`,
		`{"operation_id":"op-a","provider":"crm","account":"main","action":"task.create","args":{"title":"a"},"origin":{"Agent":"x"}}`,
	} {
		if _, p := f.Submit(t.Context(), "acme", []byte(raw)); p == nil || p.Code != api.ProblemMalformed {
			t.Errorf("got %v, want it refused", p)
		}
	}
	mustSubmit(t, f, "acme", []byte(`{"operation_id":"op-b","provider":"crm","account":"main","action":"task.create","args":{"title":"a","Other":1},"labels":{"Team":"x"}}`))
}
