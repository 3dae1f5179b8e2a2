package catalogue

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/opledger/opledger/providers"
)

//go:embed *.yaml
var files embed.FS

// Names lists the contracts of the catalogue, sorted.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic("catalogue: read the embedded contracts: " + err.Error())
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(out)
	return out
}

// Bytes returns a contract as it is embedded, to be copied into a file of the
// operator's own.
func Bytes(name string) ([]byte, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("catalogue: there is no contract %q; there are %s", name, strings.Join(Names(), ", "))
	}
	return files.ReadFile(name + ".yaml")
}

// Load reads a contract of the catalogue. An error wraps a [providers.LoadError]
// where the contract itself is at fault.
func Load(name string) (*providers.File, error) {
	data, err := Bytes(name)
	if err != nil {
		return nil, err
	}
	return providers.Parse(name+".yaml", data)
}
