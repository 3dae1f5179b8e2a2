package providers

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/opledger/opledger/operation"
)

// Warning is what a contract may say and a reviewer should ask about: legal, and
// doubtful.
type Warning struct {
	Line int    `json:"line"`
	Path string `json:"path"`
	Text string `json:"text"`
}

// Warnings returns what is doubtful in the file, by line. None of it is unsafe:
// what is unsafe is refused by [Parse].
func (f *File) Warnings() []Warning { return slices.Clone(f.warnings) }

// dated finds the day on which a source was read.
var dated = regexp.MustCompile(`\b20[0-9]{2}-[01][0-9]-[0-3][0-9]\b`)

// warner collects warnings.
type warner struct {
	d   *decoder
	out []Warning
}

func (w *warner) note(path, text string) {
	w.out = append(w.out, Warning{Line: w.d.line(path), Path: path, Text: text})
}

// warnings judges a file that was found safe.
func (c *compiler) warnings(f *File) []Warning {
	w := &warner{d: c.d}
	for i, cite := range f.Cite {
		if !dated.MatchString(cite) {
			w.note("cite["+strconv.Itoa(i)+"]", "has no date: say when it was read, as (read 2026-05-04)")
		}
	}
	if f.conn.probe == nil && !f.conn.remote {
		w.note("connection", "has no account_probe: a credential of another account is not noticed before it is used")
	}
	if f.conn.requestIDHeader == "" && !f.conn.remote {
		w.note("connection", "has no request_id_header: the provider's support can't be asked about a request")
	}
	for _, name := range f.Actions() {
		w.action(f.actions[name], c.spec.Actions[name], "actions["+name+"]")
	}
	slices.SortStableFunc(w.out, func(a, b Warning) int { return cmp.Compare(a.Line, b.Line) })
	return w.out
}

func (w *warner) action(a *action, s actionSpec, path string) {
	c := a.contract
	if c.Class == operation.ClassKey && !c.Lookup.Available {
		w.note(path, "has no lookup: once the key is forgotten only a person can find the truth; write the label and look it up")
	}
	if c.Class == operation.ClassClientID && c.UniqueWeak && !c.Lookup.Available {
		w.note(path+".uniqueness", "is weak and there is no lookup: a second object with the same id is never noticed")
	}
	if c.Class == operation.ClassUpsert && !c.Lookup.Available {
		w.note(path, "has no lookup that confirms: the request writes no mark of the operation, so a repeat is the only way to the truth")
	}
	keyed := c.Class == operation.ClassKey || c.Class == operation.ClassClientID || c.Class == operation.ClassUpsert
	if kept := s.Retry.Retention.word; keyed && (kept == wordUnknown || kept == "") {
		w.note(path+".retry.retention", "is unknown: nothing is repeated by key; ask the provider")
	}
	if c.LateApply == 0 {
		w.note(path+".timing.late_apply", "is 0s: does the provider promise that a request whose connection is gone has no effect any more?")
	}
	for i, l := range a.lookups {
		if !l.hasCreatedAt {
			w.note(path+".lookups["+strconv.Itoa(i)+"]", "has no created_at: of several matches nobody can tell which came first")
		}
	}
	var total time.Duration
	for _, d := range c.Lookup.Schedule {
		total += d
	}
	if c.Lookup.Available && total < c.Lookup.Lag {
		w.note(path+".lookups[0].schedule", "ends before the lag of "+c.Lookup.Lag.String()+": the last look may come before the object can be seen")
	}
}
