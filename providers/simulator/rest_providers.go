package simulator

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// restProviders are the dialects that need no code of their own. Each speaks the
// wire shape of the contract of the same name in the catalogue, which cites its
// sources. Chosen, because the sources give no figure or no shape: lags, the
// answers to a key that is in use or came with another body where a comment says
// so, and the few fields of an object beyond those that were sent.
func restProviders() []rest {
	return []rest{
		square(), paypal(), adyen(), calendar(), compute(), graphCalendar(), gitlab(), jira(), asana(), notion(),
		pipedrive(), slack(), postmark(), servicenow(), discord(), todoist(), sendgrid(), twilio(), openai(), anthropic(),
		airtable(), hubspot(),
	}
}

// moreKinds are further kinds of objects of providers that have a dialect of
// their own.
func moreKinds(dialect string) []restKind {
	const jobs = "/apis/batch/v1/namespaces/{namespace}/jobs"
	switch dialect {
	case "stripe-v1":
		return []restKind{{
			create: "POST /v1/refunds", status: 200, keyed: true, idAt: "/id", id: words("re_", 24), beside: map[string]any{"object": "refund", "status": "succeeded"},
			shown: func(v map[string]any, o *object) { v["created"] = o.ShownAt.Unix() },
			reads: []restRead{{request: "GET /v1/refunds", items: "/data", beside: map[string]any{"object": "list", "has_more": false}}},
		}}
	case "stripe-v2":
		return []restKind{{
			create: "POST /v2/core/event_destinations", status: 200, keyed: true, idAt: "/id", id: words("ed_", 24), shown: createdAs("created"),
			reads: []restRead{{request: "GET /v2/core/event_destinations", items: "/data", beside: map[string]any{"next_page_url": nil}}},
		}}
	case "github-issues":
		return []restKind{{
			create: "POST /repos/{owner}/{repo}/issues/{number}/comments", status: 201, idAt: "/id", number: true, id: numbered, shown: createdAs("created_at"),
			reads: []restRead{{request: "GET /repos/{owner}/{repo}/issues/{number}/comments"}},
		}}
	case "kubernetes":
		return []restKind{{
			create: "POST " + jobs, status: 201, chosen: "/metadata/name",
			shown: func(v map[string]any, o *object) {
				meta := maps.Clone(mapAt(v, "/metadata"))
				meta["uid"], meta["creationTimestamp"] = uuidID(o.Row), second(o.ShownAt)
				v["metadata"] = meta
			},
			reads: []restRead{{request: "GET " + jobs + "/{id}", one: true}},
		}}
	}
	return nil
}

// The behaviours that most of them share.

// labelled is a provider without keys, whose list and search are behind.
func labelled(list, search time.Duration) Settings {
	return Settings{IndexLag: Duration(list), SearchLag: Duration(search), ClientIDsOff: true}
}

// keyed is a provider that keeps keys for a time.
func keyed(kept time.Duration) Settings {
	return Settings{Keys: true, KeyRetention: Duration(kept), Mismatch: Mismatch400, Concurrent: Concurrent409, ClientIDsOff: true}
}

func with(s Settings, change func(*Settings)) Settings {
	change(&s)
	return s
}

// coded is an error with the code in one place of its body.
func coded(pointer string) func(failure) any {
	return func(f failure) any { return put(map[string]any{"message": f.message}, pointer, f.code) }
}

// listed is an error in a list of errors.
func listed(f failure) any {
	return map[string]any{"errors": []any{map[string]any{"message": f.message, "code": f.code}}}
}

// google is an error of Google's APIs.
func google(f failure) any {
	return map[string]any{"error": map[string]any{
		"code": f.status, "message": f.message, "errors": []any{map[string]any{"domain": "global", "reason": f.code, "message": f.message}},
	}}
}

// createdAs shows the time of the creation under a name.
func createdAs(name string) func(map[string]any, *object) {
	return func(v map[string]any, o *object) { v[name] = o.ShownAt.Format(shownTime) }
}

