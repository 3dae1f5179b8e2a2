package operation_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// chooser makes every choice of a run: by script (the search goes through all
// scripts), or at random from a seed.
type chooser struct {
	script []int
	made   []int // the choices made
	limits []int // how many there were to choose from
	rng    *rand.Rand
	wrap   bool // take the script's numbers modulo the number of choices
}

func (ch *chooser) pick(n int) int {
	i := len(ch.made)
	choice := 0
	switch {
	case i < len(ch.script):
		choice = ch.script[i]
		if ch.wrap {
			choice %= n
		}
	case ch.rng != nil:
		choice = ch.rng.IntN(n)
	}
	ch.made, ch.limits = append(ch.made, choice), append(ch.limits, n)
	return choice
}

// advance returns the next script after this run's, over the first depth
// choices, or false after the last.
func (ch *chooser) advance(depth int) ([]int, bool) {
	script := slices.Clone(ch.made[:min(depth, len(ch.made))])
	for i := len(script) - 1; i >= 0; i-- {
		if script[i]+1 < ch.limits[i] {
			script[i]++
			return script[:i+1], true
		}
	}
	return nil, false
}

// object is what the provider holds: the world's truth.
type object struct {
	id      string
	account string
	visible time.Time
}

// item is something that happens at a later time.
type item struct {
	at   time.Time
	what string
	do   func()
}

// setting is one kind of world: a contract with a provider that keeps it.
type setting struct {
	name     string
	contract operation.Contract
	intent   func(*events.IntentRecorded)
	keyed    bool // the provider stores results by key, for the retention
	unique   bool // the provider refuses a second object with the same id
	// atMostOne: the contract holds, so without a person's or a declared risk
	// there is never a second object.
	atMostOne bool
}

func short(c operation.Contract) operation.Contract {
	// The key is forgotten within the reach of a run. The margin covers lease,
	// late_apply and the error of the clocks.
	c.Retention, c.Margin = 10*time.Minute, 90*time.Second
	return c
}

func settings() []setting {
	risk := func(i *events.IntentRecorded) {
		i.OnUnknown, i.Approval = events.OnUnknownRisk, &events.Approval{Required: true, Deadline: begin.Add(3 * time.Hour)}
	}
	approval := func(i *events.IntentRecorded) {
		i.Approval = &events.Approval{Required: true, Deadline: begin.Add(3 * time.Hour)}
	}
	deadline := contractK4Absent()
	deadline.Deadline = 20 * time.Minute
	return []setting{
		{name: "K1", contract: short(contractK1()), keyed: true, atMostOne: true},
		{name: "K1 with label", contract: short(contractK1Label()), keyed: true, atMostOne: true},
		{name: "K1 with approval", contract: short(contractK1()), keyed: true, atMostOne: true, intent: approval},
		{name: "K2", contract: contractK2(), unique: true, atMostOne: true},
		{name: "K4", contract: contractK4(), atMostOne: true},
		{name: "K4 with absence", contract: contractK4Absent(), atMostOne: true},
		{name: "K4 with deadline", contract: deadline, atMostOne: true},
		{name: "K4 review only", contract: contractK4Absent(), atMostOne: true, intent: func(i *events.IntentRecorded) {
			i.OnUnknown = events.OnUnknownReview
		}},
		{name: "K5", contract: contractK5(), atMostOne: true},
		{name: "K5 declared risk", contract: contractK5(), atMostOne: true, intent: risk},
	}
}

// world is one operation, its provider, its worker, its network and a person,
// driven by the real decisions.
type world struct {
	b  brain
	st setting
	c  operation.Contract
	ch *chooser

	now time.Time
	s   operation.State
	o   *oracle
	ids int

	objects    []object
	keyAt      time.Time
	keyWord    operation.OutcomeWord
	keyID      string
	landing    int // requests that are still in the network
	items      []item
	asked      int
	switched   bool // the credential belongs to another account
	undecided  int
	crash      bool // whether crashes between events happen in this run
	violation  string
	transcript []string
	steps      int
}

const maxSteps = 400

func newWorld(b brain, st setting, ch *chooser) *world {
	return &world{b: b, st: st, c: st.contract, ch: ch, now: begin, o: &oracle{}}
}

func (w *world) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}

func (w *world) say(format string, args ...any) {
	w.transcript = append(w.transcript, w.now.Sub(begin).String()+" "+fmt.Sprintf(format, args...))
}

func (w *world) newID() string { w.ids++; return fmt.Sprintf("id%d", w.ids) }

