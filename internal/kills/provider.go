package kills

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// provider is one outside system. It lives in this process, so that its table
// survives every kill.
type provider struct {
	name, contract, preset string
	class                  operation.Class
	vars                   map[string]string
	lag                    time.Duration

	url string
	sim *simulator.Client
}

// The bounds that the contracts declare, and what the providers do inside them.
const (
	searchLag  = 200 * time.Millisecond
	lateBy     = 250 * time.Millisecond
	answerTime = 20 * time.Millisecond
)

// providersOf are the outside systems of a world: one of each class.
func providersOf() []*provider {
	vars := func(more ...string) map[string]string {
		out := map[string]string{"total": "500ms", "late_apply": "500ms", "backoff_first": "200ms", "backoff_max": "1s"}
		for i := 0; i+1 < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	const lag, schedule, attempts = "400ms", "300ms, 600ms, 1s, 2s, 3s", "100"
	return []*provider{
		{
			name: "keyed", contract: "sim-keyed", preset: "keyed", class: operation.ClassKey, lag: searchLag,
			vars: vars("margin", "1m", "lag", lag, "schedule", schedule, "max_attempts", attempts),
		},
		{
			name: "unique", contract: "sim-unique", preset: "unique", class: operation.ClassClientID,
			vars: vars("schedule", "200ms, 500ms, 1s", "settle", "200ms", "spacing", "200ms", "max_attempts", attempts),
		},
		{
			name: "crm", contract: "sim-crm", preset: "crm", class: operation.ClassLabel, lag: searchLag,
			vars: vars("lag", lag, "schedule", schedule),
		},
		{name: "pager", contract: "sim-nothing", preset: "nothing", class: operation.ClassNone, vars: vars()},
	}
}

// repeats reports whether the ledger settles every unknown outcome by itself: it
// may send once more.
func (p *provider) repeats() bool {
	return p.class == operation.ClassKey || p.class == operation.ClassClientID
}

// method is that of the request that makes an object.
func (p *provider) method() string {
	if p.class == operation.ClassClientID {
		return "PUT"
	}
	return "POST"
}

// serve runs the provider until ctx ends.
func (p *provider) serve(ctx context.Context, seed uint64) error {
	settings, err := simulator.Preset(p.preset)
	if err != nil {
		return err
	}
	settings.IndexLag, settings.Seed = simulator.Duration(p.lag), seed
	s, err := simulator.New(simulator.Config{Settings: settings})
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("kills: %w", err)
	}
	p.url = "http://" + ln.Addr().String()
	go func() { _ = s.Serve(ctx, ln) }() // ends with ctx; what fails shows in the audit
	if p.sim, err = simulator.NewClient(simulator.ClientConfig{BaseURL: p.url}); err != nil {
		return err
	}
	for _, r := range p.rules() {
		if _, err := p.sim.AddRule(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// rules lose requests and answers, answer wrongly and apply late. The first one
// that applies to a request plays it.
func (p *provider) rules() []simulator.Rule {
	rule := func(share float64, do simulator.Fault, after time.Duration) simulator.Rule {
		return simulator.Rule{
			Name: string(do), Method: p.method(), PathPrefix: "/v1/tasks", Probability: share,
			Do: do, After: simulator.Duration(after), Status: 500,
		}
	}
	return []simulator.Rule{
		rule(0.06, simulator.LoseResponse, 0), rule(0.04, simulator.LoseRequest, 0),
		rule(0.04, simulator.ApplyLate, lateBy), rule(0.03, simulator.StatusAfterCommit, 0),
		rule(0.03, simulator.CutBody, 0), rule(0, simulator.Delay, answerTime),
	}
}

// template is the contract with the times of this package.
func (p *provider) template() ([]byte, error) { return providers.Template(p.contract, p.vars) }
