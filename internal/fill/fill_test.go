package fill_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/fill"
	"github.com/opledger/opledger/internal/node"
	"github.com/opledger/opledger/operation"
)

// A filled store is what the ledger would have left: nothing is found in it, and
// open are those that were left open. It can be filled further.
func TestAFilledStoreIsALedgersStore(t *testing.T) {
	t.Setenv("ACME_OPERATOR_PASSWORD", "a")
	t.Setenv("CRM_TOKEN", "sim-token")
	path, err := fill.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	const finished, open, rounds = 700, 30, 2
	for range rounds {
		report, err := fill.Run(t.Context(), fill.Config{Ledger: cfg, Operations: finished, Open: open})
		if err != nil {
			t.Fatalf("fill: %v", err)
		}
		if want := uint64(3*finished + 8*open/3); report.Messages < want || report.Messages > want+10 {
			t.Errorf("got %d messages, want %d and some checkpoints", report.Messages, want)
		}
		if err := fill.Project(t.Context(), cfg); err != nil {
			t.Fatalf("project: %v", err)
		}
	}
	counts := statuses(t, cfg)
	want := map[operation.Status]int{
		operation.StatusConfirmed: rounds * finished, operation.StatusPending: rounds * open / 3, operation.StatusUnknown: rounds * open * 2 / 3,
	}
	for status, n := range want {
		if counts[status] != n {
			t.Errorf("got %d operations that are %s, want %d", counts[status], status, n)
		}
	}
}

// statuses verifies the ledger and counts its operations by status.
func statuses(t *testing.T, cfg *config.Config) map[operation.Status]int {
	t.Helper()
	log, err := node.OpenLog(context.Background(), cfg, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	verified, err := log.Verify(t.Context(), nil)
	if err != nil || !verified.OK() || verified.Checkpoints < 4 {
		t.Errorf("verify: %+v, error %v", verified, err)
	}
	counts := make(map[operation.Status]int)
	if err := log.Store.Scan(t.Context(), "", func(s operation.State) error { counts[s.Status]++; return nil }); err != nil {
		t.Fatal(err)
	}
	return counts
}
