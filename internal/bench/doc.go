// Package bench measures the ledger as its users run it: a process of its own
// with its embedded server and the durable setting, under closed-loop callers,
// against the provider simulator in this process. Every cell measures the disk's
// own sync rate and the raw publish rate of a JetStream server beside it, since a
// figure without them says more about the machine than about the ledger. Every
// operation is judged by the simulator's object table.
package bench
