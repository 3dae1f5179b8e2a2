// Package kills runs the ledger as its users do, as processes of their own under a
// load that never pauses, and kills them with SIGKILL at random moments: the server,
// the workers, everything at once. In a cluster it also cuts servers and workers off
// from each other. The judge is not the ledger: what was acknowledged stands in a
// file of the load, and what happened stands in the table of the simulated
// providers, which live in this process and are never killed.
//
// It holds I1, I3, I4, I6, I9, I10, I12 and I13 against what is found. It changes
// nothing in the code that it runs, and no product code imports it.
package kills
