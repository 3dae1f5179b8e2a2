package projections

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// historyOf folds payloads without a log.
func historyOf(t testing.TB, payloads ...events.Payload) operation.State {
	t.Helper()
	var s operation.State
	for n, data := range payloads {
		e := draft("acme", "op-1", s, data)
		body, err := events.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		stamp := time.Date(2030, 1, 1, 0, 0, n, 1000*n, time.UTC)
		s, _ = operation.Evolve(s, events.DecodeRecord("s", uint64(n)+7, stamp, body))
	}
	return s
}

// goesWell is an operation that needs nobody.
func goesWell(t testing.TB) operation.State {
	t.Helper()
	wish := intent("op-1")
	wish.Labels = nil
	wish.Args = []byte(`{ "title": "ring <back> & forth \u2028" , "n": [1, 2.50e+3, null]}`)
	return historyOf(t, wish,
		events.AttemptStarted{AttemptID: "1", Number: 1, Worker: "w", LeaseMS: 30_000, RequestDigest: "sha256:r", AccountProbed: "a1"},
		events.ResultConfirmed{ExternalID: "T-1", Via: events.ViaResponse, AttemptID: "1", ProviderRequestID: "p-1", Result: []byte(`{"a": [1,  2]}`)},
	)
}

// checkEntry fails unless the quick way to an entry writes what encoding/json does.
func checkEntry(t *testing.T, s operation.State) (quick bool) {
	t.Helper()
	got, quick := plainEntry(s)
	if !quick {
		return false
	}
	want, err := anyEntry(s)
	if err != nil {
		t.Fatalf("the quick way writes what can't be written: %v\n%s", err, got)
	}
	if string(got) != string(want) {
		t.Fatalf("the two ways differ: %s", cmp.Diff(string(want), string(got)))
	}
	return true
}

// I9: an operation that needs nobody is written the quick way, and its entry is the
// one that encoding/json writes.
func TestWhatIsCommonIsWrittenTheQuickWay(t *testing.T) {
	t.Parallel()
	s := goesWell(t)
	if !checkEntry(t, s) {
		t.Errorf("not written the quick way: %+v", s)
	}
	if started := historyOf(t, intent("op-1")); checkEntry(t, started) {
		t.Error("an intent with labels is not what is common")
	}
}

// I9: whatever a state holds, both ways write the same: here every single field of
// a state and of what is in it is changed, also fields that are new.
func TestBothWaysWriteTheSame(t *testing.T) {
	t.Parallel()
	quick := 0
	for _, start := range []operation.State{goesWell(t), {}} {
		var walk func(path string, at func(*operation.State) reflect.Value)
		walk = func(path string, at func(*operation.State) reflect.Value) {
			base := clone(t, start)
			v := at(&base)
			for _, value := range valuesFor(v.Type()) {
				s := clone(t, start)
				at(&s).Set(value)
				if checkEntry(t, s) {
					quick++
				}
			}
			switch {
			case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
				for i := range v.NumField() {
					if v.Type().Field(i).IsExported() {
						walk(path+"."+v.Type().Field(i).Name, func(s *operation.State) reflect.Value { return at(s).Field(i) })
					}
				}
			case v.Kind() == reflect.Slice && v.Len() > 0 && v.Type().Elem().Kind() == reflect.Struct:
				walk(path+"[0]", func(s *operation.State) reflect.Value { return at(s).Index(0) })
			case v.Kind() == reflect.Pointer && !v.IsNil():
				walk(path, func(s *operation.State) reflect.Value { return at(s).Elem() })
			}
		}
		walk("", func(s *operation.State) reflect.Value { return reflect.ValueOf(s).Elem() })
	}
	if quick < 100 {
		t.Errorf("only %d states were written the quick way: this test tries little", quick)
	}
}

