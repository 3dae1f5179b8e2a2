package node

import (
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/executor"
	"github.com/opledger/opledger/intake"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/projections"
	"github.com/opledger/opledger/providers"
	shipped "github.com/opledger/opledger/providers/catalogue" // a type here is called catalogue
)

// journal is the journal as the writer knows it: its conflicts are those of the
// vocabulary.
type journal struct{ *natsjournal.Journal }

// Append implements writer.Journal.
func (j journal) Append(ctx context.Context, e events.Event, expected uint64) (events.Record, error) {
	rec, err := j.Journal.Append(ctx, e, expected)
	return rec, conflict(err)
}

// ownJournal is the journal of a node, which knows its own events.
type ownJournal struct {
	journal
	own *own
	// stored is told of an intent that is stored and not durable yet.
	stored func(events.Record)
}

// Append implements writer.Journal.
func (j ownJournal) Append(ctx context.Context, e events.Event, expected uint64) (events.Record, error) {
	var stored func(events.Record)
	if e.Version == 1 && expected == 0 {
		stored = j.stored
	}
	j.own.begin(e.ID)
	rec, err := j.AppendStored(ctx, e, expected, stored)
	j.own.end(e.ID, err)
	return rec, conflict(err)
}

// own knows the events that this process is writing or has written last. Their
// writer wakes whom they concern; the hints that come back of them from the log,
// often sooner than the acknowledgement, need not do it again.
type own struct {
	mu sync.Mutex
	// writing holds the hints that wait to hear whether their event is stored.
	writing map[string][]func()
	stored  map[string]struct{}
	// last are the ids in stored, the oldest at next.
	last [maxOwn]string
	next int
}

// maxOwn is how many stored events a process knows as its own. A hint of an older
// one is heeded like that of another process's.
const maxOwn = 4096

func newOwn() *own {
	return &own{writing: make(map[string][]func()), stored: make(map[string]struct{})}
}

func (o *own) begin(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing[id] = nil
}

// end is told how an append ended. After an error nobody was woken: the hints that
// waited are heeded now.
func (o *own) end(id string, err error) {
	o.mu.Lock()
	hints := o.writing[id]
	delete(o.writing, id)
	if err == nil {
		hints = nil
		delete(o.stored, o.last[o.next])
		o.stored[id], o.last[o.next] = struct{}{}, id
		o.next = (o.next + 1) % maxOwn
	}
	o.mu.Unlock()
	for _, heed := range hints {
		heed()
	}
}

// wrote reports whether an event is our own. If it is not known yet whether that is
// stored, heed is kept, and called should the append fail.
func (o *own) wrote(id string, heed func()) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.stored[id]; ok {
		return true
	}
	hints, ok := o.writing[id]
	if ok {
		o.writing[id] = append(hints, heed)
	}
	return ok
}

// knows reports whether an event is our own, stored or not.
func (o *own) knows(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, stored := o.stored[id]
	_, writing := o.writing[id]
	return stored || writing
}

// TakeScope implements executor.Scopes.
func (j journal) TakeScope(ctx context.Context, tenant, scope, op, attemptID, actor string, behind uint64, newest time.Time) error {
	return conflict(j.Journal.TakeScope(ctx, tenant, scope, op, attemptID, actor, behind, newest))
}

func conflict(err error) error {
	if errors.Is(err, natsjournal.ErrConflict) {
		return fmt.Errorf("%w: %w", events.ErrConflict, err)
	}
	return err
}

// claims is the claims bucket as the executor knows it.
type claims struct {
	*projections.Claims
	now        func() time.Time
	clockError time.Duration
}

// Take implements executor.Claims.
func (c claims) Take(ctx context.Context, want executor.Claim) (uint64, time.Time, error) {
	claim := projections.Claim{AttemptID: want.AttemptID, Worker: want.Worker, Until: want.Until}
	revision, err := c.Claims.TakeOver(ctx, want.Tenant, want.Operation, claim, c.now(), c.clockError, want.Settled)
	if held, ok := errors.AsType[*projections.ClaimedError](err); ok {
		return 0, held.Held.Until, nil
	}
	return revision, time.Time{}, err
}

// states reads what is known of operations: what this process has seen itself,
// else the projection, else the log. It waits for news from the index.
type states struct {
	*projections.Store
	index  *projections.Index
	memory *memory
	// follows: this process applies the log to the projection, so what others
	// write reaches its memory, too.
	follows bool
	// alarm says why the log is not to be trusted, or "".
	alarm func() string
	// early: also what is stored and not durable yet. Only for who does nothing but
	// append behind it.
	early bool
	// apart: appends go to the server one by one, so that one that is refused delays no
	// other.
	apart bool
}

