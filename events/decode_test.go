package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/events"
)

func body(t *testing.T, p events.Payload) string {
	t.Helper()
	b, err := events.Encode(eventOf(p, true))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Malformed bodies are refused with ErrMalformed, whatever they are.
func TestMalformedBodiesAreRefused(t *testing.T) {
	t.Parallel()
	good := body(t, full()[0])
	replace := func(old, now string) string {
		t.Helper()
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in the event", old)
		}
		return strings.Replace(good, old, now, 1)
	}
	for name, bad := range map[string]string{
		"empty": "", "null": "null", "array": "[]", "number": "1", "cut": good[:len(good)-1], "two": good + good,
		"trailing bytes": good + "x", "not UTF-8": "\xff\xfe", "BOM": "\ufeff" + good,
		"other format":            replace("io.opledger.v1.", "io.opledger.v2."),
		"no type":                 replace(`"type":`, `"typ_":`),
		"other source":            replace("/opledger/", "/other/"),
		"no data":                 replace(`"data":`, `"date":`),
		"data null":               good[:strings.Index(good, `"data":`)] + `"data":null}`,
		"data array":              good[:strings.Index(good, `"data":`)] + `"data":[]}`,
		"version 0":               replace(`"version":2`, `"version":0`),
		"version -1":              replace(`"version":2`, `"version":-1`),
		"version 1.5":             replace(`"version":2`, `"version":1.5`),
		"version text":            replace(`"version":2`, `"version":"2"`),
		"version 2^53":            replace(`"version":2`, `"version":9007199254740992`),
		"version 2^64-1":          replace(`"version":2`, `"version":18446744073709551615`),
		"version 2^64":            replace(`"version":2`, `"version":18446744073709551616`),
		"ids differ":              replace(`"id":"019`, `"id":"119`),
		"subject differs":         replace(`"subject":"op-1"`, `"subject":"op-2"`),
		"tenant differs":          replace(`"tenantid":"acme"`, `"tenantid":"acm"`),
		"no tenant":               strings.ReplaceAll(strings.ReplaceAll(good, `"tenantid":"acme"`, `"tenantid":""`), `"tenant":"acme"`, `"tenant":""`),
		"operation with wildcard": strings.ReplaceAll(strings.ReplaceAll(good, `"subject":"op-1"`, `"subject":"*"`), `"operation_id":"op-1"`, `"operation_id":"*"`),
		"no id":                   strings.ReplaceAll(good, "019ae0f0-0000-7000-8000-000000000001", ""),
		"long id":                 strings.ReplaceAll(good, "019ae0f0-0000-7000-8000-000000000001", strings.Repeat("x", 65)),
		"time":                    replace(`"time":"2026-12-01T`, `"time":"yesterday`),
		"payload":                 replace(`"contract_revision":3`, `"contract_revision":"3"`),
		"deep":                    replace(`"args":`, `"deep":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`,"args":`),
	} {
		e, err := events.Decode([]byte(bad))
		if !errors.Is(err, events.ErrMalformed) {
			t.Errorf("%s: got %v, want ErrMalformed", name, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%s: a long error: %.300s", name, err)
		}
		r := events.DecodeRecord("s", 7, noon, []byte(bad))
		if !errors.Is(r.Err, events.ErrMalformed) || r.Seq != 7 || r.Data != nil || !r.Stamp.Equal(noon) || string(r.Body) != bad || r.ID != "" {
			t.Errorf("%s: record %+v", name, r.Err)
		}
		_ = e
	}
}

// What could not be read back is not written.
func TestUnreadableEventsAreNotWritten(t *testing.T) {
	t.Parallel()
	ok := eventOf(events.ArgumentsErased{KeyID: "k"}, true)
	for name, change := range map[string]func(*events.Event){
		"no data":        func(e *events.Event) { e.Data = nil },
		"no id":          func(e *events.Event) { e.ID = "" },
		"long id":        func(e *events.Event) { e.ID = strings.Repeat("x", 65) },
		"no tenant":      func(e *events.Event) { e.Tenant = "" },
		"wild tenant":    func(e *events.Event) { e.Tenant = "*" },
		"no operation":   func(e *events.Event) { e.Operation = "" },
		"wild operation": func(e *events.Event) { e.Operation = ">" },
		"version 0":      func(e *events.Event) { e.Version = 0 },
		"version 2^53":   func(e *events.Event) { e.Version = events.MaxVersion + 1 },
		"unrecognized":   func(e *events.Event) { e.Data = events.Unrecognized{Type: "Later", Data: []byte(`{}`)} },
		"too large": func(e *events.Event) {
			e.Data = events.ArgumentsErased{KeyID: strings.Repeat("k", events.MaxEventSize)}
		},
		"not JSON":   func(e *events.Event) { e.Data = events.ResultConfirmed{Result: json.RawMessage("{")} },
		"year 10000": func(e *events.Event) { e.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		e := ok
		change(&e)
		if b, err := events.Encode(e); err == nil {
			t.Errorf("%s: written as %.200s", name, b)
		}
	}
}

// I18: an error text never carries what the body holds, not even where the body
// puts an argument in the place of a name.
func TestErrorTextsHoldNoContent(t *testing.T) {
	t.Parallel()
	const canary = "s3cr3t-canary"
	good := body(t, full()[0])
	var env map[string]json.RawMessage
	if err := json.Unmarshal([]byte(good), &env); err != nil {
		t.Fatal(err)
	}
	var inner map[string]json.RawMessage
	if err := json.Unmarshal(env["data"], &inner); err != nil {
		t.Fatal(err)
	}
	values := []string{
		`"` + canary + `"`, `{"` + canary + `":"` + canary + `"}`, `["` + canary + `"]`, `{"a":{"` + canary + `":1}}`, `"` + canary,
		`"` + strings.Repeat("x", 10) + canary + `"`,
	}
	try := func(where string, b []byte) {
		t.Helper()
		for _, err := range []error{func() error { _, err := events.Decode(b); return err }(), func() error { _, err := events.DecodeSystem(b); return err }()} {
			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("%s: %v", where, err)
			}
		}
	}
	for name := range env {
		for _, v := range values {
			try(name, []byte(with(env, name, v)))
		}
	}
	for name := range inner {
		for _, v := range values {
			try("data."+name, []byte(with(env, "data", with(inner, name, v))))
		}
	}
	try("member name", []byte(`{"`+canary+`":`))
	try("bare", []byte(canary))
	// The same id in both places, so that it gets as far as the check of ids.
	for _, name := range []string{"019ae0f0-0000-7000-8000-000000000001", `"op-1"`, `"acme"`} {
		bad := `"*` + canary + strings.Repeat("x", 60) + `"`
		try(name, []byte(strings.ReplaceAll(good, `"`+strings.Trim(name, `"`)+`"`, bad)))
	}
}

