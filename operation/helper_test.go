package operation_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

const (
	testLedger  = "018f0000-0000-7000-8000-000000000000"
	testAccount = "acct_1"
	testDigest  = "sha256-jcs:intent"
	testRequest = "sha256:request"
	testLease   = 30 * time.Second
	testClock   = time.Second
)

// begin is the log's time stamp of the first event of every test.
var begin = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// The contracts of the tests, one per class. Lag, late_apply and retention are
// such that each bound is passed within a story.
func contractK1() operation.Contract {
	return operation.Contract{
		Provider: "pay", Action: "charge.create", Class: operation.ClassKey, Proof: operation.ProofDocumented,
		Digest: "sha256:contract", KeySupported: true, Retention: 24 * time.Hour, Margin: time.Hour,
		Total: 10 * time.Second, LateApply: 20 * time.Second, MaxAttempts: 3,
		Backoff: operation.Backoff{First: time.Second, Factor: 2, Max: time.Minute},
	}
}

func contractK1Label() operation.Contract {
	c := contractK1()
	c.Lookup = operation.Lookup{
		Available: true, Name: "by_label", Lag: time.Minute,
		Schedule: []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute},
	}
	return c
}

func contractK2() operation.Contract {
	c := contractK1()
	c.Class, c.Retention, c.Margin = operation.ClassClientID, operation.Forever, 0
	c.Lookup = operation.Lookup{Available: true, Name: "by_id", Schedule: []time.Duration{time.Second, 5 * time.Second}}
	return c
}

func contractK4() operation.Contract {
	return operation.Contract{
		Provider: "crm", Action: "task.create", Class: operation.ClassLabel, Proof: operation.ProofVerifiedLive,
		Digest: "sha256:contract", Total: 10 * time.Second, LateApply: 20 * time.Second, MaxAttempts: 3,
		Backoff: operation.Backoff{First: time.Second, Factor: 2, Max: time.Minute},
		Lookup: operation.Lookup{
			Available: true, Name: "by_label", Lag: time.Minute,
			Schedule: []time.Duration{10 * time.Second, time.Minute, 2 * time.Minute},
		},
		RiskAllowed: true,
	}
}

// contractK4Absent can also prove absence: two empty reads, spaced.
func contractK4Absent() operation.Contract {
	c := contractK4()
	c.Lookup.Lag = 3 * time.Minute
	c.Lookup.Schedule = []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute}
	c.Absence = operation.Absence{Provable: true, Settle: 10 * time.Second, EmptyReads: 2, Spacing: 30 * time.Second}
	return c
}

func contractK5() operation.Contract {
	return operation.Contract{
		Provider: "chat", Action: "message.send", Class: operation.ClassNone, Proof: operation.ProofDocumented,
		Digest: "sha256:contract", Total: 10 * time.Second, LateApply: 20 * time.Second, MaxAttempts: 1,
		RiskAllowed: true,
	}
}

func intentOf(c operation.Contract) events.IntentRecorded {
	return events.IntentRecorded{
		Provider: c.Provider, Account: events.Account{Name: "main", ProviderID: testAccount}, Action: c.Action,
		Args: []byte(`{"title":"x"}`), ArgsDigest: "sha256-jcs:args", IntentDigest: testDigest,
		ContractRef: events.ContractRef{Name: c.Provider, Revision: 1, Digest: c.Digest},
		OnUnknown:   events.OnUnknownContract, IdempotencyKey: "key-1",
	}
}

// journal is a log of one operation together with its fold.
type journal struct {
	t    testing.TB
	s    operation.State
	now  time.Time
	recs []events.Record
	ids  int
}

func newJournal(t testing.TB) *journal {
	t.Helper()
	return &journal{t: t, now: begin}
}

// started returns a journal with the intent of a contract recorded.
func started(t testing.TB, c operation.Contract) *journal {
	t.Helper()
	j := newJournal(t)
	j.must(intentOf(c))
	return j
}

// put appends one event, encoded and decoded as the log would, and folds it.
func (j *journal) put(p events.Payload) operation.Anomaly {
	j.t.Helper()
	seq := j.s.LastSeq + 1
	body, err := events.Encode(events.Event{
		ID: fmt.Sprintf("ev-%d", seq), Ledger: testLedger, Tenant: "acme", Operation: "op-1",
		Version: j.s.Version + 1, Prev: j.s.Head, Time: j.now, Data: p,
	})
	if err != nil {
		j.t.Fatalf("encode %s: %v", p.Kind(), err)
	}
	return j.raw(events.DecodeRecord("opledger.events.acme.op-1", seq, j.now, body))
}

