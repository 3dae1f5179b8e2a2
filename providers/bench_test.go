package providers_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// benched is a registry with one keyed provider at an address, and a call of its.
func benched(b *testing.B, url string) (*providers.Registry, providers.Call) {
	b.Helper()
	file, err := providers.Load("sim-keyed")
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv("OPLEDGER_BENCH_TOKEN", "a-long-token")
	token, err := providers.ParseRef("env://OPLEDGER_BENCH_TOKEN")
	if err != nil {
		b.Fatal(err)
	}
	r, err := providers.NewRegistry([]providers.Configured{{File: file, Accounts: map[string]providers.Account{
		"main": {ProviderID: "acct_1", BaseURL: url, AllowLoopback: true, Secrets: map[string]providers.SecretRef{"token": token}},
	}}}, nil, providers.RegistryOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(r.Close)
	return r, providers.Call{Tenant: "acme", Operation: "op-1", Intent: events.IntentRecorded{
		Provider: file.Provider, Account: events.Account{Name: "main", ProviderID: "acct_1"}, Action: "task.create",
		Args:       json.RawMessage(`{"note":"` + strings.Repeat("x", 150) + `","title":"Call Ada"}`),
		ArgsDigest: "sha256-jcs:00", ContractRef: file.Ref(), IdempotencyKey: "0c4b4f2e-3c1c-5a77-9f53-0d3a1c9a5f10",
	}}
}

func BenchmarkBind(b *testing.B) {
	r, c := benched(b, fixedURL)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Bind(c.Intent.Provider, c.Intent.Action, c.Intent.Args); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFor(b *testing.B) {
	r, c := benched(b, fixedURL)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := r.For(b.Context(), c.Intent); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrepare(b *testing.B) {
	r, c := benched(b, fixedURL)
	a, _, err := r.For(b.Context(), c.Intent)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Prepare(c); err != nil {
			b.Fatal(err)
		}
	}
}

// One request to a provider on this machine, from the template to the outcome.
func BenchmarkDo(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"account_id":"acct_1","id":"acct_1"}`))
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"id":"731","title":"Call Ada","account_id":"acct_1"}`))
	}))
	defer srv.Close()
	r, c := benched(b, srv.URL)
	a, _, err := r.For(b.Context(), c.Intent)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		req, err := a.Prepare(c)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := a.Probe(context.WithoutCancel(b.Context()), c); err != nil {
			b.Fatal(err)
		}
		if o := a.Do(b.Context(), req); o.Word != operation.OutcomeSuccess {
			b.Fatal(o)
		}
	}
}
