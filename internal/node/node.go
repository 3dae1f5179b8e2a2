package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/executor"
	"github.com/opledger/opledger/intake"
	"github.com/opledger/opledger/internal/barrier"
	"github.com/opledger/opledger/internal/clock"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/dispatch"
	"github.com/opledger/opledger/internal/integrity"
	"github.com/opledger/opledger/internal/metrics"
	"github.com/opledger/opledger/internal/natsapi"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/internal/natswork"
	"github.com/opledger/opledger/internal/pool"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/projections"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/reconciler"
)

// The roles of a process.
const (
	RoleAPI        = "api"
	RoleProjector  = "projector"
	RoleExecutor   = "executor"
	RoleReconciler = "reconciler"
)

// Roles lists every role.
func Roles() []string { return []string{RoleAPI, RoleProjector, RoleExecutor, RoleReconciler} }

// Options is what a node is started with.
type Options struct {
	Config *config.Config
	// Roles to play; empty means all.
	Roles   []string
	Version string
	Logger  *slog.Logger
}

// Node is a running process of the ledger.
type Node struct {
	opts    Options
	cfg     *config.Config
	log     *slog.Logger
	server  *embedded
	conn    *nats.Conn
	journal *natsjournal.Journal
	worker  string

	store     *projections.Store
	index     *projections.Index
	projector *projections.Projector
	contracts *projections.Contracts
	registry  *providers.Registry
	catalogue *catalogue
	clock     *logClock
	guard     *guard
	memory    *memory
	own       *own
	pool      *pool.Pool
	metrics   *metrics.Metrics
	writer    *writer.Writer
	api       *natsapi.Server
	http      *httpServer
	executors *dispatch.Dispatcher
	looks     *dispatch.Dispatcher
	// freed tells the executor that an operation may have let go of its scope.
	freed func(dispatch.Key)
	pace  *dispatch.Pace // of both: a provider's limit counts their requests together

	// stopping is closed when the node stops; failed gets the first error of a
	// part that must not end.
	stopping chan struct{}
	once     sync.Once
	stopped  error
	failed   chan error
	// first ends before work, and work before last: what takes work in, what
	// works, and what the work needs.
	first, work, last *stage
}

