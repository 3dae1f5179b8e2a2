package trial_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/providers/simulator"
)

// try tries a shipped contract against its preset, bent in one way.
func try(t *testing.T, contract string, settings func(*simulator.Settings), wrap func(func() time.Time, http.Handler) http.Handler) []trial.Promise {
	t.Helper()
	f, s, err := trial.Shipped(contract)
	if err != nil {
		t.Fatal(err)
	}
	if settings != nil {
		settings(&s)
	}
	out, err := trial.Try(t.Context(), f, "task.create", json.RawMessage(`{"title":"call back"}`), trial.Target{Settings: s, Wrap: wrap})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func broken(promises []trial.Promise) (out []string) {
	for _, p := range promises {
		if p.Verdict == trial.Lie {
			out = append(out, p.Name)
		}
	}
	return out
}

func text(promises []trial.Promise) string {
	var b strings.Builder
	for _, p := range promises {
		b.WriteString(p.Name + " | " + p.Declared + " | " + p.Observed + " | " + string(p.Verdict) + "\n")
	}
	return b.String()
}

// Every shipped contract keeps every promise that can be tried, and more than
// half of them can.
func TestShippedContractsKeepTheirPromises(t *testing.T) {
	t.Parallel()
	columns, err := trial.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range columns {
		got, err := trial.Try(t.Context(), c.File, c.Action, c.Args, trial.Target{Settings: c.Settings})
		if err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, p := range got {
			if p.Verdict == trial.Kept {
				kept++
			}
		}
		if lies := broken(got); len(lies) > 0 || kept*2 < len(got) {
			t.Errorf("%s: got lies %q, %d of %d kept\n%s", c.File.Name, lies, kept, len(got), text(got))
		}
	}
}

// replaying runs a handler and keeps its answer.
func replaying(next http.Handler, r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	return rec
}

// answer writes a kept answer with another status or body.
func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // the client may be gone
}

// wrapped makes a wrapper of a plain function.
func wrapped(fn func(w http.ResponseWriter, r *http.Request, next http.Handler)) func(func() time.Time, http.Handler) http.Handler {
	return func(_ func() time.Time, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fn(w, r, next) })
	}
}

func withBody(r *http.Request, body string) *http.Request {
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return r
}

