package operation

import (
	"hash/fnv"
	"math"
	"strings"
	"time"

	"github.com/opledger/opledger/events"
)

// Class is what a provider gives for one action; it decides what may happen
// after an unknown outcome.
type Class string

// The contract classes.
const (
	// ClassKey (K1): an idempotency key with a stored result.
	ClassKey Class = "K1"
	// ClassClientID (K2): the client chooses a unique id.
	ClassClientID Class = "K2"
	// ClassUpsert (K3): upsert by an external id.
	ClassUpsert Class = "K3"
	// ClassLabel (K4): a label that can be written and looked up, with lag.
	ClassLabel Class = "K4"
	// ClassNone (K5): nothing.
	ClassNone Class = "K5"
)

// Evidenced says how a promise of the provider is known.
type Evidenced string

// The grades of a contract's proof. Assumed never retries by itself.
const (
	ProofDocumented   Evidenced = "documented"
	ProofVerifiedLive Evidenced = "verified_live"
	ProofAssumed      Evidenced = "assumed"
)

// Forever is a retention without end.
const Forever = time.Duration(math.MaxInt64)

// Contract is what a provider promises for one action, as the decisions need
// it: plain data, read from a reviewed file by package providers. The zero
// value promises nothing, and nothing is ever repeated under it.
type Contract struct {
	Provider string
	Action   string
	Class    Class
	Proof    Evidenced
	// Digest names the revision; it is recorded in intents and permits.
	Digest string

	// KeySupported: requests of this action carry a key (K1) or a client-chosen
	// unique id (K2, K3) which the provider honours for this method.
	KeySupported bool
	// Retention is how long the provider remembers the key; zero means none or
	// unknown, which never grants a retry; Forever has no end.
	Retention time.Duration
	// Margin is subtracted from the retention before a repeat is permitted.
	Margin time.Duration
	// ConcurrentSafe: two requests with one key at once are safe, so a repeat
	// need not wait for LateApply.
	ConcurrentSafe bool

	// UniqueWeak: the provider guards the id that the client chose (K2) or the
	// external id (K3) only loosely, so two creations at once may both pass. A
	// confirmation is then followed by looks for a twin.
	UniqueWeak bool
	// VerifyShare is the share, 0 to 1, of confirmed operations that are looked
	// for once more when everything that may still land is visible: a second
	// object is then noticed, and the lookup's lag learned.
	VerifyShare float64
	// SideObjects: the provider may make objects of its own beside ours. A
	// confirmation is followed by a look that shows a person what looks alike.
	SideObjects bool
	// Scoped: an intent of this action has a conflict scope, and only one
	// operation of a scope may be in doubt at a time. K3 is always scoped.
	Scoped bool

	// IgnoredArgs names the arguments that make no other wish of a repeat: what
	// is sent is what was recorded.
	IgnoredArgs []string

	// Total is the time of one request, from the first byte to the answer.
	Total time.Duration
	// LateApply is how long after the end of a request it may still land.
	LateApply time.Duration

	// MaxAttempts bounds the attempts that may have reached the provider;
	// zero means 1. Deadline is counted from the intent; zero means none.
	MaxAttempts int
	Deadline    time.Duration
	Backoff     Backoff

	Lookup  Lookup
	Absence Absence

	// OnUnknown holds the choices that an intent may make beside by_contract
	// and review_only, which are always allowed.
	RiskAllowed bool
	// ApprovalRequired: a person must allow each operation.
	ApprovalRequired bool
	// ApprovalDeadline is how long the ledger waits for an approval.
	ApprovalDeadline time.Duration
}

// Backoff spaces repeats: First, then times Factor, at most Max, with a random
// part of Jitter (0 to 1) taken off.
type Backoff struct {
	First  time.Duration
	Factor float64
	Max    time.Duration
	Jitter float64
}

// Lookup is how an operation's object can be found again.
type Lookup struct {
	// Available: there is a lookup by the operation's own key, id or label.
	Available bool
	Name      string
	// Lag is the longest time until a committed write is visible.
	Lag time.Duration
	// Schedule holds the delays between looks, counted from the outcome that
	// became unknown for the first and from the look before for the others.
	Schedule []time.Duration
}

// Absence is when an empty look may prove that nothing happened.
type Absence struct {
	Provable bool
	// Settle is added to LateApply and Lag before an empty read counts.
	Settle     time.Duration
	EmptyReads int
	Spacing    time.Duration
}

// Wait returns the backoff before repeat number n (1, 2, …). random is from
// [0, 1) and takes off up to the jitter.
func (b Backoff) Wait(n int, random float64) time.Duration {
	first, factor, limit := b.First, b.Factor, b.Max
	if first <= 0 {
		first = time.Second
	}
	if factor < 1 {
		factor = 2
	}
	if limit <= 0 {
		limit = 5 * time.Minute
	}
	d := float64(first) * math.Pow(factor, float64(max(n-1, 0)))
	if d > float64(limit) {
		d = float64(limit)
	}
	d -= d * b.Jitter * random
	return time.Duration(d)
}

func (c Contract) maxAttempts(i events.IntentRecorded) int {
	n := max(c.MaxAttempts, 1)
	if i.Limits != nil && i.Limits.MaxAttempts > 0 {
		n = min(n, i.Limits.MaxAttempts)
	}
	return n
}

