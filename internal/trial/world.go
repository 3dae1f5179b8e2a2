package trial

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/executor"
	"github.com/opledger/opledger/intake"
	"github.com/opledger/opledger/internal/dispatch"
	"github.com/opledger/opledger/internal/memledger"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
	"github.com/opledger/opledger/reconciler"
)

// Bounds and fixed values of a world.
const (
	// DefaultSteps bounds how often something is planned or done for each
	// operation of a world.
	DefaultSteps = 2000
	// Horizon bounds the virtual time.
	Horizon = 400 * 24 * time.Hour
	// maxBlocked is how often in a row an attempt may be blocked, with nothing
	// else happening, before the world says so and ends.
	maxBlocked = 40
	// heldTotal is the real time after which the executor ends its wait for an
	// answer that the network keeps back.
	heldTotal = 40 * time.Millisecond
	// leaseGrace and clockError are the executor's defaults.
	leaseGrace = 10 * time.Second
	clockError = 500 * time.Millisecond
	// patience is the real time that one step may take.
	patience = time.Minute

	ledgerID    = "7d5f3a52-2c1e-4f0b-9b6e-3f2a1d4c5b60"
	tenant      = "trial"
	accountName = "main"
	otherID     = "acct_2"
)

// ErrBound is returned for a run that does not end within its bounds.
var ErrBound = errors.New("trial: the run did not end within its bounds")

// Config is what a world is made of.
type Config struct {
	File   *providers.File
	Action string
	// Args are the arguments of every operation.
	Args json.RawMessage
	// Settings are the provider's.
	Settings simulator.Settings
	// ProviderID is the provider's own id of the account, as its probe shows it.
	// Empty means simulator.DefaultAccount.
	ProviderID string
	Fault      Fault
	// OnUnknown is the choice of every intent; empty means by contract.
	OnUnknown events.OnUnknown
	// Decisions are those of a person, one after the other, each time an
	// operation waits for one. Confirm names the object that is there.
	Decisions []events.DecisionWord
	// Seed starts the random numbers.
	Seed uint64
	// Steps bounds how often something is planned or done for each operation.
	// Zero means DefaultSteps.
	Steps int
}

// World is a ledger, a network and a provider under one clock.
type World struct {
	cfg      Config
	contract operation.Contract
	dir      string
	clock    clock
	server   *simulator.Server
	sim      *simulator.Client
	wire     *wire
	registry *providers.Registry
	account  events.Account
	ledger   *memledger.Ledger
	writer   *writer.Writer
	intake   *intake.Service
	recon    *reconciler.Reconciler
	dealt    int // decisions made

	mu        sync.Mutex
	moved     *sync.Cond
	agenda    agenda
	order     int
	items     map[itemKey]*item
	flights   []*flight
	processes []*process
	named     int // processes ever
	crashes   []Crash
	dead      map[string]bool // processes by name
	ops       []string
	byKey     map[string]string
	news      map[string]uint64
	nth       int      // writes so far
	sending   *sending // the one whose answer is kept back
	blocked   int      // in a row
	why       executor.BlockedReason
	failure   error
	random    *rand.Rand
}

// reconcilerRole is the role of the reconciler; executors count from 0.
const reconcilerRole = -1

type itemKey struct {
	role int
	op   string
}

// item is an operation in the hands of a role.
type item struct {
	itemKey
	at      time.Time
	min     uint64
	queued  bool
	running bool
	again   time.Time // woken while running, for this time
}

// flight is one run of a role. It is parked while its request is kept back.
type flight struct {
	it           *item
	done, parked bool
	next         dispatch.Again
}

// process is one executor, in two forms: quick is for the write whose answer
// will be kept back, and differs in real time only.
type process struct {
	name         string
	plain, quick *executor.Executor
	kill         []func()
}

// errDead is what the log says to a process that is dead.
var errDead = errors.New("trial: the process has crashed")

