package executor

import (
	"fmt"
	"testing"

	"github.com/opledger/opledger/internal/dispatch"
)

// Whose news of a holder went to another process waits for the next holder: it
// stands in one queue only, or the bound would be used up by what waits no more.
func TestWhoWaitsForAnotherHolderLeavesTheOldQueue(t *testing.T) {
	t.Parallel()
	var q queues
	waiting := dispatch.Key{Tenant: "acme", Operation: "op"}
	holder := func(i int) dispatch.Key { return dispatch.Key{Tenant: "acme", Operation: fmt.Sprint(i)} }
	for i := range maxQueued + 1 {
		q.add(holder(i), waiting)
	}
	if len(q.of) != 1 || len(q.by) != 1 {
		t.Errorf("one operation stands in %d queues of %d holders", len(q.of), len(q.by))
	}
	if got := q.takeAll(holder(maxQueued)); len(got) != 1 || len(q.of) != 0 {
		t.Errorf("the last holder's news reach %v, %d stay queued; want the one", got, len(q.of))
	}
	q.add(holder(1), waiting)
	q.leave(waiting)
	if got := q.takeAll(holder(1)); len(got) != 0 || len(q.of) != 0 {
		t.Errorf("who left is told: %v", got)
	}
}
