package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/simulator"
)

// Case A2 (langchain-ai/langgraph!6603): ten publishes at once, from ten
// connections, in any spelling: one operation, ten equal answers, sends = 1.
func TestCaseA2TenPublishersOfOneOperationSendOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	spellings := []string{`{"title":"a","priority":3}`, `{"priority":3.0,"title":"a"}`, `{ "title" : "\u0061" , "priority":3 }`}
	digests, mu, wg := map[string]bool{}, sync.Mutex{}, sync.WaitGroup{}
	for i := range 10 {
		c := w.client("acme-agent")
		wg.Go(func() {
			r := wish("op-1")
			r.Args, r.Labels = json.RawMessage(spellings[i%len(spellings)]), map[string]string{"run": string(rune('a' + i))}
			a, err := c.Submit(t.Context(), r)
			if err != nil {
				t.Errorf("publisher %d: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			digests[a.IntentDigest] = true
		})
	}
	wg.Wait()
	if a := w.settle(w.client("acme-agent"), "op-1"); a.Status != operation.StatusConfirmed || a.Attempts != 1 || len(digests) != 1 {
		t.Errorf("got %+v, %d digests", a, len(digests))
	}
	if n := w.sends(); n != 1 {
		t.Errorf("got %d sends, want 1", n)
	}
}

// Case D56 (worldcoin/developer-portal!1608): the wanted repeat of equal arguments
// runs, through the bus as well.
func TestCaseD56WantedRepeatIsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c := w.client("acme-agent")
	for _, id := range []string{"op-1", "op-2"} {
		r := wish(id)
		r.RequestID = "r-1"
		if id == "op-2" {
			r.RepeatOf = "op-1"
		}
		if _, err := c.Submit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if a := w.settle(c, id); a.Status != operation.StatusConfirmed || a.PossibleRepeatOf != "" {
			t.Errorf("%s: got %+v", id, a)
		}
	}
	w.objects(2)
}

// A possible repeat is named whenever its first wish was answered before, however soon
// after that it comes.
func TestARepeatRightBehindTheAnswerIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c := w.client("acme-agent")
	for i := range 50 {
		first, again := wish(fmt.Sprintf("op-%d", i)), wish(fmt.Sprintf("again-%d", i))
		first.RequestID = fmt.Sprintf("r-%d", i)
		again.RequestID = first.RequestID
		if _, err := c.Submit(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		a, err := c.Submit(t.Context(), again)
		if err != nil || a.PossibleRepeatOf != first.OperationID {
			t.Fatalf("wish %d: got %+v, %v, want a possible repeat of %s", i, a, err, first.OperationID)
		}
	}
}

// Case H89 (tinyhumansai/openhuman#5751): the credential belongs to another account
// from the start: refused before anything is sent.
func TestCaseH89CredentialOfAnotherAccountSendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	if err := w.sim.ChangeAccount(t.Context(), simulator.AccountChange{Token: canarySecret, Account: "acct_2"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client("acme-agent").Submit(t.Context(), wish("op-1")); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return w.detail("op-1").Review == events.ReviewAccountMismatch })
	if n, a := w.sends(), w.detail("op-1"); n != 0 || a.Status != operation.StatusPending || a.State.Started != 0 {
		t.Errorf("got %d sends, %s, %d attempts", n, a.Status, a.State.Started)
	}
	w.objects(0)
}

// Case H93 (mcp-hangar/mcp-hangar#674): between approval and dispatch the arguments
// are handed in anew, and the contract changes: the one is a conflict, the other
// changes nothing of what was approved, and a new wish needs a new approval.
func TestCaseH93WhatWasApprovedIsWhatIsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{rules: []simulator.Rule{putOff}})
	c, o := w.client("acme-agent"), w.client("acme-approver")
	r := wish("op-1")
	r.RequireApproval = &api.RequireApproval{}
	a, err := c.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	approve := func(id, digest string) error {
		_, err := o.Approve(t.Context(), api.ApproveRequest{
			OperationID: id, IntentDigest: digest, Approver: "ada", ExpiresAt: time.Now().Add(time.Hour),
		})
		return err
	}
	if err := approve("op-1", a.IntentDigest); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return w.sends() == 1 })
	other := r
	other.Args = json.RawMessage(`{"title":"another text"}`)
	_, err = c.Submit(t.Context(), other)
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.ProblemConflict {
		t.Errorf("got %v, want a conflict", err)
	}
	if err := w.node.Stop(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(strings.TrimPrefix(w.cfg.Providers[0].Accounts[0].Secrets["token"], "file://")), "contract.yaml")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer("revision: 1", "revision: 2", `title: "${args.title}"`+"\n", `title: "new: ${args.title}"`+"\n").Replace(string(old))
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	c, o = w.client("acme-agent"), w.client("acme-approver")
	if got := w.settle(c, "op-1"); got.Status != operation.StatusConfirmed {
		t.Errorf("op-1: got %s", got.Status)
	}
	objects, err := w.sim.Objects(t.Context(), simulator.ObjectFilter{})
	if err != nil || len(objects) != 1 || objects[0].Title != canaryArg {
		t.Errorf("got %+v, %v, want what was approved", objects, err)
	}
	r.OperationID = "op-2"
	b, err := c.Submit(t.Context(), r)
	if err != nil || b.NextAction != events.NextApproval || b.IntentDigest == a.IntentDigest {
		t.Errorf("op-2: got %+v, %v", b, err)
	}
	if err := approve("op-2", a.IntentDigest); err == nil {
		t.Error("the approval of the old revision was taken for the new one")
	}
	w.objects(1)
}
