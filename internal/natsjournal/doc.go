// Package natsjournal is the journal of the ledger on NATS JetStream: the
// streams and buckets, the append with its compare-and-swap, the reads, the
// consumers and the one place where JetStream's errors are translated.
//
// # The append
//
// An event goes to the subject of its operation with
// Nats-Expected-Last-Subject-Sequence: exact subject, no filter (overlapping
// filters admit two winners on a replicated stream). At most one message can
// ever follow a sequence number on its subject. So whatever happens on the way,
// the same event may be published again for ever, and the question "did it
// succeed" has one answer: the first message on the subject after the expected
// sequence, as the stream's leader has it. Append never guesses: anything but a
// plain acknowledgement is resolved by publishing the same event once more,
// waiting for that answer, and then asking the leader. No answer, no verdict
// (ErrNoVerdict).
//
// # What it never does
//
// It never decides, never folds, never re-bases a lost append, never deletes
// from the journal and never changes a stream that exists.
//
// Invariants held here: I10 an acknowledged intent is never lost (the inbox
// acknowledges after the handler returned), I13 one chain per operation, I14 a
// message that is malformed is passed on as such and stops nothing.
package natsjournal
