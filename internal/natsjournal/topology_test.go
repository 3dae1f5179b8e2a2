package natsjournal

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
)

func TestSetupPassesItsOwnCheckAndASecondOneChangesNothing(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	js := natstest.JetStream(t, nc)
	topology := Topology{Tenants: []string{"acme", "globex"}, Metadata: map[string]string{"owner": "ops"}}
	plan, err := Plan(t.Context(), js, topology)
	if err != nil {
		t.Fatal(err)
	}
	first, err := Setup(t.Context(), js, topology)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(plan.Missing, first.Missing) || len(first.Missing) != 7 {
		t.Errorf("created %v, planned %v, want the same 7", first.Missing, plan.Missing)
	}
	warnings, err := Check(t.Context(), js, nc, topology, Durability{Sync: SyncAlways})
	if err != nil || len(warnings) != 0 {
		t.Errorf("check: warnings %v, error %v, want none", warnings, err)
	}
	second, err := Setup(t.Context(), js, topology)
	if err != nil {
		t.Fatal(err)
	}
	if second.Ledger != first.Ledger || first.Ledger == "" || len(second.Missing) != 0 || len(second.Problems) != 0 {
		t.Errorf("second setup: %+v, want the same ledger %s and nothing missing", second, first.Ledger)
	}
}

func TestSimultaneousSetupsEndInOneLedger(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	ledgers := make([]string, 4)
	var wg sync.WaitGroup
	for i := range ledgers {
		js := natstest.JetStream(t, natstest.Connect(t, s))
		wg.Go(func() {
			report, err := Setup(t.Context(), js, Topology{})
			if err != nil {
				t.Errorf("setup: %v", err)
			}
			ledgers[i] = report.Ledger
		})
	}
	wg.Wait()
	if len(slices.Compact(ledgers)) != 1 || ledgers[0] == "" {
		t.Errorf("got ledgers %v, want one", ledgers)
	}
}

func TestTwoLedgersShareAnAccount(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	a := setup(t, s, Config{})
	b := setup(t, s, Config{Topology: Topology{Subjects: events.Subjects{Prefix: "second"}}})
	if a.Ledger() == b.Ledger() || b.Names().Events != "SECOND_EVENTS" {
		t.Errorf("got ledgers %s and %s in %s", a.Ledger(), b.Ledger(), b.Names().Events)
	}
	appendNext(t, b, "op")
	if n := len(load(t, a, "op")); n != 0 {
		t.Errorf("the first ledger has %d events of the second", n)
	}
}

func TestCheckNamesEveryWeakerSetting(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	js := natstest.JetStream(t, nc)
	topology := Topology{Tenants: []string{"acme"}}
	weak := topology.journal()
	weak.DenyDelete, weak.DenyPurge, weak.AllowRollup = false, false, true
	weak.MaxAge, weak.Duplicates, weak.AllowAtomicPublish = time.Hour, time.Minute, false
	weak.Metadata = map[string]string{MetadataLedger: "5f3b1b1e-0000-4000-8000-000000000000"}
	if _, err := js.CreateStream(t.Context(), weak); err != nil {
		t.Fatal(err)
	}
	if _, err := Setup(t.Context(), js, topology); err != nil {
		t.Fatal(err)
	}
	topology.Replicas = 3
	_, err := Check(t.Context(), js, nc, topology, Durability{Sync: SyncInterval})
	var weaker *WeakError
	if !errors.As(err, &weaker) {
		t.Fatalf("got error %v, want a WeakError", err)
	}
	for _, want := range []string{
		"deny_delete", "deny_purge", "allow_rollup_hdrs", "max_age", "duplicate_window", "allow_atomic",
		"num_replicas", "sync_interval",
	} {
		if !slices.ContainsFunc(weaker.Problems, func(p Problem) bool { return p.Setting == want && p.Do != "" }) {
			t.Errorf("%s is not named in: %v", want, err)
		}
	}
	if weaker.Damaged() {
		t.Error("weak settings are no damage")
	}
	warnings, err := Check(t.Context(), js, nc, topology, Durability{AcceptWeaker: true})
	if err != nil || len(warnings) < 8 {
		t.Errorf("accepted: warnings %v, error %v, want all of it as warnings", warnings, err)
	}
}

func TestCheckRefusesALogThatLostMessagesEvenIfWeakerIsAccepted(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	js := natstest.JetStream(t, nc)
	loose := Topology{}.journal()
	loose.DenyDelete, loose.DenyPurge = false, false
	s, err := js.CreateStream(t.Context(), loose)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := js.Publish(t.Context(), "opledger.events.acme.op", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, seq := range []uint64{1, 3} {
		if err := s.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Setup(t.Context(), js, Topology{}); err != nil {
		t.Fatal(err)
	}
	_, err = Check(t.Context(), js, nc, Topology{}, Durability{AcceptWeaker: true})
	var weak *WeakError
	if !errors.As(err, &weak) || !weak.Damaged() || !strings.Contains(err.Error(), "first_seq") ||
		!strings.Contains(err.Error(), "num_deleted") {
		t.Errorf("got error %v, want damage: first_seq and num_deleted", err)
	}
}

func TestServerVersionsAreCompared(t *testing.T) {
	t.Parallel()
	for v, less := range map[string]bool{
		"2.15.0": false, "2.15.2": false, "2.16.0-RC.1": false, "3.0.0": false,
		"2.14.9": true, "2.9.30": true, "": true, "dev": true,
	} {
		if got := versionLess(v, MinServerVersion); got != less {
			t.Errorf("version %q: less is %v, want %v", v, got, less)
		}
	}
}

func TestBadTopologiesAreRefused(t *testing.T) {
	t.Parallel()
	for name, topology := range map[string]Topology{
		"upper-case prefix": {Subjects: events.Subjects{Prefix: "Ledger"}},
		"dotted prefix":     {Subjects: events.Subjects{Prefix: "a.b"}},
		"wildcard tenant":   {Tenants: []string{"*"}},
		"replicas":          {Replicas: 6},
		"window":            {DuplicateWindow: time.Millisecond},
	} {
		if err := topology.check(); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestJournalCannotBeEmptied(t *testing.T) {
	t.Parallel()
	j := journal(t)
	r := appendNext(t, j, "op")
	s, err := j.js.Stream(t.Context(), j.names.Events)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err == nil {
		t.Error("purge was accepted")
	}
	if err := s.DeleteMsg(t.Context(), r.Seq); err == nil {
		t.Error("delete was accepted")
	}
	if _, err := j.js.Publish(t.Context(), r.Subject, nil, jetstream.WithMsgTTL(time.Second)); err == nil {
		t.Error("a message that expires was accepted")
	}
}

func TestLostBucketIsCreatedAgain(t *testing.T) {
	t.Parallel()
	j := journal(t)
	for _, bucket := range []string{j.names.Operations, j.names.Claims, j.names.Contracts} {
		if err := j.js.DeleteKeyValue(t.Context(), bucket); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := j.EnsureBucket(t.Context(), bucket); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := j.js.KeyValue(t.Context(), bucket); err != nil {
			t.Error(err)
		}
	}
	if err := j.EnsureBucket(t.Context(), "OTHER"); err == nil {
		t.Error("a bucket that is not ours was created")
	}
	if _, err := Check(t.Context(), j.js, j.nc, j.topology, Durability{Sync: SyncAlways}); err != nil {
		t.Error(err)
	}
}
