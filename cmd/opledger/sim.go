package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opledger/opledger/providers/simulator"
)

func newSim() *cobra.Command {
	var listen, preset string
	var tokens []string
	var verbose, jsonReady bool
	cmd := &cobra.Command{
		Use: "sim", Short: "Run the provider simulator: real providers' shapes, and every fault a real one shows", Args: cobra.NoArgs,
		Long: `Run an HTTP server that plays an outside provider. Its object table
(GET /_sim/objects) is the truth about what happened outside; faults are rules
(POST /_sim/rules), settings can be changed while it runs (PATCH /_sim/settings),
and GET /_sim/sends counts what went over the wire for each wish.

Presets:
` + presetHelp(),
		Example: `  opledger sim --preset stripe-v1 --listen 127.0.0.1:8099 --token sk_test_1=acct_1
  curl -d '{"do":"lose_response","nth":1,"method":"POST"}' http://127.0.0.1:8099/_sim/rules
  curl http://127.0.0.1:8099/_sim/objects`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := simulator.Preset(preset)
			if err != nil {
				return &codeError{code: exitUsage, err: err}
			}
			cfg := simulator.Config{Settings: settings, AdminToken: os.Getenv("OPLEDGER_SIM_ADMIN_TOKEN")}
			if len(tokens) > 0 {
				cfg.Tokens = make(map[string]string)
			}
			for _, t := range tokens {
				token, account, ok := strings.Cut(t, "=")
				if !ok || token == "" || account == "" {
					return usage("--token must be TOKEN=ACCOUNT, not %q", t)
				}
				cfg.Tokens[token] = account
			}
			if verbose {
				cfg.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelDebug}))
			}
			srv, err := simulator.New(cfg)
			if err != nil {
				return err
			}
			ln, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("sim: %w", err)
			}
			url := "http://" + ln.Addr().String()
			if jsonReady {
				err = printJSON(cmd.OutOrStdout(), ready{Sim: url}, true)
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "simulator (%s) at %s, object table at %s/_sim/objects\n", preset, url, url)
			}
			if err != nil {
				return err
			}
			return srv.Serve(cmd.Context(), ln)
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:8099", "where to listen; port 0 picks one")
	f.StringVar(&preset, "preset", "crm", "kind of provider, one of the list above")
	f.StringSliceVar(&tokens, "token", nil, "TOKEN=ACCOUNT, may be repeated (default "+simulator.DefaultToken+"="+simulator.DefaultAccount+")")
	f.BoolVar(&verbose, "verbose", false, "log every request")
	f.BoolVar(&jsonReady, "json", false, "print where it listens as one JSON line")
	return cmd
}

// presetHelp is one line for each preset.
func presetHelp() string {
	var b strings.Builder
	for _, name := range simulator.Presets() {
		fmt.Fprintf(&b, "  %-14s %s\n", name, simulator.About(name))
	}
	return b.String()
}

// ready is the one line that a server prints for programs that started it.
type ready struct {
	Sim  string `json:"sim,omitempty"`
	NATS string `json:"nats,omitempty"`
	HTTP string `json:"http,omitempty"`
}
