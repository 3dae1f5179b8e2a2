package sim

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/opledger/opledger/api"
	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/executor"
	"github.com/opledger/opledger/internal/clock"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// hooks are the places at which a planted bug wraps a real part, or what it
// talks to. All are empty in the ledger as it is.
type hooks struct {
	journal  func(p *process, j writer.Journal) writer.Journal
	recorder func(p *process, r recorder) recorder
	// intakeRecorder wraps the recorder of intake alone.
	intakeRecorder func(p *process, r recorder) recorder
	states         func(p *process, s reader) reader
	adapter        func(p *process, a providers.Adapter) providers.Adapter
	contract       func(c *operation.Contract)
	clock          func(p *process) clock.Clock
	now            func(p *process) time.Time
	executor       func(p *process, c *executor.Config)
	decide         func(d api.DecideRequest, l *opLog) []byte
	approve        func(a api.ApproveRequest, l *opLog) api.ApproveRequest
	key            func(key, attempt string) string

	noFence, noIntentFence, noScopeFence, anyAccount bool
	// noRevision, noRefold and trustCheckpoint break what the projector relies on.
	noRevision, noRefold, trustCheckpoint bool
}

// Bug is a planted one: what is broken, and how.
type Bug struct {
	Name  string
	plant func(h *hooks)
}

// appendFunc is a function as a recorder.
type appendFunc func(ctx context.Context, s operation.State, actor string, payloads ...events.Payload) (operation.State, error)

// Append implements recorder.
func (f appendFunc) Append(ctx context.Context, s operation.State, actor string, payloads ...events.Payload) (operation.State, error) {
	return f(ctx, s, actor, payloads...)
}

// journalFunc is a function as a journal.
type journalFunc func(ctx context.Context, e events.Event, expected uint64) (events.Record, error)

// Append implements writer.Journal.
func (f journalFunc) Append(ctx context.Context, e events.Event, expected uint64) (events.Record, error) {
	return f(ctx, e, expected)
}

// seeing changes the state that the real parts decide on.
type seeing struct {
	reader
	p   *process
	see func(p *process, s operation.State) operation.State
}

// State implements reader.
func (x seeing) State(ctx context.Context, tenant, op string, min uint64) (operation.State, error) {
	s, err := x.reader.State(ctx, tenant, op, min)
	if err == nil {
		s = x.see(x.p, s)
	}
	return s, err
}

// Truth implements reader.
func (x seeing) Truth(ctx context.Context, tenant, op string) (operation.State, error) {
	s, err := x.reader.Truth(ctx, tenant, op)
	if err == nil {
		s = x.see(x.p, s)
	}
	return s, err
}

// see plants a wrong view of the state.
func see(f func(p *process, s operation.State) operation.State) func(*hooks) {
	return func(h *hooks) {
		h.states = func(p *process, r reader) reader { return seeing{r, p, f} }
	}
}

// remembering plants a wrong view that depends on what was seen before.
func remembering[T any](f func(m map[string]T, s operation.State) operation.State) func(*hooks) {
	return func(h *hooks) {
		h.states = func(p *process, r reader) reader {
			m := map[string]T{}
			return seeing{r, p, func(_ *process, s operation.State) operation.State { return f(m, s) }}
		}
	}
}

// rewrite plants a wrong decision: other events than those decided.
func rewrite(f func(s operation.State, d events.Payload) events.Payload) func(*hooks) {
	return func(h *hooks) {
		h.recorder = func(_ *process, r recorder) recorder {
			return appendFunc(func(ctx context.Context, s operation.State, actor string, payloads ...events.Payload) (operation.State, error) {
				changed := slices.Clone(payloads)
				for i, d := range changed {
					changed[i] = f(s, d)
				}
				return r.Append(ctx, s, actor, changed...)
			})
		}
	}
}

// promise plants a wrong reading of the contract.
func promise(f func(c *operation.Contract)) func(*hooks) { return func(h *hooks) { h.contract = f } }

