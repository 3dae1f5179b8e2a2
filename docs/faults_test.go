package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rowsOfFaults is how many rows the fault matrix has.
const rowsOfFaults = 72

// provable are the names that a page may give for a test: tests, fuzz tests, and
// the stories of the core.
func provable(t *testing.T) []string {
	t.Helper()
	var out []string
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
	for _, path := range files(t, "..", ".go") {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range declared.FindAllStringSubmatch(read(t, path), -1) {
				out = append(out, m[1])
			}
		}
	}
	stories, err := filepath.Glob("../operation/testdata/*.txt")
	if err != nil || len(stories) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, s := range stories {
		out = append(out, filepath.Base(s))
	}
	return out
}

// checkProof fails unless a cell names tests that exist, or says in words why
// there is none.
func checkProof(t *testing.T, known []string, row, cell string) {
	t.Helper()
	names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1)
	if why, ok := strings.CutPrefix(strings.TrimSpace(cell), "none: "); ok {
		if len(names) > 0 || len(why) < 20 {
			t.Errorf("%s: names tests and says that there are none, or does not say why", row)
		}
		return
	}
	if len(names) == 0 {
		t.Errorf("%s: no test, and no reason", row)
	}
	for _, m := range names {
		if !slices.Contains(known, m[1]) {
			t.Errorf("%s: there is no test %s", row, m[1])
		}
	}
}

// cells returns the cells of a row of a table, or nil.
func cells(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "| ") || !strings.HasSuffix(line, " |") {
		return nil
	}
	out := strings.Split(line[1:len(line)-1], "|")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

// Goal: the fault matrix has all its rows in order, each says what is right, and
// names tests that exist or why there is none.
func TestEveryRowOfTheFaultMatrixNamesItsTests(t *testing.T) {
	known, next := provable(t), 1
	number := regexp.MustCompile(`^(\d+)( S)?$`)
	for line := range strings.Lines(read(t, "faults.md")) {
		row := cells(line)
		if len(row) == 0 || row[0] == "#" || strings.HasPrefix(row[0], "---") {
			continue
		}
		m := number.FindStringSubmatch(row[0])
		if m == nil || m[1] != fmt.Sprint(next) {
			t.Fatalf("row %q stands where row %d belongs", row[0], next)
		}
		if len(row) != 4 || row[1] == "" || row[2] == "" {
			t.Errorf("row %d has %d cells, want number, fault, right outcome, tests", next, len(row))
			continue
		}
		checkProof(t, known, "row "+row[0], row[3])
		next++
	}
	if next != rowsOfFaults+1 {
		t.Errorf("got %d rows, want %d", next-1, rowsOfFaults)
	}
}

// Goal: each threat of SECURITY.md has a control, and tests that exist or a reason
// why there is none.
func TestEveryThreatNamesItsControlAndItsTests(t *testing.T) {
	known, rows := provable(t), 0
	body := sections(read(t, "SECURITY.md"), "##")["What protects what"]
	for line := range strings.Lines(body) {
		row := cells(line)
		if len(row) == 0 || row[0] == "threat" || strings.HasPrefix(row[0], "---") {
			continue
		}
		rows++
		if len(row) != 3 || row[1] == "" {
			t.Errorf("%q has %d cells, want threat, control, tests", row[0], len(row))
			continue
		}
		checkProof(t, known, row[0], row[2])
	}
	if rows < 15 {
		t.Errorf("got %d threats", rows)
	}
}

// Goal: the list of fuzz tests in verification.md is that of the repository, the
// CI script runs each, and each has a corpus in its package.
func TestEveryFuzzTestIsListedRunAndHasACorpus(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func (Fuzz[A-Z]\w*)\(`)
	page := sections(read(t, "verification.md"), "##")["Fuzz"]
	ci := read(t, "../.ci/run")
	n := 0
	for _, path := range files(t, "..", ".go") {
		for _, m := range declared.FindAllStringSubmatch(read(t, path), -1) {
			n++
			dir := filepath.ToSlash(filepath.Dir(strings.TrimPrefix(path, "../")))
			if !strings.Contains(page, "| `"+m[1]+"` | `"+dir+"` |") {
				t.Errorf("verification.md does not list %s of %s", m[1], dir)
			}
			if !regexp.MustCompile(`(?m)^\s*` + dir + ` ` + m[1] + `\b`).MatchString(ci) {
				t.Errorf(".ci/run fuzz does not run %s of %s", m[1], dir)
			}
			corpus, err := os.ReadDir(filepath.Join(filepath.Dir(path), "testdata", "fuzz", m[1]))
			if err != nil || len(corpus) == 0 {
				t.Errorf("%s has no corpus: %v", m[1], err)
			}
			for _, f := range corpus {
				if info, err := f.Info(); err != nil || info.Size() > 4096 {
					t.Errorf("%s: the seed %s is too large, %v", m[1], f.Name(), err)
				}
			}
		}
	}
	if n < 10 || n != strings.Count(page, "| `Fuzz") {
		t.Errorf("the repository has %d fuzz tests, verification.md lists %d", n, strings.Count(page, "| `Fuzz"))
	}
}

// Goal: the bounds that limits.md names are those of the code.
func TestBoundsInTheLimitsAreThoseOfTheCode(t *testing.T) {
	body := sections(read(t, "limits.md"), "##")["Bounds"]
	got := map[string]string{}
	for line := range strings.Lines(body) {
		if row := cells(line); len(row) == 2 {
			got[row[0]] = row[1]
		}
	}
	for what, bound := range bounds() {
		if !strings.Contains(got[what], bound) {
			t.Errorf("limits.md says %q of %s, the code says %s", got[what], what, bound)
		}
	}
}
