// Package node puts the parts of the ledger together: the embedded server or the
// connection to an external one, the journal, the projection, and the roles that
// a process plays. It holds no rule of the protocol.
//
// Stopping a node takes no more requests, lets attempts under way end within
// the drain time, records what is not known as unknown, writes the projector's
// checkpoint, and closes the connection and the server, in this order (I20). A
// node that is killed at any moment loses nothing that was acknowledged.
package node
