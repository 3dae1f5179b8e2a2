package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// Verdict is what a trial of a promise says. The list is closed.
type Verdict string

// The verdicts.
const (
	// Kept: what was observed is what is declared, or safer.
	Kept Verdict = "kept"
	// Lie: the contract promises what the provider does not do.
	Lie Verdict = "LIE"
	// NotTried: nothing was observed; the reason is given.
	NotTried Verdict = "not tried"
)

// The promises, by name.
const (
	PromiseSuccess      = "success names its object"
	PromiseSameKey      = "the same request twice"
	PromiseMismatch     = "other content under the key"
	PromiseConcurrent   = "two requests at once"
	PromiseRetention    = "the key is remembered"
	PromiseLookup       = "the lookup finds it"
	PromiseAbsence      = "an empty look"
	PromisePages        = "the lookup reads on"
	PromiseAccount      = "the account probe"
	PromiseUnauthorized = "a bad credential"
	PromiseRefusal      = "a refusal leaves nothing"
	PromiseNotApplied   = "not applied means nothing happened"
	PromiseLate         = "nothing lands late"
)

// Promise is one line of a contract's trial.
type Promise struct {
	Name     string  `json:"promise"`
	Declared string  `json:"declared"`
	Observed string  `json:"observed"`
	Verdict  Verdict `json:"verdict"`
}

// trier tries the promises of one action.
type trier struct {
	file     *providers.File
	action   string
	args     json.RawMessage
	target   Target
	contract operation.Contract
	outline  outline
	// broken is the promise that all others, or all about the key, rest on.
	broken string
	// blind: the lookup never finds anything.
	blind bool
}

// Try tries every promise of an action, each in a world of its own. Against a
// URL it writes objects there. The error is for a trial that could not be made;
// a lie is a verdict.
func Try(ctx context.Context, f *providers.File, action string, args json.RawMessage, target Target) ([]Promise, error) {
	c, ok := f.Contract(action)
	if !ok {
		return nil, fmt.Errorf("trial: contract %s has no action %q; there are %v", f.Name, action, f.Actions())
	}
	if f.Remote() {
		return nil, fmt.Errorf("trial: contract %s is carried out by a worker of your own; only a contract over HTTP can be tried", f.Name)
	}
	o, err := outlineOf(f)
	if err != nil {
		return nil, err
	}
	t := &trier{file: f, action: action, args: args, target: target, contract: c, outline: o}
	var out []Promise
	for _, try := range []func(context.Context, *bench) (Promise, error){
		t.account, t.success, t.sameKey, t.mismatch, t.concurrent, t.retention, t.lookup, t.absence, t.pages,
		t.credential, t.refusal, t.notApplied, t.late,
	} {
		p, err := t.with(ctx, try)
		if err != nil {
			return out, err
		}
		out = append(out, p)
	}
	return out, nil
}

// with gives a promise a bench of its own.
func (t *trier) with(ctx context.Context, try func(context.Context, *bench) (Promise, error)) (Promise, error) {
	b, err := newBench(ctx, t.file, t.action, t.args, t.target)
	if err != nil {
		return Promise{}, err
	}
	p, err := try(ctx, b)
	return p, errors.Join(err, b.close())
}

func notTried(p Promise, format string, args ...any) (Promise, error) {
	p.Observed, p.Verdict = fmt.Sprintf(format, args...), NotTried
	return p, nil
}

func observed(p Promise, kept bool, format string, args ...any) (Promise, error) {
	p.Observed, p.Verdict = fmt.Sprintf(format, args...), Lie
	if kept {
		p.Verdict = Kept
	}
	return p, nil
}

// keyed reports whether the class promises that a repeat makes no second object.
func (t *trier) keyed() bool { return t.contract.KeySupported }

func (t *trier) account(_ context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromiseAccount, Declared: "names the account of the credential"}
	switch {
	case t.outline.Connection.AccountProbe == nil:
		p.Declared = "there is none"
		return notTried(p, "a credential of another account is not noticed before it is used")
	case b.probeErr != nil:
		return observed(p, false, "%v", b.probeErr)
	case b.configured == "":
		return observed(p, true, "it is %s; not compared, for no account was configured", b.bound)
	}
	return observed(p, b.bound == b.configured, "it is %s, configured is %s", b.bound, b.configured)
}