func with(object map[string]json.RawMessage, name, value string) string {
	var b strings.Builder
	b.WriteByte('{')
	first := true
	for k, v := range object {
		if !first {
			b.WriteByte(',')
		}
		first = false
		b.WriteString(`"` + k + `":`)
		if k == name {
			b.WriteString(value)
		} else {
			b.Write(v)
		}
	}
	b.WriteByte('}')
	return b.String()
}

// Equal events have equal bytes, and HTML characters are not escaped.
func TestBytesDependOnTheEventOnly(t *testing.T) {
	t.Parallel()
	for _, p := range full() {
		a, b := body(t, p), body(t, p)
		if a != b {
			t.Errorf("%s: two encodings differ", p.Kind())
		}
		if strings.Contains(a, `\u003c`) || strings.HasSuffix(a, "\n") {
			t.Errorf("%s: %s", p.Kind(), a)
		}
	}
	// The wall clock's zone and monotonic part don't show.
	e := eventOf(events.ArgumentsErased{KeyID: "k"}, false)
	one, _ := events.Encode(e)
	e.Time = e.Time.In(time.FixedZone("x", 3600))
	two, _ := events.Encode(e)
	if !bytes.Equal(one, two) {
		t.Errorf("got %s and %s", one, two)
	}
}

// I13: the digest of a stored body is over its bytes, not over what they mean.
func TestDigestIsOverTheBytes(t *testing.T) {
	t.Parallel()
	if got, want := events.Digest([]byte("abc")), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if events.Digest([]byte(`{"a":1}`)) == events.Digest([]byte(`{"a": 1}`)) {
		t.Error("other bytes have the same digest")
	}
}

