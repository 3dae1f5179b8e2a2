package providers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// MaxOldRevisions is how many older contract revisions a registry keeps ready.
const MaxOldRevisions = 64

// ErrNoContract is what a [Store] returns for a digest that it does not have.
var ErrNoContract = errors.New("providers: no contract with this digest")

// Store holds every contract revision in use, by digest.
type Store interface {
	// Get returns the bytes of a revision, or an error that wraps
	// ErrNoContract if there is none.
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Configured is a contract file in force, with the accounts that this process
// can use.
type Configured struct {
	File     *File
	Accounts map[string]Account
}

// RegistryOptions are the settings of a registry. The zero value works.
type RegistryOptions struct {
	// Now is the clock of adapters. Nil means time.Now.
	Now func() time.Time
	// Line leads to the workers of remote contracts; without one their
	// operations are left to other processes.
	Line Line
	// AllowHosts are the hosts that requests may go to; see [HTTPConfig].
	AllowHosts []string
}

// Registry finds contract and adapter: the current ones for a new intent, and
// for an operation those that it was accepted under, for ever. It may be used
// by many goroutines.
type Registry struct {
	store      Store
	opts       RegistryOptions
	current    map[actionName]*entry
	byDigest   map[string]*entry
	byProvider map[string]map[string]Account

	mu    sync.Mutex
	old   map[string]*entry
	order []string // digests of old, the least recently used first
}

type actionName struct{ provider, action string }

// entry is a contract revision with its adapter.
type entry struct {
	file    *File
	adapter served
}

// served is an adapter of this package.
type served interface {
	Adapter
	// serves reports why this process can't work for an account; the error
	// wraps ErrNotMine.
	serves(account string) error
	// Close drops what is idle.
	Close()
}

var _, _ served = (*HTTP)(nil), (*Remote)(nil)

// adapter makes the adapter that a file asks for.
func (r *Registry) adapter(f *File, accounts map[string]Account) (served, error) {
	if f.Remote() {
		return NewRemote(RemoteConfig{File: f, Accounts: accounts, Line: r.opts.Line, Now: r.opts.Now})
	}
	return NewHTTP(HTTPConfig{File: f, Accounts: accounts, Now: r.opts.Now, AllowHosts: r.opts.AllowHosts})
}

// NewRegistry makes a registry. Two files in force must not describe the same
// action of a provider, nor name different accounts of one provider alike.
// A nil store means: there are no older revisions.
func NewRegistry(files []Configured, store Store, opts RegistryOptions) (*Registry, error) {
	r := &Registry{
		store: store, opts: opts,
		current: make(map[actionName]*entry), byDigest: make(map[string]*entry),
		byProvider: make(map[string]map[string]Account), old: make(map[string]*entry),
	}
	for _, c := range files {
		adapter, err := r.adapter(c.File, c.Accounts)
		if err != nil {
			return nil, err
		}
		e := &entry{c.File, adapter}
		for _, action := range c.File.Actions() {
			name := actionName{c.File.Provider, action}
			if other, twice := r.current[name]; twice {
				return nil, fmt.Errorf("providers: %s of %s is described by %s and by %s",
					action, c.File.Provider, other.file.Name, c.File.Name)
			}
			r.current[name] = e
		}
		r.byDigest[c.File.digest] = e
		if r.byProvider[c.File.Provider] == nil {
			r.byProvider[c.File.Provider] = make(map[string]Account)
		}
		for name, account := range c.Accounts {
			if other, there := r.byProvider[c.File.Provider][name]; there && !reflect.DeepEqual(other, account) {
				return nil, fmt.Errorf("providers: %s has two different accounts named %s", c.File.Provider, name)
			}
			r.byProvider[c.File.Provider][name] = account
		}
	}
	return r, nil
}

// Files lists the contract files in force, by name.
func (r *Registry) Files() []*File {
	var out []*File
	for _, e := range r.byDigest {
		out = append(out, e.file)
	}
	slices.SortFunc(out, func(a, b *File) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Close drops idle connections. Requests under way go on.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.byDigest {
		e.adapter.Close()
	}
	for _, e := range r.old {
		e.adapter.Close()
	}
}

// Current returns the contract in force for a new intent, or an error that
// wraps ErrUnknownAction.
func (r *Registry) Current(provider, action string) (*File, operation.Contract, events.ContractRef, error) {
	e, ok := r.current[actionName{provider, action}]
	if !ok {
		return nil, operation.Contract{}, events.ContractRef{}, errNoAction(clip(provider), clip(action))
	}
	c, _ := e.file.Contract(action)
	return e.file, c, e.file.Ref(), nil
}

// Bind checks the arguments of a new intent against the schema of the contract
// in force, fills in its defaults, and returns what is to be frozen. Arguments
// that do not fit give an [ArgumentsError], which names places and no values.
func (r *Registry) Bind(provider, action string, args []byte) ([]byte, error) {
	e, ok := r.current[actionName{provider, action}]
	if !ok {
		return nil, errNoAction(clip(provider), clip(action))
	}
	return e.file.Bind(action, args)
}

// BindAs binds arguments by the revision that an intent names: the repeat of a
// submit is compared by the contract that the first was accepted under.
func (r *Registry) BindAs(ctx context.Context, ref events.ContractRef, provider, action string, args []byte) ([]byte, error) {
	e, err := r.revision(ctx, provider, ref)
	if err != nil {
		return nil, err
	}
	return e.file.Bind(action, args)
}

// Scope returns the conflict scope of a new intent by the contract in force, or
// "" where its action has none. The arguments must be bound. See [File.Scope].
func (r *Registry) Scope(provider, action string, boundArgs []byte, account events.Account) (string, error) {
	e, ok := r.current[actionName{provider, action}]
	if !ok {
		return "", errNoAction(clip(provider), clip(action))
	}
	return e.file.Scope(action, boundArgs, account)
}

// ScopeAs is Scope by the revision that an intent names.
func (r *Registry) ScopeAs(ctx context.Context, ref events.ContractRef, provider, action string, boundArgs []byte, account events.Account) (string, error) {
	e, err := r.revision(ctx, provider, ref)
	if err != nil {
		return "", err
	}
	return e.file.Scope(action, boundArgs, account)
}

// ContractOf returns the contract of an operation, by the revision that its
// intent names; it needs neither the account nor its credential. The error wraps
// ErrNotMine where this process lacks the revision.
func (r *Registry) ContractOf(ctx context.Context, intent events.IntentRecorded) (operation.Contract, error) {
	e, err := r.revision(ctx, intent.Provider, intent.ContractRef)
	if err != nil {
		return operation.Contract{}, err
	}
	contract, ok := e.file.Contract(intent.Action)
	if !ok {
		return operation.Contract{}, errNoAction(intent.Provider, intent.Action)
	}
	return contract, nil
}

// For returns adapter and contract of an operation, by the revision that its
// intent names. An error that wraps ErrNotMine says that another process may be
// able to work on it; any other error may pass.
func (r *Registry) For(ctx context.Context, intent events.IntentRecorded) (Adapter, operation.Contract, error) {
	e, err := r.revision(ctx, intent.Provider, intent.ContractRef)
	if err != nil {
		return nil, operation.Contract{}, err
	}
	contract, ok := e.file.Contract(intent.Action)
	if !ok {
		return nil, operation.Contract{}, errNoAction(intent.Provider, intent.Action)
	}
	if err := e.adapter.serves(intent.Account.Name); err != nil {
		return nil, operation.Contract{}, err
	}
	return e.adapter, contract, nil
}

// revision finds a revision among those in force, those kept, and the store.
func (r *Registry) revision(ctx context.Context, provider string, ref events.ContractRef) (*entry, error) {
	digest := ref.Digest
	if e, ok := r.byDigest[digest]; ok {
		return e, nil
	}
	if e := r.kept(digest); e != nil {
		return e, nil
	}
	accounts, ok := r.byProvider[provider]
	if !ok || r.store == nil {
		return nil, fmt.Errorf("%w: contract %s of provider %s", ErrNotMine, clip(digest), clip(provider))
	}
	data, err := r.store.Get(ctx, digest)
	if errors.Is(err, ErrNoContract) {
		return nil, fmt.Errorf("%w: %w", ErrNotMine, err)
	}
	if err != nil {
		return nil, fmt.Errorf("providers: get contract %s: %w", clip(digest), err)
	}
	e, err := r.open(provider, ref, data, accounts)
	if err != nil {
		return nil, err
	}
	return r.keep(digest, e), nil
}

// open reads a stored revision. An account that lacks what this revision uses
// is left out: its operations are not ours.
func (r *Registry) open(provider string, ref events.ContractRef, data []byte, accounts map[string]Account) (*entry, error) {
	if digestOf(data) != ref.Digest {
		return nil, fmt.Errorf("providers: the stored contract %s has other bytes", clip(ref.Digest))
	}
	file, err := Parse(cmp.Or(ref.Name, ref.Digest), data)
	if err != nil {
		return nil, fmt.Errorf("providers: stored contract: %w", err)
	}
	if file.Provider != provider {
		return nil, fmt.Errorf("providers: contract %s is for provider %s, not %s", clip(ref.Digest), file.Provider, clip(provider))
	}
	usable := make(map[string]Account)
	for name, account := range accounts {
		if r.usableWith(file, name, account) {
			usable[name] = account
		}
	}
	adapter, err := r.adapter(file, usable)
	if err != nil {
		return nil, err
	}
	return &entry{file, adapter}, nil
}

// usableWith reports whether an account has what a revision uses.
func (r *Registry) usableWith(f *File, name string, account Account) bool {
	if f.Remote() {
		_, err := NewRemote(RemoteConfig{File: f, Accounts: map[string]Account{name: account}})
		return err == nil
	}
	_, err := newAccount(f, name, account, r.opts.AllowHosts)
	return err == nil
}

func (r *Registry) kept(digest string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.old[digest]
	if ok {
		r.touch(digest)
	}
	return e
}

// keep stores an entry unless somebody was faster, and lets the least recently
// used one go.
func (r *Registry) keep(digest string, e *entry) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if there, ok := r.old[digest]; ok {
		return there
	}
	r.old[digest] = e
	r.touch(digest)
	if len(r.order) > MaxOldRevisions {
		r.old[r.order[0]].adapter.Close()
		delete(r.old, r.order[0])
		r.order = r.order[1:]
	}
	return e
}

// touch moves a digest to the end of the order.
func (r *Registry) touch(digest string) {
	for i, d := range r.order {
		if d == digest {
			r.order = append(r.order[:i], r.order[i+1:]...)
			break
		}
	}
	r.order = append(r.order, digest)
}
