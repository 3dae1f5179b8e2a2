package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Plain is the naive way: send, and on any trouble send again. It is what most
// tools and agents do, and the counter-example of the demo.
type Plain struct {
	URL, Token, Title string
	// Key is sent as Idempotency-Key if set; it is the same for every try.
	Key string
	// Tries, Timeout of one, and Pause between two.
	Tries          int
	Timeout, Pause time.Duration
}

// Run sends until an answer is readable, or the tries are used up. It returns
// the id of the object that it believes to have created.
func (p Plain) Run(ctx context.Context) (string, error) {
	var last error
	for n := range max(p.Tries, 1) {
		if n > 0 {
			select {
			case <-time.After(p.Pause):
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		id, retry, err := p.send(ctx)
		if err == nil {
			return id, nil
		}
		last = err
		if !retry {
			break
		}
	}
	return "", fmt.Errorf("demo: plain loop gave up: %w", last)
}

func (p Plain) send(ctx context.Context) (id string, retry bool, err error) {
	body, err := json.Marshal(map[string]string{"title": p.Title})
	if err != nil {
		return "", false, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/v1/tasks", bytes.NewReader(body))
	if err != nil {
		return "", false, err
	}
	// One try is one request: what Go's transport repeats by itself does not
	// count against the loop.
	req.GetBody = nil
	req.Header.Set("Authorization", "Bearer "+p.Token)
	req.Header.Set("Content-Type", "application/json")
	if p.Key != "" {
		req.Header.Set("Idempotency-Key", p.Key)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", true, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", true, err
	}
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
		return "", true, fmt.Errorf("status %d", resp.StatusCode)
	}
	if resp.StatusCode >= 300 {
		return "", false, fmt.Errorf("status %d", resp.StatusCode)
	}
	var task struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(data, &task); err != nil || task.ID == "" {
		return "", true, fmt.Errorf("unreadable answer")
	}
	return task.ID, false, nil
}
