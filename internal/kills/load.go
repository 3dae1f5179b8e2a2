package kills

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
)

const (
	// callers is how many intents may wait for an answer at the same time, so that
	// the load goes on while nobody answers.
	callers = 64
	// loadConns is how many connections they share.
	loadConns = 4
	// askTime bounds one request; an answer that has not come by then is unknown.
	askTime = time.Second
	// askAgain is the wait after a request that failed at once.
	askAgain = 10 * time.Millisecond
	// Shares of intents that go to the durable inbox, that are handed in again after
	// their acknowledgement, and that are handed in again with other content.
	inboxShare, repeatShare, otherShare = 0.25, 0.05, 0.03
)

// intent is one wish of the load: a line of its file.
type intent struct {
	ID       string `json:"id"`
	Provider string `json:"provider"`
	Title    string `json:"title"`
	Note     string `json:"note"`
	// Inbox: it was acknowledged by the durable inbox, not by the service.
	Inbox bool `json:"inbox,omitempty"`
}

func (i intent) request() api.SubmitRequest {
	args, _ := json.Marshal(map[string]string{"title": i.Title, "note": i.Note}) //nolint:errchkjson // two texts
	return api.SubmitRequest{OperationID: i.ID, Provider: i.Provider, Account: account, Action: action, Args: args}
}

// load hands intents in at a steady rate, whatever the ledger does, and keeps a
// file of those that were acknowledged. An intent whose answer did not come is
// handed in again, with the same id, until one comes.
type load struct {
	w       *world
	rate    int
	conns   []*nats.Conn
	clients []*opledger.Client
	file    *ackFile

	// submitted counts intents, unanswered requests without an answer.
	submitted, acknowledged, unanswered, repeated, conflicts atomic.Int64

	mu sync.Mutex
	// wrong are answers that must not be.
	wrong []string
}

func newLoad(w *world, rate int) (*load, error) {
	l := &load{w: w, rate: rate}
	var err error
	if l.file, err = createFile(filepath.Join(w.dir, "acknowledged.jsonl")); err != nil {
		return nil, err
	}
	for range loadConns {
		nc, err := w.connect(agent, w.agentPw)
		if err != nil {
			return nil, err
		}
		l.conns = append(l.conns, nc)
		c, err := opledger.NewClient(opledger.ClientConfig{Conn: nc, Tenant: tenant})
		if err != nil {
			return nil, err
		}
		l.clients = append(l.clients, c)
	}
	return l, nil
}

func (l *load) close() {
	for _, nc := range l.conns {
		nc.Close()
	}
	_ = l.file.close()
}

// run hands intents in until stop ends, and then waits for the answers of those
// under way, until ctx ends.
func (l *load) run(ctx, stop context.Context, seed uint64) error {
	wishes := make(chan intent, 10*callers)
	var wg sync.WaitGroup
	for i := range callers {
		rnd := mathrand.New(mathrand.NewPCG(seed, uint64(i)+100)) //nolint:gosec // a seed must repeat
		wg.Go(func() {
			for wish := range wishes {
				l.handIn(ctx, i%loadConns, wish, rnd)
			}
		})
	}
	tick := time.NewTicker(time.Second / time.Duration(l.rate))
	defer tick.Stop()
	for n := 0; stop.Err() == nil && ctx.Err() == nil; n++ {
		select {
		case <-tick.C:
		case <-stop.Done():
			continue
		}
		p := l.w.providers[n%len(l.w.providers)]
		wish := intent{ID: fmt.Sprintf("op-%06d", n), Provider: p.name, Note: fmt.Sprintf("%d of %d", n, seed)}
		wish.Title = "task " + wish.ID
		select {
		case wishes <- wish:
		case <-stop.Done():
		}
	}
	close(wishes)
	wg.Wait()
	return errors.Join(ctx.Err(), l.file.failed())
}

// handIn hands one wish in until it is acknowledged.
func (l *load) handIn(ctx context.Context, conn int, wish intent, rnd *mathrand.Rand) {
	l.submitted.Add(1)
	wish.Inbox = rnd.Float64() < inboxShare
	for !l.ask(ctx, conn, wish) {
		l.unanswered.Add(1)
		if !pause(ctx, askAgain) {
			return
		}
	}
	l.file.add(wish)
	l.acknowledged.Add(1)
	if rnd.Float64() < repeatShare && l.ask(ctx, conn, wish) {
		l.repeated.Add(1)
	}
	if rnd.Float64() < otherShare {
		l.other(ctx, conn, wish)
	}
}

// ask hands a wish in once and reports whether it was acknowledged.
func (l *load) ask(ctx context.Context, conn int, wish intent) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if wish.Inbox {
		return l.leave(ctx, conn, wish)
	}
	_, err := l.clients[conn].Submit(ctx, wish.request())
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == api.ProblemConflict {
		l.blame("%s with the same content is called a conflict: %v", wish.ID, err)
		return true
	}
	return err == nil
}

// leave leaves a wish in the tenant's durable inbox.
func (l *load) leave(ctx context.Context, conn int, wish intent) bool {
	body, err := json.Marshal(wish.request())
	if err != nil {
		return false
	}
	answer, err := l.conns[conn].RequestWithContext(ctx, events.Subjects{}.Inbox(tenant), body)
	if err != nil {
		return false
	}
	var ack struct {
		Seq   uint64          `json:"seq"`
		Error json.RawMessage `json:"error"`
	}
	return json.Unmarshal(answer.Data, &ack) == nil && ack.Seq > 0 && ack.Error == nil
}

// other hands in other content under the id of a wish that is recorded: a conflict
// is the only answer.
func (l *load) other(ctx context.Context, conn int, wish intent) {
	if wish.Inbox {
		return // nobody knows yet whether it was read
	}
	changed := wish
	changed.Title += " changed"
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, err := l.clients[conn].Submit(ctx, changed.request())
	p, answered := errors.AsType[*api.Problem](err)
	switch {
	case answered && p.Code == api.ProblemConflict:
		l.conflicts.Add(1)
	case err == nil:
		l.blame("%s was recorded and other content under its id was acknowledged", wish.ID)
	}
}

func (l *load) blame(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// ackFile is the load's own record of what was acknowledged: one line each, on the
// disk before the load goes on.
type ackFile struct {
	mu  sync.Mutex
	f   *os.File
	err error
}

func createFile(path string) (*ackFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("kills: %w", err)
	}
	return &ackFile{f: f}, nil
}

func (f *ackFile) add(i intent) {
	line, err := json.Marshal(i)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		_, err = f.f.Write(append(line, '\n'))
	}
	f.err = errors.Join(f.err, err, f.f.Sync())
}

func (f *ackFile) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *ackFile) close() error { return f.f.Close() }

// readFile reads the file back.
func readFile(path string) ([]intent, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("kills: %w", err)
	}
	defer func() { _ = f.Close() }()
	var out []intent
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var i intent
		if err := json.Unmarshal(lines.Bytes(), &i); err != nil {
			return nil, fmt.Errorf("kills: %s: %w", path, err)
		}
		out = append(out, i)
	}
	return out, lines.Err()
}
