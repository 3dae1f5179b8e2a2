package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/opledger/opledger"
	"github.com/opledger/opledger/internal/access"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/providers"
)

// target says which ledger a command talks to, and as whom. Flags come before
// the environment, the environment before the configuration file.
type target struct {
	server, user, tenant, config, prefix string
	timeout                              time.Duration
	output                               string
}

func (t *target) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.server, "server", "", "NATS server (OPLEDGER_SERVER; default nats://127.0.0.1:4222)")
	f.StringVar(&t.user, "user", "", "user on the server (OPLEDGER_USER); the password comes from OPLEDGER_PASSWORD")
	f.StringVar(&t.tenant, "tenant", "", "tenant (OPLEDGER_TENANT; default: the only one of --config)")
	f.StringVar(&t.config, "config", "", "take server, tenant and an operator's credentials from this configuration file (OPLEDGER_CONFIG)")
	f.StringVar(&t.prefix, "prefix", "", "first token of the subjects (OPLEDGER_PREFIX; default opledger)")
	f.DurationVar(&t.timeout, "timeout", 10*time.Second, "how long to wait for an answer of the server")
	t.outputFlag(cmd)
}

func (t *target) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&t.output, "output", "o", "table", "table, json or jsonl")
}

func (t *target) checkOutput() error {
	switch t.output {
	case "table", "json", "jsonl":
		return nil
	}
	return usage("--output must be table, json or jsonl, not %q", t.output)
}

// with runs fn with a connected client. The context that fn gets ends as soon as
// the server denies something or is gone: no command waits for an answer that
// can't come.
func (t *target) with(ctx context.Context, fn func(context.Context, *opledger.Client) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, closeConn, err := t.client(cancel)
	if err != nil {
		return err
	}
	defer closeConn()
	err = fn(ctx, c)
	if _, final := errors.AsType[*codeError](err); err == nil || final {
		return err
	}
	return because(ctx, err)
}

// because returns why the context ended, where that says more than err.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
		return cause
	}
	if errors.Is(err, nats.ErrConnectionClosed) {
		return errLost // told before the context was
	}
	return err
}

// client connects to the service. The returned func closes the connection; stop
// is called when the connection has become useless.
func (t *target) client(stop context.CancelCauseFunc) (*opledger.Client, func(), error) {
	if err := t.checkOutput(); err != nil {
		return nil, nil, err
	}
	server := cmp.Or(t.server, os.Getenv("OPLEDGER_SERVER"))
	user := cmp.Or(t.user, os.Getenv("OPLEDGER_USER"))
	tenant := cmp.Or(t.tenant, os.Getenv("OPLEDGER_TENANT"))
	prefix := cmp.Or(t.prefix, os.Getenv("OPLEDGER_PREFIX"))
	password := os.Getenv("OPLEDGER_PASSWORD")
	if cmp.Or(t.config, os.Getenv("OPLEDGER_CONFIG")) != "" {
		cfg, err := loadConfig(t.config)
		if err != nil {
			return nil, nil, err
		}
		prefix = cmp.Or(prefix, cfg.Prefix)
		if server = cmp.Or(server, cfg.NATS.URL); server == "" {
			if cfg.NATS.Listen == "none" {
				return nil, nil, usage("nats.listen is none: the ledger of this configuration can't be reached from outside")
			}
			server = "nats://" + cfg.NATS.Listen
		}
		tenant = tenantOf(cfg, tenant)
		if tenant != "" && (user == "" || password == "") {
			if user, password, err = credentials(cfg, tenant, user); err != nil {
				return nil, nil, err
			}
		}
	}
	server = cmp.Or(server, nats.DefaultURL)
	if tenant == "" {
		return nil, nil, usage("which tenant? --tenant, OPLEDGER_TENANT, or --config with just one")
	}
	opts := []nats.Option{
		nats.Name("opledger cli"), nats.Timeout(t.timeout), nats.NoReconnect(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				stop(denied(user, tenant, err))
			}
		}),
		nats.ClosedHandler(func(*nats.Conn) { stop(errLost) }),
	}
	if user != "" {
		opts = append(opts, nats.UserInfo(user, password), nats.CustomInboxPrefix(access.InboxPrefix(user)))
	}
	nc, err := nats.Connect(server, opts...)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s as user %q: %w", config.ShownURL(server), user, err)
	}
	c, err := opledger.NewClient(opledger.ClientConfig{Conn: nc, Tenant: tenant, Prefix: prefix, Timeout: t.timeout})
	if err != nil {
		nc.Close()
		return nil, nil, &codeError{code: exitUsage, err: err}
	}
	return c, nc.Close, nil
}

// tenantOf is the given tenant, or the only one of the configuration.
func tenantOf(cfg *config.Config, given string) string {
	if given == "" && len(cfg.Tenants) == 1 {
		return cfg.Tenants[0].ID
	}
	return given
}

// errLost: the connection ended while an answer was waited for.
var errLost = errors.New("lost the connection to the server")

var publishTo = regexp.MustCompile(`(?i)publish to "[^"]*\.([a-z]+)"`)

// denied says what the server's permissions violation means.
func denied(user, tenant string, err error) error {
	if m := publishTo.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("user %q may not %s for tenant %s: %w", user, m[1], tenant, nats.ErrPermissionViolation)
	}
	return fmt.Errorf("user %q may not listen to answers of tenant %s: %w", user, tenant, err)
}

// credentials picks the named user of the tenant, or its first operator.
func credentials(cfg *config.Config, tenant, user string) (name, password string, err error) {
	for _, t := range cfg.Tenants {
		if t.ID != tenant {
			continue
		}
		for _, u := range t.Users {
			if u.Name != user && (user != "" || u.Role != access.RoleOperator) {
				continue
			}
			ref, err := providers.ParseRef(u.Password)
			if err != nil {
				return "", "", err
			}
			secret, err := ref.Resolve()
			if err != nil {
				return "", "", fmt.Errorf("password of user %s: %w", u.Name, err)
			}
			return u.Name, secret.Reveal(), nil
		}
	}
	return "", "", usage("the configuration has no %s for tenant %q", cmp.Or(user, "operator"), tenant)
}