// deadline returns the end of an operation's time, or zero for none.
func (c Contract) deadline(s State) time.Time {
	var d time.Time
	if c.Deadline > 0 {
		d = s.RecordedAt.Add(c.Deadline)
	}
	if l := s.Intent.Limits; l != nil && !l.Deadline.IsZero() && (d.IsZero() || l.Deadline.Before(d)) {
		d = l.Deadline
	}
	return d
}

// verifies reports whether an operation is among those that are looked for once
// more after their confirmation. The same operation is always judged the same.
func (c Contract) verifies(s State) bool {
	if c.VerifyShare <= 0 {
		return false
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.Intent.IdempotencyKey + "/" + s.OperationID)) // a hash does not fail
	return float64(h.Sum32()) < c.VerifyShare*float64(math.MaxUint32)
}

// proven reports whether the contract's promises may be relied on without a
// person. An assumed contract never repeats by itself.
func (c Contract) proven() bool { return c.Proof == ProofDocumented || c.Proof == ProofVerifiedLive }

// keyDeadline returns until when a request with the operation's key may still
// be started, and whether the contract allows that at all.
func (c Contract) keyDeadline(firstSend time.Time) (time.Time, bool) {
	if !c.KeySupported || c.Retention <= 0 || !c.proven() {
		return time.Time{}, false
	}
	if c.Retention == Forever {
		return firstSend.Add(100 * 365 * 24 * time.Hour), true
	}
	return firstSend.Add(c.Retention - c.Margin), true
}

// RetryUntil is when the time ends in which a repeat of an operation whose outcome
// is unknown can still be permitted: that of its key, and its deadline. Zero means
// that no repeat comes by itself, or that it has no end.
func RetryUntil(s State, c Contract) time.Time {
	if s.Status != StatusUnknown || s.NoRepeat || s.Sighted || s.Intent.OnUnknown == events.OnUnknownReview {
		return time.Time{}
	}
	end := c.deadline(s)
	if limit, ok := c.keyDeadline(s.FirstSend); ok {
		end = earliest(limit, end)
	}
	return end
}

// Outcome is what one answer says about this request, in the contract's words.
type Outcome struct {
	Word OutcomeWord
	// ExternalID and Result come with success.
	ExternalID string
	Result     []byte
	// Reason refines uncertain, and explains rejected and not_applied. It holds
	// no arguments and no secrets.
	Unknown events.UnknownReason
	Reason  string
	// Final: no repeat can help (a stored error is replayed, or a 2xx can't be
	// understood).
	Final bool
	// AnswersKey: a rejection that is valid for every attempt with the key.
	AnswersKey bool
	// RetryAfter is what the provider asked for, zero if nothing.
	RetryAfter        time.Duration
	ProviderRequestID string
	Transport         events.Transport
}

// OutcomeWord is the word of an outcome.
type OutcomeWord string

// The words of an outcome. The zero value is not on the list and is treated as
// uncertain, so that a forgotten case fails safe.
const (
	OutcomeSuccess      OutcomeWord = "success"
	OutcomeRejected     OutcomeWord = "rejected"
	OutcomeNotApplied   OutcomeWord = "not_applied"
	OutcomeBusy         OutcomeWord = "busy"
	OutcomeExists       OutcomeWord = "exists"
	OutcomeMismatch     OutcomeWord = "mismatch"
	OutcomeUnidentified OutcomeWord = "applied_unidentified"
	OutcomeUncertain    OutcomeWord = "uncertain"
	// OutcomeNotSent is proven by the transport, never by an answer.
	OutcomeNotSent OutcomeWord = "not_sent"
)

// OutcomeWords lists every word of an outcome.
func OutcomeWords() []OutcomeWord {
	return []OutcomeWord{
		OutcomeSuccess, OutcomeRejected, OutcomeNotApplied, OutcomeBusy, OutcomeExists,
		OutcomeMismatch, OutcomeUnidentified, OutcomeUncertain, OutcomeNotSent,
	}
}

// Look is what one lookup returned, before the core judges what it shows.
type Look struct {
	Source events.EvidenceSource
	Name   string
	// AskedAt is when the look began, on the clock that contract time uses.
	AskedAt      time.Time
	AskedVersion uint64
	// AccountProbed is the account under which it was made; AccountOK says that
	// it is the one that the operation is bound to.
	AccountProbed string
	AccountOK     bool
	// Failed: the provider did not answer, or not readably.
	Failed bool
	Reason string
	// PagesComplete: every page was read.
	PagesComplete bool
	// Matches carry our own key, id or label; Weak ones only look alike. The
	// earliest by the provider's creation time comes first.
	Matches []string
	Weak    []string
	// CreatedAt is when the first match was created, by the provider's clock;
	// zero if the provider does not say.
	CreatedAt time.Time
	// Results holds the provider's representation of each match, redacted.
	Result            []byte
	AttemptID         string
	ProviderRequestID string
}

// Label returns the label that an operation's object carries at its provider,
// derived from the operation's key: one token without punctuation, so that an
// index does not split it.
func Label(idempotencyKey string) string {
	return "opl" + strings.ReplaceAll(idempotencyKey, "-", "")
}
