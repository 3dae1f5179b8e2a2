package providers_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/providertest"
)

// Shelf is the client of some system that an embedding program calls directly.
// It never repeats by itself: look for that first in a client of your own.
type Shelf interface {
	// Owner says whose shelf this is.
	Owner(ctx context.Context) (string, error)
	// Put puts a book on the shelf and returns its number.
	Put(ctx context.Context, label, title string) (number string, err error)
	// Find returns the numbers of all books with a label.
	Find(ctx context.Context, label string) ([]string, error)
}

// The errors of a Shelf that promise something.
var (
	errClosed = errors.New("shelf: closed: nothing was called")
	errNoRoom = errors.New("shelf: no book of this kind is taken")
)

// ShelfAdapter lets the ledger call a Shelf. It keeps nothing of an operation.
type ShelfAdapter struct {
	Shelf Shelf
	// Account is our own name of the account.
	Account string
	Now     func() time.Time
}

const bookAdd = "book.add"

// book is what is sent for an operation. Nothing in it depends on the attempt.
type book struct {
	Label string `json:"label"`
	Title string `json:"title"`
}

// Contract says what the shelf promises: a label that can be looked up at once,
// and no key, so that an unknown outcome is never repeated.
func (a *ShelfAdapter) Contract(action string) (operation.Contract, bool) {
	return operation.Contract{
		Provider: "shelf", Action: bookAdd, Class: operation.ClassLabel, Proof: operation.ProofDocumented,
		Total: 10 * time.Second, LateApply: time.Second, MaxAttempts: 1,
		Lookup: operation.Lookup{Available: true, Name: "by-label", Schedule: []time.Duration{time.Second, time.Minute}},
	}, action == bookAdd
}

func (a *ShelfAdapter) book(c providers.Call) (book, error) {
	var args struct{ Title string }
	if c.Intent.Action != bookAdd || c.Intent.Account.Name != a.Account {
		return book{}, providers.ErrNotMine
	}
	if err := json.Unmarshal(c.Intent.Args, &args); err != nil {
		return book{}, fmt.Errorf("shelf: arguments: %w", err)
	}
	return book{Label: operation.Label(c.Intent.IdempotencyKey), Title: args.Title}, nil
}

// Prepare builds the request without sending anything.
func (a *ShelfAdapter) Prepare(c providers.Call) (*providers.Request, error) {
	b, err := a.book(c)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("shelf: %w", err)
	}
	sum := sha256.Sum256(append([]byte("shelf-v1\n"), body...))
	return providers.NewRequest(a, "sha256:"+hex.EncodeToString(sum[:]),
		providers.Redacted{Method: "PUT", URL: "shelf:" + a.Account, Body: string(body)}, b), nil
}

// Probe asks whose shelf it is now.
func (a *ShelfAdapter) Probe(ctx context.Context, _ providers.Call) (string, error) {
	owner, err := a.Shelf.Owner(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %w", providers.ErrProbe, err)
	}
	return owner, nil
}

// Do calls the shelf once. Only two errors are known to mean that nothing
// happened; every other one, and a forgotten case, leaves the zero outcome, which
// is uncertain.
func (a *ShelfAdapter) Do(ctx context.Context, r *providers.Request) operation.Outcome {
	content, _ := r.Take(a)
	b, mine := content.(book)
	if !mine {
		return operation.Outcome{Unknown: events.UnknownAdapterError, Reason: "the request is not mine, or was taken before"}
	}
	if ctx.Err() != nil {
		return operation.Outcome{Word: operation.OutcomeNotSent, Reason: "the time was over before anything was called"}
	}
	number, err := a.Shelf.Put(ctx, b.Label, b.Title)
	switch {
	case err == nil && number != "":
		return operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: number}
	case errors.Is(err, errClosed):
		return operation.Outcome{Word: operation.OutcomeNotSent, Reason: "the shelf is closed"}
	case errors.Is(err, errNoRoom):
		return operation.Outcome{Word: operation.OutcomeRejected, Reason: "no room"}
	}
	return operation.Outcome{}
}

// Lookup asks once, under the account that the shelf has now.
func (a *ShelfAdapter) Lookup(ctx context.Context, c providers.Call) operation.Look {
	look := operation.Look{
		Source: events.SourceLookup, Name: "by-label", AskedAt: a.Now(), AttemptID: c.AttemptID, AccountOK: true,
	}
	failed := func(reason string) operation.Look {
		look.Failed, look.Reason = true, reason
		return look
	}
	b, err := a.book(c)
	if err != nil {
		return failed("the look can't be prepared")
	}
	if look.AccountProbed, err = a.Probe(ctx, c); err != nil {
		return failed("the account can't be asked for")
	}
	if look.AccountOK = look.AccountProbed == c.Intent.Account.ProviderID; !look.AccountOK {
		return look
	}
	if look.Matches, err = a.Shelf.Find(ctx, b.Label); err != nil {
		return failed("the shelf could not be searched")
	}
	look.PagesComplete = true
	return look
}

