package simulator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxDepth is how deep the brackets of a form may go.
const maxDepth = 8

// decodeBody reads a JSON object or a form into nested maps. Numbers of JSON
// keep their digits; the values of a form are texts.
func decodeBody(contentType string, body []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return map[string]any{}, nil
	}
	media, _, _ := mime.ParseMediaType(contentType)
	if media == "application/x-www-form-urlencoded" {
		return decodeForm(string(body))
	}
	args := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&args); err != nil || args == nil || d.More() {
		return nil, fmt.Errorf("the body must be one JSON object")
	}
	return args, nil
}

// decodeForm reads a form; brackets nest: a[b]=1, a[0][b]=1 and a[]=1.
func decodeForm(body string) (map[string]any, error) {
	root := map[string]any{}
	for pair := range strings.SplitSeq(body, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return nil, fmt.Errorf("the form cannot be read: %w", err)
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, fmt.Errorf("the form cannot be read: %w", err)
		}
		path := strings.Split(strings.ReplaceAll(name, "]", ""), "[")
		if len(path) > maxDepth {
			return nil, fmt.Errorf("the form nests deeper than %d", maxDepth)
		}
		at := root
		for i, part := range path {
			if part == "" && i > 0 {
				part = strconv.Itoa(len(at)) // a[] appends
			}
			if i == len(path)-1 {
				at[part] = value
				break
			}
			inner, ok := at[part].(map[string]any)
			if !ok {
				inner = map[string]any{}
				at[part] = inner
			}
			at = inner
		}
	}
	return root, nil
}

// valueAt follows a JSON Pointer; nil if there is nothing.
func valueAt(v any, pointer string) any {
	if pointer == "" {
		return v
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch at := v.(type) {
		case map[string]any:
			v = at[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}

// textAt is the text or number at a JSON Pointer; empty if there is none.
func textAt(v any, pointer string) string {
	switch t := valueAt(v, pointer).(type) {
	case string:
		return t
	case json.Number:
		return t.String()
	}
	return ""
}

// numberAt is the whole number at a JSON Pointer, also where a form has it as
// text.
func numberAt(v any, pointer string) (int64, bool) {
	n, err := strconv.ParseInt(textAt(v, pointer), 10, 64)
	return n, err == nil
}

// mapAt is the map at a JSON Pointer; empty, never nil, if there is none.
func mapAt(v any, pointer string) map[string]any {
	if m, ok := valueAt(v, pointer).(map[string]any); ok {
		return m
	}
	return map[string]any{}
}

// or is the value, or another where there is none.
func or(v, otherwise any) any {
	if v == nil {
		return otherwise
	}
	return v
}

// replaceTexts changes every text in a value.
func replaceTexts(v any, change func(string) string) any {
	switch t := v.(type) {
	case string:
		return change(t)
	case map[string]any:
		m := make(map[string]any, len(t))
		for name, inner := range t {
			m[name] = replaceTexts(inner, change)
		}
		return m
	case []any:
		l := make([]any, len(t))
		for i, inner := range t {
			l[i] = replaceTexts(inner, change)
		}
		return l
	}
	return v
}

// ledgerMark is the form of a label that the ledger makes.
const ledgerMark = `opl[0-9a-f]{32}`

// findLabel finds the label of a request: at the dialect's places, else a mark of
// the ledger anywhere in its body, else one in its query.
func (x *exchange) findLabel(mark *regexp.Regexp) string {
	for _, pointer := range x.dialect.label {
		if text := textAt(x.args, pointer); text != "" {
			return text
		}
	}
	if m := mark.Find(x.body); m != nil {
		return string(m)
	}
	return mark.FindString(x.rawQuery)
}

// second is the usual form of a time.
func second(t time.Time) string { return t.UTC().Format(time.RFC3339) }
