package simulator

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	githubPage   = 30
	githubIssues = "/repos/{owner}/{repo}/issues"
	githubDocs   = "https://docs.github.com/rest"
)

// githubIssuesAPI speaks as GitHub's REST API, for issues.
//
// Sources (Tracer-Cloud/opensre PR 5269,
// max-sixty/tend PR 345, @octokit/plugin-retry 8.1.1): no key of any kind, the
// list with since, creator and sort, the lag of list and search, the rate limit
// as 403 or 429 with Retry-After or x-ratelimit-remaining: 0, GET /user, the
// header X-GitHub-Request-Id. Chosen: the figures of the lags inside the
// reported ranges, the kinds of words that the search knows.
func githubIssuesAPI() dialect {
	return dialect{
		name: "github-issues", about: "GitHub REST issues: no key, a list and a search that lag (K4)",
		settings:  Settings{IndexLag: Duration(10 * time.Second), SearchLag: Duration(10 * time.Minute), PageSize: 100, ClientIDsOff: true},
		auth:      firstOf(inScheme("Bearer"), inScheme("token")),
		requestID: "X-GitHub-Request-Id",
		headers:   map[string]string{"Content-Type": "application/json; charset=utf-8", "X-GitHub-Api-Version-Selected": "2022-11-28"},
		newID: func(st *state, x *exchange, collection string) string {
			return strconv.Itoa(st.count(x.account, collection) + 1)
		},
		errors: []shape{
			{trouble: badToken, status: 401, code: "Bad credentials"},
			{trouble: noPath, status: 404, code: "Not Found"},
			{trouble: noMethod, status: 404, code: "Not Found"},
			{trouble: noObject, status: 404, code: "Not Found"},
			{trouble: noSearch, status: 404, code: "Not Found"},
			{trouble: badBody, status: 400, code: "Problems parsing JSON"},
			{trouble: badContent, status: 422, code: "Validation Failed"},
			{trouble: rateLimited, status: 403, code: "API rate limit exceeded"},
			{trouble: unavailable, status: 503, code: "Service Unavailable"},
			{trouble: searchDown, status: 503, code: "Service Unavailable"},
			{trouble: internal, status: 500, code: "Server Error"},
		},
		errorBody: func(f failure) any {
			e := map[string]any{"message": f.code, "documentation_url": githubDocs, "status": strconv.Itoa(f.status)}
			if f.field != "" {
				e["errors"] = []any{map[string]any{"resource": "Issue", "code": "missing_field", "field": f.field}}
			}
			return e
		},
		dressError: func(f failure, a answer) answer {
			if f.trouble != rateLimited || f.wait > 0 {
				return a
			}
			return a.with("X-RateLimit-Limit", "5000").with("X-RateLimit-Remaining", "0").with("X-RateLimit-Resource", "core")
		},
		routes: []route{
			{method: http.MethodPost, pattern: githubIssues, op: opCreate, run: githubCreate},
			{method: http.MethodGet, pattern: githubIssues, op: opList, run: githubList},
			{method: http.MethodGet, pattern: githubIssues + "/{number}", op: opRead, run: githubRead},
			{method: http.MethodGet, pattern: "/search/issues", op: opSearch, run: githubSearch},
			{method: http.MethodGet, pattern: "/user", op: opAccount, run: func(_ *state, x *exchange, _ time.Time) answer {
				return jsonAnswer(http.StatusOK, githubUser(x.account))
			}},
		},
	}
}

func githubUser(account string) map[string]any {
	return map[string]any{"login": account, "id": accountNumber(account), "type": "User", "site_admin": false}
}

func (x *exchange) githubRepo() string {
	return "/repos/" + x.vars["owner"] + "/" + x.vars["repo"] + "/issues"
}

func githubCreate(st *state, x *exchange, now time.Time) answer {
	title := textAt(x.args, "/title")
	if title == "" {
		return x.missing("title")
	}
	host := x.host
	return st.create(x, x.make(x.githubRepo(), title, x.args), now, func(o *object) answer {
		v := githubIssue(o, host)
		return jsonAnswer(http.StatusCreated, v).with("Location", fmt.Sprint(v["url"]))
	})
}

