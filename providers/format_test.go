package providers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/providertest"
)

// upsertFile is a contract of class K3: the object is found by the caller's own
// reference, and its label is the mark of the operation that wrote it last.
const upsertFile = `
contract: opledger/v1
provider: upsert
api_version: v1
revision: 1
proof: documented
cite: [a test]
connection:
  base_url: "${account.base_url}"
  allow_loopback: true
  auth: {header: Authorization, value: "Bearer ${secret.token}"}
actions:
  task.create:
    class: K3
    scope: "task ${args.ref}"
    uniqueness: weak
    args:
      schema:
        type: object
        required: [ref, title]
        additionalProperties: false
        properties: {ref: {type: string}, title: {type: string}, owner: {type: string}}
    request:
      method: PUT
      path: "/v1/tasks/by-ref/${args.ref}"
      encoding: json
      body: {title: "${args.title}", label: "${op.label}"}
    timing: {total: 5s, late_apply: 10s}
    outcomes:
      - {is: success, status: [200, 201], external_id: /id}
      - {is: success, status: [204], external_id: "${args.ref}"}
    retry: {retention: forever, max_attempts: 4}
    lookups:
      - name: by-ref
        consistency: direct
        request: {method: GET, path: /v1/tasks, query: {ref: "${args.ref}"}}
        items: /items
        match:
          - {at: /ref, equals: "${args.ref}"}
          - {at: /label, equals: "${op.label}"}
        external_id: /id
        created_at: /created_at
        schedule: [1s, 10s]
`

// graphFile is a contract of class K2 over GraphQL.
const graphFile = `
contract: opledger/v1
provider: graph
api_version: v1
revision: 1
proof: documented
cite: [a test]
connection:
  base_url: "${account.base_url}"
  allow_loopback: true
  auth: {header: Authorization, value: "${secret.token}"}
actions:
  task.create:
    class: K2
    args:
      schema:
        type: object
        required: [title]
        properties: {title: {type: string}}
    request:
      method: POST
      path: /graphql
      encoding: graphql
      body:
        query: "mutation($i: In!) { make(input: $i) { id } }"
        variables: {i: {id: "${op.uuid_v4}", title: "${args.title}"}}
    key: {in: body, name: /variables/i/id, value: "${op.uuid_v4}", max_len: 36}
    timing: {total: 5s, late_apply: 10s}
    outcomes:
      - {is: success, status: [200], body: [{at: /data/make/id, exists: true}], external_id: /data/make/id}
    retry: {retention: forever, max_attempts: 4}
    lookups:
      - name: by-id
        consistency: direct
        request:
          method: POST
          path: /graphql
          encoding: graphql
          body:
            query: "query($id: ID!, $after: String) { things(id: $id, after: $after) { nodes { id } pageInfo { hasNextPage endCursor } } }"
            variables: {id: "${op.uuid_v4}"}
        paging: {next: /data/things/pageInfo/endCursor, more: /data/things/pageInfo/hasNextPage, param: /variables/after, in: body, max: 3}
        items: /data/things/nodes
        match:
          - {at: /id, equals: "${op.uuid_v4}"}
        external_id: /id
        schedule: [1s, 10s]
`

