package simulator_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opledger/opledger/providers/simulator"
)

// restRow is the creation at a dialect that is made of data, and where its
// answer has the id.
type restRow struct{ header, before, path, body, at string }

// restRows has a row for each of them.
func restRows() map[string]restRow {
	const bearer, basic = "Bearer ", "Basic "
	auth := "Authorization"
	mark := "opl0123456789abcdef0123456789abcdef"
	return map[string]restRow{
		"adyen":     {"X-Api-Key", "", "/v71/payments", `{"amount":1}`, "pspReference"},
		"airtable":  {auth, bearer, "PATCH /v0/app1/tbl1", `{"records":[{"fields":{"Key":"a"}}]}`, "records.0.id"},
		"anthropic": {"X-Api-Key", "", "/v1/messages", `{"model":"m"}`, "id"},
		"asana":     {auth, bearer, "/api/1.0/tasks", `{"data":{"name":"n"}}`, "data.gid"},
		"braintree": {
			auth, basic, "/graphql",
			`{"query":"mutation { chargePaymentMethod(input: {transaction: {amount: \"1\"}}) { transaction { id } } }"}`, "data.chargePaymentMethod.transaction.id",
		},
		"discord":          {auth, "Bot ", "/api/v10/channels/1/messages", `{"content":"c"}`, "id"},
		"gcp-compute":      {auth, bearer, "/compute/v1/projects/p/zones/z/disks", `{"name":"n"}`, "name"},
		"gitlab":           {"Private-Token", "", "/api/v4/projects/1/issues", `{"title":"t"}`, "iid"},
		"google-calendar":  {auth, bearer, "/calendar/v3/calendars/primary/events", `{"id":"abc"}`, "id"},
		"hubspot":          {auth, bearer, "/crm/objects/2026-03/contacts/batch/upsert", `{"inputs":[{"id":"k"}]}`, "results.0.id"},
		"jira":             {auth, basic, "/rest/api/3/issue", `{"fields":{}}`, "id"},
		"msgraph-calendar": {auth, bearer, "/v1.0/me/events", `{"transactionId":"t"}`, "id"},
		"notion":           {auth, bearer, "/v1/pages", `{"parent":{}}`, "id"},
		"openai":           {auth, bearer, "/v1/responses", `{"model":"m"}`, "id"},
		"paypal":           {auth, bearer, "/v2/checkout/orders", `{"intent":"CAPTURE"}`, "id"},
		"pipedrive":        {"X-Api-Token", "", "/api/v1/notes", `{"content":"c"}`, "data.id"},
		"postmark":         {"X-Postmark-Server-Token", "", "/email", `{"To":"a"}`, "MessageID"},
		"sendgrid":         {auth, bearer, "/v3/mail/send", `{"custom_args":{"opledger":"` + mark + `"}}`, "custom_args.opledger"},
		"servicenow":       {auth, basic, "/api/now/table/incident", `{"urgency":"1"}`, "result.sys_id"},
		"shopify": {
			"X-Shopify-Access-Token", "", "/admin/api/2026-01/graphql.json",
			`{"query":"mutation { inventoryAdjustQuantities(input: {changes: [{inventoryItemId: \"i\"}]}) @idempotent(key: \"k\") { inventoryAdjustmentGroup { id } } }"}`,
			"data.inventoryAdjustQuantities.inventoryAdjustmentGroup.id",
		},
		"slack":   {auth, bearer, "/api/chat.postMessage", `{"text":"t"}`, "ts"},
		"square":  {auth, bearer, "/v2/payments", `{"idempotency_key":"k"}`, "payment.id"},
		"todoist": {auth, bearer, "/api/v1/tasks", `{"content":"c"}`, "id"},
		"twilio":  {auth, basic, "/2010-04-01/Accounts/AC1/Messages.json", `{}`, "sid"},
	}
}

// Every dialect that is made of data makes an object and names it, and refuses
// whom it does not know. The tests of providers/catalogue play keys, lists and
// faults of each through the contract of the same name.
func TestEveryDialectMadeOfDataMakesAnObjectAndRefusesAStranger(t *testing.T) {
	t.Parallel()
	for name, row := range restRows() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings, err := simulator.Preset(name)
			if err != nil {
				t.Fatal(err)
			}
			srv, err := simulator.New(simulator.Config{Settings: settings})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(srv.Close)
			made := row.send(srv, simulator.DefaultToken)
			if made.Code < 200 || made.Code > 299 || textIn(t, made, row.at) == "" {
				t.Errorf("got %d %s", made.Code, made.Body)
			}
			stranger := row.send(srv, "stranger")
			if stranger.Code < 400 && !settings.ErrorsInBody && textIn(t, stranger, "errors.0.extensions.errorClass") != "AUTHENTICATION" || strings.Contains(stranger.Body.String(), "0123456789") {
				t.Errorf("a stranger got %d %s", stranger.Code, stranger.Body)
			}
		})
	}
}

