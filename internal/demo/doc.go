// Package demo plays what goes wrong between an agent and a provider, twice: with
// a plain retry loop and through the ledger. Ledger, executors, plain workers and
// provider are processes of their own; kills are real kills. Whether it went well
// is read from the provider's own object table, never from our opinion of it.
package demo
