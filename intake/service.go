package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Recorder appends events behind a state; see internal/writer.
type Recorder interface {
	Append(ctx context.Context, s operation.State, actor string, payloads ...events.Payload) (operation.State, error)
}

// States reads what is known of operations.
type States interface {
	State(ctx context.Context, tenant, operation string, min uint64) (operation.State, error)
	Truth(ctx context.Context, tenant, operation string) (operation.State, error)
	// Glance is State, but may be behind: an absent operation may be in the log.
	Glance(ctx context.Context, tenant, operation string) (operation.State, error)
	// Latest is at least as new as all that subscriptions were told before.
	Latest(ctx context.Context, tenant, operation string) (operation.State, error)
	// Scan passes every operation of a tenant, in no particular order.
	Scan(ctx context.Context, tenant string, fn func(operation.State) error) error
	// Subscribe tells of later states of one operation.
	Subscribe(tenant, operation string) (<-chan operation.State, func())
}

// Errors of a Catalogue.
var (
	ErrNoProvider = errors.New("intake: no such provider")
	ErrNoAction   = errors.New("intake: no such action")
	ErrNoAccount  = errors.New("intake: no such account")
	// ErrArguments: the arguments do not fit the action's schema.
	ErrArguments = errors.New("intake: arguments do not fit")
)

// Offer is what a provider's current contract says of an action.
type Offer struct {
	Contract operation.Contract
	Ref      events.ContractRef
	Account  events.Account
	// SchemaVersion is the provider's API version.
	SchemaVersion string
}

// Catalogue knows the contracts.
type Catalogue interface {
	// Offer returns the current contract; the error wraps ErrNoProvider,
	// ErrNoAction or ErrNoAccount.
	Offer(ctx context.Context, provider, account, action string) (Offer, error)
	// Contract returns the revision that an intent was accepted under.
	Contract(ctx context.Context, intent events.IntentRecorded) (operation.Contract, error)
	// Bind validates arguments against the schema of the revision with this
	// digest and fills in its defaults. The error wraps ErrArguments if they do
	// not fit, and then names places, not values; any other error may pass.
	Bind(ctx context.Context, ref events.ContractRef, provider, action string, args []byte) ([]byte, error)
	// Scope derives the conflict scope of bound arguments by the revision with
	// this digest; "" where the action has none.
	Scope(ctx context.Context, ref events.ContractRef, provider, action string, account events.Account, args []byte) (string, error)
	// Render returns the request that would be sent, redacted, as JSON.
	Render(ctx context.Context, s operation.State) (json.RawMessage, error)
	// Keep stores the revision, so that it can be found for ever.
	Keep(ctx context.Context, contractDigest string) error
}

// Scopes are the records of which operation took a conflict scope last.
type Scopes interface {
	LastScope(ctx context.Context, tenant, scope string) (events.ScopeTaken, error)
}

// Bounds of the service.
const (
	// MaxWait bounds one wait.
	MaxWait = 60 * time.Second
	// MaxList is the longest page of a list.
	MaxList = 1000
	// maxTries bounds how often a decision is made anew because another event
	// came first.
	maxTries = 16
)

// Tenant is what intake knows of a tenant.
type Tenant struct {
	ID string
	// ApprovalInSubmit allows an approval to come with the intent. Only for
	// tenants whose application, not its model, asks the person.
	ApprovalInSubmit bool
	// HoldRepeats holds a possible repeat until a person resumes or cancels it.
	HoldRepeats bool
}

// HoldPossibleRepeat is why a possible repeat is held.
const HoldPossibleRepeat = "possible_repeat"

// Config is what a Service needs.
type Config struct {
	Recorder  Recorder
	States    States
	Catalogue Catalogue
	// Ledger is the id of the ledger, a UUID.
	Ledger  string
	Tenants []Tenant
	// Earlier returns an operation of the tenant with the same request_id,
	// provider, account and action, or "". It may be nil.
	Earlier func(tenant string, i events.IntentRecorded) string
	// Scopes tells who holds a conflict scope. It may be nil.
	Scopes Scopes
	// Actor names this process in the events that it writes.
	Actor  string
	Now    func() time.Time
	Random func() float64
	// NewID mints the ids of permits; nil means events.NewID.
	NewID func() string
	// Observe is told how each intent ended: recorded, repeated, or a problem
	// code. It may be nil.
	Observe func(result string)
	Logger  *slog.Logger
}

// Service checks, freezes, journals and answers. It is safe for concurrent use.
type Service struct {
	cfg     Config
	tenants map[string]Tenant
}