func githubIssue(o *object, host string) map[string]any {
	number, _ := strconv.Atoi(o.ID)
	repo := strings.TrimSuffix(o.Collection, "/issues")
	labels := []any{}
	named, _ := o.args["labels"].([]any)
	for _, name := range named {
		labels = append(labels, map[string]any{"name": name})
	}
	updated := o.ShownAt
	if !o.EditedAt.IsZero() {
		updated = o.ShownAt.Add(o.EditedAt.Sub(o.CreatedAt))
	}
	return map[string]any{
		"id": 1_000_000 + o.Row, "node_id": fmt.Sprintf("I_sim%d", o.Row), "number": number, "title": o.args["title"],
		"body": o.args["body"], "state": "open", "locked": false, "comments": 0, "labels": labels,
		"assignees": or(o.args["assignees"], []any{}), "user": githubUser(o.Account), "author_association": "OWNER",
		"created_at": second(o.ShownAt), "updated_at": second(updated), "closed_at": nil,
		"url":            "http://" + host + repo + "/issues/" + o.ID,
		"repository_url": "http://" + host + repo,
		"html_url":       "http://" + host + strings.TrimPrefix(repo, "/repos") + "/issues/" + o.ID,
	}
}

func githubRead(st *state, x *exchange, now time.Time) answer {
	if o := st.read(x, x.githubRepo(), x.vars["number"], now); o != nil {
		return jsonAnswer(http.StatusOK, githubIssue(o, x.host))
	}
	return x.fail(noObject, "")
}

func githubList(st *state, x *exchange, now time.Time) answer {
	since := time.Time{}
	if text := x.query.Get("since"); text != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			return x.fail(badContent, "since is not a time")
		}
	}
	creator, state := x.query.Get("creator"), x.query.Get("state")
	found, wrong := st.visible(x, x.githubRepo(), inList, now, func(o *object) bool {
		return !o.ShownAt.Before(since) && (creator == "" || creator == o.Account) && state != "closed"
	})
	if wrong != nil {
		return *wrong
	}
	if x.query.Get("direction") != "asc" {
		slices.Reverse(found)
	}
	return x.githubPaged(found, func(page []any, _ int) any { return page })
}

// githubPaged is a numbered page with its Link header.
func (x *exchange) githubPaged(found []*object, body func(page []any, total int) any) answer {
	size, wrong := x.limit("per_page", githubPage)
	if wrong != nil {
		return *wrong
	}
	number, _ := strconv.Atoi(x.query.Get("page"))
	number = max(number, 1)
	page, more := pageNumber(found, number, size)
	a := jsonAnswer(http.StatusOK, body(views(page, func(o *object) any { return githubIssue(o, x.host) }), len(found)))
	link := func(n int, rel string) string {
		q := x.query
		q.Set("page", strconv.Itoa(n))
		return fmt.Sprintf(`<http://%s%s?%s>; rel=%q`, x.host, x.path, q.Encode(), rel)
	}
	var links []string
	if number > 1 {
		links = append(links, link(number-1, "prev"))
	}
	if more {
		links = append(links, link(number+1, "next"), link((len(found)+size-1)/size, "last"))
	}
	if len(links) > 0 {
		a = a.with("Link", strings.Join(links, ", "))
	}
	return a
}

// githubSearch knows words and quoted texts, and repo:, author: and in: beside
// them; other qualifiers match everything.
func githubSearch(st *state, x *exchange, now time.Time) answer {
	repo, author := anyCollection, ""
	var words []string
	for _, part := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(x.query.Get("q"), -1) {
		name, value, qualified := strings.Cut(part, ":")
		switch {
		case strings.HasPrefix(part, `"`):
			words = append(words, strings.ToLower(strings.Trim(part, `"`)))
		case !qualified:
			words = append(words, strings.ToLower(part))
		case name == "repo":
			repo = "/repos/" + value + "/issues"
		case name == "author":
			author = value
		}
	}
	if len(words) == 0 && repo == anyCollection {
		return x.fail(badContent, "q is required")
	}
	found, wrong := st.visible(x, repo, inSearch, now, func(o *object) bool {
		text := strings.ToLower(o.Title + "\n" + textAt(o.args, "/body"))
		return (author == "" || author == o.Account) &&
			!slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
	})
	if wrong != nil {
		return *wrong
	}
	slices.Reverse(found)
	return x.githubPaged(found, func(page []any, total int) any {
		return map[string]any{"total_count": total, "incomplete_results": false, "items": page}
	})
}
