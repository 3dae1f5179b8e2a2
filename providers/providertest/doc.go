// Package providertest is the suite that every adapter must pass: what a lost
// answer, a refused connection and a redirect mean, that one attempt is one
// request on the wire, and that nothing of a request depends on the attempt.
//
// The suite runs the adapter against a [Peer], an HTTP server that counts what
// arrives and breaks connections on demand.
package providertest
