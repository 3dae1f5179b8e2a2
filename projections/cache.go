package projections

import (
	"container/list"

	"github.com/opledger/opledger/operation"
)

// Bounds of the states that a projector remembers.
const (
	maxCached      = 8192
	maxCachedBytes = 64 << 20
	// maxCachedEntry is the largest entry that is remembered, in bytes.
	maxCachedEntry = 64 << 10
)

// cached is a state with the revision of its entry.
type cached struct {
	key   string
	state operation.State
	rev   uint64
	size  int
}

// cache remembers the states that were written last. It is not for use by
// several goroutines.
type cache struct {
	order *list.List // front: used last
	byKey map[string]*list.Element
	bytes int
}

func newCache() *cache { return &cache{order: list.New(), byKey: map[string]*list.Element{}} }

func (c *cache) get(key string) (cached, bool) {
	el, ok := c.byKey[key]
	if !ok {
		return cached{}, false
	}
	c.order.MoveToFront(el)
	return el.Value.(cached), true
}

func (c *cache) put(v cached) {
	c.drop(v.key)
	if v.size > maxCachedEntry {
		return
	}
	c.byKey[v.key] = c.order.PushFront(v)
	c.bytes += v.size
	for c.order.Len() > maxCached || c.bytes > maxCachedBytes {
		c.drop(c.order.Back().Value.(cached).key)
	}
}

func (c *cache) drop(key string) {
	if el, ok := c.byKey[key]; ok {
		c.bytes -= c.order.Remove(el).(cached).size
		delete(c.byKey, key)
	}
}
