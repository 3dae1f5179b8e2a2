package simulator

import (
	"bytes"
	"cmp"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Limits of the admin API.
const (
	maxAdminBody = 1 << 20
	maxWait      = 60 * time.Second
)

// ObjectFilter selects rows of the truth table. An empty field matches all.
type ObjectFilter struct {
	ID      string
	Account string
	Label   string
	Title   string
}

// ObjectEdit is what a human changes in an object. A nil field stays.
type ObjectEdit struct {
	Title *string `json:"title,omitempty"`
	Label *string `json:"label,omitempty"`
}

// AccountChange says what a bearer token will mean. A token that is not known
// yet is added.
type AccountChange struct {
	// Token is the bearer token.
	Token string `json:"token"`
	// Account is the account it becomes. It is required unless Revoke is set.
	Account string `json:"account,omitempty"`
	// Revoke makes the token unknown: 401.
	Revoke bool `json:"revoke,omitempty"`
	// After is how many further requests the token keeps its meaning. Zero
	// means from now on.
	After int `json:"after,omitempty"`
}

func (c AccountChange) validate() error {
	if c.Token == "" {
		return errors.New("simulator: account change: token is required")
	}
	if (c.Account == "") != c.Revoke {
		return errors.New("simulator: account change: one of account and revoke is required")
	}
	if c.After < 0 {
		return fmt.Errorf("simulator: account change: after must not be negative, it is %d", c.After)
	}
	return nil
}

// RequestLog is the request log.
type RequestLog struct {
	// Items are the rows, oldest first.
	Items []Request `json:"items"`
	// Received is how many requests have come in since the last reset.
	Received int64 `json:"received"`
	// Dropped is how many of the oldest rows the log no longer has.
	Dropped int64 `json:"dropped"`
}

// Sends is what went over the wire for one wish, and what became of it. Requests
// that create or upsert belong to one wish if they have the same label; without a
// label the same key; without either the same body. More than one object is what
// a ledger is there to prevent.
type Sends struct {
	// Label is the label of the wish; empty if it has none.
	Label string `json:"label"`
	// Keys are the different keys, or ids chosen by the client, that it came with.
	Keys []string `json:"keys,omitempty"`
	// BodySHA256 is the hash of its first body.
	BodySHA256 string `json:"body_sha256"`
	// Sends is how many requests came in.
	Sends int `json:"sends"`
	// Objects is how many objects they committed, deleted ones too, and without
	// those that the provider made on its own.
	Objects int `json:"objects"`
	// Requests are the numbers of the requests.
	Requests []int64 `json:"requests"`
}

// list is the body of the other lists.
type list[T any] struct {
	Items []T `json:"items"`
}

type writtenBody struct {
	Items   []WrittenAnswer `json:"items"`
	Dropped int64           `json:"dropped"`
}

type releaseBody struct {
	Request int64 `json:"request,omitempty"`
}

type releasedBody struct {
	Released int `json:"released"`
}

// adminHandler builds the admin API.
func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(*http.Request) answer) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxAdminBody)
			a := h(r)
			_ = writeAnswer(w, a.with("Content-Type", "application/json")) // a client that is gone needs no answer
		})
	}
	guarded := func(pattern string, h func(*http.Request) answer) {
		handle(pattern, func(r *http.Request) answer {
			want := "Bearer " + s.cfg.AdminToken
			got := r.Header.Get("Authorization")
			if s.cfg.AdminToken != "" && subtle.ConstantTimeCompare([]byte(want), []byte(got)) != 1 {
				return problem(http.StatusUnauthorized, "unauthorized", "the admin token is missing or wrong")
			}
			return h(r)
		})
	}
	handle("GET /_sim/healthz", func(*http.Request) answer {
		return jsonAnswer(http.StatusOK, map[string]string{"status": "ok"})
	})
	guarded("GET /_sim/objects", s.adminObjects)
	guarded("PATCH /_sim/objects/{id}", s.adminEdit)
	guarded("DELETE /_sim/objects/{id}", s.adminEdit)
	guarded("GET /_sim/requests", s.adminRequests)
	guarded("GET /_sim/sends", s.adminSends)
	guarded("POST /_sim/rules", s.adminAddRule)
	guarded("GET /_sim/rules", s.adminRules)
	guarded("DELETE /_sim/rules", s.adminDeleteRules)
	guarded("DELETE /_sim/rules/{id}", s.adminDeleteRule)
	guarded("GET /_sim/settings", s.adminSettings)
	guarded("PATCH /_sim/settings", s.adminPatchSettings)
	guarded("POST /_sim/accounts", s.adminAccount)
	guarded("POST /_sim/release", s.adminRelease)
	guarded("GET /_sim/held", s.adminHeld)
	guarded("GET /_sim/written", s.adminWritten)
	guarded("POST /_sim/reset", s.adminReset)
	guarded("/_sim/", func(*http.Request) answer {
		return problem(http.StatusNotFound, "not_found", "there is no such admin path or method")
	})
	return mux
}

