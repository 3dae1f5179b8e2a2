package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/barrier"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/providers"
)

// embedded is the server inside this process.
type embedded struct {
	srv  *server.Server
	lock *natsjournal.DirLock
	// url is where it listens, empty if it does not.
	url string
	// user and password are the ledger's own.
	user, password string
	// identity is a name that all runs on this store share.
	identity string
	// streams is the folder with the files of the ledger's streams, barrier what
	// syncs them; nil where the server does that itself.
	streams string
	barrier *barrier.Store
	// started is when the server began to read its files.
	started time.Time
}

const serverReady = 30 * time.Second

// startEmbedded starts the server on the store folder, after taking its lock:
// two servers on one folder would both start, and both acknowledge.
func startEmbedded(cfg *config.Config, log *slog.Logger) (*embedded, error) {
	dir := cfg.Path(cfg.NATS.StoreDir)
	lock, err := natsjournal.Lock(dir)
	if err != nil {
		return nil, err
	}
	e := &embedded{lock: lock, user: cfg.NATS.User}
	if err := e.start(cfg, dir, log); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return e, nil
}

func (e *embedded) start(cfg *config.Config, dir string, log *slog.Logger) error {
	var err error
	if e.identity, err = identity(dir); err != nil {
		return err
	}
	if e.password, err = secret(cfg.NATS.Password); err != nil {
		return fmt.Errorf("node: nats.password: %w", err)
	}
	if e.password == "" {
		e.password = rand.Text()
	}
	store := filepath.Join(dir, "nats")
	if err := checkAccountOfStore(store); err != nil {
		return err
	}
	e.streams = filepath.Join(store, "jetstream", access.LedgerAccount, "streams")
	name, behind := "opledger-"+e.identity, cfg.Barrier()
	if behind {
		name = natsjournal.BarrierServer + e.identity
	}
	// A process that was killed may have left what it had not synced yet: whoever
	// reads it must find it durable.
	if err := errors.Join(barrier.SyncTree(store, time.Time{}), barrier.Forget(e.streams)); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	e.started = time.Now()
	opts := &server.Options{
		ServerName: name, JetStream: true, StoreDir: store,
		SyncAlways: !behind, JetStreamMaxStore: cfg.NATS.MaxStore, JetStreamMaxMemory: 64 << 20,
		MaxPayload: 1 << 20, NoSigs: true, NoLog: true, DontListen: cfg.NATS.Listen == "none",
	}
	if err := forgetIndexes(e.streams, cfg); err != nil {
		return err
	}
	if err := setAccounts(opts, cfg, e.user, e.password); err != nil {
		return err
	}
	if !opts.DontListen {
		host, port, err := net.SplitHostPort(cfg.NATS.Listen)
		if err != nil {
			return fmt.Errorf("node: nats.listen: %w", err)
		}
		opts.Host = host
		if opts.Port, err = strconv.Atoi(port); err != nil {
			return fmt.Errorf("node: nats.listen: port %q", port)
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		} else if err := addressFree(cfg.NATS.Listen); err != nil {
			return err
		}
	}
	if e.srv, err = server.NewServer(opts); err != nil {
		return fmt.Errorf("node: embedded server: %w", err)
	}
	e.srv.SetLoggerV2(serverLog{log}, false, false, false)
	e.srv.Start()
	if !e.srv.ReadyForConnections(serverReady) {
		e.srv.Shutdown()
		return fmt.Errorf("node: embedded server not ready after %s; is %s in use?", serverReady, cfg.NATS.Listen)
	}
	if !opts.DontListen {
		e.url = e.srv.ClientURL()
	}
	return nil
}

// forgetIndexes lets the server read the files of the journal anew. After an orderly
// stop it believes its index, counts messages that are damaged or gone, and knows
// better what the log holds than the log does; without the index it looks. The same
// for the other streams that can't be made anew, whose index may be newer than their
// files after a power loss.
func forgetIndexes(streams string, cfg *config.Config) error {
	names := Topology(cfg).Names()
	for _, stream := range []string{names.Events, names.Refused, natsjournal.BucketStream(names.Contracts)} {
		path := filepath.Join(streams, stream, "msgs", "index.db")
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("node: %w", err)
		}
	}
	return nil
}

// openBarrier makes this process the one that syncs the store from now on, where the
// server does not, once the streams are there.
func (e *embedded) openBarrier(cfg *config.Config) error {
	if !cfg.Barrier() {
		return nil
	}
	top := filepath.Dir(filepath.Clean(cfg.Path(cfg.NATS.StoreDir)))
	if err := errors.Join(barrier.SyncTree(e.streams, e.started.Add(-barrier.Tick)), barrier.SyncNames(e.streams, top)); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	e.barrier = barrier.New(e.streams, Topology(cfg).Names().Events)
	return nil
}

