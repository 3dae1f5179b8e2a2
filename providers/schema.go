package providers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// schemaURL names a schema inside its compiler; nothing is ever loaded from it.
const schemaURL = "opledger:args"

// Problem is one fault of arguments: where, and which keyword of the schema
// they break. It never holds a value.
type Problem struct {
	Pointer string `json:"pointer"`
	Keyword string `json:"keyword"`
}

// maxProblems is how many faults an error names.
const maxProblems = 16

// ArgumentsError says that arguments do not fit the schema of their action.
type ArgumentsError struct {
	Action   string
	Problems []Problem
}

// Error names the places, never the values.
func (e *ArgumentsError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "providers: arguments of %s do not fit:", e.Action)
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString(",")
		}
		pointer := p.Pointer
		if pointer == "" {
			pointer = "(root)"
		}
		fmt.Fprintf(&b, " %s (%s)", pointer, p.Keyword)
	}
	return b.String()
}

// schema compiles the argument schema. References to other documents are
// refused: a contract is one file.
func (c *compiler) schema(path string, s plain) (*jsonschema.Schema, any) {
	doc, ok := s.v.(map[string]any)
	if !ok || doc["type"] != "object" {
		c.refuse(path, "must be a JSON Schema with type: object")
		return nil, nil
	}
	comp := jsonschema.NewCompiler()
	comp.DefaultDraft(jsonschema.Draft2020)
	comp.AssertFormat()
	comp.UseLoader(jsonschema.SchemeURLLoader{})
	err := comp.AddResource(schemaURL, doc)
	if err == nil {
		var compiled *jsonschema.Schema
		if compiled, err = comp.Compile(schemaURL); err == nil {
			return compiled, doc
		}
	}
	c.refuse(path, "is no valid JSON Schema: %.300s", err)
	return nil, nil
}

// bind fills in defaults and validates. The result is what is frozen.
func (a *action) bind(args []byte) ([]byte, error) {
	v, err := decodeJSON(args)
	if err != nil {
		return nil, &ArgumentsError{Action: a.name, Problems: []Problem{{Keyword: "json"}}}
	}
	v = fillDefaults(a.schemaDoc, v, 0)
	if err := a.schema.Validate(v); err != nil {
		var invalid *jsonschema.ValidationError
		if !errors.As(err, &invalid) {
			return nil, &ArgumentsError{Action: a.name, Problems: []Problem{{Keyword: "schema"}}}
		}
		e := &ArgumentsError{Action: a.name}
		e.add(invalid)
		return nil, e
	}
	return encodeJSON(v)
}

// fillDefaults puts in the default of each member that is missing, also in
// objects and lists below. It follows properties and items, not references.
func fillDefaults(schema, v any, depth int) any {
	s, ok := schema.(map[string]any)
	if !ok || depth > maxDepth {
		return v
	}
	switch at := v.(type) {
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		for name, sub := range properties {
			child, _ := sub.(map[string]any)
			if _, present := at[name]; !present {
				if d, has := child["default"]; has {
					at[name] = deepCopy(d)
				}
			}
			if value, present := at[name]; present {
				at[name] = fillDefaults(sub, value, depth+1)
			}
		}
	case []any:
		for i := range at {
			at[i] = fillDefaults(s["items"], at[i], depth+1)
		}
	}
	return v
}

func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			out[k] = deepCopy(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = deepCopy(item)
		}
		return out
	}
	return v
}

// add collects the leaves of a validation error, by place and keyword only: the
// library's own texts repeat values.
func (e *ArgumentsError) add(v *jsonschema.ValidationError) {
	for _, cause := range v.Causes {
		e.add(cause)
	}
	if len(v.Causes) > 0 {
		return
	}
	at := pointerText(v.InstanceLocation)
	keyword := "schema"
	if path := v.ErrorKind.KeywordPath(); len(path) > 0 {
		keyword = path[0]
	}
	var names []string
	switch k := v.ErrorKind.(type) {
	case *kind.Required:
		names = k.Missing
	case *kind.AdditionalProperties:
		names = k.Properties
	}
	if len(names) == 0 {
		e.note(Problem{at, keyword})
	}
	for _, name := range names {
		e.note(Problem{at + pointerText([]string{name}), keyword})
	}
}

func (e *ArgumentsError) note(p Problem) {
	if len(e.Problems) < maxProblems && !slices.Contains(e.Problems, p) {
		e.Problems = append(e.Problems, p)
	}
}

func pointerText(parts []string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteByte('/')
		b.WriteString(clip(strings.ReplaceAll(strings.ReplaceAll(part, "~", "~0"), "/", "~1")))
	}
	return b.String()
}

// argumentFault says why an argument may be missing after binding, or nothing.
// It follows plain properties and lists, and trusts what it can't follow.
func argumentFault(schema any, r ref) string {
	certain := true
	for name := range strings.SplitSeq(r.name, ".") {
		s, ok := schema.(map[string]any)
		if !ok {
			return ""
		}
		properties, ok := s["properties"].(map[string]any)
		if !ok {
			return ""
		}
		child, ok := properties[name]
		if !ok {
			return "is not in the argument schema"
		}
		required, _ := s["required"].([]any)
		sub, _ := child.(map[string]any)
		_, hasDefault := sub["default"]
		certain = certain && (slices.Contains(required, any(name)) || hasDefault)
		schema = child
	}
	if !certain && !r.optional {
		return "is neither required nor has a default: it may be missing; write ${args.name?} where that is allowed"
	}
	return ""
}
