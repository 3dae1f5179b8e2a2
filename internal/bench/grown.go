package bench

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Grown says what to measure of a ledger with many operations.
type Grown struct {
	// Binary is the ledger's, Dir where its store is and stays.
	Binary, Dir string
	// Callers have one operation under way each, for Duration.
	Callers  int
	Duration time.Duration
	// Killed also measures the start after a kill, which makes the projection
	// anew.
	Killed bool
	// Fill is called before the start, with the path of the ledger's
	// configuration.
	Fill func(config string) error
}

// Stage is what was measured of one size. Sizes are in MiB, of the process after it
// was ready for a few seconds and after the callers were through.
type Stage struct {
	// StartS is the time until the process was ready, KilledS the same after a kill.
	StartS  float64 `json:"start_s"`
	KilledS float64 `json:"start_after_kill_s,omitempty"`
	RSSMiB  float64 `json:"rss_mib"`
	HeapMiB float64 `json:"heap_mib"`
	// HeapLoadMiB and RSSLoadMiB are those under the callers.
	HeapLoadMiB float64 `json:"heap_loaded_mib"`
	RSSLoadMiB  float64 `json:"rss_loaded_mib"`
	// JournalMiB, ProjectionMiB and StoreMiB are the sizes of the files.
	JournalMiB    float64 `json:"journal_mib"`
	ProjectionMiB float64 `json:"projection_mib"`
	StoreMiB      float64 `json:"store_mib"`
	OpsPerS       float64 `json:"ops_per_s"`
	P50MS         float64 `json:"p50_ms"`
	P99MS         float64 `json:"p99_ms"`
	Errors        int     `json:"errors"`
	// FsyncPerS is the disk's rate of syncs right before.
	FsyncPerS float64 `json:"fsync_per_s"`
}

const (
	// growStart bounds a start, growRest is how long a process rests before its
	// memory is read.
	growStart = 20 * time.Minute
	growRest  = 3 * time.Second
	growStop  = time.Minute
)

// Measure fills the store and measures the ledger on it.
func (g Grown) Measure(ctx context.Context) (Stage, error) {
	var st Stage
	if err := os.MkdirAll(g.Dir, 0o700); err != nil {
		return st, err
	}
	s, err := prepareSite(ctx, g.Binary, g.Dir, isolationVars(0))
	if err != nil {
		return st, err
	}
	defer s.close()
	s.command.Within = growStart
	if err := g.Fill(s.command.Args[len(s.command.Args)-1]); err != nil {
		return st, err
	}
	if st.FsyncPerS, err = SyncRate(g.Dir, baselineTime); err != nil {
		return st, err
	}
	// The consumers read past what was filled in while nobody read it, once.
	if err := s.start(ctx); err != nil {
		return st, err
	}
	if err := s.caughtUp(ctx); err != nil {
		return st, err
	}
	if err := s.ledger.Stop(growStop); err != nil {
		return st, err
	}
	s.kill()
	began := time.Now()
	if err := s.start(ctx); err != nil {
		return st, err
	}
	st.StartS = time.Since(began).Seconds()
	if err := pause(ctx, growRest); err != nil {
		return st, err
	}
	if st.HeapMiB, err = s.heap(ctx); err != nil {
		return st, err
	}
	st.RSSMiB = residentMiB(s.ledger.PID())
	s.calls(ctx, g.Callers, g.Duration/4)
	got := s.calls(ctx, g.Callers, g.Duration)
	slices.Sort(got.latency)
	st.OpsPerS, st.Errors, st.RSSLoadMiB = got.rate(), got.errs, got.rss
	st.P50MS, st.P99MS = ms(quantile(got.latency, 0.50)), ms(quantile(got.latency, 0.99))
	if st.HeapLoadMiB, err = s.heap(ctx); err != nil {
		return st, err
	}
	if g.Killed {
		s.kill()
		began := time.Now()
		if err := s.start(ctx); err != nil {
			return st, err
		}
		st.KilledS = time.Since(began).Seconds()
	}
	err = s.ledger.Stop(growStop)
	store := filepath.Join(g.Dir, "store")
	streams := filepath.Join(store, "nats", "jetstream", "LEDGER", "streams")
	st.JournalMiB = mib(diskBytes(filepath.Join(streams, "OPLEDGER_EVENTS")))
	st.ProjectionMiB = mib(diskBytes(filepath.Join(streams, "KV_OPLEDGER_OPERATIONS")))
	st.StoreMiB = mib(diskBytes(store))
	return st, err
}

// caughtUp waits until the consumers of the log have no message left and nothing
// waits to be planned.
func (s *site) caughtUp(ctx context.Context) error {
	for {
		left, err := s.metric(ctx, func(name string) bool {
			return strings.HasPrefix(name, "opledger_consumer_pending{") || strings.HasPrefix(name, "opledger_waiting_operations{")
		})
		if err != nil || left == 0 {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// heap is what the process's heap holds, in MiB.
func (s *site) heap(ctx context.Context) (float64, error) {
	n, err := s.metric(ctx, func(name string) bool { return name == "go_memstats_heap_alloc_bytes" })
	return n / (1 << 20), err
}