// New returns a Service.
func New(cfg Config) (*Service, error) {
	if cfg.Recorder == nil || cfg.States == nil || cfg.Catalogue == nil || cfg.Ledger == "" || cfg.Now == nil || cfg.Random == nil {
		return nil, errors.New("intake: recorder, states, catalogue, ledger id, clock and random source are required")
	}
	if cfg.Actor == "" {
		cfg.Actor = "intake"
	}
	if cfg.NewID == nil {
		cfg.NewID = events.NewID
	}
	if cfg.Observe == nil {
		cfg.Observe = func(string) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{cfg: cfg, tenants: make(map[string]Tenant)}
	for _, t := range cfg.Tenants {
		if err := events.CheckID("tenant", t.ID); err != nil {
			return nil, err
		}
		s.tenants[t.ID] = t
	}
	return s, nil
}

// Submit records an intent, or returns what is stored under its id already.
// When it returns an answer, the intent is durable. A crash on the way leaves
// either nothing or the recorded intent; submitting again is always safe. It
// does not wait, whatever the request says.
func (s *Service) Submit(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem) {
	return s.SubmitAndWait(ctx, tenant, raw, nil)
}

// SubmitAndWait is Submit, and then waits for as long as the request says: until
// the operation is final, a review is open, or the time is over. ctx bounds the
// submit. wait is called once the intent is durable, if there is something to
// wait for; the context that it returns bounds the wait, and with false there is
// none. Nothing that happens behind the append is missed.
func (s *Service) SubmitAndWait(ctx context.Context, tenant string, raw []byte, wait func() (context.Context, bool)) (api.Answer, *api.Problem) {
	w, p := s.wish(tenant, raw)
	if p != nil {
		s.cfg.Observe(string(p.Code))
		return api.Answer{}, p
	}
	ms := w.req.WaitMS
	waits := wait != nil && ms > 0
	var news <-chan operation.State
	if waits {
		var cancel func()
		news, cancel = s.cfg.States.Subscribe(tenant, w.id)
		defer cancel()
	}
	state, repeated, p := s.record(ctx, w)
	if p != nil {
		p.OperationID = w.id
		s.cfg.Observe(string(p.Code))
		return api.Answer{}, p
	}
	if repeated {
		s.cfg.Observe("repeated")
	} else {
		s.cfg.Observe("recorded")
	}
	if waits && repeated {
		state = s.latest(ctx, state)
	}
	if waits && !settled(state) {
		if waiting, ok := wait(); ok {
			state = await(waiting, news, state, ms)
		}
	}
	a := api.NewAnswer(state, s.cfg.Now())
	a.Repeated = repeated
	return a, nil
}

// wish is a request that was read and checked.
type wish struct {
	tenant Tenant
	id     string
	req    api.SubmitRequest
}

func (s *Service) wish(tenant string, raw []byte) (wish, *api.Problem) {
	t, ok := s.tenants[tenant]
	if !ok {
		return wish{}, api.NewProblem(api.ProblemUnknownTenant, "tenant %q", cut(tenant))
	}
	req, p := decode[api.SubmitRequest](raw)
	if p != nil {
		return wish{}, p
	}
	id, p := s.operationID(tenant, req.OperationID, req.Source, req.SourceEventID, req.Slot)
	if p != nil {
		return wish{}, p
	}
	p = checkSubmit(req)
	if p == nil && req.Approval != nil && !t.ApprovalInSubmit {
		p = api.NewProblem(api.ProblemNotAllowed, "tenant %s may not hand in approvals with an intent; use approve", tenant)
	}
	if p != nil {
		p.OperationID = id
	}
	return wish{tenant: t, id: id, req: req}, p
}

// record stores the intent of a wish, or finds it stored: then repeated is true.
func (s *Service) record(ctx context.Context, w wish) (state operation.State, repeated bool, p *api.Problem) {
	tenant, id, req := w.tenant.ID, w.id, w.req
	// Most ids are new: the compare-and-swap of the first event finds out those
	// that are not, and then the log is read.
	read := s.cfg.States.Glance
	for range maxTries {
		state, err := read(ctx, tenant, id)
		if err != nil {
			return state, false, s.unavailable(ctx, "read the operation", err)
		}
		repeated, equal := state.Status != operation.StatusAbsent, true
		if repeated {
			if equal, p = s.compare(ctx, state, req); p != nil {
				return state, true, p
			}
		} else {
			intent, p := s.freeze(ctx, w.tenant, id, req)
			if p != nil {
				return state, false, p
			}
			// What is folded from stray messages keeps its place in the log.
			state.Tenant, state.OperationID, state.Traceparent = tenant, id, req.Traceparent
			state, err = s.cfg.Recorder.Append(ctx, state, s.cfg.Actor, intent)
			if errors.Is(err, events.ErrConflict) {
				read = s.cfg.States.Truth
				continue // somebody recorded it first: compare with that
			}
			if err != nil {
				return state, false, s.unavailable(ctx, "record the intent", err)
			}
			s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "intent recorded", slog.String("tenant", tenant),
				slog.String("operation_id", id), slog.String("provider", intent.Provider), slog.String("action", intent.Action))
		}
		if req.Approval != nil {
			if p := s.approvable(ctx, state, req, equal); p != nil {
				return state, repeated, p
			}
			state, p = s.approveWithSubmit(ctx, state, *req.Approval)
		}
		return state, repeated, p
	}
	return state, false, api.NewProblem(api.ProblemUnavailable, "the operation kept changing")
}

