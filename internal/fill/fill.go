// Package fill writes a long log into a store that no process runs on: many
// finished operations and some open ones, as the ledger itself would have stored
// them, with their versions, chains, headers and checkpoints. It is for
// measurements of a ledger that has grown; nothing is sent to any provider.
//
// Appends don't wait for the disk, so a power loss may leave a store that is of no
// use. Delete it then.
package fill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/integrity"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/internal/node"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

const (
	// MaxOperations bounds one run.
	MaxOperations = 10_000_000
	// maxPending is how many appends are on their way.
	maxPending = 4096
	// readyWithin bounds the start of the server.
	readyWithin = time.Minute
	// user is the one on the server, which listens nowhere.
	user, password = "fill", "fill"
)

// Config says what to write.
type Config struct {
	// Ledger is the configuration of the ledger whose store is filled. Its first
	// tenant and the first action of its first provider are used.
	Ledger *config.Config
	// Operations are finished, Open ones are spread among them: a third is held, a
	// third unknown with its next look a month away, a third under review.
	Operations, Open int
	// Progress may be nil; it is told of operations.
	Progress func(done, total int)
}

// Report says what was written.
type Report struct {
	Operations int     `json:"operations"`
	Open       int     `json:"open"`
	Messages   uint64  `json:"messages"`
	Seconds    float64 `json:"seconds"`
}

// Run writes the operations behind what the store holds already.
func Run(ctx context.Context, cfg Config) (Report, error) {
	began := time.Now()
	w, err := open(ctx, cfg)
	if err != nil {
		return Report{}, errors.Join(err, w.close())
	}
	first := w.last
	err = w.fill(ctx, cfg)
	if err == nil {
		err = w.complete(ctx)
	}
	return Report{
		Operations: cfg.Operations, Open: cfg.Open, Messages: w.last - first, Seconds: time.Since(began).Seconds(),
	}, errors.Join(err, w.close())
}

// Project lets a projector run on the store until it is done and stops it in
// order, so that the next start finds what it finds after any orderly stop.
func Project(ctx context.Context, cfg *config.Config) error {
	n, err := node.Start(ctx, node.Options{Config: cfg, Roles: []string{node.RoleProjector}})
	if err != nil {
		return fmt.Errorf("fill: project: %w", err)
	}
	for lag := uint64(1); lag > 0; {
		if lag, err = n.Lag(ctx); err != nil {
			return errors.Join(fmt.Errorf("fill: project: %w", err), n.Stop())
		}
	}
	return n.Stop()
}

// Write writes a configuration with one tenant and a simulated provider into a
// folder, if there is none, and returns its path. The store goes beside it.
func Write(dir string) (string, error) {
	path := filepath.Join(dir, "opledger.yaml")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	doc := map[string]any{ // JSON is YAML
		"nats": map[string]any{"store_dir": "data", "listen": "127.0.0.1:0"},
		"tenants": []any{map[string]any{"id": "acme", "users": []any{
			map[string]any{"name": "acme-operator", "password": "env://ACME_OPERATOR_PASSWORD", "role": access.RoleOperator},
		}}},
		"providers": []any{map[string]any{"contract": "builtin:sim-keyed", "accounts": []any{map[string]any{
			"id": "main", "provider_id": simulator.DefaultAccount, "base_url": "http://127.0.0.1:8099", "allow_loopback": true,
			"secrets": map[string]any{"token": "env://CRM_TOKEN"},
		}}}},
		"http": map[string]any{"listen": "127.0.0.1:0", "profile": true},
	}
	data, err := json.MarshalIndent(doc, "", "  ")
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("fill: %w", err)
	}
	return path, nil
}

// world is the store while it is filled.
type world struct {
	lock *natsjournal.DirLock
	srv  *server.Server
	conn *nats.Conn
	js   jetstream.JetStream
	log  *natsjournal.Journal
	// audit has read everything up to last, the message that was published last.
	audit        *integrity.Audit
	last         uint64
	checkpointed uint64
	failed       chan error
	wish
}