// speaking changes what an adapter says.
type speaking struct {
	providers.Adapter
	do     func(ctx context.Context, a providers.Adapter, r *providers.Request) operation.Outcome
	lookup func(l operation.Look) operation.Look
	probe  func(c providers.Call) string
	digest string
}

// Prepare implements providers.Adapter.
func (x speaking) Prepare(c providers.Call) (*providers.Request, error) {
	r, err := x.Adapter.Prepare(c)
	if err == nil && x.digest != "" {
		r.Digest = x.digest
	}
	return r, err
}

// Probe implements providers.Adapter.
func (x speaking) Probe(ctx context.Context, c providers.Call) (string, error) {
	if x.probe != nil {
		return x.probe(c), nil
	}
	return x.Adapter.Probe(ctx, c)
}

// Do implements providers.Adapter.
func (x speaking) Do(ctx context.Context, r *providers.Request) operation.Outcome {
	if x.do != nil {
		return x.do(ctx, x.Adapter, r)
	}
	return x.Adapter.Do(ctx, r)
}

// Lookup implements providers.Adapter.
func (x speaking) Lookup(ctx context.Context, c providers.Call) operation.Look {
	l := x.Adapter.Lookup(ctx, c)
	if x.lookup != nil {
		l = x.lookup(l)
	}
	return l
}

// answer plants a wrong reading of answers.
func answer(f func(o operation.Outcome) operation.Outcome) func(*hooks) {
	return func(h *hooks) {
		h.adapter = func(_ *process, a providers.Adapter) providers.Adapter {
			return speaking{Adapter: a, do: func(ctx context.Context, a providers.Adapter, r *providers.Request) operation.Outcome {
				return f(a.Do(ctx, r))
			}}
		}
	}
}

// looking plants a wrong reading of lookups.
func looking(f func(l operation.Look) operation.Look) func(*hooks) {
	return func(h *hooks) {
		h.adapter = func(_ *process, a providers.Adapter) providers.Adapter { return speaking{Adapter: a, lookup: f} }
	}
}

// publishing plants a wrong way to append an event of some kinds.
func publishing(f func(ctx context.Context, w *world, j writer.Journal, e events.Event, expected uint64) (events.Record, error), kinds ...events.Kind) func(*hooks) {
	return func(h *hooks) {
		h.journal = func(p *process, j writer.Journal) writer.Journal {
			return journalFunc(func(ctx context.Context, e events.Event, expected uint64) (events.Record, error) {
				if len(kinds) > 0 && !slices.Contains(kinds, e.Data.Kind()) {
					return j.Append(ctx, e, expected)
				}
				return f(ctx, p.w, j, e, expected)
			})
		}
	}
}

// rebase appends what lost behind whatever is there now.
func rebase(ctx context.Context, w *world, j writer.Journal, e events.Event, expected uint64) (events.Record, error) {
	r, err := j.Append(ctx, e, expected)
	for range 3 {
		if !errors.Is(err, events.ErrConflict) {
			break
		}
		l := w.log.op(e.Tenant, e.Operation)
		e.Version, e.Prev = l.state.Version+1, l.state.Head
		r, err = j.Append(ctx, e, l.last)
	}
	return r, err
}

// taken takes a lost append for a duplicate of its own.
func taken(ctx context.Context, w *world, j writer.Journal, e events.Event, expected uint64) (events.Record, error) {
	r, err := j.Append(ctx, e, expected)
	if errors.Is(err, events.ErrConflict) {
		first, _ := w.log.op(e.Tenant, e.Operation).after(expected)
		return events.Record{Event: e, Seq: first.Seq, Stamp: first.Stamp, Body: first.Body, Subject: first.Subject}, nil
	}
	return r, err
}

func first(payloads []events.Payload) events.Payload {
	if len(payloads) == 0 {
		return nil
	}
	return payloads[0]
}

func settledAs(s operation.State, from, to operation.AttemptState) operation.State {
	s.Attempts = slices.Clone(s.Attempts)
	for i := range s.Attempts {
		if s.Attempts[i].State == from {
			s.Attempts[i].State = to
		}
	}
	s.Status = operation.StatusPending
	return s
}

