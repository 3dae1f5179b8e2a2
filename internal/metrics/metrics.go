// Package metrics counts what the ledger does. Labels come from closed lists
// (provider, action, status, reason); ids never are labels (I18 and bounded
// memory). Counters count what this process recorded; gauges show the projection
// as this process sees it.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Metrics is the set of all metrics of a process, with its own registry.
type Metrics struct {
	Registry *prometheus.Registry

	events         *prometheus.CounterVec
	intents        *prometheus.CounterVec
	attempts       *prometheus.CounterVec
	confirmations  *prometheus.CounterVec
	rejections     *prometheus.CounterVec
	unknowns       *prometheus.CounterVec
	permits        *prometheus.CounterVec
	reviews        *prometheus.CounterVec
	duplicates     *prometheus.CounterVec
	lookups        *prometheus.CounterVec
	decisions      *prometheus.CounterVec
	lagExceeded    *prometheus.CounterVec
	lag            *prometheus.HistogramVec
	blocked        *prometheus.CounterVec
	claimConflicts prometheus.Counter
	lost           prometheus.Counter
	leaseExpiries  prometheus.Counter
	anomalies      prometheus.Counter
	resolution     *prometheus.HistogramVec
	dispatch       prometheus.Histogram
	unknownTime    prometheus.Histogram
}

// New returns metrics in a fresh registry. version is shown as build info.
func New(version string) *Metrics {
	reg := prometheus.NewRegistry()
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	single := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &Metrics{
		Registry:      reg,
		events:        counter("opledger_events_total", "Events that this process appended, by kind.", "kind"),
		intents:       counter("opledger_intents_total", "Intents handed in, by result: recorded, repeated, or a problem code.", "result"),
		attempts:      counter("opledger_attempts_total", "Attempts that ended, by what the answer said.", "provider", "action", "outcome"),
		confirmations: counter("opledger_confirmations_total", "Operations confirmed, by way.", "provider", "via"),
		rejections:    counter("opledger_rejections_total", "Operations rejected, by way.", "provider", "via"),
		unknowns:      counter("opledger_unknown_outcomes_total", "Outcomes recorded as unknown, by reason.", "provider", "reason"),
		permits:       counter("opledger_permits_total", "Further attempts permitted, by basis.", "provider", "basis"),
		reviews:       counter("opledger_reviews_opened_total", "Reviews opened, by reason.", "provider", "reason"),
		duplicates:    counter("opledger_duplicates_found_total", "Operations found to have more than one outside object.", "provider"),
		lookups:       counter("opledger_lookups_total", "Lookups, by what they showed: a finding, or failed.", "provider", "result"),
		decisions:     counter("opledger_decisions_total", "Decisions that the reconciler recorded, by reason.", "reason"),
		lagExceeded:   counter("opledger_lookup_lag_exceeded_total", "Lookups proven to lag longer than the contract declares.", "provider", "action"),
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "opledger_lookup_lag_seconds", Help: "For how long at the least an object of ours was invisible to complete lookups.",
			Buckets: []float64{1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86400}, NativeHistogramBucketFactor: 1.1,
		}, []string{"provider", "action"}),
		blocked:        counter("opledger_attempts_blocked_total", "Times that attempts of an account were put off for a local reason.", "provider", "reason"),
		claimConflicts: single("opledger_claim_conflicts_total", "Attempts not made because another worker held the claim."),
		lost:           single("opledger_overtaken_decisions_total", "Decisions thrown away because another event came first."),
		leaseExpiries:  single("opledger_lease_expiries_total", "Attempts whose worker never told their outcome."),
		anomalies:      single("opledger_anomalies_total", "Events that contradict what was known before them."),
		resolution: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "opledger_time_to_resolution_seconds", Help: "From the recorded intent to the final event, by way.",
			Buckets: []float64{.005, .05, .5, 1, 5, 30, 120, 600, 3600, 6 * 3600, 86400, 7 * 86400}, NativeHistogramBucketFactor: 1.1,
		}, []string{"via"}),
		dispatch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "opledger_dispatch_latency_seconds", Help: "From the recorded intent to its first attempt.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 60, 600}, NativeHistogramBucketFactor: 1.1,
		}),
		unknownTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "opledger_unknown_duration_seconds", Help: "How long outcomes stayed unknown before they became final.",
			Buckets: []float64{.1, 1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400}, NativeHistogramBucketFactor: 1.1,
		}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "opledger_build_info", Help: "Always 1; the version is a label.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	reg.MustRegister(m.lag, m.resolution, m.dispatch, m.unknownTime, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Appended is the writer's observer.
