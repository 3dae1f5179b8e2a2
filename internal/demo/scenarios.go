package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/child"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers/simulator"
)

func k1() class {
	return class{name: "K1", provider: "keyed", contract: "sim-keyed", preset: "keyed", key: true}
}

func k1NoLookup() class {
	return class{name: "K1", provider: "keyed-nolookup", contract: "sim-keyed-nolookup", preset: "keyed", key: true}
}

func k4() class { return class{name: "K4", provider: "crm", contract: "sim-crm", preset: "crm"} }

func k5() class {
	return class{name: "K5", provider: "pager", contract: "sim-nothing", preset: "nothing"}
}

// quick scales the times of a contract down, so that the demo takes seconds.
func quick(more ...string) map[string]string {
	vars := map[string]string{"total": "1500ms", "late_apply": "500ms", "backoff_first": "200ms"}
	for i := 0; i+1 < len(more); i += 2 {
		vars[more[i]] = more[i+1]
	}
	return vars
}

func lagging(lag string) []string {
	return []string{"lag", lag, "schedule", "300ms, 700ms, 1s, 1s, 2s, 2s, 4s, 8s"}
}

func once(do simulator.Fault) simulator.Rule {
	return simulator.Rule{Method: "POST", PathPrefix: "/v1/tasks", Nth: 1, Times: 1, Do: do}
}

// All lists every scenario.
func All() []Scenario {
	var out []Scenario
	out = append(out, lost()...)
	out = append(out, workers()...)
	out = append(out, intents()...)
	return append(out, providerFaults()...)
}

// Named returns one scenario.
func Named(name string) (Scenario, error) {
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
	}
	return Scenario{}, fmt.Errorf("demo: no scenario %q", name)
}

// Default is the scenario that the demo tells as a story.
const Default = "lost-response"

func lost() []Scenario {
	return []Scenario{
		{
			Name: "lost-request", Title: "the request is lost on the way; the provider takes keys",
			class: k1(), rules: []simulator.Rule{once(simulator.LoseRequest)},
			vars: quick(append(lagging("1s"), "margin", "1m")...),
			want: want{plain: 1, objects: 1, status: operation.StatusConfirmed, attempts: 2},
		},
		{
			Name: "lost-request-no-key", Title: "the request is lost, and the provider offers nothing to find out",
			class: k5(), rules: []simulator.Rule{once(simulator.LoseRequest)}, vars: quick(),
			want: want{plain: 1, objects: 0, status: operation.StatusUnknown, review: true, attempts: 1},
		},
		{
			Name: Default, Title: "the task is created, the answer is lost",
			class: k4(), rules: []simulator.Rule{once(simulator.LoseResponse)}, settings: map[string]any{"index_lag": "1s"},
			vars: quick(lagging("2s")...),
			want: want{plain: 2, objects: 1, status: operation.StatusConfirmed, attempts: 1, also: wasUnknown},
		},
		{
			Name: "late-response", Title: "the answer arrives after the time-out, while the ledger is looking",
			class:    k4(),
			rules:    []simulator.Rule{{Method: "POST", PathPrefix: "/v1/tasks", Nth: 1, Times: 1, Do: simulator.Delay, After: simulator.Duration(3 * time.Second)}},
			settings: map[string]any{"index_lag": "1m"},
			vars:     quick("lag", "1m", "schedule", "100ms, 200ms, 5s, 30s"),
			executor: map[string]any{"lease_grace": "4s"},
			want:     want{plain: 2, objects: 1, status: operation.StatusConfirmed, attempts: 1, also: lateAnswer},
		},
		{
			Name: "no-idempotency-index-lag", Title: "the answer is lost, and the search is behind",
			class: k4(), rules: []simulator.Rule{once(simulator.LoseResponse)}, settings: map[string]any{"index_lag": "3s"},
			vars: quick(lagging("4s")...),
			want: want{plain: 2, objects: 1, status: operation.StatusConfirmed, attempts: 1, also: lookedBefore},
		},
	}
}

func workers() []Scenario {
	return []Scenario{
		{
			Name: "killed-before-record", Title: "kill -9 after the answer arrived and before it is recorded",
			class: k4(), rules: []simulator.Rule{once(simulator.Hold)}, settings: map[string]any{"index_lag": "1s"},
			vars: quick(append(lagging("2s"), "total", "5s")...), roles: []string{"api", "projector", "reconciler"},
			plain: plainKilled, ledger: ledgerKilled,
			want: want{plain: 2, objects: 1, status: operation.StatusConfirmed, attempts: 1, also: wasUnknown},
		},
		{
			Name: "two-workers", Title: "one operation is delivered to two processes at once",
			class: k4(), settings: map[string]any{"index_lag": "1s"}, vars: quick(lagging("2s")...),
			roles: []string{"api", "projector", "reconciler"}, plain: plainTwice, ledger: ledgerTwoWorkers,
			want: want{plain: 2, objects: 1, status: operation.StatusConfirmed, attempts: 1},
		},
		{
			Name: "repeat-after-restart", Title: "the agent forgets everything and asks again",
			class: k4(), vars: quick(lagging("2s")...), plain: plainAgain, ledger: ledgerRestarted,
			want: want{plain: 2, objects: 1, status: operation.StatusConfirmed, attempts: 1},
		},
	}
}

