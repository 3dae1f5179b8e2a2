package operation

import (
	"slices"
	"time"

	"github.com/opledger/opledger/events"
)

// Damaged decides what damage to the log means for an operation that was
// recorded before the damage was accepted: an event may be missing behind its
// last one, so that a request may have been sent of which the log knows nothing.
// It returns what to append, or nothing for an operation that is final or has
// been put in doubt since. since is the last moment before the damage.
func Damaged(s State, since, raised time.Time) []events.Payload {
	if s.Status == StatusAbsent || s.Status.Final() {
		return nil
	}
	if slices.ContainsFunc(s.Attempts, func(a Attempt) bool {
		return a.Unknown == events.UnknownLogDamage && !a.EndedAt.Before(raised)
	}) {
		return nil
	}
	return inDoubt(s, since, s.UpdatedAt)
}

// LookFirst decides for an operation whose first request is about to be sent,
// in the time after the log was damaged: the intent in the log may be the repeat
// of one that was lost together with its attempts. Then what was sent since that
// moment is in doubt like after a lost answer: it is looked for, a key is relied
// on only as long as it was remembered from that moment on, and where there is
// neither a person decides. It returns nothing where that was done.
func LookFirst(s State, since time.Time) []events.Payload {
	if s.Status != StatusPending || slices.ContainsFunc(s.Attempts, func(a Attempt) bool {
		return a.Unknown == events.UnknownLogDamage
	}) {
		return nil
	}
	return inDoubt(s, since, s.UpdatedAt)
}

func inDoubt(s State, since, now time.Time) []events.Payload {
	u := events.OutcomeUnknown{Reason: events.UnknownLogDamage, Next: events.Next{Action: events.NextReconcile, At: now}}
	if !since.IsZero() && (s.RecordedAt.IsZero() || since.Before(s.RecordedAt)) {
		u.Since = since
	}
	if s.Review != nil || s.Hold != "" {
		u.Next = events.Next{Action: events.NextDecision}
	}
	return []events.Payload{u}
}
