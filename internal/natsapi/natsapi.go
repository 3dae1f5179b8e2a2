// Package natsapi carries intake over NATS: a request/reply service that tools
// can discover, and the durable inbox of each tenant. It decides nothing.
//
// The tenant is a token of the subject, and the server's permissions decide who
// may publish there; what a request says about itself is never believed (I15).
package natsapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
)

// Service answers the verbs; intake.Service implements it.
type Service interface {
	Submit(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem)
	// SubmitAndWait is Submit and waits as the request says, if wait lets it.
	SubmitAndWait(ctx context.Context, tenant string, raw []byte, wait func() (context.Context, bool)) (api.Answer, *api.Problem)
	Get(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem)
	Wait(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem)
	List(ctx context.Context, tenant string, raw []byte) (api.Page, *api.Problem)
	Evidence(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem)
	Approve(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem)
	Decide(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem)
	Cancel(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem)
}

// Bounds of the service.
const (
	// MaxRequests is how many requests are answered at once, MaxTenantRequests how
	// many of one tenant if another has sent one within the last second; more wait,
	// each tenant's in a line of its own.
	MaxRequests       = 256
	MaxTenantRequests = 16
	// MaxTenantLine is how many of a tenant wait; more are told that the ledger is
	// not available. maxLineBytes bounds their sizes together.
	MaxTenantLine = 10_000
	maxLineBytes  = 16 << 20
	// MaxWaiters is how many requests wait at once, for an operation or behind a
	// submit. Of more, a wait is told that the ledger is not available, and a
	// submit is answered with what is recorded.
	MaxWaiters = 10_000
	// requestTimeout bounds one request, the time that it waits apart.
	requestTimeout = 15 * time.Second
	// waitTimeout is a little more than the longest wait.
	waitTimeout = 65 * time.Second
)

// Content types of the answers.
const (
	ContentTypeJSON    = "application/json"
	ContentTypeProblem = "application/problem+json"
)

// Config is what a Server needs.
type Config struct {
	Conn     *nats.Conn
	Subjects events.Subjects
	Service  Service
	// Version is the version of the program, as semver.
	Version string
	// Stats is shown as the data of the service's STATS; it may be nil.
	Stats func() any
	// Gate, if not nil, has the service take in the intents for the durable inboxes
	// itself, where the server can't promise that it keeps them.
	Gate *Gate
	// Go calls work in a goroutine of its own; nil means a new one.
	Go     func(work func())
	Logger *slog.Logger
}

// Server is the running service.
type Server struct {
	cfg    Config
	svc    micro.Service
	ctx    context.Context //nolint:containedctx // the life of all requests, ended by Stop
	cancel context.CancelFunc
	// waits is the life of whatever waits for an operation.
	waits     context.Context //nolint:containedctx // as ctx
	stopWaits context.CancelFunc
	line      *line
	waiters   chan struct{}
	wg        sync.WaitGroup
	gate      *nats.Subscription
	mu        sync.Mutex
	stopped   bool
}

// Start registers the service and answers until Stop.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Conn == nil || cfg.Service == nil || cfg.Version == "" {
		return nil, errors.New("natsapi: connection, service and version are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Go == nil {
		cfg.Go = func(work func()) { go work() }
	}
	s := &Server{
		cfg: cfg, line: newLine(time.Now), waiters: make(chan struct{}, MaxWaiters),
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.waits, s.stopWaits = context.WithCancel(s.ctx)
	mc := micro.Config{
		Name: "opledger", Version: cfg.Version, Description: "event-sourced ledger of outside operations",
		ErrorHandler: func(_ micro.Service, e *micro.NATSError) {
			cfg.Logger.LogAttrs(s.ctx, slog.LevelError, "service error", slog.String("subject", e.Subject), slog.String("err", e.Description))
		},
	}
	if cfg.Stats != nil {
		mc.StatsHandler = func(*micro.Endpoint) any { return cfg.Stats() }
	}
	svc, err := micro.AddService(cfg.Conn, mc)
	if err != nil {
		return nil, fmt.Errorf("natsapi: add service: %w", err)
	}
	s.svc = svc
	for _, verb := range api.Verbs() {
		handler := micro.HandlerFunc(func(r micro.Request) { s.accept(verb, r) })
		err := svc.AddEndpoint(verb, handler, micro.WithEndpointSubject(cfg.Subjects.API("*", verb)),
			micro.WithEndpointMetadata(map[string]string{"content-type": ContentTypeJSON, "verb": verb}))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("natsapi: add endpoint %s: %w", verb, err), svc.Stop())
		}
	}
	if cfg.Gate != nil {
		if err := s.openGate(); err != nil {
			return nil, errors.Join(err, svc.Stop())
		}
	}
	return s, nil
}

