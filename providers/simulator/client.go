package simulator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Limits of the client.
const (
	maxClientBody   = 1 << 30
	maxClientErrors = 1 << 16
)

// ErrWait is returned by WaitHeld and WaitWritten when the time is over.
var ErrWait = errors.New("simulator: the wait is over")

// APIError is an error answer of the admin API.
type APIError struct {
	Status  int
	Code    string
	Message string
}

// Error says what the server said.
func (e *APIError) Error() string {
	return fmt.Sprintf("simulator: admin api answered %d %s: %s", e.Status, e.Code, e.Message)
}

// ClientConfig is what a Client is made of.
type ClientConfig struct {
	// BaseURL is the root of the simulator, such as http://127.0.0.1:8099.
	BaseURL string
	// AdminToken is sent as bearer token if it is set.
	AdminToken string
	// HTTPClient sends the requests. Nil means http.DefaultClient. Its timeout,
	// if it has one, must be longer than the waits.
	HTTPClient *http.Client
}

// Client calls the admin API.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// NewClient makes a client, or says what is wrong with the configuration.
func NewClient(cfg ClientConfig) (*Client, error) {
	u, err := url.Parse(cfg.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("simulator: base url: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("simulator: base url %q must begin with http:// and name a host", cfg.BaseURL)
	}
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = http.DefaultClient
	}
	return &Client{base: strings.TrimSuffix(cfg.BaseURL, "/") + "/_sim", token: cfg.AdminToken, http: cfg.HTTPClient}, nil
}

// Health returns nil if the simulator answers.
func (c *Client) Health(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/healthz", nil, nil)
}

// Objects returns the rows of the truth table that match, oldest first.
func (c *Client) Objects(ctx context.Context, f ObjectFilter) ([]Object, error) {
	q := url.Values{}
	for name, value := range map[string]string{"id": f.ID, "account": f.Account, "label": f.Label, "title": f.Title} {
		if value != "" {
			q.Set(name, value)
		}
	}
	var body list[Object]
	err := c.call(ctx, http.MethodGet, "/objects?"+q.Encode(), nil, &body)
	return body.Items, err
}

// EditObject changes an object as a human would. Account may be empty where the
// id is unique.
func (c *Client) EditObject(ctx context.Context, account, id string, edit ObjectEdit) (Object, error) {
	var o Object
	err := c.call(ctx, http.MethodPatch, objectPath(account, id), edit, &o)
	return o, err
}

// DeleteObject deletes an object as a human would; it stays in the truth table.
// Account may be empty where the id is unique.
func (c *Client) DeleteObject(ctx context.Context, account, id string) (Object, error) {
	var o Object
	err := c.call(ctx, http.MethodDelete, objectPath(account, id), nil, &o)
	return o, err
}

func objectPath(account, id string) string {
	return "/objects/" + url.PathEscape(id) + "?account=" + url.QueryEscape(account)
}

// Requests returns the rows of the request log with a number above after.
func (c *Client) Requests(ctx context.Context, after int64) (RequestLog, error) {
	var log RequestLog
	err := c.call(ctx, http.MethodGet, "/requests?after="+strconv.FormatInt(after, 10), nil, &log)
	return log, err
}

// Sends returns what went over the wire, by wish, as far as the request log
// reaches.
func (c *Client) Sends(ctx context.Context) ([]Sends, error) {
	var body list[Sends]
	err := c.call(ctx, http.MethodGet, "/sends", nil, &body)
	return body.Items, err
}

// AddRule adds a rule behind those there are.
func (c *Client) AddRule(ctx context.Context, r Rule) (RuleState, error) {
	var st RuleState
	err := c.call(ctx, http.MethodPost, "/rules", r, &st)
	return st, err
}

// Rules returns the rules with their counters.
func (c *Client) Rules(ctx context.Context) ([]RuleState, error) {
	var body list[RuleState]
	err := c.call(ctx, http.MethodGet, "/rules", nil, &body)
	return body.Items, err
}

