// Command opledger is the ledger in one binary: the server, the demo, the
// provider simulator, and the tools of operators.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// version is set by the linker: -ldflags "-X main.version=1.2.3".
var version = "0.1.0-dev"

// Exit codes; they are stable.
const (
	exitOK       = 0
	exitError    = 1
	exitUsage    = 2
	exitRejected = 3
	exitUnknown  = 4
	exitOpen     = 5
	exitConflict = 6
	exitNotFound = 7
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return report(err, stderr, wantsJSON(cmd, args))
}

// wantsJSON reports whether errors are to be JSON, also if the flags could not
// be read.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	if f := cmd.Flags().Lookup("output"); f != nil && f.Changed {
		return f.Value.String() == "json" || f.Value.String() == "jsonl"
	}
	for i, a := range args {
		value, joined := strings.CutPrefix(a, "--output=")
		if short, ok := strings.CutPrefix(a, "-o"); !joined && ok {
			value = strings.TrimPrefix(short, "=")
		}
		if (a == "-o" || a == "--output") && i+1 < len(args) {
			value = args[i+1]
		}
		if value == "json" || value == "jsonl" {
			return true
		}
	}
	return false
}

// codeError carries an exit code; quiet ones have said all on stdout.
type codeError struct {
	code  int
	err   error
	quiet bool
}

// Error implements error.
func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e *codeError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &codeError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// report prints an error, as text or as one JSON line, and returns the exit code.
func report(err error, stderr io.Writer, asJSON bool) int {
	code, quiet := exitCode(err)
	if err == nil || quiet {
		return code
	}
	_, isOwn := errors.AsType[*codeError](err)
	p, isProblem := errors.AsType[*api.Problem](err)
	switch {
	case asJSON && isProblem && !isOwn:
		_ = printJSON(stderr, p, true)
		return code
	case asJSON:
		f := failure{Code: "error", Detail: plain(err)}
		if !isOwn {
			f.Hint = hint(err)
		}
		_ = printJSON(stderr, f, true)
		return code
	}
	fmt.Fprintln(stderr, "opledger:", plain(err))
	if isOwn {
		return code // it says all there is to say
	}
	if isProblem {
		for _, f := range p.Fields {
			fmt.Fprintln(stderr, "  differs:", f)
		}
		if p.RecordedDigest != "" {
			fmt.Fprintf(stderr, "  recorded %s\n  received %s\n", p.RecordedDigest, p.ReceivedDigest)
		}
	}
	if h := hint(err); h != "" {
		fmt.Fprintln(stderr, " ", h)
	}
	return code
}

// failure is an error that is no problem object of the service, as JSON.
type failure struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

func exitCode(err error) (code int, quiet bool) {
	if err == nil {
		return exitOK, false
	}
	if ce, ok := errors.AsType[*codeError](err); ok {
		return ce.code, ce.quiet
	}
	if strings.HasPrefix(err.Error(), "unknown command") { // cobra has no type for it
		return exitUsage, false
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		switch p.Code { //nolint:exhaustive // only these have a code of their own
		case api.ProblemConflict:
			return exitConflict, false
		case api.ProblemNotFound:
			return exitNotFound, false
		}
	}
	return exitError, false
}

// plain is the text of an error without the names of packages, which tell a user
// nothing.
func plain(err error) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "opledger: "), "node: ")
	text = strings.ReplaceAll(text, ": opledger: ", ": ")
	return strings.ReplaceAll(text, events.ErrInvalidID.Error()+": ", "")
}

// hint says what to do about a connection that does not work.
func hint(err error) string {
	switch {
	case errors.Is(err, nats.ErrNoServers):
		return "nothing listens there: is the ledger running? (opledger serve; --server, OPLEDGER_SERVER)"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return "wrong user or password (--user, OPLEDGER_USER, OPLEDGER_PASSWORD, or --config)"
	case errors.Is(err, nats.ErrNoResponders):
		return "NATS is up, but no ledger with the role api answers there (opledger serve; --prefix)"
	case errors.Is(err, nats.ErrPermissionViolation):
		return "the roles of users are in docs/interfaces.md; --user and --tenant say who asks"
	case errors.Is(err, opledger.ErrNoAnswer), errors.Is(err, errLost):
		return "no answer in time (--timeout); a submit may be recorded: sending the same operation id again is safe"
	}
	return ""
}

// statusCode turns the state of an operation into an exit code.
func statusCode(a api.Answer, waited bool) error {
	switch a.Status {
	case operation.StatusRejected:
		return &codeError{code: exitRejected, quiet: true}
	case operation.StatusUnknown:
		return &codeError{code: exitUnknown, quiet: true}
	case operation.StatusPending, operation.StatusInFlight:
		if waited {
			return &codeError{code: exitOpen, quiet: true}
		}
	case operation.StatusConfirmed, operation.StatusAbsent:
	}
	return nil
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "opledger",
		Short: "A ledger of outside operations: intent, attempt and result, kept apart",
		Long: `opledger keeps what an agent wanted, what was sent, and what the outside
confirmed apart, so that a lost answer does not become a second effect.

Start here:   opledger demo
Exit codes:   0 ok or confirmed, 1 error, 2 usage, 3 rejected, 4 unknown,
              5 recorded and still open, 6 conflict, 7 not found`,
		SilenceUsage: true, SilenceErrors: true, Version: version,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &codeError{code: exitUsage, err: fmt.Errorf("%w (see --help)", err)}
	})
	root.AddCommand(newServe(), newDemo(), newSim(), newBench(), newSubmit(), newGet(), newWait(), newList(), newReviews(),
		newExplain(), newApprove(), newCancel(), newResolve(), newEvents(), newRefused(), newRebuild(), newVerify(), newIntegrity(),
		newConfig(), newContract(), newVersion())
	usageOfArgs(root)
	return root
}

// usageOfArgs gives wrong arguments of a command and of those below it the exit
// code of a wrong usage.
func usageOfArgs(cmd *cobra.Command) {
	if args := cmd.Args; args != nil {
		cmd.Args = func(cmd *cobra.Command, given []string) error {
			if err := args(cmd, given); err != nil {
				return &codeError{code: exitUsage, err: fmt.Errorf("%s: %w (see --help)", cmd.CommandPath(), err)}
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		usageOfArgs(c)
	}
}

func newVersion() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.checkOutput(); err != nil {
				return err
			}
			if t.output != "table" {
				return printJSON(cmd.OutOrStdout(), map[string]string{"version": version}, t.output == "jsonl")
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "opledger", version)
			return err
		},
	}
	t.outputFlag(cmd)
	return cmd
}
