// Package integrity holds the log against itself and against a mark that is kept
// outside of it.
//
// The server does not tell when it has lost acknowledged messages: it comes back
// with fewer, and may give their numbers to others. An Audit reads the log from
// its first message on and finds numbers that are missing, and checkpoints and
// marks that the log does not have any more. The mark is a small file of each
// process's own (see Load and Save).
//
// The package decides nothing: what a finding stops is said by package node
// (I16). What it can't find: a loss behind the last mark and the last
// checkpoint.
package integrity

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/opledger/opledger/events"
)

// Mark says what the log was up to one of its messages.
type Mark struct {
	// Ledger and Created name the log: its id and when its stream was created.
	Ledger  string    `json:"ledger"`
	Created time.Time `json:"created"`
	// Seq is the message, 0 if the log was empty; Stamp, EventID and Message
	// are its time stamp, its event id and the digest of its body.
	Seq     uint64    `json:"seq"`
	Stamp   time.Time `json:"stamp,omitzero"`
	EventID string    `json:"event_id,omitempty"`
	Message string    `json:"message,omitempty"`
	// Rolling is the rolling digest up to Seq; see events.Rolling.
	Rolling string `json:"rolling"`
}

// Base is what of the log has been accepted as it is, when an alarm was cleared.
// The zero value is a log of which nothing is missing.
type Base struct {
	Mark
	// First is the first sequence number, Deleted how many are missing.
	First   uint64 `json:"first"`
	Deleted uint64 `json:"deleted"`
}

// Clearing is the content of an IntegrityAlarmCleared record: who accepted what,
// and what follows from it.
type Clearing struct {
	// ID and Seq are those of the record, Stamp is its time stamp.
	ID    string    `json:"-"`
	Seq   uint64    `json:"-"`
	Stamp time.Time `json:"-"`
	Actor string    `json:"-"`

	Reason   string `json:"reason"`
	Accepted Base   `json:"accepted"`
	// Lost are the findings that were accepted, in words.
	Lost []string `json:"lost,omitempty"`
	// Since is the last moment before the damage: what the log lost may have
	// been sent since then. Until is when repeats of lost operations are no
	// longer expected.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"look_first_until,omitzero"`
	// InDoubt counts the operations that were put in doubt.
	InDoubt int `json:"in_doubt"`
}

// Data is the clearing in the form of a system record.
func (c Clearing) Data() (map[string]any, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("integrity: %w", err)
	}
	var data map[string]any
	return data, json.Unmarshal(raw, &data)
}

// ReadClearing reads an IntegrityAlarmCleared record.
func ReadClearing(r events.Record) (Clearing, error) {
	s, err := events.DecodeSystem(r.Body)
	if err != nil {
		return Clearing{}, fmt.Errorf("integrity: message %d: %w", r.Seq, err)
	}
	raw, err := json.Marshal(s.Data)
	if err != nil {
		return Clearing{}, fmt.Errorf("integrity: message %d: %w", r.Seq, err)
	}
	var c Clearing
	if err := json.Unmarshal(raw, &c); err != nil || c.Accepted.Rolling == "" {
		return Clearing{}, fmt.Errorf("integrity: message %d is a clearing that can't be read: %w", r.Seq, err)
	}
	c.ID, c.Seq, c.Stamp, c.Actor = s.ID, r.Seq, r.Stamp, s.Actor
	return c, nil
}

// Checkpoint is the content of a Checkpoint record.
type Checkpoint struct {
	Seq    uint64
	Digest string
}

// Data is the checkpoint in the form of a system record.
func (c Checkpoint) Data() map[string]any {
	return map[string]any{"sequence": c.Seq, "digest": c.Digest}
}

func readCheckpoint(body []byte) (Checkpoint, error) {
	var env struct {
		Data struct {
			Sequence json.Number `json:"sequence"`
			Digest   string      `json:"digest"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &env); err != nil {
		return Checkpoint{}, err
	}
	seq, err := strconv.ParseUint(env.Data.Sequence.String(), 10, 64)
	return Checkpoint{Seq: seq, Digest: env.Data.Digest}, err
}

// Kind says what a finding is. The list is closed.
type Kind string

// The kinds of finding.
const (
	// OtherLog: the log was created anew, or belongs to another ledger.
	OtherLog Kind = "log_other"
	// WentBack: the log ends before the mark.
	WentBack Kind = "log_went_back"
	// Gap: sequence numbers are missing.
	Gap Kind = "log_gap"
	// Changed: the log up to the mark is not what it was.
	Changed Kind = "log_changed"
	// CheckpointDiffers: the log up to a checkpoint is not what the checkpoint
	// says.
	CheckpointDiffers Kind = "checkpoint_differs"
	// Unreadable: a record about the log itself can't be read.
	Unreadable Kind = "log_unreadable"
)

// Kinds lists every kind of finding.
func Kinds() []Kind {
	return []Kind{OtherLog, WentBack, Gap, Changed, CheckpointDiffers, Unreadable}
}

// Finding is damage, with the sequence numbers between which it lies.
type Finding struct {
	Kind     Kind
	From, To uint64
	Detail   string
	// Since is the time stamp of the last message before the damage, zero if
	// there is none.
	Since time.Time
}

// String says it in one line.
func (f Finding) String() string {
	if f.From == 0 {
		return f.Detail
	}
	return fmt.Sprintf("messages %d to %d: %s", f.From, f.To, f.Detail)
}
