package intake

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/opledger/opledger/events"
)

func passes(doc []byte) bool {
	_, err := guard(doc)
	return err == nil
}

// What passes the guard has one canonical form, which is its own canonical form.
func FuzzGuard(f *testing.F) {
	for _, s := range []string{
		`{"a":1}`, `[1,2.5,-0,1e3,"x"]`, `{"b":{"a":[null,true]}}`, `"\u00e9"`, `9007199254740991`, `9007199254740993`,
		`"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude00"`, `["\\u"]`, "\"\u2028\x7f\"", `"\/\b"`, `999999999999999`, `-99999999999999`,
		`{"a":1,"a":2}`, `1e400`, `1e-999999999`, `0.1`, `123456789.123456789123`, `{"\u0061":1,"a":2}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if len(doc) > 4096 || !passes(doc) {
			return
		}
		once, err := canonical(doc)
		if err != nil {
			t.Fatalf("%q passes and has no canonical form: %v", doc, err)
		}
		twice, err := canonical(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("canonical(%q) = %q, and of that %q, %v", doc, once, twice, err)
		}
		if _, err := guard(once); err != nil {
			t.Errorf("the canonical form %q of %q does not pass the guard: %v", once, doc, err)
		}
	})
}

// Numbers that two readers would understand differently do not pass; those that
// a double holds exactly do.
func TestGuardKnowsWhichNumbersADoubleHolds(t *testing.T) {
	for lit, ok := range map[string]bool{
		"0": true, "-0": true, "1": true, "0.1": true, "1e3": true, "1E-7": true, "9007199254740991": true,
		"-9007199254740991": true, "9007199254740992": false, "9007199254740993": false, "1e16": false,
		"1e400": false, "0.30000000000000004": true, "0.300000000000000001": false, "100000000000000000000": false,
		"999999999999999": true, "-999999999999999": true, "9999999999999999": false, "1.0": true, "1.50": true, "2.5e-1": true,
	} {
		if got := passes([]byte(lit)); got != ok {
			t.Errorf("guard(%s): got pass %t, want %t", lit, got, ok)
		}
	}
}

// The intent digest is that of the canonical form of what it covers, whatever
// stands in it.
func TestTheIntentDigestIsOfTheCanonicalForm(t *testing.T) {
	for _, text := range []string{
		"", "main", `"\/`, "<a> & b", "\b\f\n\r\t\x00\x1f\x7f", "\u2028\u2029", "é\U0001f600", "\ufffd", `\u0041`, "a\xffb",
	} {
		for _, required := range []bool{false, true} {
			i := events.IntentRecorded{
				Provider: "p" + text, Account: events.Account{Name: "n" + text, ProviderID: text}, Action: "a" + text,
				SchemaVersion: text + "1", ArgsDigest: "d" + text, OnUnknown: events.OnUnknown(text), ConflictScope: "s" + text,
				ContractRef: events.ContractRef{Digest: "c" + text}, Approval: &events.Approval{Required: required},
			}
			raw, err := json.Marshal(map[string]any{
				"tenant": "t" + text, "operation_id": "o" + text, "provider": i.Provider, "account": i.Account.Name,
				"account_provider_id": i.ProviderID, "action": i.Action, "schema_version": i.SchemaVersion,
				"args_digest": i.ArgsDigest, "contract_digest": i.Digest, "on_unknown": i.OnUnknown,
				"conflict_scope": i.ConflictScope, "approval_required": required,
			})
			if err != nil {
				t.Fatal(err)
			}
			doc, err := canonical(raw)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := intentDigest("t"+text, "o"+text, i); err != nil || got != digest(doc) {
				t.Errorf("with %q: got %s, %v; want %s", text, got, err, digest(doc))
			}
		}
	}
}
