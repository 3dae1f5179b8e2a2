package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/catalogue"
)

func newContract() *cobra.Command {
	cmd := &cobra.Command{
		Use: "contract", Short: "Read, check and try provider contracts: what a provider promises, and whether it does",
		Long: `A contract says what a provider promises for each action, and so what the ledger
may do after an answer was lost. These commands need no ledger that runs.

Start here:   opledger contract list
              opledger contract show sim-keyed
              opledger contract lint my.yaml
              opledger contract test my.yaml --faults

A contract is named by its file or, for one that comes with the ledger, by its
name. How to write one: docs/providers.md.`,
	}
	cmd.AddCommand(newContractList(), newContractShow(), newContractLint(), newContractTest(), newContractSchema())
	return cmd
}

// The prefixes that the configuration uses for contracts that come with the
// ledger.
const (
	builtin       = "builtin:"
	fromCatalogue = "catalogue:"
)

// readContract reads a contract by file or by name.
func readContract(name string) (*providers.File, error) {
	short := strings.TrimPrefix(strings.TrimPrefix(name, builtin), fromCatalogue)
	if slices.Contains(providers.Shipped(), short) {
		return providers.Load(short)
	}
	if slices.Contains(catalogue.Names(), short) {
		return catalogue.Load(short)
	}
	if short != name {
		return nil, usage("there is no contract %s (opledger contract list)", name)
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, usage("%s is neither a file nor a contract that comes with the ledger (opledger contract list)", name)
	}
	if err != nil {
		return nil, err
	}
	return providers.Parse(name, data)
}

// chooseAction returns the action that was asked for, or the only one.
func chooseAction(f *providers.File, action string) (string, error) {
	actions := f.Actions()
	switch {
	case action == "" && len(actions) == 1:
		return actions[0], nil
	case action == "":
		return "", usage("--action must be one of %s", strings.Join(actions, ", "))
	case !slices.Contains(actions, action):
		return "", usage("contract %s has no action %q; --action must be one of %s", f.Name, action, strings.Join(actions, ", "))
	}
	return action, nil
}

// chooseArgs reads arguments given as JSON or as the name of a file, or makes up
// the smallest ones that fit.
func chooseArgs(f *providers.File, action, given string) (json.RawMessage, error) {
	if given == "" {
		args, err := trial.Args(f, action)
		if err != nil {
			return nil, fmt.Errorf("%w; --args takes JSON or a file", err)
		}
		return args, nil
	}
	data := []byte(given)
	if !strings.HasPrefix(strings.TrimSpace(given), "{") {
		var err error
		if data, err = os.ReadFile(given); err != nil {
			return nil, err
		}
	}
	if _, err := f.Bind(action, data); err != nil {
		return nil, fmt.Errorf("--args: %w", err)
	}
	return data, nil
}

func newContractSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of contract files, for editors", Args: cobra.NoArgs,
		Long: `Print the JSON Schema of contract files. An editor that knows it completes and
checks fields while you type; what only lint finds, it does not.`,
		Example: "  opledger contract schema > contract.schema.json\n  # then, as first line of a contract:\n  # yaml-language-server: $schema=contract.schema.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(providers.Schema())
			return err
		},
	}
}

// listed is one contract of contract list.
type listed struct {
	Name     string   `json:"name"`
	Provider string   `json:"provider"`
	Proof    string   `json:"proof"`
	Actions  []string `json:"actions"`
	Classes  []string `json:"classes"`
}

func newContractList() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "list", Short: "List the contracts that come with the ledger", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.checkOutput(); err != nil {
				return err
			}
			var all []listed
			for _, name := range slices.Concat(providers.Shipped(), catalogue.Names()) {
				f, err := readContract(name)
				if err != nil {
					return err
				}
				l := listed{Name: name, Provider: f.Provider, Proof: string(f.Proof), Actions: f.Actions()}
				for _, a := range f.Actions() {
					c, _ := f.Contract(a)
					l.Classes = append(l.Classes, string(c.Class))
				}
				all = append(all, l)
			}
			out := cmd.OutOrStdout()
			switch t.output {
			case "json":
				return printJSON(out, all, false)
			case "jsonl":
				for _, l := range all {
					if err := printJSON(out, l, true); err != nil {
						return err
					}
				}
				return nil
			}
			w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "CONTRACT\tPROVIDER\tPROOF\tACTIONS")
			for _, l := range all {
				var actions []string
				for i, a := range l.Actions {
					actions = append(actions, a+" ("+l.Classes[i]+")")
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", l.Name, l.Provider, l.Proof, strings.Join(actions, ", "))
			}
			return w.Flush()
		},
	}
	t.outputFlag(cmd)
	return cmd
}

