package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/opledger/opledger/bench/internal/front"
)

const (
	maxConns = 32
	workers  = 128
	// pollEvery finds rows whose lease or pause has run out.
	pollEvery = 200 * time.Millisecond

	indexTodo = `CREATE INDEX IF NOT EXISTS ops_todo ON operations(lease_until) WHERE status IN ('pending','running')`

	insertPending = `INSERT INTO operations(operation_id,tenant,provider,account,action,args,status,lease_until,created_at)
 VALUES($1,'t1','crm','acct','create_task',$2,'pending',now(),now()) ON CONFLICT(operation_id) DO NOTHING`

	claim = `UPDATE operations SET status='running', attempts=attempts+1, lease_until=now()+interval '10 seconds'
 WHERE operation_id IN (SELECT operation_id FROM operations WHERE status IN ('pending','running') AND lease_until<=now() ORDER BY lease_until LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING operation_id`

	again = `UPDATE operations SET status='pending', error=$2, lease_until=now()+interval '200 milliseconds' WHERE operation_id=$1 AND status='running'`

	retake = `UPDATE operations SET status='running', attempts=attempts+1 WHERE operation_id=$1 AND status='failed'`

	known = `SELECT status, external_id FROM operations WHERE operation_id=$1`
)

func pool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("hand: %w", err)
	}
	cfg.MaxConns = maxConns
	p, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("hand: %w", err)
	}
	for _, sql := range []string{schema, indexTodo} {
		if _, err := p.Exec(ctx, sql); err != nil {
			return nil, fmt.Errorf("hand: make the table: %w", err)
		}
	}
	return p, nil
}

// stored returns the id of a finished operation, empty if it is not finished.
func stored(ctx context.Context, p *pgxpool.Pool, op string) (string, error) {
	var status string
	var id *string
	if err := p.QueryRow(ctx, known, op).Scan(&status, &id); err != nil {
		return "", fmt.Errorf("hand: read: %w", err)
	}
	if status != "done" || id == nil {
		return "", nil
	}
	return *id, nil
}

// openInline commits the intent, calls, and commits the result: two commits. A
// failed call is recorded as failed, and the next request for the same id tries
// again.
func openInline(ctx context.Context, cfg config) (front.Run, error) {
	p, err := pool(ctx, cfg.pg)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, op string) (string, error) {
		args, err := front.Args(op)
		if err != nil {
			return "", err
		}
		tag, err := p.Exec(ctx, insertRunning, op, string(args))
		if err != nil {
			return "", fmt.Errorf("hand: insert: %w", err)
		}
		if tag.RowsAffected() == 0 {
			if id, err := stored(ctx, p, op); err != nil || id != "" {
				return id, err
			}
			tag, err := p.Exec(ctx, retake, op)
			if err != nil {
				return "", fmt.Errorf("hand: take again: %w", err)
			}
			if tag.RowsAffected() == 0 {
				return "", errors.New("hand: in progress")
			}
		}
		id, err := cfg.provider.Effect(ctx, op)
		ctx = context.WithoutCancel(ctx)
		if err != nil {
			_, dbErr := p.Exec(ctx, finish, op, "failed", nil, err.Error())
			return "", errors.Join(err, dbErr)
		}
		_, err = p.Exec(ctx, finish, op, "done", id, nil)
		return id, err
	}, nil
}

// outbox: the request commits a pending row; a claimer takes rows with SKIP
// LOCKED and a lease, many at once; workers call and commit the result. A call
// that fails is made again after a short pause.
type outbox struct {
	pool     *pgxpool.Pool
	provider *front.Provider
	wake     chan struct{}
	slots    chan struct{}
	jobs     chan string

	mu      sync.Mutex
	waiting map[string][]chan string
}

func openOutbox(ctx context.Context, cfg config) (front.Run, error) {
	p, err := pool(ctx, cfg.pg)
	if err != nil {
		return nil, err
	}
	o := &outbox{
		pool: p, provider: cfg.provider, wake: make(chan struct{}, 1), slots: make(chan struct{}, workers),
		jobs: make(chan string, workers), waiting: make(map[string][]chan string),
	}
	for range workers {
		go o.work(ctx)
	}
	go o.claim(ctx)
	return o.run, nil
}

func (o *outbox) kick() {
	select {
	case o.wake <- struct{}{}:
	default: // it is awake
	}
}

func (o *outbox) run(ctx context.Context, op string) (string, error) {
	args, err := front.Args(op)
	if err != nil {
		return "", err
	}
	done := make(chan string, 1)
	o.mu.Lock()
	o.waiting[op] = append(o.waiting[op], done)
	o.mu.Unlock()
	tag, err := o.pool.Exec(ctx, insertPending, op, string(args))
	if err != nil {
		return "", fmt.Errorf("hand: insert: %w", err)
	}
	if tag.RowsAffected() == 0 {
		if id, err := stored(ctx, o.pool, op); err != nil || id != "" {
			return id, err
		}
	}
	o.kick()
	select {
	case id := <-done:
		return id, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (o *outbox) work(ctx context.Context) {
	for op := range o.jobs {
		if err := o.carryOut(ctx, op); err != nil {
			log.Print(err)
		}
		<-o.slots
		o.kick()
	}
}

func (o *outbox) carryOut(ctx context.Context, op string) error {
	id, err := o.provider.Effect(ctx, op)
	if err != nil {
		_, err := o.pool.Exec(ctx, again, op, err.Error())
		return err
	}
	if _, err := o.pool.Exec(ctx, finish, op, "done", id, nil); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, done := range o.waiting[op] {
		done <- id
	}
	delete(o.waiting, op)
	return nil
}

// claim hands rows to the workers, for as long as the process lives.
func (o *outbox) claim(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-o.wake:
		case <-tick.C:
		}
		for free := workers - len(o.slots); free > 0; free = workers - len(o.slots) {
			ids, err := o.take(ctx, free)
			if err != nil {
				log.Print(err)
			}
			if len(ids) == 0 {
				break
			}
			for _, id := range ids {
				o.slots <- struct{}{}
				o.jobs <- id
			}
		}
	}
}

func (o *outbox) take(ctx context.Context, n int) ([]string, error) {
	rows, err := o.pool.Query(ctx, claim, n)
	if err != nil {
		return nil, fmt.Errorf("hand: claim: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
