package providers

import (
	"context"
	"fmt"
	"time"
)

// probeTimeout bounds one account probe.
const probeTimeout = 15 * time.Second

// Probe returns the provider's own id of the account that the credential
// belongs to now, or "" where the contract has no probe. The answer is kept for
// the contract's cache time, for one version of the credential.
func (h *HTTP) Probe(ctx context.Context, c Call) (string, error) {
	_, acc, err := h.whose(c)
	if err == nil {
		err = c.renderable()
	}
	if err == nil && !isObject(c.Intent.Args) {
		err = errNoObject
	}
	if err != nil {
		return "", err
	}
	return h.probe(ctx, acc, c.Fresh)
}

func (h *HTTP) probe(ctx context.Context, acc *account, fresh bool) (string, error) {
	p := h.file.conn.probe
	if p == nil {
		return acc.cfg.ProviderID, nil // nothing to ask: what is configured now
	}
	cred, err := h.credential(acc)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotMine, err)
	}
	asked := h.now()
	if id, ok := acc.cached(cred, asked, p.cache); ok && !fresh {
		return id, nil
	}
	out, err := h.render(p.request, scope{account: acc.values}, acc)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	x := send(ctx, acc.wire.pooled, out.request(cred, false))
	if x.err != nil {
		return "", fmt.Errorf("%w: %s", ErrProbe, x.transport.Error)
	}
	ans := newAnswer(x.status, x.header, x.body)
	if ans.status < 200 || ans.status > 299 {
		return "", fmt.Errorf("%w: status %d", ErrProbe, ans.status)
	}
	v, _ := p.account.first(ans.doc)
	id, ok := idText(v)
	if !ok {
		return "", fmt.Errorf("%w: the answer names no account", ErrProbe)
	}
	acc.remember(probed{version: cred.version, id: id, at: asked})
	return id, nil
}

func (a *account) cached(c credential, now time.Time, cache time.Duration) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := a.probed.id != "" && a.probed.version == c.version && now.Before(a.probed.at.Add(cache))
	return a.probed.id, ok
}

func (a *account) remember(p probed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !p.at.Before(a.probed.at) {
		a.probed = p
	}
}

// vouches reports whether the credential is the one that was probed last, and
// belongs to the account that the operation is bound to. Where nothing was
// probed there is nothing to compare.
func (a *account) vouches(c credential, bound string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.probed.id == "" {
		return true
	}
	return a.probed.version == c.version && (bound == "" || bound == a.probed.id)
}