// unprobed makes an adapter for a contract without an account probe.
func unprobed(t testing.TB, f *providers.File, baseURL string) *providers.HTTP {
	t.Helper()
	h, err := providers.NewHTTP(providers.HTTPConfig{File: f, Accounts: map[string]providers.Account{
		"main": {BaseURL: baseURL, ProviderID: testAccount, AllowLoopback: true, Secrets: map[string]providers.SecretRef{"token": secretRef(t, testToken)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func parse(t testing.TB, text string) *providers.File {
	t.Helper()
	f, err := providers.Parse("contract.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// without drops every line that begins with one of the marks.
func without(text string, marks ...string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		keep := true
		for _, m := range marks {
			keep = keep && !strings.HasPrefix(strings.TrimSpace(line), m)
		}
		if keep {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func TestAnUpsertIsRepeatedUnderItsScope(t *testing.T) {
	t.Parallel()
	c, _ := parse(t, upsertFile).Contract("task.create")
	if c.Class != operation.ClassUpsert || !c.KeySupported || c.Retention != operation.Forever || !c.Scoped || !c.UniqueWeak {
		t.Errorf("with a mark: got %+v", c)
	}
	if !c.Lookup.Available || c.Lookup.Name != "by-ref" || len(c.Lookup.Schedule) != 2 {
		t.Errorf("with a mark: got %+v", c.Lookup)
	}
	once := strings.NewReplacer("retention: forever, max_attempts: 4", "retention: unknown").Replace(upsertFile)
	if c, _ = parse(t, once).Contract("task.create"); c.KeySupported || c.Retention != 0 || c.MaxAttempts != 1 {
		t.Errorf("without retention: got %+v", c)
	}
}

// An external key is no mark of the operation: that an object has it confirms
// nothing, and a look that says "looks alike" would stop the harmless repeat.
func TestAnUpsertWithoutAMarkHasNoLookupThatConfirms(t *testing.T) {
	t.Parallel()
	f := parse(t, without(strings.ReplaceAll(upsertFile, `, label: "${op.label}"`, ""), "- {at: /label", "schedule:"))
	c, _ := f.Contract("task.create")
	if c.Lookup.Available || c.Lookup.Name != "" || !c.KeySupported {
		t.Errorf("got %+v", c)
	}
	peer := providertest.NewPeer(t, providertest.Answer(200, `{"items":[{"id":"T1","ref":"r"},{"id":"T2","ref":"r"}]}`))
	look := unprobed(t, f, peer.URL).Lookup(t.Context(), testCall(f, `{"ref":"r","title":"a"}`))
	if len(look.Matches) != 0 || len(look.Weak) != 2 {
		t.Errorf("got %+v", look)
	}
}

func TestALookOfAnUpsertPassesByWhatAnotherOperationWrote(t *testing.T) {
	t.Parallel()
	f := parse(t, upsertFile)
	peer := providertest.NewPeer(t, providertest.Answer(200,
		`{"items":[{"id":"T1","ref":"r","label":"other"},{"id":"T2","ref":"r","label":"`+testLabel+`","created_at":"2026-01-01T00:00:00Z"}]}`))
	look := unprobed(t, f, peer.URL).Lookup(t.Context(), testCall(f, `{"ref":"r","title":"a"}`))
	if len(look.Weak) != 0 || len(look.Matches) != 1 || look.Matches[0] != "T2" {
		t.Errorf("got %+v", look)
	}
	if want := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); !look.CreatedAt.Equal(want) {
		t.Errorf("created: got %s, want %s", look.CreatedAt, want)
	}
}

// A read by the external key that finds no object has been answered; a list that
// is not there has not.
func TestNotFoundIsEmptyForAReadByTheExternalKey(t *testing.T) {
	t.Parallel()
	const list = `path: /v1/tasks, query: {ref: "${args.ref}"}}`
	for path, failed := range map[string]bool{list: true, `path: "/v1/tasks/by-ref/${args.ref}"}`: false} {
		f := parse(t, strings.Replace(upsertFile, list, path, 1))
		peer := providertest.NewPeer(t, providertest.Answer(404, `{}`))
		look := unprobed(t, f, peer.URL).Lookup(t.Context(), testCall(f, `{"ref":"r","title":"a"}`))
		if look.Failed != failed || look.PagesComplete == failed {
			t.Errorf("%s: got %+v", path, look)
		}
	}
}

// Contracts of the newer kinds pass the suite that every adapter must pass.
func TestUpsertAndGraphQLContractsPassTheSuite(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/tasks", providertest.Answer(200, `{"items":[]}`))
	mux.HandleFunc("PUT /v1/tasks/by-ref/{ref}", providertest.Answer(201, `{"id":"T-1"}`))
	mux.HandleFunc("POST /graphql", providertest.Answer(200, `{"data":{"make":{"id":"T-1"}}}`))
	// The suite takes an answer without a body for one that says nothing, and any
	// request but a GET for a write.
	noBody := without(upsertFile, "- {is: success, status: [204]")
	noLook, _, _ := strings.Cut(graphFile, "    lookups:")
	for name, tt := range map[string]struct {
		text, args string
		lookup     bool
	}{
		"upsert":  {noBody, `{"ref":"r","title":"call back"}`, true},
		"graphql": {noLook, `{"title":"call back"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := parse(t, tt.text)
			providertest.Run(t, func(t *testing.T, baseURL string) (providers.Adapter, providers.Call) {
				return unprobed(t, f, baseURL), testCall(f, tt.args)
			}, providertest.Features{Usual: mux, ExternalID: "T-1", Key: true, Lookup: tt.lookup, Probe: testAccount, Configured: true})
		})
	}
}

func TestAnUpsertMayNameItsObjectByTheExternalKey(t *testing.T) {
	t.Parallel()
	f := parse(t, upsertFile)
	peer := providertest.NewPeer(t, providertest.Answer(204, ""))
	o := doOnce(t, unprobed(t, f, peer.URL), testCall(f, `{"ref":"r 1","title":"a"}`))
	if o.Word != operation.OutcomeSuccess || o.ExternalID != "r 1" {
		t.Errorf("got %+v", o)
	}
}

// P4: what can't be safe is refused, with file, line and field.
func TestAnUpsertOrAQueryThatCantBeSafeIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ file, old, replacement, want string }{
		"K3 without scope":               {upsertFile, `    scope: "task ${args.ref}"` + "\n", "", "scope: class K3 needs a scope"},
		"K3 with a fixed scope":          {upsertFile, `scope: "task ${args.ref}"`, `scope: tasks`, "scope: class K3 needs a scope"},
		"K3 whose scope isn't written":   {upsertFile, `by-ref/${args.ref}`, "by-ref/x", "the request does not use the argument of the scope"},
		"K3 with a key":                  {upsertFile, "    timing:", "    key: {in: path, value: \"${op.uuid}\"}\n    timing:", "class K3 has no key"},
		"K3 that forgets":                {upsertFile, "retention: forever", "retention: 24h, margin: 1h", "forever, none or unknown"},
		"K3 repeats without a retention": {upsertFile, "retention: forever", "retention: unknown", "max_attempts: without a key or provable absence"},
		"K3 assumed":                     {upsertFile, "proof: documented", "proof: assumed", "an assumed promise never repeats"},
		"K3 without a lookup":            {upsertFile, upsertFile[strings.Index(upsertFile, "    lookups:"):], "", "class K3 needs a lookup by the argument of its scope"},
		"K3 with a lookup by its mark":   {strings.Replace(upsertFile, `query: {ref: "${args.ref}"}`, `query: {label: "${op.label}"}`, 1), `          - {at: /ref, equals: "${args.ref}"}` + "\n", "", "class K3 needs a lookup by the argument of its scope"},
		"K3 with a soft rule":            {upsertFile, `equals: "${args.ref}"}`, `equals: "${args.ref}", soft: true}`, "class K3 has no soft rules"},
		"K3 that proves absence":         {upsertFile, "    lookups:", "    absence: {provable: true, empty_reads: 1}\n    lookups:", "class K3 proves no absence"},
		"K3 named by another argument":   {upsertFile, `external_id: "${args.ref}"`, `external_id: "${args.title}"`, "must be a JSON pointer, or a template with the operation's own id"},
		"weak and at once":               {upsertFile, "late_apply: 10s", "late_apply: 10s, concurrent_safe: true", "two requests at once may both create"},
		"template in a query":            {graphFile, "make(input: $i)", "make(title: ${args.title})", "query must be literal text: hand values over in variables"},
		"escaped template in a query":    {graphFile, "make(input: $i)", "make(title: $${args.title})", "query must be literal text"},
		"query that is no text":          {graphFile, `query: "mutation($i: In!) { make(input: $i) { id } }"`, "query: {a: b}", "has a query, which is text"},
		"graphql with another member":    {graphFile, "        variables: {i:", "        extra: 1\n        variables: {i:", `not "extra"`},
		"graphql by PUT":                 {graphFile, "method: POST", "method: PUT", "a graphql request is a POST"},
		"variables that are no mapping":  {graphFile, `variables: {i: {id: "${op.uuid_v4}", title: "${args.title}"}}`, "variables: []", "variables must be a mapping"},
		"success over every 200":         {graphFile, "body: [{at: /data/make/id, exists: true}], ", "", "success over a status of 2xx needs a condition on the body"},
		"conflict over every 200":        {graphFile, "    retry:", "      - {is: exists, status: [200]}\n    retry:", "exists over a status of 2xx needs a condition on the body"},
		"cursor without a place":         {graphFile, "param: /variables/after", "param: /vars/after", "no mapping that this pointer leads into"},
	}
	place := regexp.MustCompile(`^contract\.yaml:\d+: `)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(tt.file, tt.old) {
				t.Fatalf("the file does not contain %q", tt.old)
			}
			_, err := providers.Parse("contract.yaml", []byte(strings.Replace(tt.file, tt.old, tt.replacement, 1)))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			var load *providers.LoadError
			if !errors.As(err, &load) || !place.MatchString(load.Error()) {
				t.Errorf("no place in %v", err)
			}
		})
	}
}

func TestAScopeIsAnIDOfProviderAccountAndExternalKey(t *testing.T) {
	t.Parallel()
	f := parse(t, upsertFile)
	account := events.Account{Name: "main", ProviderID: "acct_1"}
	scope := func(args string, a events.Account) string {
		t.Helper()
		id, err := f.Scope("task.create", []byte(args), a)
		if err != nil {
			t.Fatal(err)
		}
		if err := events.CheckID("scope", id); err != nil || !strings.HasPrefix(id, "upsert-") || len(id) != len("upsert-")+32 {
			t.Errorf("got %q, %v", id, err)
		}
		return id
	}
	base := scope(`{"ref":"r","title":"a"}`, account)
	if got := scope(`{"ref":"r","title":"b"}`, account); got != base {
		t.Error("another title: got another scope")
	}
	if got := scope(`{"ref":" R ","title":"a"}`, account); got != base {
		t.Error("the same key in capitals, between blanks: got another scope, and many a provider takes both for one")
	}
	if got := scope(`{"ref":"r","title":"a"}`, events.Account{Name: "second name", ProviderID: "acct_1"}); got != base {
		t.Error("another name of the same account: got another scope")
	}
	for name, got := range map[string]string{
		"another key":     scope(`{"ref":"s","title":"a"}`, account),
		"another account": scope(`{"ref":"r","title":"a"}`, events.Account{Name: "main", ProviderID: "acct_2"}),
		"no id":           scope(`{"ref":"r","title":"a"}`, events.Account{Name: "main"}),
	} {
		if got == base {
			t.Errorf("%s: got the same scope", name)
		}
	}
	if got := load(t, "sim-crm", nil); got != nil {
		if id, err := got.Scope("task.create", []byte(`{"title":"a"}`), account); id != "" || err != nil {
			t.Errorf("no scope: got %q, %v", id, err)
		}
	}
	for name, args := range map[string]string{"missing": `{"title":"VALUE"}`, "object": `{"ref":{"VALUE":1}}`, "no JSON": `VALUE`} {
		if _, err := f.Scope("task.create", []byte(args), account); err == nil || strings.Contains(err.Error(), "VALUE") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := f.Scope("task.delete", nil, account); !errors.Is(err, providers.ErrUnknownAction) {
		t.Errorf("unknown action: got %v", err)
	}
}

// The scope of an operation is derived by the revision that it was accepted
// under, and is the same in every release: it is stored in intents.
func TestAScopeIsThatOfTheRevision(t *testing.T) {
	t.Parallel()
	old := parse(t, upsertFile)
	current := parse(t, strings.Replace(upsertFile, `scope: "task ${args.ref}"`, `scope: "${args.ref}"`, 1))
	store := &memory{data: map[string][]byte{old.Digest(): old.Bytes()}}
	r := newRegistry(t, store, current)
	account, args := events.Account{Name: "main", ProviderID: "acct_1"}, []byte(`{"ref":"r","title":"a"}`)
	now, err := r.Scope("upsert", "task.create", args, account)
	if err != nil {
		t.Fatal(err)
	}
	then, err := r.ScopeAs(t.Context(), old.Ref(), "upsert", "task.create", args, account)
	if err != nil || then == now {
		t.Errorf("got %q and %q, %v", now, then, err)
	}
	// The digest of "6:upsert\n6:acct_1\n6:task r\n".
	if want := "upsert-d2cf2b52e376b2a8d697405d287f80c4"; then != want {
		t.Errorf("got %q, want %q", then, want)
	}
	if _, err := r.Scope("upsert", "task.delete", args, account); !errors.Is(err, providers.ErrUnknownAction) {
		t.Errorf("unknown action: got %v", err)
	}
}

// I17: the v4-shaped id is derived, so it is the same on every attempt.
func TestTheV4ShapedIDIsDerivedAndWellFormed(t *testing.T) {
	t.Parallel()
	f := parse(t, graphFile)
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[string]bool)
	for i := range 16 {
		c := testCall(f, `{"title":"a"}`)
		c.Intent.IdempotencyKey = fmt.Sprintf("9f6c1f0e-6a53-5d0c-%xf6e-2f8f6f4a1b2c", i)
		if i > 3 {
			c.Intent.IdempotencyKey = fmt.Sprintf("9f6c1f0e-6a5%x-5d0c-8f6e-2f8f6f4a1b2c", i)
		}
		h := newHTTP(t, f, fixedURL)
		first, err := h.Prepare(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := h.Prepare(c)
		if err != nil || again.Digest != first.Digest {
			t.Errorf("second Prepare: got %v", err)
		}
		var body struct {
			Variables struct{ I struct{ ID string } }
		}
		if err := json.Unmarshal([]byte(first.Redacted().Body), &body); err != nil {
			t.Fatal(err)
		}
		if id := body.Variables.I.ID; !form.MatchString(id) || seen[id] {
			t.Errorf("key %s: got %q", c.Intent.IdempotencyKey, id)
		} else {
			seen[id] = true
		}
	}
}

// What an argument holds never becomes part of a query.
func TestAGraphQLQueryIsLiteralAndItsValuesAreVariables(t *testing.T) {
	t.Parallel()
	f := parse(t, graphFile)
	peer := providertest.NewPeer(t, providertest.Answer(200, `{"data":{"make":{"id":"x"}}}`))
	o := doOnce(t, unprobed(t, f, peer.URL), testCall(f, `{"title":"\") { id } evil: make(input: {}) { id } #"}`))
	if o.Word != operation.OutcomeSuccess || o.ExternalID != "x" {
		t.Errorf("got %+v", o)
	}
	var sent struct {
		Query     string
		Variables struct{ I map[string]string }
	}
	got := peer.Writes()[0]
	if err := json.Unmarshal(got.Body, &sent); err != nil {
		t.Fatal(err)
	}
	if sent.Query != "mutation($i: In!) { make(input: $i) { id } }" || !strings.HasPrefix(sent.Variables.I["title"], `")`) {
		t.Errorf("got %s", got.Body)
	}
	if got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("content type: got %q", got.Header.Get("Content-Type"))
	}
}

// GraphQL answers errors with status 200, and a field that failed is null: a
// look must not take that for "nothing there".
func TestALookOverGraphQLWithErrorsHasFailed(t *testing.T) {
	t.Parallel()
	f := parse(t, graphFile)
	for name, tt := range map[string]struct {
		body   string
		failed bool
	}{
		"nothing":         {`{"data":{"things":{"nodes":[],"pageInfo":{"hasNextPage":false,"endCursor":null}}}}`, false},
		"null errors":     {`{"data":{"things":{"nodes":[],"pageInfo":{"hasNextPage":false}}},"errors":null}`, false},
		"partial":         {`{"data":{"things":{"nodes":null,"pageInfo":{"hasNextPage":false}}},"errors":[{"message":"x"}]}`, true},
		"no data":         {`{"data":null}`, true},
		"no flag":         {`{"data":{"things":{"nodes":[],"pageInfo":{}}}}`, true},
		"more, no cursor": {`{"data":{"things":{"nodes":[],"pageInfo":{"hasNextPage":true,"endCursor":null}}}}`, true},
	} {
		peer := providertest.NewPeer(t, providertest.Answer(200, tt.body))
		got := unprobed(t, f, peer.URL).Lookup(t.Context(), testCall(f, `{"title":"a"}`))
		if got.Failed != tt.failed || got.PagesComplete == tt.failed {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestAnAccountIsUsedOnlyAtAnAllowedHost(t *testing.T) {
	t.Parallel()
	f := parse(t, upsertFile)
	account := providers.Account{BaseURL: "https://api.example.com", Secrets: map[string]providers.SecretRef{"token": secretRef(t, testToken)}}
	for _, tt := range []struct {
		list    []string
		allowed bool
	}{{nil, true}, {[]string{"api.example.com"}, true}, {[]string{"*.example.com"}, true}, {[]string{"example.com", "*.api.example.com"}, false}} {
		h, err := providers.NewHTTP(providers.HTTPConfig{File: f, Accounts: map[string]providers.Account{"main": account}, AllowHosts: tt.list})
		if (err == nil) != tt.allowed || err != nil && !errors.Is(err, providers.ErrEgress) {
			t.Errorf("%v: got %v", tt.list, err)
		}
		if h != nil {
			h.Close()
		}
		r, err := providers.NewRegistry([]providers.Configured{{File: f, Accounts: map[string]providers.Account{"main": account}}}, nil,
			providers.RegistryOptions{AllowHosts: tt.list})
		if (err == nil) != tt.allowed {
			t.Errorf("registry, %v: got %v", tt.list, err)
		}
		if r != nil {
			r.Close()
		}
	}
	if _, err := providers.NewHTTP(providers.HTTPConfig{File: f, AllowHosts: []string{"*"}}); !errors.Is(err, providers.ErrEgress) {
		t.Errorf("a list that is none: got %v", err)
	}
	account.Values = map[string]string{"region": "a\r\nHost: evil"}
	if _, err := providers.NewHTTP(providers.HTTPConfig{File: f, Accounts: map[string]providers.Account{"main": account}}); err == nil {
		t.Error("a value with a line end: got no error")
	}
}

// An older revision is bound by the list of today: its account is not ours.
func TestAnOlderRevisionIsHeldToTheAllowedHosts(t *testing.T) {
	t.Parallel()
	fixed := strings.Replace(upsertFile, `"${account.base_url}"`, "https://old.example.org", 1)
	old, current := parse(t, fixed), parse(t, strings.Replace(fixed, "old.example.org", "api.example.com", 1))
	store := &memory{data: map[string][]byte{old.Digest(): old.Bytes()}}
	r, err := providers.NewRegistry([]providers.Configured{{File: current, Accounts: map[string]providers.Account{
		"main": {Secrets: map[string]providers.SecretRef{"token": secretRef(t, testToken)}},
	}}}, store, providers.RegistryOptions{AllowHosts: []string{"api.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.For(t.Context(), testIntent(current, `{}`)); err != nil {
		t.Errorf("current: got %v", err)
	}
	if _, _, err := r.For(t.Context(), testIntent(old, `{}`)); !errors.Is(err, providers.ErrNotMine) {
		t.Errorf("old: got %v", err)
	}
}