// approvable refuses an approval that comes with a repeat and would bind what
// its approver did not see: other arguments, another choice for unknown outcomes,
// or another revision of the contract.
func (s *Service) approvable(ctx context.Context, state operation.State, req api.SubmitRequest, equal bool) *api.Problem {
	seen := req.OnUnknown
	if seen == "" {
		seen = events.OnUnknownContract
	}
	offer, err := s.cfg.Catalogue.Offer(ctx, req.Provider, req.Account, req.Action)
	if err != nil {
		return s.unavailable(ctx, "find the contract", err)
	}
	if equal && seen == state.Intent.OnUnknown && offer.Ref.Digest == state.Intent.Digest {
		return nil
	}
	p := api.NewProblem(api.ProblemDigestMismatch,
		"the recorded intent has args %s, on_unknown %s and contract %s; approve it by its digest %s",
		state.Intent.ArgsDigest, state.Intent.OnUnknown, state.Intent.Digest, state.Intent.IntentDigest)
	a := api.NewAnswer(state, s.cfg.Now())
	p.Answer = &a
	return p
}

// approveWithSubmit appends the approval that came with the intent, also for a
// repeat: a crash may have left it out.
func (s *Service) approveWithSubmit(ctx context.Context, state operation.State, g api.GivenApproval) (operation.State, *api.Problem) {
	if state.Status.Final() || state.Approval != nil {
		return state, nil
	}
	grant := operation.Grant{
		Approver: g.Approver, IntentDigest: state.Intent.IntentDigest, ExpiresAt: g.ExpiresAt, Reason: g.Reason,
	}
	return s.decide(ctx, state, g.Approver, func(st operation.State, c operation.Contract, p operation.Params) ([]events.Payload, operation.Refusal) {
		return operation.Approved(st, grant, p)
	})
}

func (s *Service) operationID(tenant, id, source, sourceEventID, slot string) (string, *api.Problem) {
	if source == "" && sourceEventID == "" {
		if slot != "" {
			return "", api.NewProblem(api.ProblemInvalidID, "slot needs source and source_event_id")
		}
		if err := events.CheckID("operation_id", id); err != nil {
			return "", api.NewProblem(api.ProblemInvalidID, "%v", err)
		}
		return id, nil
	}
	if source == "" || sourceEventID == "" {
		return "", api.NewProblem(api.ProblemInvalidID, "source and source_event_id go together")
	}
	derived, err := events.SourceOperationID(s.cfg.Ledger, tenant, source, sourceEventID, slot)
	if err != nil {
		return "", api.NewProblem(api.ProblemUnavailable, "%v", err)
	}
	if id != "" && id != derived {
		return "", api.NewProblem(api.ProblemInvalidID, "operation_id is derived from the source event; leave it out")
	}
	return derived, nil
}

