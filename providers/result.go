package providers

import (
	"encoding/json"
	"slices"
	"strings"
)

// MaxResultBytes is the largest representation of an object that is kept.
const MaxResultBytes = 16 << 10

// scrubShort is the length below which a value is hidden only where it stands
// alone: replacing "a" everywhere would leave nothing readable.
const scrubShort = 4

// scrubber hides what must not be kept of an answer: members that the contract
// names, members called as a secret or personal argument, and the values of
// these arguments and of the credentials wherever the provider repeats them.
type scrubber struct {
	pointers []pointer
	names    map[string]bool
	values   map[string]bool
}

// scrubber collects what is to be hidden of one operation.
func (a *action) scrubber(s scope, secrets ...string) scrubber {
	out := scrubber{pointers: a.redact, names: make(map[string]bool), values: make(map[string]bool)}
	for _, p := range a.sensitive {
		for _, v := range slices.Backward(p) {
			if v != "*" {
				out.names[v] = true
				break
			}
		}
		for _, v := range p.find(s.args) {
			out.collect(v)
		}
	}
	for _, v := range secrets {
		out.values[v] = true
	}
	return out
}

func (c scrubber) collect(v any) {
	switch v := v.(type) {
	case string:
		if v != "" {
			c.values[v] = true
		}
	case json.Number:
		c.values[v.String()] = true
	case map[string]any:
		for _, item := range v {
			c.collect(item)
		}
	case []any:
		for _, item := range v {
			c.collect(item)
		}
	}
}

// text hides the values in a text.
func (c scrubber) text(s string) string {
	if c.values[s] {
		return redacted
	}
	for v := range c.values {
		if len(v) >= scrubShort {
			s = strings.ReplaceAll(s, v, redacted)
		}
	}
	return s
}

func (c scrubber) value(v any) any {
	switch v := v.(type) {
	case string:
		return c.text(v)
	case json.Number:
		if c.values[v.String()] {
			return redacted
		}
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			if c.names[name] {
				out[c.text(name)] = redacted
				continue
			}
			out[c.text(name)] = c.value(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = c.value(item)
		}
		return out
	}
	return v
}

// result writes the redacted document, or nothing if it is too large.
func (c scrubber) result(doc any) []byte {
	if doc == nil {
		return nil
	}
	for _, p := range c.pointers {
		if len(p.find(doc)) > 0 {
			doc = p.replace(deepCopy(doc), redacted)
		}
	}
	data, err := encodeJSON(c.value(doc))
	if err != nil || len(data) > MaxResultBytes {
		return nil
	}
	return data
}

// redactArgs returns the scope with secret and personal arguments as "***", for
// showing a request, and whether there are any.
func (a *action) redactArgs(s scope) (_ scope, hides bool) {
	for _, p := range a.sensitive {
		if len(p.find(s.args)) == 0 {
			continue
		}
		if !hides {
			s.args, hides = deepCopy(s.args), true
		}
		s.args = p.replace(s.args, redacted)
	}
	return s, hides
}
