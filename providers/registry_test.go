package providers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/providers"
)

// memory is a Store.
type memory struct {
	mu   sync.Mutex
	data map[string][]byte
	gets int
	err  error
}

func (m *memory) Get(_ context.Context, digest string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets++
	if m.err != nil {
		return nil, m.err
	}
	data, ok := m.data[digest]
	if !ok {
		return nil, fmt.Errorf("%w: %s", providers.ErrNoContract, digest)
	}
	return data, nil
}

func newRegistry(t testing.TB, store providers.Store, files ...*providers.File) *providers.Registry {
	t.Helper()
	var all []providers.Configured
	for _, f := range files {
		all = append(all, providers.Configured{File: f, Accounts: map[string]providers.Account{
			"main": {BaseURL: fixedURL, Secrets: map[string]providers.SecretRef{"token": secretRef(t, testToken)}},
		}})
	}
	r, err := providers.NewRegistry(all, store, providers.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An operation is rendered and judged by the revision it was accepted under,
// for ever.
func TestAnOperationKeepsItsContractRevision(t *testing.T) {
	t.Parallel()
	old, current := load(t, "sim-crm", nil), load(t, "sim-crm", map[string]string{"total": "99s"})
	store := &memory{data: map[string][]byte{old.Digest(): old.Bytes()}}
	r := newRegistry(t, store, current)
	for range 3 {
		a, c, err := r.For(t.Context(), testIntent(old, `{"title":"a"}`))
		if err != nil || a == nil || c.Digest != old.Digest() || c.Total.Seconds() != 10 {
			t.Fatalf("For: got %+v, %v", c, err)
		}
		if _, err := a.Prepare(testCall(old, `{"title":"a"}`)); err != nil {
			t.Error(err)
		}
	}
	if store.gets != 1 {
		t.Errorf("reads of the store: got %d, want 1", store.gets)
	}
	_, c, ref, err := r.Current("crm", "task.create")
	if err != nil || c.Total.Seconds() != 99 || ref.Digest != current.Digest() || ref.Name != "sim-crm" || ref.Revision != 1 {
		t.Errorf("Current: got %+v, %+v, %v", c, ref, err)
	}
}

func TestWhatThisProcessLacksIsNotMine(t *testing.T) {
	t.Parallel()
	crm := load(t, "sim-crm", nil)
	store := &memory{data: map[string][]byte{"sha256:bad": []byte("x")}}
	r := newRegistry(t, store, crm)
	for name, spoil := range map[string]func(c *providers.Call){
		"contract": func(c *providers.Call) { c.Intent.Digest = "sha256:none" },
		"account":  func(c *providers.Call) { c.Intent.Account.Name = "other" },
		"provider": func(c *providers.Call) { c.Intent.Provider, c.Intent.Digest = "other", "sha256:x" },
	} {
		c := testCall(crm, `{}`)
		spoil(&c)
		if _, _, err := r.For(t.Context(), c.Intent); !errors.Is(err, providers.ErrNotMine) {
			t.Errorf("another %s: got %v", name, err)
		}
	}
	c := testCall(crm, `{}`)
	c.Intent.Digest = "sha256:bad"
	if _, _, err := r.For(t.Context(), c.Intent); err == nil || errors.Is(err, providers.ErrNotMine) {
		t.Errorf("other bytes: got %v", err)
	}
	store.err, c.Intent.Digest = errors.New("store is down"), "sha256:any"
	if _, _, err := r.For(t.Context(), c.Intent); err == nil || errors.Is(err, providers.ErrNotMine) {
		t.Errorf("store down: got %v", err)
	}
	missing, err := providers.ParseRef("env://OPLEDGER_TEST_SURELY_NOT_SET")
	if err != nil {
		t.Fatal(err)
	}
	r, err = providers.NewRegistry([]providers.Configured{{File: crm, Accounts: map[string]providers.Account{
		"main": {BaseURL: fixedURL, Secrets: map[string]providers.SecretRef{"token": missing}},
	}}}, nil, providers.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.For(t.Context(), testIntent(crm, `{}`)); !errors.Is(err, providers.ErrNotMine) {
		t.Errorf("no credential: got %v", err)
	}
}

func TestARegistryRefusesWhatIsAmbiguousOrIncomplete(t *testing.T) {
	t.Parallel()
	a, b := load(t, "sim-crm", nil), load(t, "sim-crm", map[string]string{"lag": "6s"})
	if _, err := providers.NewRegistry([]providers.Configured{{File: a}, {File: b}}, nil, providers.RegistryOptions{}); err == nil {
		t.Error("two contracts of one action: got no error")
	}
	for name, account := range map[string]providers.Account{
		"no secret":    {BaseURL: fixedURL},
		"no base URL":  {Secrets: map[string]providers.SecretRef{"token": secretRef(t, "x")}},
		"bad base URL": {BaseURL: "http://u:p@h", Secrets: map[string]providers.SecretRef{"token": secretRef(t, "x")}},
	} {
		_, err := providers.NewHTTP(providers.HTTPConfig{File: a, Accounts: map[string]providers.Account{"main": account}})
		if err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	if _, _, _, err := newRegistry(t, nil, a).Current("crm", "task.delete"); !errors.Is(err, providers.ErrUnknownAction) {
		t.Errorf("unknown action: got %v", err)
	}
}

func TestARegistryMayBeUsedByMany(t *testing.T) {
	t.Parallel()
	crm := load(t, "sim-crm", nil)
	store := &memory{data: make(map[string][]byte)}
	var old []*providers.File
	for i := range providers.MaxOldRevisions + 8 {
		f := load(t, "sim-crm", map[string]string{"total": fmt.Sprintf("%ds", i+11)})
		old, store.data[f.Digest()] = append(old, f), f.Bytes()
	}
	r := newRegistry(t, store, crm)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, f := range old {
				if _, c, err := r.For(t.Context(), testIntent(f, `{}`)); err != nil || c.Digest != f.Digest() {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestBindFillsDefaultsAndNamesPlacesWithoutValues(t *testing.T) {
	t.Parallel()
	f := exotic(t)
	got, err := f.Bind("thing.make", []byte(`{"where":"w","text":"t","deep":{"n":1.0}}`))
	if err != nil || string(got) != `{"deep":{"n":1.0},"text":"t","where":"w"}` {
		t.Errorf("got %s, %v", got, err)
	}
	got, err = f.Bind("thing.make", []byte(`{"where":"w","text":"t","deep":{}}`))
	if err != nil || string(got) != `{"deep":{"n":7},"text":"t","where":"w"}` {
		t.Errorf("nested default: got %s, %v", got, err)
	}
	got, err = f.Bind("thing.make", []byte(`{"where":"w","text":"t"}`))
	if err != nil || string(got) != `{"deep":{"n":1},"text":"t","where":"w"}` {
		t.Errorf("top default: got %s, %v", got, err)
	}
	crm := newRegistry(t, nil, load(t, "sim-crm", nil))
	_, err = crm.Bind("crm", "task.create", []byte(`{"priority":"SECRETVALUE","extra":"SECRETVALUE"}`))
	var wrong *providers.ArgumentsError
	if !errors.As(err, &wrong) {
		t.Fatalf("got %v", err)
	}
	want := []providers.Problem{{Pointer: "/extra", Keyword: "additionalProperties"}, {Pointer: "/priority", Keyword: "type"}, {Pointer: "/title", Keyword: "required"}}
	sortProblems := cmp.Transformer("sort", func(in []providers.Problem) map[providers.Problem]bool {
		out := make(map[providers.Problem]bool)
		for _, p := range in {
			out[p] = true
		}
		return out
	})
	if d := cmp.Diff(want, wrong.Problems, sortProblems); d != "" || strings.Contains(err.Error(), "SECRETVALUE") {
		t.Errorf("%v\n%s", err, d)
	}
}

// I18: however a secret is written, it does not show.
func TestASecretNeverShows(t *testing.T) {
	t.Parallel()
	const value = "hunter2-hunter2"
	s := providers.NewSecret(value)
	wrapped := struct{ S providers.Secret }{s}
	asJSON, err := json.Marshal(map[string]any{"s": s, "w": wrapped})
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := s.MarshalYAML()
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "s", s, "w", wrapped)
	all := fmt.Sprintf("%v %+v %#v %s %q %x %v %+v %#v", s, s, s, s, s, s, wrapped, wrapped, &wrapped) +
		string(asJSON) + string(text) + fmt.Sprint(asYAML) + log.String()
	if strings.Contains(all, "hunter2") || strings.Contains(all, "68756e746572") {
		t.Errorf("the secret shows: %s", all)
	}
	if s.Reveal() != value {
		t.Error("Reveal does not reveal")
	}
}

func TestASecretReferenceIsReadAnewAndNeverALiteral(t *testing.T) {
	t.Parallel()
	for _, literal := range []string{"", "hunter2", "env://", "env://A-B", "env://1A", "file://relative", "http://x/hunter2", "file://"} {
		if _, err := providers.ParseRef(literal); !errors.Is(err, providers.ErrSecret) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v", literal, err)
		}
	}
	path := t.TempDir() + "/s"
	ref := fileRef(t, path, "one")
	for _, want := range []string{"one", "two"} {
		fileRef(t, path, want)
		if s, err := ref.Resolve(); err != nil || s.Reveal() != want {
			t.Errorf("got %q, %v, want %q", s.Reveal(), err, want)
		}
	}
	fileRef(t, path, "a\r\nX-Evil: 1")
	if _, err := ref.Resolve(); !errors.Is(err, providers.ErrSecret) || strings.Contains(err.Error(), "Evil") {
		t.Errorf("line end: got %v", err)
	}
	fileRef(t, path, "")
	if _, err := ref.Resolve(); !errors.Is(err, providers.ErrSecret) {
		t.Errorf("empty: got %v", err)
	}
	if again, err := providers.ParseRef(ref.String()); err != nil || again != ref {
		t.Errorf("String does not round-trip: %v", ref)
	}
}
