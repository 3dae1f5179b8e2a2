package trial

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// Target is what a contract is tried against: the simulator, or a provider at a
// URL.
type Target struct {
	// Settings are the simulator's. They are not used with a URL.
	Settings simulator.Settings
	// Wrap stands between the network and the simulator; nil means nothing
	// does. A test plays a provider that lies with it.
	Wrap func(now func() time.Time, next http.Handler) http.Handler
	// URL is the base URL of a real provider. Every promise that is tried
	// writes to it.
	URL string
	// Account is how the provider at the URL is reached; its ProviderID, if it
	// is set, is compared with the account probe.
	Account providers.Account
}

// SettingsFor returns the settings of the simulator that a contract describes:
// those of its own preset, or of the preset with the contract's name.
func SettingsFor(f *providers.File) (simulator.Settings, error) {
	preset, ok := presetOf(f.Name)
	if !ok {
		preset, ok = f.Name, slices.Contains(simulator.Presets(), f.Name)
	}
	if !ok {
		return simulator.Settings{}, fmt.Errorf("trial: the simulator does not speak the API of contract %s (presets: %v)", f.Name, simulator.Presets())
	}
	return simulator.Preset(preset)
}

// bench is a provider with an adapter, for one promise.
type bench struct {
	file     *providers.File
	action   string
	args     json.RawMessage
	contract operation.Contract
	adapter  *providers.HTTP
	// badly is the same with a credential that nobody gave out; nil where the
	// contract has none.
	badly *providers.HTTP
	// configured is the account that the configuration names, bound the one
	// that the probe names.
	configured, bound string
	probeErr          error
	ledger            string

	// The rest is there only with the simulator.
	clock  *clock
	server *simulator.Server
	sim    *simulator.Client
	http   *http.Server
	dir    string
	served sync.WaitGroup
	cut    chan struct{} // holds one token if the next write's answer is to be cut
}

// newBench starts one. It ends with close.
func newBench(ctx context.Context, f *providers.File, action string, args json.RawMessage, t Target) (*bench, error) {
	c, ok := f.Contract(action)
	if !ok {
		return nil, fmt.Errorf("trial: contract %s has no action %q; there are %v", f.Name, action, f.Actions())
	}
	bound, err := f.Bind(action, args)
	if err != nil {
		return nil, fmt.Errorf("trial: the arguments do not fit: %w", err)
	}
	b := &bench{file: f, action: action, args: bound, contract: c, ledger: events.NewID(), cut: make(chan struct{}, 1)}
	account := t.Account
	now := time.Now
	if b.dir, err = os.MkdirTemp("", "opledger-trial-"); err != nil {
		return nil, err
	}
	if t.URL == "" {
		if account, err = b.simulate(ctx, t); err != nil {
			return nil, errors.Join(err, b.close())
		}
		now = b.clock.Now
	} else {
		account.BaseURL = t.URL
	}
	b.configured = account.ProviderID
	if b.adapter, err = b.adapterFor(account, now); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if err := b.withoutCredential(account, now); err != nil {
		return nil, errors.Join(err, b.close())
	}
	b.bound = b.configured
	if id, err := b.adapter.Probe(ctx, b.call("probe", b.args)); err != nil {
		b.probeErr = err
	} else if id != "" {
		b.bound = id
	}
	return b, nil
}

func (b *bench) adapterFor(account providers.Account, now func() time.Time) (*providers.HTTP, error) {
	return providers.NewHTTP(providers.HTTPConfig{
		File: b.file, Accounts: map[string]providers.Account{accountName: account}, Now: now,
	})
}

// withoutCredential makes an adapter whose every secret is one that nobody gave
// out.
func (b *bench) withoutCredential(account providers.Account, now func() time.Time) error {
	if len(account.Secrets) == 0 {
		return nil
	}
	wrong, err := accountOf(b.file, b.dir, account.BaseURL, account.ProviderID, "nobody-gave-this-out", "wrong")
	if err != nil {
		return err
	}
	account.Secrets = wrong.Secrets
	b.badly, err = b.adapterFor(account, now)
	return err
}

