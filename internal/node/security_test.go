package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/simulator"
)

// Rows of the table in docs/SECURITY.md that need the whole ledger, under the
// permissions of package access.

// echo is a provider that repeats the credential and a personal argument wherever
// an answer has room, once for each title.
type echo struct {
	mu   sync.Mutex
	done map[string]bool
}

const canaryPersonal = "canary-person@example.com"

func (e *echo) answer(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/v1/tasks" {
		return false
	}
	both := canarySecret + " " + canaryPersonal
	title := ""
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		var task struct{ Title, Contact string }
		if err != nil || json.Unmarshal(body, &task) != nil || task.Contact != canaryPersonal || r.Header.Get("Authorization") != "Bearer "+canarySecret {
			return false
		}
		title = task.Title
	}
	e.mu.Lock()
	again := e.done[title]
	e.done[title] = title != ""
	e.mu.Unlock()
	if again {
		title = "usual"
	}
	w.Header().Set("X-Request-Id", canarySecret)
	w.Header().Set("Retry-After", canarySecret)
	write := func(status int, body string) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	switch title {
	case "": // a look
		if label := r.URL.Query().Get("label"); label != "" {
			write(200, fmt.Sprintf(`{"items":[{"id":"T-look-%s","label":%q,"title":%q,"note":%q}],"next_cursor":""}`, label[:9], label, both, both))
			return true
		}
		return false
	case "result":
		write(201, fmt.Sprintf(`{"id":"T-1","note":%q,%q:[%q],"contact":%q}`, both, canarySecret, canarySecret, canaryPersonal))
	case "id":
		write(201, fmt.Sprintf(`{"id":%q}`, canarySecret))
	case "code":
		write(422, fmt.Sprintf(`{"error":{"code":%q,"message":%q}}`, canarySecret, both))
	case "error":
		write(500, both)
	case "redirect":
		w.Header().Set("Location", "http://127.0.0.1:1/"+canarySecret)
		write(302, both)
	case "busy":
		write(429, both)
	case "cut", "malformed":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return false
		}
		if title == "malformed" {
			_, _ = io.WriteString(conn, "HTTP/1.1 "+both+"\r\n"+both+"\r\n\r\n")
		}
		_ = conn.Close()
	default:
		write(201, `{"id":"T-usual"}`)
	}
	return true
}

// I18: a provider repeats the credential in its result, as id, as error code, as
// request id, in a redirect, in what is no HTTP, and in what a search finds. It
// stands in nothing that the ledger keeps, says or shows, and no personal argument
// stands anywhere but in the arguments themselves.
func TestACredentialThatTheProviderRepeatsIsKeptNowhere(t *testing.T) {
	t.Parallel()
	e := &echo{done: make(map[string]bool)}
	w := newWorld(t, options{before: e.answer})
	c, o := w.client("acme-agent"), w.client("acme-operator")
	reader, readerErrs := w.connect("acme-reader")
	live, err := reader.SubscribeSync(events.Subjects{}.AllEvents("acme"))
	if err != nil || drain(reader, readerErrs) {
		t.Fatal("a reader may not follow its events", err)
	}
	shown := map[string]string{}
	for _, title := range []string{"result", "id", "code", "error", "redirect", "busy", "cut", "malformed"} {
		r := wish("op-" + title)
		r.Args = json.RawMessage(fmt.Sprintf(`{"title":%q,"contact":%q}`, title, canaryPersonal))
		if _, err := c.Submit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		a := w.settle(c, r.OperationID)
		want := map[string]operation.Status{"code": operation.StatusRejected}[title]
		if want == "" {
			want = operation.StatusConfirmed
		}
		if a.Status != want {
			t.Errorf("%s: got %+v", title, a)
		}
		plain, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		d, err := o.Get(t.Context(), api.GetRequest{OperationID: r.OperationID, Detail: true})
		if err != nil {
			t.Fatal(err)
		}
		shown["answer to "+title] = string(plain)
		shown["request of "+title] = string(d.Request)
		d.State.Intent.Args = nil // they are in the log in plain text, and that is said
		detail, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		shown["detail of "+title+", without the arguments"] = string(detail)
	}
	_, err = c.Submit(t.Context(), wish("op-result")) // a conflict
	shown["problem"] = fmt.Sprintf("%v %+v", err, err)
	shown["logs"], shown["metrics"] = w.logs.String(), w.get("/metrics")
	for where, text := range shown {
		for _, canary := range []string{canarySecret, canaryPersonal, "pw-of-everybody"} {
			if strings.Contains(text, canary) {
				at := strings.Index(text, canary)
				t.Errorf("%s shows %s: …%s", where, canary, text[max(0, at-80):at+len(canary)])
			}
		}
	}
	n := 0
	for place, message := range stored(t.Context(), t, w.stream()) {
		n++
		if strings.Contains(message, canarySecret) || strings.Contains(message, "pw-of-everybody") {
			at := strings.Index(message, canarySecret)
			t.Errorf("stored in %s: …%s…", place, message[max(0, at-80):max(at, 0)])
		}
		if strings.Contains(message, `"result":`) && strings.Count(message, canaryPersonal) > 1 {
			t.Errorf("a personal argument is kept in a result, in %s: %s", place, message)
		}
	}
	if n < 40 {
		t.Errorf("only %d messages are stored", n)
	}
	for {
		m, err := live.NextMsg(100 * time.Millisecond)
		if err != nil {
			break
		}
		if strings.Contains(string(m.Data), canarySecret) {
			t.Errorf("live event: %s", m.Data)
		}
	}
}

