package providers

import (
	"context"
	"sync/atomic"
)

type countKey struct{}

// Counted returns a context, and how many requests went to a provider under it so
// far.
func Counted(ctx context.Context) (context.Context, func() int) {
	var n atomic.Int64
	return context.WithValue(ctx, countKey{}, &n), func() int { return int(n.Load()) }
}

// count counts a request.
func count(ctx context.Context) {
	if n, ok := ctx.Value(countKey{}).(*atomic.Int64); ok {
		n.Add(1)
	}
}
