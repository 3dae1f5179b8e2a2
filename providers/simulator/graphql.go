package simulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a GraphQL document.
const (
	maxGraphQLDepth  = 32
	maxGraphQLFields = 10_000
)

// field is one selected field of a GraphQL operation: fragments are spread,
// variables are filled in, type conditions are ignored.
type field struct {
	alias, name string
	args        map[string]any
	directives  map[string]map[string]any // arguments by the directive's name
	fields      []field
}

// resolver answers one field at the root, with the value or with a failure.
type resolver struct {
	op     operation
	keyed  bool
	chosen func(args map[string]any) string // the id that the client chose
	run    func(st *state, x *exchange, f field, now time.Time) (any, *failure)
}

// graphQL is the route of a GraphQL endpoint.
func graphQL(path string, resolvers map[string]resolver) route {
	return route{
		method: "POST", pattern: path, op: opList, graphQL: resolvers,
		run: func(st *state, x *exchange, now time.Time) answer { return runGraphQL(st, x, resolvers, now) },
	}
}

// readGraphQL parses the request's document. The route becomes what its first
// root field does.
func (x *exchange) readGraphQL() {
	resolvers := x.route.graphQL
	x.fields, x.graphQLWrong = parseGraphQL(textAt(x.args, "/query"), textAt(x.args, "/operationName"), mapAt(x.args, "/variables"))
	if len(x.fields) == 0 {
		return
	}
	r := resolvers[x.fields[0].name]
	x.route.op, x.route.keyed = r.op, r.keyed
	if r.chosen != nil {
		x.route.chosen = func(x *exchange) string { return r.chosen(x.fields[0].args) }
	}
}

func runGraphQL(st *state, x *exchange, resolvers map[string]resolver, now time.Time) answer {
	if x.graphQLWrong != nil {
		return x.fail(badQuery, x.graphQLWrong.Error())
	}
	data := map[string]any{}
	for _, f := range x.fields {
		r, ok := resolvers[f.name]
		if f.name == "__typename" {
			continue
		}
		if !ok {
			return x.failed(failure{shape: shape{trouble: badQuery}, field: f.name, message: fmt.Sprintf("Cannot query field %q.", f.name)})
		}
		v, wrong := r.run(st, x, f, now)
		if wrong != nil {
			wrong.field = f.alias
			return x.failed(*wrong)
		}
		data[f.alias] = selected(v, f.fields)
	}
	return jsonAnswer(200, map[string]any{"data": data})
}

// selected is a value with the fields that were asked for; a field that the
// simulator does not know is null.
func selected(v any, fields []field) any {
	switch t := v.(type) {
	case map[string]any:
		if len(fields) == 0 {
			return t
		}
		out := make(map[string]any, len(fields))
		for _, f := range fields {
			out[f.alias] = selected(t[f.name], f.fields)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, inner := range t {
			out[i] = selected(inner, fields)
		}
		return out
	}
	return v
}

// parseGraphQL reads a document and returns the root fields of its operation.
func parseGraphQL(query, operation string, variables map[string]any) (fields []field, err error) {
	p := &graphQLParser{text: query, variables: variables, fragments: map[string]int{}}
	defer func() {
		if r := recover(); r != nil {
			wrong, ok := r.(graphQLError)
			if !ok {
				panic(r)
			}
			fields, err = nil, errors.New(wrong.text)
		}
	}()
	start := -1
	for p.next(); p.token != ""; {
		switch p.token {
		case "fragment":
			p.next()
			p.fragments[p.token] = 0
			name := p.token
			p.until("{")
			p.fragments[name] = p.at - 1
			p.skip()
		case "query", "mutation", "{":
			name := ""
			if p.token != "{" {
				if p.next(); p.token != "{" && p.token != "(" {
					name = p.token
				}
				p.variablesOf()
			}
			if start < 0 || name == operation && operation != "" {
				start = p.at - 1
			}
			p.skip()
		default:
			p.fail("expected a query or a mutation, found %q", p.token)
		}
	}
	if start < 0 {
		p.fail("there is no operation in the query")
	}
	p.at = start
	p.next()
	return p.selection(0), nil
}

// graphQLError unwinds the parser; it does not leave this file.
type graphQLError struct{ text string }

type graphQLParser struct {
	text      string
	at        int
	token     string
	quoted    bool // the token is a text
	variables map[string]any
	fragments map[string]int // where the braces of a fragment begin
	count     int
}

func (p *graphQLParser) fail(format string, args ...any) {
	panic(graphQLError{"Syntax Error: " + fmt.Sprintf(format, args...)})
}

// next reads a token: a name, a number, a text, or a mark. The end is empty.
func (p *graphQLParser) next() {
	p.quoted = false
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '#':
			for p.at < len(p.text) && p.text[p.at] != '\n' {
				p.at++
			}
		case strings.ContainsRune(" \t\r\n,\ufeff", rune(c)):
			p.at++
		case c == '"':
			p.readText()
			return
		case strings.HasPrefix(p.text[p.at:], "..."):
			p.token, p.at = "...", p.at+3
			return
		case isNameByte(c) || c == '-':
			start := p.at
			for p.at++; p.at < len(p.text) && (isNameByte(p.text[p.at]) || strings.IndexByte(".+-", p.text[p.at]) >= 0 && isNumber(p.text[start:p.at])); {
				p.at++
			}
			p.token = p.text[start:p.at]
			return
		default:
			_, size := utf8.DecodeRuneInString(p.text[p.at:])
			p.token, p.at = p.text[p.at:p.at+size], p.at+size
			return
		}
	}
	p.token = ""
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isNumber(text string) bool { return strings.IndexByte("-0123456789", text[0]) >= 0 }

