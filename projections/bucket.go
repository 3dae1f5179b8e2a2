package projections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// maxPendingWrites bounds the writes that wait for their acknowledgement.
	maxPendingWrites = 512
	// maxReadTries bounds the tries of one read. A request that is under way
	// when the connection breaks is never answered.
	maxReadTries = 4
)

var (
	// errRevision: the key has another revision than expected.
	errRevision = errors.New("projections: revision differs")
	// errGone: the bucket does not exist.
	errGone = errors.New("projections: bucket is gone")
)

// bucket is a KV bucket with one value per key. It works on the stream behind
// it, because the KV client has neither a TTL on updates nor pipelined writes,
// and reads directly, which on a replicated stream is not read-your-writes.
type bucket struct {
	part
	name string
	api  string
}

func (b *bucket) stream() string { return "KV_" + b.name }

func (b *bucket) subject(key string) string { return "$KV." + b.name + "." + key }

func (b *bucket) key(subject string) string { return strings.TrimPrefix(subject, "$KV."+b.name+".") }

// value is the last message of a key. A key that was deleted still has one,
// and its revision counts for the next compare-and-swap.
type value struct {
	rev     uint64
	header  nats.Header
	data    []byte
	deleted bool
}

// removed reports whether a message stands for the end of a key.
func removed(h nats.Header) bool {
	return h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}

// last reads a key from the stream's leader. Without one it returns the zero
// value, whose revision 0 is what a first write expects.
func (b *bucket) last(ctx context.Context, key string) (v value, err error) {
	wait := firstPause
	for range maxReadTries {
		if v, err = b.lastOnce(ctx, key); err == nil || errors.Is(err, errGone) || pause(ctx, wait) != nil {
			break
		}
		wait = min(4*wait, maxPause)
	}
	return v, err
}

func (b *bucket) lastOnce(ctx context.Context, key string) (value, error) {
	ctx, cancel := context.WithTimeout(ctx, b.CallTimeout)
	defer cancel()
	req, err := json.Marshal(map[string]string{"last_by_subj": b.subject(key)})
	if err != nil {
		return value{}, err
	}
	msg, err := b.Conn.RequestWithContext(ctx, b.api+"STREAM.MSG.GET."+b.stream(), req)
	if err != nil {
		return value{}, fmt.Errorf("projections: read %s from %s: %w", key, b.name, err)
	}
	var resp struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Seq  uint64 `json:"seq"`
			Hdrs []byte `json:"hdrs"`
			Data []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &resp); err != nil {
		return value{}, fmt.Errorf("projections: read %s from %s: unreadable answer: %w", key, b.name, err)
	}
	if resp.Error != nil {
		switch resp.Error.ErrorCode {
		case jetstream.JSErrCodeMessageNotFound:
			return value{}, nil
		case jetstream.JSErrCodeStreamNotFound:
			return value{}, errGone
		}
		return value{}, fmt.Errorf("projections: read %s from %s: %w", key, b.name, resp.Error)
	}
	if resp.Message == nil {
		return value{}, fmt.Errorf("projections: read %s from %s: answer without a message", key, b.name)
	}
	v := value{rev: resp.Message.Seq, data: resp.Message.Data}
	if len(resp.Message.Hdrs) > 0 {
		if v.header, err = nats.DecodeHeadersMsg(resp.Message.Hdrs); err != nil {
			return value{}, fmt.Errorf("projections: read %s from %s: %w", key, b.name, err)
		}
	}
	v.deleted = removed(v.header)
	return v, nil
}

// peek reads a key from any replica: fast, and possibly a moment old.
func (b *bucket) peek(ctx context.Context, key string) (value, error) {
	ctx, cancel := context.WithTimeout(ctx, b.CallTimeout)
	defer cancel()
	msg, err := b.Conn.RequestWithContext(ctx, b.api+"DIRECT.GET."+b.stream()+"."+b.subject(key), nil)
	if errors.Is(err, nats.ErrNoResponders) {
		return value{}, errGone
	}
	if err != nil {
		return value{}, err
	}
	if status := msg.Header.Get("Status"); status != "" {
		if status == "404" {
			return value{}, nil
		}
		return value{}, fmt.Errorf("projections: read %s from %s: status %s", key, b.name, status)
	}
	rev, err := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return value{}, fmt.Errorf("projections: read %s from %s: %w", key, b.name, err)
	}
	return value{rev: rev, header: msg.Header, data: msg.Data, deleted: removed(msg.Header)}, nil
}

// message makes the write of a key under compare-and-swap on its revision.
func (b *bucket) message(key string, data []byte, rev uint64) *nats.Msg {
	m := nats.NewMsg(b.subject(key))
	m.Data = data
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(rev, 10))
	return m
}

// put publishes a write and returns the new revision.
func (b *bucket) put(ctx context.Context, m *nats.Msg) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, b.CallTimeout)
	defer cancel()
	ack, err := b.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, b.failed(m, err)
	}
	return ack.Sequence, nil
}

// remove leaves a marker in place of a key, for ttl or, if that is 0, for ever.
func (b *bucket) remove(ctx context.Context, key string, rev uint64, ttl time.Duration) error {
	m := b.message(key, nil, rev)
	m.Header.Set("KV-Operation", "PURGE")
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	if ttl > 0 {
		m.Header.Set(jetstream.MsgTTLHeader, ttlText(ttl))
	}
	_, err := b.put(ctx, m)
	return err
}

// ttlText rounds up to whole seconds, of which a server takes at least one.
func ttlText(ttl time.Duration) string {
	return strconv.FormatInt(max(1, int64((ttl+time.Second-1)/time.Second)), 10) + "s"
}

// failed translates the error of a write.
func (b *bucket) failed(m *nats.Msg, err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return errGone
	case errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant):
		return errRevision
	}
	return fmt.Errorf("projections: write %s to %s: %w", b.key(m.Subject), b.name, err)
}

// info describes the stream behind the bucket.
func (b *bucket) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, b.CallTimeout)
	defer cancel()
	s, err := b.js.Stream(ctx, b.stream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("projections: look at %s: %w", b.name, err)
	}
	return s.CachedInfo(), nil
}

// errEnd ends a Tail.
var errEnd = errors.New("projections: end")

// each passes every key of the bucket once, deleted ones left out; a key that
// changes meanwhile may come twice, the newer one later.
func (b *bucket) each(ctx context.Context, filter string, fn func(key string, v value) error) error {
	err := b.Streams.Tail(ctx, b.stream(), []string{b.subject(filter)}, 1,
		func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
			if removed(m.Headers()) {
				return nil
			}
			return fn(b.key(m.Subject()), value{rev: meta.Sequence.Stream, header: m.Headers(), data: m.Data()})
		},
		func() error { return errEnd })
	if errors.Is(err, errEnd) {
		return nil
	}
	return err
}
