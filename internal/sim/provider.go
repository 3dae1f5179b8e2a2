package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// service is one action of one provider: its contract, and how it behaves. It
// keeps the contract to the letter unless a fault is labelled as a breach.
type service struct {
	setting
	w    *world
	keys map[string]*storedKey
	// account is the one that the credential belongs to now.
	account   string
	downUntil time.Duration
	objects   int
}

// storedKey is what the provider remembers of an idempotency key.
type storedKey struct {
	at, busyUntil time.Duration
	forgotten     time.Duration
	word          operation.OutcomeWord
	id            string
}

// object is what the provider holds: the world's truth.
type object struct {
	id, account string
	at          time.Duration
	visible     time.Duration
}

// request is one request under way.
type request struct {
	l       *opLog
	attempt string
	key     string
	account string
	digest  string
	order   int
	answer  signal
	outcome operation.Outcome
	breach  bool
	// last is until when the contract lets it take effect.
	last time.Duration
}

// adapter is a provider's adapter in one process.
type adapter struct {
	p *process
	s *service
	// last is the last request that left.
	last *request
}

// For implements executor.Adapters.
func (p *process) For(_ context.Context, i events.IntentRecorded) (providers.Adapter, operation.Contract, error) {
	w := p.w
	w.enter()
	if w.now < p.blindUntil || w.hit(notMine) {
		p.blindUntil = max(p.blindUntil, w.now+w.between(0, 90*time.Second))
		return nil, operation.Contract{}, providers.ErrNotMine
	}
	s := w.service(i.Provider)
	c := s.contract
	if w.hooks.contract != nil {
		w.hooks.contract(&c)
	}
	var a providers.Adapter = &adapter{p: p, s: s}
	if w.hooks.adapter != nil {
		a = w.hooks.adapter(p, a)
	}
	w.cur.entering.c = c
	return a, c, nil
}

// content is what a request carries from Prepare to Do.
type content struct {
	call   providers.Call
	digest string
}

// Prepare implements providers.Adapter.
func (a *adapter) Prepare(c providers.Call) (*providers.Request, error) {
	w := a.p.w
	w.enter()
	if w.hit(cannotRender) {
		return nil, errors.New("the template names an argument that is not there")
	}
	digest := "sha256:" + c.Intent.ArgsDigest
	if w.hit(requestChanges) {
		digest += "+"
	}
	return providers.NewRequest(a, digest, providers.Redacted{}, &content{c, digest}), nil
}