// lastAnswers bounds how long requests under way may take after Stop.
const lastAnswers = 3 * time.Second

// Stop takes no more requests, ends those that only wait, lets the others
// answer for a few seconds, and returns.
func (s *Server) Stop() error {
	err := s.svc.Stop()
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	if s.gate != nil {
		err = errors.Join(err, s.gate.Drain())
	}
	s.stopWaits()
	late := time.AfterFunc(lastAnswers, s.cancel)
	defer late.Stop()
	s.wg.Wait()
	s.cancel()
	return err
}

// begin counts a request among those that Stop waits for, unless it came too late.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.wg.Add(1)
	}
	return !s.stopped
}

func (s *Server) accept(verb string, r micro.Request) {
	q := request{verb: verb, tenant: tenantOf(s.cfg.Subjects.API("*", verb), r.Subject()), data: r.Data(), to: r.Reply()}
	if !s.begin() {
		return // its sender asks again
	}
	if verb == api.VerbWait {
		if !s.takeWaiter() {
			s.wg.Done()
			s.refuse(q.to, api.NewProblem(api.ProblemUnavailable, "too many wait requests; ask with get"))
			return
		}
		s.cfg.Go(func() { s.answer(s.waits, q, &place{s.leaveWaiter}, waitTimeout) })
		return
	}
	if !s.line.enter(q.tenant, len(q.data), func() {
		s.cfg.Go(func() { s.answer(s.ctx, q, &place{func() { s.line.leave(q.tenant) }}, requestTimeout) })
	}) {
		s.wg.Done()
		s.refuse(q.to, api.NewProblem(api.ProblemUnavailable, "too many requests of this tenant wait already; send it again later"))
	}
}

// request is a message as it came in.
type request struct {
	verb, tenant string
	data         []byte
	to           string
}

// place is where an open request counts: among those that are answered as soon
// as may be, or among those that wait.
type place struct{ leave func() }

