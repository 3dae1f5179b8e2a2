package kills

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/providers/simulator"
)

// Names that every world uses; they are those of deploy/nats.conf.
const (
	tenant     = "acme"
	agent      = "acme-agent"
	ledgerUser = "ledger"
	account    = "main"
	action     = "task.create"
)

// Variables of the environment that carry the credentials.
const (
	envLedger = "LEDGER_PASSWORD"
	envAgent  = "ACME_AGENT_PASSWORD"
	envToken  = "OPLEDGER_KILLS_TOKEN" //nolint:gosec // the name of a variable
)

// Binaries are the programs that are run and killed.
type Binaries struct {
	// Ledger is opledger, Server a nats-server.
	Ledger, Server string
	// ServerConfig is the configuration that the project ships for the server.
	ServerConfig string
}

// Build builds both programs from the module into dir.
func Build(ctx context.Context, dir string) (Binaries, error) {
	gomod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("kills: go env: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(gomod)))
	b := Binaries{
		Ledger: filepath.Join(dir, "opledger"), Server: filepath.Join(dir, "nats-server"),
		ServerConfig: filepath.Join(root, "deploy", "nats.conf"),
	}
	for out, pkg := range map[string]string{
		b.Ledger: "github.com/opledger/opledger/cmd/opledger", b.Server: "github.com/nats-io/nats-server/v2",
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", out, pkg)
		cmd.Dir = root
		if text, err := cmd.CombinedOutput(); err != nil {
			return Binaries{}, fmt.Errorf("kills: build %s: %w\n%s", pkg, err, text)
		}
	}
	return b, nil
}

// world is one ledger with its providers, its processes and its load.
type world struct {
	dir      string
	bin      Binaries
	rnd      *mathrand.Rand
	replicas int

	providers []*provider
	servers   []*process
	ledgers   []*process
	load      *load

	ledgerPw, agentPw string
	environ           []string
	// config is what opledger verify is run with.
	config string
	// urls lead the load and the audit to the servers.
	urls string

	cancel  context.CancelFunc
	running *group
}

// newWorld makes a world without processes.
func newWorld(ctx context.Context, bin Binaries, dir string, seed uint64) (*world, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("kills: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &world{
		dir: dir, bin: bin, rnd: mathrand.New(mathrand.NewPCG(seed, 1)), //nolint:gosec // a seed must repeat
		replicas: 1, providers: providersOf(), ledgerPw: rand.Text(), agentPw: rand.Text(),
		cancel: cancel, running: newGroup(ctx),
	}
	w.environ = []string{
		envLedger + "=" + w.ledgerPw, envAgent + "=" + w.agentPw, envToken + "=" + simulator.DefaultToken,
	}
	for _, name := range []string{
		"NATS_SYS_PASSWORD", "ACME_APPROVER_PASSWORD", "ACME_OPERATOR_PASSWORD", "ACME_WEBHOOK_PASSWORD",
		"ACME_READER_PASSWORD", "FILES_WORKER_PASSWORD",
	} {
		w.environ = append(w.environ, name+"="+rand.Text())
	}
	for _, p := range w.providers {
		if err := p.serve(ctx, seed); err != nil {
			w.close()
			return nil, err
		}
	}
	return w, nil
}

// close kills every process and ends the providers.
func (w *world) close() {
	w.cancel()
	w.running.wait()
	if w.load != nil {
		w.load.close()
	}
}

// processes are all that can be killed.
func (w *world) processes() []*process {
	return append(append([]*process{}, w.servers...), w.ledgers...)
}

func (w *world) run(p *process) { w.running.go1(p.run) }

// embedded adds one process that is server, worker and everything else.
func (w *world) embedded() error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	w.urls = "nats://" + address
	p, err := w.ledger("ledger", map[string]any{"store_dir": "store", "listen": address, "password": "env://" + envLedger})
	if err != nil {
		return err
	}
	w.config = p.args[len(p.args)-1]
	w.ledgers = append(w.ledgers, p)
	return nil
}

// external adds one server and two workers.
func (w *world) external() error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	w.urls = "nats://" + address
	s, err := w.server("nats", address, "")
	if err != nil {
		return err
	}
	w.servers = append(w.servers, s)
	return w.workers(w.urls, w.urls)
}

// workers adds one ledger process with all roles for each list of servers.
func (w *world) workers(urls ...string) error {
	for i, url := range urls {
		p, err := w.ledger(fmt.Sprintf("ledger%d", i+1), map[string]any{
			"url": url, "user": ledgerUser, "password": "env://" + envLedger, "assert_sync_always": true, "replicas": w.replicas,
		})
		if err != nil {
			return err
		}
		w.config = p.args[len(p.args)-1]
		w.ledgers = append(w.ledgers, p)
	}
	return nil
}