// addressFree tries an address: the server only says in its log that one is
// taken, and is waited for in vain.
func addressFree(address string) error {
	ln, err := net.Listen("tcp", address) //nolint:noctx // closed at once
	if err != nil {
		return fmt.Errorf("node: nats.listen: %w", err)
	}
	return ln.Close()
}

func (e *embedded) stop() error {
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
	var errs []error
	if e.barrier != nil {
		errs = append(errs, e.barrier.Close())
	}
	// An orderly end is durable.
	errs = append(errs, barrier.SyncTree(e.streams, e.started.Add(-barrier.Tick)))
	return errors.Join(append(errs, e.lock.Close())...)
}

// setAccounts turns the table of package access into the server's accounts and
// users.
func setAccounts(opts *server.Options, cfg *config.Config, user, password string) error {
	// That an account has JetStream from the start can only be said in the
	// server's configuration language. Nothing from outside goes through it.
	if err := opts.ProcessConfigString("accounts { " + access.LedgerAccount + " { jetstream: enabled } }"); err != nil {
		return fmt.Errorf("node: accounts: %w", err)
	}
	ledger := opts.Accounts[0]
	opts.Users = []*server.User{{Username: user, Password: password, Account: ledger}}
	for _, t := range cfg.Tenants {
		account := server.NewAccount(access.TenantAccount(t.ID))
		opts.Accounts = append(opts.Accounts, account)
		if err := exchange(cfg, t.ID, ledger, account); err != nil {
			return fmt.Errorf("node: account of tenant %s: %w", t.ID, err)
		}
		for _, u := range t.Users {
			p, err := access.For(cfg.Subjects(), t.ID, u.Name, u.Role)
			if err != nil {
				return err
			}
			pw, err := secret(u.Password)
			if err != nil {
				return fmt.Errorf("node: password of user %s: %w", u.Name, err)
			}
			opts.Users = append(opts.Users, &server.User{
				Username: u.Name, Password: pw, Account: account, Permissions: permissions(p),
			})
		}
	}
	return setWorkers(opts, cfg, ledger)
}

func permissions(p access.Permissions) *server.Permissions {
	out := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: p.Publish},
		Subscribe: &server.SubjectPermission{Allow: p.Subscribe},
	}
	if p.Answers > 0 {
		// Answers alone: an empty list would allow everything.
		out.Publish.Allow = []string{}
		out.Response = &server.ResponsePermission{MaxMsgs: p.Answers, Expires: access.WorkTime}
	}
	return out
}

// setWorkers adds the accounts of workers, one for each provider.
func setWorkers(opts *server.Options, cfg *config.Config, ledger *server.Account) error {
	accounts := make(map[string]*server.Account)
	for _, w := range cfg.Workers {
		account, there := accounts[w.Provider]
		if !there {
			account = server.NewAccount(access.WorkerAccount(w.Provider))
			accounts[w.Provider] = account
			opts.Accounts = append(opts.Accounts, account)
			subject, err := access.WorkOf(cfg.Subjects(), w.Provider)
			if err != nil {
				return err
			}
			if err := errors.Join(
				account.AddServiceExportWithResponse(subject, server.Streamed, []*server.Account{ledger}),
				account.SetServiceExportResponseThreshold(subject, access.WorkTime),
				ledger.AddServiceImport(account, subject, subject),
			); err != nil {
				return fmt.Errorf("node: account of the workers of %s: %w", w.Provider, err)
			}
		}
		p, err := access.ForWorker(cfg.Subjects(), w.Provider, w.Name)
		if err != nil {
			return err
		}
		pw, err := secret(w.Password)
		if err != nil {
			return fmt.Errorf("node: password of worker %s: %w", w.Name, err)
		}
		opts.Users = append(opts.Users, &server.User{
			Username: w.Name, Password: pw, Account: account, Permissions: permissions(p),
		})
	}
	return nil
}

// exchange lets pass between the ledger's account and a tenant's what the table
// names, and nothing else. Behind a barrier an acknowledgement of the server is no
// promise, so what goes to the inbox comes to the gate instead.
func exchange(cfg *config.Config, tenant string, ledger, account *server.Account) error {
	s := cfg.Subjects()
	x, err := access.ExchangeOf(s, tenant)
	if err != nil {
		return err
	}
	only := []*server.Account{account}
	for _, subject := range x.Services {
		to := subject
		if subject == s.Inbox(tenant) && cfg.Barrier() {
			to = s.Gate(tenant)
		}
		if err := errors.Join(
			ledger.AddServiceExport(to, only),
			ledger.SetServiceExportResponseThreshold(to, access.ResponseTime),
			account.AddServiceImport(ledger, subject, to),
		); err != nil {
			return fmt.Errorf("service %s: %w", subject, err)
		}
	}
	for _, subject := range x.Streams {
		if err := errors.Join(ledger.AddStreamExport(subject, only), account.AddStreamImport(ledger, subject, "")); err != nil {
			return fmt.Errorf("stream %s: %w", subject, err)
		}
	}
	return nil
}

