package node_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/operation"
)

// One request hands a wish in and brings its end; so does the same request again.
// When the time is over first, it brings the state as it is, and when the answer
// is lost, the same request finds out.
func TestOneRequestHandsAWishInAndBringsItsEnd(t *testing.T) {
	t.Parallel()
	hold, asked := make(chan struct{}), make(chan struct{}, 1)
	var once sync.Once
	release := func() { once.Do(func() { close(hold) }) }
	w := newWorld(t, options{before: func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && r.URL.Path == "/v1/tasks" {
			select {
			case asked <- struct{}{}:
			default:
			}
			<-hold
		}
		return false
	}})
	t.Cleanup(release)
	c := w.client("acme-agent")
	r := wish("op-1")
	r.WaitMS = 1
	if a, err := c.Submit(t.Context(), r); err != nil || a.Status.Final() || a.Repeated {
		t.Errorf("got %+v, %v; want it recorded and open", a, err)
	}
	<-asked
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.SubmitAndWait(gone, wish("op-1"), time.Minute); err == nil {
		t.Error("an answer came after the caller had gone")
	}
	release()
	a, err := c.SubmitAndWait(t.Context(), wish("op-1"), time.Minute)
	if err != nil || a.Status != operation.StatusConfirmed || !a.Repeated {
		t.Errorf("got %+v, %v; want the repeat to bring the end", a, err)
	}
	a, err = c.SubmitAndWait(t.Context(), wish("op-2"), time.Minute)
	if err != nil || a.Status != operation.StatusConfirmed || a.Repeated {
		t.Errorf("got %+v, %v; want the end of a new wish", a, err)
	}
}

// The durable inbox passes wait_ms over: an intent that another would be asked to
// wait for holds up none behind it.
func TestTheInboxPassesTheWaitOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	nc, _ := w.connect("acme-agent")
	c, err := opledger.NewClient(opledger.ClientConfig{Conn: nc, Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"op-1", "op-2"} {
		r := wish(id)
		r.WaitMS = time.Minute.Milliseconds()
		r.RequireApproval = &api.RequireApproval{}
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Request(w.cfg.Subjects().Inbox("acme"), raw, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() bool {
		a, err := c.Get(t.Context(), api.GetRequest{OperationID: "op-2"})
		return err == nil && a.Status == operation.StatusPending
	})
}
