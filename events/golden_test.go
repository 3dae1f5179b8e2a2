package events_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/events"
)

// -freeze adds golden files that are missing, with their digests. It never
// changes one that exists: format v1 is additive, and what was once written
// must decode for ever.
var freeze = flag.Bool("freeze", false, "add missing golden files")

const (
	goldenDir = "testdata/v1"
	ledger    = "018f6b1e-7c3a-7000-8000-0000000000aa"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 123456789, time.UTC)

func next(a events.NextAction) events.Next {
	return events.Next{Action: a, At: noon.Add(90 * time.Second)}
}

// full holds one payload per kind with every field set. IntentRecorded has both
// forms of arguments set, which no real intent has.
func full() []events.Payload {
	later := noon.Add(time.Hour)
	return []events.Payload{
		events.IntentRecorded{
			Provider: "crm", Account: events.Account{Name: "main", ProviderID: "acct_42"}, Action: "task.create",
			SchemaVersion: "2", Args: json.RawMessage(`{"title":"Call <Ann> & Bob","due":"2026-12-24","n":9007199254740991}`),
			ArgsSealed: &events.Sealed{KeyID: "k-1", Ciphertext: []byte("sealed")},
			ArgsDigest: "sha256-jcs:1f2e", IntentDigest: "sha256-jcs:3d4c",
			ContractRef: events.ContractRef{Name: "crm/task.create", Revision: 3, Digest: "sha256:5b6a"},
			OnUnknown:   events.OnUnknownContract, IdempotencyKey: "0c4b4f2e-3c1c-5a77-9f53-0d3a1c9a5f10", RequestID: "req-7",
			Source:      events.Source{System: "mail", EventID: "m-99", Slot: "0"},
			Origin:      &events.Origin{Agent: "assistant", Run: "run-1", Tool: "create_task", ToolCallID: "call-1"},
			RequestedBy: "ann@example.com", Basis: "asked for in the conversation",
			Approval: &events.Approval{Required: true, Deadline: later},
			Labels:   map[string]string{"team": "sales", "a": "ä"}, ConflictScope: "task-7", RepeatOf: "op-0",
			PossibleRepeatOf: "op-00", Hold: "possible_repeat", Compensates: "op-000",
			Limits: &events.Limits{Deadline: later, MaxAttempts: 2},
		},
		events.ApprovalGranted{Approver: "ann", IntentDigest: "sha256-jcs:3d4c", ExpiresAt: later, Reason: "looks right"},
		events.AttemptStarted{
			AttemptID: "at-1", Number: 1, Worker: "w-1", ClaimRevision: 7, LeaseMS: 45000, RequestDigest: "sha256:7788",
			AccountProbed: "acct_42", PermitID: "pe-1",
		},
		events.AttemptNotApplied{
			AttemptID: "at-1", Proof: events.ProofNotApplied, Reason: "rate limited", ProviderRequestID: "pr-1",
			RetryAt: later, Next: next(events.NextAttempt),
		},
		events.OutcomeUnknown{
			AttemptID: "at-1", Reason: events.UnknownTimeout, ProviderRequestID: "pr-1", NoRepeat: true,
			Transport: &events.Transport{
				Status: 502, BytesSent: true, AnswerBytes: 12, Error: "deadline exceeded", DurationMS: 30000,
				ConnReused: true, RemoteServer: "192.0.2.1:443",
			}, Next: next(events.NextReconcile),
		},
		events.EvidenceRecorded{
			Source: events.SourceLookup, Finding: events.FindingPresent, AskedAt: noon, AskedVersion: 4,
			AccountProbed: "acct_42", AttemptID: "at-1", Lookup: "by_label", PagesComplete: true, LagMS: 60000,
			ExternalIDs: []string{"T-1"}, WeakMatches: []string{"T-9"}, ProviderRequestID: "pr-2", Reason: "found",
			Next: next(events.NextDecision),
		},
		events.RetryPermitted{
			PermitID: "pe-1", SeenVersion: 6, Basis: events.BasisKeyRetention, ValidUntil: later, MarginMS: 3600000,
			Account:       events.Account{Name: "main", ProviderID: "acct_42"},
			RequestDigest: "sha256:7788", ContractDigest: "sha256:5b6a", Evidence: []string{"ev-5"}, RetryAt: noon,
			Reason: "key remembered", Next: next(events.NextAttempt),
		},
		events.ReviewOpened{Reason: events.ReviewEvidenceExhausted, Text: "four looks did not find it", Next: next(events.NextDecision)},
		events.ReviewUpdated{
			Decision: events.DecidePostpone, Text: "support answers tomorrow", SeenVersion: 6, Until: later,
			Assignee: "bob", Next: next(events.NextDecision),
		},
		events.ReviewClosed{Decision: events.DecideConfirm, Text: "seen in the console", SeenVersion: 7, Next: next(events.NextNone)},
		events.ResultConfirmed{
			ExternalID: "T-1", SeenVersion: 6, Result: json.RawMessage(`{"id":"T-1"}`), Via: events.ViaOperator, AttemptID: "at-1",
			ProviderRequestID: "pr-1", Reason: "seen in the console", Next: next(events.NextReconcile),
		},
		events.Rejected{
			Reason: "card declined", SeenVersion: 6, Via: events.ViaResponse, AttemptID: "at-1", ProviderRequestID: "pr-1",
			Covers: []events.Covered{{AttemptID: "at-1", By: "answers_key"}},
		},
		events.DuplicateFound{ExternalIDs: []string{"T-1", "T-2"}, How: "lookup"},
		events.ArgumentsErased{KeyID: "k-1"},
	}
}

