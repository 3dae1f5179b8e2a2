// Command run kills the ledger: see package kills.
//
//	go run ./internal/kills/run --kills 1000 --json
//	go run ./internal/kills/run --cluster --rounds 30 --json
//
// The exit code is 0 only if nothing was found.
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

	"github.com/opledger/opledger/internal/kills"
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

var errFound = errors.New("kills: something was found; the folders are kept")

func run(ctx context.Context) error {
	var cfg kills.Config
	var asJSON, cluster bool
	var rounds int
	flag.IntVar(&cfg.Kills, "kills", 1000, "how many kills")
	flag.IntVar(&cfg.Round, "round", 50, "kills of one world, before it is audited and a new one begins")
	flag.IntVar(&cfg.Parallel, "parallel", 2, "worlds at the same time")
	flag.IntVar(&cfg.Rate, "rate", 20, "intents per second of each world")
	flag.Uint64Var(&cfg.Seed, "seed", 1, "who is killed and when, what the load and the providers do")
	flag.StringVar(&cfg.Dir, "dir", "", "folder for the worlds (default: a temporary one)")
	flag.BoolVar(&cfg.Keep, "keep", false, "keep every world's folder")
	flag.BoolVar(&cluster, "cluster", false, "trouble a cluster of three servers instead")
	flag.IntVar(&rounds, "rounds", 24, "how many troubles, with --cluster")
	flag.BoolVar(&asJSON, "json", false, "print the report as JSON")
	flag.Parse()
	cfg.Log = os.Stderr
	var err error
	if cfg.Dir == "" {
		if cfg.Dir, err = os.MkdirTemp("", "opledger-kills-"); err != nil {
			return err
		}
	}
	if cfg.Binaries, err = kills.Build(ctx, cfg.Dir); err != nil {
		return err
	}
	if cluster {
		r, err := kills.RunCluster(ctx, kills.ClusterConfig{
			Binaries: cfg.Binaries, Dir: cfg.Dir, Seed: cfg.Seed, Rounds: rounds, Rate: cfg.Rate, Keep: cfg.Keep, Log: cfg.Log,
		})
		return errors.Join(err, show(r, r.Right(), asJSON))
	}
	r, err := kills.Run(ctx, cfg)
	return errors.Join(err, show(r, r.Right(), asJSON))
}

// show prints a report; the error says that something was found.
func show(r any, right, asJSON bool) error {
	if asJSON {
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, string(data))
	} else {
		fmt.Fprintf(os.Stdout, "%+v\n", r)
	}
	if !right {
		return errFound
	}
	return nil
}