func (t *trier) success(ctx context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromiseSuccess, Declared: "the answer gives the object's id"}
	o, err := b.send(ctx, b.call("op-1", b.args))
	if err != nil {
		return p, err
	}
	if o.Word != operation.OutcomeSuccess || o.ExternalID == "" {
		t.broken = PromiseSuccess
		if o.Transport.Status >= 300 {
			return notTried(p, "%s: other arguments, an account that has what they name, or a peer that speaks this action may help", said(o))
		}
		return observed(p, false, "%s", said(o))
	}
	ids, known, err := b.ids(ctx)
	if err != nil || !known {
		p, _ = observed(p, true, "success, id %s", o.ExternalID)
		return p, err
	}
	right := len(ids) == 1 && ids[0] == o.ExternalID
	if !right {
		t.broken = PromiseSuccess
	}
	return observed(p, right, "success, id %s; its table holds %s", o.ExternalID, list(ids))
}

// resting reports the promise that has to hold before another can be tried.
func (t *trier) resting(p Promise) (Promise, bool) {
	if t.broken == "" {
		return p, false
	}
	p, _ = notTried(p, "%q must hold first", t.broken)
	return p, true
}

func (t *trier) sameKey(ctx context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromiseSameKey}
	switch t.contract.Class {
	case operation.ClassKey:
		p.Declared = "one object, and its id again"
	case operation.ClassClientID:
		p.Declared = "one object; the second says that the id exists"
	case operation.ClassUpsert:
		p.Declared = "one object, written again"
	case operation.ClassLabel, operation.ClassNone:
		p.Declared = "nothing keeps the second from making a second object"
	}
	if p, rests := t.resting(p); rests {
		return p, nil
	}
	c := b.call("op-1", b.args)
	first, err := b.send(ctx, c)
	if err != nil {
		return p, err
	}
	second, err := b.send(ctx, c)
	if err != nil {
		return p, err
	}
	ids, known, err := b.ids(ctx)
	if err != nil {
		return p, err
	}
	one := second.ExternalID == "" || second.ExternalID == first.ExternalID
	if known {
		one = len(ids) == 1
	}
	told := fmt.Sprintf("%s, then %s", said(first), said(second))
	if known {
		told += "; its table holds " + list(ids)
	}
	if !t.keyed() {
		if !one {
			told += ": never to be repeated, as declared"
		}
		return observed(p, true, "%s", told)
	}
	kept := one && t.repeatSays(first, second)
	if !kept {
		t.broken = PromiseSameKey
	}
	return observed(p, kept, "%s", told)
}

// repeatSays reports whether the answer to a repeat is one that the class allows.
func (t *trier) repeatSays(first, second operation.Outcome) bool {
	again := second.Word == operation.OutcomeSuccess && second.ExternalID == first.ExternalID
	return again || (second.Word == operation.OutcomeExists && t.outline.declares(t.action, operation.OutcomeExists))
}

func (t *trier) mismatch(ctx context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromiseMismatch, Declared: "recognised as mismatch, and changes nothing"}
	switch t.contract.Class {
	case operation.ClassKey:
		if !t.outline.declares(t.action, operation.OutcomeMismatch) {
			p.Declared = "changes nothing; no answer is declared for it"
		}
	case operation.ClassClientID:
		p.Declared = "the id exists, and nothing is changed"
	case operation.ClassUpsert:
		p.Declared = "written over: the last one wins"
		return notTried(p, "operations of one scope are kept apart by the ledger")
	case operation.ClassLabel, operation.ClassNone:
		p.Declared = "there is no key"
		return notTried(p, "nothing is promised")
	}
	if p, rests := t.resting(p); rests {
		return p, nil
	}
	changed, ok := t.otherArgs(b)
	if !ok {
		return notTried(p, "no other arguments that fit could be made up: give some with a text in them")
	}
	first, err := b.send(ctx, b.call("op-1", b.args))
	if err != nil {
		return p, err
	}
	before, err := b.table(ctx)
	if err != nil {
		return p, err
	}
	second, err := b.send(ctx, b.call("op-1", changed))
	if err != nil {
		return p, err
	}
	after, err := b.table(ctx)
	if err != nil {
		return p, err
	}
	kept := before == after
	switch {
	case t.contract.Class == operation.ClassClientID:
		kept = kept && second.Word == operation.OutcomeExists
	case t.outline.declares(t.action, operation.OutcomeMismatch):
		kept = kept && second.Word == operation.OutcomeMismatch
	}
	what := "nothing changed"
	if before != after {
		what = "the object changed, or there is another"
	}
	return observed(p, kept, "%s, then %s; %s", said(first), said(second), what)
}

