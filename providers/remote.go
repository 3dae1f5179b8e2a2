package providers

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// WorkVersion is the version of the messages to workers.
const WorkVersion = 1

// MaxWorkBytes is the largest message to a worker.
const MaxWorkBytes = 768 << 10

// workDigest begins the digest of a request to a worker. Changing what it covers
// changes the digest of requests whose first attempt is already journaled, and
// sends those operations to review: don't.
const workDigest = "opledger-work-v1"

// WorkVerb says what a message asks a worker for. The list is closed.
type WorkVerb string

// The verbs of messages to workers.
const (
	// WorkDo: carry the action out, once.
	WorkDo WorkVerb = "do"
	// WorkLookup: search for the object of an operation; change nothing.
	WorkLookup WorkVerb = "lookup"
	// WorkProbe: say whose account the credential belongs to.
	WorkProbe WorkVerb = "probe"
)

// WorkVerbs lists every verb of a message to workers.
func WorkVerbs() []WorkVerb { return []WorkVerb{WorkDo, WorkLookup, WorkProbe} }

// ErrNotDelivered is what a [Line] returns if it is proven that no worker has got
// the message, and that none will.
var ErrNotDelivered = errors.New("providers: no worker was reached")

// Line carries messages to the workers of a provider and their answers back.
type Line interface {
	// Ask hands body to at most one worker, once, and returns its answer. Each
	// message from the worker is shown to more first; while that reports true,
	// the answer is still to come. An error wraps ErrNotDelivered only if no
	// worker has got the body or will get it; every other one leaves that open.
	// A message that more has been shown rules ErrNotDelivered out.
	Ask(ctx context.Context, provider, action string, body []byte, more func(message []byte) bool) ([]byte, error)
}

// RemoteConfig is what the adapter of a remote contract is made of.
type RemoteConfig struct {
	File *File
	// Accounts are the accounts, by our own names. Only their ProviderID is
	// used: the workers have the credentials.
	Accounts map[string]Account
	// Line leads to the workers. Without one the operations of the contract are
	// not this process's.
	Line Line
	// Now is the clock of looks. Nil means time.Now.
	Now func() time.Time
}

// Remote is the adapter of a remote contract: a worker in any language calls the
// provider and answers in the words of the ledger. What it does not say in the
// words of the closed list, in time and for this attempt is uncertain; only a
// message that reached nobody was not sent.
type Remote struct {
	file     *File
	line     Line
	now      func() time.Time
	accounts map[string]Account
}

var _ Adapter = (*Remote)(nil)

// NewRemote checks the configuration.
func NewRemote(cfg RemoteConfig) (*Remote, error) {
	if cfg.File == nil || !cfg.File.Remote() {
		return nil, errors.New("providers: an adapter for workers needs a remote contract")
	}
	for name, a := range cfg.Accounts {
		if err := events.CheckID("account", name); err != nil {
			return nil, err
		}
		if a.BaseURL != "" || a.CAFile != "" || a.AllowLoopback || len(a.Secrets) > 0 || len(a.Values) > 0 {
			return nil, fmt.Errorf("providers: account %s of %s: workers have the address and the credential, not the ledger: give provider_id only",
				name, cfg.File.Provider)
		}
	}
	w := &Remote{file: cfg.File, line: cfg.Line, now: cfg.Now, accounts: maps.Clone(cfg.Accounts)}
	if w.now == nil {
		w.now = time.Now
	}
	return w, nil
}

// Close has nothing to close: the line is not the adapter's.
func (w *Remote) Close() {}

// Limit returns the bounds of an action for each account; see [HTTP.Limit].
func (w *Remote) Limit(action string) (concurrency int, spacing time.Duration) {
	return w.file.Limits(action).bounds()
}

// Contract returns what the provider promises for an action.
func (w *Remote) Contract(action string) (operation.Contract, bool) { return w.file.Contract(action) }

// serves reports why this process can't work for an account.
func (w *Remote) serves(account string) error {
	if _, ok := w.accounts[account]; !ok {
		return fmt.Errorf("%w: account %s", ErrNotMine, clip(account))
	}
	if w.line == nil {
		return fmt.Errorf("%w: there is no line to workers", ErrNotMine)
	}
	return nil
}

// work is what an operation asks for, ready to be put into a message.
type work struct {
	action *action
	scope  scope
	intent events.IntentRecorded
	// body is what the digest covers, sorted and without blanks.
	body []byte
}

func (w *Remote) work(c Call) (work, error) {
	a, err := w.file.action(c.Intent)
	if err != nil {
		return work{}, err
	}
	if err := w.serves(c.Intent.Account.Name); err != nil {
		return work{}, err
	}
	s, err := newScope(c, nil)
	if err != nil {
		return work{}, err
	}
	body, err := workBody(c.Intent, s)
	return work{action: a, scope: s, intent: c.Intent, body: body}, err
}