func square() rest {
	invalid := func(t trouble) shape {
		return shape{trouble: t, status: http.StatusBadRequest, code: "BAD_REQUEST", kind: "INVALID_REQUEST_ERROR"}
	}
	return rest{
		name: "square", about: "Square: payments and customers, keys kept for a time that is not published (K1)",
		// The retention is chosen: short, so that a repeat that trusts it is seen.
		settings: with(keyed(5*time.Minute), func(s *Settings) { s.IndexLag, s.SearchLag = Duration(5*time.Second), Duration(time.Minute) }),
		auth:     bearer, key: inBody("/idempotency_key"), maxKey: 45,
		errorBody: func(f failure) any {
			return map[string]any{"errors": []any{map[string]any{"category": f.kind, "code": f.code, "detail": f.message}}}
		},
		errors: []shape{
			invalid(badContent), invalid(badBody), invalid(longKey),
			{trouble: badToken, status: 401, code: "UNAUTHORIZED", kind: "AUTHENTICATION_ERROR"},
			{trouble: keyMismatch, status: 400, code: "IDEMPOTENCY_KEY_REUSED", kind: "INVALID_REQUEST_ERROR"},
			{trouble: keyInUse, status: 409, code: "CONFLICT", kind: "API_ERROR"}, // chosen
			{trouble: rateLimited, status: 429, code: "RATE_LIMITED", kind: "RATE_LIMIT_ERROR"},
			{trouble: internal, status: 500, code: "INTERNAL_SERVER_ERROR", kind: "API_ERROR"},
			{trouble: unavailable, status: 503, code: "SERVICE_UNAVAILABLE", kind: "API_ERROR"},
		},
		kinds: []restKind{{
			create: "POST /v2/payments", status: 200, keyed: true, under: "/payment", idAt: "/id", id: words("", 22),
			shown: func(v map[string]any, o *object) {
				v["created_at"], v["status"] = o.ShownAt.Format(shownTime), "COMPLETED"
			},
			reads: []restRead{{request: "GET /v2/payments", items: "/payments"}},
		}, {
			create: "POST /v2/customers", status: 200, keyed: true, under: "/customer", idAt: "/id", id: words("", 26), shown: createdAs("created_at"),
			reads: []restRead{{request: "POST /v2/customers/search", in: inSearch, items: "/customers"}},
		}},
	}
}

func paypal() rest {
	return rest{
		name: "paypal", about: "PayPal REST: orders, captures and refunds by PayPal-Request-Id, answered with today's state (K1)",
		// The key of an order really ends after 6 hours; this is the longest time of all calls.
		settings: with(keyed(45*24*time.Hour), func(s *Settings) { s.Replay = ReplayCurrent }),
		auth:     bearer, key: inHeader("PayPal-Request-Id"), maxKey: 108, requestID: "Paypal-Debug-Id",
		errorBody: func(f failure) any {
			return map[string]any{"name": f.kind, "message": f.message, "details": []any{map[string]any{"issue": f.code}}}
		},
		errors: []shape{
			{trouble: badContent, status: 422, code: "MISSING_REQUIRED_PARAMETER", kind: "UNPROCESSABLE_ENTITY"},
			{trouble: keyMismatch, status: 400, code: "PAYPAL_REQUEST_ID_PREVIOUSLY_USED", kind: "INVALID_REQUEST"}, // chosen: known of another API
			{trouble: keyInUse, status: 409, code: "PREVIOUS_REQUEST_IN_PROGRESS", kind: "RESOURCE_CONFLICT"},
			{trouble: rateLimited, status: 429, code: "RATE_LIMIT_REACHED", kind: "RATE_LIMIT_REACHED"},
		},
		kinds: []restKind{
			{create: "POST /v2/checkout/orders", status: 201, keyed: true, idAt: "/id", id: words("", 17), beside: map[string]any{"status": "CREATED"}},
			{
				create: "POST /v2/checkout/orders/{id}/capture", status: 201, keyed: true, id: words("", 17), beside: map[string]any{"status": "COMPLETED"},
				shown: func(v map[string]any, o *object) {
					v["purchase_units"] = []any{map[string]any{"payments": map[string]any{"captures": []any{map[string]any{"id": o.ID, "status": "COMPLETED"}}}}}
				},
			},
			{create: "POST /v2/payments/captures/{id}/refund", status: 201, keyed: true, idAt: "/id", id: words("", 17), beside: map[string]any{"status": "COMPLETED"}},
		},
	}
}

