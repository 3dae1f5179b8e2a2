package catalogue_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/catalogue"
	"github.com/opledger/opledger/providers/providertest"
)

var update = flag.Bool("update", false, "write the golden files and docs/catalogue.md anew")

// The marks of the one operation that all samples are about.
const (
	testKey    = "9f6c1f0e-6a53-5d0c-8f6e-2f8f6f4a1b2c"
	testPlain  = "9f6c1f0e6a535d0c8f6e2f8f6f4a1b2c"
	testLabel  = "opl" + testPlain
	testUUIDv4 = "9f6c1f0e-6a53-4d0c-8f6e-2f8f6f4a1b2c"
	otherKey   = "11111111-2222-5333-8444-555555555555"
)

var firstSend = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// samples are recorded answers of one provider. In them @{key}, @{plain},
// @{label} and @{uuid_v4} stand for the marks of the operation.
type samples struct {
	Secrets []string
	Values  map[string]string
	// BaseURL is the account's, where the contract has none of its own.
	BaseURL string `yaml:"base_url"`
	// Probe is the answer to the account probe, Account the id in it.
	Probe   any
	Account string
	Actions map[string]sample
}

type sample struct {
	Args    any
	Answers []answer
	// Found is what the lookups answer once the object can be seen, Empty what
	// they answer while it can't.
	Found       any
	FoundID     string `yaml:"found_id"`
	Empty       any
	EmptyStatus int `yaml:"empty_status"`
	// Page is the parameter of a further page, which is empty.
	Page string
}

type answer struct {
	Is     string
	ID     string
	Status int
	Header map[string]string
	Body   any
	Raw    *string // in place of a JSON body
}

func (a answer) handler() http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for name, v := range a.Header {
			w.Header().Set(name, v)
		}
		body := jsonOf(a.Body)
		if a.Raw != nil {
			body = []byte(*a.Raw)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.Status)
		_, _ = w.Write(body) // the client may be gone
	}
}

func jsonOf(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("the sample is no JSON: " + err.Error())
	}
	return data
}

// subject is one contract with its samples.
type subject struct {
	name string
	file *providers.File
	raw  rawFile
	samples
}

// rawFile is what the tests read of a contract beside what the package shows.
type rawFile struct {
	Cite       []string
	Connection struct {
		BaseURL string `yaml:"base_url"`
		Auth    struct{ Header, Value string }
		Probe   *struct {
			Request struct{ Method, Path string }
		} `yaml:"account_probe"`
	}
	Actions map[string]rawAction
}

type rawAction struct {
	Class      string
	Uniqueness string
	Request    struct{ Method, Encoding string }
	Key        *struct {
		In, Name string
		MaxLen   int `yaml:"max_len"`
	}
	Outcomes []yaml.Node
	Retry    struct {
		Retention   string
		MaxAttempts int `yaml:"max_attempts"`
	}
	Lookups []struct {
		Name, Consistency, Lag string
		Request                struct{ Method string }
	}
	Absence struct{ Provable bool }
}

func loadSubject(t testing.TB, name string) subject {
	t.Helper()
	file, err := catalogue.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	s := subject{name: name, file: file}
	if err := yaml.Unmarshal(file.Bytes(), &s.raw); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("testdata", name+".answers.yaml"))
	if err != nil {
		t.Fatalf("contract %s has no samples: %v", name, err)
	}
	marks := strings.NewReplacer("@{key}", testKey, "@{plain}", testPlain, "@{label}", testLabel, "@{uuid_v4}", testUUIDv4)
	dec := yaml.NewDecoder(strings.NewReader(marks.Replace(string(text))))
	dec.KnownFields(true)
	if err := dec.Decode(&s.samples); err != nil {
		t.Fatalf("samples of %s: %v", name, err)
	}
	return s
}

func subjects(t testing.TB) []subject {
	t.Helper()
	var out []subject
	for _, name := range catalogue.Names() {
		out = append(out, loadSubject(t, name))
	}
	return out
}

