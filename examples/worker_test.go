package examples_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/natstest"
	opnode "github.com/opledger/opledger/internal/node"
	"github.com/opledger/opledger/operation"
)

const patience = 60 * time.Second

// ledger is a whole ledger in this process with the contract of worker.py.
type ledger struct {
	t      *testing.T
	cfg    *config.Config
	node   *opnode.Node
	client *opledger.Client
	folder string
	logs   *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newLedger starts a ledger; the contract's times are shortened by edit.
func newLedger(t *testing.T, edit ...string) *ledger {
	t.Helper()
	contract, err := os.ReadFile("python/files.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string]string{
		"password": password, "files.yaml": strings.NewReplacer(edit...).Replace(string(contract)),
		"opledger.yaml": fmt.Sprintf(`
nats: {store_dir: store, listen: "127.0.0.1:0", password: "file://%[1]s/password"}
tenants:
  - {id: acme, users: [{name: %[2]s, role: agent, password: "file://%[1]s/password"}]}
workers:
  - {name: files-worker, provider: files, password: "file://%[1]s/password"}
providers:
  - {contract: files.yaml, accounts: [{id: main, provider_id: folder-1}]}
executor: {lease_grace: 1s, clock_error: 20ms, drain: 1s}
http: {listen: none}
`, dir, agent),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := config.Load(filepath.Join(dir, "opledger.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opnode.CheckConfig(cfg); err != nil {
		t.Fatal(err)
	}
	l := &ledger{t: t, cfg: cfg, folder: filepath.Join(dir, "folder"), logs: &lockedBuffer{}}
	l.start()
	t.Cleanup(func() {
		l.stop()
		if t.Failed() {
			t.Log(l.logs.String())
		}
	})
	return l
}

func (l *ledger) start() {
	l.t.Helper()
	var err error
	l.node, err = opnode.Start(l.t.Context(), opnode.Options{
		Config: l.cfg, Version: "0.0.0-test", Logger: slog.New(slog.NewTextHandler(l.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		l.t.Fatal(err)
	}
	nc, err := nats.Connect(l.node.URL(), nats.UserInfo(agent, password), nats.CustomInboxPrefix(access.InboxPrefix(agent)))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(nc.Close)
	if l.client, err = opledger.NewClient(opledger.ClientConfig{Conn: nc, Tenant: "acme", Timeout: 5 * time.Second}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *ledger) stop() {
	l.t.Helper()
	if err := l.node.Stop(); err != nil {
		l.t.Errorf("stop: %v", err)
	}
}

func (l *ledger) submit(id string) {
	l.t.Helper()
	if _, err := l.client.Submit(l.t.Context(), api.SubmitRequest{
		OperationID: id, Provider: "files", Account: "main", Action: "task.create", Args: json.RawMessage(`{"title":"Call Ada"}`),
	}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *ledger) get(id string) api.Answer {
	l.t.Helper()
	a, err := l.client.Get(l.t.Context(), api.GetRequest{OperationID: id, Detail: true})
	if err != nil {
		l.t.Fatal(err)
	}
	return a
}

func (l *ledger) until(id, what string, ok func(api.Answer) bool) api.Answer {
	l.t.Helper()
	var a api.Answer
	natstest.Eventually(l.t, patience, id+" "+what, func() bool {
		a = l.get(id)
		return ok(a)
	})
	return a
}

func confirmed(a api.Answer) bool { return a.Status == operation.StatusConfirmed }

// files are the objects of the provider: the truth to count.
func (l *ledger) files() []string {
	l.t.Helper()
	names, err := filepath.Glob(filepath.Join(l.folder, "task-*.json"))
	if err != nil {
		l.t.Fatal(err)
	}
	return names
}

// worker is a running worker.py.
type worker struct {
	cmd *exec.Cmd
	// did counts the answers to do.
	mu   sync.Mutex
	did  int
	done chan struct{}
}

// work starts a worker and waits until it listens.
func (l *ledger) work(args ...string) *worker {
	l.t.Helper()
	cmd := python(l.t, append([]string{
		"python/worker.py", "--server", l.node.URL(), "--user", "files-worker", "--password-env", "ACME_AGENT_PASSWORD",
		"--provider", "files", "--account", "main=folder-1", "--folder", l.folder,
	}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	w := &worker{cmd: cmd, done: make(chan struct{})}
	ready, once := make(chan struct{}), sync.Once{}
	go func() {
		defer close(w.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var line struct{ Ready, Verb string }
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				continue
			}
			if line.Ready != "" { // also each time that it comes back
				once.Do(func() { close(ready) })
			}
			if line.Verb == "do" {
				w.mu.Lock()
				w.did++
				w.mu.Unlock()
			}
		}
	}()
	l.t.Cleanup(func() { _ = w.cmd.Process.Kill(); <-w.done; _ = w.cmd.Wait() })
	select {
	case <-ready:
	case <-w.done:
		l.t.Fatal("worker.py ended before it was ready")
	case <-time.After(patience):
		l.t.Fatal("worker.py is not ready")
	}
	return w
}

func (w *worker) answers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.did
}

// A worker that is killed after the effect and before its answer leaves the
// outcome unknown, with the worker's last sign of life in the evidence. The next
// worker finds the object, and there is one (I3, I4).
func TestPythonWorkerKilledBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	l := newLedger(t, "total: 10s", "total: 3s", "late_apply: 30s", "late_apply: 200ms", "schedule: [1s,", "schedule: [200ms, 500ms, 1s, 2s,")
	w := l.work("--linger", "60")
	l.submit("op-1")
	natstest.Eventually(t, patience, "the file", func() bool { return len(l.files()) == 1 })
	// Let it show that it lives before it does not any more.
	natstest.Eventually(t, patience, "unknown or a heartbeat's time", func() bool {
		info, err := os.Stat(l.files()[0])
		return err == nil && time.Since(info.ModTime()) > 1500*time.Millisecond
	})
	if err := w.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	a := l.until("op-1", "is unknown", func(a api.Answer) bool { return a.Status == operation.StatusUnknown || confirmed(a) })
	if a.Status != operation.StatusUnknown || a.Attempts != 1 {
		t.Fatalf("got %+v, want it unknown after one attempt", a)
	}
	l.work()
	a = l.until("op-1", "is confirmed", confirmed)
	if files := l.files(); len(files) != 1 || a.ExternalID != filepath.Base(files[0]) || a.Attempts != 1 {
		t.Errorf("got %q after %d attempts, the folder holds %v", a.ExternalID, a.Attempts, files)
	}
	if text := l.evidence("op-1"); !strings.Contains(text, "the last sign of life came") {
		t.Errorf("the evidence does not name the last sign of life: %s", text)
	}
}

// evidence returns the text of the transport error of the unknown outcome.
func (l *ledger) evidence(id string) string {
	l.t.Helper()
	nc, err := nats.Connect(l.node.URL(), nats.UserInfo("ledger", password))
	if err != nil {
		l.t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		l.t.Fatal(err)
	}
	sub, err := js.SubscribeSync("opledger.events.acme."+id, nats.OrderedConsumer())
	if err != nil {
		l.t.Fatal(err)
	}
	for range 100 {
		m, err := sub.NextMsg(5 * time.Second)
		if err != nil {
			l.t.Fatal(err)
		}
		if strings.Contains(string(m.Data), string(events.KindOutcomeUnknown)) {
			return string(m.Data)
		}
	}
	l.t.Fatal("no OutcomeUnknown among the first events")
	return ""
}

// Without a worker nothing is sent and nothing is lost: the operation waits, and
// starts when a worker comes. Nobody having it is no attempt (I2).
func TestOperationsWaitForAWorker(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.submit("op-1")
	natstest.Eventually(t, patience, "a blocked attempt", func() bool { return strings.Contains(l.logs.String(), "no worker is there") })
	if a := l.get("op-1"); a.Attempts != 0 || a.Status != operation.StatusPending {
		t.Errorf("got %+v, want it pending without an attempt", a)
	}
	l.work()
	a := l.until("op-1", "is confirmed", confirmed)
	if a.Attempts != 1 || len(l.files()) != 1 {
		t.Errorf("got %d attempts, %d files, want 1 and 1", a.Attempts, len(l.files()))
	}
}

// Two workers share the work: each request goes to one of them. One that is told
// to stop ends what it has in hand and takes nothing more.
func TestPythonWorkersShareTheWork(t *testing.T) {
	t.Parallel()
	const count = 40
	l := newLedger(t)
	first, second := l.work("--linger", "0.05"), l.work("--linger", "0.05")
	for n := range count / 2 {
		l.submit(fmt.Sprintf("op-%d", n))
	}
	natstest.Eventually(t, patience, "work for both", func() bool { return first.answers() > 0 && second.answers() > 0 })
	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for n := count / 2; n < count; n++ {
		l.submit(fmt.Sprintf("op-%d", n))
	}
	select {
	case <-first.done:
	case <-time.After(patience):
		t.Fatal("the worker does not stop")
	}
	for n := range count {
		if a := l.until(fmt.Sprintf("op-%d", n), "is confirmed", confirmed); a.Attempts != 1 {
			t.Errorf("op-%d: got %d attempts, want 1", n, a.Attempts)
		}
	}
	if files := len(l.files()); files != count {
		t.Errorf("got %d files, want %d", files, count)
	}
	// A worker says what it did after it has answered.
	natstest.Eventually(t, patience, "as many answers as requests", func() bool { return first.answers()+second.answers() == count })
}

// A worker with another account's credential is asked before anything is sent,
// and the operation goes to a person (I8).
func TestPythonWorkerOfAnotherAccountSendsNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.work("--account", "main=folder-2")
	l.submit("op-1")
	a := l.until("op-1", "is put up for review", func(a api.Answer) bool { return a.Review != "" })
	if a.Review != events.ReviewAccountMismatch || a.Attempts != 0 || len(l.files()) > 0 {
		t.Errorf("got %+v and %v, want a review and nothing sent", a, l.files())
	}
}

// A worker comes back by itself after the server was away.
func TestPythonWorkerComesBack(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.work()
	l.submit("op-1")
	l.until("op-1", "is confirmed", confirmed)
	l.cfg.NATS.Listen = strings.TrimPrefix(l.node.URL(), "nats://")
	l.stop()
	l.start()
	l.submit("op-2")
	if a := l.until("op-2", "is confirmed", confirmed); a.Attempts != 1 || len(l.files()) != 2 {
		t.Errorf("got %d attempts and %d files, want 1 and 2", a.Attempts, len(l.files()))
	}
}

// A worker without the right to listen says so and ends.
func TestPythonWorkerEndsWhenRefused(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for name, args := range map[string][]string{
		"another provider": {"--user", "files-worker", "--password-env", "ACME_AGENT_PASSWORD", "--provider", "mail"},
		"no password":      {"--user", "files-worker", "--password-env", "NO_SUCH_VARIABLE", "--provider", "files"},
	} {
		cmd := python(t, append([]string{"python/worker.py", "--server", l.node.URL(), "--account", "main=folder-1", "--folder", l.folder}, args...)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), "iolation") {
			t.Errorf("%s: exit %v, stderr %q; want exit 1 and the server's reason", name, err, stderr.String())
		}
	}
}