func adyen() rest {
	return rest{
		name: "adyen", about: "Adyen Checkout: payments with keys for seven days and nothing to look them up by (K1)",
		// What a key with another body answers is not published: chosen is the first result.
		settings: with(keyed(7*24*time.Hour), func(s *Settings) { s.SearchOff, s.Mismatch = true, MismatchReplay }),
		auth:     inHeader("X-Api-Key"), maxKey: 64, requestID: "Pspreference",
		errorBody: func(f failure) any {
			return map[string]any{"status": f.status, "errorCode": f.code, "message": f.message, "errorType": "validation"}
		},
		errors: []shape{
			{trouble: badToken, status: 401, code: "000"},
			{trouble: badContent, status: 422, code: "101"},
			{trouble: keyInUse, status: 409, code: "704"},
			{trouble: rateLimited, status: 429, code: "029"},
		},
		kinds: []restKind{{
			create: "POST /v71/payments", status: 200, keyed: true, idAt: "/pspReference", id: words("", 16),
			beside: map[string]any{"resultCode": "Authorised"},
		}},
	}
}

func calendar() rest {
	return rest{
		name: "google-calendar", about: "Google Calendar: events with an id that the client chooses, loosely guarded (K2)",
		settings: Settings{UniqueID: UniqueWeak}, auth: bearer, account: "GET /calendar/v3/calendars/primary", accountAt: "/id",
		errorBody: google,
		errors: []shape{
			{trouble: idTaken, status: 409, code: "duplicate"},
			{trouble: noObject, status: 404, code: "notFound"},
			{trouble: rateLimited, status: 403, code: "rateLimitExceeded"},
			{trouble: badContent, status: 400, code: "required"},
		},
		kinds: []restKind{{
			create: "POST /calendar/v3/calendars/{calendar}/events", status: 200, chosen: "/id", idAt: "/id", shown: createdAs("created"),
			beside: map[string]any{"kind": "calendar#event", "status": "confirmed"},
			reads:  []restRead{{request: "GET /calendar/v3/calendars/{calendar}/events/{id}", one: true, beside: map[string]any{"kind": "calendar#event", "status": "confirmed"}}},
		}},
	}
}

func compute() rest {
	const disks = "/compute/v1/projects/{project}/zones/{zone}/disks"
	return rest{
		name: "gcp-compute", about: "Google Compute Engine: disks with a name that the client chooses (K2)",
		settings: Settings{UniqueID: UniqueStrict}, auth: bearer, account: "GET /compute/v1/projects/{project}", accountAt: "/id",
		errorBody: google,
		errors: []shape{
			{trouble: idTaken, status: 409, code: "alreadyExists"},
			{trouble: noObject, status: 404, code: "notFound"},
			{trouble: rateLimited, status: 403, code: "rateLimitExceeded"},
			{trouble: badContent, status: 400, code: "required"},
		},
		kinds: []restKind{{
			create: "POST " + disks, status: 200, chosen: "/name",
			shown: func(v map[string]any, o *object) {
				v["targetLink"], v["status"] = "https://compute.example/disks/"+o.ID, "RUNNING"
				v["creationTimestamp"] = o.ShownAt.Format(time.RFC3339)
			},
			reads: []restRead{{request: "GET " + disks + "/{id}", one: true}},
		}},
	}
}

