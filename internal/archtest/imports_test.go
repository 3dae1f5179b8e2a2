// Package archtest_test holds the map of the rooms against the imports: who
// imports what, what the core must not touch, where the clock is read.
package archtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/opledger/opledger"
	root   = "../.."
)

// room is one folder of the map: what it may import of ours and of others.
type room struct {
	ours  []string
	third []string
	// anyOurs and anyThird: it wires everything, or is for tests only.
	anyOurs, anyThird bool
	// never lists what must not be reached, not even through others.
	never []string
}

const (
	natsClient = "github.com/nats-io/nats.go"
	natsServer = "github.com/nats-io/nats-server/v2"
	nuid       = "github.com/nats-io/nuid"
	uuid       = "github.com/google/uuid"
	yaml       = "go.yaml.in/yaml/v3"
	jsonschema = "github.com/santhosh-tekuri/jsonschema/v6"
	jcs        = "github.com/gowebpki/jcs"
	prometheus = "github.com/prometheus/client_golang"
	cobra      = "github.com/spf13/cobra"
	progress   = "github.com/schollz/progressbar/v3"
	term       = "golang.org/x/term"
	sys        = "golang.org/x/sys"
	porcupine  = "github.com/anishathalye/porcupine"
)

// rooms is the map. docs/architecture.md shows it; a room that is missing here
// or there fails.
func rooms() map[string]room {
	noBus := []string{natsClient, natsServer}
	return map[string]room{
		"events":                 {third: []string{uuid}, never: append(noBus, "net/http", "log/slog")},
		"events/schema":          {never: noBus},
		"operation":              {ours: []string{"events"}, never: append(noBus, "net/http", "log/slog")},
		"api":                    {ours: []string{"events", "operation"}, never: noBus},
		"providers":              {ours: []string{"events", "operation"}, third: []string{yaml, jsonschema}, never: noBus},
		"providers/catalogue":    {ours: []string{"providers"}, never: noBus},
		"providers/providertest": {ours: []string{"operation", "providers"}, never: noBus},
		"providers/simulator":    {third: []string{uuid}, never: noBus},
		"projections":            {ours: []string{"events", "operation"}, third: []string{natsClient}, never: []string{natsServer}},
		"intake":                 {ours: []string{"api", "events", "operation"}, third: []string{jcs}, never: noBus},
		"executor":               {ours: []string{"events", "internal/clock", "internal/dispatch", "operation", "providers"}, never: noBus},
		"reconciler":             {ours: []string{"events", "internal/clock", "internal/dispatch", "operation", "providers"}, never: noBus},
		"internal/access":        {ours: []string{"api", "events"}, never: noBus},
		"internal/barrier":       {third: []string{sys}, never: noBus},
		"internal/clock":         {never: noBus},
		"internal/config":        {ours: []string{"events", "internal/access", "providers"}, third: []string{yaml}, never: noBus},
		"internal/integrity":     {ours: []string{"events"}, never: noBus},
		"internal/dispatch":      {ours: []string{"events", "operation"}, never: noBus},
		"internal/metrics":       {ours: []string{"events", "operation", "executor", "reconciler"}, third: []string{prometheus}, never: noBus},
		"internal/natsapi":       {ours: []string{"api", "events"}, third: []string{natsClient}, never: []string{natsServer}},
		"internal/natsjournal":   {ours: []string{"events"}, third: []string{natsClient, nuid, uuid}, never: []string{natsServer}},
		"internal/natswork":      {ours: []string{"events", "providers"}, third: []string{natsClient}, never: []string{natsServer}},
		"internal/pool":          {never: noBus},
		"internal/writer":        {ours: []string{"events", "operation"}, never: noBus},
		"internal/node":          {anyOurs: true, third: []string{natsClient, natsServer, prometheus}, never: []string{module + "/providers/simulator"}},
		"internal/bench":         {ours: []string{"", "api", "events", "internal/access", "internal/child", "operation", "providers", "providers/simulator"}, third: []string{natsClient, natsServer}},
		"internal/child":         {never: noBus},
		"internal/kills":         {ours: []string{"", "api", "events", "internal/access", "internal/child", "internal/natsjournal", "operation", "providers", "providers/simulator"}, third: []string{natsClient, porcupine}, never: []string{natsServer}},
		"internal/kills/run":     {ours: []string{"internal/kills"}},
		"internal/fill":          {ours: []string{"events", "internal/access", "internal/config", "internal/integrity", "internal/natsjournal", "internal/node", "providers", "providers/simulator"}, third: []string{natsClient, natsServer}},
		"internal/fill/run":      {ours: []string{"internal/config", "internal/fill"}},
		"internal/fill/growth":   {ours: []string{"internal/bench", "internal/config", "internal/fill"}},
		"internal/demo":          {anyOurs: true, anyThird: true},
		"internal/trial":         {anyOurs: true, third: []string{yaml}, never: noBus},
		"internal/memledger":     {anyOurs: true, anyThird: true, never: noBus},
		"internal/sim":           {anyOurs: true, anyThird: true, never: []string{natsServer}},
		"internal/sim/run":       {anyOurs: true, never: []string{natsServer}},
		"internal/natstest":      {anyOurs: true, anyThird: true},
		"internal/archtest":      {},
		"":                       {ours: []string{"api", "events", "operation"}, third: []string{natsClient}, never: []string{natsServer}},
		"cmd/opledger":           {anyOurs: true, third: []string{natsClient, natsServer, prometheus, cobra, progress, term}},
	}
}

