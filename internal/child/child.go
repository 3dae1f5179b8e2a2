// Package child runs this binary's own commands as child processes, for demos,
// benchmarks and tests: it waits until they are up, and kills, freezes or stops
// them. A child never outlives its parent where the system can see to that.
package child

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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

const (
	startTimeout = 30 * time.Second
	pollEvery    = 5 * time.Millisecond
)

// Process is a child process.
type Process struct {
	// Ready is what it printed when it was up.
	Ready Ready
	// Log is the file with its messages.
	Log string
	// Done is closed when it has ended.
	Done <-chan struct{}

	cmd  *exec.Cmd
	once sync.Once
	err  error
}

// Command says what to start.
type Command struct {
	Binary string
	Args   []string
	// Env is added to this process's environment.
	Env []string
	// Log is the file that gets its messages; it is overwritten.
	Log string
	// Within is how long it may take to be ready; zero means 30 s.
	Within time.Duration
}

// name is the command's first argument, for errors.
func (c Command) name() string {
	if len(c.Args) == 0 {
		return c.Binary
	}
	return c.Args[0]
}

// Start starts a command and waits for its line of readiness.
func Start(ctx context.Context, c Command) (*Process, error) {
	p, out, err := Launch(ctx, c)
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
			p.Kill()
			return nil, fmt.Errorf("child: %s ended before it was ready; see %s%s", c.name(), p.Log, Tail(p.Log))
		}
		if err := json.Unmarshal(line, &p.Ready); err != nil {
			p.Kill()
			return nil, fmt.Errorf("child: %s printed %q", c.name(), line)
		}
		return p, nil
	case <-time.After(cmp.Or(c.Within, startTimeout)):
		p.Kill()
		return nil, fmt.Errorf("child: %s not ready after %s; see %s%s", c.name(), cmp.Or(c.Within, startTimeout), p.Log, Tail(p.Log))
	case <-ctx.Done():
		p.Kill()
		return nil, ctx.Err()
	}
}

// Launch starts a command and returns what it writes to its standard output,
// which must be read.
func Launch(ctx context.Context, c Command) (*Process, io.Reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	f, err := os.Create(c.Log)
	if err != nil {
		return nil, nil, fmt.Errorf("child: %w", err)
	}
	defer f.Close()
	cmd := exec.Command(c.Binary, c.Args...) //nolint:noctx // killed by Kill, so that it is reaped
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stderr = f
	cmd.SysProcAttr = dieWithParent()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("child: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("child: start %s: %w", c.name(), err)
	}
	done := make(chan struct{})
	p := &Process{cmd: cmd, Log: c.Log, Done: done}
	go func() {
		p.err = cmd.Wait()
		close(done)
	}()
	return p, out, nil
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends a process with SIGKILL and waits until it is gone.
func (p *Process) Kill() {
	p.once.Do(func() { _ = p.cmd.Process.Signal(syscall.SIGKILL) })
	<-p.Done
}

// Freeze stops a process where it is and returns when every thread stands still.
func (p *Process) Freeze(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("child: freeze: %w", err)
	}
	for {
		still, err := frozen(p.cmd.Process.Pid)
		if still || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// Stop asks a process to end and kills it if it does not.
func (p *Process) Stop(patience time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.Done:
		return p.err
	case <-time.After(patience):
		p.Kill()
		return fmt.Errorf("child: did not stop within %s", patience)
	}
}

// Tail returns the end of a file, for an error.
func Tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		return ""
	}
	if len(data) > 2000 {
		data = data[len(data)-2000:]
	}
	return "\n" + string(data)
}
