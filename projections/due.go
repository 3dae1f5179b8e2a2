package projections

import (
	"container/heap"
	"time"
)

// item is an open operation in the heap of its next action.
type item struct {
	Open
	key   string
	place int
}

func (a *item) before(b *item) bool {
	if !a.NextAt.Equal(b.NextAt) {
		return a.NextAt.Before(b.NextAt)
	}
	return a.key < b.key
}

// dueHeap is a binary heap, the earliest first.
type dueHeap []*item //nolint:recvcheck // heap.Interface needs both

// Len implements heap.Interface.
func (h dueHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h dueHeap) Less(i, j int) bool { return h[i].before(h[j]) }

// Swap implements heap.Interface.
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(v any) {
	it := v.(*item)
	it.place = len(*h)
	*h = append(*h, it)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return it
}

func (h *dueHeap) add(it *item) { heap.Push(h, it) }

func (h *dueHeap) remove(it *item) { heap.Remove(h, it.place) }

// frontier is a heap of places in heaps whose items come next.
type frontier []place

type place struct {
	h *dueHeap
	i int
}

func (p place) item() *item { return (*p.h)[p.i] }

// Len implements heap.Interface.
func (f frontier) Len() int { return len(f) }

// Less implements heap.Interface.
func (f frontier) Less(i, j int) bool { return f[i].item().before(f[j].item()) }

// Swap implements heap.Interface.
func (f frontier) Swap(i, j int) { f[i], f[j] = f[j], f[i] }

// Push implements heap.Interface.
func (f *frontier) Push(v any) { *f = append(*f, v.(place)) }

// Pop implements heap.Interface.
func (f *frontier) Pop() any {
	old := *f
	p := old[len(old)-1]
	*f = old[:len(old)-1]
	return p
}

// earliest returns up to limit items that are due at now, in order, without
// changing the heaps: it walks down from their roots.
func earliest(heaps []*dueHeap, now time.Time, limit int) []Open {
	var f frontier
	for _, h := range heaps {
		f = append(f, place{h, 0})
	}
	heap.Init(&f)
	var out []Open
	for len(f) > 0 && len(out) < limit {
		p := heap.Pop(&f).(place)
		if p.item().NextAt.After(now) {
			break
		}
		out = append(out, p.item().Open)
		for i := 2*p.i + 1; i <= 2*p.i+2 && i < len(*p.h); i++ {
			heap.Push(&f, place{p.h, i})
		}
	}
	return out
}

// recent remembers the last sequence number of the keys that were put last.
type recent struct {
	limit int
	seqs  map[string]uint64
	order []string
}

func newRecent(limit int) *recent { return &recent{limit: limit, seqs: map[string]uint64{}} }

func (r *recent) get(key string) uint64 { return r.seqs[key] }

func (r *recent) put(key string, seq uint64) {
	if _, ok := r.seqs[key]; !ok {
		r.order = append(r.order, key)
	}
	r.seqs[key] = max(r.seqs[key], seq)
	if len(r.order) > r.limit {
		delete(r.seqs, r.order[0])
		r.order = r.order[1:]
	}
}
