package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// output collects what a command prints, also while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// cli runs one command line.
func cli(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut output
	code = run(t.Context(), args, &out, &errOut)
	return out.String(), errOut.String(), code
}

// serve runs a ledger with one faulty provider, and returns its configuration.
func serve(t *testing.T, rules ...simulator.Rule) (config string, sim *simulator.Client) {
	t.Helper()
	s, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() { s.Close(); srv.Close() })
	if sim, err = simulator.NewClient(simulator.ClientConfig{BaseURL: srv.URL}); err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if _, err := sim.AddRule(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	t.Setenv("TEST_PASSWORD", "pw")
	t.Setenv("TEST_TOKEN", simulator.DefaultToken)
	config = filepath.Join(dir, "opledger.yaml")
	text := fmt.Sprintf(`
nats: {store_dir: store, listen: "127.0.0.1:0", password: "env://TEST_PASSWORD"}
tenants: [{id: acme, users: [{name: ops, role: operator, password: "env://TEST_PASSWORD"}]}]
providers:
  - contract: builtin:sim-nothing
    accounts: [{id: main, provider_id: acct_1, base_url: %q, allow_loopback: true, secrets: {token: "env://TEST_TOKEN"}}]
executor: {lease_grace: 1s, drain: 1s}
http: {listen: "127.0.0.1:0"}
`, srv.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut output
	done := make(chan int, 1)
	go func() { done <- run(ctx, []string{"serve", "--json", "--config", config}, &out, &errOut) }()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != exitOK {
			t.Errorf("serve: exit code %d\n%s", code, errOut.String())
		}
	})
	deadline := time.Now().Add(30 * time.Second)
	for !strings.HasSuffix(out.String(), "\n") {
		if time.Now().After(deadline) {
			t.Fatalf("serve is not ready\n%s", errOut.String())
		}
		time.Sleep(10 * time.Millisecond) // a poll
	}
	var r ready
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OPLEDGER_SERVER", r.NATS)
	t.Setenv("OPLEDGER_CONFIG", config)
	return config, sim
}

// Exit codes are stable, and what is wrong is said with what to do.
func TestUsageErrorsExitWithTwoAndSayWhatToDo(t *testing.T) {
	t.Setenv("OPLEDGER_CONFIG", "")
	cases := []struct{ args, says string }{
		{"nonsense", "unknown command"},
		{"get", "accepts 1 arg"},
		{"get op-1 --frobnicate", "unknown flag"},
		{"get op-1", "which tenant?"},
		{"get op-1 --tenant a -o xml", "--output must be"},
		{"serve", "--config is required"},
		{"sim --preset moon", "moon"},
		{"demo --scenario moon", "no scenario"},
		{"events --config x --kind Moon", "is not one of"},
		{"resolve op-1 --reject --permit", "exactly one decision"},
		{"resolve op-1 --reject", "--expect-version is required"},
		{"approve op-1", "--digest is required"},
		{"submit --tenant a", "--args or --file"},
	}
	for _, c := range cases {
		_, stderr, code := cli(t, strings.Fields(c.args)...)
		if code != exitUsage {
			t.Errorf("%s: exit code %d, want 2", c.args, code)
		}
		if !strings.Contains(stderr, c.says) {
			t.Errorf("%s: got %q, want it to say %q", c.args, stderr, c.says)
		}
	}
}

// A wrong configuration is refused with the line or the place.
func TestConfigCheckNamesThePlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	for text, says := range map[string]string{
		"nats: {stor_dir: x}\ntenants: [{id: a}]\n":                                        "line 1",
		"tenants: [{id: 'a.b'}]\n":                                                         "tenants[0]",
		"tenants: []\n":                                                                    "at least one",
		"nats: {listen: '0.0.0.0:4222'}\ntenants: [{id: a}]\n":                             "listen_anywhere",
		"tenants: [{id: a, users: [{name: u, role: king, password: 'env://X'}]}]\n":        "king",
		"tenants: [{id: a, users: [{name: u, role: agent, password: hunter2}]}]\n":         "env://",
		"nats: {url: 'nats://u:p@h:1'}\ntenants: [{id: a}]\n":                              "credentials",
		"tenants: [{id: a}]\nproviders: [{contract: builtin:moon, accounts: [{id: m}]}]\n": "provider_id",
		"tenants: [{id: a}]\nproviders: [{contract: c.yaml}]\n":                            "accounts",
		"tenants: [{id: a}, {id: a}]\n":                                                    "twice",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, stderr, code := cli(t, "config", "check", "--config", path)
		if code != exitUsage || !strings.Contains(stderr, says) || strings.Contains(stderr, "hunter2") {
			t.Errorf("%q: exit code %d, %q, want it to say %q", text, code, stderr, says)
		}
	}
}

