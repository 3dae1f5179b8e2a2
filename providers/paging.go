package providers

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// pagingKind is how a list goes on.
type pagingKind int

// The kinds of paging.
const (
	// pagingCursor: the answer holds the cursor of the next page, or the id of
	// the last object that it shows.
	pagingCursor pagingKind = iota + 1
	// pagingLink: the header Link has the next page's address (RFC 8288).
	pagingLink
	// pagingNumber: pages have numbers; one that is not full is the last.
	pagingNumber
)

// maxCursor is the longest cursor or address of a page, in bytes.
const maxCursor = 4096

// paging is how a lookup reads a list to its end.
type paging struct {
	kind   pagingKind
	at     pointer // of the cursor
	more   pointer // of the flag that says whether there is a next page
	flag   bool    // there is such a flag
	param  string  // the query parameter that takes cursor or number
	body   pointer // or the member of the body
	inBody bool
	first  int // number of the first page
	size   int // objects on a full page
	max    int
}

// cursor is where the next page is. Its text tells pages apart.
type cursor struct {
	text  string
	value any      // for the body, with its JSON type
	url   *url.URL // of a link
}

var errCursor = errors.New("the cursor can't be read")

// next returns where the page after page n is, and whether there is one. What
// it can't read is an error: a list that was not read to its end must not look
// like one that was.
func (p *paging) next(ans answer, n, objects int, at *url.URL) (cursor, bool, error) {
	switch p.kind {
	case pagingLink:
		return nextLink(ans.header, at)
	case pagingNumber:
		if objects > p.size {
			return cursor{}, false, errors.New("a page has more objects than the contract says")
		}
		return cursor{text: strconv.Itoa(p.first + n + 1)}, objects == p.size, nil
	case pagingCursor:
	}
	if p.flag {
		v, _ := p.more.first(ans.doc)
		more, ok := v.(bool)
		if !ok {
			return cursor{}, false, errors.New("the answer does not say whether there are more pages")
		}
		if !more {
			return cursor{}, false, nil
		}
	}
	var last any
	if found := p.at.find(ans.doc); len(found) > 0 {
		last = found[len(found)-1]
	}
	if last == nil || last == false || last == "" {
		if p.flag {
			return cursor{}, false, errCursor
		}
		return cursor{}, false, nil
	}
	text, ok := asText(last)
	if !ok || len(text) > maxCursor {
		return cursor{}, false, errCursor
	}
	return cursor{text: text, value: last}, true, nil
}

// turn changes a request to ask for another page.
func (p *paging) turn(out rendered, next cursor) (rendered, error) {
	if next.url != nil {
		out.url = next.url
		return out, nil
	}
	if p.inBody {
		doc, err := decodeJSON(out.body)
		if err != nil || !p.body.set(doc, next.value) {
			return out, errors.New("the cursor has no place in the request's body")
		}
		out.body, err = encodeJSON(doc)
		return out, err
	}
	u := *out.url
	query := u.Query()
	query.Set(p.param, next.text)
	u.RawQuery = query.Encode()
	out.url = &u
	return out, nil
}

// nextLink finds the next page in the header Link. It must stay at the origin
// that the request went to: a link is the provider's data, and following it
// carries the credential along.
func nextLink(h http.Header, at *url.URL) (cursor, bool, error) {
	var next *url.URL
	for _, value := range h.Values("Link") {
		for value = strings.Trim(value, " \t,"); value != ""; value = strings.Trim(value, " \t,") {
			target, isNext, rest, ok := cutLink(value)
			if !ok {
				return cursor{}, false, errors.New("the header Link can't be read")
			}
			value = rest
			if !isNext {
				continue
			}
			u, err := at.Parse(target)
			if err != nil || len(target) > maxCursor || u.User != nil || u.Scheme != at.Scheme || !strings.EqualFold(u.Host, at.Host) {
				return cursor{}, false, errors.New("the link to the next page leaves the provider")
			}
			u.Host, u.Fragment, u.RawFragment = at.Host, "", ""
			if next != nil && next.String() != u.String() {
				return cursor{}, false, errors.New("the header Link names two next pages")
			}
			next = u
		}
	}
	if next == nil {
		return cursor{}, false, nil
	}
	return cursor{text: next.String(), url: next}, true, nil
}

