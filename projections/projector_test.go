package projections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/internal/natstest"
	"github.com/opledger/opledger/operation"
)

// I9: what the projector keeps is the fold of the log, byte for byte, whatever
// the log holds, and a rebuild finds nothing to write.
func TestLiveProjectionIsTheFoldOfTheLogAndRebuildEqualsIt(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	run(t, p.Run)
	l.history(seeded(t), 12, 300)
	l.caughtUp(p)
	live := l.bucketBytes()
	l.checkEntries()
	report, err := p.Rebuild(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if report.Written != 0 || report.Removed != 0 || report.Newer != 0 || report.Equal != len(live) || report.Passes != 1 {
		t.Errorf("got %+v, want %d equal entries and nothing else", report, len(live))
	}
	if err := l.js.DeleteKeyValue(t.Context(), l.b.name); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Rebuild(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	rebuilt := l.bucketBytes()
	natstest.Eventually(t, patience, "writing a checkpoint", func() bool {
		v, err := l.b.last(t.Context(), checkpointKey)
		return err == nil && v.rev != 0
	})
	for key := range live {
		if rebuilt[key] != live[key] {
			t.Errorf("entry %s: rebuilt differs from live", key)
		}
	}
	l.caughtUp(p)
	l.checkVerified(p)
}

// I9 on a running system: appends go on during several rebuilds.
func TestRebuildOfARunningLedgerNeverTakesAnEntryBack(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	run(t, p.Run)
	rng := seeded(t)
	l.history(rng, 10, 60)
	stop := make(chan struct{})
	var rebuilds sync.WaitGroup
	rebuilds.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := p.Rebuild(context.Background(), nil); err != nil {
				t.Errorf("rebuild: %v", err)
				return
			}
		}
	})
	l.history(rng, 10, 200)
	close(stop)
	rebuilds.Wait()
	l.caughtUp(p)
	l.checkEntries()
	l.checkVerified(p)
}

func TestProjectorGoesOnBehindItsCheckpoint(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	first := l.projector(nil)
	stop := run(t, first.Run)
	l.history(seeded(t), 5, 50)
	l.caughtUp(first)
	stop()
	before, err := l.b.last(t.Context(), checkpointKey)
	if err != nil {
		t.Fatal(err)
	}
	var cp checkpoint
	if err := json.Unmarshal(before.data, &cp); err != nil || !cp.Clean || cp.Seq != first.Applied() || cp.Digest == "" {
		t.Fatalf("got checkpoint %s, error %v, want a clean one at %d", before.data, err, first.Applied())
	}
	var applied atomic.Int32
	second := l.projector(func(operation.State) { applied.Add(1) })
	run(t, second.Run)
	l.append("one-more", intent("one-more"))
	l.caughtUp(second)
	if got := applied.Load(); got != 1 {
		t.Errorf("got %d states applied, want only the new one", got)
	}
	l.checkEntries()
}

// Each of these makes the checkpoint worthless; the projection is made anew.
func TestProjectorStartsAnewWhereTheCheckpointDoesNotFit(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*checkpoint){
		"another journal":    func(cp *checkpoint) { cp.Created = cp.Created.Add(1) },
		"another event":      func(cp *checkpoint) { cp.EventID = events.NewID() },
		"another body":       func(cp *checkpoint) { cp.Digest = "sha256:0" },
		"beyond the log":     func(cp *checkpoint) { cp.Seq += 1000 },
		"another fold":       func(cp *checkpoint) { cp.FoldVersion++ },
		"an unclean stop":    func(cp *checkpoint) { cp.Clean = false },
		"a number too small": func(cp *checkpoint) { cp.Seq-- },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, natstest.Server(t))
			p := l.projector(nil)
			stop := run(t, p.Run)
			l.append("a", intent("a"))
			l.append("b", intent("b"))
			l.caughtUp(p)
			stop()
			v, err := l.b.last(t.Context(), checkpointKey)
			if err != nil {
				t.Fatal(err)
			}
			var cp checkpoint
			if err := json.Unmarshal(v.data, &cp); err != nil {
				t.Fatal(err)
			}
			spoil(&cp)
			data, err := json.Marshal(cp)
			if err != nil {
				t.Fatal(err)
			}
			l.overwrite(checkpointKey, string(data))
			l.overwrite("acme.a", "damaged")
			p = l.projector(nil)
			run(t, p.Run)
			natstest.Eventually(t, patience, "mending the entry", func() bool {
				v, err := l.b.last(t.Context(), "acme.a")
				return err == nil && string(v.data) != "damaged"
			})
			l.caughtUp(p)
			l.checkEntries()
		})
	}
}

