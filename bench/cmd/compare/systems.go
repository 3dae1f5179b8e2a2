package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opledger/opledger/bench/internal/stub"
	"github.com/opledger/opledger/internal/child"
)

// Names of systems under comparison.
const (
	reference = "pg-outbox"
	inline    = "pg-inline"
	batch     = "sqlite-batch"
	ledger    = "opledger"
	// plain is the ledger too, with a provider that takes no keys.
	plain = "opledger-plain"
)

// systems lists all, in the order of the first round.
func systems() []string { return []string{reference, ledger, plain, batch, inline} }

// bench is where everything runs.
type bench struct {
	// bin has the commands, dir the stores.
	bin, dir, contract string
	pg                 *postgres
	runs               int
}

// running is one system with its provider, on a fresh store.
type running struct {
	url, provider string
	// roots are the system's processes, helpers those of the comparison.
	roots, helpers []int
	processes      []*child.Process
	dir            string
}

// start starts a system and its provider.
func (b *bench) start(ctx context.Context, system string, delay time.Duration) (*running, error) {
	b.runs++
	r := &running{dir: filepath.Join(b.dir, fmt.Sprintf("run-%03d", b.runs))}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	if err := b.launch(ctx, r, system, delay); err != nil {
		r.stop()
		return nil, fmt.Errorf("compare: start %s: %w", system, err)
	}
	return r, nil
}

func (b *bench) launch(ctx context.Context, r *running, system string, delay time.Duration) error {
	p, err := b.child(ctx, r, "stub", nil, "-delay", delay.String())
	if err != nil {
		return err
	}
	r.provider, r.helpers = p.Ready.HTTP, []int{p.PID(), os.Getpid()}
	var front *child.Process
	switch system {
	case reference, inline:
		url, err := b.pg.fresh(ctx, "hand")
		if err != nil {
			return err
		}
		if front, err = b.child(ctx, r, "hand", nil, "-mode", system, "-pg", url, "-provider", r.provider); err != nil {
			return err
		}
		r.roots = []int{b.pg.cmd.Process.Pid}
	case batch:
		if front, err = b.child(ctx, r, "hand", nil, "-mode", system, "-file", filepath.Join(r.dir, "ops.db"), "-provider", r.provider); err != nil {
			return err
		}
	case ledger, plain:
		action := map[string]string{ledger: "effect.make", plain: "effect.plain"}[system]
		if front, err = b.ledger(ctx, r, action); err != nil {
			return err
		}
	default:
		return fmt.Errorf("there is no system %q", system)
	}
	r.url, r.roots = front.Ready.HTTP, append(r.roots, front.PID())
	return nil
}

// Names in the ledger's configuration.
const (
	tenant, agent  = "compare", "front"
	passwordEnv    = "OPLEDGER_FRONT_PASSWORD"
	tokenEnv       = "OPLEDGER_STUB_TOKEN"
	executorWidth  = 128
	ledgerListen   = "127.0.0.1:0"
	leaseGrace     = "1s"
	tolerableClock = "50ms"
)

// ledger starts opledger serve and the front before it.
func (b *bench) ledger(ctx context.Context, r *running, action string) (*child.Process, error) {
	// JSON is YAML.
	doc, err := json.MarshalIndent(map[string]any{
		"nats": map[string]any{"store_dir": filepath.Join(r.dir, "store"), "listen": ledgerListen},
		"tenants": []any{map[string]any{"id": tenant, "users": []any{
			map[string]any{"name": agent, "password": "env://" + passwordEnv, "role": "agent"},
		}}},
		"providers": []any{map[string]any{"contract": b.contract, "accounts": []any{map[string]any{
			"id": "main", "provider_id": stub.Account, "base_url": r.provider, "allow_loopback": true,
			"secrets": map[string]any{"token": "env://" + tokenEnv},
		}}}},
		"executor": map[string]any{"lease_grace": leaseGrace, "clock_error": tolerableClock, "width": executorWidth},
		"http":     map[string]any{"listen": ledgerListen, "profile": true},
		"log":      map[string]any{"level": "warn"},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(r.dir, "opledger.yaml")
	if err := os.WriteFile(config, doc, 0o600); err != nil {
		return nil, err
	}
	env := []string{passwordEnv + "=" + rand.Text(), tokenEnv + "=" + rand.Text()}
	server, err := b.child(ctx, r, "opledger", env, "serve", "--json", "--config", config)
	if err != nil {
		return nil, err
	}
	r.roots = []int{server.PID()}
	return b.child(ctx, r, "ledgerfront", env, "-nats", server.Ready.NATS, "-user", agent, "-tenant", tenant, "-action", action)
}

func (b *bench) child(ctx context.Context, r *running, name string, env []string, args ...string) (*child.Process, error) {
	p, err := child.Start(ctx, child.Command{Binary: filepath.Join(b.bin, name), Args: args, Env: env, Log: filepath.Join(r.dir, name+".log")})
	if err != nil {
		return nil, err
	}
	r.processes = append(r.processes, p)
	return p, nil
}

// stop kills all and throws the store away.
func (r *running) stop() {
	for _, p := range r.processes {
		p.Kill()
	}
	_ = os.RemoveAll(r.dir) // what is left goes with the temporary folder
}

// messages are what the system's processes wrote, for an error.
func (r *running) messages() string {
	var b strings.Builder
	for _, p := range r.processes {
		if tail := child.Tail(p.Log); tail != "" {
			fmt.Fprintf(&b, "\n%s:%s", filepath.Base(p.Log), tail)
		}
	}
	return b.String()
}
