// Command run writes a long log into a store; see package fill.
//
//	go run ./internal/fill/run --operations 1000000 --open 10000 --dir /tmp/grown
//	ACME_OPERATOR_PASSWORD=a CRM_TOKEN=sim-token opledger serve --config /tmp/grown/opledger.yaml
//
// With --config it fills the store of that configuration instead. A store that
// holds operations already gets more of them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/fill"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sayEvery is how often progress is told.
const sayEvery = 5 * time.Second

func run(ctx context.Context) error {
	var cfg fill.Config
	flag.IntVar(&cfg.Operations, "operations", 100_000, "how many finished operations to add")
	flag.IntVar(&cfg.Open, "open", 0, "how many open operations to add")
	dir := flag.String("dir", "", "folder for a store and its configuration")
	path := flag.String("config", "", "fill the store of this configuration")
	project := flag.Bool("project", true, "make the projection, too, and stop in order")
	flag.Parse()
	var err error
	switch {
	case (*dir == "") == (*path == ""):
		return errors.New("fill: either --dir or --config")
	case *path == "":
		if *path, err = fill.Write(*dir); err != nil {
			return err
		}
	}
	if cfg.Ledger, err = config.Load(*path); err != nil {
		return err
	}
	said := time.Now()
	cfg.Progress = func(done, total int) {
		if time.Since(said) > sayEvery {
			said = time.Now()
			fmt.Fprintf(os.Stderr, "%d of %d operations\n", done, total)
		}
	}
	report, err := fill.Run(ctx, cfg)
	if err != nil {
		return err
	}
	began := time.Now()
	if *project {
		fmt.Fprintln(os.Stderr, "making the projection")
		if err := fill.Project(ctx, cfg.Ledger); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(struct {
		Config string `json:"config"`
		fill.Report
		ProjectionSeconds float64 `json:"projection_seconds,omitempty"`
	}{*path, report, time.Since(began).Seconds()})
}