// State implements executor.States, reconciler.States and intake.States: never
// older than what this process wrote itself or was told of. Of a damaged log projection and
// memory may know more than is left: who hands in again what was lost must not be
// told that it is recorded.
func (s states) State(ctx context.Context, tenant, op string, min uint64) (operation.State, error) {
	if s.alarm() != "" {
		return s.Truth(ctx, tenant, op)
	}
	if state, ok := s.remembered(tenant, op, min); ok {
		return state, nil
	}
	k, _ := s.memory.get(tenant, op)
	state, err := s.Store.State(ctx, tenant, op, max(min, k.state.Version))
	if err == nil && state.LastSeq < s.index.Seen(tenant, op) {
		return s.Truth(ctx, tenant, op) // the entry is not written yet
	}
	return state, err
}

// remembered returns an operation from memory, unless another process's projector
// was ahead of ours and the index has seen more in the bucket.
func (s states) remembered(tenant, op string, min uint64) (operation.State, bool) {
	k, known := s.memory.get(tenant, op)
	ok := known && (s.early || !k.early) && s.follows && k.exact() && k.state.Version >= min && k.state.LastSeq >= s.index.Seen(tenant, op)
	return k.state, ok
}

// Glance implements intake.States. An operation that this process knows nothing of is
// most likely new, so it is not looked for: the append will tell.
func (s states) Glance(ctx context.Context, tenant, op string) (operation.State, error) {
	if s.alarm() != "" {
		return s.Truth(ctx, tenant, op)
	}
	if k, known := s.memory.get(tenant, op); known {
		return s.State(ctx, tenant, op, k.state.Version)
	}
	if s.follows && s.apart && s.index.Seen(tenant, op) == 0 {
		return operation.State{}, nil
	}
	return s.Store.Glance(ctx, tenant, op)
}

// Latest implements intake.States.
func (s states) Latest(ctx context.Context, tenant, op string) (operation.State, error) {
	if s.follows {
		return s.State(ctx, tenant, op, 0)
	}
	return s.Truth(ctx, tenant, op)
}

// maxMemory is how many operations a process remembers having seen last.
const maxMemory = 4096

// memory holds the newest state that this process wrote or applied of the
// operations that it has written last, so that whoever asks after a write does
// not get the answer from before it, and mostly needs no read.
type memory struct {
	mu      sync.Mutex
	entries map[[2]string]*list.Element
	order   *list.List // of *known, the longest untouched first
}

type known struct {
	key   [2]string
	state operation.State
	// stamped: the state was folded from the log, with the log's time stamps.
	// What was just written carries this process's clock in their place.
	stamped bool
	// early: it is not durable yet.
	early bool
}

// exact reports whether decisions may rest on the state: its time stamps are the
// log's, or there are none that a decision depends on.
func (k known) exact() bool { return k.stamped || k.state.Started == 0 || k.state.Status.Final() }

func newMemory() *memory {
	return &memory{entries: make(map[[2]string]*list.Element), order: list.New()}
}

// forget forgets everything: the log is not the one any more that it was.
func (m *memory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.entries)
	m.order.Init()
}

// wrote takes in a state that this process has just written.
func (m *memory) wrote(s operation.State) { m.take(s, false) }

// stored takes in a state that this process has just stored, and that is not durable
// yet.
func (m *memory) stored(s operation.State) { m.take(s, true) }

func (m *memory) take(s operation.State, early bool) {
	k := [2]string{s.Tenant, s.OperationID}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, have := m.entries[k]
	if !have {
		e = m.order.PushBack(&known{key: k})
		m.entries[k] = e
		if m.order.Len() > maxMemory {
			oldest, _ := m.order.Remove(m.order.Front()).(*known)
			delete(m.entries, oldest.key)
		}
	}
	m.order.MoveToBack(e)
	w, ok := e.Value.(*known)
	switch {
	case !ok:
	case s.LastSeq > w.state.LastSeq, w.early && !early: // what is durable counts
		w.state, w.stamped, w.early = s, false, early
	}
}

// applied takes in a state that was folded from the log, of an operation that is
// remembered.
func (m *memory) applied(s operation.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, have := m.entries[[2]string{s.Tenant, s.OperationID}]
	if !have {
		return
	}
	if w, ok := e.Value.(*known); ok && (w.early || s.LastSeq >= w.state.LastSeq) {
		w.state, w.stamped, w.early = s, true, false
	}
}