// minimal holds one payload per kind with only what must be there.
func minimal() []events.Payload {
	return []events.Payload{
		events.IntentRecorded{
			Provider: "crm", Account: events.Account{Name: "main"}, Action: "create", ArgsDigest: "sha256-jcs:1",
			IntentDigest: "sha256-jcs:2", ContractRef: events.ContractRef{Name: "crm", Revision: 1, Digest: "sha256:3"},
			OnUnknown: events.OnUnknownContract, IdempotencyKey: "key",
		},
		events.ApprovalGranted{Approver: "ann", IntentDigest: "sha256-jcs:2", ExpiresAt: noon},
		events.AttemptStarted{AttemptID: "at-1", Number: 1, Worker: "w-1", LeaseMS: 1, RequestDigest: "sha256:4"},
		events.AttemptNotApplied{AttemptID: "at-1", Proof: events.ProofNotSent},
		events.OutcomeUnknown{Reason: events.UnknownLogDamage},
		events.EvidenceRecorded{Source: events.SourceWebhook, Finding: events.FindingInconclusive, AskedAt: noon},
		events.RetryPermitted{PermitID: "pe-1", Basis: events.BasisOperator, ValidUntil: noon, Account: events.Account{Name: "main"}, ContractDigest: "sha256:3", RetryAt: noon},
		events.ReviewOpened{Reason: events.ReviewPolicy},
		events.ReviewUpdated{Decision: events.DecideNote, SeenVersion: 1},
		events.ReviewClosed{Decision: events.DecideUndetermined, SeenVersion: 1},
		events.ResultConfirmed{ExternalID: "T-1", Via: events.ViaResponse},
		events.Rejected{Reason: "no", Via: events.ViaExpired},
		events.DuplicateFound{ExternalIDs: []string{"T-1", "T-2"}, How: "webhook"},
		events.ArgumentsErased{KeyID: "k-1"},
	}
}

func eventOf(p events.Payload, complete bool) events.Event {
	e := events.Event{
		ID: "019ae0f0-0000-7000-8000-000000000001", Ledger: ledger, Tenant: "acme", Operation: "op-1", Version: 1,
		Time: noon, Data: p,
	}
	if complete {
		e.Version, e.Prev, e.Actor = 2, events.Digest([]byte("before")), "worker w-1"
		e.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	}
	return e
}

func systemRecords() []events.System {
	of := func(kind events.SystemKind, data map[string]any) events.System {
		return events.System{ID: "019ae0f0-0000-7000-8000-000000000002", Ledger: ledger, Kind: kind, Time: noon, Actor: "projector", Data: data}
	}
	return []events.System{
		of(events.SystemRebuildMarker, map[string]any{"fold_version": 1}),
		of(events.SystemCheckpoint, map[string]any{"sequence": 9007199254740991, "digest": "sha256:aa"}),
		of(events.SystemAlarmRaised, map[string]any{"reason": "num_deleted"}),
		of(events.SystemAlarmCleared, map[string]any{"reason": "restored", "last_sequence": 12}),
		of(events.SystemContractStored, map[string]any{"contract_digest": "sha256:5b6a"}),
		of(events.SystemScopeTaken, map[string]any{"operation_id": "op-1"}),
	}
}

