package providertest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// patience bounds what no test should wait for; a lost answer is waited for as
// long as short.
const (
	patience = 30 * time.Second
	short    = 300 * time.Millisecond
)

// Conform holds an adapter of any kind to the rules of the room. Each test makes
// a bench of its own.
func Conform(t *testing.T, newBench func(t *testing.T) Bench, f Features) {
	t.Helper()
	run(t, map[string]func(*testing.T, *bench){
		"SuccessNamesItsObject":                   success,
		"TwoPreparesGiveOneDigest":                preparesAgree,
		"TheDigestCoversTheWish":                  digestCovers,
		"NothingOfARequestDependsOnTheAttempt":    attemptsAgree,
		"ARequestIsSentOnce":                      sentOnce,
		"ARequestOfAnotherAdapterIsNotSent":       foreign,
		"RequestsAtOnceAreOneDeliveryEach":        atOnce,
		"ALostAnswerIsUncertain":                  lostAnswer,
		"ALateAnswerCounts":                       lateAnswer,
		"WhatCantBeDeliveredIsNotSent":            undelivered,
		"AContextThatEndsAfterArrivalIsUncertain": contextEnds,
		"AContextThatIsOverSendsNothing":          contextOver,
		"AFailureOfTheOtherEndIsUncertain":        failure,
		"AnAnswerThatCantBeReadIsUncertain":       garbage,
		"TheAccountIsTheOneOfTheOtherEnd":         probes,
		"ALookThatFindsNothingNamesNothing":       emptyLook,
		"ALookThatFailsIsNotComplete":             failedLook,
		"ALookFindsWhatALostAnswerMade":           foundLook,
		"ALookUnderAnotherAccountSaysSo":          foreignLook,
		"AnUnclaimedFeatureIsAbsent":              unclaimed,
	}, newBench, f)
}

func run(t *testing.T, tests map[string]func(*testing.T, *bench), newBench func(t *testing.T) Bench, f Features) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &bench{Bench: newBench(t), features: f})
		})
	}
}

// bench is a Bench with what is claimed.
type bench struct {
	Bench
	features Features
}

func (b *bench) prepare(t *testing.T) *providers.Request {
	t.Helper()
	r, err := b.Adapter.Prepare(b.Call)
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	return r
}

func (b *bench) do(t *testing.T) operation.Outcome {
	t.Helper()
	return b.doWithin(t, patience)
}

func (b *bench) doWithin(t *testing.T, limit time.Duration) operation.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return b.send(ctx, b.prepare(t))
}

// send calls Do as the executor does: a panic has proven nothing, and neither
// has a word that is not on the list.
func (b *bench) send(ctx context.Context, r *providers.Request) (o operation.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = operation.Outcome{Word: operation.OutcomeUncertain, Reason: "the adapter panicked"}
		}
		if !slices.Contains(operation.OutcomeWords(), o.Word) {
			o.Word = operation.OutcomeUncertain
		}
	}()
	return b.Adapter.Do(ctx, r)
}

func (b *bench) want(t *testing.T, got operation.Outcome, want operation.OutcomeWord) {
	t.Helper()
	if got.Word != want {
		t.Errorf("outcome: got %s (%s, transport %+v), want %s", got.Word, got.Reason, got.Transport, want)
	}
}

func (b *bench) wantWrites(t *testing.T, want int) {
	t.Helper()
	if got := len(b.End.Writes()); got != want {
		t.Errorf("deliveries: got %d, want %d", got, want)
	}
}

func success(t *testing.T, b *bench) {
	o := b.do(t)
	b.want(t, o, operation.OutcomeSuccess)
	if o.ExternalID != b.features.ExternalID {
		t.Errorf("external id: got %q, want %q", o.ExternalID, b.features.ExternalID)
	}
	b.wantWrites(t, 1)
}

func preparesAgree(t *testing.T, b *bench) {
	first := b.prepare(t)
	b.Call.AttemptID, b.Call.FirstSend, b.Call.Fresh = "another-attempt", time.Now(), true
	if second := b.prepare(t); first.Digest == "" || first.Digest != second.Digest {
		t.Errorf("digests of one operation: got %q and %q", first.Digest, second.Digest)
	}
	b.wantWrites(t, 0)
}