// A lease and a lag come back as durations.
func TestDurationsAreMilliseconds(t *testing.T) {
	t.Parallel()
	if got := (events.AttemptStarted{LeaseMS: 1500}).Lease(); got != 1500*time.Millisecond {
		t.Error(got)
	}
	if got := (events.EvidenceRecorded{LagMS: 250}).Lag(); got != 250*time.Millisecond {
		t.Error(got)
	}
}

// System records live on the subject of their name.
func TestSystemRecordsHaveNames(t *testing.T) {
	t.Parallel()
	for kind, want := range map[events.SystemKind]string{
		events.SystemRebuildMarker: "marker", events.SystemCheckpoint: "checkpoint", events.SystemAlarmRaised: "alarm",
		events.SystemAlarmCleared: "alarm", events.SystemContractStored: "contract", events.SystemScopeTaken: "scope",
		"Later": "other",
	} {
		if got := kind.Name(); got != want {
			t.Errorf("%s: got %q, want %q", kind, got, want)
		}
	}
	for _, bad := range []string{"", "{", `{"type":"x"}`, `{"type":"io.opledger.v1.Checkpoint","data":[]}`, `{"type":"io.opledger.v1.Checkpoint"}`} {
		if _, err := events.DecodeSystem([]byte(bad)); !errors.Is(err, events.ErrMalformed) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	s := systemRecords()[0]
	s.Data = map[string]any{"event_id": "another", "actor": "another"}
	b, err := events.EncodeSystem(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := events.DecodeSystem(b)
	if err != nil || back.ID != s.ID || back.Actor != s.Actor || back.Data["event_id"] != s.ID {
		t.Errorf("data took the place of the record's own id or actor: %s", b)
	}
}

// FuzzDecode: whatever is stored, Decode does not panic, and what it takes is
// written again to bytes that mean the same.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.json"))
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range full() {
		b, err := events.Encode(eventOf(p, true))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, p := range minimal() {
		b, err := events.Encode(eventOf(p, false))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	if len(files) == 0 {
		f.Fatal("no golden files")
	}
	for _, seed := range []string{
		"", "{}", "null", `{"data":{}}`, `{"type":"io.opledger.v1.Rejected","source":"/opledger/x","data":{"version":1e0}}`,
		`{"type":"io.opledger.v1.","source":"/opledger/","id":"a","subject":"a","tenantid":"a","data":{"event_id":"a","operation_id":"a","tenant":"a","version":1}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		_, _ = events.DecodeSystem(in)
		e, err := events.Decode(in)
		if err != nil {
			if !errors.Is(err, events.ErrMalformed) {
				t.Fatalf("error without ErrMalformed: %v", err)
			}
			return
		}
		if _, unknown := e.Data.(events.Unrecognized); unknown {
			return
		}
		out, err := events.Encode(e)
		if err != nil {
			return // larger than allowed, or a time that JSON can't say
		}
		again, err := events.Decode(out)
		if err != nil {
			t.Fatalf("what was written can't be read: %v\n%s", err, out)
		}
		twice, err := events.Encode(again)
		if err != nil || !bytes.Equal(out, twice) {
			t.Fatalf("written twice it differs: %v\n%s", err, cmp.Diff(string(out), string(twice)))
		}
	})
}

// An event is at most as large as a message may be, to the byte.
func TestAnEventIsBoundedExactly(t *testing.T) {
	t.Parallel()
	e := eventOf(events.IntentRecorded{Provider: "crm", Basis: "x"}, false)
	frame, err := events.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, beyond := range []int{-1, 0, 1} {
		e.Data = events.IntentRecorded{Provider: "crm", Basis: strings.Repeat("x", events.MaxEventSize-len(frame)+1+beyond)}
		body, err := events.Encode(e)
		if (err != nil) != (beyond > 0) || err == nil && len(body) != events.MaxEventSize+beyond {
			t.Errorf("%d beyond the limit: got %d bytes, %v", beyond, len(body), err)
		}
	}
}
