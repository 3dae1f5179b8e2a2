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

	"github.com/spf13/cobra"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/api"
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
	err := root.ExecuteContext(ctx)
	return exitCode(err, stderr)
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

func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	if ce, ok := errors.AsType[*codeError](err); ok {
		if !ce.quiet {
			fmt.Fprintln(stderr, "opledger:", err)
		}
		return ce.code
	}
	fmt.Fprintln(stderr, "opledger:", err)
	if strings.HasPrefix(err.Error(), "unknown command") { // cobra has no type for it
		return exitUsage
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		for _, f := range p.Fields {
			fmt.Fprintln(stderr, "  differs:", f)
		}
		if p.RecordedDigest != "" {
			fmt.Fprintf(stderr, "  recorded %s\n  received %s\n", p.RecordedDigest, p.ReceivedDigest)
		}
		switch p.Code { //nolint:exhaustive // only these have a code of their own
		case api.ProblemConflict:
			return exitConflict
		case api.ProblemNotFound:
			return exitNotFound
		}
		return exitError
	}
	if errors.Is(err, opledger.ErrNoAnswer) {
		fmt.Fprintln(stderr, "  is the server running, and do user and tenant fit? (--server, --user, --tenant, OPLEDGER_PASSWORD)")
	}
	return exitError
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
              5 still open at the deadline, 6 conflict, 7 not found`,
		SilenceUsage: true, SilenceErrors: true, Version: version,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &codeError{code: exitUsage, err: fmt.Errorf("%w (see --help)", err)}
	})
	root.AddCommand(newServe(), newDemo(), newSim(), newSubmit(), newGet(), newWait(), newList(), newReviews(),
		newExplain(), newApprove(), newCancel(), newResolve(), newEvents(), newRebuild(), newVerify(),
		newConfig(), newVersion())
	for _, c := range root.Commands() {
		if args := c.Args; args != nil {
			c.Args = func(cmd *cobra.Command, given []string) error {
				if err := args(cmd, given); err != nil {
					return &codeError{code: exitUsage, err: fmt.Errorf("%s: %w (see --help)", cmd.CommandPath(), err)}
				}
				return nil
			}
		}
	}
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "opledger", version)
			return err
		},
	}
}
