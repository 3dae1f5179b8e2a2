package simulator_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/providers/simulator"
)

const asJSON = "application/json"

func post(path, body string) call { return call{path: path, body: body, contentType: asJSON} }
func get(path string) call        { return call{method: http.MethodGet, path: path} }

// Every preset answers its own account probe, and refuses a credential that it
// does not know with a body of its own.
func TestEveryPresetHasAnAccountAndRefusesAStranger(t *testing.T) {
	t.Parallel()
	probes := map[string]struct {
		call
		at   string
		want any
	}{
		"crm": {get("/v1/account"), "id", "acct_1"}, "keyed": {get("/v1/account"), "id", "acct_1"},
		"nothing": {get("/v1/account"), "id", "acct_1"}, "unique": {get("/v1/account"), "id", "acct_1"},
		"stripe-v1": {get("/v1/account"), "id", "acct_1"}, "stripe-v2": {get("/v1/account"), "id", "acct_1"},
		"linear":        {graph(`{ organization { id } }`, nil), "data.organization.id", "acct_1"},
		"github-issues": {get("/user"), "login", "acct_1"},
		"resend":        {get("/domains"), "data.id", "acct_1"},
		"zendesk":       {get("/api/v2/users/me.json"), "user.name", "acct_1"},
		"kubernetes":    {get("/api/v1/namespaces/kube-system"), "metadata.uid", "acct_1"},
		"salesforce":    {get("/services/oauth2/userinfo"), "organization_id", "acct_1"},
		"telegram":      {get("/bot" + simulator.DefaultToken + "/getMe"), "result.first_name", "acct_1"},
	}
	for _, name := range simulator.Presets() {
		if _, ofData := restRows()[name]; ofData {
			continue // see TestEveryDialectMadeOfDataMakesAnObjectAndRefusesAStranger
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, ok := probes[name]
			if !ok || simulator.About(name) == "" {
				t.Fatal("a preset needs a row here and a line of help")
			}
			b, _ := preset(t, name)
			p.auth = ""
			b.want(b.do(p.call), 200, p.at, p.want)
			p.path = strings.ReplaceAll(p.path, simulator.DefaultToken, "stranger")
			p.token = "stranger"
			if r := b.do(p.call); r.status != 401 || len(r.raw) < 10 || r.header.Get("Content-Type") == "" {
				t.Fatalf("a stranger got %d %s", r.status, r.raw)
			}
			if row := b.lastRequest(); row.Operation != "account" {
				t.Fatalf("log %+v", row)
			}
		})
	}
}

