package providers

import (
	"context"
	"errors"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Call is one operation, as its adapter needs it.
type Call struct {
	Tenant    string
	Operation string
	// Intent is the frozen wish. Sealed arguments must have been opened into
	// Args.
	Intent events.IntentRecorded
	// FirstSend is when the first attempt was started, on the log's clock. Only
	// lookups may use it: a request never depends on when it is sent.
	FirstSend time.Time
	// AttemptID is repeated in a look; it is never part of a request (I17).
	AttemptID string
	// Fresh makes Probe ask the provider, whatever the cache holds.
	Fresh bool
}

// Adapter calls one outside system. Its methods may be called by many
// goroutines. The context's deadline is the caller's.
type Adapter interface {
	// Prepare builds the request without sending anything. The same operation
	// always gives the same digest.
	Prepare(c Call) (*Request, error)
	// Probe returns the provider's own id of the account that the credential
	// belongs to now, or the configured one where the contract has no probe.
	Probe(ctx context.Context, c Call) (string, error)
	// Do sends one request, at most once, and says what its answer means.
	Do(ctx context.Context, r *Request) operation.Outcome
	// Lookup asks once, over all pages, for objects of the operation.
	Lookup(ctx context.Context, c Call) operation.Look
	// Contract returns what the provider promises for an action.
	Contract(action string) (operation.Contract, bool)
}

// ErrNotMine is returned for an operation that this process can't work on,
// because it lacks the contract, the account or its credential. Another process
// may have them.
var ErrNotMine = errors.New("providers: this process lacks the contract, the account or its credential")

// ErrProbe is returned when the account probe got no readable answer.
var ErrProbe = errors.New("providers: account probe")

// Limited is an adapter that bounds the requests of one account: how many at
// once (zero: no bound), and the least time between two.
type Limited interface {
	Limit(action string) (concurrency int, spacing time.Duration)
}
