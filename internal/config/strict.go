package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

var (
	unknownKey = regexp.MustCompile(`^line (\d+): field (.*) not found in type config\.(\w+)$`)
	wrongType  = regexp.MustCompile("(?s)^line (\\d+): cannot unmarshal !!\\w+(?: `(.*)`)? into (\\S+)$")
)

// explained turns the decoder's findings, which name Go types, into the words of
// the file: the line, the key, and what belongs there.
func explained(err error, data []byte) error {
	te, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return err
	}
	lines := strings.Split(string(data), "\n")
	var out []error
	for _, text := range te.Errors {
		if m := unknownKey.FindStringSubmatch(text); m != nil {
			out = append(out, errors.New("line "+m[1]+": "+unknown(m[2], m[3])))
			continue
		}
		m := wrongType.FindStringSubmatch(text)
		if m == nil {
			out = append(out, errors.New(text))
			continue
		}
		var n int
		if _, err := fmt.Sscan(m[1], &n); err != nil || n < 1 || n > len(lines) {
			n = len(lines)
		}
		key := keyOf(lines[n-1], strings.TrimSuffix(m[2], "..."))
		out = append(out, fmt.Errorf("line %s: %smust be %s", m[1], key, belongs(m[3])))
	}
	return errors.Join(out...)
}

// unknown says that a key does not exist, where it does not, and which one may
// have been meant.
func unknown(key, typeName string) string {
	for at, t := range places() {
		if t.Name() != typeName {
			continue
		}
		text := fmt.Sprintf("unknown key %s%s", key, at)
		best, distance := "", 3
		for f := range t.Fields() {
			name := f.Tag.Get("yaml")
			if d := edits(strings.ToLower(key), name); name != "" && d < distance {
				best, distance = name, d
			}
		}
		if best != "" {
			text += "; did you mean " + best + "?"
		}
		return text
	}
	return "unknown key " + key
}

// places are the parts of the file by where they stand.
func places() map[string]reflect.Type {
	return map[string]reflect.Type{
		"":                           reflect.TypeFor[Config](),
		" in nats":                   reflect.TypeFor[NATS](),
		" in tenants[]":              reflect.TypeFor[Tenant](),
		" in tenants[].users[]":      reflect.TypeFor[User](),
		" in providers[]":            reflect.TypeFor[Provider](),
		" in providers[].accounts[]": reflect.TypeFor[Account](),
		" in workers[]":              reflect.TypeFor[Worker](),
		" in executor":               reflect.TypeFor[Executor](),
		" in http":                   reflect.TypeFor[HTTP](),
		" in log":                    reflect.TypeFor[Log](),
	}
}

// keyOf returns the key that stands before a value in a line, with a blank.
func keyOf(line, value string) string {
	m := regexp.MustCompile(`([A-Za-z_]+)["']?\s*:\s*["']?` + regexp.QuoteMeta(value)).FindStringSubmatch(line)
	if m == nil {
		return ""
	}
	return m[1] + " "
}

func belongs(goType string) string {
	switch {
	case goType == reflect.TypeFor[time.Duration]().String():
		return "a duration with its unit, such as 10s, 500ms or 1h30m"
	case goType == "bool":
		return "true or false"
	case goType == "string", strings.HasSuffix(goType, ".Role"):
		return "text"
	case strings.HasPrefix(goType, "int"):
		return "a whole number"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	}
	return "a mapping of keys to values"
}

// edits is how many letters have to be added, removed or changed to turn a into
// b (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
