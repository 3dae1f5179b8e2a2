// Package operation is the pure core of the ledger: what it knows of one
// operation (State, Evolve) and what may happen next (Next, Answered, Looked,
// Decided).
//
// Nothing here waits, reads a clock, draws a random number, logs or talks to
// the world: time, random values and new ids are parameters, events are
// returned for somebody else to append. So the same code runs against the real
// log, in an exhaustive search over short histories and in a seeded simulation.
//
// # Why the status is computed
//
// Each attempt is kept by itself, and the status follows from the attempts and
// the final event. A table that sets the status per event loses attempts: a late
// "not applied" of attempt 1 would hide that attempt 2 is still open, and two
// attempts would be open after six events. Permits, reviews, holds and
// approvals are attributes beside the status, so that opening a review never
// makes the count of unknowns fall while nothing has become known.
//
// # Why unknown is never a licence
//
// After an attempt whose outcome is unknown, Next returns an attempt only with
// a recorded permit (I4), and a permit has one of four bases: the provider's
// promise about the key, proven absence, a person, or a risk that the approval
// declared. An empty look inside the bounds of the contract is inconclusive
// (I11), whoever asked.
//
// Invariants held here: I1 final is final, I3 at most one attempt open, I4 no
// attempt beside an unresolved one without a permit, I5 key permits end before
// the retention does, I11 empty is not absent, I12 every operation that is not
// final has a next action, an open review, a hold, or was closed as
// undetermined.
package operation
