package trial_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/operation"
)

var update = flag.Bool("update", false, "write docs/matrix.md anew")

// short writes a cell as the expected table does.
func short(c trial.Cell) string {
	ending := strings.NewReplacer(
		"confirmed (response)", "answer", "confirmed (lookup)", "look", "confirmed (late_response)", "late",
		"rejected (response)", "refused", "rejected (absence)", "absent",
		"unknown, review: ", "review ", ", duplicate found, review: duplicate_found", " + duplicate",
	).Replace(c.Report.Ending())
	return fmt.Sprintf("%s %d/%d", ending, c.Report.Objects, c.Report.Sent)
}

// table reads the expected table: by fault and column.
func table(t *testing.T) (faults []string, cells map[string]map[string]string) {
	t.Helper()
	cells = make(map[string]map[string]string)
	var head []string
	for line := range strings.Lines(strings.TrimSpace(expected)) {
		row := strings.Split(line, "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		if head == nil {
			head = row
			continue
		}
		if len(row) != len(head) {
			t.Fatalf("the row of %q has %d cells, want %d", row[0], len(row), len(head))
		}
		faults = append(faults, row[0])
		cells[row[0]] = make(map[string]string)
		for i, c := range row[1:] {
			cells[row[0]][head[i+1]] = c
		}
	}
	return faults, cells
}

// twins are the cells where the provider or the network makes two objects of
// one operation, and why no ledger could keep it from doing so.
func twins() map[string]string {
	const (
		network = "the network delivers one request twice, and nothing at the provider tells the two apart"
		early   = "the provider forgets the key against its word, and has no lookup that would show the object first"
		late    = "the request lands long after late_apply, when the key is forgotten"
		loose   = "the provider guards its ids loosely although it declares them strict"
		gone    = "what a person has deleted looks as if it had never been, and an upsert makes it again"
	)
	return map[string]string{
		"delivered twice/K4": network, "delivered twice/K5": network,
		"delivered twice, answer lost/K4": network, "delivered twice, answer lost/K5": network,
		"delivered again after the look/K4": network, "delivered again after the look/K5": network,
		"key forgotten at once/K1 without lookup": early,
		"applied a day late/K1":                   late, "applied a day late/K1 without lookup": late,
		"id guarded loosely/K2": loose, "id guarded loosely/K3": loose,
		"deleted by a person/K3": gone,
	}
}

// lies are the cells where the ledger is led to say what is not so, and by what.
func lies() map[string]string {
	return map[string]string{
		"answer lost, then 422, reads lie/K2": "absence was proven by direct reads that lied for an hour, against the contract",
	}
}

// Every class against every fault: what is confirmed is in the provider's table,
// what is rejected is not (I19), one object at most wherever the class makes that
// possible, and nothing is left without a next action or a person (I12). The
// expected outcome of every cell is written down; docs/matrix.md shows it.
func TestEveryClassAgainstEveryFaultEndsAsExpected(t *testing.T) {
	columns, err := trial.Columns()
	if err != nil {
		t.Fatal(err)
	}
	order, want := table(t)
	faults := trial.Faults()
	for _, f := range faults {
		if !slices.Contains(order, f.Name) {
			t.Errorf("fault %q has no row in the expected table", f.Name)
		}
	}
	var played [][]trial.Cell
	two, wrong := twins(), lies()
	for _, c := range columns {
		cells, err := c.Play(t.Context(), faults)
		if err != nil {
			t.Fatal(err)
		}
		played = append(played, cells)
		for _, cell := range cells {
			name := cell.Fault + "/" + cell.Column
			log := strings.Join(cell.Report.Events, "\n")
			if got := short(cell); got != want[cell.Fault][cell.Column] {
				t.Errorf("%s: got %q, want %q\n%s", name, got, want[cell.Fault][cell.Column], log)
			}
			if _, known := wrong[name]; (len(cell.Wrong) > 0) != known {
				t.Errorf("%s: got %q, known as led astray: %t\n%s", name, cell.Wrong, known, log)
			}
			if _, known := two[name]; (cell.Report.Objects > 1) != known {
				t.Errorf("%s: got %d objects, known to make two: %t\n%s", name, cell.Report.Objects, known, log)
			}
			seen := len(cell.Report.ExternalIDs) > 1
			if seen != cell.Report.Duplicate || (seen && cell.Report.Review == "") {
				t.Errorf("%s: the ledger knows %v, says duplicate %t and review %q", name, cell.Report.ExternalIDs, cell.Report.Duplicate, cell.Report.Review)
			}
			delete(two, name)
			delete(wrong, name)
		}
	}
	if len(two)+len(wrong) > 0 {
		t.Errorf("never played: %v, %v", two, wrong)
	}
	checkPage(t, played)
}

