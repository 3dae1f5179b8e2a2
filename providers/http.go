package providers

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Account is how one account of a provider is reached from here.
type Account struct {
	// ProviderID is the provider's own id of the account. It is used where the
	// contract has no account probe.
	ProviderID string
	// BaseURL replaces the contract's base URL if it is set; it is also the
	// value ${account.base_url}.
	BaseURL string
	// AllowLoopback permits addresses of this machine. Default: as the contract
	// says.
	AllowLoopback bool
	// CAFile holds the certificates to trust, in PEM. Default: the system's.
	CAFile string
	// Secrets are the values of ${secret.*}, by reference.
	Secrets map[string]SecretRef
	// Values are the values of ${account.*}.
	Values map[string]string
}

// HTTPConfig is what an HTTP adapter is made of.
type HTTPConfig struct {
	File *File
	// Accounts are the accounts, by our own names.
	Accounts map[string]Account
	// AllowHosts lists the hosts that a base URL may name: exactly, or every name
	// below one as "*.example.com". Empty means: those that contract and accounts
	// name.
	AllowHosts []string
	// Now is the clock of looks and caches. Nil means time.Now.
	Now func() time.Time
}

// HTTP is the adapter that is driven by a contract file. It keeps connections,
// and whose account a credential belongs to; nothing of an operation.
type HTTP struct {
	file     *File
	now      func() time.Time
	accounts map[string]*account
}

var _ Adapter = (*HTTP)(nil)

// account is one configured account with its connections.
type account struct {
	name   string
	cfg    Account
	values map[string]string
	base   *url.URL
	wire   *wire

	mu     sync.Mutex
	probed probed
}

// probed is what the last probe showed of a credential.
type probed struct {
	version string // of the credential
	id      string
	at      time.Time
}

// NewHTTP checks the configuration: every account has what the contract uses,
// and a base URL that a request may go to.
func NewHTTP(cfg HTTPConfig) (*HTTP, error) {
	if cfg.File == nil || cfg.File.Remote() {
		return nil, errors.New("providers: an HTTP adapter needs a contract file with a base URL")
	}
	for _, p := range cfg.AllowHosts {
		if err := CheckHostPattern(p); err != nil {
			return nil, fmt.Errorf("providers: allowed hosts: %w", err)
		}
	}
	h := &HTTP{file: cfg.File, now: cfg.Now, accounts: make(map[string]*account)}
	if h.now == nil {
		h.now = time.Now
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Accounts)) {
		a, err := newAccount(cfg.File, name, cfg.Accounts[name], cfg.AllowHosts)
		if err != nil {
			return nil, fmt.Errorf("providers: account %s of %s: %w", name, cfg.File.Provider, err)
		}
		h.accounts[name] = a
	}
	return h, nil
}

func newAccount(f *File, name string, cfg Account, allowHosts []string) (*account, error) {
	if err := events.CheckID("account", name); err != nil {
		return nil, err
	}
	a := &account{name: name, cfg: cfg, values: maps.Clone(cfg.Values)}
	if a.values == nil {
		a.values = make(map[string]string)
	}
	a.values["name"] = name
	for key, v := range map[string]string{"base_url": cfg.BaseURL, "provider_id": cfg.ProviderID} {
		if v != "" {
			a.values[key] = v
		}
	}
	for key, v := range a.values {
		if !safeHeader(v) {
			return nil, fmt.Errorf("the value of %s has a control character", key)
		}
	}
	for _, value := range f.values() {
		if a.values[value] == "" && (value != "base_url" || cfg.BaseURL == "") {
			return nil, fmt.Errorf("the contract uses ${account.%s}, and it is not configured", value)
		}
	}
	for _, secret := range f.secrets {
		if _, ok := cfg.Secrets[secret]; !ok {
			return nil, fmt.Errorf("the contract uses ${secret.%s}, and it is not configured", secret)
		}
	}
	text := cfg.BaseURL
	if text == "" {
		var err error
		if text, err = (scope{account: a.values}).text(f.conn.baseURL); err != nil {
			return nil, err
		}
	}
	var err error
	if a.base, err = checkBaseURL(text); err != nil {
		return nil, err
	}
	if !hostAllowed(allowHosts, a.base.Hostname()) {
		return nil, fmt.Errorf("%w: host %s is not among the allowed hosts", ErrEgress, a.base.Hostname())
	}
	a.wire, err = newWire(wireConfig{
		origin:        originOf(a.base),
		allowLoopback: f.conn.allowLoopback || cfg.AllowLoopback,
		minTLS:        f.conn.minTLS, caFile: cfg.CAFile,
	})
	return a, err
}

