package providers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// errMissing marks a template whose value is not there.
var errMissing = errors.New("providers: a value of the template is missing")

// redacted stands in the place of what must not be shown.
const redacted = "***"

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// scope holds the values of one operation for its templates.
type scope struct {
	args    any
	op      map[string]string
	account map[string]string
}

// decodeJSON reads exactly one JSON value, numbers as json.Number.
func decodeJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, errors.New("providers: not valid JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("providers: more than one JSON value")
	}
	return v, nil
}

var errNoObject = errors.New("providers: the arguments are not a JSON object")

// renderable says why nothing can be put together for a call.
func (c Call) renderable() error {
	if c.Intent.IdempotencyKey == "" {
		return errors.New("providers: the intent has no idempotency key")
	}
	if len(c.Intent.Args) == 0 && c.Intent.ArgsSealed != nil {
		return errors.New("providers: the arguments are sealed; they must be opened first")
	}
	return nil
}

// isObject reports whether decodeJSON would give an object.
func isObject(doc []byte) bool {
	return json.Valid(doc) && bytes.HasPrefix(bytes.TrimLeft(doc, " \t\r\n"), []byte("{"))
}

// newScope collects the values of a call. Nothing in it depends on the attempt
// (I17); first_send is there for lookups, taken off by their skew.
func newScope(c Call, account map[string]string) (scope, error) {
	if err := c.renderable(); err != nil {
		return scope{}, err
	}
	args, err := decodeJSON(c.Intent.Args)
	if _, ok := args.(map[string]any); err != nil || !ok {
		return scope{}, errNoObject
	}
	key := c.Intent.IdempotencyKey
	plain := strings.ReplaceAll(key, "-", "")
	op := map[string]string{
		opID: c.Operation, opKey: key, opLabel: "opl" + plain, opArgsDigest: c.Intent.ArgsDigest,
	}
	if uuidForm.MatchString(key) {
		op[opUUID], op[opUUIDPlain], op[opUUIDv4] = key, plain, asV4(key)
	}
	return scope{args: args, op: op, account: account}, nil
}

// asV4 writes the version and the variant of a random UUID (RFC 9562, version 4)
// into a derived one, for providers that accept no other.
func asV4(uuid string) string {
	const variants = "89ab"
	variant := variants[strings.IndexByte("0123456789abcdef", uuid[19])%len(variants)]
	return uuid[:14] + "4" + uuid[15:19] + string(variant) + uuid[20:]
}

// withFirstSend adds the time of the first send, less the skew.
func (s scope) withFirstSend(at time.Time, skew time.Duration) scope {
	if at.IsZero() {
		return s
	}
	op := make(map[string]string, len(s.op)+2)
	maps.Copy(op, s.op)
	at = at.Add(-skew).UTC()
	op[opFirstRFC3339], op[opFirstUnix] = at.Format(time.RFC3339), strconv.FormatInt(at.Unix(), 10)
	s.op = op
	return s
}

// value returns the value of a reference with its JSON type.
func (s scope) value(r ref) (any, error) {
	v, ok := s.lookup(r)
	if !ok {
		return nil, fmt.Errorf("%w: %s", errMissing, r)
	}
	return v, nil
}

// lookup is value; whether there is one is reported by ok.
func (s scope) lookup(r ref) (v any, ok bool) {
	switch r.space {
	case spaceArgs:
		return member(s.args, r.name)
	case spaceOp:
		return text(s.op, r.name)
	case spaceAccount:
		return text(s.account, r.name)
	}
	return nil, false
}

// text looks up a value that must not be empty.
func text(from map[string]string, name string) (any, bool) {
	v := from[name]
	return v, v != ""
}

