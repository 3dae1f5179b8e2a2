package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/opledger/opledger/events"
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
	// last is the digest of the message that the log ended with.
	last   string
	alarm  atomic.Pointer[string]
	looked atomic.Int64 // when the last good look was, by the monotonic clock
	base   time.Time
}

// logInfo tells the state of the log.
type logInfo interface {
	Info(ctx context.Context) (natsjournal.Info, error)
	Read(ctx context.Context, seq uint64) (events.Record, error)
}

const (
	guardEvery   = 3 * time.Second
	guardTimeout = 2 * time.Second
	// guardStale is how old a verdict may be.
	guardStale = 15 * time.Second
)

func newGuard(ctx context.Context, source logInfo, log *slog.Logger) (*guard, error) {
	g := &guard{source: source, log: log, base: time.Now()}
	var err error
	if g.seen, err = source.Info(ctx); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	if g.last, err = g.digest(ctx, g.seen.Last); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return g, nil
}

func (g *guard) digest(ctx context.Context, seq uint64) (string, error) {
	if seq == 0 {
		return "", nil
	}
	rec, err := g.source.Read(ctx, seq)
	if err != nil {
		return "", err
	}
	return events.Digest(rec.Body) + rec.Stamp.UTC().String(), nil
}

// Alarm returns what is wrong with the log, or "". A verdict that is too old is
// none.
func (g *guard) Alarm() string {
	if text := g.alarm.Load(); text != nil {
		return *text
	}
	if age := time.Since(g.base) - time.Duration(g.looked.Load()); age > guardStale {
		return fmt.Sprintf("the log could not be checked for %s", age.Round(time.Second))
	}
	return ""
}

// check looks once. An alarm stays until the process is started anew, on a log
// that passes the check at the start.
func (g *guard) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	if g.alarm.Load() != nil {
		return
	}
	text, err := g.compare(ctx)
	if err != nil {
		return
	}
	g.looked.Store(int64(time.Since(g.base)))
	if text != "" {
		g.alarm.Store(&text)
		g.log.LogAttrs(ctx, slog.LevelError, "INTEGRITY ALARM: no attempt starts; run opledger verify", slog.String("what", text))
	}
}

// compare holds the log against what was seen of it before.
func (g *guard) compare(ctx context.Context) (text string, err error) {
	now, err := g.source.Info(ctx)
	if err != nil {
		return "", err
	}
	switch {
	case !now.Created.Equal(g.seen.Created):
		return fmt.Sprintf("the journal was created anew at %s", now.Created.UTC().Format(time.RFC3339)), nil
	case now.Last < g.seen.Last:
		return fmt.Sprintf("the journal ended with message %d and now ends with %d", g.seen.Last, now.Last), nil
	case now.Messages > 0 && now.First != 1:
		return fmt.Sprintf("the journal begins with message %d instead of 1", now.First), nil
	case now.Deleted > 0:
		return fmt.Sprintf("%d messages are missing from the journal", now.Deleted), nil
	}
	// An end that went back and was overtaken since has another message there.
	was, err := g.digest(ctx, g.seen.Last)
	if errors.Is(err, natsjournal.ErrNotFound) || (err == nil && was != g.last) {
		return fmt.Sprintf("message %d of the journal is not the one that was there", g.seen.Last), nil
	}
	if err != nil {
		return "", err
	}
	if g.last, err = g.digest(ctx, now.Last); err == nil {
		g.seen = now
	} else {
		g.last = was
	}
	return "", nil
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
