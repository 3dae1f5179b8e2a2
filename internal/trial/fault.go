package trial

import (
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/providers/simulator"
)

// Fault is what goes wrong in a world. The zero value is a healthy world.
type Fault struct {
	// Name is short; About says in a sentence what happens.
	Name, About string
	// Settings change the provider's standing behaviour; it may be nil.
	Settings func(s *simulator.Settings)
	// Rules are in force at the provider for every request.
	Rules []simulator.Rule
	// Writes say what happens to single writes.
	Writes []Write
	// Crashes end the executor's process; another one takes over.
	Crashes []Crash
	// Executors is how many run at once; zero means 1.
	Executors int
	// TLS makes the provider speak TLS, NoKeepAlive makes it close every
	// connection after its answer, so that each request makes a new one.
	TLS, NoKeepAlive bool
	// Behind lets the executors plan on old news: the projection of each
	// operation stands still at this version. Zero means that it does not.
	Behind uint64
}

// Write is what happens to one write, by its number.
type Write struct {
	// Nth counts the writes of the world from 1; zero means every one. What is
	// given for one number several times all happens; the first rule and the
	// first word for the network win.
	Nth int
	// Last makes it a row of writes, from Nth to Last.
	Last int
	// Rule is applied by the provider to this write only.
	Rule *simulator.Rule
	// Wire is what the network does; After is its time. Past counts it from the
	// contract's bound on: the total time for answers, late_apply for writes.
	Wire  Wire
	After time.Duration
	Past  bool
	// Then happens Later, counted from the moment when the write is sent; zero
	// means right before it.
	Then  Then
	Later time.Duration
}

// concerns reports whether a write is meant by its number.
func (f Write) concerns(nth int) bool {
	return f.Nth == 0 || f.Nth == nth || (f.Nth < nth && nth <= f.Last)
}

// Wire is what the network does to a write.
type Wire int

// What the network can do.
const (
	// WireOpen passes everything.
	WireOpen Wire = iota
	// WireSlow passes the write at once and its answer After.
	WireSlow
	// WireHeld passes the write; the provider works on it, its key in flight,
	// until After. The object is there from the start.
	WireHeld
	// WireLate breaks the connection and delivers the write After.
	WireLate
	// WireTwice passes the write, breaks the connection and delivers the write
	// once more After.
	WireTwice
	// WireHalfOpen swallows the write and never answers.
	WireHalfOpen
	// WireHalfAnswer passes the write and never its answer.
	WireHalfAnswer
	// WireRefused refuses the connection of the write.
	WireRefused
	// WireBadTLS shows a certificate that nobody vouches for.
	WireBadTLS
)

// Then is what somebody does at the provider.
type Then int

// What somebody can do.
const (
	ThenNothing Then = iota
	// ThenRetitle and ThenRelabel: a person edits the object.
	ThenRetitle
	ThenRelabel
	// ThenDelete: a person deletes the object.
	ThenDelete
	// ThenRestore gives the credential its meaning back.
	ThenRestore
	// ThenFindAgain ends an outage of the search.
	ThenFindAgain
	// ThenSwitch lets the credential begin to mean another account.
	ThenSwitch
	// ThenRevoke takes the credential's meaning.
	ThenRevoke
)

// Crash is where the process of an executor ends.
type Crash struct {
	// At is the kind of event whose append ends the process; nothing means the
	// first event after AttemptStarted, whatever it is.
	At events.Kind
	// Stored: the event is stored and only its acknowledgement is lost.
	Stored bool
}

// first is a fault of the first write, played by the provider.
func first(r simulator.Rule) []Write { return []Write{{Nth: 1, Rule: new(r)}} }

// firstWire is a fault of the first write, played by the network.
func firstWire(w Wire, after time.Duration) []Write { return []Write{{Nth: 1, Wire: w, After: after}} }

// firstPast is the same, beyond the contract's bound.
func firstPast(w Wire, after time.Duration) []Write {
	return []Write{{Nth: 1, Wire: w, After: after, Past: true}}
}