// NewWorld makes a world. It ends with Close.
func NewWorld(ctx context.Context, cfg Config) (*World, error) {
	contract, ok := cfg.File.Contract(cfg.Action)
	if !ok {
		return nil, fmt.Errorf("trial: contract %s has no action %q; there are %v", cfg.File.Name, cfg.Action, cfg.File.Actions())
	}
	w := &World{
		cfg: cfg, contract: contract, clock: clock{now: begin()}, crashes: cfg.Fault.Crashes,
		items: make(map[itemKey]*item), byKey: make(map[string]string), news: make(map[string]uint64), dead: make(map[string]bool),
		random: rand.New(rand.NewPCG(cfg.Seed, 1)), account: events.Account{Name: accountName, ProviderID: cmp.Or(cfg.ProviderID, simulator.DefaultAccount)},
	}
	w.moved = sync.NewCond(&w.mu)
	if err := w.provider(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	if err := w.parts(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Close ends the provider and the network.
func (w *World) Close() error {
	if w.server != nil {
		w.server.Close()
	}
	if w.wire != nil {
		w.wire.close()
	}
	if w.registry != nil {
		w.registry.Close()
	}
	if w.dir == "" {
		return nil
	}
	return os.RemoveAll(w.dir)
}

// provider starts the simulator and the network in front of it.
func (w *World) provider(ctx context.Context) error {
	settings := w.cfg.Settings
	if w.cfg.Fault.Settings != nil {
		w.cfg.Fault.Settings(&settings)
	}
	var err error
	if w.server, err = simulator.New(simulator.Config{Settings: settings, Now: w.clock.Now}); err != nil {
		return err
	}
	w.sim, err = simulator.NewClient(simulator.ClientConfig{
		BaseURL: "http://simulator", HTTPClient: localClient(w.server),
	})
	if err != nil {
		return err
	}
	for _, r := range w.cfg.Fault.Rules {
		if _, err := w.sim.AddRule(ctx, r); err != nil {
			return err
		}
	}
	w.wire, err = newWire(ctx, w.server, w.cfg.Fault, w.untilHeld, func(after time.Duration, do func(context.Context)) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.at(w.clock.Now().Add(after), do)
	})
	return err
}

// references finds what a contract asks an account for.
var references = regexp.MustCompile(`\$\{(secret|account)\.([A-Za-z0-9_]+)\??\}`)

// basic finds a credential that is a whole user and password.
var basic = regexp.MustCompile(`"Basic \$\{secret\.`)

// accountOf makes an account that has all that a contract uses: one secret for
// each name, in a file, and a placeholder for each value.
func accountOf(f *providers.File, dir, url, id, secret, name string) (providers.Account, error) {
	path := filepath.Join(dir, name)
	if basic.Match(f.Bytes()) {
		secret = base64.StdEncoding.EncodeToString([]byte("trial:" + secret))
	}
	if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
		return providers.Account{}, err
	}
	ref, err := providers.ParseRef("file://" + path)
	if err != nil {
		return providers.Account{}, err
	}
	a := providers.Account{
		ProviderID: id, BaseURL: url, AllowLoopback: true,
		Secrets: make(map[string]providers.SecretRef), Values: make(map[string]string),
	}
	for _, m := range references.FindAllSubmatch(f.Bytes(), -1) {
		switch space, name := string(m[1]), string(m[2]); {
		case space == "secret":
			a.Secrets[name] = ref
		case name != "base_url" && name != "provider_id" && name != "name":
			a.Values[name] = "trial"
		}
	}
	return a, nil
}

// shownAccount asks a healthy provider whose account the credential belongs to:
// each dialect of the simulator shows it in its own way.
func shownAccount(ctx context.Context, f *providers.File, action string, args json.RawMessage, account providers.Account) (string, error) {
	h, err := providers.NewHTTP(providers.HTTPConfig{File: f, Accounts: map[string]providers.Account{accountName: account}})
	if err != nil {
		return "", err
	}
	defer h.Close()
	id, err := h.Probe(ctx, providers.Call{Tenant: tenant, Operation: "probe", Fresh: true, Intent: events.IntentRecorded{
		Provider: f.Provider, Account: events.Account{Name: accountName}, Action: action, Args: args, ContractRef: f.Ref(),
		IdempotencyKey: ledgerID, // any will do: a probe carries none
	}})
	return cmp.Or(id, account.ProviderID), err
}

// parts puts the ledger together.
func (w *World) parts(ctx context.Context) error {
	var err error
	if w.dir, err = os.MkdirTemp("", "opledger-trial-"); err != nil {
		return err
	}
	account, err := accountOf(w.cfg.File, w.dir, w.wire.url, w.account.ProviderID, simulator.DefaultToken, "secret")
	if err != nil {
		return err
	}
	if w.cfg.Fault.TLS {
		account.CAFile = filepath.Join(w.dir, "ca.pem")
		if err := os.WriteFile(account.CAFile, pemOf(w.wire.good), 0o600); err != nil {
			return err
		}
	}
	if w.cfg.ProviderID != "" {
		// It is known already.
	} else if w.account.ProviderID, err = shownAccount(ctx, w.cfg.File, w.cfg.Action, w.cfg.Args, account); err != nil {
		return err
	}
	account.ProviderID = w.account.ProviderID
	w.registry, err = providers.NewRegistry([]providers.Configured{
		{File: w.cfg.File, Accounts: map[string]providers.Account{accountName: account}},
	}, nil, providers.RegistryOptions{Now: w.clock.Now})
	if err != nil {
		return err
	}
	w.ledger = memledger.New(w.clock.Now)
	w.ledger.BeforeAppend = func(e events.Event) error { return w.crash(e, false) }
	w.ledger.AfterAppend = func(e events.Event) error {
		w.heard(e)
		return w.crash(e, true)
	}
	w.writer, err = writer.New(writer.Config{Journal: w.ledger, Ledger: ledgerID, Now: w.clock.Now, Observe: w.stored})
	if err != nil {
		return err
	}
	w.intake, err = intake.New(intake.Config{
		Recorder: w.writer, States: w.ledger, Catalogue: offers{w.registry, w.account}, Ledger: ledgerID,
		Tenants: []intake.Tenant{{ID: tenant, ApprovalInSubmit: true}}, Now: w.clock.Now, Random: w.draw,
	})
	if err != nil {
		return err
	}
	w.recon, err = reconciler.New(reconciler.Config{
		Recorder: w.writer, States: w.ledger, Adapters: adapters{w, false}, Worker: "reconciler",
		LeaseGrace: leaseGrace, ClockError: clockError, Now: w.clock.Now, Random: w.draw,
	})
	if err != nil {
		return err
	}
	for range max(w.cfg.Fault.Executors, 1) {
		p, err := w.newProcess()
		if err != nil {
			return err
		}
		w.processes = append(w.processes, p)
	}
	return nil
}

// newProcess starts an executor.
func (w *World) newProcess() (*process, error) {
	w.named++
	p := &process{name: fmt.Sprintf("executor-%d", w.named)}
	form := func(quick bool, grace time.Duration) (*executor.Executor, error) {
		return executor.New(executor.Config{
			Recorder: w.writer, States: w.ledger, Claims: w.ledger, Stamps: w.ledger, Scopes: w.ledger,
			Adapters: adapters{w, quick},
			Worker:   p.name, LeaseGrace: grace, ClockError: clockError, LastWords: time.Millisecond,
			Now: w.clock.Now, Random: w.draw,
			Observe: executor.Observer{
				Outcome: func(_, _ string, word operation.OutcomeWord) { w.answerOver(word) },
				Blocked: func(_ string, reason executor.BlockedReason) {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.blocked++
					w.why = reason
				},
			},
		})
	}
	var err error
	if p.plain, err = form(false, leaseGrace); err != nil {
		return nil, err
	}
	// Both leases are equally long.
	p.quick, err = form(true, leaseGrace+w.contract.Total-w.quickTotal())
	return p, err
}

func (w *World) quickTotal() time.Duration { return min(heldTotal, w.contract.Total) }

// draw returns a random number from [0, 1).
func (w *World) draw() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.Float64()
}