func (w *world) params() operation.Params {
	return operation.Params{Now: w.now, NewID: w.newID(), ClockError: testClock, Lease: testLease}
}

// append journals the events of one decision. A crash may cut it short.
func (w *world) append(payloads ...events.Payload) {
	n := len(payloads)
	if n > 1 && w.crash && w.ch.pick(3) == 1 {
		n = 1 + w.ch.pick(n-1)
		w.say("crash after %d of %d events", n, len(payloads))
	}
	for _, p := range payloads[:n] {
		if w.violation != "" {
			return
		}
		r := lightRecord(w.s, w.now, p)
		before := w.s
		var a operation.Anomaly
		w.s, a = w.b.evolve(w.s, r)
		w.o.apply(r.ID, r.Stamp, p)
		w.say("%s -> %s", describe(p), w.s.Status)
		if a.Reason != operation.AnomalyNone {
			w.fail("%s is an anomaly: %s", p.Kind(), a.Reason)
		}
		if before.Status.Final() && w.s.Status != before.Status {
			w.fail("final changed (I1)")
		}
		if w.s.LastSeq != before.LastSeq+1 || w.s.Version != before.Version+1 {
			w.fail("sequence or version did not advance (I13)")
		}
		if err := w.o.agrees(w.s); err != nil {
			w.fail("%v", err)
		}
		if err := settled(w.s); err != nil {
			w.fail("%v", err)
		}
		w.judge(p)
	}
}

// judge looks at the provider's own table, never at our opinion of it (I19).
func (w *world) judge(p events.Payload) {
	if !w.o.risk && len(w.objects) > 1 {
		w.fail("%d objects although the contract holds and nobody took the risk", len(w.objects))
	}
	for _, o := range w.objects {
		if o.account != testAccount {
			w.fail("an object in account %s (I8)", o.account)
		}
	}
	switch d := p.(type) {
	case events.ResultConfirmed:
		if !slices.ContainsFunc(w.objects, func(o object) bool { return o.id == d.ExternalID }) {
			w.fail("confirmed %q, which the provider does not hold (I19)", d.ExternalID)
		}
	case events.RetryPermitted:
		if w.s.Intent.OnUnknown == events.OnUnknownReview && d.Basis != events.BasisOperator {
			w.fail("a permit by %s although the intent says review_only", d.Basis)
		}
	case events.Rejected:
		if len(w.objects) > 0 {
			w.fail("rejected, but the provider holds %d objects (I19)", len(w.objects))
		}
	}
}

func (w *world) later(d time.Duration, what string, do func()) {
	w.items = append(w.items, item{at: w.now.Add(d), what: what, do: do})
	slices.SortStableFunc(w.items, func(a, b item) int { return a.at.Compare(b.at) })
}

// deliver lets everything happen that is due.
func (w *world) deliver() {
	for len(w.items) > 0 && !w.items[0].at.After(w.now) && w.violation == "" {
		it := w.items[0]
		w.items = w.items[1:]
		w.say("  (%s)", it.what)
		it.do()
	}
}

// pass lets time pass, and delivers what is due on the way at its own time.
func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for len(w.items) > 0 && !w.items[0].at.After(end) && w.violation == "" {
		w.now = later(w.now, w.items[0].at)
		w.deliver()
	}
	w.now = end
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// run goes on until nothing can happen any more.
func (w *world) run() string {
	w.crash = w.ch.pick(3) == 1
	intent := intentOf(w.c)
	if w.st.intent != nil {
		w.st.intent(&intent)
	}
	w.append(intent)
	for w.steps = 0; w.steps < maxSteps && w.violation == ""; w.steps++ {
		w.deliver()
		step := w.b.next(w.s, w.c, w.params())
		if err := w.o.allows(w.s, step, w.now); err != nil {
			w.fail("%v", err)
			break
		}
		switch step.Do {
		case operation.DoAppend:
			w.append(step.Append...)
		case operation.DoAttempt:
			w.attempt(step)
		case operation.DoLook:
			w.look()
		case operation.DoWait:
			if !w.idle(step) {
				return w.end()
			}
		}
	}
	if w.violation == "" {
		w.fail("no end after %d steps: %s", w.steps, w.s.Status)
	}
	return w.violation
}

// end judges the last state: final, under review or undetermined.
func (w *world) end() string {
	if w.violation != "" {
		return w.violation
	}
	switch s := w.s; {
	case s.Status == operation.StatusRejected && len(w.objects) > 0:
		w.fail("rejected at the end, but the provider holds %d objects (I19)", len(w.objects))
	case !s.Status.Final() && !s.Undetermined && s.Review == nil:
		w.fail("ended as %s with nothing to happen", s.Status)
	}
	return w.violation
}

