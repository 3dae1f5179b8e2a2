package opledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/node"
	"github.com/opledger/opledger/providers/simulator"
)

// A wish is handed in under an id that the application issued, and waited for.
// Handing the same in again returns what is stored; other words under the same
// id are a conflict.
func Example() {
	url, stop := startLedger()
	defer stop()
	ctx := context.Background()

	nc, err := nats.Connect(url, nats.UserInfo("acme-agent", os.Getenv("ACME_AGENT_PASSWORD")),
		nats.CustomInboxPrefix("_INBOX_acme-agent"))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	c, err := opledger.NewClient(opledger.ClientConfig{Conn: nc, Tenant: "acme"})
	if err != nil {
		log.Fatal(err)
	}
	wish := api.SubmitRequest{
		OperationID: "request-17-task", Provider: "crm", Account: "main", Action: "task.create",
		Args: json.RawMessage(`{"title":"Call Ada"}`),
	}
	a, err := c.SubmitAndWait(ctx, wish, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Status, a.ExternalID)
	fmt.Println(a.Say)

	again, err := c.Submit(ctx, wish)
	fmt.Println(again.Repeated, again.ExternalID, err)

	wish.Args = json.RawMessage(`{"title":"Call Grace"}`)
	_, err = c.Submit(ctx, wish)
	if p, ok := errors.AsType[*api.Problem](err); ok {
		fmt.Println(p.Code, p.Fields)
	}
	// Output:
	// confirmed 731
	// The task 731 was created at crm.
	// true 731 <nil>
	// conflict [args]
}

// startLedger runs a ledger and a provider in this process.
func startLedger() (url string, stop func()) {
	sim, err := simulator.New(simulator.Config{})
	if err != nil {
		log.Fatal(err)
	}
	crm := httptest.NewServer(sim)
	dir, err := os.MkdirTemp("", "opledger-example-")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"ACME_AGENT_PASSWORD", "CRM_TOKEN"} {
		if err := os.Setenv(name, simulator.DefaultToken); err != nil {
			log.Fatal(err)
		}
	}
	cfg, err := config.Parse(filepath.Join(dir, "opledger.yaml"), fmt.Appendf(nil, `
nats: {listen: "127.0.0.1:0"}
http: {listen: none}
tenants: [{id: acme, users: [{name: acme-agent, role: agent, password: "env://ACME_AGENT_PASSWORD"}]}]
providers:
  - contract: builtin:sim-crm
    accounts: [{id: main, provider_id: acct_1, base_url: %q, allow_loopback: true, secrets: {token: "env://CRM_TOKEN"}}]
`, crm.URL))
	if err != nil {
		log.Fatal(err)
	}
	n, err := node.Start(context.Background(), node.Options{Config: cfg, Version: "0.0.0"})
	if err != nil {
		log.Fatal(err)
	}
	return n.URL(), func() {
		if err := n.Stop(); err != nil {
			log.Fatal(err)
		}
		sim.Close()
		crm.Close()
		_ = os.RemoveAll(dir)
	}
}
