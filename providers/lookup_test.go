package providers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/providertest"
)

// pages answers the account probe and the pages of a list.
func pages(list ...string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/account", providertest.Answer(200, `{"id":"`+testAccount+`"}`))
	mux.HandleFunc("GET /v1/tasks", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("label") != testLabel {
			providertest.Answer(400, `{}`)(w, r)
			return
		}
		n := 0
		if c := r.URL.Query().Get("cursor"); c != "" {
			_, _ = fmt.Sscanf(c, "c%d", &n) // a wrong cursor reads the first page
		}
		if list[n] == "fail" {
			providertest.Answer(502, `{}`)(w, r)
			return
		}
		next := ""
		if n+1 < len(list) {
			next = fmt.Sprintf("c%d", n+1)
		}
		providertest.Answer(200, `{"items":[`+list[n]+`],"next_cursor":"`+next+`"}`)(w, r)
	})
	return mux
}

func task(id, label, title, created string) string {
	return fmt.Sprintf(`{"id":%q,"label":%q,"title":%q,"created_at":%q}`, id, label, title, created)
}

func TestALookReadsAllPagesAndNamesTheEarliestFirst(t *testing.T) {
	t.Parallel()
	file := load(t, "sim-crm", nil)
	tests := map[string]struct {
		pages         []string
		matches, weak []string
		complete      bool
		failed        bool
	}{
		"nothing": {pages: []string{``}, complete: true},
		"one":     {pages: []string{task("T1", testLabel, "a", "2026-01-01T00:00:00Z")}, matches: []string{"T1"}, complete: true},
		"two, order of creation": {pages: []string{
			task("T2", testLabel, "a", "2026-01-01T00:00:02Z"),
			task("T3", testLabel, "a", "") + "," + task("T1", testLabel, "edited", "2026-01-01T00:00:01Z"),
		}, matches: []string{"T1", "T2", "T3"}, complete: true},
		"looks alike":    {pages: []string{task("T5", "other", "a", "") + "," + task("T6", "other", "b", "")}, weak: []string{"T5"}, complete: true},
		"failed page":    {pages: []string{task("T1", testLabel, "a", ""), "fail"}, matches: []string{"T1"}, failed: true},
		"too many pages": {pages: []string{``, ``, ``, ``, ``, ``}},
		"no id":          {pages: []string{`{"label":"` + testLabel + `","title":"a"}`}, failed: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHTTP(t, file, providertest.NewPeer(t, pages(tt.pages...)).URL)
			got := h.Lookup(t.Context(), testCall(file, `{"title":"a"}`))
			if d := cmp.Diff(tt.matches, got.Matches); d != "" {
				t.Errorf("matches (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.weak, got.Weak); d != "" {
				t.Errorf("weak matches (-want +got):\n%s", d)
			}
			if got.PagesComplete != tt.complete || got.Failed != tt.failed {
				t.Errorf("complete %t, failed %t (%s)", got.PagesComplete, got.Failed, got.Reason)
			}
			if got.Name != "by-label" || got.AccountProbed != testAccount || !got.AccountOK {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A 404 proves emptiness only where one object is read by our own id.
func TestNotFoundIsEmptyOnlyForADirectReadByOurID(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/account", providertest.Answer(200, `{"id":"`+testAccount+`"}`))
	for name, failed := range map[string]bool{"sim-unique": false, "sim-crm": true} {
		file := load(t, name, nil)
		h := newHTTP(t, file, providertest.NewPeer(t, mux).URL)
		got := h.Lookup(t.Context(), testCall(file, `{"title":"a"}`))
		if got.Failed != failed || got.PagesComplete == failed {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// I8: a look under another account says so and asks nothing further; a probe
// that fails is a failed look, not another account.
func TestALookSaysUnderWhichAccountItWasMade(t *testing.T) {
	t.Parallel()
	file := load(t, "sim-crm", nil)
	other := providertest.NewPeer(t, providertest.Answer(200, `{"id":"acct_2"}`))
	got := newHTTP(t, file, other.URL).Lookup(t.Context(), testCall(file, `{"title":"a"}`))
	if got.AccountOK || got.AccountProbed != "acct_2" || len(other.Seen()) != 1 {
		t.Errorf("another account: got %+v after %d requests", got, len(other.Seen()))
	}
	broken := providertest.NewPeer(t, providertest.Answer(503, `{}`))
	got = newHTTP(t, file, broken.URL).Lookup(t.Context(), testCall(file, `{"title":"a"}`))
	if !got.Failed || !got.AccountOK || got.PagesComplete {
		t.Errorf("failed probe: got %+v", got)
	}
}

func TestAProbeIsKeptForItsTimeAndItsCredential(t *testing.T) {
	t.Parallel()
	file := load(t, "sim-crm", map[string]string{"probe_cache": "10s"})
	peer := providertest.NewPeer(t, usualCRM())
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	path := t.TempDir() + "/token"
	h, err := providers.NewHTTP(providers.HTTPConfig{File: file, Now: func() time.Time { return now }, Accounts: map[string]providers.Account{
		"main": {BaseURL: peer.URL, Secrets: map[string]providers.SecretRef{"token": fileRef(t, path, "one")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	c := testCall(file, `{"title":"a"}`)
	ask := func(what string, want int) {
		t.Helper()
		if _, err := h.Probe(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if got := len(peer.Seen()); got != want {
			t.Errorf("%s: got %d probes, want %d", what, got, want)
		}
	}
	ask("first", 1)
	ask("kept", 1)
	c.Fresh = true
	ask("fresh", 2)
	c.Fresh = false
	now = now.Add(10 * time.Second)
	ask("after its time", 3)
	fileRef(t, path, "two")
	ask("another credential", 4)
}

func TestALookNeedsTheTimeOfTheFirstSendWhereItsRequestDoes(t *testing.T) {
	t.Parallel()
	data := edit(t, "sim-crm", `query: {label: "${op.label}"}`, `query: {label: "${op.label}", since: "${op.first_send_rfc3339}"}`)
	data = []byte(strings.Replace(string(data), "        lag: 5s\n", "        lag: 5s\n        skew: 1m\n", 1))
	file, err := providers.Parse("x.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	peer := providertest.NewPeer(t, pages(``))
	h := newHTTP(t, file, peer.URL)
	c := testCall(file, `{"title":"a"}`)
	if got := h.Lookup(t.Context(), c); !got.Failed {
		t.Errorf("without first send: got %+v", got)
	}
	c.FirstSend = time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	if got := h.Lookup(t.Context(), c); got.Failed || !got.PagesComplete {
		t.Errorf("with first send: got %+v", got)
	}
	seen := peer.Seen()
	if q := seen[len(seen)-1].Query; !strings.Contains(q, "since=2026-01-01T00%3A00%3A00Z") {
		t.Errorf("query: got %s", q)
	}
}
