package intake_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/intake"
)

// Every bound of a request, as docs/limits.md names them, holds at one below, at,
// and one above.
func TestEveryBoundOfARequestHoldsAtItsEdge(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	with := func(member, value string) []byte {
		return []byte(strings.Replace(string(wish("op-1", `{"title":"a"}`)), `"args"`, fmt.Sprintf(`%q:%s,"args"`, member, value), 1))
	}
	text := func(member string) func(int) []byte {
		return func(n int) []byte { return with(member, `"`+x(n)+`"`) }
	}
	evidence := func(member string) func(int) []byte {
		return func(n int) []byte {
			m := map[string]any{"operation_id": "op-0", "evidence_source": "webhook", "actor": "hook", "external_id": "T-1", "account_provider_id": "acct_1"}
			m[member] = x(n)
			raw, _ := json.Marshal(m) // a map of texts
			return raw
		}
	}
	for name, c := range map[string]struct {
		limit int
		build func(n int) []byte
		code  api.ProblemCode
		verb  string
	}{
		"request": {limit: intake.MaxRequestSize, code: api.ProblemTooLarge, build: func(n int) []byte {
			raw := string(wish("op-1", `{"title":"a"}`))
			return []byte(raw + strings.Repeat(" ", n-len(raw)))
		}},
		"arguments": {limit: intake.MaxArgsSize, code: api.ProblemTooLarge, build: func(n int) []byte {
			return wish("op-1", `{"title":"`+x(n-len(`{"title":""}`))+`"}`)
		}},
		"nesting, the request itself counted": {limit: intake.MaxDepth, code: api.ProblemMalformed, build: func(n int) []byte {
			return wish("op-1", `{"title":"a","d":`+strings.Repeat(`[`, n-2)+"1"+strings.Repeat("]", n-2)+`}`)
		}},
		"length of a number": {limit: 64, code: api.ProblemMalformed, build: func(n int) []byte {
			return wish("op-1", `{"title":"a","n":1.`+strings.Repeat("0", n-2)+`}`)
		}},
		"operation id": {limit: 64, code: api.ProblemInvalidID, build: func(n int) []byte { return wish(x(n), `{"title":"a"}`) }},
		"scope":        {limit: 64, code: api.ProblemInvalidID, build: text("conflict_scope")},
		"labels": {limit: 16, code: api.ProblemTooLarge, build: func(n int) []byte {
			m := map[string]string{}
			for i := range n {
				m[fmt.Sprint("label", i)] = "v"
			}
			raw, _ := json.Marshal(m) // a map of texts
			return with("labels", string(raw))
		}},
		"label and value": {limit: 1024, code: api.ProblemTooLarge, build: func(n int) []byte { return with("labels", `{"name":"`+x(n-4)+`"}`) }},
		"request id":      {limit: 1024, code: api.ProblemTooLarge, build: text("request_id")},
		"requested by":    {limit: 1024, code: api.ProblemTooLarge, build: text("requested_by")},
		"basis":           {limit: 1024, code: api.ProblemTooLarge, build: text("basis")},
		"traceparent":     {limit: 1024, code: api.ProblemTooLarge, build: text("traceparent")},
		"origin": {limit: 1024, code: api.ProblemTooLarge, build: func(n int) []byte {
			return with("origin", `{"agent":"`+x(n/2)+`","run":"`+x(n-n/2)+`"}`)
		}},
		"external id of evidence": {limit: 512, code: api.ProblemTooLarge, build: evidence("external_id"), verb: api.VerbEvidence},
		"actor of evidence":       {limit: 1024, code: api.ProblemTooLarge, build: evidence("actor"), verb: api.VerbEvidence},
		"reason of evidence":      {limit: 1024, code: api.ProblemTooLarge, build: evidence("reason"), verb: api.VerbEvidence},
	} {
		t.Run(name, func(t *testing.T) {
			for _, beyond := range []int{-1, 0, 1} {
				f := newFixture(t)
				mustSubmit(t, f, "acme", wish("op-0", `{"title":"a"}`))
				verb := c.verb
				if verb == "" {
					verb = api.VerbSubmit
				}
				_, p := call(f, verb, "acme", c.build(c.limit+beyond))
				if beyond <= 0 && p != nil || beyond > 0 && (p == nil || p.Code != c.code) {
					t.Errorf("%d beyond %d: got %v", beyond, c.limit, p)
				}
			}
		})
	}
}

// A page has at most a thousand operations, whatever is asked for.
func TestAPageIsBoundedExactly(t *testing.T) {
	f := newFixture(t)
	for i := range intake.MaxList + 2 {
		mustSubmit(t, f, "acme", wish(fmt.Sprintf("op-%d", i), `{"title":"a"}`))
	}
	for _, beyond := range []int{-1, 0, 1} {
		page, p := f.List(t.Context(), "acme", fmt.Appendf(nil, `{"limit":%d}`, intake.MaxList+beyond))
		if p != nil || len(page.Operations) != min(intake.MaxList+beyond, intake.MaxList) {
			t.Errorf("%d beyond the limit: got %d, %v", beyond, len(page.Operations), p)
		}
	}
}

// One wait takes at most a minute, whatever is asked for.
func TestAWaitIsBoundedExactly(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		intake.MaxWait - time.Millisecond: intake.MaxWait - time.Millisecond, intake.MaxWait: intake.MaxWait,
		intake.MaxWait + time.Millisecond: intake.MaxWait, 0: intake.MaxWait, -time.Second: intake.MaxWait, 1 << 62: intake.MaxWait,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			mustSubmit(t, f, "acme", wish("op-1", `{"title":"a"}`))
			began := time.Now()
			if _, p := f.Wait(t.Context(), "acme", fmt.Appendf(nil, `{"operation_id":"op-1","timeout_ms":%d}`, asked.Milliseconds())); p != nil {
				t.Fatal(p)
			}
			if took := time.Since(began); took != want {
				t.Errorf("asked for %s: took %s, want %s", asked, took, want)
			}
		})
	}
}
