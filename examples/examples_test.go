// Package examples_test runs the examples of this folder against a real NATS
// server. The interpreter of an example must be there: a missing one is a
// failure, not a skip.
package examples_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/natstest"

	"github.com/opledger/opledger/events"
)

const (
	// serverPort and serverDir make this test binary a NATS server.
	serverPort = "OPLEDGER_EXAMPLES_SERVER_PORT"
	serverDir  = "OPLEDGER_EXAMPLES_SERVER_DIR"

	agent    = "acme-agent"
	password = "p4ss"
	stream   = "OPLEDGER_INTENTS_acme"
)

func TestMain(m *testing.M) {
	if port := os.Getenv(serverPort); port != "" {
		serve(port, os.Getenv(serverDir))
		return
	}
	os.Exit(m.Run())
}

// serve is the server process that a test may kill.
func serve(port, dir string) {
	opts := natstest.Options(dir)
	opts.DontListen, opts.Host = false, "127.0.0.1"
	opts.Port, _ = strconv.Atoi(port)
	p, err := access.For(events.Subjects{}, "acme", agent, access.RoleAgent)
	if err != nil {
		panic(err)
	}
	opts.Users = []*server.User{
		{Username: "ledger", Password: password},
		{Username: agent, Password: password, Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: p.Publish},
			Subscribe: &server.SubjectPermission{Allow: p.Subscribe},
		}},
	}
	s, err := server.NewServer(opts)
	if err != nil {
		panic(err)
	}
	s.Start()
	s.WaitForShutdown()
}

type node struct {
	t         *testing.T
	port, dir string
	cmd       *exec.Cmd
}

func newNode(t *testing.T) *node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, port: port, dir: t.TempDir()}
	n.start()
	t.Cleanup(n.kill)
	nc := n.connect()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.AddStream(&nats.StreamConfig{
		Name: stream, Subjects: []string{"opledger.intents.acme"}, Duplicates: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) start() {
	n.t.Helper()
	n.cmd = exec.Command(os.Args[0])
	n.cmd.Env = append(os.Environ(), serverPort+"="+n.port, serverDir+"="+n.dir)
	n.cmd.Stderr = os.Stderr
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
}

// kill is kill -9.
func (n *node) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

// connect connects as the ledger, as soon as the server is up.
func (n *node) connect() *nats.Conn {
	n.t.Helper()
	var nc *nats.Conn
	natstest.Eventually(n.t, 20*time.Second, "a connection", func() (ok bool) {
		var err error
		nc, err = nats.Connect("nats://127.0.0.1:"+n.port, nats.UserInfo("ledger", password))
		return err == nil
	})
	n.t.Cleanup(nc.Close)
	return nc
}

// stored returns the operation id of every message in the inbox, by sequence.
func (n *node) stored() map[uint64]string {
	n.t.Helper()
	js, err := n.connect().JetStream()
	if err != nil {
		n.t.Fatal(err)
	}
	info, err := js.StreamInfo(stream)
	if err != nil {
		n.t.Fatal(err)
	}
	out := make(map[uint64]string)
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		msg, err := js.GetMsg(stream, seq)
		if err != nil {
			n.t.Fatal(err)
		}
		var intent struct {
			OperationID string `json:"operation_id"`
		}
		if err := json.Unmarshal(msg.Data, &intent); err != nil {
			n.t.Fatalf("message %d is not an intent: %v", seq, err)
		}
		out[seq] = intent.OperationID
	}
	return out
}

func python(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is missing: the wire contract for other languages was not tested")
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "ACME_AGENT_PASSWORD="+password)
	cmd.Stderr = os.Stderr
	return cmd
}

type acknowledged struct {
	OperationID string `json:"operation_id"`
	Stream      string `json:"stream"`
	Seq         uint64 `json:"seq"`
	Tries       int    `json:"tries"`
}

// Goal: a publisher without any library loses no intent when the server is
// killed and started again in the middle (I10). Method: kill -9 after 40
// acknowledgements, twice; then hold every acknowledgement against the stream.
func TestPythonPublisherSurvivesKilledServer(t *testing.T) {
	const count, killAt = 150, 40
	n := newNode(t)
	cmd := python(t, "python/publish.py", "--server", "nats://127.0.0.1:"+n.port, "--user", agent,
		"--password-env", "ACME_AGENT_PASSWORD", "--tenant", "acme", "--provider", "crm", "--account", "main",
		"--action", "task.create", "--count", strconv.Itoa(count), "--prefix-id", "call", "--title", "Call Ada",
		"--timeout", "2", "--give-up", "60")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var acks []acknowledged
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var a acknowledged
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		acks = append(acks, a)
		if len(acks) == killAt || len(acks) == 2*killAt {
			n.kill()
			n.start()
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("publish.py: %v", err)
	}
	if len(acks) != count {
		t.Fatalf("%d acknowledged intents, want %d", len(acks), count)
	}
	stored := n.stored()
	again := 0
	for i, a := range acks {
		if want := fmt.Sprintf("call-%d", i+1); a.OperationID != want || a.Stream != stream || stored[a.Seq] != want {
			t.Errorf("acknowledgement %+v of %s; the stream holds %q there", a, want, stored[a.Seq])
		}
		if a.Tries > 1 {
			again++
		}
	}
	if again == 0 {
		t.Error("no intent was published again: the server was not killed in the middle")
	}
	t.Logf("%d intents, %d messages, %d intents published more than once", count, len(stored), again)
}

// Goal: what can't succeed ends with a message, not with an endless repeat.
func TestPythonPublisherStopsWhenRefused(t *testing.T) {
	n := newNode(t)
	for name, args := range map[string][]string{
		"another tenant": {"--user", agent, "--password-env", "ACME_AGENT_PASSWORD", "--tenant", "globex"},
		"no password":    {"--user", agent, "--password-env", "NO_SUCH_VARIABLE", "--tenant", "acme"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := python(t, append([]string{
				"python/publish.py", "--server", "127.0.0.1:" + n.port, "--provider", "crm",
				"--account", "main", "--action", "task.create", "--give-up", "30",
			}, args...)...)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			began := time.Now()
			err := cmd.Run()
			if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "iolation") {
				t.Errorf("exit %v, stderr %q; want exit 1 and the server's reason", err, stderr.String())
			}
			if spent := time.Since(began); spent > 20*time.Second {
				t.Errorf("took %v", spent)
			}
		})
	}
}

// Goal: the ten-line variant hands in one intent.
func TestPythonMinimalExample(t *testing.T) {
	n := newNode(t)
	cmd := python(t, "python/submit_one.py")
	cmd.Env = append(cmd.Env, "NATS_PORT="+n.port)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var ack acknowledged
	if err := json.Unmarshal(out, &ack); err != nil || ack.Stream != stream {
		t.Fatalf("output %q: %v", out, err)
	}
	if got := n.stored()[ack.Seq]; got != "call-ada-1" {
		t.Errorf("the stream holds %q, want call-ada-1", got)
	}
}