func TestGitHubIssuesAnswersWithTheShapesOfGitHub(t *testing.T) {
	t.Parallel()
	b, c := preset(t, "github-issues")
	const issues = "/repos/acme/site/issues"
	mark := "opl0123456789abcdef0123456789abcdef"
	body := `{"title":"call Ann","body":"text\n\n<!-- ` + mark + ` -->","labels":["bug"]}`
	for n := 1; n <= 3; n++ {
		b.want(b.do(post(issues, body)), 201, "number", float64(n), "title", "call Ann", "state", "open", "user.login", "acct_1", "labels.name", "bug")
	}
	if row := b.lastRequest(); row.Label != mark || row.ObjectID != "3" {
		t.Fatalf("log %+v", row)
	}
	b.want(b.do(post("/repos/acme/other/issues", body)), 201, "number", 1.0)
	b.want(b.do(post(issues, `{}`)), 422, "message", "Validation Failed", "errors.code", "missing_field", "errors.field", "title")
	b.want(b.do(get(issues+"/2")), 200, "number", 2.0)
	b.want(b.do(get(issues+"/9")), 404, "message", "Not Found", "status", "404")

	if r := b.do(get(issues)); string(r.raw) != "[]\n" {
		t.Fatalf("the list is not behind: %s", r.raw)
	}
	c.advance(10 * time.Second)
	r := b.do(get(issues + "?per_page=2&state=all&sort=created&direction=desc&since=2026-03-01T12:00:00Z"))
	link := r.header.Get("Link")
	if !strings.Contains(string(r.raw), `"number":3`) || strings.Contains(string(r.raw), `"number":1`) || !strings.HasPrefix(link, "<"+b.url+issues+"?") || !strings.Contains(link, `rel="next"`) {
		t.Fatalf("link %q, body %s", link, r.raw)
	}
	next := strings.TrimPrefix(link[1:strings.Index(link, ">")], b.url)
	if r := b.do(get(next)); strings.Contains(r.header.Get("Link"), `"next"`) || !strings.Contains(string(r.raw), `"number":1`) {
		t.Fatalf("second page: link %q, body %s", r.header.Get("Link"), r.raw)
	}

	search := "/search/issues?q=" + mark + "+repo:acme/site+in:body"
	b.want(b.do(get(search)), 200, "total_count", 0.0)
	c.advance(10 * time.Minute)
	b.want(b.do(get(search)), 200, "total_count", 3.0, "items.number", 3.0, "incomplete_results", false)
	b.want(b.do(get("/search/issues?q="+mark)), 200, "total_count", 4.0)

	b.rule(simulator.Rule{Do: simulator.RateLimit, Nth: 1})
	b.rule(simulator.Rule{Do: simulator.RateLimit, Nth: 2, Status: 429, After: simulator.Duration(time.Minute)})
	if r := b.do(post(issues, body)); r.status != 403 || r.header.Get("X-RateLimit-Remaining") != "0" {
		t.Fatalf("%d %v", r.status, r.header)
	}
	if r := b.do(post(issues, body)); r.status != 429 || r.header.Get("Retry-After") != "60" {
		t.Fatalf("%d %v", r.status, r.header)
	}
	b.wantObjects(4)
}

func TestResendAnswersWithTheShapesOfResend(t *testing.T) {
	t.Parallel()
	b, _ := preset(t, "resend")
	mail := post("/emails", `{"from":"a@x.io","to":"b@x.io","subject":"Hi","text":"t","tags":[{"name":"opledger","value":"op-1"}]}`)
	mail.key = "k1"
	first := b.do(mail)
	b.want(first, 200)
	b.want(b.do(mail), 200, "id", first.id())
	if row := b.lastRequest(); !row.Replayed || row.Label != "op-1" {
		t.Fatalf("log %+v", row)
	}
	b.want(b.do(get("/emails/"+first.id())), 200, "object", "email", "subject", "Hi", "last_event", "delivered")
	b.want(b.do(get("/emails/none")), 404, "name", "not_found", "statusCode", 404.0)
	other := mail
	other.body = strings.ReplaceAll(mail.body, "Hi", "Ho")
	b.want(b.do(other), 409, "name", "invalid_idempotent_request")
	b.want(b.do(post("/emails", `{"to":"b@x.io"}`)), 422, "name", "missing_required_field")
	other.key = strings.Repeat("k", 257)
	b.want(b.do(other), 400, "name", "invalid_idempotency_key")

	b.rule(simulator.Rule{Do: simulator.Hold, BodyContains: "Ho", Times: 1})
	other.key = "k2"
	held := b.background(other)
	b.waitHeld(1)
	b.want(b.do(other), 409, "name", "concurrent_idempotent_requests")
	b.release()
	b.want(b.wait(held), 200)
	b.wantObjects(2)
}