// lost is the most common fault: the write is carried out and its answer lost.
func lost() *simulator.Rule { return &simulator.Rule{Do: simulator.LoseResponse} }

// forEver is longer than any run.
const forEver = 100_000 * time.Hour

// hidden keeps every object from all reads for a time.
func hidden(d time.Duration) func(s *simulator.Settings) {
	return func(s *simulator.Settings) { s.IndexLag, s.ReadLag = simulator.Duration(d), simulator.Duration(d) }
}

// Faults returns the faults of the matrix: all that a provider, a network, a
// process and a person are known to do to an outside call.
func Faults() []Fault {
	return append(append(append(append(wireFaults(), answerFaults()...), keyFaults()...), searchFaults()...), processFaults()...)
}

func wireFaults() []Fault {
	return []Fault{
		{Name: "none", About: "nothing goes wrong"},
		{
			Name: "request lost", About: "the provider reads the request and the connection breaks; nothing is done",
			Writes: first(simulator.Rule{Do: simulator.LoseRequest}),
		},
		{
			Name: "connection reset", About: "the same, with a TCP reset",
			Writes: first(simulator.Rule{Do: simulator.LoseRequest, Reset: true}),
		},
		{
			Name: "connection refused", About: "nothing listens when the request is to be sent",
			NoKeepAlive: true, Writes: firstWire(WireRefused, 0),
		},
		{
			Name: "TLS failure", About: "the certificate is not vouched for when the request is to be sent",
			TLS: true, NoKeepAlive: true, Writes: firstWire(WireBadTLS, 0),
		},
		{
			Name: "half-open, request swallowed", About: "the connection stays open, nothing arrives and nothing comes back",
			Writes: firstWire(WireHalfOpen, 0),
		},
		{
			Name: "half-open, answer swallowed", About: "the request is carried out, and nothing comes back",
			Writes: firstWire(WireHalfAnswer, 0),
		},
		{
			Name: "slow answer", About: "done at once; the answer comes 5 s after the total time, inside the lease",
			Writes: firstPast(WireSlow, 5*time.Second),
		},
		{
			Name: "slow provider", About: "the provider works on it until 25 s after the total time, beyond the lease; its key is in flight, nothing shows for 35 s",
			Settings: hidden(35 * time.Second), Writes: firstPast(WireHeld, 25*time.Second),
		},
		{
			Name: "applied late, inside late_apply", About: "the connection breaks, the request is carried out 25 s later",
			Writes: firstWire(WireLate, 25*time.Second),
		},
		{
			Name: "applied late, beyond late_apply", About: "the connection breaks, the request is carried out 10 min after late_apply",
			Writes: firstPast(WireLate, 10*time.Minute),
		},
		{
			Name: "applied a day late", About: "the connection breaks, the request is carried out 26 h later",
			Writes: firstWire(WireLate, 26*time.Hour),
		},
		{
			Name: "delivered twice", About: "the network delivers the request twice",
			Writes: first(simulator.Rule{Do: simulator.DuplicateDelivery}),
		},
		{
			Name: "delivered twice, answer lost", About: "the connection breaks after the first delivery; the second comes half a second later",
			Writes: firstWire(WireTwice, 500*time.Millisecond),
		},
		{
			Name: "delivered again after the look", About: "the same; the second delivery comes five minutes later",
			Writes: firstWire(WireTwice, 5*time.Minute),
		},
	}
}

func lostThenRefused() []Write {
	return []Write{{Nth: 1, Rule: lost()}, {Nth: 2, Rule: &simulator.Rule{Do: simulator.StatusOnly, Status: 422}}}
}

