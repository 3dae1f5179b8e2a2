package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/node"
)

func newServe() *cobra.Command {
	var path, url string
	var roles []string
	var jsonReady bool
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the ledger: all roles with an embedded server, or some of them", Args: cobra.NoArgs,
		Long: `Run the ledger. Without nats.url (or --nats-url) the NATS server runs inside this
process and keeps its files under nats.store_dir, flushed before every
acknowledgement. Roles: ` + strings.Join(node.Roles(), ", ") + `.

SIGTERM stops it gracefully: no new attempts, those under way may end within
executor.drain, and what is not known then is recorded as unknown. It may be
killed at any moment: nothing that was acknowledged is lost.`,
		Example: "  opledger serve --config examples/quickstart/opledger.yaml\n  opledger serve --config opledger.yaml --nats-url nats://10.0.0.5:4222 --role executor",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(path)
			if err != nil {
				return err
			}
			if url != "" {
				cfg.NATS.URL = url
				if err := cfg.Check(); err != nil {
					return &codeError{code: exitUsage, err: err}
				}
			}
			for _, r := range roles {
				if !slices.Contains(node.Roles(), r) {
					return usage("--role must be one of %s, not %q", strings.Join(node.Roles(), ", "), r)
				}
			}
			log, err := logger(cfg, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			n, err := node.Start(cmd.Context(), node.Options{Config: cfg, Roles: roles, Version: version, Logger: log})
			if err != nil {
				return err
			}
			if err := announce(cmd.OutOrStdout(), n, jsonReady); err != nil {
				return err
			}
			return n.Wait(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", "configuration file (OPLEDGER_CONFIG)")
	f.StringVar(&url, "nats-url", "", "use this server instead of an embedded one")
	f.StringSliceVar(&roles, "role", nil, "play only these roles (default: all)")
	f.BoolVar(&jsonReady, "json", false, "print where it listens as one JSON line when it is ready")
	return cmd
}

func announce(w io.Writer, n *node.Node, asJSON bool) error {
	if asJSON {
		return printJSON(w, ready{NATS: config.ShownURL(n.URL()), HTTP: n.HTTP()}, true)
	}
	what := "is ready"
	if n.Checking() != "" { // a long log (I16)
		what = "records and answers; attempts start when the whole log is checked"
	}
	_, err := fmt.Fprintf(w, "ledger %s %s; NATS %s; metrics and health %s\n", n.Ledger(), what, cmp.Or(config.ShownURL(n.URL()), "in-process only"), cmp.Or(n.HTTP(), "off"))
	return err
}

var errNoConfig = errors.New("--config is required")

func loadConfig(path string) (*config.Config, error) {
	path = cmp.Or(path, os.Getenv("OPLEDGER_CONFIG"))
	if path == "" {
		return nil, usage("%w; examples/quickstart/opledger.yaml is a working example", errNoConfig)
	}
	cfg, err := config.Load(path)
	if err != nil {
		return nil, &codeError{code: exitUsage, err: err}
	}
	return cfg, nil
}

func logger(cfg *config.Config, w io.Writer) (*slog.Logger, error) {
	level, err := cfg.LogLevel()
	if err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return slog.New(slog.NewTextHandler(w, opts)), nil
}

func newConfig() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Work with the configuration file"}
	var path string
	var t target
	check := &cobra.Command{
		Use: "check", Short: "Check a configuration, its contracts and its secrets", Args: cobra.NoArgs,
		Long: `Check a configuration, its contracts and its secrets, and start nothing. Exit code
2 if anything is wrong. With -o json: ok, checked (what was looked at) and problems.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.checkOutput(); err != nil {
				return err
			}
			lines, err := checkConfig(path)
			if t.output != "table" && !errors.Is(err, errNoConfig) {
				return errors.Join(printJSON(cmd.OutOrStdout(), checked{
					OK: err == nil, Checked: append([]string{}, lines...), Problems: problems(err),
				}, t.output == "jsonl"), err)
			}
			for _, line := range lines {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			return err
		},
	}
	check.Flags().StringVar(&path, "config", "", "configuration file (OPLEDGER_CONFIG)")
	t.outputFlag(check)
	cmd.AddCommand(check)
	return cmd
}

// checked is what config check found, as JSON.
type checked struct {
	OK       bool     `json:"ok"`
	Checked  []string `json:"checked"`
	Problems []string `json:"problems"`
}

func checkConfig(path string) ([]string, error) {
	cfg, err := loadConfig(path)
	if err != nil {
		return nil, err
	}
	lines, err := node.CheckConfig(cfg)
	if err != nil {
		err = &codeError{code: exitUsage, err: err}
	}
	return lines, err
}

// problems are the lines of an error, one finding each.
func problems(err error) []string {
	out := []string{}
	if err == nil {
		return out
	}
	for line := range strings.Lines(plain(err)) {
		out = append(out, strings.TrimSpace(line))
	}
	return out
}
