package simulator

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// shownTime is the form of times on the provider surface.
const shownTime = "2006-01-02T15:04:05.000Z07:00"

// plain is the dialect of the project's own small CRM.
func plain(name, about string, settings Settings) dialect {
	return dialect{
		name: name, about: about, settings: settings,
		auth:      bearer,
		plain:     true,
		label:     []string{"/label"},
		requestID: "X-Request-Id",
		newID:     func(st *state, x *exchange, collection string) string { return st.freeID(x.account, collection) },
		errorBody: func(f failure) any {
			return errorBody{errorDetail{Code: f.code, Message: f.message, ID: f.id}}
		},
		routes: []route{
			{method: http.MethodPost, pattern: "/v1/tasks", op: opCreate, keyed: true, run: createTask},
			{method: http.MethodGet, pattern: "/v1/tasks", op: opList, run: listTasks},
			{method: http.MethodPut, pattern: "/v1/tasks/{id}", op: opCreate, chosen: inPath("id"), run: putTask},
			{method: http.MethodGet, pattern: "/v1/tasks/{id}", op: opRead, run: readTask},
			{method: http.MethodGet, pattern: "/v1/account", op: opAccount, run: readAccount},
		},
	}
}

// errorBody is the body of every error of the plain dialect and of the admin
// API.
type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
	ID      string `json:"id,omitempty"`
}

func problem(status int, code, message string) answer {
	return jsonAnswer(status, errorBody{errorDetail{Code: code, Message: message}})
}

// parseTask reads the body of a creation. The answer is set when it is wrong.
func parseTask(x *exchange) (o *object, wrong *answer) {
	fail := func(t trouble, message string) (*object, *answer) {
		a := x.fail(t, message)
		return nil, &a
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(x.body, &members); err != nil || members == nil {
		return fail(badBody, "the body must be a JSON object")
	}
	o = &object{}
	if raw, ok := members["title"]; ok && json.Unmarshal(raw, &o.Title) != nil {
		return fail(badContent, "title must be a string")
	}
	if raw, ok := members["label"]; ok && json.Unmarshal(raw, &o.Label) != nil {
		return fail(badContent, "label must be a string")
	}
	if o.Title == "" {
		return fail(badContent, "title is required")
	}
	for _, own := range []string{"id", "title", "label", "created_at", "account"} {
		delete(members, own)
	}
	for name, raw := range members {
		members[name] = bytes.Clone(raw)
	}
	o.Fields = members
	return o, nil
}

// view is an object as the provider shows it.
func (o *object) view() map[string]any {
	v := make(map[string]any, len(o.Fields)+5)
	for name, raw := range o.Fields {
		v[name] = raw
	}
	v["id"] = o.ID
	v["title"] = o.Title
	v["label"] = o.Label
	v["account"] = o.Account
	v["created_at"] = o.ShownAt.Format(shownTime)
	return v
}

func createTask(st *state, x *exchange, now time.Time) answer {
	o, wrong := parseTask(x)
	if wrong != nil {
		return *wrong
	}
	return st.create(x, o, now, created)
}

func created(o *object) answer { return jsonAnswer(http.StatusCreated, o.view()) }

func putTask(st *state, x *exchange, now time.Time) answer {
	if x.settings.ClientIDsOff {
		return x.fail(noMethod, "the path has no such method")
	}
	o, wrong := parseTask(x)
	if wrong != nil {
		return *wrong
	}
	o.ID = x.vars["id"]
	return st.create(x, o, now, created)
}

func readTask(st *state, x *exchange, now time.Time) answer {
	if o := st.read(x, "", x.vars["id"], now); o != nil {
		return jsonAnswer(http.StatusOK, o.view())
	}
	return x.fail(noObject, "there is no such task")
}

func readAccount(_ *state, x *exchange, _ time.Time) answer {
	return jsonAnswer(http.StatusOK, map[string]string{"id": x.account})
}

// taskPage is the body of a list.
type taskPage struct {
	Items      []map[string]any `json:"items"`
	NextCursor string           `json:"next_cursor"`
}

func listTasks(st *state, x *exchange, now time.Time) answer {
	limit, wrong := x.limit("limit", x.settings.PageSize)
	if wrong != nil {
		return *wrong
	}
	label, title := x.query.Get("label"), x.query.Get("title")
	found, wrong := st.visible(x, "", inList, now, func(o *object) bool {
		return (label == "" || o.Label == label) && (title == "" || o.Title == title)
	})
	if wrong != nil {
		return *wrong
	}
	var after int64
	if text := x.query.Get("cursor"); text != "" {
		digits, ok := strings.CutPrefix(text, "row_")
		n, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || n < 0 {
			return x.fail(badCursor, "the cursor is not from this list")
		}
		after = n
	}
	page := taskPage{Items: []map[string]any{}}
	var last int64
	for _, o := range found {
		if o.Row <= after {
			continue
		}
		if len(page.Items) == limit {
			page.NextCursor = "row_" + strconv.FormatInt(last, 10)
			break
		}
		page.Items = append(page.Items, o.view())
		last = o.Row
	}
	return jsonAnswer(http.StatusOK, page)
}
