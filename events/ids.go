package events

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// ErrInvalidID is returned for an id that could become part of a subject and
// does not follow the strict rule. Such ids are refused, never rewritten:
// servers and clients accept "*", ">" and look-alike letters as literal
// subjects, and a very long token closes the whole connection.
var ErrInvalidID = errors.New("events: invalid id")

// MaxIDLength is the longest operation, tenant, provider, account or scope id,
// in bytes.
const MaxIDLength = 64

// MaxActionLength is the longest action name, in bytes.
const MaxActionLength = 128

// The rules, as they are told. They are checked by hand: every event that is
// written or read passes them several times.
const (
	idPattern     = `^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`
	actionPattern = `^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`
)

// isID reports whether an id matches idPattern.
func isID(id string) bool {
	if id == "" || len(id) > MaxIDLength {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// isAction reports whether an action matches actionPattern.
func isAction(action string) bool {
	first := true // of a token
	for i := range len(action) {
		switch c := action[i]; {
		case 'a' <= c && c <= 'z':
			first = false
		case !first && (c == '_' || '0' <= c && c <= '9'):
		case !first && c == '.':
			first = true
		default:
			return false
		}
	}
	return !first
}

// CheckID returns nil if id may name an operation, tenant, provider, account or
// scope, and an error that wraps ErrInvalidID otherwise. What names the thing
// in the error text, for example "operation_id". The error never repeats more
// than the first few bytes of the id.
func CheckID(what, id string) error {
	if isID(id) {
		return nil
	}
	return fmt.Errorf("%w: %s %q must match %s", ErrInvalidID, what, clip(id, 24), idPattern)
}

// CheckAction returns nil if action names an action, such as "task.create".
func CheckAction(action string) error {
	if len(action) <= MaxActionLength && isAction(action) {
		return nil
	}
	return fmt.Errorf("%w: action %q must match %s and have at most %d bytes",
		ErrInvalidID, clip(action, 24), actionPattern, MaxActionLength)
}

// NewID returns a new random id (UUIDv7: ordered by time of creation).
// It is used for events, attempts and permits, minted anew for each decision.
func NewID() string {
	return uuid.Must(uuid.NewV7()).String()
}

// ProviderKey derives the idempotency key that every attempt of an operation
// sends to its provider: a UUIDv5 in the name space of the ledger id. It never
// depends on the attempt (I17). ledger must be a UUID.
func ProviderKey(ledger, tenant, operation string) (string, error) {
	space, err := uuid.Parse(ledger)
	if err != nil {
		return "", fmt.Errorf("events: ledger id %q is not a UUID: %w", clip(ledger, 40), err)
	}
	return uuid.NewSHA1(space, []byte(tenant+"/"+operation)).String(), nil
}

// SourceOperationID derives the operation id of a source event: a UUIDv5 of
// source, event id and slot in the name space of the ledger and tenant. The
// same source event therefore always finds the same operation; slots keep
// several operations of one event apart.
func SourceOperationID(ledger, tenant, source, sourceEventID, slot string) (string, error) {
	space, err := uuid.Parse(ledger)
	if err != nil {
		return "", fmt.Errorf("events: ledger id %q is not a UUID: %w", clip(ledger, 40), err)
	}
	// Lengths go first, so that no two triples share one name.
	name := fmt.Sprintf("source/%s/%d:%s/%d:%s/%d:%s", tenant,
		len(source), source, len(sourceEventID), sourceEventID, len(slot), slot)
	return uuid.NewSHA1(space, []byte(name)).String(), nil
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
