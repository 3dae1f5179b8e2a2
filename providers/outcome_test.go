package providers_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/providertest"
)

func doOnce(t testing.TB, h *providers.HTTP, c providers.Call) operation.Outcome {
	t.Helper()
	r, err := h.Prepare(c)
	if err != nil {
		t.Fatal(err)
	}
	return h.Do(t.Context(), r)
}

// P3: the first rule that matches decides; no match, and any trouble, is
// uncertain.
func TestAnswersAreJudgedByTheRulesInOrder(t *testing.T) {
	t.Parallel()
	replayed := map[string]string{"Idempotent-Replayed": "true"}
	tests := map[string]struct {
		status  int
		body    string
		header  map[string]string
		word    operation.OutcomeWord
		unknown events.UnknownReason
		reason  string
		check   func(operation.Outcome) bool
	}{
		"created":             {status: 201, body: `{"id":"T-9"}`, word: operation.OutcomeSuccess, check: func(o operation.Outcome) bool { return o.ExternalID == "T-9" && string(o.Result) == `{"id":"T-9"}` }},
		"numeric id":          {status: 201, body: `{"id":12345678901234567890}`, word: operation.OutcomeSuccess, check: func(o operation.Outcome) bool { return o.ExternalID == "12345678901234567890" }},
		"fractional id":       {status: 201, body: `{"id":1.5}`, word: operation.OutcomeUnidentified, unknown: events.UnknownUnidentified},
		"created without id":  {status: 201, body: `{}`, word: operation.OutcomeUnidentified, unknown: events.UnknownUnidentified},
		"id is null":          {status: 201, body: `{"id":null}`, word: operation.OutcomeUnidentified, unknown: events.UnknownUnidentified},
		"created, no JSON":    {status: 201, body: `<html>`, word: operation.OutcomeUncertain, unknown: events.UnknownUnreadable},
		"two JSON values":     {status: 201, body: `{"id":"1"} {"id":"2"}`, word: operation.OutcomeUncertain, unknown: events.UnknownUnreadable},
		"200 has no rule":     {status: 200, body: `{"id":"T-9"}`, word: operation.OutcomeUncertain, unknown: events.UnknownUnreadable},
		"invalid":             {status: 422, body: `{"error":{"code":"invalid"}}`, word: operation.OutcomeRejected, reason: "status 422 invalid", check: func(o operation.Outcome) bool { return !o.AnswersKey }},
		"invalid, replayed":   {status: 422, body: `{"error":{"code":"invalid"}}`, header: replayed, word: operation.OutcomeRejected, check: func(o operation.Outcome) bool { return o.AnswersKey }},
		"422 without JSON":    {status: 422, body: `oops`, word: operation.OutcomeUncertain, unknown: events.UnknownUnreadable},
		"prose as code":       {status: 422, body: `{"error":{"code":"title was call back"}}`, word: operation.OutcomeRejected, reason: "status 422"},
		"mismatch":            {status: 400, body: `{"error":{"code":"idempotency_mismatch"}}`, word: operation.OutcomeMismatch},
		"busy":                {status: 409, body: `{"error":{"code":"idempotency_key_in_use"}}`, word: operation.OutcomeBusy},
		"other conflict":      {status: 409, body: `{"error":{"code":"other"}}`, word: operation.OutcomeUncertain, unknown: events.UnknownUnreadable},
		"unauthorized":        {status: 401, body: ``, word: operation.OutcomeNotApplied},
		"rate limit":          {status: 429, body: `{}`, header: map[string]string{"Retry-After": "7"}, word: operation.OutcomeNotApplied, check: func(o operation.Outcome) bool { return o.RetryAfter == 7*time.Second }},
		"refused":             {status: 503, body: `{"error":{"code":"refused"}}`, word: operation.OutcomeNotApplied},
		"another 503":         {status: 503, body: `{"error":{"code":"internal"}}`, word: operation.OutcomeUncertain, unknown: events.UnknownServerError},
		"503 without JSON":    {status: 503, body: `upstream`, word: operation.OutcomeUncertain, unknown: events.UnknownServerError},
		"500":                 {status: 500, body: `{}`, word: operation.OutcomeUncertain, unknown: events.UnknownServerError, check: func(o operation.Outcome) bool { return !o.Final }},
		"stored 500 replayed": {status: 500, body: `{}`, header: replayed, word: operation.OutcomeUncertain, unknown: events.UnknownServerError, check: func(o operation.Outcome) bool { return o.Final }},
		"timeout answer":      {status: 408, body: `{}`, word: operation.OutcomeUncertain, unknown: events.UnknownUnreadable},
	}
	file := load(t, "sim-keyed", nil)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer := providertest.NewPeer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tt.header {
					w.Header().Set(k, v)
				}
				w.Header().Set("X-Request-Id", "req-7")
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body)) // the client reads it or the test fails
			}))
			o := doOnce(t, newHTTP(t, file, peer.URL), testCall(file, `{"title":"call back"}`))
			if o.Word != tt.word || o.Unknown != tt.unknown && tt.unknown != "" || o.ProviderRequestID != "req-7" {
				t.Errorf("got %+v, want %s %s", o, tt.word, tt.unknown)
			}
			if tt.reason != "" && o.Reason != tt.reason {
				t.Errorf("reason: got %q, want %q", o.Reason, tt.reason)
			}
			if tt.check != nil && !tt.check(o) {
				t.Errorf("got %+v", o)
			}
			if strings.Contains(o.Reason, "call back") {
				t.Errorf("the reason repeats an argument: %q", o.Reason)
			}
		})
	}
}

