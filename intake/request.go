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
	if err := guard(raw); err != nil {
		return req, api.NewProblem(api.ProblemMalformed, "%v", err)
	}
	// What has no canonical form (a lone surrogate) would be changed silently by
	// every decoder behind this one.
	if _, err := canonical(raw); err != nil {
		return req, api.NewProblem(api.ProblemMalformed, "%v", err)
	}
	if name := foldedKey(raw); name != "" {
		return req, api.NewProblem(api.ProblemMalformed, "unknown member %q: members are in lower case", cut(name))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		return req, api.NewProblem(api.ProblemMalformed, "%s", describe(err))
	}
	return req, nil
}

// foldedKey returns a member of the request's own that is not in lower case:
// the decoder takes such a one for its lower-case twin, and the last one wins.
// Arguments, labels and results have names of their own.
func foldedKey(raw []byte) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return ""
	}
	for name, value := range members {
		if name != strings.ToLower(name) {
			return name
		}
		switch name {
		case "args", "labels", "result":
			continue
		}
		if inner := foldedKey(value); inner != "" {
			return inner
		}
	}
	return ""
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

func checkText(fields map[string]string) *api.Problem {
	for name, value := range fields {
		limit := maxText
		if name == "external_id" {
			limit = maxExternalID
		}
		if len(value) > limit {
			return api.NewProblem(api.ProblemTooLarge, "%s has %d bytes, at most %d", name, len(value), limit)
		}
	}
	return nil
}

func checkSubmit(r api.SubmitRequest) *api.Problem {
	for what, id := range map[string]string{"provider": r.Provider, "account": r.Account} {
		if err := events.CheckID(what, id); err != nil {
			return api.NewProblem(api.ProblemInvalidID, "%v", err)
		}
	}
	for what, id := range map[string]string{
		"repeat_of": r.RepeatOf, "compensates": r.Compensates, "conflict_scope": r.ConflictScope,
	} {
		if id == "" {
			continue
		}
		if err := events.CheckID(what, id); err != nil {
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
	texts := map[string]string{
		"request_id": r.RequestID, "requested_by": r.RequestedBy, "basis": r.Basis, "source": r.Source,
		"source_event_id": r.SourceEventID, "slot": r.Slot, "traceparent": r.Traceparent,
	}
	for name, value := range r.Labels {
		texts["labels/"+cut(name)] = name + value
	}
	if r.Origin != nil {
		texts["origin"] = r.Origin.Agent + r.Origin.Run + r.Origin.Tool + r.Origin.ToolCallID
	}
	return checkText(texts)
}