func open(ctx context.Context, cfg Config) (*world, error) {
	w := &world{failed: make(chan error, 1)}
	l := cfg.Ledger
	switch {
	case l.NATS.URL != "":
		return w, errors.New("fill: the configuration names an external server; only a store of its own is filled")
	case len(l.Tenants) == 0 || len(l.Providers) == 0 || len(l.Providers[0].Accounts) == 0:
		return w, errors.New("fill: the configuration needs a tenant and a provider with an account")
	case cfg.Operations < 0 || cfg.Open < 0 || cfg.Operations+cfg.Open < 1 || cfg.Operations+cfg.Open > MaxOperations:
		return w, fmt.Errorf("fill: 1 to %d operations", MaxOperations)
	}
	file, err := contract(l, l.Providers[0].Contract)
	if err != nil {
		return w, err
	}
	if err := w.serve(l); err != nil {
		return w, err
	}
	topology := node.Topology(l)
	if _, err := natsjournal.Setup(ctx, w.js, topology); err != nil {
		return w, err
	}
	if w.log, err = natsjournal.Open(ctx, w.conn, natsjournal.Config{Topology: topology}); err != nil {
		return w, err
	}
	w.wish = wishOf(l, file, w.log.Ledger())
	info, err := w.log.Info(ctx)
	if err != nil {
		return w, err
	}
	w.audit = integrity.NewAudit(integrity.AuditConfig{Subjects: l.Subjects(), Ledger: info.Ledger, Created: info.Created})
	if w.last = info.Last; w.last > 0 {
		if err := w.log.Walk(ctx, 1, w.last, func(r events.Record) error { w.audit.Add(r); return nil }); err != nil {
			return w, err
		}
	}
	_, w.checkpointed = w.audit.Checked()
	return w, nil
}

// serve starts a server on the store as the ledger's own, but for its waits for
// the disk.
func (w *world) serve(l *config.Config) error {
	dir := l.Path(l.NATS.StoreDir)
	var err error
	if w.lock, err = natsjournal.Lock(dir); err != nil {
		return err
	}
	opts := &server.Options{
		ServerName: "opledger-fill", JetStream: true, StoreDir: filepath.Join(dir, "nats"), JetStreamMaxStore: l.NATS.MaxStore,
		JetStreamMaxMemory: 64 << 20, MaxPayload: 1 << 20, NoSigs: true, NoLog: true, DontListen: true,
	}
	if err := opts.ProcessConfigString("accounts { " + access.LedgerAccount + " { jetstream: enabled } }"); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	opts.Users = []*server.User{{Username: user, Password: password, Account: opts.Accounts[0]}}
	if w.srv, err = server.NewServer(opts); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	w.srv.Start()
	if !w.srv.ReadyForConnections(readyWithin) {
		return fmt.Errorf("fill: the server is not ready after %s", readyWithin)
	}
	if w.conn, err = nats.Connect("", nats.InProcessServer(w.srv), nats.UserInfo(user, password)); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	w.js, err = jetstream.New(w.conn, jetstream.WithPublishAsyncMaxPending(maxPending),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) {
			select {
			case w.failed <- fmt.Errorf("fill: append to %s: %w", m.Subject, err):
			default:
			}
		}))
	return err
}

func (w *world) close() error {
	if w.conn != nil {
		w.conn.Close()
	}
	if w.srv != nil {
		w.srv.Shutdown()
		w.srv.WaitForShutdown()
	}
	if w.lock != nil {
		return w.lock.Close()
	}
	return nil
}

// complete waits for every append and holds the log against what was written.
func (w *world) complete(ctx context.Context) error {
	select {
	case <-w.js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := w.trouble(); err != nil {
		return err
	}
	info, err := w.log.Info(ctx)
	if err == nil && info.Last != w.last {
		err = fmt.Errorf("fill: the log ends with message %d, %d were written", info.Last, w.last)
	}
	return err
}

func (w *world) trouble() error {
	select {
	case err := <-w.failed:
		return err
	default:
		return nil
	}
}

// wishOf is what every operation asks for.
func wishOf(l *config.Config, file *providers.File, ledger string) wish {
	account := l.Providers[0].Accounts[0]
	return wish{
		subjects: l.Subjects(), ledger: ledger, tenant: l.Tenants[0].ID, provider: file.Provider,
		account: events.Account{Name: account.ID, ProviderID: account.ProviderID},
		action:  file.Actions()[0], contract: file.Ref(),
	}
}

func contract(l *config.Config, where string) (*providers.File, error) {
	if name, ok := strings.CutPrefix(where, "builtin:"); ok {
		return providers.Load(name)
	}
	path := l.Path(where)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("fill: contract: %w", err)
	}
	return providers.Parse(path, data)
}
