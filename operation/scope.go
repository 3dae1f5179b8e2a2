package operation

import (
	"slices"
	"time"

	"github.com/opledger/opledger/events"
)

// NewestWish returns when the newest wish was recorded that is confirmed in a
// conflict scope, up to the operation that took it last.
func NewestWish(last State, taken events.ScopeTaken) time.Time {
	if last.Status == StatusConfirmed && last.RecordedAt.After(taken.Newest) {
		return last.RecordedAt
	}
	return taken.Newest
}

// EnterScope decides whether an operation that may be attempted now (enter) may
// take its conflict scope from the operation that took it last. It returns
// enter, a wait, or a review to append. The caller has read who took it last
// before it read that operation's state, and takes the scope only if nobody has
// taken it since; so of two operations of one scope at most one is ever in
// doubt.
//
// Who may wait for whom: an unknown outcome blocks its own scope and nothing
// else.
func EnterScope(s, last State, taken events.ScopeTaken, c Contract, enter Step, p Params) Step {
	if last.Tenant == s.Tenant && last.OperationID == s.OperationID {
		return enter
	}
	if last.Status == StatusAbsent || last.unclear(taken) {
		// Nobody knows what it did.
		return Step{Reason: ReasonScopeHeld}
	}
	if until, held := last.holdsScope(c, p); held {
		return Step{Reason: ReasonScopeHeld, At: until}
	}
	if m := s.operatorPermit(p.Now); m != nil && m.ID == enter.PermitID {
		return enter // a person has seen it, and takes the risk
	}
	switch {
	case s.sentBefore(taken):
		return overtaken(last, "a repeat would come after what it wrote")
	case c.Class == ClassUpsert && NewestWish(last, taken).After(s.RecordedAt):
		return overtaken(last, "an older wish would overwrite a newer one")
	}
	return enter
}

func overtaken(last State, why string) Step {
	return review(ReasonScopeOvertaken, events.ReviewOvertaken,
		"operation "+last.OperationID+" has taken the conflict scope since: "+why)
}

// unclear reports whether the log tells less of an operation that is not final
// than what it did: messages that can't be read, or no word of the attempt that
// took the conflict scope.
func (s State) unclear(taken events.ScopeTaken) bool {
	_, known := s.AttemptByID(taken.Attempt)
	missing := taken.Attempt != "" && !known && len(s.Attempts) < MaxAttemptsKept
	return !s.Status.Final() && (s.Halted != "" || missing)
}

// sentBefore reports whether an attempt in doubt was started before somebody took
// the conflict scope. One that was started later and did not take it was never
// sent.
func (s State) sentBefore(taken events.ScopeTaken) bool {
	return slices.ContainsFunc(s.Unresolved(), func(a Attempt) bool { return !taken.At.Before(a.StartedAt) })
}

// holdsScope reports whether an operation may still change its outside object,
// and until when at the latest if that is known. A final operation holds the
// scope as long as another of its requests may land late: what it would do then
// comes after the next operation's.
func (s State) holdsScope(c Contract, p Params) (until time.Time, held bool) {
	doubt := slices.ContainsFunc(s.Attempts, func(a Attempt) bool {
		return a.State == AttemptOpen || a.State == AttemptUnresolved
	})
	if !doubt {
		return time.Time{}, false
	}
	if !s.Status.Final() {
		return time.Time{}, true
	}
	end := s.lastEnd().Add(p.ClockError + c.LateApply)
	return end, p.Now.Before(end)
}
