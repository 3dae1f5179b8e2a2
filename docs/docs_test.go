// Package docs_test holds the documentation against the code: closed lists,
// metrics, links, samples and the words that must not be used.
package docs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/metrics"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func words[T ~string](list ...T) []string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = string(w)
	}
	slices.Sort(out)
	return out
}

// lists are the closed lists of the code, by their heading in closed-lists.md.
func lists() map[string][]string {
	return map[string][]string{
		"Kinds of event":                 words(events.Kinds()...),
		"Statuses":                       words(operation.Statuses()...),
		"States of an attempt":           words(operation.AttemptOpen, operation.AttemptUnresolved, operation.AttemptNotApplied, operation.AttemptRefused, operation.AttemptApplied),
		"Next actions":                   words(events.NextActions()...),
		"Reasons of OutcomeUnknown":      words(events.UnknownReasons()...),
		"Proofs of AttemptNotApplied":    words(events.Proofs()...),
		"Sources of evidence":            words(events.EvidenceSources()...),
		"Findings":                       words(events.Findings()...),
		"Bases of a permit":              words(events.Bases()...),
		"Review reasons":                 words(events.ReviewReasons()...),
		"Ways to a final event":          words(events.Vias()...),
		"Decisions":                      words(events.DecisionWords()...),
		"Choices for an unknown outcome": words(events.OnUnknowns()...),
		"Outcome words":                  words(operation.OutcomeWords()...),
		"Reasons of a step":              words(operation.Reasons()...),
		"Anomalies":                      words(operation.AnomalyReasons()...),
		"Refusals of a decision":         words(operation.RefusalReasons()...),
		"Problem codes":                  words(api.ProblemCodes()...),
		"Verbs":                          words(api.Verbs()...),
		"Roles of a user":                words(access.Roles()...),
		"Verbs of work":                  words(providers.WorkVerbs()...),
		"Contract classes":               words(operation.ClassKey, operation.ClassClientID, operation.ClassUpsert, operation.ClassLabel, operation.ClassNone),
		"Grades of a promise":            words(operation.ProofDocumented, operation.ProofVerifiedLive, operation.ProofAssumed),
		"Kinds of system record": words(events.SystemRebuildMarker, events.SystemCheckpoint, events.SystemAlarmRaised,
			events.SystemAlarmCleared, events.SystemContractStored, events.SystemScopeTaken),
	}
}

// sections returns the text below each heading of the level, by heading.
func sections(text, level string) map[string]string {
	out := make(map[string]string)
	for i, part := range strings.Split("\n"+text, "\n"+level+" ") {
		if i > 0 {
			heading, body, _ := strings.Cut(part, "\n")
			out[heading] = body
		}
	}
	return out
}

// Goal: every word of every closed list has an entry, and every entry is a word
// of the code.
func TestClosedListsAreThoseOfTheCode(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	got := make(map[string][]string)
	for heading, body := range sections(read(t, "closed-lists.md"), "##") {
		for _, m := range row.FindAllStringSubmatch(body, -1) {
			got[heading] = append(got[heading], m[1])
		}
		slices.Sort(got[heading])
	}
	if diff := cmp.Diff(got, lists()); diff != "" {
		t.Errorf("closed-lists.md (got) and the code (want):\n%s", diff)
	}
}

// Goal: events.md describes every kind in a section of its own, and every field
// of it. Method: the JSON tags of the payload types.
func TestEveryFieldOfEveryKindIsDescribed(t *testing.T) {
	text := read(t, "events.md")
	found := sections(text, "###")
	for _, kind := range events.Kinds() {
		body, ok := found[string(kind)]
		if !ok {
			t.Errorf("events.md has no section %s", kind)
			continue
		}
		for _, field := range fields(kind) {
			if !strings.Contains(body, "| `"+field+"`") {
				t.Errorf("events.md: %s lacks the field %s", kind, field)
			}
		}
	}
}

// Goal: states.md has a row or a heading for every status.
func TestEveryStatusHasASection(t *testing.T) {
	found := sections(read(t, "states.md"), "###")
	for _, s := range operation.Statuses() {
		if _, ok := found[string(s)]; !ok {
			t.Errorf("states.md has no section %s", s)
		}
	}
}

