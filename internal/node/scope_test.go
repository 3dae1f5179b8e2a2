package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/simulator"
)

// Case A20 (tetsuo-ai/agenc-core#1751): an unknown operation blocks its own
// scope and nothing else; once it is resolved, the next one of the scope runs.
func TestCaseA20UnknownBlocksItsOwnScopeOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{
		contract: "sim-nothing", vars: map[string]string{"total": "1s", "late_apply": "100ms"},
		rules: []simulator.Rule{{Method: "POST", Times: 1, Do: simulator.LoseResponse}},
	})
	c, o := w.client("acme-agent"), w.client("acme-operator")
	submit := func(id, scope string) {
		t.Helper()
		r := wish(id)
		r.Provider, r.ConflictScope = providerOf(t, "sim-nothing"), scope
		if _, err := c.Submit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	submit("op-1", "lead-9")
	first := w.settle(c, "op-1")
	if first.Status != operation.StatusUnknown {
		t.Fatalf("op-1 is %s, want unknown", first.Status)
	}
	submit("op-2", "")
	submit("op-3", "lead-9")
	if a := w.settle(c, "op-2"); a.Status != operation.StatusConfirmed {
		t.Errorf("op-2 has another target and is %s, want confirmed", a.Status)
	}
	until(t, func() bool {
		a, err := c.Get(t.Context(), api.GetRequest{OperationID: "op-3", Detail: true})
		return err == nil && a.NextReason == operation.ReasonScopeHeld && a.ScopeTakenBy == "op-1" && a.Status == operation.StatusPending
	})
	w.objects(2) // op-1 and op-2
	if _, err := o.Decide(t.Context(), api.DecideRequest{
		OperationID: "op-1", Decision: events.DecideConfirm, ExpectVersion: first.Version, ExternalID: "seen-1", Actor: "ada", Reason: "asked the provider",
	}); err != nil {
		t.Fatal(err)
	}
	if a := w.settle(c, "op-3"); a.Status != operation.StatusConfirmed {
		t.Errorf("op-3 is %s after op-1 was resolved, want confirmed", a.Status)
	}
	w.objects(3)
}

// detail returns the whole answer of an operation.
func (w *world) detail(id string) api.Answer {
	w.t.Helper()
	a, err := w.client("acme-operator").Get(w.t.Context(), api.GetRequest{OperationID: id, Detail: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// putOff makes the provider refuse the first request, for a reason that passes.
var putOff = simulator.Rule{Method: "POST", Nth: 1, Times: 1, Do: simulator.RateLimit, After: simulator.Duration(2 * time.Second)}

// keyedWorld is a world with the K1 contract.
func keyedWorld(t *testing.T, o options) *world {
	t.Helper()
	o.contract = "sim-keyed-nolookup"
	w := newWorld(t, o)
	if _, err := w.sim.PatchSettings(t.Context(), map[string]any{"keys": true}); err != nil {
		t.Fatal(err)
	}
	return w
}

// I8, case H89: the credential begins to belong to another account between two
// attempts: nothing is sent, and the reason is named.
func TestAccountSwitchBetweenAttemptsSendsNothing(t *testing.T) {
	t.Parallel()
	w := keyedWorld(t, options{vars: map[string]string{"total": "1s"}, rules: []simulator.Rule{putOff}})
	r := wish("op-1")
	r.Provider = providerOf(t, "sim-keyed-nolookup")
	if _, err := w.client("acme-agent").Submit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return w.sends() == 1 })
	if err := w.sim.ChangeAccount(t.Context(), simulator.AccountChange{Token: canarySecret, Account: "acct_2"}); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return w.detail("op-1").Review == events.ReviewAccountMismatch })
	if n := w.sends(); n != 1 {
		t.Errorf("got %d sends, want the first one only", n)
	}
	w.objects(0)
}

// I7, case H93: an approval that runs out while its operation is queued is not
// good at dispatch: nothing is sent, and the reason is named.
func TestApprovalExpiredWhileQueuedSendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{rules: []simulator.Rule{putOff}})
	c, o := w.client("acme-agent"), w.client("acme-approver")
	r := wish("op-1")
	r.RequireApproval = &api.RequireApproval{}
	a, err := c.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	approve := func(life time.Duration) {
		t.Helper()
		if _, err := o.Approve(t.Context(), api.ApproveRequest{
			OperationID: "op-1", IntentDigest: a.IntentDigest, Approver: "ada", ExpiresAt: time.Now().Add(life),
		}); err != nil {
			t.Fatal(err)
		}
	}
	approve(1500 * time.Millisecond)
	until(t, func() bool { return w.detail("op-1").NextReason == operation.ReasonApprovalExpired })
	if n := w.sends(); n != 1 {
		t.Errorf("got %d sends, want the first one only", n)
	}
	approve(time.Hour)
	if a := w.settle(c, "op-1"); a.Status != operation.StatusConfirmed {
		t.Errorf("got %s after a new approval, want confirmed", a.Status)
	}
	w.objects(1)
}

// I5, case D49: a key about to leave its retention is not sent again.
func TestKeyAboutToLeaveItsRetentionSendsNothing(t *testing.T) {
	t.Parallel()
	w := keyedWorld(t, options{
		vars:  map[string]string{"total": "1s", "retention": "5s", "margin": "2s"},
		rules: []simulator.Rule{{Method: "POST", Nth: 1, Times: 1, Do: simulator.LoseResponse}},
	})
	r := wish("op-1")
	r.Provider = providerOf(t, "sim-keyed-nolookup")
	if _, err := w.client("acme-agent").Submit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return w.detail("op-1").Review == events.ReviewKeyExpired })
	if n := w.sends(); n != 1 {
		t.Errorf("got %d sends, want 1", n)
	}
	w.objects(1)
}

// Cases D46, D51: what changes the bytes of a request after its first attempt
// keeps the second one from being sent.
func TestChangedBytesSendNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{
		rules:  []simulator.Rule{putOff},
		values: map[string]string{"team": "blue"},
		edit: func(contract string) string {
			return strings.Replace(contract, `note: "${args.note?}"`, `note: "for ${account.team}"`, 1)
		},
	})
	if _, err := w.client("acme-agent").Submit(t.Context(), wish("op-1")); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return w.detail("op-1").State.Started == 1 && w.sends() == 1 })
	if got := string(w.detail("op-1").Request); !strings.Contains(got, "for blue") {
		t.Errorf("the answer shows the request %s", got)
	}
	if err := w.node.Stop(); err != nil {
		t.Fatal(err)
	}
	w.cfg.Providers[0].Accounts[0].Values["team"] = "red"
	w.start()
	until(t, func() bool { return w.detail("op-1").Review == events.ReviewRequestChanged })
	if n := w.sends(); n != 1 {
		t.Errorf("got %d sends, want the first one only", n)
	}
	w.objects(0)
}
