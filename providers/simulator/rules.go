package simulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Fault names what a rule does to a request.
type Fault string

// The faults. "Commits" means that the request is executed and its object is in
// the truth table; a request that is refused for its own content (422, 409)
// commits nothing under any fault.
const (
	// LoseRequest reads the request and closes the connection; nothing commits.
	LoseRequest Fault = "lose_request"
	// Refuse answers 503 (or Status) before anything is done, with Retry-After
	// when After is set. The answer is never stored under a key.
	Refuse Fault = "refuse"
	// LoseResponse commits and closes the connection without a byte.
	LoseResponse Fault = "lose_response"
	// CutHeaders commits, sends status and headers, and closes.
	CutHeaders Fault = "cut_headers"
	// CutBody commits, sends half of the body under the full Content-Length,
	// and closes.
	CutBody Fault = "cut_body"
	// Delay commits at once and answers After later.
	Delay Fault = "delay"
	// ApplyLate closes the connection at once and commits After later.
	ApplyLate Fault = "apply_late"
	// Hold commits and keeps the answer until the admin API releases it.
	Hold Fault = "hold"
	// StatusOnly answers Status (default 500) and commits nothing. A key stores
	// the answer when the settings say so.
	StatusOnly Fault = "status"
	// StatusAfterCommit commits and answers Status (default 500).
	StatusAfterCommit Fault = "status_after_commit"
	// RateLimit answers 429 before anything is done, with Retry-After when
	// After is set. The answer is never stored under a key.
	RateLimit Fault = "rate_limit"
	// Garbage commits and answers 200 with a body that is not JSON.
	Garbage Fault = "garbage"
	// DuplicateDelivery executes the request twice, as if the network had
	// delivered it twice, and answers the first. A key that is honoured turns
	// the second delivery into a replay.
	DuplicateDelivery Fault = "duplicate_delivery"
	// HalfOpen reads the request, commits nothing and never answers; the
	// connection stays open until the client or the server ends.
	HalfOpen Fault = "half_open"
	// TLSFailure breaks off the handshake of a connection that begins with TLS.
	// It counts connections, not requests, and no row of the log tells of it.
	TLSFailure Fault = "tls_failure"
	// Pass serves the request as usual.
	Pass Fault = "pass"
)

const noFault Fault = ""

// Human is what a person does to an object before anyone looks for it.
type Human string

// What a person does.
const (
	HumanEdit    Human = "edit"    // changes the title to EditedTitle
	HumanRelabel Human = "relabel" // takes the label away
	HumanDelete  Human = "delete"  // deletes the object
)

// EditedTitle is the title after a HumanEdit.
const EditedTitle = "edited by a human"

// Faults lists every fault of a request; tls_failure, which comes before any
// request, is none of them.
func Faults() []Fault {
	return []Fault{
		LoseRequest, Refuse, LoseResponse, CutHeaders, CutBody, Delay, ApplyLate, Hold,
		StatusOnly, StatusAfterCommit, RateLimit, Garbage, DuplicateDelivery,
		HalfOpen, Pass,
	}
}

// Limits of the rules.
const maxRules = 1000

// Rule applies a fault to provider requests. All conditions that are set must
// hold. Rules are tried in the order in which they were added, each counts its
// own matching requests, and the first that fires decides.
type Rule struct {
	// Name is for the reader; the request log repeats it.
	Name string `json:"name,omitempty"`

	// Method is an HTTP method in upper case. Empty means any.
	Method string `json:"method,omitempty"`
	// PathPrefix is a prefix of the path. Empty means any.
	PathPrefix string `json:"path_prefix,omitempty"`
	// BodyContains is a piece of the request's body. Empty means any.
	BodyContains string `json:"body_contains,omitempty"`

	// Nth is the number, from 1, of the one matching request to act on. Zero
	// means every one.
	Nth int `json:"nth,omitempty"`
	// Times is how often the rule may fire. Zero means without limit.
	Times int `json:"times,omitempty"`
	// Probability is the chance to fire, from 0 to 1. Zero means always. The
	// random numbers come from the seed in the settings and the rule's id.
	Probability float64 `json:"probability,omitempty"`

	// Reused acts only on a request whose connection has carried one before.
	Reused bool `json:"reused,omitempty"`

	// Do is the fault. It may be pass, where the rest of the rule is what counts.
	Do Fault `json:"do"`
	// With are settings that hold for the request alone, by their JSON names, in
	// the form of a settings patch. The dialect and the seed cannot be among them.
	With json.RawMessage `json:"with,omitempty"`
	// AsAccount executes and answers the request as another account.
	AsAccount string `json:"as_account,omitempty"`
	// Human is what a person does to the object right after its commit.
	Human Human `json:"human,omitempty"`
	// Side makes the provider commit a second object on its own, with the title
	// and without label and key.
	Side bool `json:"side,omitempty"`
	// After is the time of delay and apply_late, which need it, and the
	// Retry-After of refuse and rate_limit, rounded up to seconds.
	After Duration `json:"after,omitzero"`
	// RetryAsDate writes Retry-After as a date of the provider's clock.
	RetryAsDate bool `json:"retry_as_date,omitempty"`
	// Status replaces the fault's own status, 200 to 599.
	Status int `json:"status,omitempty"`
	// Headers are added to the fault's answer.
	Headers map[string]string `json:"headers,omitempty"`
	// Body replaces the body of refuse, status, status_after_commit,
	// rate_limit and garbage.
	Body string `json:"body,omitempty"`
	// Reset closes with a TCP reset in place of an orderly end, where the fault
	// closes the connection.
	Reset bool `json:"reset,omitempty"`
}