func (m *Metrics) Appended(before, after operation.State, e events.Event) {
	provider := after.Intent.Provider
	m.events.WithLabelValues(string(e.Data.Kind())).Inc()
	if len(after.Anomalies) > len(before.Anomalies) {
		m.anomalies.Inc()
	}
	switch d := e.Data.(type) {
	case events.AttemptStarted:
		if d.Number == 1 {
			m.dispatch.Observe(seconds(after.UpdatedAt.Sub(after.RecordedAt)))
		}
	case events.OutcomeUnknown:
		m.unknowns.WithLabelValues(provider, string(d.Reason)).Inc()
		if d.Reason == events.UnknownLeaseExpired {
			m.leaseExpiries.Inc()
		}
	case events.RetryPermitted:
		m.permits.WithLabelValues(provider, string(d.Basis)).Inc()
	case events.ReviewOpened:
		m.reviews.WithLabelValues(provider, string(d.Reason)).Inc()
	case events.DuplicateFound:
		m.duplicates.WithLabelValues(provider).Inc()
	case events.ResultConfirmed:
		m.confirmations.WithLabelValues(provider, string(d.Via)).Inc()
		m.final(before, after, d.Via)
	case events.Rejected:
		m.rejections.WithLabelValues(provider, string(d.Via)).Inc()
		m.final(before, after, d.Via)
	}
}

func (m *Metrics) final(before, after operation.State, via events.Via) {
	m.resolution.WithLabelValues(string(via)).Observe(seconds(after.UpdatedAt.Sub(after.RecordedAt)))
	if before.Status == operation.StatusUnknown {
		m.unknownTime.Observe(seconds(after.UpdatedAt.Sub(before.StatusSince)))
	}
}

func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }

// Intent is intake's observer.
func (m *Metrics) Intent(result string) { m.intents.WithLabelValues(result).Inc() }

// Outcome is the executor's observer of attempts.
func (m *Metrics) Outcome(provider, action string, word operation.OutcomeWord) {
	m.attempts.WithLabelValues(provider, action, string(word)).Inc()
}

// ClaimConflict is the executor's observer of lost claims.
func (m *Metrics) ClaimConflict() { m.claimConflicts.Inc() }

// Overtaken is the executor's observer of lost appends.
func (m *Metrics) Overtaken() { m.lost.Inc() }

// Blocked is the executor's observer of attempts that can't be made.
func (m *Metrics) Blocked(provider, reason string) { m.blocked.WithLabelValues(provider, reason).Inc() }

// Looked is the reconciler's observer of lookups.
func (m *Metrics) Looked(provider, result string) { m.lookups.WithLabelValues(provider, result).Inc() }

// Lagged is the reconciler's observer of what lookups are proven to lag.
func (m *Metrics) Lagged(provider, action string, seen, declared time.Duration) {
	m.lag.WithLabelValues(provider, action).Observe(seconds(seen))
	if seen > declared {
		m.lagExceeded.WithLabelValues(provider, action).Inc()
	}
}

// Decided is the reconciler's observer of decisions.
func (m *Metrics) Decided(reason operation.Reason) { m.decisions.WithLabelValues(string(reason)).Inc() }

