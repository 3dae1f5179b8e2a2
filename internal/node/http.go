package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/metrics"
	"github.com/opledger/opledger/projections"
)

// httpServer serves metrics and health.
type httpServer struct {
	srv *http.Server
	url string
	end chan error
}

const (
	httpTimeout   = 10 * time.Second
	scrapeTimeout = 2 * time.Second
)

func (n *Node) serveHTTP(ctx context.Context) error {
	if n.cfg.HTTP.Listen == "none" {
		return nil
	}
	n.metrics.Watch(n.snapshot)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.metrics.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), scrapeTimeout)
		defer cancel()
		if err := n.Ready(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	if n.cfg.HTTP.Profile {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", n.cfg.HTTP.Listen)
	if err != nil {
		return fmt.Errorf("node: http.listen: %w", err)
	}
	h := &httpServer{
		srv: &http.Server{
			Handler: mux, ReadHeaderTimeout: httpTimeout, ReadTimeout: httpTimeout,
			WriteTimeout: httpTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		},
		url: "http://" + ln.Addr().String(), end: make(chan error, 1),
	}
	go func() {
		h.end <- h.srv.Serve(ln)
		close(h.end) // a second stop finds it ended
	}()
	n.http = h
	return nil
}

func (h *httpServer) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := h.srv.Shutdown(ctx); err != nil {
		return errors.Join(err, h.srv.Close())
	}
	if err := <-h.end; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// snapshot is what the gauges show.
func (n *Node) snapshot() metrics.Snapshot {
	s := metrics.Snapshot{Reviews: make(map[string]int), Waiting: make(map[string]int), Plans: make(map[string]uint64), ProjectionLag: -1, Alarm: n.guard.Raised()}
	groups := make(map[projections.CountKey]metrics.Group)
	n.index.Each(func(o projections.Open) bool {
		k := projections.CountKey{Provider: o.Provider, Status: o.Status}
		g := groups[k]
		g.Provider, g.Status = o.Provider, string(o.Status)
		g.Count++
		// Of what is undetermined nobody expects news, and what waits for an
		// approval waits for a person: their age alarms nobody.
		if !o.Undetermined && o.NextAction != events.NextApproval && (g.Oldest.IsZero() || o.StatusSince.Before(g.Oldest)) {
			g.Oldest = o.StatusSince
		}
		groups[k] = g
		if o.ReviewReason != "" {
			s.Reviews[o.Provider]++
			if s.OldestReview.IsZero() || o.ReviewSince.Before(s.OldestReview) {
				s.OldestReview = o.ReviewSince
			}
		}
		if o.Undetermined {
			s.Undetermined++
		}
		return true
	})
	s.Open = slices.Collect(maps.Values(groups))
	if n.executors != nil {
		s.Waiting[RoleExecutor], s.Plans[RoleExecutor] = n.executors.Waiting(), n.executors.Plans()
	}
	if n.looks != nil {
		s.Waiting[RoleReconciler], s.Plans[RoleReconciler] = n.looks.Waiting(), n.looks.Plans()
	}
	ctx, cancel := context.WithTimeout(n.last.ctx, scrapeTimeout)
	defer cancel()
	if n.plays(RoleProjector) {
		if lag, err := n.projector.Lag(ctx); err == nil {
			s.ProjectionLag = int64(lag)
		}
	}
	consumers := map[string]bool{n.cfg.Executor.Consumer: n.plays(RoleExecutor), RoleReconciler: n.plays(RoleReconciler)}
	for name, mine := range consumers {
		if !mine {
			continue
		}
		if l, err := n.journal.Lag(ctx, name); err == nil {
			s.Lags = append(s.Lags, metrics.Lag{Consumer: name, Pending: l.Pending, AckPending: l.AckPending, Redelivered: l.Redelivered})
		}
	}
	if n.plays(RoleAPI) {
		for _, t := range n.cfg.Tenants {
			if l, err := n.journal.InboxLag(ctx, t.ID); err == nil {
				s.Lags = append(s.Lags, metrics.Lag{Consumer: "inbox_" + t.ID, Pending: l.Pending, AckPending: l.AckPending, Redelivered: l.Redelivered})
			}
		}
	}
	return s
}
