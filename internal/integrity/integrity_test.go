package integrity_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/integrity"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func config() integrity.AuditConfig { return integrity.AuditConfig{Ledger: "l-1", Created: noon} }

// log returns n messages, one second apart, with a checkpoint after every 100.
func log(t *testing.T, n int) (recs []events.Record) {
	t.Helper()
	a := integrity.NewAudit(config())
	put := func(subject string, body []byte) {
		seq := uint64(len(recs) + 1)
		r := events.Record{Seq: seq, Subject: subject, Stamp: noon.Add(time.Duration(seq) * time.Second), Body: body}
		a.Add(r)
		recs = append(recs, r)
	}
	for len(recs) < n {
		if len(recs)%100 != 99 {
			put("opledger.events.acme.op-1", fmt.Appendf(nil, `{"id":"e-%d"}`, len(recs)))
			continue
		}
		m := a.Mark()
		body, err := events.EncodeSystem(events.System{
			ID: "c", Kind: events.SystemCheckpoint, Data: integrity.Checkpoint{Seq: m.Seq, Digest: m.Rolling}.Data(),
		})
		if err != nil {
			t.Fatal(err)
		}
		put("opledger.system.checkpoint", body)
	}
	return recs
}

func audit(cfg integrity.AuditConfig, recs []events.Record) *integrity.Audit {
	a := integrity.NewAudit(cfg)
	for _, r := range recs {
		a.Add(r)
	}
	a.End()
	return a
}

func ranges(a *integrity.Audit) (out []string) {
	found, _ := a.Findings()
	for _, f := range found {
		out = append(out, fmt.Sprintf("%s %d-%d", f.Kind, f.From, f.To))
	}
	return out
}

// I13: a whole log has no findings, with and without its mark.
func TestAWholeLogHasNoFindings(t *testing.T) {
	t.Parallel()
	recs := log(t, 1000)
	mark := audit(config(), recs[:777]).Mark()
	cfg := config()
	cfg.Mark = &mark
	a := audit(cfg, recs)
	if n, seq := a.Checked(); len(ranges(a)) > 0 || n != 10 || seq != 999 {
		t.Errorf("got %v, %d checkpoints up to %d", ranges(a), n, seq)
	}
	if mark.Seq != 777 || mark.EventID != "e-776" || !mark.Stamp.Equal(recs[776].Stamp) || mark.Message != events.Digest(recs[776].Body) {
		t.Errorf("got mark %+v", mark)
	}
}

// Damage is named by the messages between which it lies, each damage once, and
// with the last moment before it.
func TestDamageIsNamedByItsRange(t *testing.T) {
	t.Parallel()
	change := func(seq int) func([]events.Record) []events.Record {
		return func(r []events.Record) []events.Record { r[seq-1].Body = []byte("x"); return r }
	}
	for name, c := range map[string]struct {
		damage func([]events.Record) []events.Record
		mark   bool
		want   []string
		since  int
	}{
		"one message changed":  {damage: change(550), want: []string{"checkpoint_differs 500-599"}, since: 499},
		"two places changed":   {damage: func(r []events.Record) []events.Record { return change(850)(change(150)(r)) }, want: []string{"checkpoint_differs 100-199", "checkpoint_differs 800-899"}, since: 99},
		"behind a checkpoint":  {damage: change(1020), mark: true, want: []string{"log_changed 1000-1050"}, since: 999},
		"messages missing":     {damage: func(r []events.Record) []events.Record { return append(r[:549:549], r[560:]...) }, mark: true, want: []string{"log_gap 550-560"}, since: 549},
		"the first ones gone":  {damage: func(r []events.Record) []events.Record { return r[30:] }, mark: true, want: []string{"log_gap 1-30"}},
		"the end gone":         {damage: func(r []events.Record) []events.Record { return r[:940] }, mark: true, want: []string{"log_went_back 941-1050"}, since: 940},
		"everything gone":      {damage: func([]events.Record) []events.Record { return nil }, mark: true, want: []string{"log_went_back 1-1050"}},
		"an unreadable record": {damage: func(r []events.Record) []events.Record { r[999].Body = []byte("{"); return r }, want: []string{"log_unreadable 1000-1000"}},
		"order of two exchanged": {damage: func(r []events.Record) []events.Record {
			r[10].Body, r[11].Body = r[11].Body, r[10].Body
			return r
		}, want: []string{"checkpoint_differs 1-99"}},
		"another subject": {damage: func(r []events.Record) []events.Record { r[10].Subject += "2"; return r }, want: []string{"checkpoint_differs 1-99"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recs := log(t, 1050)
			cfg := config()
			if mark := audit(config(), recs).Mark(); c.mark {
				cfg.Mark = &mark
			}
			a := audit(cfg, c.damage(recs))
			if diff := cmp.Diff(c.want, ranges(a)); diff != "" {
				t.Fatal(diff)
			}
			want := time.Time{}
			if c.since > 0 {
				want = noon.Add(time.Duration(c.since) * time.Second)
			}
			if found, _ := a.Findings(); !found[0].Since.Equal(want) {
				t.Errorf("since %s, want %s", found[0].Since, want)
			}
		})
	}
}

