package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/internal/trial"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/simulator"
)

// opledger runs one command line.
func contractCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"contract"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// contractFile writes a shipped contract into a file, changed in one place.
func contractFile(t *testing.T, name, old, replacement string) string {
	t.Helper()
	data, err := providers.Template(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(data), old, replacement, 1)
	if old != "" && text == string(data) {
		t.Fatalf("%s has no %q", name, old)
	}
	path := filepath.Join(t.TempDir(), "my.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What is unsafe is an error with its line and exit code 1; what is doubtful is
// a warning and no error.
func TestContractLintNamesFileAndLine(t *testing.T) {
	t.Parallel()
	good := contractFile(t, "sim-crm", "", "")
	code, out, _ := contractCommand(t, "lint", good)
	if code != exitOK || !strings.Contains(out, good+": ok") {
		t.Errorf("a good file: got %d, %s", code, out)
	}
	bad := contractFile(t, "sim-crm", "max_attempts: 1", "max_attempts: 3")
	code, out, _ = contractCommand(t, "lint", good, bad)
	line := 0
	data, err := os.ReadFile(bad)
	if err != nil {
		t.Fatal(err)
	}
	for n, text := range strings.Split(string(data), "\n") {
		if strings.Contains(text, "max_attempts: 3") {
			line = n + 1
		}
	}
	if want := bad + ":" + itoa(line) + ": error: actions[task.create].retry.max_attempts"; code != exitError || !strings.Contains(out, want) {
		t.Errorf("an unsafe file: got %d, %s\nwant %s", code, out, want)
	}
	doubtful := contractFile(t, "sim-crm", "late_apply: 30s", "late_apply: 0s")
	code, out, _ = contractCommand(t, "lint", "-o", "json", doubtful)
	var got []linted
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if code != exitOK || len(got) != 1 || !got[0].OK || len(got[0].Warnings) != 1 || got[0].Warnings[0].Line == 0 {
		t.Errorf("a doubtful file: got %d, %+v", code, got)
	}
	if code, _, _ := contractCommand(t, "lint", filepath.Join(t.TempDir(), "none.yaml")); code != exitError {
		t.Errorf("a file that is not there: got %d, want %d", code, exitError)
	}
}

func itoa(n int) string {
	raw, _ := json.Marshal(n) // a number does not fail
	return string(raw)
}

// What is shown tells promises, what follows, and the request without a secret
// and without what is personal.
func TestContractShowHidesSecretsAndWhatIsPersonal(t *testing.T) {
	t.Parallel()
	code, out, errs := contractCommand(t, "show", "sim-keyed", "--args", `{"title":"call back","contact":"anna@example.com"}`)
	if code != exitOK {
		t.Fatalf("got %d, %s", code, errs)
	}
	for _, want := range []string{"class K1", "sent again at +21s (key_retention)", "Bearer ${secret.token}", `"contact":"***"`, "call back"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(out, "anna@example.com") {
		t.Errorf("a personal argument shows in\n%s", out)
	}
	for _, name := range providers.Shipped() {
		if code, _, errs := contractCommand(t, "show", name); code != exitOK {
			t.Errorf("show %s: got %d, %s", name, code, errs)
		}
	}
}

// A contract that the simulator keeps is tried in full, with every fault, and
// its exit code is 0.
func TestContractTestOfAnHonestPeerPasses(t *testing.T) {
	t.Parallel()
	code, out, errs := contractCommand(t, "test", "sim-unique", "--faults", "-o", "json")
	var got tried
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v, %s", err, errs)
	}
	if code != exitOK || !got.OK || len(got.Promises) < 10 || len(got.Faults) != len(trial.Faults()) {
		t.Errorf("got %d, ok %t, %d promises, %d faults", code, got.OK, len(got.Promises), len(got.Faults))
	}
}

// A lie is named and gives exit code 1.
func TestContractTestOfALiarFails(t *testing.T) {
	t.Parallel()
	code, out, _ := contractCommand(t, "test", "sim-keyed", "--against", "nothing")
	var lies []string
	for line := range strings.Lines(out) {
		if strings.HasSuffix(strings.TrimSpace(line), string(trial.Lie)) {
			lies = append(lies, line)
		}
	}
	if code != exitError || len(lies) != 1 || !strings.HasPrefix(lies[0], trial.PromiseSameKey) {
		t.Errorf("got %d, lies %q, want %d and %q", code, lies, exitError, trial.PromiseSameKey)
	}
	long := contractFile(t, "sim-keyed", "retention: 24h", "retention: 72h")
	code, out, _ = contractCommand(t, "test", long, "--against", "keyed")
	if code != exitError || !strings.Contains(out, trial.PromiseRetention) || !strings.Contains(out, "1 lie") {
		t.Errorf("a retention that is declared too long: got %d\n%s", code, out)
	}
}

// Against a URL nothing is written without a word for it, what would take too
// long is not tried, and what can be observed is.
func TestContractTestAgainstAURL(t *testing.T) {
	t.Parallel()
	settings, err := simulator.Preset("keyed")
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulator.New(simulator.Config{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	peer := httptest.NewServer(sim)
	t.Cleanup(peer.Close)
	t.Cleanup(sim.Close)
	admin, err := simulator.NewClient(simulator.ClientConfig{BaseURL: peer.URL})
	if err != nil {
		t.Fatal(err)
	}
	count := func() int {
		all, err := admin.Objects(t.Context(), simulator.ObjectFilter{})
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(simulator.DefaultToken), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "sim-keyed", "--against", peer.URL, "--secret", "token=file://" + token, "--account", simulator.DefaultAccount}
	if code, _, errs := contractCommand(t, args...); code != exitUsage || !strings.Contains(errs, "--write") || count() != 0 {
		t.Fatalf("without --write: got %d, %d objects, %s", code, count(), errs)
	}
	code, out, errs := contractCommand(t, append(args, "--write", "-o", "json")...)
	var got tried
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v, %s", err, errs)
	}
	verdicts := make(map[string]trial.Verdict)
	for _, p := range got.Promises {
		verdicts[p.Name] = p.Verdict
	}
	for name, want := range map[string]trial.Verdict{
		trial.PromiseAccount: trial.Kept, trial.PromiseSuccess: trial.Kept, trial.PromiseSameKey: trial.Kept,
		trial.PromiseMismatch: trial.Kept, trial.PromiseConcurrent: trial.Kept, trial.PromiseLookup: trial.Kept,
		trial.PromiseUnauthorized: trial.Kept, trial.PromiseRetention: trial.NotTried, trial.PromiseLate: trial.NotTried,
	} {
		if verdicts[name] != want {
			t.Errorf("%s: got %q, want %q", name, verdicts[name], want)
		}
	}
	if code != exitOK || count() == 0 {
		t.Errorf("got %d, %d objects\n%s", code, count(), out)
	}
}

// What can't be done says what to do.
func TestContractCommandsSayWhatToDo(t *testing.T) {
	t.Parallel()
	unknown := contractFile(t, "sim-crm", "", "")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no such contract":        {[]string{"show", "nope"}, "opledger contract list"},
		"no such action":          {[]string{"show", "sim-crm", "--action", "task.drop"}, "task.create"},
		"no peer for it":          {[]string{"test", unknown}, "--against PRESET"},
		"no such preset":          {[]string{"test", "sim-crm", "--against", "moon"}, "keyed"},
		"faults of a provider":    {[]string{"test", "sim-crm", "--against", "https://example.com", "--faults"}, "simulator"},
		"flags without a URL":     {[]string{"test", "sim-crm", "--write"}, "--against URL"},
		"no contract":             {[]string{"test"}, "--help"},
		"a secret, not its place": {[]string{"test", "sim-crm", "--against", "https://example.com", "--write", "--secret", "token=hunter2"}, "env://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, _, errs := contractCommand(t, c.args...)
			if code != exitUsage || !strings.Contains(errs, c.want) {
				t.Errorf("got %d, %s, want %d and %q", code, errs, exitUsage, c.want)
			}
			if strings.Contains(errs, "hunter2") {
				t.Errorf("the secret shows: %s", errs)
			}
		})
	}
}

// Every fault is played in seconds.
func TestContractTestWithFaultsIsQuick(t *testing.T) {
	began := time.Now()
	if code, _, errs := contractCommand(t, "test", "sim-crm", "--faults"); code != exitOK {
		t.Fatal(errs)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s, want a few seconds", took)
	}
}
