// Package schema holds the JSON Schemas (draft 2020-12) of the events, for
// programs in other languages. They describe what this version writes; readers
// keep members and values that they do not know.
package schema

import (
	"embed"
	"io/fs"
)

//go:embed v1/*.json
var files embed.FS

// FS returns the schemas: v1/envelope.json for what every event carries, one
// file per kind, and v1/system.json for records that belong to no operation.
func FS() fs.FS { return files }
