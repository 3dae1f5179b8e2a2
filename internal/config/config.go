// Package config reads the one configuration file of the ledger, strictly: an
// unknown key is an error with its line. Secrets stand in it as references
// (env://NAME, file:///path), never as values.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/providers"
)

// Config is the whole configuration.
type Config struct {
	// Prefix is the first token of every subject, "opledger" by default.
	Prefix    string     `yaml:"prefix"`
	NATS      NATS       `yaml:"nats"`
	Tenants   []Tenant   `yaml:"tenants"`
	Providers []Provider `yaml:"providers"`
	// Workers are the users of the embedded server that carry out the actions
	// of remote contracts.
	Workers   []Worker  `yaml:"workers"`
	Executor  Executor  `yaml:"executor"`
	Integrity Integrity `yaml:"integrity"`
	Egress    Egress    `yaml:"egress"`
	HTTP      HTTP      `yaml:"http"`
	Log       Log       `yaml:"log"`

	// dir is where the file was, for relative paths.
	dir string
}

// NATS says where the log is: in an embedded server, or at URL.
type NATS struct {
	// StoreDir is the folder of the embedded server, "opledger-data" by default.
	StoreDir string `yaml:"store_dir"`
	// Listen is where the embedded server listens, "127.0.0.1:4222" by
	// default; "none" keeps it inside the process.
	Listen string `yaml:"listen"`
	// MaxStore bounds the embedded server's disk, in bytes. Zero means 64 GiB.
	MaxStore int64 `yaml:"max_store"`
	// URL of an external server, or of several of one cluster with commas between;
	// then nothing is embedded.
	URL string `yaml:"url"`
	// User and Password are the ledger's own, with all rights on the prefix.
	// The user is "ledger" by default. Without a password the embedded server
	// makes one up and only this process knows it.
	User     string `yaml:"user"`
	Password string `yaml:"password"`
	Creds    string `yaml:"creds"`
	CAFile   string `yaml:"ca_file"`
	// Replicas of the streams, 1 by default.
	Replicas int `yaml:"replicas"`
	// Sync says who makes durable what the embedded server has written: "barrier"
	// (the default), this process for all that wait at the same moment; or
	// "always", the server for each message alone. An external server does it itself.
	Sync string `yaml:"sync"`
	// Apart stores every event alone. By default those that wait at the same
	// moment go together where that is quicker.
	Apart bool `yaml:"apart"`
	// AllowWeak starts in spite of settings that can lose acknowledged events.
	// Each is named in a loud warning.
	AllowWeak bool `yaml:"allow_weak"`
	// AssertSync says that the external server runs with sync_interval: always,
	// which a client can't see.
	AssertSync bool `yaml:"assert_sync_always"`
	// ListenAnywhere allows an address that is not a loopback one.
	ListenAnywhere bool `yaml:"listen_anywhere"`
}

// Who makes durable what an embedded server has written.
const (
	SyncBarrier = "barrier"
	SyncAlways  = "always"
)

// Tenant is one isolated user of the ledger.
type Tenant struct {
	ID string `yaml:"id"`
	// ApprovalInSubmit allows approvals to come with an intent.
	ApprovalInSubmit bool `yaml:"approval_in_submit"`
	// PossibleRepeats says what becomes of a wish that has request_id,
	// provider, account and action in common with an earlier one: "flag" (the
	// default) names the earlier one in it, "hold" also holds it until a person
	// resumes or cancels it.
	PossibleRepeats string `yaml:"possible_repeats"`
	Users           []User `yaml:"users"`
}

// What becomes of a possible repeat.
const (
	FlagRepeats = "flag"
	HoldRepeats = "hold"
)

// User is a credential on the bus.
type User struct {
	Name     string      `yaml:"name"`
	Password string      `yaml:"password"`
	Role     access.Role `yaml:"role"`
}

// Worker is a credential on the bus for the workers of one provider.
type Worker struct {
	Name     string `yaml:"name"`
	Provider string `yaml:"provider"`
	Password string `yaml:"password"`
}

