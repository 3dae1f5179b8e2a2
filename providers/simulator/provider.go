package simulator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Limits of one request.
const (
	maxBody   = 1 << 20
	maxLogged = 2048
)

// exchange is one provider request on its way through the server.
type exchange struct {
	st    *state // the state at arrival (S5)
	row   *Request
	route route
	rule  Rule
	ender ender

	pathID      string
	query       url.Values
	body        []byte
	token       string
	account     string
	known       bool
	key         string
	fingerprint string

	second bool      // this is the network's second delivery
	entry  *keyEntry // the key that this request has taken
	made   []*object
	result answer // of the execution, whatever the client is told
}

// serveProvider reads the request, logs it, and lets its fault play it.
func (s *Server) serveProvider(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	x := s.receive(r, body, err != nil)
	if err != nil {
		s.write(w, r, x, problem(http.StatusRequestEntityTooLarge, "body", "the body broke off or is too long"))
	} else {
		s.play(w, r, x)
	}
	s.cfg.Logger.LogAttrs(r.Context(), slog.LevelDebug, "request received",
		slog.String("provider_request_id", x.row.RequestID),
		slog.String("account", x.account),
		slog.String("reason", string(x.rule.Do)))
}

// receive logs the request, and finds its account and its rule.
func (s *Server) receive(r *http.Request, body []byte, incomplete bool) *exchange {
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	x := &exchange{
		query:       r.URL.Query(),
		body:        body,
		token:       token,
		key:         r.Header.Get("Idempotency-Key"),
		fingerprint: r.Method + " " + r.URL.Path + " " + hash,
		ender:       s.enderOf(r),
	}
	x.route, x.pathID = findRoute(s.routes, r.Method, r.URL)
	var labelled struct {
		Label string `json:"label"`
	}
	_ = json.Unmarshal(body, &labelled) // the log shows a label only where there is one

	s.mu.Lock()
	defer s.mu.Unlock()
	x.st = s.st
	x.account, x.known = x.st.useToken(token)
	if !x.known {
		x.account = ""
	}
	x.row = &Request{
		RequestID:      "req_" + uuid.NewString(),
		Method:         r.Method,
		Path:           cut(r.URL.Path),
		Query:          cut(r.URL.RawQuery),
		Account:        x.account,
		IdempotencyKey: cut(x.key),
		Label:          cut(labelled.Label),
		BodySHA256:     hash,
		BodyIncomplete: incomplete,
		ReceivedAt:     s.cfg.Now().UTC(),
		Answer:         answerPending,
	}
	if !incomplete {
		if a := x.st.pickRule(r.Method, r.URL.Path, body); a != nil {
			x.rule = a.Rule
			x.row.Fault, x.row.Rule, x.row.RuleName = a.Do, a.ID, a.Name
		}
	}
	x.st.log(x.row)
	return x
}

// cut keeps the log's rows small.
func cut(text string) string {
	return strings.Clone(text[:min(len(text), maxLogged)])
}

// claim asks for the request's key, and waits where the policy says so. The
// caller executes the request if run is true, and otherwise has the answer.
func (s *Server) claim(x *exchange) (a answer, run bool, err error) {
	if !x.known {
		return problem(http.StatusUnauthorized, "unauthorized", "the token is not known"), false, nil
	}
	for {
		s.mu.Lock()
		c := x.st.claim(x, s.cfg.Now())
		s.mu.Unlock()
		if c.wait == nil {
			return c.answer, c.run, nil
		}
		if err := await(x.ender, c.wait); err != nil {
			return answer{}, false, err
		}
	}
}

// execute runs the request; what it does is done when it returns (S1).
func (s *Server) execute(x *exchange) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.result = x.route.run(x.st, x, s.cfg.Now())
	return x.result
}

// process claims and executes.
func (s *Server) process(x *exchange) (answer, error) {
	a, run, err := s.claim(x)
	if err != nil || !run {
		return a, err
	}
	return s.execute(x), nil
}

func (s *Server) finish(x *exchange, sent answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.st.finish(x, sent)
}

// play does what the rule says. Every path ends with one of write, drop and
// cutShort.
func (s *Server) play(w http.ResponseWriter, r *http.Request, x *exchange) {
	switch x.rule.Do {
	case LoseRequest:
		s.drop(w, x)
	case Refuse:
		s.write(w, r, x, s.refusal(x, http.StatusServiceUnavailable, "unavailable"))
	case RateLimit:
		s.write(w, r, x, s.refusal(x, http.StatusTooManyRequests, "rate_limited"))
	case StatusOnly:
		s.playStatus(w, r, x)
	case ApplyLate:
		s.playLate(w, x)
	case noFault, LoseResponse, CutHeaders, CutBody, Delay, Hold, StatusAfterCommit, Garbage, DuplicateDelivery:
		a, err := s.process(x)
		if err != nil {
			s.drop(w, x)
			return
		}
		s.playAfter(w, r, x, a)
	}
}

// playAfter plays the faults that come after the commit.
func (s *Server) playAfter(w http.ResponseWriter, r *http.Request, x *exchange, a answer) {
	switch x.rule.Do {
	case noFault:
		s.finish(x, a)
		s.write(w, r, x, a)
	case LoseResponse:
		s.finish(x, a)
		s.drop(w, x)
	case CutHeaders:
		s.finish(x, a)
		s.cutShort(w, x, x.withHeaders(a), 0)
	case CutBody:
		s.finish(x, a)
		s.cutShort(w, x, x.withHeaders(a), len(a.body)/2)
	case Delay:
		s.playDelay(w, r, x, a)
	case Hold:
		s.playHold(w, r, x, a)
	case StatusAfterCommit:
		b := x.replaced(orStatus(x.rule.Status, http.StatusInternalServerError), "internal")
		s.finish(x, b)
		s.write(w, r, x, b)
	case Garbage:
		s.finish(x, a)
		s.write(w, r, x, x.garbage())
	case DuplicateDelivery:
		s.finish(x, a)
		s.deliverAgain(x)
		s.write(w, r, x, x.withHeaders(a))
	case LoseRequest, Refuse, RateLimit, StatusOnly, ApplyLate:
		panic(fmt.Sprintf("simulator: %s does not come after the commit", x.rule.Do))
	}
}