func inDoubt(s operation.State) bool { return s.Status == operation.StatusUnknown }

// stopped is a clock whose stop watch stands still while it is held.
type stopped struct {
	clocks
	held *bool
	mono *time.Duration
	wall *time.Time
}

// Monotonic implements clock.Clock.
func (c stopped) Monotonic() time.Duration {
	if *c.held {
		return *c.mono
	}
	return c.clocks.Monotonic()
}

// Wall implements clock.Clock.
func (c stopped) Wall() time.Time {
	if *c.held {
		return *c.wall
	}
	return c.clocks.Wall()
}

// stampsFunc is a function as the stamps of the log.
type stampsFunc func(ctx context.Context, seq uint64) (events.Record, error)

// Read implements executor.Stamps.
func (f stampsFunc) Read(ctx context.Context, seq uint64) (events.Record, error) { return f(ctx, seq) }

// stamping plants a wrong reading of the log's time stamps.
func stamping(f func(p *process, r events.Record) events.Record) func(*hooks) {
	return func(h *hooks) {
		h.executor = func(p *process, c *executor.Config) {
			stamps := c.Stamps
			c.Stamps = stampsFunc(func(ctx context.Context, seq uint64) (events.Record, error) {
				r, err := stamps.Read(ctx, seq)
				return f(p, r), err
			})
		}
	}
}

// Bugs lists the planted bugs.
func Bugs() []Bug {
	return slices.Concat(logBugs(), timeBugs(), stateBugs(), answerBugs(), peopleBugs())
}

func logBugs() []Bug {
	return []Bug{
		{"claim in the bucket, but no fence at the log", func(h *hooks) { h.noFence = true }},
		{"sent although the append of AttemptStarted had no verdict", func(h *hooks) {
			h.recorder = func(_ *process, r recorder) recorder {
				return appendFunc(func(ctx context.Context, s operation.State, actor string, payloads ...events.Payload) (operation.State, error) {
					after, err := r.Append(ctx, s, actor, payloads...)
					if d, ok := first(payloads).(events.AttemptStarted); ok && err != nil && !errors.Is(err, events.ErrConflict) {
						after, _ = operation.Evolve(s, events.Record{
							Event: events.Event{ID: "guess", Tenant: s.Tenant, Operation: s.OperationID, Version: s.Version + 1, Prev: s.Head, Data: d},
							Seq:   s.LastSeq + 1, Stamp: s.UpdatedAt,
						})
						after.LastSeq = s.LastSeq
						return after, nil
					}
					return after, err
				})
			}
		}},
		{"a lost AttemptStarted is taken for its own (shared message id)", publishing(taken, events.KindAttemptStarted)},
		{"a duplicate intent is taken for success whatever its content", publishing(taken, events.KindIntentRecorded)},
		{"the intent is appended without compare-and-swap", func(h *hooks) { h.noIntentFence = true }},
		{"an intent is acknowledged before the log has it", func(h *hooks) {
			h.intakeRecorder = func(_ *process, r recorder) recorder {
				return appendFunc(func(ctx context.Context, s operation.State, actor string, payloads ...events.Payload) (operation.State, error) {
					after, err := r.Append(ctx, s, actor, payloads...)
					if _, ok := first(payloads).(events.IntentRecorded); ok && err != nil && !errors.Is(err, events.ErrConflict) {
						return s, nil
					}
					return after, err
				})
			}
		}},
		{"a lost decision is re-based on a fresh sequence", publishing(rebase)},
		{"a late unknown is written over a success", publishing(rebase, events.KindOutcomeUnknown)},
		{"a stray message does not move the sequence (livelock)", see(func(p *process, s operation.State) operation.State {
			if s.Version > 0 {
				s.LastSeq = lastGood(p, s)
			}
			return s
		})},
		{"a conflict scope without compare-and-swap", func(h *hooks) { h.noScopeFence = true }},
		{"the conflict scope is not entered", see(func(_ *process, s operation.State) operation.State {
			s.Intent.ConflictScope = ""
			return s
		})},
		{"entries are written without compare-and-swap", func(h *hooks) { h.noRevision = true }},
		{"a gap is not folded from the log", func(h *hooks) { h.noRefold = true }},
		{"a checkpoint is trusted after an unclean stop", func(h *hooks) { h.trustCheckpoint = true }},
		{"an argument in a log line", func(h *hooks) {
			h.recorder = func(p *process, r recorder) recorder {
				return appendFunc(func(ctx context.Context, s operation.State, actor string, payloads ...events.Payload) (operation.State, error) {
					p.w.logger.LogAttrs(ctx, slog.LevelDebug, "appending", slog.String("args", string(s.Intent.Args)))
					return r.Append(ctx, s, actor, payloads...)
				})
			}
		}},
	}
}