func intents() []Scenario {
	return []Scenario{
		{
			Name: "same-text-new-intent", Title: "the user really wants the same task twice",
			class: k4(), vars: quick(lagging("2s")...), plain: plainAgain,
			ledger: func(ctx context.Context, _ *env, l *ledger) ([]string, error) {
				for _, id := range []string{"op-1", "op-2"} {
					if _, err := l.submit(ctx, id, title); err != nil {
						return nil, err
					}
				}
				return []string{"op-1", "op-2"}, nil
			},
			want: want{plain: 2, objects: 2, status: operation.StatusConfirmed, attempts: 1},
		},
		{
			Name: "changed-arguments", Title: "the same id comes back with other words",
			class: k4(), vars: quick(lagging("2s")...), plain: plainAgain, ledger: ledgerChanged,
			want: want{plain: 2, objects: 1, status: operation.StatusConfirmed, attempts: 1},
		},
	}
}

func providerFaults() []Scenario {
	return []Scenario{
		{
			Name: "account-switch", Title: "the answer is lost, then the credential belongs to another account",
			class: k1(), rules: []simulator.Rule{once(simulator.LoseResponse)},
			vars: quick(append(lagging("1s"), "margin", "1m", "schedule", "2s, 2s")...), plain: plainSwitched, ledger: ledgerSwitched,
			want: want{plain: 2, objects: 1, status: operation.StatusUnknown, review: true, attempts: 1},
		},
		{
			Name: "key-expired", Title: "the answer is lost, and the provider forgets keys before a repeat is safe",
			class: k1NoLookup(), rules: []simulator.Rule{once(simulator.LoseResponse)},
			settings: map[string]any{"key_retention": "4s"},
			vars:     quick("retention", "4s", "margin", "1s"),
			plain:    func(ctx context.Context, e *env) error { return e.plainProcess(ctx, 5*time.Second, 2) },
			want:     want{plain: 2, objects: 1, status: operation.StatusUnknown, review: true, attempts: 1},
		},
		{
			Name: "rejected", Title: "the provider says no",
			class: k4(), vars: quick(lagging("2s")...),
			rules: []simulator.Rule{{
				Method: "POST", PathPrefix: "/v1/tasks", Do: simulator.StatusOnly, Status: 422,
				Body: `{"error":{"code":"invalid","message":"the project is archived"}}`,
			}},
			want: want{plain: 0, objects: 0, status: operation.StatusRejected, attempts: 1},
		},
	}
}

