package simulator

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rest describes a plain REST provider in data: objects that are made by one
// request, kept as they were sent, and shown again in lists and reads. It plays
// the wire shape and the rules of keys, ids and lags; it does not check what a
// real provider would check of an object.
type rest struct {
	name, about string
	settings    Settings
	auth        func(*exchange) string
	key         func(*exchange) string
	maxKey      int
	requestID   string
	// account is the request that names the account, such as "GET /v1/me", and
	// accountAt the place of its id in the answer. Empty if there is none.
	account, accountAt string
	kinds              []restKind
	errors             []shape
	errorBody          func(failure) any
}

// restKind is one kind of object.
type restKind struct {
	// create is the request that makes one, such as "POST /v1/notes".
	create string
	status int
	keyed  bool
	// chosen is where the client's own id is in the body; empty if it has none.
	chosen string
	// upsert is where the external key is in the body: an object that has it
	// already is written over.
	upsert string
	// byLabel gives an object the id that its label is, if it is free: for a
	// provider whose answer names no object.
	byLabel bool
	// at is where the object is in the body of the request, under where it is in
	// the answer. Empty means the whole.
	at, under string
	// listed: the answer has a list with the object in it.
	listed bool
	// id makes an id, idAt is where the object shows it. A number is shown as one.
	id     func(n int64) string
	idAt   string
	number bool
	// shown adds what the provider adds to an object. It may be nil.
	shown func(v map[string]any, o *object)
	// beside is what an answer of the creation has beside the object.
	beside map[string]any
	reads  []restRead
}

// restRead is one way to see objects again.
type restRead struct {
	request string
	// one: the object with the id, key or label in the path, read directly.
	one bool
	in  index
	// items is where the list is in the answer, or the object of a read by id.
	items string
	// before is the parameter with the id that a page of older objects goes on
	// from; the newest stand first then. Empty means one page with all.
	before string
	// total is where the answer has the number of all that match; empty if nowhere.
	total string
	// beside is what the answer has beside the list.
	beside map[string]any
}

// dialect is the provider as the server plays it.
func (r rest) dialect() dialect {
	d := dialect{
		name: r.name, about: r.about, settings: r.settings, auth: r.auth, key: r.key, maxKey: r.maxKey,
		requestID: r.requestID, errors: r.errors, errorBody: r.errorBody,
		newID: func(st *state, _ *exchange, _ string) string { return numbered(st.next()) },
	}
	if r.account != "" {
		method, pattern, _ := strings.Cut(r.account, " ")
		d.routes = append(d.routes, route{method: method, pattern: pattern, op: opAccount, run: func(_ *state, x *exchange, _ time.Time) answer {
			return jsonAnswer(http.StatusOK, put(map[string]any{"ok": true}, r.accountAt, x.account))
		}})
	}
	d.routes = append(d.routes, routesOf(r.kinds)...)
	return d
}

// routesOf are the routes of kinds, for a provider that has others beside.
func routesOf(kinds []restKind) []route {
	var out []route
	for _, k := range kinds {
		method, pattern, _ := strings.Cut(k.create, " ")
		made := route{method: method, pattern: pattern, op: opCreate, keyed: k.keyed, run: k.make}
		if k.upsert != "" {
			made.op = opUpsert
		}
		if id := k.chosen + k.upsert; id != "" {
			made.chosen = inBody(id)
		}
		out = append(out, made)
		for _, read := range k.reads {
			out = append(out, k.route(read))
		}
	}
	return out
}

func (k restKind) make(st *state, x *exchange, now time.Time) answer {
	o := x.make(k.create, textAt(x.args, k.at+"/title"), x.args)
	if k.id != nil {
		o.ID = k.id(st.next())
	}
	if k.chosen != "" {
		if o.ID = textAt(x.args, k.chosen); o.ID == "" {
			return x.missing(k.chosen)
		}
	}
	if k.upsert != "" {
		hits := st.holders(x, k.create, k.upsert, textAt(x.args, k.upsert))
		if len(hits) > 1 {
			return x.fail(badContent, "several objects have the key")
		}
		if len(hits) == 1 {
			hits[0].overwrite(x, "", now)
			return k.answer(hits[0])
		}
	}
	if k.byLabel && x.label != "" && st.inTheWay(x, k.create, x.label) == nil {
		o.ID = x.label
	}
	return st.create(x, o, now, k.answer)
}

