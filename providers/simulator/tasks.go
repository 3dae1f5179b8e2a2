package simulator

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// shownTime is the form of times on the provider surface.
const shownTime = "2006-01-02T15:04:05.000Z07:00"

// route is one operation of the provider surface. A further preset with other
// paths adds its routes to the list.
type route struct {
	method  string
	pattern string // segments; {id} matches one segment
	keyed   bool   // honours Idempotency-Key
	run     func(st *state, x *exchange, now time.Time) answer
}

func providerRoutes() []route {
	return []route{
		{method: http.MethodPost, pattern: "/v1/tasks", keyed: true, run: createTask},
		{method: http.MethodGet, pattern: "/v1/tasks", run: listTasks},
		{method: http.MethodPut, pattern: "/v1/tasks/{id}", run: putTask},
		{method: http.MethodGet, pattern: "/v1/tasks/{id}", run: readTask},
		{method: http.MethodGet, pattern: "/v1/account", run: readAccount},
	}
}

// findRoute returns the route of a request, or one that answers 404 or 405.
func findRoute(routes []route, method string, u *url.URL) (found route, id string) {
	other := problem(http.StatusNotFound, "not_found", "there is no such path")
	for _, r := range routes {
		value, ok := matchPath(r.pattern, u.EscapedPath())
		if ok && r.method == method {
			return r, value
		}
		if ok {
			other = methodNotAllowed()
		}
	}
	return route{run: func(*state, *exchange, time.Time) answer { return other }}, ""
}

func methodNotAllowed() answer {
	return problem(http.StatusMethodNotAllowed, "method_not_allowed", "the path has no such method")
}

func matchPath(pattern, path string) (id string, ok bool) {
	before, _, hasID := strings.Cut(pattern, "{id}")
	if !hasID {
		return "", path == pattern
	}
	rest, ok := strings.CutPrefix(path, before)
	if !ok || rest == "" || strings.Contains(rest, "/") {
		return "", false
	}
	id, err := url.PathUnescape(rest)
	return id, err == nil
}

// answer is a response before it is on the wire.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// with returns the answer with one more header.
func (a answer) with(name, value string) answer {
	h := a.header.Clone()
	if h == nil {
		h = make(http.Header)
	}
	h.Set(name, value)
	a.header = h
	return a
}

// errorBody is the body of every error.
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

// jsonAnswer panics on a value that cannot be encoded, which only a mistake in
// this package can cause.
func jsonAnswer(status int, v any) answer {
	body, err := json.Marshal(v)
	if err != nil {
		panic("simulator: encode an answer: " + err.Error())
	}
	return answer{status: status, body: append(body, '\n')}
}

// parseTask reads the body of a creation. The answer is set when it is wrong.
func parseTask(body []byte) (o *object, wrong *answer) {
	fail := func(status int, code, message string) (*object, *answer) {
		a := problem(status, code, message)
		return nil, &a
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return fail(http.StatusBadRequest, "invalid_json", "the body must be a JSON object")
	}
	o = &object{}
	if raw, ok := members["title"]; ok && json.Unmarshal(raw, &o.Title) != nil {
		return fail(http.StatusUnprocessableEntity, "invalid", "title must be a string")
	}
	if raw, ok := members["label"]; ok && json.Unmarshal(raw, &o.Label) != nil {
		return fail(http.StatusUnprocessableEntity, "invalid", "label must be a string")
	}
	if o.Title == "" {
		return fail(http.StatusUnprocessableEntity, "invalid", "title is required")
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
	o, wrong := parseTask(x.body)
	if wrong != nil {
		return *wrong
	}
	if len(st.objects) >= maxObjects {
		return problem(http.StatusInsufficientStorage, "full", "the table of objects is full")
	}
	o.ID = st.freeID(x.account)
	st.commit(x, o, now)
	return jsonAnswer(http.StatusCreated, o.view())
}

func putTask(st *state, x *exchange, now time.Time) answer {
	if st.settings.ClientIDsOff {
		return methodNotAllowed()
	}
	o, wrong := parseTask(x.body)
	if wrong != nil {
		return *wrong
	}
	if len(st.objects) >= maxObjects {
		return problem(http.StatusInsufficientStorage, "full", "the table of objects is full")
	}
	o.ID = x.pathID
	for _, there := range st.byName[objectName{x.account, o.ID}] {
		free := there.Deleted && st.settings.UniqueIDReuse
		unseen := !there.settled && st.settings.UniqueID == UniqueWeak
		if !free && !unseen {
			return jsonAnswer(http.StatusConflict, errorBody{errorDetail{Code: "exists", ID: o.ID}})
		}
	}
	st.commit(x, o, now)
	return jsonAnswer(http.StatusCreated, o.view())
}

func readTask(st *state, x *exchange, now time.Time) answer {
	for _, o := range st.byName[objectName{x.account, x.pathID}] {
		if !o.Deleted && !now.Before(o.ReadableAt) {
			return jsonAnswer(http.StatusOK, o.view())
		}
	}
	return problem(http.StatusNotFound, "not_found", "there is no such task")
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
	if st.settings.SearchOff {
		return problem(http.StatusNotFound, "not_found", "there is no search")
	}
	if st.settings.SearchOutage {
		return problem(http.StatusServiceUnavailable, "search_unavailable", "the search is down")
	}
	limit := st.settings.PageSize
	if text := x.query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return problem(http.StatusBadRequest, "invalid_limit", "limit must be a positive number")
		}
		limit = min(limit, n)
	}
	var after int64
	if text := x.query.Get("cursor"); text != "" {
		digits, ok := strings.CutPrefix(text, "row_")
		n, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || n < 0 {
			return problem(http.StatusBadRequest, "invalid_cursor", "the cursor is not from this list")
		}
		after = min(n, int64(len(st.objects)))
	}
	page := taskPage{Items: []map[string]any{}}
	if st.settings.FlakyIndex > 0 && st.flaky.Float64() < st.settings.FlakyIndex {
		return jsonAnswer(http.StatusOK, page)
	}
	label, title := x.query.Get("label"), x.query.Get("title")
	var last int64
	for _, o := range st.objects[after:] {
		if o.Account != x.account || o.Deleted || now.Before(o.VisibleAt) ||
			(label != "" && o.Label != label) || (title != "" && o.Title != title) {
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