// Probe implements providers.Adapter.
func (a *adapter) Probe(ctx context.Context, c providers.Call) (string, error) {
	w, t := a.p.w, a.p.w.enter()
	t.pass(w.latency())
	if w.now < a.s.downUntil || w.hit(probeFails) {
		t.pass(w.between(0, 12*time.Second))
		return "", providers.ErrProbe
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return a.s.account, nil
}

// Contract implements providers.Adapter.
func (a *adapter) Contract(string) (operation.Contract, bool) { return a.s.contract, true }

func notSent(why string) operation.Outcome {
	return operation.Outcome{Word: operation.OutcomeNotSent, Reason: why}
}

func unclear(reason events.UnknownReason) operation.Outcome {
	return operation.Outcome{Word: operation.OutcomeUncertain, Unknown: reason}
}

// Do implements providers.Adapter.
func (a *adapter) Do(ctx context.Context, r *providers.Request) operation.Outcome {
	w, t := a.p.w, a.p.w.enter()
	got, mine := r.Take(a)
	c, ok := got.(*content)
	if !mine || !ok {
		return unclear(events.UnknownAdapterError)
	}
	if ctx.Err() != nil {
		return notSent("the time was over before anything was sent")
	}
	if a.s.account != c.call.Intent.ProviderID && !w.hooks.anyAccount {
		return notSent("the credential is not the one that was probed for this account")
	}
	if w.hit(refusedConnection) {
		t.pass(w.latency())
		return notSent("connection refused")
	}
	l := w.log.op(c.call.Tenant, c.call.Operation)
	req := &request{l: l, attempt: r.AttemptID, key: c.call.Intent.IdempotencyKey, account: a.s.account, digest: c.digest}
	a.last = req
	if w.hooks.key != nil {
		req.key = w.hooks.key(req.key, r.AttemptID)
	}
	w.send(a, req)
	if w.hit(adapterPanics) {
		panic("an adapter's own mistake")
	}
	if w.hit(connectionLost) {
		t.pass(w.between(0, a.s.contract.Total))
		return unclear(events.UnknownConnectionLost)
	}
	if !t.await(ctx, &req.answer, 0) {
		return unclear(events.UnknownTimeout)
	}
	return req.outcome
}

// send puts a request on the wire; from here on it is the network's and the
// provider's.
func (w *world) send(a *adapter, r *request) {
	s := a.s
	w.requests++
	r.order = w.requests
	w.sent(s, r)
	r.l.flying++
	way := w.latency()
	// The end of the request is the end of its lease; it may land until
	// late_apply after that.
	last := s.contract.Total + leaseGrace + s.contract.LateApply - 200*time.Millisecond
	r.last = r.l.began(r.attempt) + last
	switch {
	case w.now < s.downUntil, w.hit(requestLost):
		w.after(way, func() { r.l.flying-- })
		return
	case w.hit(breachApply):
		way, r.breach = last+w.between(time.Second, 15*time.Minute), true
	case w.hit(requestLate):
		way = w.between(0, max(way, last-(w.now-r.l.began(r.attempt))))
	}
	w.after(way, func() { w.land(s, r) })
}

// land is the moment at which the provider has the request.
func (w *world) land(s *service, r *request) {
	r.l.flying--
	if r.breach {
		r.l.breached("a request landed after late_apply")
	}
	o := s.execute(r)
	w.say("provider     %s of %s: %s %s", short(r.attempt), r.l.id, o.Word, o.ExternalID)
	back := w.latency()
	switch {
	case w.hit(answerLost):
		return
	case w.hit(answerLate):
		back = w.between(time.Second, s.contract.Total+leaseGrace+5*time.Second)
	}
	r.outcome = o
	w.after(back, func() { r.answer.fire(w) })
}

// execute is the provider.
func (s *service) execute(r *request) operation.Outcome {
	w, c, l := s.w, s.contract, r.l
	switch {
	case w.hit(tooManyRequests):
		return operation.Outcome{Word: operation.OutcomeNotApplied, Reason: "429", RetryAfter: w.between(0, 30*time.Second)}
	case w.hit(errorBeforeEffect):
		return unclear(events.UnknownServerError)
	}
	var k *storedKey
	if c.Class == operation.ClassKey {
		if w.hit(answerMismatch) {
			return operation.Outcome{Word: operation.OutcomeMismatch}
		}
		k = s.keys[r.key]
		switch {
		case k == nil, w.now >= k.forgotten:
		case w.now < k.busyUntil && !c.ConcurrentSafe:
			// Two requests with one key at once: this provider does both.
			return s.create(r, nil)
		case w.now < k.busyUntil, w.hit(busyAnswer):
			return operation.Outcome{Word: operation.OutcomeBusy}
		default:
			return k.outcome()
		}
		k = &storedKey{at: w.now, busyUntil: w.now + w.between(0, min(c.LateApply, max(0, r.last-w.now))), forgotten: w.now + c.Retention}
		if w.hit(breachKeyLost) {
			k.forgotten = w.now + w.between(0, c.Retention)
			l.breached("the provider forgot a key early")
		}
		s.keys[r.key] = k
	}
	if c.Class == operation.ClassClientID {
		if len(l.objects) > 0 {
			if loose := c.UniqueWeak && w.hit(breachUnique); !loose {
				return operation.Outcome{Word: operation.OutcomeExists}
			}
			l.breached("the provider made two objects with one id")
		}
	}
	if w.hit(refusal) {
		if k != nil {
			k.word = operation.OutcomeRejected
			return k.outcome()
		}
		return operation.Outcome{Word: operation.OutcomeRejected, Reason: "quota"}
	}
	if k != nil && w.hit(storedError) {
		// The provider failed half-way and keeps the failure as the answer.
		k.word = operation.OutcomeUncertain
		if w.rng.IntN(2) == 0 {
			s.create(r, nil)
		}
		return k.outcome()
	}
	o := s.create(r, k)
	switch {
	case w.hit(errorAfterEffect):
		return unclear(events.UnknownServerError)
	case w.hit(answerWithoutID):
		return operation.Outcome{Word: operation.OutcomeUnidentified}
	}
	return o
}

func (k *storedKey) outcome() operation.Outcome {
	switch k.word { //nolint:exhaustive // the others are not stored
	case operation.OutcomeRejected:
		return operation.Outcome{Word: operation.OutcomeRejected, Reason: "quota", AnswersKey: true}
	case operation.OutcomeUncertain:
		return operation.Outcome{Word: operation.OutcomeUncertain, Unknown: events.UnknownServerError, Final: true}
	}
	return operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: k.id, Result: []byte(`{"ok":true}`)}
}

