package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/internal/node"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// canary is a secret that must not show anywhere.
const (
	canarySecret = "canary-secret-token-1"
	canaryArg    = "canary-argument-2"
)

// world is a whole ledger in this process with the simulator as its provider.
type world struct {
	t    *testing.T
	node *node.Node
	sim  *simulator.Client
	cfg  *config.Config
	logs *safeBuffer
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

type options struct {
	contract string
	vars     map[string]string
	edit     func(contract string) string
	rules    []simulator.Rule
	// values are the account's.
	values map[string]string
	// maxStore bounds the store, in bytes.
	maxStore int64
	// before answers instead of the provider where it returns true.
	before func(w http.ResponseWriter, r *http.Request) bool
}

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	sim, err := simulator.New(simulator.Config{Tokens: map[string]string{canarySecret: "acct_1"}})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.before == nil || !o.before(w, r) {
			sim.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { sim.Close(); srv.Close() })
	client, err := simulator.NewClient(simulator.ClientConfig{BaseURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range o.rules {
		if _, err := client.AddRule(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if o.contract == "" {
		o.contract = "sim-crm"
	}
	if o.vars == nil {
		o.vars = map[string]string{"total": "2s", "late_apply": "200ms", "lag": "1s", "schedule": "200ms, 500ms, 1s"}
	}
	contract, err := providers.Template(o.contract, o.vars)
	if err != nil {
		t.Fatal(err)
	}
	if o.edit != nil {
		contract = []byte(o.edit(string(contract)))
	}
	dir := t.TempDir()
	write := func(name, data string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("contract.yaml", string(contract))
	write("token", canarySecret)
	write("password", "pw-of-everybody")
	users := func(tenant string) string {
		var b strings.Builder
		for _, r := range access.Roles() {
			fmt.Fprintf(&b, "      - {name: %s-%s, role: %s, password: 'file://%s/password'}\n", tenant, r, r, dir)
		}
		return b.String()
	}
	write("opledger.yaml", fmt.Sprintf(`
nats: {store_dir: store, listen: "127.0.0.1:0", password: "file://%[1]s/password"}
tenants:
  - id: acme
    users:
%[2]s  - id: rival
    users:
%[3]sproviders:
  - contract: contract.yaml
    accounts:
      - {id: main, provider_id: acct_1, base_url: %[4]q, allow_loopback: true, secrets: {token: "file://%[1]s/token"}, values: %[5]s}
workers:
  - {name: files-worker, provider: files, password: "file://%[1]s/password"}
  - {name: mail-worker, provider: mail, password: "file://%[1]s/password"}
executor: {lease_grace: 1s, clock_error: 20ms, drain: 1s}
http: {listen: "127.0.0.1:0"}
log: {level: debug}
`, dir, users("acme"), users("rival"), srv.URL, flow(o.values)))
	cfg, err := config.Load(filepath.Join(dir, "opledger.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if o.maxStore > 0 {
		cfg.NATS.MaxStore = o.maxStore
	}
	w := &world{t: t, sim: client, cfg: cfg, logs: &safeBuffer{}}
	w.start()
	t.Cleanup(func() {
		if err := w.node.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if t.Failed() {
			t.Log(w.logs.String())
		}
	})
	return w
}

// flow writes a mapping in one line of YAML.
func flow(values map[string]string) string {
	data, err := json.Marshal(values)
	if err != nil || values == nil {
		return "{}"
	}
	return string(data)
}

func (w *world) start() {
	w.t.Helper()
	n, err := node.Start(w.t.Context(), node.Options{
		Config: w.cfg, Version: "0.0.0-test",
		Logger: slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.node = n
}

// connect connects as a user. The channel is for drain: it holds the last
// complaint of the server that drain has seen.
func (w *world) connect(user string) (*nats.Conn, chan error) {
	w.t.Helper()
	errs := make(chan error, 1)
	opts := []nats.Option{
		nats.UserInfo(user, "pw-of-everybody"), nats.NoReconnect(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	if user != "ledger" {
		opts = append(opts, nats.CustomInboxPrefix(access.InboxPrefix(user)))
	}
	nc, err := nats.Connect(w.node.URL(), opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc, errs
}

func (w *world) client(user string) *opledger.Client {
	w.t.Helper()
	nc, _ := w.connect(user)
	tenant, _, _ := strings.Cut(user, "-")
	c, err := opledger.NewClient(opledger.ClientConfig{Conn: nc, Tenant: tenant, Timeout: 5 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func wish(id string) api.SubmitRequest {
	return api.SubmitRequest{
		OperationID: id, Provider: "crm", Account: "main", Action: "task.create",
		Args: json.RawMessage(`{"title":"` + canaryArg + `"}`),
	}
}

func (w *world) settle(c *opledger.Client, id string) api.Answer {
	w.t.Helper()
	a, err := c.Wait(w.t.Context(), api.GetRequest{OperationID: id}, 20*time.Second)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// I15: roles × subjects × two tenants: every verb, the inbox, the journal, the
// buckets, consumers, other people's answers. What is not allowed is denied by
// the server itself.
func TestPermissionsKeepRolesAndTenantsApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	s := events.Subjects{}
	allowed := func(role access.Role, tenant, verb string) bool {
		p, err := access.For(s, "acme", "acme-"+string(role), role)
		if err != nil {
			t.Fatal(err)
		}
		for _, allow := range p.Publish {
			if allow == s.API(tenant, verb) {
				return true
			}
		}
		return false
	}
	for _, role := range access.Roles() {
		nc, errs := w.connect("acme-" + string(role))
		for _, verb := range api.Verbs() {
			for _, tenant := range []string{"acme", "rival"} {
				if err := nc.PublishRequest(s.API(tenant, verb), nc.NewRespInbox(), []byte(`{"operation_id":"nothing-here"}`)); err != nil {
					t.Fatal(err)
				}
				denied := drain(nc, errs)
				want := allowed(role, tenant, verb)
				if tenant == "rival" && want {
					t.Fatalf("the table allows %s to reach the other tenant", role)
				}
				if want == denied {
					t.Errorf("%s, %s of %s: denied %t, want %t", role, verb, tenant, denied, !want)
				}
			}
		}
		never := []string{
			s.Inbox("rival"), "opledger.events.acme.op-1", "opledger.events.rival.op-1", s.System("marker"),
			s.Refused("acme"), "$KV.OPLEDGER_OPERATIONS.acme.op-1", "$KV.OPLEDGER_CLAIMS.acme.op-1",
			"$JS.API.STREAM.INFO.OPLEDGER_EVENTS", "$JS.API.CONSUMER.CREATE.OPLEDGER_EVENTS", "$JS.API.STREAM.PURGE.OPLEDGER_EVENTS",
			"$JS.API.STREAM.MSG.GET.OPLEDGER_EVENTS", "$JS.API.DIRECT.GET.OPLEDGER_EVENTS.opledger.events.rival.op-1", "$SYS.REQ.SERVER.PING",
		}
		for _, subject := range never {
			if err := nc.Publish(subject, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if !drain(nc, errs) {
				t.Errorf("%s may publish to %s", role, subject)
			}
		}
		for _, subject := range []string{
			s.AllEvents("rival"), s.AllEvents(""), s.Refused("rival"), "_INBOX.>", "_INBOX_rival-agent.>", ">", "opledger.>",
			s.API("acme", "submit"), s.Inbox("acme"), "$KV.>",
		} {
			sub, err := nc.SubscribeSync(subject)
			if err != nil {
				t.Fatal(err)
			}
			if !drain(nc, errs) {
				t.Errorf("%s may subscribe to %s", role, subject)
			}
			_ = sub.Unsubscribe()
		}
	}
}

// drain asks the server for a sign of life and reports whether it complained
// before it: a connection has noted the complaint when the sign has come.
func drain(nc *nats.Conn, errs chan error) bool {
	_ = nc.FlushTimeout(20 * time.Second)
	var before error
	select {
	case before = <-errs:
	default:
	}
	last := nc.LastError()
	errs <- last
	again := last == before //nolint:errorlint // the same complaint, not one of its kind
	return !again && errors.Is(last, nats.ErrPermissionViolation)
}

// I14, and the bad input: everything that can't be accepted gets a
// problem object, over the service and through the inbox; the connection and the
// other intents are unharmed.
func TestBadInputHarmsNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	nc, _ := w.connect("acme-agent")
	c := w.client("acme-agent")
	s := events.Subjects{}
	refused, err := nc.SubscribeSync(s.Refused("acme"))
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"malformed_request": `{"operation_id":"a","operation_id":"b"}`,
		"invalid_id":        `{"operation_id":"a.>","provider":"crm","account":"main","action":"task.create","args":{"title":"x"}}`,
		"unknown_provider":  `{"operation_id":"a","provider":"erp","account":"main","action":"task.create","args":{"title":"x"}}`,
		"invalid_args":      `{"operation_id":"a","provider":"crm","account":"main","action":"task.create","args":{"titel":"` + canaryArg + `"}}`,
		"too_large":         `{"operation_id":"a","provider":"crm","account":"main","action":"task.create","args":{"title":"` + strings.Repeat("x", 400<<10) + `"}}`,
	}
	good := 0
	for code, raw := range bad {
		_, err := c.SubmitRaw(t.Context(), []byte(raw))
		var p *api.Problem
		if !errors.As(err, &p) || string(p.Code) != code {
			t.Errorf("service: got %v, want %s", err, code)
		}
		// The same through the inbox: acknowledged, then refused by message.
		ack, err := nc.Request(s.Inbox("acme"), []byte(raw), 5*time.Second)
		if err != nil || !strings.Contains(string(ack.Data), `"seq"`) {
			t.Fatalf("inbox: got %v, %v", ack, err)
		}
		m, err := refused.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatalf("%s: nothing on the refused subject: %v", code, err)
		}
		if !strings.Contains(string(m.Data), `"code":"`+code+`"`) || !strings.Contains(string(m.Data), "request_digest") || strings.Contains(string(m.Data), canaryArg) {
			t.Errorf("refused: got %s", m.Data)
		}
		good++
		raw2, err := json.Marshal(wish(fmt.Sprintf("good-%d", good)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Request(s.Inbox("acme"), raw2, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	for i := range good {
		id := fmt.Sprintf("good-%d", i+1)
		until(t, func() bool { _, err := c.Get(t.Context(), api.GetRequest{OperationID: id}); return err == nil })
		if a := w.settle(c, id); a.Status != operation.StatusConfirmed {
			t.Errorf("%s: got %s", id, a.Status)
		}
	}
	if _, err := c.Get(t.Context(), api.GetRequest{OperationID: "a"}); err == nil {
		t.Error("a refused intent was stored")
	}
	// Beyond the server's payload limit nothing is sent at all.
	if err := nc.Publish(s.Inbox("acme"), make([]byte, 2<<20)); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("got %v, want the client to refuse it", err)
	}
	if !nc.IsConnected() {
		t.Error("the connection was lost")
	}
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 20 s")
		}
		time.Sleep(10 * time.Millisecond) // a poll
	}
}

// I7, cases A15, H93: an operation waits for its approval, survives a restart of
// the whole process, and goes ahead once.
func TestApprovalSurvivesARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c, o := w.client("acme-agent"), w.client("acme-approver")
	r := wish("op-1")
	r.RequireApproval = &api.RequireApproval{}
	a, err := c.Submit(t.Context(), r)
	if err != nil || a.NextAction != events.NextApproval {
		t.Fatalf("got %+v, %v", a, err)
	}
	if _, err := o.Approve(t.Context(), api.ApproveRequest{
		OperationID: "op-1", IntentDigest: "sha256-jcs:00", Approver: "ada", ExpiresAt: time.Now().Add(time.Hour),
	}); err == nil {
		t.Error("an approval of something else was taken")
	}
	if err := w.node.Stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	c, o = w.client("acme-agent"), w.client("acme-approver")
	if _, err := o.Approve(t.Context(), api.ApproveRequest{
		OperationID: "op-1", IntentDigest: a.IntentDigest, Approver: "ada", ExpiresAt: time.Now().Add(time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	if a := w.settle(c, "op-1"); a.Status != operation.StatusConfirmed || a.Attempts != 1 {
		t.Errorf("got %+v", a)
	}
	w.objects(1)
}

func (w *world) objects(want int) {
	w.t.Helper()
	got, err := w.sim.Objects(w.t.Context(), simulator.ObjectFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(got) != want {
		w.t.Errorf("the provider holds %d objects, want %d", len(got), want)
	}
}

// Section 9 of the protocol: what no machine can settle, a person does: confirm,
// reject, permit, undetermined; each bound to the version seen.
func TestOperatorsSettleWhatNoMachineCan(t *testing.T) {
	t.Parallel()
	lost := simulator.Rule{Method: "POST", Times: 4, Do: simulator.LoseRequest}
	w := newWorld(t, options{
		contract: "sim-nothing", vars: map[string]string{"total": "1s", "late_apply": "100ms"}, rules: []simulator.Rule{lost},
	})
	c, o := w.client("acme-agent"), w.client("acme-operator")
	provider := providerOf(t, "sim-nothing")
	for _, id := range []string{"op-confirm", "op-reject", "op-permit", "op-undetermined"} {
		r := wish(id)
		r.Provider = provider
		if _, err := c.Submit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if a := w.settle(c, id); a.Status != operation.StatusUnknown || a.Review == "" || a.RetrySafe {
			t.Fatalf("%s: got %+v, want unknown with a review", id, a)
		}
	}
	decide := func(id string, word events.DecisionWord, external string) api.Answer {
		t.Helper()
		a, err := c.Get(t.Context(), api.GetRequest{OperationID: id})
		if err != nil {
			t.Fatal(err)
		}
		d := api.DecideRequest{
			OperationID: id, Decision: word, ExpectVersion: a.Version - 1, Actor: "ada", Reason: "asked the provider", ExternalID: external,
		}
		var p *api.Problem
		if _, err := o.Decide(t.Context(), d); !errors.As(err, &p) || p.Reason != string(operation.RefusalMoved) {
			t.Errorf("%s on an old version: got %v", id, err)
		}
		d.ExpectVersion = a.Version
		a, err = o.Decide(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := decide("op-confirm", events.DecideConfirm, "ext-9"); a.Status != operation.StatusConfirmed || a.ExternalID != "ext-9" || a.Via != events.ViaOperator {
		t.Errorf("confirm: got %+v", a)
	}
	if a := decide("op-reject", events.DecideReject, ""); a.Status != operation.StatusRejected || !a.RetrySafe {
		t.Errorf("reject: got %+v", a)
	}
	if a := decide("op-undetermined", events.DecideUndetermined, ""); a.Status != operation.StatusUnknown || !a.Undetermined || a.NextAction != events.NextNone {
		t.Errorf("undetermined: got %+v", a)
	}
	decide("op-permit", events.DecidePermit, "")
	until(t, func() bool {
		a, err := c.Get(t.Context(), api.GetRequest{OperationID: "op-permit"})
		return err == nil && a.Status == operation.StatusConfirmed && a.Attempts == 2
	})
	w.objects(1)
}

func providerOf(t *testing.T, contract string) string {
	t.Helper()
	f, err := providers.Load(contract)
	if err != nil {
		t.Fatal(err)
	}
	return f.Provider
}

// I18: neither secrets nor arguments show in logs, metrics or problem objects.
func TestSecretsAndArgumentsShowNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{rules: []simulator.Rule{{Method: "POST", Nth: 1, Times: 1, Do: simulator.LoseResponse}}})
	c := w.client("acme-agent")
	for _, id := range []string{"op-1", "op-2"} {
		if _, err := c.Submit(t.Context(), wish(id)); err != nil {
			t.Fatal(err)
		}
		w.settle(c, id)
	}
	_, err := c.Submit(t.Context(), api.SubmitRequest{
		OperationID: "op-1", Provider: "crm", Account: "main", Action: "task.create", Args: json.RawMessage(`{"title":"` + canaryArg + `x"}`),
	})
	if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), canaryArg) {
		t.Errorf("the conflict reads %v", err)
	}
	metrics := w.get("/metrics")
	for _, name := range []string{
		"opledger_events_total", "opledger_attempts_total", "opledger_confirmations_total", "opledger_consumer_pending", "opledger_projection_lag_events",
	} {
		if !strings.Contains(metrics, name) {
			t.Errorf("no metric %s", name)
		}
	}
	for where, text := range map[string]string{"logs": w.logs.String(), "metrics": metrics} {
		for _, canary := range []string{canarySecret, canaryArg, "pw-of-everybody"} {
			if strings.Contains(text, canary) {
				t.Errorf("%s show %s", where, canary)
			}
		}
	}
	if strings.Contains(metrics, "op-1") {
		t.Error("an operation id is in the metrics")
	}
	if got := w.get("/readyz"); got != "ready\n" {
		t.Errorf("readyz: %q", got)
	}
	if got := w.get("/healthz"); got != "ok\n" {
		t.Errorf("healthz: %q", got)
	}
}

func (w *world) get(path string) string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.node.HTTP()+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(body)
}

// Case A20: one unknown operation blocks no other.
func TestUnknownOperationBlocksNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{rules: []simulator.Rule{{Method: "POST", Nth: 1, Times: 1, Do: simulator.LoseRequest}}})
	c := w.client("acme-agent")
	if _, err := c.Submit(t.Context(), wish("op-stuck")); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		a, err := c.Get(t.Context(), api.GetRequest{OperationID: "op-stuck"})
		return err == nil && a.Status == operation.StatusUnknown
	})
	for i := range 20 {
		if _, err := c.Submit(t.Context(), wish(fmt.Sprintf("op-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		if a := w.settle(c, fmt.Sprintf("op-%d", i)); a.Status != operation.StatusConfirmed {
			t.Errorf("op-%d: got %s", i, a.Status)
		}
	}
	// Case A5: its answer says unknown, names the attempt and what comes next.
	a, err := c.Get(t.Context(), api.GetRequest{OperationID: "op-stuck"})
	if err != nil || a.Status != operation.StatusUnknown || a.AttemptID == "" || a.RetrySafe || !strings.Contains(a.Say, "check") {
		t.Errorf("got %+v, %v", a, err)
	}
}

// Case G87, G85, A2: the same intent over the service and through the inbox,
// inside and beyond the inbox's duplicate window, is one operation.
func TestSameIntentByEveryWayIsOneOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	nc, _ := w.connect("acme-agent")
	c := w.client("acme-agent")
	raw, err := json.Marshal(wish("op-1"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		m := nats.NewMsg(events.Subjects{}.Inbox("acme"))
		m.Data = raw
		if i%3 == 0 {
			m.Header.Set("Nats-Msg-Id", "chosen-by-the-agent")
		}
		if _, err := nc.RequestMsg(m, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 {
			if _, err := c.SubmitRaw(t.Context(), raw); err != nil {
				t.Fatal(err)
			}
		}
		if i == 6 {
			<-time.After(natsjournal.IntentDuplicateWindow + 20*time.Millisecond) // the window itself is what is tested
		}
	}
	if a := w.settle(c, "op-1"); a.Status != operation.StatusConfirmed || a.Attempts != 1 {
		t.Errorf("got %+v", a)
	}
	until(t, func() bool { return w.inboxEmpty() })
	w.objects(1)
}

func (w *world) inboxEmpty() bool {
	nc, _ := w.connect("ledger")
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := js.Stream(w.t.Context(), natsjournal.Topology{}.Names().Intents("acme"))
	if err != nil {
		w.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs == 0
}

// Case A13: the caller lost its session; the ledger still knows, by id and by
// label.
func TestHistoryIsFoundByLabelAndExternalID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c := w.client("acme-agent")
	r := wish("op-1")
	r.Labels = map[string]string{"conversation": "c-7"}
	if _, err := c.Submit(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	a := w.settle(c, "op-1")
	for _, q := range []api.ListRequest{{Label: "conversation=c-7"}, {ExternalID: a.ExternalID}} {
		until(t, func() bool {
			page, err := c.List(t.Context(), q)
			return err == nil && len(page.Operations) == 1 && page.Operations[0].ExternalID == a.ExternalID
		})
	}
}

// A start that finds another process on the store refuses, and says who it is.
func TestSecondProcessOnTheStoreRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	_, err := node.Start(context.Background(), node.Options{Config: w.cfg})
	if !errors.Is(err, natsjournal.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("got %v, want the lock's refusal with the process id", err)
	}
}

// The service can be discovered, and its statistics tell the unknown count.
func TestServiceIsDiscoverable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	nc, _ := w.connect("ledger")
	m, err := nc.Request("$SRV.STATS.opledger", nil, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"name":"opledger"`, `opledger.api.v1.*.submit`, `"unknown":0`} {
		if !strings.Contains(string(m.Data), part) {
			t.Errorf("no %s in %s", part, m.Data)
		}
	}
}

// An address that is taken ends the start at once, and says which.
func TestTakenAddressEndsTheStartAtOnce(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cfg, err := config.Parse(filepath.Join(t.TempDir(), "c.yaml"), fmt.Appendf(nil,
		"nats: {listen: %q}\nhttp: {listen: none}\ntenants: [{id: acme}]\n", ln.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = node.Start(t.Context(), node.Options{Config: cfg})
	if err == nil || !strings.Contains(err.Error(), ln.Addr().String()) || time.Since(began) > 10*time.Second {
		t.Errorf("got %v after %s", err, time.Since(began))
	}
}
