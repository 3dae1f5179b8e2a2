package simulator

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const zendeskTickets = "/api/v2/tickets"

// zendesk speaks as Zendesk's ticketing API.
//
// Sources (Zendesk docs "Ticketing
// introduction", section Idempotency; zendesk-java-client IdempotencyUtil;
// resonate-plugins): the key on the creation of a ticket only, 2 hours, the
// header x-idempotency-lookup with hit and miss, 400 IdempotentRequestError for
// another body, external_id without uniqueness and its list, GET
// /api/v2/users/me. Chosen: 409 for a key in use (unknown; one third-party fake
// does so), that errors are not stored, a search that is a minute behind.
func zendesk() dialect {
	both := func(method, pattern string, op operation, run func(*state, *exchange, time.Time) answer) []route {
		r := route{method: method, pattern: pattern + ".json", op: op, keyed: op == opCreate, run: run}
		short := r
		short.pattern = pattern
		return []route{r, short}
	}
	return dialect{
		name: "zendesk", about: "Zendesk tickets: keys for two hours and a list by external_id (K1, then K4)",
		settings: Settings{
			Keys: true, KeyRetention: Duration(2 * time.Hour), Mismatch: Mismatch400,
			SearchLag: Duration(time.Minute), ClientIDsOff: true, PageSize: 100,
		},
		auth:      basicOrBearer,
		label:     []string{"/ticket/external_id"},
		newID:     func(st *state, x *exchange, collection string) string { return st.freeID(x.account, collection) },
		requestID: "X-Request-Id",
		keyTaken:  map[string]string{"X-Idempotency-Lookup": "miss"},
		replayed:  func(string) map[string]string { return map[string]string{"X-Idempotency-Lookup": "hit"} },
		errors: []shape{
			{trouble: badToken, status: 401, code: "Couldn't authenticate you"},
			{trouble: noPath, status: 404, code: "InvalidEndpoint"},
			{trouble: noObject, status: 404, code: "RecordNotFound"},
			{trouble: badBody, status: 400, code: "UnprocessableEntity"},
			{trouble: badContent, status: 422, code: "RecordInvalid"},
			{trouble: keyMismatch, status: 400, code: "IdempotentRequestError"},
			{trouble: longKey, status: 400, code: "IdempotentRequestError"},
			{trouble: keyInUse, status: 409, code: "IdempotentRequestError"},
			{trouble: rateLimited, status: 429, code: "TooManyRequests"},
			{trouble: unavailable, status: 503, code: "ServiceUnavailable"},
			{trouble: internal, status: 500, code: "InternalServerError"},
		},
		errorBody: func(f failure) any { return map[string]any{"error": f.code, "description": f.message} },
		routes: slices.Concat(
			both(http.MethodPost, zendeskTickets, opCreate, zendeskCreate),
			both(http.MethodGet, zendeskTickets, opList, zendeskList),
			both(http.MethodGet, zendeskTickets+"/{id}", opRead, zendeskRead),
			both(http.MethodGet, "/api/v2/search", opSearch, zendeskSearch),
			both(http.MethodGet, "/api/v2/users/me", opAccount, func(_ *state, x *exchange, _ time.Time) answer {
				return jsonAnswer(http.StatusOK, map[string]any{"user": map[string]any{
					"id": accountNumber(x.account), "name": x.account, "email": x.account + "@example.com", "role": "agent", "active": true,
				}})
			}),
		),
	}
}

func zendeskCreate(st *state, x *exchange, now time.Time) answer {
	ticket := mapAt(x.args, "/ticket")
	if textAt(ticket, "/comment/body") == "" && textAt(ticket, "/description") == "" {
		return x.fail(badContent, "Record validation errors: Description: cannot be blank")
	}
	host := x.host
	return st.create(x, x.make(zendeskTickets, textAt(ticket, "/subject"), ticket), now, func(o *object) answer {
		v := zendeskTicket(o, host)
		return jsonAnswer(http.StatusCreated, map[string]any{
			"ticket": v, "audit": map[string]any{"ticket_id": v["id"], "events": []any{}},
		}).with("Location", v["url"].(string))
	})
}

func zendeskTicket(o *object, host string) map[string]any {
	number, _ := strconv.ParseInt(o.ID, 10, 64)
	at := second(o.ShownAt)
	return map[string]any{
		"id": number, "url": "http://" + host + zendeskTickets + "/" + o.ID + ".json", "subject": o.args["subject"],
		"raw_subject": o.args["subject"], "external_id": o.args["external_id"], "status": or(o.args["status"], "new"),
		"description": or(valueAt(o.args, "/comment/body"), o.args["description"]), "priority": o.args["priority"],
		"tags": or(o.args["tags"], []any{}), "requester_id": o.args["requester_id"], "created_at": at, "updated_at": at,
	}
}

func zendeskRead(st *state, x *exchange, now time.Time) answer {
	if o := st.read(x, zendeskTickets, x.vars["id"], now); o != nil {
		return jsonAnswer(http.StatusOK, map[string]any{"ticket": zendeskTicket(o, x.host)})
	}
	return x.fail(noObject, "Not found")
}

func zendeskList(st *state, x *exchange, now time.Time) answer {
	external := x.query.Get("external_id")
	found, wrong := st.visible(x, zendeskTickets, inList, now, func(o *object) bool {
		return external == "" || external == textAt(o.args, "/external_id")
	})
	if wrong != nil {
		return *wrong
	}
	return x.zendeskPage("tickets", found)
}

// zendeskSearch knows external_id: and words; other qualifiers match everything.
func zendeskSearch(st *state, x *exchange, now time.Time) answer {
	found, wrong := st.visible(x, zendeskTickets, inSearch, now, func(o *object) bool {
		for word := range strings.FieldsSeq(x.query.Get("query")) {
			name, value, qualified := strings.Cut(word, ":")
			if name == "external_id" && textAt(o.args, "/external_id") != strings.Trim(value, `"`) {
				return false
			}
			if !qualified && !strings.Contains(strings.ToLower(o.Title+" "+textAt(o.args, "/comment/body")), strings.ToLower(word)) {
				return false
			}
		}
		return true
	})
	if wrong != nil {
		return *wrong
	}
	return x.zendeskPage("results", found)
}

func (x *exchange) zendeskPage(name string, found []*object) answer {
	size, wrong := x.limit("per_page", x.settings.PageSize)
	if wrong != nil {
		return *wrong
	}
	number, _ := strconv.Atoi(x.query.Get("page"))
	number = max(number, 1)
	page, more := pageNumber(found, number, size)
	body := map[string]any{"count": len(found), "next_page": nil, "previous_page": nil}
	body[name] = views(page, func(o *object) any { return zendeskTicket(o, x.host) })
	if more {
		q := x.query
		q.Set("page", strconv.Itoa(number+1))
		body["next_page"] = "http://" + x.host + x.path + "?" + q.Encode()
	}
	return jsonAnswer(http.StatusOK, body)
}