// withoutRoom are folders that hold tests or files only, no code of ours.
func withoutRoom() []string { return []string{"deploy", "docs", "examples"} }

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	GoFiles    []string
	Standard   bool
	Dir        string
}

func (p pkg) room() (string, bool) {
	if p.ImportPath == module {
		return "", true
	}
	return strings.CutPrefix(p.ImportPath, module+"/")
}

// list runs go list once; packages that do not compile are listed all the same.
func list(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-json=ImportPath,Imports,Deps,GoFiles,Standard,Dir", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	all := map[string]pkg{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func within(path string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") })
}

// Each room imports only what the map allows, and reaches nothing that it must
// never reach, not even through others. A room without a row fails.
func TestRoomsImportOnlyWhatTheMapAllows(t *testing.T) {
	t.Parallel()
	all, table, seen := list(t), rooms(), map[string]bool{}
	for _, p := range all {
		name, ours := p.room()
		if !ours {
			continue
		}
		r, ok := table[name]
		if !ok {
			if len(p.GoFiles) > 0 && !slices.Contains(withoutRoom(), name) {
				t.Errorf("room %q is not on the map (rooms in this file, and docs/architecture.md)", name)
			}
			continue
		}
		seen[name] = true
		for _, i := range p.Imports {
			other, isOurs := pkg{ImportPath: i}.room()
			switch {
			case standard(i):
			case isOurs && !r.anyOurs && !slices.Contains(r.ours, other):
				t.Errorf("%q imports our room %q", name, other)
			case !isOurs && !r.anyThird && !within(i, r.third):
				t.Errorf("%q imports %s", name, i)
			}
		}
		for _, i := range slices.Concat(p.Imports, p.Deps) {
			if within(i, r.never) {
				t.Errorf("%q reaches %s", name, i)
			}
		}
	}
	for name := range table {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil || !seen[name] {
			t.Errorf("room %q is on the map, but not in the module", name)
		}
	}
}

// The core is pure: nothing that waits, logs, draws or talks.
func TestCoreTouchesNothingOutside(t *testing.T) {
	t.Parallel()
	forbidden := []string{"context", "net", "os", "log", "math/rand", "crypto/rand", "sync", "syscall", "io", "runtime", "testing", "unsafe", "reflect"}
	all := list(t)
	for _, name := range []string{"events", "operation"} {
		p := all[module+"/"+name]
		if len(p.GoFiles) == 0 {
			t.Fatalf("%s has no files", name)
		}
		for _, i := range p.Imports {
			if within(i, forbidden) {
				t.Errorf("%s imports %s", name, i)
			}
		}
	}
}

// clockCalls are the functions that read the clock, wait for it, or draw.
var clockCalls = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"uuid": {"New", "NewString", "NewUUID", "NewV6", "NewV7", "NewRandom", "Must"},
}

// The core reads no clock and draws nothing; only events.NewID mints an id.
func TestCoreReadsNoClock(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"events", "operation"} {
		dir := filepath.Join(root, name)
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				fn, isFunc := d.(*ast.FuncDecl)
				if isFunc && name == "events" && fn.Name.Name == "NewID" {
					continue
				}
				ast.Inspect(d, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						if x, ok := s.X.(*ast.Ident); ok && slices.Contains(clockCalls[x.Name], s.Sel.Name) {
							t.Errorf("%s: %s.%s", fset.Position(s.Pos()), x.Name, s.Sel.Name)
						}
					}
					if g, ok := n.(*ast.GoStmt); ok {
						t.Errorf("%s: a goroutine in the core", fset.Position(g.Pos()))
					}
					return true
				})
			}
		}
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// docs/architecture.md shows the same map.
func TestArchitectureShowsTheMap(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatal("docs/architecture.md is missing")
	} else if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	inside := false
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if strings.TrimSpace(cells[0]) == "room" {
			inside = true
		}
		if !strings.HasPrefix(line, "|") {
			inside = false
		}
		if !inside || len(cells) < 4 {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[0], -1) {
			name := m[1]
			if strings.Contains(cells[0], "root") {
				name = ""
			}
			rows[name] = cells[2]
		}
	}
	for name, r := range rooms() {
		shown, ok := rows[name]
		if !ok {
			if name != "events/schema" && name != "internal/archtest" {
				t.Errorf("room %q is missing in docs/architecture.md", name)
			}
			continue
		}
		delete(rows, name)
		if r.anyOurs {
			continue
		}
		// What is shown is what is imported, which may be less than allowed.
		for _, m := range quoted.FindAllStringSubmatch(shown, -1) {
			if !slices.Contains(r.ours, m[1]) {
				t.Errorf("docs/architecture.md lets %q import %q", name, m[1])
			}
		}
	}
	for name := range rows {
		t.Errorf("docs/architecture.md shows the room %q, which is not on the map", name)
	}
}
