package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// account is what the checks know of one operation: kept from the events and
// from the provider's world by rules of their own, not by package operation's.
type account struct {
	objects []object
	// flying requests may still land.
	flying int

	intent   events.IntentRecorded
	recorded time.Time
	attempts []*attemptNote
	permits  map[string]*permitNote
	approved time.Time // until when, by the last approval of this intent
	final    operation.Status
	via      events.Via
	rejected time.Duration
	sentKey  string
	// looks are those that were made, by when they began.
	looks map[time.Time]*lookNote
	// sentBytes stands for the bytes of the first request.
	sentBytes string
	stored    map[string]bool // ids of acknowledged events
	// excused: why a second effect or a false end is not the ledger's.
	excused []string
	// byPerson: a person allowed an attempt; he takes the order in a scope on
	// himself.
	byPerson bool
	// risked: the approval declared the risk of a second effect.
	risked bool
	// promised: an answer said that the intent is recorded.
	promised string
}

type attemptNote struct {
	id, event string
	open      bool
	doubt     bool
	notSent   bool
	harmless  bool
	stamp     time.Time
	stored    time.Duration
	lease     time.Duration
	ended     time.Time
	permit    string
	sent      int
}

// lookNote is what a look was: under which account it was answered, and whether
// it saw everything.
type lookNote struct {
	account string
	blind   bool
}

type permitNote struct {
	basis events.Basis
	until time.Time
	used  bool
	void  bool
}

func newAccount() *account {
	return &account{permits: map[string]*permitNote{}, looks: map[time.Time]*lookNote{}, stored: map[string]bool{}}
}

func (a *account) acked(id string) { a.stored[id] = true }

func (a *account) breached(why string) { a.excused = append(a.excused, why) }

func (a *account) attempt(id string) *attemptNote {
	for _, n := range a.attempts {
		if n.id == id {
			return n
		}
	}
	return nil
}

func (a *account) began(id string) time.Duration {
	if n := a.attempt(id); n != nil {
		return n.stored
	}
	return 0
}

// firstSend is when the key may first have been sent.
func (a *account) firstSend() time.Time {
	var first time.Time
	for _, n := range a.attempts {
		if !n.notSent && (first.IsZero() || n.stamp.Before(first)) {
			first = n.stamp
		}
	}
	return first
}

// lastEnd is the latest end of an attempt that may have had an effect.
func (a *account) lastEnd() time.Time {
	var end time.Time
	for _, n := range a.attempts {
		if n.harmless {
			continue
		}
		for _, at := range []time.Time{n.stamp.Add(n.lease), n.ended} {
			if at.After(end) {
				end = at
			}
		}
	}
	return end
}

// stored is called for every message that the log took.
func (w *world) stored(l *opLog, before operation.State, rec events.Record, found operation.AnomalyReason) {
	w.stats.Events++
	if w.talk {
		w.say("log     %4d %s v%d %s -> %s%s", rec.Seq, l.id, rec.Version, describe(rec), l.state.Status, anomalyText(found))
	}
	w.news(l)
	if rec.Err != nil || rec.Data == nil {
		return
	}
	if found != operation.AnomalyNone && (len(l.excused) == 0 || found != operation.AnomalyContradiction) {
		w.fail("I13: what is appended follows what is there", "%s of %s is an anomaly: %s", rec.Data.Kind(), l.id, found)
	}
	if rec.Version != before.Version+1 || rec.Prev != before.Head {
		w.fail("I13: versions have no gap, chains hold", "%s of %s has version %d after %d", rec.Data.Kind(), l.id, rec.Version, before.Version)
	}
	if before.Status.Final() && l.state.Status != before.Status {
		w.fail("I1: final is final", "%s was %s and is %s", l.id, before.Status, l.state.Status)
	}
	l.note(w, rec)
	w.owned(l)
}

func anomalyText(found operation.AnomalyReason) string {
	if found == operation.AnomalyNone {
		return ""
	}
	return " ANOMALY " + string(found)
}

// owned holds I12: what is not final is somebody's.
func (w *world) owned(l *opLog) {
	s := l.state
	if s.Status.Final() || s.Undetermined || s.Review != nil || s.Hold != "" {
		return
	}
	if s.NextAction == "" || s.NextAction == events.NextNone || s.NextAction == events.NextDecision || s.NextAt.IsZero() {
		w.fail("I12: every open operation has a next action and time, a review or a hold",
			"%s is %s with next action %q at %s", l.id, s.Status, s.NextAction, s.NextAt)
	}
}

