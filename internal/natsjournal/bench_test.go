package natsjournal

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/opledger/opledger/internal/natstest"
)

// instant is a barrier without a disk: what is measured is the way there and back.
type instant struct{}

func (instant) Sync(string) error { return nil }

// BenchmarkAppend appends first events, from 64 goroutines, to a server that syncs
// nothing: what an append costs beside the disk, server included.
func BenchmarkAppend(b *testing.B) {
	opts := natstest.Options(b.TempDir())
	opts.SyncAlways = false
	s := started(b, opts)
	j := setup(b, s, Config{Barrier: instant{}})
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			e, expected := after(fmt.Sprintf("op-%d", n.Add(1)), nil)
			if _, err := j.Append(b.Context(), e, expected); err != nil {
				b.Error(err)
			}
		}
	})
}
