package intake_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/intake"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// instant is a journal that takes everything at once and keeps nothing.
type instant struct{ intake.States }

func (instant) Append(_ context.Context, s operation.State, actor string, payloads ...events.Payload) (operation.State, error) {
	for _, p := range payloads {
		s, _ = operation.Evolve(s, events.Record{Event: events.Event{
			Tenant: s.Tenant, Operation: s.OperationID, Version: s.Version + 1, Prev: s.Head, Actor: actor, Data: p,
		}, Seq: s.LastSeq + 1, Stamp: time.Unix(1_800_000_000, 0)})
	}
	return s, nil
}

func (instant) Glance(context.Context, string, string) (operation.State, error) {
	return operation.State{}, nil
}

// registry is a catalogue of the contracts that come with the ledger.
type registry struct {
	all *providers.Registry
	intake.Catalogue
}

func (r registry) Offer(_ context.Context, provider, account, action string) (intake.Offer, error) {
	file, c, ref, err := r.all.Current(provider, action)
	if err != nil {
		return intake.Offer{}, err
	}
	return intake.Offer{Contract: c, Ref: ref, SchemaVersion: file.APIVersion, Account: events.Account{Name: account, ProviderID: "acct_1"}}, nil
}

func (r registry) Bind(ctx context.Context, ref events.ContractRef, provider, action string, args []byte) ([]byte, error) {
	return r.all.BindAs(ctx, ref, provider, action, args)
}

func (registry) Keep(context.Context, string) error { return nil }

func BenchmarkSubmit(b *testing.B) {
	file, err := providers.Load("sim-keyed")
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv("OPLEDGER_BENCH_TOKEN", "a-token")
	token, err := providers.ParseRef("env://OPLEDGER_BENCH_TOKEN")
	if err != nil {
		b.Fatal(err)
	}
	all, err := providers.NewRegistry([]providers.Configured{{File: file, Accounts: map[string]providers.Account{
		"main": {ProviderID: "acct_1", BaseURL: "http://127.0.0.1:1", AllowLoopback: true, Secrets: map[string]providers.SecretRef{"token": token}},
	}}}, nil, providers.RegistryOptions{})
	if err != nil {
		b.Fatal(err)
	}
	svc, err := intake.New(intake.Config{
		Recorder: instant{}, States: instant{}, Catalogue: registry{all: all}, Ledger: ledgerID, Now: time.Now,
		Random: rand.Float64, Tenants: []intake.Tenant{{ID: "acme"}},
	})
	if err != nil {
		b.Fatal(err)
	}
	raw := fmt.Appendf(nil, `{"operation_id":"op-1","provider":%q,"account":"main","action":"task.create","args":{"note":%q,"title":"Call Ada"},"wait_ms":50000}`,
		file.Provider, strings.Repeat("x", 150))
	var a api.Answer
	b.ReportAllocs()
	for b.Loop() {
		var p *api.Problem
		if a, p = svc.Submit(b.Context(), "acme", raw); p != nil {
			b.Fatal(p)
		}
		if _, err := json.Marshal(a); err != nil {
			b.Fatal(err)
		}
	}
}
