package pool_test

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opledger/opledger/internal/pool"
)

// goroutine names the goroutine that it is called in.
func goroutine() string {
	stack := make([]byte, 64)
	name, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte(" ["))
	return string(name)
}

// Work waits for no other work, however much of it is stuck.
func TestStuckWorkHoldsUpNothing(t *testing.T) {
	t.Parallel()
	p, release, stuck := pool.New(), make(chan struct{}), make(chan struct{})
	for range 100 {
		p.Go(func() { stuck <- struct{}{}; <-release })
	}
	for range 100 {
		<-stuck
	}
	done := make(chan struct{})
	p.Go(func() { close(done) })
	<-done
	close(release)
}

// A goroutine that is done takes the next work, and ends when none comes.
func TestIdleGoroutinesAreUsedAgainAndEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine stays
		p := pool.New()
		ran := make(chan string, 1)
		run := func() string {
			p.Go(func() { ran <- goroutine() })
			synctest.Wait()
			return <-ran
		}
		first := run()
		for range 5 {
			time.Sleep(900 * time.Millisecond)
			if next := run(); next != first {
				t.Errorf("%s was idle, and %s was started", first, next)
			}
		}
		time.Sleep(2 * time.Second)
		if later := run(); later == first {
			t.Errorf("%s did not end", first)
		}
		time.Sleep(2 * time.Second)
	})
}