func (m *memory) get(tenant, op string) (known, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, have := m.entries[[2]string{tenant, op}]; have {
		if w, ok := e.Value.(*known); ok {
			return *w, true
		}
	}
	return known{}, false
}

// Subscribe implements intake.States.
func (s states) Subscribe(tenant, op string) (<-chan operation.State, func()) {
	return s.index.Subscribe(tenant, op)
}

// contractStore is the contracts bucket as the registry knows it.
type contractStore struct{ *projections.Contracts }

// Get implements providers.Store.
func (c contractStore) Get(ctx context.Context, digest string) ([]byte, error) {
	body, err := c.Contracts.Get(ctx, digest)
	if errors.Is(err, projections.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", providers.ErrNoContract, err)
	}
	return body, err
}

// catalogue is the registry as intake knows it.
type catalogue struct {
	registry  *providers.Registry
	contracts *projections.Contracts
	// accounts are those of each contract in force, by its digest.
	accounts  map[string]map[string]config.Account
	providers map[string]bool

	mu     sync.Mutex
	bodies map[string][]byte
	looked map[string]time.Time
}

// Offer implements intake.Catalogue.
func (c *catalogue) Offer(_ context.Context, provider, account, action string) (intake.Offer, error) {
	if !c.providers[provider] {
		return intake.Offer{}, intake.ErrNoProvider
	}
	file, contract, ref, err := c.registry.Current(provider, action)
	if err != nil {
		return intake.Offer{}, fmt.Errorf("%w: %w", intake.ErrNoAction, err)
	}
	// Only the accounts of the action's own file can carry it out.
	a, ok := c.accounts[ref.Digest][account]
	if !ok {
		return intake.Offer{}, intake.ErrNoAccount
	}
	return intake.Offer{
		Contract: contract, Ref: ref, SchemaVersion: file.APIVersion,
		Account: events.Account{Name: account, ProviderID: a.ProviderID},
	}, nil
}

// Contract implements intake.Catalogue. A decision may be recorded by a process
// that lacks the contract: then nothing is known of it, which permits nothing.
func (c *catalogue) Contract(ctx context.Context, intent events.IntentRecorded) (operation.Contract, error) {
	contract, err := c.registry.ContractOf(ctx, intent)
	if errors.Is(err, providers.ErrNotMine) {
		return operation.Contract{Provider: intent.Provider, Action: intent.Action, Digest: intent.Digest}, nil
	}
	return contract, err
}

// Bind implements intake.Catalogue.
func (c *catalogue) Bind(ctx context.Context, ref events.ContractRef, provider, action string, args []byte) ([]byte, error) {
	bound, err := c.registry.BindAs(ctx, ref, provider, action, args)
	if _, misfit := errors.AsType[*providers.ArgumentsError](err); misfit {
		return nil, fmt.Errorf("%w: %w", intake.ErrArguments, err)
	}
	return bound, err
}

// Scope implements intake.Catalogue.
func (c *catalogue) Scope(ctx context.Context, ref events.ContractRef, provider, action string, account events.Account, args []byte) (string, error) {
	return c.registry.ScopeAs(ctx, ref, provider, action, args, account)
}

// Render implements intake.Catalogue.
func (c *catalogue) Render(ctx context.Context, s operation.State) (json.RawMessage, error) {
	a, _, err := c.registry.For(ctx, s.Intent)
	if err != nil {
		return nil, err
	}
	r, err := a.Prepare(providers.Call{Tenant: s.Tenant, Operation: s.OperationID, Intent: s.Intent, FirstSend: s.FirstSend})
	if err != nil {
		return nil, err
	}
	return json.Marshal(r.Redacted())
}

// keptFor is how long a look at the contracts bucket is believed.
const keptFor = 5 * time.Second

// Keep implements intake.Catalogue. Every file in force is stored at the start,
// before the first intent that could name it; a bucket that was lost since is
// filled again.
func (c *catalogue) Keep(ctx context.Context, digest string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, known := c.bodies[digest]
	if !known {
		return fmt.Errorf("node: contract %s is not in force", digest)
	}
	if time.Since(c.looked[digest]) < keptFor {
		return nil
	}
	if err := c.contracts.Put(ctx, digest, body); err != nil {
		return fmt.Errorf("node: store contract %s: %w", digest, err)
	}
	c.looked[digest] = time.Now()
	return nil
}

