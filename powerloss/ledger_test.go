package powerloss_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/child"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/powerloss"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

var (
	cuts = flag.Int("cuts", 3, "how many times the power is cut")
	seed = flag.Uint64("seed", 1, "of the moments of the cuts")
)

const (
	senders = 6
	// One of so many intents goes to the durable inbox.
	inboxEvery = 4
	ready      = 60 * time.Second
	password   = "env://PASSWORD_OF_EVERYBODY"
)

// outage is a ledger whose power is cut.
type outage struct {
	t      *testing.T
	dir    string
	binary string
	listen string
	sims   map[string]*simulator.Client
	disk   *powerloss.Disk
	ledger *child.Process

	mu    sync.Mutex
	acked map[string]string // operation id → provider
	next  int
}

func newOutage(t *testing.T, sync string) *outage {
	t.Helper()
	o := &outage{t: t, dir: t.TempDir(), sims: map[string]*simulator.Client{}, acked: map[string]string{}}
	t.Cleanup(func() { // also where the test failed in between
		if o.ledger != nil {
			o.ledger.Kill()
		}
		if o.disk != nil {
			_ = o.disk.Unmount()
		}
	})
	o.binary = filepath.Join(o.dir, "opledger")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", o.binary, "github.com/opledger/opledger/cmd/opledger")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.listen = ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	var configured []any
	for name, contract := range map[string]string{"keyed": "sim-keyed", "crm": "sim-crm"} {
		configured = append(configured, o.provider(name, contract))
	}
	doc, err := json.Marshal(map[string]any{
		"nats": map[string]any{
			"store_dir": filepath.Join(o.dir, "disk", "store"), "listen": o.listen, "password": password, "sync": sync,
		},
		"tenants": []any{map[string]any{"id": "acme", "users": []any{
			map[string]any{"name": "acme-agent", "password": password, "role": access.RoleAgent},
		}}},
		"providers": configured,
		"executor":  map[string]any{"lease_grace": "1s", "clock_error": "50ms", "drain": "1s"},
		"http":      map[string]any{"listen": "127.0.0.1:0"}, "log": map[string]any{"level": "warn"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.config(), doc, 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *outage) config() string { return filepath.Join(o.dir, "opledger.yaml") }

// provider starts a provider that outlives the ledger, and loses some answers.
func (o *outage) provider(name, contract string) any {
	o.t.Helper()
	settings, err := simulator.Preset(name)
	if err != nil {
		o.t.Fatal(err)
	}
	settings.IndexLag = simulator.Duration(100 * time.Millisecond)
	sim, err := simulator.New(simulator.Config{Settings: settings})
	if err != nil {
		o.t.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	o.t.Cleanup(func() { sim.Close(); srv.Close() })
	c, err := simulator.NewClient(simulator.ClientConfig{BaseURL: srv.URL})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, r := range []simulator.Rule{
		{Method: "POST", PathPrefix: "/v1/tasks", Probability: 0.05, Do: simulator.LoseResponse},
		{Method: "POST", PathPrefix: "/v1/tasks", Do: simulator.Delay, After: simulator.Duration(20 * time.Millisecond)},
	} {
		if _, err := c.AddRule(o.t.Context(), r); err != nil {
			o.t.Fatal(err)
		}
	}
	o.sims[name] = c
	vars := map[string]string{
		"total": "500ms", "late_apply": "300ms", "lag": "300ms", "schedule": "300ms, 600ms, 1s, 2s",
		"backoff_first": "200ms", "backoff_max": "1s",
	}
	if name == "keyed" {
		vars["margin"], vars["max_attempts"] = "1m", "100"
	}
	file, err := providers.Template(contract, vars)
	if err != nil {
		o.t.Fatal(err)
	}
	path := filepath.Join(o.dir, contract+".yaml")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		o.t.Fatal(err)
	}
	return map[string]any{"contract": path, "accounts": []any{map[string]any{
		"id": "main", "provider_id": simulator.DefaultAccount, "base_url": srv.URL, "allow_loopback": true,
		"secrets": map[string]any{"token": "env://TOKEN"},
	}}}
}

// boot starts the ledger on what the last cut has left, and waits until it is
// ready: the guard has compared the log with its mark, and agrees.
func (o *outage) boot() {
	o.t.Helper()
	o.mu.Lock()
	n := o.next
	o.mu.Unlock()
	p, err := child.Start(o.t.Context(), child.Command{
		Binary: o.binary, Args: []string{"serve", "--json", "--config", o.config()},
		Env: []string{"PASSWORD_OF_EVERYBODY=pw", "TOKEN=" + simulator.DefaultToken}, Log: filepath.Join(o.dir, fmt.Sprintf("ledger-%d.log", n)),
	})
	if err != nil {
		o.t.Fatal(err)
	}
	o.ledger = p
	for end := time.Now().Add(ready); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(p.Ready.HTTP + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(end) {
			o.t.Fatalf("not ready: %v%s", err, child.Tail(p.Log))
		}
	}
	if text, err := os.ReadFile(p.Log); err != nil || strings.Contains(string(text), "INTEGRITY ALARM") {
		o.t.Fatalf("the guard does not agree with what the power loss left: %v\n%s", err, text)
	}
}

// power mounts the disk with what the last cut left.
func (o *outage) power(n int) {
	o.t.Helper()
	base, from := filepath.Join(o.dir, fmt.Sprintf("disk-%d", n)), ""
	if o.disk != nil {
		from = o.disk.Durable
	}
	o.disk = mount(o.t, base, from)
	link := filepath.Join(o.dir, "disk")
	if err := errors.Join(ignoreMissing(os.Remove(link)), os.Symlink(o.disk.Dir, link)); err != nil {
		o.t.Fatal(err)
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// cut takes the power away and then everything that ran on it. Every second cut is a
// torn one.
func (o *outage) cut(n int, rnd *rand.Rand) {
	o.t.Helper()
	if n%2 == 0 {
		o.disk.Cut()
	} else if err := o.disk.CutTorn(rnd); err != nil {
		o.t.Fatal(err)
	}
	o.ledger.Kill()
	if err := o.disk.Unmount(); err != nil {
		o.t.Fatal(err)
	}
}

// load hands intents in until ctx ends; what was acknowledged is remembered.
func (o *outage) load(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for range senders {
		all.Go(func() {
			nc, err := nats.Connect("nats://"+o.listen, nats.UserInfo("acme-agent", "pw"), nats.NoReconnect(),
				nats.CustomInboxPrefix(access.InboxPrefix("acme-agent")))
			if err != nil {
				return
			}
			defer nc.Close()
			c, err := opledger.NewClient(opledger.ClientConfig{Conn: nc, Tenant: "acme", Timeout: 2 * time.Second})
			if err != nil {
				o.t.Error(err)
				return
			}
			for ctx.Err() == nil && nc.IsConnected() {
				o.send(ctx, nc, c)
			}
		})
	}
}

func (o *outage) send(ctx context.Context, nc *nats.Conn, c *opledger.Client) {
	o.mu.Lock()
	o.next++
	n := o.next
	o.mu.Unlock()
	id, provider := fmt.Sprintf("op-%d", n), []string{"keyed", "crm"}[n%2]
	r := api.SubmitRequest{
		OperationID: id, Provider: provider, Account: "main", Action: "task.create",
		Args: json.RawMessage(fmt.Sprintf(`{"title":%q}`, id)),
	}
	if n%inboxEvery == 0 {
		body, err := json.Marshal(r)
		if err != nil {
			o.t.Error(err)
			return
		}
		m, err := nc.RequestWithContext(ctx, events.Subjects{}.Inbox("acme"), body)
		if err != nil || !strings.Contains(string(m.Data), `"seq"`) {
			return // not acknowledged
		}
	} else if _, err := c.Submit(ctx, r); err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.acked[id] = provider
}

// I10, I2: power losses at random moments under load lose nothing that was
// acknowledged, and nothing is sent twice. The log agrees with the mark of the
// process, which was on the same disk, each time.
func TestAcknowledgedIntentsSurvivePowerLoss(t *testing.T) {
	for _, sync := range []string{"barrier", "always"} {
		t.Run(sync, func(t *testing.T) { acknowledgedIntentsSurvive(t, sync) })
	}
}

func acknowledgedIntentsSurvive(t *testing.T, sync string) {
	t.Helper()
	o := newOutage(t, sync)
	rnd := rand.New(rand.NewPCG(*seed, 1))
	for n := range *cuts {
		o.power(n)
		o.boot()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { o.load(ctx); close(done) }()
		time.Sleep(200*time.Millisecond + time.Duration(rnd.Int64N(int64(1500*time.Millisecond)))) // the moment of the cut
		syncs := o.disk.Syncs()
		o.cut(n, rnd)
		cancel()
		<-done
		t.Logf("cut %d: %d intents acknowledged so far, %d syncs since the start", n+1, len(o.acked), syncs)
	}
	o.power(*cuts)
	o.boot()
	t.Cleanup(func() {
		if err := errors.Join(o.ledger.Stop(10*time.Second), o.disk.Unmount()); err != nil {
			t.Error(err)
		}
	})
	o.audit()
}

// audit waits until every acknowledged operation is final or a person's, and
// compares with what the providers hold.
func (o *outage) audit() {
	o.t.Helper()
	t := o.t
	nc, err := nats.Connect("nats://"+o.listen, nats.UserInfo("acme-agent", "pw"), nats.CustomInboxPrefix(access.InboxPrefix("acme-agent")))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c, err := opledger.NewClient(opledger.ClientConfig{Conn: nc, Tenant: "acme", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	counts, final := map[operation.Status]int{}, map[string]api.Answer{}
	for id := range o.acked {
		a, lost := o.settled(c, id)
		if lost {
			t.Errorf("%s was acknowledged and is lost", id)
			continue
		}
		counts[a.Status]++
		final[id] = a
	}
	// Nothing is sent twice, of any operation, acknowledged or not.
	objects := 0
	for name, sim := range o.sims {
		list, err := sim.Objects(t.Context(), simulator.ObjectFilter{})
		if err != nil {
			t.Fatal(err)
		}
		ids, by := map[string]bool{}, map[string]int{}
		for _, obj := range list {
			ids[obj.ID] = true
			by[obj.Title]++
		}
		objects += len(list)
		for title, n := range by {
			if n > 1 {
				t.Errorf("%s holds %d objects of %s", name, n, title)
			}
		}
		for id, a := range final {
			if o.acked[id] == name && a.Status == operation.StatusConfirmed && !ids[a.ExternalID] {
				t.Errorf("%s is confirmed as %s, and %s has no such object", id, a.ExternalID, name)
			}
		}
	}
	if counts[operation.StatusConfirmed] == 0 {
		t.Error("nothing was confirmed at all")
	}
	verify := exec.CommandContext(t.Context(), o.binary, "verify", "--config", o.config(), "-o", "jsonl")
	verify.Env = append(os.Environ(), "PASSWORD_OF_EVERYBODY=pw", "TOKEN="+simulator.DefaultToken)
	out, err := verify.Output()
	if err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
	t.Logf("%d power losses, %d intents acknowledged, 0 lost; %v; %d objects; verify: %s", *cuts, len(o.acked), counts, objects, out)
}

// settled waits until an operation is final or a person's.
func (o *outage) settled(c *opledger.Client, id string) (a api.Answer, lost bool) {
	o.t.Helper()
	for end := time.Now().Add(ready); ; time.Sleep(20 * time.Millisecond) {
		a, err := c.Get(o.t.Context(), api.GetRequest{OperationID: id})
		var p *api.Problem
		switch {
		case err == nil && (a.Status.Final() || a.NextAction == events.NextDecision):
			return a, false
		case time.Now().After(end):
			if errors.As(err, &p) && p.Code == api.ProblemNotFound {
				return a, true
			}
			o.t.Fatalf("%s of %s: %s %s at %s, %v%s", id, o.acked[id], a.Status, a.NextAction, a.NextAt, err, child.Tail(o.ledger.Log))
		}
	}
}
