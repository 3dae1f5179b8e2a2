package providers

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// The consistencies of a lookup. Only a direct one can prove absence.
const (
	consistencyDirect   = "direct"
	consistencyEventual = "eventual"
	consistencyFulltext = "fulltext"
)

// Bounds of a look.
const (
	maxPages = 100
	// MaxMatches is how many objects a look names; more make it incomplete.
	MaxMatches = 100
)

// lookup is one way to find an operation's object again.
type lookup struct {
	name         string
	request      requestTemplate
	consistency  string
	lag          time.Duration
	skew         time.Duration
	proves       string
	confirms     bool // a hard rule holds the operation's own mark
	byID         bool // 404 means that there is no object
	paging       *paging
	sentinel     *sentinel
	items        pointer
	match        []condition
	externalID   pointer
	createdAt    pointer
	hasCreatedAt bool
	schedule     []time.Duration
}

// What a lookup that finds nothing may be taken for.
const (
	provesPresence = "presence"
	provesAbsence  = "absence"
)

// byID reports whether the lookup reads one object by the id that the client
// chose, so that 404 means that there is none: the operation's own mark, or the
// external key of an upsert.
func (a *action) byID(l lookup) bool {
	return l.consistency == consistencyDirect && a.chosen(l.request.path)
}

// confirms reports whether an object that fits the lookup must be the
// operation's own: a hard rule holds a mark that the request has written.
func (a *action) confirms(l lookup) bool {
	written := a.request.refs()
	return slices.ContainsFunc(l.match, func(m condition) bool {
		return !m.soft && slices.ContainsFunc(m.want.refs(), func(r ref) bool {
			return r.own() && slices.ContainsFunc(written, func(w ref) bool { return sameMark(r, w) })
		})
	})
}

// match is one object that a look found.
type match struct {
	id      string
	created time.Time
	doc     any
}

// Lookup asks once for objects of the operation: the account first, then every
// lookup of the contract, over all its pages. It never says that something is
// absent; that is derived, elsewhere, from what it saw and when.
//
// A probe that fails makes the look fail, without saying that the account is
// another one.
func (h *HTTP) Lookup(ctx context.Context, c Call) operation.Look {
	look := operation.Look{Source: events.SourceLookup, AskedAt: h.now(), AttemptID: c.AttemptID, AccountOK: true}
	a, acc, s, err := h.find(c)
	if err != nil {
		return failed(look, "the look can't be prepared")
	}
	contract, _ := h.file.Contract(a.name)
	look.Name = contract.Lookup.Name
	if len(a.lookups) == 0 {
		return failed(look, "the contract has no lookup")
	}
	if look, err = h.lookAs(ctx, c, acc, look); err != nil || !look.AccountOK {
		return look
	}
	cred, err := h.credential(acc)
	if err != nil || !acc.vouches(cred, c.Intent.ProviderID) {
		return failed(look, "the credential can't be read, or has just changed")
	}
	look.AskedAt, look.PagesComplete = h.now(), true
	var found, weak []match
	for _, l := range a.lookups {
		r := runner{h: h, acc: acc, cred: cred, l: l, total: a.contract.Total, scope: s.withFirstSend(c.FirstSend, l.skew)}
		r.run(ctx)
		found, weak = append(found, r.found...), append(weak, r.weak...)
		look.PagesComplete = look.PagesComplete && r.complete
		look.ProviderRequestID = cmp.Or(r.requestID, look.ProviderRequestID)
		if r.reason != "" {
			look.Failed, look.Reason = true, l.name+": "+r.reason
		}
		look.Reason = cmp.Or(look.Reason, r.note)
	}
	return a.conclude(look, s, cred, found, weak)
}

