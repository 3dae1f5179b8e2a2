// Package simulator plays an outside provider, a small CRM with tasks, with
// every kind of fault that a real provider shows. It is an HTTP server: tests
// run it in-process, and `opledger sim` runs it as a process of its own. Any
// other client can be run against it.
//
// Its object table is the truth. A test that asks "how often did the effect
// happen" counts the rows of that table through the admin API, and never
// believes an answer on the provider surface.
//
// The provider surface is every path outside /_sim/:
//
//	POST /v1/tasks        create a task; honours Idempotency-Key when keys are on
//	PUT  /v1/tasks/{id}   create a task under an id that the client chose
//	GET  /v1/tasks/{id}   direct read
//	GET  /v1/tasks        search by label and title, with limit and cursor
//	GET  /v1/account      the account of the bearer token
//
// The admin surface is under /_sim/; [Client] is the typed client for it.
//
// Faults are rules (see [Rule]); the standing behaviour is in [Settings].
//
// The package imports no other package of opledger, calls no other system,
// and keeps everything in memory. It never repairs what a fault broke.
//
// Invariants, which the tests name by number:
//
//   - S1: a commit is atomic; an object is either in the truth table with all
//     its fields, or was never there.
//   - S2: an object never leaves the truth table, except by a reset; a deleted
//     object stays with deleted_at.
//   - S3: the request log has exactly one row for each provider request that
//     was read off a connection, whatever fault followed. It therefore counts
//     wire sends. The network's second delivery (duplicate_delivery) adds no row.
//   - S4: a request that gets the answer 401, 422, or one from a fault that
//     does not commit, leaves no object.
//   - S5: a request that runs across a reset changes nothing after the reset.
package simulator
