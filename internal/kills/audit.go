package kills

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/simulator"
)

const (
	// settleTime bounds the wait until nothing happens by itself any more.
	settleTime = 90 * time.Second
	// settleEvery is how often the log is read for it.
	settleEvery = 500 * time.Millisecond
	// readTime bounds one read of the whole log, and one run of opledger verify.
	readTime = 60 * time.Second
	// maxProblems is how many problems are told of; all are counted.
	maxProblems = 50
)

// Verdict is what an audit found.
type Verdict struct {
	// Operations are those in the log, Acknowledged those in the load's file.
	Operations   int `json:"operations"`
	Acknowledged int `json:"acknowledged"`
	Events       int `json:"events"`
	Attempts     int `json:"attempts"`
	Objects      int `json:"objects"`
	Confirmed    int `json:"confirmed"`
	Rejected     int `json:"rejected"`
	// Unknown operations had an attempt with an unknown outcome at some time;
	// Resolved are those of them that ended by themselves, Reviews the rest: a
	// person is asked.
	Unknown  int `json:"unknown"`
	Resolved int `json:"unknown_resolved"`
	Reviews  int `json:"reviews"`
	// Lost are acknowledged intents that the log does not have, or has otherwise;
	// Duplicates operations with several objects; Wrong confirmed ones without
	// their object, and objects whose operation says otherwise; Stuck those that
	// neither ended nor ask a person.
	Lost       int `json:"lost"`
	Duplicates int `json:"duplicates"`
	Wrong      int `json:"wrong"`
	Stuck      int `json:"stuck"`
	// Problems says what was wrong, Found counts it.
	Problems []string `json:"problems"`
	Found    int      `json:"found"`
}

func (v *Verdict) problem(format string, args ...any) {
	if v.Found++; len(v.Problems) < maxProblems {
		v.Problems = append(v.Problems, fmt.Sprintf(format, args...))
	}
}

// plus adds another audit.
func (v *Verdict) plus(o Verdict) {
	v.Operations += o.Operations
	v.Acknowledged += o.Acknowledged
	v.Events += o.Events
	v.Attempts += o.Attempts
	v.Objects += o.Objects
	v.Confirmed += o.Confirmed
	v.Rejected += o.Rejected
	v.Unknown += o.Unknown
	v.Resolved += o.Resolved
	v.Reviews += o.Reviews
	v.Lost += o.Lost
	v.Duplicates += o.Duplicates
	v.Wrong += o.Wrong
	v.Stuck += o.Stuck
	v.Found += o.Found
	v.Problems = append(v.Problems, o.Problems...)
	v.Problems = v.Problems[:min(len(v.Problems), maxProblems)]
}

// history is what the log says of one operation.
type history struct {
	state     operation.State
	anomalies []operation.Anomaly
	events    int
	intents   int
	unknown   bool
}

// settled: it ended, or a person is asked.
func (h *history) settled() bool { return h.state.Status.Final() || h.state.Review != nil }

// readLog folds the whole log.
func (w *world) readLog(ctx context.Context, nc *nats.Conn) (map[string]*history, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	j, err := natsjournal.Open(ctx, nc, natsjournal.Config{
		Topology: natsjournal.Topology{Tenants: []string{tenant}, Replicas: w.replicas},
	})
	if err != nil {
		return nil, err
	}
	all := make(map[string]*history)
	err = j.Replay(ctx, natsjournal.ReplayOptions{Tenant: tenant}, func(r events.Record) error {
		if r.Err != nil {
			return fmt.Errorf("message %d: %w", r.Seq, r.Err)
		}
		h := all[r.Operation]
		if h == nil {
			h = &history{}
			all[r.Operation] = h
		}
		var anomaly operation.Anomaly
		if h.state, anomaly = operation.Evolve(h.state, r); anomaly.Reason != operation.AnomalyNone {
			h.anomalies = append(h.anomalies, anomaly)
		}
		h.events++
		switch r.Data.Kind() { //nolint:exhaustive // two are counted
		case events.KindIntentRecorded:
			h.intents++
		case events.KindOutcomeUnknown:
			h.unknown = true
		}
		return nil
	})
	return all, err
}

// audit waits until everything that was acknowledged is settled, and holds the log
// against the load's file and the providers' tables.
func (w *world) audit(ctx context.Context) (Verdict, error) {
	var v Verdict
	acked, err := readFile(filepath.Join(w.dir, "acknowledged.jsonl"))
	if err != nil {
		return v, err
	}
	nc, err := w.connect(ledgerUser, w.ledgerPw)
	if err != nil {
		return v, err
	}
	defer nc.Close()
	if !until(ctx, startTime, nc.IsConnected) {
		return v, errors.New("kills: no server answers the audit")
	}
	all, err := w.settle(ctx, nc, acked)
	if err != nil {
		return v, err
	}
	v.Operations = len(all)
	seen := make(map[string]bool)
	for _, wish := range acked {
		seen[wish.ID] = true
		if all[wish.ID] == nil {
			v.Lost++
			v.problem("%s was acknowledged (inbox: %v) and is not in the log", wish.ID, wish.Inbox)
			continue
		}
		if what := differs(wish, all[wish.ID]); what != "" {
			v.Lost++
			v.problem("%s: %s", wish.ID, what)
		}
	}
	v.Acknowledged = len(seen)
	if err := w.auditObjects(ctx, &v, all); err != nil {
		return v, err
	}
	for id, h := range all {
		v.count(id, h)
	}
	w.load.mu.Lock()
	for _, text := range w.load.wrong {
		v.problem("%s", text)
	}
	w.load.mu.Unlock()
	v.verify(ctx, w)
	return v, w.alarms(&v)
}

