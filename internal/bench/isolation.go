package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opledger/opledger/providers/simulator"
)

// Case names what happens beside the callers of an isolation run.
type Case string

// The cases.
const (
	// CaseStuck: another account of the same provider never answers, and many
	// operations wait for it.
	CaseStuck Case = "stuck"
	// CaseFlood: another tenant hands in as much as it can, by requests that are
	// waited for, by requests that are not, and by its durable inbox.
	CaseFlood Case = "flood"
	// CaseUnknown: another account loses all its answers for a while, so that
	// many outcomes are unknown at once.
	CaseUnknown Case = "unknown"
)

// Cases lists every case.
func Cases() []Case { return []Case{CaseStuck, CaseFlood, CaseUnknown} }

// Isolation says what to measure: what callers lose by what happens beside them.
type Isolation struct {
	// Binary is the ledger's, Dir where stores and logs go.
	Binary, Dir string
	Cases       []Case
	// Callers have one operation under way each; their provider answers at once.
	Callers int
	// Waiting is how many operations wait, or are unknown, beside them.
	Waiting int
	// Segment is one measurement, Rounds how many of each kind follow each other
	// in turn.
	Segment time.Duration
	Rounds  int
	// Rate is the limit of requests per second in the contract of the account
	// that loses its answers.
	Rate int
}

// Check says what is wrong with a configuration.
func (c Isolation) Check() error {
	switch {
	case len(c.Cases) == 0:
		return errors.New("bench: no case")
	case c.Callers < 1 || c.Callers > MaxCallers:
		return fmt.Errorf("bench: 1 to %d callers", MaxCallers)
	case c.Waiting < 1 || c.Waiting > 100_000:
		return errors.New("bench: 1 to 100000 operations wait")
	case c.Segment <= 0 || c.Segment > MaxDuration || c.Rounds < 1 || c.Rounds > 100:
		return fmt.Errorf("bench: 1 to 100 rounds of up to %s", MaxDuration)
	case c.Rate < 1:
		return errors.New("bench: the rate is at least 1 per second")
	}
	for _, k := range c.Cases {
		if !slices.Contains(Cases(), k) {
			return fmt.Errorf("bench: no case %q; there are %v", k, Cases())
		}
	}
	return nil
}

