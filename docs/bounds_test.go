package docs_test

import (
	"fmt"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/intake"
	"github.com/opledger/opledger/internal/natsapi"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// bounds are the bounds of the code, by their row in limits.md.
func bounds() map[string]string {
	kib := func(n int) string { return fmt.Sprintf("%d KiB", n>>10) }
	thousands := func(n int) string {
		if n < 10_000 {
			return fmt.Sprint(n)
		}
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return map[string]string{
		"request":                    kib(intake.MaxRequestSize),
		"arguments":                  fmt.Sprintf("%s, nested at most %d deep", kib(intake.MaxArgsSize), intake.MaxDepth),
		"event":                      kib(events.MaxEventSize),
		"external id":                fmt.Sprintf("%d bytes", providers.MaxExternalID),
		"ids":                        fmt.Sprintf("%d bytes", events.MaxIDLength),
		"attempts of one operation":  fmt.Sprint(operation.MaxAttemptsEver),
		"events of one operation":    thousands(natsjournal.MaxOperationEvents),
		"evidence kept in the state": fmt.Sprintf("the last %d", operation.MaxEvidenceKept),
		"one wait":                   fmt.Sprintf("%d s", int(intake.MaxWait.Seconds())),
		"one page of a list":         fmt.Sprintf("%d operations", intake.MaxList),
		"requests answered at once":  fmt.Sprintf("%d, of them %d of one tenant if another sends requests, too; and %s waits, those of a submit counted", natsapi.MaxRequests, natsapi.MaxTenantRequests, thousands(natsapi.MaxWaiters)),
		"requests of a tenant that wait for that": fmt.Sprintf("%s, 16 MiB together; more are refused as `unavailable`", thousands(natsapi.MaxTenantLine)),
	}
}