// workBody is the frozen intent as a worker gets it. Nothing in it depends on
// the attempt (I17).
func workBody(i events.IntentRecorded, s scope) ([]byte, error) {
	body, err := encodeJSON(map[string]any{
		"provider": i.Provider, "account": i.Account.Name, workAccount: i.ProviderID, "action": i.Action,
		"operation_id": s.op[opID], "args": s.args, "key": s.op[opKey], "label": s.op[opLabel],
	})
	if err == nil && len(body) > MaxWorkBytes {
		err = fmt.Errorf("providers: the request has %d bytes, a worker takes %d", len(body), MaxWorkBytes)
	}
	return body, err
}

// Prepare builds the request without sending anything.
func (w *Remote) Prepare(c Call) (*Request, error) {
	job, err := w.work(c)
	if err != nil {
		return nil, err
	}
	shown := job.body
	if s, hides := job.action.redactArgs(job.scope); hides {
		if shown, err = workBody(c.Intent, s); err != nil {
			return nil, err
		}
	}
	sum := sha256.New()
	writeField(sum, workDigest)
	writeField(sum, string(job.body))
	return NewRequest(w, "sha256:"+hex.EncodeToString(sum.Sum(nil)), Redacted{
		Method: strings.ToUpper(string(WorkDo)), URL: "worker:" + c.Intent.Provider + "/" + c.Intent.Action, Body: string(shown),
	}, job), nil
}

// message wraps a body. What depends on the attempt is here, and only here.
func (w *Remote) message(verb WorkVerb, body []byte, more map[string]any) ([]byte, error) {
	m := map[string]any{"version": WorkVersion, "verb": verb, "request": json.RawMessage(body)}
	maps.Copy(m, more)
	return encodeJSON(m)
}

// report is a worker's answer.
type report struct {
	doc map[string]any
	raw []byte
}

func readReport(data []byte) (report, bool) {
	v, err := decodeJSON(data)
	doc, ok := v.(map[string]any)
	return report{doc: doc, raw: data}, ok && err == nil
}

func (r report) text(name string) string {
	text, _ := r.doc[name].(string)
	return text
}

// heartbeat reports whether a message only says that the worker lives.
func heartbeat(message []byte) bool {
	r, ok := readReport(message)
	return ok && r.doc[workHeartbeat] == true
}

// Do hands the request to one worker, at most once, and says what its answer
// means. Signs of life are noted and prolong nothing.
func (w *Remote) Do(ctx context.Context, r *Request) operation.Outcome {
	content, _ := r.Take(w)
	job, mine := content.(work)
	if !mine {
		return operation.Outcome{
			Word: operation.OutcomeUncertain, Unknown: events.UnknownAdapterError,
			Reason: "the request is not from this adapter, or was handed over twice",
		}
	}
	if ctx.Err() != nil {
		return notSent("the time was over before anything was sent", events.Transport{})
	}
	attempt := r.AttemptID
	if attempt == "" {
		attempt = rand.Text()
	}
	start := time.Now()
	total := job.action.contract.Total
	body, err := w.message(WorkDo, job.body, map[string]any{
		workAttempt: attempt, "request_digest": r.Digest, "timeout_ms": total.Milliseconds(),
		"not_after": start.Add(total).UTC().Format(time.RFC3339Nano),
	})
	if err != nil {
		return notSent(err.Error(), events.Transport{})
	}
	answer, err := w.line.Ask(ctx, job.intent.Provider, job.intent.Action, body, func(message []byte) bool {
		alive := heartbeat(message)
		if alive {
			r.Alive(time.Now())
		}
		return alive
	})
	t := events.Transport{AnswerBytes: len(answer), BytesSent: true, DurationMS: time.Since(start).Milliseconds()}
	if err != nil && errors.Is(err, ErrNotDelivered) && r.LastAlive().IsZero() {
		t.BytesSent, t.Error = false, wordNoWorker
		return notSent("no worker was there to take it", t)
	}
	if err != nil {
		t.Error = wordFor(ctx, err)
		o := uncertain(0, t.Error)
		o.Unknown, o.Transport = unknownFor(t.Error), t
		return o
	}
	o := job.outcome(attempt, answer)
	o.Transport = t
	return o
}

// wordNoWorker is the transport error of a message that reached nobody.
const wordNoWorker = "no_worker"

// outcome reads an answer to do.
func (j work) outcome(attempt string, answer []byte) operation.Outcome {
	r, ok := readReport(answer)
	if !ok {
		return uncertain(0, "the worker's answer is not a JSON object")
	}
	if r.text(workAttempt) != attempt {
		return uncertain(0, "the worker's answer is for another attempt")
	}
	o := j.action.judge(j.scope, answer200(r))
	o.Reason = "the worker's answer" + strings.TrimPrefix(o.Reason, "status 200")
	// Nothing happened in whatever account: that may be believed. Everything else
	// must be about the account that the operation is bound to (I8).
	if o.Word != operation.OutcomeNotApplied && o.Word != operation.OutcomeUncertain && j.intent.ProviderID != "" && r.text(workAccount) != j.intent.ProviderID {
		return uncertain(0, "the worker's answer is not for the account of the operation")
	}
	if id := r.text(workRequestID); len(id) <= maxRequestID && safeHeader(id) {
		o.ProviderRequestID = id
	}
	if o.Word == operation.OutcomeSuccess {
		o.Result = j.action.scrubber(j.scope).result(r.doc[workResult])
	}
	if n, ok := r.doc[workRetryAfter].(json.Number); ok && j.action.honourRetryAfter {
		if ms, err := n.Int64(); err == nil {
			o.RetryAfter = min(time.Duration(max(ms, 0))*time.Millisecond, maxRetryAfter)
		}
	}
	return o
}