// offers is the registry as intake knows it.
type offers struct {
	registry *providers.Registry
	account  events.Account
}

// Offer implements intake.Catalogue.
func (o offers) Offer(_ context.Context, provider, account, action string) (intake.Offer, error) {
	file, contract, ref, err := o.registry.Current(provider, action)
	if err != nil {
		return intake.Offer{}, fmt.Errorf("%w: %w", intake.ErrNoAction, err)
	}
	if account != o.account.Name {
		return intake.Offer{}, intake.ErrNoAccount
	}
	return intake.Offer{Contract: contract, Ref: ref, SchemaVersion: file.APIVersion, Account: o.account}, nil
}

// Contract implements intake.Catalogue.
func (o offers) Contract(ctx context.Context, intent events.IntentRecorded) (operation.Contract, error) {
	return o.registry.ContractOf(ctx, intent)
}

// Bind implements intake.Catalogue.
func (o offers) Bind(ctx context.Context, ref events.ContractRef, provider, action string, args []byte) ([]byte, error) {
	bound, err := o.registry.BindAs(ctx, ref, provider, action, args)
	if _, misfit := errors.AsType[*providers.ArgumentsError](err); misfit {
		return nil, fmt.Errorf("%w: %w", intake.ErrArguments, err)
	}
	return bound, err
}

