package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/internal/node"
	"github.com/opledger/opledger/operation"
)

// unwritable are subjects that a tenant's user may not publish to. He may name
// them as reply subjects: a server does not look at his permissions there.
func unwritable(t *testing.T, js jetstream.JetStream) []string {
	t.Helper()
	s := events.Subjects{}
	out := []string{
		"opledger.events.rival.op-1", "opledger.events.rival.op-forged", "opledger.events.acme.op-forged",
		s.Inbox("rival"), s.Refused("rival"), s.System("marker"), s.System("forged"), "opledger.scopes.rival.forged",
		s.API("rival", api.VerbSubmit), s.API("rival", api.VerbDecide), "_INBOX_rival-agent.x", "_INBOX_rival-reader.x",
		"$KV.OPLEDGER_OPERATIONS.rival.op-1", "$KV.OPLEDGER_OPERATIONS.rival.op-forged", "$KV.OPLEDGER_CLAIMS.rival.op-1",
		"$JS.API.STREAM.PURGE.KV_OPLEDGER_CONTRACTS", "$JS.API.STREAM.PURGE.OPLEDGER_REFUSED", "$JS.API.STREAM.DELETE.OPLEDGER_EVENTS",
		"$JS.API.STREAM.CREATE.FORGED", "$JS.API.CONSUMER.CREATE.OPLEDGER_EVENTS", "$SRV.PING", "$SYS.REQ.SERVER.PING",
		// The server refuses these itself, with a complaint.
		"$JS.ACK.OPLEDGER_EVENTS.executor.1.1.1.1.0", "_R_.forged", "_GR_.a.b.opledger.events.rival.op-1",
	}
	contracts, err := js.Stream(t.Context(), "KV_OPLEDGER_CONTRACTS")
	if err != nil {
		t.Fatal(err)
	}
	info, err := contracts.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil || len(info.State.Subjects) == 0 {
		t.Fatalf("no contract is stored: %v", err)
	}
	for subject := range info.State.Subjects {
		out = append(out, subject)
	}
	return out
}

