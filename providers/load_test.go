package providers_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// edit returns a shipped contract with one piece of text replaced.
func edit(t testing.TB, name, old, replacement string) []byte {
	t.Helper()
	data, err := providers.Template(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s does not contain %q", name, old)
	}
	return []byte(strings.Replace(string(data), old, replacement, 1))
}

// P4: what can't be safe is refused, with file, line and field.
func TestAContractThatCantBeSafeIsRefused(t *testing.T) {
	t.Parallel()
	const keyed, crm, unique, nothing = "sim-keyed", "sim-crm", "sim-unique", "sim-nothing"
	tests := map[string]struct{ file, old, replacement, want string }{
		"assumed proof repeats by key":        {keyed, "proof: documented", "proof: assumed", "retry.max_attempts: an assumed promise never repeats"},
		"unknown retention repeats by key":    {keyed, "retention: 24h", "retention: unknown", "retry.max_attempts: a retention that is unknown"},
		"no retention repeats by key":         {keyed, "retention: 24h", "retention: none", "retry.max_attempts: a retention that is unknown or none"},
		"total and margin beyond retention":   {keyed, "margin: 1h", "margin: 24h", "leave nothing of the retention"},
		"no margin":                           {keyed, "      margin: 1h\n", "", "a retention that ends needs a margin"},
		"K1 without key":                      {crm, "class: K4", "class: K1", "class K1 needs a key"},
		"K2 without its id in the path":       {unique, "path: \"/v1/tasks/${op.uuid}\"\n      encoding", "path: \"/v1/tasks/x\"\n      encoding", "the request's path does not hold the key's value"},
		"K3 without scope":                    {crm, "class: K4", "class: K3", "class K3 needs a scope of its external key"},
		"K4 with a key":                       {keyed, "class: K1", "class: K4", "class K4 has no key"},
		"K5 with a lookup":                    {crm, "class: K4", "class: K5", "class K5 has nothing to look up by"},
		"key of the operation id":             {keyed, `value: "${op.key}", max`, `value: "${op.id}", max`, "is not unique to the operation"},
		"key that is too long":                {keyed, "max_len: 255", "max_len: 35", "the key has 36 bytes, the provider takes 35"},
		"lookup without our own mark":         {crm, `{at: /label, equals: "${op.label}"}`, `{at: /title, equals: "${args.title}"}`, "needs a hard rule with the operation's own"},
		"lookup with only soft marks":         {crm, `{at: /label, equals: "${op.label}"}`, `{at: /label, equals: "${op.label}", soft: true}`, "needs a hard rule"},
		"lookup by a mark that isn't written": {crm, `        label: "${op.label}"` + "\n", "", "as the request writes it"},
		"absence over an index":               {crm, "provable: false", "provable: true, empty_reads: 1", "absence needs a direct lookup"},
		"absence by an index":                 {crm, "consistency: eventual", "consistency: eventual\n        proves: absence", "is eventual: an index proves no absence"},
		"absence by a full-text index":        {unique, "consistency: direct", "consistency: fulltext", "is fulltext: an index proves no absence"},
		"absence that no lookup proves":       {unique, "        proves: absence\n", "", "absence needs a direct lookup that says proves: absence"},
		"key on a method without it":          {keyed, "method: POST", "method: PUT", "the provider honours the key for POST, and the request is a PUT"},
		"key methods without the request's":   {keyed, "max_len: 255}", "max_len: 255, methods: [PUT, PATCH]}", "honours the key for PUT, PATCH, and the request is a POST"},
		"key for a method that is none":       {keyed, "max_len: 255}", "max_len: 255, methods: [SEND]}", "must be one of"},
		"uuid_v4 that is too long":            {unique, `value: "${op.uuid}", max_len: 64`, `value: "${op.uuid_v4}", max_len: 32`, "the key has 36 bytes, the provider takes 32"},
		"weak ids at once":                    {unique, "class: K2", "class: K2\n    uniqueness: weak", "concurrent_safe: is false where uniqueness is weak"},
		"weak ids without ids":                {crm, "class: K4", "class: K4\n    uniqueness: weak", "belongs to the classes K2 and K3"},
		"scope of a missing argument":         {crm, "class: K4", "class: K4\n    scope: \"${args.nope}\"", "is not in the argument schema"},
		"scope of an optional argument":       {crm, "class: K4", "class: K4\n    scope: \"${args.note}\"", "neither required nor has a default"},
		"scope of the operation":              {crm, "class: K4", "class: K4\n    scope: \"${op.key}\"", "is not allowed in a scope"},
		"scope of a value of the account":     {crm, "class: K4", "class: K4\n    scope: \"${account.region}\"", "is not known when the intent is recorded"},
		"two kinds of paging":                 {crm, "{next: /next_cursor, param: cursor, max: 5}", "{next: /next_cursor, link: true, param: cursor, max: 5}", "needs exactly one of next, last_id, link, page"},
		"paging without an end":               {crm, "param: cursor, max: 5}", "param: cursor}", "max: must be from 1 to 100"},
		"cursor that goes nowhere":            {crm, "{next: /next_cursor, param: cursor, max: 5}", "{next: /next_cursor, max: 5}", "param: is missing"},
		"cursor into a body that is none":     {crm, "param: cursor, max: 5}", "param: /after, in: body, max: 5}", "no mapping that this pointer leads into"},
		"cursor into a header":                {crm, "param: cursor, max: 5}", "param: cursor, in: header, max: 5}", "must be query or body"},
		"last id without a flag":              {crm, "{next: /next_cursor, param: cursor, max: 5}", "{last_id: /items/*/id, param: after, max: 5}", "more: is missing"},
		"link with a parameter":               {crm, "{next: /next_cursor, param: cursor, max: 5}", "{link: true, param: after, max: 5}", "belong to next and last_id"},
		"page without a size":                 {crm, "{next: /next_cursor, param: cursor, max: 5}", "{page: page, max: 5}", "a page with fewer objects is the last"},
		"page of a size nobody asked for":     {crm, "{next: /next_cursor, param: cursor, max: 5}", "{page: page, size: 50, max: 5}", "must ask for pages of this size"},
		"size without pages":                  {crm, "param: cursor, max: 5}", "param: cursor, size: 5, max: 5}", "size: belongs to page"},
		"sentinel without a number":           {crm, "        external_id: /id\n", "        external_id: /id\n        sentinel: {request: {method: GET, path: /v1/tasks}, items: /items}\n", "at_least: must be 1 or more"},
		"sentinel without a list":             {crm, "        external_id: /id\n", "        external_id: /id\n        sentinel: {request: {method: GET, path: /v1/tasks}, at_least: 1}\n", "items: is missing"},
		"query with values spliced in":        {crm, `title: "${args.title}"` + "\n", `query: "{ x(t: '${args.title}') }"` + "\n", "values must not be spliced into a query"},
		"repeat without a ground":             {crm, "max_attempts: 1", "max_attempts: 2", "no ground for a repeat"},
		"rejected catches 5xx":                {crm, "[400, 404, 405, 422]", "[4xx, 5xx]", "a server error is no definite no"},
		"rejected catches 408":                {crm, "[400, 404, 405, 422]", "[400, 408]", "status 408 is no definite no"},
		"rejected catches 425":                {crm, "[400, 404, 405, 422]", "[425]", "status 425 is no definite no"},
		"rejected catches 429":                {crm, "[400, 404, 405, 422]", "[4xx]", "status 429 is no definite no"},
		"rejected over every 200":             {crm, "[400, 404, 405, 422]", "[200]", "needs a condition on the body"},
		"not_applied over every 503":          {crm, "[503], body: [{at: /error/code, equals: refused}]", "[503]", "needs a condition on header or body"},
		"not_sent as an answer":               {crm, "is: applied_unidentified", "is: not_sent", "must be one of"},
		"answers key without a key":           {crm, "[400, 404, 405, 422]}", "[400], answers: key}", "can answer the key"},
		"success without an id":               {nothing, ", external_id: /id", "", "a success names its object"},
		"first_send in a request":             {crm, `title: "${args.title}"` + "\n", `title: "${op.first_send_unix}"` + "\n", "is not allowed in a request"},
		"secret in a body":                    {crm, `title: "${args.title}"` + "\n", `title: "${secret.token}"` + "\n", "is not allowed in a request"},
		"argument that is not declared":       {crm, "${args.note?}", "${args.notes?}", "is not in the argument schema"},
		"argument that may be missing":        {crm, "${args.note?}", "${args.note}", "neither required nor has a default"},
		"optional inside a text":              {crm, `"${args.note?}"`, `"x ${args.note?}"`, "only where it is the whole value"},
		"unknown field":                       {crm, "api_version: v1", "api_version: v1\nextra: 1", "extra: unknown field"},
		"duplicate key":                       {crm, "revision: 1", "revision: 1\nrevision: 1", `duplicate key "revision"`},
		"alias":                               {crm, "provider: crm", "provider: &a crm", "anchors and aliases are not allowed"},
		"second document":                     {crm, "contract: opledger/v1", "a: 1\n---\ncontract: opledger/v1", "more than one document"},
		"schema with a remote reference":      {crm, "type: object\n", "type: object\n        $ref: https://example.com/x\n", "is no valid JSON Schema"},
		"base URL with credentials":           {crm, `"${account.base_url}"`, "https://u:p@example.com", "must not hold credentials"},
		"base URL with another scheme":        {crm, `"${account.base_url}"`, "ftp://example.com", "must begin with http:// or https://"},
		"base URL in the clear":               {crm, `"${account.base_url}"`, "http://crm.example.com", "must be https"},
		"header of the transport":             {crm, "path: /v1/tasks\n", "path: /v1/tasks\n      headers: {Host: evil}\n", "is no header that a contract may use"},
		"path that leads upwards":             {crm, "path: /v1/tasks\n", "path: /v1/x/%2e%2E/tasks\n", "must not have a segment . or .."},
		"path with a query":                   {crm, "path: /v1/tasks\n", "path: /v1/tasks?x=1\n", "must be an escaped path without a query"},
		"late_apply missing":                  {crm, "      late_apply: 30s\n", "", "late_apply: is missing"},
		"contains the empty text":             {crm, `{at: /error/code, equals: refused}`, `{at: /error/code, contains: ""}`, "it would always match"},
		"no schedule":                         {crm, "        schedule: [2s, 10s, 30s, 2m, 10m, 1h]\n", "", "schedule: is missing"},
		"eventual without lag":                {crm, "        lag: 5s\n", "", "needs a lag"},
		"cite missing":                        {crm, "  - package providers/simulator, its doc comments; preset crm (read 2026-11-30)\n", "  []\n", "needs a source"},
	}
	place := regexp.MustCompile(`^contract\.yaml:\d+: `)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := providers.Parse("contract.yaml", edit(t, tt.file, tt.old, tt.replacement))
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

func TestALoadErrorNamesTheLineAndTheField(t *testing.T) {
	t.Parallel()
	_, err := providers.Parse("x.yaml", edit(t, "sim-crm", "total: 10s", "total: soon"))
	var load *providers.LoadError
	if !errors.As(err, &load) {
		t.Fatalf("got %v", err)
	}
	if load.File != "x.yaml" || load.Line < 40 || load.Path != "actions[task.create].timing.total" {
		t.Errorf("got %+v", load)
	}
}

func TestTheShippedContractsSayWhatTheirClassesPromise(t *testing.T) {
	t.Parallel()
	want := []string{"sim-crm", "sim-keyed", "sim-keyed-nolookup", "sim-nothing", "sim-unique", "sim-upsert"}
	if d := cmp.Diff(want, providers.Shipped()); d != "" {
		t.Fatalf("shipped contracts (-want +got):\n%s", d)
	}
	classes := map[string]operation.Class{
		"sim-crm": operation.ClassLabel, "sim-keyed": operation.ClassKey, "sim-keyed-nolookup": operation.ClassKey,
		"sim-unique": operation.ClassClientID, "sim-nothing": operation.ClassNone, "sim-upsert": operation.ClassUpsert,
	}
	for name, class := range classes {
		f := load(t, name, nil)
		c, ok := f.Contract(f.Actions()[0])
		if !ok || c.Class != class || c.Digest != f.Digest() || f.Name != name {
			t.Errorf("%s: got %t, %+v", name, ok, c)
		}
	}
	if c, _ := load(t, "sim-unique", nil).Contract("task.create"); c.Retention != operation.Forever || !c.Absence.Provable {
		t.Errorf("sim-unique: got %+v", c)
	}
}

func TestAMarkerScalesAShippedContract(t *testing.T) {
	t.Parallel()
	c, _ := load(t, "sim-keyed", map[string]string{"retention": "10m", "margin": "5s", "schedule": "1s, 2s"}).Contract("task.create")
	if c.Retention.String() != "10m0s" || len(c.Lookup.Schedule) != 2 {
		t.Errorf("got %+v", c)
	}
	if _, err := providers.Template("sim-keyed", map[string]string{"retentoin": "1s"}); err == nil {
		t.Error("an unknown marker: got no error")
	}
	if _, err := providers.Template("sim-keyed", map[string]string{"lag": "1s\nproof: assumed"}); err == nil {
		t.Error("a value with a line end: got no error")
	}
}

func TestTheDigestIsThatOfTheBytes(t *testing.T) {
	t.Parallel()
	a := load(t, "sim-crm", nil)
	b, err := providers.Parse("other.yaml", append(a.Bytes(), '\n'))
	if err != nil {
		t.Fatal(err)
	}
	if a.Digest() == b.Digest() || !strings.HasPrefix(a.Digest(), "sha256:") || len(a.Digest()) != 71 {
		t.Errorf("got %s and %s", a.Digest(), b.Digest())
	}
	a.Bytes()[0] = 'x'
	if a.Bytes()[0] == 'x' {
		t.Error("the bytes of a file can be changed from outside")
	}
	if !slices.Contains(b.Actions(), "task.create") || b.Name != "other" {
		t.Errorf("got %+v", b)
	}
}

// FuzzParse: no contract file makes the loader panic, and what it accepts has a
// contract for each action.
func FuzzParse(f *testing.F) {
	for _, name := range providers.Shipped() {
		data, err := providers.Template(name, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range []string{upsertFile, graphFile, "", "a", "a: &x [*x]", "contract: opledger/v1\nactions: {a: {}}", "? {a: b}\n: c", "[[[[", "a: 1\na: 2", "!!binary x", "actions: {x: {request: {body: {a: .nan}}}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := providers.Parse("fuzz.yaml", data)
		if err != nil {
			return
		}
		for _, action := range file.Actions() {
			if c, ok := file.Contract(action); !ok || c.Total <= 0 {
				t.Errorf("accepted action %q has the contract %+v", action, c)
			}
		}
	})
}