// DeleteRule removes one rule.
func (c *Client) DeleteRule(ctx context.Context, id int64) error {
	return c.call(ctx, http.MethodDelete, "/rules/"+strconv.FormatInt(id, 10), nil, nil)
}

// DeleteRules removes all rules.
func (c *Client) DeleteRules(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/rules", nil, nil)
}

// Settings returns the settings in force.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	var s Settings
	err := c.call(ctx, http.MethodGet, "/settings", nil, &s)
	return s, err
}

// SetSettings replaces all settings and returns those in force.
func (c *Client) SetSettings(ctx context.Context, s Settings) (Settings, error) {
	var got Settings
	err := c.call(ctx, http.MethodPatch, "/settings", s, &got)
	return got, err
}

// PatchSettings changes the settings that are named, by their JSON names, and
// returns those in force. Durations are strings or a Duration.
func (c *Client) PatchSettings(ctx context.Context, patch map[string]any) (Settings, error) {
	var got Settings
	err := c.call(ctx, http.MethodPatch, "/settings", patch, &got)
	return got, err
}

// ChangeAccount switches or revokes a token, now or later.
func (c *Client) ChangeAccount(ctx context.Context, change AccountChange) error {
	return c.call(ctx, http.MethodPost, "/accounts", change, nil)
}

// Release releases the held answer of one request, or all if request is zero,
// and returns how many.
func (c *Client) Release(ctx context.Context, request int64) (int, error) {
	var body releasedBody
	err := c.call(ctx, http.MethodPost, "/release", releaseBody{request}, &body)
	return body.Released, err
}

// WaitHeld waits until at least count answers are held and returns them. It
// returns what there is and ErrWait if the wait, at most a minute, is over.
func (c *Client) WaitHeld(ctx context.Context, count int, wait time.Duration) ([]HeldAnswer, error) {
	var body list[HeldAnswer]
	if err := c.call(ctx, http.MethodGet, waitPath("/held", count, wait), nil, &body); err != nil {
		return nil, err
	}
	if len(body.Items) < count {
		return body.Items, fmt.Errorf("%d of %d answers are held: %w", len(body.Items), count, ErrWait)
	}
	return body.Items, nil
}

// WaitWritten waits until at least count answers have been written since the
// last reset after a release, and returns them. It returns what there is and
// ErrWait if the wait, at most a minute, is over.
func (c *Client) WaitWritten(ctx context.Context, count int, wait time.Duration) ([]WrittenAnswer, error) {
	var body writtenBody
	if err := c.call(ctx, http.MethodGet, waitPath("/written", count, wait), nil, &body); err != nil {
		return nil, err
	}
	if int64(len(body.Items))+body.Dropped < int64(count) {
		return body.Items, fmt.Errorf("%d of %d answers are written: %w", len(body.Items), count, ErrWait)
	}
	return body.Items, nil
}

func waitPath(path string, count int, wait time.Duration) string {
	return path + "?count=" + strconv.Itoa(count) + "&wait=" + url.QueryEscape(wait.String())
}

// Reset throws everything away: objects, requests, keys, rules, and changes of
// settings and accounts. Held answers are released.
func (c *Client) Reset(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/reset", nil, nil)
}

// call sends in as JSON, if it is not nil, and reads the answer into out.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("simulator: %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return fmt.Errorf("simulator: %s %s: %w", method, path, err)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("simulator: %s %s: %w", method, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 {
		return readAPIError(resp)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxClientBody)).Decode(out); err != nil {
		return fmt.Errorf("simulator: %s %s: decode the answer: %w", method, path, err)
	}
	return nil
}

func readAPIError(resp *http.Response) error {
	e := &APIError{Status: resp.StatusCode}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxClientErrors))
	if err != nil {
		return fmt.Errorf("%w; and its body: %w", e, err)
	}
	var body errorBody
	if json.Unmarshal(data, &body) == nil {
		e.Code, e.Message = body.Error.Code, body.Error.Message
	}
	return e
}
