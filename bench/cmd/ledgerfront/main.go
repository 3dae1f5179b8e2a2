// Command ledgerfront puts the front of the comparison before an opledger serve
// process: POST /op/{id} hands a wish in and answers when it is confirmed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/bench/internal/front"
	"github.com/opledger/opledger/operation"
)

// answerTime bounds the wait for one operation.
const answerTime = 50 * time.Second

func main() {
	var cfg config
	flag.StringVar(&cfg.url, "nats", "", "address of the ledger's server")
	flag.StringVar(&cfg.user, "user", "front", "user on the bus; the password is in OPLEDGER_FRONT_PASSWORD")
	flag.StringVar(&cfg.tenant, "tenant", "compare", "tenant")
	flag.StringVar(&cfg.action, "action", "effect.make", "action of the provider's contract")
	flag.IntVar(&cfg.conns, "conns", 4, "connections that the requests share")
	flag.Parse()
	cfg.password = os.Getenv("OPLEDGER_FRONT_PASSWORD")
	run, err := connect(cfg)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(front.Serve(context.Background(), os.Stdout, run))
}

type config struct {
	url, user, password, tenant, action string
	conns                               int
}

func connect(cfg config) (front.Run, error) {
	if cfg.conns < 1 {
		return nil, errors.New("ledgerfront: at least one connection is required")
	}
	clients := make([]*opledger.Client, cfg.conns)
	for i := range clients {
		nc, err := nats.Connect(cfg.url, nats.UserInfo(cfg.user, cfg.password), nats.CustomInboxPrefix("_INBOX_"+cfg.user))
		if err != nil {
			return nil, fmt.Errorf("ledgerfront: connect: %w", err)
		}
		if clients[i], err = opledger.NewClient(opledger.ClientConfig{Conn: nc, Tenant: cfg.tenant}); err != nil {
			return nil, err
		}
	}
	var next atomic.Uint64
	return func(ctx context.Context, op string) (string, error) {
		args, err := front.Args(op)
		if err != nil {
			return "", err
		}
		c := clients[next.Add(1)%uint64(len(clients))]
		a, err := c.SubmitAndWait(ctx, api.SubmitRequest{OperationID: op, Provider: "stub", Account: "main", Action: cfg.action, Args: args}, answerTime)
		if err != nil {
			return "", err
		}
		if a.Status != operation.StatusConfirmed {
			return "", fmt.Errorf("ledgerfront: %s is %s", op, a.Status)
		}
		return a.ExternalID, nil
	}, nil
}