// cutLink reads the first link of a header value.
func cutLink(value string) (target string, next bool, rest string, ok bool) {
	target, rest, closed := strings.Cut(value, ">")
	target, opened := strings.CutPrefix(target, "<")
	if !opened || !closed {
		return "", false, "", false
	}
	for {
		rest = strings.TrimLeft(rest, " \t")
		after, more := strings.CutPrefix(rest, ";")
		if !more {
			return target, next, rest, rest == "" || rest[0] == ','
		}
		name, v, left, ok := cutParam(after)
		if !ok {
			return "", false, "", false
		}
		rest = left
		isNext := func(rel string) bool { return strings.EqualFold(rel, "next") }
		if strings.EqualFold(name, "rel") && slices.ContainsFunc(strings.Fields(v), isNext) {
			next = true
		}
	}
}

// cutParam reads name=value, name="value" or a name alone.
func cutParam(text string) (name, value, rest string, ok bool) {
	end := strings.IndexAny(text, "=;,")
	if end < 0 {
		return strings.TrimSpace(text), "", "", true
	}
	name, after := strings.TrimSpace(text[:end]), text[end:]
	if after[0] != '=' {
		return name, "", after, true
	}
	after = strings.TrimLeft(after[1:], " \t")
	if quoted, isQuoted := strings.CutPrefix(after, `"`); isQuoted {
		value, rest, ok = strings.Cut(quoted, `"`)
		return name, value, rest, ok
	}
	if end = strings.IndexAny(after, ";,"); end < 0 {
		end = len(after)
	}
	return name, strings.TrimSpace(after[:end]), after[end:], true
}

// paging compiles how a lookup goes from page to page.
func (c *compiler) paging(at string, p *pagingSpec, r requestTemplate) *paging {
	if p == nil {
		return nil
	}
	kinds := 0
	for _, given := range []bool{p.Next != "", p.LastID != "", p.Link, p.Page != ""} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		c.refuse(at, "needs exactly one of next, last_id, link, page")
		return nil
	}
	if p.Max < 1 || p.Max > maxPages {
		c.refuse(at+".max", "must be from 1 to %d", maxPages)
	}
	if (p.Link || p.Page != "") && (p.More != "" || p.Param != "" || p.In != "") {
		c.refuse(at, "more, param and in belong to next and last_id")
	}
	if p.Page == "" && p.Size != 0 {
		c.refuse(at+".size", "belongs to page")
	}
	out := &paging{max: p.Max}
	switch {
	case p.Link:
		out.kind = pagingLink
		if r.method != http.MethodGet {
			c.refuse(at+".link", "a link is followed by GET only")
		}
	case p.Page != "":
		c.numbered(at, p, r, out)
	default:
		c.cursor(at, p, r, out)
	}
	return out
}

func (c *compiler) cursor(at string, p *pagingSpec, r requestTemplate, out *paging) {
	out.kind, out.param = pagingCursor, p.Param
	out.at = c.pointer(at, p.Next+p.LastID) // exactly one is given
	out.more, out.flag = c.pointer(at+".more", p.More), p.More != ""
	if p.LastID != "" && !out.flag {
		c.refuse(at+".more", "is missing: last_id needs the flag that says whether there are more pages")
	}
	if p.Param == "" {
		c.refuse(at+".param", "is missing: say where the cursor goes")
	}
	switch p.In {
	case "", "query":
	case "body":
		out.inBody, out.body = true, c.pointer(at+".param", p.Param)
		if n := len(out.body); n == 0 || !r.hasMembers(out.body[:n-1]) {
			c.refuse(at+".param", "the request's body has no mapping that this pointer leads into")
		}
	default:
		c.refuse(at+".in", "must be query or body")
	}
}

// numbered compiles page numbers. They count from the number that the request's
// query has, or from 1.
func (c *compiler) numbered(at string, p *pagingSpec, r requestTemplate, out *paging) {
	out.kind, out.param, out.size, out.first = pagingNumber, p.Page, p.Size, 1
	if p.Size < 1 {
		c.refuse(at+".size", "must be 1 or more: a page with fewer objects is the last")
	}
	if t, given := r.query[p.Page]; given {
		switch text, _ := (scope{}).text(t); text {
		case "0":
			out.first = 0
		case "1":
		default:
			c.refuse(at+".page", "the query must give the number of the first page, 0 or 1")
		}
	}
	for name, t := range r.query {
		if text, err := (scope{}).text(t); err == nil && name != p.Page && text == strconv.Itoa(p.Size) {
			return
		}
	}
	c.refuse(at+".size", "the request's query must ask for pages of this size, or a short page says nothing")
}

// hasMembers reports whether a pointer leads to a mapping in the JSON body.
func (r requestTemplate) hasMembers(p pointer) bool {
	at := r.body
	for _, name := range p {
		next, ok := at.members[name]
		if !ok {
			return false
		}
		at = next
	}
	return at.kind == treeMembers
}
