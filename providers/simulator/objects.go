package simulator

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"time"
)

// Limits of the tables.
const (
	firstID     = 731
	maxObjects  = 1_000_000
	maxRequests = 100_000
	maxWritten  = 10_000
	maxTokens   = 10_000
)

// answerNone is the Answer of a request that got no status line.
const (
	answerNone    = "none"
	answerPending = "pending"
)

// Object is one row of the truth table.
type Object struct {
	// Row is the number of the row, from 1, unique even where ids are not.
	Row int64 `json:"row"`
	// ID is what the provider calls the object, unique within an account
	// unless the guard is weak.
	ID string `json:"id"`
	// Collection is where the provider keeps the object, such as
	// /repos/o/r/issues. The plain tasks have none.
	Collection string `json:"collection,omitempty"`
	// Account is the account that the object belongs to.
	Account string `json:"account"`
	// Title is the title as it is now.
	Title string `json:"title"`
	// Label is the label as it is now.
	Label string `json:"label"`
	// Fields are the further members of the request's body.
	Fields map[string]json.RawMessage `json:"fields,omitempty"`
	// IdempotencyKey is the key that came with the request, even if keys are off.
	IdempotencyKey string `json:"idempotency_key"`
	// Request is the number of the request that committed the object.
	Request int64 `json:"request"`
	// CreatedAt is the true time of the commit.
	CreatedAt time.Time `json:"created_at"`
	// ShownAt is the created_at that the provider shows, with its clock's skew.
	ShownAt time.Time `json:"shown_at"`
	// VisibleAt is when lists begin to show the object.
	VisibleAt time.Time `json:"visible_at"`
	// SearchableAt is when searches begin to show it.
	SearchableAt time.Time `json:"searchable_at"`
	// ReadableAt is when the direct read begins to show it.
	ReadableAt time.Time `json:"readable_at"`
	// UpsertedAt is when a further upsert last changed it; zero if never.
	UpsertedAt time.Time `json:"upserted_at,omitzero"`
	// Side says that the provider made the object on its own beside another.
	Side bool `json:"side,omitempty"`
	// EditedAt is when a human last changed it; zero if never.
	EditedAt time.Time `json:"edited_at,omitzero"`
	// Deleted says that a human deleted it.
	Deleted bool `json:"deleted"`
	// DeletedAt is when that was; zero if never.
	DeletedAt time.Time `json:"deleted_at,omitzero"`
}

// Request is one row of the request log: a provider request as it came off the
// wire.
type Request struct {
	// Number counts the requests from 1.
	Number int64 `json:"number"`
	// RequestID is the X-Request-Id of the answer, sent or not.
	RequestID string `json:"request_id"`
	// Method is the HTTP method.
	Method string `json:"method"`
	// Path is the path, at most 2048 bytes of it.
	Path string `json:"path"`
	// Query is the raw query, at most 2048 bytes of it.
	Query string `json:"query,omitempty"`
	// Account is the account of the token at arrival; empty if unknown.
	Account string `json:"account"`
	// Operation is what the route does: create, upsert, read, list, search or
	// account; empty if there is no such route.
	Operation string `json:"operation,omitempty"`
	// IdempotencyKey is the key as sent, or the id that the client chose, at most
	// 2048 bytes of it.
	IdempotencyKey string `json:"idempotency_key"`
	// Label is the label in the body or the query, if there is one.
	Label string `json:"label,omitempty"`
	// BodySHA256 is the hash of the body in hex.
	BodySHA256 string `json:"body_sha256"`
	// BodyIncomplete says that the body broke off or was too long.
	BodyIncomplete bool `json:"body_incomplete,omitempty"`
	// ReceivedAt is when the request had been read.
	ReceivedAt time.Time `json:"received_at"`
	// Fault is the fault that was applied; empty if none.
	Fault Fault `json:"fault"`
	// Rule is the id of the rule that fired; zero if none.
	Rule int64 `json:"rule,omitempty"`
	// RuleName is its name.
	RuleName string `json:"rule_name,omitempty"`
	// ObjectID is the id of the object that the request committed, or changed as
	// an upsert; empty if none.
	ObjectID string `json:"object_id"`
	// DuplicateObjectID is the id of the object that the network's second
	// delivery committed; empty if none.
	DuplicateObjectID string `json:"duplicate_object_id,omitempty"`
	// Replayed says that the answer was a stored result.
	Replayed bool `json:"replayed,omitempty"`
	// Answer is the status that was sent, "none" if the client got no status
	// line, or "pending" while the request is in progress.
	Answer string `json:"answer"`
}

// objectName is where an id is unique.
type objectName struct{ account, collection, id string }

// object is a row with what only the server needs.
type object struct {
	Object
	settled bool           // the request that made it has its answer ready
	args    map[string]any // the decoded body; nil for plain tasks
	print   string         // the fingerprint of the request that made it
}

