package operation

import (
	"slices"
	"time"

	"github.com/opledger/opledger/events"
)

// SeenLag returns for how long, at the least, an object that a look found had
// not been visible to the complete looks before it: what our own operations
// prove about the lag of a provider's lookup. Zero means that they prove nothing.
//
// Without the provider's own time of creation the latest moment counts at which
// the object may have come to be.
func SeenLag(s State, c Contract, l Look) time.Duration {
	if r := s.Result; r != nil && l.Source == events.SourceLookup && l.AccountOK && l.PagesComplete && !l.Failed &&
		!slices.Contains(l.Matches, r.ExternalID) {
		return max(l.AskedAt.Sub(r.At), 0) // confirmed, and still not to be seen (or deleted since)
	}
	if len(l.Matches) == 0 || len(s.Attempts) == 0 || l.Source != events.SourceLookup {
		return 0
	}
	latest := s.lastEnd().Add(c.LateApply)
	created := l.CreatedAt
	if created.IsZero() || created.After(latest) {
		created = latest
	}
	if first := s.Attempts[0].StartedAt; created.Before(first) {
		created = first // the clocks differ: it was not there before it was asked for
	}
	var blind time.Time
	for _, e := range s.Evidence {
		empty := e.Source == events.SourceLookup && e.PagesComplete && len(e.ExternalIDs)+len(e.WeakMatches) == 0 &&
			(e.AccountProbed == "" || e.AccountProbed == l.AccountProbed)
		if empty && e.AskedAt.After(blind) && e.AskedAt.Before(l.AskedAt) {
			blind = e.AskedAt
		}
	}
	return max(blind.Sub(created), 0)
}
