package kills

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natsjournal"
)

const (
	// contestants are the clients of each history.
	contestants = 4
	// contestTime is how long they are on one register.
	contestTime = 600 * time.Millisecond
	// callTime bounds one call of a history.
	callTime = 3 * time.Second
	// probe is the prefix of the ledger whose operations the claims are on: nobody
	// else decides there.
	probe = "probe"
)

// contest makes two histories while a cluster is in trouble: of the intake, where
// clients hand in different contents under the same id, and of the journal, where
// they start attempts of the same operation, each on the state that it has read.
type contest struct {
	c       *cluster
	seed    uint64
	intake  *calls
	claims  *calls
	agents  []*nats.Conn
	ledgers []*nats.Conn
}

func newContest(c *cluster, seed uint64) (*contest, error) {
	t := &contest{c: c, seed: seed, intake: newCalls(), claims: newCalls()}
	for range contestants {
		a, err := c.connect(agent, c.agentPw)
		if err != nil {
			t.close()
			return nil, err
		}
		t.agents = append(t.agents, a)
		l, err := c.connect(ledgerUser, c.ledgerPw)
		if err != nil {
			t.close()
			return nil, err
		}
		t.ledgers = append(t.ledgers, l)
	}
	return t, nil
}

func (t *contest) close() {
	for _, nc := range slices.Concat(t.agents, t.ledgers) {
		nc.Close()
	}
}

// during runs both histories until fn returns.
func (t *contest) during(ctx context.Context, fn func() error) error {
	if err := t.setUp(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	began := time.Now()
	for i := range contestants {
		wg.Go(func() { t.handIn(ctx, i, began) })
		wg.Go(func() { t.claim(ctx, i, began) })
	}
	err := fn()
	cancel()
	wg.Wait()
	return err
}

func probeTopology() natsjournal.Topology {
	return natsjournal.Topology{Subjects: events.Subjects{Prefix: probe}, Tenants: []string{tenant}, Replicas: members}
}

// setUp makes the ledger of the claims.
func (t *contest) setUp(ctx context.Context) error {
	var last error
	if !until(ctx, startTime, func() bool {
		js, err := jetstream.New(t.ledgers[0])
		if err == nil {
			_, err = natsjournal.Setup(ctx, js, probeTopology())
		}
		last = err
		return err == nil
	}) {
		return fmt.Errorf("kills: set up the ledger of the claims: %w", last)
	}
	return nil
}

// register is the one that the clients are on now: all move on together.
func register(name string, began time.Time) string {
	return fmt.Sprintf("%s-%05d", name, time.Since(began)/contestTime)
}

// handIn hands in a content of its own under the common id, again and again.
func (t *contest) handIn(ctx context.Context, client int, began time.Time) {
	rnd := random(t.seed, client)
	c, err := opledger.NewClient(opledger.ClientConfig{Conn: t.agents[client], Tenant: tenant})
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		id := register("contest", began)
		wish := intent{ID: id, Provider: "keyed", Title: "task " + id, Note: fmt.Sprintf("of client %d", client)}
		if t.intake.do(call{register: id, client: client, to: wish.Note}, func() answer { return submitted(ctx, c, wish) }) == done {
			t.c.load.file.add(wish)
		}
		pause(ctx, jitter(rnd))
	}
}

func jitter(rnd *mathrand.Rand) time.Duration {
	return time.Duration(rnd.Int64N(int64(contestTime) / 2))
}

func submitted(ctx context.Context, c *opledger.Client, wish intent) answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	_, err := c.Submit(ctx, wish.request())
	switch p, ok := errors.AsType[*api.Problem](err); {
	case err == nil:
		return done
	case ok && p.Code == api.ProblemConflict:
		return refused
	}
	return unknown
}

// claim starts attempts of the common operation, each on the state that it reads.
func (t *contest) claim(ctx context.Context, client int, began time.Time) {
	rnd := random(t.seed, contestants+client)
	var j *natsjournal.Journal
	if !until(ctx, startTime, func() bool {
		var err error
		j, err = natsjournal.Open(ctx, t.ledgers[client], natsjournal.Config{Topology: probeTopology()})
		return err == nil
	}) {
		return
	}
	for ctx.Err() == nil {
		t.start(ctx, j, client, register("claim", began))
		pause(ctx, jitter(rnd)/4)
	}
}

func (t *contest) start(ctx context.Context, j *natsjournal.Journal, client int, op string) {
	records, err := j.Load(ctx, tenant, op)
	if err != nil {
		return
	}
	c := call{register: op, client: client, to: events.NewID()}
	e := events.Event{
		ID: c.to, Tenant: tenant, Operation: op, Version: uint64(len(records)) + 1, Time: time.Now(), Actor: "probe",
		Data: events.AttemptStarted{
			AttemptID: c.to, Number: len(records) + 1, Worker: "probe", LeaseMS: 1500, RequestDigest: events.Digest(nil),
		},
	}
	var expected uint64
	if n := len(records); n > 0 {
		c.from, expected, e.Prev = records[n-1].ID, records[n-1].Seq, events.Digest(records[n-1].Body)
	}
	t.claims.do(c, func() answer {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
		defer cancel()
		switch _, err := j.Append(ctx, e, expected); {
		case err == nil:
			return done
		case errors.Is(err, natsjournal.ErrConflict):
			return refused
		case errors.Is(err, natsjournal.ErrNoVerdict):
			return unknown
		default:
			t.c.load.blame("append of a claim: %v", err)
			return unknown
		}
	})
}

// judge adds what the log says in the end to the histories, and checks them.
func (t *contest) judge(ctx context.Context, r *ClusterReport) error {
	r.IntakeCalls, r.IntakeRegisters, r.IntakeUnanswered = t.intake.count()
	r.ClaimCalls, r.ClaimRegisters, r.ClaimUnanswered = t.claims.count()
	all, err := t.c.readLog(ctx, t.ledgers[0])
	if err != nil {
		return err
	}
	for _, id := range t.intake.registers() {
		if h := all[id]; h != nil {
			t.intake.do(call{register: id, client: contestants, to: h.args().Note}, func() answer { return done })
		}
	}
	if err := t.chains(ctx, r); err != nil {
		return err
	}
	for name, check := range map[string]error{"intake": t.intake.check(once), "claims": t.claims.check(swap)} {
		if check != nil {
			r.problem("%s: %v", name, check)
		}
	}
	return nil
}

// chains holds the log of each claimed operation against the history: every start
// that was acknowledged is there, and none that was refused.
func (t *contest) chains(ctx context.Context, r *ClusterReport) error {
	j, err := natsjournal.Open(ctx, t.ledgers[0], natsjournal.Config{Topology: probeTopology()})
	if err != nil {
		return err
	}
	stored := make(map[string]bool)
	for _, op := range t.claims.registers() {
		records, err := j.Load(ctx, tenant, op)
		if err != nil {
			return err
		}
		for _, rec := range records {
			stored[rec.ID] = true
		}
	}
	for _, c := range t.claims.all {
		if there := stored[c.to]; (c.answer == done && !there) || (c.answer == refused && there) {
			r.problem("claim %s of %s: the answer was %d, in the log: %v", c.to, c.register, c.answer, there)
		}
	}
	return nil
}