// tokenState is what a bearer token means, and what it will mean.
type tokenState struct {
	account string
	revoked bool
	next    *AccountChange // nil if no change is ahead
}

// state is everything that a reset throws away. The server's mutex guards it.
// A request keeps the state in which it arrived, so that it changes nothing
// after a reset (S5).
type state struct {
	settings Settings
	dialect  *dialect
	tokens   map[string]*tokenState

	objects []*object
	byName  map[objectName][]*object
	counts  map[objectName]int // the objects of a collection; its name has no id
	nextID  int64

	keys     map[keyName]*keyEntry
	keyOrder []*keyEntry

	requests []*Request
	received int64
	dropped  int64

	rules    []*activeRule
	ruleSeen int64

	late           []late // in the order of their time
	held           map[int64]*heldAnswer
	written        []WrittenAnswer
	writtenDropped int64

	flaky *rand.Rand
}

func newState(settings Settings, tokens map[string]string) *state {
	st := &state{
		tokens: make(map[string]*tokenState, len(tokens)),
		byName: make(map[objectName][]*object),
		counts: make(map[objectName]int),
		nextID: firstID,
		keys:   make(map[keyName]*keyEntry),
		held:   make(map[int64]*heldAnswer),
	}
	for token, account := range tokens {
		st.tokens[token] = &tokenState{account: account}
	}
	st.apply(settings)
	return st
}

// apply puts settings into force. The random numbers start again only when the
// seed changes.
func (st *state) apply(settings Settings) {
	if st.flaky == nil || st.settings.Seed != settings.Seed {
		st.flaky = rand.New(rand.NewPCG(settings.Seed, 0))
	}
	st.settings = settings
	d, err := dialectOf(settings.Dialect)
	if err != nil {
		panic("simulator: settings were not validated: " + err.Error())
	}
	st.dialect = d
}

// useToken returns the account of a token and counts down a change that is
// ahead.
func (st *state) useToken(token string) (account string, ok bool) {
	t := st.tokens[token]
	if t == nil {
		return "", false
	}
	if t.next != nil {
		if t.next.After == 0 {
			t.become(*t.next)
		} else {
			t.next.After--
		}
	}
	return t.account, !t.revoked
}

func (t *tokenState) become(c AccountChange) {
	t.account, t.revoked, t.next = c.Account, c.Revoke, nil
}

// log appends a row and drops the oldest when the log is full.
func (st *state) log(row *Request) {
	st.received++
	row.Number = st.received
	if len(st.requests) >= maxRequests {
		st.requests[0] = nil
		st.requests = st.requests[1:]
		st.dropped++
	}
	st.requests = append(st.requests, row)
}

// freeID returns the next number that no client has chosen as an id.
func (st *state) freeID(account, collection string) string {
	for {
		id := strconv.FormatInt(st.next(), 10)
		if len(st.byName[objectName{account, collection, id}]) == 0 {
			return id
		}
	}
}

// commit puts an object into the truth table (S1).
func (st *state) commit(x *exchange, o *object, now time.Time) {
	o.Row = int64(len(st.objects)) + 1
	o.Account = x.account
	o.IdempotencyKey = x.key
	o.Request = x.row.Number
	o.CreatedAt = now.UTC()
	o.ShownAt = x.settings.shown(now)
	o.VisibleAt = o.CreatedAt.Add(time.Duration(x.settings.IndexLag))
	o.SearchableAt = o.VisibleAt
	if x.settings.SearchLag > 0 {
		o.SearchableAt = o.CreatedAt.Add(time.Duration(x.settings.SearchLag))
	}
	o.ReadableAt = o.CreatedAt.Add(time.Duration(x.settings.ReadLag))
	o.print = x.fingerprint
	if o.args != nil {
		o.Fields = fieldsOf(o.args)
	}
	st.objects = append(st.objects, o)
	name := objectName{o.Account, o.Collection, o.ID}
	st.byName[name] = append(st.byName[name], o)
	st.counts[objectName{o.Account, o.Collection, ""}]++
	x.made = append(x.made, o)
	if x.second {
		x.row.DuplicateObjectID = o.ID
	} else {
		x.row.ObjectID = o.ID
	}
}

// shown is the time on the provider's clock.
func (s Settings) shown(now time.Time) time.Time {
	return now.UTC().Add(time.Duration(s.ClockSkew))
}

// count is how many objects a collection has had.
func (st *state) count(account, collection string) int {
	return st.counts[objectName{account, collection, ""}]
}

// find returns the rows that match; empty arguments match all.
func (st *state) find(f ObjectFilter) []*object {
	var found []*object
	for _, o := range st.objects {
		if (f.ID == "" || f.ID == o.ID) && (f.Account == "" || f.Account == o.Account) &&
			(f.Label == "" || f.Label == o.Label) && (f.Title == "" || f.Title == o.Title) {
			found = append(found, o)
		}
	}
	return found
}
