package catalogue_test

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/operation"
)

const (
	docsPath   = "../../docs/catalogue.md"
	tableStart = "<!-- table: held by a test, write it with go test ./providers/catalogue -update -->\n"
	tableEnd   = "<!-- end of table -->"
)

func TestTheDocumentShowsTheCatalogueAsItIs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), tableStart)
	old, after, closed := strings.Cut(rest, tableEnd)
	if !found || !closed {
		t.Fatalf("%s has no marks of the table", docsPath)
	}
	table := catalogueTable(subjects(t))
	if *update {
		if err := os.WriteFile(docsPath, []byte(before+tableStart+table+tableEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := gocmp.Diff(old, table); d != "" {
		t.Errorf("%s (-document +catalogue), -update writes it anew:\n%s", docsPath, d)
	}
}

func catalogueTable(all []subject) string {
	var b strings.Builder
	b.WriteString("\n| contract | action | class | key | kept | lookup | proof | a lost answer leads to |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, s := range all {
		for _, action := range s.file.Actions() {
			c, _ := s.file.Contract(action)
			raw := s.raw.Actions[action]
			fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s | %s | %s |\n",
				s.name, action, c.Class, raw.keyText(), cmp.Or(raw.Retry.Retention, "-"), raw.lookupText(), s.file.Proof, afterLoss(c))
		}
	}
	b.WriteString("\n")
	return b.String()
}

func (r rawAction) keyText() string {
	if r.Key == nil {
		return "-"
	}
	text := r.Key.In + " `" + r.Key.Name + "`"
	if r.Key.MaxLen > 0 {
		text += fmt.Sprintf(" (%d)", r.Key.MaxLen)
	}
	return text
}

func (r rawAction) lookupText() string {
	if len(r.Lookups) == 0 {
		return "-"
	}
	l := r.Lookups[0]
	text := l.Name + ", " + l.Consistency
	if l.Lag != "" {
		text += ", lag " + l.Lag
	}
	return text
}

// afterLoss says what the ledger does by itself after an unknown outcome.
func afterLoss(c operation.Contract) string {
	repeats := c.MaxAttempts > 1
	var steps []string
	switch c.Class {
	case operation.ClassKey:
		if repeats {
			steps = append(steps, fmt.Sprintf("the same key again, up to %d attempts", c.MaxAttempts))
		}
	case operation.ClassClientID:
		steps = append(steps, fmt.Sprintf("the same id again, up to %d attempts; a taken id is verified", c.MaxAttempts))
	case operation.ClassUpsert:
		steps = append(steps, fmt.Sprintf("the same upsert again, up to %d attempts, while nothing newer has its scope", c.MaxAttempts))
	case operation.ClassLabel, operation.ClassNone:
	}
	if c.Lookup.Available {
		steps = append(steps, "looks")
	}
	return strings.Join(append(steps, "a person"), "; ")
}