// playDelay answers later; the key is in flight until then.
func (s *Server) playDelay(w http.ResponseWriter, r *http.Request, x *exchange, a answer) {
	err := x.ender.sleep(time.Duration(x.rule.After))
	s.finish(x, a)
	if err != nil {
		s.drop(w, x)
		return
	}
	s.write(w, r, x, x.withHeaders(a))
}

// playStatus answers without executing. A key that is new is taken, because
// the policy may store the answer.
func (s *Server) playStatus(w http.ResponseWriter, r *http.Request, x *exchange) {
	if _, _, err := s.claim(x); err != nil {
		s.drop(w, x)
		return
	}
	a := x.replaced(orStatus(x.rule.Status, http.StatusInternalServerError), "internal")
	s.finish(x, a)
	s.mu.Lock()
	x.row.Replayed = false
	s.mu.Unlock()
	s.write(w, r, x, a)
}

// playLate closes the connection, and executes when nobody listens any more.
// The key is taken at once, so that it is in flight until then.
func (s *Server) playLate(w http.ResponseWriter, x *exchange) {
	s.hangUp(w, x, func() {
		a, run, err := s.claim(x)
		if err == nil && run {
			err = x.ender.sleep(time.Duration(x.rule.After))
			if err == nil {
				a = s.execute(x)
			}
		}
		if err != nil {
			a = answer{}
		}
		s.finish(x, a)
	})
}

// deliverAgain executes the request a second time.
func (s *Server) deliverAgain(x *exchange) {
	again := *x
	again.second, again.entry, again.made, again.result = true, nil, nil, answer{}
	s.mu.Lock()
	replayed := x.row.Replayed
	s.mu.Unlock()
	a, err := s.process(&again)
	if err != nil {
		a = answer{}
	}
	s.finish(&again, a)
	s.mu.Lock()
	x.row.Replayed = replayed
	s.mu.Unlock()
}

// refusal is an answer from before anything was done.
func (s *Server) refusal(x *exchange, status int, code string) answer {
	a := x.replaced(orStatus(x.rule.Status, status), code)
	wait := time.Duration(x.rule.After)
	if wait == 0 || a.header.Get("Retry-After") != "" {
		return a
	}
	if x.rule.RetryAsDate {
		s.mu.Lock()
		at := x.st.shown(s.cfg.Now()).Add(wait)
		s.mu.Unlock()
		return a.with("Retry-After", at.Format(http.TimeFormat))
	}
	return a.with("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}

// replaced is the answer that the rule gives in place of the real one.
func (x *exchange) replaced(status int, code string) answer {
	a := problem(status, code, "the simulator was told to answer this")
	if x.rule.Body != "" {
		a.body = []byte(x.rule.Body)
	}
	return x.withHeaders(a)
}

func (x *exchange) garbage() answer {
	a := answer{status: orStatus(x.rule.Status, http.StatusOK), body: []byte("<html>\x00\xff\xfe{\"id\":")}
	if x.rule.Body != "" {
		a.body = []byte(x.rule.Body)
	}
	return x.withHeaders(a)
}

func (x *exchange) withHeaders(a answer) answer {
	for name, value := range x.rule.Headers {
		a = a.with(name, value)
	}
	return a
}

func orStatus(status, otherwise int) int {
	if status == 0 {
		return otherwise
	}
	return status
}

// setAnswer writes the outcome into the request log.
func (s *Server) setAnswer(x *exchange, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.row.Answer = text
}

// dress adds the headers that every answer of the provider has.
func (s *Server) dress(x *exchange, a answer) answer {
	s.mu.Lock()
	date := x.st.shown(s.cfg.Now()).Format(http.TimeFormat)
	s.mu.Unlock()
	a = a.with("X-Request-Id", x.row.RequestID).with("Date", date)
	if a.header.Get("Content-Type") == "" {
		a = a.with("Content-Type", "application/json")
	}
	if a.status == http.StatusNoContent || a.status == http.StatusNotModified {
		a.body = nil
		return a
	}
	return a.with("Content-Length", strconv.Itoa(len(a.body)))
}

// write sends the answer. If the client is gone, the log says so, and nobody
// else needs to know.
func (s *Server) write(w http.ResponseWriter, r *http.Request, x *exchange, a answer) {
	_ = s.tryWrite(w, r, x, a)
}

// tryWrite sends the answer and returns an error if the client is gone. The log
// has the answer before the client can have it.
func (s *Server) tryWrite(w http.ResponseWriter, r *http.Request, x *exchange, a answer) error {
	s.setAnswer(x, strconv.Itoa(a.status))
	err := r.Context().Err()
	if err == nil {
		err = writeAnswer(w, s.dress(x, a))
	}
	if err != nil {
		s.setAnswer(x, answerNone)
		return fmt.Errorf("simulator: write the answer: %w", err)
	}
	return nil
}

// writeAnswer sends the answer up to the socket.
func writeAnswer(w http.ResponseWriter, a answer) error {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	if len(a.body) > 0 {
		if _, err := w.Write(a.body); err != nil {
			return err
		}
	}
	return http.NewResponseController(w).Flush()
}