// compare holds a repeat against the stored intent, bound with the contract
// that is stored in the intent. It reports whether they are equal; a difference
// in nothing but arguments that the contract ignores is no problem.
func (s *Service) compare(ctx context.Context, state operation.State, req api.SubmitRequest) (bool, *api.Problem) {
	again := events.IntentRecorded{
		Provider: req.Provider, Account: events.Account{Name: req.Account}, Action: req.Action,
	}
	bound, err := s.cfg.Catalogue.Bind(ctx, state.Intent.ContractRef, state.Intent.Provider, state.Intent.Action, req.Args)
	if errors.Is(err, ErrArguments) {
		bound = req.Args // what does not even fit the stored action differs from it
	} else if err != nil {
		return false, s.unavailable(ctx, "read the contract of the recorded intent", err)
	}
	doc, err := canonical(bound)
	if err != nil {
		return false, api.NewProblem(api.ProblemMalformed, "args: %v", err)
	}
	again.ArgsDigest = digest(doc)
	fields := operation.Difference(state.Intent, again)
	if len(fields) == 0 {
		return true, nil
	}
	if slices.Equal(fields, []string{"args"}) {
		contract, err := s.cfg.Catalogue.Contract(ctx, state.Intent)
		if err != nil {
			return false, s.unavailable(ctx, "read the contract of the recorded intent", err)
		}
		if sameBut(contract.IgnoredArgs, state.Intent.Args, doc) {
			return false, nil
		}
	}
	p := api.NewProblem(api.ProblemConflict, "%s is recorded with other content: %s differ; a new wish needs a new operation id",
		state.OperationID, strings.Join(fields, ", "))
	p.Fields, p.RecordedDigest, p.ReceivedDigest = fields, state.Intent.ArgsDigest, again.ArgsDigest
	a := api.NewAnswer(state, s.cfg.Now())
	p.Answer = &a
	return false, p
}

// freeze makes the intent that is recorded.
func (s *Service) freeze(ctx context.Context, tenant Tenant, id string, req api.SubmitRequest) (events.IntentRecorded, *api.Problem) {
	var none events.IntentRecorded
	offer, err := s.cfg.Catalogue.Offer(ctx, req.Provider, req.Account, req.Action)
	switch {
	case errors.Is(err, ErrNoProvider):
		return none, api.NewProblem(api.ProblemUnknownProvider, "provider %q", req.Provider)
	case errors.Is(err, ErrNoAction):
		return none, api.NewProblem(api.ProblemUnknownAction, "provider %q has no action %q", req.Provider, req.Action)
	case errors.Is(err, ErrNoAccount):
		return none, api.NewProblem(api.ProblemUnknownAccount, "provider %q has no account %q", req.Provider, req.Account)
	case err != nil:
		return none, s.unavailable(ctx, "find the contract", err)
	}
	bound, err := s.cfg.Catalogue.Bind(ctx, offer.Ref, req.Provider, req.Action, req.Args)
	if errors.Is(err, ErrArguments) {
		return none, api.NewProblem(api.ProblemInvalidArgs, "%v", err)
	}
	if err != nil {
		return none, s.unavailable(ctx, "bind the arguments", err)
	}
	args, err := canonical(bound)
	if err != nil {
		return none, api.NewProblem(api.ProblemMalformed, "args: %v", err)
	}
	if req.ArgsDigest != "" && req.ArgsDigest != digest(args) {
		return none, api.NewProblem(api.ProblemDigestMismatch, "args_digest is %s, the bound arguments have %s", cut(req.ArgsDigest), digest(args))
	}
	key, err := events.ProviderKey(s.cfg.Ledger, tenant.ID, id)
	if err != nil {
		return none, api.NewProblem(api.ProblemUnavailable, "%v", err)
	}
	approval, p := requirement(offer.Contract, req, s.cfg.Now())
	if p != nil {
		return none, p
	}
	onUnknown, p := choice(offer.Contract, req.OnUnknown, approval)
	if p != nil {
		return none, p
	}
	scope, p := s.scope(ctx, offer, req, args)
	if p != nil {
		return none, p
	}
	if err := s.cfg.Catalogue.Keep(ctx, offer.Ref.Digest); err != nil {
		return none, s.unavailable(ctx, "store the contract", err)
	}
	intent := events.IntentRecorded{
		Provider: req.Provider, Account: offer.Account, Action: req.Action, SchemaVersion: offer.SchemaVersion,
		Args: args, ArgsDigest: digest(args), ContractRef: offer.Ref, OnUnknown: onUnknown, IdempotencyKey: key,
		RequestID: req.RequestID, Origin: req.Origin, RequestedBy: req.RequestedBy, Basis: req.Basis,
		Source:   events.Source{System: req.Source, EventID: req.SourceEventID, Slot: req.Slot},
		Approval: approval, Labels: req.Labels, RepeatOf: req.RepeatOf, Compensates: req.Compensates, Limits: req.Limits,
		ConflictScope: scope,
	}
	if s.cfg.Earlier != nil && req.RepeatOf == "" {
		intent.PossibleRepeatOf = s.cfg.Earlier(tenant.ID, intent)
		if intent.PossibleRepeatOf != "" && tenant.HoldRepeats {
			intent.Hold = HoldPossibleRepeat
		}
	}
	intent.IntentDigest, err = intentDigest(tenant.ID, id, intent)
	if err != nil {
		return none, api.NewProblem(api.ProblemMalformed, "%v", err)
	}
	return intent, nil
}

