// Package intake is the only way in: an intent is checked, frozen, journaled
// and answered; evidence, approvals and decisions come in the same way.
//
// A repeat of an operation id with the same content returns the stored state;
// with other content it is a conflict, nothing is stored and nothing is sent
// (I6). Digests are computed here, from the bytes that were received: canonical
// JSON (RFC 8785) after schema binding, behind a guard that refuses what two
// writers could canonicalise differently. An intent that was answered is in the
// log (I10).
//
// Intake knows no bus: package internal/natsapi carries it over NATS.
package intake