// registered returns the names of all metrics, each once.
func registered(t *testing.T) []string {
	t.Helper()
	m := metrics.New("test")
	m.Watch(func() metrics.Snapshot {
		return metrics.Snapshot{
			Open:         []metrics.Group{{Provider: "crm", Status: "unknown", Count: 1, Oldest: time.Unix(1, 0)}},
			Reviews:      map[string]int{"crm": 1},
			OldestReview: time.Unix(1, 0),
			Lags:         []metrics.Lag{{Consumer: "executor"}},
			Waiting:      map[string]int{"executor": 1},
			Plans:        map[string]uint64{"executor": 1},
		}
	})
	var names []string
	gathered, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range gathered {
		names = append(names, f.GetName())
	}
	// Labelled counters show up in Gather only once they have counted.
	descs := make(chan *prometheus.Desc, 1024)
	m.Registry.Describe(descs)
	close(descs)
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range descs {
		names = append(names, name.FindStringSubmatch(d.String())[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Goal: a metric that deploy/ or docs/ names exists, and every metric of the
// ledger is described in operations.md.
func TestMetricsAreRegistered(t *testing.T) {
	known := registered(t)
	metric := regexp.MustCompile(`\bopledger_[a-z0-9_]*[a-z0-9]`)
	histogram := regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, dir := range []string{".", "../deploy"} {
		for _, path := range files(t, dir, ".md", ".yml", ".yaml") {
			for _, name := range metric.FindAllString(read(t, path), -1) {
				if !slices.Contains(known, name) && !slices.Contains(known, histogram.ReplaceAllString(name, "")) {
					t.Errorf("%s: the metric %s is not registered", path, name)
				}
			}
		}
	}
	runbook := read(t, "operations.md")
	for _, name := range known {
		if strings.HasPrefix(name, "opledger_") && !strings.Contains(runbook, "`"+name+"`") {
			t.Errorf("operations.md does not describe the metric %s", name)
		}
	}
}

func files(t *testing.T, dir string, suffixes ...string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "testdata" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if !d.IsDir() && slices.Contains(suffixes, filepath.Ext(path)) {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// anchors returns the anchors of the headings of a page, as code forges make
// them.
func anchors(text string) []string {
	var out []string
	odd := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#{1,6} (.+)$`).FindAllStringSubmatch(text, -1) {
		out = append(out, strings.ReplaceAll(odd.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return out
}

// Goal: every relative link leads to a file, and its anchor to a heading.
func TestRelativeLinksResolve(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence := regexp.MustCompile("(?s)```.*?```")
	for _, path := range files(t, "..", ".md") {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, path), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: the link %s leads nowhere", path, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s: the link %s has no such heading", path, m[1])
			}
		}
	}
}

// Goal: what is never promised is never said. The phrases are put together here
// so that this file passes too.
func TestBannedPhrasesAreAbsent(t *testing.T) {
	banned := map[string]*regexp.Regexp{
		"a promise that nobody can keep": regexp.MustCompile(`(?i)\bexactly[\s-]+` + `once\b`),
	}
	for _, path := range files(t, "..", ".md", ".go", ".yml", ".yaml", ".conf", ".py", ".service") {
		text := read(t, path)
		for why, phrase := range banned {
			if at := phrase.FindStringIndex(text); at != nil {
				t.Errorf("%s, line %d: %s: %q", path, 1+strings.Count(text[:at[0]], "\n"), why, text[at[0]:at[1]])
			}
		}
	}
}

// Goal: the pages name tests that exist. Method: every word like TestXyz in
// architecture.md and testing.md is a function of a test file.
func TestTestsNamedInThePagesExist(t *testing.T) {
	declared := make(map[string]bool)
	fn := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	for _, path := range files(t, "..", ".go") {
		for _, m := range fn.FindAllStringSubmatch(read(t, path), -1) {
			declared[m[1]] = true
		}
	}
	for _, page := range []string{"architecture.md", "testing.md"} {
		for _, name := range regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`").FindAllStringSubmatch(read(t, page), -1) {
			if !declared[name[1]] {
				t.Errorf("%s names %s, and there is no such test", page, name[1])
			}
		}
	}
}

// Goal: samples.md shows the frozen events of events/testdata/v1, member for
// member. Method: make the page anew and compare; -update writes it.
func TestSamplesAreTheFrozenFiles(t *testing.T) {
	var b strings.Builder
	b.WriteString("<!-- generated by go test ./docs -update: do not edit -->\n# Samples\n\n" +
		"One full event of every kind, from `events/testdata/v1`, set in lines. The stored\n" +
		"form has no white space. [Events](events.md) explains the fields.\n")
	for _, kind := range events.Kinds() {
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, []byte(read(t, "../events/testdata/v1/"+string(kind)+".full.json")), "", "  "); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n## %s\n\n```json\n%s\n```\n", kind, strings.TrimSpace(pretty.String()))
	}
	if *update {
		if err := os.WriteFile("samples.md", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(read(t, "samples.md"), b.String()); diff != "" {
		t.Errorf("samples.md (got) and events/testdata/v1 (want); go test ./docs -update writes it:\n%s", diff)
	}
}

func fields(kind events.Kind) []string {
	var out []string
	for _, f := range payloadFields(payload(kind)) {
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

func payload(kind events.Kind) events.Payload {
	switch kind {
	case events.KindIntentRecorded:
		return events.IntentRecorded{}
	case events.KindApprovalGranted:
		return events.ApprovalGranted{}
	case events.KindAttemptStarted:
		return events.AttemptStarted{}
	case events.KindAttemptNotApplied:
		return events.AttemptNotApplied{}
	case events.KindOutcomeUnknown:
		return events.OutcomeUnknown{}
	case events.KindEvidenceRecorded:
		return events.EvidenceRecorded{}
	case events.KindRetryPermitted:
		return events.RetryPermitted{}
	case events.KindReviewOpened:
		return events.ReviewOpened{}
	case events.KindReviewUpdated:
		return events.ReviewUpdated{}
	case events.KindReviewClosed:
		return events.ReviewClosed{}
	case events.KindResultConfirmed:
		return events.ResultConfirmed{}
	case events.KindRejected:
		return events.Rejected{}
	case events.KindDuplicateFound:
		return events.DuplicateFound{}
	case events.KindArgumentsErased:
		return events.ArgumentsErased{}
	}
	panic(fmt.Sprintf("docs: no payload for %s", kind))
}

// Goal: the events that the pages show are events. Method: decode every block of
// JSON that is a CloudEvent.
func TestEventsInThePagesDecode(t *testing.T) {
	block := regexp.MustCompile("(?s)```json\n(\\{\"specversion\".*?)```")
	shown := 0
	for _, path := range files(t, ".", ".md") {
		for _, m := range block.FindAllStringSubmatch(read(t, path), -1) {
			shown++
			var err error
			if strings.Contains(m[1], `"tenantid"`) {
				_, err = events.Decode([]byte(m[1]))
			} else {
				_, err = events.DecodeSystem([]byte(m[1]))
			}
			if err != nil {
				t.Errorf("%s: %v in:\n%s", path, err, m[1])
			}
		}
	}
	if shown == 0 {
		t.Error("no page shows an event")
	}
}

// rooms returns what architecture.md says that each package imports of ours.
func rooms(t *testing.T) map[string][]string {
	t.Helper()
	out := make(map[string][]string)
	name := regexp.MustCompile("`([^`]+)`")
	for line := range strings.SplitSeq(sections(read(t, "architecture.md"), "##")["Rooms"], "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !strings.HasPrefix(line, "| `") {
			continue
		}
		var imports []string
		for _, m := range name.FindAllStringSubmatch(cells[3], -1) {
			imports = append(imports, m[1])
		}
		slices.Sort(imports)
		for _, m := range name.FindAllStringSubmatch(cells[1], -1) {
			out[m[1]] = imports
		}
	}
	return out
}

// Goal: the map of rooms in architecture.md is that of the code. Method: go list.
func TestMapOfRoomsIsThatOfTheImports(t *testing.T) {
	const module = "github.com/opledger/opledger"
	// These may import anything of ours.
	free := []string{"cmd/opledger", "internal/node", "internal/demo", "internal/memledger", "internal/natstest", "internal/archtest"}
	cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Dir = ".."
	list, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	said := rooms(t)
	for line := range strings.SplitSeq(strings.TrimSpace(string(list)), "\n") {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(strings.TrimPrefix(fields[0], module), "/")
		want, listed := said[pkg]
		if pkg == "" || slices.Contains(free, pkg) || slices.Contains([]string{"deploy", "docs", "examples"}, pkg) {
			continue
		}
		if !listed {
			t.Errorf("architecture.md does not list the room %s", pkg)
			continue
		}
		var got []string
		for _, i := range fields[1:] {
			if rest, ours := strings.CutPrefix(i, module+"/"); ours {
				got = append(got, rest)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s imports %v, architecture.md says %v", pkg, got, want)
		}
	}
}

// Goal: the contract that providers.md shows is accepted.
func TestContractInThePagesIsAccepted(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(contract: opledger/v1.*?)```")
	found := block.FindAllStringSubmatch(read(t, "providers.md"), -1)
	if len(found) == 0 {
		t.Fatal("providers.md shows no contract")
	}
	for _, m := range found {
		if _, err := providers.Parse("crm.yaml", []byte(m[1])); err != nil {
			t.Error(err)
		}
	}
}

// Goal: the requests and answers that interfaces.md shows have members that
// exist. Method: decode each strictly into the types of the service.
func TestJSONInThePagesFitsTheService(t *testing.T) {
	block := regexp.MustCompile("(?s)```json\n(.*?)```")
	kinds := []func() any{
		func() any { return &api.SubmitRequest{} }, func() any { return &api.WaitRequest{} }, func() any { return &api.ListRequest{} },
		func() any { return &api.ApproveRequest{} }, func() any { return &api.DecideRequest{} }, func() any { return &api.EvidenceRequest{} },
		func() any { return &api.Answer{} }, func() any { return &api.Problem{} },
	}
	for _, m := range block.FindAllStringSubmatch(read(t, "interfaces.md"), -1) {
		fits := slices.ContainsFunc(kinds, func(kind func() any) bool {
			dec := json.NewDecoder(strings.NewReader(m[1]))
			dec.DisallowUnknownFields()
			return dec.Decode(kind()) == nil
		})
		if !fits {
			t.Errorf("interfaces.md: fits no request, answer or problem:\n%s", m[1])
		}
	}
}
