// Package front is what every system of the comparison has in common: a small
// HTTP front whose answer means that the result is durable, and the call to the
// provider. Only what lies between the two differs.
package front

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// paddingBytes make the arguments of an operation about 200 bytes long.
const paddingBytes = 150

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

// Run carries one operation out. It returns the provider's id of the effect as
// soon as the result is durable.
type Run func(ctx context.Context, op string) (externalID string, err error)

// Answer is the body of a front's and of the provider's good answers.
type Answer struct {
	ID string `json:"id"`
}

// Args are the frozen arguments of an operation.
func Args(op string) ([]byte, error) {
	return json.Marshal(map[string]string{"op": op, "note": strings.Repeat("x", paddingBytes)})
}

// Serve listens on a loopback port, tells of it in a line on out as package
// child wants it, and answers POST /op/{id} until the process ends.
func Serve(ctx context.Context, out io.Writer, run Run) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /op/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxAnswer))
		id, err := run(r.Context(), r.PathValue("id"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Answer{ID: id}) // a caller that is gone needs no answer
	})
	return Listen(ctx, out, mux)
}

// Listen serves a handler on a loopback port and says on out which.
func Listen(ctx context.Context, out io.Writer, h http.Handler) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("front: %w", err)
	}
	if _, err := fmt.Fprintf(out, "{\"http\":\"http://%s\"}\n", ln.Addr()); err != nil {
		return fmt.Errorf("front: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	return s.Serve(ln)
}

// Provider calls the provider.
type Provider struct {
	url    string
	client *http.Client
}

// NewProvider returns the provider at a base URL. Its requests carry no
// idempotency key: with one, Go's transport repeats a POST on its own.
func NewProvider(baseURL string) *Provider {
	return &Provider{
		url:    baseURL + "/effect",
		client: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, DisableCompression: true}},
	}
}

// Effect makes the one effect of an operation and returns its id.
func (p *Provider) Effect(ctx context.Context, op string) (string, error) {
	args, err := Args(op)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(args))
	if err != nil {
		return "", fmt.Errorf("front: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return "", fmt.Errorf("front: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("front: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("front: the provider said %d: %s", resp.StatusCode, body)
	}
	var a Answer
	if err := json.Unmarshal(body, &a); err != nil {
		return "", fmt.Errorf("front: the provider's answer: %w", err)
	}
	return a.ID, nil
}
