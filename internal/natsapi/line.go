package natsapi

import "sync"

// line gives places to requests. A tenant has a bounded share of them; its further
// requests wait in a line of its own, and the lines are served in turn. So whoever
// sends more than is answered delays himself and nobody else (I14, I15).
type line struct {
	mu    sync.Mutex
	free  int
	busy  map[string]int // places by tenant
	lines map[string]*waiting
	turns []string // the tenants with a line, in the order in which they are served
}

type waiting struct {
	requests []queued
	bytes    int
}

type queued struct {
	begin func()
	bytes int
}

func newLine() *line {
	return &line{free: MaxRequests, busy: make(map[string]int), lines: make(map[string]*waiting)}
}

// enter calls begin as soon as there is a place, which leave gives back; begin
// must not block. It reports false, and begin is not called, if the tenant's line
// is full.
func (l *line) enter(tenant string, bytes int, begin func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.lines[tenant]
	if w == nil && l.free > 0 && l.busy[tenant] < MaxTenantRequests {
		l.start(tenant, begin)
		return true
	}
	if w == nil {
		w = &waiting{}
		l.lines[tenant] = w
		l.turns = append(l.turns, tenant)
	}
	if len(w.requests) == MaxTenantLine || w.bytes+bytes > maxLineBytes {
		return false
	}
	w.requests = append(w.requests, queued{begin, bytes})
	w.bytes += bytes
	return true
}

func (l *line) start(tenant string, begin func()) {
	l.free--
	l.busy[tenant]++
	begin()
}

// leave gives a place back, to the next tenant in turn that may have it.
func (l *line) leave(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	if l.busy[tenant]--; l.busy[tenant] == 0 {
		delete(l.busy, tenant)
	}
	for range len(l.turns) {
		next := l.turns[0]
		l.turns = l.turns[1:]
		w := l.lines[next]
		if l.busy[next] >= MaxTenantRequests {
			l.turns = append(l.turns, next)
			continue
		}
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
		return
	}
}
