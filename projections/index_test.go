package projections

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
	"github.com/opledger/opledger/operation"
)

func (l *ledger) index() *Index {
	l.t.Helper()
	x, err := NewIndex(l.cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	return x
}

func anyAction(events.NextAction) bool { return true }

func names(open []Open) string {
	var out []string
	for _, o := range open {
		out = append(out, o.OperationID)
	}
	return strings.Join(out, " ")
}

// bare returns an index without a server behind it.
func bare(t *testing.T) *Index {
	t.Helper()
	return newLedger(t, natstest.Server(t)).index()
}

var base = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func openState(op string, seq uint64, action events.NextAction, at time.Time) operation.State {
	return operation.State{
		Tenant: "acme", OperationID: op, Version: seq, LastSeq: seq, Status: operation.StatusPending,
		StatusSince: base, NextAction: action, NextAt: at, Intent: events.IntentRecorded{Provider: "crm"},
	}
}

func finalState(op string, seq uint64) operation.State {
	s := openState(op, seq, events.NextNone, time.Time{})
	s.Status, s.Result = operation.StatusConfirmed, &operation.Result{ExternalID: "T"}
	return s
}

func TestDueReturnsTheEarliestFirst(t *testing.T) {
	t.Parallel()
	x := bare(t)
	rng := seeded(t)
	actions := []events.NextAction{events.NextAttempt, events.NextReconcile, events.NextOutcome}
	want := map[string]time.Time{}
	for i := range 500 {
		op := fmt.Sprintf("op-%03d", rng.IntN(200))
		at := base.Add(time.Duration(rng.IntN(1000)) * time.Second)
		switch rng.IntN(5) {
		case 0:
			x.Apply(finalState(op, uint64(i+1)))
			delete(want, op)
		default:
			action := actions[rng.IntN(3)]
			x.Apply(openState(op, uint64(i+1), action, at))
			if delete(want, op); action != events.NextOutcome {
				want[op] = at
			}
		}
	}
	wanted := func(a events.NextAction) bool { return a != events.NextOutcome }
	now := base.Add(600 * time.Second)
	var ops []string
	for op, at := range want {
		if !at.After(now) {
			ops = append(ops, op)
		}
	}
	slices.SortFunc(ops, func(a, b string) int {
		if c := want[a].Compare(want[b]); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	if got := names(x.Due(now, wanted, 1000)); got != strings.Join(ops, " ") {
		t.Errorf("got %s\nwant %s", got, strings.Join(ops, " "))
	}
	if got := names(x.Due(now, wanted, 5)); got != strings.Join(ops[:5], " ") {
		t.Errorf("limited: got %s, want %v", got, ops[:5])
	}
	if at, ok := x.NextDue(wanted); !ok || !at.Equal(want[ops[0]]) {
		t.Errorf("next: got %v, %v, want %v", at, ok, want[ops[0]])
	}
	if _, ok := x.NextDue(func(events.NextAction) bool { return false }); ok {
		t.Error("nothing wanted is due")
	}
}

func TestOlderStateNeverReplacesANewerOne(t *testing.T) {
	t.Parallel()
	x := bare(t)
	states := []operation.State{
		openState("op", 1, events.NextAttempt, base), openState("op", 2, events.NextReconcile, base), finalState("op", 3),
	}
	for range 50 {
		x.Apply(states[rand.IntN(len(states))])
	}
	x.Apply(states[2])
	for _, s := range states {
		x.Apply(s)
	}
	if o, ok := x.Get("acme", "op"); ok {
		t.Errorf("got %+v, want nothing: it is final", o)
	}
	review := finalState("op", 4)
	review.Review = &operation.Review{Reason: events.ReviewDuplicate, OpenedAt: base}
	x.Apply(review)
	if o, ok := x.Get("acme", "op"); !ok || o.ReviewReason != "duplicate_found" {
		t.Errorf("got %+v, %v, want the review of a final operation", o, ok)
	}
}

func TestCountsByProviderAndStatus(t *testing.T) {
	t.Parallel()
	x := bare(t)
	for i := range 6 {
		s := openState(fmt.Sprint("op-", i), 1, events.NextDecision, time.Time{})
		s.StatusSince = base.Add(time.Duration(i) * time.Hour)
		if i%2 == 1 {
			s.Status, s.Undetermined = operation.StatusUnknown, i == 5
		}
		if i > 3 {
			s.Review = &operation.Review{Reason: events.ReviewNoEvidence}
		}
		x.Apply(s)
	}
	c := x.Counts()
	if c.Operations[CountKey{"crm", operation.StatusPending}] != 3 || c.Operations[CountKey{"crm", operation.StatusUnknown}] != 3 ||
		!c.Oldest[operation.StatusUnknown].Equal(base.Add(time.Hour)) || c.Reviews != 2 || c.Undetermined != 1 {
		t.Errorf("got %+v", c)
	}
}

func TestChangedIsClosedAtTheNextChange(t *testing.T) {
	t.Parallel()
	x := bare(t)
	ch := x.Changed()
	x.Apply(finalState("closed-at-once", 1)) // changes nothing
	select {
	case <-ch:
		t.Fatal("nothing has changed")
	default:
	}
	x.Apply(openState("op", 1, events.NextAttempt, base))
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatal("not told")
	}
}

func TestWaiterGetsTheNewestStateAndBlocksNobody(t *testing.T) {
	t.Parallel()
	x := bare(t)
	ch, cancel := x.Subscribe("acme", "op")
	for seq := range uint64(100) {
		x.Apply(openState("op", seq+1, events.NextAttempt, base))
	}
	x.Apply(finalState("op", 101))
	x.Apply(openState("op", 50, events.NextAttempt, base))
	if s := <-ch; s.Status != operation.StatusConfirmed || s.LastSeq != 101 {
		t.Errorf("got %s at %d, want the final state at 101", s.Status, s.LastSeq)
	}
	cancel()
	cancel()
	x.Apply(finalState("op", 102))
	select {
	case s := <-ch:
		t.Errorf("got %+v after the end", s)
	default:
	}
	if len(x.subs) != 0 {
		t.Errorf("%d subscriptions are left", len(x.subs))
	}
}

// A waiter who was told of a state needs its entry no more, and one who was not
// still does.
func TestEntryMattersToWaitersWhoWereNotTold(t *testing.T) {
	t.Parallel()
	x := bare(t)
	x.Apply(openState("op", 1, events.NextAttempt, base))
	_, cancel := x.Subscribe("acme", "op")
	defer cancel()
	x.Apply(finalState("op", 3))
	key := entryKey("acme", "op")
	for seq, want := range map[uint64]bool{2: false, 3: false, 4: true} {
		if got := x.interested(key, "acme", "op", brief{lastSeq: seq}); got != want {
			t.Errorf("entry at %d: interested %v, want %v", seq, got, want)
		}
	}
	x.Tell(finalState("op", 4))
	if x.interested(key, "acme", "op", brief{lastSeq: 4}) {
		t.Error("interested in what the waiter was told")
	}
}

// An index of another process sees what is open, through the bucket alone.
func TestIndexFollowsTheBucket(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	run(t, p.Run)
	l.append("open", intent("open"))
	l.append("final", intent("final"))
	l.append("final", events.ResultConfirmed{ExternalID: "T-1", Via: events.ViaLookup})
	l.stray("absent", "{")
	l.caughtUp(p)
	x := l.index()
	if x.Ready() {
		t.Error("ready before it was run")
	}
	run(t, x.Run)
	natstest.Eventually(t, patience, "reading the bucket", x.Ready)
	if got := names(x.Due(time.Now().Add(time.Hour), anyAction, 10)); got != "open" {
		t.Errorf("got %q, want the open one", got)
	}
	ch, cancel := x.Subscribe("acme", "open")
	defer cancel()
	l.append("open", events.ResultConfirmed{ExternalID: "T-2", Via: events.ViaLookup})
	l.append("late", intent("late"))
	select {
	case s := <-ch:
		if s.Status != operation.StatusConfirmed {
			t.Errorf("got %s, want confirmed", s.Status)
		}
	case <-time.After(patience):
		t.Fatal("the waiter was not told")
	}
	natstest.Eventually(t, patience, "following the bucket", func() bool {
		return names(x.Due(time.Now().Add(time.Hour), anyAction, 10)) == "late"
	})
}

func TestIndexSurvivesLossOfBucketAndServer(t *testing.T) {
	t.Parallel()
	node := natstest.NewNode(t)
	l := newLedger(t, node)
	x := l.index()
	p := l.projector(nil)
	run(t, p.Run)
	run(t, x.Run)
	has := func(op string) func() bool {
		return func() bool { _, ok := x.Get("acme", op); return ok }
	}
	l.append("a", intent("a"))
	natstest.Eventually(t, patience, "seeing a", has("a"))
	if err := l.js.DeleteKeyValue(t.Context(), l.b.name); err != nil {
		t.Fatal(err)
	}
	l.append("b", intent("b"))
	natstest.Eventually(t, patience, "seeing b after the loss of the bucket", has("b"))
	node.Stop()
	node.Start()
	natstest.Eventually(t, patience, "reconnecting", func() bool { return l.nc.Status() == nats.CONNECTED })
	l.append("c", intent("c"))
	natstest.Eventually(t, patience, "seeing c after the restart", has("c"))
	if !has("a")() {
		t.Error("a was forgotten")
	}
}

func TestEntryRemovedByARebuildLeavesTheIndex(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	s := openState("ghost", 7, events.NextAttempt, base)
	data, err := encodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	l.overwrite("acme.ghost", string(data))
	x := l.index()
	run(t, x.Run)
	natstest.Eventually(t, patience, "seeing it", func() bool { _, ok := x.Get("acme", "ghost"); return ok })
	if _, err := l.projector(nil).Rebuild(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, patience, "dropping it", func() bool { _, ok := x.Get("acme", "ghost"); return !ok })
}

func TestRecentForgetsTheOldest(t *testing.T) {
	t.Parallel()
	r := newRecent(3)
	for i := range 10 {
		r.put(fmt.Sprint(i), uint64(i))
		r.put(fmt.Sprint(i), 0)
	}
	if r.get("6") != 0 || r.get("7") != 7 || r.get("9") != 9 || len(r.seqs) != 3 {
		t.Errorf("got %v, want 7, 8 and 9", r.seqs)
	}
}

// Section 11: after a start the index still knows the wishes of operations that
// are closed for long, per tenant, and passes over what differs in anything but
// the arguments.
func TestEarlierWishOfOneUserRequestIsKnownAfterAStart(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	wish := intent("old")
	wish.RequestID = "r-1"
	l.append("old", wish)
	l.append("old", events.Rejected{Reason: "withdrawn", Via: events.ViaCancelled})
	l.append("other", intent("other"))
	p := l.projector(nil)
	run(t, p.Run)
	l.caughtUp(p)
	x := l.index()
	run(t, x.Run)
	natstest.Eventually(t, patience, "reading the bucket", x.Ready)
	again := wish
	again.Args = []byte(`{"title":"in other words"}`)
	if got := x.Earlier("acme", again); got != "old" {
		t.Errorf("got %q, want the closed operation", got)
	}
	for what, change := range map[string]func(*events.IntentRecorded){
		"another request":  func(i *events.IntentRecorded) { i.RequestID = "r-2" },
		"no request":       func(i *events.IntentRecorded) { i.RequestID = "" },
		"another provider": func(i *events.IntentRecorded) { i.Provider = "desk" },
		"another account":  func(i *events.IntentRecorded) { i.Account.Name = "second" },
		"another action":   func(i *events.IntentRecorded) { i.Action = "task.close" },
	} {
		differs := again
		change(&differs)
		if got := x.Earlier("acme", differs); got != "" {
			t.Errorf("%s: got %q, want none", what, got)
		}
	}
	if got := x.Earlier("globex", again); got != "" {
		t.Errorf("another tenant: got %q, want none (I15)", got)
	}
}

// Section 11: a wish is known from the moment on in which its writer tells of it, before
// anything of it was read back.
func TestEarlierWishIsKnownOnceItIsWritten(t *testing.T) {
	t.Parallel()
	x := newLedger(t, natstest.Server(t)).index()
	wish := intent("op-1")
	wish.RequestID = "r-1"
	s := operation.State{Tenant: "acme", OperationID: "op-1", Version: 1, LastSeq: 1, Intent: wish}
	x.Tell(s)
	if got := x.Earlier("acme", wish); got != "op-1" {
		t.Errorf("got %q, want op-1", got)
	}
}

func TestWishesForgetTheOldest(t *testing.T) {
	t.Parallel()
	w := newWishes()
	for i := range maxWishes + 10 {
		w.note("acme", fmt.Sprint(i), "op")
	}
	if len(w.first) != maxWishes || w.first["acme.9"] != "" || w.first["acme.10"] != "op" {
		t.Errorf("got %d wishes, the ninth %q, want the last %d", len(w.first), w.first["acme.9"], maxWishes)
	}
}
