package kills

import (
	"context"
	"sync"
)

// group is a set of goroutines with one life and the first error of them.
type group struct {
	ctx context.Context //nolint:containedctx // the life of the group's goroutines
	wg  sync.WaitGroup

	mu  sync.Mutex
	err error
}

func newGroup(ctx context.Context) *group { return &group{ctx: ctx} }

func (g *group) go1(fn func(context.Context) error) {
	g.wg.Go(func() {
		if err := fn(g.ctx); err != nil && g.ctx.Err() == nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.err == nil {
				g.err = err
			}
		}
	})
}

func (g *group) wait() { g.wg.Wait() }

func (g *group) failed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}
