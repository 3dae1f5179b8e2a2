package trial

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/executor"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// Report tells how one operation ended, and what the provider's own table says.
type Report struct {
	Operation  string           `json:"operation_id"`
	Status     operation.Status `json:"status"`
	ExternalID string           `json:"external_id,omitempty"`
	// ExternalIDs are all that the ledger knows of.
	ExternalIDs []string   `json:"external_ids,omitempty"`
	Via         events.Via `json:"via,omitempty"`
	Attempts    []Attempt  `json:"attempts"`
	// Sent counts the operation's writes that were on the wire.
	Sent int `json:"sent"`
	// Objects counts the rows of the provider's table that they made, whether
	// a person deleted them since or not; ObjectIDs are their ids.
	Objects   int      `json:"objects"`
	ObjectIDs []string `json:"object_ids,omitempty"`
	// Looks counts the lookups, Permits the permits in their order.
	Looks   int            `json:"looks"`
	Permits []events.Basis `json:"permits,omitempty"`
	// Review is the open question to a person, or empty.
	Review    events.ReviewReason `json:"review,omitempty"`
	Duplicate bool                `json:"duplicate,omitempty"`
	// Anomalies counts what the log says against itself.
	Anomalies int `json:"anomalies,omitempty"`
	// Next is what the ledger will do, Blocked why it can't.
	Next    events.NextAction      `json:"next_action,omitempty"`
	NextAt  time.Time              `json:"next_at,omitzero"`
	Blocked executor.BlockedReason `json:"blocked,omitempty"`
	// Took is the virtual time from the intent to the last event.
	Took time.Duration `json:"took"`
	// Events are the log, one line each.
	Events []string `json:"events"`
}

// Attempt is what became of one attempt.
type Attempt struct {
	Number int                    `json:"number"`
	State  operation.AttemptState `json:"state"`
	// Why is the proof that it was not applied, or why its outcome is unknown.
	Why   string       `json:"why,omitempty"`
	Basis events.Basis `json:"permit_basis,omitempty"`
}

// Run runs one operation in a world of its own.
func Run(ctx context.Context, cfg Config) (Report, error) {
	all, err := RunMany(ctx, cfg, 1)
	if len(all) == 0 {
		return Report{}, err
	}
	return all[0], err
}

// RunMany runs so many operations in one world, all with the same arguments. The
// reports come also with an error, as far as the run got.
func RunMany(ctx context.Context, cfg Config, operations int) ([]Report, error) {
	w, err := NewWorld(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Close() }() // a temporary folder; nothing depends on it
	for n := range operations {
		if err := w.Submit(ctx, fmt.Sprintf("op-%d", n+1)); err != nil {
			return nil, err
		}
	}
	ran := w.Run(ctx)
	reports, err := w.Reports(ctx)
	return reports, cmp.Or(ran, err)
}

// Reports tells of every operation as things stand.
func (w *World) Reports(ctx context.Context) ([]Report, error) {
	all, err := w.sim.Objects(ctx, simulator.ObjectFilter{})
	if err != nil {
		return nil, err
	}
	byOwner := make(map[string][]string)
	for _, o := range all {
		owner := w.wire.owner(o.Request)
		byOwner[owner] = append(byOwner[owner], o.ID)
	}
	var out []Report
	for _, op := range w.ops {
		r, err := w.report(ctx, op)
		if err != nil {
			return nil, err
		}
		r.ObjectIDs = byOwner[op]
		r.Objects = len(r.ObjectIDs)
		out = append(out, r)
	}
	return out, nil
}

func (w *World) report(ctx context.Context, op string) (Report, error) {
	s, err := w.State(ctx, op)
	if err != nil {
		return Report{}, err
	}
	recs, err := w.ledger.Load(ctx, tenant, op)
	if err != nil {
		return Report{}, err
	}
	r := Report{
		Operation: op, Status: s.Status, ExternalIDs: s.ExternalIDs, Sent: w.wire.sent(op), Duplicate: s.Duplicate,
		Anomalies: len(s.Anomalies), Next: s.NextAction, NextAt: s.NextAt,
	}
	if s.Result != nil {
		r.ExternalID, r.Via = s.Result.ExternalID, s.Result.Via
	}
	if s.Rejection != nil {
		r.Via = s.Rejection.Via
	}
	if s.Review != nil {
		r.Review = s.Review.Reason
	}
	if !s.Status.Final() && s.Review == nil && w.blocked > 0 {
		r.Blocked = w.why
	}
	for _, a := range s.Attempts {
		r.Attempts = append(r.Attempts, Attempt{
			Number: a.Number, State: a.State, Why: cmp.Or(string(a.Proof), string(a.Unknown)), Basis: a.PermitBasis,
		})
	}
	for _, rec := range recs {
		switch e := rec.Data.(type) {
		case events.EvidenceRecorded:
			if e.Source == events.SourceLookup {
				r.Looks++
			}
		case events.RetryPermitted:
			r.Permits = append(r.Permits, e.Basis)
		}
		took := rec.Stamp.Sub(recs[0].Stamp)
		r.Took = max(r.Took, took)
		r.Events = append(r.Events, fmt.Sprintf("+%-10s %-18s %s", took.Round(time.Millisecond), rec.Data.Kind(), Gist(rec.Data)))
	}
	return r, nil
}

