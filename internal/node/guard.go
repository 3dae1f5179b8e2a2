package node

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/opledger/opledger/internal/natsjournal"
)

// guard watches the log for damage that the server does not tell of: a stream
// that was made anew, sequence numbers that are missing, an end that went back.
// While it alarms, this process starts no attempt (I16); outcomes of those under
// way are still recorded. It judges by what it has seen itself, so a process
// that starts on a damaged log relies on the check at its start.
type guard struct {
	source logInfo
	log    *slog.Logger
	seen   natsjournal.Info
	alarm  atomic.Pointer[string]
}

// logInfo tells the state of the log.
type logInfo interface {
	Info(ctx context.Context) (natsjournal.Info, error)
}

const (
	guardEvery   = 3 * time.Second
	guardTimeout = 2 * time.Second
)

func newGuard(ctx context.Context, source logInfo, log *slog.Logger) (*guard, error) {
	g := &guard{source: source, log: log}
	var err error
	if g.seen, err = source.Info(ctx); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return g, nil
}

// Alarm returns what is wrong with the log, or "".
func (g *guard) Alarm() string {
	if text := g.alarm.Load(); text != nil {
		return *text
	}
	return ""
}

// check looks once. A log that can't be read raises no alarm: nothing can be
// appended to it either. An alarm stays until the process is started anew, on a
// log that passes the check at the start.
func (g *guard) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	now, err := g.source.Info(ctx)
	if err != nil || g.Alarm() != "" {
		return
	}
	text := ""
	switch {
	case !now.Created.Equal(g.seen.Created):
		text = fmt.Sprintf("the journal was created anew at %s", now.Created.UTC().Format(time.RFC3339))
	case now.Last < g.seen.Last:
		text = fmt.Sprintf("the journal ended with message %d and now ends with %d", g.seen.Last, now.Last)
	case now.Messages > 0 && now.First != 1:
		text = fmt.Sprintf("the journal begins with message %d instead of 1", now.First)
	case now.Deleted > 0:
		text = fmt.Sprintf("%d messages are missing from the journal", now.Deleted)
	}
	g.seen = now
	if text != "" {
		g.alarm.Store(&text)
		g.log.LogAttrs(ctx, slog.LevelError, "INTEGRITY ALARM: no attempt starts; run opledger verify", slog.String("what", text))
	}
}

// run checks until ctx ends.
func (g *guard) run(ctx context.Context) error {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			g.check(ctx)
		}
	}
}