// originOf returns host and port of a base URL, as they are dialed.
func originOf(base *url.URL) string {
	port := base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[base.Scheme]
	}
	return net.JoinHostPort(base.Hostname(), port)
}

// Close drops idle connections. Requests under way go on.
func (h *HTTP) Close() {
	for _, a := range h.accounts {
		a.wire.close()
	}
}

// Limit returns how many requests of an action one account takes at once (0: as
// many as the caller likes) and the least time between two.
func (h *HTTP) Limit(action string) (concurrency int, spacing time.Duration) {
	return h.file.Limits(action).bounds()
}

// Contract returns what the provider promises for an action.
func (h *HTTP) Contract(action string) (operation.Contract, bool) { return h.file.Contract(action) }

// serves reports why this process can't work for an account.
func (h *HTTP) serves(account string) error {
	acc, ok := h.accounts[account]
	if !ok {
		return fmt.Errorf("%w: account %s", ErrNotMine, clip(account))
	}
	for _, name := range h.file.secrets {
		if _, err := acc.cfg.Secrets[name].Resolve(); err != nil {
			return fmt.Errorf("%w: %w", ErrNotMine, err)
		}
	}
	return nil
}

// find returns the action, account and values of a call.
func (h *HTTP) find(c Call) (*action, *account, scope, error) {
	a, acc, err := h.whose(c)
	if err != nil {
		return nil, nil, scope{}, err
	}
	s, err := newScope(c, acc.values)
	return a, acc, s, err
}

// whose returns the action and account of a call.
func (h *HTTP) whose(c Call) (*action, *account, error) {
	a, err := h.file.action(c.Intent)
	if err != nil {
		return nil, nil, err
	}
	acc, ok := h.accounts[c.Intent.Account.Name]
	if !ok {
		return nil, nil, fmt.Errorf("%w: account %s", ErrNotMine, clip(c.Intent.Account.Name))
	}
	return a, acc, nil
}

// Prepare builds the request without sending anything and without reading a
// secret. A value that is missing is an error.
func (h *HTTP) Prepare(c Call) (*Request, error) {
	a, acc, s, err := h.find(c)
	if err != nil {
		return nil, err
	}
	out, err := h.render(a.request, s, acc)
	if err != nil {
		return nil, err
	}
	if a.key != nil {
		key, err := s.text(a.key.value)
		if err != nil {
			return nil, err
		}
		if a.key.maxLen > 0 && len(key) > a.key.maxLen {
			return nil, fmt.Errorf("providers: the key has %d bytes, the provider takes %d", len(key), a.key.maxLen)
		}
	}
	var shown Redacted
	if hidden, hides := a.redactArgs(s); hides {
		r, err := h.render(a.request, hidden, acc)
		if err != nil {
			return nil, err
		}
		shown = r.show()
	}
	return &Request{
		Digest: out.digest(h.file.conn.authHeader), rendered: out, shown: shown,
		owner: h, account: acc, action: a, bound: c.Intent.ProviderID, scope: s,
	}, nil
}

// render builds a request and adds the credential's header.
func (h *HTTP) render(t requestTemplate, s scope, acc *account) (rendered, error) {
	out, err := t.render(s, acc.base)
	if err != nil || h.file.conn.authHeader == "" {
		return out, err
	}
	value, err := s.pieces(h.file.conn.authValue)
	if err != nil {
		return out, err
	}
	out.headers = append(out.headers, header{h.file.conn.authHeader, value})
	slices.SortFunc(out.headers, func(a, b header) int { return cmp.Compare(a.name, b.name) })
	return out, nil
}

// credential is what the secrets of an account are at one moment.
type credential struct {
	values  map[string]Secret
	version string
}

// credential reads the secrets that the contract uses.
func (h *HTTP) credential(acc *account) (credential, error) {
	c := credential{values: make(map[string]Secret)}
	sum := sha256.New()
	for _, name := range h.file.secrets {
		v, err := acc.cfg.Secrets[name].Resolve()
		if err != nil {
			return c, err
		}
		c.values[name] = v
		writeField(sum, name)
		writeField(sum, v.Reveal())
	}
	c.version = hex.EncodeToString(sum.Sum(nil))
	return c, nil
}