// scope returns the conflict scope: what the contract derives from the
// arguments, or what was handed in.
func (s *Service) scope(ctx context.Context, offer Offer, req api.SubmitRequest, args []byte) (string, *api.Problem) {
	if !offer.Contract.Scoped {
		return req.ConflictScope, nil
	}
	if req.ConflictScope != "" {
		return "", api.NewProblem(api.ProblemNotAllowed, "the contract derives the conflict scope from the arguments; leave conflict_scope out")
	}
	scope, err := s.cfg.Catalogue.Scope(ctx, offer.Ref, req.Provider, req.Action, offer.Account, args)
	if err != nil {
		return "", s.unavailable(ctx, "derive the conflict scope", err)
	}
	if err := events.CheckID("scope", scope); err != nil {
		return "", s.unavailable(ctx, "derive the conflict scope", err)
	}
	return scope, nil
}

func requirement(c operation.Contract, req api.SubmitRequest, now time.Time) (*events.Approval, *api.Problem) {
	if !c.ApprovalRequired && req.RequireApproval == nil {
		if req.Approval != nil {
			return nil, api.NewProblem(api.ProblemNotAllowed, "an approval was handed in, but neither contract nor intent asks for one; add require_approval")
		}
		return nil, nil
	}
	a := &events.Approval{Required: true}
	if req.RequireApproval != nil {
		a.Deadline = req.RequireApproval.Deadline
	}
	if a.Deadline.IsZero() {
		wait := c.ApprovalDeadline
		if wait <= 0 {
			wait = operation.DefaultApprovalDeadline
		}
		a.Deadline = now.Add(wait)
	}
	a.Deadline = a.Deadline.UTC()
	return a, nil
}

func choice(c operation.Contract, want events.OnUnknown, approval *events.Approval) (events.OnUnknown, *api.Problem) {
	switch want {
	case "":
		return events.OnUnknownContract, nil
	case events.OnUnknownContract, events.OnUnknownReview:
		return want, nil
	case events.OnUnknownRisk:
		if !c.RiskAllowed {
			return "", api.NewProblem(api.ProblemNotAllowed, "the contract does not allow on_unknown: declared_risk")
		}
		if approval == nil {
			return "", api.NewProblem(api.ProblemNotAllowed, "on_unknown: declared_risk needs an approval that binds it; add require_approval")
		}
		return want, nil
	}
	return "", api.NewProblem(api.ProblemMalformed, "on_unknown must be one of %v", events.OnUnknowns())
}

// intentDigest covers everything that an approval binds.
func intentDigest(tenant, id string, i events.IntentRecorded) (string, error) {
	doc := map[string]any{
		"tenant": tenant, "operation_id": id, "provider": i.Provider, "account": i.Account.Name,
		"account_provider_id": i.ProviderID, "action": i.Action, "schema_version": i.SchemaVersion,
		"args_digest": i.ArgsDigest, "contract_digest": i.Digest, "on_unknown": i.OnUnknown,
		"conflict_scope": i.ConflictScope, "approval_required": i.Approval != nil && i.Approval.Required,
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		return "", fmt.Errorf("intake: intent digest: %w", err)
	}
	out, err := canonical(raw)
	if err != nil {
		return "", err
	}
	return digest(out), nil
}

// Get returns the state of an operation.
func (s *Service) Get(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem) {
	req, p := decode[api.GetRequest](raw)
	if p != nil {
		return api.Answer{}, p
	}
	state, p := s.find(ctx, tenant, req)
	if p != nil {
		return api.Answer{}, p
	}
	return s.detailed(ctx, state, req.Detail), nil
}

