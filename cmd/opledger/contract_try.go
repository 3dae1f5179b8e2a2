package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// tried is what contract test found.
type tried struct {
	Contract string          `json:"contract"`
	Action   string          `json:"action"`
	Against  string          `json:"against"`
	Promises []trial.Promise `json:"promises"`
	Faults   []trial.Cell    `json:"faults,omitempty"`
	Lies     int             `json:"lies"`
	OK       bool            `json:"ok"`
}

// tryFlags are the flags of contract test.
type tryFlags struct {
	action, args, against string
	faults, write         bool
	account               string
	secrets, values       []string
}

func newContractTest() *cobra.Command {
	var t target
	var f tryFlags
	cmd := &cobra.Command{
		Use: "test CONTRACT", Short: "Try every promise of a contract, and every fault: declared against observed",
		Args: cobra.ExactArgs(1),
		Long: `Try what a contract promises, one promise after the other, and print what is
declared against what was observed. Exit code 1 if a promise is a lie.

By default the peer is the simulator with the preset that the contract describes, in
this process and under a virtual clock: a retention of a day takes no time, and the
simulator's own object table is the truth. --against names another preset, or the
base URL of a provider. Against a URL every promise that is tried WRITES objects to
that account: use a test account, and say --write. What would take too long there is
not tried, and says so.

--faults also plays every fault of docs/matrix.md through the real executor,
reconciler and core: how the operation ends, and what the provider then has. It takes
seconds, and the exit code is still about the promises.`,
		Example: `  opledger contract test sim-keyed
  opledger contract test my.yaml --action task.create --against keyed --faults
  opledger contract test my.yaml --against https://sandbox.example.com --write \
    --secret token=env://SANDBOX_TOKEN --account acct_1001`,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := t.checkOutput(); err != nil {
				return err
			}
			return f.run(cmd, t.output, names[0])
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.action, "action", "", "action, where the contract has several")
	fl.StringVar(&f.args, "args", "", "arguments, as JSON or as a file; made up by default")
	fl.StringVar(&f.against, "against", "", "preset of the simulator ("+strings.Join(simulator.Presets(), ", ")+"), or a base URL")
	fl.BoolVar(&f.faults, "faults", false, "also play every fault; with the simulator only")
	fl.BoolVar(&f.write, "write", false, "with a URL: yes, write objects to that account")
	fl.StringVar(&f.account, "account", "", "with a URL: the provider's own id of the account, compared with the probe")
	fl.StringSliceVar(&f.secrets, "secret", nil, "with a URL: NAME=env://VARIABLE or NAME=file:///path, may be repeated")
	fl.StringSliceVar(&f.values, "value", nil, "with a URL: NAME=VALUE of the account, may be repeated")
	t.outputFlag(cmd)
	return cmd
}

func (f *tryFlags) run(cmd *cobra.Command, output, name string) error {
	file, err := readContract(name)
	if err != nil {
		return err
	}
	action, err := chooseAction(file, f.action)
	if err != nil {
		return err
	}
	args, err := chooseArgs(file, action, f.args)
	if err != nil {
		return err
	}
	peer, against, err := f.target(file)
	if err != nil {
		return err
	}
	result := tried{Contract: file.Name, Action: action, Against: against}
	if result.Promises, err = trial.Try(cmd.Context(), file, action, args, peer); err != nil {
		return err
	}
	if f.faults {
		column := trial.Column{Title: file.Name, File: file, Action: action, Args: args, Settings: peer.Settings}
		if result.Faults, err = column.Play(cmd.Context(), trial.Faults()); err != nil {
			return err
		}
	}
	for _, p := range result.Promises {
		if p.Verdict == trial.Lie {
			result.Lies++
		}
	}
	result.OK = result.Lies == 0 && succeeded(result.Promises)
	if output != "table" {
		err = printJSON(cmd.OutOrStdout(), result, output == "jsonl")
	} else {
		err = printTried(cmd.OutOrStdout(), result)
	}
	switch {
	case err != nil || result.OK:
		return err
	case result.Lies == 0:
		return errors.New("no request succeeded, so that nothing is shown about the contract")
	}
	return &codeError{code: exitError, quiet: true}
}

// succeeded reports whether a request succeeded at all; without that nothing was
// tried.
func succeeded(all []trial.Promise) bool {
	return slices.ContainsFunc(all, func(p trial.Promise) bool {
		return p.Name == trial.PromiseSuccess && p.Verdict == trial.Kept
	})
}

// target returns what the contract is tried against, and its name.
func (f *tryFlags) target(file *providers.File) (trial.Target, string, error) {
	if strings.Contains(f.against, "://") {
		return f.url()
	}
	if f.write || f.account != "" || len(f.secrets)+len(f.values) > 0 {
		return trial.Target{}, "", usage("--write, --account, --secret and --value are for --against URL")
	}
	if f.against != "" {
		settings, err := simulator.Preset(f.against)
		if err != nil {
			return trial.Target{}, "", &codeError{code: exitUsage, err: err}
		}
		return trial.Target{Settings: settings}, "the simulator, preset " + f.against, nil
	}
	settings, err := trial.SettingsFor(file)
	if err != nil {
		return trial.Target{}, "", usage("%w; try it against a test account of the provider (--against URL --write), "+
			"or, if it speaks as one of the presets does, name that (--against PRESET)", err)
	}
	return trial.Target{Settings: settings}, "the simulator", nil
}

// url returns a provider at a URL.
func (f *tryFlags) url() (trial.Target, string, error) {
	switch {
	case f.faults:
		return trial.Target{}, "", usage("--faults plays the faults at the simulator; it can't be had with a URL")
	case !f.write:
		return trial.Target{}, "", usage("this would write objects to %s: use a test account, and say --write", f.against)
	}
	account := providers.Account{
		ProviderID: f.account, Secrets: make(map[string]providers.SecretRef), Values: make(map[string]string),
	}
	for _, s := range f.secrets {
		name, text, _ := strings.Cut(s, "=")
		ref, err := providers.ParseRef(text)
		if err != nil {
			return trial.Target{}, "", &codeError{code: exitUsage, err: fmt.Errorf("--secret %s: %w", name, err)}
		}
		account.Secrets[name] = ref
	}
	for _, v := range f.values {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return trial.Target{}, "", usage("--value must be NAME=VALUE, not %q", v)
		}
		account.Values[name] = value
	}
	return trial.Target{URL: f.against, Account: account}, f.against, nil
}

func printTried(w io.Writer, r tried) error {
	fmt.Fprintf(w, "%s, %s, against %s\n\n", r.Contract, r.Action, r.Against)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "PROMISE\tDECLARED\tOBSERVED\tVERDICT")
	for _, p := range r.Promises {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Name, p.Declared, p.Observed, p.Verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Faults) > 0 {
		fmt.Fprintln(w)
		fmt.Fprintln(t, "WHAT GOES WRONG\tHOW IT ENDS\tOBJECTS\tREQUESTS")
		for _, c := range r.Faults {
			ending := c.Report.Ending()
			if len(c.Wrong) > 0 {
				ending += "; NOT TRUE: " + strings.Join(c.Wrong, "; ")
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\n", c.Fault, ending, c.Report.Objects, c.Report.Sent)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	counts := make(map[trial.Verdict]int)
	for _, p := range r.Promises {
		counts[p.Verdict]++
	}
	_, err := fmt.Fprintf(w, "\n%d kept, %s, %d not tried\n", counts[trial.Kept], number(r.Lies, "lie"), counts[trial.NotTried])
	return err
}