// An adapter in Go for a program that embeds the ledger's packages: the answer
// is lost, and the look finds what was done.
func Example_adapter() {
	shelf := newMemoryShelf("ada")
	shelf.Next(providertest.Fault{Word: providertest.Fail})
	var adapter providers.Adapter = &ShelfAdapter{Shelf: shelf, Account: "home", Now: time.Now}
	call := shelfCall()
	request, err := adapter.Prepare(call)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(request.Redacted().Method, request.Redacted().URL)
	outcome := adapter.Do(context.Background(), request)
	fmt.Printf("outcome: %q\n", outcome.Word) // the zero value is uncertain
	look := adapter.Lookup(context.Background(), call)
	fmt.Println("found:", look.Matches)
	// Output:
	// PUT shelf:home
	// outcome: ""
	// found: [book-1]
}

// An adapter in Go passes the suite that every adapter must pass.
func TestGoAdaptersPassTheSuite(t *testing.T) {
	t.Parallel()
	providertest.Conform(t, func(*testing.T) providertest.Bench {
		shelf := newMemoryShelf("ada")
		return providertest.Bench{
			Adapter: &ShelfAdapter{Shelf: shelf, Account: "home", Now: time.Now}, Call: shelfCall(), End: shelf,
		}
	}, providertest.Features{
		ExternalID: "book-1", OtherArgs: []byte(`{"title":"Dune"}`), Probe: "ada", Lookup: true, Remembers: true,
	})
}

// A client that panics has proven nothing either.
func TestAPanickingClientProvesNothing(t *testing.T) {
	t.Parallel()
	providertest.Conform(t, func(*testing.T) providertest.Bench {
		shelf := newMemoryShelf("ada")
		shelf.panics = true
		return providertest.Bench{
			Adapter: &ShelfAdapter{Shelf: shelf, Account: "home", Now: time.Now}, Call: shelfCall(), End: shelf,
		}
	}, providertest.Features{ExternalID: "book-1", Probe: "ada", Lookup: true})
}

func shelfCall() providers.Call {
	return providers.Call{Tenant: "acme", Operation: "op-1", Intent: events.IntentRecorded{
		Provider: "shelf", Account: events.Account{Name: "home", ProviderID: "ada"}, Action: bookAdd,
		Args: json.RawMessage(`{"title":"Emma"}`), IdempotencyKey: testKey,
	}}
}

// memoryShelf is a Shelf in memory, and the end of the wire for the suite.
type memoryShelf struct {
	panics bool

	mu     sync.Mutex
	owner  string
	closed bool
	labels []string
	writes []string
	next   []providertest.Fault
}

func newMemoryShelf(owner string) *memoryShelf { return &memoryShelf{owner: owner} }

// Owner implements Shelf.
func (s *memoryShelf) Owner(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", errClosed
	}
	return s.owner, nil
}

// Put implements Shelf.
func (s *memoryShelf) Put(ctx context.Context, label, title string) (string, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return "", errClosed
	}
	s.labels, s.writes = append(s.labels, label), append(s.writes, label+" "+title)
	var fault providertest.Fault
	if len(s.next) > 0 {
		fault, s.next = s.next[0], s.next[1:]
	}
	s.mu.Unlock()
	switch fault.Word {
	case providertest.LoseAnswer:
		<-ctx.Done()
		return "", ctx.Err()
	case providertest.Garble:
		return "", nil
	case providertest.Fail:
		if s.panics {
			panic("shelf: broken")
		}
		return "", errors.New("shelf: broken")
	case providertest.AnswerLate:
		fault.Arrived <- struct{}{}
		select {
		case <-fault.Release:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return "book-1", nil
}

// Find implements Shelf.
func (s *memoryShelf) Find(_ context.Context, label string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errClosed
	case slices.Contains(s.labels, label):
		return []string{"book-1"}, nil
	}
	return nil, nil
}

// Next implements providertest.End.
func (s *memoryShelf) Next(f providertest.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, f)
}

// Writes implements providertest.End.
func (s *memoryShelf) Writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// Belong implements providertest.End.
func (s *memoryShelf) Belong(account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = account
}

// Stop implements providertest.End.
func (s *memoryShelf) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
