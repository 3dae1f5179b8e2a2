package providers_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/providers"
)

func TestWhatIsLegalAndDoubtfulIsAWarningWithItsLine(t *testing.T) {
	t.Parallel()
	const lookups = "    lookups:\n"
	noLookups := func(text string) string {
		before, rest, _ := strings.Cut(text, lookups)
		_, after, _ := strings.Cut(rest, "    absence:")
		return before + "    absence:" + after
	}
	replace := func(old, with string) func(string) string {
		return func(text string) string { return strings.Replace(text, old, with, 1) }
	}
	tests := map[string]struct {
		file  string
		spoil func(string) string
		want  string // of the one warning
		path  string
	}{
		"cite without a date":    {"sim-crm", replace(" (read 2026-11-30)", ""), "has no date", "cite[0]"},
		"no account probe":       {"sim-crm", replace("  account_probe:\n    request: {method: GET, path: /v1/account}\n    account: /id\n    cache: 10m\n", ""), "no account_probe", "connection"},
		"no request id":          {"sim-crm", replace("  request_id_header: X-Request-Id\n", ""), "no request_id_header", "connection"},
		"K1 without a lookup":    {"sim-keyed", noLookups, "only a person can find the truth", "actions[task.create]"},
		"K2, unknown retention":  {"sim-unique", replace("retention: forever", "retention: unknown"), "is unknown", "actions[task.create].retry.retention"},
		"late_apply of nothing":  {"sim-crm", replace("late_apply: 30s", "late_apply: 0s"), "is 0s", "actions[task.create].timing.late_apply"},
		"no time of creation":    {"sim-crm", replace("        created_at: /created_at\n", ""), "no created_at", "actions[task.create].lookups[0]"},
		"schedule below the lag": {"sim-crm", replace("lag: 5s", "lag: 2h"), "ends before the lag", "actions[task.create].lookups[0].schedule"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := providers.Template(tt.file, nil)
			if err != nil {
				t.Fatal(err)
			}
			text := tt.spoil(string(data))
			if text == string(data) {
				t.Fatal("the file is as it was")
			}
			got := parse(t, text).Warnings()
			if len(got) != 1 || !strings.Contains(got[0].Text, tt.want) || got[0].Path != tt.path || got[0].Line < 2 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestTheWarningsOfAnUpsertWithoutAMark(t *testing.T) {
	t.Parallel()
	f := parse(t, without(strings.ReplaceAll(upsertFile, `, label: "${op.label}"`, ""), "- {at: /label", "schedule:", "created_at:"))
	var got []string
	for _, w := range f.Warnings() {
		got = append(got, w.Path)
	}
	want := []string{"cite[0]", "connection", "connection", "actions[task.create]", "actions[task.create].lookups[0]"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
}

func TestShippedContractsHaveNoDoubts(t *testing.T) {
	t.Parallel()
	for _, name := range providers.Shipped() {
		got := load(t, name, nil).Warnings()
		if name == "sim-keyed-nolookup" { // that is what it is for
			if len(got) != 1 || got[0].Path != "actions[task.create]" {
				t.Errorf("%s: got %+v", name, got)
			}
			continue
		}
		if len(got) != 0 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
