package sim

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/executor"
	"github.com/opledger/opledger/intake"
	"github.com/opledger/opledger/operation"
)

var errBucket = errors.New("sim: the bucket does not answer")

// states reads what is known, as package projections and the process around it
// do: an entry that may be old, or the fold of the log.
type states struct{ p *process }

// State implements executor.States.
func (s *states) State(ctx context.Context, tenant, op string, min uint64) (operation.State, error) {
	w, t := s.p.w, s.p.w.enter()
	key := opKey(tenant, op)
	min = max(min, s.p.recent[key])
	t.pass(w.latency())
	e, found := w.entries.read(key)
	if found && e.Version >= min && !w.hit(entryUnreadable) {
		w.decides(t, e)
		return e, nil
	}
	return s.Truth(ctx, tenant, op)
}

// Truth implements executor.States.
func (s *states) Truth(ctx context.Context, tenant, op string) (operation.State, error) {
	st, err := s.p.w.log.Truth(ctx, tenant, op)
	if err == nil {
		s.p.w.decides(s.p.w.cur, st)
	}
	return st, err
}

// intakeStates adds what intake needs of a store.
type intakeStates struct {
	reader
	p *process
}

// Glance implements intake.States.
func (x intakeStates) Glance(ctx context.Context, tenant, op string) (operation.State, error) {
	w, t := x.p.w, x.p.w.enter()
	t.pass(w.latency())
	if s, found := w.entries.read(opKey(tenant, op)); found && s.Version >= x.p.recent[opKey(tenant, op)] {
		return s, ctx.Err()
	}
	if x.p.recent[opKey(tenant, op)] == 0 {
		return operation.State{}, ctx.Err()
	}
	return x.Truth(ctx, tenant, op)
}

// Latest implements intake.States.
func (x intakeStates) Latest(ctx context.Context, tenant, op string) (operation.State, error) {
	return x.Truth(ctx, tenant, op)
}

// Scan implements intake.States.
func (intakeStates) Scan(context.Context, string, func(operation.State) error) error {
	return errors.New("sim: nobody lists")
}

// Subscribe implements intake.States.
func (intakeStates) Subscribe(string, string) (<-chan operation.State, func()) { return nil, func() {} }

// claims plays the bucket of claims, by the rules of projections.Claims.
type claims struct {
	w    *world
	held map[string]claim
	rev  uint64
}

type claim struct {
	executor.Claim
	rev uint64
}

// Take implements executor.Claims.
func (c *claims) Take(ctx context.Context, want executor.Claim) (uint64, time.Time, error) {
	w, t := c.w, c.w.enter()
	if err := ctx.Err(); err != nil {
		return 0, time.Time{}, err
	}
	if w.hit(claimsDown) {
		t.pass(callTimeout)
		return 0, time.Time{}, errBucket
	}
	t.pass(w.latency())
	if w.hit(claimsLost) {
		clear(c.held)
		c.rev = max(c.rev, 3) - 3 // revisions are given again
	}
	key := opKey(want.Tenant, want.Operation)
	h, found := c.held[key]
	over := t.p.now().After(h.Until.Add(clockError))
	if found && !over && h.AttemptID != want.AttemptID && !want.Settled(h.AttemptID) {
		return 0, h.Until, nil
	}
	c.rev++
	rev := c.rev
	c.held[key] = claim{want, rev}
	t.pass(w.latency())
	return rev, time.Time{}, nil
}

// Release implements executor.Claims.
func (c *claims) Release(_ context.Context, tenant, op string, revision uint64) error {
	w, t := c.w, c.w.enter()
	t.pass(w.latency())
	if key := opKey(tenant, op); c.held[key].rev == revision {
		delete(c.held, key)
	}
	return nil
}

// catalogue is the registry as intake knows it.
type catalogue struct{ w *world }

// Offer implements intake.Catalogue.
func (c catalogue) Offer(_ context.Context, provider, account, _ string) (intake.Offer, error) {
	s := c.w.service(provider)
	return intake.Offer{
		Contract: s.contract, SchemaVersion: "v1",
		Ref:     events.ContractRef{Name: provider, Revision: 1, Digest: s.contract.Digest},
		Account: events.Account{Name: account, ProviderID: ourAccount},
	}, nil
}

// Contract implements intake.Catalogue.
func (c catalogue) Contract(_ context.Context, i events.IntentRecorded) (operation.Contract, error) {
	return c.w.service(i.Provider).contract, nil
}

// Bind implements intake.Catalogue.
func (c catalogue) Bind(_ context.Context, _ events.ContractRef, _, _ string, args []byte) ([]byte, error) {
	return args, nil
}

// Scope implements intake.Catalogue.
func (c catalogue) Scope(_ context.Context, _ events.ContractRef, _, _ string, _ events.Account, args []byte) (string, error) {
	var a struct {
		Key string `json:"key"`
	}
	err := json.Unmarshal(args, &a)
	return a.Key, err
}

// Render implements intake.Catalogue.
func (c catalogue) Render(context.Context, operation.State) (json.RawMessage, error) {
	return nil, errors.New("sim: nothing is shown")
}

// Keep implements intake.Catalogue.
func (c catalogue) Keep(context.Context, string) error { return nil }
