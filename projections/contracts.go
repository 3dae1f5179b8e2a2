package projections

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// maxContractTries bounds the rounds of one Put.
const maxContractTries = 4

var contractDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Contracts keeps every contract revision in use, byte for byte, by digest.
// Nothing is ever replaced or removed: an operation is judged for ever by the
// revision that it was accepted under.
type Contracts struct {
	part
	b *bucket
}

// NewContracts returns the contracts on their bucket.
func NewContracts(cfg Config) (*Contracts, error) {
	p, err := cfg.open()
	if err != nil {
		return nil, err
	}
	return &Contracts{part: p, b: p.bucket("CONTRACTS")}, nil
}

// Put stores a contract under its digest ("sha256:" and 64 hex digits). Storing
// the same again does nothing. The error wraps ErrDigest if body does not have
// that digest. After nil it is on the server's disk.
func (c *Contracts) Put(ctx context.Context, digest string, body []byte) error {
	key, err := contractKey(digest, body)
	if err != nil {
		return err
	}
	if err := c.put(ctx, key, body); err != nil {
		return fmt.Errorf("projections: store contract %s: %w", digest, err)
	}
	if err := c.Streams.SyncBucket(ctx, c.b.name); err != nil {
		return fmt.Errorf("projections: store contract %s: %w", digest, err)
	}
	return nil
}

func (c *Contracts) put(ctx context.Context, key string, body []byte) error {
	var expected uint64
	var last error
	for range maxContractTries {
		_, last = c.b.put(ctx, c.b.message(key, body, expected))
		if last == nil {
			return nil
		}
		if errors.Is(last, errGone) {
			if err := c.Streams.EnsureBucket(ctx, c.b.name); err != nil {
				return err
			}
			continue
		}
		v, err := c.b.last(ctx, key)
		if err != nil {
			return errors.Join(last, err)
		}
		if v.rev != 0 && !v.deleted && bytes.Equal(v.data, body) {
			return nil
		}
		expected = v.rev // deleted or damaged: put it right
	}
	return last
}

// Get returns the contract with this digest. The error wraps ErrNotFound if it
// is not there and ErrDigest if what is there is not it.
func (c *Contracts) Get(ctx context.Context, digest string) ([]byte, error) {
	if !contractDigest.MatchString(digest) {
		return nil, fmt.Errorf("%w: %q is not a digest", ErrDigest, clip(digest))
	}
	v, err := c.b.last(ctx, strings.Replace(digest, ":", "-", 1))
	switch {
	case errors.Is(err, errGone):
		return nil, fmt.Errorf("%w: contract %s: %w", ErrNotFound, digest, err)
	case err != nil:
		return nil, err
	case v.rev == 0 || v.deleted:
		return nil, fmt.Errorf("%w: contract %s", ErrNotFound, digest)
	}
	if _, err := contractKey(digest, v.data); err != nil {
		return nil, err
	}
	return v.data, nil
}

func contractKey(digest string, body []byte) (string, error) {
	sum := sha256.Sum256(body)
	if digest != "sha256:"+hex.EncodeToString(sum[:]) {
		return "", fmt.Errorf("%w: contract %q", ErrDigest, clip(digest))
	}
	return strings.Replace(digest, ":", "-", 1), nil
}

// clip keeps an odd digest from filling a log line.
func clip(s string) string { return s[:min(len(s), 80)] }
