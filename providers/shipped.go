package providers

import (
	"embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

//go:embed contracts/*.yaml
var shipped embed.FS

// marker is @{name=default} in a shipped contract.
var marker = regexp.MustCompile(`@\{([a-z_]+)=([^}\n]*)\}`)

// Shipped lists the contracts that come with the ledger, for its simulator:
// sim-crm (K4), sim-keyed (K1), sim-keyed-nolookup (K1), sim-unique (K2),
// sim-upsert (K3) and sim-nothing (K5).
func Shipped() []string {
	entries, err := shipped.ReadDir("contracts")
	if err != nil {
		panic("providers: read the embedded contracts: " + err.Error())
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(out)
	return out
}

// Template returns a shipped contract as bytes. Its markers @{name=default} get
// the given values, so that a demo or a test can scale times; a contract that
// is in force stays data. A name that the contract does not have is an error.
func Template(name string, vars map[string]string) ([]byte, error) {
	data, err := shipped.ReadFile("contracts/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("providers: no shipped contract %q; there are %v", clip(name), Shipped())
	}
	left := maps.Clone(vars)
	out := marker.ReplaceAllFunc(data, func(m []byte) []byte {
		parts := marker.FindSubmatch(m)
		v, given := vars[string(parts[1])]
		if !given {
			return parts[2]
		}
		delete(left, string(parts[1]))
		return []byte(v)
	})
	for v, value := range vars {
		if _, unused := left[v]; unused {
			return nil, fmt.Errorf("providers: contract %s has no marker %q", name, clip(v))
		}
		if strings.ContainsAny(value, "\r\n#\"'") {
			return nil, fmt.Errorf("providers: the value of %q must be plain text on one line", clip(v))
		}
	}
	return out, nil
}

// Load reads a shipped contract with its defaults.
func Load(name string) (*File, error) { return LoadWith(name, nil) }

// LoadWith reads a shipped contract with other values of its markers.
func LoadWith(name string, vars map[string]string) (*File, error) {
	data, err := Template(name, vars)
	if err != nil {
		return nil, err
	}
	return Parse(name+".yaml", data)
}
