package natswork_test

import (
	"crypto/rand"
	"encoding/json"
	"os"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/providertest"
)

const account, externalID = "folder-1", "task-1"

// folder is a worker with a provider in memory: the other end of the adapter.
type folder struct {
	nc  *nats.Conn
	sub *nats.Subscription

	mu      sync.Mutex
	account string
	labels  []string
	next    []providertest.Fault
	writes  []string
}

type message struct {
	Verb    string          `json:"verb"`
	Attempt string          `json:"attempt_id"`
	Request json.RawMessage `json:"request"`
}

// work answers one message. Each has a goroutine of its own, as in worker.py.
func (f *folder) work(m *nats.Msg) {
	var in message
	var request struct{ Label string }
	if json.Unmarshal(m.Data, &in) != nil || json.Unmarshal(in.Request, &request) != nil {
		return // nobody can be told
	}
	f.mu.Lock()
	out := map[string]any{"attempt_id": in.Attempt, "account_id": f.account}
	var fault providertest.Fault
	switch in.Verb {
	case "do":
		f.writes = append(f.writes, string(in.Request))
		f.labels = append(f.labels, request.Label)
		if len(f.next) > 0 {
			fault, f.next = f.next[0], f.next[1:]
		}
		out["outcome"], out["external_id"] = "success", externalID
	case "lookup":
		objects := []any{}
		for _, label := range f.labels {
			objects = append(objects, map[string]any{"external_id": externalID, "mark": label})
		}
		out["objects"], out["complete"] = objects, true
	}
	f.mu.Unlock()
	_ = m.Respond([]byte(`{"heartbeat":true}`))
	switch fault.Word {
	case providertest.LoseAnswer:
		return
	case providertest.Garble:
		_ = m.Respond([]byte("<html>\x00"))
		return
	case providertest.Fail:
		out = map[string]any{"attempt_id": in.Attempt, "outcome": "uncertain"}
	case providertest.AnswerLate:
		fault.Arrived <- struct{}{}
		<-fault.Release
	}
	answer, err := json.Marshal(out)
	if err != nil {
		return
	}
	_ = m.Respond(answer) // the ledger may be gone
}

// Next implements providertest.End.
func (f *folder) Next(fault providertest.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = append(f.next, fault)
}

// Writes implements providertest.End.
func (f *folder) Writes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.writes...)
}

// Belong implements providertest.End.
func (f *folder) Belong(account string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.account = account
}

// Stop implements providertest.End.
func (f *folder) Stop() {
	_ = f.sub.Unsubscribe()
	_ = f.nc.Flush()
}

// A remote contract over NATS passes the suite that every adapter must pass.
func TestRemoteContractsPassTheSuite(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../examples/python/files.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file, err := providers.Parse("files.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	srv := natstest.Server(t)
	providertest.Conform(t, func(t *testing.T) providertest.Bench {
		// The tests run side by side: each has a bus of its own.
		subjects := events.Subjects{Prefix: rand.Text()}
		f := &folder{nc: natstest.Connect(t, srv), account: account}
		var err error
		f.sub, err = f.nc.QueueSubscribe(subjects.Work("files", ">"), "workers", func(m *nats.Msg) { go f.work(m) })
		if err != nil {
			t.Fatal(err)
		}
		if err := f.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		line := newLineAt(t, natstest.Connect(t, srv), subjects)
		remote, err := providers.NewRemote(providers.RemoteConfig{File: file, Line: line, Accounts: map[string]providers.Account{"main": {ProviderID: account}}})
		if err != nil {
			t.Fatal(err)
		}
		return providertest.Bench{Adapter: remote, End: f, Call: providers.Call{
			Tenant: "acme", Operation: "op-1", Intent: events.IntentRecorded{
				Provider: "files", Account: events.Account{Name: "main", ProviderID: account}, Action: "task.create",
				Args: json.RawMessage(`{"title":"call back"}`), ContractRef: file.Ref(),
				IdempotencyKey: "9f6c1f0e-6a53-5d0c-8f6e-2f8f6f4a1b2c",
			},
		}}
	}, providertest.Features{
		ExternalID: externalID, OtherArgs: []byte(`{"title":"call later"}`), Probe: account, Lookup: true, Remembers: true,
	})
}
