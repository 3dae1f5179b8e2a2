package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/child"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

const (
	tenant = "bench"
	user   = "bench-operator"
	// maxConns is how many connections the callers share.
	maxConns = 8
	// answerTime bounds the wait for one operation.
	answerTime = 50 * time.Second
)

// padding makes the frozen arguments about 200 bytes.
var padding = strings.Repeat("x", 150) //nolint:gochecknoglobals // a constant that Go can't write as one

// world is one ledger process with its providers and callers.
type world struct {
	cancel    context.CancelFunc
	providers []*provider
	store     string
	ledger    *child.Process
	conns     []*nats.Conn
	clients   []*opledger.Client
	run       string
	seq       atomic.Int64

	mu      sync.Mutex
	latency []time.Duration
	ops     map[string]*provider
	errs    int
}

// variables scale the times of the shipped contracts: a lost answer is settled
// within seconds, while nothing changes for answers that come.
func variables(contract string) map[string]string {
	vars := map[string]string{"total": "2s", "late_apply": "100ms", "lag": "100ms", "schedule": "50ms, 200ms, 1s, 2s, 5s", "probe_cache": "10m", "concurrency": "1024"}
	if strings.HasPrefix(contract, "sim-unique") {
		delete(vars, "lag")
	}
	return vars
}

func newWorld(ctx context.Context, cfg Config, dir string, load Load, delay time.Duration) (*world, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &world{cancel: cancel, store: filepath.Join(dir, "store"), run: strings.ToLower(rand.Text()[:8]), ops: make(map[string]*provider)}
	w.providers = providersOf(load)
	fail := func(err error) (*world, error) {
		w.close()
		return nil, err
	}
	for _, p := range w.providers {
		if err := p.serve(ctx, load, delay); err != nil {
			return fail(err)
		}
	}
	password, token := rand.Text(), simulator.DefaultToken
	config, err := w.config(dir, cfg.Apart)
	if err != nil {
		return fail(err)
	}
	w.ledger, err = child.Start(ctx, child.Command{
		Binary: cfg.Binary, Args: []string{"serve", "--json", "--config", config}, Log: filepath.Join(dir, "ledger.log"),
		Env: []string{"OPLEDGER_BENCH_PASSWORD=" + password, "OPLEDGER_BENCH_TOKEN=" + token},
	})
	if err != nil {
		return fail(err)
	}
	for range maxConns {
		nc, err := nats.Connect(w.ledger.Ready.NATS, nats.UserInfo(user, password), nats.CustomInboxPrefix(access.InboxPrefix(user)))
		if err != nil {
			return fail(fmt.Errorf("bench: connect: %w", err))
		}
		w.conns = append(w.conns, nc)
		c, err := opledger.NewClient(opledger.ClientConfig{Conn: nc, Tenant: tenant})
		if err != nil {
			return fail(err)
		}
		w.clients = append(w.clients, c)
	}
	return w, nil
}

// config writes the ledger's configuration; JSON is YAML.
func (w *world) config(dir string, apart bool) (string, error) {
	var configured []any
	for _, p := range w.providers {
		contract, err := providers.Template(p.contract, variables(p.contract))
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, p.contract+".yaml")
		if err := os.WriteFile(path, contract, 0o600); err != nil {
			return "", fmt.Errorf("bench: %w", err)
		}
		configured = append(configured, map[string]any{
			"contract": path,
			"accounts": []any{map[string]any{
				"id": "main", "provider_id": simulator.DefaultAccount, "base_url": p.url, "allow_loopback": true,
				"secrets": map[string]any{"token": "env://OPLEDGER_BENCH_TOKEN"},
			}},
		})
	}
	doc := map[string]any{
		"nats": map[string]any{"store_dir": w.store, "listen": "127.0.0.1:0", "apart": apart},
		"tenants": []any{map[string]any{"id": tenant, "users": []any{
			map[string]any{"name": user, "password": "env://OPLEDGER_BENCH_PASSWORD", "role": access.RoleOperator},
		}}},
		"providers": configured,
		"executor":  map[string]any{"lease_grace": "1s", "clock_error": "50ms", "width": 1024},
		"http":      map[string]any{"listen": "127.0.0.1:0", "profile": true},
		"log":       map[string]any{"level": "warn"},
	}
	data, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return "", fmt.Errorf("bench: %w", err)
	}
	path := filepath.Join(dir, "opledger.yaml")
	return path, os.WriteFile(path, data, 0o600)
}

func (w *world) close() {
	for _, nc := range w.conns {
		nc.Close()
	}
	if w.ledger != nil {
		w.ledger.Kill()
	}
	w.cancel()
}

