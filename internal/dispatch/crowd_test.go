package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opledger/opledger/internal/dispatch"
)

// I14: ten thousand operations of one tenant are due at one provider account: no
// more run at once than the lane admits, those that wait longest come first, and
// neither another tenant at the same account nor another account waits behind them.
func TestTenThousandOfOneTenantDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const crowd, others, width = 10_000, 20, 4
		var mu sync.Mutex
		running, most := 0, 0
		var order []int
		ended := map[string][]time.Duration{}
		began := time.Now()
		d, stop := start(t, func(_ context.Context, k dispatch.Key, _ uint64) (dispatch.Plan, error) {
			time.Sleep(time.Millisecond) // planning reads what is known of the operation
			lane := "crm/main"
			if k.Tenant == "elsewhere" {
				lane = "mail/main"
			}
			return dispatch.Plan{Lane: lane, Width: width, Run: func(context.Context) dispatch.Again {
				mu.Lock()
				if lane == "crm/main" {
					running++
					most = max(most, running)
				}
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				if lane == "crm/main" {
					running--
				}
				ended[k.Tenant] = append(ended[k.Tenant], time.Since(began))
				if n := 0; k.Tenant == "crowd" {
					_, _ = fmt.Sscan(k.Operation, &n) // the keys are numbers
					order = append(order, n)
				}
				return dispatch.Again{}
			}}, nil
		})
		for i := range crowd {
			d.Schedule(dispatch.Key{Tenant: "crowd", Operation: fmt.Sprint(i)}, began.Add(time.Duration(i-crowd)*time.Millisecond), 0)
		}
		time.Sleep(crowd / 2 * time.Millisecond) // all of them are planned and wait
		quietFrom := time.Since(began)
		for _, tenant := range []string{"quiet", "elsewhere"} {
			for i := range others {
				d.Wake(dispatch.Key{Tenant: tenant, Operation: fmt.Sprint(i)}, 0)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		stop()
		if most != width || len(order) != crowd {
			t.Errorf("got %d at once and %d done, want %d and %d", most, len(order), width, crowd)
		}
		for at, n := range order {
			if n > at+10*width || n < at-10*width { // planners work side by side, so the order is not strict
				t.Fatalf("number %d of the crowd ran as number %d", n, at)
			}
		}
		for tenant, within := range map[string]time.Duration{"quiet": 2*others/width*time.Second + 5*time.Second, "elsewhere": others/width*time.Second + 2*time.Second} {
			got := ended[tenant]
			if len(got) != others || got[others-1]-quietFrom > within {
				t.Errorf("%s: %d of %d done, the last after %v, want %v", tenant, len(got), others, got[max(len(got), 1)-1], within)
			}
		}
	})
}
