package providers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

const remoteContract = `
contract: opledger/v1
provider: files
api_version: v1
revision: 1
proof: documented
cite: [the worker's own tests]
connection: {remote: true}
actions:
  task.create:
    class: K4
    args:
      schema:
        type: object
        required: [title]
        properties: {title: {type: string}, contact: {type: string}, pin: {type: string}}
      personal: [/contact]
      secret: [/pin]
    timing: {total: 5s, late_apply: 1s}
    retry: {retention: none, max_attempts: 1}
    lookups:
      - {name: by-label, consistency: eventual, lag: 1s, schedule: [1s, 5s]}
    absence: {provable: false}
`

func parseRemote(t testing.TB, edit ...string) *providers.File {
	t.Helper()
	f, err := providers.Parse("files.yaml", []byte(strings.NewReplacer(edit...).Replace(remoteContract)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// line is a worker without a bus: it answers each message by a function.
type line struct {
	mu     sync.Mutex
	got    []map[string]any
	answer func(m map[string]any, more func([]byte) bool) (string, error)
}

func (l *line) Ask(_ context.Context, _, _ string, body []byte, more func([]byte) bool) ([]byte, error) {
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.got = append(l.got, m)
	l.mu.Unlock()
	text, err := l.answer(m, more)
	return []byte(text), err
}

func newRemote(t testing.TB, f *providers.File, l providers.Line) *providers.Remote {
	t.Helper()
	w, err := providers.NewRemote(providers.RemoteConfig{File: f, Line: l, Accounts: map[string]providers.Account{"main": {ProviderID: testAccount}}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func doRemote(t testing.TB, w *providers.Remote, c providers.Call) operation.Outcome {
	t.Helper()
	r, err := w.Prepare(c)
	if err != nil {
		t.Fatal(err)
	}
	r.AttemptID = "attempt-1"
	return w.Do(t.Context(), r)
}

// What a remote contract leaves to the worker it must not say, and what it does
// say is judged by the rules for every contract.
func TestRemoteContractsAreJudgedLikeOthers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ edit, by, field, text string }{
		"base url":          {"{remote: true}", `{remote: true, base_url: "https://x.example"}`, "connection.base_url", "the worker knows"},
		"credential":        {"{remote: true}", `{remote: true, auth: {header: Authorization, value: "x"}}`, "connection.auth", "the worker knows"},
		"request":           {"    timing:", "    request: {method: POST, path: /x}\n    timing:", "actions[task.create].request", "the worker knows"},
		"outcomes":          {"    timing:", "    outcomes: [{is: rejected, status: [400]}]\n    timing:", "actions[task.create].outcomes", "the worker knows"},
		"match":             {"consistency: eventual", "match: [{at: /x, equals: y}], consistency: eventual", "actions[task.create].lookups[0].match", "the worker knows"},
		"K4 and no lookup":  {"      - {name: by-label, consistency: eventual, lag: 1s, schedule: [1s, 5s]}", "      []", "actions[task.create].lookups", "K4 needs a lookup"},
		"lag":               {"lag: 1s, ", "", "actions[task.create].lookups[0].lag", "needs a lag"},
		"absence":           {"provable: false", "provable: true, empty_reads: 1", "actions[task.create].absence.provable", "an index proves none"},
		"repeats":           {"max_attempts: 1", "max_attempts: 2", "actions[task.create].retry.max_attempts", "no ground"},
		"a long time":       {"total: 5s", "total: 6m", "actions[task.create].timing.total", "not open for longer"},
		"late apply":        {", late_apply: 1s", "", "actions[task.create].timing.late_apply", "missing"},
		"K1 and no margin":  {"class: K4", "class: K1", "actions[task.create].retry.retention", ""},
		"K3":                {"class: K4", "class: K3", "actions[task.create].class", "K3"},
		"assumed, repeated": {"proof: documented\ncite: [the worker's own tests]", "proof: assumed", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(remoteContract, tc.edit, tc.by, 1)
			if name == "K1 and no margin" {
				text = strings.Replace(text, "retention: none", "retention: 24h", 1)
				tc.field, tc.text = "actions[task.create].retry.margin", "margin"
			}
			if name == "assumed, repeated" {
				text = strings.Replace(text, "max_attempts: 1", "max_attempts: 2", 1)
				tc.field, tc.text = "actions[task.create].retry.max_attempts", "assumed promise never repeats"
			}
			_, err := providers.Parse("files.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), tc.field) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v, want a refusal of %s that says %q", err, tc.field, tc.text)
			}
		})
	}
}

// A keyed class over a worker needs no word on where the key goes: the message
// has it in its place.
func TestKeyedRemoteContractsCarryTheKey(t *testing.T) {
	t.Parallel()
	f := parseRemote(t, "class: K4", "class: K1", "retention: none, max_attempts: 1", "retention: 24h, margin: 1h, max_attempts: 3")
	c, ok := f.Contract("task.create")
	if !ok || !c.KeySupported || c.Retention != 24*time.Hour || c.MaxAttempts != 3 || !c.Lookup.Available {
		t.Errorf("contract: got %+v", c)
	}
	if !f.Remote() {
		t.Error("the file does not call itself remote")
	}
	if _, err := providers.NewHTTP(providers.HTTPConfig{File: f}); err == nil {
		t.Error("an HTTP adapter was made of a remote contract")
	}
}

// Only a word of the closed list, for this attempt and this account, is more
// than uncertain (I8).
func TestOnlyReadableAnswersOfTheAttemptCount(t *testing.T) {
	t.Parallel()
	say := func(format string, args ...any) string { return fmt.Sprintf(format, args...) }
	head := `"attempt_id":"attempt-1","account_id":"` + testAccount + `"`
	keyed := []string{"class: K4", "class: K1", "retention: none, max_attempts: 1", "retention: 24h, margin: 1h, max_attempts: 3"}
	for name, tc := range map[string]struct {
		answer string
		edit   []string
		want   operation.Outcome
	}{
		"success": {
			answer: say(`{%s,"outcome":"success","external_id":"T-1","result":{"title":"x","pin":"1234-5678"},"provider_request_id":"r-1"}`, head),
			want: operation.Outcome{
				Word: operation.OutcomeSuccess, ExternalID: "T-1", Result: []byte(`{"pin":"***","title":"x"}`), Reason: "the worker's answer", ProviderRequestID: "r-1",
			},
		},
		"success without an id": {answer: say(`{%s,"outcome":"success"}`, head), want: operation.Outcome{
			Word: operation.OutcomeUnidentified, Unknown: events.UnknownUnidentified, Reason: "the worker's answer, the answer names no object",
		}},
		"rejected": {answer: say(`{%s,"outcome":"rejected","code":"no_such_project"}`, head), want: operation.Outcome{
			Word: operation.OutcomeRejected, Reason: "the worker's answer no_such_project",
		}},
		"prose as code": {answer: say(`{%s,"outcome":"rejected","code":"no project named Ada"}`, head), want: operation.Outcome{
			Word: operation.OutcomeRejected, Reason: "the worker's answer",
		}},
		"rejected for the key": {answer: say(`{%s,"outcome":"rejected","answers":"key"}`, head), edit: keyed, want: operation.Outcome{
			Word: operation.OutcomeRejected, AnswersKey: true, Reason: "the worker's answer",
		}},
		"rejected for a key that there is not": {answer: say(`{%s,"outcome":"rejected","answers":"key"}`, head), want: operation.Outcome{
			Word: operation.OutcomeRejected, Reason: "the worker's answer",
		}},
		"not applied": {answer: `{"attempt_id":"attempt-1","outcome":"not_applied","retry_after_ms":1500}`, want: operation.Outcome{
			Word: operation.OutcomeNotApplied, RetryAfter: 1500 * time.Millisecond, Reason: "the worker's answer",
		}},
		"uncertain for good": {answer: say(`{%s,"outcome":"uncertain","final":true}`, head), edit: keyed, want: operation.Outcome{
			Word: operation.OutcomeUncertain, Unknown: events.UnknownUnreadable, Final: true, Reason: "the worker's answer",
		}},
		"not sent is no word of a worker": {answer: say(`{%s,"outcome":"not_sent"}`, head), want: operation.Outcome{
			Word: operation.OutcomeUncertain, Unknown: events.UnknownUnreadable, Reason: "the worker's answer, no rule of the contract matches",
		}},
		"unknown word": {answer: say(`{%s,"outcome":"Success","external_id":"T-1"}`, head), want: operation.Outcome{
			Word: operation.OutcomeUncertain, Unknown: events.UnknownUnreadable, Reason: "the worker's answer, no rule of the contract matches",
		}},
		"another attempt": {answer: `{"attempt_id":"attempt-2","account_id":"` + testAccount + `","outcome":"success","external_id":"T-1"}`, want: operation.Outcome{
			Word: operation.OutcomeUncertain, Unknown: events.UnknownUnreadable, Reason: "the worker's answer is for another attempt",
		}},
		"another attempt, nothing applied": {answer: `{"attempt_id":"attempt-2","outcome":"not_applied"}`, want: operation.Outcome{
			Word: operation.OutcomeUncertain, Unknown: events.UnknownUnreadable, Reason: "the worker's answer is for another attempt",
		}},
		"another account": {answer: `{"attempt_id":"attempt-1","account_id":"acct_2","outcome":"success","external_id":"T-1"}`, want: operation.Outcome{
			Word: operation.OutcomeUncertain, Unknown: events.UnknownUnreadable, Reason: "the worker's answer is not for the account of the operation",
		}},
		"no account": {answer: `{"attempt_id":"attempt-1","outcome":"rejected"}`, want: operation.Outcome{
			Word: operation.OutcomeUncertain, Unknown: events.UnknownUnreadable, Reason: "the worker's answer is not for the account of the operation",
		}},
		"a list":  {answer: `[]`, want: operation.Outcome{Word: operation.OutcomeUncertain, Unknown: events.UnknownUnreadable, Reason: "the worker's answer is not a JSON object"}},
		"nothing": {answer: ``, want: operation.Outcome{Word: operation.OutcomeUncertain, Unknown: events.UnknownUnreadable, Reason: "the worker's answer is not a JSON object"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := parseRemote(t, tc.edit...)
			w := newRemote(t, f, &line{answer: func(map[string]any, func([]byte) bool) (string, error) { return tc.answer, nil }})
			got := doRemote(t, w, testCall(f, `{"title":"x","pin":"1234-5678"}`))
			if !got.Transport.BytesSent {
				t.Error("bytes_sent: got false for a request that was answered")
			}
			got.Transport = events.Transport{}
			if diff := cmp.Diff(got, tc.want); diff != "" {
				t.Errorf("outcome (got) and want:\n%s", diff)
			}
		})
	}
}

// Only what the line proves is not sent; a sign of life rules it out.
func TestOnlyAnUndeliveredMessageIsNotSent(t *testing.T) {
	t.Parallel()
	f := parseRemote(t)
	beat := func(more func([]byte) bool) bool { return more([]byte(`{"heartbeat": true}`)) }
	for name, tc := range map[string]struct {
		answer func(map[string]any, func([]byte) bool) (string, error)
		want   operation.OutcomeWord
		sent   bool
	}{
		"nobody": {func(map[string]any, func([]byte) bool) (string, error) {
			return "", fmt.Errorf("x: %w", providers.ErrNotDelivered)
		}, operation.OutcomeNotSent, false},
		"any other error": {func(map[string]any, func([]byte) bool) (string, error) { return "", errors.New("broken") }, operation.OutcomeUncertain, true},
		"nobody, after a sign": {func(_ map[string]any, more func([]byte) bool) (string, error) {
			beat(more)
			return "", providers.ErrNotDelivered
		}, operation.OutcomeUncertain, true},
		"silence, after a sign": {func(_ map[string]any, more func([]byte) bool) (string, error) {
			beat(more)
			return "", context.DeadlineExceeded
		}, operation.OutcomeUncertain, true},
		"an answer is not a sign": {func(_ map[string]any, more func([]byte) bool) (string, error) {
			if more([]byte(`{"heartbeat":"true"}`)) || more([]byte(`x`)) || !beat(more) {
				return "", providers.ErrNotDelivered
			}
			return "", errors.New("as it should be")
		}, operation.OutcomeUncertain, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := doRemote(t, newRemote(t, f, &line{answer: tc.answer}), testCall(f, `{"title":"x"}`))
			if o.Word != tc.want || o.Transport.BytesSent != tc.sent {
				t.Errorf("got %+v, want %s, bytes sent %t", o, tc.want, tc.sent)
			}
		})
	}
}

// What is sent is the frozen intent; the attempt is beside it, never in it (I17).
// What a person is shown has no secret or personal arguments; the worker gets
// them.
func TestMessagesToWorkersHoldTheFrozenIntent(t *testing.T) {
	t.Parallel()
	f := parseRemote(t)
	l := &line{answer: func(map[string]any, func([]byte) bool) (string, error) { return "{}", nil }}
	w := newRemote(t, f, l)
	c := testCall(f, `{"title":"<x>","contact":"ada@example.com","pin":"1234"}`)
	r, err := w.Prepare(c)
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprint(r, r.Redacted())
	if strings.Contains(shown, "ada@") || strings.Contains(shown, "1234") || !strings.Contains(shown, "<x>") || !strings.Contains(shown, "DO request sha256:") {
		t.Errorf("shown: %s", shown)
	}
	c.AttemptID, c.FirstSend = "another", time.Now()
	again, err := w.Prepare(c)
	if err != nil || again.Digest != r.Digest {
		t.Fatalf("digests: got %s and %s, %v", r.Digest, again.Digest, err)
	}
	c.Intent.IdempotencyKey = strings.Replace(testKey, "9", "8", 1)
	if other, err := w.Prepare(c); err != nil || other.Digest == r.Digest {
		t.Errorf("the digest does not cover the key: %v", err)
	}
	r.AttemptID, again.AttemptID = "attempt-1", "attempt-2"
	w.Do(t.Context(), r)
	w.Do(t.Context(), again)
	want := map[string]any{
		"provider": "files", "account": "main", "account_id": testAccount, "action": "task.create", "operation_id": "op-1",
		"args": map[string]any{"title": "<x>", "contact": "ada@example.com", "pin": "1234"}, "key": testKey, "label": testLabel,
	}
	for i, m := range l.got {
		if diff := cmp.Diff(m["request"], any(want)); diff != "" {
			t.Errorf("message %d: request (got) and want:\n%s", i+1, diff)
		}
		if m["verb"] != "do" || m["version"] != 1.0 || m["attempt_id"] != fmt.Sprintf("attempt-%d", i+1) || m["timeout_ms"] != 5000.0 || m["request_digest"] != r.Digest {
			t.Errorf("message %d: got %v", i+1, m)
		}
		at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(m["not_after"]))
		if err != nil || time.Until(at) > 5*time.Second || time.Until(at) < -time.Minute {
			t.Errorf("not_after: got %v, %v", m["not_after"], err)
		}
	}
	if len(l.got) != 2 {
		t.Errorf("messages: got %d, want 2", len(l.got))
	}
	if _, err := w.Prepare(testCall(f, `{"title":"`+strings.Repeat("x", providers.MaxWorkBytes)+`"}`)); err == nil {
		t.Error("a request that no worker takes was prepared")
	}
}

