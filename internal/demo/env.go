package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/child"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// Names that every scenario uses.
const (
	tenant  = "acme"
	user    = "acme-operator"
	agent   = "acme-agent"
	account = "main"
	action  = "task.create"
)

// Variables of the environment that carry the credentials.
const (
	envLedger = "OPLEDGER_DEMO_LEDGER_PASSWORD"
	envUser   = "OPLEDGER_DEMO_USER_PASSWORD"
	// EnvToken is the token of the simulator.
	EnvToken = "OPLEDGER_DEMO_CRM_TOKEN"
)

// class is a contract class with the shipped contract and the simulator's preset
// that play it.
type class struct {
	name, provider, contract, preset string
	// key: the plain loop sends a key, too.
	key bool
}

// env is the world of one scenario: a folder, a provider, a ledger.
type env struct {
	dir      string
	binary   string
	environ  []string
	ledgerPw string
	userPw   string

	class    class
	settings map[string]any
	rules    []simulator.Rule

	simURL string
	sim    *simulator.Client
	// listen is where an embedded server listens; empty picks a port.
	listen string

	mu        sync.Mutex
	started   int
	processes []*child.Process
	conns     []*nats.Conn

	// restarted is the ledger that took the first one's place.
	restarted *ledger
}

func newEnv(ctx context.Context, binary, dir string, c class, settings map[string]any, rules ...simulator.Rule) (*env, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	e := &env{
		dir: dir, binary: binary, class: c, settings: settings, rules: rules,
		ledgerPw: rand.Text(), userPw: rand.Text(),
	}
	e.environ = []string{envLedger + "=" + e.ledgerPw, envUser + "=" + e.userPw, EnvToken + "=" + simulator.DefaultToken}
	p, err := e.spawn(ctx, "sim", "sim", "--json", "--listen", "127.0.0.1:0", "--preset", c.preset)
	if err != nil {
		return nil, err
	}
	e.simURL = p.Ready.Sim
	e.sim, err = simulator.NewClient(simulator.ClientConfig{BaseURL: e.simURL})
	return e, err
}

// spawn starts this binary with args and waits until it is up. Its messages go
// to a file in dir.
func (e *env) spawn(ctx context.Context, name string, args ...string) (*child.Process, error) {
	p, err := child.Start(ctx, e.command(name, args...))
	return e.keep(p), err
}

// launch starts this binary with args.
func (e *env) launch(ctx context.Context, name string, args ...string) (*child.Process, error) {
	p, out, err := child.Launch(ctx, e.command(name, args...))
	if err == nil {
		go func() { _, _ = io.Copy(io.Discard, out) }()
	}
	return e.keep(p), err
}

func (e *env) command(name string, args ...string) child.Command {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started++
	return child.Command{
		Binary: e.binary, Args: args, Env: e.environ,
		Log: filepath.Join(e.dir, fmt.Sprintf("%02d-%s.log", e.started, name)),
	}
}

func (e *env) keep(p *child.Process) *child.Process {
	if p != nil {
		e.mu.Lock()
		e.processes = append(e.processes, p)
		e.mu.Unlock()
	}
	return p
}

