package simulator

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const manualFile = "../../docs/simulator.md"

var update = flag.Bool("update", false, "write the table of presets in docs/simulator.md anew")

// The manual names every setting, member of a rule and fault, and its table of
// presets is that of the code.
func TestTheManualNamesEverythingThereIs(t *testing.T) {
	text, err := os.ReadFile(manualFile)
	if err != nil {
		t.Fatal(err)
	}
	manual := string(text)
	begin := strings.Index(manual, "-update -->\n") + len("-update -->\n")
	end := strings.Index(manual, "<!-- end of presets -->")
	if begin > end {
		t.Fatal("the marks of the table of presets are gone")
	}
	if table := presetTable(); manual[begin:end] != table {
		if !*update {
			t.Fatal("the table of presets is old: go test ./providers/simulator -run Manual -update")
		}
		manual = manual[:begin] + table + manual[end:]
		if err := os.WriteFile(manualFile, []byte(manual), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var words []string
	for _, member := range []any{Settings{}, Rule{}, Sends{}} {
		for field := range reflect.TypeOf(member).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			words = append(words, name)
		}
	}
	for _, f := range append(Faults(), TLSFailure) {
		words = append(words, string(f))
	}
	for _, word := range words {
		if !strings.Contains(manual[:begin], "`"+word+"`") {
			t.Errorf("docs/simulator.md does not name `%s`", word)
		}
	}
}

// presetTable is the routes of every preset. The plain ones have the same.
func presetTable() string {
	var b strings.Builder
	for i, d := range dialects() {
		fmt.Fprintf(&b, "\n### %s\n\n%s%s.\n", d.name, strings.ToUpper(d.about[:1]), d.about[1:])
		if d.plain && i > 0 {
			b.WriteString("\nThe routes are those of `" + dialects()[0].name + "`.\n")
			continue
		}
		b.WriteString("\n| request | does |\n| --- | --- |\n")
		for _, r := range d.routes {
			does := string(r.op)
			if r.keyed {
				does += ", honours the key"
			}
			if r.graphQL != nil {
				does = ""
				for j, field := range slices.Sorted(maps.Keys(r.graphQL)) {
					if j > 0 {
						does += ", "
					}
					does += "`" + field + "` (" + string(r.graphQL[field].op) + ")"
				}
			}
			fmt.Fprintf(&b, "| `%s %s` | %s |\n", r.method, r.pattern, does)
		}
	}
	b.WriteString("\n")
	return b.String()
}