// stage is a group of goroutines that are stopped together.
type stage struct {
	ctx    context.Context //nolint:containedctx // the life of the stage's goroutines
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newStage(ctx context.Context) *stage {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &stage{ctx: ctx, cancel: cancel}
}

func (st *stage) stop() {
	st.cancel()
	st.wg.Wait()
}

// Start starts a node and returns when it records and answers. Where the log is
// long, attempts wait until it has been checked (I16); Checking tells. ctx bounds
// the start only; Stop or Wait ends the node.
func Start(ctx context.Context, opts Options) (*Node, error) {
	if len(opts.Roles) == 0 {
		opts.Roles = Roles()
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Node{
		opts: opts, cfg: opts.Config, log: opts.Logger, failed: make(chan error, 1),
		stopping: make(chan struct{}), memory: newMemory(), own: newOwn(), pool: new(pool.Pool), pace: dispatch.NewPace(),
		metrics: metrics.New(opts.Version),
	}
	n.first, n.work, n.last = newStage(ctx), newStage(ctx), newStage(ctx)
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

func (n *Node) plays(role string) bool { return slices.Contains(n.opts.Roles, role) }

func (n *Node) start(ctx context.Context) error {
	if err := n.open(ctx); err != nil {
		return err
	}
	if err := n.parts(ctx); err != nil {
		return err
	}
	n.run(n.last, "clock", n.clock.run)
	if n.server != nil && n.server.barrier != nil {
		n.run(n.last, "barrier", n.journal.ServeBarrier)
	}
	n.run(n.last, "guard", n.guard.run)
	n.awaitVerdict(ctx)
	if err := n.roles(ctx); err != nil {
		return err
	}
	n.index.Listen(n.opened)
	if n.plays(RoleProjector) {
		n.run(n.last, "projector", n.projector.Run)
	}
	n.run(n.last, "index", n.index.Run)
	if err := n.serveHTTP(ctx); err != nil {
		return err
	}
	return n.untilReady(ctx)
}

// awaitVerdict lets the guard check a log that is not long before the roles
// start, so that no lane is blocked for it. A long one is not waited for.
func (n *Node) awaitVerdict(ctx context.Context) {
	late := time.NewTimer(firstVerdict)
	defer late.Stop()
	for !n.guard.Checked() && !n.guard.long() {
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// open connects and opens the journal, behind the guard at the start.
func (n *Node) open(ctx context.Context) error {
	var err error
	if n.cfg.NATS.URL == "" {
		if !n.plays(RoleAPI) { // intents for the inboxes come to the server alone
			own := *n.cfg
			own.NATS.Sync = config.SyncAlways
			n.cfg = &own
		}
		if n.server, err = startEmbedded(n.cfg, n.log); err != nil {
			return err
		}
		n.worker = n.server.identity + "#" + strings.ToLower(rand.Text()[:8])
	} else {
		host, _ := os.Hostname()
		n.worker = cmp.Or(host, "worker") + "-" + strings.ToLower(rand.Text()[:12])
	}
	if n.conn, err = connect(n.cfg, n.server, "opledger "+n.worker, n.log); err != nil {
		return err
	}
	n.conn.SetClosedHandler(func(nc *nats.Conn) {
		select {
		case <-n.stopping:
		case n.failed <- fmt.Errorf("node: the connection to NATS was closed: %w", cmp.Or(nc.LastError(), errors.New("no reason given"))):
		default:
		}
	})
	js, err := jetstream.New(n.conn)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	topology := Topology(n.cfg)
	if err := n.journalGone(ctx, js, topology); err != nil {
		return err
	}
	report, err := natsjournal.Setup(ctx, js, topology)
	if err != nil {
		return err
	}
	if len(report.Missing) > 0 {
		n.log.LogAttrs(ctx, slog.LevelInfo, "created what was missing", slog.Any("streams", report.Missing))
	}
	durability := natsjournal.Durability{AcceptWeaker: n.cfg.NATS.AllowWeak}
	if n.server != nil || n.cfg.NATS.AssertSync {
		durability.Sync = natsjournal.SyncAlways
	}
	warnings, err := natsjournal.Check(ctx, js, n.conn, topology, durability)
	for _, w := range warnings {
		n.log.LogAttrs(ctx, slog.LevelWarn, "WEAK SETTING", slog.String("what", w))
	}
	// A damaged log starts: the guard keeps attempts from it, while intents and
	// outcomes are recorded.
	if weak, ok := errors.AsType[*natsjournal.WeakError](err); err != nil && (!ok || !weak.OnlyDamage()) {
		return err
	}
	jc := natsjournal.Config{Topology: topology, Apart: n.cfg.NATS.Apart, Own: n.own.knows, Logger: n.log}
	if n.server != nil {
		if err := n.server.openBarrier(n.cfg); err != nil {
			return err
		}
		if n.server.barrier != nil {
			jc.Barrier = vital{n.server.barrier, n.failed}
		}
	}
	n.journal, err = natsjournal.Open(ctx, n.conn, jc)
	return err
}

// vital is a barrier whose failure ends the process: what is on the disk nobody
// knows then, and a sync that is tried again may say that all is well.
type vital struct {
	*barrier.Store
	failed chan<- error
}

// Sync implements natsjournal.Barrier.
func (v vital) Sync(stream string) error {
	err := v.Store.Sync(stream)
	if err != nil && !errors.Is(err, barrier.ErrNoStream) && !errors.Is(err, os.ErrClosed) {
		select {
		case v.failed <- err:
		default:
		}
	}
	return err
}

// journalGone refuses to make a new journal where one has been: it would have
// another ledger id, and every repeat of a known intent would be sent again.
func (n *Node) journalGone(ctx context.Context, js jetstream.JetStream, topology natsjournal.Topology) error {
	path := n.cfg.Path(n.cfg.Integrity.HighWater)
	mark, err := integrity.Load(path)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	if mark = telling(mark); mark == nil {
		return nil
	}
	plan, err := natsjournal.Plan(ctx, js, topology)
	if err != nil || !slices.Contains(plan.Missing, topology.Names().Events) {
		return err
	}
	return fmt.Errorf("node: %w: this process has seen %d messages of ledger %s (%s): restore the store from its backup; "+
		"only if the ledger is to forget everything, move that file away", ErrJournalGone, mark.Seq, mark.Ledger, path)
}

// ErrJournalGone says that the journal was lost as a whole.
var ErrJournalGone = errors.New("the journal is gone")

// Topology is the topology that a configuration asks for.
func Topology(cfg *config.Config) natsjournal.Topology {
	return natsjournal.Topology{Subjects: cfg.Subjects(), Tenants: cfg.TenantIDs(), Replicas: cfg.NATS.Replicas}
}

func (n *Node) projectionConfig() projections.Config {
	return projections.Config{
		Conn: n.conn, Prefix: n.journal.Names().Prefix, Subjects: n.cfg.Subjects(),
		Log: n.journal, Streams: n.journal, Logger: n.log,
	}
}

// parts makes what every role needs.
func (n *Node) parts(ctx context.Context) error {
	var err error
	pc := n.projectionConfig()
	if n.store, err = projections.NewStore(pc); err != nil {
		return err
	}
	if n.index, err = projections.NewIndex(pc); err != nil {
		return err
	}
	if n.projector, err = projections.NewProjector(pc, n.applied); err != nil {
		return err
	}
	if n.contracts, err = projections.NewContracts(pc); err != nil {
		return err
	}
	if n.clock, err = newClock(ctx, n.journal, n.log); err != nil {
		return err
	}
	n.guard, err = newGuard(guardConfig{
		Log: n.journal, Subjects: n.cfg.Subjects(), File: n.cfg.Path(n.cfg.Integrity.HighWater), Actor: n.worker,
		Checkpoints: n.plays(RoleProjector), Replicated: n.cfg.NATS.Replicas > 1, Connects: func() uint64 { return n.conn.Stats().Reconnects }, Forget: n.memory.forget,
		Logger: n.log,
	})
	if err != nil {
		return err
	}
	files, accounts, err := loadProviders(n.cfg)
	if err != nil {
		return err
	}
	line, err := natswork.New(natswork.Config{Conn: n.conn, Subjects: n.cfg.Subjects()})
	if err != nil {
		return err
	}
	n.registry, err = providers.NewRegistry(files, contractStore{n.contracts}, providers.RegistryOptions{
		Now: n.clock.Now, Line: line, AllowHosts: n.cfg.Egress.AllowHosts,
	})
	if err != nil {
		return err
	}
	n.catalogue = &catalogue{
		registry: n.registry, contracts: n.contracts, accounts: accounts, providers: make(map[string]bool),
	}
	for _, f := range files {
		n.catalogue.providers[f.File.Provider] = true
	}
	n.warnSecrets(ctx)
	if err := n.catalogue.keep(ctx, files); err != nil {
		return err
	}
	n.writer, err = writer.New(writer.Config{
		Journal: ownJournal{journal{n.journal}, n.own, n.stored}, Ledger: n.journal.Ledger(), Now: n.clock.Now,
		Observe: n.wrote,
	})
	return err
}

// wrote is told of every event that this process has stored. Whoever waits for
// the operation, and the role that has the next thing to do, hear of it at once;
// the consumers of the log and the projection are the net below.
func (n *Node) wrote(before, after operation.State, e events.Event) {
	n.memory.wrote(after)
	n.metrics.Appended(before, after, e)
	n.index.Tell(after)
	k, kind := dispatch.Key{Tenant: after.Tenant, Operation: after.OperationID}, e.Data.Kind()
	n.tellExecutor(k, kind, after.Version)
	n.tellReconciler(k, kind, after.Version)
}

// stored is told of an intent that this process has stored and that is not durable
// yet. Its attempt can be made ready meanwhile: it is sent behind the acknowledgement
// of AttemptStarted, which is durable only together with everything before it.
func (n *Node) stored(rec events.Record) {
	if n.executors == nil || rec.Data.Kind() != events.KindIntentRecorded {
		return
	}
	rec.Stamp = n.clock.Now()
	s, _ := operation.Evolve(operation.State{}, rec)
	if s.NextAction == events.NextAttempt {
		n.memory.stored(s)
		n.executors.News(dispatch.Key{Tenant: s.Tenant, Operation: s.OperationID}, s.Version)
	}
}

// tellExecutor tells of an event, if this process executes.
func (n *Node) tellExecutor(k dispatch.Key, kind events.Kind, version uint64) {
	if n.executors == nil {
		return
	}
	if freesScope(kind) {
		n.freed(k)
	}
	if wakesExecutor(kind) {
		n.executors.News(k, version)
	}
}

// tellReconciler tells of an event, if this process reconciles.
func (n *Node) tellReconciler(k dispatch.Key, kind events.Kind, version uint64) {
	if n.looks != nil && wakesReconciler(kind) {
		n.looks.News(k, version)
	}
}

// applied is told of every state that the projection holds now.
func (n *Node) applied(s operation.State) {
	n.memory.applied(s) // before the waiters are told: they read it
	n.index.Apply(s)
}

func (n *Node) states() states {
	return states{Store: n.store, index: n.index, memory: n.memory, follows: n.plays(RoleProjector), alarm: n.guard.Alarm, apart: n.server != nil && n.server.barrier != nil}
}

// warnSecrets says at the start which accounts can't be used here, instead of
// letting their operations wait without a word.
func (n *Node) warnSecrets(ctx context.Context) {
	for _, p := range n.cfg.Providers {
		for _, a := range p.Accounts {
			for name, ref := range a.Secrets {
				if _, err := secret(ref); err != nil {
					n.log.LogAttrs(ctx, slog.LevelWarn, "secret not found; this process leaves the account's operations to others",
						slog.String("account", a.ID), slog.String("secret", name), slog.Any("err", err))
				}
			}
		}
	}
}

// roles starts what this process does beside serving.
func (n *Node) roles(ctx context.Context) error {
	// Both are made before one runs: each is told of what the other writes.
	var begin []func()
	if n.plays(RoleReconciler) {
		run, err := n.makeReconciler()
		if err != nil {
			return err
		}
		begin = append(begin, run)
	}
	if n.plays(RoleExecutor) {
		run, err := n.makeExecutor()
		if err != nil {
			return err
		}
		begin = append(begin, run)
	}
	for _, run := range begin {
		run()
	}
	n.run(n.first, "sweeper", n.sweep)
	if n.plays(RoleAPI) {
		return n.startAPI(ctx)
	}
	return nil
}

// makeExecutor returns what starts it.
func (n *Node) makeExecutor() (run func(), err error) {
	c, err := projections.NewClaims(n.projectionConfig())
	if err != nil {
		return nil, err
	}
	known := n.states()
	known.early = true
	x, err := executor.New(executor.Config{
		Recorder: n.writer, States: known, Stamps: n.journal, Scopes: journal{n.journal}, Adapters: n.registry,
		Claims: claims{c, n.clock.Now, n.cfg.Executor.ClockError}, Worker: n.worker, LeaseGrace: n.cfg.Executor.LeaseGrace, ClockError: n.cfg.Executor.ClockError,
		Width: n.cfg.Executor.Width, Now: n.clock.Now, Clock: clock.Real(n.pool.Go), Random: mathrand.Float64, Logger: n.log,
		Observe: executor.Observer{
			Outcome: n.metrics.Outcome, ClaimConflict: n.metrics.ClaimConflict, AppendConflict: n.metrics.Overtaken,
			Blocked: func(provider string, r executor.BlockedReason) { n.metrics.Blocked(provider, string(r)) },
		},
		Alarm: n.guard.Alarm, LookFirst: n.guard.LookFirst,
		Elsewhere: func(k dispatch.Key, version uint64) {
			if n.looks != nil {
				n.looks.Wake(k, version)
			}
		},
		Free: func(k dispatch.Key) { n.executors.Wake(k, 0) },
	})
	if err != nil {
		return nil, err
	}
	n.freed = x.Freed
	n.executors, err = dispatch.New(dispatch.Config{Planner: x, Go: n.pool.Go, Pace: n.pace, Drain: n.cfg.Executor.Drain, Now: n.clock.Now, Logger: n.log})
	if err != nil {
		return nil, err
	}
	return func() {
		n.run(n.work, "executor", n.executors.Run)
		n.follow(n.cfg.Executor.Consumer, n.tellExecutor)
	}, nil
}

// makeReconciler returns what starts it.
func (n *Node) makeReconciler() (run func(), err error) {
	predecessors := ""
	if n.server != nil {
		predecessors = n.server.identity
	}
	r, err := reconciler.New(reconciler.Config{
		Recorder: n.writer, States: n.states(), Adapters: n.registry, Worker: n.worker, Predecessors: predecessors,
		LeaseGrace: n.cfg.Executor.LeaseGrace, ClockError: n.cfg.Executor.ClockError, Width: n.cfg.Executor.Width,
		Now: n.clock.Now, Random: mathrand.Float64, Logger: n.log,
		Observe: reconciler.Observer{Looked: n.metrics.Looked, Lagged: n.metrics.Lagged, Decided: n.metrics.Decided},
	})
	if err != nil {
		return nil, err
	}
	n.looks, err = dispatch.New(dispatch.Config{Planner: r, Go: n.pool.Go, Pace: n.pace, Drain: n.cfg.Executor.Drain, Now: n.clock.Now, Logger: n.log})
	if err != nil {
		return nil, err
	}
	return func() {
		n.run(n.work, "reconciler", n.looks.Run)
		n.follow(RoleReconciler, n.tellReconciler)
	}, nil
}

// follow tells a role of the events that others have written: hints that name a
// version. A new consumer begins with new events; what is open already comes from
// the index.
func (n *Node) follow(durable string, tell func(k dispatch.Key, kind events.Kind, version uint64)) {
	n.run(n.first, "consumer "+durable, func(ctx context.Context) error {
		return n.journal.Follow(ctx, natsjournal.FollowOptions{Durable: durable, Gather: n.server != nil}, func(h natsjournal.Hint) {
			heed := func() { tell(dispatch.Key{Tenant: h.Tenant, Operation: h.Operation}, h.Kind, h.Version) }
			if !n.own.wrote(h.ID, heed) {
				heed()
			}
		})
	})
}

// freesScope: after these events an operation may be in doubt no longer.
func freesScope(k events.Kind) bool {
	switch k { //nolint:exhaustive // the others leave everything in doubt
	case events.KindResultConfirmed, events.KindRejected, events.KindAttemptNotApplied:
		return true
	}
	return false
}

// wakesExecutor: after these events an attempt may be allowed.
func wakesExecutor(k events.Kind) bool {
	switch k { //nolint:exhaustive // the others allow nothing
	case events.KindIntentRecorded, events.KindApprovalGranted, events.KindRetryPermitted,
		events.KindAttemptNotApplied, events.KindReviewUpdated, events.KindReviewClosed:
		return true
	}
	return false
}

// wakesReconciler: after everything else there may be something to find out or
// to decide, also after a message that could not be read.
func wakesReconciler(k events.Kind) bool {
	switch k { //nolint:exhaustive // the others wake it
	case events.KindIntentRecorded, events.KindApprovalGranted, events.KindRetryPermitted,
		events.KindAttemptStarted, events.KindResultConfirmed, events.KindRejected:
		return false
	}
	return true
}

// opened is told by the index of every operation that has something to come, and
// of those that have not any more.
func (n *Node) opened(o projections.Open, first bool) {
	if k, known := n.memory.get(o.Tenant, o.OperationID); known && !k.early && k.state.LastSeq > o.LastSeq {
		return // it will be told of that
	}
	k := dispatch.Key{Tenant: o.Tenant, Operation: o.OperationID}
	switch o.NextAction {
	case events.NextAttempt:
		if n.executors != nil {
			n.executors.Schedule(k, o.NextAt, o.Version)
		}
	case events.NextReconcile, events.NextOutcome, events.NextApproval:
		at := o.NextAt
		if o.NextAction == events.NextOutcome && n.server != nil && first {
			at = n.clock.Now() // found at the start: its worker may be a dead predecessor
		}
		if o.NextAction == events.NextReconcile && at.IsZero() {
			at = n.clock.Now() // at once
		}
		if n.looks != nil && !at.IsZero() {
			n.looks.Schedule(k, at, o.Version)
		}
	case events.NextNone:
		for _, d := range []*dispatch.Dispatcher{n.executors, n.looks} {
			if d != nil {
				d.Settled(k, o.Version)
			}
		}
	case events.NextDecision:
	}
}

// sweepEvery is how often overdue operations are planned anew, whatever else
// was missed.
const sweepEvery = 15 * time.Second

// sweep is the net under everything that wakes operations.
func (n *Node) sweep(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for round := 0; ; round++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for i, o := range n.index.Due(n.clock.Now().Add(-sweepEvery), overdue, sweepLimit) {
			if i%sweepPart == sweepPart-1 {
				select { // what waits behind a provider that is stuck must not be a load for the others
				case <-ctx.Done():
					return nil
				case <-time.After(sweepPause):
				}
			}
			k := dispatch.Key{Tenant: o.Tenant, Operation: o.OperationID}
			if n.executors != nil {
				n.executors.Wake(k, o.Version)
			}
			// Of what waits for an attempt the reconciler ends what has no time left.
			if n.looks != nil && (o.NextAction != events.NextAttempt || n.executors == nil || round%sweepRounds == 0) {
				n.looks.Wake(k, o.Version)
			}
		}
	}
}

const (
	sweepLimit = 100_000
	// sweepPart is how many operations are woken before a pause of sweepPause,
	// sweepRounds in which of the sweeps the reconciler is told of overdue attempts.
	sweepPart   = 100
	sweepPause  = 100 * time.Millisecond
	sweepRounds = 4
)

// overdue: what happens by itself.
func overdue(a events.NextAction) bool { return a != events.NextDecision && a != events.NextNone }

func (n *Node) startAPI(ctx context.Context) error {
	var tenants []intake.Tenant
	for _, t := range n.cfg.Tenants {
		tenants = append(tenants, intake.Tenant{ID: t.ID, ApprovalInSubmit: t.ApprovalInSubmit, HoldRepeats: t.PossibleRepeats == config.HoldRepeats})
	}
	svc, err := intake.New(intake.Config{
		Recorder: n.writer, States: n.states(), Catalogue: n.catalogue, Ledger: n.journal.Ledger(),
		Tenants: tenants, Earlier: n.index.Earlier, Scopes: journal{n.journal}, Actor: n.worker, Now: n.clock.Now, Random: mathrand.Float64, Observe: n.metrics.Intent, Logger: n.log,
	})
	if err != nil {
		return err
	}
	var gate *natsapi.Gate
	if n.server != nil && n.server.barrier != nil {
		names := n.journal.Names()
		gate = &natsapi.Gate{Publisher: n.journal, Events: names.Events, Refused: names.Refused}
	}
	version, _, _ := strings.Cut(n.opts.Version, "+")
	n.api, err = natsapi.Start(ctx, natsapi.Config{
		Conn: n.conn, Subjects: n.cfg.Subjects(), Service: svc, Version: cmp.Or(version, "0.0.0"), Stats: n.stats, Logger: n.log,
		Gate: gate, Go: n.pool.Go,
	})
	if err != nil {
		return err
	}
	for _, t := range n.cfg.Tenants {
		n.run(n.first, "inbox "+t.ID, func(ctx context.Context) error {
			return n.journal.Inbox(ctx, t.ID, func(ctx context.Context, m natsjournal.InboxMessage) error {
				_, err := natsapi.Inbox(ctx, n.log, svc, n.journal, m.Tenant, m.Data, m.Seq, m.Stamp)
				return err
			})
		})
	}
	return nil
}

// stats is shown by the service's STATS verb.
func (n *Node) stats() any {
	s := n.snapshot()
	out := struct {
		Unknown       int     `json:"unknown"`
		OldestUnknown float64 `json:"oldest_unknown_seconds"`
		Reviews       int     `json:"reviews"`
	}{}
	for _, g := range s.Open {
		if g.Status == string(operation.StatusUnknown) {
			out.Unknown += g.Count
			out.OldestUnknown = max(out.OldestUnknown, time.Since(g.Oldest).Seconds())
		}
	}
	for _, c := range s.Reviews {
		out.Reviews += c
	}
	return out
}

// run starts a part that must not end before its stage does.
func (n *Node) run(st *stage, name string, fn func(context.Context) error) {
	st.wg.Go(func() {
		err := fn(st.ctx)
		if st.ctx.Err() != nil {
			return
		}
		select {
		case n.failed <- fmt.Errorf("node: %s ended: %w", name, cmp.Or(err, errors.New("no reason given"))):
		default:
		}
	})
}

// stillEvery is how often a start that takes long says why.
const stillEvery = 10 * time.Second

// untilReady waits until the index has its first picture and the projection has
// caught up with what was in the log at the start. That may take as long as
// making the projection anew takes, so only ctx bounds it.
func (n *Node) untilReady(ctx context.Context) error {
	still := time.NewTicker(stillEvery)
	defer still.Stop()
	for {
		err := n.complete(ctx)
		if err == nil {
			return nil
		}
		select {
		case err := <-n.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("node: not ready: %w", err)
		case <-still.C:
			n.log.LogAttrs(ctx, slog.LevelInfo, "not ready yet", slog.Any("reason", err))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// maxReadyLag is how many messages the projection may be behind when the
// process calls itself ready.
const maxReadyLag = 1000

// Ready says what keeps this process from working, or nil.
func (n *Node) Ready(ctx context.Context) error {
	if n.guard.Raised() {
		return errors.New("integrity alarm: " + n.guard.Alarm())
	}
	if err := n.complete(ctx); err != nil {
		return err
	}
	if text := n.guard.Alarm(); text != "" {
		return errors.New(text)
	}
	return nil
}

// Checking says how far the check of the log is that attempts wait for, or "".
func (n *Node) Checking() string {
	if n.guard.Checked() {
		return ""
	}
	return n.guard.Alarm()
}

// complete says what of this process is not there yet, or nil. A process whose
// guard alarms, or has not checked the whole log yet, is complete: it records, and
// starts no attempt.
func (n *Node) complete(ctx context.Context) error {
	if !n.conn.IsConnected() {
		return errors.New("not connected to NATS")
	}
	if !n.index.Ready() {
		return errors.New("the index of open operations is not complete yet")
	}
	if !n.plays(RoleProjector) {
		return nil
	}
	lag, err := n.projector.Lag(ctx)
	if err != nil {
		return fmt.Errorf("the projection: %w", err)
	}
	if lag > maxReadyLag {
		return fmt.Errorf("the projection is %d messages behind", lag)
	}
	return nil
}

// Wait returns when ctx ends, after stopping the node gracefully, or when a
// part of it failed.
func (n *Node) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		n.log.LogAttrs(ctx, slog.LevelInfo, "stopping")
		return n.Stop()
	case err := <-n.failed:
		return errors.Join(err, n.Stop())
	}
}

// Stop stops the node; see the package's comment for the order. Stopping it once
// more does nothing.
func (n *Node) Stop() error {
	n.once.Do(func() {
		close(n.stopping)
		n.stopped = n.stop()
	})
	return n.stopped
}

func (n *Node) stop() error {
	var errs []error
	if n.api != nil {
		errs = append(errs, n.api.Stop())
	}
	n.first.stop()
	n.work.stop()
	n.last.stop()
	if n.index != nil && n.conn.IsConnected() {
		n.saveIndex()
	}
	if n.http != nil {
		errs = append(errs, n.http.stop())
	}
	if n.conn != nil {
		if n.conn.IsConnected() {
			errs = append(errs, n.conn.FlushTimeout(2*time.Second))
		}
		n.conn.Close()
	}
	if n.server != nil {
		errs = append(errs, n.server.stop())
	}
	return errors.Join(errs...)
}

// saveWithin bounds the write of the index of open operations.
const saveWithin = 5 * time.Second

// saveIndex spares the next start to read every entry. Without it that start
// takes longer, and nothing else is different.
func (n *Node) saveIndex() {
	ctx, cancel := context.WithTimeout(context.Background(), saveWithin)
	defer cancel()
	if err := n.index.Save(ctx); err != nil {
		n.log.LogAttrs(ctx, slog.LevelWarn, "the index of open operations was not saved; the next start reads all entries", slog.Any("err", err))
	}
}

// URL is where the embedded server listens, or the external server's.
func (n *Node) URL() string {
	if n.server != nil {
		return n.server.url
	}
	return n.cfg.NATS.URL
}

// HTTP is where metrics and health are served, or empty.
func (n *Node) HTTP() string {
	if n.http == nil {
		return ""
	}
	return n.http.url
}

// Lag is how many messages the projection of this process is behind the log.
func (n *Node) Lag(ctx context.Context) (uint64, error) { return n.projector.Lag(ctx) }

// Ledger is the id of the ledger.
func (n *Node) Ledger() string { return n.journal.Ledger() }