func TestRetryAfterAsADateIsReadOnTheProvidersOwnClock(t *testing.T) {
	t.Parallel()
	file := load(t, "sim-crm", nil)
	date := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	peer := providertest.NewPeer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", date.Format(http.TimeFormat))
		w.Header().Set("Retry-After", date.Add(90*time.Second).Format(http.TimeFormat))
		w.WriteHeader(429)
	}))
	o := doOnce(t, newHTTP(t, file, peer.URL), testCall(file, `{"title":"a"}`))
	if o.Word != operation.OutcomeNotApplied || o.RetryAfter != 90*time.Second {
		t.Errorf("got %s, retry after %s", o.Word, o.RetryAfter)
	}
}

// I18: what is kept of an answer holds no credential and no personal argument.
func TestTheResultIsRedactedAndBounded(t *testing.T) {
	t.Parallel()
	file := load(t, "sim-crm", nil)
	body := `{"id":"1","title":"mail ada@example.com","contact":"ada@example.com","other":"x","echo":"Bearer ` + testToken + `"}`
	peer := providertest.NewPeer(t, providertest.Answer(201, body))
	h := newHTTP(t, file, peer.URL)
	o := doOnce(t, h, testCall(file, `{"title":"a","contact":"ada@example.com"}`))
	want := `{"contact":"***","echo":"Bearer ***","id":"1","other":"x","title":"mail ***"}`
	if string(o.Result) != want {
		t.Errorf("got %s, want %s", o.Result, want)
	}
	peer.Next(providertest.Answer(201, `{"id":"1","pad":"`+strings.Repeat("x", providers.MaxResultBytes)+`"}`))
	if o = doOnce(t, h, testCall(file, `{"title":"a"}`)); o.Word != operation.OutcomeSuccess || o.Result != nil {
		t.Errorf("a large answer: got %s with %d bytes", o.Word, len(o.Result))
	}
}

func TestAnAnswerBeyondTheBoundIsUncertain(t *testing.T) {
	t.Parallel()
	file := load(t, "sim-crm", nil)
	peer := providertest.NewPeer(t, providertest.Answer(201, `{"id":"1","pad":"`+strings.Repeat("x", providers.MaxAnswerBytes)+`"}`))
	o := doOnce(t, newHTTP(t, file, peer.URL), testCall(file, `{"title":"a"}`))
	if o.Word != operation.OutcomeUncertain || o.Unknown != events.UnknownUnreadable {
		t.Errorf("got %+v", o)
	}
}

// endedBy is a context that ends when the test says so, and with what it says.
type endedBy struct {
	context.Context
	done chan struct{}
	err  error
}

func (c endedBy) Done() <-chan struct{} { return c.done }

func (c endedBy) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

