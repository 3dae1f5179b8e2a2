package providers

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/opledger/opledger/operation"
)

// A remote contract names no requests, rules or pointers: the worker answers in
// the ledger's own words. The compiler puts the standing ones in their place, so
// that the same code compiles, judges and evaluates both kinds of contract.

// MaxWorkTotal is the longest time of one request to a worker. The server keeps
// the way back of an answer open for twice as long (package access).
const MaxWorkTotal = 5 * time.Minute

// The members of a worker's answer.
const (
	workHeartbeat  = "heartbeat"
	workAttempt    = "attempt_id"
	workAccount    = "account_id"
	workOutcome    = "outcome"
	workCode       = "code"
	workFinal      = "final"
	workAnswers    = "answers"
	workExternalID = "external_id"
	workResult     = "result"
	workRetryAfter = "retry_after_ms"
	workRequestID  = "provider_request_id"
	workObjects    = "objects"
	workComplete   = "complete"
	workFailed     = "failed"
	workMark       = "mark"
	workAlike      = "alike"
	workCreatedAt  = "created_at"
)

// remote replaces what a remote contract does not say by the standing wire.
func (c *compiler) remote() {
	c.onlyFields("connection", c.spec.Connection, "remote")
	for _, name := range slices.Sorted(maps.Keys(c.spec.Actions)) {
		s, path := c.spec.Actions[name], "actions["+name+"]"
		c.noFields(path, s, "request", "key", "error_code", "outcomes")
		if s.Class == string(operation.ClassUpsert) {
			c.refuse(path+".class", "K3 is not supported over a worker")
		}
		if s.Timing.Total.d > MaxWorkTotal {
			c.refuse(path+".timing.total", "a worker answers within %s: the way back is not open for longer", MaxWorkTotal)
		}
		s.Request = workRequest()
		keyed := s.Class == string(operation.ClassKey) || s.Class == string(operation.ClassClientID)
		if keyed {
			s.Key = &keySpec{In: keyInBody, Name: "/key", Value: "${op.key}"}
		}
		s.ErrorCode, s.Outcomes = "/"+workCode, workOutcomes(keyed)
		s.Lookups = slices.Clone(s.Lookups)
		for i, l := range s.Lookups {
			c.onlyFields(path+".lookups["+strconv.Itoa(i)+"]", l, "name", "consistency", "lag", "schedule", "proves")
			s.Lookups[i] = workLookup(l)
		}
		c.spec.Actions[name] = s
	}
}

func workRequest() requestSpec {
	return requestSpec{
		Method: http.MethodPost, Path: "/", Encoding: encodingJSON,
		Body: plain{v: map[string]any{"key": "${op.key}", "label": "${op.label}"}, set: true},
	}
}

// workOutcomes are the rules for the words of an answer. What is not among them
// is uncertain.
func workOutcomes(keyed bool) []outcomeSpec {
	rule := func(word operation.OutcomeWord, more ...conditionSpec) outcomeSpec {
		is := member1(workOutcome, string(word))
		return outcomeSpec{Is: string(word), Status: statusSet{{http.StatusOK, http.StatusOK}}, Body: append([]conditionSpec{is}, more...)}
	}
	var out []outcomeSpec
	if keyed {
		r := rule(operation.OutcomeRejected, member1(workAnswers, "key"))
		r.Answers = "key"
		out = append(out, r)
	}
	final := rule(operation.OutcomeUncertain, member1(workFinal, true))
	final.Final = true
	success := rule(operation.OutcomeSuccess)
	success.ExternalID = "/" + workExternalID
	return append(
		out, final, success, rule(operation.OutcomeRejected), rule(operation.OutcomeNotApplied), rule(operation.OutcomeBusy),
		rule(operation.OutcomeExists), rule(operation.OutcomeMismatch), rule(operation.OutcomeUnidentified),
	)
}

func workLookup(l lookupSpec) lookupSpec {
	l.Request = workRequest()
	l.Items = "/" + workObjects
	alike := member1(workAlike, true)
	alike.Soft = true
	l.Match = []conditionSpec{member1(workMark, "${op.label}"), alike}
	l.ExternalID, l.CreatedAt = "/"+workExternalID, "/"+workCreatedAt
	return l
}

// member1 is the condition that a member has a value.
func member1(name string, value any) conditionSpec {
	at := "/" + name
	return conditionSpec{At: &at, Equals: plain{v: value, set: true}}
}

// onlyFields refuses every field that is set and not among the allowed ones;
// noFields refuses those that are named.
func (c *compiler) onlyFields(path string, spec any, allowed ...string) {
	c.fields(path, spec, func(name string) bool { return slices.Contains(allowed, name) })
}

func (c *compiler) noFields(path string, spec any, refused ...string) {
	c.fields(path, spec, func(name string) bool { return !slices.Contains(refused, name) })
}

func (c *compiler) fields(path string, spec any, allowed func(name string) bool) {
	v := reflect.ValueOf(spec)
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		if !v.Field(i).IsZero() && !allowed(name) {
			c.refuse(path+"."+name, "a remote contract does not have it: the worker knows how the provider is called")
		}
	}
}