// otherArgs returns arguments that fit and give another request to the same
// address.
func (t *trier) otherArgs(b *bench) (json.RawMessage, bool) {
	first, err := b.adapter.Prepare(b.call("op-1", b.args))
	if err != nil {
		return nil, false
	}
	for _, text := range []func(string) any{
		func(s string) any { return s + " 2" },
		func(s string) any { return s + "1" },
		func(s string) any { return strings.ReplaceAll(s, "1", "2") },
	} {
		for _, v := range variants(t.args, text, func(n float64) any { return n + 1 }) {
			bound, err := t.file.Bind(t.action, v)
			if err != nil {
				continue
			}
			r, err := b.adapter.Prepare(b.call("op-1", bound))
			if err == nil && r.Redacted().URL == first.Redacted().URL && r.Digest != first.Digest {
				return bound, true
			}
		}
	}
	return nil, false
}

// table returns the provider's own table as text, or "" if it can't be seen.
func (b *bench) table(ctx context.Context) (string, error) {
	if b.sim == nil {
		return "", nil
	}
	all, err := b.sim.Objects(ctx, simulator.ObjectFilter{})
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(all)
	return string(raw), err
}

func (t *trier) concurrent(ctx context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromiseConcurrent, Declared: "not declared to be safe: a repeat waits for late_apply"}
	if t.contract.ConcurrentSafe {
		p.Declared = "one object; the second waits, is busy, or is told that it exists"
	}
	if !t.keyed() {
		p.Declared = "there is no key"
		return notTried(p, "nothing is promised")
	}
	if p, rests := t.resting(p); rests {
		return p, nil
	}
	c := b.call("op-1", b.args)
	type end struct {
		o   operation.Outcome
		err error
	}
	first, second := make(chan end, 1), make(chan end, 1)
	start := func(ends chan<- end) {
		o, err := b.send(ctx, c)
		ends <- end{o, err}
	}
	if b.sim == nil {
		go start(first)
		go start(second)
	} else {
		r, err := b.adapter.Prepare(c)
		if err != nil {
			return p, err
		}
		shown := r.Redacted()
		if _, err := b.sim.AddRule(ctx, simulator.Rule{Method: shown.Method, PathPrefix: shownPath(shown.URL), Nth: 1, Do: simulator.Hold}); err != nil {
			return p, err
		}
		go start(first)
		if _, err := b.sim.WaitHeld(ctx, 1, patience/2); err != nil {
			return p, err
		}
		go start(second)
	}
	// The second may wait for the first, which is let go after a moment.
	var two end
	select {
	case two = <-second:
	case <-time.After(300 * time.Millisecond):
	}
	if b.sim != nil {
		if _, err := b.sim.Release(ctx, 0); err != nil {
			return p, err
		}
	}
	one := <-first
	if two.o.Word == "" && two.err == nil {
		two = <-second
	}
	if err := errors.Join(one.err, two.err); err != nil {
		return p, err
	}
	ids, known, err := b.ids(ctx)
	if err != nil {
		return p, err
	}
	single := one.o.ExternalID == "" || two.o.ExternalID == "" || one.o.ExternalID == two.o.ExternalID
	told := fmt.Sprintf("%s, and %s", said(one.o), said(two.o))
	if known {
		single = len(ids) == 1
		told += "; its table holds " + list(ids)
	}
	return observed(p, single || !t.promisesOne(), "%s", told)
}

// promisesOne reports whether two requests at once are promised to make one
// object.
func (t *trier) promisesOne() bool { return t.contract.ConcurrentSafe && !t.contract.UniqueWeak }

