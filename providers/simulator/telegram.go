package simulator

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

const telegramMessages = "messages"

// telegram speaks as Telegram's Bot API: it sends, and nothing can be read back.
//
// Sources (python-telegram-bot issue 1045,
// hermes-agent PR 5153): no key, no lookup, getMe, 429 with
// parameters.retry_after. Chosen: the texts of the descriptions, and the chat's
// type.
func telegram() dialect {
	methods := func(name string, op operation, run func(*state, *exchange, time.Time) answer) []route {
		r := route{method: http.MethodPost, pattern: "/bot{token}/" + name, op: op, run: run}
		get := r
		get.method = http.MethodGet
		return []route{r, get}
	}
	return dialect{
		name: "telegram", about: "Telegram bots: sendMessage and nothing that reads it back (K5)",
		settings: Settings{SearchOff: true, ClientIDsOff: true},
		auth:     inPath("token"),
		newID:    func(st *state, x *exchange, collection string) string { return st.freeID(x.account, collection) },
		errors: []shape{
			{trouble: badToken, status: 401, code: "Unauthorized"},
			{trouble: noPath, status: 404, code: "Not Found"},
			{trouble: noMethod, status: 404, code: "Not Found"},
			{trouble: badBody, status: 400, code: "Bad Request: can't parse the body"},
			{trouble: badContent, status: 400, code: "Bad Request"},
			{trouble: rateLimited, status: 429, code: "Too Many Requests"},
			{trouble: unavailable, status: 502, code: "Bad Gateway"},
			{trouble: internal, status: 500, code: "Internal Server Error"},
		},
		errorBody: func(f failure) any {
			e := map[string]any{"ok": false, "error_code": f.status, "description": f.code}
			if f.field != "" {
				e["description"] = f.code + ": " + f.field + " is empty"
			}
			if wait := int(math.Ceil(f.wait.Seconds())); f.trouble == rateLimited && wait > 0 {
				e["description"] = "Too Many Requests: retry after " + strconv.Itoa(wait)
				e["parameters"] = map[string]any{"retry_after": wait}
			}
			return e
		},
		routes: append(methods("sendMessage", opCreate, telegramSend), methods("getMe", opAccount, telegramMe)...),
	}
}

func telegramBot(account string) map[string]any {
	return map[string]any{"id": accountNumber(account), "is_bot": true, "first_name": account, "username": account + "_bot"}
}

func telegramMe(_ *state, x *exchange, _ time.Time) answer {
	return jsonAnswer(http.StatusOK, map[string]any{"ok": true, "result": telegramBot(x.account)})
}

func telegramSend(st *state, x *exchange, now time.Time) answer {
	args := x.args
	for name := range x.query {
		args[name] = x.query.Get(name)
	}
	for _, name := range []string{"chat_id", "text"} {
		if textAt(args, "/"+name) == "" {
			return x.missing(name)
		}
	}
	return st.create(x, x.make(telegramMessages, textAt(args, "/text"), args), now, func(o *object) answer {
		number, _ := strconv.ParseInt(o.ID, 10, 64)
		var chat any = textAt(o.args, "/chat_id")
		if n, ok := numberAt(o.args, "/chat_id"); ok {
			chat = n
		}
		return jsonAnswer(http.StatusOK, map[string]any{"ok": true, "result": map[string]any{
			"message_id": number, "from": telegramBot(o.Account), "chat": map[string]any{"id": chat, "type": "private"},
			"date": o.ShownAt.Unix(), "text": o.args["text"],
		}})
	})
}
