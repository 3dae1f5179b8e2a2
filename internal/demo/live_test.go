package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/child"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/simulator"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "opledger-live-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "opledger")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "github.com/opledger/opledger/cmd/opledger")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// world is an env whose processes end with the test, and whose logs are shown
// if it fails.
func world(t *testing.T, c class, settings map[string]any, rules ...simulator.Rule) *env {
	t.Helper()
	e, err := newEnv(t.Context(), binary, t.TempDir(), c, settings, rules...)
	if e != nil {
		t.Cleanup(func() {
			e.close()
			if t.Failed() {
				for _, p := range e.processes {
					t.Logf("%s:%s", filepath.Base(p.Log), child.Tail(p.Log))
				}
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := e.provider(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// tool runs the binary as an operator does and returns its output.
func (e *env) tool(t *testing.T, args ...string) (stdout string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), e.environ...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("%v: %v", args, err)
	}
	if errOut.Len() > 0 {
		t.Logf("%s: %s", strings.Join(args, " "), errOut.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// Goal: every scenario of the demo ends as it must, by the provider's own
// table. Method: real processes, real kills. Cases A7, A20 apart, E60-like lost
// answers, F69, F71, F74, F78, G80, G81 in small.
func TestEveryScenarioEndsAsItMust(t *testing.T) {
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			r, err := s.Run(ctx, binary, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if !r.OK {
				t.Errorf("%s; kinds %v", r.Problem, r.Ledger.Kinds)
			}
			if strings.Contains(r.Ledger.Say, "again") || strings.Contains(r.Ledger.Say, "retry") {
				t.Errorf("the user is told %q", r.Ledger.Say)
			}
		})
	}
}

const wishes = 200

// Goal: I10, I4: nothing acknowledged is lost and nothing doubled. Method: 200
// wishes from a program that uses Python's standard library only, while
// requests and answers are lost at random and the whole ledger is killed and
// started again five times.
func TestTwoHundredIntentsSurviveFiveKills(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is needed: the examples are part of what is tested")
	}
	e := world(t, k1(), map[string]any{"index_lag": "300ms"},
		simulator.Rule{Method: "POST", PathPrefix: "/v1/tasks", Probability: 0.15, Do: simulator.LoseResponse},
		simulator.Rule{Method: "POST", PathPrefix: "/v1/tasks", Probability: 0.10, Do: simulator.LoseRequest},
		simulator.Rule{Method: "POST", PathPrefix: "/v1/tasks", Do: simulator.Delay, After: simulator.Duration(40 * time.Millisecond)},
	)
	e.listen = freeAddress(t)
	ctx := t.Context()
	l, err := e.ledger(ctx, quick("margin", "1m", "lag", "1s", "schedule", "400ms, 1s, 2s"), nil)
	if err != nil {
		t.Fatal(err)
	}
	publish := exec.CommandContext(ctx, python, "../../examples/python/publish.py", "--server", "nats://"+e.listen,
		"--user", agent, "--password-env", envUser, "--tenant", tenant, "--provider", e.class.provider,
		"--account", account, "--action", action, "--count", fmt.Sprint(wishes), "--prefix-id", "op", "--timeout", "2")
	publish.Env = append(os.Environ(), e.environ...)
	var errOut bytes.Buffer
	publish.Stderr = &errOut
	out, err := publish.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := publish.Start(); err != nil {
		t.Fatal(err)
	}
	acked, kills := 0, 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		acked++
		if acked%35 == 20 && kills < 5 {
			kills++
			l.p.Kill()
			if l, err = e.serve(ctx, l.config); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := publish.Wait(); err != nil {
		t.Fatalf("publisher: %v\n%s", err, errOut.String())
	}
	if acked != wishes || kills != 5 {
		t.Fatalf("got %d acknowledged and %d kills, want %d and 5", acked, kills, wishes)
	}
	waitConfirmed(t, l, wishes)
	objects, err := e.sim.Objects(ctx, simulator.ObjectFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != wishes {
		t.Errorf("the provider holds %d objects, want %d", len(objects), wishes)
	}
	if out, code := e.tool(t, "verify", "--config", l.config); code != 0 {
		t.Errorf("verify: exit code %d\n%s", code, out)
	}
	tellApart(t, l)
}

func waitConfirmed(t *testing.T, l *ledger, want int) {
	t.Helper()
	var page api.Page
	deadline := time.Now().Add(90 * time.Second)
	for time.Now().Before(deadline) {
		var err error
		page, err = l.List(t.Context(), api.ListRequest{Status: []operation.Status{operation.StatusConfirmed}, Limit: 1000})
		if err == nil && len(page.Operations) == want {
			return
		}
		time.Sleep(50 * time.Millisecond) // a poll, not a wait for luck
	}
	all, err := l.List(t.Context(), api.ListRequest{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all.Operations {
		if a.Status != operation.StatusConfirmed {
			t.Logf("%s: %s, next %s at %s, attempts %d, review %s", a.OperationID, a.Status, a.NextAction, a.NextAt, a.Attempts, a.Review)
		}
	}
	t.Fatalf("%d of %d confirmed, %d recorded", len(page.Operations), want, len(all.Operations))
}

// tellApart: the log tells the three lost cases apart: the request, the answer,
// and the record of the answer.
func tellApart(t *testing.T, l *ledger) {
	t.Helper()
	var request, answer, record int
	for i := range wishes {
		recs, err := l.events(t.Context(), fmt.Sprintf("op-%d", i+1))
		if err != nil {
			t.Fatal(err)
		}
		var lost events.UnknownReason
		attempts := 0
		for _, r := range recs {
			switch d := r.Data.(type) {
			case events.AttemptStarted:
				attempts++
			case events.OutcomeUnknown:
				if lost == "" {
					lost = d.Reason
				}
			case events.ResultConfirmed:
				switch {
				case lost == events.UnknownLeaseExpired || lost == events.UnknownShutdown:
					record++
				case lost != "" && d.Via == events.ViaLookup:
					answer++
				case lost != "":
					request++
				}
			}
		}
		if attempts == 0 {
			t.Errorf("op-%d was confirmed without an attempt", i+1)
		}
	}
	t.Logf("lost requests %d, lost answers %d, lost records %d", request, answer, record)
	if request == 0 || answer == 0 || record == 0 {
		t.Errorf("got %d lost requests, %d lost answers, %d lost records: each must have occurred", request, answer, record)
	}
}

// Goal: I9: the bucket can be thrown away. Method: delete it under load; nothing
// is sent twice, and the entries come back byte for byte.
func TestLostBucketIsRebuiltByteForByteAndNothingIsSentTwice(t *testing.T) {
	e := world(t, k4(), nil, simulator.Rule{Method: "POST", Do: simulator.Delay, After: simulator.Duration(30 * time.Millisecond)})
	ctx := t.Context()
	l, err := e.ledger(ctx, quick(lagging("1s")...), nil)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(l.p.Ready.NATS, nats.UserInfo("ledger", e.ledgerPw))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	names := natsjournal.Topology{}.Names()
	submit := func(from, to int) {
		for i := from; i < to; i++ {
			if _, err := l.submit(ctx, fmt.Sprintf("op-%d", i), title); err != nil {
				t.Fatal(err)
			}
		}
	}
	submit(0, 20)
	waitConfirmed(t, l, 20)
	before := entries(t, js, names.Operations)
	if len(before) != 20 {
		t.Fatalf("got %d entries, want 20", len(before))
	}
	submit(20, 40)
	if err := js.DeleteKeyValue(ctx, names.Operations); err != nil {
		t.Fatal(err)
	}
	submit(40, 60)
	waitConfirmed(t, l, 60)
	if out, code := e.tool(t, "rebuild", "--config", l.config, "--nats-url", l.p.Ready.NATS, "-o", "json"); code != 0 {
		t.Fatalf("rebuild: exit code %d\n%s", code, out)
	}
	after := entries(t, js, names.Operations)
	for key, entry := range before {
		if !bytes.Equal(entry, after[key]) {
			t.Errorf("%s: got\n%s\nwant\n%s", key, after[key], entry)
		}
	}
	if len(after) != 60 {
		t.Errorf("got %d entries, want 60", len(after))
	}
	if out, code := e.tool(t, "verify", "--config", l.config, "--nats-url", l.p.Ready.NATS); code != 0 {
		t.Errorf("verify: exit code %d\n%s", code, out)
	}
	log, err := e.sim.Requests(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	posts := 0
	for _, r := range log.Items {
		if r.Method == "POST" {
			posts++
		}
	}
	if posts != 60 {
		t.Errorf("the provider got %d requests, want 60", posts)
	}
}

func entries(t *testing.T, js jetstream.JetStream, bucket string) map[string][]byte {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]byte)
	for _, k := range keys {
		if strings.HasPrefix(k, "_") {
			continue
		}
		v, err := kv.Get(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		out[k] = v.Value()
	}
	return out
}

// Goal: I20: a graceful stop leaves no attempt without a record. Method: stop
// the ledger while the provider holds the answer.
func TestGracefulStopRecordsWhatIsNotKnown(t *testing.T) {
	e := world(t, k4(), nil, once(simulator.Hold))
	ctx := t.Context()
	l, err := e.ledger(ctx, quick("total", "20s"), map[string]any{"drain": "300ms"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.submit(ctx, "op-1", title); err != nil {
		t.Fatal(err)
	}
	if _, err := e.sim.WaitHeld(ctx, 1, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := l.p.Stop(20 * time.Second); err != nil {
		t.Fatalf("stop: %v", err)
	}
	out, code := e.tool(t, "events", "--config", l.config, "--tenant", tenant, "--operation", "op-1")
	if code != 0 {
		t.Fatalf("events: exit code %d", code)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last, err := events.Decode([]byte(lines[len(lines)-1]))
	if err != nil {
		t.Fatal(err)
	}
	u, ok := last.Data.(events.OutcomeUnknown)
	if !ok || u.Reason != events.UnknownShutdown {
		t.Errorf("the last event is %s %+v, want OutcomeUnknown(shutdown)", last.Data.Kind(), last.Data)
	}
	// The next run finds the task and does not make another.
	l, err = e.serve(ctx, l.config)
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.settled(ctx, "op-1")
	if err != nil || a.Status != operation.StatusConfirmed || a.Attempts != 1 {
		t.Errorf("got %+v, %v, want it confirmed after one attempt", a, err)
	}
}

// Goal: the ledger runs on a server of its own process, with the shipped
// configuration. Method: build nats-server, start it with deploy/nats.conf.
func TestLedgerRunsOnASeparateServer(t *testing.T) {
	e := world(t, k4(), nil, once(simulator.LoseResponse))
	server := filepath.Join(e.dir, "nats-server")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", server, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Fatalf("build nats-server: %v\n%s", err, out)
	}
	e.userPw, e.ledgerPw = "op-"+e.userPw, "le-"+e.ledgerPw
	e.environ = append(e.environ, envLedger+"="+e.ledgerPw, envUser+"="+e.userPw)
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(e.dir, "nats-server.log")
	p, _, err := child.Launch(t.Context(), child.Command{
		Binary: server, Args: []string{"-c", shippedServerConfig(t, e.dir, port)}, Env: serverEnvironment(t, e), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Log(child.Tail(log))
		}
	})
	waitListening(t, address)
	config, err := e.config("external", "nats://"+address, quick(lagging("1s")...), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := e.serve(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.submit(t.Context(), "op-1", title); err != nil {
		t.Fatal(err)
	}
	a, err := l.settled(t.Context(), "op-1")
	if err != nil || a.Status != operation.StatusConfirmed || a.Via != events.ViaLookup {
		t.Fatalf("got %+v, %v, want it confirmed by a look", a, err)
	}
	if out, code := e.tool(t, "verify", "--config", config); code != 0 {
		t.Errorf("verify: exit code %d\n%s", code, out)
	}
}

// shippedServerConfig is deploy/nats.conf with a folder and a port of its own.
func shippedServerConfig(t *testing.T, dir, port string) string {
	t.Helper()
	conf, err := os.ReadFile("../../deploy/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	for setting, value := range map[string]string{
		"store_dir": strconv.Quote(filepath.Join(dir, "nats")), "listen": strconv.Quote("127.0.0.1:" + port), "http": `"127.0.0.1:0"`,
	} {
		line := regexp.MustCompile(`(?m)^(\s*` + setting + `:).*$`)
		conf = line.ReplaceAll(conf, []byte("${1} "+value))
	}
	path := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(path, conf, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func waitListening(t *testing.T, address string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // a poll
	}
}

// serverEnvironment sets every variable that deploy/nats.conf names.
func serverEnvironment(t *testing.T, e *env) []string {
	t.Helper()
	conf, err := os.ReadFile("../../deploy/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range strings.FieldsFunc(string(conf), func(r rune) bool { return strings.ContainsRune(" \t\r\n,{}[]:=\"'", r) }) {
		name, ok := strings.CutPrefix(f, "$")
		if !ok {
			continue
		}
		value := "unused-" + name
		switch {
		case strings.Contains(name, "OPERATOR"):
			value = e.userPw
		case strings.Contains(name, "LEDGER"):
			value = e.ledgerPw
		}
		out = append(out, name+"="+value)
	}
	return out
}

// What the demo prints is what it promises: one object per line.
func TestResultsAreOneObjectPerLine(t *testing.T) {
	raw, err := json.Marshal(Result{Scenario: "x", Plain: nil})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), `"plain":null`) || strings.Contains(string(raw), "\n") {
		t.Errorf("got %s", raw)
	}
}