// idle waits. It returns false when nothing can happen any more.
func (w *world) idle(step operation.Step) bool {
	w.say("  wait: %s", step.Reason)
	if step.Reason == operation.ReasonApprovalMissing || step.Reason == operation.ReasonApprovalExpired {
		w.approve()
		if step.At.After(w.now) && w.b.next(w.s, w.c, w.params()).Reason == step.Reason {
			w.pass(min(step.At.Sub(w.now), 30*time.Minute))
		}
		return true
	}
	if len(w.objects) > 0 && w.asked < 3 && w.ch.pick(6) == 5 {
		w.asked++
		w.webhook()
		return true
	}
	if step.At.After(w.now) {
		// The process may be down for longer than every time-out.
		pauses := []time.Duration{0, 0, 0, 4 * time.Minute, 8*time.Minute + 20*time.Second, time.Hour}
		if w.st.keyed && !w.s.FirstSend.IsZero() {
			// Or it comes back just before the key is forgotten, or before the
			// last moment at which the margin still allows an attempt.
			edge := w.s.FirstSend.Add(w.c.Retention).Sub(step.At)
			pauses = append(pauses, max(0, edge-40*time.Second), max(0, edge-w.c.Margin-testLease-time.Second))
		}
		pause := pauses[w.ch.pick(len(pauses))]
		target := step.At.Sub(w.now) + pause
		if len(w.items) > 0 && pause == 0 {
			target = min(target, max(w.items[0].at.Sub(w.now), 0))
		}
		w.pass(target)
		return true
	}
	if w.s.Review != nil && (len(w.items) == 0 || w.ch.pick(2) == 0) && w.person() {
		return true
	}
	if len(w.items) > 0 {
		w.now = later(w.now, w.items[0].at)
		return true
	}
	return false
}

func (w *world) approve() {
	g := operation.Grant{Approver: "ann", IntentDigest: testDigest, ExpiresAt: w.now.Add(40 * time.Minute)}
	switch w.ch.pick(4) {
	case 1: // the approval of another operation
		g.IntentDigest = "sha256-jcs:other"
	case 2: // expires before it is used
		g.ExpiresAt = w.now.Add(time.Second)
	case 3: // nobody approves for a while
		w.pass(time.Hour)
		return
	}
	out, refusal := w.b.approved(w.s, g, w.params())
	if g.IntentDigest != testDigest && refusal.Reason == operation.RefusalNone {
		w.fail("the approval of another intent was taken (I7)")
	}
	w.append(out...)
	if g.ExpiresAt.Sub(w.now) == time.Second {
		w.pass(2 * time.Second)
	}
}

// attempt is the executor: the account is probed, the attempt journaled, its
// stamp read back, the request sent.
func (w *world) attempt(step operation.Step) {
	account := testAccount
	if w.switched || w.ch.pick(12) == 11 {
		w.switched = !w.switched // and back again
		account = "acct_2"
	}
	if out := w.b.dispatch(w.s, account, testRequest); len(out) > 0 {
		w.append(out...)
		return
	}
	// The append may hang; the log stamps it late.
	if d := []time.Duration{0, 0, 2 * time.Minute, 4 * time.Minute}[w.ch.pick(4)]; d > 0 {
		version := w.s.Version
		w.pass(d)
		if w.s.Version != version {
			return // another event came first: the decision is thrown away
		}
	}
	a := attemptOf(w.newID(), w.s.Started+1, step.PermitID)
	a.AccountProbed = account
	stamp := w.now
	w.append(a)
	if w.violation != "" {
		return
	}
	if !w.b.window(step.ValidUntil, stamp, testLease) {
		w.answer(a.AttemptID, operation.Outcome{Word: operation.OutcomeNotSent})
		return
	}
	w.pass([]time.Duration{0, 15 * time.Second}[w.ch.pick(2)]) // on the way to the wire
	if w.s.Status.Final() {
		w.say("  sends although final: the answer will be a duplicate or the same")
	}
	w.send(a.AttemptID, account)
}

func (w *world) answer(id string, o operation.Outcome) {
	out := w.b.answered(w.s, w.c, id, o, w.params())
	success := o.Word == operation.OutcomeSuccess && o.ExternalID != "" && !w.s.Status.Final()
	if success && !slices.ContainsFunc(out, func(p events.Payload) bool { return p.Kind() == events.KindResultConfirmed }) {
		w.fail("a success of attempt %s does not confirm", id)
	}
	w.append(out...)
}

