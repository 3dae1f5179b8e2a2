package sim

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// wish is what a client wants, again and again under the same id, until it is
// told that it is recorded.
type wish struct {
	tenant, id string
	set        *setting
	raw        []byte
	args       string
	told       bool
	// rival: another content was handed in under the same id.
	rival bool
	// ignored: nobody approves it.
	ignored bool
	asked   int
}

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	return raw
}

// newWish makes up one intent.
func (w *world) newWish(n int) *wish {
	set := &w.services[w.rng.IntN(len(w.services))].setting
	x := &wish{set: set, id: fmt.Sprintf("op-%d", n), tenant: "acme"}
	if w.rng.IntN(4) == 0 {
		x.tenant = "beta"
	}
	x.args = fmt.Sprintf(`{"title":"%s %d","key":"s%d"}`, secret, n, w.rng.IntN(2))
	req := api.SubmitRequest{
		OperationID: x.id, Provider: set.name, Account: "main", Action: set.contract.Action, Args: json.RawMessage(x.args),
		RequestID: fmt.Sprintf("req-%d", w.rng.IntN(4)),
	}
	if w.rng.IntN(3) > 0 {
		req.RequestID = ""
	}
	if set.risk {
		req.OnUnknown = events.OnUnknownRisk
	}
	if set.review {
		req.OnUnknown = events.OnUnknownReview
	}
	if set.approval {
		req.RequireApproval = &api.RequireApproval{Deadline: begin.Add(w.now + w.between(4*time.Minute, 2*time.Hour))}
		x.ignored = w.rng.IntN(6) == 0
	}
	if set.scoped && !set.contract.Scoped {
		req.ConflictScope = fmt.Sprintf("s%d", w.rng.IntN(2))
	}
	if w.rng.IntN(8) == 0 {
		req.Limits = &events.Limits{MaxAttempts: 1}
	}
	x.raw = encode(req)
	return x
}

// through calls intake in some process; done is told unless the process dies.
func (w *world) through(call func(p *process) (api.Answer, *api.Problem), done func(api.Answer, *api.Problem)) bool {
	first := w.rng.IntN(len(w.procs))
	for i := range w.procs {
		p := w.procs[(first+i)%len(w.procs)]
		if !p.alive || p.stopping {
			continue
		}
		w.spawn(p, func() {
			a, problem := call(p)
			if done != nil {
				done(a, problem)
			}
		})
		return true
	}
	return false
}

// submit hands a wish in until somebody says that it is recorded.
func (w *world) submit(x *wish) {
	if x.told || w.over {
		return
	}
	send := func() {
		w.through(func(p *process) (api.Answer, *api.Problem) { return p.submit(x.tenant, x.raw) },
			func(_ api.Answer, problem *api.Problem) {
				switch {
				case problem == nil:
					w.told(x)
				case problem.Code == api.ProblemConflict && x.rival:
					x.told = true // the other wish under this id came first
				case problem.Code != api.ProblemUnavailable:
					w.fail("intake: a sound wish is taken", "%s: %s %s", x.id, problem.Code, problem.Detail)
				}
			})
	}
	send()
	if w.hit(clientTwice) {
		send()
	}
	if w.hit(clientConflicts) {
		w.conflict(x)
	}
	w.after(w.between(2*time.Second, 60*time.Second), func() { w.submit(x) })
}

// submit is a request to intake, which answers within a while or not at all.
func (p *process) submit(tenant string, raw []byte) (api.Answer, *api.Problem) {
	ctx, cancel := clocks{p}.Timeout(p.root, 10*time.Second)
	defer cancel()
	return p.intake.Submit(ctx, tenant, raw)
}

// told: from now on the wish must never be lost.
func (w *world) told(x *wish) {
	l := w.log.op(x.tenant, x.id)
	l.promise(w, x.args)
	if x.told {
		return
	}
	x.told = true
	if w.hit(clientRepeats) {
		w.after(w.between(0, time.Hour), func() { x.told = false; w.submit(x) })
	}
	if w.hit(clientConflicts) {
		w.after(w.between(0, 40*time.Minute), func() { w.conflict(x) })
	}
	if w.hit(clientGivesUp) {
		w.after(w.between(0, 10*time.Minute), func() { w.cancel(x) })
	}
}