// wanted returns every golden file that must exist, with its body.
func wanted(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	put := func(name string, body []byte, err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		files[name+".json"] = body
	}
	for i, p := range full() {
		body, err := events.Encode(eventOf(p, true))
		put(string(p.Kind())+".full", body, err)
		body, err = events.Encode(eventOf(minimal()[i], false))
		put(string(p.Kind())+".minimal", body, err)
	}
	// Members that came after the files above were frozen.
	body, err := events.Encode(eventOf(events.OutcomeUnknown{
		Reason: events.UnknownLogDamage, Since: noon, Next: events.Next{Action: events.NextReconcile, At: noon.Add(time.Minute)},
	}, true))
	put("OutcomeUnknown.log_damage", body, err)
	for _, s := range systemRecords() {
		body, err := events.EncodeSystem(s)
		put("system."+string(s.Kind), body, err)
	}
	some := string(files["ReviewOpened.full.json"])
	put("unknown_members", []byte(strings.NewReplacer(
		`"specversion"`, `"dataschema":"https://example.com/later","specversion"`,
		`"text"`, `"from_a_later_version":{"deep":[1,null,"x"]},"text"`).Replace(some)), nil)
	put("unknown_kind", []byte(strings.Replace(some, ".ReviewOpened", ".NotYetInvented", 1)), nil)
	return files
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(goldenDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// Section 11: no kind is without a golden file, and each says today what it said
// when it was frozen.
func TestEveryKindHasItsGoldenFiles(t *testing.T) {
	for name, body := range wanted(t) {
		if _, err := os.Stat(filepath.Join(goldenDir, name)); *freeze && os.IsNotExist(err) {
			if err := os.WriteFile(filepath.Join(goldenDir, name), body, 0o644); err != nil {
				t.Fatal(err)
			}
			sums, err := os.OpenFile(filepath.Join(goldenDir, "SHA256SUMS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(sums, "%x  %s\n", sha256.Sum256(body), name)
			if err := sums.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(string(read(t, name)), string(body)); diff != "" {
			t.Errorf("%s is written differently now (-frozen +now):\n%s", name, diff)
		}
	}
	covered := map[events.Kind]bool{}
	for _, p := range full() {
		covered[p.Kind()] = true
	}
	for _, kind := range events.Kinds() {
		if !covered[kind] {
			t.Errorf("%s has no golden file", kind)
		}
	}
}

// Section 11: golden files are frozen; they are added, never edited or removed.
func TestGoldenFilesAreFrozen(t *testing.T) {
	t.Parallel()
	listed := map[string]string{}
	for line := range strings.Lines(string(read(t, "SHA256SUMS"))) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok || listed[name] != "" {
			t.Fatalf("SHA256SUMS: %q", line)
		}
		listed[name] = sum
	}
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		sum := sha256.Sum256(read(t, name))
		if got := hex.EncodeToString(sum[:]); got != listed[name] {
			t.Errorf("%s: digest %s, frozen is %q", name, got, listed[name])
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("%s is gone", name)
	}
}

// Section 11: every golden event decodes; where all is known it is written back
// byte for byte.
func TestGoldenEventsRoundTrip(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.json"))
	if err != nil || len(files) < 2*len(events.Kinds()) {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		body := read(t, name)
		if strings.HasPrefix(name, "system.") {
			s, err := events.DecodeSystem(body)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			again, err := events.EncodeSystem(s)
			if err != nil || !bytes.Equal(again, body) {
				t.Errorf("%s: %v\n got %s\nwant %s", name, err, again, body)
			}
			continue
		}
		e, err := events.Decode(body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := events.Encode(e)
		switch name {
		case "unknown_kind.json":
			u, ok := e.Data.(events.Unrecognized)
			if !ok || u.Kind() != "NotYetInvented" || !json.Valid(u.Data) || err == nil {
				t.Errorf("%s: got %T, %v", name, e.Data, err)
			}
		case "unknown_members.json":
			if want, _ := events.Decode(read(t, "ReviewOpened.full.json")); !cmp.Equal(want, e) {
				t.Errorf("%s: %s", name, cmp.Diff(want, e))
			}
		default:
			if err != nil || !bytes.Equal(again, body) {
				t.Errorf("%s: %v\n got %s\nwant %s", name, err, again, body)
			}
		}
	}
}

// Every kind comes back from its bytes as it went in.
func TestEventsRoundTrip(t *testing.T) {
	t.Parallel()
	for _, p := range slices.Concat(full(), minimal()) {
		for _, complete := range []bool{true, false} {
			want := eventOf(p, complete)
			body, err := events.Encode(want)
			if err != nil {
				t.Fatalf("%s: %v", p.Kind(), err)
			}
			got, err := events.Decode(body)
			if err != nil {
				t.Fatalf("%s: %v", p.Kind(), err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", p.Kind(), diff)
			}
		}
	}
}