func digestCovers(t *testing.T, b *bench) {
	first := b.prepare(t)
	if len(b.features.OtherArgs) == 0 {
		return
	}
	b.Call.Intent.Args = b.features.OtherArgs
	if second := b.prepare(t); first.Digest == second.Digest {
		t.Errorf("digest of other arguments: got the same, %q", first.Digest)
	}
}

func attemptsAgree(t *testing.T, b *bench) {
	b.do(t)
	b.Call.AttemptID, b.Call.FirstSend = "another-attempt", time.Now()
	r := b.prepare(t)
	r.AttemptID = "another-attempt"
	b.send(t.Context(), r)
	writes := b.End.Writes()
	if len(writes) != 2 {
		t.Fatalf("deliveries: got %d, want 2", len(writes))
	}
	if writes[0] != writes[1] {
		t.Errorf("two attempts of one operation differ: got %q and %q", writes[0], writes[1])
	}
}

func sentOnce(t *testing.T, b *bench) {
	r := b.prepare(t)
	b.want(t, b.send(t.Context(), r), operation.OutcomeSuccess)
	again := b.send(t.Context(), r)
	if again.Word == operation.OutcomeNotSent || again.Word == operation.OutcomeSuccess {
		t.Errorf("second use of a request: got %s, want a word that permits nothing", again.Word)
	}
	b.wantWrites(t, 1)
}

func foreign(t *testing.T, b *bench) {
	for name, r := range map[string]*providers.Request{
		"none": nil, "an empty one": {}, "another adapter's": providers.NewRequest(nil, "sha256:00", providers.Redacted{}, "content"),
	} {
		if o := b.send(t.Context(), r); o.Word == operation.OutcomeSuccess || o.Word == operation.OutcomeNotSent {
			t.Errorf("request, %s: got %s, want a word that permits nothing", name, o.Word)
		}
	}
	b.wantWrites(t, 0)
}

// atOnce also lets the race detector see the adapter's methods side by side.
func atOnce(t *testing.T, b *bench) {
	const n = 8
	var wg sync.WaitGroup
	outcomes := make([]operation.Outcome, n)
	for i := range n {
		r := b.prepare(t)
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			outcomes[i] = b.send(ctx, r)
			_, _ = b.Adapter.Probe(ctx, b.Call) // its answer has a test of its own
			b.Adapter.Lookup(ctx, b.Call)
		})
	}
	wg.Wait()
	for _, o := range outcomes {
		b.want(t, o, operation.OutcomeSuccess)
	}
	b.wantWrites(t, n)
}

func lostAnswer(t *testing.T, b *bench) {
	b.End.Next(Fault{Word: LoseAnswer})
	o := b.doWithin(t, short)
	b.want(t, o, operation.OutcomeUncertain)
	b.wantWrites(t, 1)
}

func (b *bench) held(ctx context.Context, t *testing.T) (outcome <-chan operation.Outcome, release chan<- struct{}) {
	t.Helper()
	arrived, let, done := make(chan struct{}, 1), make(chan struct{}), make(chan operation.Outcome, 1)
	b.End.Next(Fault{Word: AnswerLate, Arrived: arrived, Release: let})
	r := b.prepare(t)
	go func() { done <- b.send(ctx, r) }()
	select {
	case <-arrived:
	case o := <-done:
		t.Fatalf("the request did not arrive: %+v", o)
	}
	return done, let
}

// lateAnswer: whoever waits longer than the contract's time, as the executor
// does while the lease runs, gets the answer after all.
func lateAnswer(t *testing.T, b *bench) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	outcome, release := b.held(ctx, t)
	select {
	case o := <-outcome:
		t.Fatalf("an answer that is not there yet: got %+v", o)
	case <-time.After(short):
	}
	close(release)
	b.want(t, <-outcome, operation.OutcomeSuccess)
	b.wantWrites(t, 1)
}

func contextEnds(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outcome, release := b.held(ctx, t)
	defer close(release)
	cancel()
	b.want(t, <-outcome, operation.OutcomeUncertain)
	b.wantWrites(t, 1)
}

func undelivered(t *testing.T, b *bench) {
	b.End.Stop()
	o := b.do(t)
	b.want(t, o, operation.OutcomeNotSent)
	if o.Transport.BytesSent {
		t.Error("bytes_sent: got true for what was not delivered")
	}
}

func contextOver(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	r := b.prepare(t)
	cancel()
	b.want(t, b.send(ctx, r), operation.OutcomeNotSent)
	b.wantWrites(t, 0)
}