// The life of operations as an operator sees it, by the tools alone: what can't
// be known is asked, explained, and settled; exit codes tell the state.
func TestOperatorsToolsTellAndSettle(t *testing.T) {
	_, sim := serve(t, simulator.Rule{Method: "POST", Nth: 1, Times: 1, Do: simulator.LoseRequest})
	submit := func(id, title string) (string, int) {
		t.Helper()
		out, _, code := cli(t, "submit", "--id", id, "--provider", providerName(t), "--account", "main", "--action", "task.create",
			"--args", `{"title":"`+title+`"}`, "--label", "team=a", "--request-id", "r-1", "--wait", "20s", "-o", "json")
		return out, code
	}
	out, code := submit("op-1", "a")
	var a api.Answer
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatal(err)
	}
	if code != exitUnknown || a.Status != operation.StatusUnknown || a.Review == "" {
		t.Fatalf("submit: exit code %d, %+v; want unknown with a review", code, a)
	}
	if _, code := submit("op-2", "b"); code != exitOK {
		t.Errorf("submit of a second: exit code %d", code)
	}
	if _, code := submit("op-1", "other words"); code != exitConflict {
		t.Errorf("other words under one id: exit code %d, want 6", code)
	}
	if _, _, code := cli(t, "get", "op-9"); code != exitNotFound {
		t.Errorf("get of nothing: exit code %d, want 7", code)
	}
	if _, _, code := cli(t, "get", "op-1"); code != exitUnknown {
		t.Errorf("get of an unknown: exit code %d, want 4", code)
	}
	for _, args := range []string{"list --review", "reviews", "list --status unknown", "list --request r-1 --label team=a --older 1ms"} {
		if out, stderr, code := cli(t, strings.Fields(args)...); code != exitOK || !strings.Contains(out, "op-1") {
			t.Errorf("%s: exit code %d\n%s%s", args, code, out, stderr)
		}
	}
	out, _, code = cli(t, "explain", "op-1")
	for _, part := range []string{"attempt 1", "review", "connection_lost", "opledger resolve op-1 --expect-version", "intent digest"} {
		if code != exitOK || !strings.Contains(out, part) {
			t.Errorf("explain: exit code %d, no %q in\n%s", code, part, out)
		}
	}
	if _, stderr, code := cli(t, "resolve", "op-1", "--reject", "--expect-version", "1", "--reason", "x"); code != exitError || !strings.Contains(stderr, "look at it again") {
		t.Errorf("a decision on an old version: exit code %d, %s", code, stderr)
	}
	if _, stderr, code := cli(t, "cancel", "op-1"); code != exitError || !strings.Contains(stderr, "may have happened") {
		t.Errorf("cancel of an unknown: exit code %d, %s", code, stderr)
	}
	if _, stderr, code := cli(t, "resolve", "op-1", "--reject", "--expect-version", fmt.Sprint(a.Version), "--reason", "asked the provider"); code != exitOK {
		t.Errorf("resolve: exit code %d, %s", code, stderr)
	}
	if _, _, code := cli(t, "wait", "op-1"); code != exitRejected {
		t.Errorf("wait: exit code %d, want 3", code)
	}
	objects, err := sim.Objects(t.Context(), simulator.ObjectFilter{})
	if err != nil || len(objects) != 1 {
		t.Errorf("the provider holds %d objects, %v; want 1", len(objects), err)
	}
	logTools(t)
}

// logTools: the tools that read the log itself, on the running ledger.
func logTools(t *testing.T) {
	t.Helper()
	server := os.Getenv("OPLEDGER_SERVER")
	out, stderr, code := cli(t, "events", "--nats-url", server, "--tenant", "acme", "--operation", "op-1")
	if code != exitOK || strings.Count(out, "\n") != 6 || !strings.Contains(out, "io.opledger.v1.Rejected") {
		t.Errorf("events: exit code %d, %s\n%s", code, stderr, out)
	}
	if out, _, _ := cli(t, "events", "--nats-url", server, "--kind", "OutcomeUnknown"); strings.Count(out, "\n") != 1 {
		t.Errorf("events by kind:\n%s", out)
	}
	for _, tool := range []string{"rebuild", "verify"} {
		if out, stderr, code := cli(t, tool, "--nats-url", server, "-o", "json"); code != exitOK || !strings.Contains(out, `"operations": 2`) {
			t.Errorf("%s: exit code %d, %s\n%s", tool, code, stderr, out)
		}
	}
}

func providerName(t *testing.T) string {
	t.Helper()
	f, err := providers.Load("sim-nothing")
	if err != nil {
		t.Fatal(err)
	}
	return f.Provider
}
