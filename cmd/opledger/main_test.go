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

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
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

// testPassword is the password of everybody in the tests.
const testPassword = "canary-password-of-all"

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
	t.Setenv("TEST_PASSWORD", testPassword)
	t.Setenv("TEST_TOKEN", simulator.DefaultToken)
	config = filepath.Join(dir, "opledger.yaml")
	text := fmt.Sprintf(`
nats: {store_dir: store, listen: "127.0.0.1:0", password: "env://TEST_PASSWORD"}
tenants:
  - id: acme
    users:
      - {name: ops, role: operator, password: "env://TEST_PASSWORD"}
      - {name: bot, role: agent, password: "env://TEST_PASSWORD"}
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
		{"serve", "examples/quickstart/opledger.yaml"},
		{"list --tenant a --status moon", "pending in_flight unknown"},
		{"list --tenant a --limit 0", "1 to 1000"},
		{"list --tenant a --limit 1001", "1 to 1000"},
		{"sim --preset moon", "moon"},
		{"demo --scenario moon", "no scenario"},
		{"events --config x --kind Moon", "is not one of"},
		{"resolve op-1 --reject --permit", "exactly one decision"},
		{"resolve op-1 --reject", "--expect-version is required"},
		{"approve op-1", "--digest is required"},
		{"submit --tenant a", "--args or --file"},
		{"submit --tenant a --id x --args [1]", "--args is not a JSON object"},
		{"submit --tenant a --id x --args {a}", "--args is not a JSON object"},
		{"submit --tenant a --args {}", "--id is required"},
		{"submit --tenant a --source s --args {}", "go together"},
		{"submit --tenant a --file x --action y", "--action can't be given too"},
		{"submit --tenant a --file nowhere.json", "--file"},
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
		"nats: {storedir: x}\ntenants: [{id: a}]\n":               "line 1: unknown key storedir in nats; did you mean store_dir?",
		"executor:\n  drain: 10\ntenants: [{id: a}]\n":            "line 2: drain must be a duration with its unit, such as 10s",
		"executor: {width: x, drain: 1s}\ntenants: [{id: a}]\n":   "line 1: width must be a whole number",
		"nats: {listen: '127.0.0.1:http'}\ntenants: [{id: a}]\n":  "nats.listen",
		"http: {listen: '127.0.0.1:70000'}\ntenants: [{id: a}]\n": "http.listen",
		account("http://crm.example.com"):                         "must be https://",
		account("http://127.0.0.1:1"):                             "allow_loopback",
		strings.Replace(account("https://crm.example.com"), "base_url", "secrets: {token: 'env://HOME'}, base_url", 1) +
			"egress: {allow_hosts: ['*.example.org']}\n": "crm.example.com is not among the allowed hosts",
		account("https://crm.example.com") + "egress: {allow_hosts: ['https://x']}\n":               "egress.allow_hosts[0]: host pattern",
		strings.Replace(account("https://crm.example.com"), "builtin:sim-crm", "catalogue:moon", 1): "there are adyen",
		account("crm.example.com"): "must be like https://",
		"tenants: [{id: a, users: [{name: u, role: agent, password: 'env://UNSET_X'}]}]\n": "UNSET_X",
		"tenants: [{id: 'a.b'}]\n": "tenants[0]",
		"tenants: []\n":            "at least one",
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
		if code != exitUsage || !strings.Contains(stderr, says) || strings.Contains(stderr, "hunter2") || strings.Contains(stderr, "events: ") {
			t.Errorf("%q: exit code %d, %q, want it to say %q", text, code, stderr, says)
		}
	}
}

// What is legal and doubtful in a contract is said, and does not refuse it.
func TestConfigCheckSaysWhatIsDoubtfulInAContract(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	text := strings.NewReplacer("sim-crm", "sim-keyed-nolookup", "base_url", "secrets: {token: 'env://PATH'}, base_url").
		Replace(account("https://crm.example.com"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := cli(t, "config", "check", "--config", path)
	if code != 0 || !strings.Contains(stdout, "warning: line 23: actions[task.create]: has no lookup") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

func account(baseURL string) string {
	return "tenants: [{id: a}]\nproviders: [{contract: builtin:sim-crm, accounts: [{id: m, provider_id: p, base_url: '" + baseURL + "'}]}]\n"
}

// What a program reads is JSON, also where something is wrong.
func TestErrorsAreOneJSONLineWhereJSONIsWanted(t *testing.T) {
	serve(t)
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("tenants: [{id: a, users: [{name: u, role: king}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, word string
		code       int
	}{
		{"get op-9 -o json", "not_found", exitNotFound},
		{"get op-9 --output=jsonl", "not_found", exitNotFound},
		{"get a.b -o json", "invalid_id", exitError},
		{"get op-9 --frobnicate -o json", "error", exitUsage},
		{"get -o json", "error", exitUsage},
		{"list --status moon -o jsonl", "error", exitUsage},
		{"get op-9 -o json --server nats://127.0.0.1:1", "error", exitError},
		{"config check -o json --config " + path, "error", exitUsage},
	} {
		_, stderr, code := cli(t, strings.Fields(c.args)...)
		var got struct{ Code, Detail string }
		if err := json.Unmarshal([]byte(stderr), &got); err != nil || code != c.code || got.Code != c.word || got.Detail == "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q; want %d and one line of JSON with the code %s", c.args, code, stderr, c.code, c.word)
		}
	}
	out, _, code := cli(t, "config", "check", "-o", "json", "--config", path)
	if code != exitUsage || !strings.Contains(out, `"ok": false`) || !strings.Contains(out, "king") {
		t.Errorf("config check: exit code %d, %s", code, out)
	}
	if out, _, code := cli(t, "config", "check", "-o", "json"); code != exitOK || !strings.Contains(out, `"ok": true`) || !strings.Contains(out, `"problems": []`) {
		t.Errorf("config check of a right one: exit code %d, %s", code, out)
	}
	if out, _, code := cli(t, "version", "-o", "json"); code != exitOK || !strings.Contains(out, `"version"`) {
		t.Errorf("version: exit code %d, %s", code, out)
	}
}

// A connection that does not work says what to do, and a refusal ends the
// command at once.
func TestConnectionErrorsSayWhatToDo(t *testing.T) {
	serve(t)
	empty := natstest.Listening(t)
	server := os.Getenv("OPLEDGER_SERVER")
	cases := map[string]struct {
		args []string
		env  string
		says string
	}{
		"nothing listens":   {[]string{"get", "op-1", "--server", "nats://127.0.0.1:1"}, testPassword, "is the ledger running?"},
		"wrong password":    {[]string{"get", "op-1", "--user", "ops"}, "wrong", "wrong user or password"},
		"no ledger":         {[]string{"get", "op-1", "--server", empty.ClientURL()}, testPassword, "no ledger with the role api"},
		"not allowed":       {[]string{"resolve", "op-1", "--reject", "--expect-version", "1", "--reason", "x", "--user", "bot"}, testPassword, `user "bot" may not decide for tenant acme`},
		"of another tenant": {[]string{"get", "op-1", "--user", "ops", "--tenant", "globex"}, testPassword, `user "ops" may not get for tenant globex`},
	}
	for name, c := range cases {
		t.Setenv("OPLEDGER_PASSWORD", c.env)
		began := time.Now()
		_, stderr, code := cli(t, c.args...)
		if code != exitError || !strings.Contains(stderr, c.says) || strings.Contains(stderr, "opledger: opledger:") {
			t.Errorf("%s: exit code %d, %q; want it to say %q", name, code, stderr, c.says)
		}
		if spent := time.Since(began); spent > 5*time.Second {
			t.Errorf("%s: took %v, as long as a timeout", name, spent)
		}
	}
	t.Setenv("OPLEDGER_PASSWORD", "")
	if _, stderr, _ := cli(t, "get", "a.b", "--server", server); strings.Contains(stderr, "events: ") {
		t.Errorf("an id that is none: %q names a package", stderr)
	}
}

// answering is a server whose service is a func of verb and request.
func answering(t *testing.T, answer func(verb string, request []byte) any) *server.Server {
	t.Helper()
	srv := natstest.Listening(t)
	nc := natstest.Connect(t, srv)
	_, err := nc.Subscribe("opledger.api.v1.acme.*", func(m *nats.Msg) {
		body, err := json.Marshal(answer(m.Subject[strings.LastIndex(m.Subject, ".")+1:], m.Data))
		if err != nil {
			t.Error(err)
		}
		if string(body) != "null" {
			_ = m.Respond(body)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OPLEDGER_SERVER", srv.ClientURL())
	t.Setenv("OPLEDGER_TENANT", "acme")
	t.Setenv("OPLEDGER_CONFIG", "")
	return srv
}

// What is recorded is said, also when the server dies before the end is known.
func TestSubmitTellsWhatIsRecordedWhenTheServerGoesAway(t *testing.T) {
	var srv *server.Server
	var submitted output
	srv = answering(t, func(verb string, request []byte) any {
		if verb == api.VerbWait {
			go srv.Shutdown()
			return nil
		}
		_, _ = submitted.Write(request)
		return api.Answer{OperationID: "op-1", Status: operation.StatusPending}
	})
	began := time.Now()
	out, stderr, code := cli(t, "submit", "--id", "op-1", "--args", "{}", "--require-approval", "--wait", "30s")
	if code != exitOpen || !strings.Contains(out, "pending") || !strings.Contains(stderr, "recorded; opledger wait op-1: lost the connection to the server") {
		t.Errorf("exit code %d, want 5\n%s\n%s", code, out, stderr)
	}
	if !strings.Contains(submitted.String(), `"require_approval":{}`) {
		t.Errorf("sent %s, want it to ask for an approval", submitted.String())
	}
	if spent := time.Since(began); spent > 10*time.Second {
		t.Errorf("took %v: the timeout was waited for", spent)
	}
}

// reviews shows all pages, the review that waits longest first.
func TestReviewsShowsEveryPageOldestReviewFirst(t *testing.T) {
	at := time.Date(2026, 5, 4, 9, 0, 0, 0, time.UTC)
	review := func(id string, since time.Time) api.Answer {
		return api.Answer{OperationID: id, Status: operation.StatusUnknown, Review: events.ReviewAmbiguous, ReviewSince: since, Assignee: "ada"}
	}
	answering(t, func(_ string, request []byte) any {
		var r api.ListRequest
		if err := json.Unmarshal(request, &r); err != nil || !r.Review {
			t.Errorf("asked with %s, %v", request, err)
		}
		if r.Cursor == "" {
			return api.Page{Operations: []api.Answer{review("op-1", at.Add(time.Hour)), review("op-2", at)}, Cursor: "op-2"}
		}
		return api.Page{Operations: []api.Answer{review("op-3", at.Add(time.Minute))}}
	})
	out, stderr, code := cli(t, "reviews")
	lines := strings.Split(out, "\n")
	if code != exitOK || len(lines) != 5 {
		t.Fatalf("exit code %d, %s\n%s", code, stderr, out)
	}
	for i, want := range []string{"ASSIGNEE", "op-2", "op-3", "op-1"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %q, want %s", i, lines[i], want)
		}
	}
	if !strings.Contains(lines[1], "ambiguous_match") || !strings.Contains(lines[1], "2026-05-04T09:00:00Z") || !strings.Contains(lines[1], "ada") {
		t.Errorf("line %q lacks the review, its time or who looks", lines[1])
	}
}

// A tool that only looks makes no ledger where there is none.
func TestToolsOfTheLogCreateNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(path, []byte("nats: {store_dir: nowhere}\ntenants: [{id: a}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"events", "refused", "verify", "rebuild"} {
		_, stderr, code := cli(t, tool, "--config", path)
		if code != exitError || !strings.Contains(stderr, "no ledger in "+filepath.Join(dir, "nowhere")) {
			t.Errorf("%s: exit code %d, %q", tool, code, stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "nowhere")); !os.IsNotExist(err) {
		t.Errorf("the folder was made: %v", err)
	}
}

// explain says what an operator needs to decide, and offers nothing that is
// not possible.
func TestExplainTellsWhatIsKnownAndOffersWhatIsPossible(t *testing.T) {
	at := time.Date(2026, 5, 4, 9, 0, 0, 0, time.UTC)
	state := func(status operation.Status) operation.State {
		return operation.State{
			OperationID: "op-1", Status: status, Version: 7, StatusSince: at,
			Intent: events.IntentRecorded{Approval: &events.Approval{Required: true}, IntentDigest: "d"},
		}
	}
	unresolved := operation.Attempt{Number: 1, ID: "a1", State: operation.AttemptUnresolved, StartedAt: at, EndedAt: at, LeaseUntil: at}
	unknown := state(operation.StatusUnknown)
	unknown.Attempts = []operation.Attempt{unresolved}
	unknown.Attempts[0].PermitID, unknown.Attempts[0].PermitBasis = "p1", events.BasisOperator
	unknown.Review = &operation.Review{Reason: events.ReviewAmbiguous, OpenedAt: at, Assignee: "ada", Note: "called them", Until: at.Add(time.Hour)}
	unknown.Decided = &operation.Settlement{Decision: events.DecidePostpone, Actor: "grace", Reason: "they are closed", At: at}
	unknown.Approval = &operation.Approval{Approver: "ada"}
	unknown.Evidence = []operation.Evidence{
		{Source: events.SourceLookup, Finding: events.FindingInconclusive, AskedAt: at.Add(time.Second), LagMS: 30_000, PagesComplete: true},
		{Source: events.SourceLookup, Finding: events.FindingInconclusive, AskedAt: at.Add(time.Minute), Reason: "by-label: HTTP 500"},
		{Source: events.SourceLookup, Finding: events.FindingInconclusive, AskedAt: at.Add(time.Minute), LagMS: 30_000, PagesComplete: true},
	}
	confirmed := state(operation.StatusConfirmed)
	confirmed.Attempts = []operation.Attempt{unresolved, {Number: 2, ID: "a2", State: operation.AttemptApplied}}
	confirmed.Result = &operation.Result{ExternalID: "731", AttemptID: "a2"}
	confirmed.Review = &operation.Review{Reason: events.ReviewDuplicate}
	settled := state(operation.StatusConfirmed)
	settled.Attempts, settled.Result = []operation.Attempt{unresolved}, &operation.Result{ExternalID: "731"}
	pending := state(operation.StatusPending)
	pending.NextAction, pending.NextAt = events.NextAttempt, at.Add(time.Minute)
	late := "due since 2026-05-04T09:01:00.000Z, not sent yet; the executor's log and opledger_attempts_blocked_total say why"
	for name, c := range map[string]struct {
		state      operation.State
		age        time.Duration
		has, lacks []string
	}{
		"unknown with a review": {unknown, time.Hour, []string{
			"assigned to ada", "note: called them", "postponed until 2026-05-04T10:00", "permit p1 (operator)",
			"postpone by grace at 2026-05-04T09:00:00.000Z: they are closed", "inside the lag of 30s; an empty search says nothing",
			"HTTP 500", "an empty search does not prove absence", "--look", "by ada",
		}, []string{"opledger approve", "no known outcome", "due since"}},
		"confirmed beside an attempt in doubt": {
			confirmed, 0,
			[]string{"attempt 1 has no known outcome", "--acknowledge", "never given"},
			[]string{"--look", "opledger approve", "attempt 2 has no"},
		},
		"confirmed by a person":     {settled, 0, nil, []string{"has no known outcome"}},
		"pending, due for long":     {pending, time.Hour, []string{late, "opledger approve op-1"}, nil},
		"pending, not due for long": {pending, time.Minute, []string{"attempt at 2026"}, []string{"due since"}},
	} {
		var out bytes.Buffer
		a := api.NewAnswer(c.state, at.Add(c.age))
		a.State = &c.state
		if err := explain(&out, a); err != nil {
			t.Fatal(err)
		}
		for _, part := range c.has {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%s: no %q in\n%s", name, part, out.String())
			}
		}
		for _, part := range c.lacks {
			if strings.Contains(out.String(), part) {
				t.Errorf("%s: %q in\n%s", name, part, out.String())
			}
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
	// wait reads the projection, which is a moment behind the decision.
	natstest.Eventually(t, 10*time.Second, "the rejection in the projection", func() bool {
		_, _, code := cli(t, "wait", "op-1")
		return code == exitRejected
	})
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
	if code != exitOK || strings.Count(out, "\n") != 5 || !strings.Contains(out, "io.opledger.v1.Rejected") {
		t.Errorf("events: exit code %d, %s\n%s", code, stderr, out)
	}
	if out, _, _ := cli(t, "events", "--nats-url", server, "--kind", "OutcomeUnknown"); strings.Count(out, "\n") != 1 {
		t.Errorf("events by kind:\n%s", out)
	}
	nc, err := nats.Connect(server, nats.UserInfo("bot", testPassword), nats.CustomInboxPrefix("_INBOX_bot"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if out, stderr, code := cli(t, "refused", "--nats-url", server); code != exitOK || out != "" {
		t.Errorf("refused of nothing: exit code %d, %s\n%s", code, stderr, out)
	}
	if _, err := nc.Request("opledger.intents.acme", []byte(`{"operation_id":"a.b"}`), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if out := follow(t, "refused", "--nats-url", server); !strings.Contains(out, `"code":"invalid_id"`) || !strings.Contains(out, `"tenant":"acme"`) {
		t.Errorf("refused --follow:\n%s", out)
	}
	if out, _, code := cli(t, "refused", "--nats-url", server); code != exitOK || strings.Count(out, "\n") != 1 {
		t.Errorf("refused: exit code %d\n%s", code, out)
	}
	for _, tool := range []string{"rebuild", "verify"} {
		if out, stderr, code := cli(t, tool, "--nats-url", server, "-o", "json"); code != exitOK || !strings.Contains(out, `"operations": 2`) {
			t.Errorf("%s: exit code %d, %s\n%s", tool, code, stderr, out)
		}
	}
}

// follow runs a command that goes on until it has printed a line, and ends it.
func follow(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errOut output
	done := make(chan int, 1)
	go func() { done <- run(ctx, append(args, "--follow"), &out, &errOut) }()
	natstest.Eventually(t, 20*time.Second, "a line", func() bool { return strings.Contains(out.String(), "\n") })
	cancel()
	if code := <-done; code != exitOK {
		t.Errorf("%v: exit code %d, %s", args, code, errOut.String())
	}
	return out.String()
}

func providerName(t *testing.T) string {
	t.Helper()
	f, err := providers.Load("sim-nothing")
	if err != nil {
		t.Fatal(err)
	}
	return f.Provider
}

// I18: whatever an operator asks for, neither a password nor a credential is in what
// is printed.
func TestNoCommandPrintsASecret(t *testing.T) {
	config, _ := serve(t, simulator.Rule{Method: "POST", Nth: 1, Times: 1, Do: simulator.LoseRequest})
	server := os.Getenv("OPLEDGER_SERVER")
	id := []string{"--provider", providerName(t), "--account", "main", "--action", "task.create", "--args", `{"title":"a"}`}
	for _, args := range [][]string{
		append([]string{"submit", "--id", "op-1", "--wait", "20s"}, id...), append([]string{"submit", "--id", "op-1", "-o", "json"}, id...),
		{"get", "op-1"},
		{"get", "op-1", "-o", "json"},
		{"explain", "op-1"},
		{"explain", "op-1", "-o", "json"},
		{"list"},
		{"reviews"},
		{"cancel", "op-1"},
		{"resolve", "op-1", "--reject", "--expect-version", "1", "--reason", "x"},
		{"events", "--nats-url", server},
		{"refused", "--nats-url", server},
		{"verify", "--nats-url", server},
		{"rebuild", "--nats-url", server},
		{"config", "check", config},
		{"contract", "show", "builtin:sim-nothing"},
		{"contract", "lint", "builtin:sim-nothing"},
		{"get", "op-9"},
		{"submit", "--id", "a.b"},
	} {
		out, stderr, code := cli(t, args...)
		if out == "" && stderr == "" && args[0] != "refused" {
			t.Errorf("%v: exit code %d and not a word", args, code)
		}
		for _, secret := range []string{testPassword, simulator.DefaultToken} {
			if strings.Contains(out+stderr, secret) {
				t.Errorf("%v prints %s:\n%s%s", args, secret, out, stderr)
			}
		}
	}
	// Also where the connection is refused and the address holds a password.
	for _, args := range [][]string{{"get", "op-1"}, {"verify"}} {
		t.Setenv("OPLEDGER_SERVER", "nats://ops:"+testPassword+"@127.0.0.1:1")
		out, stderr, code := cli(t, append(args, "--nats-url", "nats://ops:"+testPassword+"@127.0.0.1:1")...)
		if code == exitOK || strings.Contains(out+stderr, testPassword) {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, stderr)
		}
	}
}
