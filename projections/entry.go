package projections

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// checkpointKey can't be the key of an operation: those have two tokens.
const checkpointKey = "_checkpoint"

// entryHeader stands beside an entry so that readers can pass over it without
// decoding it. It is a hint; the entry decides.
const entryHeader = "Opledger-Entry"

// entry is the value of a key in the bucket of operations.
type entry struct {
	FoldVersion int             `json:"fold_version"`
	State       operation.State `json:"state"`
}

// errFold: the entry was made by another version of the fold.
var errFold = errors.New("projections: entry of another fold version")

// encodeState returns the entry of a state. Equal states have equal bytes.
func encodeState(s operation.State) ([]byte, error) {
	if data, ok := plainEntry(s); ok {
		return data, nil
	}
	return anyEntry(s)
}

// anyEntry is encodeState for every state.
func anyEntry(s operation.State) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(entry{FoldVersion: operation.FoldVersion, State: s}); err != nil {
		return nil, fmt.Errorf("projections: encode: %w", err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// decodeState reads an entry. An entry of another fold version is errFold.
func decodeState(data []byte) (operation.State, error) {
	var head struct {
		FoldVersion int `json:"fold_version"`
	}
	var e entry
	if err := json.Unmarshal(data, &e); err != nil {
		// The error could repeat arguments, so it is not passed on.
		if json.Unmarshal(data, &head) == nil && head.FoldVersion != operation.FoldVersion {
			return operation.State{}, errFold
		}
		return operation.State{}, errors.New("projections: unreadable entry")
	}
	if e.FoldVersion != operation.FoldVersion {
		return operation.State{}, errFold
	}
	return e.State, nil
}

// brief is what entryHeader says of an entry.
type brief struct {
	fold    int
	version uint64
	lastSeq uint64
	open    bool
	// wish is what wishOf says of the intent.
	wish string
}

func briefOf(s operation.State) brief {
	return brief{fold: operation.FoldVersion, version: s.Version, lastSeq: s.LastSeq, open: isOpen(s), wish: wishOf(s.Intent)}
}

// isOpen reports whether anything may still happen by itself or by a person.
func isOpen(s operation.State) bool {
	more := s.NextAction != "" && s.NextAction != events.NextNone
	return s.Version > 0 && (!s.Status.Final() || s.Review != nil || more)
}

func (b brief) String() string {
	word := "closed"
	if b.open {
		word = "open"
	}
	out := make([]byte, 0, 64)
	out = append(strconv.AppendInt(out, int64(b.fold), 10), ' ')
	out = append(strconv.AppendUint(out, b.version, 10), ' ')
	out = append(strconv.AppendUint(out, b.lastSeq, 10), ' ')
	if out = append(out, word...); b.wish != "" {
		out = append(append(out, ' '), b.wish...)
	}
	return string(out)
}

// briefIn reads the header of an entry, or the entry itself if there is none.
// ok is false if neither can be read.
func briefIn(v value) (b brief, ok bool) {
	var word string
	if n, _ := fmt.Sscanf(v.header.Get(entryHeader), "%d %d %d %s %s", &b.fold, &b.version, &b.lastSeq, &word, &b.wish); n >= 4 {
		b.open = word == "open"
		return b, true
	}
	s, err := decodeState(v.data)
	if err != nil {
		return brief{}, false
	}
	return briefOf(s), true
}

func entryKey(tenant, operationID string) string { return tenant + "." + operationID }

func splitKey(key string) (tenant, operationID string, ok bool) { return strings.Cut(key, ".") }

// decodeRecord decodes what Log.Walk passed. An event under the subject of
// another operation is malformed, as it is for Log.Load.
func decodeRecord(r events.Record, tenant, operationID string) events.Record {
	d := events.DecodeRecord(r.Subject, r.Seq, r.Stamp, r.Body)
	if d.Err == nil && (d.Tenant != tenant || d.Operation != operationID) {
		return events.Record{
			Seq: r.Seq, Stamp: r.Stamp, Body: r.Body, Subject: r.Subject,
			Err: fmt.Errorf("%w: the event names another operation than its subject", events.ErrMalformed),
		}
	}
	return d
}
