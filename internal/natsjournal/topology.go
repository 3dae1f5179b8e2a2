package natsjournal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
)

// MetadataLedger is the key of the journal's stream metadata that holds the id
// of the ledger, a random UUID given at set-up.
const MetadataLedger = "opledger.ledger_id"

// Defaults and bounds of the topology.
const (
	// DefaultDuplicateWindow is how long the journal remembers event ids. It
	// only saves work: the compare-and-swap is what keeps events single.
	DefaultDuplicateWindow = 20 * time.Second
	// IntentDuplicateWindow is the smallest window that a server accepts.
	// Publishers choose their own message ids, so a long one would let an id
	// be used up by somebody else.
	IntentDuplicateWindow = 100 * time.Millisecond
	// RefusedMaxAge and RefusedMaxBytes bound the stream of refusals.
	RefusedMaxAge   = 30 * 24 * time.Hour
	RefusedMaxBytes = 256 << 20
	// MaxIntentSize is the largest intent in an inbox, in bytes.
	MaxIntentSize = events.MaxEventSize
	// MaxReplicas is what JetStream allows.
	MaxReplicas = 5
	// apiTimeout bounds one call to create or look at a stream.
	apiTimeout = 10 * time.Second
)

// Topology says which streams and buckets a ledger has. The zero value is the
// single-node ledger "opledger" without tenants.
type Topology struct {
	// Subjects gives the first token of all subjects. Stream names begin with
	// it in upper case, so several ledgers can share an account.
	Subjects events.Subjects
	// Tenants get a durable inbox each.
	Tenants []string
	// Replicas of every stream and bucket. Zero means 1; at most MaxReplicas.
	Replicas int
	// DuplicateWindow of the journal. Zero means DefaultDuplicateWindow.
	DuplicateWindow time.Duration
	// Metadata is added to every stream at its creation.
	Metadata map[string]string
}

var prefixPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// Names are the names of the streams and buckets of a ledger.
type Names struct {
	// Prefix begins every name.
	Prefix string
	// Events is the stream of the journal, Refused that of refusals.
	Events, Refused string
	// Operations, Claims and Contracts are buckets.
	Operations, Claims, Contracts string
}

// Intents returns the name of the inbox stream of a tenant.
func (n Names) Intents(tenant string) string { return n.Prefix + "_INTENTS_" + tenant }

// BucketStream returns the name of the stream behind a bucket.
func BucketStream(bucket string) string { return "KV_" + bucket }

// Names returns the names that the topology uses.
func (t Topology) Names() Names {
	p := strings.ToUpper(t.prefix())
	return Names{
		Prefix: p, Events: p + "_EVENTS", Refused: p + "_REFUSED",
		Operations: p + "_OPERATIONS", Claims: p + "_CLAIMS", Contracts: p + "_CONTRACTS",
	}
}

func (t Topology) prefix() string {
	if t.Subjects.Prefix == "" {
		return events.DefaultPrefix
	}
	return t.Subjects.Prefix
}

func (t Topology) replicas() int { return max(t.Replicas, 1) }

func (t Topology) window() time.Duration {
	if t.DuplicateWindow == 0 {
		return DefaultDuplicateWindow
	}
	return t.DuplicateWindow
}

func (t Topology) check() error {
	if !prefixPattern.MatchString(t.prefix()) {
		return fmt.Errorf("natsjournal: prefix %q must match %s", t.prefix(), prefixPattern)
	}
	if t.Replicas < 0 || t.Replicas > MaxReplicas {
		return fmt.Errorf("natsjournal: %d replicas, at most %d", t.Replicas, MaxReplicas)
	}
	if t.window() < time.Second {
		return fmt.Errorf("natsjournal: duplicate window %v is shorter than a second", t.window())
	}
	for _, tenant := range t.Tenants {
		if err := events.CheckID("tenant", tenant); err != nil {
			return err
		}
	}
	return nil
}

// streams returns the configuration of every stream, buckets included, in the
// order in which they are created: the journal last, so that a ledger whose
// journal exists is complete.
func (t Topology) streams() []jetstream.StreamConfig {
	n := t.Names()
	out := []jetstream.StreamConfig{
		t.bucket(n.Operations), t.bucket(n.Claims), t.bucket(n.Contracts), t.refused(),
	}
	tenants := slices.Clone(t.Tenants)
	slices.Sort(tenants)
	for _, tenant := range slices.Compact(tenants) {
		out = append(out, t.intents(tenant))
	}
	return append(out, t.journal())
}

func (t Topology) base(name, description string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Description: description, Storage: jetstream.FileStorage, Replicas: t.replicas(),
		Retention: jetstream.LimitsPolicy, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1,
		MaxConsumers: -1, MaxMsgSize: -1, AllowDirect: true, Metadata: maps.Clone(t.Metadata),
	}
}

func (t Topology) journal() jetstream.StreamConfig {
	c := t.base(t.Names().Events, "Journal of the operation ledger. Never delete from it.")
	c.Subjects = []string{t.prefix() + ".events.*.*", t.prefix() + ".system.*", t.prefix() + ".scopes.*.*"}
	c.DenyDelete, c.DenyPurge = true, true
	c.AllowAtomicPublish = true
	c.Duplicates = t.window()
	return c
}

