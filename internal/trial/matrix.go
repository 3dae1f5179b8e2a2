package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// Column is a contract that the matrix is played for.
type Column struct {
	// Title stands above the column.
	Title    string
	File     *providers.File
	Action   string
	Args     json.RawMessage
	Settings simulator.Settings
}

// Cell is one fault played for one contract. A cell with trouble has no report.
type Cell struct {
	Column string   `json:"contract"`
	Fault  string   `json:"fault"`
	About  string   `json:"about"`
	Report Report   `json:"report"`
	Wrong  []string `json:"wrong,omitempty"`
}

// String says in a few words how the operation ended and what the provider has.
func (c Cell) String() string {
	return fmt.Sprintf("%s; %s, %s", c.Report.Ending(), count(c.Report.Objects, "object"), count(c.Report.Sent, "request"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Columns are the shipped contracts, one for each kind of promise; every
// operation that is confirmed is looked for once more, where there is a lookup.
func Columns() ([]Column, error) {
	var out []Column
	for _, name := range []string{"sim-keyed", "sim-keyed-nolookup", "sim-unique", "sim-upsert", "sim-crm", "sim-nothing"} {
		f, settings, err := Shipped(name)
		if err != nil {
			return nil, err
		}
		action := f.Actions()[0]
		if c, _ := f.Contract(action); c.Lookup.Available {
			if f, err = providers.LoadWith(name, map[string]string{"verify": "1"}); err != nil {
				return nil, err
			}
		}
		args, err := Args(f, action)
		if err != nil {
			return nil, err
		}
		c, _ := f.Contract(action)
		title := string(c.Class)
		if !c.Lookup.Available && c.Class == operation.ClassKey {
			title += " without lookup"
		}
		out = append(out, Column{Title: title, File: f, Action: action, Args: args, Settings: settings})
	}
	return out, nil
}

// Play plays faults for a contract, in their order.
func (c Column) Play(ctx context.Context, faults []Fault) ([]Cell, error) {
	contract, ok := c.File.Contract(c.Action)
	if !ok {
		return nil, fmt.Errorf("trial: contract %s has no action %q", c.File.Name, c.Action)
	}
	var out []Cell
	for _, f := range faults {
		r, err := Run(ctx, Config{File: c.File, Action: c.Action, Args: c.Args, Settings: c.Settings, Fault: f, Seed: 1})
		cell := Cell{Column: c.Title, Fault: f.Name, About: f.About, Report: r}
		if errors.Is(err, ErrBound) {
			cell.Wrong = append(cell.Wrong, err.Error())
		} else if err != nil {
			return out, fmt.Errorf("%s, %s: %w", c.Title, f.Name, err)
		}
		cell.Wrong = append(cell.Wrong, r.Judge(contract)...)
		out = append(out, cell)
	}
	return out, nil
}

// Markdown writes columns of cells, all played for the same faults, as a table.
func Markdown(w io.Writer, columns [][]Cell) error {
	var b strings.Builder
	b.WriteString("| what goes wrong |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c[0].Column)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(columns)) + "\n")
	for i := range columns[0] {
		fmt.Fprintf(&b, "| **%s**: %s |", columns[0][i].Fault, columns[0][i].About)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", c[i])
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
