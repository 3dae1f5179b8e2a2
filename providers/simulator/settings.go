package simulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Limits of the settings.
const (
	defaultKeyRetention = 24 * time.Hour
	defaultPageSize     = 50
	maxPageSize         = 1000
)

// Duration is a time.Duration that is written in JSON as a Go duration string,
// for example "1.5s".
type Duration time.Duration

// String returns the duration in Go's notation.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the duration as a string.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(d.String())
}

// UnmarshalJSON reads a duration string. A bare number is an error, because its
// unit would be a guess.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("simulator: duration must be a string such as \"1.5s\": %w", err)
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("simulator: %w", err)
	}
	*d = Duration(v)
	return nil
}

// MismatchPolicy says what happens when a key comes back with another body.
type MismatchPolicy string

// The mismatch policies.
const (
	Mismatch400    MismatchPolicy = "400"    // 400 with the dialect's code
	Mismatch409    MismatchPolicy = "409"    // 409 with the dialect's code
	Mismatch422    MismatchPolicy = "422"    // 422 with the dialect's code
	MismatchReplay MismatchPolicy = "replay" // the stored result, in silence
)

// ConcurrentPolicy says what happens to a request whose key is in flight.
type ConcurrentPolicy string

// The concurrent policies.
const (
	Concurrent409    ConcurrentPolicy = "409"    // 409 with code idempotency_key_in_use
	ConcurrentWait   ConcurrentPolicy = "wait"   // wait for the first and replay its result
	ConcurrentSecond ConcurrentPolicy = "second" // run it too: a second object
)

// StorePolicy says which error answers are stored under a key and replayed.
// The result of a request that committed is always stored with the commit: when
// its answer was an error that the policy does not store, a repeat of the key
// gets the result and makes no second object.
type StorePolicy string

// The store policies.
const (
	StoreNone StorePolicy = "none" // only successes are stored
	Store4xx  StorePolicy = "4xx"  // also client errors
	StoreAll  StorePolicy = "all"  // also server errors, as Stripe v1 does
	// StoreReexecute stores only successes; a request that had failed is run
	// again to its end with the same key, and the answer, which is no replay,
	// shows the object as it is then. What had been committed is not committed
	// twice. Stripe v2 does so.
	StoreReexecute StorePolicy = "reexecute"
	// StoreForget drops the key with every error answer, also where the request
	// had committed: a repeat makes a second object.
	StoreForget StorePolicy = "forget"
)

// ReplayPolicy says how a replay looks.
type ReplayPolicy string

// The replay policies.
const (
	ReplayMarked  ReplayPolicy = "marked"  // the stored bytes and the dialect's marker header
	ReplayBare    ReplayPolicy = "bare"    // the stored bytes and nothing that marks them
	ReplayCurrent ReplayPolicy = "current" // the object as it is now, unmarked
)

// KeyScope says where a key is unique.
type KeyScope string

// The key scopes.
const (
	ScopeAccount KeyScope = "account" // each account has its own keys
	ScopePath    KeyScope = "path"    // each account and path
	ScopeShared  KeyScope = "shared"  // one table for all accounts
)

// UpsertPolicy says how an upsert that changed an object is answered.
type UpsertPolicy string

// The upsert policies.
const (
	UpsertFlag   UpsertPolicy = "flag"   // 200, with created: false in the body
	UpsertSilent UpsertPolicy = "silent" // 204 without a body
)

// UniquePolicy says how well an id chosen by the client is guarded.
type UniquePolicy string

// The unique policies.
const (
	UniqueStrict UniquePolicy = "strict" // one object for an id, always
	UniqueWeak   UniquePolicy = "weak"   // creations that overlap in time both pass
)

// Settings is the standing behaviour of the provider. It can be changed at run
// time. The zero value is a plain CRM without keys and without lag, whose
// search is always exact; an empty field means its default.
type Settings struct {
	// Dialect is the name of the preset whose routes and shapes are spoken.
	// Empty means the plain tasks.
	Dialect string `json:"dialect"`

	// Keys switches the idempotency keys on.
	Keys bool `json:"keys"`
	// KeyRetention is how long a key is remembered, counted from its first
	// request. Zero means 24 hours.
	KeyRetention Duration `json:"key_retention"`
	// KeyForgetEarly is how much earlier than promised a key is forgotten.
	KeyForgetEarly Duration `json:"key_forget_early"`
	// Mismatch is the policy for a key with another body. Empty means 400.
	Mismatch MismatchPolicy `json:"mismatch"`
	// Concurrent is the policy for a key in flight. Empty means 409.
	Concurrent ConcurrentPolicy `json:"concurrent"`
	// StoreErrors says which errors are stored under a key. Empty means none.
	StoreErrors StorePolicy `json:"store_errors"`
	// Replay says how a replay looks. Empty means marked.
	Replay ReplayPolicy `json:"replay"`
	// KeyScope says where a key is unique. Empty means account.
	KeyScope KeyScope `json:"key_scope"`

	// IndexLag is how long after its commit an object appears in lists and
	// searches. It applies to objects that are committed after the change.
	IndexLag Duration `json:"index_lag"`
	// SearchLag is the same for a search that is not a list. Zero means as
	// IndexLag.
	SearchLag Duration `json:"search_lag"`
	// ReadLag is the same for the direct read by id.
	ReadLag Duration `json:"read_lag"`
	// FlakyIndex is the probability, 0 to 1, of an empty list.
	FlakyIndex float64 `json:"flaky_index"`
	// SearchOutage makes lists and searches answer 503.
	SearchOutage bool `json:"search_outage"`
	// SearchOff makes lists and searches answer 404, as if there were none.
	SearchOff bool `json:"search_off"`
	// PageSize is the default and the largest page of a list. Zero means 50;
	// the limit is 1000.
	PageSize int `json:"page_size"`

	// ClientIDsOff makes PUT answer 405, as if ids could not be chosen.
	ClientIDsOff bool `json:"client_ids_off"`
	// UniqueID is the guard of chosen ids. Empty means strict.
	UniqueID UniquePolicy `json:"unique_id"`
	// UniqueCompare answers a second creation with the same content as the first
	// was answered. Without it, and with other content, the id exists.
	UniqueCompare bool `json:"unique_compare"`
	// Upsert says how an upsert that changed an object is answered. Empty means
	// flag.
	Upsert UpsertPolicy `json:"upsert"`
	// UniqueIDReuse frees the id of a deleted object.
	UniqueIDReuse bool `json:"unique_id_reuse"`

	// ErrorsInBody answers 200 where the status would be 3xx or 4xx; the body
	// says what is wrong.
	ErrorsInBody bool `json:"errors_in_body"`
	// ClockSkew is added to the provider's clock where it shows: in created_at
	// and in the Date header. It may be negative.
	ClockSkew Duration `json:"clock_skew"`
	// Seed starts the random numbers of the flaky index and of new rules.
	Seed uint64 `json:"seed"`
}