// simulate starts a simulator of its own under a virtual clock.
func (b *bench) simulate(ctx context.Context, t Target) (providers.Account, error) {
	b.clock = &clock{now: begin()}
	var err error
	if b.server, err = simulator.New(simulator.Config{Settings: t.Settings, Now: b.clock.Now}); err != nil {
		return providers.Account{}, err
	}
	b.sim, err = simulator.NewClient(simulator.ClientConfig{BaseURL: "http://simulator", HTTPClient: localClient(b.server)})
	if err != nil {
		return providers.Account{}, err
	}
	var handler http.Handler = b.server
	var lies http.Handler // what stands between, once it is known whose account it is
	if t.Wrap != nil {
		lies = t.Wrap(b.clock.Now, handler)
	}
	var lying atomic.Bool
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return providers.Account{}, err
	}
	b.http = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler := handler
		if lies != nil && lying.Load() {
			handler = lies
		}
		select {
		case <-b.cut:
			handler.ServeHTTP(&kept{header: make(http.Header)}, r)
			panic(http.ErrAbortHandler)
		default:
			handler.ServeHTTP(w, r)
		}
	})}
	b.served.Go(func() { _ = b.http.Serve(ln) }) // it ends with close
	account, err := accountOf(b.file, b.dir, "http://"+ln.Addr().String(), simulator.DefaultAccount, simulator.DefaultToken, "secret")
	if err != nil {
		return account, err
	}
	account.ProviderID, err = shownAccount(ctx, b.file, b.action, b.args, account)
	lying.Store(true)
	return account, err
}

func (b *bench) close() error {
	if b.server != nil {
		b.server.Close()
	}
	if b.http != nil {
		_ = b.http.Close() // there is nothing to save
	}
	b.served.Wait()
	for _, a := range []*providers.HTTP{b.adapter, b.badly} {
		if a != nil {
			a.Close()
		}
	}
	return os.RemoveAll(b.dir)
}

// call is one operation, by a name of the caller's.
func (b *bench) call(op string, args json.RawMessage) providers.Call {
	key, err := events.ProviderKey(b.ledger, tenant, op)
	if err != nil {
		panic("trial: derive a key: " + err.Error()) // our own ids are valid
	}
	sum := sha256.Sum256(args)
	return providers.Call{
		Tenant: tenant, Operation: op, FirstSend: b.now(), Fresh: true,
		Intent: events.IntentRecorded{
			Provider: b.file.Provider, Account: events.Account{Name: accountName, ProviderID: b.bound}, Action: b.action,
			Args: args, ArgsDigest: "sha256-jcs:" + hex.EncodeToString(sum[:]), ContractRef: b.file.Ref(), IdempotencyKey: key,
		},
	}
}

func (b *bench) now() time.Time {
	if b.clock != nil {
		return b.clock.Now()
	}
	return time.Now()
}

// virtual reports whether time can be passed at no cost.
func (b *bench) virtual() bool { return b.clock != nil }

// pass lets time pass.
func (b *bench) pass(d time.Duration) { b.clock.advance(b.clock.Now().Add(d)) }

// send sends one request of an operation.
func (b *bench) send(ctx context.Context, c providers.Call) (operation.Outcome, error) {
	return send(ctx, b.adapter, c, b.contract.Total)
}

func send(ctx context.Context, a *providers.HTTP, c providers.Call, total time.Duration) (operation.Outcome, error) {
	r, err := a.Prepare(c)
	if err != nil {
		return operation.Outcome{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	return a.Do(ctx, r), nil
}

// ids returns the ids of all objects in the provider's own table; false if the
// table can't be seen.
func (b *bench) ids(ctx context.Context) ([]string, bool, error) {
	if b.sim == nil {
		return nil, false, nil
	}
	all, err := b.sim.Objects(ctx, simulator.ObjectFilter{})
	if err != nil {
		return nil, true, err
	}
	var out []string
	for _, o := range all {
		out = append(out, o.ID)
	}
	return out, true, nil
}

// outline is what is read of a file beside what package providers tells of it.
type outline struct {
	Connection struct {
		AccountProbe any `yaml:"account_probe"`
	} `yaml:"connection"`
	Actions map[string]struct {
		Args struct {
			Schema map[string]any `yaml:"schema"`
		} `yaml:"args"`
		Retry struct {
			Retention string `yaml:"retention"`
		} `yaml:"retry"`
		Outcomes []struct {
			Is string `yaml:"is"`
		} `yaml:"outcomes"`
		Lookups []struct {
			Name        string `yaml:"name"`
			Consistency string `yaml:"consistency"`
			Paging      any    `yaml:"paging"`
		} `yaml:"lookups"`
	} `yaml:"actions"`
}

func outlineOf(f *providers.File) (outline, error) {
	var o outline
	if err := yaml.Unmarshal(f.Bytes(), &o); err != nil {
		return o, fmt.Errorf("trial: read contract %s: %w", f.Name, err)
	}
	return o, nil
}

// declares reports whether the action has an outcome rule with a word.
func (o outline) declares(action string, word operation.OutcomeWord) bool {
	for _, r := range o.Actions[action].Outcomes {
		if r.Is == string(word) {
			return true
		}
	}
	return false
}

// pages reports whether a lookup of the action reads more than one page.
func (o outline) pages(action string) bool {
	for _, l := range o.Actions[action].Lookups {
		if l.Paging != nil {
			return true
		}
	}
	return false
}
