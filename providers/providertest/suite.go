package providertest

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// Features says what the adapter under test claims. What it does not claim is
// tested to be absent.
type Features struct {
	// ExternalID is the id that a successful write gives.
	ExternalID string
	// OtherArgs are valid arguments that ask for something else; nothing is
	// tested of them if they are empty.
	OtherArgs json.RawMessage
	// Key: the contract supports a key or a client-chosen id.
	Key bool
	// Probe is what the account probe returns, or empty for none.
	Probe string
	// Configured: Probe is what is configured, and nobody is asked.
	Configured bool
	// Lookup: the contract can look an operation up.
	Lookup bool
	// Remembers: a lookup finds what a write has made at the other end.
	Remembers bool

	// Usual, for HTTP only, answers everything the adapter asks in a healthy
	// world: the write, the account probe, and a look that finds nothing. It
	// must answer the write with success.
	Usual http.Handler
	// KeyHeader, for HTTP only, is the header that carries the key, or empty.
	KeyHeader string
}

// Make makes an adapter that calls baseURL, and a call for it. Each use makes a
// new adapter; the call is always the same operation.
type Make func(t *testing.T, baseURL string) (providers.Adapter, providers.Call)

// Run holds an adapter that speaks HTTP to the rules of the room, and to those
// of the wire.
func Run(t *testing.T, newAdapter Make, f Features) {
	t.Helper()
	newBench := func(t *testing.T) Bench {
		t.Helper()
		p := NewPeer(t, f.Usual)
		p.named = f.Probe
		b := Bench{End: httpEnd{p}}
		b.Adapter, b.Call = newAdapter(t, p.URL)
		return b
	}
	Conform(t, newBench, f)
	wire := func(test func(*testing.T, *bench, *Peer)) func(*testing.T, *bench) {
		return func(t *testing.T, b *bench) {
			t.Helper()
			end, _ := b.End.(httpEnd)
			test(t, b, end.Peer)
		}
	}
	run(t, map[string]func(*testing.T, *bench){
		"TheKeyIsInItsHeaderAndInNoOther":           wire(keyHeader),
		"OneAttemptIsOneRequestOnAReusedConnection": wire(oneRequestReused),
		"ARequestThatArrivedHasLeft":                wire(bytesSent),
		"ACutAnswerIsUncertain":                     wire(cutAnswer),
		"AServerErrorIsUncertain":                   wire(serverError),
		"AnEmptyAnswerIsUncertain":                  wire(emptyAnswer),
		"ARedirectIsNotFollowed":                    wire(redirect),
		"NoProbeGoesOutThatTheContractHasNot":       wire(noProbe),
	}, newBench, f)
}

func keyHeader(t *testing.T, b *bench, p *Peer) {
	b.do(t)
	for _, w := range p.Writes() {
		if b.features.KeyHeader == "" && w.Header.Get("Idempotency-Key") != "" {
			t.Error("a key header was sent that is not claimed")
		}
		if b.features.KeyHeader != "" && w.Header.Get(b.features.KeyHeader) == "" {
			t.Errorf("header %s: got none", b.features.KeyHeader)
		}
	}
	b.wantWrites(t, 1)
}

// oneRequestReused holds down the hidden repeat of Go's transport: it sends a
// request with an Idempotency-Key again when a reused connection breaks.
func oneRequestReused(t *testing.T, b *bench, p *Peer) {
	b.want(t, b.do(t), operation.OutcomeSuccess)
	b.want(t, b.do(t), operation.OutcomeSuccess)
	p.Next(Drop)
	b.want(t, b.do(t), operation.OutcomeUncertain)
	b.wantWrites(t, 3)
}

func bytesSent(t *testing.T, b *bench, p *Peer) {
	p.Next(Drop)
	if o := b.do(t); !o.Transport.BytesSent {
		t.Error("bytes_sent: got false for a request that arrived")
	}
}

func cutAnswer(t *testing.T, b *bench, p *Peer) {
	for _, status := range []int{201, 422} {
		p.Next(Cut(status, `{"id":"1"`))
		b.want(t, b.do(t), operation.OutcomeUncertain)
	}
}

func serverError(t *testing.T, b *bench, p *Peer) {
	for _, status := range []int{500, 502, 504} {
		p.Next(Answer(status, `{}`))
		b.want(t, b.do(t), operation.OutcomeUncertain)
	}
}

func emptyAnswer(t *testing.T, b *bench, p *Peer) {
	p.Next(Answer(204, ""))
	switch o := b.do(t); o.Word {
	case operation.OutcomeUncertain, operation.OutcomeUnidentified:
	case operation.OutcomeSuccess, operation.OutcomeRejected, operation.OutcomeNotApplied, operation.OutcomeBusy,
		operation.OutcomeExists, operation.OutcomeMismatch, operation.OutcomeNotSent:
		t.Errorf("an empty answer: got %s", o.Word)
	}
}

func redirect(t *testing.T, b *bench, p *Peer) {
	p.Next(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	b.want(t, b.do(t), operation.OutcomeUncertain)
	b.wantWrites(t, 1)
}

func noProbe(t *testing.T, b *bench, p *Peer) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := b.Adapter.Probe(ctx, b.Call); err != nil {
		t.Errorf("account probe: %v", err)
	}
	if (b.features.Probe == "" || b.features.Configured) && len(p.Seen()) > 0 {
		t.Error("a probe went out although the contract has none")
	}
}