// Presets lists the names that Preset knows.
func Presets() []string {
	var names []string
	for _, d := range dialects() {
		names = append(names, d.name)
	}
	return names
}

// About is one line about a preset; empty if there is no such preset.
func About(preset string) string {
	d, err := dialectOf(preset)
	if err != nil {
		return ""
	}
	return d.about
}

// Preset returns the settings of a named kind of provider. They name its
// dialect, so that a server with them speaks as that provider does.
func Preset(name string) (Settings, error) {
	d, err := dialectOf(name)
	if err != nil || name == "" {
		return Settings{}, fmt.Errorf("simulator: no preset %q; there are %q", name, Presets())
	}
	s := d.settings
	s.Dialect = name
	return s.withDefaults(), nil
}

func (s Settings) withDefaults() Settings {
	if s.KeyRetention == 0 {
		s.KeyRetention = Duration(defaultKeyRetention)
	}
	if s.Mismatch == "" {
		s.Mismatch = Mismatch400
	}
	if s.Concurrent == "" {
		s.Concurrent = Concurrent409
	}
	if s.StoreErrors == "" {
		s.StoreErrors = StoreNone
	}
	if s.Replay == "" {
		s.Replay = ReplayMarked
	}
	if s.KeyScope == "" {
		s.KeyScope = ScopeAccount
	}
	if s.Upsert == "" {
		s.Upsert = UpsertFlag
	}
	if s.UniqueID == "" {
		s.UniqueID = UniqueStrict
	}
	if s.PageSize == 0 {
		s.PageSize = defaultPageSize
	}
	return s
}

// validate expects settings with defaults filled in.
func (s Settings) validate() error {
	var errs []error
	oneOf := func(field, value string, allowed ...string) {
		if slices.Contains(allowed, value) {
			return
		}
		errs = append(errs, fmt.Errorf("%s must be one of %q, not %q", field, allowed, value))
	}
	oneOf("mismatch", string(s.Mismatch), string(Mismatch400), string(Mismatch409), string(Mismatch422), string(MismatchReplay))
	oneOf("concurrent", string(s.Concurrent), string(Concurrent409), string(ConcurrentWait), string(ConcurrentSecond))
	oneOf("store_errors", string(s.StoreErrors), string(StoreNone), string(Store4xx), string(StoreAll),
		string(StoreReexecute), string(StoreForget))
	oneOf("replay", string(s.Replay), string(ReplayMarked), string(ReplayBare), string(ReplayCurrent))
	oneOf("key_scope", string(s.KeyScope), string(ScopeAccount), string(ScopePath), string(ScopeShared))
	oneOf("upsert", string(s.Upsert), string(UpsertFlag), string(UpsertSilent))
	if _, err := dialectOf(s.Dialect); err != nil {
		errs = append(errs, err)
	}
	oneOf("unique_id", string(s.UniqueID), string(UniqueStrict), string(UniqueWeak))

	notNegative := func(field string, d Duration) {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s must not be negative, it is %s", field, d))
		}
	}
	notNegative("key_retention", s.KeyRetention)
	notNegative("key_forget_early", s.KeyForgetEarly)
	notNegative("index_lag", s.IndexLag)
	notNegative("search_lag", s.SearchLag)
	notNegative("read_lag", s.ReadLag)
	if !(s.FlakyIndex >= 0 && s.FlakyIndex <= 1) {
		errs = append(errs, fmt.Errorf("flaky_index must be from 0 to 1, it is %v", s.FlakyIndex))
	}
	if s.PageSize < 1 || s.PageSize > maxPageSize {
		errs = append(errs, fmt.Errorf("page_size must be from 1 to %d, it is %d", maxPageSize, s.PageSize))
	}
	if len(errs) > 0 {
		return fmt.Errorf("simulator: settings: %w", errors.Join(errs...))
	}
	return nil
}

// patched returns the settings with the members of a patch, or says what is
// wrong with it. It cannot change dialect and seed.
func (s Settings) patched(patch json.RawMessage) (Settings, error) {
	next := s
	if len(patch) > 0 {
		if err := decode(bytes.NewReader(patch), &next, false); err != nil {
			return Settings{}, err
		}
	}
	if next.Dialect != s.Dialect || next.Seed != s.Seed {
		return Settings{}, errors.New("simulator: dialect and seed belong to the server, not to a request")
	}
	next = next.withDefaults()
	return next, next.validate()
}
