package providers

import (
	_ "embed"
	"slices"
)

//go:embed contract.schema.json
var contractSchema []byte

// Schema returns a JSON Schema (draft 2020-12) of the contract format, for
// editors. It describes the shape; what a contract must not promise is for
// [Parse] to say.
func Schema() []byte { return slices.Clone(contractSchema) }
