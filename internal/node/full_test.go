package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/operation"
)

// fill stores bytes beside the ledger until only so much room is left.
func fill(t *testing.T, js jetstream.JetStream, left uint64) {
	t.Helper()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILL", Subjects: []string{"fill"}}); err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 1<<20-4096)
	for range 1000 {
		info, err := js.AccountInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.Store+left+1<<20 > natsjournal.RefusedMaxBytes+8<<20 {
			return
		}
		if _, err := js.Publish(t.Context(), "fill", piece); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the store does not fill")
}

// I2, I10: the store is full. Intents get no answer, or one that says that
// a repeat is safe; what was acknowledged is there; nothing is sent whose start is
// not in the log, and what was sent is known.
func TestAFullStoreRefusesAndSendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{maxStore: natsjournal.RefusedMaxBytes + 8<<20})
	c := w.client("acme-agent")
	js := w.stream()
	fill(t, js, 4<<20)
	note := strings.Repeat("n", 9_000)
	var taken []string
	refused := 0
	for i := range 2000 {
		id := fmt.Sprintf("op-%d", i)
		r := wish(id)
		r.Args = json.RawMessage(`{"title":"x","note":"` + note + `"}`)
		_, err := c.Submit(t.Context(), r)
		var p *api.Problem
		switch {
		case err == nil && refused == 0:
			taken = append(taken, id)
		case errors.As(err, &p) && p.Code == api.ProblemUnavailable && strings.Contains(p.Say, "safe"), errors.Is(err, opledger.ErrNoAnswer):
			refused++ // the journal tries as long as a request may take
		case err == nil: // a little room was left for this one
			taken = append(taken, id)
		default:
			t.Fatalf("%s: got %v", id, err)
		}
		if refused == 2 {
			break
		}
	}
	if refused != 2 || len(taken) < 10 {
		t.Fatalf("got %d taken and %d refused", len(taken), refused)
	}
	// Until nothing more happens: the provider's table against the log.
	sends := -1
	until(t, func() bool {
		before := sends
		time.Sleep(200 * time.Millisecond)
		sends = w.sends()
		return before == sends
	})
	st, err := js.Stream(t.Context(), natsjournal.Topology{}.Names().Events)
	if err != nil {
		t.Fatal(err)
	}
	starts, intents := map[string]bool{}, map[string]bool{}
	for seq := uint64(1); seq <= st.CachedInfo().State.LastSeq; seq++ {
		m, err := st.GetMsg(t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Errorf("message %d is missing", seq)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		e, err := events.Decode(m.Data)
		if err != nil {
			continue // a system record
		}
		switch e.Data.(type) {
		case events.IntentRecorded:
			intents[e.Operation] = true
		case events.AttemptStarted:
			starts[e.Operation] = true
		}
	}
	for _, id := range taken {
		if !intents[id] {
			t.Errorf("%s was acknowledged and is not in the log", id)
		}
	}
	if sends > len(starts) {
		t.Errorf("got %d requests and %d starts in the log", sends, len(starts))
	}
	a, err := c.Get(t.Context(), api.GetRequest{OperationID: taken[0]})
	if err != nil || a.Status != operation.StatusConfirmed {
		t.Errorf("the first one: got %+v, %v", a, err)
	}
}