// note keeps the account and holds the events against it.
func (l *opLog) note(w *world, rec events.Record) {
	if l.final == "" {
		l.noteOpen(w, rec)
	}
	switch d := rec.Data.(type) {
	case events.ResultConfirmed:
		if l.final != "" {
			w.fail("I1: final is final", "%s is confirmed after it was %s", l.id, l.final)
		}
		l.final, l.via = operation.StatusConfirmed, d.Via
		w.judgeConfirmed(l, d)
	case events.Rejected:
		if l.final != "" {
			w.fail("I1: final is final", "%s is rejected after it was %s", l.id, l.final)
		}
		l.final, l.via, l.rejected = operation.StatusRejected, d.Via, w.now
		w.judgeRejected(l)
	}
}

func (l *opLog) noteOpen(w *world, rec events.Record) {
	switch d := rec.Data.(type) {
	case events.IntentRecorded:
		if !l.recorded.IsZero() {
			w.fail("I6: one id, one content", "%s is recorded twice", l.id)
		}
		l.intent, l.recorded = d, rec.Stamp
		w.stats.Operations++
	case events.ApprovalGranted:
		if d.IntentDigest != l.intent.IntentDigest {
			w.fail("I7: an approval binds one intent", "%s is approved by another's digest", l.id)
		}
		l.approved = d.ExpiresAt
	case events.AttemptStarted:
		l.noteStarted(w, rec, d)
	case events.AttemptNotApplied:
		if n := l.attempt(d.AttemptID); n != nil {
			if n.sent > 0 && d.Proof == events.ProofNotSent {
				w.fail("I2: not sent means not sent", "attempt %s of %s was sent and is recorded as not sent", short(n.id), l.id)
			}
			n.end(rec)
			n.doubt, n.harmless, n.notSent = false, true, d.Proof == events.ProofNotSent
			if p := l.permits[n.permit]; p != nil && d.Proof != events.ProofRefused {
				p.used = false
			} else if d.Proof == events.ProofRefused {
				l.voidPermits()
			}
		}
	case events.OutcomeUnknown:
		n := l.attempt(d.AttemptID)
		if n == nil {
			n = &attemptNote{id: rec.ID, stamp: l.recorded}
			l.attempts = append(l.attempts, n)
		}
		n.end(rec)
		n.doubt = true
		if d.Reason == events.UnknownExists || d.Reason == events.UnknownMismatch || d.Reason == events.UnknownUnidentified {
			l.voidPermits()
		}
	case events.EvidenceRecorded:
		l.noteEvidence(w, d)
	case events.RetryPermitted:
		l.permits[d.PermitID] = &permitNote{basis: d.Basis, until: d.ValidUntil}
		switch d.Basis {
		case events.BasisDeclaredRisk:
			if l.risked {
				w.fail("I4: the declared risk is taken once", "%s", l.id)
			}
			l.risked = true
			if l.intent.OnUnknown != events.OnUnknownRisk || l.approved.IsZero() {
				w.fail("I7: only an approved wish declares the risk", "%s", l.id)
			}
		case events.BasisOperator:
			l.byPerson = true
		case events.BasisKeyRetention, events.BasisAbsentProven:
			if w.service(l.intent.Provider).contract.Proof == operation.ProofAssumed {
				w.fail("I4: an assumed contract permits nothing", "%s got a permit by %s", l.id, d.Basis)
			}
			if l.intent.OnUnknown == events.OnUnknownReview {
				w.fail("I4: review_only is never repeated by itself", "%s got a permit by %s", l.id, d.Basis)
			}
		}
	}
}

func (a *account) voidPermits() {
	for _, p := range a.permits {
		p.void = true
	}
}

func (n *attemptNote) end(rec events.Record) {
	n.open = false
	if n.ended.IsZero() {
		n.ended = rec.Stamp
	}
}

func (l *opLog) noteStarted(w *world, rec events.Record, d events.AttemptStarted) {
	w.stats.Attempts++
	doubt := false
	for _, n := range l.attempts {
		if n.open {
			w.fail("I3: at most one attempt is open", "attempt %s of %s starts while %s is open", short(d.AttemptID), l.id, short(n.id))
		}
		doubt = doubt || n.doubt
	}
	p := l.permits[d.PermitID]
	switch {
	case !doubt && p == nil:
	case p == nil:
		w.fail("I4: no attempt while another is unresolved without a permit", "attempt %s of %s names no permit", short(d.AttemptID), l.id)
	case p.used, p.void:
		w.fail("I4: a permit is used once, and not after something was seen", "attempt %s of %s names a permit that is used or void", short(d.AttemptID), l.id)
	default:
		p.used = true
	}
	for id, p := range l.permits {
		if id != d.PermitID {
			p.void = true // it was written before this attempt
		}
	}
	l.attempts = append(l.attempts, &attemptNote{
		id: d.AttemptID, event: rec.ID, open: true, stamp: rec.Stamp, stored: w.now, lease: d.Lease(),
		permit: d.PermitID,
	})
}

