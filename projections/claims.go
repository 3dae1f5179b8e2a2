package projections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// claimSlack is how much longer than its lease a claim stays in the
	// bucket. Whoever comes earlier than that compares the times.
	claimSlack = 5 * time.Second
	// releasedFor is how long the marker of a released claim stays.
	releasedFor = 2 * time.Second
	// maxTakeTries bounds the rounds of one Take.
	maxTakeTries = 6
)

// ErrClaimed is returned while somebody else may try the operation. Errors of this kind are
// *ClaimedError.
var ErrClaimed = errors.New("projections: claimed")

// ClaimedError says who holds a claim.
type ClaimedError struct{ Held Claim }

// Error implements error.
func (e *ClaimedError) Error() string {
	return fmt.Sprintf("%s by worker %s until %s", ErrClaimed, e.Held.Worker, e.Held.Until.UTC().Format(time.RFC3339))
}

// Unwrap makes errors.Is(err, ErrClaimed) true.
func (e *ClaimedError) Unwrap() error { return ErrClaimed }

// Claim is the exclusive right to try the next attempt of an operation. It is
// only there to settle contention before the log is written: the log is the
// fence, and losing the whole bucket makes nothing unsafe.
type Claim struct {
	AttemptID string    `json:"attempt_id"`
	Worker    string    `json:"worker"`
	Until     time.Time `json:"until"`
}

// Claims keeps the claims, one key per operation, each with a time to live.
type Claims struct {
	part
	b *bucket
}

// NewClaims returns the claims on their bucket.
func NewClaims(cfg Config) (*Claims, error) {
	p, err := cfg.open()
	if err != nil {
		return nil, err
	}
	return &Claims{part: p, b: p.bucket("CLAIMS")}, nil
}

// Take claims an operation until c.Until. It returns the revision of the claim,
// for Release and for the audit. A claim that is over by now − clockError is
// replaced, any other one is a *ClaimedError. Taking the claim of the same
// attempt again succeeds, so a lost answer does no harm. A lost bucket is
// created again and said so in a log line. A crash leaves the claim to its end.
func (c *Claims) Take(ctx context.Context, tenant, operationID string, claim Claim, now time.Time, clockError time.Duration) (uint64, error) {
	return c.TakeOver(ctx, tenant, operationID, claim, now, clockError, nil)
}

// TakeOver is Take for a caller who knows of attempts that are settled: a claim
// whose attempt settled reports as such is replaced although its lease has not
// ended yet.
func (c *Claims) TakeOver(ctx context.Context, tenant, operationID string, claim Claim, now time.Time,
	clockError time.Duration, settled func(attemptID string) bool,
) (uint64, error) {
	if err := checkIDs(tenant, operationID); err != nil {
		return 0, err
	}
	body, err := json.Marshal(claim)
	if err != nil {
		return 0, fmt.Errorf("projections: claim %s: %w", operationID, err)
	}
	key := entryKey(tenant, operationID)
	var expected uint64
	for range maxTakeTries {
		m := c.b.message(key, body, expected)
		m.Header.Set(jetstream.MsgTTLHeader, ttlText(claim.Until.Sub(now)+claimSlack))
		rev, putErr := c.b.put(ctx, m)
		if putErr == nil {
			return rev, nil
		}
		if errors.Is(putErr, errGone) {
			if err := c.restore(ctx); err != nil {
				return 0, err
			}
			expected = 0
			continue
		}
		// Lost, or the answer is missing: the key itself tells.
		v, err := c.b.last(ctx, key)
		if err != nil {
			return 0, fmt.Errorf("projections: claim %s: %w", operationID, errors.Join(putErr, err))
		}
		expected = v.rev
		if v.rev == 0 || v.deleted {
			continue
		}
		var held Claim
		if json.Unmarshal(v.data, &held) != nil {
			continue // not a claim: replaced
		}
		if held.AttemptID == claim.AttemptID {
			return v.rev, nil
		}
		over := now.After(held.Until.Add(clockError))
		if !over && (settled == nil || !settled(held.AttemptID)) {
			return 0, &ClaimedError{Held: held}
		}
	}
	return 0, fmt.Errorf("projections: claim %s: not settled after %d rounds", operationID, maxTakeTries)
}

// Release gives a claim back. It does nothing if somebody else has it by now,
// or if the bucket is gone.
func (c *Claims) Release(ctx context.Context, tenant, operationID string, revision uint64) error {
	if err := checkIDs(tenant, operationID); err != nil {
		return err
	}
	err := c.b.remove(ctx, entryKey(tenant, operationID), revision, releasedFor)
	if errors.Is(err, errRevision) || errors.Is(err, errGone) {
		return nil
	}
	return err
}

// restore creates the bucket again, or waits a moment if it is only without a
// leader.
func (c *Claims) restore(ctx context.Context) error {
	_, err := c.b.info(ctx)
	switch {
	case err == nil:
		return pause(ctx, firstPause)
	case !errors.Is(err, errGone):
		return err
	}
	c.log.LogAttrs(ctx, slog.LevelWarn, "the bucket of claims is gone, creating it again")
	return c.Streams.EnsureBucket(ctx, c.b.name)
}