func answerFaults() []Fault {
	const html = "<html><body>Bad gateway</body></html>"
	return []Fault{
		{Name: "answer lost", About: "done; the connection closes before a byte of the answer", Writes: first(*lost())},
		{
			Name: "answer cut after the headers", About: "done; status and headers arrive, the body does not",
			Writes: first(simulator.Rule{Do: simulator.CutHeaders}),
		},
		{
			Name: "answer cut in the body", About: "done; half of the body arrives",
			Writes: first(simulator.Rule{Do: simulator.CutBody}),
		},
		{
			Name: "answer is no JSON", About: "done; the answer is 200 and cannot be read",
			Writes: first(simulator.Rule{Do: simulator.Garbage}),
		},
		{
			Name: "500, not done", About: "an internal error; nothing was done",
			Writes: first(simulator.Rule{Do: simulator.StatusOnly}),
		},
		{
			Name: "500, done", About: "an internal error after the object was made",
			Writes: first(simulator.Rule{Do: simulator.StatusAfterCommit}),
		},
		{
			Name: "500, stored under the key", About: "the same; a provider with keys stores the error and replays it",
			Settings: func(s *simulator.Settings) { s.StoreErrors = simulator.StoreAll },
			Writes:   first(simulator.Rule{Do: simulator.StatusAfterCommit}),
		},
		{
			Name: "502 page of a gateway, done", About: "a gateway answers with a page in HTML after the object was made",
			Writes: first(simulator.Rule{Do: simulator.StatusAfterCommit, Status: 502, Body: html}),
		},
		{
			Name: "429", About: "too many requests; asks for a pause of 7 s",
			Writes: first(simulator.Rule{Do: simulator.RateLimit, After: simulator.Duration(7 * time.Second)}),
		},
		{
			Name: "answer lost, then 429", About: "done, not known and not shown for 15 s; the repeat is turned away once",
			Settings: hidden(15 * time.Second),
			Writes:   []Write{{Nth: 1, Rule: lost()}, {Nth: 2, Rule: &simulator.Rule{Do: simulator.RateLimit}}},
		},
		{
			Name: "503 before anything is done", About: "the provider documents this answer as given before anything is done",
			Writes: first(simulator.Rule{Do: simulator.Refuse}),
		},
		{Name: "422", About: "refused for its content", Writes: first(simulator.Rule{Do: simulator.StatusOnly, Status: 422})},
		{
			Name: "answer lost, then 422", About: "done, not known and not shown for 15 s; the repeat is refused",
			Settings: hidden(15 * time.Second), Writes: lostThenRefused(),
		},
		{
			Name: "answer lost, then 422, reads lie", About: "the same; every read, also a direct one, lies for an hour",
			Settings: hidden(time.Hour), Writes: lostThenRefused(),
		},
		{
			Name: "error in the body of a 200", About: "not done; status 200, the error is in the body only",
			Writes: first(simulator.Rule{Do: simulator.StatusOnly, Status: 200, Body: `{"ok":false,"error":{"code":"denied"}}`}),
		},
	}
}

func keyFaults() []Fault {
	return []Fault{
		{
			Name: "key forgotten at once", About: "answer lost, and the provider forgets the key early against its word",
			Settings: func(s *simulator.Settings) { s.KeyForgetEarly = s.KeyRetention - simulator.Duration(time.Second) },
			Writes:   first(*lost()),
		},
		{
			Name: "every answer lost", About: "every answer is lost and nothing can be found",
			Settings: hidden(forEver), Writes: []Write{{Rule: lost()}},
		},
		{
			Name: "key expired", About: "answer lost, nothing can be found, and every repeat is turned away for two days",
			Settings: hidden(forEver), Writes: []Write{{Nth: 1, Rule: lost()}, {Nth: 2, Last: 48, Rule: &simulator.Rule{
				Do: simulator.RateLimit, After: simulator.Duration(time.Hour),
			}}},
		},
		{
			Name: "mismatch", About: "answer lost, not shown for 15 s; the provider says that the key was used with other content",
			Settings: hidden(15 * time.Second),
			Writes: []Write{{Nth: 1, Rule: lost()}, {Nth: 2, Rule: &simulator.Rule{
				Do: simulator.StatusOnly, Status: 400, Body: `{"error":{"code":"idempotency_mismatch"}}`,
			}}},
		},
		{
			Name: "id guarded loosely", About: "the first write runs for 10 min and shows nothing so long; a second one at once passes",
			Settings: func(s *simulator.Settings) {
				hidden(10 * time.Minute)(s)
				s.UniqueID = simulator.UniqueWeak
			},
			Writes: firstWire(WireHeld, 10*time.Minute),
		},
		{
			Name: "credential of another account", About: "answer lost, then the credential begins to mean another account",
			Writes: []Write{{Nth: 1, Rule: lost(), Then: ThenSwitch, Later: 500 * time.Millisecond}},
		},
		{
			Name: "credential revoked", About: "401 at the write; the credential works again ten minutes later",
			Writes: []Write{
				{Nth: 1, Then: ThenRevoke},
				{Nth: 1, Then: ThenRestore, Later: 10 * time.Minute},
			},
		},
	}
}