// linted is what lint says of one file.
type linted struct {
	File     string              `json:"file"`
	OK       bool                `json:"ok"`
	Errors   []fault             `json:"errors"`
	Warnings []providers.Warning `json:"warnings"`
}

// fault is what is wrong in a file, and where.
type fault struct {
	Line int    `json:"line,omitempty"`
	Path string `json:"path,omitempty"`
	Text string `json:"text"`
}

func newContractLint() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "lint FILE…", Short: "Check contract files: what is unsafe is an error, what is doubtful a warning",
		Args: cobra.MinimumNArgs(1),
		Long: `Check contract files. An error, with file and line, is what could permit an unsafe
repeat or can't be read; such a file is refused by the ledger, too. A warning is
legal, and a question that a reviewer should ask. Exit code 1 if there is an error.`,
		Example: "  opledger contract lint contracts/*.yaml\n  opledger contract lint my.yaml -o json",
		RunE: func(cmd *cobra.Command, files []string) error {
			if err := t.checkOutput(); err != nil {
				return err
			}
			failed := 0
			all := make([]linted, 0, len(files))
			for _, name := range files {
				l := lintFile(name)
				if !l.OK {
					failed++
				}
				all = append(all, l)
			}
			if err := printLinted(cmd.OutOrStdout(), t.output, all); err != nil {
				return err
			}
			if failed > 0 {
				return &codeError{code: exitError, quiet: true}
			}
			return nil
		},
	}
	t.outputFlag(cmd)
	return cmd
}

func lintFile(name string) linted {
	l := linted{File: name, Errors: []fault{}, Warnings: []providers.Warning{}}
	f, err := readContract(name)
	if err == nil {
		l.OK = true
		l.Warnings = append(l.Warnings, f.Warnings()...)
		return l
	}
	for _, e := range flatten(err) {
		if le, ok := errors.AsType[*providers.LoadError](e); ok {
			l.Errors = append(l.Errors, fault{le.Line, le.Path, le.Text})
		} else {
			l.Errors = append(l.Errors, fault{Text: plain(e)})
		}
	}
	return l
}

// flatten lists the errors that were joined into one.
func flatten(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range many.Unwrap() {
			out = append(out, flatten(e)...)
		}
		return out
	}
	return []error{err}
}

func printLinted(w io.Writer, output string, all []linted) error {
	if output == "json" {
		return printJSON(w, all, false)
	}
	for _, l := range all {
		if output == "jsonl" {
			if err := printJSON(w, l, true); err != nil {
				return err
			}
			continue
		}
		for _, e := range l.Errors {
			where := l.File
			if e.Line > 0 {
				where = fmt.Sprintf("%s:%d", l.File, e.Line)
			}
			fmt.Fprintf(w, "%s: error: %s%s\n", where, at(e.Path), e.Text)
		}
		for _, x := range l.Warnings {
			fmt.Fprintf(w, "%s:%d: warning: %s%s\n", l.File, x.Line, at(x.Path), x.Text)
		}
		if l.OK {
			fmt.Fprintf(w, "%s: ok\n", l.File)
		}
	}
	return nil
}

