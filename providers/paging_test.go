package providers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/providertest"
)

// listFile is sim-crm with another kind of paging and other parts of its lookup.
func listFile(t testing.TB, paging string, more ...string) *providers.File {
	t.Helper()
	text := string(edit(t, "sim-crm", "paging: {next: /next_cursor, param: cursor, max: 5}", "paging: "+paging))
	for i := 0; i+1 < len(more); i += 2 {
		if !strings.Contains(text, more[i]) {
			t.Fatalf("the contract does not contain %q", more[i])
		}
		text = strings.Replace(text, more[i], more[i+1], 1)
	}
	return parse(t, unmarked(t, text))
}

// unmarked gives the markers of a template their defaults.
func unmarked(t testing.TB, text string) string {
	t.Helper()
	for {
		before, after, found := strings.Cut(text, "@{")
		if !found {
			return text
		}
		inside, rest, closed := strings.Cut(after, "}")
		_, value, ok := strings.Cut(inside, "=")
		if !closed || !ok {
			t.Fatalf("marker @{%s", inside)
		}
		text = before + value + rest
	}
}

// list answers the account probe, and the list of tasks as write says.
func list(t testing.TB, write http.HandlerFunc) *providertest.Peer {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/account", providertest.Answer(200, `{"id":"`+testAccount+`"}`))
	mux.HandleFunc("/v1/tasks", write)
	return providertest.NewPeer(t, mux)
}

// lists returns the queries of the requests for the list.
func lists(peer *providertest.Peer) []providertest.Received {
	return slices.DeleteFunc(peer.Seen(), func(r providertest.Received) bool { return r.Path != "/v1/tasks" })
}

func ours(id string) string { return task(id, testLabel, "a", "2026-01-01T00:00:00Z") }

