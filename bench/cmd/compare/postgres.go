package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/opledger/opledger/internal/child"
)

const (
	postgresUser  = "postgres"
	postgresStart = 30 * time.Second
	postgresStop  = 20 * time.Second
	postgresPoll  = 50 * time.Millisecond
)

// postgres is a server of its own in a temporary folder.
type postgres struct {
	// version and durable are what the server says of itself.
	version string
	durable map[string]string

	port int
	cmd  *exec.Cmd
	done chan struct{}
}

// startPostgres makes a cluster in dir and starts it on a loopback port. The
// server refuses to run as root, so root lends it the user that the package made.
func startPostgres(ctx context.Context, bin, dir string) (*postgres, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	owner := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		id, err := postgresCredential()
		if err != nil {
			return nil, err
		}
		if err := os.Chown(dir, int(id.Uid), int(id.Gid)); err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
		owner.Credential = id
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", postgresUser, "-A", "trust", "-E", "UTF8", "--no-instructions")
	initdb.Dir, initdb.SysProcAttr = dir, owner
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compare: initdb: %w\n%s", err, out)
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"-D", data}
	for _, s := range []string{
		"listen_addresses=127.0.0.1", fmt.Sprintf("port=%d", port), "unix_socket_directories=" + dir,
		"fsync=on", "synchronous_commit=on", "full_page_writes=on",
		"shared_buffers=512MB", "max_connections=200", "max_wal_size=4GB",
	} {
		args = append(args, "-c", s)
	}
	logPath := filepath.Join(dir, "..", "postgres.log")
	logFile, err := os.Create(logPath)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	defer func() { _ = logFile.Close() }()
	p := &postgres{port: port, done: make(chan struct{}), durable: make(map[string]string)}
	p.cmd = exec.Command(filepath.Join(bin, "postgres"), args...) //nolint:noctx // stopped by stop, so that it is reaped
	p.cmd.Dir, p.cmd.SysProcAttr, p.cmd.Stdout, p.cmd.Stderr = dir, owner, logFile, logFile
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("compare: postgres: %w", err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }() // how it ended is in its log
	if err := p.ready(ctx); err != nil {
		p.stop()
		return nil, fmt.Errorf("%w%s", err, child.Tail(logPath))
	}
	return p, nil
}

func postgresCredential() (*syscall.Credential, error) {
	u, err := user.Lookup(postgresUser)
	if err != nil {
		return nil, fmt.Errorf("compare: PostgreSQL does not run as root, and there is no user %s: %w", postgresUser, err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return nil, fmt.Errorf("compare: the user %s: %w", postgresUser, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

func freePort(ctx context.Context) (int, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("compare: %w", err)
	}
	defer func() { _ = ln.Close() }()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return 0, fmt.Errorf("compare: %w", err)
	}
	return strconv.Atoi(port)
}

// url is the address of a database.
func (p *postgres) url(database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", postgresUser, p.port, database)
}

// ready waits for the server and asks it for its durable settings.
func (p *postgres) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, postgresStart)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, p.url(postgresUser))
		if err == nil {
			defer func() { _ = c.Close(ctx) }()
			return p.settings(ctx, c)
		}
		select {
		case <-p.done:
			return errors.New("compare: postgres has ended")
		case <-ctx.Done():
			return fmt.Errorf("compare: postgres is not ready after %s: %w", postgresStart, err)
		case <-time.After(postgresPoll):
		}
	}
}

func (p *postgres) settings(ctx context.Context, c *pgx.Conn) error {
	if err := c.QueryRow(ctx, "SHOW server_version").Scan(&p.version); err != nil {
		return fmt.Errorf("compare: postgres: %w", err)
	}
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		var value string
		if err := c.QueryRow(ctx, "SHOW "+name).Scan(&value); err != nil {
			return fmt.Errorf("compare: postgres: %w", err)
		}
		if p.durable[name] = value; value != "on" {
			return fmt.Errorf("compare: postgres has %s %s; on is the durable setting", name, value)
		}
	}
	return nil
}

// fresh makes an empty database and lets the disk come to rest.
func (p *postgres) fresh(ctx context.Context, name string) (string, error) {
	c, err := pgx.Connect(ctx, p.url(postgresUser))
	if err != nil {
		return "", fmt.Errorf("compare: postgres: %w", err)
	}
	defer func() { _ = c.Close(ctx) }()
	db := pgx.Identifier{name}.Sanitize()
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + db + " WITH (FORCE)", "CREATE DATABASE " + db, "CHECKPOINT"} {
		if _, err := c.Exec(ctx, sql); err != nil {
			return "", fmt.Errorf("compare: postgres: %s: %w", sql, err)
		}
	}
	return p.url(name), nil
}

// stop ends the server and waits until it is gone. SIGINT is its fast shutdown,
// SIGQUIT the immediate one.
func (p *postgres) stop() {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		_ = p.cmd.Process.Signal(s) // it may be gone
		select {
		case <-p.done:
			return
		case <-time.After(postgresStop):
		}
	}
}
