package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// acceptance are the rows that there must be, by group.
func acceptance() []string {
	var out []string
	for _, line := range []string{
		"A 1 2 3 4 5 6 7 10 11 13 14 15 17 18 20", "B 22 24 25 26 28 30 31 32", "C 33 35 37 38 39 42 43",
		"D 45 46 48 49 51 52 54 55 56 58", "E 60 61 62 63 64 66 68", "F 69 70 71 72 74 76 77 78",
		"G 80 81 83 85 86 87", "H 89 91 93 94 96 97 98",
	} {
		group, rows, _ := strings.Cut(line, " ")
		for row := range strings.FieldsSeq(rows) {
			out = append(out, group+row)
		}
	}
	return out
}

// testsOfTheRepository are the names of all tests and of the stories of the core.
func testsOfTheRepository(t *testing.T) []string {
	t.Helper()
	var out []string
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]*)\(`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			body, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range declared.FindAllStringSubmatch(string(body), -1) {
				out = append(out, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	stories, err := filepath.Glob("../operation/testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stories {
		out = append(out, filepath.Base(s))
	}
	return out
}

// The page of the acceptance cases has every row, each row has a test or says why
// it has none, each name exists, and a test that names a row is listed there.
func TestEveryAcceptanceCaseNamesItsTests(t *testing.T) {
	t.Parallel()
	known := testsOfTheRepository(t)
	row, name := regexp.MustCompile(`^\| ([A-H]\d+) \|`), regexp.MustCompile("`([^`]+)`")
	var rows []string
	listed := make(map[string][]string) // rows by test
	for line := range strings.Lines(read(t, "cases.md")) {
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || strings.TrimSpace(cells[2]) == "" || strings.TrimSpace(cells[3]) == "" {
			t.Errorf("row %s has %d cells, want row, report, what went wrong, tests", m[1], len(cells)-2)
			continue
		}
		rows = append(rows, m[1])
		names := name.FindAllStringSubmatch(cells[4], -1)
		if len(names) == 0 && !strings.HasPrefix(strings.TrimSpace(cells[4]), "none: ") {
			t.Errorf("row %s has no test and does not say why", m[1])
		}
		for _, n := range names {
			if !slices.Contains(known, n[1]) {
				t.Errorf("row %s: there is no %s", m[1], n[1])
			}
			listed[n[1]] = append(listed[n[1]], m[1])
		}
	}
	if !slices.Equal(rows, acceptance()) {
		t.Errorf("got rows %v, want %v", rows, acceptance())
	}
	named, id := regexp.MustCompile(`^TestCase((?:And)?[A-H]\d+)+`), regexp.MustCompile(`[A-H]\d+`)
	for _, n := range known {
		for _, want := range id.FindAllString(named.FindString(n), -1) {
			if !slices.Contains(listed[n], want) {
				t.Errorf("%s is not listed at row %s", n, want)
			}
		}
	}
}
