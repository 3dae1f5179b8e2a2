// Package trial runs operations of one contract action through the real intake,
// core, executor, reconciler and HTTP adapter against the provider simulator, in
// one process and under a virtual clock, and tells how they ended. So a schedule
// of hours and a retention of a day take milliseconds.
//
// What is real: every decision, every event, every request on a loopback
// connection. What is played: the log (package memledger, with its compare and
// swap), the provider (package simulator), the network between the two, and the
// clock, which is one and the same for the ledger and for the provider, stands
// still while anything moves, and jumps to the next thing that is due when
// nothing does.
//
// One thing is scaled: the timer that ends the wait for an answer. Where the
// network is told to keep an answer back for longer than the contract's total
// time, the executor gets a contract whose total is [heldTotal], and a grace that
// makes its lease as long as it would be; when that timer fires, the clock jumps
// by the total that the contract declares. So lease, backoff, late apply, key
// window and schedule are computed in virtual time from what the contract
// declares. Only duration_ms of that one outcome shows the scaled time.
//
// The provider's own object table is the truth that a run is judged by, never an
// answer. The package never talks to anything but the simulator it started, save
// for a [Try] that is told to.
package trial
