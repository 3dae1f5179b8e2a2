package events_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/opledger/opledger/events"
)

// story are the three events of an operation that goes well.
func story() []events.Event {
	payloads := []events.Payload{
		events.IntentRecorded{
			Provider: "crm", Account: events.Account{Name: "main", ProviderID: "acct_42"}, Action: "task.create", SchemaVersion: "2",
			Args:       json.RawMessage(`{"note":"` + strings.Repeat("x", 150) + `","title":"Call Ada"}`),
			ArgsDigest: "sha256-jcs:" + strings.Repeat("1f", 32), IntentDigest: "sha256-jcs:" + strings.Repeat("3d", 32),
			ContractRef: events.ContractRef{Name: "crm/task.create", Revision: 3, Digest: "sha256:" + strings.Repeat("5b", 32)},
			OnUnknown:   events.OnUnknownContract, IdempotencyKey: "0c4b4f2e-3c1c-5a77-9f53-0d3a1c9a5f10",
		},
		events.AttemptStarted{
			AttemptID: "019ae0f0-0000-7000-8000-000000000002", Number: 1, Worker: "w-1", ClaimRevision: 7, LeaseMS: 3000,
			RequestDigest: "sha256:" + strings.Repeat("77", 32), AccountProbed: "acct_42",
		},
		events.ResultConfirmed{
			ExternalID: "731", Result: json.RawMessage(`{"id":"731","title":"Call Ada"}`), Via: events.ViaResponse,
			AttemptID: "019ae0f0-0000-7000-8000-000000000002",
		},
	}
	out := make([]events.Event, len(payloads))
	for i, p := range payloads {
		out[i] = events.Event{
			ID: "019ae0f0-0000-7000-8000-000000000001", Ledger: ledger, Tenant: "acme", Operation: "op-1",
			Version: uint64(i + 1), Time: noon, Actor: "worker w-1", Data: p,
		}
		if i > 0 {
			out[i].Prev = "sha256:" + strings.Repeat("6d", 32)
		}
	}
	return out
}

func BenchmarkEncode(b *testing.B) {
	for _, e := range story() {
		b.Run(string(e.Data.Kind()), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := events.Encode(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, e := range story() {
		body, err := events.Encode(e)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(string(e.Data.Kind()), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := events.Decode(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCheckID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if err := events.CheckID("operation_id", "0198c0de-0000-7000-8000-000000000001"); err != nil {
			b.Fatal(err)
		}
	}
}
