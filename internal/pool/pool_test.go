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
	p, release, stuck := new(pool.Pool), make(chan struct{}), make(chan struct{})
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
		p := new(pool.Pool)
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

// After a burst, what little work there is keeps one goroutine, and the others end.
func TestGoroutinesOfABurstEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := new(pool.Pool)
		burst := make(chan struct{})
		for range 50 {
			p.Go(func() { <-burst })
		}
		close(burst)
		ran := map[string]bool{}
		names := make(chan string, 1)
		for range 100 { // one each 100 ms: more than enough to keep 10 of them
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
			p.Go(func() { names <- goroutine() })
			ran[<-names] = true
		}
		if len(ran) != 1 {
			t.Errorf("%d goroutines were kept for work that one can do", len(ran))
		}
		time.Sleep(2 * time.Second)
	})
}

// Work that comes when a goroutine is about to end is done.
func TestNoWorkIsLostAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := new(pool.Pool)
		done := make(chan struct{}, 1)
		for range 200 {
			p.Go(func() { done <- struct{}{} })
			<-done
			time.Sleep(time.Second) // as long as a goroutine lingers
		}
		time.Sleep(2 * time.Second)
	})
}