// detailed adds what takes a look around: the request as it would be sent, why
// the next thing is next, and who holds the conflict scope. None is worth
// failing for.
func (s *Service) detailed(ctx context.Context, state operation.State, detail bool) api.Answer {
	a := api.NewAnswer(state, s.cfg.Now())
	if !detail {
		return a
	}
	a.State = &state
	if shown, err := s.cfg.Catalogue.Render(ctx, state); err == nil {
		a.Request = shown
	} else {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "request can't be shown", slog.String("tenant", state.Tenant),
			slog.String("operation_id", state.OperationID), slog.Any("err", err))
	}
	c, err := s.cfg.Catalogue.Contract(ctx, state.Intent)
	if err != nil {
		return a
	}
	p := operation.Params{Now: s.cfg.Now(), NewID: s.cfg.NewID()}
	step := operation.Next(state, c, p)
	a.NextReason = step.Reason
	if s.cfg.Scopes == nil || state.Intent.ConflictScope == "" || state.Status.Final() {
		return a
	}
	taken, err := s.cfg.Scopes.LastScope(ctx, state.Tenant, state.Intent.ConflictScope)
	if err != nil || taken.Operation == "" || taken.Operation == state.OperationID {
		return a
	}
	a.ScopeTakenBy = taken.Operation
	if last, err := s.cfg.States.State(ctx, state.Tenant, taken.Operation, 0); err == nil && step.Do == operation.DoAttempt {
		a.NextReason = operation.EnterScope(state, last, taken, c, step, p).Reason
	}
	return a
}

func (s *Service) find(ctx context.Context, tenant string, req api.GetRequest) (operation.State, *api.Problem) {
	return s.findAt(ctx, tenant, req, 0)
}

// findAt reads an operation at least as of version min.
func (s *Service) findAt(ctx context.Context, tenant string, req api.GetRequest, min uint64) (operation.State, *api.Problem) {
	var none operation.State
	if _, ok := s.tenants[tenant]; !ok {
		return none, api.NewProblem(api.ProblemUnknownTenant, "tenant %q", cut(tenant))
	}
	id, p := s.operationID(tenant, req.OperationID, req.Source, req.SourceEventID, req.Slot)
	if p != nil {
		return none, p
	}
	state, err := s.cfg.States.State(ctx, tenant, id, min)
	if err != nil {
		return none, s.unavailable(ctx, "read the operation", err)
	}
	if state.Status == operation.StatusAbsent {
		p := api.NewProblem(api.ProblemNotFound, "operation %s of tenant %s", id, tenant)
		p.OperationID = id
		return none, p
	}
	return state, nil
}

// Wait returns the state as soon as it is final, or when the time is over: then
// the state as it is. It also returns when a review is opened, since that takes
// a person.
func (s *Service) Wait(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem) {
	req, p := decode[api.WaitRequest](raw)
	if p != nil {
		return api.Answer{}, p
	}
	id, p := s.operationID(tenant, req.OperationID, req.Source, req.SourceEventID, req.Slot)
	if p != nil {
		return api.Answer{}, p
	}
	news, cancel := s.cfg.States.Subscribe(tenant, id)
	defer cancel()
	state, p := s.find(ctx, tenant, req.GetRequest)
	if p != nil {
		return api.Answer{}, p
	}
	if req.TimeoutMS <= 0 {
		req.TimeoutMS = MaxWait.Milliseconds()
	}
	state = await(ctx, news, s.latest(ctx, state), req.TimeoutMS)
	return s.detailed(ctx, state, req.Detail), nil
}

// latest is a state with what subscriptions were told before: the newer of what
// was read and what can be read now.
func (s *Service) latest(ctx context.Context, state operation.State) operation.State {
	again, err := s.cfg.States.Latest(ctx, state.Tenant, state.OperationID)
	if err == nil && again.Version > state.Version {
		return again
	}
	return state
}

// settled reports whether nobody waits for more: it is final, or a person must
// look.
func settled(s operation.State) bool { return s.Status.Final() || s.Review != nil }

// await follows the news until the operation is settled, and no longer than ms
// milliseconds or MaxWait. It returns the newest state.
func await(ctx context.Context, news <-chan operation.State, state operation.State, ms int64) operation.State {
	ctx, stop := context.WithTimeout(ctx, time.Duration(min(ms, MaxWait.Milliseconds()))*time.Millisecond)
	defer stop()
	for !settled(state) {
		select {
		case st := <-news:
			if st.Version > state.Version {
				state = st
			}
		case <-ctx.Done():
			return state
		}
	}
	return state
}