// lookAs says under which account the look is made (I8).
func (h *HTTP) lookAs(ctx context.Context, c Call, acc *account, look operation.Look) (operation.Look, error) {
	bound := c.Intent.ProviderID
	look.AccountProbed = acc.cfg.ProviderID
	if h.file.conn.probe != nil {
		id, err := h.probe(ctx, acc, c.Fresh)
		if err != nil {
			look.AccountProbed = ""
			return failed(look, "the account probe got no readable answer"), err
		}
		look.AccountProbed = id
	}
	look.AccountOK = bound == "" || bound == look.AccountProbed
	if !look.AccountOK {
		look.Reason = "account_mismatch"
	}
	return look, nil
}

func failed(look operation.Look, reason string) operation.Look {
	look.Failed, look.PagesComplete, look.Reason = true, false, reason
	return look
}

// conclude puts the objects in order: the earliest by the provider's own time
// first, those without a time last.
func (a *action) conclude(look operation.Look, s scope, cred credential, found, weak []match) operation.Look {
	found = tidy(found)
	weak = slices.DeleteFunc(tidy(weak), func(w match) bool {
		return slices.ContainsFunc(found, func(m match) bool { return m.id == w.id })
	})
	if len(found) > MaxMatches || len(weak) > MaxMatches {
		look.PagesComplete, look.Reason = false, "more matches than a look names"
		found, weak = found[:min(len(found), MaxMatches)], weak[:min(len(weak), MaxMatches)]
	}
	for _, m := range found {
		look.Matches = append(look.Matches, m.id)
	}
	if len(found) > 0 {
		look.CreatedAt = found[0].created
	}
	for _, m := range weak {
		look.Weak = append(look.Weak, m.id)
	}
	if len(found) > 0 {
		look.Result = a.scrubber(s, cred.reveal()...).result(found[0].doc)
	}
	return look
}

// tidy sorts, and drops what was found twice.
func tidy(found []match) []match {
	slices.SortStableFunc(found, func(a, b match) int {
		switch {
		case a.created.IsZero() != b.created.IsZero():
			if a.created.IsZero() {
				return 1
			}
			return -1
		case !a.created.Equal(b.created):
			return a.created.Compare(b.created)
		}
		return cmp.Compare(a.id, b.id)
	})
	seen := make(map[string]bool, len(found))
	return slices.DeleteFunc(found, func(m match) bool {
		twice := seen[m.id]
		seen[m.id] = true
		return twice
	})
}

// runner reads one lookup, page by page.
type runner struct {
	h     *HTTP
	acc   *account
	cred  credential
	l     lookup
	total time.Duration
	scope scope

	found, weak []match
	complete    bool
	requestID   string
	reason      string // why it failed
	note        string // why it is not complete although it did not fail
}

func (r *runner) run(ctx context.Context) {
	out, err := r.h.render(r.l.request, r.scope, r.acc)
	if err != nil {
		r.reason = "the request can't be built"
		return
	}
	if r.complete, err = r.pages(ctx, out); err == nil && r.complete && len(r.found) == 0 {
		err = r.watch(ctx)
	}
	if err != nil {
		r.complete, r.reason = false, err.Error()
	}
}

// pages reads page after page and reports whether it saw the last one. What was
// found before an error counts.
func (r *runner) pages(ctx context.Context, out rendered) (complete bool, err error) {
	limit := 1
	if r.l.paging != nil {
		limit = r.l.paging.max
	}
	seen := make(map[string]bool)
	for n := range limit {
		ans, err := r.ask(ctx, out)
		if err != nil {
			return false, err
		}
		if ans.status == http.StatusNotFound {
			if n > 0 {
				return false, errors.New("status 404")
			}
			return true, nil // there is no such object; ask lets this pass for a read by id only
		}
		list, err := listAt(r.l.items, ans.doc)
		if err != nil {
			return false, err
		}
		if err := r.items(list); err != nil {
			return false, err
		}
		if r.l.paging == nil {
			return true, nil
		}
		next, more, err := r.l.paging.next(ans, n, len(list), out.url)
		if err != nil || !more {
			return err == nil, err
		}
		if seen[next.text] {
			return false, errors.New("the provider gave the same cursor twice")
		}
		seen[next.text] = true
		if out, err = r.l.paging.turn(out, next); err != nil {
			return false, err
		}
	}
	r.note = "more pages than the contract reads"
	return false, nil
}

