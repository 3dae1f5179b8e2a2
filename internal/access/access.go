// Package access is the table of who may do what on the bus: one account per
// tenant, in it one user per role, with the subjects that it may publish and
// subscribe. The embedded server is configured from it, and a test holds
// deploy/nats.conf against it.
//
// Nobody but the ledger's own user may publish into the journal, make consumers
// or use the JetStream API (I15): a foreign Msg-Id, an expected sequence or a
// push consumer would reach past every subject permission.
//
// The accounts are there because permissions do not reach far enough: a server
// does not hold the reply subject of a request against them. The answer is
// published there by the ledger's connection or by JetStream, and both may
// publish anywhere in their account. Between accounts the server puts a reply
// subject of its own in place of the user's, and the answer comes out in the
// account of the one who asked, wherever he wants to have it.
package access

import (
	"fmt"
	"time"

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

// LedgerAccount is the account of the ledger's own user. It alone has JetStream.
const LedgerAccount = "LEDGER"

// ResponseTime is how long the server keeps the way back of a request between
// accounts open: longer than the longest wait.
const ResponseTime = 2 * time.Minute

// TenantAccount is the name of the account of a tenant's users.
func TenantAccount(tenant string) string { return "TENANT_" + tenant }

// Exchange is all that passes between the ledger's account and a tenant's: the
// ledger exports it to that account only, and the account imports it under the
// same subjects.
type Exchange struct {
	// Services are subjects of requests to the ledger; their answers come back.
	Services []string
	// Streams are subjects of messages from the ledger.
	Streams []string
}

// ExchangeOf returns the exchange of a tenant.
func ExchangeOf(s events.Subjects, tenant string) (Exchange, error) {
	if err := events.CheckID("tenant", tenant); err != nil {
		return Exchange{}, err
	}
	return Exchange{
		Services: []string{s.API(tenant, "*"), s.Inbox(tenant)},
		Streams:  []string{s.AllEvents(tenant), s.Refused(tenant)},
	}, nil
}

// Permissions are the subjects that a user may publish and subscribe. An entry
// of Subscribe may name a queue group behind a blank: then that group only.
type Permissions struct {
	Publish   []string
	Subscribe []string
	// Answers is how many messages the user may publish to the reply subject of
	// a request that it got, within WorkTime. Zero means none.
	Answers int
}

// Workers call a provider for the ledger. Those of one provider are in an account
// of their own, with the one right to take its requests and to answer them.
const (
	// WorkQueue is the queue group of all workers: a request goes to one of them.
	WorkQueue = "workers"
	// WorkTime is how long the server keeps the way back of a request to a
	// worker open.
	WorkTime = 10 * time.Minute
	// WorkAnswers bounds the signs of life of one request, its answer included.
	WorkAnswers = 1024
)

// WorkerAccount is the name of the account of a provider's workers.
func WorkerAccount(provider string) string { return "WORKERS_" + provider }

// WorkOf returns the subjects of requests that the account of a provider's
// workers exports to the ledger's, and to no other; each has many answers. The
// ledger imports them under the same subjects.
func WorkOf(s events.Subjects, provider string) (string, error) {
	if err := events.CheckID("provider", provider); err != nil {
		return "", err
	}
	return s.Work(provider, ">"), nil
}

// ForWorker returns the permissions of a worker of a provider inside the
// account of its workers. It can't listen outside the queue group, where it
// would get requests that another one gets as well.
func ForWorker(s events.Subjects, provider, user string) (Permissions, error) {
	if err := events.CheckID("user", user); err != nil {
		return Permissions{}, err
	}
	subject, err := WorkOf(s, provider)
	if err != nil {
		return Permissions{}, err
	}
	return Permissions{Subscribe: []string{subject + " " + WorkQueue}, Answers: WorkAnswers}, nil
}

// InboxPrefix returns the prefix of the reply subjects of a user. Users must
// set it on their connection: with a shared prefix a user could listen to the
// answers of the tenant's other users.
func InboxPrefix(user string) string { return "_INBOX_" + user }

// For returns the permissions of a user of a tenant inside the tenant's account.
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