// measure runs the callers for the cell's time and judges what they did.
func (w *world) measure(ctx context.Context, cfg Config, cell *Cell) error {
	w.callers(ctx, cell.Callers, cfg.Warm)
	w.mu.Lock()
	w.latency = nil
	w.mu.Unlock()
	before, err := look(w.ledger.PID(), w.store)
	if err != nil {
		return err
	}
	peak := watch(w.ledger.PID())
	began := time.Now()
	w.callers(ctx, cell.Callers, cfg.Duration)
	spent := time.Since(began)
	cell.RSSMiB = peak()
	after, err := look(w.ledger.PID(), w.store)
	if err != nil {
		return fmt.Errorf("%w%s", err, child.Tail(w.ledger.Log))
	}
	w.mu.Lock()
	latency := slices.Clone(w.latency)
	w.mu.Unlock()
	slices.Sort(latency)
	cell.Operations = len(latency)
	n := max(float64(len(latency)), 1)
	cell.OpsPerS = float64(len(latency)) / spent.Seconds()
	cell.P50MS, cell.P99MS = ms(quantile(latency, 0.50)), ms(quantile(latency, 0.99))
	cell.CPUMSPerOp = (after.cpu - before.cpu).Seconds() * 1000 / n
	cell.DiskBytesPerOp = float64(after.disk-before.disk) / n
	cell.FsyncsPerOp = -1
	if before.flushes >= 0 {
		cell.FsyncsPerOp = float64(after.flushes-before.flushes) / n
	}
	return w.judge(ctx, cell)
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// callers keeps n operations under way for a time.
func (w *world) callers(ctx context.Context, n int, d time.Duration) {
	until := time.Now().Add(d)
	var wg sync.WaitGroup
	for i := range n {
		c := w.clients[i%len(w.clients)]
		wg.Go(func() {
			for time.Now().Before(until) && ctx.Err() == nil {
				w.call(ctx, c)
			}
		})
	}
	wg.Wait()
}

// call hands one wish in and waits until it is final or needs a person.
func (w *world) call(ctx context.Context, c *opledger.Client) {
	n := w.seq.Add(1)
	id := fmt.Sprintf("%s-%d", w.run, n)
	p := w.providers[int(n)%len(w.providers)]
	args, _ := json.Marshal(map[string]string{"title": id, "note": padding}) //nolint:errchkjson // two texts
	w.mu.Lock()
	w.ops[id] = p
	w.mu.Unlock()
	began := time.Now()
	_, err := c.SubmitAndWait(ctx, api.SubmitRequest{
		OperationID: id, Provider: p.name, Account: "main", Action: "task.create", Args: args,
	}, answerTime)
	took := time.Since(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.errs++
		return
	}
	w.latency = append(w.latency, took)
}

// judge waits until everything is settled and holds it against the simulators'
// object tables.
func (w *world) judge(ctx context.Context, cell *Cell) error {
	cell.Errors = w.errs
	objects := make(map[*provider]map[string][]string)
	for _, p := range w.providers {
		c, err := simulator.NewClient(simulator.ClientConfig{BaseURL: p.url})
		if err != nil {
			return err
		}
		rules, err := c.Rules(ctx)
		if err != nil {
			return err
		}
		for _, r := range rules {
			if r.Name == "lost" {
				cell.Lost += r.Fired
			}
		}
	}
	deadline := time.Now().Add(settleTime)
	answers, err := w.settled(ctx, deadline)
	if err != nil {
		return err
	}
	for _, p := range w.providers {
		c, err := simulator.NewClient(simulator.ClientConfig{BaseURL: p.url})
		if err != nil {
			return err
		}
		all, err := c.Objects(ctx, simulator.ObjectFilter{})
		if err != nil {
			return err
		}
		objects[p] = make(map[string][]string)
		for _, o := range all {
			objects[p][o.Title] = append(objects[p][o.Title], o.ID)
		}
	}
	for id, p := range w.ops {
		a, known := answers[id]
		made := objects[p][id]
		if len(made) > 1 {
			cell.Duplicates++
		}
		switch {
		case !known:
			if len(made) > 0 {
				cell.WrongEnds++
			}
		case a.Status == operation.StatusConfirmed && !slices.Contains(made, a.ExternalID),
			a.Status == operation.StatusRejected && len(made) > 0:
			cell.WrongEnds++
		case a.Status.Final():
		case a.Review != "":
			cell.Reviews++
		default:
			cell.Unsettled++
		}
	}
	return nil
}

// settled reads every operation, and those that are not final again until the
// deadline.
func (w *world) settled(ctx context.Context, deadline time.Time) (map[string]api.Answer, error) {
	answers := make(map[string]api.Answer)
	c := w.clients[0]
	var open []string
	for cursor := ""; ; {
		page, err := c.List(ctx, api.ListRequest{Limit: 1000, Cursor: cursor})
		if err != nil {
			return nil, err
		}
		for _, a := range page.Operations {
			answers[a.OperationID] = a
			if !a.Status.Final() && a.Review == "" {
				open = append(open, a.OperationID)
			}
		}
		if page.Cursor == "" {
			break
		}
		cursor = page.Cursor
	}
	for _, id := range open {
		a, err := c.Wait(ctx, api.GetRequest{OperationID: id}, max(time.Until(deadline), time.Second))
		if err != nil {
			return nil, err
		}
		answers[id] = a
	}
	return answers, nil
}
