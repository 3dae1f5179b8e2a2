package providers_test

import (
	"strings"
	"testing"

	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// Rows of the acceptance cases that a contract must not make possible: it is
// refused when it is read, before anything can be sent. docs/cases.md lists them.

// refused holds the words with which edits of shipped contracts are refused.
func refused(t *testing.T, tests map[string]struct{ file, old, replacement, want string }) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := providers.Parse("contract.yaml", edit(t, tt.file, tt.old, tt.replacement))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Cases B25, D58 (KeeperHub/keeperhub#2207, zendesk_api_client_rb#510): a contract
// that promises a key builds no request without it.
func TestCaseB25AndD58AKeyThatTheRequestForgetsIsRefused(t *testing.T) {
	t.Parallel()
	const header = `    key: {in: header, name: Idempotency-Key, value: "${op.key}", max_len: 255}` + "\n"
	refused(t, map[string]struct{ file, old, replacement, want string }{
		"no key at all":             {"sim-keyed", header, "", "class K1 needs a key"},
		"not in the body":           {"sim-keyed", "in: header, name: Idempotency-Key", "in: body, name: key", "does not have the key's value there"},
		"another value in the body": {"sim-keyed", "in: header, name: Idempotency-Key", "in: body, name: label", "does not have the key's value there"},
		"not in the path":           {"sim-unique", `"/v1/tasks/${op.uuid}"` + "\n      encoding", "/v1/tasks/7\n      encoding", "path does not hold the key's value"},
		"a key of the arguments":    {"sim-keyed", `value: "${op.key}", max`, `value: "${op.args_digest}", max`, "is not unique to the operation"},
		"a method that ignores it":  {"sim-keyed", "method: POST", "method: PATCH", "honours the key for POST"},
	})
}

// Cases C37, C42 (Flagsmith/flagsmith!5739, objectstack-ai/objectstack#14743): a
// search without a bound gives no repeat, and an index or a full-text search shows
// presence and never absence.
func TestCaseC37AndC42ASearchThatCannotProveAbsenceMustNotSaySo(t *testing.T) {
	t.Parallel()
	refused(t, map[string]struct{ file, old, replacement, want string }{
		"search without a bound":   {"sim-crm", "        lag: 5s\n", "", "needs a lag"},
		"repeat by a search":       {"sim-crm", "max_attempts: 1", "max_attempts: 2", "no ground for a repeat"},
		"absence by an index":      {"sim-crm", "provable: false", "provable: true, settle: 1s, empty_reads: 3, spacing: 1s", "absence needs a direct lookup"},
		"an index that proves it":  {"sim-crm", "consistency: eventual", "consistency: eventual\n        proves: absence", "an index proves no absence"},
		"full text that proves it": {"sim-unique", "consistency: direct", "consistency: fulltext", "is fulltext: an index proves no absence"},
		"repeat on a guess":        {"sim-keyed", "proof: documented", "proof: assumed", "an assumed promise never repeats"},
	})
	for _, consistency := range []string{"eventual", "fulltext"} {
		f, err := providers.Parse("contract.yaml", edit(t, "sim-crm", "consistency: eventual", "consistency: "+consistency))
		if err != nil {
			t.Fatal(err)
		}
		if c, _ := f.Contract("task.create"); !c.Lookup.Available || c.Absence.Provable || c.KeySupported {
			t.Errorf("%s: got %+v, want presence only", consistency, c)
		}
	}
}

// Case C38: where the provider makes objects of its own, there must be a look that
// can show one.
func TestCaseC38SideObjectsNeedALookThatShowsThem(t *testing.T) {
	t.Parallel()
	const class = "    class: "
	const soft = `          - {at: /title, equals: "${args.title}", soft: true}` + "\n"
	refused(t, map[string]struct{ file, old, replacement, want string }{
		"no lookup": {"sim-nothing", class, "    side_objects: true\n" + class, "needs a lookup with a soft rule"},
		"upsert":    {"sim-upsert", class, "    side_objects: true\n" + class, "needs a lookup with a soft rule"},
	})
	text := strings.Replace(string(edit(t, "sim-crm", class, "    side_objects: true\n"+class)), soft, "", 1)
	if _, err := providers.Parse("contract.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "needs a lookup with a soft rule") {
		t.Errorf("got %v", err)
	}
}

// Case H96: what says where a request goes is never left out of a comparison.
func TestCaseH96WhatNamesTheObjectIsNotIgnored(t *testing.T) {
	t.Parallel()
	const personal = "      personal: [/contact]\n"
	ignore := func(list string) string { return personal + "      ignore: [" + list + "]\n" }
	refused(t, map[string]struct{ file, old, replacement, want string }{
		"everything":        {"sim-crm", personal, ignore(`""`), "must name one argument"},
		"a part of one":     {"sim-crm", personal, ignore("/note/text"), "must name one argument"},
		"no pointer":        {"sim-crm", personal, ignore("note"), "must be empty or begin with /"},
		"of path and scope": {"sim-upsert", personal, ignore("/ref"), "says which object is meant"},
		"not declared":      {"sim-crm", personal, ignore("/subject"), "is not in the argument schema"},
	})
	f, err := providers.Parse("contract.yaml", edit(t, "sim-crm", personal, ignore("/note")))
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := f.Contract("task.create"); len(c.IgnoredArgs) != 1 || c.IgnoredArgs[0] != "note" || c.Class != operation.ClassLabel {
		t.Errorf("got %+v", c)
	}
}