// What the vendors' own clients read, and judges/npm holds against the clients
// themselves.
func TestDialectsMadeOfDataShowWhatTheVendorsClientsRead(t *testing.T) {
	t.Parallel()
	const mark = "opl0123456789abcdef0123456789abcdef"
	t.Run("square", func(t *testing.T) {
		t.Parallel()
		b, _ := preset(t, "square")
		b.want(b.do(post("/v2/payments", `{"idempotency_key":"k","note":"a"}`)), 200)
		b.want(b.do(post("/v2/payments", `{"idempotency_key":"k","note":"b"}`)), 400, "errors.code", "IDEMPOTENCY_KEY_REUSED",
			"errors.category", "INVALID_REQUEST_ERROR", "errors.detail", "the key was used with another body")
	})
	t.Run("notion", func(t *testing.T) {
		t.Parallel()
		b, _ := preset(t, "notion")
		b.set(map[string]any{"index_lag": "0s"})
		r := b.do(post("/v1/pages", `{"properties":{"Name":{"title":[{"text":{"content":"Ann"}}]},"opledger":{"rich_text":[{"text":{"content":"`+mark+`"}}]}}}`))
		b.want(r, 200, "object", "page")
		b.want(b.do(get("/v1/pages/"+r.id())), 200, "properties.Name.title.text.content", "Ann", "properties.opledger.rich_text.plain_text", mark)
		b.want(b.do(post("/v1/data_sources/s/query", `{"filter":{"equals":"`+mark+`"}}`)), 200, "results.id", r.id())
		b.want(b.do(get("/v1/pages/none")), 404, "object", "error", "code", "object_not_found", "status", 404.0)
		b.rule(simulator.Rule{Do: simulator.StatusOnly, Times: 1})
		b.want(b.do(get("/v1/pages/none")), 500, "code", "internal_server_error")
	})
	t.Run("slack", func(t *testing.T) {
		t.Parallel()
		b, _ := preset(t, "slack")
		b.set(map[string]any{"index_lag": "0s"})
		b.want(b.do(call{path: "/api/chat.postMessage", body: "channel=C1&text=hi&metadata=%7B%22event_type%22%3A%22opledger%22%7D", contentType: form}), 200, "ok", true)
		b.want(b.do(call{path: "/api/conversations.history", body: "channel=C1", contentType: form}), 200, "messages.text", "hi", "messages.metadata.event_type", "opledger")
	})
	t.Run("postmark", func(t *testing.T) {
		t.Parallel()
		settings, err := simulator.Preset("postmark")
		if err != nil {
			t.Fatal(err)
		}
		settings.SearchLag = 0
		srv, err := simulator.New(simulator.Config{Settings: settings})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.Close)
		row := restRow{header: "X-Postmark-Server-Token", path: "/email", body: `{"Metadata":{"opledger":"` + mark + `"}}`}
		row.send(srv, simulator.DefaultToken)
		row.path, row.body = "GET /messages/outbound?metadata_opledger="+mark, ""
		if found := row.send(srv, simulator.DefaultToken); !strings.Contains(found.Body.String(), `"TotalCount":1}`) {
			t.Fatalf("got %s", found.Body)
		}
	})
	t.Run("todoist", func(t *testing.T) {
		t.Parallel()
		b, _ := preset(t, "todoist")
		r := b.do(post("/api/v1/tasks", `{"content":"Ann","priority":4}`))
		b.want(r, 200, "project_id", "inbox", "priority", 4.0, "checked", false)
		b.want(b.do(get("/api/v1/tasks/"+r.id())), 200, "content", "Ann")
	})
	t.Run("google-calendar", func(t *testing.T) {
		t.Parallel()
		b, _ := preset(t, "google-calendar")
		b.want(b.do(post("/calendar/v3/calendars/primary/events", `{"id":"abcde"}`)), 200, "status", "confirmed")
		b.want(b.do(get("/calendar/v3/calendars/primary/events/abcde")), 200, "status", "confirmed")
	})
}

func (r restRow) send(srv *simulator.Server, token string) *httptest.ResponseRecorder {
	method, path, ok := strings.Cut(r.path, " ")
	if !ok {
		method, path = http.MethodPost, r.path
	}
	req := httptest.NewRequest(method, path, strings.NewReader(r.body))
	req.Header.Set(r.header, r.before+token)
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	srv.ServeHTTP(w, req)
	return w
}

// textIn follows names and numbers with dots between them.
func textIn(t *testing.T, w *httptest.ResponseRecorder, at string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("no JSON: %s", w.Body)
	}
	for part := range strings.SplitSeq(at, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[part]
		case []any:
			v = nil
			if len(in) > 0 {
				v = in[0]
			}
		}
	}
	text, ok := v.(string)
	if n, number := v.(float64); number && n > 0 {
		return "a number"
	}
	if !ok {
		return ""
	}
	return text
}
