package projections

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/opledger/opledger/events"
)

// Unfinished names an operation that is not final.
type Unfinished struct{ Tenant, OperationID string }

// Unfinished reads the whole log and returns the operations that are not final,
// in the order of their names, whatever the bucket holds. each, if not nil, is
// told of every message in order: Subject, Seq, Stamp and Body.
func (p *Projector) Unfinished(ctx context.Context, each func(events.Record)) ([]Unfinished, error) {
	_, _, last, _, err := p.Log.Extent(ctx)
	if err != nil {
		return nil, fmt.Errorf("projections: unfinished: %w", err)
	}
	var mu sync.Mutex
	open := make(map[Unfinished]bool)
	f := newFolder(p.part, last, p.maxHeld)
	f.each = each
	f.done = func(_ context.Context, _ *shard, g *folding) error {
		mu.Lock()
		defer mu.Unlock()
		if k := (Unfinished{g.tenant, g.operationID}); g.state.Status.Final() {
			delete(open, k)
		} else {
			open[k] = true
		}
		return nil
	}
	if err := f.run(ctx); err != nil {
		return nil, fmt.Errorf("projections: unfinished: %w", err)
	}
	out := make([]Unfinished, 0, len(open))
	for k := range open {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b Unfinished) int {
		return strings.Compare(a.Tenant+"."+a.OperationID, b.Tenant+"."+b.OperationID)
	})
	return out, nil
}
