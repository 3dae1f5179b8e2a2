package projections

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/opledger/opledger/events"
)

// maxWishes is how many wishes with a request id an index remembers, those that
// it saw first going first.
const maxWishes = 200_000

// wishOf names what two wishes of one user request have in common: request_id,
// provider, account and action, whatever the arguments. It is "" without a
// request id.
func wishOf(i events.IntentRecorded) string {
	if i.RequestID == "" {
		return ""
	}
	sum := sha256.New()
	for _, part := range []string{i.RequestID, i.Provider, i.Account.Name, i.Action} {
		sum.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return hex.EncodeToString(sum.Sum(nil)[:12])
}

// wishes remembers the first operation of each wish, up to a bound.
type wishes struct {
	first map[string]string // by tenant and wish
	order []string          // a ring
	next  int
}

func newWishes() *wishes { return &wishes{first: make(map[string]string)} }

func (w *wishes) note(tenant, wish, operationID string) {
	k := entryKey(tenant, wish)
	if _, known := w.first[k]; known || wish == "" {
		return
	}
	w.first[k] = operationID
	if len(w.order) < maxWishes {
		w.order = append(w.order, k)
		return
	}
	delete(w.first, w.order[w.next])
	w.order[w.next] = k
	w.next = (w.next + 1) % maxWishes
}

// Earlier returns an operation of the tenant with the same request_id, provider,
// account and action as the intent, or "". The index knows the last 200,000
// such wishes, closed ones included; of two that are recorded at the same time
// neither may know of the other.
func (x *Index) Earlier(tenant string, i events.IntentRecorded) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.wishes.first[entryKey(tenant, wishOf(i))]
}
