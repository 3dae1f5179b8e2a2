package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/simulator"
)

// The cases here are public reports of real failures; the provider's own table
// is the judge. "sends" counts requests that reached the provider.

func (w *world) sends() int {
	w.t.Helper()
	log, err := w.sim.Requests(w.t.Context(), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, r := range log.Items {
		if r.Method == "POST" {
			n++
		}
	}
	return n
}

// Case A1 (langchain-ai/langgraph#6792): a resumed run publishes an operation
// that was confirmed before: the stored result is returned, sends = 1.
func TestCaseA1ResumedRunGetsTheStoredResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c := w.client("acme-agent")
	if _, err := c.Submit(t.Context(), wish("op-1")); err != nil {
		t.Fatal(err)
	}
	first := w.settle(c, "op-1")
	for range 5 {
		until(t, func() bool {
			a, err := c.Submit(t.Context(), wish("op-1"))
			return err == nil && a.Repeated && a.Status == operation.StatusConfirmed && a.ExternalID == first.ExternalID
		})
	}
	if n := w.sends(); n != 1 {
		t.Errorf("got %d sends, want 1", n)
	}
}

// Case A4 (langchain-ai/langgraph#9002): a compensation published twice is sent
// once, and is linked to what it compensates.
func TestCaseA4CompensationIsSentOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c := w.client("acme-agent")
	if _, err := c.Submit(t.Context(), wish("op-1")); err != nil {
		t.Fatal(err)
	}
	w.settle(c, "op-1")
	undo := wish("op-1c")
	undo.Compensates = "op-1"
	for range 2 {
		if _, err := c.Submit(t.Context(), undo); err != nil {
			t.Fatal(err)
		}
	}
	w.settle(c, "op-1c")
	a, err := c.Get(t.Context(), api.GetRequest{OperationID: "op-1c", Detail: true})
	if err != nil || a.State.Intent.Compensates != "op-1" {
		t.Errorf("got %+v, %v, want the link", a, err)
	}
	if n := w.sends(); n != 2 {
		t.Errorf("got %d sends, want one for each operation", n)
	}
}

// Cases A5, A6, A18, E63 (langchain-ai/langchain#40688): the tool is called six
// times after a lost answer, and the contract has no key: sends = 1, six equal
// answers that say unknown and being checked, and never invite a retry.
func TestCaseA6SixCallsAfterALostAnswerSendOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{
		vars:  map[string]string{"total": "2s", "late_apply": "200ms", "lag": "1m", "schedule": "30s, 1m"},
		rules: []simulator.Rule{{Method: "POST", Nth: 1, Times: 1, Do: simulator.LoseResponse}},
	})
	c := w.client("acme-agent")
	if _, err := c.Submit(t.Context(), wish("op-1")); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		a, err := c.Get(t.Context(), api.GetRequest{OperationID: "op-1"})
		return err == nil && a.Status == operation.StatusUnknown
	})
	said := make(map[string]bool)
	for range 6 {
		a, err := c.Submit(t.Context(), wish("op-1"))
		if err != nil {
			t.Fatal(err)
		}
		if a.Status != operation.StatusUnknown || a.RetrySafe || a.NextAction != events.NextReconcile || a.NextAt.IsZero() || a.AttemptID == "" {
			t.Errorf("got %+v", a)
		}
		said[a.Say] = true
	}
	if len(said) != 1 {
		t.Errorf("got answers %v, want one text", said)
	}
	for text := range said {
		for _, banned := range []string{"retry", "again", "resend", "repeat", "failed"} {
			if strings.Contains(strings.ToLower(text), banned) {
				t.Errorf("the model is told %q", text)
			}
		}
		if !strings.Contains(text, "checked") || !strings.Contains(text, "news by 20") {
			t.Errorf("the model is told %q, want that it is being checked, and by when", text)
		}
	}
	if n := w.sends(); n != 1 {
		t.Errorf("got %d sends, want 1", n)
	}
}

// Case A11 (microsoft/agent-framework#3938): a turn of three effects fails at
// the third and is replayed whole: each was sent once.
func TestCaseA11ReplayedTurnSendsEachEffectOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{rules: []simulator.Rule{{
		Method: "POST", BodyContains: "notify", Nth: 1, Times: 1, Do: simulator.Refuse,
	}}})
	c := w.client("acme-agent")
	turn := func() {
		for _, step := range []string{"charge", "mark", "notify"} {
			r := wish("turn-7-" + step)
			r.Args = json.RawMessage(`{"title":"` + step + `"}`)
			if _, err := c.Submit(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	turn()
	turn()
	for _, step := range []string{"charge", "mark", "notify"} {
		if a := w.settle(c, "turn-7-"+step); a.Status != operation.StatusConfirmed {
			t.Errorf("%s: got %s", step, a.Status)
		}
	}
	turn()
	w.objects(3)
}

// Case F70 (google/go-github#2706): an older webhook after the confirmation is
// kept as evidence and changes nothing.
func TestCaseF70OlderWebhookChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c, o := w.client("acme-agent"), w.client("acme-operator")
	if _, err := c.Submit(t.Context(), wish("op-1")); err != nil {
		t.Fatal(err)
	}
	before := w.settle(c, "op-1")
	a, err := o.Evidence(t.Context(), api.EvidenceRequest{
		OperationID: "op-1", Source: events.SourceWebhook, AccountProviderID: "acct_1", ExternalID: "stale-1",
		Actor: "hook", Reason: "pending",
	})
	if err != nil || a.Status != operation.StatusConfirmed || a.ExternalID != before.ExternalID {
		t.Errorf("got %+v, %v", a, err)
	}
}

// Case G85 (triggerdotdev/trigger.dev#4819): single and durable intake are one
// code path: the same table through both, with equal verdicts.
func TestCaseG85BothWaysInGiveOneVerdict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	nc, _ := w.connect("acme-agent")
	c := w.client("acme-agent")
	refused, err := nc.SubscribeSync(events.Subjects{}.Refused("acme"))
	if err != nil {
		t.Fatal(err)
	}
	for i, raw := range []string{
		`{"operation_id":"g-%s","provider":"crm","account":"main","action":"task.create","args":{"title":"a"}}`,
		`{"operation_id":"g-%s","provider":"crm","account":"main","action":"task.drop","args":{"title":"a"}}`,
		`{"operation_id":"g-%s","provider":"crm","account":"main","action":"task.create","args":{"title":""}}`,
		`{"operation_id":"g-%s","provider":"crm","account":"main","action":"task.create","args":{"title":"a"},"extra":1}`,
	} {
		_, err := c.SubmitRaw(t.Context(), fmt.Appendf(nil, raw, fmt.Sprintf("s%d", i)))
		single := ""
		if p, ok := errors.AsType[*api.Problem](err); ok {
			single = string(p.Code)
		}
		id := fmt.Sprintf("i%d", i)
		if _, err := nc.Request(events.Subjects{}.Inbox("acme"), fmt.Appendf(nil, raw, id), 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if single == "" {
			until(t, func() bool { _, err := c.Get(t.Context(), api.GetRequest{OperationID: "g-" + id}); return err == nil })
			continue
		}
		m, err := refused.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(m.Data), `"code":"`+single+`"`) {
			t.Errorf("case %d: the service says %s, the inbox %s", i, single, m.Data)
		}
	}
}
