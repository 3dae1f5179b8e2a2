package operation_test

import (
	"fmt"
	"testing"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// However harmless each attempt was, their number ends: at the bound a person is
// asked.
func TestAttemptsAreBoundedExactly(t *testing.T) {
	t.Parallel()
	c := contractK4()
	for _, beyond := range []int{-1, 0, 1} {
		j := started(t, c)
		for n := range operation.MaxAttemptsEver + beyond {
			id := fmt.Sprint("a", n)
			j.must(attemptOf(id, n+1, ""), events.AttemptNotApplied{AttemptID: id, Proof: events.ProofNotSent})
		}
		step := j.next(c)
		if (step.Do == operation.DoAttempt) != (beyond < 0) {
			t.Errorf("%d beyond the limit: got %+v", beyond, step)
		}
	}
}

// The state keeps the last observations, so that it stays small; the log keeps
// all of them.
func TestEvidenceInTheStateIsBoundedExactly(t *testing.T) {
	t.Parallel()
	c := contractK4()
	for _, beyond := range []int{-1, 0, 1} {
		j := started(t, c)
		j.start("a1", "")
		j.lost(c, "a1")
		for range operation.MaxEvidenceKept + beyond {
			j.must(events.EvidenceRecorded{Source: events.SourceLookup, Finding: events.FindingInconclusive, AskedAt: j.now})
		}
		if n := len(j.s.Evidence); n != min(operation.MaxEvidenceKept+beyond, operation.MaxEvidenceKept) {
			t.Errorf("%d beyond the limit: got %d", beyond, n)
		}
	}
}