// stored returns every message of every stream, by stream and sequence, apart
// from those that come and go by themselves: the checkpoint of the projection,
// and markers with a lifetime.
func stored(ctx context.Context, t *testing.T, js jetstream.JetStream) map[string]string {
	t.Helper()
	out := make(map[string]string)
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		st, err := js.Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		state := st.CachedInfo().State
		for seq := state.FirstSeq; seq > 0 && seq <= state.LastSeq; seq++ {
			m, err := st.GetMsg(ctx, seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(m.Subject, "._checkpoint") || m.Header.Get("Nats-TTL") != "" {
				continue
			}
			out[fmt.Sprintf("%s %d", name, seq)] = fmt.Sprintf("%s %v %s", m.Subject, m.Header, m.Data)
		}
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// heard are the subjects of the messages that a connection got, and of the
// requests to the JetStream API that it was told of.
type heard struct {
	mu       sync.Mutex
	subjects []string
}

func (h *heard) listen(t *testing.T, nc *nats.Conn, subjects ...string) {
	t.Helper()
	for _, subject := range subjects {
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.subjects = append(h.subjects, m.Subject)
			var audit struct {
				Subject string `json:"subject"`
			}
			if strings.HasPrefix(m.Subject, "$JS.EVENT.ADVISORY.API") && json.Unmarshal(m.Data, &audit) == nil {
				h.subjects = append(h.subjects, audit.Subject)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.subjects)
}

// The server does not hold the reply subject of a request against the sender's
// permissions, and the answer is written by somebody who may write anywhere. So
// it must come out in the sender's own account, whatever subject he named: by
// the service, by the acknowledgement of the inbox and by the trace of a
// message. What is stored is compared message by message, and the ledger's whole
// account is listened to.
func TestAnswersStayInTheAccountThatAsked(t *testing.T) {
	t.Parallel()
	s := events.Subjects{}
	refused := []byte(`not an intent`)
	for name, send := range map[string]func(nc *nats.Conn, reply string) error{
		"service": func(nc *nats.Conn, reply string) error {
			return nc.PublishRequest(s.API("acme", api.VerbGet), reply, []byte(`{"operation_id":"nothing-here"}`))
		},
		"inbox": func(nc *nats.Conn, reply string) error { return nc.PublishRequest(s.Inbox("acme"), reply, refused) },
		"trace": func(nc *nats.Conn, reply string) error {
			m := nats.NewMsg(s.API("acme", api.VerbGet))
			m.Header.Set("Nats-Trace-Dest", reply)
			return nc.PublishMsg(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{})
			victim := w.client("rival-agent")
			if _, err := victim.Submit(t.Context(), wish("op-1")); err != nil {
				t.Fatal(err)
			}
			w.settle(victim, "op-1")
			ledger, _ := w.connect("ledger")
			js, err := jetstream.New(ledger)
			if err != nil {
				t.Fatal(err)
			}
			targets := unwritable(t, js)
			w.quiet(js)

			var rival, inLedger heard
			agent, _ := w.connect("rival-agent")
			rival.listen(t, agent, "_INBOX_rival-agent.>", s.Refused("rival"))
			reader, _ := w.connect("rival-reader")
			rival.listen(t, reader, "_INBOX_rival-reader.>", s.Refused("rival"), s.AllEvents("rival"))
			before := stored(t.Context(), t, js)
			spy, _ := w.connect("ledger")
			inLedger.listen(t, spy, ">")

			attacker, errs := w.connect("acme-agent")
			for _, target := range targets {
				if err := send(attacker, target); err != nil {
					t.Fatal(err)
				}
			}
			drain(attacker, errs)
			// Behind the attack on the same ways: what is sent last is answered,
			// and the inbox is read.
			if m, err := attacker.Request(s.Inbox("acme"), refused, 5*time.Second); err != nil || !strings.Contains(string(m.Data), `"seq"`) {
				t.Errorf("inbox after the attack: got %v, %v", m, err)
			}
			until(t, func() bool { return w.inboxEmpty() })
			time.Sleep(300 * time.Millisecond) // what must not come has time to come

			seen := inLedger.all()
			for _, target := range targets {
				if slices.Contains(seen, target) {
					t.Errorf("something was published on %s in the ledger's account", target)
				}
			}
			if len(seen) == 0 {
				t.Error("nothing was heard in the ledger's account, not even the attack")
			}
			if got := rival.all(); len(got) > 0 {
				t.Errorf("the other tenant heard %v", got)
			}
			// Beside the refusals of the attacker's own inbox nothing has changed.
			after := stored(t.Context(), t, js)
			for key, message := range after {
				if _, ok := before[key]; !ok && strings.HasPrefix(message, s.Refused("acme")+" ") {
					delete(after, key)
				}
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("what is stored, before and after the attack:\n%s", diff)
			}

			w.unharmed(victim, "op-1")
			for _, c := range []*opledger.Client{victim, w.client("acme-agent")} {
				if _, err := c.Submit(t.Context(), wish("op-forged")); err != nil {
					t.Fatal(err)
				}
				w.unharmed(c, "op-forged")
			}
			if !attacker.IsConnected() {
				t.Error("the attacker's connection was closed")
			}
			if _, err := attacker.Request(s.API("acme", api.VerbGet), []byte(`{"operation_id":"op-forged"}`), 5*time.Second); err != nil {
				t.Errorf("a request of the attacker's connection after the attack: %v", err)
			}
		})
	}
}

// quiet waits until nothing is written any more.
func (w *world) quiet(js jetstream.JetStream) {
	w.t.Helper()
	last := stored(w.t.Context(), w.t, js)
	until(w.t, func() bool {
		time.Sleep(200 * time.Millisecond)
		now := stored(w.t.Context(), w.t, js)
		same := cmp.Equal(last, now)
		last = now
		return same
	})
}

func (w *world) unharmed(c *opledger.Client, id string) {
	w.t.Helper()
	w.settle(c, id)
	a, err := c.Get(w.t.Context(), api.GetRequest{OperationID: id, Detail: true})
	if err != nil {
		w.t.Fatal(err)
	}
	if a.Status != operation.StatusConfirmed || a.Review != "" || a.Attempts != 1 || a.State == nil || a.State.Halted != "" || len(a.State.Anomalies) > 0 {
		w.t.Errorf("%s: got %+v with the state %+v, want it confirmed and nothing else", id, a, a.State)
	}
}

// An answer that is sent to a subject of the own tenant is there a request or an
// intent of the ledger's making. It must not do anything.
func TestAnswersAsRequestsDoNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	s := events.Subjects{}
	c := w.client("acme-agent")
	r := wish("op-1")
	r.RequireApproval = &api.RequireApproval{}
	a, err := c.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	nc, errs := w.connect("acme-agent")
	for _, verb := range api.Verbs() {
		for _, subject := range []string{s.API("acme", api.VerbGet), s.API("acme", api.VerbList), s.API("acme", api.VerbSubmit), s.Inbox("acme")} {
			for _, reply := range []string{s.API("acme", verb), s.Inbox("acme"), s.Refused("acme")} {
				if err := nc.PublishRequest(subject, reply, []byte(`{"operation_id":"op-1"}`)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	drain(nc, errs)
	time.Sleep(300 * time.Millisecond)
	until(t, func() bool { return w.inboxEmpty() })
	b, err := c.Get(t.Context(), api.GetRequest{OperationID: "op-1"})
	if err != nil || b.Version != a.Version || b.NextAction != events.NextApproval {
		t.Errorf("got %+v, %v, want it to wait for its approval as before", b, err)
	}
	page, err := c.List(t.Context(), api.ListRequest{})
	if err != nil || len(page.Operations) != 1 {
		t.Errorf("got %+v, %v, want one operation", page, err)
	}
}

// All that a client may expect of the bus passes between the accounts: answers
// that come late, headers both ways, requests without a reply subject,
// acknowledgements, live events, refusals.
func TestClientsNoticeNothingOfAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	s := events.Subjects{}
	nc, _ := w.connect("acme-agent")
	reader, readerErrs := w.connect("acme-reader")
	other, otherErrs := w.connect("rival-reader")
	subscribe := func(nc *nats.Conn, errs chan error, subject string) *nats.Subscription {
		t.Helper()
		sub, err := nc.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		if drain(nc, errs) {
			t.Fatalf("subscribing to %s is denied", subject)
		}
		return sub
	}
	all := subscribe(reader, readerErrs, s.AllEvents("acme"))
	one := subscribe(reader, readerErrs, "opledger.events.acme.op-1")
	refused := subscribe(reader, readerErrs, s.Refused("acme"))
	foreign := subscribe(other, otherErrs, s.AllEvents("rival"))

	// A request without a reply subject.
	body := func(id string) []byte {
		t.Helper()
		r := wish(id)
		r.RequireApproval = &api.RequireApproval{}
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if err := nc.Publish(s.API("acme", api.VerbSubmit), body("op-1")); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []*nats.Subscription{one, all} {
		m, err := sub.NextMsg(5 * time.Second)
		if err != nil || m.Subject != "opledger.events.acme.op-1" || !strings.Contains(string(m.Data), "IntentRecorded") {
			t.Fatalf("live events: got %v, %v", m, err)
		}
		if m.Header.Get("Nats-Msg-Id") == "" {
			t.Errorf("a live event has the headers %v", m.Header)
		}
	}

	// The live event is a tap before the log: what it tells of may not be stored yet.
	until(t, func() bool {
		m, err := nc.Request(s.API("acme", api.VerbGet), []byte(`{"operation_id":"op-1"}`), 5*time.Second)
		return err == nil && m.Header.Get("Nats-Service-Error-Code") == ""
	})
	// An answer that comes late.
	began := time.Now()
	m, err := nc.Request(s.API("acme", api.VerbWait), []byte(`{"operation_id":"op-1","timeout_ms":3300}`), 10*time.Second)
	if err != nil || !strings.Contains(string(m.Data), `"next_action":"`+string(events.NextApproval)+`"`) {
		t.Errorf("wait: got %v, %v", m, err)
	}
	if took := time.Since(began); took < 3300*time.Millisecond {
		t.Errorf("wait answered after %s", took)
	}

	// Headers of an answer, and of a message to the inbox.
	m, err = nc.Request(s.API("acme", api.VerbGet), []byte(`{"operation_id":"nothing-here"}`), 5*time.Second)
	if err != nil || m.Header.Get("Nats-Service-Error-Code") != "404" || m.Header.Get("Nats-Service-Error") == "" {
		t.Errorf("a problem: got %v, %v", m, err)
	}
	// The window for duplicates is short: two messages may fall outside.
	in := nats.NewMsg(s.Inbox("acme"))
	in.Data = body("op-2")
	in.Header.Set(nats.MsgIdHdr, "the-same")
	until(t, func() bool {
		ack, err := nc.RequestMsg(in, 5*time.Second)
		if err != nil || !strings.Contains(string(ack.Data), `"seq"`) {
			t.Fatalf("acknowledgement: got %v, %v", ack, err)
		}
		return strings.Contains(string(ack.Data), `"duplicate"`)
	})
	until(t, func() bool { return w.inboxEmpty() })
	if m, err := all.NextMsg(5 * time.Second); err != nil || m.Subject != "opledger.events.acme.op-2" {
		t.Errorf("live events: got %v, %v", m, err)
	}
	if _, err := nc.Request(s.Inbox("acme"), []byte("not an intent"), 5*time.Second); err != nil {
		t.Error(err)
	}
	if m, err := refused.NextMsg(10 * time.Second); err != nil || !strings.Contains(string(m.Data), "malformed_request") {
		t.Errorf("refused: got %v, %v", m, err)
	}
	if n, _, err := foreign.Pending(); err != nil || n > 0 {
		t.Errorf("the other tenant got %d events, %v", n, err)
	}
}

// The accounts are there again after a restart, and a client of a ledger that
// does not play the API is told so at once.
func TestAccountsAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c := w.client("acme-agent")
	if _, err := c.Submit(t.Context(), wish("op-1")); err != nil {
		t.Fatal(err)
	}
	w.unharmed(c, "op-1")
	if err := w.node.Stop(); err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(t.Context(), node.Options{Config: w.cfg, Roles: []string{node.RoleProjector}})
	if err != nil {
		t.Fatal(err)
	}
	w.node = n
	began := time.Now()
	if _, err := w.client("acme-agent").Get(t.Context(), api.GetRequest{OperationID: "op-1"}); !errors.Is(err, opledger.ErrNoAnswer) {
		t.Errorf("without the API: got %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("without the API the client waited %s", took)
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.unharmed(w.client("acme-agent"), "op-1")
}

// A store of the time when the ledger was in the server's global account is not
// taken for an empty one.
func TestStoreOfAnotherAccountIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c := w.client("acme-agent")
	if _, err := c.Submit(t.Context(), wish("op-1")); err != nil {
		t.Fatal(err)
	}
	w.unharmed(c, "op-1")
	if err := w.node.Stop(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(w.cfg.Path(w.cfg.NATS.StoreDir), "nats", "jetstream")
	now, old := filepath.Join(dir, access.LedgerAccount), filepath.Join(dir, "$G")
	if _, err := os.Stat(filepath.Join(now, "streams", natsjournal.Topology{}.Names().Events)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(now, old); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Start(t.Context(), node.Options{Config: w.cfg}); err == nil || !strings.Contains(err.Error(), "rename") {
		t.Errorf("got %v, want a refusal that says what to do", err)
	}
	if err := os.Rename(old, now); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.unharmed(w.client("acme-agent"), "op-1")
}
