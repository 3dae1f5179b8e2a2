// Package providers knows how one outside system is called and looked up, and
// what it promises.
//
// A contract file (see [Parse]) is reviewed data: the request of each action,
// what each answer means, how long a key is remembered, how an object can be
// found again. [HTTP] is the adapter that acts on such a file; [Registry] finds
// the adapter and the contract revision of an operation, for ever. An embedding
// user may write an [Adapter] of their own; package providertest holds it to
// the same rules.
//
// The package never repeats a request, never decides what a look proves, and
// never writes to the journal. An answer is data ([operation.Outcome]); what
// this package does not understand is uncertain, so that a forgotten case fails
// safe.
//
// Invariants, by their numbers in the protocol:
//
//   - I5, the half that is ours: the bytes of a request depend only on the
//     frozen intent, the contract revision and the account.
//   - I8: every look says under which account it was made.
//   - I17: the key that a provider gets never depends on the attempt.
//   - I18: no secret, key or argument in errors, reasons or log values.
//
// And of its own:
//
//   - P1: one attempt is at most one request on the wire. Go's transport
//     repeats a request with an Idempotency-Key header on a broken reused
//     connection by itself; here it can't.
//   - P2: not_sent is said only where no byte of the request was, or will be,
//     handed to the connection.
//   - P3: no rule, no verdict: an answer that no rule of the contract matches
//     is uncertain, and so is one that can't be read.
//   - P4: a contract that could permit an unsafe repeat is refused when it is
//     loaded.
//   - P5: the requests of an account go to its own host only, and to no address
//     that is refused.
package providers