func at(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

// shown is what contract show says of one action.
type shown struct {
	Contract string              `json:"contract"`
	Revision int                 `json:"revision"`
	Digest   string              `json:"digest"`
	Provider string              `json:"provider"`
	Version  string              `json:"api_version"`
	Proof    operation.Evidenced `json:"proof"`
	Cite     []string            `json:"cite"`
	Action   string              `json:"action"`
	Class    operation.Class     `json:"class"`
	Promises []string            `json:"promises"`
	Follows  []trial.Follow      `json:"follows"`
	Request  *providers.Redacted `json:"request,omitempty"`
	// NoRequest says why there is no request to show.
	NoRequest string              `json:"no_request,omitempty"`
	Warnings  []providers.Warning `json:"warnings"`
}

func newContractShow() *cobra.Command {
	var t target
	var action, args string
	cmd := &cobra.Command{
		Use: "show CONTRACT", Short: "Tell what a contract promises, what follows after each answer, and show the request",
		Args: cobra.ExactArgs(1),
		Long: `Tell what a contract promises for an action; what the ledger would do after each
outcome of the first request if nothing is ever found (asked of the deciding core
itself); and the request as it would be sent. Secrets stand as references, secret
and personal arguments as "***". Without --args the smallest arguments that fit are
made up.`,
		Example: `  opledger contract show sim-keyed
  opledger contract show my.yaml --action task.create --args '{"title":"call back"}'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := t.checkOutput(); err != nil {
				return err
			}
			f, err := readContract(names[0])
			if err != nil {
				return err
			}
			if action, err = chooseAction(f, action); err != nil {
				return err
			}
			s, err := show(cmd.Context(), f, action, args)
			if err != nil {
				return err
			}
			if t.output != "table" {
				return printJSON(cmd.OutOrStdout(), s, t.output == "jsonl")
			}
			return printShown(cmd.OutOrStdout(), s)
		},
	}
	cmd.Flags().StringVar(&action, "action", "", "action, where the contract has several")
	cmd.Flags().StringVar(&args, "args", "", "arguments, as JSON or as a file")
	t.outputFlag(cmd)
	return cmd
}

func show(ctx context.Context, f *providers.File, action, given string) (shown, error) {
	c, _ := f.Contract(action)
	s := shown{
		Contract: f.Name, Revision: f.Revision, Digest: f.Digest(), Provider: f.Provider, Version: f.APIVersion,
		Proof: f.Proof, Cite: append([]string{}, f.Cite...), Action: action, Class: c.Class, Promises: promises(c),
		Warnings: append([]providers.Warning{}, f.Warnings()...),
	}
	var err error
	if s.Follows, err = trial.Follows(ctx, c); err != nil {
		return s, err
	}
	if f.Remote() {
		s.NoRequest = "a worker of your own carries it out, in its own way"
		return s, nil
	}
	args, err := chooseArgs(f, action, given)
	if err != nil {
		if given != "" {
			return s, err
		}
		s.NoRequest = plain(err)
		return s, nil
	}
	r, err := trial.Render(f, action, args)
	if err != nil {
		return s, err
	}
	s.Request = &r
	return s, nil
}

// promises says in plain words what a contract promises.
func promises(c operation.Contract) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch c.Class {
	case operation.ClassKey:
		say("an idempotency key: a repeat with it makes no second object")
	case operation.ClassClientID:
		say("the client chooses a unique id: a repeat with it makes no second object")
	case operation.ClassUpsert:
		say("upsert by an external id: a repeat writes the same object again")
	case operation.ClassLabel:
		say("a label that can be looked up; a repeat makes a second object")
	case operation.ClassNone:
		say("nothing: a repeat makes a second object, and neither can be found")
	}
	if c.KeySupported {
		switch {
		case c.Retention == operation.Forever:
			say("remembered for ever")
		case c.Retention > 0:
			say("remembered for %s; nothing is repeated in its last %s", span(c.Retention), span(c.Margin))
		default:
			say("remembered for an unknown time: nothing is repeated by key")
		}
		if c.ConcurrentSafe {
			say("two requests at once are safe")
		}
		if c.UniqueWeak {
			say("guarded only loosely: two creations at once may both pass, so a twin is looked for afterwards")
		}
	}
	say("a request takes up to %s and may land up to %s after its connection is gone", span(c.Total), span(c.LateApply))
	if c.Lookup.Available {
		say("it can be looked up (%s), within %s of being there", c.Lookup.Name, span(c.Lookup.Lag))
	} else {
		say("it can't be looked up")
	}
	if c.Absence.Provable {
		say("%d empty looks, late and far enough apart, prove that it is not there", max(c.Absence.EmptyReads, 1))
	} else {
		say("nothing proves that it is not there")
	}
	say("at most %s that may have reached the provider", number(max(c.MaxAttempts, 1), "request"))
	if c.ApprovalRequired {
		say("a person must allow each operation")
	}
	if c.Scoped {
		say("operations of one scope are never in doubt at the same time")
	}
	return out
}

func number(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// span writes a duration without zero units.
func span(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func printShown(w io.Writer, s shown) error {
	fmt.Fprintf(w, "%s revision %d: %s at %s, api version %s\n", s.Contract, s.Revision, s.Action, s.Provider, s.Version)
	fmt.Fprintf(w, "proof: %s\n", s.Proof)
	for _, c := range s.Cite {
		fmt.Fprintf(w, "  %s\n", c)
	}
	fmt.Fprintf(w, "\nWhat is promised (class %s)\n", s.Class)
	for _, p := range s.Promises {
		fmt.Fprintf(w, "  %s\n", p)
	}
	fmt.Fprintln(w, "\nWhat follows when the first request ends so, and nothing is ever found")
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, f := range s.Follows {
		fmt.Fprintf(t, "  %s\t%s\n", f.Outcome, f.Then)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nThe request")
	if s.Request == nil {
		fmt.Fprintf(w, "  %s\n", s.NoRequest)
	} else {
		fmt.Fprintf(w, "  %s %s\n", s.Request.Method, s.Request.URL)
		for _, name := range slices.Sorted(maps.Keys(s.Request.Header)) {
			fmt.Fprintf(w, "  %s: %s\n", name, s.Request.Header[name])
		}
		if s.Request.Body != "" {
			fmt.Fprintf(w, "\n  %s\n", s.Request.Body)
		}
	}
	for _, x := range s.Warnings {
		fmt.Fprintf(w, "\nwarning: line %d: %s%s\n", x.Line, at(x.Path), x.Text)
	}
	return nil
}
