// Package stub is a provider that makes effects, keeps a table of them, and can
// lose an answer.
package stub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// LostPrefix begins the ids of operations whose first answer is lost.
	LostPrefix = "lost-"
	// Account is the id of the one account.
	Account = "acct_1"

	maxBody = 64 << 10
)

// Effect is what a lookup shows.
type Effect struct {
	ID        string    `json:"id"`
	Label     string    `json:"label"`
	CreatedAt time.Time `json:"created_at"`
}

// provider is safe for concurrent use.
type provider struct {
	delay time.Duration
	now   func() time.Time

	mu      sync.Mutex
	made    map[string][]string // ids by operation
	labeled map[string][]Effect
	keyed   map[string]stored
}

// stored is the first request with a key, and the effect that it made.
type stored struct{ op, id string }

// New returns a provider that takes delay to answer.
func New(delay time.Duration, now func() time.Time) http.Handler {
	p := &provider{delay: delay, now: now, made: make(map[string][]string), labeled: make(map[string][]Effect), keyed: make(map[string]stored)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effect", p.effect)
	mux.HandleFunc("GET /effects", p.look)
	mux.HandleFunc("GET /table", p.table)
	mux.HandleFunc("GET /account", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]string{"id": Account})
	})
	return mux
}

func (p *provider) effect(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Op    string `json:"op"`
		Label string `json:"label"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(&in); err != nil || in.Op == "" {
		http.Error(w, "a JSON body with op is required", http.StatusBadRequest)
		return
	}
	time.Sleep(p.delay)
	id, first, err := p.make(in.Op, in.Label, r.Header.Get("Idempotency-Key"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	if first && strings.HasPrefix(in.Op, LostPrefix) {
		if h, ok := w.(http.Hijacker); ok {
			if c, _, err := h.Hijack(); err == nil {
				_ = c.Close()
				return
			}
		}
		panic(http.ErrAbortHandler)
	}
	answer(w, map[string]string{"id": id})
}

// make makes an effect, or finds the one that was made with the key before.
// Without a key nothing protects from a second effect.
func (p *provider) make(op, label, key string) (id string, first bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, ok := p.keyed[key]; ok {
		if before.op != op {
			return "", false, errors.New("the key was used for another operation")
		}
		return before.id, false, nil
	}
	id = fmt.Sprintf("ext-%s-%d", op, len(p.made[op])+1)
	p.made[op] = append(p.made[op], id)
	if label != "" {
		p.labeled[label] = append(p.labeled[label], Effect{ID: id, Label: label, CreatedAt: p.now().UTC()})
	}
	if key != "" {
		p.keyed[key] = stored{op: op, id: id}
	}
	return id, len(p.made[op]) == 1, nil
}

func (p *provider) look(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	items := append([]Effect{}, p.labeled[r.URL.Query().Get("label")]...)
	p.mu.Unlock()
	answer(w, map[string]any{"items": items})
}

func (p *provider) table(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	made := maps.Clone(p.made)
	p.mu.Unlock()
	answer(w, made)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a caller that is gone needs no answer
}