// A provider that breaks one promise is found out, and exactly that promise is
// named.
func TestALieIsNamed(t *testing.T) {
	t.Parallel()
	const creates = http.MethodPost
	for name, c := range map[string]struct {
		contract string
		settings func(*simulator.Settings)
		wrap     func(func() time.Time, http.Handler) http.Handler
		promise  string
	}{
		"the key is forgotten two hours early": {
			contract: "sim-keyed", promise: trial.PromiseRetention,
			settings: func(s *simulator.Settings) { s.KeyForgetEarly = simulator.Duration(2 * time.Hour) },
		},
		"the key is ignored": {
			contract: "sim-keyed", promise: trial.PromiseSameKey,
			settings: func(s *simulator.Settings) { s.Keys = false },
		},
		"the key is ignored, without lookup": {
			contract: "sim-keyed-nolookup", promise: trial.PromiseSameKey,
			settings: func(s *simulator.Settings) { s.Keys = false },
		},
		"other content is answered with the old result": {
			contract: "sim-keyed", promise: trial.PromiseMismatch,
			settings: func(s *simulator.Settings) { s.Mismatch = simulator.MismatchReplay },
		},
		"two requests with one key both run": {
			contract: "sim-keyed", promise: trial.PromiseConcurrent,
			settings: func(s *simulator.Settings) { s.Concurrent = simulator.ConcurrentSecond },
		},
		"the id is guarded loosely": {
			contract: "sim-unique", promise: trial.PromiseConcurrent,
			settings: func(s *simulator.Settings) { s.UniqueID = simulator.UniqueWeak },
		},
		"the index lags for a minute": {
			contract: "sim-crm", promise: trial.PromiseLookup,
			settings: func(s *simulator.Settings) { s.IndexLag = simulator.Duration(time.Minute) },
		},
		"a direct read lags": {
			contract: "sim-unique", promise: trial.PromiseLookup,
			settings: func(s *simulator.Settings) { s.ReadLag = simulator.Duration(30 * time.Second) },
		},
		"there is no search": {
			contract: "sim-crm", promise: trial.PromiseLookup,
			settings: func(s *simulator.Settings) { s.SearchOff = true },
		},
		"the probe names another account": {
			contract: "sim-crm", promise: trial.PromiseAccount,
			wrap: wrapped(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.URL.Path == "/v1/account" {
					answer(w, 200, `{"id":"acct_2"}`)
					return
				}
				next.ServeHTTP(w, r)
			}),
		},
		"success without an id": {
			contract: "sim-keyed", promise: trial.PromiseSuccess,
			wrap: wrapped(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method != creates {
					next.ServeHTTP(w, r)
				} else if rec := replaying(next, r); rec.Code == 201 {
					answer(w, 201, `{"ok":true}`)
				} else {
					answer(w, rec.Code, rec.Body.String())
				}
			}),
		},
		"success with the id of something else": {
			contract: "sim-nothing", promise: trial.PromiseSuccess,
			wrap: wrapped(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method != creates {
					next.ServeHTTP(w, r)
				} else if rec := replaying(next, r); rec.Code == 201 {
					answer(w, 201, `{"id":"99"}`)
				} else {
					answer(w, rec.Code, rec.Body.String())
				}
			}),
		},
		"a direct read flickers": {
			contract: "sim-unique", promise: trial.PromiseAbsence,
			wrap: func(_ func() time.Time, next http.Handler) http.Handler {
				var mu sync.Mutex
				reads := 0
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/v1/tasks/") {
						reads++
					}
					lie := reads == 2
					mu.Unlock()
					if lie {
						answer(w, 404, `{"error":{"code":"not_found"}}`)
						return
					}
					next.ServeHTTP(w, r)
				})
			},
		},
		"the search hides its further pages": {
			contract: "sim-crm", promise: trial.PromisePages,
			wrap: wrapped(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method != http.MethodGet || r.URL.Path != "/v1/tasks" {
					next.ServeHTTP(w, r)
					return
				}
				rec := replaying(next, r)
				var page map[string]any
				if err := json.Unmarshal(rec.Body.Bytes(), &page); err != nil {
					t.Error(err)
				}
				page["next_cursor"] = ""
				body, err := json.Marshal(page)
				if err != nil {
					t.Error(err)
				}
				answer(w, rec.Code, string(body))
			}),
		},
		"any credential will do": {
			contract: "sim-keyed", promise: trial.PromiseUnauthorized,
			wrap: wrapped(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method == creates {
					r.Header.Set("Authorization", "Bearer "+simulator.DefaultToken)
				}
				next.ServeHTTP(w, r)
			}),
		},
		"a refused request is carried out": {
			contract: "sim-crm", promise: trial.PromiseRefusal,
			wrap: wrapped(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				rec := replaying(next, withBody(r, string(body)))
				if rec.Code == 422 {
					replaying(next, withBody(r, `{"title":"made all the same"}`))
				}
				answer(w, rec.Code, rec.Body.String())
			}),
		},
		"a request that was turned away is carried out": {
			contract: "sim-nothing", promise: trial.PromiseNotApplied,
			wrap: wrapped(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				rec := replaying(next, withBody(r, string(body)))
				if rec.Code == 429 {
					replaying(next, withBody(r, string(body)))
				}
				answer(w, rec.Code, rec.Body.String())
			}),
		},
		"a request lands an hour after its connection broke": {
			contract: "sim-keyed", promise: trial.PromiseLate, wrap: anHourLate,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := try(t, c.contract, c.settings, c.wrap)
			if lies := broken(got); !slices.Equal(lies, []string{c.promise}) {
				t.Errorf("got lies %q, want only %q\n%s", lies, c.promise, text(got))
			}
		})
	}
}

// anHourLate carries out a write whose connection is gone an hour later. Only
// such a write has no connection that could be taken over.
func anHourLate(now func() time.Time, next http.Handler) http.Handler {
	var mu sync.Mutex
	var due time.Time
	var waiting *http.Request
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		late := waiting
		if late != nil && now().Before(due) {
			late = nil
		} else {
			waiting = nil
		}
		if _, connected := w.(http.Hijacker); !connected && r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body) // a body in memory does not fail
			waiting, due = withBody(r, string(body)), now().Add(time.Hour)
			mu.Unlock()
			return
		}
		mu.Unlock()
		if late != nil {
			replaying(next, late)
		}
		next.ServeHTTP(w, r)
	})
}

// What the core does after each outcome is asked of the core itself.
func TestWhatFollowsIsAskedOfTheCore(t *testing.T) {
	t.Parallel()
	for contract, want := range map[string]map[string]string{
		"sim-keyed-nolookup": {"success": "confirmed", "rejected": "rejected", "uncertain": "sent again at +21s (key_retention)", "not_sent": "sent again at +1s"},
		"sim-nothing":        {"uncertain": "a person is asked at +0s (no_evidence_possible)"},
		"sim-crm":            {"uncertain": "looked for at +2s, +12s, +42s, +2m42s, +12m42s, +1h12m42s, then a person is asked at +1h12m42s (evidence_exhausted)"},
	} {
		f, _, err := trial.Shipped(contract)
		if err != nil {
			t.Fatal(err)
		}
		c, _ := f.Contract("task.create")
		follows, err := trial.Follows(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range follows {
			if w, ok := want[string(f.Outcome)]; ok && f.Then != w {
				t.Errorf("%s, %s: got %q, want %q", contract, f.Outcome, f.Then, w)
			}
		}
	}
}