func failure(t *testing.T, b *bench) {
	b.End.Next(Fault{Word: Fail})
	b.want(t, b.doWithin(t, patience), operation.OutcomeUncertain)
	b.want(t, b.do(t), operation.OutcomeSuccess)
	b.wantWrites(t, 2)
}

func garbage(t *testing.T, b *bench) {
	b.End.Next(Fault{Word: Garble})
	b.want(t, b.do(t), operation.OutcomeUncertain)
	b.wantWrites(t, 1)
}

// other is an account id of the same form, a number if the own one is.
func (b *bench) other() string { return "9" + b.features.Probe }

func probes(t *testing.T, b *bench) {
	got, err := b.Adapter.Probe(t.Context(), b.Call)
	if err != nil || got != b.features.Probe {
		t.Errorf("account probe: got %q, %v, want %q", got, err, b.features.Probe)
	}
	b.wantWrites(t, 0)
	if b.features.Probe == "" || b.features.Configured {
		return
	}
	b.End.Belong(b.other())
	b.Call.Fresh = true
	if got, err := b.Adapter.Probe(t.Context(), b.Call); err != nil || got != b.other() {
		t.Errorf("account probe after a change: got %q, %v, want %q", got, err, b.other())
	}
	b.End.Stop()
	if got, err := b.Adapter.Probe(t.Context(), b.Call); err == nil {
		t.Errorf("account probe without the other end: got %q and no error", got)
	}
}

func emptyLook(t *testing.T, b *bench) {
	b.Call.FirstSend = time.Now()
	look := b.Adapter.Lookup(t.Context(), b.Call)
	if len(look.Matches)+len(look.Weak) > 0 {
		t.Errorf("matches where there is nothing: got %v and %v", look.Matches, look.Weak)
	}
	if b.features.Lookup && (look.Failed || !look.PagesComplete || look.AskedAt.IsZero() || !look.AccountOK) {
		t.Errorf("a healthy look: got %+v", look)
	}
	if b.features.Probe != "" && b.features.Lookup && look.AccountProbed != b.features.Probe {
		t.Errorf("account of the look: got %q, want %q", look.AccountProbed, b.features.Probe)
	}
	b.wantWrites(t, 0)
}

func failedLook(t *testing.T, b *bench) {
	b.End.Stop()
	look := b.Adapter.Lookup(t.Context(), b.Call)
	if !look.Failed || look.PagesComplete || len(look.Matches) > 0 {
		t.Errorf("a look without a provider: got %+v", look)
	}
}

func foundLook(t *testing.T, b *bench) {
	if !b.features.Remembers {
		return
	}
	b.End.Next(Fault{Word: LoseAnswer})
	b.want(t, b.doWithin(t, short), operation.OutcomeUncertain)
	b.Call.FirstSend, b.Call.AttemptID = time.Now(), "attempt-1"
	look := b.Adapter.Lookup(t.Context(), b.Call)
	if look.Failed || !look.AccountOK || !slices.Equal(look.Matches, []string{b.features.ExternalID}) || look.AttemptID != "attempt-1" {
		t.Errorf("a look for what a lost answer made: got %+v, want %s", look, b.features.ExternalID)
	}
}

func foreignLook(t *testing.T, b *bench) {
	if b.features.Probe == "" || b.features.Configured || !b.features.Lookup {
		return
	}
	b.End.Belong(b.other())
	b.Call.Fresh = true
	look := b.Adapter.Lookup(t.Context(), b.Call)
	if look.AccountOK || len(look.Matches) > 0 {
		t.Errorf("a look under another account: got %+v", look)
	}
}

func unclaimed(t *testing.T, b *bench) {
	c, ok := b.Adapter.Contract(b.Call.Intent.Action)
	if !ok {
		t.Fatalf("contract of %s: got none", b.Call.Intent.Action)
	}
	if c.KeySupported != b.features.Key || c.Lookup.Available != b.features.Lookup {
		t.Errorf("contract: got key %t, lookup %t, claimed %t, %t",
			c.KeySupported, c.Lookup.Available, b.features.Key, b.features.Lookup)
	}
	if !b.features.Key && c.Retention > 0 {
		t.Errorf("retention without a key: got %s", c.Retention)
	}
	if c.Total <= 0 {
		t.Error("the contract bounds no request")
	}
	if _, ok := b.Adapter.Contract("no.such_action"); ok {
		t.Error("contract of an unknown action: got one")
	}
}