func (t Topology) intents(tenant string) jetstream.StreamConfig {
	c := t.base(t.Names().Intents(tenant), "Inbox of one tenant of the operation ledger.")
	c.Subjects = []string{t.Subjects.Inbox(tenant)}
	c.Retention = jetstream.WorkQueuePolicy
	c.Duplicates = IntentDuplicateWindow
	c.MaxMsgSize = MaxIntentSize + headerRoom
	c.AllowDirect = false
	return c
}

func (t Topology) refused() jetstream.StreamConfig {
	c := t.base(t.Names().Refused, "Intents that the operation ledger refused, and why.")
	c.Subjects = []string{t.Subjects.Refused("*")}
	c.MaxAge, c.MaxBytes = RefusedMaxAge, RefusedMaxBytes
	return c
}

// bucket returns the stream of a bucket in the form that JetStream's key-value
// clients expect. On one node the two buckets that can be made anew from the
// journal don't wait for the disk.
func (t Topology) bucket(name string) jetstream.StreamConfig {
	n := t.Names()
	c := t.base(BucketStream(name), "Bucket of the operation ledger.")
	c.Subjects = []string{"$KV." + name + ".>"}
	c.MaxMsgsPerSubject = 1
	c.AllowRollup, c.DenyDelete = true, true
	c.Discard = jetstream.DiscardNew
	c.Duplicates = 2 * time.Minute
	c.AllowMsgTTL = name == n.Claims
	if name != n.Contracts && t.replicas() == 1 {
		c.PersistMode = jetstream.AsyncPersistMode
	}
	return c
}

// Report says what Setup did or Plan would do.
type Report struct {
	// Ledger is the id of the ledger; empty in a plan for a new one.
	Ledger string
	// Missing are the streams that were created, or would be.
	Missing []string
	// Existing are those that were there before; they are never changed.
	Existing []string
	// Problems are settings of existing streams that are weaker than the
	// ledger needs; Check refuses a start on them.
	Problems []Problem
}

// Setup creates what is missing and changes nothing that exists. A crash in
// between leaves some streams missing; the next Setup creates them. Two at the
// same time end in one ledger.
func Setup(ctx context.Context, js jetstream.JetStream, t Topology) (Report, error) {
	return setUp(ctx, js, t, true)
}

// Plan says what Setup would do, and does nothing.
func Plan(ctx context.Context, js jetstream.JetStream, t Topology) (Report, error) {
	return setUp(ctx, js, t, false)
}

func setUp(ctx context.Context, js jetstream.JetStream, t Topology, create bool) (Report, error) {
	var report Report
	if err := t.check(); err != nil {
		return report, err
	}
	if err := orphaned(ctx, js, t); err != nil {
		return report, fmt.Errorf("natsjournal: set up: %w", err)
	}
	for _, want := range t.streams() {
		info, err := streamInfo(ctx, js, want.Name)
		if errors.Is(err, ErrNotFound) {
			report.Missing = append(report.Missing, want.Name)
			if !create {
				continue
			}
			info, err = createStream(ctx, js, t, want)
		} else if err == nil {
			report.Existing = append(report.Existing, want.Name)
			report.Problems = append(report.Problems, compare(t, want, info)...)
		}
		if err != nil {
			return report, fmt.Errorf("natsjournal: set up %s: %w", want.Name, err)
		}
		if want.Name == t.Names().Events {
			report.Ledger = info.Config.Metadata[MetadataLedger]
		}
	}
	return report, nil
}

// orphaned refuses to make a new journal beside a projection that holds
// operations: the log was lost, and a new one would have a new ledger id, so that
// every repeat of a known intent would be sent again under another key.
func orphaned(ctx context.Context, js jetstream.JetStream, t Topology) error {
	if _, err := streamInfo(ctx, js, t.Names().Events); !errors.Is(err, ErrNotFound) {
		return err
	}
	bucket := BucketStream(t.Names().Operations)
	info, err := streamInfo(ctx, js, bucket)
	if errors.Is(err, ErrNotFound) || (err == nil && info.State.Msgs == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	return &WeakError{Problems: []Problem{{
		Stream: t.Names().Events, Setting: "messages", Is: "no stream", Want: "the journal of the operations in " + bucket, Damage: true,
		Do: "restore the journal from its backup; only if the ledger is to forget everything, delete the stream " + bucket + " too",
	}}}
}

func createStream(ctx context.Context, js jetstream.JetStream, t Topology, want jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	if want.Name == t.Names().Events {
		if want.Metadata == nil {
			want.Metadata = map[string]string{}
		}
		want.Metadata[MetadataLedger] = uuid.NewString()
	}
	call, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	s, err := js.CreateStream(call, want)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return streamInfo(ctx, js, want.Name)
	}
	if err != nil {
		return nil, translate(err)
	}
	return s.CachedInfo(), nil
}

func streamInfo(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, translate(err)
	}
	return s.CachedInfo(), nil
}

// EnsureBucket creates a bucket of the ledger again if it is gone. What it held
// is not restored here.
func (j *Journal) EnsureBucket(ctx context.Context, bucket string) error {
	n := j.topology.Names()
	if bucket != n.Operations && bucket != n.Claims && bucket != n.Contracts {
		return fmt.Errorf("natsjournal: bucket %q is not part of the ledger", bucket)
	}
	if _, err := streamInfo(ctx, j.js, BucketStream(bucket)); !errors.Is(err, ErrNotFound) {
		return err
	}
	_, err := createStream(ctx, j.js, j.topology, j.topology.bucket(bucket))
	return err
}