func (t *trier) retention(ctx context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromiseRetention, Declared: t.outline.Actions[t.action].Retry.Retention}
	switch {
	case !t.keyed():
		p.Declared = "there is no key"
		return notTried(p, "nothing is promised")
	case t.contract.Retention <= 0:
		return notTried(p, "nothing is promised, and nothing is repeated by key")
	}
	if p, rests := t.resting(p); rests {
		return p, nil
	}
	wait, how := t.contract.Retention-time.Second, "a second before the end"
	if t.contract.Retention == operation.Forever {
		// Nobody can wait for ever.
		wait, how = Horizon, "400 days later"
	}
	if !b.virtual() {
		return notTried(p, "it would take %s", p.Declared)
	}
	c := b.call("op-1", b.args)
	first, err := b.send(ctx, c)
	if err != nil {
		return p, err
	}
	b.pass(wait)
	second, err := b.send(ctx, c)
	if err != nil {
		return p, err
	}
	ids, _, err := b.ids(ctx)
	if err != nil {
		return p, err
	}
	kept := len(ids) == 1 && t.repeatSays(first, second)
	told := fmt.Sprintf("%s: %s; its table holds %s", how, said(second), list(ids))
	if !kept {
		known, err := t.remembered(ctx, b, wait)
		if err != nil {
			return p, err
		}
		told += "; still known after " + known.String()
	}
	return observed(p, kept, "%s", told)
}

// remembered returns the longest of a few times after which the key is still
// known.
func (t *trier) remembered(ctx context.Context, b *bench, limit time.Duration) (time.Duration, error) {
	for n, part := range []float64{0.95, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.01, 0.001} {
		after := time.Duration(float64(limit) * part).Round(time.Second)
		c := b.call(fmt.Sprintf("op-%d", n+2), b.args)
		first, err := b.send(ctx, c)
		if err != nil {
			return 0, err
		}
		b.pass(after)
		second, err := b.send(ctx, c)
		if err != nil {
			return 0, err
		}
		if t.repeatSays(first, second) {
			return after, nil
		}
	}
	return 0, nil
}

// maxPoll bounds how long a lookup is polled where time can't be passed.
const maxPoll = 2 * time.Minute

// until looks until the object is found or the time is over, and returns after
// how long that was.
func (b *bench) until(ctx context.Context, c providers.Call, limit time.Duration) (operation.Look, time.Duration) {
	const steps = 20
	began := b.now()
	look := b.adapter.Lookup(ctx, c)
	pause := max(limit/steps, 100*time.Millisecond)
	for len(look.Matches) == 0 && b.now().Sub(began) < limit {
		step := min(pause, limit-b.now().Sub(began))
		if b.virtual() {
			b.pass(step)
		} else {
			select {
			case <-ctx.Done():
				return look, b.now().Sub(began)
			case <-time.After(step):
			}
		}
		look = b.adapter.Lookup(ctx, c)
	}
	return look, b.now().Sub(began)
}

func (t *trier) lookup(ctx context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromiseLookup, Declared: "by its own mark, at once"}
	if t.contract.Lookup.Lag > 0 {
		p.Declared = fmt.Sprintf("by its own mark, within %s", t.contract.Lookup.Lag)
	}
	if !t.contract.Lookup.Available {
		p.Declared = "there is none"
		return notTried(p, "nothing is promised")
	}
	if p, rests := t.resting(p); rests {
		return p, nil
	}
	if !b.virtual() && t.contract.Lookup.Lag > maxPoll {
		return notTried(p, "it would take up to %s", t.contract.Lookup.Lag)
	}
	c := b.call("op-1", b.args)
	o, err := b.send(ctx, c)
	if err != nil {
		return p, err
	}
	look, after := b.until(ctx, c, t.contract.Lookup.Lag)
	if slices.Equal(look.Matches, []string{o.ExternalID}) {
		return observed(p, true, "found after %s", after)
	}
	if len(look.Matches) > 0 {
		return observed(p, false, "it is %s, found %s", o.ExternalID, list(look.Matches))
	}
	told := fmt.Sprintf("nothing after %s", after)
	if look.Failed {
		told += ", the look failed: " + look.Reason
	}
	if b.virtual() {
		if look, more := b.until(ctx, c, 30*24*time.Hour); len(look.Matches) > 0 {
			told += fmt.Sprintf("; found after %s", after+more)
		} else {
			told += ", nor in 30 days"
			t.blind = true
		}
	}
	return observed(p, false, "%s", told)
}

