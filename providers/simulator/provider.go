package simulator

import (
	"crypto/sha256"
	"encoding/hex"
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

	dialect      *dialect
	settings     Settings // in force for this request
	method       string
	path         string
	host         string
	header       http.Header
	vars         map[string]string // the names of the route's pattern
	query        url.Values
	rawQuery     string
	body         []byte
	args         map[string]any // the decoded body
	wrong        error          // why it could not be decoded
	fields       []field        // the root fields of a GraphQL operation
	graphQLWrong error          // why its document could not be parsed
	label        string
	reused       bool // the connection has carried a request before
	token        string
	account      string
	known        bool
	key          string
	fingerprint  string

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
		s.write(w, r, x, x.fail(longBody, "the body broke off or is too long"))
	} else {
		s.play(w, r, x)
	}
	s.cfg.Logger.LogAttrs(r.Context(), slog.LevelDebug, "request received",
		slog.String("provider_request_id", x.row.RequestID),
		slog.String("account", x.account),
		slog.String("reason", string(x.rule.Do)))
}

// receive logs the request, and finds its route, account and rule.
func (s *Server) receive(r *http.Request, body []byte, incomplete bool) *exchange {
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &exchange{
		st: s.st, dialect: s.st.dialect, settings: s.st.settings,
		method: r.Method, path: r.URL.Path, host: r.Host, header: r.Header,
		query: r.URL.Query(), rawQuery: r.URL.RawQuery, body: body,
		fingerprint: r.Method + " " + r.URL.Path + " " + hash,
		ender:       s.enderOf(r),
		reused:      reusedConnection(r),
	}
	if x.args, x.wrong = decodeBody(r.Header.Get("Content-Type"), body); x.args == nil {
		x.args = map[string]any{}
	}
	x.findRoute(r.URL)
	x.token = x.dialect.auth(x)
	x.key = r.Header.Get("Idempotency-Key")
	if x.dialect.key != nil {
		x.key = x.dialect.key(x)
	}
	x.label = x.findLabel(s.mark)
	if x.account, x.known = x.st.useToken(x.token); !x.known {
		x.account = ""
	}
	shownKey := x.key
	if x.route.chosen != nil && shownKey == "" {
		shownKey = x.route.chosen(x)
	}
	x.row = &Request{
		RequestID:      "req_" + uuid.NewString(),
		Method:         r.Method,
		Path:           cut(r.URL.Path),
		Query:          cut(r.URL.RawQuery),
		Account:        x.account,
		Operation:      string(x.route.op),
		IdempotencyKey: cut(shownKey),
		Label:          cut(x.label),
		BodySHA256:     hash,
		BodyIncomplete: incomplete,
		ReceivedAt:     s.cfg.Now().UTC(),
		Answer:         answerPending,
	}
	if !incomplete {
		x.take(x.st.pickRule(x))
	}
	x.st.log(x.row)
	return x
}

// take puts a rule into force for the request; nil is no rule.
func (x *exchange) take(a *activeRule) {
	if a == nil {
		return
	}
	x.rule = a.Rule
	x.row.Fault, x.row.Rule, x.row.RuleName = a.Do, a.ID, a.Name
	if with, err := x.settings.patched(a.With); err == nil { // held true when the rule was added
		x.settings = with
	}
	if a.AsAccount != "" && x.known {
		x.account, x.row.Account = a.AsAccount, a.AsAccount
	}
}

// cut keeps the log's rows small.
func cut(text string) string {
	return strings.Clone(text[:min(len(text), maxLogged)])
}