// A look believes only objects with the operation's own mark, under the
// operation's account, and is complete only if the worker says so.
func TestLooksOfWorkersBelieveMarksOnly(t *testing.T) {
	t.Parallel()
	f := parseRemote(t)
	head := `"account_id":"` + testAccount + `"`
	object := func(id, mark, more string) string {
		return fmt.Sprintf(`{"external_id":%q,"mark":%q%s}`, id, mark, more)
	}
	for name, tc := range map[string]struct {
		answer string
		err    error
		want   operation.Look
	}{
		"found by label and by key, the earliest first": {
			answer: `{` + head + `,"complete":true,"objects":[` +
				object("T-2", testKey, `,"created_at":"2026-05-04T10:00:01Z"`) + "," +
				object("T-1", testLabel, `,"created_at":"2026-05-04T10:00:00Z","result":{"title":"x"}`) + "," +
				object("T-3", "other", `,"alike":true`) + "," + object("T-4", "", "") + `]}`,
			want: operation.Look{
				Name: "by-label", AccountProbed: testAccount, AccountOK: true, PagesComplete: true,
				Matches: []string{"T-1", "T-2"}, Weak: []string{"T-3"}, Result: []byte(`{"title":"x"}`),
				CreatedAt: time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC),
			},
		},
		"nothing": {
			answer: `{` + head + `,"complete":true,"objects":[]}`,
			want:   operation.Look{Name: "by-label", AccountProbed: testAccount, AccountOK: true, PagesComplete: true},
		},
		"not everything": {
			answer: `{` + head + `,"objects":[]}`,
			want:   operation.Look{Name: "by-label", AccountProbed: testAccount, AccountOK: true, Reason: "by-label: the worker did not see everything"},
		},
		"no list": {
			answer: `{` + head + `,"complete":true}`,
			want: operation.Look{
				Name: "by-label", AccountProbed: testAccount, AccountOK: true, Failed: true,
				Reason: "by-label: the answer has no list of objects where the contract says",
			},
		},
		"another account": {
			answer: `{"account_id":"acct_2","complete":true,"objects":[` + object("T-1", testLabel, "") + `]}`,
			want:   operation.Look{Name: "by-label", AccountProbed: "acct_2", Reason: "account_mismatch"},
		},
		"no account": {
			answer: `{"complete":true,"objects":[]}`,
			want:   operation.Look{Name: "by-label", AccountOK: true, Failed: true, Reason: "by-label: the worker names no account"},
		},
		"failed": {
			answer: `{` + head + `,"failed":"search_out","complete":true,"objects":[]}`,
			want:   operation.Look{Name: "by-label", AccountOK: true, Failed: true, Reason: "by-label: the worker could not find out: search_out"},
		},
		"no worker": {
			err:  providers.ErrNotDelivered,
			want: operation.Look{Name: "by-label", AccountOK: true, Failed: true, Reason: "by-label: no worker is there"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRemote(t, f, &line{answer: func(m map[string]any, _ func([]byte) bool) (string, error) {
				if m["verb"] != "lookup" || m["lookup"] != "by-label" {
					t.Errorf("message: got %v", m)
				}
				return tc.answer, tc.err
			}})
			got := w.Lookup(t.Context(), testCall(f, `{"title":"x"}`))
			if got.AskedAt.IsZero() {
				t.Error("the look has no time")
			}
			got.AskedAt, tc.want.Source = time.Time{}, events.SourceLookup
			if diff := cmp.Diff(got, tc.want); diff != "" {
				t.Errorf("look (got) and want:\n%s", diff)
			}
		})
	}
}

