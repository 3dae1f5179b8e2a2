package node

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// logClock is contract time: the clock of the log's server, carried on by the
// monotonic clock of this process. Steps of the wall clock don't move it.
type logClock struct {
	base   time.Time // with its monotonic reading
	offset atomic.Int64
	// drift is how far wall and monotonic clock of this machine were apart at
	// the last measurement; asleep asks for a new one.
	drift  atomic.Int64
	asleep chan struct{}
	// measured: there is an offset to keep if the next measurement is a bad one.
	measured atomic.Bool
	source   serverTime
	log      *slog.Logger
}

// serverTime asks the log's server for its time.
type serverTime interface {
	Time(ctx context.Context) (time.Time, error)
}

const (
	clockEvery   = time.Minute
	clockTimeout = 5 * time.Second
	// clockTries is how often a slow answer is asked for again.
	clockTries = 4
	// clockJump is the change of the offset that is worth a warning.
	clockJump = 200 * time.Millisecond
)

func newClock(ctx context.Context, source serverTime, log *slog.Logger) (*logClock, error) {
	c := &logClock{base: time.Now(), source: source, log: log, asleep: make(chan struct{}, 1)}
	if err := c.sync(ctx); err != nil {
		return nil, fmt.Errorf("node: read the log's clock: %w", err)
	}
	return c, nil
}

// Now returns contract time. When wall and monotonic clock of this machine have
// moved apart (it slept, or its clock was set), the offset is measured anew.
func (c *logClock) Now() time.Time {
	if drift := c.apart() - time.Duration(c.drift.Load()); drift.Abs() > clockJump {
		select {
		case c.asleep <- struct{}{}:
		default:
		}
	}
	return c.base.Add(time.Since(c.base) + time.Duration(c.offset.Load()))
}

func (c *logClock) apart() time.Duration {
	return time.Now().Round(0).Sub(c.base.Round(0)) - time.Since(c.base)
}

// sync measures the offset: the server read its clock at some moment between
// asking and answering, so half of that time is the error.
func (c *logClock) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	drift := c.apart()
	var offset, trip time.Duration
	for n := range clockTries {
		began := time.Since(c.base)
		there, err := c.source.Time(ctx)
		if err != nil {
			return err
		}
		took := time.Since(c.base) - began
		if n == 0 || took < trip {
			trip = took
			offset = there.Round(0).Sub(c.base.Round(0).Add(began + took/2))
		}
		if trip < clockJump {
			break
		}
	}
	if trip > 2*clockJump && c.measured.Load() {
		return fmt.Errorf("node: the answer took %s, too long to tell the time by it", trip)
	}
	c.measured.Store(true)
	c.drift.Store(int64(drift))
	if old := time.Duration(c.offset.Swap(int64(offset))); (offset - old).Abs() > clockJump {
		c.log.LogAttrs(ctx, slog.LevelWarn, "the log's clock differs from this machine's",
			slog.Duration("offset", offset), slog.Duration("before", old))
	}
	return nil
}

// run keeps the clock in step until ctx ends.
func (c *logClock) run(ctx context.Context) error {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-c.asleep:
		}
		if err := c.sync(ctx); err != nil && ctx.Err() == nil {
			c.log.LogAttrs(ctx, slog.LevelWarn, "the log's clock could not be read", slog.Any("err", err))
		}
	}
}
