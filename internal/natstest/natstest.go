// Package natstest starts embedded NATS servers with JetStream for tests. It is
// used by tests only, and by nothing else.
//
// Every server has a store folder of its own below t.TempDir, syncs each write
// (as the ledger requires of a server) and is stopped at the end of the test.
// Connections must be closed before their server stops; Connect registers its
// clean-up after Server's, so that the order comes right by itself.
package natstest

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// maxStore bounds the files of one test server, in bytes. Without a bound
	// the server takes a share of the free disk.
	maxStore = 2 << 30
	// maxMemory bounds the memory streams of one test server, in bytes.
	maxMemory = 64 << 20
	// readyWithin is how long a server may take to accept connections.
	readyWithin = 20 * time.Second
)

// Options returns the options of a test server on the folder dir. It listens
// nowhere: only in-process connections reach it.
func Options(dir string) *server.Options {
	return &server.Options{
		ServerName:         "natstest",
		DontListen:         true,
		JetStream:          true,
		StoreDir:           dir,
		SyncAlways:         true,
		JetStreamMaxStore:  maxStore,
		JetStreamMaxMemory: maxMemory,
		NoSigs:             true,
		NoLog:              true,
	}
}

// Server starts a server that listens nowhere.
func Server(t testing.TB) *server.Server {
	t.Helper()
	s := start(t, Options(t.TempDir()))
	t.Cleanup(func() { stop(s) })
	return s
}

// Listening starts a server that listens on a free port of the loopback
// interface; its ClientURL method tells which.
func Listening(t testing.TB) *server.Server {
	t.Helper()
	opts := Options(t.TempDir())
	opts.DontListen, opts.Host, opts.Port = false, "127.0.0.1", -1
	s := start(t, opts)
	t.Cleanup(func() { stop(s) })
	return s
}

func start(t testing.TB, opts *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatalf("natstest: new server: %v", err)
	}
	s.Start()
	if !s.ReadyForConnections(readyWithin) {
		t.Fatalf("natstest: server not ready within %v", readyWithin)
	}
	return s
}

func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// Node is a server that can be stopped and started again on its folder, while
// in-process connections to it stay and reconnect.
type Node struct {
	t    testing.TB
	opts *server.Options
	mu   sync.Mutex
	s    *server.Server
}

// NewNode starts a node.
func NewNode(t testing.TB) *Node {
	t.Helper()
	n := &Node{t: t, opts: Options(t.TempDir())}
	n.Start()
	t.Cleanup(n.Stop)
	return n
}

// Start starts the node again after Stop.
func (n *Node) Start() {
	n.t.Helper()
	s := start(n.t, n.opts.Clone())
	n.mu.Lock()
	n.s = s
	n.mu.Unlock()
}

// Stop stops the node. Its folder stays.
func (n *Node) Stop() {
	n.mu.Lock()
	s := n.s
	n.s = nil
	n.mu.Unlock()
	if s != nil {
		stop(s)
	}
}

// InProcessConn implements nats.InProcessConnProvider.
func (n *Node) InProcessConn() (net.Conn, error) {
	n.mu.Lock()
	s := n.s
	n.mu.Unlock()
	if s == nil {
		return nil, nats.ErrNoServers
	}
	return s.InProcessConn()
}

// Connect connects to a server or node inside the process. Publishes fail at
// once while it is disconnected, rather than being sent later.
func Connect(t testing.TB, s nats.InProcessConnProvider, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{
		nats.InProcessServer(s),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(20 * time.Millisecond),
		nats.ReconnectBufSize(-1),
		// The default handler prints what such tests do on purpose.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)
	nc, err := nats.Connect("", opts...)
	if err != nil {
		t.Fatalf("natstest: connect: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// JetStream returns a JetStream context on nc.
func JetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("natstest: jetstream: %v", err)
	}
	return js
}

// Eventually polls until ok returns true, and fails the test when it did not
// within the deadline. what completes the sentence "… did not happen".
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for pause := time.Millisecond; !ok(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen within %v", what, within)
		}
		time.Sleep(pause)
	}
}