// lastGood returns the sequence number of the last well-formed message.
func lastGood(p *process, s operation.State) (seq uint64) {
	for _, r := range p.w.log.op(s.Tenant, s.OperationID).records {
		if r.Err == nil && r.Version <= s.Version {
			seq = r.Seq
		}
	}
	return seq
}

func timeBugs() []Bug {
	return []Bug{
		{"the lease is not checked before the first byte", func(h *hooks) {
			held := true
			h.executor = func(p *process, c *executor.Config) {
				mono, wall := time.Duration(0), begin
				c.Clock = stopped{clocks{p}, &held, &mono, &wall}
			}
		}},
		{"the lease is judged before the stamp is read back", func(h *hooks) {
			h.executor = func(p *process, c *executor.Config) {
				held, mono, wall := false, time.Duration(0), begin
				c.Clock = stopped{clocks{p}, &held, &mono, &wall}
				stamps := c.Stamps
				c.Stamps = stampsFunc(func(ctx context.Context, seq uint64) (events.Record, error) {
					mono, wall, held = p.mono(), p.wall(), true
					r, err := stamps.Read(ctx, seq)
					p.w.after(0, func() { held = false })
					return r, err
				})
			}
		}},
		{"the lease is judged by the monotonic clock alone", func(h *hooks) {
			h.executor = func(p *process, c *executor.Config) {
				held, mono, wall := false, time.Duration(0), begin
				c.Clock = oneClock{stopped{clocks{p}, &held, &mono, &wall}}
			}
		}},
		{"contract time is the worker's wall clock", func(h *hooks) {
			h.now = func(p *process) time.Time { return p.wall() }
			stamping(func(p *process, r events.Record) events.Record { r.Stamp = p.wall(); return r })(h)
		}},
		{"the stamp of AttemptStarted is not looked at again", stamping(func(_ *process, r events.Record) events.Record {
			r.Stamp = begin
			return r
		})},
		{"key retention is ignored", promise(func(c *operation.Contract) {
			if c.KeySupported {
				c.Retention = operation.Forever
			}
		})},
		{"key retention without margin", promise(func(c *operation.Contract) { c.Margin = 0 })},
		{"the last attempt starts the retention clock", see(func(_ *process, s operation.State) operation.State {
			if n := len(s.Attempts); n > 0 && s.Attempts[n-1].Proof != events.ProofNotSent {
				s.FirstSend = s.Attempts[n-1].StartedAt
			}
			return s
		})},
		{"a repeat does not wait for what may still land", promise(func(c *operation.Contract) { c.LateApply = 0 })},
		{"concurrent repeats although the contract does not allow them", promise(func(c *operation.Contract) { c.ConcurrentSafe = true })},
		{"the lag of the lookup is ignored", promise(func(c *operation.Contract) { c.Lookup.Lag, c.Absence.Settle = 0, 0 })},
		{"an assumed contract is relied on", promise(func(c *operation.Contract) { c.Proof = operation.ProofDocumented })},
	}
}

// oneClock has no wall clock.
type oneClock struct{ stopped }

// Wall implements clock.Clock.
func (c oneClock) Wall() time.Time { return begin.Add(c.clocks.Monotonic()) }

