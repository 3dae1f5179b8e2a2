// Package sim runs the real parts of the ledger in a single thread, under a
// scheduler that makes every choice from one seed: who goes on next, how long a
// call takes, what is lost, late, doubled or wrong, who crashes, whose clock
// jumps, and what the provider does with a request.
//
// What runs is the code that ships: the decisions of package operation, the
// executor, the reconciler, the writer, intake and the projector. What is played
// is what they talk to: the log, the buckets, the clocks, the network, the
// provider, people. After every event and every effect at the provider the
// invariants are checked against an account of their own (oracle.go) and against
// the provider's table, never against the ledger's opinion.
//
// A schedule is a function of its seed: the same seed gives the same transcript,
// byte for byte. Planted bugs (bugs.go) wrap the real parts; each must be found.
package sim
