package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/integrity"
	"github.com/opledger/opledger/internal/node"
)

// I16: verify names what the log lost and exits with 1, clear needs a reason, and
// after it the log is as whole as it can be: on a stopped store, without the
// process.
func TestVerifyNamesWhatWasLostAndClearAcceptsIt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(path, []byte("nats: {store_dir: store, listen: none}\ntenants: [{id: a}]\nhttp: {listen: none}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(t.Context(), node.Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	log, err := node.OpenLog(t.Context(), cfg, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := log.Journal.AppendSystem(t.Context(), events.System{Kind: events.SystemRebuildMarker, Time: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	info, err := log.Journal.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	// The mark has seen two messages more than are left.
	mark := integrity.Mark{
		Ledger: info.Ledger, Created: info.Created, Seq: info.Last + 2, Stamp: time.Now(), Message: "sha256:x", Rolling: "sha256:y",
	}
	if err := integrity.Save(filepath.Join(dir, "store-mark", "highwater.json"), mark, false); err != nil {
		t.Fatal(err)
	}
	out, stderr, code := cli(t, "verify", "--config", path, "-o", "json")
	var v struct {
		OK     bool
		Damage []struct {
			Kind     string
			From, To uint64
		}
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitError || v.OK || len(v.Damage) != 1 {
		t.Fatalf("verify: exit code %d, %v, %s\n%s", code, err, stderr, out)
	}
	if d := v.Damage[0]; d.Kind != "log_went_back" || d.From != info.Last+1 || d.To != info.Last+2 {
		t.Errorf("got %+v", d)
	}
	if out, _, _ := cli(t, "verify", "--config", path); !strings.Contains(out, "log_went_back: messages") {
		t.Errorf("verify as a table:\n%s", out)
	}
	if _, stderr, code := cli(t, "integrity", "clear", "--config", path); code != exitUsage || !strings.Contains(stderr, "--reason") {
		t.Errorf("without a reason: exit code %d, %s", code, stderr)
	}
	time.Sleep(time.Until(mark.Stamp.Add(time.Millisecond))) // a clearing is later than what was seen
	out, stderr, code = cli(t, "integrity", "clear", "--config", path, "--reason", "test", "--actor", "ann")
	if code != exitOK || !strings.Contains(out, "accepted: log_went_back") || !strings.Contains(out, "0 operation(s) are in doubt") {
		t.Errorf("clear: exit code %d, %s\n%s", code, stderr, out)
	}
	// An empty projection is made anew by the first start.
	if out, stderr, _ := cli(t, "verify", "--config", path); strings.Contains(out, "log_") || strings.Contains(out, "no high-water mark") {
		t.Errorf("verify after the clearing: %s\n%s", stderr, out)
	}
	if n, err = node.Start(t.Context(), node.Options{Config: cfg}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Ready(t.Context()), n.Stop()); err != nil {
		t.Errorf("start after the clearing: %v", err)
	}
	if out, stderr, code := cli(t, "verify", "--config", path); code != exitOK {
		t.Errorf("verify after the start: exit code %d, %s\n%s", code, stderr, out)
	}
}
