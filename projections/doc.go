// Package projections is the journal folded into NATS KV: what the ledger
// knows of each operation, readable in one step, and never the truth itself.
//
//   - Store reads entries of the bucket of operations, and folds from the log
//     where an entry is missing or too old.
//   - Projector writes the entries, Rebuild makes them anew, Verify compares.
//   - Index keeps the open operations in memory, ordered by due time.
//   - Claims holds the exclusive right to try the next attempt.
//   - Contracts keeps every contract revision in use, by digest.
//
// # Why it may lag
//
// Nothing depends on the freshness of an entry for safety: who appends compares
// with the log, and who needs the truth folds from it (Store.Truth). So entries
// need no wait for the disk, may be lost, and are made anew from the log.
//
// # Why entries are compared by sequence
//
// An entry says up to which message of its subject it folds. The projector
// writes under compare-and-swap on the entry's revision and only ever replaces
// an entry by one that folds further, so several projectors, redeliveries and a
// rebuild on the running system can't take an operation back. The fold is
// deterministic and so is its encoding: equal logs give equal bytes (I9).
//
// The package never writes an event of an operation and never decides.
//
// Invariants held here: I9 projection = fold(log), rebuild = live; I13 Verify
// finds gaps and broken chains; I14 one bad message or operation never stops
// the others.
package projections
