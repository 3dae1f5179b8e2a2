package trial

import (
	"context"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/intake"
	"github.com/opledger/opledger/providers/simulator"
)

// Tenant is whose operations a world has.
const Tenant = tenant

// Sim is the provider's administration.
func (w *World) Sim() *simulator.Client { return w.sim }

// Intake is how operations, evidence and decisions get in.
func (w *World) Intake() *intake.Service { return w.intake }

// Log returns the events of an operation.
func (w *World) Log(ctx context.Context, op string) ([]events.Record, error) {
	return w.ledger.Load(ctx, tenant, op)
}

// After lets something happen later, in virtual time.
func (w *World) After(d time.Duration, do func(context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at(w.clock.Now().Add(d), do)
}

// Now is the virtual time.
func (w *World) Now() time.Time { return w.clock.Now() }