func invalid(err error) answer {
	return problem(http.StatusBadRequest, "invalid", err.Error())
}

// decode reads one JSON value into v, which keeps what the value does not name.
// An empty body is an error unless optional is set.
func decode(body io.Reader, v any, optional bool) error {
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if optional && errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("simulator: decode the body: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("simulator: decode the body: more than one value")
	}
	return nil
}

func filterOf(r *http.Request) ObjectFilter {
	q := r.URL.Query()
	return ObjectFilter{ID: q.Get("id"), Account: q.Get("account"), Label: q.Get("label"), Title: q.Get("title")}
}

func (s *Server) adminObjects(r *http.Request) answer {
	s.mu.Lock()
	rows := s.st.find(filterOf(r))
	items := make([]Object, len(rows))
	for i, o := range rows {
		items[i] = o.Object
	}
	s.mu.Unlock()
	return jsonAnswer(http.StatusOK, list[Object]{items})
}

// adminEdit changes or deletes the first object with the id that is not yet
// deleted.
func (s *Server) adminEdit(r *http.Request) answer {
	var edit ObjectEdit
	if r.Method == http.MethodPatch {
		if err := decode(r.Body, &edit, false); err != nil {
			return invalid(err)
		}
	}
	f := ObjectFilter{ID: r.PathValue("id"), Account: r.URL.Query().Get("account")}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now().UTC()
	for _, o := range s.st.find(f) {
		if o.Deleted {
			continue
		}
		if r.Method == http.MethodDelete {
			o.Deleted, o.DeletedAt = true, now
			return jsonAnswer(http.StatusOK, o.Object)
		}
		o.edit(edit, now)
		return jsonAnswer(http.StatusOK, o.Object)
	}
	return problem(http.StatusNotFound, "not_found", "there is no such object, or it is deleted")
}

func (s *Server) adminRequests(r *http.Request) answer {
	after, err := number(r, "after")
	if err != nil {
		return invalid(err)
	}
	s.mu.Lock()
	log := RequestLog{Items: []Request{}, Received: s.st.received, Dropped: s.st.dropped}
	for _, row := range s.st.requests {
		if row.Number > after {
			log.Items = append(log.Items, *row)
		}
	}
	s.mu.Unlock()
	return jsonAnswer(http.StatusOK, log)
}

// adminSends counts the writes of the log by wish.
func (s *Server) adminSends(*http.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []Sends{}
	byWish, byRequest := map[string]int{}, map[int64]int{}
	for _, row := range s.st.requests {
		if !operation(row.Operation).writes() {
			continue
		}
		wish := cmp.Or(row.Label, row.IdempotencyKey, row.BodySHA256)
		i, ok := byWish[wish]
		if !ok {
			i = len(items)
			byWish[wish] = i
			items = append(items, Sends{Label: row.Label, BodySHA256: row.BodySHA256})
		}
		byRequest[row.Number] = i
		items[i].Requests = append(items[i].Requests, row.Number)
		items[i].Sends++
		if key := row.IdempotencyKey; key != "" && !slices.Contains(items[i].Keys, key) {
			items[i].Keys = append(items[i].Keys, key)
		}
	}
	for _, o := range s.st.objects {
		if i, ok := byRequest[o.Request]; ok && !o.Side {
			items[i].Objects++
		}
	}
	return jsonAnswer(http.StatusOK, list[Sends]{items})
}