func (l *opLog) noteEvidence(w *world, d events.EvidenceRecorded) {
	if look := l.looks[d.AskedAt]; look != nil && d.Source == events.SourceLookup {
		switch {
		case look.account != d.AccountProbed:
			w.fail("I8: evidence says under which account it was made", "%s was looked for under %s", l.id, look.account)
		case look.blind && (d.PagesComplete || d.Finding == events.FindingAbsent):
			w.fail("I11: a look that did not see everything is not empty", "%s", l.id)
		}
	}
	if d.AccountProbed != "" && d.AccountProbed != l.intent.ProviderID {
		return // void (I8)
	}
	if d.Finding == events.FindingPresent || d.Finding == events.FindingContradiction {
		l.voidPermits()
	}
	if d.Finding != events.FindingAbsent {
		return
	}
	c := w.service(l.intent.Provider).contract
	counts := l.lastEnd().Add(c.LateApply + c.Lookup.Lag + c.Absence.Settle)
	if !c.Absence.Provable || !d.PagesComplete || d.AskedAt.Before(counts) {
		w.fail("I11: an empty look inside the bounds proves nothing", "%s: asked %s, counts from %s", l.id, d.AskedAt.Sub(begin), counts.Sub(begin))
	}
}

// judgeConfirmed looks at the provider's own table (I19).
func (w *world) judgeConfirmed(l *opLog, d events.ResultConfirmed) {
	has := slices.ContainsFunc(l.objects, func(o object) bool { return o.id == d.ExternalID && o.account == l.intent.ProviderID })
	if !has && len(l.excused) == 0 {
		w.fail("I19: confirmed means that the provider has it", "%s is confirmed as %s via %s", l.id, d.ExternalID, d.Via)
	}
}

func (w *world) judgeRejected(l *opLog) {
	if len(l.objects) > 0 && len(l.excused) == 0 {
		w.fail("I19: rejected means that the provider has nothing", "%s is rejected via %s, the provider holds %d", l.id, l.via, len(l.objects))
	}
	for _, n := range l.attempts {
		if n.open && n.sent == 0 {
			n.open = false
		}
	}
}

// sent is called when the first byte of a request leaves.
func (w *world) sent(s *service, r *request) {
	l, c := r.l, s.contract
	w.stats.Requests++
	w.say("wire         request %s of %s under %s", short(r.attempt), l.id, r.account)
	n := l.attempt(r.attempt)
	if n == nil || !l.stored[n.event] {
		w.fail("I2: no request without an acknowledged AttemptStarted", "attempt %s of %s is not acknowledged", short(r.attempt), l.id)
		return
	}
	if n.sent++; n.sent > 1 {
		w.fail("I2: one attempt is one request", "attempt %s of %s is sent again", short(r.attempt), l.id)
	}
	if spent := w.now - n.stored; spent > n.lease-c.Total+time.Second {
		w.fail("I2: no request whose lease has less time left than it may take", "attempt %s of %s is sent %s after its start", short(n.id), l.id, spent)
	}
	if l.sentKey == "" {
		l.sentKey = r.key
	}
	if l.sentKey != r.key {
		w.fail("I17: the key never depends on the attempt", "%s has two keys", l.id)
	}
	if r.account != l.intent.ProviderID {
		w.fail("I8: the account never changes", "%s goes to %s", l.id, r.account)
	}
	if l.sentBytes == "" {
		l.sentBytes = r.digest
	}
	if l.sentBytes != r.digest {
		w.fail("I5: a repeat has the same bytes", "%s changed its request", l.id)
	}
	if p := l.permits[n.permit]; p != nil {
		if p.basis == events.BasisKeyRetention && c.Retention != operation.Forever &&
			!n.stamp.Add(n.lease+c.Margin).Before(l.firstSend().Add(c.Retention)) {
			w.fail("I5: a repeat by key ends before the key is forgotten", "attempt %s of %s", short(n.id), l.id)
		}
		if !n.stamp.Before(p.until) {
			w.fail("I4: a permit has a limit", "attempt %s of %s is sent on a permit that is over", short(n.id), l.id)
		}
	}
	if l.intent.Approval != nil && l.intent.Approval.Required && !n.stamp.Before(l.approved) {
		w.fail("I7: an approval is valid at dispatch", "attempt %s of %s", short(n.id), l.id)
	}
	if l.intent.ConflictScope != "" {
		w.judgeScope(l)
	}
	if scope := l.intent.ConflictScope; scope != "" && c.Class == operation.ClassUpsert && !l.byPerson {
		for _, other := range w.log.list {
			if other != l && other.tenant == l.tenant && other.intent.ConflictScope == scope &&
				other.final == operation.StatusConfirmed && other.recorded.After(l.recorded) && other.via != events.ViaOperator {
				w.fail("scope: an older wish never overwrites a newer one", "%s is sent after %s is confirmed", l.id, other.id)
			}
		}
	}
}

