package natsjournal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// MinServerVersion is the oldest server that the ledger runs on: proposals are
// fenced by leadership term, and "always" is cheap on replicated streams.
const MinServerVersion = "2.15.0"

// Sync is what is known of a server's sync_interval, which no client can see.
type Sync int

// What is known of the sync setting.
const (
	// SyncUnknown: an external server; nobody looked.
	SyncUnknown Sync = iota
	// SyncAlways: verified. It also stands for the embedded server whose process
	// syncs for it; see Config.Barrier.
	SyncAlways
	// SyncInterval: known to be weaker: acknowledged writes can be lost.
	SyncInterval
)

// Durability is what the caller knows of the server, and whether weaker
// settings than the ledger needs are accepted.
type Durability struct {
	Sync Sync
	// AcceptWeaker turns weaker settings into warnings. Damage to the log is
	// never accepted here.
	AcceptWeaker bool
}

// Problem is one setting that is weaker than the ledger needs, or damage.
type Problem struct {
	// Stream is empty for the server itself.
	Stream  string
	Setting string
	Is      string
	Want    string
	// Do tells a person what to do.
	Do string
	// Damage: not a setting; the log itself has lost messages.
	Damage bool
}

// String says it in one line.
func (p Problem) String() string {
	where := p.Stream
	if where == "" {
		where = "server"
	}
	return fmt.Sprintf("%s: %s is %s, must be %s: %s", where, p.Setting, p.Is, p.Want, p.Do)
}

// WeakError lists every problem that Check found.
type WeakError struct{ Problems []Problem }

// Error implements error.
func (e *WeakError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return fmt.Sprintf("natsjournal: %d settings are weaker than the ledger needs: %s",
		len(lines), strings.Join(lines, "; "))
}

// Damaged reports whether one of the problems is damage to the log. The ledger
// may then still be opened to verify it and to record outcomes, but no attempt
// may start (I16).
func (e *WeakError) Damaged() bool {
	return slices.ContainsFunc(e.Problems, func(p Problem) bool { return p.Damage })
}

// OnlyDamage reports whether every problem is damage to the log, and no setting.
func (e *WeakError) OnlyDamage() bool {
	return !slices.ContainsFunc(e.Problems, func(p Problem) bool { return !p.Damage })
}

// Check is the guard at start: it compares the server and every stream with
// what the ledger needs. It returns warnings for what can't be verified or was
// accepted, and a *WeakError for everything else, all problems at once.
func Check(ctx context.Context, js jetstream.JetStream, nc *nats.Conn, t Topology, d Durability) ([]string, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	problems := checkServer(nc, d)
	for _, want := range t.streams() {
		info, err := streamInfo(ctx, js, want.Name)
		if errors.Is(err, ErrNotFound) {
			problems = append(problems, Problem{
				Stream: want.Name, Setting: "stream", Is: "missing", Want: "present", Do: "run setup",
			})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("natsjournal: check %s: %w", want.Name, err)
		}
		problems = append(problems, compare(t, want, info)...)
	}
	var warnings []string
	if d.Sync == SyncUnknown && !BehindBarrier(nc) {
		warnings = append(warnings, "server: sync_interval can't be seen from here, must be always: "+
			"otherwise a power loss takes back acknowledged events and a request may be sent twice")
	}
	var refused []Problem
	for _, p := range problems {
		if d.AcceptWeaker && !p.Damage && p.Is != "missing" {
			warnings = append(warnings, p.String())
			continue
		}
		refused = append(refused, p)
	}
	if len(refused) > 0 {
		return warnings, &WeakError{Problems: refused}
	}
	return warnings, nil
}