func (s *Server) adminAddRule(r *http.Request) answer {
	var rule Rule
	if err := decode(r.Body, &rule, false); err != nil {
		return invalid(err)
	}
	if err := rule.validate(); err != nil {
		return invalid(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.st.rules) >= maxRules {
		return problem(http.StatusConflict, "full", fmt.Sprintf("there are %d rules already", maxRules))
	}
	s.st.ruleSeen++
	a := newActiveRule(rule, s.st.ruleSeen, s.st.settings.Seed)
	s.st.rules = append(s.st.rules, a)
	return jsonAnswer(http.StatusCreated, a.RuleState)
}

func (s *Server) adminRules(*http.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make([]RuleState, len(s.st.rules))
	for i, a := range s.st.rules {
		items[i] = a.RuleState
	}
	return jsonAnswer(http.StatusOK, list[RuleState]{items})
}

func (s *Server) adminDeleteRules(*http.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.rules = nil
	return answer{status: http.StatusNoContent}
}

func (s *Server) adminDeleteRule(r *http.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range s.st.rules {
		if strconv.FormatInt(a.ID, 10) == r.PathValue("id") {
			s.st.rules = slices.Delete(s.st.rules, i, i+1)
			return answer{status: http.StatusNoContent}
		}
	}
	return problem(http.StatusNotFound, "not_found", "there is no such rule")
}

func (s *Server) adminSettings(*http.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return jsonAnswer(http.StatusOK, s.st.settings)
}

// adminPatchSettings changes the settings that the body names.
func (s *Server) adminPatchSettings(r *http.Request) answer {
	var patch json.RawMessage
	if err := decode(r.Body, &patch, false); err != nil {
		return invalid(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.st.settings
	if err := decode(bytes.NewReader(patch), &next, false); err != nil {
		return invalid(err)
	}
	next = next.withDefaults()
	if err := next.validate(); err != nil {
		return invalid(err)
	}
	s.st.apply(next)
	return jsonAnswer(http.StatusOK, next)
}

func (s *Server) adminAccount(r *http.Request) answer {
	var c AccountChange
	if err := decode(r.Body, &c, false); err != nil {
		return invalid(err)
	}
	if err := c.validate(); err != nil {
		return invalid(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.st.tokens[c.Token]
	if t == nil {
		if len(s.st.tokens) >= maxTokens {
			return problem(http.StatusConflict, "full", fmt.Sprintf("there are %d tokens already", maxTokens))
		}
		t = &tokenState{revoked: true}
		s.st.tokens[c.Token] = t
	}
	if c.After == 0 {
		t.become(c)
	} else {
		t.next = &c
	}
	return answer{status: http.StatusNoContent}
}

func (s *Server) adminRelease(r *http.Request) answer {
	var body releaseBody
	if err := decode(r.Body, &body, true); err != nil {
		return invalid(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.st.release(body.Request)
	return jsonAnswer(http.StatusOK, releasedBody{n})
}

func (s *Server) adminHeld(r *http.Request) answer {
	return s.poll(r, func(st *state, count int) (any, bool) {
		items := st.heldList()
		return list[HeldAnswer]{items}, len(items) >= count
	})
}

func (s *Server) adminWritten(r *http.Request) answer {
	return s.poll(r, func(st *state, count int) (any, bool) {
		body := writtenBody{Items: st.writtenList(), Dropped: st.writtenDropped}
		return body, int64(len(body.Items))+body.Dropped >= int64(count)
	})
}

// poll looks until there is enough, the wait is over, the client is gone or the
// server ends, and answers what there is then.
func (s *Server) poll(r *http.Request, look func(st *state, count int) (any, bool)) answer {
	count, err := number(r, "count")
	if err != nil {
		return invalid(err)
	}
	var wait time.Duration
	if text := r.URL.Query().Get("wait"); text != "" {
		wait, err = time.ParseDuration(text)
		if err != nil || wait < 0 || wait > maxWait {
			return invalid(fmt.Errorf("simulator: wait must be a duration up to %s, not %q", maxWait, text))
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	e := s.enderOf(r)
	for over := false; ; {
		s.mu.Lock()
		body, enough := look(s.st, max(int(count), 1))
		changed := s.changed
		s.mu.Unlock()
		if enough || over {
			return jsonAnswer(http.StatusOK, body)
		}
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-r.Context().Done():
			over = true
		case <-e.served:
			over = true
		case <-e.closed:
			over = true
		}
	}
}

// number reads a query parameter that is a number or absent.
func number(r *http.Request, name string) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("simulator: %s must be a number, not %q", name, text)
	}
	return n, nil
}

// adminReset begins again with the configuration. Held answers are released.
func (s *Server) adminReset(*http.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st.release(0)
	s.st = newState(s.cfg.Settings, s.cfg.Tokens)
	s.signal()
	return answer{status: http.StatusNoContent}
}