func TestBucketDeletedWhileRunningIsMadeAnew(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	run(t, p.Run)
	l.history(seeded(t), 5, 40)
	l.caughtUp(p)
	want := len(l.bucketBytes())
	if err := l.js.DeleteKeyValue(t.Context(), l.b.name); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, patience, "making the bucket anew", func() bool {
		info, err := l.b.info(t.Context())
		return err == nil && info.State.NumSubjects == uint64(want)+1
	})
	l.append("after", intent("after"))
	l.caughtUp(p)
	l.checkEntries()
	l.checkVerified(p)
}

// Somebody deletes the bucket and creates it again at once, empty.
func TestBucketReplacedWhileRunningIsMadeAnew(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	run(t, p.Run)
	l.history(seeded(t), 5, 40)
	l.caughtUp(p)
	want := len(l.bucketBytes())
	if err := l.js.DeleteKeyValue(t.Context(), l.b.name); err != nil {
		t.Fatal(err)
	}
	if err := l.j.EnsureBucket(t.Context(), l.b.name); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, patience, "filling the bucket", func() bool {
		info, err := l.b.info(t.Context())
		return err == nil && info.State.NumSubjects == uint64(want)+1
	})
	l.checkEntries()
}

func TestProjectionSurvivesServerRestart(t *testing.T) {
	t.Parallel()
	node := natstest.NewNode(t)
	l := newLedger(t, node)
	p := l.projector(nil)
	run(t, p.Run)
	rng := seeded(t)
	l.history(rng, 5, 40)
	node.Stop()
	node.Start()
	natstest.Eventually(t, patience, "reconnecting", l.nc.IsConnected)
	l.history(rng, 5, 40)
	l.caughtUp(p)
	l.checkEntries()
	l.checkVerified(p)
}

func TestTwoProjectorsAtOnceAgree(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	a, b := l.projector(nil), l.projector(nil)
	run(t, a.Run)
	run(t, b.Run)
	l.history(seeded(t), 4, 200)
	l.caughtUp(a)
	l.caughtUp(b)
	l.checkEntries()
}

// I14: operations that can't be read, or have no entry, stop nobody.
func TestOneBadOperationNeverStopsTheOthers(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	l.stray("garbage", "{")
	l.stray("garbage", `{"specversion":"1.0"}`)
	other := draft("acme", "another", operation.State{}, intent("another"))
	body, err := events.Encode(other)
	if err != nil {
		t.Fatal(err)
	}
	l.stray("foreign", string(body))
	l.append("good", intent("good"))
	// An instant that has no form in UTC: the fold brings it back into what JSON
	// holds.
	l.append("year", intent("year"))
	s, err := l.store.Truth(t.Context(), "acme", "year")
	if err != nil {
		t.Fatal(err)
	}
	late := strings.Replace(mustEncode(t, l, draft("acme", "year", s, events.ApprovalGranted{
		IntentDigest: s.Intent.IntentDigest,
	})), `"expires_at":"0001-01-01T00:00:00Z"`, `"expires_at":"9999-12-31T23:59:59-23:00"`, 1)
	l.stray("year", late)
	p := l.projector(nil)
	run(t, p.Run)
	l.append("good", events.ReviewUpdated{Decision: events.DecideNote})
	l.caughtUp(p)
	state, err := l.store.State(t.Context(), "acme", "good", 2)
	if err != nil || state.Version != 2 {
		t.Errorf("good: got version %d, error %v, want 2", state.Version, err)
	}
	state, err = l.store.State(t.Context(), "acme", "garbage", 0)
	if err != nil || state.Version != 0 || state.Status != operation.StatusAbsent || state.LastSeq != 2 || state.Halted == "" {
		t.Errorf("garbage: got %+v, error %v, want absent, halted, last sequence 2", state, err)
	}
	state, err = l.store.State(t.Context(), "acme", "year", 0)
	if err != nil || state.Version != 2 {
		t.Errorf("year: got version %d, error %v, want 2", state.Version, err)
	}
	var seen []string
	err = l.store.Scan(t.Context(), "", func(s operation.State) error {
		seen = append(seen, s.OperationID)
		return nil
	})
	slices.Sort(seen)
	if err != nil || !slices.Equal(seen, []string{"good", "year"}) {
		t.Errorf("scan: got %v, error %v, want the two that can be read", seen, err)
	}
}