// keep stores the revisions in force.
func (c *catalogue) keep(ctx context.Context, files []providers.Configured) error {
	c.bodies, c.looked = make(map[string][]byte), make(map[string]time.Time)
	for _, f := range files {
		c.bodies[f.File.Digest()] = f.File.Bytes()
		if err := c.Keep(ctx, f.File.Digest()); err != nil {
			return err
		}
	}
	return nil
}

// loadProviders reads the contract files and accounts of a configuration; the
// accounts are by the digest of their contract.
func loadProviders(cfg *config.Config) ([]providers.Configured, map[string]map[string]config.Account, error) {
	var files []providers.Configured
	accounts := make(map[string]map[string]config.Account)
	for _, p := range cfg.Providers {
		file, err := loadContract(cfg, p.Contract)
		if err != nil {
			return nil, nil, err
		}
		c := providers.Configured{File: file, Accounts: make(map[string]providers.Account)}
		if accounts[file.Digest()] == nil {
			accounts[file.Digest()] = make(map[string]config.Account)
		}
		for _, a := range p.Accounts {
			acc := providers.Account{
				ProviderID: a.ProviderID, BaseURL: a.BaseURL, AllowLoopback: a.AllowLoopback,
				Values: a.Values, Secrets: make(map[string]providers.SecretRef),
			}
			for name, text := range a.Secrets {
				if acc.Secrets[name], err = providers.ParseRef(text); err != nil {
					return nil, nil, err
				}
			}
			c.Accounts[a.ID] = acc
			accounts[file.Digest()][a.ID] = a
		}
		files = append(files, c)
	}
	return files, accounts, nil
}

// checkWorkers finds a worker that no contract has work for.
func checkWorkers(cfg *config.Config, files []providers.Configured) error {
	for _, w := range cfg.Workers {
		if !slices.ContainsFunc(files, func(f providers.Configured) bool {
			return f.File.Remote() && f.File.Provider == w.Provider
		}) {
			return fmt.Errorf("node: worker %s: no contract with connection: {remote: true} is for provider %s", w.Name, w.Provider)
		}
	}
	return nil
}

func loadContract(cfg *config.Config, where string) (*providers.File, error) {
	if name, ok := strings.CutPrefix(where, "builtin:"); ok {
		return providers.Load(name)
	}
	if name, ok := strings.CutPrefix(where, "catalogue:"); ok {
		return shipped.Load(name)
	}
	path := cfg.Path(where)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("node: contract: %w", err)
	}
	return providers.Parse(path, data)
}

// CheckConfig checks what the file alone can't show: contracts, accounts and
// secrets. It returns a line for everything that it looked at.
func CheckConfig(cfg *config.Config) ([]string, error) {
	var lines []string
	var errs []error
	files, _, err := loadProviders(cfg)
	if err != nil {
		return nil, err
	}
	if _, err := providers.NewRegistry(files, nil, providers.RegistryOptions{AllowHosts: cfg.Egress.AllowHosts}); err != nil {
		errs = append(errs, err)
	}
	for _, f := range files {
		lines = append(lines, fmt.Sprintf("contract %s: provider %s, revision %d, actions %s, %d account(s)",
			f.File.Name, f.File.Provider, f.File.Ref().Revision, strings.Join(f.File.Actions(), " "), len(f.Accounts)))
		for _, w := range f.File.Warnings() {
			lines = append(lines, fmt.Sprintf("contract %s: warning: line %d: %s: %s", f.File.Name, w.Line, w.Path, w.Text))
		}
	}
	check := func(what, ref string) {
		if ref == "" {
			return
		}
		if _, err := secret(ref); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
			return
		}
		lines = append(lines, what+": found")
	}
	check("nats.password", cfg.NATS.Password)
	for _, t := range cfg.Tenants {
		for _, u := range t.Users {
			check("password of user "+u.Name, u.Password)
		}
		lines = append(lines, fmt.Sprintf("tenant %s: %d user(s)", t.ID, len(t.Users)))
	}
	errs = append(errs, checkWorkers(cfg, files))
	for _, w := range cfg.Workers {
		check("password of worker "+w.Name, w.Password)
	}
	for _, p := range cfg.Providers {
		for _, a := range p.Accounts {
			for name, ref := range a.Secrets {
				check(fmt.Sprintf("secret %s of account %s (%s)", name, a.ID, p.Contract), ref)
			}
		}
	}
	if cfg.NATS.AllowWeak {
		lines = append(lines, "WARNING: nats.allow_weak: acknowledged events can be lost")
	}
	return lines, errors.Join(errs...)
}
