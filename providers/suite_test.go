package providers_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/providertest"
)

const (
	testKey     = "9f6c1f0e-6a53-5d0c-8f6e-2f8f6f4a1b2c"
	testLabel   = "opl9f6c1f0e6a535d0c8f6e2f8f6f4a1b2c"
	testAccount = "acct_1"
	testToken   = "tok-very-secret"
)

// secretRef puts the token into an environment variable of the test's own.
func secretRef(t testing.TB, value string) providers.SecretRef {
	t.Helper()
	return fileRef(t, t.TempDir()+"/token", value)
}

// testIntent is one operation of a shipped contract.
func testIntent(f *providers.File, args string) events.IntentRecorded {
	return events.IntentRecorded{
		Provider: f.Provider, Account: events.Account{Name: "main", ProviderID: testAccount},
		Action: "task.create", Args: json.RawMessage(args), ArgsDigest: "sha256-jcs:00",
		ContractRef: f.Ref(), IdempotencyKey: testKey,
	}
}

func testCall(f *providers.File, args string) providers.Call {
	return providers.Call{Tenant: "acme", Operation: "op-1", Intent: testIntent(f, args)}
}

func newHTTP(t testing.TB, f *providers.File, baseURL string) *providers.HTTP {
	t.Helper()
	h, err := providers.NewHTTP(providers.HTTPConfig{File: f, Accounts: map[string]providers.Account{
		"main": {BaseURL: baseURL, Secrets: map[string]providers.SecretRef{"token": secretRef(t, testToken)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func load(t testing.TB, name string, vars map[string]string) *providers.File {
	t.Helper()
	f, err := providers.LoadWith(name, vars)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// usualCRM answers as the simulator does in a healthy world.
func usualCRM() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/account", providertest.Answer(200, `{"id":"`+testAccount+`"}`))
	mux.HandleFunc("GET /v1/tasks", providertest.Answer(200, `{"items":[],"next_cursor":""}`))
	mux.HandleFunc("GET /v1/tasks/{id}", providertest.Answer(404, `{"error":{"code":"not_found"}}`))
	mux.HandleFunc("POST /v1/tasks", providertest.Answer(201, `{"id":"T-1"}`))
	mux.HandleFunc("PUT /v1/tasks/{id}", providertest.Answer(201, `{"id":"`+testKey+`"}`))
	return mux
}

// Every shipped contract passes the suite that every adapter must pass.
func TestShippedContractsPassTheSuite(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]providertest.Features{
		"sim-crm":            {ExternalID: "T-1", Lookup: true},
		"sim-keyed":          {ExternalID: "T-1", Lookup: true, Key: true, KeyHeader: "Idempotency-Key"},
		"sim-keyed-nolookup": {ExternalID: "T-1", Key: true, KeyHeader: "Idempotency-Key"},
		"sim-unique":         {ExternalID: testKey, Lookup: true, Key: true},
		"sim-nothing":        {ExternalID: "T-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.Usual, f.Probe, f.OtherArgs = usualCRM(), testAccount, []byte(`{"title":"call later"}`)
			file := load(t, name, nil)
			providertest.Run(t, func(t *testing.T, baseURL string) (providers.Adapter, providers.Call) {
				return newHTTP(t, file, baseURL), testCall(file, `{"title":"call back"}`)
			}, f)
		})
	}
}
