package providers

import (
	"fmt"
	"strconv"
	"strings"
)

// pointer is a JSON Pointer (RFC 6901) in which "*" stands for any element of a
// list. The empty pointer is the whole document.
type pointer []string

// parsePointer reads "" or "/a/b/*".
func parsePointer(text string) (pointer, error) {
	if text == "" {
		return pointer{}, nil
	}
	if text[0] != '/' {
		return nil, fmt.Errorf("JSON pointer %q must be empty or begin with /", clip(text))
	}
	p := pointer(strings.Split(text[1:], "/"))
	if len(p) > maxDepth {
		return nil, fmt.Errorf("JSON pointer has %d parts, the limit is %d", len(p), maxDepth)
	}
	for i, part := range p {
		p[i] = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
	}
	return p, nil
}

// find returns every value that the pointer names. JSON null counts as no
// value: providers use it for "nothing here".
func (p pointer) find(doc any) []any {
	if len(p) == 0 {
		if doc == nil {
			return nil
		}
		return []any{doc}
	}
	switch v := doc.(type) {
	case map[string]any:
		if next, ok := v[p[0]]; ok {
			return p[1:].find(next)
		}
	case []any:
		if p[0] == "*" {
			var out []any
			for _, item := range v {
				out = append(out, p[1:].find(item)...)
			}
			return out
		}
		if i, err := strconv.Atoi(p[0]); err == nil && i >= 0 && i < len(v) {
			return p[1:].find(v[i])
		}
	}
	return nil
}

// first returns the first value that the pointer names.
func (p pointer) first(doc any) (any, bool) {
	if found := p.find(doc); len(found) > 0 {
		return found[0], true
	}
	return nil, false
}

// replace puts value in the place of everything that the pointer names and
// returns the document. It changes doc.
func (p pointer) replace(doc, value any) any {
	if len(p) == 0 {
		return value
	}
	switch v := doc.(type) {
	case map[string]any:
		if next, ok := v[p[0]]; ok {
			v[p[0]] = p[1:].replace(next, value)
		}
	case []any:
		for i, item := range v {
			if p[0] == "*" || p[0] == strconv.Itoa(i) {
				v[i] = p[1:].replace(item, value)
			}
		}
	}
	return doc
}

// set writes a member of an object that is there, and reports whether it could.
// It changes doc.
func (p pointer) set(doc, value any) bool {
	if len(p) == 0 {
		return false
	}
	parent, _ := p[:len(p)-1].first(doc)
	members, ok := parent.(map[string]any)
	if ok {
		members[p[len(p)-1]] = value
	}
	return ok
}