// captured is a request as somebody who listens on the wire has it.
type captured struct {
	verb string
	body []byte
}

// I7, I12, I15: every request that once did something is sent again, ten times, by
// the same user, and by the users of the other tenant. Nothing more happens: no
// version moves, nothing is sent, the other tenant sees nothing.
func TestReplayedRequestsDoNothing(t *testing.T) {
	t.Parallel()
	lost := simulator.Rule{Method: "POST", Times: 2, Do: simulator.LoseRequest}
	w := newWorld(t, options{
		contract: "sim-nothing", vars: map[string]string{"total": "1s", "late_apply": "100ms"}, rules: []simulator.Rule{lost},
	})
	provider := providerOf(t, "sim-nothing")
	nc, _ := w.connect("acme-operator")
	other, _ := w.connect("rival-operator")
	s := events.Subjects{}
	var all []captured
	send := func(conn *nats.Conn, tenant, verb string, body []byte) (string, bool) {
		t.Helper()
		m, err := conn.Request(s.API(tenant, verb), body, 10*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		return string(m.Data), m.Header.Get("Nats-Service-Error-Code") == ""
	}
	do := func(verb string, request any) api.Answer {
		t.Helper()
		body, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		out, ok := send(nc, "acme", verb, body)
		var a api.Answer
		if err := json.Unmarshal([]byte(out), &a); err != nil || !ok {
			t.Fatalf("%s: %s, %v", verb, out, err)
		}
		all = append(all, captured{verb, body})
		return a
	}
	submit := func(id string, approval bool) api.Answer {
		t.Helper()
		r := wish(id)
		r.Provider = provider
		if approval {
			r.RequireApproval = &api.RequireApproval{}
		}
		return do(api.VerbSubmit, r)
	}
	c := w.client("acme-operator")
	// An approval, a permit, a rejection, evidence, a cancellation.
	a := submit("op-approved", true)
	do(api.VerbApprove, api.ApproveRequest{OperationID: "op-approved", IntentDigest: a.IntentDigest, Approver: "ada", ExpiresAt: time.Now().Add(time.Hour)})
	a = w.settle(c, "op-approved")
	if a.Status != operation.StatusUnknown {
		t.Fatalf("got %+v, want it unknown", a)
	}
	do(api.VerbDecide, api.DecideRequest{OperationID: "op-approved", Decision: events.DecidePermit, ExpectVersion: a.Version, Actor: "ada", Reason: "asked"})
	until(t, func() bool {
		a, err := c.Get(t.Context(), api.GetRequest{OperationID: "op-approved"})
		return err == nil && a.Attempts == 2 && a.Review != ""
	})
	if a, err := c.Get(t.Context(), api.GetRequest{OperationID: "op-approved"}); err != nil || a.Status != operation.StatusUnknown {
		t.Fatalf("got %+v, %v, want the second attempt lost too", a, err)
	}
	submit("op-seen", false)
	w.settle(c, "op-seen")
	do(api.VerbEvidence, api.EvidenceRequest{
		OperationID: "op-seen", Source: events.SourceWebhook, AccountProviderID: "acct_1", ExternalID: "T-99", Actor: "hook",
	})
	submit("op-cancelled", true)
	do(api.VerbCancel, api.CancelRequest{OperationID: "op-cancelled", Actor: "ada", Reason: "no"})
	w.quiet(w.stream())
	sends := w.sends()
	versions := map[string]uint64{}
	for _, id := range []string{"op-approved", "op-seen", "op-cancelled"} {
		versions[id] = w.detail(id).Version
	}
	for range 10 {
		for _, x := range all {
			send(nc, "acme", x.verb, x.body)
			if x.verb == api.VerbSubmit { // a wish of the other tenant's own: that is theirs to make
				continue
			}
			if out, ok := send(other, "rival", x.verb, x.body); ok || strings.Contains(out, "acct_1") || strings.Contains(out, "ada") {
				t.Errorf("the other tenant's %s: %s", x.verb, out)
			}
		}
	}
	w.quiet(w.stream())
	for id, before := range versions {
		if d := w.detail(id); d.Version != before {
			t.Errorf("%s moved from version %d to %d: %+v", id, before, d.Version, d.State)
		}
	}
	if n := w.sends(); n != sends {
		t.Errorf("got %d sends after %d", n, sends)
	}
	if page, err := w.client("rival-operator").List(t.Context(), api.ListRequest{}); err != nil || len(page.Operations) != 0 {
		t.Errorf("the other tenant has %+v, %v", page, err)
	}
}

// I8, I15: evidence that is made up: for an operation of another tenant, under
// another account, with the label of another operation, without one. None of it
// confirms anything, whoever hands it in.
func TestForgedEvidenceConfirmsNothing(t *testing.T) {
	t.Parallel()
	lost := simulator.Rule{Method: "POST", Times: 2, Do: simulator.LoseRequest}
	w := newWorld(t, options{
		contract: "sim-nothing", vars: map[string]string{"total": "1s", "late_apply": "100ms"}, rules: []simulator.Rule{lost},
	})
	c := w.client("acme-agent")
	labels := map[string]string{}
	for _, id := range []string{"op-1", "op-2"} {
		r := wish(id)
		r.Provider = providerOf(t, "sim-nothing")
		if _, err := c.Submit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		w.settle(c, id)
		labels[id] = operation.Label(w.detail(id).State.Intent.IdempotencyKey)
	}
	evidence := func(user string, edit func(*api.EvidenceRequest)) (api.Answer, error) {
		r := api.EvidenceRequest{
			OperationID: "op-1", Source: events.SourceWebhook, AccountProviderID: "acct_1", Label: labels["op-1"], ExternalID: "T-66", Actor: "hook",
		}
		edit(&r)
		return w.client(user).Evidence(t.Context(), r)
	}
	for name, forged := range map[string]struct {
		user string
		edit func(*api.EvidenceRequest)
	}{
		"of another tenant's webhook":     {"rival-webhook", func(*api.EvidenceRequest) {}},
		"of another tenant's operator":    {"rival-operator", func(*api.EvidenceRequest) {}},
		"of an agent":                     {"acme-agent", func(*api.EvidenceRequest) {}},
		"of an approver":                  {"acme-approver", func(*api.EvidenceRequest) {}},
		"of a reader":                     {"acme-reader", func(*api.EvidenceRequest) {}},
		"under another account":           {"acme-webhook", func(r *api.EvidenceRequest) { r.AccountProviderID = "acct_2" }},
		"under no account":                {"acme-webhook", func(r *api.EvidenceRequest) { r.AccountProviderID = "" }},
		"with another operation's label":  {"acme-webhook", func(r *api.EvidenceRequest) { r.Label = labels["op-2"] }},
		"with the label cut off":          {"acme-webhook", func(r *api.EvidenceRequest) { r.Label = labels["op-1"][:20] }},
		"with the label in other letters": {"acme-webhook", func(r *api.EvidenceRequest) { r.Label = strings.ToUpper(labels["op-1"]) }},
		"without a label":                 {"acme-webhook", func(r *api.EvidenceRequest) { r.Label = "" }},
		"as a response":                   {"acme-webhook", func(r *api.EvidenceRequest) { r.Source = "response" }},
		"as a look":                       {"acme-webhook", func(r *api.EvidenceRequest) { r.Source = events.SourceLookup }},
	} {
		_, err := evidence(forged.user, forged.edit)
		if strings.HasPrefix(forged.user, "rival") || forged.user != "acme-webhook" {
			if err == nil {
				t.Errorf("%s: was taken", name)
			}
		}
		for _, id := range []string{"op-1", "op-2"} {
			if d := w.detail(id); d.Status != operation.StatusUnknown || d.ExternalID != "" || d.State.Result != nil {
				t.Fatalf("%s: %s is %s with %+v", name, id, d.Status, d.State.Result)
			}
		}
	}
	// The real one does: the label under the bound account.
	if a, err := evidence("acme-webhook", func(*api.EvidenceRequest) {}); err != nil || a.Status != operation.StatusConfirmed || a.ExternalID != "T-66" {
		t.Errorf("the real one: got %+v, %v", a, err)
	}
	w.objects(0)
}

// I15: every verb of the service, by users who may use it, on an operation of the
// other tenant: it is not there, and the problem does not even tell that it is.
func TestEveryVerbKnowsItsOwnTenantOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	c := w.client("acme-agent")
	r := wish("op-of-acme")
	r.RequireApproval = &api.RequireApproval{}
	a, err := c.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	nc, _ := w.connect("rival-operator")
	s := events.Subjects{}
	bodies := map[string]any{
		api.VerbGet:      api.GetRequest{OperationID: "op-of-acme", Detail: true},
		api.VerbWait:     api.WaitRequest{GetRequest: api.GetRequest{OperationID: "op-of-acme"}, TimeoutMS: 100},
		api.VerbApprove:  api.ApproveRequest{OperationID: "op-of-acme", IntentDigest: a.IntentDigest, Approver: "eve", ExpiresAt: time.Now().Add(time.Hour)},
		api.VerbDecide:   api.DecideRequest{OperationID: "op-of-acme", Decision: events.DecideReject, ExpectVersion: a.Version, Actor: "eve", Reason: "x"},
		api.VerbEvidence: api.EvidenceRequest{OperationID: "op-of-acme", Source: events.SourcePerson, AccountProviderID: "acct_1", ExternalID: "T-1", Actor: "eve"},
		api.VerbCancel:   api.CancelRequest{OperationID: "op-of-acme", Actor: "eve", Reason: "x"},
		api.VerbList:     api.ListRequest{},
		api.VerbSubmit:   wish("op-of-acme"), // under the same id an operation of their own
	}
	ask := func(verb, id string) string {
		t.Helper()
		body, err := json.Marshal(bodies[verb])
		if err != nil {
			t.Fatal(err)
		}
		m, err := nc.Request(s.API("rival", verb), []byte(strings.ReplaceAll(string(body), "op-of-acme", id)), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(m.Data), id, "ID")
	}
	for _, verb := range api.Verbs() {
		if bodies[verb] == nil {
			t.Fatalf("no request for the verb %s", verb)
		}
		if verb == api.VerbSubmit {
			continue // last: then there is one of their own
		}
		got := ask(verb, "op-of-acme")
		switch verb {
		case api.VerbList:
			if !strings.Contains(got, `"operations":[]`) && !strings.Contains(got, `"operations":null`) {
				t.Errorf("list: %s", got)
			}
		default:
			if none := ask(verb, "op-that-is-not"); got != none || !strings.Contains(got, "not_found") {
				t.Errorf("%s tells one from the other:\n%s\n%s", verb, got, none)
			}
		}
	}
	ask(api.VerbSubmit, "op-of-acme")
	mine, err := w.client("rival-operator").Get(t.Context(), api.GetRequest{OperationID: "op-of-acme"})
	if err != nil || mine.Tenant != "rival" || mine.IntentDigest == a.IntentDigest {
		t.Errorf("their own operation under the same id: got %+v, %v", mine, err)
	}
	if b, err := c.Get(t.Context(), api.GetRequest{OperationID: "op-of-acme"}); err != nil || b.Version != a.Version {
		t.Errorf("got %+v, %v, want it as before", b, err)
	}
	var p *api.Problem
	if _, err := w.client("acme-reader").Get(t.Context(), api.GetRequest{OperationID: "op-that-is-not"}); !errors.As(err, &p) || p.Code != api.ProblemNotFound {
		t.Errorf("got %v", err)
	}
}
