// Package providertest is the suite that every adapter must pass: what a lost
// answer, an undelivered request and a late answer mean, that one attempt is one
// delivery, and that nothing of a request depends on the attempt.
//
// [Conform] is for every kind of adapter: it runs one against an [End], the other
// end of its wire, which counts what arrives and misbehaves on demand. [Run] is
// for adapters that speak HTTP: it brings the end along, a [Peer], and adds what
// can go wrong on a connection.
package providertest
