package providers

import (
	"encoding/json"
	"testing"
	"time"
)

func TestTheTimeOfCreationIsReadInTheFormsThatProvidersUse(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 4, 10, 20, 30, 0, time.UTC)
	for _, tt := range []struct {
		value any
		want  time.Time
	}{
		{"2026-05-04T10:20:30Z", at},
		{"2026-05-04T12:20:30.5+02:00", at.Add(500 * time.Millisecond)},
		{"2026-05-04T10:20:30.000+0000", at},
		{"2026-05-04T05:20:30-0500", at},
		{json.Number("1777890030"), at},
		{"1777890030", at},
		{"1777890030.000216", at.Add(216 * time.Microsecond)},
		{json.Number("1777890030000"), at},
		{"1777890030250", at.Add(250 * time.Millisecond)},
		{"1777890030.1234567891", at.Add(123456789)},
		{nil, time.Time{}},
		{"", time.Time{}},
		{"soon", time.Time{}},
		{"2026-05-04", time.Time{}},
		{"2026-05-04 10:20:30", time.Time{}},
		{json.Number("0"), time.Time{}},
		{json.Number("-1"), time.Time{}},
		{json.Number("1e9"), time.Time{}},
		{"1777890030.x", time.Time{}},
		{true, time.Time{}},
		{map[string]any{}, time.Time{}},
	} {
		if got := instant(tt.value); !got.Equal(tt.want) {
			t.Errorf("%v: got %s, want %s", tt.value, got, tt.want)
		}
	}
}
