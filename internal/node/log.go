package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

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

	conn   *nats.Conn
	server *embedded
}

// OpenLog opens the log of a configuration: at url if given, else at the
// external server. With an embedded server it opens the store itself if no
// process runs on it, and otherwise connects to that process.
func OpenLog(ctx context.Context, cfg *config.Config, url string, log *slog.Logger) (*Log, error) {
	own := *cfg
	l := &Log{}
	if url != "" {
		own.NATS.URL = url
	}
	if own.NATS.URL == "" {
		own.NATS.Listen = "none"
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
