package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/operation"
)

// Rows of docs/faults.md that need the whole ledger on its embedded server.

// stream returns the JetStream of the ledger's own user.
func (w *world) stream() jetstream.JetStream {
	w.t.Helper()
	nc, _ := w.connect("ledger")
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	return js
}

// future stores an event of a kind that this version does not know behind the
// last event of an operation.
func (w *world) future(js jetstream.JetStream, op string) {
	w.t.Helper()
	subject, err := (events.Subjects{}).Operation("acme", op)
	if err != nil {
		w.t.Fatal(err)
	}
	st, err := js.Stream(w.t.Context(), natsjournal.Topology{}.Names().Events)
	if err != nil {
		w.t.Fatal(err)
	}
	last, err := st.GetLastMsgForSubject(w.t.Context(), subject)
	if err != nil {
		w.t.Fatal(err)
	}
	before, err := events.Decode(last.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	body, err := events.Encode(events.Event{
		ID: events.NewID(), Ledger: before.Ledger, Tenant: "acme", Operation: op, Version: before.Version + 1, Prev: events.Digest(last.Data),
		Time: time.Now(), Actor: "a later version", Data: events.ReviewUpdated{Decision: events.DecideNote},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	later := strings.Replace(string(body), "io.opledger.v1.ReviewUpdated", "io.opledger.v1.ShippedByPost", 1)
	if later == string(body) {
		w.t.Fatal("the event has another form")
	}
	if _, err := js.Publish(w.t.Context(), subject, []byte(later), jetstream.WithMsgID(events.NewID())); err != nil {
		w.t.Fatal(err)
	}
}

// An older version beside a newer one, or put in its place again: an event of a
// kind that it does not know is kept and holds its operation, also over a restart;
// nothing is sent, a person is asked, and the others go on (I13, I14).
func TestAnEventOfALaterVersionHoldsItsOperationOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c, approver := w.client("acme-agent"), w.client("acme-approver")
	r := wish("op-later")
	r.RequireApproval = &api.RequireApproval{}
	a, err := c.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	w.future(w.stream(), "op-later")
	until(t, func() bool { return w.detail("op-later").State.Halted != "" })
	_, err = approver.Approve(t.Context(), api.ApproveRequest{
		OperationID: "op-later", IntentDigest: a.IntentDigest, Approver: "ada", ExpiresAt: time.Now().Add(time.Hour),
	})
	if p := (*api.Problem)(nil); err != nil && !errors.As(err, &p) {
		t.Fatal(err)
	}
	for i, restart := range []bool{false, true} {
		if restart {
			if err := w.node.Stop(); err != nil {
				t.Fatal(err)
			}
			w.start()
			c = w.client("acme-agent")
		}
		id := fmt.Sprintf("op-%d", i)
		if _, err := c.Submit(t.Context(), wish(id)); err != nil {
			t.Fatal(err)
		}
		w.unharmed(c, id)
		until(t, func() bool { return w.detail("op-later").Review != "" })
		d := w.detail("op-later")
		if d.Status != operation.StatusPending || d.Attempts != 0 || d.State.Halted == "" || d.RetrySafe {
			t.Errorf("got %+v with the state %+v, want it held", d, d.State)
		}
		w.objects(i + 1)
	}
}

// consumers returns the names of the durables of the journal.
func (w *world) consumers(js jetstream.JetStream, stream string) []string {
	w.t.Helper()
	st, err := js.Stream(w.t.Context(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	names := st.ConsumerNames(w.t.Context())
	for name := range names.Name() {
		out = append(out, name)
	}
	return out
}

// The consumers of a running ledger are deleted, all of them, while operations
// are on their way: they come again, everything is finished, nothing is sent again.
func TestDeletedConsumersMakeNoNewEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c := w.client("acme-agent")
	js := w.stream()
	names := natsjournal.Topology{}.Names()
	deleted := 0
	for round := range 3 {
		for i := range 10 {
			if _, err := c.Submit(t.Context(), wish(fmt.Sprintf("op-%d-%d", round, i))); err != nil {
				t.Fatal(err)
			}
		}
		for _, stream := range []string{names.Events, names.Intents("acme")} {
			for _, name := range w.consumers(js, stream) {
				if err := js.DeleteConsumer(t.Context(), stream, name); err == nil {
					deleted++
				}
			}
		}
	}
	for round := range 3 {
		for i := range 10 {
			w.unharmed(c, fmt.Sprintf("op-%d-%d", round, i))
		}
	}
	w.objects(30)
	if n := w.sends(); n != 30 || deleted == 0 {
		t.Errorf("got %d sends of 30 operations, %d consumers deleted", n, deleted)
	}
	raw, err := json.Marshal(wish("op-last"))
	if err != nil {
		t.Fatal(err)
	}
	nc, _ := w.connect("acme-agent")
	if _, err := nc.Request(events.Subjects{}.Inbox("acme"), raw, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { _, err := c.Get(t.Context(), api.GetRequest{OperationID: "op-last"}); return err == nil })
	w.unharmed(c, "op-last")
}

// I14: among a thousand messages of every way in there is one that nobody can
// read: in the inbox, in the journal, and over the service. The others finish.
func TestOnePoisonedMessageAmongAThousandStopsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	nc, _ := w.connect("acme-agent")
	js := w.stream()
	s := events.Subjects{}
	refused, err := nc.SubscribeSync(s.Refused("acme"))
	if err != nil {
		t.Fatal(err)
	}
	const all = 1000
	poison := []byte("{\"operation_id\":\"op-500\",\xff\x00")
	for i := range all {
		raw, err := json.Marshal(wish(fmt.Sprintf("op-%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		if i == all/2 {
			raw = poison
			if _, err := js.Publish(t.Context(), "opledger.events.acme.op-500", poison, jetstream.WithMsgID("poison")); err != nil {
				t.Fatal(err)
			}
			m := nats.NewMsg(s.API("acme", api.VerbSubmit))
			m.Data, m.Reply = poison, nc.NewRespInbox()
			if err := nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := nc.Request(s.Inbox("acme"), raw, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() bool { return w.inboxEmpty() })
	if m, err := refused.NextMsg(5 * time.Second); err != nil || !strings.Contains(string(m.Data), "malformed_request") {
		t.Errorf("refused: got %v, %v", m, err)
	}
	c := w.client("acme-agent")
	for i := range all {
		if i == all/2 {
			continue
		}
		if a := w.settle(c, fmt.Sprintf("op-%d", i)); a.Status != operation.StatusConfirmed {
			t.Fatalf("op-%d: got %+v", i, a)
		}
	}
	w.objects(all - 1)
	if m, err := refused.NextMsg(100 * time.Millisecond); err == nil {
		t.Errorf("one more was refused: %s", m.Data)
	}
}