func graphCalendar() rest {
	return rest{
		name: "msgraph-calendar", about: "Microsoft Graph calendar: events by transactionId, kept for a time that is not published (K1)",
		// A repeat is told that the id was used, whatever its body.
		settings: Settings{UniqueID: UniqueStrict, IndexLag: Duration(5 * time.Second)},
		auth:     bearer, account: "GET /v1.0/me", accountAt: "/id", requestID: "Request-Id",
		errorBody: func(f failure) any {
			return map[string]any{"error": map[string]any{"code": f.code, "message": f.message}}
		},
		errors: []shape{
			{trouble: idTaken, status: 409, code: "ErrorDuplicateTransactionId"},
			{trouble: badToken, status: 401, code: "InvalidAuthenticationToken"},
			{trouble: badContent, status: 400, code: "ErrorInvalidRequest"},
			{trouble: rateLimited, status: 429, code: "TooManyRequests"},
		},
		kinds: []restKind{{
			// The real id is another one; here it is the transactionId too.
			create: "POST /v1.0/me/events", status: 201, chosen: "/transactionId", idAt: "/id", shown: createdAs("createdDateTime"),
			reads: []restRead{{request: "GET /v1.0/me/calendarView", items: "/value"}},
		}},
	}
}

func gitlab() rest {
	return rest{
		name: "gitlab", about: "GitLab issues, found by a search of their text (K4)",
		settings: labelled(5*time.Second, time.Minute), auth: inHeader("Private-Token"), requestID: "X-Request-Id",
		account: "GET /api/v4/user", accountAt: "/id", errorBody: coded("/error"),
		errors: []shape{
			{trouble: badContent, status: 400},
		},
		kinds: []restKind{{
			create: "POST /api/v4/projects/{project}/issues", status: 201, idAt: "/iid", number: true, id: numbered, shown: createdAs("created_at"),
			reads: []restRead{{request: "GET /api/v4/projects/{project}/issues", in: inSearch}},
		}},
	}
}

func jira() rest {
	return rest{
		name: "jira", about: "Jira Cloud issues, found by JQL over an index that is behind (K4)",
		settings: labelled(0, 3*time.Minute), auth: basicOrBearer, requestID: "Atl-Traceid",
		account: "GET /rest/api/3/myself", accountAt: "/accountId", errorBody: coded("/errorMessages"),
		errors: []shape{
			{trouble: badContent, status: 400},
		},
		kinds: []restKind{{
			create: "POST /rest/api/3/issue", status: 201, idAt: "/id", id: numbered,
			reads: []restRead{{request: "GET /rest/api/3/search/jql", in: inSearch, items: "/issues", beside: map[string]any{"isLast": true}}},
		}},
	}
}

func asana() rest {
	return rest{
		name: "asana", about: "Asana tasks with external data that is an address (K4)",
		settings: labelled(0, 30*time.Second), auth: bearer, requestID: "X-Asana-Request-Id",
		account: "GET /api/1.0/users/me", accountAt: "/data/gid", errorBody: listed,
		errors: []shape{
			{trouble: badContent, status: 400},
		},
		kinds: []restKind{{
			create: "POST /api/1.0/tasks", status: 201, at: "/data", under: "/data", idAt: "/gid", id: numbered, shown: createdAs("created_at"),
			reads: []restRead{{request: "GET /api/1.0/tasks/external:{label}", one: true, items: "/data"}},
		}},
	}
}

// notion has the names of errors that @notionhq/client 5.26.0 knows.
func notion() rest {
	list := map[string]any{"object": "list", "next_cursor": nil, "has_more": false}
	return rest{
		name: "notion", about: "Notion pages with a property that a query can filter by (K4)",
		settings: labelled(5*time.Second, time.Minute), auth: bearer, requestID: "X-Request-Id",
		account: "GET /v1/users/me", accountAt: "/id",
		errorBody: func(f failure) any {
			return map[string]any{"object": "error", "status": f.status, "code": f.code, "message": f.message}
		},
		errors: []shape{
			{trouble: badContent, status: 400, code: "validation_error"},
			{trouble: noPath, status: 400, code: "invalid_request_url"},
			{trouble: noObject, status: 404, code: "object_not_found"},
			{trouble: rateLimited, status: 429, code: "rate_limited"},
			{trouble: internal, status: 500, code: "internal_server_error"},
			{trouble: unavailable, status: 503, code: "service_unavailable"},
		},
		kinds: []restKind{{
			create: "POST /v1/pages", status: 200, idAt: "/id", id: uuidID, beside: map[string]any{"object": "page"},
			shown: func(v map[string]any, o *object) {
				v["created_time"] = o.ShownAt.Format(shownTime)
				properties := maps.Clone(mapAt(v, "/properties"))
				properties["opledger"] = map[string]any{"rich_text": []any{map[string]any{"plain_text": o.Label}}}
				v["properties"] = properties
			},
			reads: []restRead{
				{request: "POST /v1/databases/{database}/query", items: "/results", beside: list},
				{request: "POST /v1/data_sources/{source}/query", items: "/results", beside: list},
				{request: "GET /v1/pages/{id}", one: true, beside: map[string]any{"object": "page"}},
			},
		}},
	}
}

