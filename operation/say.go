package operation

import (
	"fmt"
	"strings"
	"time"

	"github.com/opledger/opledger/events"
)

// Say returns one sentence that is safe to show to a model or a user. It never
// invites a retry: for an unknown outcome it says that it is being checked, and
// by when there is news.
func Say(s State) string {
	thing, done := words(s.Intent.Action)
	who := s.Intent.Provider
	switch s.Status {
	case StatusAbsent:
		return "No such operation is recorded."
	case StatusPending:
		return sayPending(s, thing, done, who)
	case StatusInFlight:
		return fmt.Sprintf("The request to %s is under way; %s.", who, notYet(thing, done))
	case StatusUnknown:
		head := fmt.Sprintf("%s has not confirmed that %s was %s;", who, thing, done)
		if s.Undetermined {
			return head + " a person looked and it cannot be found out."
		}
		if s.Review != nil {
			return head + " a person is checking."
		}
		if !s.NextAt.IsZero() {
			return head + " it is being checked, with news by " + stamp(s.NextAt) + "."
		}
		return head + " it is being checked."
	case StatusConfirmed:
		if s.Duplicate {
			return fmt.Sprintf("%s %s was %s at %s; more than one object was found, and a person is told.",
				upper(thing), s.Result.ExternalID, done, who)
		}
		return fmt.Sprintf("%s %s was %s at %s.", upper(thing), s.Result.ExternalID, done, who)
	case StatusRejected:
		if !RetrySafe(s) {
			return fmt.Sprintf("%s was reported as not %s at %s, but there are signs that it was; a person is told.",
				upper(thing), done, who)
		}
		return fmt.Sprintf("%s was not %s: %s; nothing was %s.", upper(thing), done, s.Rejection.Reason, done)
	}
	return "The state of the operation is not known to this version."
}

func sayPending(s State, thing, done, who string) string {
	switch {
	case s.Review != nil || s.Hold != "" || s.Halted != "":
		return fmt.Sprintf("%s is waiting for a person; %s.", upper(thing), notYet(thing, done))
	case s.NextAction == events.NextApproval:
		return fmt.Sprintf("%s is waiting for an approval; %s.", upper(thing), notYet(thing, done))
	}
	return fmt.Sprintf("The request to %s is recorded and will be sent; %s.", who, notYet(thing, done))
}

func notYet(thing, done string) string { return thing + " is not " + done + " yet" }

// RetrySafe reports whether a new operation for the same wish can't double
// anything: only after a rejection that nothing contradicts. Sending the same
// operation id again is always safe and is not what this is about.
func RetrySafe(s State) bool {
	return s.Status == StatusRejected && s.Review == nil && s.Halted == "" && !s.Sighted && len(s.ExternalIDs) == 0
}

// words turns "task.create" into "the task" and "created".
func words(action string) (thing, done string) {
	parts := strings.Split(action, ".")
	verb := parts[len(parts)-1]
	noun := strings.ReplaceAll(strings.Join(parts[:len(parts)-1], " "), "_", " ")
	if noun == "" {
		return "the action " + action, "carried out"
	}
	thing = "the " + noun
	if past, ok := pastTense(verb); ok {
		return thing, past
	}
	if strings.HasSuffix(verb, "e") {
		return thing, verb + "d"
	}
	return thing, verb + "ed"
}

func pastTense(verb string) (string, bool) {
	switch verb {
	case "send":
		return "sent", true
	case "pay":
		return "paid", true
	case "set", "put":
		return verb, true
	case "make":
		return "made", true
	case "submit":
		return "submitted", true
	case "reply":
		return "replied", true
	case "notify":
		return "notified", true
	case "apply":
		return "applied", true
	case "copy":
		return "copied", true
	case "cancel":
		return "cancelled", true
	}
	return "", false
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func stamp(t time.Time) string { return t.UTC().Truncate(time.Second).Format(time.RFC3339) }
