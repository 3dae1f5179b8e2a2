package natsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/intake"
	"github.com/opledger/opledger/internal/memledger"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
)

// shop is a catalogue of one action that takes any arguments.
type shop struct{}

func (shop) Offer(_ context.Context, provider, account, action string) (intake.Offer, error) {
	if provider != "crm" || account != "main" || action != "task.create" {
		return intake.Offer{}, intake.ErrNoProvider
	}
	return intake.Offer{Contract: contract, Ref: events.ContractRef{Name: "crm", Revision: 1, Digest: "sha256:c1"}, Account: events.Account{Name: account}}, nil
}

var contract = operation.Contract{Provider: "crm", Action: "task.create", Class: operation.ClassLabel}

func (shop) Contract(context.Context, events.IntentRecorded) (operation.Contract, error) {
	return contract, nil
}

func (shop) Bind(_ context.Context, _ events.ContractRef, _, _ string, args []byte) ([]byte, error) {
	return args, nil
}

func (shop) Scope(context.Context, events.ContractRef, string, string, events.Account, []byte) (string, error) {
	return "", nil
}

func (shop) Render(context.Context, operation.State) (json.RawMessage, error) {
	return json.RawMessage(`{}`), nil
}

func (shop) Keep(context.Context, string) error { return nil }

// refusals keeps what was refused, as the stream of refusals does.
type refusals struct{ got []string }

func (r *refusals) Refuse(_ context.Context, tenant string, body []byte) (uint64, error) {
	r.got = append(r.got, tenant+" "+string(body))
	return uint64(len(r.got)), nil
}

func service(t testing.TB) (*intake.Service, *memledger.Ledger) {
	t.Helper()
	now := func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }
	ledger := memledger.New(now)
	const id = "6f1c3c0e-2f44-4ad0-9a0e-0d8f5b7f2b11"
	w, err := writer.New(writer.Config{Journal: ledger, Ledger: id, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	svc, err := intake.New(intake.Config{
		Recorder: w, States: ledger, Catalogue: shop{}, Ledger: id, Tenants: []intake.Tenant{{ID: "acme"}}, Scopes: ledger, Now: now, Random: rand.Float64,
	})
	if err != nil {
		t.Fatal(err)
	}
	return svc, ledger
}

func intent(id string) []byte {
	return fmt.Appendf(nil, `{"operation_id":%q,"provider":"crm","account":"main","action":"task.create","args":{"title":"x"}}`, id)
}

// FuzzInbox: a message of the inbox is an intent, or it is refused by a message
// that is JSON and says why; either way it is done with, so that it never comes
// again (I14).
func FuzzInbox(f *testing.F) {
	for _, raw := range []string{
		string(intent("op-1")), string(intent("op.>")), "", "{", "null", "[]", "\xff", `{"operation_id":"a","operation_id":"b"}`, `{"args":{"a":1e400}}`,
		`{"operation_id":"op-2","provider":"crm","account":"main","action":"task.create","args":{}} {}`, strings.Repeat("[", 40),
		`{"operation_id":"op-3","provider":"erp","account":"main","action":"task.create","args":{"title":"</script>"}}`,
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		svc, ledger := service(t)
		var r refusals
		if _, err := Inbox(t.Context(), slog.New(slog.DiscardHandler), svc, &r, "acme", raw, 7, time.Unix(0, 0)); err != nil {
			t.Fatalf("the message would come again: %v", err)
		}
		n := 0
		if err := ledger.Scan(t.Context(), "acme", func(s operation.State) error {
			n++
			if s.Version == 0 || events.CheckID("operation_id", s.OperationID) != nil {
				t.Errorf("stored: %+v", s)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n+len(r.got) != 1 {
			t.Fatalf("got %d operations and %d refusals, want one of either", n, len(r.got))
		}
		if n == 1 {
			return
		}
		var refused struct {
			Code   api.ProblemCode `json:"code"`
			Digest string          `json:"request_digest"`
			Seq    uint64          `json:"inbox_seq"`
		}
		tenant, body, _ := strings.Cut(r.got[0], " ")
		if err := json.Unmarshal([]byte(body), &refused); err != nil || tenant != "acme" || refused.Code == "" || refused.Seq != 7 || !strings.HasPrefix(refused.Digest, "sha256:") {
			t.Errorf("refused: %s, %v", r.got[0], err)
		}
	})
}

// I14: one message among a thousand that can't be read is refused alone; the
// other 999 are recorded.
func TestOnePoisonedIntentAmongAThousandIsRefusedAlone(t *testing.T) {
	t.Parallel()
	svc, ledger := service(t)
	var r refusals
	log := slog.New(slog.DiscardHandler)
	for i := range 1000 {
		raw := intent(fmt.Sprintf("op-%d", i))
		if i == 500 {
			raw = []byte("{\"operation_id\":\"op-500\",\x00")
		}
		if _, err := Inbox(t.Context(), log, svc, &r, "acme", raw, uint64(i+1), time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	if err := ledger.Scan(t.Context(), "acme", func(operation.State) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	if n != 999 || len(r.got) != 1 || !strings.Contains(r.got[0], `"inbox_seq":501`) {
		t.Errorf("got %d operations and the refusals %v", n, r.got)
	}
}

// What may pass is not refused: a message that the ledger can't take right now
// comes again, and nothing is published about it.
func TestAnInboxMessageComesAgainWhileTheLogIsAway(t *testing.T) {
	t.Parallel()
	svc, ledger := service(t)
	ledger.BeforeAppend = func(events.Event) error { return errors.New("no leader") }
	var r refusals
	log := slog.New(slog.DiscardHandler)
	if _, err := Inbox(t.Context(), log, svc, &r, "acme", intent("op-1"), 1, time.Unix(0, 0)); err == nil || len(r.got) > 0 {
		t.Errorf("got %v and the refusals %v, want it again", err, r.got)
	}
	ledger.BeforeAppend = nil
	if _, err := Inbox(t.Context(), log, svc, &r, "acme", intent("op-1"), 1, time.Unix(0, 0)); err != nil || len(r.got) > 0 {
		t.Errorf("got %v and the refusals %v", err, r.got)
	}
}
