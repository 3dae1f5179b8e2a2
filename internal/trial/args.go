package trial

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/opledger/opledger/providers"
)

// Args makes the smallest arguments that an action's schema takes: what it
// requires, and nothing else. Where that does not fit, the error says to give
// arguments.
func Args(f *providers.File, action string) (json.RawMessage, error) {
	doc, err := outlineOf(f)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(example(doc.Actions[action].Args.Schema, 0))
	if err != nil {
		return nil, fmt.Errorf("trial: make arguments for %s: %w", action, err)
	}
	if _, err := f.Bind(action, raw); err != nil {
		return nil, fmt.Errorf("trial: no arguments for %s could be made up, give some (%w)", action, err)
	}
	return raw, nil
}

// example makes a value that fits a schema, as far as its plain words say.
func example(schema map[string]any, depth int) any {
	const deepest = 16
	for _, word := range []string{"const", "default"} {
		if v, ok := schema[word]; ok {
			return v
		}
	}
	for _, word := range []string{"enum", "examples"} {
		if list, ok := schema[word].([]any); ok && len(list) > 0 {
			return list[0]
		}
	}
	kind := schema["type"]
	if list, ok := kind.([]any); ok && len(list) > 0 {
		kind = list[0]
	}
	switch kind {
	case "string":
		return exampleText(schema)
	case "integer", "number":
		if v, ok := schema["minimum"]; ok {
			return v
		}
		return 1
	case "boolean":
		return true
	case "null":
		return nil
	case "array":
		items, _ := schema["items"].(map[string]any)
		out := []any{}
		if n, _ := schema["minItems"].(int); n > 0 && depth < deepest {
			for range n {
				out = append(out, example(items, depth+1))
			}
		}
		return out
	}
	out := map[string]any{}
	if n, _ := schema["minProperties"].(int); n > 0 {
		for i := range n {
			out[fmt.Sprintf("trial%d", i+1)] = "trial"
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		text, _ := name.(string)
		property, _ := properties[text].(map[string]any)
		if depth < deepest {
			out[text] = example(property, depth+1)
		}
	}
	return out
}

func exampleText(schema map[string]any) string {
	switch schema["format"] {
	case "email":
		return "trial@example.com"
	case "uri":
		return "https://example.com/trial"
	case "date":
		return "2026-03-02"
	case "date-time":
		return "2026-03-02T09:00:00Z"
	case "uuid":
		return "00000000-0000-4000-8000-000000000001"
	}
	if pattern, ok := schema["pattern"].(string); ok {
		if text, ok := matching(pattern); ok {
			return text
		}
	}
	text := "trial"
	if n, ok := schema["minLength"].(int); ok {
		for len(text) < n {
			text += " trial"
		}
	}
	if n, ok := schema["maxLength"].(int); ok && len(text) > n {
		text = text[:n]
	}
	return text
}

// variants returns the arguments with one text or number changed at a time, in
// the order of their names.
func variants(args json.RawMessage, text func(string) any, number func(float64) any) []json.RawMessage {
	const most = 32
	var out []json.RawMessage
	for n := range most {
		var doc any
		if json.Unmarshal(args, &doc) != nil {
			return nil
		}
		left := n
		changed, ok := alter(doc, &left, text, number)
		if !ok {
			break
		}
		if raw, err := json.Marshal(changed); err == nil && string(raw) != string(args) {
			out = append(out, raw)
		}
	}
	return out
}

// alter changes the text or number that comes after so many others.
func alter(v any, left *int, text func(string) any, number func(float64) any) (any, bool) {
	turn := func() bool { *left--; return *left < 0 }
	switch v := v.(type) {
	case string:
		if turn() {
			return text(v), true
		}
	case float64:
		if turn() {
			return number(v), true
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if changed, ok := alter(v[name], left, text, number); ok {
				v[name] = changed
				return v, true
			}
		}
	case []any:
		for i := range v {
			if changed, ok := alter(v[i], left, text, number); ok {
				v[i] = changed
				return v, true
			}
		}
	}
	return v, false
}

// matching makes a short text that a pattern matches.
func matching(pattern string) (string, bool) {
	expr, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", false
	}
	var b strings.Builder
	write(&b, expr.Simplify())
	re, err := regexp.Compile(pattern)
	return b.String(), err == nil && re.MatchString(b.String())
}

// write adds the shortest text that an expression matches.
func write(b *strings.Builder, expr *syntax.Regexp) {
	switch expr.Op { //nolint:exhaustive // the others match the empty text, or are simplified away
	case syntax.OpLiteral:
		b.WriteString(string(expr.Rune))
	case syntax.OpCharClass:
		b.WriteRune(oneOf(expr.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('a')
	case syntax.OpPlus, syntax.OpCapture, syntax.OpAlternate:
		write(b, expr.Sub[0])
	case syntax.OpConcat:
		for _, sub := range expr.Sub {
			write(b, sub)
		}
	}
}

// oneOf returns a plain character of a class, given as pairs of bounds.
func oneOf(class []rune) rune {
	for _, plain := range "1aA" {
		for i := 0; i+1 < len(class); i += 2 {
			if class[i] <= plain && plain <= class[i+1] {
				return plain
			}
		}
	}
	return class[0]
}