// ask sends one question and returns its answer, if it can be used.
func (r *runner) ask(ctx context.Context, out rendered) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.total)
	defer cancel()
	x := send(ctx, r.acc.wire.pooled, out.request(r.cred, false))
	r.requestID = cmp.Or(requestID(x.header, r.h.file.conn.requestIDHeader, r.cred), r.requestID)
	if x.err != nil {
		return answer{}, errors.New(x.transport.Error)
	}
	ans := newAnswer(x.status, x.header, x.body)
	switch {
	case x.status == http.StatusNotFound && r.l.byID:
		return ans, nil
	case x.status < 200 || x.status > 299:
		return ans, errors.New("status " + strconv.Itoa(x.status))
	case ans.docErr != nil:
		return ans, errors.New("the answer is not JSON")
	case out.graphql && len(pointer{"errors"}.find(ans.doc)) > 0:
		// A field that failed is null, and null would be taken for nothing there.
		return ans, errors.New("the answer has errors")
	}
	return ans, nil
}

// items judges every object of a page.
func (r *runner) items(list []any) error {
	for _, item := range list {
		hard, soft, err := r.judge(item)
		if err != nil {
			return err
		}
		if !hard && !soft {
			continue
		}
		m, ok := r.read(item)
		switch {
		case !ok:
			return errors.New("an object that matches has no readable id")
		case hard && r.l.confirms:
			r.found = append(r.found, m)
		default:
			r.weak = append(r.weak, m)
		}
	}
	return nil
}

// listAt returns the objects of an answer. Null is none; a missing member is an
// answer that we don't understand.
func listAt(items pointer, doc any) ([]any, error) {
	v, ok := doc, true
	if len(items) > 0 {
		parent, _ := items[:len(items)-1].first(doc)
		members, isObject := parent.(map[string]any)
		v, ok = members[items[len(items)-1]]
		ok = ok && isObject
	}
	switch v := v.(type) {
	case []any:
		return v, nil
	case map[string]any:
		return []any{v}, nil
	case nil:
		if ok {
			return nil, nil
		}
	}
	return nil, errors.New("the answer has no list of objects where the contract says")
}

// judge reports whether all hard rules hold (the object carries our own mark),
// and whether all soft ones do (it looks alike).
func (r *runner) judge(item any) (hard, soft bool, err error) {
	hard, soft = true, true
	anySoft := false
	for _, c := range r.l.match {
		if c.idle(r.scope) {
			continue
		}
		ok, err := c.holds(r.scope, item)
		if err != nil {
			return false, false, errors.New("a match rule could not be evaluated")
		}
		if c.soft {
			anySoft, soft = true, soft && ok
		} else {
			hard = hard && ok
		}
	}
	return hard, soft && anySoft, nil
}

func (r *runner) read(item any) (match, bool) {
	v, _ := r.l.externalID.first(item)
	id, ok := idText(v)
	m := match{id: id, doc: item}
	if r.l.hasCreatedAt {
		v, _ := r.l.createdAt.first(item)
		m.created = instant(v)
	}
	return m, ok && !r.cred.repeatedIn(id)
}

// instant reads RFC 3339, its form without a colon in the zone, and the time
// since 1970: in seconds, perhaps with a fraction, or in milliseconds, which
// can't be told from seconds before the year 5138. What it can't read has no
// time.
func instant(v any) time.Time {
	const (
		noColon   = "2006-01-02T15:04:05.999999999Z0700"
		firstMS   = 100_000_000_000
		nanoPlace = 9
	)
	text, _ := asText(v)
	for _, layout := range []string{time.RFC3339Nano, noColon} {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	nanos, errFraction := strconv.ParseUint((fraction + strings.Repeat("0", nanoPlace))[:nanoPlace], 10, 32)
	switch {
	case err != nil || errFraction != nil || n <= 0:
		return time.Time{}
	case n >= firstMS:
		return time.UnixMilli(n)
	}
	return time.Unix(n, int64(nanos))
}
