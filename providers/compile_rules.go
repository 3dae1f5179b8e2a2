package providers

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

func (c *compiler) outcomes(path string, specs []outcomeSpec) []rule {
	if len(specs) > maxOutcomes {
		c.refuse(path, "%d rules, the limit is %d", len(specs), maxOutcomes)
	}
	out := make([]rule, 0, len(specs))
	words := slices.DeleteFunc(operation.OutcomeWords(), func(w operation.OutcomeWord) bool {
		return w == operation.OutcomeNotSent // proven by the transport, never by an answer
	})
	for i, s := range specs {
		at := path + "[" + strconv.Itoa(i) + "]"
		r := rule{word: word(c, at+".is", s.Is, words...), status: s.Status, final: s.Final}
		if len(s.Status) == 0 {
			c.refuse(at+".status", "is missing")
		}
		r.header = c.conditions(at+".header", s.Header, inRule(), true)
		r.body = c.conditions(at+".body", s.Body, inRule(), false)
		if s.Answers != "" {
			word(c, at+".answers", s.Answers, "key")
			r.answersKey = true
		}
		if s.ExternalID != "" {
			r.externalID = c.externalID(at+".external_id", s.ExternalID)
		}
		out = append(out, r)
	}
	return out
}

func (c *compiler) externalID(path, text string) externalID {
	if strings.HasPrefix(text, "/") {
		return externalID{at: c.pointer(path, text), given: true}
	}
	return externalID{own: c.template(path, text, inRule()), given: true}
}

func (c *compiler) conditions(path string, specs []conditionSpec, where place, inHeader bool) []condition {
	var out []condition
	for i, s := range specs {
		at := path + "[" + strconv.Itoa(i) + "]"
		cond := c.condition(at, s, where)
		switch {
		case inHeader && (s.At != nil || s.Name == ""):
			c.refuse(at, "a header condition has a name, and no at")
		case inHeader:
			cond.header = c.header(at+".name", s.Name)
		case s.At == nil || s.Name != "":
			c.refuse(at, "a body condition has at, and no name")
		default:
			cond.at = c.pointer(at+".at", *s.At)
		}
		if s.Soft && !where.optional {
			c.refuse(at+".soft", "only a match rule can be soft")
		}
		out = append(out, cond)
	}
	return out
}

func (c *compiler) condition(at string, s conditionSpec, where place) condition {
	cond := condition{soft: s.Soft}
	var want any
	n := 0
	set := func(present bool, t test, v any) {
		if present {
			cond.test, want = t, v
			n++
		}
	}
	set(s.Equals.set, testEquals, s.Equals.v)
	set(s.Prefix != nil, testPrefix, deref(s.Prefix))
	set(s.Contains != nil, testContains, deref(s.Contains))
	set(s.Exists != nil, testExists, nil)
	set(s.Absent != nil, testAbsent, nil)
	if n != 1 {
		c.refuse(at, "must have exactly one of equals, prefix, contains, exists, absent")
	}
	if s.Exists != nil && !*s.Exists {
		cond.test = testAbsent
	}
	if s.Absent != nil && !*s.Absent {
		cond.test = testExists
	}
	if (cond.test == testPrefix || cond.test == testContains) && want == "" {
		c.refuse(at, "must not be empty: it would always match")
	}
	if cond.test == testEquals && want == nil {
		c.refuse(at, "null can't be compared: use absent")
	}
	t, err := compileTree(want, where)
	c.try(at, err)
	cond.want = t
	return cond
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (c *compiler) lookups(path string, specs []lookupSpec) []lookup {
	if len(specs) > maxLookups {
		c.refuse(path, "%d lookups, the limit is %d", len(specs), maxLookups)
	}
	out := make([]lookup, 0, len(specs))
	for i, s := range specs {
		out = append(out, c.lookup(path+"["+strconv.Itoa(i)+"]", s))
	}
	return out
}

func (c *compiler) lookup(at string, s lookupSpec) lookup {
	l := lookup{
		name:        s.Name,
		request:     c.request(at+".request", s.Request, inLookup(), inLookupHeader(), true),
		consistency: word(c, at+".consistency", s.Consistency, consistencyDirect, consistencyEventual, consistencyFulltext),
		lag:         s.Lag.d, skew: s.Skew.d,
		proves:     word(c, at+".proves", cmp.Or(s.Proves, provesPresence), provesPresence, provesAbsence),
		items:      c.pointer(at+".items", s.Items),
		match:      c.conditions(at+".match", s.Match, inMatch(), false),
		externalID: c.pointer(at+".external_id", s.ExternalID),
		createdAt:  c.pointer(at+".created_at", s.CreatedAt), hasCreatedAt: s.CreatedAt != "",
	}
	c.try(at+".name", events.CheckID("lookup", s.Name))
	if s.ExternalID == "" {
		c.refuse(at+".external_id", "is missing")
	}
	if len(s.Schedule) > maxSchedule {
		c.refuse(at+".schedule", "%d looks, the limit is %d", len(s.Schedule), maxSchedule)
	}
	for _, d := range s.Schedule {
		l.schedule = append(l.schedule, d.d)
	}
	l.paging = c.paging(at+".paging", s.Paging, l.request)
	l.sentinel = c.sentinel(at+".sentinel", s.Sentinel)
	return l
}
