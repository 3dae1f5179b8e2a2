package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/config"
	"github.com/opledger/opledger/internal/natsjournal"
	"github.com/opledger/opledger/projections"
)

// Log is access to the log and the projection with the ledger's own
// credentials, for the tools of operators.
type Log struct {
	Journal   *natsjournal.Journal
	Projector *projections.Projector
	Store     *projections.Store

	conn     *nats.Conn
	server   *embedded
	subjects events.Subjects
	// mark is the file of the high-water mark.
	mark string
}

// ErrNoLedger says that there is no store where the configuration puts it.
var ErrNoLedger = errors.New("no ledger in")

// OpenLog opens the log of a configuration: at url if given, else at the
// external server. With an embedded server it opens the store itself if no
// process runs on it, and otherwise connects to that process.
func OpenLog(ctx context.Context, cfg *config.Config, url string, log *slog.Logger) (*Log, error) {
	own := *cfg
	l := &Log{subjects: cfg.Subjects(), mark: cfg.Path(cfg.Integrity.HighWater)}
	if url != "" {
		own.NATS.URL = url
	}
	if own.NATS.URL == "" {
		dir := own.Path(own.NATS.StoreDir)
		if _, err := os.Stat(filepath.Join(dir, natsjournal.LockFile)); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w %s (nats.store_dir); nothing was created", ErrNoLedger, dir)
		}
		own.NATS.Listen, own.NATS.Sync = "none", config.SyncAlways
		server, err := startEmbedded(&own, log)
		switch {
		case err == nil:
			l.server = server
		case errors.Is(err, natsjournal.ErrLocked) && cfg.NATS.Listen != "none" && cfg.NATS.Password != "":
			own.NATS.URL = "nats://" + cfg.NATS.Listen
		case errors.Is(err, natsjournal.ErrLocked):
			return nil, fmt.Errorf("%w: the ledger is running; set nats.password (and nats.listen) so that it can be reached, or stop it", err)
		default:
			return nil, err
		}
	}
	if err := l.open(ctx, &own, log); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Log) open(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	var err error
	if l.conn, err = connect(cfg, l.server, "opledger tool", log); err != nil {
		return err
	}
	if l.Journal, err = natsjournal.Open(ctx, l.conn, natsjournal.Config{Topology: Topology(cfg), Logger: log}); err != nil {
		return err
	}
	pc := projections.Config{
		Conn: l.conn, Prefix: l.Journal.Names().Prefix, Subjects: cfg.Subjects(),
		Log: l.Journal, Streams: l.Journal, Logger: log,
	}
	if l.Store, err = projections.NewStore(pc); err != nil {
		return err
	}
	l.Projector, err = projections.NewProjector(pc, nil)
	return err
}

// Refused passes on what the durable inbox of a tenant could not accept, oldest
// first; an empty tenant means all. With follow it goes on until ctx ends and
// returns its error, otherwise it ends with what is stored now.
func (l *Log) Refused(ctx context.Context, tenant string, follow bool, fn func(body []byte) error) error {
	if tenant == "" {
		tenant = "*"
	}
	fail := func(err error) error { return fmt.Errorf("node: refused intents: %w", err) }
	js, err := jetstream.New(l.conn)
	if err != nil {
		return fail(err)
	}
	c, err := js.OrderedConsumer(ctx, l.Journal.Names().Refused, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{l.subjects.Refused(tenant)},
	})
	if err != nil {
		return fail(err)
	}
	info, err := c.Info(ctx)
	if err != nil {
		return fail(err)
	}
	if info.NumPending == 0 && !follow {
		return nil
	}
	messages, err := c.Messages()
	if err != nil {
		return fail(err)
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fail(err)
		}
		if err := fn(m.Data()); err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return fail(err)
		}
		if meta.NumPending == 0 && !follow {
			return nil
		}
	}
}

// Close gives everything back.
func (l *Log) Close() error {
	if l.conn != nil {
		l.conn.Close()
	}
	if l.server != nil {
		return l.server.stop()
	}
	return nil
}