func (j *journal) raw(r events.Record) operation.Anomaly {
	var a operation.Anomaly
	j.s, a = operation.Evolve(j.s, r)
	j.recs = append(j.recs, r)
	return a
}

// must appends events none of which may be an anomaly.
func (j *journal) must(payloads ...events.Payload) {
	j.t.Helper()
	for _, p := range payloads {
		if a := j.put(p); a.Reason != operation.AnomalyNone {
			j.t.Fatalf("%s: anomaly %s", p.Kind(), a.Reason)
		}
	}
}

func (j *journal) params() operation.Params {
	j.ids++
	return operation.Params{
		Now: j.now, NewID: fmt.Sprintf("permit-%d", j.ids), ClockError: testClock, Lease: testLease,
	}
}

func (j *journal) wait(d time.Duration) *journal { j.now = j.now.Add(d); return j }

func (j *journal) next(c operation.Contract) operation.Step {
	return operation.Next(j.s, c, j.params())
}

// start appends an attempt, with the permit if one is named.
func (j *journal) start(id, permit string) {
	j.t.Helper()
	j.must(attemptOf(id, j.s.Started+1, permit))
}

func attemptOf(id string, number int, permit string) events.AttemptStarted {
	return events.AttemptStarted{
		AttemptID: id, Number: number, Worker: "w1", LeaseMS: testLease.Milliseconds(),
		RequestDigest: testRequest, AccountProbed: testAccount, PermitID: permit,
	}
}

// lost records an attempt as unknown by time-out.
func (j *journal) lost(c operation.Contract, id string) {
	j.t.Helper()
	j.answer(c, id, operation.Outcome{Word: operation.OutcomeUncertain, Unknown: events.UnknownTimeout})
}

func (j *journal) answer(c operation.Contract, id string, o operation.Outcome) []events.Payload {
	j.t.Helper()
	out := operation.Answered(j.s, c, id, o, j.params())
	j.must(out...)
	return out
}

func (j *journal) look(c operation.Contract, ids ...string) []events.Payload {
	j.t.Helper()
	out := operation.Looked(j.s, c, lookOf(j.now, ids...), j.params())
	j.must(out...)
	return out
}

func lookOf(at time.Time, ids ...string) operation.Look {
	return operation.Look{
		Source: events.SourceLookup, Name: "by_label", AskedAt: at, AccountProbed: testAccount,
		AccountOK: true, PagesComplete: true, Matches: ids,
	}
}

func (j *journal) decide(c operation.Contract, d operation.Decision) operation.Refusal {
	j.t.Helper()
	if d.Actor == "" {
		d.Actor, d.Reason = "ann", "checked by hand"
	}
	if d.SeenVersion == 0 {
		d.SeenVersion = j.s.Version
	}
	out, refusal := operation.Decided(j.s, c, d, j.params())
	j.must(out...)
	return refusal
}

// do follows Next until it waits or wants something of the outside.
func (j *journal) do(c operation.Contract) operation.Step {
	j.t.Helper()
	for range 20 {
		step := j.next(c)
		if step.Do != operation.DoAppend {
			return step
		}
		j.must(step.Append...)
	}
	j.t.Fatal("Next appends without end")
	return operation.Step{}
}

// lightRecord makes a record without the cost of JSON: the fold reads the body
// only to hash it.
func lightRecord(s operation.State, stamp time.Time, p events.Payload) events.Record {
	body := make([]byte, 8)
	binary.BigEndian.PutUint64(body, s.LastSeq+1)
	return events.Record{
		Event: events.Event{
			ID: fmt.Sprint("ev-", s.LastSeq+1), Ledger: testLedger, Tenant: "acme", Operation: "op-1",
			Version: s.Version + 1, Prev: s.Head, Time: stamp, Data: p,
		},
		Seq: s.LastSeq + 1, Stamp: stamp, Body: body, Subject: "opledger.events.acme.op-1",
	}
}

func kinds(payloads []events.Payload) []events.Kind {
	out := []events.Kind{}
	for _, p := range payloads {
		out = append(out, p.Kind())
	}
	return out
}
