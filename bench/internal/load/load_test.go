package load_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opledger/opledger/bench/internal/load"
)

// Goal: as many operations as asked for, each under its own id; bad answers are
// errors and have no latency.
func TestEveryOperationEndsOnce(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "0") {
			http.Error(w, "no", http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, `{"id":"ext%s"}`, r.URL.Path)
	}))
	defer s.Close()
	r := load.Run(t.Context(), load.Config{URL: s.URL, Prefix: "x", Callers: 7, Operations: 50})
	n, example := r.Errors()
	if len(r.Ends) != 50 || n != 5 || len(r.Latency) != 45 || !strings.Contains(example, "502") {
		t.Fatalf("%d ends, %d errors (%s), %d latencies", len(r.Ends), n, example, len(r.Latency))
	}
	if got := r.Ends["x-7"].ID; got != "ext/op/x-7" {
		t.Errorf("x-7 has the id %q", got)
	}
	if r.Quantile(0.5) <= 0 || r.Quantile(0.5) > r.Quantile(0.99) || r.Quantile(1) != r.Latency[44] {
		t.Errorf("quantiles %s, %s, %s", r.Quantile(0.5), r.Quantile(0.99), r.Quantile(1))
	}
}

// Goal: every caller has one operation under way, no more and no less.
func TestCallersAreUnderWayTogether(t *testing.T) {
	t.Parallel()
	const callers = 5
	var under atomic.Int64
	together := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := under.Add(1); {
		case n == callers:
			close(together)
		case n > callers:
			t.Errorf("%d under way", n)
		}
		select {
		case <-together:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, `{"id":"x"}`)
	}))
	defer s.Close()
	r := load.Run(t.Context(), load.Config{URL: s.URL, Prefix: "x", Callers: callers, Operations: callers})
	if n, example := r.Errors(); n > 0 {
		t.Errorf("%d errors: %s", n, example)
	}
}

func TestARunEndsInTime(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"id":"x"}`) }))
	defer s.Close()
	if r := load.Run(t.Context(), load.Config{URL: s.URL, Prefix: "x", Callers: 2, Duration: 20 * time.Millisecond}); len(r.Latency) == 0 {
		t.Error("no operation")
	}
}
