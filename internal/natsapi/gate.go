package natsapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
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

func (s *Server) arrived(m *nats.Msg) {
	s.arriving <- struct{}{} // backpressure: the subscription's buffer fills
	s.wg.Go(func() {
		defer func() { <-s.arriving }()
		ctx, cancel := context.WithTimeout(s.ctx, requestTimeout)
		defer cancel()
		s.takeIn(ctx, m)
	})
}

func (s *Server) takeIn(ctx context.Context, m *nats.Msg) {
	before, _, _ := strings.Cut(s.cfg.Subjects.Gate("*"), "*")
	kept, err := Inbox(ctx, s.cfg.Logger, s.cfg.Service, s.cfg.Gate, strings.TrimPrefix(m.Subject, before), m.Data, 0, time.Now())
	a := ack{Stream: s.cfg.Gate.Events, Seq: kept.Seq, Duplicate: kept.Repeated}
	switch {
	case err != nil:
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "intent not taken in", slog.String("subject", m.Subject), slog.Any("err", err))
		a = ack{Error: &ackError{Code: 503, Description: "the ledger can't take intents right now; publish it again"}}
	case kept.Refused:
		a.Stream = s.cfg.Gate.Refused
	}
	body, err := json.Marshal(a)
	if err != nil {
		return // the sender publishes again
	}
	s.reply(m.Reply, body, nil)
}
