// Command hand is what a good engineer writes by hand in an afternoon: one table
// with a unique operation id.
//
//	-mode pg-outbox     rows are claimed and carried out by a pool of workers
//	-mode pg-inline     intent, call and result in the request itself
//	-mode sqlite-batch  the same on SQLite, where writes that wait share a commit
//
// None of them knows what an answer that was lost means: the outbox calls again,
// the others record a failure.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/opledger/opledger/bench/internal/front"
)

// The one table, and the statements that both databases share.
const (
	schema = `CREATE TABLE IF NOT EXISTS operations(
 operation_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, provider TEXT NOT NULL, account TEXT NOT NULL,
 action TEXT NOT NULL, args TEXT NOT NULL, status TEXT NOT NULL, attempts INT NOT NULL DEFAULT 0,
 external_id TEXT, error TEXT, lease_until TIMESTAMP, created_at TIMESTAMP, updated_at TIMESTAMP)`

	insertRunning = `INSERT INTO operations(operation_id,tenant,provider,account,action,args,status,attempts,created_at)
 VALUES($1,'t1','crm','acct','create_task',$2,'running',1,CURRENT_TIMESTAMP) ON CONFLICT(operation_id) DO NOTHING`

	finish = `UPDATE operations SET status=$2, external_id=$3, error=$4, updated_at=CURRENT_TIMESTAMP WHERE operation_id=$1`
)

type config struct {
	mode, pg, file string
	provider       *front.Provider
}

func main() {
	var cfg config
	flag.StringVar(&cfg.mode, "mode", "pg-outbox", "pg-outbox, pg-inline or sqlite-batch")
	flag.StringVar(&cfg.pg, "pg", "", "address of the PostgreSQL database")
	flag.StringVar(&cfg.file, "file", "", "file of the SQLite database")
	provider := flag.String("provider", "", "address of the provider")
	flag.Parse()
	cfg.provider = front.NewProvider(*provider)
	ctx := context.Background()
	run, err := open(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(front.Serve(ctx, os.Stdout, run))
}

func open(ctx context.Context, cfg config) (front.Run, error) {
	switch cfg.mode {
	case "pg-outbox":
		return openOutbox(ctx, cfg)
	case "pg-inline":
		return openInline(ctx, cfg)
	case "sqlite-batch":
		return openBatch(ctx, cfg)
	}
	return nil, fmt.Errorf("hand: no mode %q", cfg.mode)
}