func stateBugs() []Bug {
	return []Bug{
		{"an empty look is a licence to try again", see(func(_ *process, s operation.State) operation.State {
			if inDoubt(s) && s.Looks > 0 && len(s.ExternalIDs) == 0 && !s.Sighted && s.Review == nil {
				return settledAs(s, operation.AttemptUnresolved, operation.AttemptNotApplied)
			}
			return s
		})},
		{"unknown is pending again once its permit is over", see(func(p *process, s operation.State) operation.State {
			if m := s.Permit; inDoubt(s) && m != nil && !m.Used && p.now().After(m.ValidUntil) {
				return settledAs(s, operation.AttemptUnresolved, operation.AttemptNotApplied)
			}
			return s
		})},
		{"a late not_applied of attempt 1 hides open attempt 2", see(func(_ *process, s operation.State) operation.State {
			if _, open := s.Open(); open && slices.ContainsFunc(s.Attempts, func(a operation.Attempt) bool { return a.State == operation.AttemptNotApplied }) {
				return settledAs(s, operation.AttemptOpen, operation.AttemptNotApplied)
			}
			return s
		})},
		{"what was seen does not void the permit", remembering(func(m map[string]*operation.Permit, s operation.State) operation.State {
			if s.Permit != nil && !s.Permit.Used {
				m[s.OperationID] = s.Permit
			}
			if old := m[s.OperationID]; s.Sighted && s.Permit == nil && old != nil && inDoubt(s) {
				s.Permit, s.Sighted, s.Review = old, false, nil
			}
			return s
		})},
		{"empty reads from before a later attempt count", remembering(func(m map[string]int, s operation.State) operation.State {
			m[s.OperationID] = max(m[s.OperationID], s.EmptyReads)
			if s.EmptyReads = m[s.OperationID]; s.EmptyReads > 0 && s.Started > 1 {
				s.LastLook = s.UpdatedAt.Add(time.Hour)
				s.Looks = max(s.Looks, 1)
			}
			return s
		})},
		{"review_only repeats all the same", see(func(_ *process, s operation.State) operation.State {
			if s.Intent.OnUnknown == events.OnUnknownReview {
				s.Intent.OnUnknown = events.OnUnknownContract
			}
			return s
		})},
		{"the declared risk is taken again and again", see(func(_ *process, s operation.State) operation.State {
			s.RiskTaken = false
			return s
		})},
		{"an attempt while a review is open", see(func(_ *process, s operation.State) operation.State {
			if s.Review != nil && inDoubt(s) {
				s = settledAs(s, operation.AttemptUnresolved, operation.AttemptNotApplied)
				s.Review = nil
			}
			return s
		})},
		{"a rejection needs no cover", rewrite(func(s operation.State, d events.Payload) events.Payload {
			n, ok := d.(events.AttemptNotApplied)
			if !ok || n.Proof != events.ProofRefused || s.Status.Final() {
				return d
			}
			out := events.Rejected{Reason: n.Reason, Via: events.ViaResponse, AttemptID: n.AttemptID}
			for _, a := range s.Attempts {
				out.Covers = append(out.Covers, events.Covered{AttemptID: a.ID, By: "answer"})
			}
			return out
		})},
		{"the end of a lease frees the operation", rewrite(func(_ operation.State, d events.Payload) events.Payload {
			if u, ok := d.(events.OutcomeUnknown); ok && u.Reason == events.UnknownLeaseExpired {
				return events.AttemptNotApplied{AttemptID: u.AttemptID, Proof: events.ProofNotSent, Next: events.Next{Action: events.NextAttempt, At: u.Next.At}}
			}
			return d
		})},
		{"an attempt starts on an integrity alarm", func(h *hooks) {
			h.executor = func(_ *process, c *executor.Config) { c.Alarm = nil }
		}},
		{"the key depends on the attempt", func(h *hooks) { h.key = func(key, attempt string) string { return key + attempt } }},
	}
}

