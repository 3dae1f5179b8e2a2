package trial

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/memledger"
	"github.com/opledger/opledger/internal/writer"
	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
)

// Follow is what follows when the first request of an operation ends with an
// outcome, and whatever is looked for is not found.
type Follow struct {
	Outcome operation.OutcomeWord `json:"outcome"`
	Then    string                `json:"then"`
}

// Follows asks the core, for every outcome, what it would do under a contract
// until it sends again, asks a person, or is done.
func Follows(ctx context.Context, c operation.Contract) ([]Follow, error) {
	var out []Follow
	for _, word := range operation.OutcomeWords() {
		then, err := follow(ctx, c, word)
		if err != nil {
			return nil, err
		}
		out = append(out, Follow{word, then})
	}
	return out, nil
}

// course is one operation that only the core works on.
type course struct {
	clock  *clock
	writer *writer.Writer
	c      operation.Contract
	s      operation.State
	told   []string
	looks  []string
}

func follow(ctx context.Context, c operation.Contract, word operation.OutcomeWord) (string, error) {
	x := &course{clock: &clock{now: begin()}, c: c}
	var err error
	x.writer, err = writer.New(writer.Config{Journal: memledger.New(x.clock.Now), Ledger: ledgerID, Now: x.clock.Now})
	if err != nil {
		return "", err
	}
	x.s = operation.State{Tenant: tenant, OperationID: "op-1"}
	attempt := events.NewID()
	if err := x.append(ctx, events.IntentRecorded{
		Provider: c.Provider, Account: events.Account{Name: accountName}, Action: c.Action,
		IntentDigest: "sha256-jcs:0", OnUnknown: events.OnUnknownContract,
	}, events.AttemptStarted{
		AttemptID: attempt, Number: 1, Worker: "trial", LeaseMS: x.params().Lease.Milliseconds(), RequestDigest: "sha256:0",
	}); err != nil {
		return "", err
	}
	o := operation.Outcome{Word: word}
	switch word {
	case operation.OutcomeSuccess:
		o.ExternalID = "1"
	case operation.OutcomeUncertain:
		o.Unknown = events.UnknownConnectionLost
	case operation.OutcomeRejected, operation.OutcomeNotApplied, operation.OutcomeBusy, operation.OutcomeExists,
		operation.OutcomeMismatch, operation.OutcomeUnidentified, operation.OutcomeNotSent:
	}
	if err := x.append(ctx, operation.Answered(x.s, c, attempt, o, x.params())...); err != nil {
		return "", err
	}
	return x.play(ctx)
}

func (x *course) params() operation.Params {
	return operation.Params{Now: x.clock.Now(), NewID: events.NewID(), ClockError: clockError, Lease: x.c.Total + leaseGrace}
}

func (x *course) append(ctx context.Context, payloads ...events.Payload) error {
	var err error
	x.s, err = x.writer.Append(ctx, x.s, "trial", payloads...)
	return err
}

func (x *course) since() string { return "+" + x.clock.Now().Sub(begin()).Round(time.Second).String() }

// play goes on until the core sends again, asks a person, or is done.
func (x *course) play(ctx context.Context) (string, error) {
	for range DefaultSteps {
		if x.s.Status.Final() {
			return string(x.s.Status), nil
		}
		if x.s.Review != nil {
			x.say("a person is asked at %s (%s)", x.since(), x.s.Review.Reason)
			return strings.Join(x.told, ", then "), nil
		}
		step := operation.Next(x.s, x.c, x.params())
		switch step.Do {
		case operation.DoWait:
			if step.At.IsZero() {
				return "", fmt.Errorf("trial: the core waits for nothing (%s)", step.Reason)
			}
			x.clock.advance(step.At)
		case operation.DoLook:
			x.looks = append(x.looks, x.since())
			look := operation.Look{
				Source: events.SourceLookup, Name: x.c.Lookup.Name, AskedAt: x.clock.Now(), AskedVersion: x.s.Version,
				AccountOK: true, PagesComplete: true,
			}
			if err := x.append(ctx, operation.Looked(x.s, x.c, look, x.params())...); err != nil {
				return "", err
			}
		case operation.DoAppend:
			if err := x.append(ctx, step.Append...); err != nil {
				return "", err
			}
		case operation.DoAttempt:
			if basis := x.basis(); basis != "" {
				x.say("sent again at %s (%s)", x.since(), basis)
			} else {
				x.say("sent again at %s", x.since())
			}
			return strings.Join(x.told, ", then "), nil
		}
	}
	return "", fmt.Errorf("%w: %d steps of the core", ErrBound, DefaultSteps)
}

func (x *course) basis() events.Basis {
	if x.s.Permit == nil {
		return ""
	}
	return x.s.Permit.Basis
}

// say adds a sentence, behind the looks that came before it.
func (x *course) say(format string, args ...any) {
	const shown = 8
	if n := len(x.looks); n > shown {
		x.told = append(x.told, fmt.Sprintf("looked for %d times from %s to %s", n, x.looks[0], x.looks[n-1]))
	} else if n > 0 {
		x.told = append(x.told, "looked for at "+strings.Join(x.looks, ", "))
	}
	x.told = append(x.told, fmt.Sprintf(format, args...))
}

// Render returns the request of an action as it would be sent, redacted: secrets
// stand as references. Values of the account that only an operator knows stand
// as "trial".
func Render(f *providers.File, action string, args []byte) (providers.Redacted, error) {
	dir, err := os.MkdirTemp("", "opledger-trial-")
	if err != nil {
		return providers.Redacted{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a folder with a made-up secret
	bound, err := f.Bind(action, args)
	if err != nil {
		return providers.Redacted{}, fmt.Errorf("trial: the arguments do not fit: %w", err)
	}
	b := &bench{file: f, action: action, args: bound, ledger: ledgerID, clock: &clock{now: begin()}}
	account, err := accountOf(f, dir, "https://provider.example", "acct_1", "none", "secret")
	if err != nil {
		return providers.Redacted{}, err
	}
	h, err := b.adapterFor(account, b.clock.Now)
	if err != nil {
		return providers.Redacted{}, err
	}
	defer h.Close()
	r, err := h.Prepare(b.call("op-1", bound))
	if err != nil {
		return providers.Redacted{}, err
	}
	return r.Redacted(), nil
}
