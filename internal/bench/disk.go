package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	baselineTime = 400 * time.Millisecond
	// baselinePublishers publish at the same time, like busy callers.
	baselinePublishers = 64
	baselineBytes      = 600
)

// SyncRate measures how often 4 KiB can be appended and synced.
func SyncRate(dir string, d time.Duration) (float64, error) {
	f, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
	block := make([]byte, 4096)
	n, began := 0, time.Now()
	for time.Since(began) < d {
		if _, err := f.Write(block); err != nil {
			return 0, fmt.Errorf("bench: %w", err)
		}
		if err := f.Sync(); err != nil {
			return 0, fmt.Errorf("bench: %w", err)
		}
		n++
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// publishRate measures how many messages a bare server takes that syncs each.
func publishRate(ctx context.Context, dir string, d time.Duration) (float64, error) {
	s, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: dir, SyncAlways: true, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown(); _ = os.RemoveAll(dir) }()
	if !s.ReadyForConnections(10 * time.Second) {
		return 0, fmt.Errorf("bench: the server for the baseline did not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "BASELINE", Subjects: []string{"b.>"}}); err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	body := []byte(rand.Text())
	body = append(body, make([]byte, baselineBytes-len(body))...)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		n    int
		fail error
	)
	began := time.Now()
	for i := range baselinePublishers {
		subject := fmt.Sprintf("b.%d", i)
		wg.Go(func() {
			for time.Since(began) < d {
				_, err := js.Publish(ctx, subject, body)
				mu.Lock()
				if err != nil {
					fail = err
				} else {
					n++
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if fail != nil {
		return 0, fmt.Errorf("bench: %w", fail)
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// usage is what a process and its store have used up at one moment.
type usage struct {
	cpu     time.Duration
	disk    int64
	flushes int64 // of the whole device; -1 where it is not counted
}

func look(pid int, store string) (usage, error) {
	cpu, err := cpuTime(pid)
	if err != nil {
		return usage{}, err
	}
	return usage{cpu: cpu, disk: diskBytes(store), flushes: Flushes(store)}, nil
}

// diskBytes is what a folder holds. What disappears while it is read counts as
// gone.
func diskBytes(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // it is gone
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

// watch samples the memory of a process; the function that it returns ends that
// and returns the most, in MiB.
func watch(pid int) func() float64 {
	done, most := make(chan struct{}), make(chan float64)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		peak := residentMiB(pid)
		for {
			select {
			case <-done:
				most <- max(peak, residentMiB(pid))
				return
			case <-tick.C:
				peak = max(peak, residentMiB(pid))
			}
		}
	}()
	return func() float64 { close(done); return <-most }
}
