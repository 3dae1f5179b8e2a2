package natsapi

import (
	"sync"
	"time"
)

// line gives places to requests. Where several tenants send some, each has a bounded
// share; its further requests wait in a line of its own, and the lines are served in
// turn. So whoever sends more than is answered delays himself and hardly anybody else
// (I14, I15).
type line struct {
	mu    sync.Mutex
	now   func() time.Time
	free  int
	busy  map[string]int // places by tenant
	lines map[string]*waiting
	turns []string // the tenants with a line, in the order in which they are served
	// last is whose request came last, mixed when one came after another tenant's.
	last  string
	mixed time.Time
}

// mixedFor is how long tenants share places after requests of several came.
const mixedFor = time.Second

type waiting struct {
	requests []queued
	bytes    int
}

type queued struct {
	begin func()
	bytes int
}

func newLine(now func() time.Time) *line {
	return &line{now: now, free: MaxRequests, busy: make(map[string]int), lines: make(map[string]*waiting)}
}

// enter calls begin as soon as there is a place, which leave gives back; begin
// must not block. It reports false, and begin is not called, if the tenant's line
// is full.
func (l *line) enter(tenant string, bytes int, begin func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != tenant && l.last != "" {
		l.mixed = l.now()
	}
	l.last = tenant
	w := l.lines[tenant]
	if w == nil && l.free > 0 && l.busy[tenant] < l.share() {
		l.start(tenant, begin)
		return true
	}
	if bytes > maxLineBytes || (w != nil && (len(w.requests) == MaxTenantLine || w.bytes+bytes > maxLineBytes)) {
		return false
	}
	if w == nil {
		w = &waiting{}
		l.lines[tenant] = w
		l.turns = append(l.turns, tenant)
	}
	w.requests = append(w.requests, queued{begin, bytes})
	w.bytes += bytes
	return true
}

// share is how many places a tenant may have.
func (l *line) share() int {
	if l.now().Sub(l.mixed) < mixedFor {
		return MaxTenantRequests
	}
	return MaxRequests
}

func (l *line) start(tenant string, begin func()) {
	l.free--
	l.busy[tenant]++
	begin()
}

// leave gives a place back and hands out what is free, to the tenants in turn.
func (l *line) leave(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	if l.busy[tenant]--; l.busy[tenant] == 0 {
		delete(l.busy, tenant)
	}
	// After the time of sharing there is room for more than one.
	for share, passed := l.share(), 0; l.free > 0 && passed < len(l.turns); {
		next := l.turns[0]
		l.turns = l.turns[1:]
		if l.busy[next] >= share {
			l.turns = append(l.turns, next)
			passed++
			continue
		}
		passed = 0
		w := l.lines[next]
		q := w.requests[0]
		w.requests[0] = queued{}
		w.requests = w.requests[1:]
		w.bytes -= q.bytes
		if len(w.requests) == 0 {
			delete(l.lines, next)
		} else {
			l.turns = append(l.turns, next)
		}
		l.start(next, q.begin)
	}
}