// promise notes that intake said of these arguments: recorded.
func (l *opLog) promise(w *world, args string) {
	var told, held map[string]any
	switch {
	case l.recorded.IsZero():
		w.fail("I10: no acknowledged intent is lost", "%s is acknowledged and not in the log", l.id)
	case json.Unmarshal([]byte(args), &told) != nil, json.Unmarshal(l.intent.Args, &held) != nil, told["title"] != held["title"]:
		w.fail("I6: same id, other content is a conflict", "%s is acknowledged with other content", l.id)
	case l.promised == "":
		l.promised = l.intent.ArgsDigest
	}
}

// conflict hands the same id in with other content. Whoever comes first is right.
func (w *world) conflict(x *wish) {
	var req api.SubmitRequest
	if w.over || json.Unmarshal(x.raw, &req) != nil {
		return
	}
	other := `{"title":"another wish","key":"s0"}`
	req.Args = json.RawMessage(other)
	raw := encode(req)
	x.rival = true
	w.through(func(p *process) (api.Answer, *api.Problem) { return p.submit(x.tenant, raw) },
		func(_ api.Answer, problem *api.Problem) {
			switch {
			case problem == nil:
				w.log.op(x.tenant, x.id).promise(w, other)
			case problem.Code != api.ProblemConflict && problem.Code != api.ProblemUnavailable:
				w.fail("I6: same id, other content is a conflict", "%s: %s", x.id, problem.Code)
			}
		})
}

func (w *world) cancel(x *wish) {
	raw := encode(api.CancelRequest{OperationID: x.id, Actor: "user", Reason: "not any more"})
	w.through(func(p *process) (api.Answer, *api.Problem) { return p.intake.Cancel(p.root, x.tenant, raw) }, nil)
}

// approve plays the person whose permission an operation needs.
func (w *world) approve(x *wish, l *opLog) {
	digest := l.intent.IntentDigest
	foreign := w.hit(approvalForeign)
	if foreign {
		digest = "sha256-jcs:of-another"
		for _, other := range w.log.list {
			if other != l && !other.recorded.IsZero() {
				digest = other.intent.IntentDigest
			}
		}
	}
	until := w.between(20*time.Minute, 50*time.Minute)
	if w.hit(approvalShort) {
		until = w.between(time.Second, time.Minute)
	}
	req := api.ApproveRequest{OperationID: x.id, IntentDigest: digest, Approver: "ann", ExpiresAt: begin.Add(w.now + until)}
	if w.hooks.approve != nil {
		req = w.hooks.approve(req, l)
	}
	raw := encode(req)
	send := func() {
		w.through(func(p *process) (api.Answer, *api.Problem) { return p.intake.Approve(p.root, x.tenant, raw) },
			func(_ api.Answer, problem *api.Problem) {
				if foreign && problem == nil {
					w.fail("I7: an approval binds one intent", "%s took the approval of another", x.id)
				}
			})
	}
	if w.hit(approvalLate) {
		w.after(w.long(), send)
		return
	}
	send()
}

// look is what a person does from time to time: he looks at what waits for him
// and settles it by what he has found out on the telephone.
func (w *world) look() {
	if w.over {
		return
	}
	calm := w.now >= w.calmFrom
	rest := true
	for _, x := range w.wishes {
		l := w.log.op(x.tenant, x.id)
		s := l.state
		if s.Status == operation.StatusAbsent {
			rest = rest && x.told
			continue
		}
		if s.Intent.Approval != nil && !x.ignored && !s.Status.Final() && !l.approved.After(begin.Add(w.now+time.Minute)) && (calm || w.rng.IntN(2) == 0) {
			w.approve(x, l)
		}
		if (s.Review != nil || ((s.Hold != "" || s.Halted != "") && !s.Status.Final())) && (calm || w.rng.IntN(2) == 0) {
			w.decide(x, l, s)
		}
		if calm && s.Undetermined && x.set.scoped && s.Review == nil {
			w.decide(x, l, s) // others may wait for its scope
		}
		if len(l.objects) > 0 && w.hit(evidenceGiven) {
			w.evidence(x, l)
		}
		done := (s.Status.Final() || (s.Undetermined && !x.set.scoped)) && s.Review == nil && (s.NextAction == events.NextNone || s.NextAction == "") && l.flying == 0
		rest = rest && done && x.told
	}
	if calm && rest && w.idle() {
		w.over = true
		return
	}
	w.after(w.between(2*time.Minute, 6*time.Minute), w.look)
}

// idle reports whether no thread of any process is under way, and the projector
// has followed.
func (w *world) idle() bool {
	if !w.entries.settled() {
		return false
	}
	for _, p := range w.procs {
		for _, t := range p.tasks {
			if !t.resident {
				return false
			}
		}
		if !p.alive {
			return false
		}
	}
	return true
}