func TestZendeskAnswersWithTheShapesOfZendesk(t *testing.T) {
	t.Parallel()
	b, c := preset(t, "zendesk")
	ticket := post("/api/v2/tickets.json", `{"ticket":{"subject":"Hi","comment":{"body":"text"},"external_id":"op-1"}}`)
	ticket.key = "k1"
	ticket.auth = "Basic " + base64.StdEncoding.EncodeToString([]byte("me@x.io/token:"+simulator.DefaultToken))
	for _, lookup := range []string{"miss", "hit"} {
		r := b.do(ticket)
		b.want(r, 201, "ticket.id", 731.0, "ticket.external_id", "op-1", "ticket.description", "text")
		if r.header.Get("X-Idempotency-Lookup") != lookup {
			t.Fatalf("headers %v", r.header)
		}
	}
	b.want(b.do(get("/api/v2/tickets.json?external_id=op-1")), 200, "count", 1.0, "tickets.id", 731.0)
	b.want(b.do(get("/api/v2/tickets?external_id=op-2")), 200, "count", 0.0)
	b.want(b.do(get("/api/v2/search.json?query=type:ticket+external_id:op-1")), 200, "count", 0.0)
	b.want(b.do(get("/api/v2/tickets/731.json")), 200, "ticket.subject", "Hi")
	b.want(b.do(get("/api/v2/tickets/1.json")), 404, "error", "RecordNotFound")
	b.want(b.do(post("/api/v2/tickets.json", `{"ticket":{}}`)), 422, "error", "RecordInvalid")
	other := ticket
	other.body = strings.ReplaceAll(ticket.body, "Hi", "Ho")
	b.want(b.do(other), 400, "error", "IdempotentRequestError")
	c.advance(2 * time.Hour)
	b.want(b.do(get("/api/v2/search.json?query=external_id:op-1")), 200, "count", 1.0)
	b.want(b.do(ticket), 201, "ticket.id", 732.0) // the key is forgotten
	b.wantObjects(2)
}

