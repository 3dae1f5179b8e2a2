package providers

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// File is one revision of a provider contract, read, compiled and found safe by
// [Parse]. It is immutable and may be used by many goroutines.
type File struct {
	// Name is the name under which the file was read, without ".yaml".
	Name string
	// Provider is the outside system, APIVersion the version of its API.
	Provider   string
	APIVersion string
	// Revision is the number of this revision, from 1.
	Revision int
	// Proof says how the promises are known, Cite where they are written.
	Proof operation.Evidenced
	Cite  []string

	data     []byte
	digest   string
	warnings []Warning
	secrets  []string // names of those that the file uses, sorted
	conn     connection
	actions  map[string]*action
}

// Limits are what the executor keeps to, for each account. Zero means no limit.
type Limits struct {
	// Concurrency is the number of requests at one time.
	Concurrency int
	// Requests per Per is the rate.
	Requests int
	Per      time.Duration
}

// bounds returns how many requests are under way at once (0: no bound) and the
// least time between two.
func (l Limits) bounds() (concurrency int, spacing time.Duration) {
	if l.Requests > 0 {
		spacing = l.Per / time.Duration(l.Requests)
	}
	return l.Concurrency, spacing
}

// connection is how the provider is reached.
type connection struct {
	remote          bool // workers carry the actions out
	baseURL         template
	allowLoopback   bool
	minTLS          uint16
	authHeader      string
	authValue       template
	requestIDHeader string
	probe           *probe
}

// probe is the request that tells whose account a credential belongs to.
type probe struct {
	request requestTemplate
	account pointer
	cache   time.Duration
}

// action is the contract of one action, ready for use.
type action struct {
	name             string
	contract         operation.Contract
	scope            template
	scoped           bool
	request          requestTemplate
	key              *keyTemplate
	outcomes         []rule
	errorCode        pointer
	hasErrorCode     bool
	honourRetryAfter bool
	lookups          []lookup
	schema           *jsonschema.Schema
	schemaDoc        any
	sensitive        []pointer // arguments that are secret or personal
	redact           []pointer // members of an answer that are
	onUnknown        []events.OnUnknown
	limits           Limits
}

// digestOf names bytes.
func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Digest names the revision: "sha256:" and the hex digest of the file's bytes.
func (f *File) Digest() string { return f.digest }

// Bytes returns a copy of the file, to be stored under its digest.
func (f *File) Bytes() []byte { return slices.Clone(f.data) }

// Ref is how an intent names this revision.
func (f *File) Ref() events.ContractRef {
	return events.ContractRef{Name: f.Name, Revision: f.Revision, Digest: f.digest}
}

// Remote reports whether workers carry the actions out, instead of HTTP requests.
func (f *File) Remote() bool { return f.conn.remote }

// Actions lists the actions, sorted.
func (f *File) Actions() []string {
	names := make([]string, 0, len(f.actions))
	for name := range f.actions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Contract returns what the decisions need of an action.
func (f *File) Contract(action string) (operation.Contract, bool) {
	a, ok := f.actions[action]
	if !ok {
		return operation.Contract{}, false
	}
	c := a.contract
	c.Lookup.Schedule = slices.Clone(c.Lookup.Schedule)
	return c, true
}

// Limits returns the limits of an action for each account.
func (f *File) Limits(action string) Limits {
	if a, ok := f.actions[action]; ok {
		return a.limits
	}
	return Limits{}
}

// OnUnknown lists the choices that an intent of the action may make. By
// contract and review only are always among them.
func (f *File) OnUnknown(action string) []events.OnUnknown {
	if a, ok := f.actions[action]; ok {
		return slices.Clone(a.onUnknown)
	}
	return nil
}

// Bind checks arguments against the schema of an action and fills in its
// defaults. See [Registry.Bind].
func (f *File) Bind(action string, args []byte) ([]byte, error) {
	a, ok := f.actions[action]
	if !ok {
		return nil, errNoAction(f.Provider, action)
	}
	return a.bind(args)
}

// scopePrefix is how much of the provider's name an id of a scope begins with.
const scopePrefix = 20

// Scope returns the conflict scope of an operation, or "" where its action has
// none. Two operations of one scope are never in doubt at the same time. It is
// an id, made of the account and of what the contract's template gives for the
// bound arguments; the arguments can't be read from it.
func (f *File) Scope(action string, boundArgs []byte, account events.Account) (string, error) {
	a, ok := f.actions[action]
	if !ok {
		return "", errNoAction(f.Provider, clip(action))
	}
	if !a.scoped {
		return "", nil
	}
	args, err := decodeJSON(boundArgs)
	if err != nil {
		return "", err
	}
	values := map[string]string{"name": account.Name, "provider_id": account.ProviderID}
	text, err := (scope{args: args, account: values}).text(a.scope)
	if err != nil {
		return "", err
	}
	// Many providers take "Ann@x.org" and "ann@x.org" for one object, also where they
	// don't say so. One scope too few lets both be in doubt; one for two objects only
	// lets them wait for each other.
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	if text == "" {
		return "", fmt.Errorf("%w: the scope of %s is empty", errMissing, action)
	}
	h := sha256.New()
	writeField(h, f.Provider)
	writeField(h, cmp.Or(account.ProviderID, account.Name))
	writeField(h, text)
	id := f.Provider[:min(len(f.Provider), scopePrefix)] + "-" + hex.EncodeToString(h.Sum(nil)[:16])
	return id, events.CheckID("scope", id)
}

// action returns the action of an intent that names this revision.
func (f *File) action(i events.IntentRecorded) (*action, error) {
	if i.Provider != f.Provider {
		return nil, fmt.Errorf("%w: the intent is for provider %s", ErrNotMine, clip(i.Provider))
	}
	if i.Digest != "" && i.Digest != f.digest {
		return nil, fmt.Errorf("%w: the intent names another contract revision", ErrNotMine)
	}
	a, ok := f.actions[i.Action]
	if !ok {
		return nil, errNoAction(f.Provider, clip(i.Action))
	}
	return a, nil
}

// values lists the names of the account's values that the file uses; f.secrets
// are those of its secrets.
func (f *File) values() []string { return f.names(spaceAccount) }

func (f *File) names(space string) []string {
	var out []string
	add := func(refs []ref) {
		for _, r := range refs {
			if r.space == space && !slices.Contains(out, r.name) {
				out = append(out, r.name)
			}
		}
	}
	add(f.conn.baseURL.refs())
	add(f.conn.authValue.refs())
	if f.conn.probe != nil {
		add(f.conn.probe.request.refs())
	}
	for _, a := range f.actions {
		add(a.refs())
	}
	slices.Sort(out)
	return out
}

// refs lists every reference of the action's templates.
func (a *action) refs() []ref {
	out := a.request.refs()
	of := func(conditions []condition) {
		for _, c := range conditions {
			out = append(out, c.want.refs()...)
		}
	}
	for _, r := range a.outcomes {
		of(r.header)
		of(r.body)
		out = append(out, r.externalID.own.refs()...)
	}
	for _, l := range a.lookups {
		out = append(out, l.refs()...)
	}
	return out
}

// refs lists every reference of the lookup's templates.
func (l lookup) refs() []ref {
	out := l.request.refs()
	for _, m := range l.match {
		out = append(out, m.want.refs()...)
	}
	if l.sentinel != nil {
		out = append(out, l.sentinel.request.refs()...)
	}
	return out
}
