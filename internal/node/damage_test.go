package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/node"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/simulator"
)

// The store of a ledger with a history, to be damaged again and again.
type history struct {
	t   *testing.T
	w   *world
	dir string
	// early is the store as it was half way; killed and stopped are the whole
	// folder of the ledger as a kill and as an orderly stop leave it.
	early, killed, stopped string
	// ops are the acknowledged operations, all confirmed.
	ops []string
	// objects is how many objects the provider holds.
	objects int
}

const journalStream = "OPLEDGER_EVENTS"

// copyDir copies a folder. A server that runs on it may take a file of its own
// away meanwhile; then the copy is made anew.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		err := os.CopyFS(to, os.DirFS(from))
		if err == nil {
			return
		}
		if !errors.Is(err, os.ErrNotExist) || time.Now().After(end) {
			t.Fatal(err)
		}
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
	}
}

// fill makes the log longer by records that nobody minds, so that it lies in
// several files.
func (w *world) fill(bytesOf int) {
	w.t.Helper()
	log, err := node.OpenLog(w.t.Context(), w.cfg, w.node.URL(), slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	for ; bytesOf > 0; bytesOf -= 400 << 10 {
		_, err := log.Journal.AppendSystem(w.t.Context(), events.System{
			ID: events.NewID(), Kind: events.SystemRebuildMarker, Time: time.Now(), Actor: "test",
			Data: map[string]any{"fill": strings.Repeat("x", 400<<10)},
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

func newHistory(t *testing.T) *history {
	t.Helper()
	h := &history{t: t, w: newWorld(t, options{})}
	h.dir = filepath.Dir(h.w.cfg.Path("x"))
	tmp := t.TempDir()
	h.early, h.killed, h.stopped = filepath.Join(tmp, "early"), filepath.Join(tmp, "killed"), filepath.Join(tmp, "stopped")
	c := h.w.client("acme-agent")
	submit := func(n int) {
		for range n {
			id := fmt.Sprintf("op-%d", len(h.ops))
			if _, err := c.Submit(t.Context(), wish(id)); err != nil {
				t.Fatal(err)
			}
			if a := h.w.settle(c, id); a.Status != operation.StatusConfirmed {
				t.Fatalf("%s: %s", id, a.Status)
			}
			h.ops = append(h.ops, id)
		}
	}
	submit(4)
	h.w.fill(9 << 20)
	submit(4)
	copyDir(t, filepath.Join(h.dir, "store"), h.early)
	h.w.fill(9 << 20)
	submit(4)
	h.objects = h.count()
	// The mark follows within a moment.
	until(t, func() bool {
		m, err := os.ReadFile(filepath.Join(h.dir, "store-mark", "highwater.json"))
		return err == nil && strings.Contains(string(m), fmt.Sprintf(`"seq": %d,`, h.last()))
	})
	copyDir(t, h.dir, h.killed)
	if err := h.w.node.Stop(); err != nil {
		t.Fatal(err)
	}
	copyDir(t, h.dir, h.stopped)
	if n := len(blocks(t, filepath.Join(h.stopped, "store"))); n < 3 {
		t.Fatalf("the log lies in %d files, want at least 3", n)
	}
	return h
}

func (h *history) last() uint64 {
	log, err := node.OpenLog(h.t.Context(), h.w.cfg, h.w.node.URL(), slog.New(slog.DiscardHandler))
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	info, err := log.Journal.Info(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return info.Last
}

func (h *history) count() int {
	h.t.Helper()
	objects, err := h.w.sim.Objects(h.t.Context(), simulator.ObjectFilter{})
	if err != nil {
		h.t.Fatal(err)
	}
	return len(objects)
}

// stream is the folder of a stream below a store.
func stream(store, name string) string {
	return filepath.Join(store, "nats", "jetstream", "LEDGER", "streams", name)
}

// blocks returns the files of the journal, in order.
func blocks(t *testing.T, store string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(stream(store, journalStream), "msgs", "*.blk"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no files of the journal in %s: %v", store, err)
	}
	slices.SortFunc(found, func(a, b string) int {
		if d := len(a) - len(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return found
}

func edit(t *testing.T, path string, fn func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fn(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func flip(at func(n int) int) func([]byte) []byte {
	return func(b []byte) []byte { b[at(len(b))] ^= 0x10; return b }
}

// at finds the place of the last mention of an operation, which is inside one of
// its events.
func mention(t *testing.T, files []string, op string) (file string, at int) {
	t.Helper()
	for _, f := range slices.Backward(files) {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.LastIndex(data, []byte(`"operation_id":"`+op+`"`)); i >= 0 {
			return f, i
		}
	}
	t.Fatalf("no event of %s in the files", op)
	return "", 0
}

// storeDamage is one kind of damage to the files of a store.
type storeDamage struct {
	name string
	do   func(t *testing.T, h *history, store string)
	// harmless: nothing that was acknowledged can be lost by it.
	harmless bool
}

func storeDamages() []storeDamage {
	msgs := func(store, name string) string { return filepath.Join(stream(store, name), "msgs") }
	half := func(n int) int { return n / 2 }
	inside := func(op string) func(*testing.T, *history, string) {
		return func(t *testing.T, _ *history, store string) {
			f, i := mention(t, blocks(t, store), op)
			edit(t, f, flip(func(int) int { return i + 20 }))
		}
	}
	last := func(t *testing.T, store string) string { b := blocks(t, store); return b[len(b)-1] }
	return []storeDamage{
		{name: "bit flip in the first block", do: func(t *testing.T, _ *history, s string) { edit(t, blocks(t, s)[0], flip(half)) }},
		{name: "bit flip in an event of the first block", do: inside("op-1")},
		{name: "bit flip in the middle block", do: func(t *testing.T, _ *history, s string) { edit(t, blocks(t, s)[1], flip(half)) }},
		{name: "bit flip in an event in the middle", do: inside("op-6")},
		{name: "bit flip in the last block", do: func(t *testing.T, _ *history, s string) { edit(t, last(t, s), flip(half)) }},
		{name: "bit flip in the last event", do: inside("op-11")},
		{name: "last block cut by 7 bytes", do: func(t *testing.T, _ *history, s string) {
			edit(t, last(t, s), func(b []byte) []byte { return b[:len(b)-7] })
		}},
		{name: "last block cut to half", do: func(t *testing.T, _ *history, s string) {
			edit(t, last(t, s), func(b []byte) []byte { return b[:len(b)/2] })
		}},
		{name: "middle block cut to half", do: func(t *testing.T, _ *history, s string) {
			edit(t, blocks(t, s)[1], func(b []byte) []byte { return b[:len(b)/2] })
		}},
		{name: "all blocks emptied", do: func(t *testing.T, _ *history, s string) {
			for _, b := range blocks(t, s) {
				edit(t, b, func([]byte) []byte { return nil })
			}
		}},
		{name: "last block deleted", do: func(t *testing.T, _ *history, s string) { remove(t, last(t, s)) }},
		{name: "middle block deleted", do: func(t *testing.T, _ *history, s string) { remove(t, blocks(t, s)[1]) }},
		{name: "first block deleted", do: func(t *testing.T, _ *history, s string) { remove(t, blocks(t, s)[0]) }},
		{name: "page zeroed in the last block", do: func(t *testing.T, _ *history, s string) {
			edit(t, last(t, s), func(b []byte) []byte { clear(b[max(len(b)-4096, 0):]); return b })
		}},
		{name: "page zeroed in the middle block", do: func(t *testing.T, _ *history, s string) {
			edit(t, blocks(t, s)[1], func(b []byte) []byte { clear(b[len(b)/2 : len(b)/2+4096]); return b })
		}},
		{name: "last block replaced by an older copy", do: func(t *testing.T, h *history, s string) {
			old := blocks(t, h.early)
			data, err := os.ReadFile(old[len(old)-1])
			if err != nil {
				t.Fatal(err)
			}
			edit(t, filepath.Join(msgs(s, journalStream), filepath.Base(old[len(old)-1])), func([]byte) []byte { return data })
			for _, b := range blocks(t, s)[len(old):] {
				remove(t, b)
			}
			_ = os.Remove(filepath.Join(msgs(s, journalStream), "index.db"))
		}},
		{name: "older copy of the whole store", do: func(t *testing.T, h *history, s string) {
			remove(t, s)
			copyDir(t, h.early, s)
		}},
		{name: "stream folder deleted", do: func(t *testing.T, _ *history, s string) { remove(t, stream(s, journalStream)) }},
		{name: "whole store deleted", do: func(t *testing.T, _ *history, s string) { remove(t, s) }},
		{name: "stream's meta damaged", do: func(t *testing.T, _ *history, s string) {
			edit(t, filepath.Join(stream(s, journalStream), "meta.inf"), flip(half))
		}},
		{name: "stream's meta emptied", do: func(t *testing.T, _ *history, s string) {
			edit(t, filepath.Join(stream(s, journalStream), "meta.inf"), func([]byte) []byte { return nil })
		}},
		{name: "index deleted", harmless: true, do: func(_ *testing.T, _ *history, s string) {
			_ = os.Remove(filepath.Join(msgs(s, journalStream), "index.db"))
		}},
		{name: "index damaged", harmless: true, do: func(t *testing.T, _ *history, s string) {
			p := filepath.Join(msgs(s, journalStream), "index.db")
			if _, err := os.Stat(p); err != nil {
				t.Log("a killed server leaves no index")
				return
			}
			edit(t, p, flip(half))
		}},
		{name: "consumers deleted", harmless: true, do: func(t *testing.T, _ *history, s string) {
			remove(t, filepath.Join(stream(s, journalStream), "obs"))
		}},
		// The server keeps the whole stream offline then: no start.
		{name: "a consumer's state damaged", do: func(t *testing.T, _ *history, s string) {
			files, err := filepath.Glob(filepath.Join(stream(s, journalStream), "obs", "*", "*"))
			if err != nil || len(files) == 0 {
				t.Fatalf("no consumers: %v", err)
			}
			for _, f := range files {
				edit(t, f, func(b []byte) []byte {
					if len(b) > 0 {
						b[len(b)/2] ^= 0x10
					}
					return b
				})
			}
		}},
		{name: "bucket of the projection damaged", harmless: true, do: func(t *testing.T, _ *history, s string) {
			files, err := filepath.Glob(filepath.Join(msgs(s, "KV_OPLEDGER_OPERATIONS"), "*.blk"))
			if err != nil || len(files) == 0 {
				t.Fatalf("no files of the bucket: %v", err)
			}
			for _, f := range files {
				edit(t, f, flip(half))
			}
		}},
		{name: "bucket of the projection deleted", harmless: true, do: func(t *testing.T, _ *history, s string) {
			remove(t, stream(s, "KV_OPLEDGER_OPERATIONS"))
		}},
		{name: "bucket of the claims deleted", harmless: true, do: func(t *testing.T, _ *history, s string) {
			remove(t, stream(s, "KV_OPLEDGER_CLAIMS"))
		}},
		{name: "bucket of the contracts deleted", harmless: true, do: func(t *testing.T, _ *history, s string) {
			remove(t, stream(s, "KV_OPLEDGER_CONTRACTS"))
		}},
	}
}

// restart starts a ledger on a copy of the history; the world that it returns has
// the same provider.
func (h *history) restart(t *testing.T, from string, damage func(store string)) (*world, error) {
	t.Helper()
	dir := t.TempDir()
	copyDir(t, from, dir)
	damage(filepath.Join(dir, "store"))
	cfg, err := config.Load(filepath.Join(dir, "opledger.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, cfg: cfg, sim: h.w.sim, logs: &safeBuffer{}}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w.node, err = node.Start(ctx, node.Options{
		Config: cfg, Version: "0.0.0-test",
		Logger: slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	if err != nil {
		return w, err
	}
	t.Cleanup(func() {
		if err := w.node.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		if t.Failed() {
			t.Log(w.logs.String())
		}
	})
	return w, nil
}

// submitAll hands every operation in again, as a client does that does not know
// what became of it.
func (h *history) submitAll(t *testing.T, c *opledger.Client) {
	t.Helper()
	for _, id := range h.ops {
		until(t, func() bool { _, err := c.Submit(t.Context(), wish(id)); return err == nil })
	}
}

// I16, section 10: whatever happens to the files of the store while the process
// is down, either nothing that was acknowledged is missing, or it is seen before
// the next attempt starts. Then nothing is sent until a person has accepted the
// log, and what was sent before is never sent again: it is found.
func TestEveryDamageOfTheStoreIsSeenBeforeTheNextAttempt(t *testing.T) {
	h := newHistory(t)
	for _, d := range storeDamages() {
		for state, from := range map[string]string{"killed": h.killed, "stopped": h.stopped} {
			t.Run(d.name+", "+state, func(t *testing.T) {
				t.Parallel()
				before := h.count()
				w, err := h.restart(t, from, func(store string) { d.do(t, h, store) })
				if err != nil {
					if d.harmless {
						t.Fatalf("no start: %v", err)
					}
					t.Logf("refused: %v", err)
					return
				}
				c := w.client("acme-agent")
				alarm := w.node.Ready(t.Context())
				if alarm == nil {
					// Then everything is there.
					for _, id := range h.ops {
						if a := w.settle(c, id); a.Status != operation.StatusConfirmed {
							t.Errorf("%s is %s, and there is no alarm", id, a.Status)
						}
					}
					log, err := node.OpenLog(t.Context(), w.cfg, w.node.URL(), slog.New(slog.DiscardHandler))
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = log.Close() }()
					v, err := log.Verify(t.Context(), nil)
					if err != nil || v.Damages > 0 || v.Alarm != "" {
						t.Errorf("verify: %v, %v, %q", err, v.Damage, v.Alarm)
					}
					t.Log("nothing is missing")
				} else if d.harmless {
					t.Fatalf("alarm: %v", alarm)
				} else {
					t.Log(alarm)
				}
				h.submitAll(t, c)
				if alarm == nil {
					if n := h.count(); n != before {
						t.Errorf("%d objects, before %d", n, before)
					}
					return
				}
				h.recover(t, w, c, before)
			})
		}
	}
}

// recover clears the alarm and waits until every operation is what it was.
func (h *history) recover(t *testing.T, w *world, c *opledger.Client, before int) {
	t.Helper()
	log, err := node.OpenLog(t.Context(), w.cfg, w.node.URL(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	v, err := log.Verify(t.Context(), nil)
	if err != nil || v.OK() {
		t.Errorf("verify finds nothing: %v", err)
	}
	// Nothing was sent while the alarm stands, though all is handed in again.
	time.Sleep(50 * time.Millisecond)
	if n := h.count(); n != before {
		t.Fatalf("%d objects under an alarm, before %d", n, before)
	}
	cleared, err := log.Clear(t.Context(), node.ClearOptions{Actor: "ann", Reason: "test", LookFirst: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return w.node.Ready(t.Context()) == nil })
	for _, id := range h.ops {
		a := w.settle(c, id)
		if a.Status != operation.StatusConfirmed {
			t.Fatalf("%s: %s %s after the clearing (%d put in doubt)", id, a.Status, a.NextAction, cleared.InDoubt)
		}
	}
	if n := h.count(); n != before {
		t.Errorf("%d objects after the clearing, before %d: something was sent again", n, before)
	}
	if v, err = log.Verify(t.Context(), nil); err != nil || v.Damages > 0 || v.Alarm != "" {
		t.Errorf("verify after the clearing: %v, %+v, %q", err, v.Damage, v.Alarm)
	}
}

// Section 10: an operation that the log lost as a whole and that is handed in
// again, for every contract class: it is found, or repeated with the key that was
// sent, or a person decides before anything is sent. Never a second effect.
func TestALostOperationThatIsHandedInAgainIsNeverSentAnew(t *testing.T) {
	for contract, x := range map[string]struct {
		provider, preset string
		want             operation.Status
	}{
		"sim-crm":            {"crm", "crm", operation.StatusConfirmed},
		"sim-keyed":          {"keyed", "keyed", operation.StatusConfirmed},
		"sim-keyed-nolookup": {"keyed-nolookup", "keyed", operation.StatusConfirmed},
		"sim-unique":         {"unique", "unique", operation.StatusConfirmed},
		"sim-nothing":        {"pager", "nothing", operation.StatusUnknown},
	} {
		want := x.want
		t.Run(contract, func(t *testing.T) {
			t.Parallel()
			vars := map[string]string{"total": "2s", "late_apply": "200ms"}
			if contract == "sim-crm" {
				vars["lag"], vars["schedule"] = "300ms", "200ms, 400ms, 600ms"
			}
			w := newWorld(t, options{contract: contract, vars: vars})
			settings, err := simulator.Preset(x.preset)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.sim.SetSettings(t.Context(), settings); err != nil {
				t.Fatal(err)
			}
			c := w.client("acme-agent")
			r := wish("op-1")
			r.Provider = x.provider
			dir := filepath.Dir(w.cfg.Path("x"))
			early := filepath.Join(t.TempDir(), "early")
			submit := func(id string) api.Answer {
				r.OperationID = id
				if _, err := c.Submit(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				var a api.Answer
				until(t, func() bool {
					var err error
					a, err = c.Get(t.Context(), api.GetRequest{OperationID: id})
					return err == nil && (a.Status.Final() || a.Review != "")
				})
				return a
			}
			if a := submit("op-1"); a.Status != operation.StatusConfirmed {
				t.Fatalf("got %s", a.Status)
			}
			copyDir(t, filepath.Join(dir, "store"), early)
			if a := submit("op-2"); a.Status != operation.StatusConfirmed {
				t.Fatalf("got %s", a.Status)
			}
			if err := w.node.Stop(); err != nil {
				t.Fatal(err)
			}
			remove(t, filepath.Join(dir, "store"))
			copyDir(t, early, filepath.Join(dir, "store"))
			w.start()
			c = w.client("acme-agent")
			if w.node.Ready(t.Context()) == nil {
				t.Fatal("no alarm")
			}
			log, err := node.OpenLog(t.Context(), w.cfg, w.node.URL(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = log.Close() }()
			if _, err := log.Clear(t.Context(), node.ClearOptions{Actor: "ann", Reason: "test", LookFirst: time.Hour}); err != nil {
				t.Fatal(err)
			}
			until(t, func() bool { return w.node.Ready(t.Context()) == nil })
			a := submit("op-2")
			objects, err := w.sim.Objects(t.Context(), simulator.ObjectFilter{})
			if err != nil || len(objects) != 2 {
				t.Errorf("%d objects, want 2, %v", len(objects), err)
			}
			if a.Status != want || (want == operation.StatusUnknown && a.Review != events.ReviewNoEvidence) {
				t.Errorf("got %s, review %q", a.Status, a.Review)
			}
			// A new wish is treated alike for as long as that may be such a repeat.
			if a := submit("op-3"); want == operation.StatusUnknown && a.Attempts != 0 {
				t.Errorf("op-3 was attempted: %+v", a)
			}
		})
	}
}
