package node_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/internal/access"
)

const workSubject = "opledger.work.files.task.create"

// ask sends a request to workers and reads what comes back until an answer.
func ask(t *testing.T, nc *nats.Conn, body string) (answer string, signs int, err error) {
	t.Helper()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(workSubject, sub.Subject, []byte(body)); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		m, err := sub.NextMsg(5 * time.Second)
		if err != nil {
			return "", signs, err
		}
		if string(m.Data) != "sign" {
			return string(m.Data), signs, nil
		}
		signs++
	}
	return "", signs, nats.ErrTimeout
}

// A worker takes the work of its provider, in the queue group, and answers it.
// It can neither publish anything else nor listen to anything else (I15).
func TestWorkersHaveOneRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	ledger, _ := w.connect("ledger")
	js, err := jetstream.New(ledger)
	if err != nil {
		t.Fatal(err)
	}
	files, errs := w.connect("files-worker")
	for _, subject := range append(unwritable(t, js), workSubject, "opledger.work.mail.send", "opledger.intents.acme", "_INBOX.x", "_INBOX_files-worker.x") {
		if err := files.Publish(subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if !drain(files, errs) {
			t.Errorf("a worker may publish on %s", subject)
		}
	}
	for _, subject := range []string{
		">", "opledger.>", "opledger.work.>", "opledger.work.files.>", workSubject, "opledger.work.mail.>", "opledger.events.>",
		"_INBOX.>", "_INBOX_files-worker.>", "_R_.>", "$JS.>", "$SRV.>", "$SYS.>",
	} {
		if _, err := files.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if !drain(files, errs) {
			t.Errorf("a worker may listen to %s", subject)
		}
	}
	for subject, queue := range map[string]string{"opledger.work.files.>": "others", "opledger.work.mail.>": access.WorkQueue, ">": access.WorkQueue} {
		if _, err := files.QueueSubscribeSync(subject, queue); err != nil {
			t.Fatal(err)
		}
		if !drain(files, errs) {
			t.Errorf("a worker may listen to %s in the group %s", subject, queue)
		}
	}
	for _, user := range []string{"acme-agent", "acme-operator", "mail-worker"} {
		nc, errs := w.connect(user)
		if err := nc.Publish(workSubject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if !drain(nc, errs) {
			t.Errorf("%s may send work", user)
		}
	}
}

// What a worker puts into an answer, a subject to answer to or a destination for
// a trace, leads nowhere outside the account of its provider's workers; the
// server does not hold either against its permissions.
func TestAnswersOfWorkersReachNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c := w.client("rival-agent")
	if _, err := c.Submit(t.Context(), wish("op-1")); err != nil {
		t.Fatal(err)
	}
	w.settle(c, "op-1")
	ledger, _ := w.connect("ledger")
	js, err := jetstream.New(ledger)
	if err != nil {
		t.Fatal(err)
	}
	targets := append(unwritable(t, js), "opledger.work.mail.send")
	w.quiet(js)
	before := stored(t.Context(), t, js)

	if _, _, err := ask(t, ledger, "nobody"); err == nil || !strings.Contains(err.Error(), "no responders") {
		t.Errorf("work without a worker: got %v, want no responders", err)
	}
	files, fileErrs := w.connect("files-worker")
	if _, err := files.QueueSubscribe("opledger.work.files.>", access.WorkQueue, func(m *nats.Msg) {
		for _, target := range targets { // some of them the server refuses by itself
			_ = files.PublishMsg(&nats.Msg{Subject: m.Reply, Reply: target, Data: []byte("sign")})
			_ = files.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{"Nats-Trace-Dest": {target}}, Data: []byte("sign")})
		}
		_ = m.Respond([]byte("answer to " + string(m.Data)))
	}); err != nil {
		t.Fatal(err)
	}
	mail, mailErrs := w.connect("mail-worker")
	var mails, inLedger heard
	if _, err := mail.QueueSubscribe("opledger.work.mail.>", access.WorkQueue, func(m *nats.Msg) {
		mails.mu.Lock()
		defer mails.mu.Unlock()
		mails.subjects = append(mails.subjects, m.Subject)
	}); err != nil {
		t.Fatal(err)
	}
	if drain(mail, mailErrs) || drain(files, fileErrs) {
		t.Fatal("a worker may not listen to its work")
	}
	spy, _ := w.connect("ledger")
	inLedger.listen(t, spy, ">")
	answer, signs, err := ask(t, ledger, "work")
	if err != nil || answer != "answer to work" || signs == 0 {
		t.Errorf("got %q after %d signs of life, %v", answer, signs, err)
	}
	time.Sleep(300 * time.Millisecond) // what must not come has time to come
	seen := inLedger.all()
	for _, target := range targets {
		if slices.Contains(seen, target) {
			t.Errorf("something was published on %s in the ledger's account", target)
		}
	}
	if !slices.Contains(seen, workSubject) {
		t.Errorf("the spy heard %v, not even the request", seen)
	}
	if got := mails.all(); len(got) > 0 {
		t.Errorf("the workers of another provider heard %v", got)
	}
	if diff := cmp.Diff(before, stored(t.Context(), t, js)); diff != "" {
		t.Errorf("what is stored, before and after:\n%s", diff)
	}
}