func pipedrive() rest {
	more := map[string]any{"success": true, "additional_data": map[string]any{"pagination": map[string]any{"more_items_in_collection": false}}}
	return rest{
		name: "pipedrive", about: "Pipedrive notes, listed by their deal (K4)",
		settings: labelled(5*time.Second, time.Minute), auth: inHeader("X-Api-Token"),
		account: "GET /api/v1/users/me", accountAt: "/data/company_id", errorBody: coded("/error"),
		errors: []shape{
			{trouble: badContent, status: 400},
		},
		kinds: []restKind{{
			create: "POST /api/v1/notes", status: 201, under: "/data", idAt: "/id", number: true, id: numbered, beside: map[string]any{"success": true},
			reads: []restRead{{request: "GET /api/v1/notes", items: "/data", beside: more}},
		}},
	}
}

func slack() rest {
	list := map[string]any{"ok": true, "has_more": false}
	return rest{
		name: "slack", about: "Slack messages with metadata; errors come with status 200 (K4)",
		settings: with(labelled(2*time.Second, time.Minute), func(s *Settings) { s.ErrorsInBody = true }),
		auth:     bearer, requestID: "X-Slack-Req-Id", account: "POST /api/auth.test", accountAt: "/team_id",
		errorBody: func(f failure) any { return map[string]any{"ok": false, "error": f.code} },
		errors: []shape{
			{trouble: badToken, status: 401, code: "invalid_auth"},
			{trouble: badContent, status: 400, code: "no_text"},
			{trouble: rateLimited, status: 429, code: "ratelimited"},
			{trouble: internal, status: 500, code: "internal_error"},
		},
		kinds: []restKind{{
			create: "POST /api/chat.postMessage", status: 200, idAt: "/ts", beside: map[string]any{"ok": true},
			id:    func(n int64) string { return strconv.FormatInt(1_700_000_000+n, 10) + ".000100" },
			shown: slackShown,
			// The vendor's client asks with POST.
			reads: []restRead{
				{request: "GET /api/conversations.history", items: "/messages", beside: list},
				{request: "POST /api/conversations.history", items: "/messages", beside: list},
				{request: "GET /api/conversations.replies", items: "/messages", beside: list},
				{request: "POST /api/conversations.replies", items: "/messages", beside: list},
			},
		}},
	}
}

// slackShown decodes what a form carries as JSON.
func slackShown(v map[string]any, _ *object) {
	for _, name := range []string{"metadata", "blocks", "attachments"} {
		text, ok := v[name].(string)
		var inner any
		if ok && json.Unmarshal([]byte(text), &inner) == nil {
			v[name] = inner
		}
	}
}

func postmark() rest {
	return rest{
		name: "postmark", about: "Postmark mail with metadata that its search can filter by (K4)",
		settings: labelled(0, time.Minute), auth: inHeader("X-Postmark-Server-Token"),
		account: "GET /server", accountAt: "/ID",
		// 300 is an invalid request; that the others have it too is chosen.
		errorBody: func(f failure) any { return map[string]any{"ErrorCode": 300, "Message": f.message} },
		kinds: []restKind{{
			create: "POST /email", status: 200, idAt: "/MessageID", id: uuidID, beside: map[string]any{"ErrorCode": 0, "Message": "OK"},
			reads: []restRead{{request: "GET /messages/outbound", in: inSearch, items: "/Messages", total: "/TotalCount"}},
		}},
	}
}