// judgeScope: of two operations of one scope at most one has a request whose
// outcome is not known.
func (w *world) judgeScope(l *opLog) {
	for _, other := range w.log.list {
		if other == l || other.tenant != l.tenant || other.intent.ConflictScope != l.intent.ConflictScope || other.final != "" {
			continue
		}
		for _, n := range other.attempts {
			if (n.doubt || n.open) && n.sent > 0 {
				w.fail("scope: two of one scope are never in doubt at once", "%s is sent while attempt %s of %s is in doubt", l.id, short(n.id), other.id)
			}
		}
	}
}

// effect is called when the provider makes or changes an object.
func (w *world) effect(r *request, o object, again bool) {
	l := r.l
	w.stats.Effects++
	if o.account != l.intent.ProviderID {
		w.fail("I8: the account never changes", "%s has an effect in %s", l.id, o.account)
	}
	if l.final == operation.StatusRejected && len(l.excused) == 0 {
		w.fail("I19: rejected means that the provider has nothing", "%s has an effect after it was rejected via %s", l.id, l.via)
	}
	if !again && len(l.objects) > 1 {
		w.stats.Duplicates++
		if len(l.excused) == 0 && !l.risked {
			w.fail("one wish, one effect", "%s has %d objects, and the provider kept its contract", l.id, len(l.objects))
		}
	}
	scope := l.intent.ConflictScope
	if scope == "" {
		return
	}
	key := opKey(l.tenant, scope)
	last := w.landed[key]
	if last != nil && last.l != l && last.order > r.order && !r.breach && !last.breach && len(last.l.excused)+len(l.excused) == 0 && !l.byPerson && !last.l.byPerson {
		w.fail("scope: an older write never comes after a newer one", "%s lands after %s, which was sent later", l.id, last.l.id)
	}
	if last == nil || r.order > last.order {
		w.landed[key] = r
	}
}

// rest looks at what is left once nothing more can happen.
func (w *world) rest() {
	for _, l := range w.log.list {
		s := l.state
		w.restEntry(l)
		if l.promised != "" && (l.recorded.IsZero() || l.intent.ArgsDigest != l.promised) {
			w.fail("I10: no acknowledged intent is lost", "%s", l.id)
		}
		if s.Status == operation.StatusAbsent {
			continue
		}
		switch {
		case s.Status == operation.StatusConfirmed:
			w.stats.Confirmed++
		case s.Status == operation.StatusRejected:
			w.stats.Rejected++
			if len(l.objects) > 0 && len(l.excused) == 0 {
				w.fail("I19: rejected means that the provider has nothing", "%s", l.id)
			}
		case s.Undetermined:
			w.stats.Undetermined++
		default:
			w.fail("liveness: after the faults everything ends or waits for a person",
				"%s is %s, next %s at %s, review %v, hold %q, halted %q", l.id, s.Status, s.NextAction, s.NextAt.Sub(begin), s.Review, s.Hold, s.Halted)
		}
		if _, open := s.Open(); open && !s.Status.Final() {
			w.fail("I20: no attempt is left without a record", "%s", l.id)
		}
		if s.Review != nil {
			w.fail("liveness: a person can settle every review", "%s: %s", l.id, s.Review.Reason)
		}
	}
}

// Violation is what a check found.
type Violation struct {
	Check  string `json:"check"`
	Detail string `json:"detail"`
	At     string `json:"at"`
	Seed   uint64 `json:"seed"`
}

// String tells what was found and how to see it again.
func (v *Violation) String() string {
	return fmt.Sprintf("%s (%s) at %s of seed %d", v.Check, v.Detail, v.At, v.Seed)
}

func (w *world) fail(check, format string, args ...any) {
	if w.violation != nil || w.unwinding {
		return
	}
	w.violation = &Violation{Check: check, Detail: fmt.Sprintf(format, args...), At: w.now.String(), Seed: w.seed}
	w.say("VIOLATION    %s: %s", check, w.violation.Detail)
}
