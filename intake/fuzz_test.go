package intake_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// FuzzRequests: whatever bytes come on whatever verb, the answer is an answer or
// a whole problem object, no word of the arguments is in it, nobody else's
// operation moves, and an intent that was taken is taken again as a repeat.
func FuzzRequests(f *testing.F) {
	verbs := api.Verbs()
	for i := range verbs {
		f.Add(uint8(i), []byte(`{"operation_id":"op-1"}`))
		f.Add(uint8(i), []byte(`{"operation_id":"other"}`))
	}
	for _, raw := range []string{
		string(wish("op-2", `{"title":"x"}`)), `{"operation_id":"a","operation_id":"b"}`, `{"labels":{"a":"b"}}`, "", "{", "[]", "null", `{"args":null}`,
		`{"source":"mail","source_event_id":"m-1","provider":"crm","account":"main","action":"task.create","args":{"title":"x"},"approval":{"approver":"ada"}}`,
		`{"operation_id":"op-1","decision":"permit","expect_version":1,"actor":"ada","reason":"r"}`,
		`{"operation_id":"op-1","evidence_source":"webhook","actor":"a","external_id":"T-1","account_provider_id":"acct_1","label":"x"}`,
		`{"operation_id":"op-1","intent_digest":"sha256-jcs:00","approver":"ada","expires_at":"9999-12-31T23:59:59-23:59"}`,
		`{"limit":-1,"after":"\u0000","older_than_ms":9007199254740991}`,
	} {
		for i := range verbs {
			f.Add(uint8(i), []byte(raw))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) {
		x := newFixture(t)
		mustSubmit(t, x, "acme", wish("op-1", `{"title":"`+canary+`"}`))
		mustSubmit(t, x, "trusted", wish("other", `{"title":"`+canary+`"}`))
		before := len(stored(t, x, "trusted", "other"))
		verb := verbs[int(which)%len(verbs)]
		a, p := call(x, verb, "acme", raw)
		out, err := json.Marshal(map[string]any{"answer": a, "problem": p})
		if err != nil {
			t.Fatalf("%s: the answer can't be encoded: %v", verb, err)
		}
		if p != nil && (p.Code == "" || p.Title == "" || p.Status < 400 || p.Say == "" || p.Type == "") {
			t.Errorf("%s: got half a problem: %+v", verb, p)
		}
		if p != nil && strings.Contains(p.Detail+p.Say+p.Title, canary) {
			t.Errorf("%s: the problem repeats an argument: %s", verb, out)
		}
		if len(stored(t, x, "trusted", "other")) != before {
			t.Errorf("%s moved an operation of another tenant", verb)
		}
		for _, op := range []string{"op-1", "op-2"} {
			s, err := x.ledger.Truth(t.Context(), "acme", op)
			if err != nil || s.Started > 0 || len(s.Anomalies) > 0 || s.Halted != "" && verb != api.VerbSubmit {
				t.Errorf("%s of %s: got %+v, %v", verb, op, s, err)
			}
		}
		if answer, ok := a.(api.Answer); verb == api.VerbSubmit && p == nil && ok {
			n := len(stored(t, x, "acme", answer.OperationID))
			b, p := x.Submit(t.Context(), "acme", raw)
			if p != nil || !b.Repeated || b.IntentDigest != answer.IntentDigest || len(stored(t, x, "acme", answer.OperationID)) != n {
				t.Errorf("again: got %+v, %v", b, p)
			}
			if events.CheckID("operation_id", answer.OperationID) != nil {
				t.Errorf("the id %q was taken", answer.OperationID)
			}
		}
	})
}

const canary = "canary-argument-7"

func stored(t *testing.T, f *fixture, tenant, op string) []events.Record {
	t.Helper()
	recs, err := f.ledger.Load(context.Background(), tenant, op)
	if err != nil {
		t.Fatal(err)
	}
	if s := operation.Fold(recs); len(s.Anomalies) > 0 {
		t.Errorf("%s of %s: what intake wrote does not fold: %v", op, tenant, s.Anomalies)
	}
	return recs
}

func call(f *fixture, verb, tenant string, raw []byte) (any, *api.Problem) {
	ctx := context.Background()
	switch verb {
	case api.VerbSubmit:
		return answered(f.Submit(ctx, tenant, raw))
	case api.VerbGet:
		return answered(f.Get(ctx, tenant, raw))
	case api.VerbWait:
		ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		return answered(f.Wait(ctx, tenant, raw))
	case api.VerbList:
		return answered(f.List(ctx, tenant, raw))
	case api.VerbEvidence:
		return answered(f.Evidence(ctx, tenant, raw))
	case api.VerbApprove:
		return answered(f.Approve(ctx, tenant, raw))
	case api.VerbDecide:
		return answered(f.Decide(ctx, tenant, raw))
	case api.VerbCancel:
		return answered(f.Cancel(ctx, tenant, raw))
	}
	panic("no such verb: " + verb)
}

func answered[T any](a T, p *api.Problem) (any, *api.Problem) { return a, p }