// claim asks for the request's key, and waits where the policy says so. The
// caller executes the request if run is true, and otherwise has the answer.
func (s *Server) claim(x *exchange) (a answer, run bool, err error) {
	if !x.known {
		return x.fail(badToken, "the token is not known"), false, nil
	}
	if x.wrong != nil && !x.dialect.plain {
		return x.fail(badBody, x.wrong.Error()), false, nil
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
	return x.execute(s.cfg.Now())
}

// execute runs the request at a time, and then what the rule says that others do
// to the object. The caller holds the mutex.
func (x *exchange) execute(now time.Time) answer {
	x.result = x.route.run(x.st, x, now)
	if len(x.made) == 0 {
		return x.result
	}
	o := x.made[0]
	if x.rule.Side {
		x.st.commitSide(x, o, now)
	}
	title, none := EditedTitle, ""
	switch x.rule.Human {
	case HumanEdit:
		o.edit(ObjectEdit{Title: &title}, now.UTC())
	case HumanRelabel:
		o.edit(ObjectEdit{Label: &none}, now.UTC())
	case HumanDelete:
		o.Deleted, o.DeletedAt = true, now.UTC()
	}
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
	case HalfOpen:
		_ = await(x.ender, r.Context().Done()) // either way nobody gets an answer
		s.drop(w, x)
	case Refuse:
		s.write(w, r, x, s.refusal(x, unavailable))
	case RateLimit:
		s.write(w, r, x, s.refusal(x, rateLimited))
	case StatusOnly:
		s.playStatus(w, r, x)
	case ApplyLate:
		s.playLate(w, r, x)
	case noFault, Pass, TLSFailure, LoseResponse, CutHeaders, CutBody, Delay, Hold, StatusAfterCommit, Garbage, DuplicateDelivery:
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
	case noFault, Pass, TLSFailure:
		s.finish(x, a)
		s.write(w, r, x, x.withHeaders(a))
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
		b := x.told(failure{shape: shape{trouble: internal}})
		s.finish(x, b)
		s.write(w, r, x, b)
	case Garbage:
		s.finish(x, a)
		s.write(w, r, x, x.garbage())
	case DuplicateDelivery:
		s.finish(x, a)
		s.deliverAgain(x)
		s.write(w, r, x, x.withHeaders(a))
	case LoseRequest, HalfOpen, Refuse, RateLimit, StatusOnly, ApplyLate:
		panic(fmt.Sprintf("simulator: %s does not come after the commit", x.rule.Do))
	}
}

// playDelay answers later; the key is in flight until then.
func (s *Server) playDelay(w http.ResponseWriter, r *http.Request, x *exchange, a answer) {
	err := s.sleep(r.Context(), x.ender, time.Duration(x.rule.After))
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
	a := x.told(failure{shape: shape{trouble: internal}})
	s.finish(x, a)
	s.mu.Lock()
	x.row.Replayed = false
	s.mu.Unlock()
	s.write(w, r, x, a)
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
func (s *Server) refusal(x *exchange, t trouble) answer {
	wait := time.Duration(x.rule.After)
	a := x.told(failure{shape: shape{trouble: t}, wait: wait})
	if wait == 0 || a.header.Get("Retry-After") != "" {
		return a
	}
	if x.rule.RetryAsDate {
		s.mu.Lock()
		at := x.settings.shown(s.cfg.Now()).Add(wait)
		s.mu.Unlock()
		return a.with("Retry-After", at.Format(http.TimeFormat))
	}
	return a.with("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}

// told is the answer that the rule gives in place of the real one.
func (x *exchange) told(f failure) answer {
	f.status, f.message = x.rule.Status, "the simulator was told to answer this"
	if x.rule.Status != 0 && !x.dialect.plain {
		f.trouble = troubleOf(x.rule.Status)
	}
	a := x.failed(f)
	if x.rule.Status != 0 {
		a.status, a.judged = x.rule.Status, 0
	}
	if x.rule.Body != "" {
		a.body = []byte(x.rule.Body)
	}
	return x.withHeaders(a)
}

func (x *exchange) garbage() answer {
	a := answer{status: orNumber(x.rule.Status, http.StatusOK), body: []byte("<html>\x00\xff\xfe{\"id\":")}
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

func orNumber(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
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
	date := x.settings.shown(s.cfg.Now()).Format(http.TimeFormat)
	s.mu.Unlock()
	a = a.with("Date", date)
	if name := x.dialect.requestID; name != "" {
		a = a.with(name, x.row.RequestID)
	}
	for name, value := range x.dialect.headers {
		if a.header.Get(name) == "" {
			a = a.with(name, value)
		}
	}
	if x.entry != nil {
		a = a.withAll(x.dialect.keyTaken)
	}
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