// Group is what the projection holds of one provider and status.
type Group struct {
	Provider string
	Status   string
	Count    int
	// Oldest is since when the longest of them has had the status.
	Oldest time.Time
}

// Lag is how far a consumer of the journal is behind.
type Lag struct {
	Consumer    string
	Pending     uint64
	AckPending  int
	Redelivered int
}

// Snapshot is what the gauges show; it is taken at every scrape.
type Snapshot struct {
	// Open holds the operations that are not final, and those final ones that
	// a person still has to look at.
	Open []Group
	// Reviews counts open reviews by provider, OldestReview is when the longest
	// of them was opened.
	Reviews      map[string]int
	OldestReview time.Time
	// Undetermined counts unknown operations that nobody can settle.
	Undetermined int
	Lags         []Lag
	// ProjectionLag is how many messages of the log are not applied yet;
	// negative means: not known.
	ProjectionLag int64
	// Waiting counts operations in the memory of each role.
	Waiting map[string]int
	// Plans counts how often each role has planned an operation.
	Plans map[string]uint64
	// Alarm: this process starts no attempt, because the log is damaged.
	Alarm bool
}

// Watch registers the gauges. take is called at every scrape and must be quick.
func (m *Metrics) Watch(take func() Snapshot) {
	m.Registry.MustRegister(&gauges{take: take})
}

type gauges struct{ take func() Snapshot }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector: the gauges are unchecked, since
// what they show depends on the moment.
func (*gauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	s := g.take()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	alarm := 0.0
	if s.Alarm {
		alarm = 1
	}
	gauge(desc("opledger_integrity_alarm", "1 while an integrity alarm keeps this process from starting attempts."), alarm)
	operations := desc("opledger_operations", "Operations that are not final or need a person, by status.", "provider", "status")
	oldest := desc("opledger_oldest_operation_timestamp_seconds", "Since when the longest of them has had the status.", "provider", "status")
	for _, o := range s.Open {
		gauge(operations, float64(o.Count), o.Provider, o.Status)
		if !o.Oldest.IsZero() {
			gauge(oldest, float64(o.Oldest.UnixMilli())/1000, o.Provider, o.Status)
		}
	}
	reviews := desc("opledger_reviews_open", "Open reviews.", "provider")
	for provider, n := range s.Reviews {
		gauge(reviews, float64(n), provider)
	}
	if !s.OldestReview.IsZero() {
		gauge(desc("opledger_oldest_review_timestamp_seconds", "When the longest open review was opened."), float64(s.OldestReview.UnixMilli())/1000)
	}
	gauge(desc("opledger_undetermined", "Unknown operations that a person declared undetermined."), float64(s.Undetermined))
	pending := desc("opledger_consumer_pending", "Messages that the consumer has not been given yet.", "consumer")
	ack := desc("opledger_consumer_ack_pending", "Messages that the consumer has not acknowledged yet.", "consumer")
	redelivered := desc("opledger_consumer_redelivered", "Messages that were given to the consumer more than once and are not acknowledged.", "consumer")
	for _, l := range s.Lags {
		gauge(pending, float64(l.Pending), l.Consumer)
		gauge(ack, float64(l.AckPending), l.Consumer)
		gauge(redelivered, float64(l.Redelivered), l.Consumer)
	}
	if s.ProjectionLag >= 0 {
		gauge(desc("opledger_projection_lag_events", "Messages of the log that the projection has not applied yet."), float64(s.ProjectionLag))
	}
	waiting := desc("opledger_waiting_operations", "Operations in the memory of a role: due later, waiting for their lane, or running.", "role")
	for role, n := range s.Waiting {
		gauge(waiting, float64(n), role)
	}
	plans := desc("opledger_plans_total", "Times that a role has looked at an operation and decided what to do.", "role")
	for role, n := range s.Plans {
		ch <- prometheus.MustNewConstMetric(plans, prometheus.CounterValue, float64(n), role)
	}
}
