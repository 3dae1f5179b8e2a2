package natsapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// The gate stands in for the inbox streams where the server acknowledges what it has
// not synced. Who publishes an intent sees no difference: the answer has the form of
// a stream's acknowledgement, and comes when the intent is kept for good, in the
// journal or among the refusals, whose place it names. Without an answer the intent
// is to be published again, as after any publish without one.

// Gate is what the service needs to take in intents for the inboxes.
type Gate struct {
	Publisher
	// Events and Refused are the streams that answers name.
	Events, Refused string
}

// ack is an answer in the form of JetStream's (nats.go reads it).
type ack struct {
	Stream    string    `json:"stream,omitempty"`
	Seq       uint64    `json:"seq,omitempty"`
	Duplicate bool      `json:"duplicate,omitempty"`
	Error     *ackError `json:"error,omitempty"`
}

// Codes of an ackError, those of HTTP as everywhere in JetStream.
const (
	tooMany     = 429
	unavailable = 503
)

type ackError struct {
	Code        int    `json:"code"`
	Description string `json:"description"`
}

func (s *Server) openGate() error {
	sub, err := s.cfg.Conn.Subscribe(s.cfg.Subjects.Gate("*"), s.arrived)
	if err != nil {
		return fmt.Errorf("natsapi: open the gate: %w", err)
	}
	s.gate = sub
	return nil
}

// arrived gives an intent a place among the requests of its tenant.
func (s *Server) arrived(m *nats.Msg) {
	tenant := tenantOf(s.cfg.Subjects.Gate("*"), m.Subject)
	if !s.begin() {
		return // its sender publishes again
	}
	if !s.line.enter(tenant, len(m.Data), func() {
		go func() {
			defer func() { s.line.leave(tenant); s.wg.Done() }()
			ctx, cancel := context.WithTimeout(s.ctx, requestTimeout)
			defer cancel()
			s.acknowledge(m.Reply, s.takeIn(ctx, tenant, m.Data))
		}()
	}) {
		s.wg.Done()
		s.acknowledge(m.Reply, ack{Error: &ackError{Code: tooMany, Description: "too many intents of this tenant wait already; publish it again later"}})
	}
}

func (s *Server) takeIn(ctx context.Context, tenant string, data []byte) ack {
	kept, err := Inbox(ctx, s.cfg.Logger, s.cfg.Service, s.cfg.Gate, tenant, data, 0, time.Now())
	a := ack{Stream: s.cfg.Gate.Events, Seq: kept.Seq, Duplicate: kept.Repeated}
	switch {
	case err != nil:
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "intent not taken in", slog.String("tenant", tenant), slog.Any("err", err))
		a = ack{Error: &ackError{Code: unavailable, Description: "the ledger can't take intents right now; publish it again"}}
	case kept.Refused:
		a.Stream = s.cfg.Gate.Refused
	}
	return a
}

func (s *Server) acknowledge(to string, a ack) {
	body, err := json.Marshal(a)
	if err != nil {
		return // the sender publishes again
	}
	s.reply(to, body, nil)
}
