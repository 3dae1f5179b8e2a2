package sim

import (
	"time"

	"github.com/opledger/opledger/operation"
)

const (
	ledgerID   = "018f0000-0000-7000-8000-000000000000"
	leaseGrace = 10 * time.Second
	clockError = 500 * time.Millisecond
	ourAccount = "acct_1"
)

var begin = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// setting is one kind of action: a contract, and how intents of it are.
type setting struct {
	name     string
	contract operation.Contract
	risk     bool
	approval bool
	review   bool
	scoped   bool
}

// base is short: every bound of it is passed within a schedule. The margin of a
// key covers what may land late and the error of the clocks, and little more.
func base(name string, class operation.Class) operation.Contract {
	return operation.Contract{
		Provider: name, Action: "thing.create", Class: class, Proof: operation.ProofDocumented, Digest: "sha256:" + name,
		Total: 10 * time.Second, LateApply: 20 * time.Second, MaxAttempts: 3,
		Backoff: operation.Backoff{First: time.Second, Factor: 2, Max: time.Minute, Jitter: 0.5},
	}
}

func lookup(c operation.Contract, lag time.Duration) operation.Contract {
	c.Lookup = operation.Lookup{
		Available: true, Name: "by_label", Lag: lag,
		Schedule: []time.Duration{5 * time.Second, 20 * time.Second, 40 * time.Second, 2 * time.Minute},
	}
	return c
}

func keyed(c operation.Contract) operation.Contract {
	c.KeySupported, c.Retention, c.Margin = true, 8*time.Minute, 25*time.Second
	return c
}

func settings() []setting {
	k1 := keyed(base("k1-key", operation.ClassKey))
	k1safe := keyed(base("k1-safe", operation.ClassKey))
	k1safe.ConcurrentSafe = true
	k1label := lookup(keyed(base("k1-label", operation.ClassKey)), time.Minute)
	k1approval := keyed(base("k1-approval", operation.ClassKey))
	k1approval.ApprovalRequired = true
	k1assumed := keyed(base("k1-assumed", operation.ClassKey))
	k1assumed.Proof = operation.ProofAssumed
	k2 := lookup(base("k2-id", operation.ClassClientID), 0)
	k2.KeySupported, k2.Retention = true, operation.Forever
	k2weak := k2
	k2weak.Provider, k2weak.Digest, k2weak.UniqueWeak = "k2-weak", "sha256:k2-weak", true
	k3 := lookup(base("k3-upsert", operation.ClassUpsert), 0)
	k3.KeySupported, k3.Retention, k3.Scoped = true, operation.Forever, true
	k4 := lookup(base("k4-label", operation.ClassLabel), time.Minute)
	k4absent := lookup(base("k4-absent", operation.ClassLabel), 90*time.Second)
	k4absent.Absence = operation.Absence{Provable: true, Settle: 10 * time.Second, EmptyReads: 2, Spacing: 30 * time.Second}
	k4deadline := k4absent
	k4deadline.Provider, k4deadline.Digest, k4deadline.Deadline = "k4-deadline", "sha256:k4-deadline", 15*time.Minute
	k4review := k4absent
	k4review.Provider, k4review.Digest = "k4-review", "sha256:k4-review"
	k4risk := lookup(base("k4-risk", operation.ClassLabel), time.Minute)
	k4risk.RiskAllowed = true
	k4scope := k4absent
	k4scope.Provider, k4scope.Digest = "k4-scope", "sha256:k4-scope"
	k5 := base("k5-none", operation.ClassNone)
	k5risk := base("k5-risk", operation.ClassNone)
	k5risk.RiskAllowed = true
	return []setting{
		{name: "k1-key", contract: k1},
		{name: "k1-safe", contract: k1safe},
		{name: "k1-label", contract: k1label},
		{name: "k1-approval", contract: k1approval, approval: true},
		{name: "k1-assumed", contract: k1assumed},
		{name: "k2-id", contract: k2},
		{name: "k2-weak", contract: k2weak},
		{name: "k3-upsert", contract: k3, scoped: true},
		{name: "k4-label", contract: k4},
		{name: "k4-absent", contract: k4absent},
		{name: "k4-deadline", contract: k4deadline},
		{name: "k4-review", contract: k4review, review: true},
		{name: "k4-risk", contract: k4risk, risk: true, approval: true},
		{name: "k4-scope", contract: k4scope, scoped: true},
		{name: "k5-none", contract: k5},
		{name: "k5-risk", contract: k5risk, risk: true, approval: true},
	}
}