func TestALinkIsFollowedToTheEndAndOnlyAtItsOrigin(t *testing.T) {
	t.Parallel()
	file := listFile(t, "{link: true, max: 3}")
	const page2 = `?label=` + testLabel + `&page=2`
	tests := map[string]struct {
		link     []string // of the first page; @ is the peer
		requests int
		complete bool
		failed   string
	}{
		"no link":                     {nil, 1, true, ""},
		"another relation":            {[]string{`<@/v1/tasks` + page2 + `>; rel="prev"`}, 1, true, ""},
		"next":                        {[]string{`<@/v1/tasks` + page2 + `>; rel="next"`}, 2, true, ""},
		"relative":                    {[]string{`</v1/tasks` + page2 + `>; rel=next`}, 2, true, ""},
		"query only":                  {[]string{`<` + page2 + `>; rel=next`}, 2, true, ""},
		"among others":                {[]string{`<@/x>; rel="first"; title="a, b; c", <@/v1/tasks` + page2 + `>; title="x"; rel="last NEXT"`}, 2, true, ""},
		"in a second header":          {[]string{`<@/x>; rel=first`, `<@/v1/tasks` + page2 + `>; rel=next; type`}, 2, true, ""},
		"twice the same":              {[]string{`<@/v1/tasks` + page2 + `>; rel=next, <@/v1/tasks` + page2 + `>; rel=next`}, 2, true, ""},
		"two different":               {[]string{`<@/v1/tasks` + page2 + `>; rel=next, <@/v1/tasks>; rel=next`}, 1, false, "two next pages"},
		"another host":                {[]string{`<http://evil.example/v1/tasks>; rel=next`}, 1, false, "leaves the provider"},
		"another host, no scheme":     {[]string{`<//evil.example/v1/tasks>; rel=next`}, 1, false, "leaves the provider"},
		"another port":                {[]string{`<http://127.0.0.1:1/v1/tasks>; rel=next`}, 1, false, "leaves the provider"},
		"another scheme":              {[]string{`<https:@/v1/tasks>; rel=next`}, 1, false, "leaves the provider"},
		"a file":                      {[]string{`<file:///etc/passwd>; rel=next`}, 1, false, "leaves the provider"},
		"credentials":                 {[]string{`<http://u:p@/v1/tasks>; rel=next`}, 1, false, "leaves the provider"},
		"host that only begins so":    {[]string{`<@.evil.example/v1/tasks>; rel=next`}, 1, false, "leaves the provider"},
		"opaque":                      {[]string{`<http:v1/tasks>; rel=next`}, 1, false, "leaves the provider"},
		"no brackets":                 {[]string{`@/v1/tasks; rel=next`}, 1, false, "can't be read"},
		"no end":                      {[]string{`<@/v1/tasks; rel=next`}, 1, false, "can't be read"},
		"open quotes":                 {[]string{`<@/v1/tasks>; rel="next`}, 1, false, "can't be read"},
		"garbage after the link":      {[]string{`<@/v1/tasks> next`}, 1, false, "can't be read"},
		"the page itself":             {[]string{`<>; rel=next`}, 2, false, "same cursor twice"},
		"too long":                    {[]string{`</` + strings.Repeat("x", 5000) + `>; rel=next`}, 1, false, "leaves the provider"},
		"a fragment makes no new one": {[]string{`<#a>; rel=next`}, 2, false, "same cursor twice"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var peer *providertest.Peer
			peer = list(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("page") == "2" {
					providertest.Answer(200, `{"items":[`+ours("T2")+`]}`)(w, r)
					return
				}
				for _, l := range tt.link {
					if strings.HasPrefix(l, "<https:@") {
						l = strings.Replace(l, "<https:@", "<https://"+strings.TrimPrefix(peer.URL, "http://"), 1)
					}
					if strings.HasPrefix(l, "<http://u:p@") {
						l = strings.Replace(l, "@", "@"+strings.TrimPrefix(peer.URL, "http://"), 1)
					}
					w.Header().Add("Link", strings.ReplaceAll(l, "<@", "<"+peer.URL))
				}
				providertest.Answer(200, `{"items":[`+ours("T1")+`]}`)(w, r)
			})
			got := newHTTP(t, file, peer.URL).Lookup(t.Context(), testCall(file, `{"title":"a"}`))
			if got.PagesComplete != tt.complete || got.Failed != (tt.failed != "") || !strings.Contains(got.Reason, tt.failed) {
				t.Errorf("complete %t, failed %t (%s)", got.PagesComplete, got.Failed, got.Reason)
			}
			if n := len(lists(peer)); n != tt.requests {
				t.Errorf("requests: got %d, want %d", n, tt.requests)
			}
			if want := []string{"T1", "T2"}[:len(got.Matches)]; !slices.Equal(got.Matches, want) || len(want) == 0 {
				t.Errorf("matches: got %v", got.Matches)
			}
		})
	}
}

