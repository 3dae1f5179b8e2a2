package providers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// sentinel is a question whose answer always has objects: fewer than that mean
// that search is out, and that finding nothing says nothing.
type sentinel struct {
	request requestTemplate
	items   pointer
	atLeast int
}

// sentinel compiles the question.
func (c *compiler) sentinel(at string, s *sentinelSpec) *sentinel {
	if s == nil {
		return nil
	}
	out := &sentinel{
		request: c.request(at+".request", s.Request, inLookup(), inLookupHeader(), true),
		items:   c.pointer(at+".items", deref(s.Items)), atLeast: s.AtLeast,
	}
	if s.Items == nil {
		c.refuse(at+".items", "is missing: say where the list is")
	}
	if s.AtLeast < 1 {
		c.refuse(at+".at_least", "must be 1 or more: say how many objects are always there")
	}
	return out
}

// watch asks the sentinel, where there is one, after nothing was found.
func (r *runner) watch(ctx context.Context) error {
	s := r.l.sentinel
	if s == nil {
		return nil
	}
	out, err := r.h.render(s.request, r.scope, r.acc)
	if err != nil {
		return errors.New("sentinel: the request can't be built")
	}
	ans, err := r.ask(ctx, out)
	if err != nil {
		return fmt.Errorf("sentinel: %w", err)
	}
	if ans.status == http.StatusNotFound {
		return errors.New("sentinel: status 404")
	}
	list, err := listAt(s.items, ans.doc)
	if err != nil {
		return fmt.Errorf("sentinel: %w", err)
	}
	if len(list) < s.atLeast {
		return errors.New("sentinel: too few objects, search is out")
	}
	return nil
}
