package simulator

import (
	"net/http"
	"slices"
	"time"
)

// HeldAnswer is an answer that waits for its release.
type HeldAnswer struct {
	// Request is the number of the request.
	Request int64 `json:"request"`
	// Method is its HTTP method.
	Method string `json:"method"`
	// Path is its path.
	Path string `json:"path"`
	// ObjectID is the object it committed; empty if none.
	ObjectID string `json:"object_id"`
	// HeldAt is since when the answer waits.
	HeldAt time.Time `json:"held_at"`
}

// WrittenAnswer is an answer that was held and has been released.
type WrittenAnswer struct {
	// Request is the number of the request.
	Request int64 `json:"request"`
	// WrittenAt is when the write to the socket had ended.
	WrittenAt time.Time `json:"written_at"`
	// OK is false if the client was gone.
	OK bool `json:"ok"`
}

type heldAnswer struct {
	HeldAnswer
	release chan struct{}
}

// playHold keeps the answer until it is released or the server ends. The
// request's key is in flight all that time.
func (s *Server) playHold(w http.ResponseWriter, r *http.Request, x *exchange, a answer) {
	h := s.hold(x)
	err := await(x.ender, h.release)
	s.finish(x, a)
	if err != nil {
		s.unhold(x)
		s.drop(w, x)
		return
	}
	err = s.tryWrite(w, r, x, x.withHeaders(a))
	s.recordWritten(x, err == nil)
}

func (s *Server) hold(x *exchange) *heldAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &heldAnswer{
		HeldAnswer: HeldAnswer{
			Request:  x.row.Number,
			Method:   x.row.Method,
			Path:     x.row.Path,
			ObjectID: x.row.ObjectID,
			HeldAt:   s.cfg.Now().UTC(),
		},
		release: make(chan struct{}),
	}
	if x.st != s.st { // a reset came in between and will release nothing more
		close(h.release)
		return h
	}
	x.st.held[h.Request] = h
	s.signal()
	return h
}

func (s *Server) unhold(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(x.st.held, x.row.Number)
}

func (s *Server) recordWritten(x *exchange, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(x.st.written) >= maxWritten {
		x.st.written = x.st.written[1:]
		x.st.writtenDropped++
	}
	x.st.written = append(x.st.written, WrittenAnswer{
		Request: x.row.Number, WrittenAt: s.cfg.Now().UTC(), OK: ok,
	})
	s.signal()
}

// signal wakes the long polls. The caller holds the mutex.
func (s *Server) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// release frees one held answer, or all if request is zero, and returns how
// many.
func (st *state) release(request int64) int {
	n := 0
	for number, h := range st.held {
		if request == 0 || request == number {
			close(h.release)
			delete(st.held, number)
			n++
		}
	}
	return n
}

func (st *state) heldList() []HeldAnswer {
	list := make([]HeldAnswer, 0, len(st.held))
	for _, h := range st.held {
		list = append(list, h.HeldAnswer)
	}
	slices.SortFunc(list, func(a, b HeldAnswer) int { return int(a.Request - b.Request) })
	return list
}

func (st *state) writtenList() []WrittenAnswer {
	return append([]WrittenAnswer{}, st.written...)
}