// clone is a deep copy.
func clone(t *testing.T, s operation.State) operation.State {
	t.Helper()
	data, err := anyEntry(s)
	if err != nil {
		t.Fatal(err)
	}
	out, err := decodeState(data)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// valuesFor are values of a type that are worth a try.
func valuesFor(typ reflect.Type) []reflect.Value {
	var out []reflect.Value
	add := func(values ...any) {
		for _, v := range values {
			out = append(out, reflect.ValueOf(v).Convert(typ))
		}
	}
	switch {
	case typ == reflect.TypeFor[time.Time]():
		add(time.Time{}, time.Date(2030, 1, 1, 0, 0, 0, 120, time.UTC), time.Date(2030, 1, 1, 0, 0, 0, 0, time.FixedZone("x", -5400)),
			time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 1, 0, 0, 0, 0, time.FixedZone("x", 25*3600)), time.Unix(0, 0))
	case typ == reflect.TypeFor[json.RawMessage]():
		add(json.RawMessage(nil), json.RawMessage(""), json.RawMessage("null"), json.RawMessage(" { \"a b\" : \" \\u003c<\u2028\" } "), json.RawMessage("{"), json.RawMessage("\"\xff\""))
	case typ.Kind() == reflect.String:
		add("", "x", "ä", "a\"b", `a\b`, "<&>", "\u2028", "\x00", "\x7f", "\xff", "~ ")
	case typ.Kind() == reflect.Bool:
		add(false, true)
	case typ.ConvertibleTo(reflect.TypeFor[int]()) && typ.Kind() != reflect.Uint64:
		add(0, 1, -1, 1<<40)
	case typ.Kind() == reflect.Uint64:
		add(uint64(0), uint64(1), uint64(1<<63))
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.String:
		add([]string(nil), []string{}, []string{"a"}, []string{"a", "<b>"}, []string{"ä"})
	case typ.Kind() == reflect.Slice, typ.Kind() == reflect.Pointer, typ.Kind() == reflect.Map:
		out = append(out, reflect.Zero(typ))
		switch typ.Kind() {
		case reflect.Slice:
			out = append(out, reflect.MakeSlice(typ, 0, 0), reflect.MakeSlice(typ, 1, 1), reflect.MakeSlice(typ, 2, 2))
		case reflect.Pointer:
			out = append(out, reflect.New(typ.Elem()))
		default:
			out = append(out, reflect.MakeMap(typ))
		}
	}
	return out
}

// I9: the same for the states of random histories.
func TestEntriesOfRandomHistoriesAreWrittenTheSame(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	for range 300 {
		var s operation.State
		for n := range 1 + rng.IntN(12) {
			data := anyPayload(rng, "op-1", s)
			if i, ok := data.(events.IntentRecorded); ok && rng.IntN(2) == 0 {
				i.Labels = nil
				data = i
			}
			body, err := events.Encode(draft("acme", "op-1", s, data))
			if err != nil {
				t.Fatal(err)
			}
			s, _ = operation.Evolve(s, events.DecodeRecord("s", uint64(n)+1, time.Unix(int64(n), rng.Int64N(1e9)), body))
			checkEntry(t, s)
		}
	}
}

// One operation is one entry.
func BenchmarkEntry(b *testing.B) {
	s := goesWell(b)
	s.Intent.Args = []byte(fmt.Sprintf(`{"note":"%s","title":"x"}`, strings.Repeat("x", 150)))
	for name, encode := range map[string]func(operation.State) ([]byte, error){"quick": encodeState, "any": anyEntry} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := encode(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// One operation is the fold of one operation of three events.
func BenchmarkFold(b *testing.B) {
	var records []events.Record
	var s operation.State
	for n, data := range []events.Payload{
		intent("op-1"),
		events.AttemptStarted{AttemptID: "1", Number: 1, Worker: "w", LeaseMS: 30_000, RequestDigest: "sha256:r"},
		events.ResultConfirmed{ExternalID: "T-1", Via: events.ViaResponse, AttemptID: "1"},
	} {
		body, err := events.Encode(draft("acme", "op-1", s, data))
		if err != nil {
			b.Fatal(err)
		}
		records = append(records, events.DecodeRecord("s", uint64(n)+1, time.Now(), body))
		s, _ = operation.Evolve(s, records[n])
	}
	b.ReportAllocs()
	for b.Loop() {
		operation.Fold(records)
	}
}
