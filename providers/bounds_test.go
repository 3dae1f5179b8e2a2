package providers_test

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/providertest"
)

// Every bound of the contract format holds at one below, at, and one above; the
// refusal names it.
func TestEveryBoundOfAContractHoldsAtItsEdge(t *testing.T) {
	t.Parallel()
	template := func(name string) string {
		data, err := providers.Template(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	crm, keyed := template("sim-crm"), template("sim-keyed")
	edit := func(text, old, replacement string) string {
		t.Helper()
		out := strings.Replace(text, old, replacement, 1)
		if out == text {
			t.Fatalf("%q is not in the contract", old)
		}
		return out
	}
	cut := func(text, from, to string) string {
		t.Helper()
		_, rest, ok := strings.Cut(text, from)
		part, _, end := strings.Cut(rest, to)
		if !ok || !end {
			t.Fatalf("no part from %q to %q", from, to)
		}
		return from + part
	}
	action := cut(crm, "  task.create:\n", "    limits: {concurrency")
	look := cut(crm, "      - name: by-label\n", "    absence:")
	for name, c := range map[string]struct {
		limit int
		build func(n int) string
		text  string
	}{
		"bytes of the file": {providers.MaxFileBytes, func(n int) string { return crm + strings.Repeat("#", n-len(crm)) }, "bytes, the limit is"},
		"nesting of a schema": {32, func(n int) string {
			// Of the schema: its member is one level, each list another one.
			return edit(crm, "        type: object\n", "        type: object\n        examples: ["+strings.Repeat("[", n-2)+"1"+strings.Repeat("]", n-2)+"]\n")
		}, "nested deeper than"},
		"actions": {256, func(n int) string {
			var b strings.Builder
			for i := range n - 1 {
				fmt.Fprintf(&b, "%s", strings.Replace(compact, "NAME", fmt.Sprint("a", i), 1))
			}
			return edit(minimal, "actions:\n", "actions:\n"+b.String())
		}, "there must be 1 to 256 actions"},
		"outcomes": {128, func(n int) string {
			has := strings.Count(action, "      - {is:")
			return edit(crm, "    outcomes:\n", "    outcomes:\n"+strings.Repeat("      - {is: uncertain, status: [599]}\n", n-has))
		}, "rules, the limit is 128"},
		"lookups": {8, func(n int) string {
			var b strings.Builder
			for i := range n - 1 {
				b.WriteString(strings.Replace(look, "by-label", fmt.Sprint("by-label-", i), 1))
			}
			return edit(crm, "    lookups:\n", "    lookups:\n"+b.String())
		}, "lookups, the limit is 8"},
		"schedule": {64, func(n int) string {
			var times []string
			for i := range n {
				times = append(times, fmt.Sprint(i+1, "s"))
			}
			return edit(crm, "schedule: [2s, 10s, 30s, 2m, 10m, 1h]", "schedule: ["+strings.Join(times, ", ")+"]")
		}, "looks, the limit is 64"},
		"attempts": {100, func(n int) string {
			_, rest, _ := strings.Cut(keyed, "max_attempts: ")
			now, _, _ := strings.Cut(rest, "\n")
			return edit(keyed, "max_attempts: "+now, fmt.Sprint("max_attempts: ", n))
		}, "must be from 1 to 100"},
		"pages of a look": {100, func(n int) string {
			return edit(crm, "param: cursor, max: 5}", fmt.Sprintf("param: cursor, max: %d}", n))
		}, "must be from 1 to 100"},
		"parts of a pointer": {32, func(n int) string {
			return edit(crm, "error_code: /error/code", "error_code: "+strings.Repeat("/x", n))
		}, "parts, the limit is 32"},
		"days of a duration": {3650, func(n int) string { return edit(keyed, "retention: 24h", fmt.Sprintf("retention: %dd", n)) }, "duration"},
		"seconds of a worker": {int(providers.MaxWorkTotal / time.Second), func(n int) string {
			return edit(remoteContract, "total: 5s", fmt.Sprintf("total: %ds", n))
		}, "not open for longer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, beyond := range []int{-1, 0, 1} {
				_, err := providers.Parse("edge.yaml", []byte(c.build(c.limit+beyond)))
				if beyond <= 0 && err != nil || beyond > 0 && (err == nil || !strings.Contains(err.Error(), c.text)) {
					t.Errorf("%d beyond %d: got %.300v, want %q only beyond", beyond, c.limit, err, c.text)
				}
			}
		})
	}
}

// minimal is a contract with one action, compact one action more.
const (
	minimal = `
contract: opledger/v1
provider: small
api_version: v1
revision: 1
proof: documented
cite: [a test]
connection: {base_url: "https://api.example.com"}
actions:
` + compactTask
	compactTask = "  task.create:" + compactBody
	compact     = "  NAME:" + compactBody
	compactBody = ` {class: K5, args: {schema: {type: object}}, request: {method: POST, path: /x}, timing: {total: 1s, late_apply: 0s}, outcomes: [{is: success, status: [201], external_id: /id}], retry: {retention: none, max_attempts: 1}}
`
)

