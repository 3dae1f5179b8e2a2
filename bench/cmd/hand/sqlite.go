package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "github.com/mattn/go-sqlite3" // the driver

	"github.com/opledger/opledger/bench/internal/front"
)

const (
	maxBatch = 512
	maxQueue = 4096
)

// write is one statement that waits for its commit.
type write struct {
	sql  string
	args []any
	done chan struct{}

	rows int64
	err  error
}

// openBatch: intent, call and result as in openInline, but all writes that wait
// at one moment share a commit.
func openBatch(ctx context.Context, cfg config) (front.Run, error) {
	db, err := sql.Open("sqlite3", "file:"+cfg.file+"?_journal_mode=WAL&_synchronous=FULL&_busy_timeout=5000")
	if err != nil {
		return nil, fmt.Errorf("hand: %w", err)
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, fmt.Errorf("hand: make the table: %w", err)
	}
	var mode string
	var synchronous int
	if err := errors.Join(db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode), db.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous)); err != nil {
		return nil, fmt.Errorf("hand: %w", err)
	}
	if mode != "wal" || synchronous != 2 {
		return nil, fmt.Errorf("hand: SQLite has journal_mode %s and synchronous %d; wal and 2 (FULL) are the durable setting", mode, synchronous)
	}
	queue := make(chan *write, maxQueue)
	go commits(ctx, db, queue)
	do := func(sql string, args ...any) (int64, error) {
		w := &write{sql: sql, args: args, done: make(chan struct{})}
		queue <- w
		<-w.done
		return w.rows, w.err
	}
	return func(ctx context.Context, op string) (string, error) {
		args, err := front.Args(op)
		if err != nil {
			return "", err
		}
		n, err := do(insertRunning, op, string(args))
		if err != nil {
			return "", fmt.Errorf("hand: insert: %w", err)
		}
		if n == 0 {
			return "", fmt.Errorf("hand: %s is known", op)
		}
		id, err := cfg.provider.Effect(ctx, op)
		if err != nil {
			_, dbErr := do(finish, op, "failed", nil, err.Error())
			return "", errors.Join(err, dbErr)
		}
		_, err = do(finish, op, "done", id, nil)
		return id, err
	}, nil
}

// commits writes what waits, for as long as the process lives.
func commits(ctx context.Context, db *sql.DB, queue <-chan *write) {
	for first := range queue {
		batch := []*write{first}
		for len(batch) < maxBatch && len(queue) > 0 {
			batch = append(batch, <-queue)
		}
		err := commit(ctx, db, batch)
		for _, w := range batch {
			w.err = errors.Join(w.err, err)
			close(w.done)
		}
	}
}

func commit(ctx context.Context, db *sql.DB, batch []*write) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, w := range batch {
		var r sql.Result
		if r, w.err = tx.ExecContext(ctx, w.sql, w.args...); w.err == nil {
			w.rows, w.err = r.RowsAffected()
		}
	}
	return tx.Commit()
}