// alarm begins the line in which a ledger says that its log is damaged. Nobody
// damages a log here.
const alarm = "INTEGRITY ALARM"

// alarms looks for false alarms in what the processes said.
func (w *world) alarms(v *Verdict) error {
	logs, err := filepath.Glob(filepath.Join(w.dir, "*.log"))
	if err != nil {
		return fmt.Errorf("kills: %w", err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("kills: %w", err)
		}
		for line := range bytes.Lines(text) {
			if bytes.Contains(line, []byte(alarm)) {
				v.problem("%s: %s", filepath.Base(path), bytes.TrimSpace(line))
			}
		}
	}
	return nil
}

// settle reads the log until every acknowledged intent is settled, or for too long.
func (w *world) settle(ctx context.Context, nc *nats.Conn, acked []intent) (map[string]*history, error) {
	for deadline := time.Now().Add(settleTime); ; {
		all, err := w.readLog(ctx, nc)
		late := time.Now().After(deadline)
		if err != nil && late {
			return nil, fmt.Errorf("kills: read the log: %w", err)
		}
		done := err == nil && !slices.ContainsFunc(acked, func(i intent) bool { return all[i.ID] == nil })
		for _, h := range all {
			done = done && h.settled()
		}
		if done || late {
			return all, nil
		}
		if !pause(ctx, settleEvery) {
			return nil, ctx.Err()
		}
	}
}

// differs says how the log's intent is not the one that was acknowledged.
func differs(wish intent, h *history) string {
	if h.intents != 1 {
		return fmt.Sprintf("%d intents are recorded", h.intents)
	}
	args := h.args()
	if h.state.Intent.Provider != wish.Provider || args.Title != wish.Title || args.Note != wish.Note {
		return fmt.Sprintf("acknowledged as %+v, recorded for %s as %+v", wish, h.state.Intent.Provider, args)
	}
	return ""
}

// arguments are those of every intent of a load.
type arguments struct {
	Title string `json:"title"`
	Note  string `json:"note"`
}

// args are the recorded arguments; empty if they can't be read.
func (h *history) args() (a arguments) {
	_ = json.Unmarshal(h.state.Intent.Args, &a)
	return a
}

// auditObjects holds every operation against the tables.
func (w *world) auditObjects(ctx context.Context, v *Verdict, all map[string]*history) error {
	for _, p := range w.providers {
		objects, err := p.sim.Objects(ctx, simulator.ObjectFilter{})
		if err != nil {
			return err
		}
		v.Objects += len(objects)
		made := make(map[string][]string)
		for _, o := range objects {
			made[o.Title] = append(made[o.Title], o.ID)
		}
		for id, h := range all {
			if h.state.Intent.Provider != p.name {
				continue
			}
			title := "task " + id
			v.object(p, id, h.state, made[title])
			delete(made, title)
		}
		for title, ids := range made {
			v.Wrong++
			v.problem("%s has %q as %v, and the log has no such operation", p.name, title, ids)
		}
	}
	return nil
}

// object holds one operation against the objects that it has.
func (v *Verdict) object(p *provider, id string, s operation.State, ids []string) {
	switch {
	case len(ids) > 1:
		v.Duplicates++
		v.problem("%s (%s) has %d objects after %d attempts", id, p.class, len(ids), s.Started)
	case s.Status == operation.StatusConfirmed && (s.Result == nil || !slices.Equal(ids, []string{s.Result.ExternalID})):
		v.Wrong++
		v.problem("%s (%s) is confirmed as %+v, the provider has %v", id, p.class, s.Result, ids)
	case s.Status == operation.StatusRejected:
		v.Wrong++
		v.problem("%s (%s) was rejected (%+v); the provider has %v", id, p.class, s.Rejection, ids)
	case s.Status == operation.StatusUnknown && len(ids) == 1 && p.class != operation.ClassNone:
		v.Wrong++
		v.problem("%s (%s) stayed unknown, and the provider shows %v", id, p.class, ids)
	case s.Status == operation.StatusUnknown && p.repeats():
		v.Stuck++
		v.problem("%s (%s) stayed unknown after %d attempts although the contract helps: %+v", id, p.class, s.Started, s.Review)
	}
}

// count counts one operation and what its history must never hold.
func (v *Verdict) count(id string, h *history) {
	v.Events += h.events
	v.Attempts += h.state.Started
	switch h.state.Status {
	case operation.StatusConfirmed:
		v.Confirmed++
	case operation.StatusRejected:
		v.Rejected++
	case operation.StatusAbsent, operation.StatusPending, operation.StatusInFlight, operation.StatusUnknown:
	}
	if h.unknown {
		v.Unknown++
	}
	switch {
	case h.state.Review != nil:
		v.Reviews++
	case !h.settled():
		v.Stuck++
		v.problem("%s is %s and neither ended nor asks a person: next %s at %s", id, h.state.Status, h.state.NextAction, h.state.NextAt)
	case h.unknown:
		v.Resolved++
	}
	for _, a := range h.anomalies {
		v.problem("%s: anomaly %+v", id, a)
	}
}

// verify runs opledger verify: chains, gaps, projection = fold of the log. It goes
// on while the projection catches up.
func (v *Verdict) verify(ctx context.Context, w *world) {
	var out []byte
	ok := until(ctx, readTime, func() bool {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		cmd := exec.CommandContext(ctx, w.bin.Ledger, "verify", "--config", w.config)
		cmd.Env = append(os.Environ(), w.environ...)
		var err error
		out, err = cmd.CombinedOutput()
		return err == nil
	})
	if !ok {
		v.problem("opledger verify: %s", bytes.TrimSpace(out))
	}
}