func servicenow() rest {
	return rest{
		name: "servicenow", about: "ServiceNow incidents with a correlation id that nothing guards (K4)",
		settings: labelled(5*time.Second, time.Minute), auth: basicOrBearer, requestID: "X-Transaction-Id", errorBody: coded("/error/detail"),
		errors: []shape{
			{trouble: badContent, status: 400},
		},
		kinds: []restKind{{
			create: "POST /api/now/table/incident", status: 201, under: "/result", idAt: "/sys_id", id: words("", 32),
			reads: []restRead{{request: "GET /api/now/table/incident", items: "/result"}},
		}},
	}
}

func discord() rest {
	return rest{
		name: "discord", about: "Discord messages, found among the latest of their channel (K4)",
		settings: labelled(2*time.Second, time.Minute), auth: inScheme("Bot"),
		account: "GET /api/v10/users/@me", accountAt: "/id", errorBody: coded("/code"),
		errors: []shape{
			{trouble: badContent, status: 400, code: "50006"},
		},
		kinds: []restKind{{
			create: "POST /api/v10/channels/{channel}/messages", status: 200, idAt: "/id", id: numbered, shown: createdAs("timestamp"),
			reads: []restRead{{request: "GET /api/v10/channels/{channel}/messages", before: "before"}},
		}},
	}
}

// todoist shows of a task what @doist/todoist-sdk 11.0.0 demands of one.
func todoist() rest {
	return rest{
		name: "todoist", about: "Todoist tasks; whether the server keeps X-Request-Id is not known, and here it does not (K4)",
		settings: labelled(2*time.Second, time.Minute), auth: bearer,
		account: "GET /api/v1/user", accountAt: "/id", errorBody: coded("/error_tag"),
		errors: []shape{
			{trouble: badContent, status: 400},
		},
		kinds: []restKind{{
			create: "POST /api/v1/tasks", status: 200, idAt: "/id", id: numbered,
			shown: func(v map[string]any, o *object) {
				for name, value := range map[string]any{
					"user_id": o.Account, "project_id": "inbox", "section_id": nil, "parent_id": nil, "added_by_uid": o.Account,
					"assigned_by_uid": nil, "responsible_uid": nil, "labels": []any{}, "deadline": nil, "duration": nil, "checked": false,
					"is_deleted": false, "completed_at": nil, "due": nil, "priority": 1, "child_order": 1, "description": "", "day_order": -1,
					"is_collapsed": false, "added_at": o.ShownAt.Format(shownTime), "updated_at": o.ShownAt.Format(shownTime),
				} {
					if v[name] == nil {
						v[name] = value
					}
				}
			},
			reads: []restRead{
				{request: "GET /api/v1/tasks", items: "/results", beside: map[string]any{"next_cursor": nil}},
				{request: "GET /api/v1/tasks/{id}", one: true},
			},
		}},
	}
}

func sendgrid() rest {
	return rest{
		name: "sendgrid", about: "SendGrid mail: no key and nothing to look up by (K5)",
		settings: with(labelled(0, 0), func(s *Settings) { s.SearchOff = true }), auth: bearer, requestID: "X-Message-Id",
		account: "GET /v3/user/username", accountAt: "/user_id", errorBody: listed, errors: []shape{
			{trouble: badContent, status: 400},
		},
		// The real answer has no body.
		kinds: []restKind{{create: "POST /v3/mail/send", status: 202, byLabel: true, id: words("", 22)}},
	}
}

func twilio() rest {
	return rest{
		name: "twilio", about: "Twilio text messages: no key and no label (K5)",
		settings: with(labelled(0, 0), func(s *Settings) { s.SearchOff = true }), auth: basicOrBearer, requestID: "Twilio-Request-Id",
		account: "GET /2010-04-01/Accounts/{account}", accountAt: "/sid",
		errorBody: func(f failure) any { return map[string]any{"code": f.code, "message": f.message, "status": f.status} },
		errors: []shape{
			{trouble: badContent, status: 400, code: "21211"},
			{trouble: rateLimited, status: 429, code: "20429"},
		},
		kinds: []restKind{{
			create: "POST /2010-04-01/Accounts/{account}/Messages.json", status: 201, idAt: "/sid", id: words("SM", 22), beside: map[string]any{"status": "queued"},
		}},
	}
}

