package sim

import (
	"context"
	"log/slog"
	"strings"
)

// scanner reads every log line for what must never be in one (I18).
type scanner struct{ w *world }

// Enabled implements slog.Handler.
func (*scanner) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (s *scanner) Handle(_ context.Context, r slog.Record) error {
	check := func(text string) {
		if strings.Contains(text, secret) {
			s.w.fail("I18: no argument in a log line", "%s", r.Message)
		}
	}
	check(r.Message)
	r.Attrs(func(a slog.Attr) bool { check(a.Value.String()); return true })
	return nil
}

// WithAttrs implements slog.Handler.
func (s *scanner) WithAttrs([]slog.Attr) slog.Handler { return s }

// WithGroup implements slog.Handler.
func (s *scanner) WithGroup(string) slog.Handler { return s }
