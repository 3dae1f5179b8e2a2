package simulator

import (
	"net/http"
	"slices"
	"time"
)

const resendEmails = "/emails"

// resend speaks as Resend.
//
// Sources (Resend docs "Idempotency keys",
// resend-openapi, resend npm 6.38.0 error names): the key of 1 to 256
// characters, its 24 hours, 409 invalid_idempotent_request for another body and
// 409 concurrent_idempotent_requests for a key in use, GET /emails/{id}, the
// names of the errors. Chosen: that errors are not stored, the header with the
// request id (unknown), and GET /domains as the account probe.
func resend() dialect {
	return dialect{
		name: "resend", about: "Resend: e-mails with keys, one status for two meanings of a key (K1)",
		settings: Settings{
			Keys: true, Mismatch: Mismatch409, Concurrent: Concurrent409, ClientIDsOff: true, PageSize: 100,
		},
		auth:      inScheme("Bearer"),
		label:     []string{"/tags/0/value"},
		maxKey:    256,
		newID:     func(st *state, _ *exchange, _ string) string { return uuidID(st.next()) },
		requestID: "X-Request-Id",
		replayed:  func(string) map[string]string { return nil },
		errors: []shape{
			{trouble: badToken, status: 401, code: "invalid_api_key"},
			{trouble: noPath, status: 404, code: "not_found"},
			{trouble: noSearch, status: 404, code: "not_found"},
			{trouble: badBody, status: 400, code: "validation_error"},
			{trouble: badContent, status: 422, code: "missing_required_field"},
			{trouble: longKey, status: 400, code: "invalid_idempotency_key"},
			{trouble: keyMismatch, status: 409, code: "invalid_idempotent_request"},
			{trouble: keyInUse, status: 409, code: "concurrent_idempotent_requests"},
			{trouble: rateLimited, status: 429, code: "rate_limit_exceeded"},
			{trouble: unavailable, status: 503, code: "application_error"},
			{trouble: internal, status: 500, code: "application_error"},
		},
		errorBody: func(f failure) any {
			return map[string]any{"statusCode": f.status, "name": f.code, "message": f.message}
		},
		routes: []route{
			{method: http.MethodPost, pattern: resendEmails, op: opCreate, keyed: true, run: resendSend},
			{method: http.MethodGet, pattern: resendEmails, op: opList, run: resendList},
			{method: http.MethodGet, pattern: resendEmails + "/{id}", op: opRead, run: resendRead},
			{method: http.MethodGet, pattern: "/domains", op: opAccount, run: func(_ *state, x *exchange, _ time.Time) answer {
				return jsonAnswer(http.StatusOK, map[string]any{"object": "list", "has_more": false, "data": []any{
					map[string]any{"id": x.account, "name": x.account + ".example", "status": "verified"},
				}})
			}},
		},
	}
}

func resendSend(st *state, x *exchange, now time.Time) answer {
	for _, name := range []string{"from", "to", "subject"} {
		if x.args[name] == nil {
			return x.failed(failure{shape: shape{trouble: badContent}, message: "Missing `" + name + "` field."})
		}
	}
	return st.create(x, x.make(resendEmails, textAt(x.args, "/subject"), x.args), now, func(o *object) answer {
		return jsonAnswer(http.StatusOK, map[string]any{"id": o.ID})
	})
}

func resendEmail(o *object) any {
	to := o.args["to"]
	if _, many := to.([]any); !many {
		to = []any{to}
	}
	return map[string]any{
		"object": "email", "id": o.ID, "from": o.args["from"], "to": to, "subject": o.args["subject"],
		"html": o.args["html"], "text": o.args["text"], "bcc": or(o.args["bcc"], []any{}), "cc": or(o.args["cc"], []any{}),
		"reply_to": or(o.args["reply_to"], []any{}), "tags": or(o.args["tags"], []any{}),
		"created_at": o.ShownAt.Format(shownTime), "last_event": "delivered",
	}
}

func resendRead(st *state, x *exchange, now time.Time) answer {
	if o := st.read(x, resendEmails, x.vars["id"], now); o != nil {
		return jsonAnswer(http.StatusOK, resendEmail(o))
	}
	return x.fail(noObject, "Email not found")
}

func resendList(st *state, x *exchange, now time.Time) answer {
	found, wrong := st.visible(x, resendEmails, inList, now, every)
	if wrong != nil {
		return *wrong
	}
	limit, wrong := x.limit("limit", x.settings.PageSize)
	if wrong != nil {
		return *wrong
	}
	slices.Reverse(found)
	page, more, ok := pageAfter(found, x.query.Get("after"), limit)
	if !ok {
		return x.fail(badCursor, "after is not the id of an e-mail")
	}
	return jsonAnswer(http.StatusOK, map[string]any{"object": "list", "has_more": more, "data": views(page, resendEmail)})
}