// secretLength is the length from which a value is taken for a secret wherever
// it stands. A shorter one would hide what has nothing to do with it.
const secretLength = 8

// repeatedIn reports whether a text of the provider's holds a credential. Such a
// text is not kept (I18).
func (c credential) repeatedIn(text string) bool {
	for _, v := range c.values {
		if secret := v.Reveal(); len(secret) >= secretLength && strings.Contains(text, secret) {
			return true
		}
	}
	return false
}

func (c credential) reveal() []string {
	out := make([]string, 0, len(c.values))
	for _, v := range c.values {
		out = append(out, v.Reveal())
	}
	return out
}

// request makes the request of net/http. GetBody stays nil and the body is
// never NoBody, or Go's transport would repeat it by itself (P1).
func (r rendered) request(c credential, once bool) *http.Request {
	req := &http.Request{
		Method: r.method, URL: r.url, Host: r.url.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header, len(r.headers)),
	}
	for _, h := range r.headers {
		var value strings.Builder
		for _, p := range h.value {
			value.WriteString(p.text)
			if p.secret != "" {
				value.WriteString(c.values[p.secret].Reveal())
			}
		}
		req.Header[h.name] = []string{value.String()}
	}
	if once || len(r.body) > 0 {
		req.Body, req.ContentLength = onceBody{bytes.NewReader(r.body)}, int64(len(r.body))
	}
	return req
}

// Do sends the request, at most once, and says what the answer means by the
// rules of the contract. Only what the transport proves is not_sent; every
// doubt is uncertain.
func (h *HTTP) Do(ctx context.Context, r *Request) operation.Outcome {
	if _, mine := r.Take(h); !mine {
		return operation.Outcome{
			Word: operation.OutcomeUncertain, Unknown: events.UnknownAdapterError,
			Reason: "the request is not from this adapter, or was handed over twice",
		}
	}
	if ctx.Err() != nil {
		return notSent("the time was over before anything was sent", events.Transport{})
	}
	cred, err := h.credential(r.account)
	if err != nil {
		return notSent("the credential can't be read", events.Transport{})
	}
	if !r.account.vouches(cred, r.bound) {
		return notSent("the credential is not the one that was probed for this account", events.Transport{})
	}
	rt := r.account.wire.pooled
	if !r.action.contract.KeySupported {
		// Without a key an unknown costs a person's time, so no risk is taken
		// with a kept connection that the provider may just be closing.
		rt = r.account.wire.fresh
	}
	x := send(ctx, rt, r.request(cred, true))
	o := h.outcome(r, x, cred)
	o.Transport = x.transport
	return o
}

func notSent(reason string, t events.Transport) operation.Outcome {
	return operation.Outcome{Word: operation.OutcomeNotSent, Reason: reason, Transport: t}
}

func (h *HTTP) outcome(r *Request, x exchange, cred credential) operation.Outcome {
	id := requestID(x.header, h.file.conn.requestIDHeader, cred)
	if x.err != nil {
		if !x.transport.BytesSent {
			return notSent(x.transport.Error, x.transport)
		}
		o := uncertain(x.status, x.transport.Error)
		o.Unknown, o.ProviderRequestID = unknownFor(x.transport.Error), id
		o.Final = unexpected(x.status, o)
		return o
	}
	ans := newAnswer(x.status, x.header, x.body)
	o := r.action.judge(r.scope, ans)
	o.ProviderRequestID = id
	if cred.repeatedIn(o.Reason) {
		o.Reason = "status " + strconv.Itoa(x.status)
	}
	if cred.repeatedIn(o.ExternalID) {
		o.Word, o.Unknown, o.ExternalID = operation.OutcomeUnidentified, events.UnknownUnidentified, ""
		o.Reason += ", the answer repeats the credential as id"
	}
	o.Final = o.Final || unexpected(x.status, o)
	if r.action.honourRetryAfter {
		o.RetryAfter = retryAfter(x.header, h.now())
	}
	if o.Word == operation.OutcomeSuccess && ans.docErr == nil {
		o.Result = r.action.scrubber(r.scope, cred.reveal()...).result(ans.doc)
	}
	return o
}

// unexpected reports whether a 2xx came whole and can't be understood: most
// likely the provider did something, and its answer to a repeat would be no easier
// to understand.
func unexpected(status int, o operation.Outcome) bool {
	return status >= 200 && status < 300 && o.Unknown == events.UnknownUnreadable
}