func (s *Server) takeWaiter() bool {
	select {
	case s.waiters <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *Server) leaveWaiter() { <-s.waiters }

func (s *Server) answer(life context.Context, q request, at *place, timeout time.Duration) {
	defer func() { at.leave(); s.wg.Done() }()
	ctx, cancel := context.WithTimeout(life, timeout)
	defer cancel()
	s.handle(ctx, at, q)
}

func (s *Server) handle(ctx context.Context, at *place, q request) {
	tenant, data, to := q.tenant, q.data, q.to
	var answer any
	var p *api.Problem
	switch q.verb {
	case api.VerbSubmit:
		answer, p = s.cfg.Service.SubmitAndWait(ctx, tenant, data, func() (context.Context, bool) { return s.wait(at) })
	case api.VerbGet:
		answer, p = s.cfg.Service.Get(ctx, tenant, data)
	case api.VerbWait:
		answer, p = s.cfg.Service.Wait(ctx, tenant, data)
	case api.VerbList:
		answer, p = s.cfg.Service.List(ctx, tenant, data)
	case api.VerbEvidence:
		answer, p = s.cfg.Service.Evidence(ctx, tenant, data)
	case api.VerbApprove:
		answer, p = s.cfg.Service.Approve(ctx, tenant, data)
	case api.VerbDecide:
		answer, p = s.cfg.Service.Decide(ctx, tenant, data)
	case api.VerbCancel:
		answer, p = s.cfg.Service.Cancel(ctx, tenant, data)
	}
	if p != nil {
		s.refuse(to, p)
		return
	}
	body, err := json.Marshal(answer)
	if err != nil {
		s.refuse(to, api.NewProblem(api.ProblemUnavailable, "the answer could not be encoded"))
		return
	}
	s.reply(to, body, nats.Header{"Content-Type": {ContentTypeJSON}})
}

// wait gives a request's place to the next one and counts it among those that
// wait, if there is room. What it waits for ends with the server.
func (s *Server) wait(at *place) (context.Context, bool) {
	if !s.takeWaiter() {
		return nil, false
	}
	at.leave()
	at.leave = s.leaveWaiter
	return s.waits, true
}

// reply answers on the connection itself: a micro.Request may only be touched
// before its handler returns, and requests are handled side by side.
func (s *Server) reply(to string, body []byte, h nats.Header) {
	// Replies go to reply subjects only: the server does not hold a request's
	// reply subject against what its sender may publish, so an answer could
	// otherwise be led into the journal or into another tenant's inbox.
	if !strings.HasPrefix(to, "_") {
		return // nobody waits, or nobody may
	}
	if err := s.cfg.Conn.PublishMsg(&nats.Msg{Subject: to, Header: h, Data: body}); err != nil {
		s.cfg.Logger.LogAttrs(s.ctx, slog.LevelWarn, "answer not sent", slog.Any("err", err))
	}
}

// tenantOf returns the token of a subject that stands for the star of a pattern, or ""
// if the subject is not one of the pattern's.
func tenantOf(pattern, subject string) string {
	before, after, _ := strings.Cut(pattern, "*")
	tenant, ok := strings.CutPrefix(subject, before)
	if !ok {
		return ""
	}
	tenant, ok = strings.CutSuffix(tenant, after)
	if !ok {
		return ""
	}
	return tenant
}

func (s *Server) refuse(to string, p *api.Problem) {
	body, err := json.Marshal(p)
	if err != nil {
		body = nil
	}
	s.reply(to, body, nats.Header{
		micro.ErrorHeader: {p.Title}, micro.ErrorCodeHeader: {strconv.Itoa(p.Status)}, "Content-Type": {ContentTypeProblem},
	})
}

// Refused is what is published on the refused subject for an inbox message that
// can't be accepted: the problem, and the digest of the bytes that were
// received, so that the sender finds his message again. It holds no arguments.
type Refused struct {
	*api.Problem
	Tenant        string    `json:"tenant"`
	RequestDigest string    `json:"request_digest"`
	ReceivedAt    time.Time `json:"received_at"`
	InboxSeq      uint64    `json:"inbox_seq,omitempty"`
}

// Publisher publishes what the inbox could not accept, waits until that is stored for
// good, and returns its place in the stream of refusals.
type Publisher interface {
	Refuse(ctx context.Context, tenant string, body []byte) (seq uint64, err error)
}

// Inbox handles one message of a tenant's durable inbox: it is submitted like
// any request, but nothing waits for its end; what can't be accepted goes to the
// refused subject. It returns where it is kept now. An error means that the message must be delivered again.
func Inbox(ctx context.Context, log *slog.Logger, svc Service, pub Publisher, tenant string, data []byte, seq uint64, stamp time.Time) (Kept, error) {
	a, p := svc.Submit(ctx, tenant, data)
	if p == nil {
		return Kept{Seq: a.LastSeq, Repeated: a.Repeated}, nil
	}
	if p.Code == api.ProblemUnavailable {
		return Kept{}, p
	}
	log.LogAttrs(ctx, slog.LevelWarn, "intent from the inbox refused", slog.String("tenant", tenant),
		slog.String("operation_id", p.OperationID), slog.String("code", string(p.Code)))
	sum := sha256.Sum256(data)
	body, err := json.Marshal(Refused{
		Problem: p, Tenant: tenant, RequestDigest: "sha256:" + hex.EncodeToString(sum[:]),
		ReceivedAt: stamp.UTC(), InboxSeq: seq,
	})
	if err != nil {
		return Kept{}, fmt.Errorf("natsapi: encode refusal: %w", err)
	}
	place, err := pub.Refuse(ctx, tenant, body)
	return Kept{Refused: true, Seq: place}, err
}

// Kept is where an intent from the inbox is kept.
type Kept struct {
	// Seq is a sequence number of the journal, or of the stream of refusals.
	Seq     uint64
	Refused bool
	// Repeated: it was recorded before.
	Repeated bool
}