// plainProcess runs the naive loop in a process of its own.
func (e *env) plainProcess(ctx context.Context, pause time.Duration, tries int) error {
	p, err := e.plainStart(ctx, pause, tries)
	if err != nil {
		return err
	}
	select {
	case <-p.Done:
		return nil // whether it believes to have failed is not what counts
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *env) plainStart(ctx context.Context, pause time.Duration, tries int) (*child.Process, error) {
	args := []string{
		"demo", "plain", "--url", e.simURL, "--title", title, "--tries", strconv.Itoa(tries),
		"--pause", pause.String(), "--timeout", "1500ms",
	}
	if e.class.key {
		args = append(args, "--key", "plain-key-1")
	}
	return e.launch(ctx, "plain", args...)
}

// plainKilled kills the process after the provider committed and has it started
// again, as a supervisor does.
func plainKilled(ctx context.Context, e *env) error {
	p, err := e.plainStart(ctx, 0, 1)
	if err != nil {
		return err
	}
	if _, err := e.sim.WaitHeld(ctx, 1, 10*time.Second); err != nil {
		return err
	}
	p.Kill()
	return e.plainProcess(ctx, 0, 1)
}

// ledgerKilled freezes the executor once the provider has committed, lets the
// answer arrive at the frozen process, and kills it.
func ledgerKilled(ctx context.Context, e *env, l *ledger) ([]string, error) {
	x, err := e.executor(ctx, l, "executor-a", quick(append(lagging("2s"), "total", "5s")...))
	if err != nil {
		return nil, err
	}
	if _, err := l.submit(ctx, "op-1", title); err != nil {
		return nil, err
	}
	held, err := e.sim.WaitHeld(ctx, 1, 10*time.Second)
	if err != nil {
		return nil, err
	}
	if err := x.Freeze(ctx); err != nil {
		return nil, err
	}
	if _, err := e.sim.Release(ctx, held[0].Request); err != nil {
		return nil, err
	}
	if _, err := e.sim.WaitWritten(ctx, 1, 10*time.Second); err != nil {
		return nil, err
	}
	x.Kill()
	_, err = e.executor(ctx, l, "executor-a", quick(append(lagging("2s"), "total", "5s")...))
	return []string{"op-1"}, err
}

func plainTwice(ctx context.Context, e *env) error {
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		wg.Go(func() { errs[i] = e.plainProcess(ctx, 0, 1) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ledgerTwoWorkers lets two executor processes, each with a consumer of its
// own, get every event.
func ledgerTwoWorkers(ctx context.Context, e *env, l *ledger) ([]string, error) {
	for _, name := range []string{"executor-a", "executor-b"} {
		if _, err := e.executor(ctx, l, name, quick(lagging("2s")...)); err != nil {
			return nil, err
		}
	}
	_, err := l.submit(ctx, "op-1", title)
	return []string{"op-1"}, err
}

func plainAgain(ctx context.Context, e *env) error {
	return errors.Join(e.plainProcess(ctx, 0, 1), e.plainProcess(ctx, 0, 1))
}

// ledgerRestarted kills the whole ledger after the result and asks the new one.
func ledgerRestarted(ctx context.Context, e *env, l *ledger) ([]string, error) {
	if _, err := l.submit(ctx, "op-1", title); err != nil {
		return nil, err
	}
	first, err := l.settled(ctx, "op-1")
	if err != nil {
		return nil, err
	}
	l.p.Kill()
	again, err := e.serve(ctx, l.config)
	if err != nil {
		return nil, err
	}
	e.restarted = again
	a, err := again.submit(ctx, "op-1", title)
	if err != nil {
		return nil, err
	}
	if !a.Repeated || a.ExternalID != first.ExternalID {
		return nil, fmt.Errorf("the repeat was answered %+v, not with the stored result %s", a, first.ExternalID)
	}
	return []string{"op-1"}, nil
}

func ledgerChanged(ctx context.Context, _ *env, l *ledger) ([]string, error) {
	if _, err := l.submit(ctx, "op-1", title); err != nil {
		return nil, err
	}
	if _, err := l.submit(ctx, "op-1", title+" today"); !isConflict(err) {
		return nil, fmt.Errorf("other words under the same id were not answered with a conflict that names both digests: %w",
			cmp.Or(err, errors.New("they were taken")))
	}
	return []string{"op-1"}, nil
}

func (e *env) switchAccount(ctx context.Context) error {
	return e.sim.ChangeAccount(ctx, simulator.AccountChange{Token: simulator.DefaultToken, Account: "acct_2"})
}

func plainSwitched(ctx context.Context, e *env) error {
	if err := e.plainProcess(ctx, 0, 1); err != nil {
		return err
	}
	if err := e.switchAccount(ctx); err != nil {
		return err
	}
	return e.plainProcess(ctx, 0, 1)
}

func ledgerSwitched(ctx context.Context, e *env, l *ledger) ([]string, error) {
	if _, err := l.submit(ctx, "op-1", title); err != nil {
		return nil, err
	}
	err := poll(ctx, func() (bool, error) {
		a, err := l.Get(ctx, api.GetRequest{OperationID: "op-1"})
		return err == nil && a.Status == operation.StatusUnknown, err
	})
	if err != nil {
		return nil, err
	}
	return []string{"op-1"}, e.switchAccount(ctx)
}

func poll(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("demo: it did not happen: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func wasUnknown(r *Result) error {
	if !slices.Contains(r.Ledger.Kinds, events.KindOutcomeUnknown) {
		return errors.New("the outcome was never unknown")
	}
	return nil
}

// lookedBefore: at least one look found nothing, and nothing was sent for it.
func lookedBefore(r *Result) error {
	n := 0
	for _, rec := range r.Log {
		if e, ok := rec.Data.(events.EvidenceRecorded); ok && e.Finding == events.FindingInconclusive {
			n++
		}
	}
	if n == 0 {
		return errors.New("no look was inconclusive")
	}
	return wasUnknown(r)
}

// lateAnswer: the answer itself confirmed, and nothing is unknown after that.
func lateAnswer(r *Result) error {
	for i, rec := range r.Log {
		if c, ok := rec.Data.(events.ResultConfirmed); ok {
			if c.Via != events.ViaLateResponse {
				return fmt.Errorf("confirmed via %s", c.Via)
			}
			if slices.Contains(r.Ledger.Kinds[i:], events.KindOutcomeUnknown) {
				return errors.New("it went back to unknown")
			}
			return lookedBefore(r)
		}
	}
	return errors.New("never confirmed")
}
