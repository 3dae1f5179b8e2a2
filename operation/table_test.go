package operation_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// byStatus is one typical state per status. Attempt a1 is the one in question.
func byStatus(t *testing.T) []*journal {
	t.Helper()
	c := contractK4()
	pending := started(t, c)
	inFlight := started(t, c)
	inFlight.start("a1", "")
	unknown := started(t, c)
	unknown.start("a1", "")
	unknown.lost(c, "a1")
	confirmed := started(t, c)
	confirmed.start("a1", "")
	confirmed.answer(c, "a1", operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "T-1"})
	rejected := started(t, c)
	rejected.start("a1", "")
	rejected.answer(c, "a1", operation.Outcome{Word: operation.OutcomeRejected, Reason: "quota"})
	return []*journal{newJournal(t), pending, inFlight, unknown, confirmed, rejected}
}

// typical is one event per kind, of attempt a1 where it names one.
func typical() []events.Payload {
	at := begin.Add(time.Hour)
	return []events.Payload{
		intentOf(contractK4()),
		events.ApprovalGranted{Approver: "ann", IntentDigest: testDigest, ExpiresAt: at},
		attemptOf("a2", 2, ""),
		events.AttemptNotApplied{AttemptID: "a1", Proof: events.ProofNotApplied},
		events.OutcomeUnknown{AttemptID: "a1", Reason: events.UnknownTimeout},
		events.EvidenceRecorded{Source: events.SourceLookup, Finding: events.FindingPresent, AskedAt: begin, ExternalIDs: []string{"T-2"}},
		events.RetryPermitted{PermitID: "p", Basis: events.BasisOperator, ValidUntil: at, RetryAt: begin},
		events.ReviewOpened{Reason: events.ReviewEvidenceExhausted},
		events.ReviewUpdated{Decision: events.DecideNote},
		events.ReviewClosed{Decision: events.DecideResume},
		events.ResultConfirmed{ExternalID: "T-2", Via: events.ViaLookup, AttemptID: "a1"},
		events.Rejected{Reason: "quota", Via: events.ViaResponse, AttemptID: "a1"},
		events.DuplicateFound{ExternalIDs: []string{"T-1", "T-2"}},
		events.ArgumentsErased{KeyID: "k"},
		events.Unrecognized{Type: "NotYetInvented"},
	}
}

// I1, section 3: what each kind of event does in each status. Evolve is total
// over the pairs; the table is the golden file, from which docs are made.
func TestEveryStatusTakesEveryKind(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	fmt.Fprintf(&out, "%-10s %-18s %-10s %s\n", "status", "event", "becomes", "anomaly")
	seen := map[events.Kind]bool{}
	for _, j := range byStatus(t) {
		name := string(j.s.Status)
		if name == "" {
			name = "absent"
		}
		row := func(kind string, r events.Record) {
			after, a := operation.Evolve(j.s, r)
			status := string(after.Status)
			if status == "" {
				status = "absent"
			}
			anomaly := string(a.Reason)
			if anomaly == "" {
				anomaly = "-"
			}
			fmt.Fprintf(&out, "%-10s %-18s %-10s %s\n", name, kind, status, anomaly)
		}
		for _, p := range typical() {
			seen[p.Kind()] = true
			row(string(p.Kind()), lightRecord(j.s, j.now, p))
		}
		row("(malformed)", events.Record{Seq: j.s.LastSeq + 1, Stamp: j.now, Err: errors.New("no event")})
	}
	for _, kind := range events.Kinds() {
		if !seen[kind] {
			t.Errorf("%s is not in the table", kind)
		}
	}
	golden(t, "testdata/status_kind.golden", out.String())
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// Every anomaly, status, decision, refusal and outcome that is on a list is
// reached by some test history, and no list has an entry twice.
func TestClosedListsHoldNothingTwice(t *testing.T) {
	t.Parallel()
	once(t, "Kinds", events.Kinds())
	once(t, "NextActions", events.NextActions())
	once(t, "UnknownReasons", events.UnknownReasons())
	once(t, "Proofs", events.Proofs())
	once(t, "EvidenceSources", events.EvidenceSources())
	once(t, "Findings", events.Findings())
	once(t, "Bases", events.Bases())
	once(t, "ReviewReasons", events.ReviewReasons())
	once(t, "Vias", events.Vias())
	once(t, "DecisionWords", events.DecisionWords())
	once(t, "OnUnknowns", events.OnUnknowns())
	once(t, "Statuses", operation.Statuses())
	once(t, "AnomalyReasons", operation.AnomalyReasons())
	once(t, "Reasons", operation.Reasons())
	once(t, "RefusalReasons", operation.RefusalReasons())
	once(t, "OutcomeWords", operation.OutcomeWords())
}

func once[T ~string](t *testing.T, name string, list []T) {
	t.Helper()
	seen := map[T]bool{}
	for _, v := range list {
		if seen[v] || v == "" {
			t.Errorf("%s: %q is there twice or empty", name, v)
		}
		seen[v] = true
	}
}

// I14, section 3: Evolve and Next take the zero value and nonsense without a
// panic: payloads with empty fields in every status, zero contracts, zero time.
func TestNonsenseNeverPanics(t *testing.T) {
	t.Parallel()
	empty := []events.Payload{
		events.IntentRecorded{},
		events.ApprovalGranted{},
		events.AttemptStarted{},
		events.AttemptNotApplied{},
		events.OutcomeUnknown{},
		events.EvidenceRecorded{},
		events.RetryPermitted{},
		events.ReviewOpened{},
		events.ReviewUpdated{},
		events.ReviewClosed{},
		events.ResultConfirmed{},
		events.Rejected{},
		events.DuplicateFound{},
		events.ArgumentsErased{},
		events.Unrecognized{},
	}
	var x operation.Contract
	for _, j := range byStatus(t) {
		for _, one := range empty {
			s, _ := operation.Evolve(j.s, lightRecord(j.s, time.Time{}, one))
			for _, two := range empty {
				s2, _ := operation.Evolve(s, lightRecord(s, time.Time{}, two))
				operation.Next(s2, x, operation.Params{})
				operation.Say(s2)
				operation.RetrySafe(s2)
				for _, word := range append(operation.OutcomeWords(), "") {
					operation.Answered(s2, x, "", operation.Outcome{Word: word}, operation.Params{})
				}
				for _, word := range append(events.DecisionWords(), "") {
					operation.Decided(s2, x, operation.Decision{Word: word, Actor: "a", Reason: "r", SeenVersion: s2.Version}, operation.Params{})
				}
				operation.Looked(s2, x, operation.Look{}, operation.Params{})
				operation.Approved(s2, operation.Grant{}, operation.Params{})
				operation.Dispatch(s2, "", "")
			}
		}
	}
}