func checkServer(nc *nats.Conn, d Durability) []Problem {
	var out []Problem
	if v := nc.ConnectedServerVersion(); versionLess(v, MinServerVersion) {
		out = append(out, Problem{
			Setting: "version", Is: v, Want: MinServerVersion + " or later", Do: "upgrade every server",
		})
	}
	if d.Sync == SyncInterval {
		out = append(out, Problem{
			Setting: "sync_interval", Is: "an interval", Want: "always",
			Do: "set jetstream { sync_interval: always } on every server",
		})
	}
	return out
}

// versionLess compares major.minor.patch; an unreadable version is less.
func versionLess(a, b string) bool {
	pa, oka := parseVersion(a)
	pb, _ := parseVersion(b)
	return !oka || slices.Compare(pa, pb) < 0
}

func parseVersion(v string) ([]int, bool) {
	v, _, _ = strings.Cut(v, "-")
	parts := strings.Split(v, ".")
	if len(parts) != 3 {
		return nil, false
	}
	out := make([]int, 3)
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil {
			return nil, false
		}
		out[i] = n
	}
	return out, true
}

// compare returns what of an existing stream is weaker than wanted. Metadata
// is not compared: the server adds keys of its own ("_nats.…").
func compare(t Topology, want jetstream.StreamConfig, info *jetstream.StreamInfo) []Problem {
	c := comparison{stream: want.Name, got: info.Config}
	c.must("storage", info.Config.Storage == want.Storage, info.Config.Storage.String(), want.Storage.String(), editStream)
	c.must("num_replicas", info.Config.Replicas >= want.Replicas,
		strconv.Itoa(info.Config.Replicas), strconv.Itoa(want.Replicas), editStream)
	c.must("subjects", covers(info.Config.Subjects, want.Subjects),
		strings.Join(info.Config.Subjects, " "), strings.Join(want.Subjects, " "), editStream)
	c.must("retention", info.Config.Retention == want.Retention,
		info.Config.Retention.String(), want.Retention.String(), newStream)
	c.must("mirror or sources", info.Config.Mirror == nil && len(info.Config.Sources) == 0, "set", "unset", newStream)
	c.must("no_ack", !info.Config.NoAck, "true", "false", editStream)
	c.must("sealed", !info.Config.Sealed, "true", "false", newStream)
	n := t.Names()
	switch want.Name {
	case n.Events:
		c.journal(want, info)
	case n.Refused:
	case BucketStream(n.Operations), BucketStream(n.Claims), BucketStream(n.Contracts):
		c.bucket(want)
	default:
		c.inbox(want)
	}
	return c.found
}

const (
	editStream = "edit the stream"
	newStream  = "this can't be edited: move to a new stream"
)

type comparison struct {
	stream string
	got    jetstream.StreamConfig
	found  []Problem
}

func (c *comparison) must(setting string, ok bool, is, want, do string) {
	if !ok {
		c.found = append(c.found, Problem{Stream: c.stream, Setting: setting, Is: is, Want: want, Do: do})
	}
}

func (c *comparison) unlimited() {
	c.must("max_msgs", c.got.MaxMsgs <= 0, strconv.FormatInt(c.got.MaxMsgs, 10), "unlimited", editStream)
	c.must("max_bytes", c.got.MaxBytes <= 0, strconv.FormatInt(c.got.MaxBytes, 10), "unlimited", editStream)
	c.must("max_age", c.got.MaxAge == 0, c.got.MaxAge.String(), "unlimited", editStream)
}

