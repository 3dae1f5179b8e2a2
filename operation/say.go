package operation

import (
	"fmt"
	"regexp"
	"slices"
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
		return fmt.Sprintf("The request to %s is under way; it is not known yet whether %s was %s.", who, thing, done)
	case StatusUnknown:
		head := fmt.Sprintf("%s has not confirmed that %s was %s;", who, thing, done)
		if s.Undetermined {
			return head + " a person looked and it cannot be found out."
		}
		if s.Review != nil {
			return head + " a person is asked to check."
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
		if s.riskLeft() {
			return fmt.Sprintf("%s %s was %s at %s; an earlier request has no known outcome, so there may be a second one.",
				upper(thing), s.Result.ExternalID, done, who)
		}
		return fmt.Sprintf("%s %s was %s at %s.", upper(thing), s.Result.ExternalID, done, who)
	case StatusRejected:
		if !RetrySafe(s) {
			return fmt.Sprintf("%s was reported as not %s at %s, but there are signs that it was; a person is told.",
				upper(thing), done, who)
		}
		return fmt.Sprintf("%s was not %s: %s; nothing was %s.", upper(thing), done, sayWhy(*s.Rejection, who), done)
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

// plainReason is what a provider's reason may look like to be passed on to a
// model: a status and a code, no prose that could instruct it.
var plainReason = regexp.MustCompile(`^[A-Za-z0-9_.:/ -]{1,80}$`)

// sayWhy explains a rejection without passing on anybody's free text.
func sayWhy(r Rejection, who string) string {
	switch r.Via {
	case events.ViaResponse:
		if plainReason.MatchString(r.Reason) {
			return who + " refused it (" + r.Reason + ")"
		}
		return who + " refused it"
	case events.ViaOperator:
		return "a person found that it did not happen"
	case events.ViaCancelled:
		return "it was cancelled"
	case events.ViaExpired:
		return "its time ran out"
	case events.ViaApprover:
		return "it was not approved"
	case events.ViaAbsence:
		return "it was looked for and is proven not to exist"
	case events.ViaLookup, events.ViaLateResponse, events.ViaWebhook:
	}
	return "the outside said no"
}

// riskLeft reports whether an attempt that rested on nobody's key may have made
// a second object.
func (s State) riskLeft() bool {
	atRisk := slices.ContainsFunc(s.Attempts, func(a Attempt) bool {
		return a.PermitBasis == events.BasisOperator || a.PermitBasis == events.BasisDeclaredRisk
	})
	return atRisk && len(s.Unresolved()) > 0
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
	switch {
	case strings.HasSuffix(verb, "e"):
		return thing, verb + "d"
	case doubles(verb):
		return thing, verb + verb[len(verb)-1:] + "ed"
	}
	return thing, verb + "ed"
}

// doubles reports whether a short verb doubles its last letter: ship, tag.
func doubles(verb string) bool {
	const vowels = "aeiou"
	n := len(verb)
	if n < 3 || strings.ContainsAny(verb[n-1:], vowels+"wxy") || !strings.ContainsAny(verb[n-2:n-1], vowels) {
		return false
	}
	count := 0
	for _, r := range verb {
		if strings.ContainsRune(vowels, r) {
			count++
		}
	}
	return count == 1
}

func pastTense(verb string) (string, bool) {
	past, ok := map[string]string{
		"send": "sent", "pay": "paid", "set": "set", "put": "put", "make": "made", "submit": "submitted",
		"reply": "replied", "notify": "notified", "apply": "applied", "copy": "copied", "cancel": "cancelled",
		"buy": "bought", "sell": "sold", "write": "written", "give": "given", "hold": "held", "build": "built",
		"refer": "referred", "transfer": "transferred", "verify": "verified", "modify": "modified",
	}[verb]
	return past, ok
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func stamp(t time.Time) string { return t.UTC().Truncate(time.Second).Format(time.RFC3339) }
