package simulator

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// late is a request that commits when the clock has passed its time.
type late struct {
	due time.Time
	x   *exchange
}

// sleep waits: by Config.Sleep if there is one, else by a timer.
func (s *Server) sleep(ctx context.Context, e ender, d time.Duration) error {
	if s.cfg.Sleep == nil {
		return e.sleep(d)
	}
	if err := s.cfg.Sleep(ctx, d); err != nil {
		return errClosed
	}
	return nil
}

// playLate closes the connection, and executes when nobody listens any more.
// The key is taken at once, so that it is in flight until then.
func (s *Server) playLate(w http.ResponseWriter, r *http.Request, x *exchange) {
	after := time.Duration(x.rule.After)
	if s.cfg.LateByClock {
		s.commitLater(x, after)
		s.drop(w, x)
		return
	}
	ctx := context.WithoutCancel(r.Context()) // which ends with the connection
	s.hangUp(w, x, func() { s.commitAfter(ctx, x, after) })
}

// commitAfter takes the key, waits and executes.
func (s *Server) commitAfter(ctx context.Context, x *exchange, after time.Duration) {
	a, run, err := s.claim(x)
	if err == nil && run {
		err = s.sleep(ctx, x.ender, after)
		if err == nil {
			a = s.execute(x)
		}
	}
	if err != nil {
		a = answer{}
	}
	s.finish(x, a)
}

// commitLater takes the key and leaves the rest to the clock.
func (s *Server) commitLater(x *exchange, after time.Duration) {
	a, run, err := s.claim(x)
	if err != nil || !run {
		s.finish(x, a)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	due := late{s.cfg.Now().Add(after), x}
	at, _ := slices.BinarySearchFunc(x.st.late, due, func(l, t late) int {
		if l.due.After(t.due) {
			return 1
		}
		return -1 // behind those of the same time
	})
	x.st.late = slices.Insert(x.st.late, at, due)
}

// settle commits what the clock has passed.
func (s *Server) settle() {
	if !s.cfg.LateByClock {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	for len(s.st.late) > 0 && !now.Before(s.st.late[0].due) {
		l := s.st.late[0]
		s.st.late = s.st.late[1:]
		s.st.finish(l.x, l.x.execute(l.due))
	}
}