// Scope implements intake.Catalogue.
func (o offers) Scope(ctx context.Context, ref events.ContractRef, provider, action string, account events.Account, args []byte) (string, error) {
	return o.registry.ScopeAs(ctx, ref, provider, action, args, account)
}

// Render implements intake.Catalogue: nobody asks to be shown a request.
func (offers) Render(context.Context, operation.State) (json.RawMessage, error) {
	return nil, errors.New("trial: requests are not shown")
}

// Keep implements intake.Catalogue: the file is in force for the world's life.
func (offers) Keep(context.Context, string) error { return nil }

// adapters hands out the adapter, watched, and the contract as a role needs it.
type adapters struct {
	w     *World
	quick bool
}

// For implements executor.Adapters.
func (a adapters) For(ctx context.Context, intent events.IntentRecorded) (providers.Adapter, operation.Contract, error) {
	inner, c, err := a.w.registry.For(ctx, intent)
	if err != nil {
		return nil, c, err
	}
	if a.quick {
		c.Total = a.w.quickTotal()
	}
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	return sender{inner, a.w, a.w.byKey[intent.IdempotencyKey]}, c, nil
}

// sender is the real adapter; it tells the world of every write.
type sender struct {
	providers.Adapter
	w  *World
	op string
}

// Limit implements providers.Limited.
func (s sender) Limit(action string) (concurrency int, spacing time.Duration) {
	if l, ok := s.Adapter.(providers.Limited); ok {
		return l.Limit(action)
	}
	return 0, 0
}

// Do sends, and lets happen what is to happen to this write.
func (s sender) Do(ctx context.Context, r *providers.Request) operation.Outcome {
	on, rule, err := s.w.write(ctx, s.op, r)
	if err != nil {
		s.w.fail(err)
	}
	s.w.wire.begin(on)
	o := s.Adapter.Do(ctx, r)
	if err := s.w.wire.end(context.WithoutCancel(ctx), on); err != nil {
		s.w.fail(err)
	}
	if rule != 0 {
		_ = s.w.sim.DeleteRule(context.WithoutCancel(ctx), rule) // it may be gone
	}
	return o
}

// write finds out what is to happen to a write and sets it up.
func (w *World) write(ctx context.Context, op string, r *providers.Request) (*sending, int64, error) {
	shown := r.Redacted()
	on := &sending{
		op: op, method: shown.Method, path: shownPath(shown.URL), at: w.clock.Now(),
		arrived: make(chan struct{}), answered: make(chan bool, 1),
	}
	if strings.HasPrefix(shown.Body, "{") && !strings.Contains(shown.Body, "***") {
		on.body = shown.Body
	}
	w.mu.Lock()
	w.nth++
	var rule *simulator.Rule
	var before []Then
	for _, f := range w.cfg.Fault.Writes {
		if !f.concerns(w.nth) {
			continue
		}
		if rule == nil && f.Rule != nil {
			rule = new(*f.Rule)
		}
		if on.wire == WireOpen {
			on.wire, on.after = f.Wire, w.after(f)
		}
		switch {
		case f.Then == ThenNothing:
		case f.Later == 0:
			before = append(before, f.Then)
		default:
			w.at(on.at.Add(f.Later), func(ctx context.Context) { w.then(ctx, f.Then, op) })
		}
	}
	if on.wire == WireHeld {
		rule = &simulator.Rule{Do: simulator.Hold}
	}
	if keeps(on.wire) {
		w.sending = on
	}
	w.mu.Unlock()
	for _, then := range before {
		w.then(ctx, then, op)
	}
	if rule == nil {
		return on, 0, nil
	}
	rule.Method, rule.PathPrefix, rule.Times = on.method, on.path, 1
	added, err := w.sim.AddRule(context.WithoutCancel(ctx), *rule)
	return on, added.ID, err
}