// provider sets the simulator back to the start of the scenario: no objects,
// the scenario's settings and faults.
func (e *env) provider(ctx context.Context) error {
	if err := e.sim.Reset(ctx); err != nil {
		return err
	}
	if len(e.settings) > 0 {
		if _, err := e.sim.PatchSettings(ctx, e.settings); err != nil {
			return err
		}
	}
	for _, r := range e.rules {
		if _, err := e.sim.AddRule(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) close() {
	for _, nc := range e.conns {
		nc.Close()
	}
	e.mu.Lock()
	all := e.processes
	e.mu.Unlock()
	for _, p := range all {
		p.Kill()
	}
}

// config writes a configuration. An empty url embeds the server.
func (e *env) config(name, url string, vars map[string]string, more map[string]any) (string, error) {
	contract, err := providers.Template(e.class.contract, vars)
	if err != nil {
		return "", err
	}
	contractPath := filepath.Join(e.dir, "contract.yaml")
	if err := os.WriteFile(contractPath, contract, 0o600); err != nil {
		return "", fmt.Errorf("demo: %w", err)
	}
	natsCfg := map[string]any{"password": "env://" + envLedger}
	if url == "" {
		natsCfg["store_dir"], natsCfg["listen"] = "store", cmp.Or(e.listen, "127.0.0.1:0")
	} else {
		natsCfg["url"], natsCfg["assert_sync_always"] = url, true
	}
	executor := map[string]any{"lease_grace": "1s", "clock_error": "50ms", "drain": "2s"}
	maps.Copy(executor, more)
	// JSON is YAML, and needs no library to write.
	doc, err := json.MarshalIndent(map[string]any{
		"nats": natsCfg,
		"tenants": []any{map[string]any{
			"id": tenant, "users": []any{
				map[string]any{"name": user, "password": "env://" + envUser, "role": access.RoleOperator},
				map[string]any{"name": agent, "password": "env://" + envUser, "role": access.RoleAgent},
			},
		}},
		"providers": []any{map[string]any{
			"contract": "contract.yaml",
			"accounts": []any{map[string]any{
				"id": account, "provider_id": simulator.DefaultAccount, "base_url": e.simURL, "allow_loopback": true,
				"secrets": map[string]any{"token": "env://" + EnvToken},
			}},
		}},
		"executor": executor,
		"http":     map[string]any{"listen": "127.0.0.1:0"},
		"log":      map[string]any{"level": "info"},
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("demo: %w", err)
	}
	path := filepath.Join(e.dir, name+".yaml")
	if err := os.WriteFile(path, doc, 0o600); err != nil {
		return "", fmt.Errorf("demo: %w", err)
	}
	return path, nil
}

// ledger starts a ledger with all roles, or those given.
func (e *env) ledger(ctx context.Context, vars map[string]string, more map[string]any, roles ...string) (*ledger, error) {
	path, err := e.config("ledger", "", vars, more)
	if err != nil {
		return nil, err
	}
	return e.serve(ctx, path, roles...)
}

func (e *env) serve(ctx context.Context, config string, roles ...string) (*ledger, error) {
	args := []string{"serve", "--json", "--config", config}
	for _, r := range roles {
		args = append(args, "--role", r)
	}
	p, err := e.spawn(ctx, "ledger", args...)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(p.Ready.NATS, nats.UserInfo(user, e.userPw), nats.CustomInboxPrefix(access.InboxPrefix(user)),
		nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("demo: connect: %w", err)
	}
	e.conns = append(e.conns, nc)
	c, err := opledger.NewClient(opledger.ClientConfig{Conn: nc, Tenant: tenant})
	if err != nil {
		return nil, err
	}
	return &ledger{Client: c, p: p, env: e, config: config}, nil
}

// executor starts a process that only sends.
func (e *env) executor(ctx context.Context, l *ledger, name string, vars map[string]string) (*child.Process, error) {
	path, err := e.config(name, l.p.Ready.NATS, vars, map[string]any{"consumer": name})
	if err != nil {
		return nil, err
	}
	return e.spawn(ctx, name, "serve", "--json", "--config", path, "--role", "executor")
}

// ledger is a running ledger and a client of it.
type ledger struct {
	*opledger.Client
	p      *child.Process
	env    *env
	config string
}

// settled waits until an operation is final or needs a person.
func (l *ledger) settled(ctx context.Context, id string) (api.Answer, error) {
	return l.Wait(ctx, api.GetRequest{OperationID: id}, 45*time.Second)
}

// events reads the log of one operation as it is stored.
func (l *ledger) events(ctx context.Context, id string) (out []events.Record, err error) {
	nc, err := nats.Connect(l.p.Ready.NATS, nats.UserInfo("ledger", l.env.ledgerPw))
	if err != nil {
		return nil, fmt.Errorf("demo: connect: %w", err)
	}
	defer nc.Close()
	j, err := natsjournal.Open(ctx, nc, natsjournal.Config{Topology: natsjournal.Topology{Tenants: []string{tenant}}})
	if err != nil {
		return nil, err
	}
	return j.Load(ctx, tenant, id)
}

// submit hands in one wish.
func (l *ledger) submit(ctx context.Context, id, title string) (api.Answer, error) {
	args, err := json.Marshal(map[string]string{"title": title})
	if err != nil {
		return api.Answer{}, err
	}
	return l.Submit(ctx, api.SubmitRequest{
		OperationID: id, Provider: l.env.class.provider, Account: account, Action: action, Args: args,
		RequestID: "request-1", RequestedBy: "demo",
	})
}

func isConflict(err error) bool {
	var p *api.Problem
	return errors.As(err, &p) && p.Code == api.ProblemConflict && len(p.Fields) > 0 &&
		p.RecordedDigest != "" && p.ReceivedDigest != ""
}