// Provider is a contract file and the accounts that it is used with.
type Provider struct {
	// Contract is a path, "builtin:NAME" or "catalogue:NAME".
	Contract string    `yaml:"contract"`
	Accounts []Account `yaml:"accounts"`
}

// Account is one account of a provider.
type Account struct {
	ID string `yaml:"id"`
	// ProviderID is the provider's own id of the account, as its probe says.
	ProviderID    string            `yaml:"provider_id"`
	BaseURL       string            `yaml:"base_url"`
	AllowLoopback bool              `yaml:"allow_loopback"`
	Secrets       map[string]string `yaml:"secrets"`
	Values        map[string]string `yaml:"values"`
}

// Executor bounds attempts.
type Executor struct {
	// LeaseGrace is how much longer than a request a lease is; 10 s by default.
	LeaseGrace time.Duration `yaml:"lease_grace"`
	// ClockError is how far clocks may be apart; 500 ms by default.
	ClockError time.Duration `yaml:"clock_error"`
	// Width bounds requests under way per provider account; 8 by default.
	Width int `yaml:"width"`
	// Drain is how long requests may end at shutdown; 10 s by default.
	Drain time.Duration `yaml:"drain"`
	// Consumer names the durable consumers of this process. Executors that
	// share a name share the work; "executor" by default.
	Consumer string `yaml:"consumer"`
}

// Egress bounds where requests to providers may go.
type Egress struct {
	// AllowHosts lists hosts, exactly or as "*.example.com". Empty means: those
	// that contracts and accounts name.
	AllowHosts []string `yaml:"allow_hosts"`
}

// Integrity says how the log is guarded.
type Integrity struct {
	// HighWater is the file in which this process keeps what it has seen of the
	// log. It must lie outside the store, or it is lost and restored with it. By
	// default it is highwater.json in the folder beside nats.store_dir that is
	// named like it with "-mark"; with an external server the folder is
	// opledger-mark beside the configuration file.
	HighWater string `yaml:"high_water"`
}

// HTTP is where metrics and health are served.
type HTTP struct {
	// Listen is "127.0.0.1:9464" by default; "none" serves nothing.
	Listen string `yaml:"listen"`
	// Profile also serves Go's profiles under /debug/pprof/. They show nothing
	// of operations, but cost CPU.
	Profile bool `yaml:"profile"`
}

// Log says how to log.
type Log struct {
	// Level is debug, info, warn or error; Format is text or json.
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// Load reads a file and checks it.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	c, err := Parse(path, data)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Parse reads a configuration and checks it; name stands in errors, and its
// folder is where relative paths start.
func Parse(name string, data []byte) (*Config, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	c := &Config{dir: filepath.Dir(name)}
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("config: %s: %w", name, explained(err, data))
	}
	c.defaults()
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("config: %s: %w", name, err)
	}
	return c, nil
}

func (c *Config) defaults() {
	set := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	set(&c.Prefix, events.DefaultPrefix)
	set(&c.NATS.StoreDir, "opledger-data")
	set(&c.NATS.Listen, "127.0.0.1:4222")
	set(&c.NATS.User, "ledger")
	set(&c.HTTP.Listen, "127.0.0.1:9464")
	set(&c.Log.Level, "info")
	set(&c.Log.Format, "text")
	set(&c.Executor.Consumer, "executor")
	mark := filepath.Clean(c.NATS.StoreDir) + "-mark"
	if c.NATS.URL != "" {
		mark = "opledger-mark"
	}
	set(&c.Integrity.HighWater, filepath.Join(mark, "highwater.json"))
	if c.NATS.Replicas == 0 {
		c.NATS.Replicas = 1
	}
	if c.NATS.MaxStore == 0 {
		c.NATS.MaxStore = 64 << 30
	}
	if c.Executor.LeaseGrace == 0 {
		c.Executor.LeaseGrace = 10 * time.Second
	}
	if c.Executor.ClockError == 0 {
		c.Executor.ClockError = 500 * time.Millisecond
	}
	if c.Executor.Width == 0 {
		c.Executor.Width = 8
	}
	if c.Executor.Drain == 0 {
		c.Executor.Drain = 10 * time.Second
	}
}