// checkAccountOfStore refuses a store whose streams lie in the server's global
// account, where an early version kept them: the server would not see them, and
// a ledger that has forgotten everything would start.
func checkAccountOfStore(store string) error {
	old, now := filepath.Join(store, "jetstream", "$G"), filepath.Join(store, "jetstream", access.LedgerAccount)
	entries, err := os.ReadDir(filepath.Join(old, "streams"))
	if errors.Is(err, os.ErrNotExist) || (err == nil && len(entries) == 0) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	return fmt.Errorf("node: the streams in %s belong to no account of this version; if %s does not exist, rename the one to the other", old, now)
}

// identity returns a random name kept in the store folder. Together with the
// folder's lock it tells which attempts belong to earlier, dead runs.
func identity(dir string) (string, error) {
	path := filepath.Join(dir, "worker-id")
	data, err := os.ReadFile(path)
	if err == nil && len(data) > 0 {
		return string(data), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("node: %w", err)
	}
	id := strings.ToLower(rand.Text()[:12])
	if err := os.WriteFile(path, []byte(id), 0o600); err != nil {
		return "", fmt.Errorf("node: %w", err)
	}
	return id, nil
}

// secret resolves a reference; an empty one is an empty secret.
func secret(ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	r, err := providers.ParseRef(ref)
	if err != nil {
		return "", err
	}
	s, err := r.Resolve()
	if err != nil {
		return "", err
	}
	return s.Reveal(), nil
}

// A server that answers no ping for pingEvery times maxPings is taken for dead, and
// another one of the cluster is connected to. The client's own values would leave a
// link that swallows everything in use for minutes.
const (
	pingEvery = 3 * time.Second
	maxPings  = 2
)

// connect returns the ledger's own connection, in-process if the server is.
func connect(cfg *config.Config, e *embedded, name string, log *slog.Logger) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(200 * time.Millisecond),
		// A server that restarts may not know its users yet.
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(false), nats.Timeout(5 * time.Second),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(maxPings),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.LogAttrs(context.Background(), slog.LevelWarn, "disconnected from NATS", slog.Any("err", err))
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			log.LogAttrs(context.Background(), slog.LevelInfo, "connected to NATS again")
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			log.LogAttrs(context.Background(), slog.LevelError, "NATS error", slog.String("subject", subject), slog.Any("err", err))
		}),
	}
	if e != nil {
		opts = append(opts, nats.InProcessServer(e.srv), nats.UserInfo(e.user, e.password))
		nc, err := nats.Connect("", opts...)
		if err != nil {
			return nil, fmt.Errorf("node: connect to the embedded server: %w", err)
		}
		return nc, nil
	}
	password, err := secret(cfg.NATS.Password)
	if err != nil {
		return nil, fmt.Errorf("node: nats.password: %w", err)
	}
	switch {
	case cfg.NATS.Creds != "":
		opts = append(opts, nats.UserCredentials(cfg.Path(cfg.NATS.Creds)))
	case password != "":
		opts = append(opts, nats.UserInfo(cfg.NATS.User, password))
	}
	if cfg.NATS.CAFile != "" {
		opts = append(opts, nats.RootCAs(cfg.Path(cfg.NATS.CAFile)))
	}
	nc, err := nats.Connect(cfg.NATS.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("node: connect to %s: %w", config.ShownURL(cfg.NATS.URL), err)
	}
	return nc, nil
}

// serverLog passes the server's warnings and errors on; its notices are noise.
type serverLog struct{ log *slog.Logger }

func (l serverLog) say(level slog.Level, format string, args ...any) {
	l.log.LogAttrs(context.Background(), level, "nats server", slog.String("text", fmt.Sprintf(format, args...)))
}

// Noticef implements the server's logger.
func (l serverLog) Noticef(format string, args ...any) { l.say(slog.LevelDebug, format, args...) }

// Warnf implements the server's logger.
func (l serverLog) Warnf(format string, args ...any) {
	if strings.HasPrefix(format, "Plaintext passwords") {
		return // they are kept by reference and only in memory
	}
	l.say(slog.LevelWarn, format, args...)
}

// Fatalf implements the server's logger.
func (l serverLog) Fatalf(format string, args ...any) { l.say(slog.LevelError, format, args...) }

// Errorf implements the server's logger.
func (l serverLog) Errorf(format string, args ...any) { l.say(slog.LevelError, format, args...) }

// Debugf implements the server's logger.
func (l serverLog) Debugf(string, ...any) {}

// Tracef implements the server's logger.
func (l serverLog) Tracef(string, ...any) {}
