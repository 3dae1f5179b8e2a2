package events

import (
	"fmt"
	"strings"
)

// DefaultPrefix is the first token of every subject of a ledger.
const DefaultPrefix = "opledger"

// Subjects builds and reads the subjects of one ledger. The zero value uses
// DefaultPrefix. Operation and ParseOperation check the ids; the methods that
// return no error take tenants and names that were checked before.
type Subjects struct {
	// Prefix is the first token; empty means DefaultPrefix.
	Prefix string
}

func (s Subjects) prefix() string {
	if s.Prefix == "" {
		return DefaultPrefix
	}
	return s.Prefix
}

// Operation returns the subject that holds all events of one operation.
func (s Subjects) Operation(tenant, operation string) (string, error) {
	if err := CheckID("tenant", tenant); err != nil {
		return "", err
	}
	if err := CheckID("operation_id", operation); err != nil {
		return "", err
	}
	return s.prefix() + ".events." + tenant + "." + operation, nil
}

// ParseOperation returns tenant and operation of a subject made by Operation.
func (s Subjects) ParseOperation(subject string) (tenant, operation string, err error) {
	rest, ok := strings.CutPrefix(subject, s.prefix()+".events.")
	if !ok {
		return "", "", fmt.Errorf("%w: subject %q is not under %s.events", ErrInvalidID, clip(subject, 80), s.prefix())
	}
	tenant, operation, ok = strings.Cut(rest, ".")
	if !ok {
		return "", "", fmt.Errorf("%w: subject %q names no operation", ErrInvalidID, clip(subject, 80))
	}
	if err := CheckID("tenant", tenant); err != nil {
		return "", "", err
	}
	if err := CheckID("operation_id", operation); err != nil {
		return "", "", err
	}
	return tenant, operation, nil
}

// AllEvents is the filter for the events of every operation, or of one tenant.
func (s Subjects) AllEvents(tenant string) string {
	if tenant == "" {
		return s.prefix() + ".events.>"
	}
	return s.prefix() + ".events." + tenant + ".>"
}

// System returns the subject of records that belong to no operation.
func (s Subjects) System(name string) string { return s.prefix() + ".system." + name }

// AllSystem is the filter for every system record.
func (s Subjects) AllSystem() string { return s.prefix() + ".system.>" }

// Scope returns the subject that says which operation took a conflict scope
// last.
func (s Subjects) Scope(tenant, scope string) (string, error) {
	if err := CheckID("tenant", tenant); err != nil {
		return "", err
	}
	if err := CheckID("scope", scope); err != nil {
		return "", err
	}
	return s.prefix() + ".scopes." + tenant + "." + scope, nil
}

// AllScopes is the filter for every conflict scope.
func (s Subjects) AllScopes() string { return s.prefix() + ".scopes.>" }

// Inbox returns the subject of the durable inbox of a tenant.
func (s Subjects) Inbox(tenant string) string { return s.prefix() + ".intents." + tenant }

// Refused returns the subject that tells what the inbox could not accept.
func (s Subjects) Refused(tenant string) string { return s.prefix() + ".refused." + tenant }

// Gate returns the subject under which the intents for the durable inbox of a tenant
// arrive where the process that has the server takes them in itself.
func (s Subjects) Gate(tenant string) string { return s.prefix() + ".gate." + tenant }

// Barrier returns the subject of requests for a sync, where the server leaves that to
// the process that it is part of.
func (s Subjects) Barrier() string { return s.prefix() + ".barrier" }

// API returns the request/reply subject of a verb of the service.
func (s Subjects) API(tenant, verb string) string {
	return s.prefix() + ".api.v1." + tenant + "." + verb
}

// Work returns the subject of requests to the workers of a provider. An action
// of several tokens gives as many; ">" gives the filter for all of them.
func (s Subjects) Work(provider, action string) string {
	return s.prefix() + ".work." + provider + "." + action
}
