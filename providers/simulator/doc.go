// Package simulator plays outside providers, with every kind of fault that a
// real one shows. It is an HTTP server: tests run it in-process, and `opledger
// sim` runs it as a process of its own. Any other client can be run against it,
// a vendor's own SDK too.
//
// Its object table is the truth. A test that asks "how often did the effect
// happen" counts the rows of that table through the admin API, and never
// believes an answer on the provider surface.
//
// A preset is a dialect (routes, credential, bodies, errors) and its standing
// [Settings]. All dialects speak over one core: the object table, the keys, the
// rules, the faults and the lag of the indexes. The plain dialect, a small CRM
// with tasks, is
//
//	POST /v1/tasks        create a task; honours Idempotency-Key when keys are on
//	PUT  /v1/tasks/{id}   create a task under an id that the client chose
//	GET  /v1/tasks/{id}   direct read
//	GET  /v1/tasks        search by label and title, with limit and cursor
//	GET  /v1/account      the account of the bearer token
//
// and docs/simulator.md lists the routes of the others.
//
// The admin surface is under /_sim/; [Client] is the typed client for it.
// Faults are rules (see [Rule]); the standing behaviour is in [Settings].
//
// The package imports no other package of opledger, calls no other system,
// and keeps everything in memory. It never repairs what a fault broke.
//
// # A clock that the test moves
//
// Everything that depends on time (retention, lag, created_at, Date) follows
// Config.Now. What waits are two faults: delay, which asks Config.Sleep, and
// apply_late, which with Config.LateByClock waits for no timer: its commit
// happens before the first request, of the provider or of the admin API, that
// comes at or after its time, and carries that time as created_at. With the three
// of them a simulated run needs no real time.
//
// # How to add a dialect
//
// One file for a family of providers, with one function that returns a dialect,
// and a row for it in dialects. resend.go is a good one to begin from; linear.go
// is one for GraphQL, salesforce.go for upserts, telegram.go for a credential in
// the path.
//
//   - A comment names the source of each behaviour, and what was chosen because
//     no source says it.
//   - settings: keys and how they are kept, lag, page size, what is switched off.
//   - auth: bearer, inScheme, inHeader, basicUser, basicPassword, inPath, inBody,
//     or firstOf several. Nothing else of the request is looked at for it.
//   - label: JSON Pointers into the decoded body, for the log and the table. A
//     label that the ledger made is found without them.
//   - key: where the idempotency key is, if it is not in Idempotency-Key.
//   - errors: a shape for each trouble that can happen there, and errorBody for
//     their body. A trouble without a row has the plain shape.
//   - routes: method, pattern, what it does (op), whether it honours the key.
//     A handler checks its input, builds an object with exchange.make and returns
//     state.create; a list asks state.visible and cuts a page with pageAfter or
//     pageNumber; a read asks state.read. They decide nothing about faults.
//   - The row of the account probe in TestEveryPresetHasAnAccountAndRefusesAStranger,
//     and a test of the shapes. The table in docs/simulator.md is written by
//     go test ./providers/simulator -run Manual -update.
//
// # Invariants
//
// The tests name them by number:
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
