package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/child"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// site is one ledger process for the isolation runs: two tenants, and two accounts
// of one contract, each with a provider of its own.
type site struct {
	cancel   context.CancelFunc
	command  child.Command
	password string
	ledger   *child.Process
	accounts map[string]*siteAccount
	conns    map[string][]*nats.Conn
	clients  map[string][]*opledger.Client
	run      string
	seq      atomic.Int64
}

type siteAccount struct {
	*provider
	client *simulator.Client
}

// firstLook is when an unknown outcome is looked for first: late enough for many of
// them to have been made.
const firstLook = 25 * time.Second

// isolationVars are the times and limits of the contract. A rate of zero is none.
func isolationVars(rate int) map[string]string {
	limits := "16"
	if rate > 0 {
		limits += fmt.Sprintf(", rate: %d/s", rate) // a second member of the same mapping
	}
	return map[string]string{
		"total": "10s", "late_apply": "1s", "lag": "100ms", "schedule": firstLook.String() + ", 5s, 10s, 30s, 1m, 2m", "probe_cache": "10m", "concurrency": limits,
	}
}

func newSite(ctx context.Context, binary, dir string, vars map[string]string) (*site, error) {
	s, err := prepareSite(ctx, binary, dir, vars)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// prepareSite is a site whose ledger has not been started yet.
func prepareSite(ctx context.Context, binary, dir string, vars map[string]string) (*site, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &site{
		cancel: cancel, password: rand.Text(), run: strings.ToLower(rand.Text()[:8]), accounts: make(map[string]*siteAccount),
		conns: make(map[string][]*nats.Conn), clients: make(map[string][]*opledger.Client),
	}
	fail := func(err error) (*site, error) {
		s.close()
		return nil, err
	}
	for _, name := range []string{goodAccount, otherAccount} {
		p := &provider{name: "keyed", contract: "sim-keyed", preset: "keyed"}
		if err := p.serve(ctx, LoadHappy, 0); err != nil {
			return fail(err)
		}
		c, err := simulator.NewClient(simulator.ClientConfig{BaseURL: p.url})
		if err != nil {
			return fail(err)
		}
		s.accounts[name] = &siteAccount{p, c}
	}
	config, err := s.config(dir, vars)
	if err != nil {
		return fail(err)
	}
	s.command = child.Command{
		Binary: binary, Args: []string{"serve", "--json", "--config", config}, Log: filepath.Join(dir, "ledger.log"),
		Env: []string{"OPLEDGER_BENCH_PASSWORD=" + s.password, "OPLEDGER_BENCH_TOKEN=" + simulator.DefaultToken},
	}
	return s, nil
}

// start starts the ledger and connects the clients.
func (s *site) start(ctx context.Context) (err error) {
	if s.ledger, err = child.Start(ctx, s.command); err != nil {
		return err
	}
	for _, tenant := range []string{callerTenant, crowdTenant} {
		for range maxConns {
			name := userOf(tenant)
			nc, err := nats.Connect(s.ledger.Ready.NATS, nats.UserInfo(name, s.password), nats.CustomInboxPrefix(access.InboxPrefix(name)))
			if err != nil {
				return fmt.Errorf("bench: connect: %w", err)
			}
			s.conns[tenant] = append(s.conns[tenant], nc)
			c, err := opledger.NewClient(opledger.ClientConfig{Conn: nc, Tenant: tenant, Timeout: answerTime})
			if err != nil {
				return err
			}
			s.clients[tenant] = append(s.clients[tenant], c)
		}
	}
	return nil
}

// kill ends the ledger at once.
func (s *site) kill() {
	for _, conns := range s.conns {
		for _, nc := range conns {
			nc.Close()
		}
	}
	clear(s.conns)
	clear(s.clients)
	if s.ledger != nil {
		s.ledger.Kill()
	}
}

func userOf(tenant string) string { return tenant + "-user" }

// config writes the ledger's configuration; JSON is YAML.
func (s *site) config(dir string, vars map[string]string) (string, error) {
	contract, err := providers.Template("sim-keyed", vars)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "sim-keyed.yaml")
	if err := os.WriteFile(path, contract, 0o600); err != nil {
		return "", fmt.Errorf("bench: %w", err)
	}
	var accounts, tenants []any
	for _, name := range []string{goodAccount, otherAccount} {
		a := s.accounts[name]
		accounts = append(accounts, map[string]any{
			"id": name, "provider_id": simulator.DefaultAccount, "base_url": a.url, "allow_loopback": true,
			"secrets": map[string]any{"token": "env://OPLEDGER_BENCH_TOKEN"},
		})
	}
	roles := map[string]access.Role{callerTenant: access.RoleOperator, crowdTenant: access.RoleAgent} // an agent has an inbox
	for _, id := range []string{callerTenant, crowdTenant} {
		tenants = append(tenants, map[string]any{"id": id, "users": []any{
			map[string]any{"name": userOf(id), "password": "env://OPLEDGER_BENCH_PASSWORD", "role": roles[id]},
		}})
	}
	data, err := json.MarshalIndent(map[string]any{
		"nats":      map[string]any{"store_dir": filepath.Join(dir, "store"), "listen": "127.0.0.1:0"},
		"tenants":   tenants,
		"providers": []any{map[string]any{"contract": path, "accounts": accounts}},
		"executor":  map[string]any{"lease_grace": "1s", "clock_error": "50ms"},
		"http":      map[string]any{"listen": "127.0.0.1:0", "profile": true},
		"log":       map[string]any{"level": "error"},
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("bench: %w", err)
	}
	path = filepath.Join(dir, "opledger.yaml")
	return path, os.WriteFile(path, data, 0o600)
}

func (s *site) close() {
	s.kill()
	s.cancel()
}

// rule has the provider of an account make a fault.
func (s *site) rule(ctx context.Context, account string, r simulator.Rule) error {
	_, err := s.accounts[account].client.AddRule(ctx, r)
	return err
}

func (s *site) wish(account string) (id string, _ api.SubmitRequest) {
	id = fmt.Sprintf("%s-%d", s.run, s.seq.Add(1))
	args, _ := json.Marshal(map[string]string{"title": id, "note": padding}) //nolint:errchkjson // two texts
	return id, api.SubmitRequest{OperationID: id, Provider: "keyed", Account: account, Action: "task.create", Args: args}
}

// calls keeps n operations of the callers under way for a time.
func (s *site) calls(ctx context.Context, n int, d time.Duration) sample {
	var (
		mu  sync.Mutex
		out sample
		wg  sync.WaitGroup
	)
	peak := watch(s.ledger.PID())
	began := time.Now()
	for i := range n {
		c := s.clients[callerTenant][i%maxConns]
		wg.Go(func() {
			for time.Since(began) < d && ctx.Err() == nil {
				id, req := s.wish(goodAccount)
				at := time.Now()
				a, err := c.Submit(ctx, req)
				if err == nil && !a.Status.Final() {
					a, err = c.Wait(ctx, api.GetRequest{OperationID: id}, answerTime)
				}
				took := time.Since(at)
				mu.Lock()
				if err != nil || a.Status != operation.StatusConfirmed {
					out.errs++
				} else {
					out.latency = append(out.latency, took)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	out.spent, out.rss = time.Since(began), peak()
	return out
}

// fill hands in n operations for the other account. deadline may give each its
// end.
func (s *site) fill(ctx context.Context, tenant string, n int, deadline func(id string) *time.Time) error {
	wishes := make([]api.SubmitRequest, n)
	for i := range wishes {
		id, req := s.wish(otherAccount)
		if deadline != nil {
			req.Limits = &events.Limits{Deadline: *deadline(id)}
		}
		wishes[i] = req
	}
	var (
		next atomic.Int64
		fail atomic.Pointer[error]
		wg   sync.WaitGroup
	)
	for i := range 64 {
		c := s.clients[tenant][i%maxConns]
		wg.Go(func() {
			for at := next.Add(1) - 1; int(at) < n && fail.Load() == nil; at = next.Add(1) - 1 {
				if _, err := c.Submit(ctx, wishes[at]); err != nil {
					fail.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := fail.Load(); err != nil {
		return fmt.Errorf("bench: fill: %w", *err)
	}
	return nil
}

// floodSubmits hands in with many submitters that wait for the answer only.
func floodSubmits(ctx context.Context, s *site, f *flooded) {
	var wg sync.WaitGroup
	for i := range crowdSubmitters {
		c := s.clients[crowdTenant][i%maxConns]
		wg.Go(func() {
			for ctx.Err() == nil {
				_, req := s.wish(otherAccount)
				switch _, err := c.Submit(ctx, req); {
				case err == nil:
					f.taken.Add(1)
				case ctx.Err() == nil:
					f.refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
}

// floodRequests sends requests and does not wait for the answers.
func floodRequests(ctx context.Context, s *site, f *flooded) {
	s.pour(ctx, f, events.Subjects{}.API(crowdTenant, api.VerbSubmit), 0)
}

// floodInbox publishes into the durable inbox; so many messages are not
// acknowledged at once.
func floodInbox(ctx context.Context, s *site, f *flooded) {
	s.pour(ctx, f, events.Subjects{}.Inbox(crowdTenant), 256)
}

// pour sends wishes on a subject, with at most so many answers outstanding; zero
// means that nobody waits for them.
func (s *site) pour(ctx context.Context, f *flooded, subject string, outstanding int) {
	nc := s.conns[crowdTenant][0]
	inbox := nc.NewInbox()
	slots := make(chan struct{}, max(outstanding, 1))
	sub, err := nc.Subscribe(inbox, func(m *nats.Msg) {
		if m.Header.Get(micro.ErrorHeader) != "" || len(m.Data) == 0 || bytes.Contains(m.Data, []byte(`"error":`)) {
			f.refused.Add(1)
		} else {
			f.taken.Add(1)
		}
		if outstanding > 0 {
			<-slots
		}
	})
	if err != nil {
		return
	}
	defer func() { _ = sub.Unsubscribe() }()
	_ = sub.SetPendingLimits(-1, -1)
	began := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		if ahead := time.Duration(n)*time.Second/pourRate - time.Since(began); outstanding == 0 && ahead > 5*time.Millisecond {
			if pause(ctx, ahead) != nil {
				return
			}
		}
		if outstanding > 0 {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
		_, req := s.wish(otherAccount)
		raw, err := json.Marshal(req)
		if err != nil || nc.PublishRequest(subject, inbox, raw) != nil {
			return
		}
	}
}

// unknown is how many outcomes are unknown, by the ledger's own gauge.
func (s *site) unknown(ctx context.Context) (int, error) {
	n, err := s.metric(ctx, func(name string) bool {
		return strings.HasPrefix(name, "opledger_operations{") && strings.Contains(name, `status="unknown"`)
	})
	return int(n), err
}

// metric adds up the ledger's metrics with the wanted names, labels included.
func (s *site) metric(ctx context.Context, want func(name string) bool) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.ledger.Ready.HTTP+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	sum := 0.0
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if at := strings.LastIndexByte(line, ' '); at > 0 && want(line[:at]) {
			v, err := strconv.ParseFloat(line[at+1:], 64)
			if err != nil {
				return 0, fmt.Errorf("bench: %s: %w", line, err)
			}
			sum += v
		}
	}
	return sum, lines.Err()
}

// duplicates counts the wishes with several objects at the providers.
func (s *site) duplicates(ctx context.Context) (int, error) {
	n := 0
	for _, a := range s.accounts {
		objects, err := a.client.Objects(ctx, simulator.ObjectFilter{})
		if err != nil {
			return 0, err
		}
		seen := make(map[string]int)
		for _, o := range objects {
			if seen[o.Title]++; seen[o.Title] == 2 {
				n++
			}
		}
	}
	return n, nil
}