// Every bound of an answer holds at one below, at, and one above.
func TestEveryBoundOfAnAnswerHoldsAtItsEdge(t *testing.T) {
	t.Parallel()
	file := load(t, "sim-crm", nil)
	x := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		limit  int
		header func(n int) map[string]string
		body   func(n int) string
		inside func(n int, o operation.Outcome) bool
	}{
		"external id": {
			limit: providers.MaxExternalID, body: func(n int) string { return `{"id":"` + x(n) + `"}` },
			inside: func(n int, o operation.Outcome) bool {
				return o.Word == operation.OutcomeSuccess && len(o.ExternalID) == n
			},
		},
		"request id": {
			limit: 128, header: func(n int) map[string]string { return map[string]string{"X-Request-Id": x(n)} },
			inside: func(n int, o operation.Outcome) bool { return len(o.ProviderRequestID) == n },
		},
		"result that is kept": {
			limit: providers.MaxResultBytes, body: func(n int) string { return `{"id":"T-1","x":"` + x(n-len(`{"id":"T-1","x":""}`)) + `"}` },
			inside: func(n int, o operation.Outcome) bool {
				return o.Word == operation.OutcomeSuccess && len(o.Result) == n
			},
		},
		"answer": {
			limit: providers.MaxAnswerBytes, body: func(n int) string { return `{"id":"T-1"}` + strings.Repeat(" ", n-len(`{"id":"T-1"}`)) },
			inside: func(_ int, o operation.Outcome) bool { return o.Word == operation.OutcomeSuccess },
		},
		"error code": {
			limit: 64, body: func(n int) string { return `{"error":{"code":"` + x(n) + `"}}` },
			inside: func(n int, o operation.Outcome) bool { return strings.HasSuffix(o.Reason, " "+x(n)) },
		},
		"seconds of Retry-After": {
			limit: 86_400, header: func(n int) map[string]string { return map[string]string{"Retry-After": fmt.Sprint(n)} },
			inside: func(n int, o operation.Outcome) bool { return o.RetryAfter == time.Duration(n)*time.Second },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, beyond := range []int{-1, 0, 1} {
				n := c.limit + beyond
				peer := providertest.NewPeer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					status, body := 201, `{"id":"T-1"}`
					switch name {
					case "seconds of Retry-After":
						status = 429
					case "error code":
						status = 422
					}
					if c.header != nil {
						for k, v := range c.header(n) {
							w.Header().Set(k, v)
						}
					}
					if c.body != nil {
						body = c.body(n)
					}
					if r.Method == http.MethodGet {
						status, body = 200, `{"id":"`+testAccount+`"}`
					}
					providertest.Answer(status, body)(w, r)
				}))
				h := newHTTP(t, file, peer.URL)
				call := testCall(file, `{"title":"a"}`)
				if _, err := h.Probe(t.Context(), call); err != nil {
					t.Fatal(err)
				}
				o := doOnce(t, h, call)
				if c.inside(n, o) != (beyond <= 0) {
					o.Result, o.ExternalID = bytes.Clone(o.Result[:min(len(o.Result), 40)]), fmt.Sprint(len(o.ExternalID), " bytes")
					t.Errorf("%d beyond %d: got %+v", beyond, c.limit, o)
				}
			}
		})
	}
}

// The bodies that leave and the secrets that are read have bounds to the byte.
func TestRequestsAndSecretsAreBoundedExactly(t *testing.T) {
	t.Parallel()
	crm, files := load(t, "sim-nothing", nil), parseRemote(t)
	h := newHTTP(t, crm, fixedURL)
	w := newRemote(t, files, &line{})
	small := `{"title":"x"}`
	r, err := w.Prepare(testCall(files, small))
	if err != nil {
		t.Fatal(err)
	}
	work := len(r.Redacted().Body)
	for _, beyond := range []int{-1, 0, 1} {
		n := providers.MaxWorkBytes - work + 1 + beyond
		if _, err := w.Prepare(testCall(files, `{"title":"`+strings.Repeat("x", n)+`"}`)); (err != nil) != (beyond > 0) {
			t.Errorf("work, %d beyond: got %v", beyond, err)
		}
		first, err := h.Prepare(testCall(crm, small))
		if err != nil {
			t.Fatal(err)
		}
		n = providers.MaxRequestBytes - len(first.Redacted().Body) + 1 + beyond
		if _, err := h.Prepare(testCall(crm, `{"title":"`+strings.Repeat("x", n)+`"}`)); (err != nil) != (beyond > 0) {
			t.Errorf("request, %d beyond: got %v", beyond, err)
		}
		ref := fileRef(t, filepath.Join(t.TempDir(), "secret"), strings.Repeat("s", providers.MaxSecretBytes+beyond))
		if s, err := ref.Resolve(); (err != nil) != (beyond > 0) || err == nil && len(s.Reveal()) != providers.MaxSecretBytes+beyond {
			t.Errorf("secret, %d beyond: got %v", beyond, err)
		}
	}
}
