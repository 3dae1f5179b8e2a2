package operation_test

import (
	"flag"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// symbol is one event of the alphabet, made for the state that it follows.
type symbol struct {
	name string
	make func(s operation.State) events.Payload
}

func latest(s operation.State) string {
	if n := len(s.Attempts); n > 0 {
		return s.Attempts[n-1].ID
	}
	return "a1"
}

func nextAttempt(s operation.State) string { return "a" + string(rune('1'+s.Started%9)) }

// alphabet holds the events that decide something. Attempts a1 and the latest
// are addressed, so that outcomes arrive for older attempts too.
func alphabet() []symbol {
	return []symbol{
		{"Start", func(s operation.State) events.Payload { return attemptOf(nextAttempt(s), s.Started+1, "") }},
		{"StartByPermit", func(s operation.State) events.Payload { return attemptOf(nextAttempt(s), s.Started+1, "p") }},
		{"NotSent a1", func(operation.State) events.Payload {
			return events.AttemptNotApplied{AttemptID: "a1", Proof: events.ProofNotSent}
		}},
		{"Unknown a1", func(operation.State) events.Payload {
			return events.OutcomeUnknown{AttemptID: "a1", Reason: events.UnknownTimeout}
		}},
		{"Unknown latest", func(s operation.State) events.Payload {
			return events.OutcomeUnknown{AttemptID: latest(s), Reason: events.UnknownLeaseExpired}
		}},
		{"Permit", func(operation.State) events.Payload {
			return events.RetryPermitted{PermitID: "p", Basis: events.BasisOperator, ValidUntil: begin.Add(time.Hour), RetryAt: begin}
		}},
		{"Present", func(operation.State) events.Payload {
			return events.EvidenceRecorded{Source: events.SourceLookup, Finding: events.FindingPresent, AskedAt: begin, ExternalIDs: []string{"T-1"}}
		}},
		{"Confirm", func(s operation.State) events.Payload {
			return events.ResultConfirmed{ExternalID: "T-1", Via: events.ViaResponse, AttemptID: latest(s)}
		}},
		{"Reject latest", func(s operation.State) events.Payload {
			return events.Rejected{Reason: "no", Via: events.ViaResponse, AttemptID: latest(s)}
		}},
	}
}

// rare holds the events that add nothing at depth, used to a smaller one.
func rare() []symbol {
	permit := func(basis events.Basis) func(operation.State) events.Payload {
		return func(operation.State) events.Payload {
			return events.RetryPermitted{PermitID: "p", Basis: basis, ValidUntil: begin.Add(time.Hour), RetryAt: begin}
		}
	}
	evidence := func(finding events.Finding) func(operation.State) events.Payload {
		return func(operation.State) events.Payload {
			return events.EvidenceRecorded{Source: events.SourceLookup, Finding: finding, AskedAt: begin.Add(time.Minute)}
		}
	}
	closed := func(word events.DecisionWord) func(operation.State) events.Payload {
		return func(operation.State) events.Payload { return events.ReviewClosed{Decision: word} }
	}
	return []symbol{
		{"Busy latest", func(s operation.State) events.Payload {
			return events.AttemptNotApplied{AttemptID: latest(s), Proof: events.ProofBusy}
		}},
		{"Refused latest", func(s operation.State) events.Payload {
			return events.AttemptNotApplied{AttemptID: latest(s), Proof: events.ProofRefused}
		}},
		{"ReviewOpened", func(operation.State) events.Payload {
			return events.ReviewOpened{Reason: events.ReviewNoEvidence}
		}},
		{"ReviewClosed", func(operation.State) events.Payload {
			return events.ReviewClosed{Decision: events.DecideResume}
		}},
		{"Intent", func(operation.State) events.Payload { return intentOf(contractK1()) }},
		{"KeyPermit", permit(events.BasisKeyRetention)},
		{"AbsencePermit", permit(events.BasisAbsentProven)},
		{"Absent", evidence(events.FindingAbsent)},
		{"Contradiction", evidence(events.FindingContradiction)},
		{"Inconclusive", evidence(events.FindingInconclusive)},
		{"Start a1 again", func(s operation.State) events.Payload { return attemptOf("a1", s.Started+1, "p") }},
		{"LogDamage", func(operation.State) events.Payload { return events.OutcomeUnknown{Reason: events.UnknownLogDamage} }},
		{"Exists latest", func(s operation.State) events.Payload {
			return events.OutcomeUnknown{AttemptID: latest(s), Reason: events.UnknownExists}
		}},
		{"Reject all", func(s operation.State) events.Payload {
			d := events.Rejected{Reason: "no", Via: events.ViaOperator}
			for _, a := range s.Attempts {
				d.Covers = append(d.Covers, events.Covered{AttemptID: a.ID, By: "operator"})
			}
			return d
		}},
		{"Undetermined", closed(events.DecideUndetermined)},
		{"Acknowledge", closed(events.DecideAcknowledge)},
		{"Duplicate", func(operation.State) events.Payload {
			return events.DuplicateFound{ExternalIDs: []string{"T-1", "T-2"}}
		}},
		{"Resume", func(operation.State) events.Payload { return events.ReviewUpdated{Decision: events.DecideResume} }},
		{"Look", func(operation.State) events.Payload { return events.ReviewUpdated{Decision: events.DecideLook} }},
		{"Approval", func(operation.State) events.Payload {
			return events.ApprovalGranted{Approver: "ann", IntentDigest: testDigest, ExpiresAt: begin.Add(time.Hour)}
		}},
		{"Erased", func(operation.State) events.Payload { return events.ArgumentsErased{KeyID: "k"} }},
		{"Unrecognized", func(operation.State) events.Payload { return events.Unrecognized{Type: "NotYetInvented"} }},
	}
}

type search struct {
	t           *testing.T
	symbols     []symbol
	contracts   []operation.Contract
	transitions *atomic.Int64
	path        []string
}

// every event sequence to the given depth, with every check after each step.
func (x *search) run(s operation.State, o *oracle, depth int) {
	if depth == 0 || x.t.Failed() {
		return
	}
	stamp := s.UpdatedAt.Add(10 * time.Second)
	if s.Version == 0 {
		stamp = begin
	}
	for _, sym := range x.symbols {
		p := sym.make(s)
		r := lightRecord(s, stamp, p)
		after, _ := operation.Evolve(s, r)
		x.transitions.Add(1)
		told := o.clone()
		told.apply(r.ID, stamp, p)
		x.path = append(x.path, sym.name)
		if err := x.check(s, after, told, stamp); err != "" {
			x.t.Errorf("%q: %s", x.path, err)
		}
		x.run(after, told, depth-1)
		x.path = x.path[:len(x.path)-1]
	}
}

func (x *search) check(before, s operation.State, o *oracle, stamp time.Time) string {
	if before.Status.Final() && s.Status != before.Status {
		return "final changed (I1)"
	}
	if s.Version != before.Version+1 || s.LastSeq != before.LastSeq+1 || s.Head == before.Head {
		return "version, head or sequence did not advance (I13)"
	}
	if err := o.agrees(s); err != nil {
		return err.Error()
	}
	if err := settled(s); err != nil {
		return err.Error()
	}
	for _, c := range x.contracts {
		for _, wait := range []time.Duration{time.Second, 2 * time.Hour} {
			now := stamp.Add(wait)
			step := operation.Next(s, c, operation.Params{Now: now, NewID: "n", ClockError: testClock, Lease: testLease})
			if err := o.allows(s, step, now); err != nil {
				return err.Error()
			}
			if step.Do == operation.DoAppend {
				if err := accepted(s, step, now); err != "" {
					return err
				}
			}
		}
	}
	return ""
}

// accepted reports whether the fold takes what Next wants to append.
func accepted(s operation.State, step operation.Step, now time.Time) string {
	for _, p := range step.Append {
		var a operation.Anomaly
		if s, a = operation.Evolve(s, lightRecord(s, now, p)); a.Reason != operation.AnomalyNone {
			return string(step.Reason) + " appends " + string(p.Kind()) + ", which the fold calls " + string(a.Reason)
		}
	}
	return ""
}

var exhaustiveDepth = flag.Int("depth", 6, "events after the intent in the exhaustive search")

// I1, I3, I4, I12, I13: every history of an operation to seven events over those
// that decide something, and to three more events over all kinds from three
// starts, keeps them. Method: search over all sequences; after each step the fold is compared with an independent
// reading of the table of moves, and Next is asked under several contracts.
func TestEveryShortHistoryKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	depth, wide := *exhaustiveDepth, *exhaustiveDepth-3
	if testing.Short() {
		depth, wide = 4, 2
	}
	var transitions atomic.Int64
	began := time.Now()
	t.Run("group", func(t *testing.T) {
		// After the intent: one goroutine per first event.
		intent := intentOf(contractK1())
		root, _ := operation.Evolve(operation.State{}, lightRecord(operation.State{}, begin, intent))
		for _, first := range alphabet() {
			t.Run(first.name, func(t *testing.T) {
				t.Parallel()
				o := &oracle{}
				o.apply("ev-1", begin, intent)
				p := first.make(root)
				r := lightRecord(root, begin.Add(time.Second), p)
				s, _ := operation.Evolve(root, r)
				o.apply(r.ID, r.Stamp, p)
				x := search{t: t, symbols: alphabet(), contracts: []operation.Contract{contractK1()}, transitions: &transitions}
				x.run(s, o, depth-1)
			})
		}
		all := append(alphabet(), rare()...)
		contracts := []operation.Contract{contractK1Label(), contractK4Absent(), contractK5()}
		for _, root := range []struct {
			name string
			path []events.Payload
		}{
			{"all events from nothing", nil},
			{"all events after an unknown outcome", []events.Payload{
				intent, attemptOf("a1", 1, ""), events.OutcomeUnknown{AttemptID: "a1", Reason: events.UnknownTimeout},
			}},
			{"all events during a permitted attempt", []events.Payload{
				intent, attemptOf("a1", 1, ""),
				events.OutcomeUnknown{AttemptID: "a1", Reason: events.UnknownTimeout},
				events.RetryPermitted{PermitID: "p", Basis: events.BasisAbsentProven, ValidUntil: begin.Add(time.Hour)},
				attemptOf("a2", 2, "p"),
			}},
		} {
			t.Run(root.name, func(t *testing.T) {
				t.Parallel()
				s, o := operation.State{}, &oracle{}
				for i, p := range root.path {
					r := lightRecord(s, begin.Add(time.Duration(i)*time.Second), p)
					s, _ = operation.Evolve(s, r)
					o.apply(r.ID, r.Stamp, p)
				}
				x := search{t: t, symbols: all, transitions: &transitions, contracts: contracts}
				x.run(s, o, wide)
			})
		}
	})
	t.Logf("%d transitions in %s", transitions.Load(), time.Since(began).Round(time.Millisecond))
}