func TestADeadlineIsATimeoutAndACancellationAShutdown(t *testing.T) {
	t.Parallel()
	file := load(t, "sim-crm", nil)
	peer := providertest.NewPeer(t, usualCRM())
	h := newHTTP(t, file, peer.URL)
	end := make(chan struct{})
	defer close(end)
	for cause, want := range map[error]events.UnknownReason{
		context.DeadlineExceeded: events.UnknownTimeout,
		context.Canceled:         events.UnknownShutdown,
	} {
		arrived := make(chan struct{}, 1)
		peer.Next(providertest.Hold(arrived, end))
		r, err := h.Prepare(testCall(file, `{"title":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		ctx := endedBy{t.Context(), make(chan struct{}), cause}
		go func() {
			<-arrived
			close(ctx.done)
		}()
		if o := h.Do(ctx, r); o.Word != operation.OutcomeUncertain || o.Unknown != want {
			t.Errorf("got %s %s, want uncertain %s", o.Word, o.Unknown, want)
		}
	}
}

// A credential that can't be read, or that another account answers for, sends
// nothing.
func TestNothingIsSentWithACredentialThatWasNotProbed(t *testing.T) {
	t.Parallel()
	file := load(t, "sim-crm", nil)
	peer := providertest.NewPeer(t, usualCRM())
	path := filepath.Join(t.TempDir(), "token")
	h, err := providers.NewHTTP(providers.HTTPConfig{File: file, Accounts: map[string]providers.Account{
		"main": {BaseURL: peer.URL, Secrets: map[string]providers.SecretRef{"token": fileRef(t, path, testToken)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	c := testCall(file, `{"title":"a"}`)
	if id, err := h.Probe(t.Context(), c); err != nil || id != testAccount {
		t.Fatalf("Probe: got %q, %v", id, err)
	}
	fileRef(t, path, "rotated")
	if o := doOnce(t, h, c); o.Word != operation.OutcomeNotSent {
		t.Errorf("rotated: got %s", o.Word)
	}
	if _, err := h.Probe(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if o := doOnce(t, h, c); o.Word != operation.OutcomeSuccess {
		t.Errorf("rotated and probed: got %s %s", o.Word, o.Reason)
	}
	c.Intent.ProviderID = "acct_other"
	if o := doOnce(t, h, c); o.Word != operation.OutcomeNotSent {
		t.Errorf("bound to another account: got %s", o.Word)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if o := doOnce(t, h, c); o.Word != operation.OutcomeNotSent || strings.Contains(o.Reason, path) {
		t.Errorf("no credential: got %s %s", o.Word, o.Reason)
	}
	if got := len(peer.Writes()); got != 1 {
		t.Errorf("requests on the wire: got %d, want 1", got)
	}
}

// I18: what a provider repeats of the credential is not kept: not as the reason,
// not as the id of the request or of the object, which then is not known.
func TestAnAnswerThatRepeatsTheCredentialIsNotKept(t *testing.T) {
	t.Parallel()
	file := load(t, "sim-crm", nil)
	for body, want := range map[string]operation.OutcomeWord{
		`{"id":"` + testToken + `"}`:               operation.OutcomeUnidentified,
		`{"id":"T-` + testToken + `-1"}`:           operation.OutcomeUnidentified,
		`{"error":{"code":"` + testToken + `"}}`:   operation.OutcomeRejected,
		`{"error":{"code":"x-` + testToken + `"}}`: operation.OutcomeRejected,
	} {
		status := 201
		if want == operation.OutcomeRejected {
			status = 422
		}
		peer := providertest.NewPeer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", "req-"+testToken)
			if r.Method == http.MethodGet && r.URL.Path != "/v1/account" {
				providertest.Answer(200, `{"items":[{"id":"`+testToken+`","label":"`+testLabel+`","title":"a"}],"next_cursor":""}`)(w, r)
				return
			}
			if r.Method == http.MethodGet {
				providertest.Answer(200, `{"id":"`+testAccount+`"}`)(w, r)
				return
			}
			providertest.Answer(status, body)(w, r)
		}))
		h := newHTTP(t, file, peer.URL)
		c := testCall(file, `{"title":"a"}`)
		l := h.Lookup(t.Context(), c) // probes the account as well
		if len(l.Matches)+len(l.Weak) > 0 || !l.Failed || strings.Contains(fmt.Sprintf("%+v", l), testToken) {
			t.Errorf("look: got %+v", l)
		}
		o := doOnce(t, h, c)
		if o.Word != want || o.ProviderRequestID != "" || strings.Contains(fmt.Sprintf("%+v", o), testToken) {
			t.Errorf("%s: got %+v, want %s", body, o, want)
		}
	}
}