// member follows a dotted path; a number selects an element of a list.
func member(v any, path string) (any, bool) {
	for name := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[name]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// asText writes a scalar as text.
func asText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// piece is rendered text, or the name of a secret that is filled in when the
// request is sent.
type piece struct{ text, secret string }

// pieces renders a template up to its secrets.
func (s scope) pieces(t template) ([]piece, error) {
	out := make([]piece, 0, len(t))
	for _, p := range t {
		switch {
		case p.ref == nil:
			out = append(out, piece{text: p.text})
		case p.ref.space == spaceSecret:
			out = append(out, piece{secret: p.ref.name})
		default:
			v, err := s.value(*p.ref)
			if err != nil {
				return nil, err
			}
			text, ok := asText(v)
			if !ok {
				return nil, fmt.Errorf("%w: %s is null, an object or a list and can't be part of a text", errMissing, p.ref)
			}
			out = append(out, piece{text: text})
		}
	}
	return out, nil
}

// text renders a template without secrets to text.
func (s scope) text(t template) (string, error) {
	pieces, err := s.pieces(t)
	if err != nil {
		return "", err
	}
	return showPieces(pieces), nil
}

// optionalText is text; a missing optional value is reported by ok.
func (s scope) optionalText(t template) (text string, ok bool, err error) {
	if r, whole := t.whole(); whole && r.optional {
		if v, there := s.lookup(r); !there || v == nil {
			return "", false, nil
		}
	}
	text, err = s.text(t)
	return text, err == nil, err
}

// showPieces writes secrets as references.
func showPieces(pieces []piece) string {
	if len(pieces) == 1 && pieces[0].secret == "" {
		return pieces[0].text
	}
	var b strings.Builder
	for _, p := range pieces {
		if p.secret != "" {
			b.WriteString(ref{space: spaceSecret, name: p.secret}.String())
		}
		b.WriteString(p.text)
	}
	return b.String()
}

// escapedPath renders a path. Values are escaped, so that they stay within
// their segment. An empty one is refused, and so is one that would lead upwards
// at a server that reads escaped dots and slashes as plain ones: the path can't
// leave the place that the contract gave it.
func (s scope) escapedPath(t template) (string, error) {
	var b strings.Builder
	for _, p := range t {
		if p.ref == nil {
			b.WriteString(p.text)
			continue
		}
		v, err := s.text(template{p})
		if err != nil {
			return "", err
		}
		if v == "" {
			return "", fmt.Errorf("%w: %s is empty and can't be part of a path", errMissing, p.ref)
		}
		if !safeHeader(v) || dotSegments(v) {
			return "", fmt.Errorf("providers: %s has a control character or a segment . or .. and can't be part of a path", p.ref)
		}
		b.WriteString(url.PathEscape(v))
	}
	path := b.String()
	if dotSegments(path) {
		return "", errors.New("providers: a path segment is . or ..")
	}
	return path, nil
}

// tree is a body, or a wanted value, with templates in it.
type tree struct {
	leaf    template
	literal any
	members map[string]tree
	list    []tree
	kind    treeKind
}

type treeKind int

const (
	treeLiteral treeKind = iota
	treeLeaf
	treeMembers
	treeList
)

// compileTree compiles a value of the contract; its texts are templates.
func compileTree(v any, where place) (tree, error) {
	switch v := v.(type) {
	case string:
		t, err := compile(v, where)
		return tree{kind: treeLeaf, leaf: t}, err
	case map[string]any:
		out := tree{kind: treeMembers, members: make(map[string]tree, len(v))}
		for name, item := range v {
			if strings.Contains(name, "${") {
				return tree{}, errors.New("the name of a member can't be a template")
			}
			t, err := compileTree(item, where)
			if err != nil {
				return tree{}, err
			}
			out.members[name] = t
		}
		return out, nil
	case []any:
		out := tree{kind: treeList, list: make([]tree, len(v))}
		for i, item := range v {
			t, err := compileTree(item, where)
			if err != nil {
				return tree{}, err
			}
			out.list[i] = t
		}
		return out, nil
	}
	return tree{kind: treeLiteral, literal: v}, nil
}

func (t tree) refs() []ref {
	out := t.leaf.refs()
	for _, m := range t.members {
		out = append(out, m.refs()...)
	}
	for _, item := range t.list {
		out = append(out, item.refs()...)
	}
	return out
}

// render builds the value. A text that is exactly one reference keeps the JSON
// type of its value. There is no value for an optional one that is missing.
func (s scope) render(t tree) (v any, ok bool, err error) {
	switch t.kind {
	case treeLiteral:
		return t.literal, true, nil
	case treeLeaf:
		return s.renderLeaf(t.leaf)
	case treeMembers:
		out := make(map[string]any, len(t.members))
		for name, m := range t.members {
			v, ok, err := s.render(m)
			if err != nil {
				return nil, false, err
			}
			if ok {
				out[name] = v
			}
		}
		return out, true, nil
	case treeList:
		out := make([]any, 0, len(t.list))
		for _, item := range t.list {
			v, ok, err := s.render(item)
			if err != nil {
				return nil, false, err
			}
			if ok {
				out = append(out, v)
			}
		}
		return out, true, nil
	}
	panic(fmt.Sprintf("providers: tree kind %d is not on the list", t.kind))
}

func (s scope) renderLeaf(t template) (any, bool, error) {
	if r, whole := t.whole(); whole {
		if r.optional {
			v, there := s.lookup(r)
			return v, there, nil
		}
		v, err := s.value(r)
		return v, err == nil, err
	}
	text, err := s.text(t)
	return text, err == nil, err
}

// encodeJSON writes a value with sorted members and without HTML escapes: the
// same value always gives the same bytes.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, errors.New("providers: the value can't be written as JSON")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