// Beside is what callers keep beside a case. Ratios are taken over all rounds.
type Beside struct {
	Case Case `json:"case"`
	// What happens beside the callers, in words.
	What string `json:"what"`

	OpsPerSAlone float64 `json:"ops_per_s_alone"`
	OpsPerS      float64 `json:"ops_per_s"`
	RateRatio    float64 `json:"rate_ratio"`
	P50MSAlone   float64 `json:"p50_ms_alone"`
	P50MS        float64 `json:"p50_ms"`
	P99MSAlone   float64 `json:"p99_ms_alone"`
	P99MS        float64 `json:"p99_ms"`
	P99Ratio     float64 `json:"p99_ratio"`
	// RSSMiBAlone and RSSMiB are the most memory that the ledger's process had.
	RSSMiBAlone float64 `json:"rss_mib_alone"`
	RSSMiB      float64 `json:"rss_mib"`
	// IdleCPU is how many cores the ledger with the waiting operations used while
	// nothing but those was there.
	IdleCPU float64 `json:"idle_cores,omitempty"`
	// Taken is what the ledger acknowledged of the flood per second, Refused what
	// it refused, Errors are the callers' operations without an answer.
	Taken   float64 `json:"flood_taken_per_s,omitempty"`
	Refused int     `json:"flood_refused,omitempty"`
	Errors  int     `json:"errors"`

	// Unknown outcomes, all due at once, were settled within Seconds of the start of
	// the process.
	Unknown int     `json:"unknown,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	// Limit is the contract's, RequestsPerS the provider's own count over that
	// time, and MostPerS in the busiest second.
	Limit        int     `json:"limit_per_s,omitempty"`
	RequestsPerS float64 `json:"requests_per_s,omitempty"`
	MostPerS     int     `json:"most_requests_per_s,omitempty"`
	// Order is the rank correlation between the end of an operation's retry
	// window and its first look: 1 is the shortest window first.
	Order float64 `json:"order,omitempty"`
	// Duplicates are operations with several objects at the provider.
	Duplicates int `json:"duplicates"`
	// Unsettled were not final when the time was over.
	Unsettled int `json:"unsettled"`
}

// Right reports whether everything ended as it must; that says nothing of speed.
func (b Beside) Right() bool { return b.Duplicates+b.Unsettled+b.Errors == 0 }

const (
	callerTenant = "calm"
	crowdTenant  = "crowd"
	goodAccount  = "main"
	otherAccount = "other"
	// crowdSubmitters hand in at the same time.
	crowdSubmitters = 20
	// pourRate is how many requests a second are sent without waiting for answers:
	// several times what a ledger takes, and not so many that sending them is what
	// the machine does.
	pourRate = 5000
)

// RunIsolation measures every case and tells of each row.
func RunIsolation(ctx context.Context, cfg Isolation, told func(Beside) error) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	for _, k := range cfg.Cases {
		var err error
		switch k {
		case CaseStuck:
			err = cfg.stuck(ctx, told)
		case CaseFlood:
			for _, f := range floods() {
				if err = cfg.flood(ctx, f, told); err != nil {
					break
				}
			}
		case CaseUnknown:
			err = cfg.unknown(ctx, told)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c Isolation) dir(name string) (string, error) {
	dir := filepath.Join(c.Dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("bench: %w", err)
	}
	return dir, nil
}

// pair collects the two sides of a comparison.
type pair struct{ alone, beside sample }

func (p pair) row(k Case, what string) Beside {
	slices.Sort(p.alone.latency)
	slices.Sort(p.beside.latency)
	b := Beside{
		Case: k, What: what, Errors: p.alone.errs + p.beside.errs,
		OpsPerSAlone: p.alone.rate(), OpsPerS: p.beside.rate(),
		P50MSAlone: ms(quantile(p.alone.latency, 0.50)), P50MS: ms(quantile(p.beside.latency, 0.50)),
		P99MSAlone: ms(quantile(p.alone.latency, 0.99)), P99MS: ms(quantile(p.beside.latency, 0.99)),
		RSSMiBAlone: p.alone.rss, RSSMiB: p.beside.rss,
	}
	b.RateRatio, b.P99Ratio = ratio(b.OpsPerS, b.OpsPerSAlone), ratio(b.P99MS, b.P99MSAlone)
	return b
}

// sample is what callers saw in one or more segments.
type sample struct {
	latency []time.Duration
	spent   time.Duration
	errs    int
	rss     float64
}

func (s *sample) rate() float64 { return ratio(float64(len(s.latency)), s.spent.Seconds()) }

func (s *sample) add(o sample) {
	s.latency = append(s.latency, o.latency...)
	s.spent += o.spent
	s.errs += o.errs
	s.rss = max(s.rss, o.rss)
}

// stuck runs two ledgers, one of them with operations that wait for an account
// that never answers, and puts the callers to each in turn.
func (c Isolation) stuck(ctx context.Context, told func(Beside) error) error {
	var sites [2]*site
	for i, name := range []string{"alone", "stuck"} {
		dir, err := c.dir(name)
		if err != nil {
			return err
		}
		if sites[i], err = newSite(ctx, c.Binary, dir, isolationVars(0)); err != nil {
			return err
		}
		defer sites[i].close()
	}
	alone, stuck := sites[0], sites[1]
	if err := stuck.rule(ctx, otherAccount, simulator.Rule{PathPrefix: "/v1/tasks", Do: simulator.HalfOpen}); err != nil {
		return err
	}
	for _, s := range sites {
		s.calls(ctx, c.Callers, c.Segment/2) // warm
	}
	if err := stuck.fill(ctx, callerTenant, c.Waiting, nil); err != nil {
		return err
	}
	var p pair
	idle, spent := time.Duration(0), time.Duration(0)
	for range c.Rounds {
		before, err := cpuTime(stuck.ledger.PID())
		if err != nil {
			return err
		}
		one := alone.calls(ctx, c.Callers, c.Segment)
		after, err := cpuTime(stuck.ledger.PID())
		if err != nil {
			return err
		}
		idle, spent = idle+after-before, spent+one.spent
		p.alone.add(one)
		p.beside.add(stuck.calls(ctx, c.Callers, c.Segment))
	}
	b := p.row(CaseStuck, fmt.Sprintf("an account that never answers, %d operations wait for it", c.Waiting))
	b.IdleCPU = ratio(idle.Seconds(), spent.Seconds())
	var err error
	if b.Duplicates, err = stuck.duplicates(ctx); err != nil {
		return err
	}
	return told(b)
}

// flooding is a way to hand in as much as one can.
type flooding struct {
	name, what string
	run        func(ctx context.Context, s *site, f *flooded)
}

// flooded counts what the ledger said.
type flooded struct{ taken, refused atomic.Int64 }

func floods() []flooding {
	return []flooding{
		{"submits", fmt.Sprintf("a tenant with %d submitters that wait for nothing but the answer", crowdSubmitters), floodSubmits},
		{"requests", fmt.Sprintf("a tenant that sends %d requests a second, whatever is answered", pourRate), floodRequests},
		{"inbox", "a tenant that publishes into its durable inbox, 256 not acknowledged at once", floodInbox},
		{"all", "all three at once", func(ctx context.Context, s *site, f *flooded) {
			var wg sync.WaitGroup
			for _, run := range []func(context.Context, *site, *flooded){floodSubmits, floodRequests, floodInbox} {
				wg.Go(func() { run(ctx, s, f) })
			}
			wg.Wait()
		}},
	}
}

// flood measures each round on a fresh store: first without, then under the
// flood, since what a flood leaves takes long to work off.
func (c Isolation) flood(ctx context.Context, kind flooding, told func(Beside) error) error {
	var (
		p     pair
		f     flooded
		spent time.Duration
		twice int
	)
	for i := range c.Rounds {
		dir, err := c.dir(fmt.Sprintf("flood-%s-%d", kind.name, i))
		if err != nil {
			return err
		}
		err = func() error {
			s, err := newSite(ctx, c.Binary, dir, isolationVars(0))
			if err != nil {
				return err
			}
			defer s.close()
			s.calls(ctx, c.Callers, c.Segment/2)
			p.alone.add(s.calls(ctx, c.Callers, c.Segment))
			flood, stop := context.WithCancel(ctx)
			began := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() { kind.run(flood, s, &f) })
			s.calls(ctx, c.Callers, c.Segment/2)
			p.beside.add(s.calls(ctx, c.Callers, c.Segment))
			stop()
			wg.Wait()
			spent += time.Since(began)
			n, err := s.duplicates(ctx)
			twice += n
			return err
		}()
		if err != nil {
			return err
		}
	}
	b := p.row(CaseFlood, kind.what)
	b.Taken, b.Refused, b.Duplicates = ratio(float64(f.taken.Load()), spent.Seconds()), int(f.refused.Load()), twice
	return told(b)
}

// unknown has an account lose its answers, also those of lookups, until many
// outcomes are unknown. The ledger is killed; when every one of them is due the
// provider answers again, and the ledger starts.
func (c Isolation) unknown(ctx context.Context, told func(Beside) error) error {
	dir, err := c.dir("unknown")
	if err != nil {
		return err
	}
	s, err := newSite(ctx, c.Binary, dir, isolationVars(c.Rate))
	if err != nil {
		return err
	}
	defer s.close()
	var p pair
	s.calls(ctx, c.Callers, c.Segment/2)
	for range c.Rounds {
		p.alone.add(s.calls(ctx, c.Callers, c.Segment))
	}
	if err := s.rule(ctx, otherAccount, simulator.Rule{PathPrefix: "/v1/tasks", Do: simulator.LoseResponse}); err != nil {
		return err
	}
	// The wishes end at times of their own, in no order.
	windows := make(map[string]time.Time)
	now := time.Now()
	if err := s.fill(ctx, crowdTenant, c.Waiting, func(id string) *time.Time {
		end := now.Add(2*time.Hour + time.Duration(rand.Int64N(int64(10*time.Hour)))) //nolint:gosec // spread, no secret
		windows[id] = end
		return &end
	}); err != nil {
		return err
	}
	if err := s.untilUnknown(ctx, c.Waiting, c.Rate); err != nil {
		return err
	}
	s.kill()
	if err := s.accounts[otherAccount].client.DeleteRules(ctx); err != nil {
		return err
	}
	if err := pause(ctx, firstLook); err != nil {
		return err
	}
	answering := time.Now()
	if err := s.start(ctx); err != nil {
		return err
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				p.beside.add(s.calls(ctx, c.Callers, c.Segment))
			}
		}
	})
	left, err := s.untilSettled(ctx, answering, c.Waiting, c.Rate)
	seconds := time.Since(answering)
	close(stop)
	wg.Wait()
	if err != nil {
		return err
	}
	b := p.row(CaseUnknown, fmt.Sprintf("%d unknown outcomes at an account with a limit of %d requests per second", c.Waiting, c.Rate))
	b.Unknown, b.Seconds, b.Limit, b.Unsettled = c.Waiting, seconds.Seconds(), c.Rate, left
	if err := s.count(ctx, answering, windows, &b); err != nil {
		return err
	}
	if b.Duplicates, err = s.duplicates(ctx); err != nil {
		return err
	}
	return told(b)
}

// count takes from the provider's own log what it was asked since a moment.
func (s *site) count(ctx context.Context, since time.Time, windows map[string]time.Time, b *Beside) error {
	first := make(map[string]time.Time) // of the looks, by label
	perSecond := make(map[int]int)
	var last time.Time
	n := 0
	for after := int64(0); ; {
		page, err := s.accounts[otherAccount].client.Requests(ctx, after)
		if err != nil {
			return err
		}
		for _, r := range page.Items {
			after = r.Number
			if r.ReceivedAt.Before(since) {
				continue
			}
			n++
			last = r.ReceivedAt
			perSecond[int(r.ReceivedAt.Sub(since)/time.Second)]++
			if _, seen := first[r.Label]; !seen && r.Operation == "list" {
				first[r.Label] = r.ReceivedAt
			}
		}
		if len(page.Items) == 0 {
			break
		}
	}
	b.RequestsPerS = ratio(float64(n), last.Sub(since).Seconds())
	for _, k := range perSecond {
		b.MostPerS = max(b.MostPerS, k)
	}
	// The labels belong to titles by the objects.
	objects, err := s.accounts[otherAccount].client.Objects(ctx, simulator.ObjectFilter{})
	if err != nil {
		return err
	}
	var ends, looks []time.Time
	for _, o := range objects {
		if at, looked := first[o.Label]; looked {
			ends, looks = append(ends, windows[o.Title]), append(looks, at)
		}
	}
	b.Order = rankCorrelation(ends, looks)
	return nil
}

// rankCorrelation is Spearman's, of two lists of times; 0 if there is nothing to
// compare.
func rankCorrelation(a, b []time.Time) float64 {
	n := len(a)
	if n < 2 {
		return 0
	}
	ranks := func(t []time.Time) []int {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(x, y int) int { return t[x].Compare(t[y]) })
		out := make([]int, n)
		for rank, i := range order {
			out[i] = rank
		}
		return out
	}
	ra, rb := ranks(a), ranks(b)
	sum := 0.0
	for i := range ra {
		sum += math.Pow(float64(ra[i]-rb[i]), 2)
	}
	return 1 - 6*sum/(float64(n)*(float64(n)*float64(n)-1))
}

// untilUnknown waits until so many operations have an unknown outcome.
func (s *site) untilUnknown(ctx context.Context, n, rate int) error {
	patience := time.Duration(2+4*n/rate)*time.Second + settleTime
	for began := time.Now(); ; {
		unknown, err := s.unknown(ctx)
		if err != nil || unknown >= n {
			return err
		}
		if time.Since(began) > patience {
			return fmt.Errorf("bench: %d of %d outcomes are unknown after %s", unknown, n, patience)
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}

// untilSettled waits until no outcome is unknown; it returns how many still are
// when the time is over.
func (s *site) untilSettled(ctx context.Context, began time.Time, n, rate int) (int, error) {
	patience := time.Duration(10*n/rate)*time.Second + settleTime
	for {
		unknown, err := s.unknown(ctx)
		if err != nil || unknown == 0 || time.Since(began) > patience {
			return unknown, err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