// ledger makes a ledger process and its configuration.
func (w *world) ledger(name string, server map[string]any) (*process, error) {
	tenants := map[string]any{"id": tenant}
	if server["url"] == nil {
		tenants["users"] = []any{map[string]any{"name": agent, "password": "env://" + envAgent, "role": access.RoleAgent}}
	}
	var configured []any
	for _, p := range w.providers {
		contract, err := p.template()
		if err != nil {
			return nil, err
		}
		path := filepath.Join(w.dir, p.contract+".yaml")
		if err := os.WriteFile(path, contract, 0o600); err != nil {
			return nil, fmt.Errorf("kills: %w", err)
		}
		configured = append(configured, map[string]any{
			"contract": path,
			"accounts": []any{map[string]any{
				"id": account, "provider_id": simulator.DefaultAccount, "base_url": p.url, "allow_loopback": true,
				"secrets": map[string]any{"token": "env://" + envToken},
			}},
		})
	}
	// JSON is YAML, and needs no library to write.
	doc, err := json.MarshalIndent(map[string]any{
		"nats": server, "tenants": []any{tenants}, "providers": configured,
		"executor": map[string]any{"lease_grace": "1s", "clock_error": "50ms", "drain": "1s"},
		// Each process is a host of its own, with its own view of the log.
		"integrity": map[string]any{"high_water": filepath.Join(w.dir, name+"-mark", "highwater.json")},
		"http":      map[string]any{"listen": "127.0.0.1:0"},
		"log":       map[string]any{"level": "warn"},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("kills: %w", err)
	}
	path := filepath.Join(w.dir, name+".yaml")
	if err := os.WriteFile(path, doc, 0o600); err != nil {
		return nil, fmt.Errorf("kills: %w", err)
	}
	return &process{
		name: name, dir: w.dir, binary: w.bin.Ledger, env: w.environ, args: []string{"serve", "--json", "--config", path},
	}, nil
}

// The lines of the shipped configuration that a world has its own values for.
var ownLines = []string{"server_name", "listen", "http", "  store_dir"} //nolint:gochecknoglobals // a constant list

// server makes a server process with the configuration that the project ships;
// more is added to it.
func (w *world) server(name, address, more string) (*process, error) {
	text, err := os.ReadFile(w.bin.ServerConfig)
	if err != nil {
		return nil, fmt.Errorf("kills: %w", err)
	}
	own := []string{strconv.Quote(name), strconv.Quote(address), "", strconv.Quote(filepath.Join(w.dir, name))}
	for i, key := range ownLines {
		line := regexp.MustCompile(`(?m)^` + key + `: .*$`)
		if !line.Match(text) {
			return nil, fmt.Errorf("kills: %s has no line %q", w.bin.ServerConfig, key)
		}
		to := key + ": " + own[i]
		if own[i] == "" {
			to = ""
		}
		text = line.ReplaceAllLiteral(text, []byte(to))
	}
	path := filepath.Join(w.dir, name+".conf")
	if err := os.WriteFile(path, append(text, more...), 0o600); err != nil {
		return nil, fmt.Errorf("kills: %w", err)
	}
	return &process{
		name: name, dir: w.dir, binary: w.bin.Server, args: []string{"-c", path}, env: w.environ, address: address,
	}, nil
}

// start starts the servers, and the ledgers when the servers are ready, and waits
// until all are up.
func (w *world) start(ctx context.Context) error {
	for _, p := range w.servers {
		w.run(p)
	}
	if len(w.servers) > 0 {
		if err := w.serving(ctx); err != nil {
			return err
		}
	}
	for _, p := range w.ledgers {
		w.run(p)
	}
	return w.allUp(ctx, startTime)
}

// serving waits until the servers answer for their streams: those of a cluster have
// chosen a leader then.
func (w *world) serving(ctx context.Context) error {
	nc, err := w.connect(ledgerUser, w.ledgerPw)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("kills: %w", err)
	}
	if !until(ctx, startTime, func() bool {
		call, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		_, err = js.AccountInfo(call)
		return err == nil
	}) {
		return fmt.Errorf("kills: the servers do not serve streams after %s: %w", startTime, err)
	}
	return nil
}

// startTime bounds the start of a world.
const startTime = 60 * time.Second

// allUp waits until every process is up.
func (w *world) allUp(ctx context.Context, limit time.Duration) error {
	up := until(ctx, limit, func() bool {
		for _, p := range w.processes() {
			if !p.isUp() {
				return false
			}
		}
		return true
	})
	if up {
		return nil
	}
	for _, p := range w.processes() {
		if !p.isUp() {
			return fmt.Errorf("kills: %s is not up after %s; see %s%s", p.name, limit, p.dir, strings.Join(p.ends, "\n"))
		}
	}
	return ctx.Err()
}

// connect connects as a user, and keeps connecting for ever.
func (w *world) connect(user, password string) (*nats.Conn, error) {
	nc, err := nats.Connect(w.urls, nats.UserInfo(user, password), nats.CustomInboxPrefix(access.InboxPrefix(user)),
		nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort(), nats.Timeout(time.Second),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return nil, fmt.Errorf("kills: connect: %w", err)
	}
	return nc, nil
}

// Ports below those that the system gives to outgoing connections: a port of a
// killed server must not be taken by somebody else.
const (
	firstPort, ports = 20_000, 10_000
	maxPortTries     = 200
)

// freeAddress does not follow the seed: two runs of one seed must not meet.
func freeAddress() (string, error) {
	for range maxPortTries {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+mathrand.IntN(ports))) //nolint:gosec // no secret
		ln, err := net.Listen("tcp", address)                                                  //nolint:noctx // closed at once
		if err == nil {
			return address, ln.Close()
		}
	}
	return "", errors.New("kills: no free port")
}