func (k restKind) answer(o *object) answer {
	v := k.view(o)
	if k.listed {
		v = []any{v}
	}
	return jsonAnswer(k.status, put(maps.Clone(k.beside), k.under, v))
}

// view is what the client sent, with what the provider adds.
func (k restKind) view(o *object) any {
	v := maps.Clone(mapAt(o.args, k.at))
	if k.shown != nil {
		k.shown(v, o)
	}
	var id any = o.ID
	if k.number {
		id = json.Number(o.ID)
	}
	if k.idAt == "" {
		return v
	}
	return put(v, k.idAt, id)
}

func (k restKind) route(r restRead) route {
	method, pattern, _ := strings.Cut(r.request, " ")
	if r.one {
		return route{method: method, pattern: pattern, op: opRead, run: func(st *state, x *exchange, now time.Time) answer {
			if o := k.one(st, x, now); o != nil {
				return jsonAnswer(http.StatusOK, put(maps.Clone(r.beside), r.items, k.view(o)))
			}
			return x.fail(noObject, "there is no such object")
		}}
	}
	op := opList
	if r.in == inSearch {
		op = opSearch
	}
	return route{method: method, pattern: pattern, op: op, run: func(st *state, x *exchange, now time.Time) answer {
		found, wrong := st.visible(x, k.create, r.in, now, func(o *object) bool {
			return x.label == "" || x.label == o.Label
		})
		if wrong != nil {
			return *wrong
		}
		beside := maps.Clone(r.beside)
		if r.total != "" {
			beside, _ = put(beside, r.total, len(found)).(map[string]any)
		}
		if r.before != "" {
			slices.Reverse(found)
			page, _, ok := pageAfter(found, x.query.Get(r.before), x.settings.PageSize)
			if !ok {
				return x.fail(badCursor, "there is no such object in the list")
			}
			found = page
		}
		return jsonAnswer(http.StatusOK, put(beside, r.items, views(found, k.view)))
	}}
}

// one is the object with the id, the external key or the label that the path
// names.
func (k restKind) one(st *state, x *exchange, now time.Time) *object {
	if key := x.vars["key"]; key != "" {
		for _, o := range st.holders(x, k.create, k.upsert, key) {
			if !now.Before(o.ReadableAt) {
				return o
			}
		}
		return nil
	}
	if id := x.vars["id"]; id != "" {
		return st.read(x, k.create, id, now)
	}
	for _, o := range st.objects {
		if o.Account == x.account && o.Collection == k.create && o.Label == x.vars["label"] && !o.Deleted && !now.Before(o.ReadableAt) {
			return o
		}
	}
	return nil
}

// put sets a value at a JSON Pointer, making the objects on the way, and returns
// the whole. The empty pointer stands for the whole.
func put(v map[string]any, pointer string, value any) any {
	if pointer == "" {
		inner, ok := value.(map[string]any)
		if !ok {
			return value
		}
		out := maps.Clone(inner)
		maps.Copy(out, v)
		return out
	}
	if v == nil {
		v = map[string]any{}
	}
	at := v
	parts := strings.Split(pointer[1:], "/")
	for _, part := range parts[:len(parts)-1] {
		inner, ok := at[part].(map[string]any)
		if !ok {
			inner = map[string]any{}
		}
		inner = maps.Clone(inner)
		at[part] = inner
		at = inner
	}
	at[parts[len(parts)-1]] = value
	return v
}

// Forms of ids.

func numbered(n int64) string { return strconv.FormatInt(n, 10) }

func words(prefix string, length int) func(int64) string {
	return func(n int64) string { return wordID(prefix, n, length) }
}
