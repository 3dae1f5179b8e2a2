// Package pool runs work in goroutines that are used again. A new goroutine begins with a
// small stack, and work that goes deep makes it grow copy by copy, each time anew.
package pool

import (
	"slices"
	"sync"
	"time"
)

// linger is how long a goroutine waits for more work.
const linger = time.Second

// Pool runs work beside its callers, who may call at the same time. The zero value is
// ready.
type Pool struct {
	mu sync.Mutex
	// idle takes work for one goroutine each; the one that was busy last is at the end,
	// and gets the next work, so that the others come to their end.
	idle []chan func()
}

// Go calls work in a goroutine of its own. It never waits: where none is idle, a new one
// starts.
func (p *Pool) Go(work func()) {
	p.mu.Lock()
	last := len(p.idle) - 1
	if last < 0 {
		p.mu.Unlock()
		go p.run(work)
		return
	}
	next := p.idle[last]
	p.idle = slices.Delete(p.idle, last, last+1)
	p.mu.Unlock()
	next <- work // has room
}

func (p *Pool) run(work func()) {
	more := make(chan func(), 1)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		work()
		p.mu.Lock()
		p.idle = append(p.idle, more)
		p.mu.Unlock()
		timer.Reset(linger)
		select {
		case work = <-more:
		case <-timer.C:
			if p.leave(more) {
				return
			}
			work = <-more // at the last moment
		}
	}
}

// leave takes a goroutine out; false if work is on its way to it.
func (p *Pool) leave(more chan func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.idle, more)
	if i < 0 {
		return false
	}
	p.idle = slices.Delete(p.idle, i, i+1)
	return true
}
