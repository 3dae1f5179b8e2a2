// Package load drives a front in a closed loop: every caller has one operation
// under way.
package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opledger/opledger/bench/internal/front"
)

// answerTime bounds one request.
const answerTime = 60 * time.Second

// Config says what to do. Either Duration or Operations ends a run.
type Config struct {
	// URL is the front's.
	URL string
	// Prefix begins every operation id.
	Prefix     string
	Callers    int
	Duration   time.Duration
	Operations int
}

// Ended says how the system said that an operation ended.
type Ended struct {
	// ID is the provider's id of the effect, empty if Err is not.
	ID  string
	Err string
}

// Result is what the callers saw.
type Result struct {
	Spent time.Duration
	// Latency of the good answers, sorted.
	Latency []time.Duration
	// Ends by operation id.
	Ends map[string]Ended
}

// Errors counts bad answers and returns one of them.
func (r Result) Errors() (n int, example string) {
	for _, e := range r.Ends {
		if e.Err != "" {
			n, example = n+1, e.Err
		}
	}
	return n, example
}

// Quantile of the latency, 0 without one.
func (r Result) Quantile(q float64) time.Duration {
	if len(r.Latency) == 0 {
		return 0
	}
	return r.Latency[min(int(q*float64(len(r.Latency))), len(r.Latency)-1)]
}

// Run runs the callers.
func Run(ctx context.Context, cfg Config) Result {
	client := &http.Client{Timeout: answerTime, Transport: &http.Transport{MaxIdleConns: cfg.Callers, MaxIdleConnsPerHost: cfg.Callers}}
	defer client.CloseIdleConnections()
	result := Result{Ends: make(map[string]Ended)}
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		seq atomic.Int64
	)
	began := time.Now()
	for range cfg.Callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := int(seq.Add(1))
				if cfg.Operations > 0 && n > cfg.Operations || cfg.Operations == 0 && time.Since(began) >= cfg.Duration {
					return
				}
				op := fmt.Sprintf("%s-%d", cfg.Prefix, n)
				sent := time.Now()
				id, err := call(ctx, client, cfg.URL, op)
				took := time.Since(sent)
				mu.Lock()
				if err != nil {
					result.Ends[op] = Ended{Err: err.Error()}
				} else {
					result.Ends[op] = Ended{ID: id}
					result.Latency = append(result.Latency, took)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	result.Spent = time.Since(began)
	slices.Sort(result.Latency)
	return result
}

func call(ctx context.Context, client *http.Client, url, op string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/op/"+op, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("load: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("load: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return "", fmt.Errorf("load: %w", err)
	}
	var a front.Answer
	if resp.StatusCode != http.StatusOK || json.Unmarshal(body, &a) != nil || a.ID == "" {
		return "", fmt.Errorf("load: the front said %d: %.300s", resp.StatusCode, body)
	}
	return a.ID, nil
}
