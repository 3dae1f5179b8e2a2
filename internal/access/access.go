// Package access is the table of who may do what on the bus: one user per role
// and tenant, with the subjects that it may publish and subscribe. The embedded
// server is configured from it, and a test holds deploy/nats.conf against it.
//
// Nobody but the ledger's own user may publish into the journal, make consumers
// or use the JetStream API (I15): a foreign Msg-Id, an expected sequence or a
// push consumer would reach past every subject permission.
package access

import (
	"fmt"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
)

// Role is what a user of a tenant may do.
type Role string

// The roles of a tenant's users.
const (
	// RoleAgent hands in intents and reads their state.
	RoleAgent Role = "agent"
	// RoleApprover also approves.
	RoleApprover Role = "approver"
	// RoleOperator also decides and hands in evidence.
	RoleOperator Role = "operator"
	// RoleWebhook hands in evidence.
	RoleWebhook Role = "webhook"
	// RoleReader reads state and follows the tenant's events.
	RoleReader Role = "reader"
)

// Roles lists every role.
func Roles() []Role {
	return []Role{RoleAgent, RoleApprover, RoleOperator, RoleWebhook, RoleReader}
}

// Permissions are the subjects that a user may publish and subscribe.
type Permissions struct {
	Publish   []string
	Subscribe []string
}

// InboxPrefix returns the prefix of the reply subjects of a user. Users must
// set it on their connection: a shared prefix would let one tenant listen to
// the answers of another.
func InboxPrefix(user string) string { return "_INBOX_" + user }

// For returns the permissions of a user of a tenant.
func For(s events.Subjects, tenant, user string, role Role) (Permissions, error) {
	if err := events.CheckID("tenant", tenant); err != nil {
		return Permissions{}, err
	}
	if err := events.CheckID("user", user); err != nil {
		return Permissions{}, err
	}
	p := Permissions{Subscribe: []string{InboxPrefix(user) + ".>"}}
	verbs := []string{api.VerbGet, api.VerbWait, api.VerbList}
	switch role {
	case RoleAgent:
		verbs = append(verbs, api.VerbSubmit, api.VerbCancel)
		p.Publish = append(p.Publish, s.Inbox(tenant))
		p.Subscribe = append(p.Subscribe, s.Refused(tenant))
	case RoleApprover:
		verbs = append(verbs, api.VerbApprove)
	case RoleOperator:
		verbs = append(verbs, api.VerbApprove, api.VerbDecide, api.VerbCancel, api.VerbEvidence, api.VerbSubmit)
		p.Subscribe = append(p.Subscribe, s.Refused(tenant), s.AllEvents(tenant))
	case RoleWebhook:
		verbs = []string{api.VerbEvidence}
	case RoleReader:
		p.Subscribe = append(p.Subscribe, s.Refused(tenant), s.AllEvents(tenant))
	default:
		return Permissions{}, fmt.Errorf("access: role %q is not one of %v", role, Roles())
	}
	for _, v := range verbs {
		p.Publish = append(p.Publish, s.API(tenant, v))
	}
	return p, nil
}