// after is the time of what the network does, counted from the sending.
func (w *World) after(f Write) time.Duration {
	switch {
	case !f.Past:
		return f.After
	case keeps(f.Wire):
		return f.After + w.contract.Total
	}
	return f.After + w.contract.LateApply
}

// shownPath is the path of a shown URL, or "" if it hides something.
func shownPath(url string) string {
	if strings.Contains(url, "***") {
		return ""
	}
	_, rest, _ := strings.Cut(url, "://")
	_, path, found := strings.Cut(rest, "/")
	if !found {
		return "/"
	}
	path, _, _ = strings.Cut(path, "?")
	return unescape("/" + path)
}

// keeps reports whether the network keeps the answer beyond the total time.
func keeps(w Wire) bool {
	switch w {
	case WireSlow, WireHeld, WireHalfOpen, WireHalfAnswer:
		return true
	case WireOpen, WireLate, WireTwice, WireRefused, WireBadTLS:
	}
	return false
}

// keepsNext reports whether the answer of the next write will be kept back.
func (w *World) keepsNext() bool {
	for _, f := range w.cfg.Fault.Writes {
		if f.concerns(w.nth+1) && keeps(f.Wire) {
			return true
		}
	}
	return false
}

// untilHeld waits until the provider keeps an answer back.
func (w *World) untilHeld(ctx context.Context) {
	if _, err := w.sim.WaitHeld(ctx, 1, patience/2); err != nil {
		w.fail(err)
	}
}

// answerOver is called when the executor is about to record an outcome. If that
// is the end of a wait for an answer that is kept back, the time that the
// contract gives is over, and what happens to that answer is laid down.
func (w *World) answerOver(word operation.OutcomeWord) {
	w.mu.Lock()
	on := w.sending
	w.mu.Unlock()
	if on == nil || on.over || word != operation.OutcomeUncertain {
		return
	}
	select {
	case <-on.arrived:
	case <-time.After(patience / 2):
		w.fail(errors.New("trial: the request did not arrive"))
	}
	w.clock.advance(on.at.Add(w.contract.Total))
	w.mu.Lock()
	defer w.mu.Unlock()
	on.over = true
	end := on.at.Add(w.contract.Total + leaseGrace)
	give := func(answer bool) func(context.Context) {
		return func(context.Context) { w.unpark(on.op); on.answered <- answer }
	}
	comes := on.at.Add(on.after)
	switch on.wire {
	case WireSlow:
		if comes.Before(end) {
			w.at(comes, give(true))
		} else {
			w.at(end, give(false))
		}
	case WireHeld:
		release := func(ctx context.Context) {
			if comes.Before(end) {
				w.unpark(on.op)
			}
			if _, err := w.sim.Release(ctx, 0); err != nil {
				w.fail(err)
			}
		}
		if !comes.Before(end) {
			w.at(end, give(false))
		}
		w.at(comes, release)
	case WireHalfOpen, WireHalfAnswer:
		w.at(end, give(false))
	case WireOpen, WireLate, WireTwice, WireRefused, WireBadTLS:
	}
}

// crash ends a process where the fault says so, and refuses what a dead one
// still wants to write.
func (w *World) crash(e events.Event, stored bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead[e.Actor] {
		return errDead
	}
	p := w.process(e.Actor)
	if p == nil {
		return nil
	}
	if len(w.crashes) == 0 || w.crashes[0].Stored != stored {
		return nil
	}
	if at, kind := w.crashes[0].At, e.Data.Kind(); at != kind && (at != "" || kind == events.KindAttemptStarted) {
		return nil
	}
	w.crashes = w.crashes[1:]
	w.dead[p.name] = true
	for _, kill := range p.kill {
		kill()
	}
	return errDead
}

