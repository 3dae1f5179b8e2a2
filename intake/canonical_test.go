package intake

import (
	"bytes"
	"testing"
)

// What passes the guard has one canonical form, which is its own canonical form.
func FuzzGuard(f *testing.F) {
	for _, s := range []string{
		`{"a":1}`, `[1,2.5,-0,1e3,"x"]`, `{"b":{"a":[null,true]}}`, `"\u00e9"`, `9007199254740991`, `9007199254740993`,
		`{"a":1,"a":2}`, `1e400`, `1e-999999999`, `0.1`, `123456789.123456789123`, `{"\u0061":1,"a":2}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if len(doc) > 4096 || guard(doc) != nil {
			return
		}
		once, err := canonical(doc)
		if err != nil {
			return
		}
		twice, err := canonical(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("canonical(%q) = %q, and of that %q, %v", doc, once, twice, err)
		}
		if err := guard(once); err != nil {
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
		"1.0": true, "1.50": true, "2.5e-1": true,
	} {
		if got := guard([]byte(lit)) == nil; got != ok {
			t.Errorf("guard(%s): got pass %t, want %t", lit, got, ok)
		}
	}
}