// Check reports everything that is wrong, one line each.
func (c *Config) Check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := checkID("prefix", c.Prefix); err != nil {
		errs = append(errs, err)
	}
	c.checkNATS(fail)
	if len(c.Tenants) == 0 {
		fail("tenants: at least one is needed")
	}
	seen, users := map[string]bool{}, map[string]bool{c.NATS.User: true}
	for i, t := range c.Tenants {
		if err := checkID("id", t.ID); err != nil {
			fail("tenants[%d]: %w", i, err)
		}
		if seen[t.ID] {
			fail("tenants[%d]: %q stands twice", i, t.ID)
		}
		seen[t.ID] = true
		if !slices.Contains([]string{"", FlagRepeats, HoldRepeats}, t.PossibleRepeats) {
			fail("tenants[%d].possible_repeats must be %s or %s", i, FlagRepeats, HoldRepeats)
		}
		for j, u := range t.Users {
			at := fmt.Sprintf("tenants[%d].users[%d]", i, j)
			if users[u.Name] {
				fail("%s: the name %q is taken", at, u.Name)
			}
			users[u.Name] = true
			if _, err := access.For(c.Subjects(), t.ID, u.Name, u.Role); err != nil {
				fail("%s: %w", at, err)
			}
			if _, err := providers.ParseRef(u.Password); err != nil {
				fail("%s.password: %w", at, err)
			}
		}
	}
	for i, p := range c.Providers {
		c.checkProvider(i, p, fail)
	}
	for i, pattern := range c.Egress.AllowHosts {
		if err := providers.CheckHostPattern(pattern); err != nil {
			fail("egress.allow_hosts[%d]: %w", i, err)
		}
	}
	for i, w := range c.Workers {
		at := fmt.Sprintf("workers[%d]", i)
		if users[w.Name] {
			fail("%s: the name %q is taken", at, w.Name)
		}
		users[w.Name] = true
		if _, err := access.ForWorker(c.Subjects(), w.Provider, w.Name); err != nil {
			fail("%s: %w", at, err)
		}
		if _, err := providers.ParseRef(w.Password); err != nil {
			fail("%s.password: %w", at, err)
		}
	}
	if c.NATS.URL != "" && len(c.Workers) > 0 {
		fail("workers: the users of an external server are in its own configuration; see deploy/nats.conf")
	}
	if !slices.Contains([]string{"text", "json"}, c.Log.Format) {
		fail("log.format must be text or json")
	}
	if _, err := c.LogLevel(); err != nil {
		fail("log.level must be debug, info, warn or error")
	}
	if c.Executor.LeaseGrace < time.Second {
		fail("executor.lease_grace must be at least 1s; 10s outlasts a failover of the log")
	}
	if c.HTTP.Listen != "none" {
		if _, err := hostPort(c.HTTP.Listen); err != nil {
			fail("http.listen %w", err)
		}
	}
	return errors.Join(errs...)
}

// checkID is events.CheckID without the words that a reader of the file does not
// need.
func checkID(what, id string) error {
	if err := events.CheckID(what, id); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), events.ErrInvalidID.Error()+": "))
	}
	return nil
}

// hostPort returns the host of an address to listen at. Port 0 picks a free one.
func hostPort(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%q must be host:port or none", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q: the port must be a number from 0 to 65535", address)
	}
	return host, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkBaseURL: what goes over the network is encrypted; only to this machine,
// and only if that is said, it need not be.
func checkBaseURL(a Account) error {
	u, err := url.Parse(a.BaseURL)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must be like https://crm.example.com")
	case isLoopback(u.Hostname()) && !a.AllowLoopback:
		return fmt.Errorf("leads to this machine (%s); set allow_loopback: true if that is wanted", u.Host)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return fmt.Errorf("must be https:// (%s is another machine, and http:// sends secrets in the clear)", u.Host)
	}
	return nil
}