func (w *World) process(name string) *process {
	for _, p := range w.processes {
		if p.name == name {
			return p
		}
	}
	return nil
}

// heard is told of every event in the log, as its consumers are.
func (w *World) heard(e events.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.news[e.Operation] = max(w.news[e.Operation], e.Version)
	w.blocked = 0
}

// stored is told of every event that its writer knows to be stored.
func (w *World) stored(_, _ operation.State, e events.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, unknown := e.Data.(events.OutcomeUnknown); !unknown || w.sending == nil || !w.sending.over || w.sending.op != e.Operation {
		return
	}
	for _, f := range w.flights {
		if f.it.role >= 0 && w.processes[f.it.role].name == e.Actor && f.it.op == e.Operation {
			f.parked = true
		}
	}
	w.sending = nil
	w.moved.Broadcast()
}

func (w *World) unpark(op string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.flights {
		if f.it.op == op {
			f.parked = false
		}
	}
}

// fail notes the first trouble of the world itself.
func (w *World) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failure = cmp.Or(w.failure, err)
	w.moved.Broadcast()
}

// then lets somebody do something at the provider.
func (w *World) then(ctx context.Context, what Then, op string) {
	change := func(c simulator.AccountChange) error {
		c.Token = simulator.DefaultToken
		return w.sim.ChangeAccount(ctx, c)
	}
	var err error
	switch what {
	case ThenNothing:
	case ThenSwitch:
		err = change(simulator.AccountChange{Account: otherID})
	case ThenRevoke:
		err = change(simulator.AccountChange{Revoke: true})
	case ThenRestore:
		err = change(simulator.AccountChange{Account: simulator.DefaultAccount})
	case ThenFindAgain:
		_, err = w.sim.PatchSettings(ctx, map[string]any{"search_outage": false})
	case ThenRetitle, ThenRelabel, ThenDelete:
		err = w.edit(ctx, what, op)
	}
	if err != nil {
		w.fail(err)
	}
}

func (w *World) edit(ctx context.Context, what Then, op string) error {
	objects, err := w.objects(ctx, op)
	if err != nil {
		return err
	}
	for _, o := range objects {
		switch what { //nolint:exhaustive // the others are no edits
		case ThenRetitle:
			_, err = w.sim.EditObject(ctx, o.Account, o.ID, simulator.ObjectEdit{Title: new("edited by a person")})
		case ThenRelabel:
			_, err = w.sim.EditObject(ctx, o.Account, o.ID, simulator.ObjectEdit{Label: new("")})
		case ThenDelete:
			_, err = w.sim.DeleteObject(ctx, o.Account, o.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// objects returns the rows of the provider's table that an operation made.
func (w *World) objects(ctx context.Context, op string) ([]simulator.Object, error) {
	all, err := w.sim.Objects(ctx, simulator.ObjectFilter{})
	if err != nil {
		return nil, err
	}
	var out []simulator.Object
	for _, o := range all {
		if w.wire.owner(o.Request) == op {
			out = append(out, o)
		}
	}
	return out, nil
}

// Submit hands in one operation.
func (w *World) Submit(ctx context.Context, id string) error {
	key, err := events.ProviderKey(ledgerID, tenant, id)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.ops = append(w.ops, id)
	w.byKey[key] = id
	w.mu.Unlock()
	req := api.SubmitRequest{
		OperationID: id, Provider: w.cfg.File.Provider, Account: accountName, Action: w.cfg.Action, Args: w.cfg.Args,
		OnUnknown: w.cfg.OnUnknown,
	}
	if w.contract.ApprovalRequired || w.cfg.OnUnknown == events.OnUnknownRisk {
		req.RequireApproval = &api.RequireApproval{}
		req.Approval = &api.GivenApproval{Approver: "trial", ExpiresAt: w.clock.Now().Add(24 * time.Hour), Reason: "trial"}
	}
	raw, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if _, p := w.intake.Submit(ctx, tenant, raw); p != nil {
		return fmt.Errorf("trial: submit: %w", p)
	}
	if w.cfg.Fault.Behind > 0 {
		w.ledger.HoldBack(tenant, id, w.cfg.Fault.Behind)
	}
	return nil
}