// List returns the operations of a tenant that pass the filter, ordered by
// operation id. It reads the whole projection of the tenant.
func (s *Service) List(ctx context.Context, tenant string, raw []byte) (api.Page, *api.Problem) {
	req, p := decode[api.ListRequest](raw)
	if p != nil {
		return api.Page{}, p
	}
	if _, ok := s.tenants[tenant]; !ok {
		return api.Page{}, api.NewProblem(api.ProblemUnknownTenant, "tenant %q", cut(tenant))
	}
	for _, st := range req.Status {
		if !slices.Contains(operation.Statuses(), st) {
			return api.Page{}, api.NewProblem(api.ProblemMalformed, "status %q is not one of %v", cut(string(st)), operation.Statuses())
		}
	}
	limit := req.Limit
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, MaxList)
	now := s.cfg.Now()
	var found []api.Answer
	err := s.cfg.States.Scan(ctx, tenant, func(st operation.State) error {
		if st.OperationID <= req.Cursor {
			return nil
		}
		i, twice := slices.BinarySearchFunc(found, st.OperationID, func(a api.Answer, id string) int {
			return strings.Compare(a.OperationID, id)
		})
		if twice { // it changed while the projection was read; the newer comes later
			found = slices.Delete(found, i, i+1)
		}
		if i > limit || !matches(req, st, now) {
			return nil
		}
		found = slices.Insert(found, i, api.NewAnswer(st, now))
		found = found[:min(len(found), limit+1)]
		return nil
	})
	if err != nil {
		return api.Page{}, s.unavailable(ctx, "read the projection", err)
	}
	page := api.Page{Operations: found}
	if len(found) > limit {
		page.Operations = found[:limit]
		page.Cursor = found[limit-1].OperationID
	}
	if page.Operations == nil {
		page.Operations = []api.Answer{}
	}
	return page, nil
}

func matches(r api.ListRequest, st operation.State, now time.Time) bool {
	name, value, withValue := strings.Cut(r.Label, "=")
	label, hasLabel := st.Intent.Labels[name]
	switch {
	case len(r.Status) > 0 && !slices.Contains(r.Status, st.Status),
		r.Review && st.Review == nil && (st.Hold == "" || st.Status.Final()),
		r.RequestID != "" && st.Intent.RequestID != r.RequestID,
		r.ExternalID != "" && !slices.Contains(st.ExternalIDs, r.ExternalID),
		r.Provider != "" && st.Intent.Provider != r.Provider,
		r.Label != "" && (!hasLabel || (withValue && label != value)),
		r.OlderThanMS > 0 && now.Sub(st.StatusSince).Milliseconds() < r.OlderThanMS:
		return false
	}
	return true
}

// Evidence records an observation from outside. An object counts as present
// only if it is reported with the operation's own label under the bound
// account; without the label it merely looks like ours, and a person decides.
func (s *Service) Evidence(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem) {
	req, p := decode[api.EvidenceRequest](raw)
	if p != nil {
		return api.Answer{}, p
	}
	if req.Source != events.SourceWebhook && req.Source != events.SourcePerson {
		return api.Answer{}, api.NewProblem(api.ProblemMalformed, "evidence_source must be webhook or person")
	}
	if req.Actor == "" || req.ExternalID == "" {
		return api.Answer{}, api.NewProblem(api.ProblemMalformed, "actor and external_id are required")
	}
	if p := checkText(map[string]string{"actor": req.Actor, "reason": req.Reason, "external_id": req.ExternalID}); p != nil {
		return api.Answer{}, p
	}
	state, p := s.find(ctx, tenant, api.GetRequest{OperationID: req.OperationID})
	if p != nil {
		return api.Answer{}, p
	}
	state, p = s.decide(ctx, state, req.Actor, func(st operation.State, c operation.Contract, p operation.Params) ([]events.Payload, operation.Refusal) {
		l := operation.Look{
			Source: req.Source, AskedAt: p.Now, AskedVersion: st.Version, PagesComplete: true, Reason: req.Reason,
			AccountProbed: req.AccountProviderID, AccountOK: req.AccountProviderID == st.Intent.ProviderID,
			Result: req.Result,
		}
		if req.Label == operation.Label(st.Intent.IdempotencyKey) {
			l.Matches = []string{req.ExternalID}
		} else {
			l.Weak = []string{req.ExternalID}
		}
		return operation.Looked(st, c, l, p), operation.Refusal{}
	})
	if p != nil {
		return api.Answer{}, p
	}
	return api.NewAnswer(state, s.cfg.Now()), nil
}

// Approve records a person's approval of exactly one intent (I7).
func (s *Service) Approve(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem) {
	req, p := decode[api.ApproveRequest](raw)
	if p != nil {
		return api.Answer{}, p
	}
	state, p := s.find(ctx, tenant, api.GetRequest{OperationID: req.OperationID})
	if p != nil {
		return api.Answer{}, p
	}
	if p := checkText(map[string]string{"approver": req.Approver, "reason": req.Reason}); p != nil {
		return api.Answer{}, p
	}
	grant := operation.Grant{
		Approver: req.Approver, IntentDigest: req.IntentDigest, ExpiresAt: req.ExpiresAt, Reason: req.Reason,
	}
	state, p = s.decide(ctx, state, req.Approver, func(st operation.State, _ operation.Contract, p operation.Params) ([]events.Payload, operation.Refusal) {
		return operation.Approved(st, grant, p)
	})
	if p != nil {
		return api.Answer{}, p
	}
	return api.NewAnswer(state, s.cfg.Now()), nil
}

