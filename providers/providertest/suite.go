package providertest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// Features says what the adapter under test claims. What it does not claim is
// tested to be absent.
type Features struct {
	// Usual answers everything the adapter asks in a healthy world: the write,
	// the account probe, and a look that finds nothing. It must answer the
	// write with success.
	Usual http.Handler
	// ExternalID is the id that a successful write gives.
	ExternalID string
	// KeyHeader is the header that carries the key, or empty.
	KeyHeader string
	// Key: the contract supports a key or a client-chosen id.
	Key bool
	// Probe is what the account probe returns, or empty for none.
	Probe string
	// Lookup: the contract can look an operation up.
	Lookup bool
}

// Make makes an adapter that calls baseURL, and a call for it. Each use makes a
// new adapter; the call is always the same operation.
type Make func(t *testing.T, baseURL string) (providers.Adapter, providers.Call)

// patience bounds what no test should wait for.
const patience = 30 * time.Second

// Run holds an adapter to the rules of the room.
func Run(t *testing.T, newAdapter Make, f Features) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *bench){
		"SuccessNamesItsObject":                        success,
		"TwoPreparesGiveOneDigest":                     preparesAgree,
		"TheKeyNeverDependsOnTheAttempt":               keyIsStable,
		"OneAttemptIsOneRequestOnAReusedConnection":    oneRequestReused,
		"OneAttemptIsOneRequestOnAFreshConnection":     oneRequestFresh,
		"ARequestIsSentOnce":                           sentOnce,
		"ALostAnswerIsUncertain":                       lostAnswer,
		"ACutAnswerIsUncertain":                        cutAnswer,
		"ARefusedConnectionIsNotSent":                  refusedConnection,
		"AContextThatEndsAfterTheBytesIsUncertain":     contextEnds,
		"AContextThatIsOverSendsNothing":               contextOver,
		"AServerErrorIsUncertain":                      serverError,
		"AnAnswerThatCantBeReadIsUncertain":            garbage,
		"ARedirectIsNotFollowed":                       redirect,
		"TheAccountIsProbedOnlyWhereTheContractSaysSo": probes,
		"ALookThatFindsNothingNamesNothing":            emptyLook,
		"ALookThatFailsIsNotComplete":                  failedLook,
		"AnUnclaimedFeatureIsAbsent":                   unclaimed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bench{features: f, peer: NewPeer(t, f.Usual)}
			b.adapter, b.call = newAdapter(t, b.peer.URL)
			test(t, b)
		})
	}
}

// bench is one adapter with its peer.
type bench struct {
	features Features
	peer     *Peer
	adapter  providers.Adapter
	call     providers.Call
}

func (b *bench) prepare(t *testing.T) *providers.Request {
	t.Helper()
	r, err := b.adapter.Prepare(b.call)
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	return r
}

func (b *bench) do(t *testing.T) operation.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return b.adapter.Do(ctx, b.prepare(t))
}

func (b *bench) want(t *testing.T, got operation.Outcome, want operation.OutcomeWord) {
	t.Helper()
	if got.Word != want {
		t.Errorf("outcome: got %s (%s, transport %+v), want %s", got.Word, got.Reason, got.Transport, want)
	}
}

