package natsjournal

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/opledger/opledger/internal/natstest"
)

// Servers of a cluster that have no leader answer for the state of a stream all the same,
// each from what it has. Such an answer is none: it would look like a log that has lost
// its end.
func TestStateWithoutALeaderIsNotBelieved(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Server(t))
	var cluster atomic.Value
	_, err := nc.Subscribe("$JS.ours.API.STREAM.INFO.OPLEDGER_EVENTS", func(m *nats.Msg) {
		body := fmt.Sprintf(`{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":"OPLEDGER_EVENTS","metadata":{%q:"l-1"}},
			"state":{"messages":104,"first_seq":1,"last_seq":104}%s}`, MetadataLedger, cluster.Load())
		if err := m.Respond([]byte(body)); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Store("")
	j, err := Open(t.Context(), nc, Config{Domain: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]error{
		"": nil, `,"cluster":{"name":"c","leader":"n1"}`: nil, `,"cluster":{"name":"c"}`: errNoLeader, `,"cluster":{"name":"c","leader":""}`: errNoLeader,
	} {
		cluster.Store(text)
		got, err := j.Info(t.Context())
		if !errors.Is(err, want) || (want == nil && got.Last != 104) {
			t.Errorf("%q: got %+v, error %v, want %v", text, got, err, want)
		}
	}
}