// The account is the worker's word, asked for each time, without the arguments.
func TestWorkersAreProbedWithoutArguments(t *testing.T) {
	t.Parallel()
	f := parseRemote(t)
	answer := `{"account_id":"acct_1"}`
	l := &line{answer: func(map[string]any, func([]byte) bool) (string, error) { return answer, nil }}
	w := newRemote(t, f, l)
	c := testCall(f, `{"title":"x","pin":"1234"}`)
	if id, err := w.Probe(t.Context(), c); err != nil || id != "acct_1" {
		t.Errorf("probe: got %q, %v", id, err)
	}
	answer = `{"account_id":"acct_2"}`
	if id, err := w.Probe(t.Context(), c); err != nil || id != "acct_2" {
		t.Errorf("probe: got %q, %v", id, err)
	}
	answer = `{"failed":"no_credential"}`
	if _, err := w.Probe(t.Context(), c); !errors.Is(err, providers.ErrProbe) || !strings.Contains(err.Error(), "no_credential") {
		t.Errorf("probe: got %v", err)
	}
	for _, m := range l.got {
		if request, _ := m["request"].(map[string]any); m["verb"] != "probe" || request["args"] != nil || request["account"] != "main" {
			t.Errorf("message: got %v", m)
		}
	}
}

// The registry makes the adapter that the file asks for; without a line to
// workers the operations are another process's.
func TestRegistryLeavesWorkToProcessesWithALine(t *testing.T) {
	t.Parallel()
	f := parseRemote(t)
	files := []providers.Configured{{File: f, Accounts: map[string]providers.Account{"main": {ProviderID: testAccount}}}}
	c := testCall(f, `{"title":"x"}`)
	for _, l := range []providers.Line{nil, &line{}} {
		r, err := providers.NewRegistry(files, nil, providers.RegistryOptions{Line: l})
		if err != nil {
			t.Fatal(err)
		}
		a, _, err := r.For(t.Context(), c.Intent)
		if l == nil && !errors.Is(err, providers.ErrNotMine) {
			t.Errorf("without a line: got %v, want ErrNotMine", err)
		}
		if _, remote := a.(*providers.Remote); l != nil && (err != nil || !remote) {
			t.Errorf("with a line: got %T, %v", a, err)
		}
		c.Intent.Account.Name = "other"
		if _, _, err := r.For(t.Context(), c.Intent); !errors.Is(err, providers.ErrNotMine) {
			t.Errorf("another account: got %v, want ErrNotMine", err)
		}
		c.Intent.Account.Name = "main"
		r.Close()
	}
	files[0].Accounts["main"] = providers.Account{ProviderID: testAccount, BaseURL: "https://x.example"}
	if _, err := providers.NewRegistry(files, nil, providers.RegistryOptions{}); err == nil {
		t.Error("an account with an address was taken")
	}
}
