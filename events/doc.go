// Package events is the wire vocabulary of the ledger, and nothing else: the
// kinds of event, their fields, the CloudEvents envelope, the subjects they
// live on and the ids they may carry.
//
// Every event is a CloudEvent in structured JSON mode. The envelope carries
// what generic tools need (id, type, source, subject, time); the member "data"
// carries everything else in snake_case, flat, so that one line of an export is
// one self-describing fact. The stored body is the truth: it is hashed by the
// next event of the same operation (member "prev"), and it is never rewritten.
// Whoever copies events copies Record.Body, so members that this version does
// not know survive every copy.
//
// The package never talks to a network, never reads a clock and never decides.
// Format v1 is additive only: a field may be added, none is removed, renamed or
// given another meaning. testdata/v1 holds events of every released version;
// they must decode for ever.
package events
