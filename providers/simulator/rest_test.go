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