// answer200 is a report as the rules of a contract see it.
func answer200(r report) answer {
	return answer{status: http.StatusOK, body: r.raw, doc: r.doc}
}

// Probe asks a worker whose account its credential belongs to. Nothing is kept:
// the next request may go to another worker, which therefore compares the
// account itself before it acts.
func (w *Remote) Probe(ctx context.Context, c Call) (string, error) {
	job, err := w.work(c)
	if err != nil {
		return "", err
	}
	// A probe has nothing to do with the arguments, so they are not sent.
	who, err := encodeJSON(map[string]any{
		"provider": c.Intent.Provider, "account": c.Intent.Account.Name, workAccount: c.Intent.ProviderID, "action": c.Intent.Action,
	})
	if err != nil {
		return "", err
	}
	r, err := w.ask(ctx, min(probeTimeout, job.action.contract.Total), job, WorkProbe, who, nil)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrProbe, err)
	}
	id, ok := idText(r.doc[workAccount])
	if !ok {
		return "", fmt.Errorf("%w: the worker names no account", ErrProbe)
	}
	return id, nil
}

// ask puts a question that changes nothing.
func (w *Remote) ask(ctx context.Context, timeout time.Duration, job work, verb WorkVerb, body []byte, more map[string]any) (report, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	m, err := w.message(verb, body, more)
	if err != nil {
		return report{}, err
	}
	answer, err := w.line.Ask(ctx, job.intent.Provider, job.intent.Action, m, heartbeat)
	if errors.Is(err, ErrNotDelivered) {
		return report{}, errors.New("no worker is there")
	}
	if err != nil {
		return report{}, errors.New(wordFor(ctx, err))
	}
	r, ok := readReport(answer)
	if !ok {
		return report{}, errors.New("the worker's answer is not a JSON object")
	}
	if r.doc[workFailed] != nil {
		why := "the worker could not find out"
		if code := r.text(workFailed); codeForm(code) && job.action.scrubber(job.scope).text(code) == code {
			why += ": " + code
		}
		return report{}, errors.New(why)
	}
	return r, nil
}

// Lookup asks a worker once for each lookup of the contract. The answer names
// the account under which the search was made, so that no probe is needed.
func (w *Remote) Lookup(ctx context.Context, c Call) operation.Look {
	look := operation.Look{Source: events.SourceLookup, AskedAt: w.now(), AttemptID: c.AttemptID, AccountOK: true}
	job, err := w.work(c)
	if err != nil {
		return failed(look, "the look can't be prepared")
	}
	a := job.action
	look.Name = a.contract.Lookup.Name
	if len(a.lookups) == 0 {
		return failed(look, "the contract has no lookup")
	}
	look.PagesComplete = true
	var found, weak []match
	for _, l := range a.lookups {
		more := map[string]any{"lookup": l.name}
		if !c.FirstSend.IsZero() {
			more["first_send"] = c.FirstSend.UTC().Format(time.RFC3339Nano)
		}
		r, err := w.ask(ctx, a.contract.Total, job, WorkLookup, job.body, more)
		if err != nil {
			return failed(look, l.name+": "+err.Error())
		}
		if look.AccountProbed = r.text(workAccount); look.AccountProbed == "" {
			return failed(look, l.name+": the worker names no account")
		}
		if id := c.Intent.ProviderID; id != "" && id != look.AccountProbed {
			look.AccountOK, look.PagesComplete, look.Reason = false, false, "account_mismatch"
			return look
		}
		x := runner{l: l, scope: job.scope}
		list, err := listAt(l.items, r.doc)
		if err == nil {
			err = x.items(job.marked(list))
		}
		if err != nil {
			return failed(look, l.name+": "+err.Error())
		}
		if r.doc[workComplete] != true {
			look.PagesComplete, look.Reason = false, l.name+": the worker did not see everything"
		}
		found, weak = append(found, x.found...), append(weak, x.weak...)
	}
	for i, m := range found {
		object, _ := m.doc.(map[string]any)
		found[i].doc = object[workResult]
	}
	return a.conclude(look, job.scope, credential{}, found, weak)
}

// marked puts the label in the place of the key: either is the operation's own
// mark at an object.
func (j work) marked(list []any) []any {
	for _, item := range list {
		if object, ok := item.(map[string]any); ok && object[workMark] == j.scope.op[opKey] {
			object[workMark] = j.scope.op[opLabel]
		}
	}
	return list
}