func (c *Config) checkNATS(fail func(string, ...any)) {
	n := c.NATS
	for what, ref := range map[string]string{"nats.password": n.Password} {
		if ref == "" {
			continue
		}
		if _, err := providers.ParseRef(ref); err != nil {
			fail("%s: %w", what, err)
		}
	}
	if rel, err := filepath.Rel(c.Path(n.StoreDir), c.Path(c.Integrity.HighWater)); n.URL == "" && err == nil && filepath.IsLocal(rel) {
		fail("integrity.high_water must lie outside nats.store_dir, or it is lost and restored with it")
	}
	if n.Sync != "" && n.Sync != SyncBarrier && n.Sync != SyncAlways {
		fail("nats.sync must be %s or %s", SyncBarrier, SyncAlways)
	}
	if n.Replicas < 1 || n.Replicas > 5 {
		fail("nats.replicas must be 1 to 5")
	}
	if n.URL != "" {
		for one := range strings.SplitSeq(n.URL, ",") {
			if u, err := url.Parse(strings.TrimSpace(one)); err != nil || u.Host == "" {
				fail("nats.url must be like nats://host:4222, or several of them with commas between")
			} else if u.User != nil {
				fail("nats.url must not hold credentials; use nats.user and nats.password")
			}
		}
		if n.Sync == SyncBarrier {
			fail("nats.sync: barrier is for the embedded server; an external one must run with sync_interval: always")
		}
		return
	}
	if n.Replicas != 1 {
		fail("nats.replicas: an embedded server keeps one copy; use nats.url for a cluster")
	}
	if n.Listen == "none" {
		return
	}
	host, err := hostPort(n.Listen)
	if err != nil {
		fail("nats.listen %w", err)
		return
	}
	if !n.ListenAnywhere && !isLoopback(host) {
		fail("nats.listen %s is not a loopback address; set nats.listen_anywhere: true if that is wanted (connections are not encrypted)", n.Listen)
	}
}

func (c *Config) checkProvider(i int, p Provider, fail func(string, ...any)) {
	at := fmt.Sprintf("providers[%d]", i)
	if p.Contract == "" {
		fail("%s.contract is required: a path, builtin:NAME or catalogue:NAME", at)
	}
	if len(p.Accounts) == 0 {
		fail("%s.accounts: at least one is needed", at)
	}
	for j, a := range p.Accounts {
		if err := checkID("id", a.ID); err != nil {
			fail("%s.accounts[%d]: %w", at, j, err)
		}
		if a.ProviderID == "" {
			fail("%s.accounts[%d].provider_id is required: the provider's own id of the account, which operations are bound to", at, j)
		}
		if a.BaseURL != "" {
			if err := checkBaseURL(a); err != nil {
				fail("%s.accounts[%d].base_url %w", at, j, err)
			}
		}
		for name, ref := range a.Secrets {
			if _, err := providers.ParseRef(ref); err != nil {
				fail("%s.accounts[%d].secrets.%s: %w", at, j, name, err)
			}
		}
	}
}

// Barrier reports whether this process makes durable what its embedded server has
// written.
func (c *Config) Barrier() bool { return c.NATS.URL == "" && c.NATS.Sync != SyncAlways }

// Subjects returns the subjects of the ledger.
func (c *Config) Subjects() events.Subjects { return events.Subjects{Prefix: c.Prefix} }

// LogLevel returns the level of the log.
func (c *Config) LogLevel() (slog.Level, error) {
	var l slog.Level
	err := l.UnmarshalText([]byte(strings.ToUpper(c.Log.Level)))
	return l, err
}

// Path makes a path of the file relative to the file's folder.
func (c *Config) Path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(c.dir, p)
}

// TenantIDs lists the tenants.
func (c *Config) TenantIDs() []string {
	ids := make([]string, len(c.Tenants))
	for i, t := range c.Tenants {
		ids[i] = t.ID
	}
	return ids
}
