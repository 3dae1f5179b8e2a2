// Package writer is the one component of a process that appends events: it
// turns decisions into events with version, chain and id, appends them one
// after the other by compare-and-swap, and evolves the state with each.
//
// It never decides and never re-bases: a decision whose append lost is thrown
// away by the caller and made anew (I13).
package writer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Journal appends one event behind the message with sequence expected. The
// error wraps events.ErrConflict if another message is there already; any other
// error means that nobody knows whether the event is stored.
type Journal interface {
	Append(ctx context.Context, e events.Event, expected uint64) (events.Record, error)
}

// Observer is told of every stored event, with the states before and after it.
type Observer func(before, after operation.State, e events.Event)

// Config is what a Writer needs.
type Config struct {
	Journal Journal
	// Ledger is the id of the ledger, a UUID.
	Ledger string
	// Now is contract time. It is written into events for display, and stands in
	// for the log's stamp in the evolved state, on which decisions are made; so
	// it must not be a clock that somebody can set.
	Now func() time.Time
	// NewID mints event ids; nil means events.NewID.
	NewID func() string
	// Observe may be nil.
	Observe Observer
}

// Writer appends events. It is safe for concurrent use.
type Writer struct{ cfg Config }

// New returns a Writer.
func New(cfg Config) (*Writer, error) {
	if cfg.Journal == nil || cfg.Ledger == "" || cfg.Now == nil {
		return nil, errors.New("writer: journal, ledger id and clock are required")
	}
	if cfg.NewID == nil {
		cfg.NewID = events.NewID
	}
	return &Writer{cfg: cfg}, nil
}

// Append records payloads in order behind s and returns the state after the
// last one that is stored, also together with an error. A crash in between
// leaves the first ones stored; every event says what happens next, so that
// nothing is stuck.
//
// The log's own stamp is not part of an acknowledgement; where it is not known
// the evolved state carries this process's clock instead, and whoever needs
// contract time reads the event back.
func (w *Writer) Append(ctx context.Context, s operation.State, actor string, payloads ...events.Payload) (operation.State, error) {
	for _, p := range payloads {
		e := events.Event{
			ID: w.cfg.NewID(), Ledger: w.cfg.Ledger, Tenant: s.Tenant, Operation: s.OperationID,
			Version: s.Version + 1, Prev: s.Head, Time: w.cfg.Now(), Actor: actor,
			Traceparent: s.Traceparent, Data: p,
		}
		rec, err := w.cfg.Journal.Append(ctx, e, s.LastSeq)
		if err != nil {
			return s, fmt.Errorf("writer: append %s to %s: %w", p.Kind(), s.OperationID, err)
		}
		if rec.Stamp.IsZero() {
			rec.Stamp = w.cfg.Now()
		}
		before := s
		s, _ = operation.Evolve(s, rec)
		if w.cfg.Observe != nil {
			w.cfg.Observe(before, s, e)
		}
	}
	return s, nil
}