func mustEncode(t *testing.T, l *ledger, e events.Event) string {
	t.Helper()
	e.Ledger = l.j.Ledger()
	body, err := events.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A log that fails for one operation only.
type sickLog struct {
	Log
	operation string
}

func (s sickLog) Load(ctx context.Context, tenant, op string) ([]events.Record, error) {
	if op == s.operation {
		return nil, errors.New("sick")
	}
	return s.Log.Load(ctx, tenant, op)
}

func TestOperationThatCannotBeReadIsLeftAlone(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	l.cfg.Log = sickLog{l.j, "sick"}
	l.append("sick", intent("sick"))
	l.stray("sick", "{") // needs a fold from the log
	l.append("well", intent("well"))
	p := l.projector(nil)
	run(t, p.Run)
	l.stray("sick", "{")
	l.append("well", events.ReviewUpdated{Decision: events.DecideNote})
	l.caughtUp(p)
	if state, err := l.store.State(t.Context(), "acme", "well", 0); err != nil || state.Version != 2 {
		t.Errorf("got version %d, error %v, want 2", state.Version, err)
	}
}

func TestEntryOfANewerFoldIsLeftAloneAndReadFromTheLog(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	run(t, p.Run)
	l.append("op", intent("op"))
	l.caughtUp(p)
	newer := fmt.Sprintf(`{"fold_version":%d,"state":{"future":true}}`, operation.FoldVersion+1)
	l.overwrite("acme.op", newer)
	l.append("op", events.ReviewUpdated{Decision: events.DecideNote})
	l.caughtUp(p)
	if got := l.bucketBytes()["acme.op"]; got != newer {
		t.Errorf("got entry %s, want the newer fold's", got)
	}
	if s, err := l.store.State(t.Context(), "acme", "op", 0); err != nil || s.Version != 2 {
		t.Errorf("got version %d, error %v, want 2", s.Version, err)
	}
	if _, err := p.Rebuild(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	l.checkEntries()
}

// Closed operations take no memory, and what comes late is folded onto their
// entries (I9).
func TestClosedOperationsAreNotRemembered(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	stop := run(t, p.Run)
	l.append("before", intent("before"))
	l.caughtUp(p) // the bucket is made
	l.append("open", intent("open"))
	l.append("closed", intent("closed"))
	l.append("closed", events.ResultConfirmed{ExternalID: "T-1", Via: events.ViaLookup})
	l.caughtUp(p)
	l.append("closed", events.ReviewUpdated{Decision: events.DecideNote})
	l.caughtUp(p)
	l.checkEntries()
	stop()
	_, open := p.cache.get("acme.open")
	_, closed := p.cache.get("acme.closed")
	if !open || closed {
		t.Errorf("remembered: the open one %v, the closed one %v", open, closed)
	}
}

func TestDamagedEntryIsMendedByTheNextEvent(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	run(t, p.Run)
	l.append("op", intent("op"))
	l.caughtUp(p)
	for _, damage := range []string{"{", `{"fold_version":1,"state":{"version":1,"head":"x","last_seq":1}}`} {
		l.overwrite("acme.op", damage)
		l.append("op", events.ReviewUpdated{Decision: events.DecideNote})
		l.caughtUp(p)
		l.checkEntries()
	}
}

// A stray message on the subject, without compare-and-swap: State tells its
// sequence number, so that the next append succeeds and nothing livelocks.
func TestStrayMessageDoesNotLivelockAnOperation(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	run(t, p.Run)
	l.stray("op", "stray before the first event")
	l.append("op", intent("op"))
	l.stray("op", "stray after it")
	l.caughtUp(p)
	s, err := l.store.State(t.Context(), "acme", "op", 1)
	if err != nil {
		t.Fatal(err)
	}
	if s.Version != 1 || s.LastSeq != 3 || s.Halted == "" {
		t.Fatalf("got version %d, last sequence %d, halted %q, want 1, 3, halted", s.Version, s.LastSeq, s.Halted)
	}
	if _, err := l.j.Append(t.Context(), draft("acme", "op", s, events.ReviewUpdated{Decision: events.DecideResume}), s.LastSeq); err != nil {
		t.Errorf("append: %v", err)
	}
	l.caughtUp(p)
	l.checkEntries()
}

// Entries that claim to know more than the log are replaced by a rebuild: they
// were made from another log, or from a tail that is lost.
func TestRebuildReplacesEntriesOfAnotherHistory(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	s := l.append("op", intent("op"))
	s.LastSeq, s.Version = 1000, 9
	data, err := encodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	l.overwrite("acme.op", string(data))
	s.OperationID = "never-was"
	if data, err = encodeState(s); err != nil {
		t.Fatal(err)
	}
	l.overwrite("acme.never-was", string(data))
	p := l.projector(nil)
	report, err := p.Rebuild(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if report.Written != 1 || report.Removed != 1 || report.Newer != 0 {
		t.Errorf("got %+v, want one written and one removed", report)
	}
	l.checkEntries()
}

// Far more open operations than are held at once: several passes, same result.
func TestRebuildWithLittleMemoryGivesTheSameEntries(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	l.history(seeded(t), 40, 300)
	p := l.projector(nil)
	p.maxHeld = 6
	var last uint64
	report, err := p.Rebuild(t.Context(), func(done, total uint64) {
		if last = done; total != 301 {
			t.Errorf("progress: total %d, want 301", total)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.Passes < 2 || last != 301 {
		t.Errorf("got %d passes up to %d, want several up to 301", report.Passes, last)
	}
	l.checkEntries()
	if report, err := p.Verify(t.Context(), VerifyOptions{}); err != nil || report.Entries == 0 {
		t.Errorf("verify: %+v, %v", report, err)
	}
}

func TestRebuildEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	l.history(seeded(t), 5, 20)
	p := l.projector(nil)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := p.Rebuild(ctx, func(uint64, uint64) { cancel() })
	wantError(t, err, context.Canceled)
	if n := len(l.bucketBytes()); n != 0 {
		t.Errorf("a rebuild that was cut off wrote %d entries of half a log", n)
	}
}

// The journal itself is lost. Set-up makes no new one beside the projection of the
// old: that would be another ledger, and send again what was sent. One that a
// person puts in its place is followed.
func TestProjectionFollowsAReplacedJournal(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	run(t, p.Run)
	for i := range 5 {
		l.append(fmt.Sprintf("old-%d", i), intent("old"))
	}
	l.caughtUp(p)
	old, err := l.js.Stream(t.Context(), l.j.Names().Events)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.js.DeleteStream(t.Context(), l.j.Names().Events); err != nil {
		t.Fatal(err)
	}
	_, err = natsjournal.Setup(t.Context(), l.js, natsjournal.Topology{})
	if weak, ok := errors.AsType[*natsjournal.WeakError](err); !ok || !weak.Damaged() {
		t.Fatalf("set-up beside an orphaned projection: got %v, want it refused as damage", err)
	}
	if _, err := l.js.CreateStream(t.Context(), old.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
	l.open(natsjournal.Topology{})
	l.append("new", intent("new"))
	natstest.Eventually(t, patience, "projecting the new journal", func() bool {
		entries := l.bucketBytes()
		return len(entries) == 1 && entries["acme.new"] != ""
	})
	l.checkEntries()
}

func TestLagCountsWhatIsNotApplied(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	l.history(seeded(t), 3, 7)
	if lag, err := p.Lag(t.Context()); err != nil || lag != 7 {
		t.Errorf("got lag %d, error %v, want 7", lag, err)
	}
	run(t, p.Run)
	l.caughtUp(p)
	if lag, err := p.Lag(t.Context()); err != nil || lag != 0 {
		t.Errorf("got lag %d, error %v, want 0", lag, err)
	}
}

// The names that this package derives are those that the journal sets up.
func TestBucketNamesAreThoseOfTheTopology(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	n := l.j.Names()
	for _, want := range []string{n.Operations, n.Claims, n.Contracts} {
		b := l.store.bucket(strings.TrimPrefix(want, n.Prefix+"_"))
		if b.name != want || b.stream() != natsjournal.BucketStream(want) {
			t.Errorf("got bucket %s, want %s", b.name, want)
		}
		if _, err := b.info(t.Context()); err != nil {
			t.Error(err)
		}
	}
	info, err := l.b.info(t.Context())
	if err != nil || info.Config.PersistMode != jetstream.AsyncPersistMode {
		t.Errorf("on one node entries must not wait for the disk: %v", err)
	}
}
