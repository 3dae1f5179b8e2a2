package operation_test

import (
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// What our own looks prove about a lookup's lag: from the creation of the object
// to the last complete look that did not see it, and nothing else.
func TestLagIsLearnedFromOwnConfirmedOperations(t *testing.T) {
	t.Parallel()
	c := contractK4()
	j := started(t, c)
	j.start("a1", "")
	j.lost(c, "a1")
	created := j.now
	see := func(after time.Duration, change func(*operation.Look)) {
		j.now = created.Add(after)
		l := lookOf(j.now)
		change(&l)
		j.must(operation.Looked(j.s, c, l, j.params())...)
	}
	see(10*time.Second, func(*operation.Look) {})
	see(70*time.Second, func(*operation.Look) {})
	see(100*time.Second, func(l *operation.Look) { l.PagesComplete, l.Failed = false, true }) // proves nothing
	found := func(createdAt time.Time) operation.Look {
		l := lookOf(created.Add(2*time.Minute), "T-1")
		l.CreatedAt = createdAt
		return l
	}
	late := j.s.Attempts[0].LeaseUntil.Add(c.LateApply)
	rows := []struct {
		name string
		look operation.Look
		want time.Duration
	}{
		{"the provider says when", found(created), 70 * time.Second},
		{"its clock is ahead of all that can be", found(created.Add(time.Hour)), created.Add(70 * time.Second).Sub(late)},
		{"it does not say", found(time.Time{}), created.Add(70 * time.Second).Sub(late)},
		{"its clock is far behind", found(created.Add(-time.Hour)), created.Add(70 * time.Second).Sub(j.s.Attempts[0].StartedAt)},
		{"nothing found", lookOf(created.Add(2 * time.Minute)), 0},
	}
	for _, row := range rows {
		if got := operation.SeenLag(j.s, c, row.look); got != max(row.want, 0) {
			t.Errorf("%s: got %v, want %v", row.name, got, max(row.want, 0))
		}
	}
	webhook := found(created)
	webhook.Source = events.SourceWebhook
	if got := operation.SeenLag(j.s, c, webhook); got != 0 {
		t.Errorf("a webhook proves %v about the lookup, want nothing", got)
	}
}