func (c *comparison) journal(want jetstream.StreamConfig, info *jetstream.StreamInfo) {
	got := c.got
	c.unlimited()
	c.must("max_msgs_per_subject", got.MaxMsgsPerSubject <= 0, strconv.FormatInt(got.MaxMsgsPerSubject, 10), "unlimited", editStream)
	c.must("max_msg_size", got.MaxMsgSize <= 0 || got.MaxMsgSize >= MaxIntentSize+headerRoom,
		strconv.Itoa(int(got.MaxMsgSize)), "unlimited", editStream)
	c.must("deny_delete", got.DenyDelete, "false", "true", newStream)
	c.must("deny_purge", got.DenyPurge, "false", "true", newStream)
	c.must("allow_rollup_hdrs", !got.AllowRollup, "true", "false", editStream)
	c.must("allow_msg_ttl", !got.AllowMsgTTL, "true", "false", newStream)
	c.must("allow_msg_schedules", !got.AllowMsgSchedules, "true", "false", newStream)
	c.must("allow_msg_counter", !got.AllowMsgCounter, "true", "false", newStream)
	c.must("allow_direct", got.AllowDirect, "false", "true", editStream)
	c.must("allow_atomic", got.AllowAtomicPublish, "false", "true", editStream)
	c.must("persist_mode", got.PersistMode == jetstream.DefaultPersistMode, got.PersistMode.String(), "default", newStream)
	c.must("duplicate_window", got.Duplicates == want.Duplicates, got.Duplicates.String(), want.Duplicates.String(), editStream)
	c.must("subject_transform", got.SubjectTransform == nil, "set", "unset", editStream)
	c.must("metadata "+MetadataLedger, got.Metadata[MetadataLedger] != "", "missing", "the id of the ledger",
		"restore it: provider keys derive from it")
	s := info.State
	if s.LastSeq > 0 && s.FirstSeq != 1 {
		c.damage("first_seq", strconv.FormatUint(s.FirstSeq, 10), "1")
	}
	if s.NumDeleted != 0 {
		c.damage("num_deleted", strconv.Itoa(s.NumDeleted), "0")
	}
	if s.Lost != nil && len(s.Lost.Msgs) > 0 {
		c.damage("lost messages", strconv.Itoa(len(s.Lost.Msgs)), "0")
	}
}

func (c *comparison) damage(setting, is, want string) {
	c.found = append(c.found, Problem{
		Stream: c.stream, Setting: setting, Is: is, Want: want, Damage: true,
		Do: "the log has lost messages: run verify, restore a backup or clear the alarm (opledger integrity clear)",
	})
}

func (c *comparison) inbox(want jetstream.StreamConfig) {
	discards := c.got.Discard == jetstream.DiscardNew
	c.must("max_msgs", c.got.MaxMsgs <= 0 || discards, strconv.FormatInt(c.got.MaxMsgs, 10), "unlimited", editStream)
	c.must("max_bytes", c.got.MaxBytes <= 0 || discards, strconv.FormatInt(c.got.MaxBytes, 10), "unlimited", editStream)
	c.must("max_age", c.got.MaxAge == 0, c.got.MaxAge.String(), "unlimited", editStream)
	c.must("allow_rollup_hdrs", !c.got.AllowRollup, "true", "false", editStream)
	c.must("allow_msg_ttl", !c.got.AllowMsgTTL, "true", "false", newStream)
	c.must("persist_mode", c.got.PersistMode == jetstream.DefaultPersistMode, c.got.PersistMode.String(), "default", newStream)
	c.must("duplicate_window", c.got.Duplicates <= want.Duplicates, c.got.Duplicates.String(), want.Duplicates.String(), editStream)
}

func (c *comparison) bucket(want jetstream.StreamConfig) {
	c.unlimited()
	c.must("max_msgs_per_subject", c.got.MaxMsgsPerSubject == 1,
		strconv.FormatInt(c.got.MaxMsgsPerSubject, 10), "1", "delete the bucket and run setup")
	c.must("allow_msg_ttl", !want.AllowMsgTTL || c.got.AllowMsgTTL, "false", "true", editStream)
	c.must("persist_mode", want.PersistMode == jetstream.AsyncPersistMode || c.got.PersistMode == jetstream.DefaultPersistMode,
		c.got.PersistMode.String(), "default", newStream)
}

// covers reports whether every wanted subject is among those of the stream.
func covers(got, want []string) bool {
	return !slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(got, s) })
}

// headerRoom is what the headers of an event may take, in bytes.
const headerRoom = 4 << 10
