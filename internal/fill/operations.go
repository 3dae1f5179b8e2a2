package fill

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/integrity"
)

const (
	// apart is how many other operations go on between two events of one, like in
	// a log that as many callers have written at the same time.
	apart = 128
	// checkpointEvery is after how many messages a checkpoint is recorded, as a
	// running ledger does.
	checkpointEvery = 1000
	// actor signs the events.
	actor = "fill"
)

// wish is what every operation asks for.
type wish struct {
	subjects                         events.Subjects
	ledger, tenant, provider, action string
	account                          events.Account
	contract                         events.ContractRef
}

// padding makes the arguments about 200 bytes, like those of the benchmark.
var padding = strings.Repeat("x", 150) //nolint:gochecknoglobals // a constant that Go can't write as one

// story is an operation on its way: its last event, and what happens next.
type story struct {
	id, subject, head string
	version, lastSeq  uint64
	next              []events.Payload
}

// fill tells the stories of all operations, many at the same time.
func (w *world) fill(ctx context.Context, cfg Config) error {
	total, begun, open := cfg.Operations+cfg.Open, 0, 0
	under := make([]*story, min(apart, total))
	for idle := 0; idle < len(under); {
		idle = 0
		for i, s := range under {
			if s == nil || len(s.next) == 0 {
				if begun == total {
					idle++
					continue
				}
				kind := finished
				if open < cfg.Open && begun*cfg.Open >= open*total { // evenly among the others
					kind = held + ending(open%3)
					open++
				}
				var err error
				if s, err = w.begin(kind); err != nil {
					return err
				}
				under[i] = s
				if begun++; cfg.Progress != nil {
					cfg.Progress(begun, total)
				}
			}
			if err := w.step(s); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// ending is how a story ends.
type ending int

const (
	finished ending = iota
	held
	unknown
	reviewed
)

// begin makes up an operation.
func (w *world) begin(e ending) (*story, error) {
	s := &story{id: events.NewID()}
	intent, err := w.intent(s.id)
	if err != nil {
		return nil, err
	}
	if s.subject, err = w.subjects.Operation(w.tenant, s.id); err != nil {
		return nil, err
	}
	attempt := events.NewID()
	started := events.AttemptStarted{
		AttemptID: attempt, Number: 1, Worker: actor, ClaimRevision: w.last + 1, LeaseMS: 40_000,
		RequestDigest: events.Digest([]byte(s.id)), AccountProbed: w.account.ProviderID,
	}
	doubt := events.OutcomeUnknown{
		AttemptID: attempt, Reason: events.UnknownTimeout, Transport: &events.Transport{BytesSent: true, DurationMS: 30_000},
		Next: events.Next{Action: events.NextReconcile, At: time.Now().Add(30 * 24 * time.Hour).UTC()},
	}
	switch e {
	case finished:
		s.next = []events.Payload{intent, started, events.ResultConfirmed{
			ExternalID: "T-" + s.id[:8], Via: events.ViaResponse, AttemptID: attempt, ProviderRequestID: "req-" + s.id[24:],
		}}
	case held:
		intent.Hold = "possible_repeat"
		s.next = []events.Payload{intent}
	case unknown:
		s.next = []events.Payload{intent, started, doubt}
	case reviewed:
		s.next = []events.Payload{intent, started, doubt, events.ReviewOpened{
			Reason: events.ReviewNoEvidence, Next: events.Next{Action: events.NextDecision},
		}}
	}
	return s, nil
}

// intent is a wish with the digests that intake would give it.
func (w *world) intent(id string) (events.IntentRecorded, error) {
	args, err := json.Marshal(map[string]string{"title": id, "note": padding}) // canonical as it is
	if err != nil {
		return events.IntentRecorded{}, err
	}
	key, err := events.ProviderKey(w.ledger, w.tenant, id)
	if err != nil {
		return events.IntentRecorded{}, err
	}
	i := events.IntentRecorded{
		Provider: w.provider, Account: w.account, Action: w.action, Args: args, ArgsDigest: canonicalDigest(args),
		ContractRef: w.contract, OnUnknown: events.OnUnknownContract, IdempotencyKey: key,
	}
	doc, err := json.Marshal(map[string]any{
		"tenant": w.tenant, "operation_id": id, "provider": i.Provider, "account": i.Account.Name,
		"account_provider_id": i.ProviderID, "action": i.Action, "schema_version": i.SchemaVersion,
		"args_digest": i.ArgsDigest, "contract_digest": i.Digest, "on_unknown": i.OnUnknown,
		"conflict_scope": "", "approval_required": false,
	})
	i.IntentDigest = canonicalDigest(doc)
	return i, err
}

func canonicalDigest(doc []byte) string {
	sum := sha256.Sum256(doc)
	return "sha256-jcs:" + hex.EncodeToString(sum[:])
}

// step appends the next event of a story, and a checkpoint if one is due.
func (w *world) step(s *story) error {
	e := events.Event{
		ID: events.NewID(), Ledger: w.ledger, Tenant: w.tenant, Operation: s.id, Version: s.version + 1, Prev: s.head,
		Time: time.Now(), Actor: actor, Data: s.next[0],
	}
	body, err := events.Encode(e)
	if err != nil {
		return err
	}
	m := message(s.subject, e.ID, string(e.Data.Kind()), body)
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(s.lastSeq, 10))
	m.Header.Set(events.HeaderVersion, strconv.FormatUint(e.Version, 10))
	if err := w.publish(m); err != nil {
		return err
	}
	s.version, s.head, s.lastSeq, s.next = e.Version, events.Digest(body), w.last, s.next[1:]
	if w.last < w.checkpointed+checkpointEvery {
		return nil
	}
	mark := w.audit.Mark()
	w.checkpointed = mark.Seq
	sys := events.System{
		ID: events.NewID(), Ledger: w.ledger, Kind: events.SystemCheckpoint, Time: time.Now(), Actor: actor,
		Data: integrity.Checkpoint{Seq: mark.Seq, Digest: mark.Rolling}.Data(),
	}
	if body, err = events.EncodeSystem(sys); err != nil {
		return err
	}
	return w.publish(message(w.subjects.System(sys.Kind.Name()), sys.ID, string(sys.Kind), body))
}

// message has the headers that the journal gives it.
func message(subject, id, kind string, body []byte) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = body
	m.Header.Set(jetstream.MsgIDHeader, id)
	m.Header.Set("Content-Type", events.ContentType)
	m.Header.Set(events.HeaderKind, kind)
	return m
}

// publish appends without waiting. Nobody else writes, so that the place of each
// message is known before it is stored; complete checks it.
func (w *world) publish(m *nats.Msg) error {
	if _, err := w.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0), jetstream.WithStallWait(readyWithin)); err != nil {
		return fmt.Errorf("fill: append to %s: %w", m.Subject, err)
	}
	w.last++
	w.audit.Add(events.Record{Subject: m.Subject, Seq: w.last, Stamp: time.Now(), Body: m.Data})
	return w.trouble()
}
