package node_test

import (
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/internal/natstest"
	"github.com/opledger/opledger/operation"
)

// What one operation costs beside its appends, where nothing goes wrong. An event is
// told by its writer, by the log and by the projection: it is planned once all the
// same, and the lease of an attempt that was answered is not waited for.
func TestAnOperationWithoutTroubleIsPlannedOnce(t *testing.T) {
	t.Parallel()
	const callers, each = 4, 10
	w := newWorld(t, options{})
	var group sync.WaitGroup
	for i := range callers {
		c := w.client("acme-agent")
		group.Go(func() {
			for n := range each {
				id := fmt.Sprintf("op-%d-%d", i, n)
				if _, err := c.Submit(t.Context(), wish(id)); err != nil {
					t.Error(err)
					return
				}
				if a := w.settle(c, id); a.Status != operation.StatusConfirmed {
					t.Errorf("%s is %s", id, a.Status)
				}
			}
		})
	}
	group.Wait()
	idle := regexp.MustCompile(`(?s)opledger_waiting_operations\{role="executor"\} 0\n.*opledger_waiting_operations\{role="reconciler"\} 0\n`)
	natstest.Eventually(t, 20*time.Second, "both roles to have nothing in mind", func() bool { return idle.MatchString(w.get("/metrics")) })
	plans := regexp.MustCompile(`opledger_plans_total\{role="(.*)"\} (.*)`).FindAllStringSubmatch(w.get("/metrics"), -1)
	got := map[string]string{}
	for _, p := range plans {
		got[p[1]] = p[2]
	}
	if want := fmt.Sprint(callers * each); got["executor"] != want || got["reconciler"] != "0" {
		t.Errorf("got plans %v, want %s of the executor and none of the reconciler", got, want)
	}
	// One write per event at the most; one per operation where it takes no longer
	// than an entry waits.
	entries, err := w.stream().Stream(t.Context(), "KV_OPLEDGER_OPERATIONS")
	if err != nil {
		t.Fatal(err)
	}
	info, err := entries.Info(t.Context(), jetstream.WithSubjectFilter("$KV.OPLEDGER_OPERATIONS.acme.>"))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(info.State.Subjects); got != callers*each {
		t.Errorf("got %d entries, want %d", got, callers*each)
	}
	t.Logf("%d writes, checkpoints included, of %d entries", info.State.LastSeq, callers*each)
}
