package operation_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// happy are the records of an operation that goes well.
func happy(b *testing.B) []events.Record {
	b.Helper()
	var out []events.Record
	prev := ""
	for i, p := range []events.Payload{
		events.IntentRecorded{
			Provider: "pay", Account: events.Account{Name: "main", ProviderID: testAccount}, Action: "charge.create", SchemaVersion: "2",
			Args: json.RawMessage(`{"note":"` + strings.Repeat("x", 150) + `"}`), ArgsDigest: "sha256-jcs:args", IntentDigest: testDigest,
			ContractRef: events.ContractRef{Name: "pay", Revision: 3, Digest: "sha256:contract"},
			OnUnknown:   events.OnUnknownContract, IdempotencyKey: "0c4b4f2e-3c1c-5a77-9f53-0d3a1c9a5f10",
		},
		events.AttemptStarted{AttemptID: "a1", Number: 1, Worker: "w", LeaseMS: testLease.Milliseconds(), RequestDigest: testRequest, AccountProbed: testAccount},
		events.ResultConfirmed{ExternalID: "731", Result: json.RawMessage(`{"id":"731"}`), Via: events.ViaResponse, AttemptID: "a1"},
	} {
		e := events.Event{ID: events.NewID(), Ledger: testLedger, Tenant: "t", Operation: "op-1", Version: uint64(i + 1), Prev: prev, Time: begin, Data: p}
		body, err := events.Encode(e)
		if err != nil {
			b.Fatal(err)
		}
		prev = events.Digest(body)
		out = append(out, events.Record{Event: e, Seq: uint64(i + 1), Stamp: begin.Add(time.Duration(i) * time.Millisecond), Body: body})
	}
	return out
}

func BenchmarkFold(b *testing.B) {
	records := happy(b)
	b.ReportAllocs()
	for b.Loop() {
		if s := operation.Fold(records); s.Status != operation.StatusConfirmed {
			b.Fatal(s.Status)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	records := happy(b)
	c, p := contractK1Label(), operation.Params{Now: begin.Add(time.Second), NewID: "p1", Lease: testLease, ClockError: testClock}
	for name, s := range map[string]operation.State{
		"pending": operation.Fold(records[:1]), "in_flight": operation.Fold(records[:2]), "confirmed": operation.Fold(records),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				operation.Next(s, c, p)
			}
		})
	}
}

func BenchmarkAnswered(b *testing.B) {
	s, c := operation.Fold(happy(b)[:2]), contractK1Label()
	p := operation.Params{Now: begin.Add(time.Second), NewID: "p1", Lease: testLease, ClockError: testClock}
	o := operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "731", Result: json.RawMessage(`{"id":"731"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if got := operation.Answered(s, c, "a1", o, p); len(got) != 1 {
			b.Fatal(got)
		}
	}
}
