package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/simulator"
)

// Count is what the provider's object table holds.
type Count struct {
	Objects int `json:"objects"`
}

// Ledger is how the scenario ended through the ledger.
type Ledger struct {
	// Objects is what the provider's object table holds.
	Objects    int              `json:"objects"`
	Status     operation.Status `json:"status"`
	Review     bool             `json:"review"`
	ExternalID string           `json:"external_id"`
	Attempts   int              `json:"attempts"`
	// Kinds are the events of the operation, in order.
	Kinds []events.Kind `json:"kinds"`
	// Say is what a model or a user is told at the end.
	Say string `json:"say,omitempty"`
}

// Result is one line of the demo.
type Result struct {
	Scenario string `json:"scenario"`
	Class    string `json:"class"`
	Title    string `json:"title"`
	// Plain is the naive loop; null where it has no meaning.
	Plain  *Count `json:"plain"`
	Ledger Ledger `json:"ledger"`
	// Others are further operations of the scenario.
	Others []Ledger `json:"others,omitempty"`
	// Meanwhile is what a caller was told while the outcome was unknown.
	Meanwhile string  `json:"meanwhile,omitempty"`
	OK        bool    `json:"ok"`
	Problem   string  `json:"problem,omitempty"`
	Seconds   float64 `json:"seconds"`

	// Log holds the events of the first operation.
	Log []events.Record `json:"-"`
}

// Scenario is one thing that goes wrong.
type Scenario struct {
	Name, Title string
	class       class
	settings    map[string]any
	rules       []simulator.Rule
	vars        map[string]string
	executor    map[string]any
	roles       []string
	// plain and ledger play it; nil means the usual way.
	plain  func(ctx context.Context, e *env) error
	ledger func(ctx context.Context, e *env, l *ledger) ([]string, error)
	want   want
}

// want is how it must end, by the provider's table and the ledger's answer.
type want struct {
	plain, objects, attempts int
	status                   operation.Status
	review                   bool
	also                     func(r *Result) error
}

const title = "Call Ada about the offer"

// Run plays a scenario in its own folder under dir with the given binary. The
// error is for what kept it from being played; how it ended is in the result.
func (s Scenario) Run(ctx context.Context, binary, dir string) (r Result, err error) {
	began := time.Now()
	r = Result{Scenario: s.Name, Class: s.class.name, Title: s.Title}
	e, err := newEnv(ctx, binary, filepath.Join(dir, s.Name), s.class, s.settings, s.rules...)
	if e != nil {
		defer e.close()
	}
	if err != nil {
		return r, err
	}
	if err := s.playPlain(ctx, e, &r); err != nil {
		return r, fmt.Errorf("%s, plain: %w", s.Name, err)
	}
	if err := s.playLedger(ctx, e, &r); err != nil {
		return r, fmt.Errorf("%s, ledger: %w", s.Name, err)
	}
	r.judge(s.want)
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

func (s Scenario) playPlain(ctx context.Context, e *env, r *Result) error {
	if err := e.provider(ctx); err != nil {
		return err
	}
	play := s.plain
	if play == nil {
		play = func(ctx context.Context, e *env) error { return e.plainProcess(ctx, 0, 2) }
	}
	if err := play(ctx, e); err != nil {
		return err
	}
	objects, err := e.sim.Objects(ctx, simulator.ObjectFilter{})
	if err != nil {
		return err
	}
	r.Plain = &Count{Objects: len(objects)}
	return nil
}

func (s Scenario) playLedger(ctx context.Context, e *env, r *Result) error {
	if err := e.provider(ctx); err != nil {
		return err
	}
	l, err := e.ledger(ctx, s.vars, s.executor, s.roles...)
	if err != nil {
		return err
	}
	play := s.ledger
	if play == nil {
		play = func(ctx context.Context, _ *env, l *ledger) ([]string, error) {
			_, err := l.submit(ctx, "op-1", title)
			return []string{"op-1"}, err
		}
	}
	ids, err := play(ctx, e, l)
	if err != nil {
		return err
	}
	if e.restarted == nil {
		r.Meanwhile = meanwhile(ctx, l, ids[0])
	}
	var ends []Ledger
	for i, id := range ids {
		if e.restarted != nil {
			l = e.restarted
		}
		a, err := l.settled(ctx, id)
		if err != nil {
			return err
		}
		log, err := l.events(ctx, id)
		if err != nil {
			return err
		}
		if i == 0 {
			r.Log = log
		}
		ends = append(ends, ending(a, log))
	}
	objects, err := e.sim.Objects(ctx, simulator.ObjectFilter{})
	if err != nil {
		return err
	}
	for i := range ends {
		ends[i].Objects = len(objects)
	}
	r.Ledger, r.Others = ends[0], ends[1:]
	return r.compare(ctx, e, objects)
}

// meanwhile asks until the outcome is unknown or final and returns what is said
// of an unknown one.
func meanwhile(ctx context.Context, l *ledger, id string) (say string) {
	_ = poll(ctx, func() (bool, error) {
		a, err := l.Get(ctx, api.GetRequest{OperationID: id})
		if err == nil && a.Status == operation.StatusUnknown {
			say = a.Say
		}
		return say != "" || a.Status.Final(), err
	})
	return say
}

func ending(a api.Answer, log []events.Record) Ledger {
	end := Ledger{
		Status: a.Status, Review: a.Review != "", ExternalID: a.ExternalID, Attempts: a.Attempts, Say: a.Say,
	}
	for _, rec := range log {
		end.Kinds = append(end.Kinds, rec.Data.Kind())
	}
	return end
}

// compare holds every confirmed id against the provider's table.
func (r *Result) compare(_ context.Context, _ *env, objects []simulator.Object) error {
	for _, end := range append([]Ledger{r.Ledger}, r.Others...) {
		if end.Status != operation.StatusConfirmed {
			continue
		}
		if !slices.ContainsFunc(objects, func(o simulator.Object) bool { return o.ID == end.ExternalID }) {
			r.fail("the provider holds no object %q", end.ExternalID)
		}
	}
	return nil
}

func (r *Result) fail(format string, args ...any) {
	if r.Problem == "" {
		r.Problem = fmt.Sprintf(format, args...)
	}
}

func (r *Result) judge(w want) {
	if r.Plain != nil && r.Plain.Objects != w.plain {
		r.fail("plain made %d objects, expected %d", r.Plain.Objects, w.plain)
	}
	for _, end := range append([]Ledger{r.Ledger}, r.Others...) {
		switch {
		case end.Objects != w.objects:
			r.fail("the ledger made %d objects, expected %d", end.Objects, w.objects)
		case end.Status != w.status || end.Review != w.review:
			r.fail("ended %s (review %t), expected %s (review %t)", end.Status, end.Review, w.status, w.review)
		case end.Attempts != w.attempts:
			r.fail("%d attempts, expected %d", end.Attempts, w.attempts)
		}
	}
	if w.also != nil {
		if err := w.also(r); err != nil {
			r.fail("%v", err)
		}
	}
	r.OK = r.Problem == ""
}
