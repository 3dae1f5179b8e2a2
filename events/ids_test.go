package events_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/opledger/opledger/events"
)

// badIDs are taken as literal subjects by server and client, or close the
// connection: each is refused, none is rewritten. I15.
var badIDs = map[string]string{
	"empty": "", "star": "*", "gt": ">", "star within": "a*b", "gt within": "a>b", "dot": "a.b", "dots": "..",
	"leading dash": "-a", "leading underscore": "_a", "space": "a b", "leading space": " a", "trailing space": "a ",
	"tab": "a\tb", "newline": "a\n", "CR LF": "a\r\nX: y", "NUL": "a\x00b", "slash": "a/b", "65 bytes": strings.Repeat("a", 65),
	"a megabyte": strings.Repeat("a", 1<<20), "cyrillic a": "\u0430cme", "full width": "\uff41cme", "umlaut": "ä",
	"zero width": "ac\u200bme", "combining": "a\u0301", "kelvin sign": "\u212a", "long s": "\u017f", "invalid UTF-8": "a\xff", "emoji": "a😀",
	"dollar": "$SYS", "percent": "a%2e", "colon": "a:b", "at": "a@b", "plus": "a+b", "quote": `a"b`,
}

func TestOnlyStrictIDsAreTaken(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "A", "0", "op-1", "a_b", "A-", "0_", strings.Repeat("a", 64), events.NewID()} {
		if err := events.CheckID("operation_id", id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for name, id := range badIDs {
		err := events.CheckID("operation_id", id)
		if !errors.Is(err, events.ErrInvalidID) {
			t.Errorf("%s: got %v, want ErrInvalidID", name, err)
		}
		if err != nil && (len(err.Error()) > 200 || !strings.Contains(err.Error(), "operation_id")) {
			t.Errorf("%s: error %.200q", name, err)
		}
	}
}

func TestOnlyStrictActionsAreTaken(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"a", "task.create", "a_b.c_d.e1", "a1", strings.Repeat("a", 128)} {
		if err := events.CheckAction(action); err != nil {
			t.Errorf("%q: %v", action, err)
		}
	}
	for _, action := range []string{
		"", ".", "a.", ".a", "a..b", "A", "task.Create", "1a", "_a", "a.1", "a._", "a-b", "a b", "a.*", "a.>", "ä",
		"a\n", strings.Repeat("a", 129),
	} {
		if err := events.CheckAction(action); !errors.Is(err, events.ErrInvalidID) {
			t.Errorf("%q: got %v, want ErrInvalidID", action, err)
		}
	}
}