func (t *trier) absence(ctx context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromiseAbsence, Declared: "proves nothing, ever"}
	if !t.contract.Absence.Provable {
		if !t.contract.Lookup.Available {
			return notTried(p, "there is no lookup")
		}
		return observed(p, true, "the ledger concludes nothing from it")
	}
	settled := t.contract.LateApply + t.contract.Lookup.Lag + t.contract.Absence.Settle
	p.Declared = fmt.Sprintf("counts from %s after the request on", settled)
	if p, rests := t.resting(p); rests {
		return p, nil
	}
	if !b.virtual() {
		return notTried(p, "it would take %s", settled)
	}
	c := b.call("op-1", b.args)
	if _, err := b.send(ctx, c); err != nil {
		return p, err
	}
	b.pass(settled)
	reads := max(t.contract.Absence.EmptyReads, 1)
	for range reads {
		if look := b.adapter.Lookup(ctx, c); len(look.Matches) == 0 && !look.Failed {
			return observed(p, false, "empty %s after a request that made an object", settled)
		}
		b.pass(max(t.contract.Absence.Spacing, time.Second))
	}
	return observed(p, true, "an object that is there was shown by %d of %d looks", reads, reads)
}

func (t *trier) pages(ctx context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromisePages, Declared: "over all its pages"}
	switch {
	case !t.contract.Lookup.Available || !t.outline.pages(t.action):
		p.Declared = "the lookup has one page"
		return notTried(p, "nothing is promised")
	case b.sim == nil:
		return notTried(p, "the size of the provider's pages is not ours to set")
	}
	if p, rests := t.resting(p); rests {
		return p, nil
	}
	if t.blind {
		return notTried(p, "%q must hold first", PromiseLookup)
	}
	if _, err := b.sim.PatchSettings(ctx, map[string]any{"page_size": 1}); err != nil {
		return p, err
	}
	// Without a key a second request makes a second object with the same mark;
	// what else is there fills pages, too.
	c, want := b.call("op-1", b.args), 1
	if !t.keyed() {
		want = 2
	}
	for n := range want + 2 {
		next := c
		if n >= want {
			next = b.call(fmt.Sprintf("op-%d", n+1), b.args)
		}
		if _, err := b.send(ctx, next); err != nil {
			return p, err
		}
	}
	b.pass(30 * 24 * time.Hour)
	look := b.adapter.Lookup(ctx, c)
	told := fmt.Sprintf("pages of one object each: %d of %d found", len(look.Matches), want)
	if look.Reason != "" {
		told += " (" + look.Reason + ")"
	}
	return observed(p, len(look.Matches) == want && look.PagesComplete, "%s", told)
}

func (t *trier) credential(ctx context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromiseUnauthorized, Declared: "nothing is done, and a later request may succeed"}
	if b.badly == nil {
		p.Declared = "there is none"
		return notTried(p, "nothing is promised")
	}
	o, err := send(ctx, b.badly, b.call("op-1", b.args), t.contract.Total)
	if err != nil {
		return p, err
	}
	ids, known, err := b.ids(ctx)
	if err != nil {
		return p, err
	}
	told := said(o)
	if known {
		told += "; its table holds " + list(ids)
	}
	if o.Word == operation.OutcomeUncertain && len(ids) == 0 {
		return observed(p, true, "%s: safe, and a question each time; a rule not_applied for this answer would help", told)
	}
	return observed(p, o.Word == operation.OutcomeNotApplied && len(ids) == 0, "%s", told)
}