// Decide records a person's decision, bound to the version that he saw.
func (s *Service) Decide(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem) {
	req, p := decode[api.DecideRequest](raw)
	if p != nil {
		return api.Answer{}, p
	}
	return s.decision(ctx, tenant, req.OperationID, operation.Decision{
		Word: req.Decision, SeenVersion: req.ExpectVersion, Actor: req.Actor, Reason: req.Reason,
		ExternalID: req.ExternalID, Until: req.Until, Assignee: req.Assignee,
	}, false)
}

// Cancel withdraws a wish that can't have had an effect. It needs no version:
// it is refused as soon as anything may have happened.
func (s *Service) Cancel(ctx context.Context, tenant string, raw []byte) (api.Answer, *api.Problem) {
	req, p := decode[api.CancelRequest](raw)
	if p != nil {
		return api.Answer{}, p
	}
	return s.decision(ctx, tenant, req.OperationID, operation.Decision{
		Word: events.DecideCancel, Actor: req.Actor, Reason: req.Reason,
	}, true)
}

func (s *Service) decision(ctx context.Context, tenant, id string, d operation.Decision, anyVersion bool) (api.Answer, *api.Problem) {
	if p := checkText(map[string]string{
		"actor": d.Actor, "reason": d.Reason, "external_id": d.ExternalID, "assignee": d.Assignee,
	}); p != nil {
		return api.Answer{}, p
	}
	state, p := s.findAt(ctx, tenant, api.GetRequest{OperationID: id}, d.SeenVersion)
	if p != nil {
		return api.Answer{}, p
	}
	state, p = s.decide(ctx, state, d.Actor, func(st operation.State, c operation.Contract, p operation.Params) ([]events.Payload, operation.Refusal) {
		if anyVersion {
			d.SeenVersion = st.Version
		}
		return operation.Decided(st, c, d, p)
	})
	if p != nil {
		return api.Answer{}, p
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "decision of a person recorded", slog.String("tenant", tenant),
		slog.String("operation_id", id), slog.String("decision", string(d.Word)), slog.String("status", string(state.Status)))
	return api.NewAnswer(state, s.cfg.Now()), nil
}

// decide makes a decision on the truth and records it; when another event came
// first, the decision is made anew.
func (s *Service) decide(ctx context.Context, state operation.State, actor string,
	fn func(operation.State, operation.Contract, operation.Params) ([]events.Payload, operation.Refusal),
) (operation.State, *api.Problem) {
	c, err := s.cfg.Catalogue.Contract(ctx, state.Intent)
	if err != nil {
		return state, s.unavailable(ctx, "find the contract", err)
	}
	for range maxTries {
		payloads, refusal := fn(state, c, operation.Params{
			Now: s.cfg.Now(), Random: s.cfg.Random(), NewID: s.cfg.NewID(),
		})
		if refusal.Reason != operation.RefusalNone {
			p := api.NewProblem(api.ProblemRefused, "%s", refusal.Text)
			p.OperationID, p.Reason = state.OperationID, string(refusal.Reason)
			a := api.NewAnswer(state, s.cfg.Now())
			p.Answer = &a
			return state, p
		}
		after, err := s.cfg.Recorder.Append(ctx, state, actor, payloads...)
		if err == nil {
			return after, nil
		}
		if !errors.Is(err, events.ErrConflict) {
			return state, s.unavailable(ctx, "record the decision", err)
		}
		if state, err = s.cfg.States.Truth(ctx, state.Tenant, state.OperationID); err != nil {
			return state, s.unavailable(ctx, "read the operation", err)
		}
	}
	return state, api.NewProblem(api.ProblemUnavailable, "the operation kept changing")
}

func (s *Service) unavailable(ctx context.Context, what string, err error) *api.Problem {
	s.cfg.Logger.LogAttrs(ctx, slog.LevelError, "intake failed", slog.String("what", what), slog.Any("err", err))
	p := api.NewProblem(api.ProblemUnavailable, "could not %s", what)
	p.Say = "The ledger can't answer right now; whether this was recorded is not known. Handing in the same operation id is safe."
	return p
}
