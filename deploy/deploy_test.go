// Package deploy_test holds the files of this folder against the code: the
// accounts and permissions of nats.conf against package access, the configurations against
// package config, and what stands in two files against each other. What needs
// other tools (promtool, systemd-analyze, yamllint, nats-server) is in check.sh.
package deploy_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.yaml.in/yaml/v3"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/natstest"
)

const (
	tenant = "acme"
	// worker is the user of the workers of provider.
	worker, provider = "files-worker", "files"
)

// users are the users of the example tenant, by name.
func users() map[string]access.Role {
	out := make(map[string]access.Role)
	for _, r := range access.Roles() {
		out[tenant+"-"+string(r)] = r
	}
	return out
}

// natsVariables are the variables that nats.conf takes its passwords from.
func natsVariables() []string {
	names := []string{"LEDGER_PASSWORD", "NATS_SYS_PASSWORD", "FILES_WORKER_PASSWORD"}
	for _, r := range access.Roles() {
		names = append(names, "ACME_"+strings.ToUpper(string(r))+"_PASSWORD")
	}
	return names
}

// natsOptions reads nats.conf as the server does. The password of every user is
// the name of its variable behind a letter.
func natsOptions(t *testing.T) *server.Options {
	t.Helper()
	for _, name := range natsVariables() {
		t.Setenv(name, "p"+name)
	}
	opts, err := server.ProcessConfigFile("nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	return opts
}

// natsServer starts a server from nats.conf on a free port.
func natsServer(t *testing.T) *server.Server {
	t.Helper()
	opts := natsOptions(t)
	opts.Port, opts.HTTPPort, opts.StoreDir, opts.NoSigs, opts.NoLog = -1, 0, t.TempDir(), true, true
	opts.JetStreamMaxStore = 64 << 20
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(20 * time.Second) {
		t.Fatal("server is not ready")
	}
	return srv
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Goal: the permissions of nats.conf are those of the access table, neither more
// nor less. Method: read it with the server's own parser and compare; many times,
// since the parser goes through a block in another order each time.
func TestNATSConfigGrantsWhatTheAccessTableGrants(t *testing.T) {
	for range 50 {
		if grants(t); t.Failed() {
			return
		}
	}
}

func grants(t *testing.T) {
	t.Helper()
	opts := natsOptions(t)
	got := make(map[string]access.Permissions)
	for _, u := range opts.Users {
		if u.Username == "sys" {
			if u.Account == nil || u.Account.Name != opts.SystemAccount {
				t.Errorf("user sys is not in the system account")
			}
			continue
		}
		account := access.TenantAccount(tenant)
		switch u.Username {
		case "ledger":
			account = access.LedgerAccount
		case worker:
			account = access.WorkerAccount(provider)
		}
		if u.Account == nil || u.Account.Name != account {
			t.Errorf("user %s is not in the account %s", u.Username, account)
		}
		p := u.Permissions
		if p == nil || p.Publish == nil || p.Subscribe == nil {
			t.Fatalf("user %s has no permissions: everything would be allowed", u.Username)
		}
		if len(p.Publish.Deny)+len(p.Subscribe.Deny) > 0 {
			t.Errorf("user %s has deny rules, the access table knows none", u.Username)
		}
		if p.Publish.Allow == nil {
			t.Errorf("user %s may publish everything", u.Username)
		}
		granted := access.Permissions{Publish: sorted(p.Publish.Allow), Subscribe: sorted(p.Subscribe.Allow)}
		if p.Response != nil {
			granted.Answers = p.Response.MaxMsgs
			if p.Response.Expires != access.WorkTime {
				t.Errorf("user %s may answer for %s, want %s", u.Username, p.Response.Expires, access.WorkTime)
			}
		}
		got[u.Username] = granted
	}
	want := map[string]access.Permissions{"ledger": {Publish: []string{">"}, Subscribe: []string{">"}}}
	for name, role := range users() {
		p, err := access.For(events.Subjects{}, tenant, name, role)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = access.Permissions{Publish: sorted(p.Publish), Subscribe: sorted(p.Subscribe)}
	}
	p, err := access.ForWorker(events.Subjects{}, provider, worker)
	if err != nil {
		t.Fatal(err)
	}
	p.Publish = []string{}
	want[worker] = p
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("permissions of nats.conf (got) and of package access (want):\n%s", diff)
	}
}

// Goal: between the accounts passes what the access table says, neither more nor
// less, and nobody but the ledger has JetStream. Method: start a server from
// nats.conf and ask it.
func TestNATSConfigExchangesWhatTheAccessTableExchanges(t *testing.T) {
	srv := natsServer(t)
	names, err := srv.Accountz(nil)
	if err != nil {
		t.Fatal(err)
	}
	accounts := []string{"$G", "SYS", access.LedgerAccount, access.TenantAccount(tenant), access.WorkerAccount(provider)}
	if diff := cmp.Diff(sorted(names.Accounts), sorted(accounts)); diff != "" {
		t.Errorf("accounts (got) and what they should be (want):\n%s", diff)
	}
	x, err := access.ExchangeOf(events.Subjects{}, tenant)
	if err != nil {
		t.Fatal(err)
	}
	var exports, imports []string
	for kind, subjects := range map[string][]string{"service": x.Services, "stream": x.Streams} {
		for _, subject := range subjects {
			exports = append(exports, fmt.Sprintf("%s %s to [%s]", kind, subject, access.TenantAccount(tenant)))
			imports = append(imports, fmt.Sprintf("%s %s of %s as %s", kind, subject, access.LedgerAccount, subject))
		}
	}
	work, err := access.WorkOf(events.Subjects{}, provider)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2][]string{
		access.LedgerAccount: {
			sorted(exports), {fmt.Sprintf("service %s of %s as %s", work, access.WorkerAccount(provider), work)},
		},
		access.TenantAccount(tenant): {nil, sorted(imports)}, "$G": {nil, nil},
		access.WorkerAccount(provider): {{fmt.Sprintf("service %s to [%s]", work, access.LedgerAccount)}, nil},
	}
	got := make(map[string][2][]string)
	for name := range want {
		info, err := srv.Accountz(&server.AccountzOptions{Account: name})
		if err != nil {
			t.Fatal(err)
		}
		if info.Account.JetStream != (name == access.LedgerAccount) {
			t.Errorf("account %s: JetStream %v", name, info.Account.JetStream)
		}
		var exports, imports []string
		for _, e := range info.Account.Exports {
			if streamed := e.ResponseType == "Streamed"; streamed != (string(e.Subject) == work) {
				t.Errorf("export %s has answers of the type %s", e.Subject, e.ResponseType)
			}
			exports = append(exports, fmt.Sprintf("%s %s to %v", e.Type, e.Subject, e.ApprovedAccounts))
		}
		for _, i := range info.Account.Imports {
			if i.Account == "SYS" {
				continue // the server's own services, which every account has
			}
			imports = append(imports, fmt.Sprintf("%s %s of %s as %s", i.Type, i.Subject, i.Account, i.LocalSubject))
		}
		got[name] = [2][]string{sorted(exports), sorted(imports)}
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("exchange of nats.conf (got) and of package access (want):\n%s", diff)
	}
	ledger, err := srv.LookupAccount(access.LedgerAccount)
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range x.Services {
		if d, err := ledger.ServiceExportResponseThreshold(subject); err != nil || d != access.ResponseTime {
			t.Errorf("answers of %s may take %s, %v, want %s", subject, d, err, access.ResponseTime)
		}
	}
	workers, err := srv.LookupAccount(access.WorkerAccount(provider))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := workers.ServiceExportResponseThreshold(work); err != nil || d != access.WorkTime {
		t.Errorf("answers of workers may take %s, %v, want %s", d, err, access.WorkTime)
	}
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// Goal: an acknowledged event is on disk, and nothing listens to the world.
func TestNATSConfigIsDurableAndLocal(t *testing.T) {
	opts := natsOptions(t)
	if !opts.JetStream || !opts.SyncAlways {
		t.Errorf("jetstream %v, sync always %v; both must be true", opts.JetStream, opts.SyncAlways)
	}
	if opts.Host != "127.0.0.1" || opts.HTTPHost != "127.0.0.1" {
		t.Errorf("listens on %q and %q, want loopback", opts.Host, opts.HTTPHost)
	}
	if int(opts.MaxPayload) < events.MaxEventSize {
		t.Errorf("max_payload %d is below the largest event, %d", opts.MaxPayload, events.MaxEventSize)
	}
}

// Goal: the permissions hold on a running server (I15). Method: start a server
// from nats.conf on a free port and try what an agent may and may not do.
func TestAgentStaysInItsSubjects(t *testing.T) {
	srv := natsServer(t)
	ledger := natstest.Connect(t, srv, nats.UserInfo("ledger", "pLEDGER_PASSWORD"))
	js, err := ledger.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for name, subject := range map[string]string{"OPLEDGER_INTENTS_acme": "opledger.intents.acme", "OPLEDGER_EVENTS": "opledger.events.*.*"} {
		if _, err := js.AddStream(&nats.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
			t.Fatal(err)
		}
	}
	denied := make(chan error, 16)
	agent := natstest.Connect(t, srv, nats.UserInfo("acme-agent", "pACME_AGENT_PASSWORD"),
		nats.CustomInboxPrefix(access.InboxPrefix("acme-agent")),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if msg, err := agent.Request("opledger.intents.acme", []byte("{}"), 5*time.Second); err != nil {
		t.Errorf("an agent can't hand in an intent: %v", err)
	} else if !strings.Contains(string(msg.Data), `"stream":"OPLEDGER_INTENTS_acme"`) {
		t.Errorf("answer to an intent: %s", msg.Data)
	}
	for _, subject := range []string{
		"opledger.events.acme.op-1", "opledger.intents.globex", "opledger.api.v1.acme.decide", "opledger.api.v1.acme.approve",
		"opledger.api.v1.globex.get", "opledger.system.marker", "$JS.API.STREAM.NAMES", "$KV.OPLEDGER_OPERATIONS.acme.op-1",
		"_INBOX_acme-operator.x",
	} {
		if err := agent.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		expectDenied(t, agent, denied, "publish", subject)
	}
	for _, subject := range []string{"opledger.>", "opledger.events.acme.>", "_INBOX.>", "_INBOX_acme-operator.>", "$JS.>"} {
		if _, err := agent.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		expectDenied(t, agent, denied, "subscribe", subject)
	}
	// The reply subject of a request is not held against the permissions. Where it
	// is a subject of the JetStream API, an answer without a body would be a valid
	// request to it.
	if _, err := js.Publish("opledger.events.acme.op-1", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Subscribe("opledger.api.v1.acme.get", func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, reply := range []string{
		"opledger.events.globex.op-1", "$JS.API.STREAM.PURGE.OPLEDGER_EVENTS", "$JS.API.STREAM.DELETE.OPLEDGER_EVENTS",
	} {
		for _, subject := range []string{"opledger.intents.acme", "opledger.api.v1.acme.get"} {
			if err := agent.PublishRequest(subject, reply, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if _, err := agent.Request(subject, []byte("{}"), 5*time.Second); err != nil {
				t.Errorf("%s does not answer any more: %v", subject, err)
			}
		}
	}
	// The API works through its requests one after the other, this one behind them.
	info, err := js.StreamInfo("OPLEDGER_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs != 1 || info.State.LastSeq != 1 {
		t.Errorf("an agent reached the journal: it has %d messages up to %d, want the one of the ledger", info.State.Msgs, info.State.LastSeq)
	}
}

// Goal: a worker takes the work of its provider and answers it, signs of life
// first, and does nothing else (I15).
func TestWorkerStaysInItsWork(t *testing.T) {
	srv := natsServer(t)
	ledger := natstest.Connect(t, srv, nats.UserInfo("ledger", "pLEDGER_PASSWORD"))
	denied := make(chan error, 16)
	w := natstest.Connect(t, srv, nats.UserInfo(worker, "pFILES_WORKER_PASSWORD"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	work, _, err := answers(ledger, "opledger.work.files.task.create")
	if !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("work without a worker: got %q, %v, want no responders", work, err)
	}
	if _, err := w.QueueSubscribe("opledger.work.files.>", access.WorkQueue, func(m *nats.Msg) {
		for _, text := range []string{"sign", "sign", "answer"} {
			_ = m.Respond([]byte(text))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.FlushTimeout(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	work, signs, err := answers(ledger, "opledger.work.files.task.create")
	if err != nil || work != "answer" || signs != 2 {
		t.Errorf("got %q after %d signs of life, %v, want an answer after 2", work, signs, err)
	}
	if _, _, err := answers(ledger, "opledger.work.crm.task.create"); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("work of another provider: got %v, want no responders", err)
	}
	for _, subject := range []string{"opledger.work.files.task.create", "opledger.events.acme.op-1", "$JS.API.STREAM.NAMES", "_INBOX.x", "_R_.x"} {
		if err := w.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		expectDenied(t, w, denied, "publish", subject)
	}
	for _, subject := range []string{"opledger.work.files.>", "opledger.work.files.task.create", "opledger.work.>", "opledger.events.>", "_INBOX.>", ">"} {
		if _, err := w.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		expectDenied(t, w, denied, "subscribe", subject)
	}
	if _, err := w.QueueSubscribeSync("opledger.work.files.>", "another"); err != nil {
		t.Fatal(err)
	}
	expectDenied(t, w, denied, "subscribe", "opledger.work.files.>")
}

// answers sends a request and returns its last answer, and how many came before.
func answers(nc *nats.Conn, subject string) (last string, before int, err error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(subject, sub.Subject, nil); err != nil {
		return "", 0, err
	}
	for n := range 10 {
		m, err := sub.NextMsg(5 * time.Second)
		if err != nil {
			return "", n, err
		}
		if string(m.Data) == "answer" {
			return "answer", n, nil
		}
	}
	return "", 10, errors.New("no answer")
}

func expectDenied(t *testing.T, nc *nats.Conn, denied <-chan error, what, subject string) {
	t.Helper()
	if err := nc.FlushTimeout(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-denied:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
			t.Errorf("%s %s: %v, want a permissions violation", what, subject, err)
		}
	case <-time.After(5 * time.Second):
		t.Errorf("an agent may %s %s", what, subject)
	}
}

// Goal: the example configurations are accepted, and name the users and secrets
// of the files beside them.
func TestConfigurationsAreAccepted(t *testing.T) {
	t.Setenv("LEDGER_PASSWORD", "p1")
	t.Setenv("CRM_TOKEN", "p2")
	embedded, err := config.Parse("opledger.yaml", read(t, "opledger.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]access.Role)
	for _, tn := range embedded.Tenants {
		for _, u := range tn.Users {
			got[u.Name] = u.Role
		}
	}
	if diff := cmp.Diff(got, users()); diff != "" {
		t.Errorf("users of opledger.yaml (got) and of nats.conf (want):\n%s", diff)
	}
	external, err := config.Parse("opledger-external.yaml", read(t, "opledger-external.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if external.NATS.URL == "" || !external.NATS.AssertSync || external.NATS.AllowWeak {
		t.Errorf("opledger-external.yaml: url %q, assert_sync_always %v, allow_weak %v", external.NATS.URL, external.NATS.AssertSync, external.NATS.AllowWeak)
	}
	if embedded.HTTP.Listen != external.HTTP.Listen || !strings.Contains(string(read(t, "prometheus/prometheus.yml")), embedded.HTTP.Listen) {
		t.Errorf("prometheus.yml does not scrape %s", embedded.HTTP.Listen)
	}
}

// Goal: the unit hands the service exactly the secrets that the configuration
// names, and waits for the drain.
func TestUnitFitsItsConfiguration(t *testing.T) {
	unit := string(read(t, "opledger.service"))
	file := read(t, "opledger.yaml")
	cfg, err := config.Parse("opledger.yaml", file)
	if err != nil {
		t.Fatal(err)
	}
	named := submatches(`file:///run/credentials/opledger\.service/([a-z-]+)`, string(file))
	loaded := submatches(`(?m)^LoadCredential=([a-z-]+):/etc/opledger/secrets/`, unit)
	if diff := cmp.Diff(named, loaded); diff != "" {
		t.Errorf("secrets of opledger.yaml (got) and of the unit (want):\n%s", diff)
	}
	want := fmt.Sprintf("TimeoutStopSec=%d\n", int((cfg.Executor.Drain + 15*time.Second).Seconds()))
	if !strings.Contains(unit, want) {
		t.Errorf("the unit lacks %q, the drain plus 15 s", want)
	}
	if !strings.Contains(unit, "StateDirectory=opledger opledger-mark\n") || cfg.NATS.StoreDir != "/var/lib/opledger" ||
		filepath.Dir(cfg.Integrity.HighWater) != "/var/lib/opledger-mark" {
		t.Errorf("store_dir %s and high_water %s are not in the unit's state directories", cfg.NATS.StoreDir, cfg.Integrity.HighWater)
	}
}

// submatches returns the first group of every match, sorted, each once.
func submatches(pattern, text string) []string {
	var out []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

type composeFile struct {
	Services map[string]struct {
		Ports           []string          `yaml:"ports"`
		NetworkMode     string            `yaml:"network_mode"`
		Environment     map[string]string `yaml:"environment"`
		StopGracePeriod string            `yaml:"stop_grace_period"`
		Image           string            `yaml:"image"`
	} `yaml:"services"`
}

// Goal: compose publishes on loopback only and sets every variable that the
// mounted files use.
func TestComposeFitsTheFilesItMounts(t *testing.T) {
	var c composeFile
	if err := yaml.Unmarshal(read(t, "compose.yaml"), &c); err != nil {
		t.Fatal(err)
	}
	for name, s := range c.Services {
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s, not on loopback", name, p)
			}
		}
		if name != "nats" && s.NetworkMode != "service:nats" {
			t.Errorf("%s is not in the name space of nats", name)
		}
	}
	if !strings.HasPrefix(strings.TrimPrefix(c.Services["nats"].Image, "docker.io/library/"), "nats:2.15") {
		t.Errorf("image of nats: %s, want 2.15", c.Services["nats"].Image)
	}
	set := func(service string) []string {
		var names []string
		for name := range c.Services[service].Environment {
			names = append(names, name)
		}
		return sorted(names)
	}
	used := submatches(`password: \$([A-Z_]+)`, string(read(t, "nats.conf")))
	if diff := cmp.Diff(set("nats"), used); diff != "" {
		t.Errorf("variables of the service nats (got) and of nats.conf (want):\n%s", diff)
	}
	refs := submatches(`env://([A-Z_]+)`, string(read(t, "opledger-external.yaml")))
	if diff := cmp.Diff(set("opledger"), refs); diff != "" {
		t.Errorf("variables of the service opledger (got) and of opledger-external.yaml (want):\n%s", diff)
	}
	want := sorted(append(slices.Clone(used), refs...))
	if diff := cmp.Diff(submatches(`(?m)^([A-Z_]+)=`, string(read(t, "env.example"))), slices.Compact(want)); diff != "" {
		t.Errorf("env.example (got) and compose.yaml (want):\n%s", diff)
	}
	cfg, err := config.Parse("opledger-external.yaml", read(t, "opledger-external.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Services["opledger"].StopGracePeriod, (cfg.Executor.Drain + 15*time.Second).String(); got != want {
		t.Errorf("stop_grace_period %s, want %s", got, want)
	}
}

// alerts are the alerts that operations.md has a heading for.
func alerts() []string {
	return []string{
		"OpledgerAnomaly", "OpledgerAttemptsBlocked", "OpledgerDown", "OpledgerDuplicateFound", "OpledgerExecutorLag",
		"OpledgerIntegrityAlarm", "OpledgerLeaseExpiryStorm", "OpledgerLookupLag", "OpledgerPendingTooOld", "OpledgerProjectionLag", "OpledgerReconcilerDead", "OpledgerReviewStale", "OpledgerUnknownGrowing", "OpledgerUnknownTooOld",
	}
}

type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

type ruleTestFile struct {
	Tests []struct {
		Expressions []struct {
			Expr    string      `yaml:"expr"`
			Samples []yaml.Node `yaml:"exp_samples"`
		} `yaml:"promql_expr_test"`
	} `yaml:"tests"`
}

// Goal: an alert that wakes somebody says how bad it is and where the runbook
// is, and has a test in which it fires and one in which it does not.
func TestEveryAlertHasSeverityTextRunbookAndTests(t *testing.T) {
	var rules ruleFile
	var tests ruleTestFile
	if err := yaml.Unmarshal(read(t, "prometheus/rules.yml"), &rules); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(read(t, "prometheus/rules_test.yml"), &tests); err != nil {
		t.Fatal(err)
	}
	runbook := string(read(t, "../docs/operations.md"))
	var got []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			got = append(got, r.Alert)
			if !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
				t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s: summary or description is missing", r.Alert)
			}
			if want := "docs/operations.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
				t.Errorf("%s: runbook_url %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
			}
			if !strings.Contains(runbook, "\n### "+r.Alert+"\n") {
				t.Errorf("%s: docs/operations.md has no such heading", r.Alert)
			}
			fires, silent := false, false
			for _, test := range tests.Tests {
				for _, e := range test.Expressions {
					if strings.Contains(e.Expr, `alertname="`+r.Alert+`"`) {
						fires = fires || len(e.Samples) > 0
						silent = silent || len(e.Samples) == 0
					}
				}
			}
			if !fires || !silent {
				t.Errorf("%s: a test in which it fires: %v, one in which it does not: %v", r.Alert, fires, silent)
			}
		}
	}
	if diff := cmp.Diff(sorted(got), alerts()); diff != "" {
		t.Errorf("alerts (got) and the list of this test (want):\n%s", diff)
	}
}