func answerBugs() []Bug {
	as := func(word operation.OutcomeWord, to operation.Outcome) func(*hooks) {
		return answer(func(o operation.Outcome) operation.Outcome {
			if o.Word == word {
				return to
			}
			return o
		})
	}
	return []Bug{
		{"5xx is a rejection", answer(func(o operation.Outcome) operation.Outcome {
			if o.Unknown == events.UnknownServerError {
				return operation.Outcome{Word: operation.OutcomeRejected, Reason: "500"}
			}
			return o
		})},
		{"no answer in time means not sent", rewrite(func(_ operation.State, d events.Payload) events.Payload {
			if u, ok := d.(events.OutcomeUnknown); ok && u.Reason == events.UnknownTimeout {
				return events.AttemptNotApplied{AttemptID: u.AttemptID, Proof: events.ProofNotSent, Next: events.Next{Action: events.NextAttempt, At: u.Next.At}}
			}
			return d
		})},
		{"a broken connection means not sent", answer(func(o operation.Outcome) operation.Outcome {
			if o.Unknown == events.UnknownConnectionLost {
				return notSent("connection lost")
			}
			return o
		})},
		{"exists is a success", as(operation.OutcomeExists, operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "exists"})},
		{"busy is a rejection", as(operation.OutcomeBusy, operation.Outcome{Word: operation.OutcomeRejected, Reason: "busy", AnswersKey: true})},
		{"a mismatch is a rejection", as(operation.OutcomeMismatch, operation.Outcome{Word: operation.OutcomeRejected, Reason: "mismatch", AnswersKey: true})},
		{"a success without an id confirms", as(operation.OutcomeUnidentified, operation.Outcome{Word: operation.OutcomeSuccess, ExternalID: "unknown"})},
		{"the transport repeats a request by itself", func(h *hooks) {
			h.adapter = func(_ *process, a providers.Adapter) providers.Adapter {
				return speaking{Adapter: a, do: func(ctx context.Context, inner providers.Adapter, r *providers.Request) operation.Outcome {
					o := inner.Do(ctx, r)
					if ours, ok := inner.(*adapter); ok && o.Unknown == events.UnknownConnectionLost && ours.last != nil {
						again := *ours.last
						ours.p.w.send(ours, &again)
					}
					return o
				}}
			}
		}},
		{"the current account instead of the bound one", func(h *hooks) {
			h.anyAccount = true
			h.adapter = func(_ *process, a providers.Adapter) providers.Adapter {
				return speaking{Adapter: a, probe: func(c providers.Call) string { return c.Intent.ProviderID }}
			}
		}},
		{"a changed request is not noticed", func(h *hooks) {
			h.adapter = func(_ *process, a providers.Adapter) providers.Adapter {
				return speaking{Adapter: a, digest: "sha256:the-same"}
			}
		}},
		{"an incomplete look counts as empty", looking(func(l operation.Look) operation.Look {
			l.PagesComplete = true
			return l
		})},
		{"a search outage counts as empty", looking(func(l operation.Look) operation.Look {
			if l.Failed {
				l.Failed, l.PagesComplete = false, true
			}
			return l
		})},
		{"a look under another account counts", looking(func(l operation.Look) operation.Look {
			l.AccountOK, l.AccountProbed = true, ourAccount
			return l
		})},
		{"something that looks alike is ours", looking(func(l operation.Look) operation.Look {
			l.Matches = append(l.Matches, l.Weak...)
			return l
		})},
	}
}

func peopleBugs() []Bug {
	return []Bug{
		{"a decision is not bound to the version seen", func(h *hooks) {
			h.decide = func(d api.DecideRequest, l *opLog) []byte {
				d.ExpectVersion = l.state.Version
				return encode(d)
			}
		}},
		{"an approval is not bound to the operation", func(h *hooks) {
			h.approve = func(a api.ApproveRequest, l *opLog) api.ApproveRequest {
				a.IntentDigest = l.intent.IntentDigest
				return a
			}
		}},
		{"an approval is checked once and for ever", func(h *hooks) {
			see(func(_ *process, s operation.State) operation.State {
				if s.Approval != nil {
					a := *s.Approval
					a.ExpiresAt = a.ExpiresAt.Add(100 * time.Hour)
					s.Approval = &a
				}
				return s
			})(h)
		}},
	}
}