func searchFaults() []Fault {
	lag := func(d time.Duration) func(s *simulator.Settings) {
		return func(s *simulator.Settings) { s.IndexLag, s.ReadLag = simulator.Duration(d), 0 }
	}
	return []Fault{
		{
			Name: "index behind, inside the lag", About: "answer lost; the search shows the object 4 s later",
			Settings: lag(4 * time.Second), Writes: first(*lost()),
		},
		{
			Name: "index behind, beyond the lag", About: "answer lost; the search shows the object 20 min later",
			Settings: lag(20 * time.Minute), Writes: first(*lost()),
		},
		{
			Name: "never indexed", About: "answer lost; the search never shows the object",
			Settings: lag(forEver), Writes: first(*lost()),
		},
		{
			Name: "index flickers", About: "answer lost; half of all searches come back empty",
			Settings: func(s *simulator.Settings) { s.FlakyIndex, s.Seed = 0.5, 4 }, Writes: first(*lost()),
		},
		{
			Name: "search down for an hour", About: "answer lost; the search answers 503 for an hour",
			Settings: func(s *simulator.Settings) { s.SearchOutage = true },
			Writes:   []Write{{Nth: 1, Rule: lost(), Then: ThenFindAgain, Later: time.Hour}},
		},
		{
			Name: "title edited by a person", About: "answer lost; somebody edits the object before the first look",
			Writes: []Write{{Nth: 1, Rule: lost(), Then: ThenRetitle, Later: 500 * time.Millisecond}},
		},
		{
			Name: "label removed by a person", About: "answer lost; somebody removes the label before the first look",
			Writes: []Write{{Nth: 1, Rule: lost(), Then: ThenRelabel, Later: 500 * time.Millisecond}},
		},
		{
			Name: "deleted by a person", About: "answer lost; somebody deletes the object before the first look",
			Writes: []Write{{Nth: 1, Rule: lost(), Then: ThenDelete, Later: 500 * time.Millisecond}},
		},
		{
			Name: "provider's clock is wrong", About: "answer lost; the provider's clock is 15 min behind",
			Settings: func(s *simulator.Settings) { s.ClockSkew = simulator.Duration(-15 * time.Minute) },
			Writes:   first(*lost()),
		},
	}
}

func processFaults() []Fault {
	started := events.KindAttemptStarted
	return []Fault{
		{
			Name: "crash before the start is stored", About: "the process ends before AttemptStarted is stored",
			Crashes: []Crash{{At: started}},
		},
		{
			Name: "crash before the start is acknowledged", About: "AttemptStarted is stored, the process ends without knowing",
			Crashes: []Crash{{At: started, Stored: true}},
		},
		{Name: "crash after the send", About: "the process ends before the outcome is stored", Crashes: []Crash{{}}},
		{
			Name: "crash after the outcome", About: "the outcome is stored, the process ends without knowing",
			Crashes: []Crash{{Stored: true}},
		},
		{
			Name: "two crashes after the send", About: "the second process ends in the same place",
			Crashes: []Crash{{}, {}},
		},
		{Name: "two executors", About: "two processes work on the operation at once", Executors: 2},
		{
			Name: "two executors on old news", About: "the same, on a projection that stands still; the answer is lost",
			Executors: 2, Behind: 1, Writes: first(*lost()),
		},
	}
}