// checkPage holds docs/matrix.md against the matrix as played.
func checkPage(t *testing.T, played [][]trial.Cell) {
	t.Helper()
	var page bytes.Buffer
	page.WriteString(head)
	if err := trial.Markdown(&page, played); err != nil {
		t.Fatal(err)
	}
	page.WriteString("\n## Two objects, and the ledger could not help it\n\n")
	for _, list := range []map[string]string{twins(), lies()} {
		var lines []string
		for name, why := range list {
			fault, column, _ := strings.Cut(name, "/")
			lines = append(lines, fmt.Sprintf("- %s, %s: %s.\n", column, fault, why))
		}
		slices.Sort(lines)
		if _, lied := list["answer lost, then 422, reads lie/K2"]; lied {
			page.WriteString("\n## Led astray\n\n")
		}
		page.WriteString(strings.Join(lines, ""))
	}
	path := filepath.Join("..", "..", "docs", "matrix.md")
	if *update {
		if err := os.WriteFile(path, page.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, page.Bytes()) {
		t.Error("docs/matrix.md is not the matrix as played; look at what differs, then: go test ./internal/trial -run EveryFault -update")
	}
}

const head = `# Every class against every fault

Generated from a run; do not edit. Each cell is one operation that was played
through the real core, executor and reconciler against the simulator, under a
virtual clock: how it ended, how many objects the provider's own table then held,
and how many requests were on the wire. The contracts are the shipped ones
(` + "`sim-keyed`, `sim-keyed-nolookup`, `sim-unique`, `sim-upsert`, `sim-crm`,\n`sim-nothing`" + `), those with a lookup with ` + "`verify: 1`" + `: what is confirmed is looked
for once more.

A review is a question to a person, and the end of what a machine may do. Where the
provider keeps its word, there is never a second object.

` + "`opledger contract test FILE --faults`" + ` plays the same for a contract of your own.

`

// A report that contradicts the provider's table is found.
func TestJudgeFindsWhatIsNotTrue(t *testing.T) {
	t.Parallel()
	label := operation.Contract{Class: operation.ClassLabel}
	for name, r := range map[string]trial.Report{
		"confirmed without the object": {Status: operation.StatusConfirmed, ExternalID: "1"},
		"confirmed as another object":  {Status: operation.StatusConfirmed, ExternalID: "1", Objects: 1, ObjectIDs: []string{"2"}},
		"rejected with an object":      {Status: operation.StatusRejected, Objects: 1, ObjectIDs: []string{"1"}},
		"unknown and nothing next":     {Status: operation.StatusUnknown, Next: "none"},
		"unknown and nobody asked":     {Status: operation.StatusUnknown, Next: "reconcile"},
		"more requests than attempts":  {Status: operation.StatusRejected, Sent: 1},
		"two attempts without a permit": {Status: operation.StatusConfirmed, ExternalID: "1", Objects: 1, ObjectIDs: []string{"1"}, Attempts: []trial.Attempt{
			{Number: 1, State: operation.AttemptUnresolved}, {Number: 2, State: operation.AttemptApplied},
		}},
	} {
		if len(r.Judge(label)) == 0 {
			t.Errorf("%s: got no complaint", name)
		}
	}
	fine := trial.Report{Status: operation.StatusConfirmed, ExternalID: "1", Objects: 1, ObjectIDs: []string{"1"}}
	if wrong := fine.Judge(label); len(wrong) > 0 {
		t.Errorf("nothing is wrong, got %q", wrong)
	}
}
