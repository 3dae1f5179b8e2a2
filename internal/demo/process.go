package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Ready is the line that a server process prints when it is up.
type Ready struct {
	Sim  string `json:"sim"`
	NATS string `json:"nats"`
	HTTP string `json:"http"`
}

const startTimeout = 30 * time.Second

// process is a child process of this binary.
type process struct {
	cmd   *exec.Cmd
	ready Ready
	log   string
	done  chan struct{}
	once  sync.Once
	err   error
}

// spawn starts this binary with args and waits for its line of readiness. Its
// messages go to a file in dir.
func (e *env) spawn(ctx context.Context, name string, args ...string) (*process, error) {
	p, out, err := e.launch(ctx, name, args...)
	if err != nil {
		return nil, err
	}
	lines := make(chan []byte, 1)
	go func() {
		r := bufio.NewReader(out)
		line, err := r.ReadBytes('\n')
		if err == nil {
			lines <- line
		}
		close(lines)
		_, _ = io.Copy(io.Discard, r)
	}()
	select {
	case line, ok := <-lines:
		if !ok {
			p.kill()
			return nil, fmt.Errorf("demo: %s ended before it was ready; see %s%s", name, p.log, tail(p.log))
		}
		if err := json.Unmarshal(line, &p.ready); err != nil {
			p.kill()
			return nil, fmt.Errorf("demo: %s printed %q", name, line)
		}
		return p, nil
	case <-time.After(startTimeout):
		p.kill()
		return nil, fmt.Errorf("demo: %s not ready after %s; see %s%s", name, startTimeout, p.log, tail(p.log))
	case <-ctx.Done():
		p.kill()
		return nil, ctx.Err()
	}
}

// launch starts this binary with args.
func (e *env) launch(ctx context.Context, name string, args ...string) (*process, io.Reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	e.started++
	log := filepath.Join(e.dir, fmt.Sprintf("%02d-%s.log", e.started, name))
	e.mu.Unlock()
	f, err := os.Create(log)
	if err != nil {
		return nil, nil, fmt.Errorf("demo: %w", err)
	}
	defer f.Close()
	cmd := exec.Command(e.binary, args...) //nolint:noctx // killed by stop, so that it is reaped
	cmd.Env = append(os.Environ(), e.environ...)
	cmd.Stderr = f
	cmd.SysProcAttr = dieWithParent()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("demo: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("demo: start %s: %w", name, err)
	}
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	e.mu.Lock()
	e.processes = append(e.processes, p)
	e.mu.Unlock()
	return p, out, nil
}

// kill ends a process with SIGKILL and waits until it is gone.
func (p *process) kill() {
	p.once.Do(func() { _ = p.cmd.Process.Signal(syscall.SIGKILL) })
	<-p.done
}

// freeze stops a process where it is and returns when every thread stands still.
func (p *process) freeze(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("demo: freeze: %w", err)
	}
	return poll(ctx, func() (bool, error) { return frozen(p.cmd.Process.Pid) })
}

// stop asks a process to end and kills it if it does not.
func (p *process) stop(patience time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		p.kill()
		return fmt.Errorf("demo: did not stop within %s", patience)
	}
}

func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		return ""
	}
	if len(data) > 2000 {
		data = data[len(data)-2000:]
	}
	return "\n" + string(data)
}