func (p *graphQLParser) readText() {
	p.quoted = true
	if rest, ok := strings.CutPrefix(p.text[p.at:], `"""`); ok {
		body, _, ok := strings.Cut(rest, `"""`)
		if !ok {
			p.fail("a text has no end")
		}
		p.token, p.at = strings.TrimSpace(body), p.at+len(body)+6
		return
	}
	end := p.at + 1
	for end < len(p.text) && p.text[end] != '"' && p.text[end] != '\n' {
		if p.text[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(p.text) || json.Unmarshal([]byte(p.text[p.at:end+1]), &p.token) != nil {
		p.fail("a text has no end")
	}
	p.at = end + 1
}

// until goes on to a mark.
func (p *graphQLParser) until(mark string) {
	for p.next(); p.token != mark || p.quoted; p.next() {
		if p.token == "" && !p.quoted {
			p.fail("expected %q", mark)
		}
	}
}

// variablesOf goes to the braces of an operation and fills in the defaults of
// its variables.
func (p *graphQLParser) variablesOf() {
	for ; p.token != "{"; p.next() {
		if p.token == "" && !p.quoted {
			p.fail("expected %q", "{")
		}
		if p.token != "$" {
			continue
		}
		p.next()
		name := p.token
		for p.next(); p.token == ":" || p.token == "[" || p.token == "]" || p.token == "!" || !p.quoted && p.token != "" && isNameByte(p.token[0]); {
			p.next()
		}
		if p.token == "=" {
			p.next()
			v := p.value(0)
			if _, given := p.variables[name]; !given {
				p.variables[name] = v
			}
		}
		if p.token == "{" {
			return
		}
	}
}

// skip goes behind the braces that have just begun.
func (p *graphQLParser) skip() {
	for depth := 1; depth > 0; {
		p.next()
		switch {
		case p.quoted:
		case p.token == "{":
			depth++
		case p.token == "}":
			depth--
		case p.token == "":
			p.fail("expected %q", "}")
		}
	}
	p.next()
}

// selection reads the fields between braces; the token is the first brace, and
// afterwards the one behind the last.
func (p *graphQLParser) selection(depth int) []field {
	if depth > maxGraphQLDepth {
		p.fail("the query nests deeper than %d", maxGraphQLDepth)
	}
	var fields []field
	for p.next(); p.token != "}"; {
		if p.count++; p.count > maxGraphQLFields {
			p.fail("the query has more than %d fields", maxGraphQLFields)
		}
		switch {
		case p.token == "...":
			fields = append(fields, p.spread(depth)...)
		case p.token != "" && isNameByte(p.token[0]):
			fields = append(fields, p.field(depth))
		default:
			p.fail("expected a name, found %q", p.token)
		}
	}
	p.next()
	return fields
}

func (p *graphQLParser) spread(depth int) []field {
	p.next()
	if p.token == "on" {
		p.next()
		p.next()
	}
	if p.token == "{" {
		return p.selection(depth + 1)
	}
	begin, ok := p.fragments[p.token]
	if !ok {
		p.fail("there is no fragment %q", p.token)
	}
	back := p.at
	p.at = begin
	p.next()
	fields := p.selection(depth + 1)
	p.at = back
	p.next()
	return fields
}

func (p *graphQLParser) field(depth int) field {
	f := field{alias: p.token, name: p.token}
	if p.next(); p.token == ":" {
		p.next()
		f.name = p.token
		p.next()
	}
	if p.token == "(" {
		f.args = p.arguments(depth, ")")
	}
	for p.token == "@" {
		p.next()
		name := p.token
		args := map[string]any{}
		if p.next(); p.token == "(" {
			args = p.arguments(depth, ")")
		}
		if f.directives == nil {
			f.directives = map[string]map[string]any{}
		}
		f.directives[name] = args
	}
	if p.token == "{" {
		f.fields = p.selection(depth + 1)
	}
	return f
}

// arguments reads name: value up to the closing mark.
func (p *graphQLParser) arguments(depth int, end string) map[string]any {
	if depth > maxGraphQLDepth {
		p.fail("the query nests deeper than %d", maxGraphQLDepth)
	}
	args := map[string]any{}
	for p.next(); p.token != end; {
		name := p.token
		if p.next(); p.token != ":" {
			p.fail("expected %q, found %q", ":", p.token)
		}
		p.next()
		args[name] = p.value(depth)
	}
	p.next()
	return args
}

func (p *graphQLParser) value(depth int) any {
	token, quoted := p.token, p.quoted
	switch {
	case quoted:
		p.next()
		return token
	case token == "$":
		p.next()
		name := p.token
		p.next()
		return p.variables[name]
	case token == "{":
		return p.arguments(depth+1, "}")
	case token == "[":
		list := []any{}
		if depth > maxGraphQLDepth {
			p.fail("the query nests deeper than %d", maxGraphQLDepth)
		}
		for p.next(); p.token != "]" || p.quoted; {
			if p.token == "" && !p.quoted {
				p.fail("expected %q", "]")
			}
			list = append(list, p.value(depth+1))
		}
		p.next()
		return list
	}
	p.next()
	switch token {
	case "true", "false":
		return token == "true"
	case "null":
		return nil
	case "":
		p.fail("expected a value")
	}
	if _, err := strconv.ParseFloat(token, 64); err == nil {
		return json.Number(token)
	}
	return token // a name of a closed list
}
