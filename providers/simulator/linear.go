package simulator

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	linearIssues    = "issues"
	linearCommented = "comments"
	linearPage      = 50
)

// linear speaks as Linear's GraphQL API, for issues.
//
// Sources (@linear/sdk 98.0.0 for the id of
// IssueCreateInput; two public projects that verified the conflict live): the
// chosen id, the conflict with HTTP 200, data null, message "conflict on insert
// of Issue", code INPUT_ERROR, statusCode 400 and the id in
// userPresentableMessage, the rate limit as HTTP 400 RATELIMITED, the direct
// read, the account probe. The texts of extensions.type are those that the SDK
// reads. Chosen: HTTP 401 for a bad credential, 200 for wrong input, the code
// ENTITY_NOT_FOUND.
func linear() dialect {
	return dialect{
		name: "linear", about: "Linear GraphQL: issues with an id that the client chooses (K2)",
		settings:  Settings{UniqueID: UniqueStrict},
		auth:      firstOf(bearer, inHeader("Authorization")),
		requestID: "X-Request-Id",
		newID: func(st *state, _ *exchange, _ string) string {
			return uuidID(st.next())
		},
		errors: []shape{
			{trouble: badToken, status: 401, code: "AUTHENTICATION_ERROR", kind: "authentication error"},
			{trouble: badBody, status: 400, code: "GRAPHQL_PARSE_FAILED", kind: "graphql error"},
			{trouble: badQuery, status: 400, code: "GRAPHQL_VALIDATION_FAILED", kind: "graphql error"},
			{trouble: badContent, status: 400, code: "INVALID_INPUT", kind: "invalid input", wire: 200},
			{trouble: idTaken, status: 400, code: "INPUT_ERROR", kind: "invalid input", wire: 200},
			{trouble: noObject, status: 400, code: "ENTITY_NOT_FOUND", kind: "invalid input", wire: 200},
			{trouble: rateLimited, status: 400, code: "RATELIMITED", kind: "ratelimited"},
			{trouble: internal, status: 500, code: "INTERNAL_SERVER_ERROR", kind: "internal error"},
		},
		errorBody:  linearError,
		dressError: linearLimit,
		routes: []route{graphQL("/graphql", map[string]resolver{
			"issueCreate":   {op: opCreate, chosen: func(args map[string]any) string { return textAt(args, "/input/id") }, run: linearCreate},
			"commentCreate": {op: opCreate, chosen: func(args map[string]any) string { return textAt(args, "/input/id") }, run: linearComment},
			"comments":      {op: opList, run: linearComments},
			"issue":         {op: opRead, run: linearRead},
			"issues":        {op: opList, run: linearList},
			"searchIssues":  {op: opSearch, run: linearSearch},
			"viewer": {op: opAccount, run: func(_ *state, x *exchange, _ field, _ time.Time) (any, *failure) {
				return linearUser(x.account), nil
			}},
			"organization": {op: opAccount, run: func(_ *state, x *exchange, _ field, _ time.Time) (any, *failure) {
				return map[string]any{"__typename": "Organization", "id": x.account, "name": x.account, "urlKey": x.account, "projectStatuses": []any{}}, nil
			}},
		})},
	}
}

func linearUser(account string) map[string]any {
	return map[string]any{
		"__typename": "User", "id": "user-of-" + account, "name": account, "displayName": account,
		"email": account + "@example.com", "active": true, "admin": false,
		"organization": map[string]any{"id": account, "name": account, "urlKey": account},
	}
}

func linearError(f failure) any {
	message, shown := f.message, f.message
	if f.trouble == idTaken {
		message = "conflict on insert of Issue"
		shown = fmt.Sprintf("Entity with id %s already exists", f.id)
	}
	e := map[string]any{"message": message, "extensions": map[string]any{
		"type": f.kind, "code": f.code, "statusCode": f.status, "userError": f.status < 500, "userPresentableMessage": shown,
	}}
	if f.field != "" {
		e["path"] = []string{f.field}
	}
	return map[string]any{"data": nil, "errors": []any{e}}
}

// linearLimit says how many requests are left.
func linearLimit(f failure, a answer) answer {
	if f.trouble == rateLimited {
		return a.with("X-RateLimit-Requests-Remaining", "0")
	}
	return a
}

func linearCreate(st *state, x *exchange, f field, now time.Time) (any, *failure) {
	input := mapAt(f.args, "/input")
	for _, name := range []string{"teamId", "title"} {
		if textAt(input, "/"+name) == "" {
			return nil, &failure{shape: shape{trouble: badContent}, message: "Argument Validation Error: " + name + " should not be empty"}
		}
	}
	o := x.make(linearIssues, textAt(input, "/title"), input)
	if id := textAt(input, "/id"); id != "" {
		if !isUUID(id) {
			return nil, &failure{shape: shape{trouble: badContent}, message: "Argument Validation Error: id must be a UUID"}
		}
		o.ID = id
	}
	made, wrong := st.put(x, o, now)
	if wrong != nil {
		return nil, wrong
	}
	return map[string]any{
		"__typename": "IssuePayload", "success": true, "lastSyncId": made.Row, "issue": linearIssue(made),
	}, nil
}

func isUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, c := range []byte(text) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)) {
			return false
		}
	}
	return true
}

func linearIssue(o *object) map[string]any {
	at := o.ShownAt.Format(shownTime)
	identifier := fmt.Sprintf("SIM-%d", o.Row)
	return map[string]any{
		"__typename": "Issue", "id": o.ID, "identifier": identifier, "number": o.Row, "title": o.args["title"],
		"description": o.args["description"], "priority": or(o.args["priority"], 0), "priorityLabel": "No priority",
		"team": map[string]any{"id": o.args["teamId"]}, "state": map[string]any{"id": or(o.args["stateId"], "state-backlog")},
		"url": "https://linear.example/issue/" + identifier, "branchName": strings.ToLower(identifier),
		"createdAt": at, "updatedAt": at, "labelIds": or(o.args["labelIds"], []any{}), "previousIdentifiers": []any{},
		"reactions": []any{}, "reactionData": []any{}, "sharedAccess": map[string]any{"isShared": false, "sharedWithCount": 0, "sharedWithUsers": []any{}},
	}
}

func linearRead(st *state, x *exchange, f field, now time.Time) (any, *failure) {
	if o := st.read(x, linearIssues, textAt(f.args, "/id"), now); o != nil {
		return linearIssue(o), nil
	}
	return nil, &failure{shape: shape{trouble: noObject}, message: "Entity not found: Issue - Could not find referenced Issue."}
}

func linearList(st *state, x *exchange, f field, now time.Time) (any, *failure) {
	page, wrong := linearConnection(st, x, f, inList, now, func(o *object) bool {
		title := textAt(f.args, "/filter/title/eq")
		contains := textAt(f.args, "/filter/description/contains")
		return (title == "" || o.Title == title) && strings.Contains(textAt(o.args, "/description"), contains)
	})
	if wrong != nil {
		return nil, wrong
	}
	return page, nil
}

func linearSearch(st *state, x *exchange, f field, now time.Time) (any, *failure) {
	term := strings.ToLower(textAt(f.args, "/term"))
	page, wrong := linearConnection(st, x, f, inSearch, now, func(o *object) bool {
		return strings.Contains(strings.ToLower(o.Title+"\n"+textAt(o.args, "/description")), term)
	})
	if wrong != nil {
		return nil, wrong
	}
	// @linear/sdk 98.0.0 reads it of every search.
	page["archivePayload"] = map[string]any{"archive": "", "databaseVersion": 1, "includesDependencies": []any{}, "totalCount": 0}
	return page, nil
}

// linearConnection is a page of a connection, newest first.
func linearConnection(st *state, x *exchange, f field, in index, now time.Time, match func(*object) bool) (map[string]any, *failure) {
	found, wrong := st.look(x, linearIssues, in, now, match)
	if wrong != nil {
		return nil, wrong
	}
	slices.Reverse(found)
	limit := linearPage
	if n, ok := numberAt(f.args, "/first"); ok && n > 0 {
		limit = int(min(n, int64(x.settings.PageSize)))
	}
	page, more, ok := pageAfter(found, textAt(f.args, "/after"), limit)
	if !ok {
		return nil, &failure{shape: shape{trouble: badContent}, message: "the cursor is not from this list"}
	}
	info := map[string]any{"hasNextPage": more, "hasPreviousPage": false, "startCursor": nil, "endCursor": nil}
	if len(page) > 0 {
		info["startCursor"], info["endCursor"] = page[0].ID, page[len(page)-1].ID
	}
	nodes := views(page, func(o *object) any { return linearIssue(o) })
	return map[string]any{"nodes": nodes, "pageInfo": info, "totalCount": len(found)}, nil
}

// linearComment makes a comment of an issue.
func linearComment(st *state, x *exchange, f field, now time.Time) (any, *failure) {
	input := mapAt(f.args, "/input")
	o := x.make(linearCommented, "", input)
	o.ID = textAt(input, "/id")
	made, wrong := st.put(x, o, now)
	if wrong != nil {
		return nil, wrong
	}
	return map[string]any{"__typename": "CommentPayload", "success": true, "comment": linearCommentOf(made)}, nil
}

func linearCommentOf(o *object) any {
	return map[string]any{"__typename": "Comment", "id": o.ID, "body": o.args["body"], "createdAt": o.ShownAt.Format(shownTime), "reactions": []any{}}
}

func linearComments(st *state, x *exchange, f field, now time.Time) (any, *failure) {
	id := textAt(f.args, "/filter/id/eq")
	found, wrong := st.look(x, linearCommented, inList, now, func(o *object) bool { return id == "" || o.ID == id })
	if wrong != nil {
		return nil, wrong
	}
	return map[string]any{"nodes": views(found, linearCommentOf), "pageInfo": map[string]any{"hasNextPage": false}}, nil
}
