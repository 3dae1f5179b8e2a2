package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/events"
)

// The kinds of an operation that needs no person are read the quick way, with
// every member that they have; so a new member needs its line there.
func TestWhatIsCommonIsReadTheQuickWay(t *testing.T) {
	t.Parallel()
	quick := map[events.Kind]bool{
		events.KindIntentRecorded: true, events.KindAttemptStarted: true, events.KindAttemptNotApplied: true,
		events.KindOutcomeUnknown: true, events.KindEvidenceRecorded: true, events.KindRetryPermitted: true,
		events.KindReviewOpened: true, events.KindResultConfirmed: true, events.KindRejected: true,
	}
	for _, p := range append(full(), minimal()...) {
		switch with := p.(type) { // members that are rare
		case events.IntentRecorded:
			with.ArgsSealed = nil
			p = with
		case events.Rejected:
			with.Covers = nil
			p = with
		}
		body, err := events.Encode(eventOf(p, true))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := events.Scan(body); ok != quick[p.Kind()] {
			t.Errorf("%s: read the quick way: %v\n%s", p.Kind(), ok, body)
		}
	}
}

// checkBoth fails unless both ways to read a body say the same.
func checkBoth(t *testing.T, body []byte) (quick bool) {
	t.Helper()
	kept := bytes.Clone(body)
	got, quick := events.Scan(body)
	want, err := events.DecodeAny(body)
	if !bytes.Equal(kept, body) {
		t.Fatal("the body was changed")
	}
	if !quick {
		return false
	}
	if err != nil {
		t.Fatalf("the quick way takes what is refused with %v:\n%s", err, body)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("the two ways differ: %s\n%s", cmp.Diff(want, got), body)
	}
	return true
}

// What the quick way reads means what encoding/json reads, whatever the body:
// here good ones with something put in or exchanged in one or two places.
func TestBothWaysReadTheSame(t *testing.T) {
	t.Parallel()
	pieces := []string{
		`"`, `\`, `{`, `}`, `[`, `]`, `,`, `:`, ` `, "\n", "\x00", "\xff", "ä", "0", "-", "1", "9", ".", "e", "E5", "null", "true", `""`, `{}`,
		`\u0041`, `\"`, `"version":3,`, `"Version":3,`, `"reason":"x",`, "99999999999999999999", "-0", "00", "T", "Z", "+01:00",
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const tries = 1500
	tried, quick := 0, 0
	for _, p := range append(full(), minimal()...) {
		if i, ok := p.(events.IntentRecorded); ok {
			i.ArgsSealed, i.Args = nil, json.RawMessage(`{"a":[1,-2.5e+7,true,false,null,{"b":"\n\u00e4ä"}],"c":{}}`)
			p = i
		}
		good := body(t, p)
		for range tries {
			b := good
			for range 1 + rng.IntN(2) {
				piece, at := pieces[rng.IntN(len(pieces))], rng.IntN(len(b))
				cut := []int{0, 1, len(piece)}[rng.IntN(3)]
				b = b[:at] + piece + b[min(at+cut, len(b)):]
			}
			tried++
			if checkBoth(t, []byte(b)) {
				quick++
			}
		}
	}
	if quick < tried/20 {
		t.Errorf("the quick way read %d of %d: this test tries little", quick, tried)
	}
}

// FuzzScan: what the quick way reads, encoding/json reads the same.
func FuzzScan(f *testing.F) {
	for _, p := range append(full(), minimal()...) {
		b, err := events.Encode(eventOf(p, true))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(bytes.ReplaceAll(b, []byte("Call"), []byte(`\u00e4`)))
	}
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.json"))
	if err != nil {
		f.Fatal(err)
	}
	if len(files) == 0 {
		f.Fatal("no golden files")
	}
	f.Fuzz(func(t *testing.T, in []byte) { checkBoth(t, in) })
}

// Deeply nested arguments are left to encoding/json, which has a bound of its own.
func TestDeepArgumentsAreReadAllTheSame(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{10, 60, 70, 9000} {
		args := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		b := body(t, events.IntentRecorded{Provider: "crm", Args: json.RawMessage(args)})
		checkBoth(t, []byte(b))
		e, err := events.Decode([]byte(b))
		if err != nil || string(e.Data.(events.IntentRecorded).Args) != args {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
	if _, err := events.Decode([]byte(`{"specversion":"1.0"}`)); !errors.Is(err, events.ErrMalformed) {
		t.Error(err)
	}
}

// One operation is one event: a typical intent, and the other two of an operation
// that goes well.
func BenchmarkDecode(b *testing.B) {
	intent := events.IntentRecorded{
		Provider: "crm", Account: events.Account{Name: "main", ProviderID: "acct_42"}, Action: "task.create",
		Args:       json.RawMessage(`{"note":"` + strings.Repeat("x", 150) + `","title":"call Ann back"}`),
		ArgsDigest: "sha256-jcs:" + strings.Repeat("1", 64), IntentDigest: "sha256-jcs:" + strings.Repeat("2", 64),
		ContractRef: events.ContractRef{Name: "crm", Revision: 3, Digest: "sha256:" + strings.Repeat("3", 64)},
		OnUnknown:   events.OnUnknownContract, IdempotencyKey: "0c4b4f2e-3c1c-5a77-9f53-0d3a1c9a5f10",
	}
	confirmed := events.ResultConfirmed{ExternalID: "T-1", Via: events.ViaResponse, AttemptID: events.NewID(), ProviderRequestID: "req-1"}
	for _, p := range []events.Payload{intent, full()[2], confirmed} {
		body, err := events.Encode(eventOf(p, true))
		if err != nil {
			b.Fatal(err)
		}
		for name, decode := range map[string]func([]byte) (events.Event, error){"quick": events.Decode, "any": events.DecodeAny} {
			b.Run(string(p.Kind())+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(body)))
				for b.Loop() {
					if _, err := decode(body); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