// A list that was not read to its end must not look like one that was.
func TestAListIsCompleteOnlyWhenItsEndWasSeen(t *testing.T) {
	t.Parallel()
	const label = `query: {label: "${op.label}"}}`
	sized := []string{label, `query: {label: "${op.label}", per_page: "2"}}`}
	zero := []string{label, `query: {label: "${op.label}", page: "0", per_page: "2"}}`}
	inBody := []string{`request: {method: GET, path: /v1/tasks, ` + label, `request: {method: POST, path: /v1/tasks, encoding: json, body: {filter: {label: "${op.label}"}}}`}
	const lastID = "{last_id: /items/*/id, more: /has_more, param: starting_after, max: 3}"
	page := func(more string, ids ...string) string {
		var all []string
		for _, id := range ids {
			all = append(all, ours(id))
		}
		return `{"items":[` + strings.Join(all, ",") + `]` + more + `}`
	}
	tests := map[string]struct {
		paging   string
		more     []string
		pages    []string // by what was asked for
		asked    []string // for page or cursor
		complete bool
		failed   string
	}{
		"last id":               {lastID, nil, []string{page(`,"has_more":true`, "A", "B"), page(`,"has_more":false`, "C")}, []string{"", "B"}, true, ""},
		"last id, no flag":      {lastID, nil, []string{page(``, "A")}, []string{""}, false, "does not say whether there are more"},
		"last id, flag as text": {lastID, nil, []string{page(`,"has_more":"false"`, "A")}, []string{""}, false, "does not say whether there are more"},
		"last id, none":         {lastID, nil, []string{page(`,"has_more":true`)}, []string{""}, false, "the cursor can't be read"},
		"last id, again":        {lastID, nil, []string{page(`,"has_more":true`, "A"), page(`,"has_more":true`, "A")}, []string{"", "A"}, false, "same cursor twice"},
		"last id, too many":     {lastID, nil, []string{page(`,"has_more":true`, "A"), page(`,"has_more":true`, "B"), page(`,"has_more":true`, "C")}, []string{"", "A", "B"}, false, ""},
		"page":                  {"{page: page, size: 2, max: 3}", sized, []string{page(``, "A", "B"), page(``, "C")}, []string{"", "2"}, true, ""},
		"page from zero":        {"{page: page, size: 2, max: 3}", zero, []string{page(``, "A", "B"), page(``)}, []string{"0", "1"}, true, ""},
		"page, all full":        {"{page: page, size: 2, max: 2}", sized, []string{page(``, "A", "B"), page(``, "C", "D")}, []string{"", "2"}, false, ""},
		"page, longer":          {"{page: page, size: 2, max: 3}", sized, []string{page(``, "A", "B", "C")}, []string{""}, false, "more objects than the contract says"},
		"body":                  {"{next: /next, param: /after, in: body, max: 3}", inBody, []string{page(`,"next":"n1"`, "A"), page(`,"next":null`, "B")}, []string{"", `"n1"`}, true, ""},
		"body, number":          {"{next: /next, param: /filter/after, in: body, max: 3}", inBody, []string{page(`,"next":17`, "A"), page(``, "B")}, []string{"", "17"}, true, ""},
		"body, with flag":       {"{next: /next, more: /more, param: /after, in: body, max: 3}", inBody, []string{page(`,"next":"n1","more":true`, "A"), page(`,"next":"n2","more":false`, "B")}, []string{"", `"n1"`}, true, ""},
		"body, same again":      {"{next: /next, param: /after, in: body, max: 3}", inBody, []string{page(`,"next":"n1"`, "A"), page(`,"next":"n1"`, "B")}, []string{"", `"n1"`}, false, "same cursor twice"},
		"cursor is an object":   {"{next: /next, param: after, max: 3}", nil, []string{page(`,"next":{"a":1}`, "A")}, []string{""}, false, "the cursor can't be read"},
		"cursor is too long":    {"{next: /next, param: after, max: 3}", nil, []string{page(`,"next":"`+strings.Repeat("x", 4097)+`"`, "A")}, []string{""}, false, "the cursor can't be read"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := listFile(t, tt.paging, tt.more...)
			var asks atomic.Int32
			peer := list(t, func(w http.ResponseWriter, r *http.Request) {
				body := `{"items":[]}`
				if n := int(asks.Add(1)); n <= len(tt.pages) {
					body = tt.pages[n-1]
				}
				providertest.Answer(200, body)(w, r)
			})
			got := newHTTP(t, file, peer.URL).Lookup(t.Context(), testCall(file, `{"title":"a"}`))
			if got.PagesComplete != tt.complete || got.Failed != (tt.failed != "") || !strings.Contains(got.Reason, tt.failed) {
				t.Errorf("complete %t, failed %t (%s)", got.PagesComplete, got.Failed, got.Reason)
			}
			var asked []string
			for _, r := range lists(peer) {
				asked = append(asked, askedFor(t, r))
			}
			if !slices.Equal(asked, tt.asked) {
				t.Errorf("asked for: got %q, want %q", asked, tt.asked)
			}
		})
	}
}

