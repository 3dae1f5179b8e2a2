package main

import (
	"strings"
	"testing"
	"time"
)

// Where there is no terminal a long walk says how far it is, and not too often.
func TestProgressIsLinesWhereThereIsNoTerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	often, seldom := lines(&out, "rebuild", 0), lines(&out, "verify", time.Hour)
	often(512, 2048)
	seldom(512, 2048)
	often(0, 0)
	if got, want := out.String(), "rebuild: 512 of 2048 messages (25 %)\nrebuild: 0 of 0 messages (0 %)\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
