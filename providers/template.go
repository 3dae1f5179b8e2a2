package providers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The name spaces of a template.
const (
	spaceArgs    = "args"
	spaceOp      = "op"
	spaceAccount = "account"
	spaceSecret  = "secret"
)

// The names in the space op.
const (
	opID           = "id"
	opKey          = "key"
	opUUID         = "uuid"
	opUUIDPlain    = "uuid_plain"
	opUUIDv4       = "uuid_v4"
	opLabel        = "label"
	opArgsDigest   = "args_digest"
	opFirstRFC3339 = "first_send_rfc3339"
	opFirstUnix    = "first_send_unix"
)

// ref is one ${space.name} of a template.
type ref struct {
	space, name string
	// optional: ${args.note?} leaves the member out when the value is missing.
	optional bool
}

func (r ref) String() string { return "${" + r.space + "." + r.name + "}" }

// own reports whether the value is the operation's own mark: unique to the
// operation in every account, and the same for all its attempts (I17). The
// operation id is not: two tenants may share an account.
func (r ref) own() bool {
	return r.space == spaceOp && slices.Contains([]string{opKey, opUUID, opUUIDPlain, opUUIDv4, opLabel}, r.name)
}

// part is a piece of a template: literal text, or a reference.
type part struct {
	text string
	ref  *ref
}

// template is text with references in it. "$${" writes a literal "${".
type template []part

// parseTemplate reads a template.
func parseTemplate(text string) (template, error) {
	var t template
	literal := func(s string) {
		if s == "" {
			return
		}
		if n := len(t); n > 0 && t[n-1].ref == nil {
			t[n-1].text += s
			return
		}
		t = append(t, part{text: s})
	}
	for {
		before, after, found := strings.Cut(text, "${")
		if !found {
			literal(text)
			return t, nil
		}
		if escaped, ok := strings.CutSuffix(before, "$"); ok {
			literal(escaped + "${")
			text = after
			continue
		}
		literal(before)
		inside, rest, closed := strings.Cut(after, "}")
		if !closed {
			return nil, errors.New("template has ${ without }")
		}
		r, err := parseRef(inside)
		if err != nil {
			return nil, err
		}
		t = append(t, part{ref: &r})
		text = rest
	}
}

func parseRef(inside string) (ref, error) {
	name, optional := strings.CutSuffix(inside, "?")
	space, name, _ := strings.Cut(name, ".")
	r := ref{space: space, name: name, optional: optional}
	if name == "" || slices.Contains(strings.Split(name, "."), "") {
		return r, fmt.Errorf("${%s} must be of the form ${space.name}", clip(inside))
	}
	switch space {
	case spaceArgs:
		return r, nil
	case spaceOp:
		names := []string{opID, opKey, opUUID, opUUIDPlain, opUUIDv4, opLabel, opArgsDigest, opFirstRFC3339, opFirstUnix}
		if !slices.Contains(names, name) {
			return r, fmt.Errorf("${%s}: there is no such value; there are %s", clip(inside), strings.Join(names, ", "))
		}
	case spaceAccount, spaceSecret:
	default:
		return r, fmt.Errorf("${%s}: the spaces are args, op, account and secret", clip(inside))
	}
	if optional {
		return r, fmt.Errorf("${%s}: only a value of args can be optional", clip(inside))
	}
	return r, nil
}

func (t template) refs() []ref {
	var out []ref
	for _, p := range t {
		if p.ref != nil {
			out = append(out, *p.ref)
		}
	}
	return out
}

// whole returns the reference if the template is exactly one.
func (t template) whole() (ref, bool) {
	if len(t) == 1 && t[0].ref != nil {
		return *t[0].ref, true
	}
	return ref{}, false
}

// own reports whether the template carries the operation's own mark.
func (t template) own() bool {
	return slices.ContainsFunc(t.refs(), ref.own)
}

// place says which values a template may use where it stands.
type place struct {
	name                                 string
	args, op, firstSend, account, secret bool
	optional                             bool
}

// The places of templates. A request never depends on when it is sent (I17), so
// first_send is for lookups only; secrets are for headers only.
func inRequest() place {
	return place{name: "a request", args: true, op: true, account: true, optional: true}
}

func inHeader() place {
	return place{name: "a header", args: true, op: true, account: true, secret: true, optional: true}
}

func inLookup() place {
	p := inRequest()
	p.name, p.firstSend = "a lookup", true
	return p
}

func inLookupHeader() place {
	p := inHeader()
	p.name, p.firstSend = "a lookup's header", true
	return p
}

func inConnection() place { return place{name: "the connection", account: true} }

func inConnectionHeader() place {
	return place{name: "the connection's headers", account: true, secret: true}
}

func inKey() place { return place{name: "a key", op: true} }

func inScope() place { return place{name: "a scope", args: true, account: true} }

func inRule() place { return place{name: "a rule", args: true, op: true, account: true} }

func inMatch() place {
	p := inRule()
	p.name, p.optional = "a match rule", true
	return p
}

// check refuses references that the place does not allow.
func (t template) check(where place) error {
	for _, r := range t.refs() {
		allowed := false
		switch r.space {
		case spaceArgs:
			allowed = where.args
		case spaceOp:
			first := r.name == opFirstRFC3339 || r.name == opFirstUnix
			allowed = where.op && (!first || where.firstSend)
		case spaceAccount:
			allowed = where.account
		case spaceSecret:
			allowed = where.secret
		}
		if !allowed {
			return fmt.Errorf("%s is not allowed in %s", r, where.name)
		}
		if _, alone := t.whole(); r.optional && (!alone || !where.optional) {
			return fmt.Errorf("%s can be optional only where it is the whole value of a member", r)
		}
	}
	return nil
}

// compile parses and checks a template.
func compile(text string, where place) (template, error) {
	t, err := parseTemplate(text)
	if err != nil {
		return nil, err
	}
	return t, t.check(where)
}
