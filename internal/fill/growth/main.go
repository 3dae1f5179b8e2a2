// Command growth measures a ledger as its log grows: memory, disk, latency and the
// time of its start, at each size, on one store that is filled in between. It prints
// one JSON object for each size.
//
//	go build -o /tmp/opledger ./cmd/opledger
//	go run ./internal/fill/growth --binary /tmp/opledger --dir /tmp/growth --sizes 10000,100000,1000000,3000000
//
// Three million operations are about 10 GB; the folder is left for the next run, which
// goes on from there.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/opledger/opledger/internal/bench"
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

func run(ctx context.Context) error {
	g := bench.Grown{}
	flag.StringVar(&g.Binary, "binary", "", "the ledger")
	flag.StringVar(&g.Dir, "dir", "", "folder for the store")
	flag.IntVar(&g.Callers, "callers", 16, "callers with one operation under way each")
	flag.DurationVar(&g.Duration, "duration", 5*time.Second, "how long they call")
	flag.BoolVar(&g.Killed, "killed", false, "also start after a kill, which makes the projection anew")
	have := flag.Int("have", 0, "operations that the store holds already")
	sizes := flag.String("sizes", "10000,100000,1000000,3000000", "finished operations at each stage")
	flag.Parse()
	if g.Binary == "" || g.Dir == "" {
		return errors.New("growth: --binary and --dir are required")
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("growth: size %q: %w", text, err)
		}
		var filled float64
		g.Fill = func(path string) error {
			began := time.Now()
			if n > *have {
				if err := add(ctx, path, n-*have); err != nil {
					return err
				}
			}
			filled = time.Since(began).Seconds()
			return nil
		}
		stage, err := g.Measure(ctx)
		if err != nil {
			return err
		}
		*have = max(n, *have)
		if err := json.NewEncoder(os.Stdout).Encode(struct {
			Operations int     `json:"operations"`
			FillS      float64 `json:"fill_s"`
			bench.Stage
		}{n, filled, stage}); err != nil {
			return err
		}
	}
	return nil
}

// add fills the store with n finished operations more.
func add(ctx context.Context, path string, n int) error {
	// The projection is made by a ledger in this process, which wants its secrets;
	// nobody connects to it and it sends nothing.
	for _, name := range []string{"OPLEDGER_BENCH_PASSWORD", "OPLEDGER_BENCH_TOKEN"} {
		if err := os.Setenv(name, "unused"); err != nil {
			return err
		}
	}
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	if _, err := fill.Run(ctx, fill.Config{Ledger: cfg, Operations: n}); err != nil {
		return err
	}
	return fill.Project(ctx, cfg)
}
