package trial

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// begin is when every trial begins.
func begin() time.Time { return time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC) }

// clock is the virtual clock. It moves only when it is told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now returns the virtual time.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// advance moves the clock on to a time, never back.
func (c *clock) advance(to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to.After(c.now) {
		c.now = to
	}
}

// entry is something that is due at a time.
type entry struct {
	at    time.Time
	order int
	// item is an operation to be planned by a role; do is anything else.
	item *item
	do   func(ctx context.Context)
}

// agenda holds what is due, the earliest first, and what came first before what
// came later.
type agenda []entry

// Len implements heap.Interface.
func (a *agenda) Len() int { return len(*a) }

// Less implements heap.Interface.
func (a *agenda) Less(i, j int) bool {
	one, two := (*a)[i], (*a)[j]
	if one.at.Equal(two.at) {
		return one.order < two.order
	}
	return one.at.Before(two.at)
}

// Swap implements heap.Interface.
func (a *agenda) Swap(i, j int) { (*a)[i], (*a)[j] = (*a)[j], (*a)[i] }

// Push implements heap.Interface.
func (a *agenda) Push(x any) { *a = append(*a, x.(entry)) }

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	*a = old[:len(old)-1]
	return e
}

func (a *agenda) add(e entry) { heap.Push(a, e) }

func (a *agenda) next() entry { return heap.Pop(a).(entry) }
