// Package opledger is the Go client of the ledger: submit an intent, read an
// operation, wait for its end, hand in evidence, approve and decide.
//
// opledger keeps intent, attempt and result of an outside action apart, so that
// a lost answer does not become a second effect. The client talks to the
// service over NATS and never to the log itself. Everything that the ledger
// does not accept comes back as *api.Problem.
//
// The packages of the ledger, in the order of knowledge: events (what is on the
// wire), operation (what is known and what may happen next), providers (how an
// outside system is called), projections (the log folded into KV), intake (the
// only way in), executor and reconciler. docs/architecture.md has the map.
package opledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
)

// ErrNoAnswer is wrapped by errors of requests that got no answer. Whether a
// submit was recorded is then not known; submitting the same operation id again
// is always safe.
var ErrNoAnswer = errors.New("opledger: no answer")

// ClientConfig is what a Client needs.
type ClientConfig struct {
	// Conn must use nats.CustomInboxPrefix("_INBOX_" + user) where the server
	// restricts users to their own replies, as the shipped permissions do.
	Conn   *nats.Conn
	Tenant string
	// Prefix is the first token of the subjects; empty means "opledger".
	Prefix string
	// Timeout bounds one request that has no deadline, on top of the time that it
	// waits for an operation; zero means 10 s.
	Timeout time.Duration
}

// Client talks to the service for one tenant. It is safe for concurrent use.
type Client struct {
	cfg      ClientConfig
	subjects events.Subjects
}

// NewClient returns a Client.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Conn == nil {
		return nil, errors.New("opledger: a connection is required")
	}
	if err := events.CheckID("tenant", cfg.Tenant); err != nil {
		return nil, err
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	return &Client{cfg: cfg, subjects: events.Subjects{Prefix: cfg.Prefix}}, nil
}

// Submit records an intent, or returns the stored state if its id is known. The
// error is a *api.Problem if the ledger answered, and wraps ErrNoAnswer if not.
func (c *Client) Submit(ctx context.Context, r api.SubmitRequest) (api.Answer, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return api.Answer{}, fmt.Errorf("opledger: encode %s: %w", api.VerbSubmit, err)
	}
	return c.submit(ctx, raw, r.WaitMS)
}

// SubmitRaw is Submit with a request that is JSON already.
func (c *Client) SubmitRaw(ctx context.Context, raw []byte) (api.Answer, error) {
	var r struct {
		WaitMS int64 `json:"wait_ms"`
	}
	_ = json.Unmarshal(raw, &r) // the ledger says what is wrong with it
	return c.submit(ctx, raw, r.WaitMS)
}

// submit gives the answer the time that the request asks the ledger to wait, on
// top of that of any request.
func (c *Client) submit(ctx context.Context, raw []byte, waitMS int64) (api.Answer, error) {
	wait := time.Duration(min(max(waitMS, 0), time.Minute.Milliseconds())) * time.Millisecond
	ctx, cancel := c.bound(ctx, wait+c.cfg.Timeout)
	defer cancel()
	return callRaw[api.Answer](ctx, c, api.VerbSubmit, raw)
}

// SubmitAndWait is Submit and Wait in one request; beyond 50 s the wait is made of
// further ones. It returns as soon as the operation is final or needs a person, or
// when timeout is over. ctx has to outlive that: what it cuts off has no answer.
// Once the intent is known to be recorded, an error comes with the state that was
// answered. After ErrNoAnswer without one, call it again with the same request.
func (c *Client) SubmitAndWait(ctx context.Context, r api.SubmitRequest, timeout time.Duration) (api.Answer, error) {
	end := time.Now().Add(timeout)
	r.WaitMS = max(min(timeout, maxPart), time.Millisecond).Milliseconds()
	a, err := c.Submit(ctx, r)
	if err != nil || settled(a) || !time.Now().Before(end) {
		return a, err
	}
	later, err := c.Wait(ctx, api.GetRequest{OperationID: a.OperationID}, time.Until(end))
	if err != nil {
		return a, err
	}
	later.Repeated = a.Repeated
	return later, nil
}

// maxPart is how long one request waits at most.
const maxPart = 50 * time.Second

func settled(a api.Answer) bool { return a.Status.Final() || a.Review != "" }

// Get returns the state of an operation.
func (c *Client) Get(ctx context.Context, r api.GetRequest) (api.Answer, error) {
	return call[api.Answer](ctx, c, api.VerbGet, r)
}

// Wait returns the state of an operation as soon as it is final or needs a
// person, or when ctx or timeout is over. Timeouts beyond 60 s are made of
// several requests.
func (c *Client) Wait(ctx context.Context, r api.GetRequest, timeout time.Duration) (api.Answer, error) {
	end := time.Now().Add(timeout)
	for {
		part := min(time.Until(end), maxPart)
		req := api.WaitRequest{GetRequest: r, TimeoutMS: max(part, time.Millisecond).Milliseconds()}
		reqCtx, cancel := context.WithTimeout(ctx, part+c.cfg.Timeout)
		a, err := call[api.Answer](reqCtx, c, api.VerbWait, req)
		cancel()
		if err != nil || settled(a) || !time.Now().Before(end) {
			return a, err
		}
	}
}

// List returns one page of the tenant's operations.
func (c *Client) List(ctx context.Context, r api.ListRequest) (api.Page, error) {
	return call[api.Page](ctx, c, api.VerbList, r)
}

// Evidence hands in an observation from outside.
func (c *Client) Evidence(ctx context.Context, r api.EvidenceRequest) (api.Answer, error) {
	return call[api.Answer](ctx, c, api.VerbEvidence, r)
}

// Approve allows exactly one intent.
func (c *Client) Approve(ctx context.Context, r api.ApproveRequest) (api.Answer, error) {
	return call[api.Answer](ctx, c, api.VerbApprove, r)
}

// Decide settles what no machine can.
func (c *Client) Decide(ctx context.Context, r api.DecideRequest) (api.Answer, error) {
	return call[api.Answer](ctx, c, api.VerbDecide, r)
}

// Cancel withdraws a wish that can't have had an effect.
func (c *Client) Cancel(ctx context.Context, r api.CancelRequest) (api.Answer, error) {
	return call[api.Answer](ctx, c, api.VerbCancel, r)
}

// bound gives a request without a deadline one.
func (c *Client) bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

func call[T any](ctx context.Context, c *Client, verb string, req any) (T, error) {
	var none T
	raw, err := json.Marshal(req)
	if err != nil {
		return none, fmt.Errorf("opledger: encode %s: %w", verb, err)
	}
	return callRaw[T](ctx, c, verb, raw)
}

func callRaw[T any](ctx context.Context, c *Client, verb string, raw []byte) (T, error) {
	var out T
	ctx, cancel := c.bound(ctx, c.cfg.Timeout)
	defer cancel()
	msg, err := c.cfg.Conn.RequestWithContext(ctx, c.subjects.API(c.cfg.Tenant, verb), raw)
	if err != nil {
		return out, fmt.Errorf("%w to %s for tenant %s: %w", ErrNoAnswer, verb, c.cfg.Tenant, err)
	}
	if msg.Header.Get("Nats-Service-Error-Code") != "" {
		var p api.Problem
		if err := json.Unmarshal(msg.Data, &p); err != nil || p.Code == "" {
			return out, fmt.Errorf("opledger: %s: %s", verb, msg.Header.Get("Nats-Service-Error"))
		}
		return out, &p
	}
	if err := json.Unmarshal(msg.Data, &out); err != nil {
		return out, fmt.Errorf("opledger: answer to %s: %w", verb, err)
	}
	return out, nil
}