func openai() rest {
	return rest{
		name: "openai", about: "OpenAI responses: a repeat is a second generation (K5)",
		settings: with(labelled(0, 0), func(s *Settings) { s.SearchOff = true }), auth: bearer, requestID: "X-Request-Id",
		errorBody: coded("/error/code"), errors: []shape{
			{trouble: badContent, status: 400},
			{trouble: rateLimited, status: 429, code: "rate_limit_exceeded"},
		},
		kinds: []restKind{{create: "POST /v1/responses", status: 200, idAt: "/id", id: words("resp_", 22), beside: map[string]any{"object": "response", "status": "completed"}}},
	}
}

func anthropic() rest {
	return rest{
		name: "anthropic", about: "Anthropic messages: a repeat is a second generation (K5)",
		settings: with(labelled(0, 0), func(s *Settings) { s.SearchOff = true }), auth: inHeader("X-Api-Key"), requestID: "Request-Id",
		errorBody: coded("/error/type"), errors: []shape{
			{trouble: badContent, status: 400},
			{trouble: rateLimited, status: 429, code: "rate_limit_error"},
		},
		kinds: []restKind{{create: "POST /v1/messages", status: 200, idAt: "/id", id: words("msg_", 22), beside: map[string]any{"type": "message", "role": "assistant"}}},
	}
}

func airtable() rest {
	return rest{
		name: "airtable", about: "Airtable records: upsert over a field that nothing guards (K3)",
		settings: Settings{UniqueID: UniqueWeak}, auth: bearer, account: "GET /v0/meta/whoami", accountAt: "/id",
		errorBody: coded("/error/type"),
		errors: []shape{
			{trouble: badContent, status: 422, code: "INVALID_RECORDS"},
			{trouble: rateLimited, status: 429, code: "RATE_LIMIT_REACHED"},
		},
		kinds: []restKind{{
			create: "PATCH /v0/{base}/{table}", status: 200, upsert: "/records/0/fields/Key", at: "/records/0", under: "/records", listed: true,
			idAt: "/id", id: words("rec", 14), shown: createdAs("createdTime"),
			// The formula is not read: the contract compares the key itself.
			reads: []restRead{{request: "GET /v0/{base}/{table}", items: "/records"}},
		}},
	}
}

func hubspot() rest {
	upsert := func(kind string) restKind {
		return restKind{
			create: "POST /crm/objects/2026-03/" + kind + "/batch/upsert", status: 200, upsert: "/inputs/0/id", at: "/inputs/0", under: "/results", listed: true,
			idAt: "/id", id: numbered, shown: createdAs("createdAt"), beside: map[string]any{"status": "COMPLETE"},
			reads: []restRead{{request: "GET /crm/objects/2026-03/" + kind + "/{key}", one: true}},
		}
	}
	return rest{
		name: "hubspot", about: "HubSpot contacts and companies by upsert (K3), notes found by search (K4)",
		settings: with(labelled(0, 10*time.Second), func(s *Settings) { s.UniqueID = UniqueWeak }), auth: bearer, requestID: "X-Hubspot-Correlation-Id",
		account: "GET /account-info/v3/details", accountAt: "/portalId", errorBody: coded("/category"),
		errors: []shape{
			{trouble: badContent, status: 400, code: "VALIDATION_ERROR"},
			{trouble: noObject, status: 404, code: "OBJECT_NOT_FOUND"},
			{trouble: rateLimited, status: 429, code: "RATE_LIMITS"},
		},
		kinds: []restKind{upsert("contacts"), upsert("companies"), {
			create: "POST /crm/objects/2026-03/notes", status: 201, idAt: "/id", id: numbered, shown: createdAs("createdAt"),
			reads: []restRead{{request: "POST /crm/objects/2026-03/notes/search", in: inSearch, items: "/results"}},
		}},
	}
}

// basicOrBearer is the credential of either scheme: a token, a password, or what
// stands behind Basic where that is no pair of user and password.
func basicOrBearer(x *exchange) string {
	return firstOf(inScheme("Bearer"), basicPassword, inScheme("Basic"))(x)
}
