package kills

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// binaries are the programs under test, built once.
var binaries Binaries

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "opledger-kills-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binaries, err = Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Goal: I10, I4, I6, I12 under real processes and kill -9: what was acknowledged is
// in the log once and with its content, what is confirmed exists once, nothing is
// stuck. Method: one process with everything, then a server and two workers, each
// killed at random moments under a load that never pauses; the providers live in
// this process. The large run is a command: see docs/verification.md.
func TestNothingAcknowledgedIsLostOrDoubledByKills(t *testing.T) {
	t.Parallel()
	r, err := Run(t.Context(), Config{
		Binaries: binaries, Dir: t.TempDir(), Seed: 1, Kills: 10, Round: 5, Parallel: 2, Rate: 25, Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Problems {
		t.Error(p)
	}
	if r.Kills != 10 || r.Worlds != 2 || r.Acknowledged == 0 || r.Confirmed == 0 || r.Unknown == 0 || r.Found != len(r.Problems) {
		t.Errorf("the run shows nothing: %+v", r)
	}
}

// The audit is held to what it must find: each row plants one fault.
func TestTheAuditFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	confirmed := func(id string) operation.State {
		return operation.State{Status: operation.StatusConfirmed, Result: &operation.Result{ExternalID: id}}
	}
	unknown := operation.State{Status: operation.StatusUnknown, Review: &operation.Review{}}
	key, label, none := operation.ClassKey, operation.ClassLabel, operation.ClassNone
	for _, c := range []struct {
		name                     string
		class                    operation.Class
		state                    operation.State
		ids                      []string
		duplicates, wrong, stuck int
	}{
		{name: "confirmed with its object", class: key, state: confirmed("a"), ids: []string{"a"}},
		{name: "two objects", class: key, state: confirmed("a"), ids: []string{"a", "b"}, duplicates: 1},
		{name: "two objects in doubt", class: none, state: unknown, ids: []string{"a", "b"}, duplicates: 1},
		{name: "confirmed without an object", class: label, state: confirmed("a"), wrong: 1},
		{name: "confirmed as another object", class: key, state: confirmed("a"), ids: []string{"b"}, wrong: 1},
		{name: "confirmed as nothing", class: key, state: operation.State{Status: operation.StatusConfirmed}, ids: []string{"b"}, wrong: 1},
		{name: "rejected", class: key, state: operation.State{Status: operation.StatusRejected}, wrong: 1},
		{name: "unknown although the label shows it", class: label, state: unknown, ids: []string{"a"}, wrong: 1},
		{name: "unknown although the key helps", class: key, state: unknown, stuck: 1},
		{name: "unknown where nothing helps", class: none, state: unknown, ids: []string{"a"}},
		{name: "unknown and nothing is there", class: label, state: unknown},
	} {
		var v Verdict
		v.object(&provider{class: c.class}, "op", c.state, c.ids)
		if v.Duplicates != c.duplicates || v.Wrong != c.wrong || v.Stuck != c.stuck || v.Found != c.duplicates+c.wrong+c.stuck {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

func TestTheAuditFindsWhatIsStuckOrAnomalous(t *testing.T) {
	t.Parallel()
	var v Verdict
	v.count("stuck", &history{state: operation.State{Status: operation.StatusInFlight}})
	v.count("odd", &history{
		state:     operation.State{Status: operation.StatusConfirmed},
		anomalies: []operation.Anomaly{{Reason: operation.AnomalyReasons()[1]}},
	})
	v.count("asked", &history{state: operation.State{Status: operation.StatusUnknown, Review: &operation.Review{}}, unknown: true})
	v.count("found", &history{state: operation.State{Status: operation.StatusConfirmed}, unknown: true})
	if v.Stuck != 1 || v.Found != 2 || v.Reviews != 1 || v.Resolved != 1 || v.Unknown != 2 || v.Confirmed != 2 {
		t.Errorf("%+v", v)
	}
}

func TestTheAuditComparesContent(t *testing.T) {
	t.Parallel()
	wish := intent{ID: "op-1", Provider: "keyed", Title: "task op-1", Note: "n"}
	recorded := func(provider, title string, intents int) *history {
		w := wish
		w.Title = title
		return &history{intents: intents, state: operation.State{
			Intent: events.IntentRecorded{Provider: provider, Args: w.request().Args},
		}}
	}
	for _, c := range []struct {
		h    *history
		want string
	}{
		{recorded("keyed", "task op-1", 1), ""},
		{recorded("keyed", "task op-1", 2), "2 intents"},
		{recorded("crm", "task op-1", 1), "acknowledged as"},
		{recorded("keyed", "task op-2", 1), "acknowledged as"},
	} {
		if got := differs(wish, c.h); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("differs says %q, want %q", got, c.want)
		}
	}
}

func TestTheLoadsFileIsReadBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "acknowledged.jsonl")
	f, err := createFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []intent{{ID: "a", Provider: "keyed", Title: "t", Note: "n"}, {ID: "b", Provider: "crm", Title: "u", Inbox: true}}
	for _, i := range want {
		f.add(i)
	}
	if err := errors.Join(f.failed(), f.close()); err != nil {
		t.Fatal(err)
	}
	got, err := readFile(path)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// Goal: I3, I6, I10 on three servers with a copy of everything each, and two workers:
// nothing acknowledged is lost, no two win, nothing is done twice, while the leader
// is killed, cut off, and all servers are killed at once. Method: the histories of
// the intake and of the journal have an order that explains them; then the audit.
// The large run is a command: see docs/verification.md.
func TestAClusterInTroubleLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	r, err := RunCluster(t.Context(), ClusterConfig{
		Binaries: binaries, Dir: t.TempDir(), Seed: 1, Rounds: 3, Rate: 15, LongestCut: 5 * time.Second, Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Problems {
		t.Error(p)
	}
	if r.Rounds != 3 || r.Kills < 4 || r.Acknowledged == 0 || r.Confirmed == 0 || r.Found != len(r.Problems) ||
		r.IntakeCalls == 0 || r.ClaimCalls == 0 {
		t.Errorf("the run shows nothing: %+v", r)
	}
}