// create makes the object, or writes the one that an upsert names.
func (s *service) create(r *request, k *storedKey) operation.Outcome {
	w, c, l := s.w, s.contract, r.l
	s.objects++
	id := fmt.Sprintf("%s-%d", s.name[:2], s.objects)
	if c.Class == operation.ClassUpsert {
		id = "x-" + l.state.Intent.ConflictScope
	}
	if k != nil {
		k.word, k.id = operation.OutcomeSuccess, id
	}
	lag := time.Duration(0)
	if c.Lookup.Lag > 0 && w.hit(indexLags) {
		lag = w.between(0, c.Lookup.Lag)
		if w.hit(breachLag) {
			lag = c.Lookup.Lag + w.between(time.Second, 10*time.Minute)
			l.breached("the lookup lagged longer than declared")
		}
	}
	ob := object{id: id, account: r.account, at: w.now, visible: w.now + lag}
	if c.Class == operation.ClassUpsert && slices.ContainsFunc(l.objects, func(o object) bool { return o.id == id }) {
		w.effect(r, ob, true)
	} else {
		l.objects = append(l.objects, ob)
		w.effect(r, ob, false)
	}
	return operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: id, Result: []byte(`{"ok":true}`)}
}

// Lookup implements providers.Adapter.
func (a *adapter) Lookup(ctx context.Context, c providers.Call) operation.Look {
	w, t, s := a.p.w, a.p.w.enter(), a.s
	look := operation.Look{Name: "by_label", AskedAt: a.p.now(), AttemptID: c.AttemptID}
	t.pass(w.latency())
	if w.now < s.downUntil || w.hit(lookFails) {
		t.pass(w.between(0, 10*time.Second))
		look.AccountProbed, look.AccountOK = c.Intent.ProviderID, true
		look.Failed, look.Reason = true, "search is out"
		w.log.op(c.Tenant, c.Operation).looks[look.AskedAt.UTC()] = &lookNote{account: c.Intent.ProviderID, blind: true}
		return look
	}
	look.AccountProbed = s.account
	look.AccountOK = s.account == c.Intent.ProviderID
	l := w.log.op(c.Tenant, c.Operation)
	note := &lookNote{account: s.account}
	l.looks[look.AskedAt.UTC()] = note
	for _, o := range l.objects {
		if o.visible <= w.now && o.account == s.account {
			if look.CreatedAt.IsZero() {
				look.CreatedAt = begin.Add(o.at)
			}
			look.Matches = append(look.Matches, o.id)
		}
	}
	look.PagesComplete = true
	if w.hit(lookIncomplete) {
		look.PagesComplete, look.Matches, look.CreatedAt = false, nil, time.Time{}
		note.blind = true
	}
	if w.hit(lookAlike) {
		look.Weak = []string{"like-1"}
	}
	if w.hit(lookSlow) {
		t.pass(w.long())
	} else {
		t.pass(w.latency())
	}
	if ctx.Err() != nil {
		look.Failed, look.PagesComplete, look.Matches, look.Reason = true, false, nil, "no answer in time"
		note.blind = true
	}
	return look
}

func short(id string) string { return id[max(0, len(id)-4):] }