func (b *bench) wantWrites(t *testing.T, want int) {
	t.Helper()
	if got := len(b.peer.Writes()); got != want {
		t.Errorf("requests on the wire: got %d, want %d", got, want)
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
	b.call.AttemptID, b.call.FirstSend, b.call.Fresh = "another-attempt", time.Now(), true
	if second := b.prepare(t); first.Digest == "" || first.Digest != second.Digest {
		t.Errorf("digests of one operation: got %q and %q", first.Digest, second.Digest)
	}
}

func keyIsStable(t *testing.T, b *bench) {
	b.do(t)
	b.call.AttemptID, b.call.FirstSend = "another-attempt", time.Now()
	b.do(t)
	writes := b.peer.Writes()
	if len(writes) != 2 {
		t.Fatalf("requests on the wire: got %d, want 2", len(writes))
	}
	if string(writes[0].Body) != string(writes[1].Body) || writes[0].Path != writes[1].Path {
		t.Error("two attempts of one operation differ on the wire")
	}
	if b.features.KeyHeader == "" {
		return
	}
	first, second := writes[0].Header.Get(b.features.KeyHeader), writes[1].Header.Get(b.features.KeyHeader)
	if first == "" || first != second {
		t.Errorf("keys of two attempts: got %q and %q", first, second)
	}
}

// oneRequestReused holds down the hidden repeat of Go's transport: it sends a
// request with an Idempotency-Key again when a reused connection breaks.
func oneRequestReused(t *testing.T, b *bench) {
	b.want(t, b.do(t), operation.OutcomeSuccess)
	b.want(t, b.do(t), operation.OutcomeSuccess)
	b.peer.Next(Drop)
	b.want(t, b.do(t), operation.OutcomeUncertain)
	b.wantWrites(t, 3)
}

func oneRequestFresh(t *testing.T, b *bench) {
	b.peer.Next(Drop)
	b.want(t, b.do(t), operation.OutcomeUncertain)
	b.wantWrites(t, 1)
}

func sentOnce(t *testing.T, b *bench) {
	r := b.prepare(t)
	b.want(t, b.adapter.Do(t.Context(), r), operation.OutcomeSuccess)
	again := b.adapter.Do(t.Context(), r)
	if again.Word == operation.OutcomeNotSent || again.Word == operation.OutcomeSuccess {
		t.Errorf("second use of a request: got %s, want a word that permits nothing", again.Word)
	}
	b.wantWrites(t, 1)
}

func lostAnswer(t *testing.T, b *bench) {
	b.peer.Next(Drop)
	o := b.do(t)
	b.want(t, o, operation.OutcomeUncertain)
	if !o.Transport.BytesSent {
		t.Error("bytes_sent: got false for a request that arrived")
	}
}

func cutAnswer(t *testing.T, b *bench) {
	for _, status := range []int{201, 422} {
		b.peer.Next(Cut(status, `{"id":"1"`))
		b.want(t, b.do(t), operation.OutcomeUncertain)
	}
}

func refusedConnection(t *testing.T, b *bench) {
	b.peer.Close()
	o := b.do(t)
	b.want(t, o, operation.OutcomeNotSent)
	if o.Transport.BytesSent {
		t.Error("bytes_sent: got true without a connection")
	}
}

func contextEnds(t *testing.T, b *bench) {
	arrived, end := make(chan struct{}, 1), make(chan struct{})
	defer close(end)
	b.peer.Next(Hold(arrived, end))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := b.prepare(t)
	done := make(chan operation.Outcome, 1)
	go func() { done <- b.adapter.Do(ctx, r) }()
	<-arrived
	cancel()
	b.want(t, <-done, operation.OutcomeUncertain)
	b.wantWrites(t, 1)
}

func contextOver(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	r := b.prepare(t)
	cancel()
	b.want(t, b.adapter.Do(ctx, r), operation.OutcomeNotSent)
	b.wantWrites(t, 0)
}

func serverError(t *testing.T, b *bench) {
	for _, status := range []int{500, 502, 504} {
		b.peer.Next(Answer(status, `{}`))
		b.want(t, b.do(t), operation.OutcomeUncertain)
	}
}

func garbage(t *testing.T, b *bench) {
	b.peer.Next(Answer(200, "<html>\x00"))
	b.want(t, b.do(t), operation.OutcomeUncertain)
	b.peer.Next(Answer(204, ""))
	switch o := b.do(t); o.Word {
	case operation.OutcomeUncertain, operation.OutcomeUnidentified:
	case operation.OutcomeSuccess, operation.OutcomeRejected, operation.OutcomeNotApplied, operation.OutcomeBusy,
		operation.OutcomeExists, operation.OutcomeMismatch, operation.OutcomeNotSent:
		t.Errorf("an empty answer: got %s", o.Word)
	}
}

func redirect(t *testing.T, b *bench) {
	b.peer.Next(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	b.want(t, b.do(t), operation.OutcomeUncertain)
	b.wantWrites(t, 1)
}

func probes(t *testing.T, b *bench) {
	got, err := b.adapter.Probe(t.Context(), b.call)
	if err != nil || got != b.features.Probe {
		t.Errorf("account probe: got %q, %v, want %q", got, err, b.features.Probe)
	}
	if b.features.Probe == "" && len(b.peer.Seen()) > 0 {
		t.Error("a probe went out although the contract has none")
	}
}

func emptyLook(t *testing.T, b *bench) {
	before := time.Now()
	b.call.FirstSend = before
	look := b.adapter.Lookup(t.Context(), b.call)
	if len(look.Matches)+len(look.Weak) > 0 {
		t.Errorf("matches where there is nothing: got %v and %v", look.Matches, look.Weak)
	}
	if b.features.Lookup && (look.Failed || !look.PagesComplete || look.AskedAt.IsZero()) {
		t.Errorf("a healthy look: got %+v", look)
	}
	if b.features.Probe != "" && b.features.Lookup && look.AccountProbed != b.features.Probe {
		t.Errorf("account of the look: got %q, want %q", look.AccountProbed, b.features.Probe)
	}
	b.wantWrites(t, 0)
}

func failedLook(t *testing.T, b *bench) {
	b.peer.Close()
	look := b.adapter.Lookup(t.Context(), b.call)
	if !look.Failed || look.PagesComplete || len(look.Matches) > 0 {
		t.Errorf("a look without a provider: got %+v", look)
	}
}

func unclaimed(t *testing.T, b *bench) {
	c, ok := b.adapter.Contract(b.call.Intent.Action)
	if !ok {
		t.Fatalf("contract of %s: got none", b.call.Intent.Action)
	}
	if c.KeySupported != b.features.Key || c.Lookup.Available != b.features.Lookup {
		t.Errorf("contract: got key %t, lookup %t, claimed %t, %t",
			c.KeySupported, c.Lookup.Available, b.features.Key, b.features.Lookup)
	}
	if !b.features.Key && c.Retention > 0 {
		t.Errorf("retention without a key: got %s", c.Retention)
	}
	b.do(t)
	for _, w := range b.peer.Writes() {
		if b.features.KeyHeader == "" && w.Header.Get("Idempotency-Key") != "" {
			t.Error("a key header was sent that is not claimed")
		}
	}
	if _, ok := b.adapter.Contract("no.such_action"); ok {
		t.Error("contract of an unknown action: got one")
	}
}
