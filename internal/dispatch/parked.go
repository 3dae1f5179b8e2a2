package dispatch

import (
	"container/heap"
	"sync"
	"time"
)

// Pace books the times at which work in a lane may start, for all dispatchers that
// share it. It is safe for concurrent use.
type Pace struct {
	mu   sync.Mutex
	free map[string]time.Time
}

// NewPace returns a Pace on which nothing is booked.
func NewPace() *Pace { return &Pace{free: make(map[string]time.Time)} }

// book returns the next free time of a lane and takes it. Each dispatcher books one
// at a time, so that those that share a lane start in turn.
func (p *Pace) book(lane string, now time.Time, spacing time.Duration) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := now
	if f := p.free[lane]; f.After(at) {
		at = f
	}
	p.free[lane] = at.Add(spacing)
	return at
}

// delay moves the next free time of a lane back.
func (p *Pace) delay(lane string, now time.Time, by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := now
	if f := p.free[lane]; f.After(at) {
		at = f
	}
	p.free[lane] = at.Add(by)
}

// parked are the operations of a tenant that wait for a run in a lane.
type parked struct {
	// ending have a chance that ends, rest have not; they take turns.
	ending, rest order
	turn         bool
}

func (p *parked) push(it *item) {
	if it.until.IsZero() {
		heap.Push(&p.rest, it)
	} else {
		heap.Push(&p.ending, it)
	}
}

// pop takes out the next one; there must be one.
func (p *parked) pop() *item {
	p.turn = !p.turn
	from := &p.rest
	if len(p.rest) == 0 || p.turn && len(p.ending) > 0 {
		from = &p.ending
	}
	it, _ := heap.Pop(from).(*item)
	return it
}

func (p *parked) empty() bool { return len(p.ending)+len(p.rest) == 0 }

// park lets an item wait for a run.
func (l *lane) park(it *item) {
	tenant := it.key.Tenant
	p := l.parked[tenant]
	if p == nil {
		p = &parked{}
		l.parked[tenant] = p
		l.turns = append(l.turns, tenant)
	}
	p.push(it)
}

// next takes out an item of each tenant in turn: a tenant with ten thousand of them
// delays nobody else at the same account. There must be one.
func (l *lane) next() *item {
	tenant := l.turns[0]
	l.turns = l.turns[1:]
	p := l.parked[tenant]
	it := p.pop()
	if p.empty() {
		delete(l.parked, tenant)
	} else {
		l.turns = append(l.turns, tenant)
	}
	return it
}

// order is a heap of waiting items: whose chance ends first, then who is due
// longest.
type order []*item

func (o order) Len() int { return len(o) }

func (o order) Less(i, j int) bool {
	if !o[i].until.Equal(o[j].until) {
		return o[i].until.Before(o[j].until)
	}
	return o[i].due.Before(o[j].due)
}

func (o order) Swap(i, j int) { o[i], o[j] = o[j], o[i] }

// Push implements heap.Interface.
func (o *order) Push(x any) { *o = append(*o, x.(*item)) } //nolint:forcetypeassert // the heap's own

// Pop implements heap.Interface.
func (o *order) Pop() any {
	old := *o
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*o = old[:len(old)-1]
	return it
}
