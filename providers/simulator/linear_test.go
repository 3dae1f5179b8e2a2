package simulator_test

import (
	"encoding/json"
	"testing"

	"github.com/opledger/opledger/providers/simulator"
)

const (
	issueID = "0b9a3c1e-1111-4222-8333-444455556666"
	// createIssue is what the vendor's client sends.
	createIssue = `mutation createIssue($input: IssueCreateInput!) {
		issueCreate(input: $input) { ...IssuePayload }
	}
	fragment IssuePayload on IssuePayload { __typename lastSyncId issue { id } success }`
)

func graph(query string, variables map[string]any) call {
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		panic(err)
	}
	return call{path: "/graphql", body: string(body), auth: simulator.DefaultToken, contentType: "application/json"}
}

func TestLinearAnswersWithTheShapesOfLinear(t *testing.T) {
	t.Parallel()
	b, _ := preset(t, "linear")
	input := map[string]any{"input": map[string]any{"id": issueID, "teamId": "t1", "title": "call Ann"}}
	r := b.do(graph(createIssue, input))
	b.want(r, 200, "data.issueCreate.success", true, "data.issueCreate.issue.id", issueID, "data.issueCreate.issue.title", nil)
	if row := b.lastRequest(); row.IdempotencyKey != issueID || row.Operation != "create" || row.ObjectID != issueID {
		t.Fatalf("log %+v", row)
	}

	again := b.do(graph(createIssue, input))
	b.want(again, 200, "data", nil, "errors.message", "conflict on insert of Issue", "errors.extensions.code", "INPUT_ERROR",
		"errors.extensions.statusCode", 400.0, "errors.extensions.userPresentableMessage", "Entity with id "+issueID+" already exists")
	b.wantObjects(1)

	b.want(b.do(graph(`{ it: issue(id: "`+issueID+`") { id title team { id } } }`, nil)), 200,
		"data.it.id", issueID, "data.it.title", "call Ann", "data.it.team.id", "t1", "data.it.number", nil)
	b.want(b.do(graph(`query($id: String!) { issue(id: $id) { id } }`, map[string]any{"id": "none"})), 200, "errors.extensions.code", "ENTITY_NOT_FOUND")
	b.want(b.do(graph(`query { viewer { id } organization { id urlKey } }`, nil)), 200, "data.organization.id", "acct_1", "data.viewer.id", "user-of-acct_1")
	b.want(b.do(graph(`mutation { issueCreate(input: {teamId: "t1"}) { success } }`, nil)), 200, "errors.extensions.code", "INVALID_INPUT")
	b.want(b.do(graph(`query { unknown }`, nil)), 400, "errors.extensions.type", "graphql error")
	b.want(b.do(graph(`query {`, nil)), 400, "errors.extensions.type", "graphql error")
	b.want(b.do(graph(`{ issues(first: 1, filter: {title: {eq: "call Ann"}}) { nodes { id } pageInfo { hasNextPage } } }`, nil)), 200,
		"data.issues.nodes.id", issueID, "data.issues.pageInfo.hasNextPage", false)

	b.want(b.do(graph(`{ searchIssues(term: "ann") { nodes { id } archivePayload { totalCount } } }`, nil)), 200,
		"data.searchIssues.nodes.id", issueID, "data.searchIssues.archivePayload.totalCount", 0.0)
	b.want(b.do(graph(`mutation { commentCreate(input: {id: "c1", issueId: "`+issueID+`", body: "hi"}) { comment { id reactions { id } } } }`, nil)), 200,
		"data.commentCreate.comment.id", "c1")
	b.want(b.do(graph(`{ comments(filter: {id: {eq: "c1"}}) { nodes { body } } }`, nil)), 200, "data.comments.nodes.body", "hi")

	wrong := graph(createIssue, input)
	wrong.auth = "lin_api_unknown"
	b.want(b.do(wrong), 401, "errors.extensions.code", "AUTHENTICATION_ERROR")
	b.rule(simulator.Rule{Do: simulator.RateLimit})
	b.want(b.do(graph(createIssue, input)), 400, "errors.extensions.code", "RATELIMITED")
	b.wantObjects(2) // the issue and its comment
}

// A document that cannot be read is an answer, never a crash.
func FuzzGraphQLDocuments(f *testing.F) {
	for _, seed := range []string{
		createIssue, `{ a: b(c: [1, "x", {d: $e}]) @f(g: 1.5e3) { ...h ... on I { j } } } fragment h on I { k }`,
		`query q($a: Int = 1, $b: [X!]! = {c: "}"}) { a }`, "{ a(b: \"\"\"\n}\"\"\") }", `{...a} fragment a on B {...a}`, `#`, `"`, `{ a(b:`,
	} {
		f.Add(seed)
	}
	srv, err := simulator.New(simulator.Config{Settings: simulator.Settings{Dialect: "linear"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, document string) {
		c := graph(document, map[string]any{})
		r := record(srv, c)
		if r.Code != 200 && r.Code != 400 {
			t.Fatalf("status %d for %q", r.Code, document)
		}
	})
}