// RuleState is a rule with its counters.
type RuleState struct {
	Rule

	// ID is the number of the rule, from 1.
	ID int64 `json:"id"`
	// Matched is how many requests met the conditions.
	Matched int `json:"matched"`
	// Fired is how often the rule decided a request.
	Fired int `json:"fired"`
}

func (r Rule) validate() error {
	var errs []error
	if r.Do != TLSFailure && !slices.Contains(Faults(), r.Do) {
		errs = append(errs, fmt.Errorf("do must be %s or one of %q, not %q", TLSFailure, Faults(), r.Do))
	}
	if r.Nth < 0 || r.Times < 0 {
		errs = append(errs, errors.New("nth and times must not be negative"))
	}
	if !(r.Probability >= 0 && r.Probability <= 1) {
		errs = append(errs, fmt.Errorf("probability must be from 0 to 1, it is %v", r.Probability))
	}
	if r.After < 0 {
		errs = append(errs, fmt.Errorf("after must not be negative, it is %s", r.After))
	}
	if r.After == 0 && (r.Do == Delay || r.Do == ApplyLate) {
		errs = append(errs, fmt.Errorf("%s needs after", r.Do))
	}
	if !slices.Contains([]Human{"", HumanEdit, HumanRelabel, HumanDelete}, r.Human) {
		errs = append(errs, fmt.Errorf("human must be edit, relabel or delete, not %q", r.Human))
	}
	if _, err := (Settings{}).withDefaults().patched(r.With); err != nil {
		errs = append(errs, fmt.Errorf("with: %w", err))
	}
	if r.Do == TLSFailure && (r.Method != "" || r.PathPrefix != "" || r.BodyContains != "" || r.Reused) {
		errs = append(errs, errors.New("tls_failure comes before the request: it can look at nothing of it"))
	}
	if r.Status != 0 && (r.Status < 200 || r.Status > 599) {
		errs = append(errs, fmt.Errorf("status must be from 200 to 599, it is %d", r.Status))
	}
	if len(errs) > 0 {
		return fmt.Errorf("simulator: rule: %w", errors.Join(errs...))
	}
	return nil
}

// activeRule is a rule in use. The server's mutex guards it.
type activeRule struct {
	RuleState
	random *rand.Rand
}

func newActiveRule(r Rule, id int64, seed uint64) *activeRule {
	return &activeRule{
		RuleState: RuleState{Rule: r, ID: id},
		random:    rand.New(rand.NewPCG(seed, uint64(id))),
	}
}

// wants counts the request if it matches and reports whether the rule would
// fire on it.
func (a *activeRule) wants(x *exchange) bool {
	if a.Method != "" && a.Method != x.method || a.Reused && !x.reused {
		return false
	}
	if !strings.HasPrefix(x.path, a.PathPrefix) || !bytes.Contains(x.body, []byte(a.BodyContains)) {
		return false
	}
	return a.counts()
}

// counts counts what meets the conditions, and reports whether the rule would
// fire on it.
func (a *activeRule) counts() bool {
	a.Matched++
	if a.Nth != 0 && a.Matched != a.Nth {
		return false
	}
	if a.Times != 0 && a.Fired >= a.Times {
		return false
	}
	return a.Probability == 0 || a.random.Float64() < a.Probability
}

// pickRule counts the request at every rule and returns the one that fires, or
// nil.
func (st *state) pickRule(x *exchange) *activeRule {
	var picked *activeRule
	for _, a := range st.rules {
		if a.Do != TLSFailure && a.wants(x) && picked == nil {
			picked = a
			a.Fired++
		}
	}
	return picked
}