func (t *trier) refusal(ctx context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromiseRefusal, Declared: "what is rejected is nowhere"}
	if p, rests := t.resting(p); rests {
		return p, nil
	}
	for n, v := range variants(b.args, func(string) any { return "" }, func(float64) any { return -1 }) {
		before, known, err := b.ids(ctx)
		if err != nil {
			return p, err
		}
		c := b.call(fmt.Sprintf("op-%d", n+1), v)
		o, err := b.send(ctx, c)
		if err != nil || o.Word != operation.OutcomeRejected {
			continue // it can't be built, or it was not refused
		}
		after, _, err := b.ids(ctx)
		if err != nil {
			return p, err
		}
		if known {
			return observed(p, len(after) == len(before), "%s; its table holds %s", said(o), list(after[len(before):]))
		}
		if !t.contract.Lookup.Available || t.contract.Lookup.Lag > maxPoll {
			return notTried(p, "%s; what is there can't be looked up", said(o))
		}
		look, _ := b.until(ctx, c, t.contract.Lookup.Lag)
		return observed(p, len(look.Matches) == 0, "%s; found %s", said(o), list(look.Matches))
	}
	return notTried(p, "no arguments were found that the provider refuses")
}

func (t *trier) notApplied(ctx context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromiseNotApplied, Declared: "an answer that is not_applied leaves no object"}
	if !t.outline.declares(t.action, operation.OutcomeNotApplied) {
		p.Declared = "no answer is declared so"
		return notTried(p, "nothing is promised")
	}
	if b.sim == nil {
		return notTried(p, "the provider can't be made to turn a request away")
	}
	if p, rests := t.resting(p); rests {
		return p, nil
	}
	c := b.call("op-1", b.args)
	r, err := b.adapter.Prepare(c)
	if err != nil {
		return p, err
	}
	shown := r.Redacted()
	if _, err := b.sim.AddRule(ctx, simulator.Rule{Method: shown.Method, PathPrefix: shownPath(shown.URL), Nth: 1, Do: simulator.RateLimit}); err != nil {
		return p, err
	}
	o, err := b.send(ctx, c)
	if err != nil {
		return p, err
	}
	if o.Word != operation.OutcomeNotApplied {
		return notTried(p, "turned away for its rate, and the contract says %s, which promises nothing", said(o))
	}
	ids, _, err := b.ids(ctx)
	if err != nil {
		return p, err
	}
	return observed(p, len(ids) == 0, "%s; its table holds %s", said(o), list(ids))
}

func (t *trier) late(ctx context.Context, b *bench) (Promise, error) {
	p := Promise{Name: PromiseLate, Declared: fmt.Sprintf("later than %s after a connection is gone", t.contract.LateApply)}
	if !b.virtual() {
		return notTried(p, "a provider can't be made to be late from outside")
	}
	if p, rests := t.resting(p); rests {
		return p, nil
	}
	b.cut <- struct{}{}
	if _, err := b.send(ctx, b.call("op-1", b.args)); err != nil {
		return p, err
	}
	b.pass(t.contract.LateApply)
	rows := func() (int, error) {
		// A provider that is late may need a request to notice the time.
		if _, err := b.adapter.Probe(ctx, b.call("op-1", b.args)); err != nil {
			return 0, err
		}
		ids, _, err := b.ids(ctx)
		return len(ids), err
	}
	before, err := rows()
	if err != nil {
		return p, err
	}
	b.pass(30 * 24 * time.Hour)
	after, err := rows()
	if err != nil {
		return p, err
	}
	return observed(p, before == after, "in one sample: %s by then, %s a month later", count(before, "object"), count(after, "object"))
}

// said tells an outcome in a few words.
func said(o operation.Outcome) string {
	text := string(o.Word)
	if o.Word == operation.OutcomeSuccess {
		return "success " + o.ExternalID
	}
	var why []string
	switch {
	case o.Reason != "":
		why = append(why, o.Reason)
	case o.Transport.Status != 0:
		why = append(why, fmt.Sprintf("status %d", o.Transport.Status))
	}
	if o.Word == operation.OutcomeUncertain && o.Unknown != "" && o.Unknown != events.UnknownUnreadable {
		why = append(why, string(o.Unknown))
	}
	if len(why) > 0 {
		text += " (" + strings.Join(slices.Compact(why), ", ") + ")"
	}
	return text
}

func list(ids []string) string {
	switch len(ids) {
	case 0:
		return "nothing"
	case 1:
		return ids[0]
	}
	return fmt.Sprintf("%d objects: %s", len(ids), strings.Join(ids, ", "))
}