// decide settles what he sees now, perhaps much later.
func (w *world) decide(x *wish, l *opLog, s operation.State) {
	d := api.DecideRequest{OperationID: x.id, ExpectVersion: s.Version, Actor: "ann", Reason: "telephoned"}
	nothing := len(l.objects) == 0 && l.flying == 0
	x.asked++
	wrong := w.hit(breachPerson)
	switch {
	case s.Status.Final():
		d.Decision = events.DecideAcknowledge
	case s.Hold != "" && s.Status == operation.StatusPending:
		d.Decision = events.DecideResume
		if w.rng.IntN(4) == 0 && len(l.objects) == 0 {
			d.Decision = events.DecideCancel
		}
	case wrong:
		d.Decision = []events.DecisionWord{events.DecideReject, events.DecidePermit, events.DecideConfirm}[w.rng.IntN(3)]
		d.ExternalID = "by-mistake"
		l.breached("a person erred")
	case x.asked < 8 && w.hit(decisionBlind):
		d.Decision = []events.DecisionWord{
			events.DecideLook, events.DecideResume, events.DecidePostpone, events.DecideUndetermined, events.DecideNote, events.DecideAssign,
		}[w.rng.IntN(6)]
		d.Until, d.Assignee = begin.Add(w.now+w.between(10*time.Minute, time.Hour)), "ben"
	case len(l.objects) > 0:
		d.Decision, d.ExternalID = events.DecideConfirm, l.objects[0].id
		if len(s.Attempts) == 0 { // he can't: it was never sent, as far as the log goes
			d.Decision, d.ExternalID = events.DecideReject, ""
		}
	case !nothing:
		d.Decision = events.DecideNote
	case w.rng.IntN(3) == 0 && x.asked < 8 && s.Halted == "" && s.Hold == "" && !s.Erased:
		d.Decision = events.DecidePermit
	case len(s.Attempts) == 0 && s.Halted != "" && w.rng.IntN(2) == 0:
		d.Decision = events.DecideResume
	default:
		d.Decision = events.DecideReject
	}
	if d.Decision != events.DecideConfirm {
		d.ExternalID = ""
	}
	if d.Decision != events.DecidePostpone {
		d.Until = time.Time{}
	}
	raw := encode(d)
	if w.hooks.decide != nil {
		raw = nil
	}
	send := func() {
		w.through(func(p *process) (api.Answer, *api.Problem) {
			if raw == nil {
				return p.intake.Decide(p.root, x.tenant, w.hooks.decide(d, l))
			}
			return p.intake.Decide(p.root, x.tenant, raw)
		}, func(_ api.Answer, problem *api.Problem) {
			if problem != nil {
				w.say("person       %s of %s refused: %s %s", d.Decision, x.id, problem.Code, problem.Reason)
				return
			}
			w.say("person       %s of %s as of version %d", d.Decision, x.id, d.ExpectVersion)
		})
	}
	if w.hit(decisionRepeated) {
		w.after(w.between(time.Second, 30*time.Minute), send)
	}
	if w.hit(decisionLate) {
		w.after(w.between(time.Second, 25*time.Minute), send)
		return
	}
	send()
}

// evidence is what a webhook or a person tells of an object.
func (w *world) evidence(x *wish, l *opLog) {
	o := l.objects[w.rng.IntN(len(l.objects))]
	req := api.EvidenceRequest{
		OperationID: x.id, Source: events.SourceWebhook, AccountProviderID: o.account, Label: operation.Label(l.intent.IdempotencyKey),
		ExternalID: o.id, Actor: "hook",
	}
	if w.rng.IntN(4) == 0 {
		req.Source = events.SourcePerson
	}
	if w.hit(evidenceForeign) {
		req.AccountProviderID, req.ExternalID = "acct_2", "foreign-1"
	}
	raw := encode(req)
	w.through(func(p *process) (api.Answer, *api.Problem) { return p.intake.Evidence(p.root, x.tenant, raw) }, nil)
}

// earlier is intake's question for a possible repeat.
func (w *world) earlier(tenant string, i events.IntentRecorded) string {
	if i.RequestID == "" {
		return ""
	}
	for _, l := range w.log.list {
		if l.tenant == tenant && l.intent.RequestID == i.RequestID && l.intent.Provider == i.Provider {
			return l.id
		}
	}
	return ""
}