func uncertain(reason events.UnknownReason) operation.Outcome {
	return operation.Outcome{Word: operation.OutcomeUncertain, Unknown: reason}
}

// lateness is how long after the end of its request an answer may come in.
func (w *world) lateness() time.Duration {
	return []time.Duration{time.Second, 25 * time.Second, 3 * time.Minute, 3 * time.Hour}[w.ch.pick(4)]
}

// send is one request on the wire, with everything that can become of it.
func (w *world) send(id, account string) {
	total := w.c.Total
	timeout := func() { w.pass(total); w.answer(id, uncertain(events.UnknownTimeout)) }
	faults := []string{
		"ok", "commit, answer lost", "lost", "applies late", "commit, answer late", "refused", "refusal lost",
		"refusal late", "not sent", "429", "429 late", "commit, 500", "worker dies after commit",
		"worker dies before sending", "commit, no id", "applies late, answer late",
	}
	fault := faults[w.ch.pick(len(faults))]
	w.say("  request %s: %s", id, fault)
	switch fault {
	case "ok":
		w.answer(id, w.execute(account, false))
	case "commit, answer lost":
		w.execute(account, false)
		timeout()
	case "lost":
		timeout()
	case "applies late", "applies late, answer late":
		w.landing++
		since := w.now
		land := total + []time.Duration{5 * time.Second, w.c.LateApply}[w.ch.pick(2)]
		answers := fault == "applies late, answer late"
		w.later(land, "request "+id+" lands", func() {
			w.landing--
			if w.st.keyed && !w.c.ConcurrentSafe && w.keyAt.After(since) {
				w.keyWord = "" // two requests with one key at once: the provider does both
			}
			o := w.execute(account, false)
			if answers {
				w.later(time.Second, "its answer", func() { w.answer(id, o) })
			}
		})
		timeout()
	case "commit, answer late", "refusal late":
		o := w.execute(account, fault == "refusal late")
		w.later(total+w.lateness(), "late answer of "+id+": "+string(o.Word), func() { w.answer(id, o) })
		timeout()
	case "refused":
		w.answer(id, w.execute(account, true))
	case "refusal lost":
		w.execute(account, true)
		timeout()
	case "not sent":
		w.answer(id, operation.Outcome{Word: operation.OutcomeNotSent})
	case "429":
		w.answer(id, operation.Outcome{Word: operation.OutcomeNotApplied, RetryAfter: 20 * time.Second})
	case "429 late":
		w.later(total+w.lateness(), "late 429 of "+id, func() {
			w.answer(id, operation.Outcome{Word: operation.OutcomeNotApplied})
		})
		timeout()
	case "commit, 500":
		w.execute(account, false)
		w.answer(id, uncertain(events.UnknownServerError))
	case "worker dies after commit":
		w.execute(account, false)
	case "worker dies before sending":
	case "commit, no id":
		o := w.execute(account, false)
		if o.Word == operation.OutcomeSuccess {
			o = operation.Outcome{Word: operation.OutcomeUnidentified}
		}
		w.answer(id, o)
	}
}

// execute is the provider. It keeps the contract of its class to the letter.
func (w *world) execute(account string, refuse bool) operation.Outcome {
	if w.st.keyed && w.keyWord != "" && w.now.Before(w.keyAt.Add(w.c.Retention)) {
		return w.stored()
	}
	if w.st.unique && len(w.objects) > 0 {
		return operation.Outcome{Word: operation.OutcomeExists}
	}
	if refuse {
		w.keyAt, w.keyWord = w.now, operation.OutcomeRejected
		return operation.Outcome{Word: operation.OutcomeRejected, Reason: "quota", AnswersKey: w.st.keyed}
	}
	lag := time.Duration(w.ch.pick(2)) * w.c.Lookup.Lag
	ob := object{id: fmt.Sprintf("T-%d", len(w.objects)+1), account: account, visible: w.now.Add(lag)}
	w.objects = append(w.objects, ob)
	w.say("  the provider makes %s", ob.id)
	w.keyAt, w.keyWord, w.keyID = w.now, operation.OutcomeSuccess, ob.id
	return w.stored()
}

func (w *world) stored() operation.Outcome {
	if w.keyWord == operation.OutcomeRejected {
		return operation.Outcome{Word: operation.OutcomeRejected, Reason: "quota", AnswersKey: w.st.keyed}
	}
	return operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: w.keyID}
}