// askedFor returns the cursor or the number of a page that was asked for.
func askedFor(t testing.TB, r providertest.Received) string {
	t.Helper()
	if r.Method == http.MethodGet {
		for pair := range strings.SplitSeq(r.Query, "&") {
			if name, v, _ := strings.Cut(pair, "="); slices.Contains([]string{"page", "starting_after", "after"}, name) {
				return v
			}
		}
		return ""
	}
	var body struct {
		After  json.RawMessage
		Filter struct{ After json.RawMessage }
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		t.Fatal(err)
	}
	return string(body.After) + string(body.Filter.After)
}

// A cursor in the body goes out as it came in, and changes nothing else.
func TestACursorInTheBodyOfAQueryIsAVariable(t *testing.T) {
	t.Parallel()
	f := parse(t, graphFile)
	var asks atomic.Int32
	peer := providertest.NewPeer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asks.Add(1)
		providertest.Answer(200, `{"data":{"things":{"nodes":[],"pageInfo":{"hasNextPage":`+strconv.FormatBool(n == 1)+`,"endCursor":"\"}"}}}}`)(w, r)
	}))
	got := unprobed(t, f, peer.URL).Lookup(t.Context(), testCall(f, `{"title":"a"}`))
	if got.Failed || !got.PagesComplete || asks.Load() != 2 {
		t.Errorf("got %+v after %d requests", got, asks.Load())
	}
	var sent struct {
		Query     string
		Variables map[string]string
	}
	if err := json.Unmarshal(peer.Seen()[1].Body, &sent); err != nil {
		t.Fatal(err)
	}
	if sent.Variables["after"] != `"}` || len(sent.Variables) != 2 || !strings.HasPrefix(sent.Query, "query($id: ID!") {
		t.Errorf("got %s", peer.Seen()[1].Body)
	}
}

// Nothing found says something only while search works.
func TestALookThatFindsNothingAsksTheSentinel(t *testing.T) {
	t.Parallel()
	file := parse(t, unmarked(t, string(edit(t, "sim-crm", "        external_id: /id\n", "        external_id: /id\n"+
		"        sentinel: {request: {method: GET, path: /v1/tasks, query: {label: always}}, items: /items, at_least: 2}\n"))))
	two := `{"items":[` + task("S1", "always", "x", "") + `,` + task("S2", "always", "x", "") + `]}`
	tests := map[string]struct {
		found    string
		status   int
		sentinel string
		requests int
		failed   string
	}{
		"search works":         {"", 200, two, 2, ""},
		"found":                {ours("T1"), 200, `{"items":[]}`, 1, ""},
		"looks alike only":     {task("T1", "other", "a", ""), 200, `{"items":[]}`, 2, "search is out"},
		"search is out":        {"", 200, `{"items":[]}`, 2, "search is out"},
		"search finds too few": {"", 200, `{"items":[{"id":"S1"}]}`, 2, "search is out"},
		"no list":              {"", 200, `{}`, 2, "no list of objects"},
		"error":                {"", 503, `{}`, 2, "status 503"},
		"not found":            {"", 404, `[1, 2]`, 2, "status 404"},
		"no JSON":              {"", 200, `<html>`, 2, "not JSON"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer := list(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("label") == "always" {
					providertest.Answer(tt.status, tt.sentinel)(w, r)
					return
				}
				providertest.Answer(200, fmt.Sprintf(`{"items":[%s]}`, tt.found))(w, r)
			})
			got := newHTTP(t, file, peer.URL).Lookup(t.Context(), testCall(file, `{"title":"a"}`))
			if got.Failed != (tt.failed != "") || got.PagesComplete == got.Failed || !strings.Contains(got.Reason, tt.failed) {
				t.Errorf("complete %t, failed %t (%s)", got.PagesComplete, got.Failed, got.Reason)
			}
			if n := len(lists(peer)); n != tt.requests {
				t.Errorf("requests: got %d, want %d", n, tt.requests)
			}
		})
	}
}
