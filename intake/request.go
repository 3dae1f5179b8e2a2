package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
)

// Bounds of the fields of a request.
const (
	maxText   = 1024
	maxLabels = 16
	// maxExternalID is the longest id of an outside object: what providers give
	// is bounded so, and what is handed in is compared with it.
	maxExternalID = 512
)

// decode reads a request strictly: guard first, then no unknown member.
func decode[T any](raw []byte) (T, *api.Problem) {
	var req T
	if len(raw) > MaxRequestSize {
		return req, api.NewProblem(api.ProblemTooLarge, "%d bytes, at most %d", len(raw), MaxRequestSize)
	}
	folded, err := guard(raw)
	if err != nil {
		return req, api.NewProblem(api.ProblemMalformed, "%v", err)
	}
	if folded != "" {
		return req, api.NewProblem(api.ProblemMalformed, "unknown member %q: members are in lower case", cut(folded))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		return req, api.NewProblem(api.ProblemMalformed, "%s", describe(err))
	}
	return req, nil
}

// describe tells what is wrong with a request without repeating its values.
func describe(err error) string {
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("member %q must be %s, not %s", te.Field, te.Type, te.Value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return "unknown member " + cut(name)
	}
	return "a member has a value of the wrong form"
}

// named is a text of a request with its member.
type named struct{ name, value string }

func checkText(fields ...named) *api.Problem {
	for _, f := range fields {
		limit := maxText
		if f.name == "external_id" {
			limit = maxExternalID
		}
		if len(f.value) > limit {
			return api.NewProblem(api.ProblemTooLarge, "%s has %d bytes, at most %d", f.name, len(f.value), limit)
		}
	}
	return nil
}

func checkSubmit(r api.SubmitRequest) *api.Problem {
	for _, id := range []named{{"provider", r.Provider}, {"account", r.Account}} {
		if err := events.CheckID(id.name, id.value); err != nil {
			return api.NewProblem(api.ProblemInvalidID, "%v", err)
		}
	}
	for _, id := range []named{
		{"repeat_of", r.RepeatOf}, {"compensates", r.Compensates}, {"conflict_scope", r.ConflictScope},
	} {
		if id.value == "" {
			continue
		}
		if err := events.CheckID(id.name, id.value); err != nil {
			return api.NewProblem(api.ProblemInvalidID, "%v", err)
		}
	}
	if err := events.CheckAction(r.Action); err != nil {
		return api.NewProblem(api.ProblemInvalidID, "%v", err)
	}
	switch {
	case len(r.Args) == 0 || r.Args[0] != '{':
		return api.NewProblem(api.ProblemInvalidArgs, "args must be a JSON object")
	case len(r.Args) > MaxArgsSize:
		return api.NewProblem(api.ProblemTooLarge, "args has %d bytes, at most %d", len(r.Args), MaxArgsSize)
	case len(r.Labels) > maxLabels:
		return api.NewProblem(api.ProblemTooLarge, "%d labels, at most %d", len(r.Labels), maxLabels)
	}
	texts := []named{
		{"request_id", r.RequestID},
		{"requested_by", r.RequestedBy},
		{"basis", r.Basis},
		{"source", r.Source},
		{"source_event_id", r.SourceEventID},
		{"slot", r.Slot},
		{"traceparent", r.Traceparent},
	}
	for name, value := range r.Labels {
		texts = append(texts, named{"labels/" + cut(name), name + value})
	}
	if r.Origin != nil {
		texts = append(texts, named{"origin", r.Origin.Agent + r.Origin.Run + r.Origin.Tool + r.Origin.ToolCallID})
	}
	return checkText(texts...)
}
