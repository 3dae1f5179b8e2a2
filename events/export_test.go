package events

import "regexp"

// Scan and DecodeAny are the two ways in which Decode reads a body.
var (
	Scan      = scan
	DecodeAny = decodeAny
)

// IDPattern is the rule that CheckID holds.
var IDPattern = regexp.MustCompile(idPattern)
