package kills

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/opledger/opledger/internal/child"
)

const (
	// pollEvery is how often something that must come true is looked at.
	pollEvery = 5 * time.Millisecond
	// restartPause is how long a supervisor waits before it starts a process again
	// that ended by itself.
	restartPause = 100 * time.Millisecond
	// keptLogs is how many logs of one process are kept.
	keptLogs = 40
)

// process is a program that is kept running: whenever it ends, by a kill or by
// itself, it is started again.
type process struct {
	name, dir string
	binary    string
	args, env []string
	// address is where it listens when it is up; without one it prints a line.
	address string

	mu      sync.Mutex
	child   *child.Process
	started int
	up      bool
	// held keeps it from being started.
	held bool
	// killed: the end that comes is ours.
	killed bool
	// ends are the logs of those that ended by themselves.
	ends []string
}

// run keeps the process running until ctx ends.
func (p *process) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if p.isHeld() {
			pause(ctx, pollEvery)
			continue
		}
		c, out, err := child.Launch(ctx, p.command())
		if err != nil {
			return err // a group that has ended takes no note of it
		}
		p.mu.Lock()
		p.child, p.killed = c, false
		p.mu.Unlock()
		go p.ready(ctx, c, out)
		select {
		case <-c.Done:
		case <-ctx.Done():
			c.Kill()
		}
		if !p.ended(c, ctx.Err() != nil) {
			pause(ctx, restartPause)
		}
	}
	return nil
}

func (p *process) command() child.Command {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started++
	return child.Command{
		Binary: p.binary, Args: p.args, Env: p.env,
		Log: filepath.Join(p.dir, fmt.Sprintf("%s-%02d.log", p.name, p.started%keptLogs)),
	}
}

// ready marks the process as up when it says so.
func (p *process) ready(ctx context.Context, c *child.Process, out io.Reader) {
	up := p.address != "" && answers(ctx, p.address, c.Done)
	r := bufio.NewReader(out)
	if p.address == "" {
		_, err := r.ReadBytes('\n')
		up = err == nil
	}
	p.mu.Lock()
	p.up = up && p.child == c
	p.mu.Unlock()
	_, _ = io.Copy(io.Discard, r)
}

// answers waits until somebody listens at an address.
func answers(ctx context.Context, address string, done <-chan struct{}) bool {
	for {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-done:
			return false
		case <-time.After(pollEvery):
		}
	}
}

// ended takes note of an end and reports whether it was ours.
func (p *process) ended(c *child.Process, ours bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child, p.up = nil, false
	if ours = ours || p.killed; !ours {
		p.ends = append(p.ends, p.name+":"+child.Tail(c.Log))
	}
	return ours
}

func (p *process) isHeld() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

func (p *process) isUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up
}

// kill kills the process, whether it is up or still starting, and reports whether
// there was one. With hold it is not started again until release.
func (p *process) kill(hold bool) bool {
	p.mu.Lock()
	c := p.child
	p.held = p.held || hold
	p.killed = true
	p.mu.Unlock()
	if c == nil {
		return false
	}
	c.Kill()
	return true
}

func (p *process) release() {
	p.mu.Lock()
	p.held = false
	p.mu.Unlock()
}

// pause waits and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// until polls for something until a time is over.
func until(ctx context.Context, limit time.Duration, ok func() bool) bool {
	for deadline := time.Now().Add(limit); !ok(); {
		if time.Now().After(deadline) || !pause(ctx, pollEvery) {
			return false
		}
	}
	return true
}