// look is the reconciler: one look, which may be answered late.
func (w *world) look() {
	l := lookOf(w.now)
	l.AskedVersion = w.s.Version
	switch w.ch.pick(8) {
	case 4: // search outage
		l.Failed, l.PagesComplete, l.Reason = true, false, "outage"
	case 5: // one page of many
		l.PagesComplete = false
	case 6: // the credential was switched
		l.AccountProbed, l.AccountOK = "acct_2", false
	default:
		for _, o := range w.objects {
			if !o.visible.After(w.now) {
				l.Matches = append(l.Matches, o.id)
			}
		}
	}
	tell := func() {
		w.say("  look of %s: %v failed=%v pages=%v account=%v", l.AskedAt.Sub(begin), l.Matches, l.Failed, l.PagesComplete, l.AccountOK)
		w.append(w.b.looked(w.s, w.c, l, w.params())...)
	}
	if w.ch.pick(6) == 5 {
		w.later(time.Duration(1+w.ch.pick(3))*20*time.Second, "a slow look", tell)
		w.pass(5 * time.Second)
		return
	}
	w.pass(time.Second)
	tell()
}

func (w *world) webhook() {
	l := operation.Look{
		Source: events.SourceWebhook, AskedAt: w.now, AccountProbed: testAccount, AccountOK: true,
		Matches: []string{w.objects[len(w.objects)-1].id},
	}
	if w.ch.pick(2) == 1 {
		l.Matches, l.Reason = nil, "pending"
	}
	w.append(w.b.looked(w.s, w.c, l, w.params())...)
}

// person decides by the truth: he has telephoned. He may press the button late,
// on what was on his screen. It returns false if he has nothing to decide.
func (w *world) person() bool {
	d := operation.Decision{Actor: "ann", Reason: "telephoned", SeenVersion: w.s.Version}
	settle := func() {
		switch {
		case w.s.Status.Final():
			d.Word = events.DecideAcknowledge
		case len(w.objects) > 0:
			d.Word, d.ExternalID = events.DecideConfirm, w.objects[0].id
		case w.landing > 0:
			d.Word = events.DecideNote
		default:
			d.Word = events.DecideReject
		}
	}
	w.undecided++
	if w.undecided > 6 {
		settle()
		if d.Word == events.DecideNote {
			w.pass(time.Minute)
			return true
		}
	} else {
		switch w.ch.pick(8) {
		case 0, 1:
			settle()
		case 2:
			d.Word = events.DecidePermit
		case 3:
			d.Word = events.DecideLook
		case 4:
			d.Word = events.DecideResume
		case 5:
			d.Word, d.Until = events.DecidePostpone, w.now.Add(10*time.Minute)
		case 6:
			d.Word = events.DecideUndetermined
		case 7:
			return false // leaves it open, for now
		}
	}
	press := func() {
		out, refusal := w.b.decided(w.s, w.c, d, w.params())
		w.say("  person: %s seen=%d %s", d.Word, d.SeenVersion, refusal.Reason)
		if refusal.Reason == operation.RefusalNone && d.SeenVersion < w.s.Substantive {
			w.fail("a decision on version %d was taken, the last substantive event is %d", d.SeenVersion, w.s.Substantive)
		}
		w.append(out...)
	}
	if w.undecided <= 6 && w.ch.pick(4) == 3 {
		w.later(2*time.Minute, "the person presses the button", press)
		w.pass(time.Second)
		return true
	}
	press()
	w.pass(time.Second)
	return true
}

func describe(p events.Payload) string {
	text := fmt.Sprintf("%+v", p)
	switch d := p.(type) {
	case events.AttemptStarted:
		text = d.AttemptID + " permit=" + d.PermitID
	case events.AttemptNotApplied:
		text = d.AttemptID + " " + string(d.Proof)
	case events.OutcomeUnknown:
		text = d.AttemptID + " " + string(d.Reason)
	case events.EvidenceRecorded:
		text = string(d.Source) + " " + string(d.Finding) + " " + strings.Join(d.ExternalIDs, ",")
	case events.RetryPermitted:
		text = d.PermitID + " " + string(d.Basis) + " at " + d.RetryAt.Sub(begin).String() + " until " + d.ValidUntil.Sub(begin).String()
	case events.ReviewOpened:
		text = string(d.Reason)
	case events.ReviewUpdated:
		text = string(d.Decision)
	case events.ReviewClosed:
		text = string(d.Decision)
	case events.ResultConfirmed:
		text = d.ExternalID + " via " + string(d.Via)
	case events.Rejected:
		text = d.Reason + " via " + string(d.Via)
	case events.DuplicateFound:
		text = strings.Join(d.ExternalIDs, ",")
	case events.IntentRecorded:
		text = ""
	}
	return strings.TrimSpace(string(p.Kind()) + " " + text)
}
