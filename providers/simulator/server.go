package simulator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// DefaultToken is the bearer token that a server knows when its Config names
// none. Its account is DefaultAccount.
const (
	DefaultToken   = "sim-token"
	DefaultAccount = "acct_1"
)

const (
	adminPrefix       = "/_sim/"
	maxInFlight       = 10_000
	readHeaderTimeout = 10 * time.Second
)

// errClosed is why a wait inside a request ended early.
var errClosed = errors.New("simulator: the server is closed")

// Config is what a Server is made of. The zero value works.
type Config struct {
	// Settings is the behaviour at the start and after a reset. The zero value
	// is a plain CRM without keys and without lag; see also Preset.
	Settings Settings
	// Tokens maps bearer tokens to accounts. Empty means DefaultToken for
	// DefaultAccount. The limit is 10,000 tokens.
	Tokens map[string]string
	// AdminToken, when set, is the bearer token that the admin API demands.
	AdminToken string
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// Sleep waits for delay and apply_late. Nil waits with a timer. An error means
	// that the wait was given up, and the connection is closed. It must end when
	// its context does.
	Sleep func(ctx context.Context, d time.Duration) error
	// LateByClock lets apply_late commit by Now and not after a wait: before the
	// first request, also of the admin API, that comes at or after its time.
	LateByClock bool
	// TLS lets Serve speak TLS too, on the same port; the protocol is HTTP/1.1.
	// Without it every connection that begins with TLS fails in its handshake.
	TLS *tls.Config
	// Logger gets one line per provider request at debug level. Nil discards.
	Logger *slog.Logger
}

// Server is the provider. It is an http.Handler; Serve runs it on a listener.
// It must not be copied. To close connections without an answer it needs
// HTTP/1.1.
type Server struct {
	cfg   Config
	admin http.Handler
	mark  *regexp.Regexp // a label that the ledger made

	gate   gate
	closed chan struct{}

	mu      sync.Mutex
	st      *state
	changed chan struct{} // closed and replaced when a long poll should look again
}

// New makes a server from a configuration, or says what is wrong with it.
func New(cfg Config) (*Server, error) {
	cfg.Settings = cfg.Settings.withDefaults()
	if err := cfg.Settings.validate(); err != nil {
		return nil, err
	}
	cfg.Tokens = maps.Clone(cfg.Tokens)
	if len(cfg.Tokens) == 0 {
		cfg.Tokens = map[string]string{DefaultToken: DefaultAccount}
	}
	if len(cfg.Tokens) > maxTokens {
		return nil, fmt.Errorf("simulator: %d tokens, the limit is %d", len(cfg.Tokens), maxTokens)
	}
	for token, account := range cfg.Tokens {
		if token == "" || account == "" {
			return nil, errors.New("simulator: a token and its account must not be empty")
		}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg:     cfg,
		mark:    regexp.MustCompile(ledgerMark),
		closed:  make(chan struct{}),
		st:      newState(cfg.Settings, cfg.Tokens),
		changed: make(chan struct{}),
	}
	s.admin = s.adminHandler()
	return s, nil
}

// ServeHTTP answers one request, of the provider or of the admin API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, ok := s.gate.enter()
	if !ok {
		panic(http.ErrAbortHandler)
	}
	defer s.gate.leave()
	s.settle()
	if strings.HasPrefix(r.URL.Path, adminPrefix) {
		s.admin.ServeHTTP(w, r)
		return
	}
	if n > maxInFlight {
		busy := problem(http.StatusServiceUnavailable, "busy", "too many requests are in progress").
			with("X-Request-Id", "req_"+uuid.NewString()).with("Content-Type", "application/json")
		_ = writeAnswer(w, busy) // a client that is gone needs no answer
		return
	}
	s.serveProvider(w, r)
}

// Close ends all delays and holds, closes their connections, waits for the
// requests in progress, and refuses further ones. It is for a server that is
// used as a handler, and must come before the Close of an httptest.Server,
// which waits for held requests.
func (s *Server) Close() {
	s.mu.Lock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	s.mu.Unlock()
	s.gate.shut()
}

// endKey is the context key of the channel that ends with a Serve.
type endKey struct{}

// connKey is the context key of a connection's count of requests. HTTP/1.1
// carries one at a time.
type connKey struct{}

func countRequest(r *http.Request) {
	if n, ok := r.Context().Value(connKey{}).(*int); ok {
		*n++
	}
}

// reusedConnection reports whether the connection has carried a request before;
// only Serve knows.
func reusedConnection(r *http.Request) bool {
	n, ok := r.Context().Value(connKey{}).(*int)
	return ok && *n > 1
}

// Serve answers on the listener until ctx ends, then closes every connection,
// held ones too, waits for the requests in progress, and returns nil. It may be
// called again with a new listener: the provider comes back with its data. A
// request that was to commit later (apply_late) is lost when ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running gate
	hs := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, ok := running.enter(); !ok {
				panic(http.ErrAbortHandler)
			}
			defer running.leave()
			countRequest(r)
			s.ServeHTTP(w, r)
		}),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, new(int))
		},
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(ctx, endKey{}, ctx.Done())
		},
		ReadHeaderTimeout: readHeaderTimeout,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- hs.Serve(listener{l, s}) }()

	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("simulator: serve: %w", err)
		_ = hs.Close() // the listener has failed already
	case <-ctx.Done():
		_ = hs.Close() // closing is all that is left to do
		err = ended(<-failed)
	case <-s.closed:
		_ = hs.Close()
		err = ended(<-failed)
	}
	cancel()
	running.shut()
	return err
}

// ended is why serving ended, apart from having been closed.
func ended(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// ender is what ends the waits of one request: its Serve, or the server.
type ender struct{ served, closed <-chan struct{} }

func (s *Server) enderOf(r *http.Request) ender {
	served, _ := r.Context().Value(endKey{}).(<-chan struct{})
	return ender{served: served, closed: s.closed}
}

// await waits for the channel and returns errClosed if the server ends first.
func await[T any](e ender, c <-chan T) error {
	select {
	case <-c:
		return nil
	case <-e.served:
	case <-e.closed:
	}
	return errClosed
}

// sleep waits for a time and returns errClosed if the server ends first.
func (e ender) sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	return await(e, t.C)
}

// gate counts requests in progress and lets one wait for them.
type gate struct {
	mu   sync.Mutex
	n    int
	down bool
	idle chan struct{}
}

func (g *gate) enter() (n int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.down {
		return 0, false
	}
	g.n++
	return g.n, true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// shut lets nobody in and waits until all have left. Only the first of two
// callers waits.
func (g *gate) shut() {
	g.mu.Lock()
	first := !g.down
	g.down = true
	var idle chan struct{}
	if first && g.n > 0 {
		idle = make(chan struct{})
		g.idle = idle
	}
	g.mu.Unlock()
	if idle != nil {
		<-idle
	}
}