func TestKubernetesAnswersWithTheShapesOfKubernetes(t *testing.T) {
	t.Parallel()
	b, _ := preset(t, "kubernetes")
	const maps = "/api/v1/namespaces/default/configmaps"
	named := func(name, data string) call {
		return post(maps, `{"metadata":{"name":"`+name+`","labels":{"opledger":"op-1"}},"data":{"a":"`+data+`"}}`)
	}
	b.want(b.do(named("m1", "1")), 201, "kind", "ConfigMap", "metadata.name", "m1", "metadata.namespace", "default", "data.a", "1")
	if row := b.lastRequest(); row.IdempotencyKey != "m1" || row.Label != "op-1" {
		t.Fatalf("log %+v", row)
	}
	b.want(b.do(named("m1", "2")), 409, "kind", "Status", "reason", "AlreadyExists", "code", 409.0, "details.name", "m1", "status", "Failure")
	b.want(b.do(post("/api/v1/namespaces/other/configmaps", `{"metadata":{"name":"m1"}}`)), 201)
	b.want(b.do(post(maps, `{"metadata":{"generateName":"x-"}}`)), 201)
	b.want(b.do(post(maps, `{}`)), 422, "reason", "Invalid")
	b.want(b.do(get(maps+"/m1")), 200, "data.a", "1")
	b.want(b.do(get(maps+"/none")), 404, "reason", "NotFound")
	b.want(b.do(get(maps+"?labelSelector=opledger%3Dop-1")), 200, "kind", "ConfigMapList", "items.metadata.name", "m1")
	b.want(b.do(get(maps+"?limit=1")), 200, "metadata.continue", "m1")
	b.want(b.do(post("/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`)), 201, "status.userInfo.username", "acct_1")
	if _, err := b.admin.DeleteObject(t.Context(), "", "m1"); err != nil {
		t.Fatal(err)
	}
	b.want(b.do(named("m1", "3")), 201, "data.a", "3")
}

func TestSalesforceAnswersWithTheShapesOfSalesforce(t *testing.T) {
	t.Parallel()
	b, _ := preset(t, "salesforce")
	const path = "/services/data/v60.0/sobjects/Account/Ext__c/op-1"
	upsert := func(name string) call {
		c := post(path, `{"Name":"`+name+`"}`)
		c.method = http.MethodPatch
		return c
	}
	r := b.do(upsert("Ann"))
	b.want(r, 201, "success", true, "created", true)
	if id := r.id(); len(id) != 18 || !strings.HasPrefix(id, "001") {
		t.Fatalf("id %q", id)
	}
	if row := b.lastRequest(); row.Operation != "upsert" || row.IdempotencyKey != "op-1" {
		t.Fatalf("log %+v", row)
	}
	b.want(b.do(upsert("Bob")), 200, "id", r.id(), "created", false)
	b.want(b.do(get(path)), 200, "Id", r.id(), "Name", "Bob", "Ext__c", "op-1", "attributes.type", "Account")
	b.want(b.do(get("/services/data/v60.0/sobjects/Account/"+r.id())), 200, "Name", "Bob")
	b.want(b.do(get("/services/data/v60.0/query?q=SELECT+Id,Name+FROM+Account+WHERE+Ext__c='op-1'")), 200, "totalSize", 1.0, "records.Id", r.id())
	b.set(map[string]any{"upsert": "silent"})
	if r := b.do(upsert("Cid")); r.status != 204 || len(r.raw) != 0 {
		t.Fatalf("%d %s", r.status, r.raw)
	}
	o := b.wantObjects(1)[0]
	if o.Title != "Cid" || o.UpsertedAt.IsZero() {
		t.Fatalf("row %+v", o)
	}
	if r := b.do(get("/services/data/v60.0/sobjects/Account/none")); r.status != 404 || !strings.Contains(string(r.raw), `"errorCode":"NOT_FOUND"`) {
		t.Fatalf("%d %s", r.status, r.raw)
	}
}

func TestTelegramSendsAndCannotBeReadBack(t *testing.T) {
	t.Parallel()
	b, _ := preset(t, "telegram")
	path := "/bot" + simulator.DefaultToken + "/sendMessage"
	b.want(b.do(post(path, `{"chat_id":42,"text":"hi"}`)), 200, "ok", true, "result.chat.id", 42.0, "result.text", "hi", "result.message_id", 731.0)
	c := call{path: path, body: "chat_id=42&text=hi", contentType: form}
	b.want(b.do(c), 200, "result.message_id", 732.0)
	b.want(b.do(post(path, `{"chat_id":42}`)), 400, "ok", false, "error_code", 400.0)
	b.rule(simulator.Rule{Do: simulator.RateLimit, After: simulator.Duration(7 * time.Second), Times: 1})
	b.want(b.do(c), 429, "parameters.retry_after", 7.0)
	b.want(b.do(get("/bot"+simulator.DefaultToken+"/getUpdates")), 401)
	b.wantObjects(2)
}

// Stripe's documentation of v2: a failed request is run again with its key, and
// an updated response is returned.
func TestStripeV2RunsAFailedRequestAgain(t *testing.T) {
	t.Parallel()
	b, _ := preset(t, "stripe-v2")
	c := post("/v2/core/accounts", `{"display_name":"Ann","metadata":{"opledger":"op-1"}}`)
	c.key = "k1"
	b.rule(simulator.Rule{Do: simulator.StatusOnly, Nth: 1})
	b.rule(simulator.Rule{Do: simulator.StatusAfterCommit, Nth: 2})
	b.want(b.do(c), 500, "error.type", "api_error")
	b.wantObjects(0)
	b.want(b.do(c), 500)
	o := b.wantObjects(1)[0]
	b.want(b.do(c), 200, "id", o.ID, "display_name", "Ann")
	if b.lastRequest().Replayed {
		t.Fatal("the request that ends a failed one is no replay")
	}
	title := "Eve"
	if _, err := b.admin.EditObject(t.Context(), "", o.ID, simulator.ObjectEdit{Title: &title}); err != nil {
		t.Fatal(err)
	}
	b.want(b.do(c), 200, "id", o.ID, "display_name", "Eve")
	b.wantObjects(1)
}