// adapter makes the real adapter of the contract, for a provider at baseURL.
// Empty means the address that the contract or the samples say.
func (s subject) adapter(t testing.TB, file *providers.File, baseURL string) *providers.HTTP {
	t.Helper()
	acc := providers.Account{
		ProviderID: s.Account, BaseURL: s.BaseURL, Values: s.Values, Secrets: make(map[string]providers.SecretRef),
	}
	if baseURL != "" {
		acc.BaseURL, acc.AllowLoopback = baseURL, true
	}
	for _, name := range s.Secrets {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(secretValue(name)), 0o600); err != nil {
			t.Fatal(err)
		}
		ref, err := providers.ParseRef("file://" + path)
		if err != nil {
			t.Fatal(err)
		}
		acc.Secrets[name] = ref
	}
	h, err := providers.NewHTTP(providers.HTTPConfig{File: file, Accounts: map[string]providers.Account{"main": acc}})
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	t.Cleanup(h.Close)
	return h
}

func secretValue(name string) string { return "very-secret-" + name }

// call is the operation of the samples.
func (s subject) call(t testing.TB, file *providers.File, action, key string) providers.Call {
	t.Helper()
	args, err := file.Bind(action, jsonOf(s.Actions[action].Args))
	if err != nil {
		t.Fatalf("%s %s: %v", s.name, action, err)
	}
	return providers.Call{
		Tenant: "acme", Operation: "op-1", FirstSend: firstSend,
		Intent: events.IntentRecorded{
			Provider: file.Provider, Account: events.Account{Name: "main", ProviderID: s.Account},
			Action: action, Args: args, ArgsDigest: "sha256-jcs:00", ContractRef: file.Ref(), IdempotencyKey: key,
		},
	}
}

// world answers as the provider does: the write, the account probe, and looks.
func (s subject) world(t testing.TB, action string, write, look answer) http.Handler {
	t.Helper()
	method, target := s.write(t, action)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // the peer has it whole
		probe := s.raw.Connection.Probe
		switch {
		case probe != nil && r.Method == probe.Request.Method && r.URL.RawQuery == "" && s.isProbe(r, string(body)):
			answer{Status: 200, Body: s.Probe}.handler()(w, r)
		case r.Method == method && r.URL.EscapedPath() == target && !strings.Contains(string(body), `"query":"query`):
			write.handler()(w, r)
		case s.Actions[action].Page != "" && r.URL.Query().Has(s.Actions[action].Page):
			s.Actions[action].empty().handler()(w, r)
		default:
			look.handler()(w, r)
		}
	})
}

// isProbe tells the account probe from other requests to the same address.
func (s subject) isProbe(r *http.Request, body string) bool {
	path := strings.NewReplacer(pairs("${account.", "}", s.Values)...).Replace(s.raw.Connection.Probe.Request.Path)
	return r.URL.Path == path && (!strings.Contains(body, `"query"`) || !strings.Contains(body, `"variables"`))
}

func pairs(before, after string, values map[string]string) []string {
	var out []string
	for name, v := range values {
		out = append(out, before+name+after, v)
	}
	return out
}

// write returns method and path of the action's request.
func (s subject) write(t testing.TB, action string) (method, path string) {
	t.Helper()
	r, err := s.adapter(t, s.file, "http://127.0.0.1:9").Prepare(s.call(t, s.file, action, testKey))
	if err != nil {
		t.Fatalf("%s %s: %v", s.name, action, err)
	}
	shown := r.Redacted()
	path = strings.TrimPrefix(shown.URL, "http://127.0.0.1:9")
	path, _, _ = strings.Cut(path, "?")
	return shown.Method, path
}

// success is the first sample that says so.
func (s subject) success(t testing.TB, action string) answer {
	t.Helper()
	for _, a := range s.Actions[action].Answers {
		if a.Is == "success" {
			return a
		}
	}
	t.Fatalf("%s %s: no sample of a success", s.name, action)
	return answer{}
}

func (x sample) found() answer { return answer{Status: http.StatusOK, Body: x.Found} }

func (x sample) empty() answer {
	if x.EmptyStatus == 0 {
		x.EmptyStatus = http.StatusOK
	}
	return answer{Status: x.EmptyStatus, Body: x.Empty}
}

// eachAction runs a test for every action of the catalogue.
func eachAction(t *testing.T, test func(t *testing.T, s subject, action string)) {
	t.Helper()
	for _, s := range subjects(t) {
		for _, action := range s.file.Actions() {
			t.Run(fmt.Sprintf("%s/%s", s.name, action), func(t *testing.T) {
				t.Parallel()
				test(t, s, action)
			})
		}
	}
}

func newPeer(t *testing.T, h http.Handler) *providertest.Peer {
	t.Helper()
	return providertest.NewPeer(t, h)
}
