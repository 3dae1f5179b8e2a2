package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natsjournal"
)

type infos struct {
	info natsjournal.Info
	err  error
	// other: the messages are not those that were there.
	other bool
}

func (i *infos) Read(_ context.Context, seq uint64) (events.Record, error) {
	if i.other {
		return events.Record{Seq: seq, Body: []byte("another")}, i.err
	}
	return events.Record{Seq: seq, Body: fmt.Append(nil, seq)}, i.err
}

func (i *infos) Info(context.Context) (natsjournal.Info, error) { return i.info, i.err }

// I16: damage that the server does not tell of raises an alarm that stays; a log
// that can't be read raises none.
func TestGuardSeesDamageThatTheServerHides(t *testing.T) {
	created := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	whole := natsjournal.Info{Created: created, First: 1, Last: 100, Messages: 100}
	for want, damage := range map[string]func(i *infos){
		"created anew": func(i *infos) { i.info.Created = created.Add(time.Hour) },
		"now ends":     func(i *infos) { i.info.Last, i.info.Messages = 73, 73 },
		"begins with":  func(i *infos) { i.info.First = 12 },
		"missing":      func(i *infos) { i.info.Deleted = 3 },
		"not the one":  func(i *infos) { i.other = true },
		"":             func(i *infos) { i.err = errors.New("timeout") },
	} {
		src := &infos{info: whole}
		g, err := newGuard(t.Context(), src, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		src.info.Last = 120
		g.check(t.Context())
		if g.Alarm() != "" {
			t.Fatalf("a growing log alarms: %s", g.Alarm())
		}
		src.info.Last = 100
		src.info = natsjournal.Info{Created: created, First: 1, Last: 120, Messages: 120}
		damage(src)
		g.check(t.Context())
		if got := g.Alarm(); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("want %q, got alarm %q", want, got)
		}
		src.other = false
		src.info, src.err = natsjournal.Info{Created: created, First: 1, Last: 121, Messages: 121}, nil
		g.check(t.Context())
		if want != "" && g.Alarm() == "" {
			t.Errorf("%q: the alarm went away by itself", want)
		}
	}
}
