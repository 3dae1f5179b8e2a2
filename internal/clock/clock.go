// Package clock is how the runners spend time: stop watches, time limits,
// pauses, and the one request that runs beside its caller. The real one is the
// machine's; a simulation brings its own, under which the same code runs in a
// single thread.
//
// Contract time is not here: the log's clock is handed to each part as Now.
package clock

import (
	"context"
	"time"
)

// Clock is the time of one process.
type Clock interface {
	// Monotonic is a reading of the clock that nobody can set, Wall one of the
	// clock that shows the date.
	Monotonic() time.Duration
	Wall() time.Time
	// Timeout returns a context that ends after d.
	Timeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Outlive returns a context that ends d after ctx did.
	Outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// Sleep waits for d, or until ctx ends.
	Sleep(ctx context.Context, d time.Duration)
	// Beside starts work beside the caller. What it returns waits for the end of
	// the work, but no longer than grace after ctx ended, and reports whether
	// the work ended. It may be called again.
	Beside(work func()) (ended func(ctx context.Context, grace time.Duration) bool)
}

// Real returns the machine's clock. beside calls work in a goroutine of its own; nil
// means a new one.
func Real(beside func(work func())) Clock {
	if beside == nil {
		beside = func(work func()) { go work() }
	}
	return machine{base: time.Now(), beside: beside}
}

type machine struct {
	base   time.Time
	beside func(work func())
}

func (m machine) Monotonic() time.Duration { return time.Since(m.base) }

func (machine) Wall() time.Time { return time.Now().Round(0) }

func (machine) Timeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

func (machine) Outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return late, func() { stop(); cancel() }
}

func (machine) Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (m machine) Beside(work func()) func(context.Context, time.Duration) bool {
	done := make(chan struct{})
	m.beside(func() { defer close(done); work() })
	return func(ctx context.Context, grace time.Duration) bool {
		select {
		case <-done:
			return true
		case <-ctx.Done():
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-done:
			return true
		case <-timer.C:
			return false
		}
	}
}
