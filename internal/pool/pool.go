// Package pool runs short work in goroutines that are used again. A new goroutine begins
// with a small stack, and work that goes deep makes it grow copy by copy, each time anew.
package pool

import "time"

// linger is how long a goroutine waits for more work.
const linger = time.Second

// Pool runs work beside its callers, who may call at the same time.
type Pool struct{ idle chan func() }

// New returns a pool without goroutines.
func New() *Pool { return &Pool{idle: make(chan func())} }

// Go calls work in a goroutine of its own. It never waits: where none is idle, a new one
// starts.
func (p *Pool) Go(work func()) {
	select {
	case p.idle <- work:
	default:
		go p.run(work)
	}
}

func (p *Pool) run(work func()) {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		work()
		timer.Reset(linger)
		select {
		case work = <-p.idle:
		case <-timer.C:
			return
		}
	}
}
