package operation_test

import (
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// repeated is the log of an operation that was recorded once more, half an hour
// after the damage that took the first record away.
func repeated(t *testing.T, c operation.Contract, lost time.Duration) *journal {
	t.Helper()
	j := newJournal(t)
	j.wait(lost).must(intentOf(c))
	j.must(operation.LookFirst(j.s, begin)...)
	return j
}

// Section 10, I4: an operation that vanished whole and is handed in again is
// never simply sent: it is looked for, or its key is relied on from the moment
// on at which it may have been sent, or a person decides.
func TestAfterDamageNothingIsSentBeforeItWasLookedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]operation.Contract{
		"K1 with label": contractK1Label(), "K4": contractK4(), "K4, absence provable": contractK4Absent(),
	} {
		j := repeated(t, c, 30*time.Minute)
		if step := j.next(c); step.Do != operation.DoLook || j.s.Status != operation.StatusUnknown {
			t.Errorf("%s: got %s of %s, want a look", name, step.Reason, j.s.Status)
		}
	}
	for name, c := range map[string]operation.Contract{"K5": contractK5()} {
		j := repeated(t, c, 30*time.Minute)
		j.do(c)
		if j.s.Review == nil || j.s.Started != 0 {
			t.Errorf("%s: want a review before the first send", name)
		}
	}
}

// I5: after damage the key's clock runs from the last moment before the damage,
// not from the record of the repeat.
func TestAfterDamageTheKeysClockBeginsBeforeTheDamage(t *testing.T) {
	t.Parallel()
	c := contractK1()
	j := repeated(t, c, time.Hour)
	if j.do(c); j.s.Permit == nil || j.s.Permit.Basis != events.BasisKeyRetention {
		t.Fatalf("got %+v, want a permit by key", j.s.Permit)
	}
	if want := begin.Add(c.Retention - c.Margin); !j.s.Permit.ValidUntil.Equal(want) {
		t.Errorf("the permit is valid until %s, want %s", j.s.Permit.ValidUntil, want)
	}
	j = repeated(t, c, c.Retention)
	if j.do(c); j.s.Permit != nil || j.s.Review == nil {
		t.Errorf("the provider may have forgotten the key, and there is permit %+v", j.s.Permit)
	}
}

// Section 10: what is put in doubt is put in doubt once per damage; what is
// final, or was looked for since, is left alone.
func TestDamagePutsInDoubtOnce(t *testing.T) {
	t.Parallel()
	c := contractK4()
	j := started(t, c)
	raised := j.wait(time.Minute).now
	j.wait(time.Second)
	out := operation.Damaged(j.s, begin, raised)
	if len(out) != 1 {
		t.Fatalf("got %v", out)
	}
	j.must(out...)
	if again := operation.Damaged(j.s, begin, raised); len(again) != 0 {
		t.Errorf("twice for one damage: %v", again)
	}
	if again := operation.LookFirst(j.s, begin); len(again) != 0 {
		t.Errorf("twice before the first send: %v", again)
	}
	if second := operation.Damaged(j.s, begin, j.wait(time.Hour).now); len(second) != 1 {
		t.Error("a second damage puts nothing in doubt")
	}
	j.must(events.ResultConfirmed{ExternalID: "T-1", Via: events.ViaLookup})
	if out := operation.Damaged(j.s, begin, j.wait(time.Hour).now); len(out) != 0 {
		t.Errorf("a final operation: %v", out)
	}
}

// I12: what waits for a person goes on waiting for one.
func TestDamageLeavesReviewsAndHoldsWithTheirPerson(t *testing.T) {
	t.Parallel()
	c := contractK5()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	j.do(c)
	j.must(operation.Damaged(j.s, begin, j.wait(time.Minute).now)...)
	if j.s.NextAction != events.NextDecision || j.s.Review == nil {
		t.Errorf("got next %s", j.s.NextAction)
	}
}
