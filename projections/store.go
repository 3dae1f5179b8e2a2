package projections

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Store reads what the ledger knows of operations.
type Store struct {
	part
	b *bucket
}

// NewStore returns a store on the bucket of operations.
func NewStore(cfg Config) (*Store, error) {
	p, err := cfg.open()
	if err != nil {
		return nil, err
	}
	return &Store{part: p, b: p.bucket("OPERATIONS")}, nil
}

// State returns an operation as the projection has it, at least as of version
// min: if the entry is missing, older than that or unreadable, it is folded
// from the log. The zero state (StatusAbsent) means that the log has nothing.
// Even of an operation that is absent LastSeq may be set, by a message that is
// no event: the next append is compared with it.
func (s *Store) State(ctx context.Context, tenant, operationID string, min uint64) (operation.State, error) {
	if err := checkIDs(tenant, operationID); err != nil {
		return operation.State{}, err
	}
	v, err := s.b.peek(ctx, entryKey(tenant, operationID))
	if err == nil && v.rev != 0 && !v.deleted {
		if state, err := decodeState(v.data); err == nil && state.Version >= min {
			return state, nil
		}
	}
	if err != nil && !errors.Is(err, errGone) {
		s.log.LogAttrs(ctx, slog.LevelDebug, "entry not read, folding from the log",
			slog.String("tenant", tenant), slog.String("operation_id", operationID), slog.Any("err", err))
	}
	return s.Truth(ctx, tenant, operationID)
}

// Glance returns an operation as the projection has it, which may be behind: the
// zero state does not mean that the log has nothing.
func (s *Store) Glance(ctx context.Context, tenant, operationID string) (operation.State, error) {
	if err := checkIDs(tenant, operationID); err != nil {
		return operation.State{}, err
	}
	v, err := s.b.peek(ctx, entryKey(tenant, operationID))
	if err == nil && (v.rev == 0 || v.deleted) {
		return operation.State{}, nil
	}
	if err == nil {
		if state, err := decodeState(v.data); err == nil {
			return state, nil
		}
	}
	return s.Truth(ctx, tenant, operationID)
}

// Truth folds an operation from the log, as the log's leader has it.
func (s *Store) Truth(ctx context.Context, tenant, operationID string) (operation.State, error) {
	if err := checkIDs(tenant, operationID); err != nil {
		return operation.State{}, err
	}
	return s.truth(ctx, tenant, operationID)
}

func (p part) truth(ctx context.Context, tenant, operationID string) (operation.State, error) {
	records, err := p.Log.Load(ctx, tenant, operationID)
	if err != nil {
		return operation.State{}, fmt.Errorf("projections: fold %s of %s: %w", operationID, tenant, err)
	}
	return operation.Fold(records), nil
}

// Scan calls fn for every operation of a tenant, or of all tenants if tenant is
// empty, in the order in which their entries were last written. An operation
// that changes during the scan may come twice, the newer state later. Entries
// that can't be read are folded from the log. Scan ends with the error of fn.
// Where the bucket is gone it returns an error: it does not read the whole log.
func (s *Store) Scan(ctx context.Context, tenant string, fn func(operation.State) error) error {
	filter := ">"
	if tenant != "" {
		if err := events.CheckID("tenant", tenant); err != nil {
			return err
		}
		filter = tenant + ".>"
	}
	err := s.b.each(ctx, filter, func(key string, v value) error {
		tenant, operationID, ok := splitKey(key)
		if !ok {
			return nil // the checkpoint
		}
		state, err := decodeState(v.data)
		if err != nil {
			if state, err = s.truth(ctx, tenant, operationID); err != nil {
				return err
			}
		}
		if state.Version == 0 {
			return nil // nothing but messages that are no events
		}
		return fn(state)
	})
	if err != nil {
		return fmt.Errorf("projections: scan: %w", err)
	}
	return nil
}

func checkIDs(tenant, operationID string) error {
	if err := events.CheckID("tenant", tenant); err != nil {
		return err
	}
	return events.CheckID("operation_id", operationID)
}