// I15: a subject is built from checked ids only, and read back to the same.
func TestSubjectsHoldOneTenantAndOneOperation(t *testing.T) {
	t.Parallel()
	for _, s := range []events.Subjects{{}, {Prefix: "other"}} {
		subject, err := s.Operation("acme", "op-1")
		if err != nil {
			t.Fatal(err)
		}
		tenant, operation, err := s.ParseOperation(subject)
		if err != nil || tenant != "acme" || operation != "op-1" {
			t.Errorf("%s: got %q, %q, %v", subject, tenant, operation, err)
		}
		for name, bad := range badIDs {
			if subject, err := s.Operation(bad, "op-1"); err == nil || subject != "" {
				t.Errorf("tenant %s: got %q, %v", name, subject, err)
			}
			if subject, err := s.Operation("acme", bad); err == nil || subject != "" {
				t.Errorf("operation %s: got %q, %v", name, subject, err)
			}
			if _, _, err := s.ParseOperation(s.AllSystem() + bad); err == nil {
				t.Errorf("%s: a system subject was read", name)
			}
		}
	}
	for _, subject := range []string{
		"", "opledger", "opledger.events", "opledger.events.", "opledger.events.acme", "opledger.events.acme.",
		"opledger.events..op-1", "opledger.events.acme.op-1.x", "opledger.events.acme.*", "opledger.events.*.op-1",
		"opledger.events.>", "xopledger.events.acme.op-1", "opledger.scopes.acme.s", "$KV.opledger.events.acme.op-1",
	} {
		if tenant, operation, err := (events.Subjects{}).ParseOperation(subject); err == nil {
			t.Errorf("%q: got %q, %q", subject, tenant, operation)
		}
	}
	var s events.Subjects
	for got, want := range map[string]string{
		s.AllEvents(""): "opledger.events.>", s.AllEvents("acme"): "opledger.events.acme.>",
		s.System("marker"): "opledger.system.marker", s.AllSystem(): "opledger.system.>", s.AllScopes(): "opledger.scopes.>",
		s.Inbox("acme"): "opledger.intents.acme", s.Refused("acme"): "opledger.refused.acme",
		s.API("acme", "submit"): "opledger.api.v1.acme.submit",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestEverySubjectReadsBack(t *testing.T) {
	t.Parallel()
	id := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_-]{0,63}`)
	rapid.Check(t, func(rt *rapid.T) {
		tenant, operation := id.Draw(rt, "tenant"), id.Draw(rt, "operation")
		subject, err := (events.Subjects{}).Operation(tenant, operation)
		if err != nil {
			rt.Fatal(err)
		}
		gotTenant, gotOperation, err := (events.Subjects{}).ParseOperation(subject)
		if err != nil || gotTenant != tenant || gotOperation != operation {
			rt.Fatalf("%q: got %q, %q, %v", subject, gotTenant, gotOperation, err)
		}
	})
}

// I17: key and operation id derive from what never changes. These values are
// frozen: another one would send a second request under a new key. They were
// computed by another program (Python's uuid.uuid5).
func TestDerivedIDsAreFrozen(t *testing.T) {
	t.Parallel()
	key := func(tenant, operation string) string {
		t.Helper()
		k, err := events.ProviderKey(ledger, tenant, operation)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	source := func(system, event, slot string) string {
		t.Helper()
		id, err := events.SourceOperationID(ledger, "acme", system, event, slot)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	for name, row := range map[string][2]string{
		"key":            {key("acme", "op-1"), "6955d8ec-5625-55c8-a201-c5e5c76ee023"},
		"key of another": {key("acme", "op-2"), "d053ec3c-0cfb-5099-8d09-eb9604c0893e"},
		"source":         {source("mail", "m-1", ""), "df63ca0e-1581-5d22-8721-e6fc51d71d16"},
		"source, slot":   {source("mail", "m-1", "1"), "06955318-4658-5143-85c3-6aa21575716a"},
	} {
		if row[0] != row[1] {
			t.Errorf("%s: got %s, frozen is %s", name, row[0], row[1])
		}
		if _, err := uuid.Parse(row[0]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// No two triples share a name.
	seen := map[string]string{}
	for _, s := range [][3]string{
		{"a", "b", "c"},
		{"a", "b/1:c", ""},
		{"a/1:b", "c", ""},
		{"ab", "", "c"},
		{"a", "bc", ""},
		{"", "a", "bc"},
		{"a", "b", ""},
		{"ab", "", ""},
		{"", "ab", ""},
		{"", "", "ab"},
		{"", "", ""},
	} {
		id := source(s[0], s[1], s[2])
		if other, taken := seen[id]; taken {
			t.Errorf("%q and %s share an id", s, other)
		}
		seen[id] = strings.Join(s[:], "|")
		if err := events.CheckID("operation_id", id); err != nil {
			t.Error(err)
		}
	}
	if key("acme", "op-1") == key("acm", "e-op-1") || key("a", "b") == source("a", "b", "") {
		t.Error("two names share an id")
	}
	for _, bad := range []string{"", "ledger", "*"} {
		if _, err := events.ProviderKey(bad, "a", "b"); err == nil {
			t.Errorf("ledger id %q was taken", bad)
		}
		if _, err := events.SourceOperationID(bad, "a", "b", "c", "d"); err == nil {
			t.Errorf("ledger id %q was taken", bad)
		}
	}
}

func TestNewIDsAreNewAndOrdered(t *testing.T) {
	t.Parallel()
	last := ""
	for range 1000 {
		id := events.NewID()
		if id <= last || events.CheckID("event_id", id) != nil {
			t.Fatalf("%q after %q", id, last)
		}
		last = id
	}
}

// The rules that are told are those that are held.
func TestIDsAndActionsAreHeldAgainstTheToldRules(t *testing.T) {
	id := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	action := regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`)
	const some = "aZ0_-.é\x00\n *>"
	texts := []string{"", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 65)}
	for from := 0; len(texts) < 20_000; from++ { // every text over some letters, the shortest first
		for _, c := range some {
			texts = append(texts, texts[from]+string(c))
		}
	}
	for _, text := range texts {
		if got := events.CheckID("id", text) == nil; got != id.MatchString(text) {
			t.Errorf("the id %q: taken is %v", text, got)
		}
		if got := events.CheckAction(text) == nil; got != (action.MatchString(text) && len(text) <= events.MaxActionLength) {
			t.Errorf("the action %q: taken is %v", text, got)
		}
	}
}