// A mark of another log says so, whatever the numbers are.
func TestTheMarkOfAnotherLogIsNoMatch(t *testing.T) {
	t.Parallel()
	recs := log(t, 10)
	for _, change := range []func(*integrity.Mark){
		func(m *integrity.Mark) { m.Ledger = "l-2" },
		func(m *integrity.Mark) { m.Created = noon.Add(time.Second) },
	} {
		mark := audit(config(), recs).Mark()
		change(&mark)
		cfg := config()
		cfg.Mark = &mark
		if got := ranges(audit(cfg, recs)); len(got) != 1 || !strings.HasPrefix(got[0], "log_other") {
			t.Errorf("got %v", got)
		}
	}
}

// What was accepted is no finding any more; what is different from it is one.
func TestWhatWasAcceptedIsTheNewBase(t *testing.T) {
	t.Parallel()
	recs := log(t, 1000)
	recs = append(recs[:549:549], recs[560:]...)
	cfg := config()
	cfg.Base = audit(config(), recs[:800]).Base()
	if cfg.Base.Deleted != 11 || cfg.Base.First != 1 {
		t.Fatalf("got base %+v", cfg.Base)
	}
	if got := ranges(audit(cfg, recs)); got != nil {
		// The checkpoints after the base are those of the log before the damage.
		t.Logf("checkpoints that were made on the whole log: %v", got)
	}
	if got := ranges(audit(cfg, recs[:850])); got != nil {
		t.Errorf("got %v", got)
	}
	recs[20].Body = []byte("x")
	if got := ranges(audit(cfg, recs[:850])); len(got) != 1 || !strings.HasPrefix(got[0], "log_changed") {
		t.Errorf("got %v", got)
	}
}

// A mark comes back as it was saved; one that can't be read is an error, and no
// file is none.
func TestAMarkIsReadBackOrRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "highwater.json")
	if m, err := integrity.Load(path); m != nil || err != nil {
		t.Fatalf("got %v, %v", m, err)
	}
	want := audit(config(), log(t, 10)).Mark()
	for range 3 {
		if err := integrity.Save(path, want, true); err != nil {
			t.Fatal(err)
		}
	}
	got, err := integrity.Load(path)
	if err != nil || !cmp.Equal(*got, want) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
	for _, bad := range []string{"", "{}", `{"format":2}`, "\x00\x00"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := integrity.Load(path); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// A clearing is read back as it was recorded.
func TestAClearingIsReadBack(t *testing.T) {
	t.Parallel()
	want := integrity.Clearing{
		Reason: "disk replaced", Accepted: audit(config(), log(t, 10)).Base(), Lost: []string{"messages 3 to 4"},
		Since: noon, Until: noon.Add(time.Hour), InDoubt: 7,
	}
	data, err := want.Data()
	if err != nil {
		t.Fatal(err)
	}
	body, err := events.EncodeSystem(events.System{ID: "c-1", Kind: events.SystemAlarmCleared, Actor: "ann", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	got, err := integrity.ReadClearing(events.Record{Seq: 9, Stamp: noon, Body: body})
	want.ID, want.Seq, want.Stamp, want.Actor = "c-1", 9, noon, "ann"
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	if _, err := integrity.ReadClearing(events.Record{Body: []byte(`{"type":"io.opledger.v1.IntegrityAlarmCleared","data":{}}`)}); err == nil {
		t.Error("a clearing that accepts nothing was read")
	}
}
