package events

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
)

// SystemKind is the kind of a record that belongs to no operation.
type SystemKind string

// The kinds of system record. Each lives on the system subject of its name.
const (
	// SystemRebuildMarker ends a rebuild: everything before it is included.
	SystemRebuildMarker SystemKind = "RebuildMarker"
	// SystemCheckpoint is a rolling digest over the whole log.
	SystemCheckpoint SystemKind = "Checkpoint"
	// SystemAlarmRaised and SystemAlarmCleared frame an integrity alarm.
	SystemAlarmRaised  SystemKind = "IntegrityAlarmRaised"
	SystemAlarmCleared SystemKind = "IntegrityAlarmCleared"
	// SystemContractStored names a contract revision in use.
	SystemContractStored SystemKind = "ContractStored"
	// SystemScopeTaken names the operation that holds a conflict scope.
	SystemScopeTaken SystemKind = "ScopeTaken"
)

// Name returns the last token of the subject that holds records of this kind.
func (k SystemKind) Name() string {
	switch k {
	case SystemRebuildMarker:
		return "marker"
	case SystemCheckpoint:
		return "checkpoint"
	case SystemAlarmRaised, SystemAlarmCleared:
		return "alarm"
	case SystemContractStored:
		return "contract"
	case SystemScopeTaken:
		return "scope"
	}
	return "other"
}

// System is a record that belongs to no operation.
type System struct {
	ID     string
	Ledger string
	Kind   SystemKind
	Time   time.Time
	Actor  string
	// Data holds the members of the record; its form depends on Kind.
	Data map[string]any
}

// ScopeTaken says which operation took a conflict scope last. The zero value
// means: nobody has.
type ScopeTaken struct {
	Operation string
	Attempt   string
	// Seq is the place of the record, At the log's time stamp of it.
	Seq uint64
	At  time.Time
	// Newest is when the newest of the wishes was recorded that had been confirmed
	// in this scope before; zero if none had.
	Newest time.Time
}

// EncodeSystem returns the body of a system record, a CloudEvent like Encode's.
func EncodeSystem(s System) ([]byte, error) {
	data := map[string]any{}
	maps.Copy(data, s.Data)
	data["event_id"], data["actor"] = s.ID, s.Actor
	raw, err := marshal(data)
	if err != nil {
		return nil, fmt.Errorf("events: encode %s: %w", s.Kind, err)
	}
	return marshal(envelope{
		SpecVersion: SpecVersion, ID: s.ID, Source: ledgerSource + s.Ledger,
		Type: TypePrefix + string(s.Kind), Time: s.Time.UTC(),
		DataContentType: "application/json", Data: raw,
	})
}

// DecodeSystem reads a body made by EncodeSystem. The error wraps ErrMalformed.
func DecodeSystem(body []byte) (System, error) {
	var env envelope
	if err := json.Unmarshal(body, &env); err != nil {
		return System{}, fmt.Errorf("%w: %s", ErrMalformed, syntax(err))
	}
	kind, ok := strings.CutPrefix(env.Type, TypePrefix)
	if !ok {
		return System{}, fmt.Errorf("%w: its type is not of format v1", ErrMalformed)
	}
	s := System{
		ID: env.ID, Ledger: strings.TrimPrefix(env.Source, ledgerSource),
		Kind: SystemKind(kind), Time: env.Time,
	}
	if err := json.Unmarshal(env.Data, &s.Data); err != nil {
		return System{}, fmt.Errorf("%w: data: %s", ErrMalformed, syntax(err))
	}
	s.Actor, _ = s.Data["actor"].(string)
	return s, nil
}