// Gist says in a few words what an event says.
func Gist(p events.Payload) string {
	switch d := p.(type) {
	case events.IntentRecorded:
		return fmt.Sprintf("%s at %s", d.Action, d.Provider)
	case events.AttemptStarted:
		if d.PermitID == "" {
			return fmt.Sprintf("attempt %d", d.Number)
		}
		return fmt.Sprintf("attempt %d, by its permit", d.Number)
	case events.OutcomeUnknown:
		return "it may have happened: " + string(d.Reason)
	case events.EvidenceRecorded:
		return strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", d.Source, d.Finding, strings.Join(slices.Concat(d.ExternalIDs, d.WeakMatches), ", "), d.Reason))
	case events.RetryPermitted:
		return fmt.Sprintf("by %s, not before %s", d.Basis, d.RetryAt.UTC().Format(time.DateTime))
	case events.ResultConfirmed:
		return fmt.Sprintf("object %s, via %s", d.ExternalID, d.Via)
	case events.Rejected:
		return fmt.Sprintf("%s, via %s", d.Reason, d.Via)
	case events.ReviewOpened:
		return fmt.Sprintf("%s: %s", d.Reason, d.Text)
	case events.AttemptNotApplied:
		return fmt.Sprintf("%s %s", d.Proof, d.Reason)
	case events.DuplicateFound:
		return strings.Join(d.ExternalIDs, ", ") + " by " + d.How
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%.80s", raw)
}

// Ending says in a few words how the operation ended, for a table.
func (r Report) Ending() string {
	words := []string{string(r.Status)}
	if r.Via != "" {
		words[0] += " (" + string(r.Via) + ")"
	}
	if r.Duplicate {
		words = append(words, "duplicate found")
	}
	if r.Review != "" {
		words = append(words, "review: "+string(r.Review))
	}
	if r.Blocked != "" {
		words = append(words, "blocked: "+string(r.Blocked))
	}
	if r.Anomalies > 0 {
		words = append(words, fmt.Sprintf("anomalies: %d", r.Anomalies))
	}
	return strings.Join(words, ", ")
}

// Judge holds a report against what must be true of every run, whatever went
// wrong. It returns what is not.
func (r Report) Judge(c operation.Contract) []string {
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	told := r.Duplicate || r.Review != ""
	switch r.Status {
	case operation.StatusConfirmed:
		if !slices.Contains(r.ObjectIDs, r.ExternalID) && !told {
			say("I19: confirmed as %s, and the provider's table holds %v", r.ExternalID, r.ObjectIDs)
		}
	case operation.StatusRejected:
		if r.Objects > 0 && r.Review == "" {
			say("I19: rejected, and the provider's table holds %v", r.ObjectIDs)
		}
	case operation.StatusPending, operation.StatusUnknown, operation.StatusInFlight, operation.StatusAbsent:
		if r.Review == "" && r.Next == events.NextNone {
			say("I12: %s without a next action or a review", r.Status)
		}
		if r.Review == "" && r.Blocked == "" {
			say("the run ended although the operation is %s and nobody is asked", r.Status)
		}
	}
	if r.Sent > len(r.Attempts) {
		say("I3: %d writes on the wire by %d attempts", r.Sent, len(r.Attempts))
	}
	if c.Class == operation.ClassLabel || c.Class == operation.ClassNone {
		if unsafe := r.mayHaveLanded(); unsafe > 1 && len(r.Permits) == 0 {
			say("I4: %d attempts may have had an effect, without a permit and without a key", unsafe)
		}
	}
	return wrong
}

// mayHaveLanded counts the attempts that are not proven to have had no effect.
func (r Report) mayHaveLanded() int {
	n := 0
	for _, a := range r.Attempts {
		if a.State != operation.AttemptNotApplied && a.State != operation.AttemptRefused {
			n++
		}
	}
	return n
}

// Shipped returns a contract that comes with the ledger, and the settings of
// the simulator that it describes.
func Shipped(name string) (*providers.File, simulator.Settings, error) {
	f, err := providers.Load(name)
	if err != nil {
		return nil, simulator.Settings{}, err
	}
	preset, ok := presetOf(name)
	if !ok {
		return nil, simulator.Settings{}, fmt.Errorf("trial: no preset of the simulator fits contract %s", name)
	}
	s, err := simulator.Preset(preset)
	return f, s, err
}

// presetOf returns the preset that a contract describes, where its name is
// another.
func presetOf(name string) (string, bool) {
	switch name {
	case "sim-keyed", "sim-keyed-nolookup":
		return "keyed", true
	case "sim-unique":
		return "unique", true
	case "sim-upsert":
		return "salesforce", true
	case "sim-crm":
		return "crm", true
	case "sim-nothing":
		return "nothing", true
	case "github":
		return "github-issues", slices.Contains(simulator.Presets(), "github-issues")
	}
	return "", false
}
