package events_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/opledger/opledger/events"
)

// The data of an event are the members that all have, then those of its kind, in
// the order of their declarations, with nothing escaped that JSON does not ask for.
func TestTheDataOfAnEventAreTheMembersOfAllAndOfItsKind(t *testing.T) {
	compact := func(v any) []byte {
		t.Helper()
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	}
	payloads := full()
	for _, p := range full() {
		zero, ok := reflect.TypeAssert[events.Payload](reflect.Zero(reflect.TypeOf(p)))
		if !ok {
			t.Fatalf("%T is no payload", p)
		}
		payloads = append(payloads, zero)
	}
	payloads = append(payloads, events.IntentRecorded{Args: json.RawMessage("{ \"a\" : [ 1 , \"<\u2028>\" ] }\n")})
	for _, p := range payloads {
		e := events.Event{ID: "e-1", Ledger: ledger, Tenant: "acme", Operation: "op-1", Version: 1, Time: noon, Actor: "<w & v>", Data: p}
		body, err := events.Encode(e)
		if err != nil {
			t.Fatalf("%s: %v", p.Kind(), err)
		}
		head := compact(map[string]any{"event_id": "e-1"})
		common := append(head[:len(head)-1], `,"operation_id":"op-1","tenant":"acme","version":1,"actor":"<w & v>"`...)
		want := append(common, '}')
		if own := compact(p); len(own) > len("{}") {
			want = append(append(common, ','), own[1:]...)
		}
		want = append(append([]byte(`"data":`), want...), '}')
		if !bytes.HasSuffix(body, want) {
			t.Errorf("%s: got\n%s, want it to end in\n%s", p.Kind(), body, want)
		}
	}
}
