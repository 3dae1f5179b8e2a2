package simulator_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/opledger/opledger/providers/simulator"
)

func (b *bench) put(id, name string) reply {
	return b.do(call{method: http.MethodPut, path: tasks + "/" + id, body: task(name)})
}

func (b *bench) read(id string) reply {
	return b.do(call{method: http.MethodGet, path: tasks + "/" + id})
}

func TestAStrictIDIsTakenOnce(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	if r := b.put("op%2F1", "a"); r.status != http.StatusCreated || r.id() != "op/1" {
		t.Fatalf("reply %+v", r)
	}
	r := b.put("op%2F1", "b")
	b.wantStatus(r, http.StatusConflict, "exists")
	if e := r.body["error"].(map[string]any); e["id"] != "op/1" {
		t.Fatalf("error %v", e)
	}
	b.wantStatus(b.put("op2", ""), http.StatusUnprocessableEntity, "invalid")
	b.wantObjects(1)
}

func TestAStrictIDIsTakenWhileTheFirstIsInProgress(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.rule(simulator.Rule{Do: simulator.Hold, Times: 1})
	first := b.background(call{method: http.MethodPut, path: tasks + "/x", body: task("a")})
	b.waitHeld(1)
	b.wantStatus(b.put("x", "a"), http.StatusConflict, "exists")
	b.release()
	b.wantStatus(b.wait(first), http.StatusCreated, "")
	b.wantObjects(1)
}

func TestAWeakIDLetsOverlappingCreationsPass(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{Settings: simulator.Settings{UniqueID: simulator.UniqueWeak}})
	b.rule(simulator.Rule{Do: simulator.Hold, Times: 1})
	first := b.background(call{method: http.MethodPut, path: tasks + "/x", body: task("a")})
	b.waitHeld(1)
	b.wantStatus(b.put("x", "a"), http.StatusCreated, "")
	b.release()
	b.wantStatus(b.wait(first), http.StatusCreated, "")
	b.wantStatus(b.put("x", "a"), http.StatusConflict, "exists")
	rows := b.wantObjects(2)
	if rows[0].ID != rows[1].ID || rows[0].Row == rows[1].Row {
		t.Fatalf("rows %+v", rows)
	}
}

func TestADeletedIDStaysTakenUnlessReuseIsOn(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.put("x", "a")
	if _, err := b.admin.DeleteObject(t.Context(), "", "x"); err != nil {
		t.Fatal(err)
	}
	b.wantStatus(b.put("x", "a"), http.StatusConflict, "exists")
	b.set(map[string]any{"unique_id_reuse": true})
	b.wantStatus(b.put("x", "a"), http.StatusCreated, "")
	b.wantObjects(2)
}

func TestAChosenNumberIsSkippedByTheProvider(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	b.put("731", "a")
	if r := b.create("b", ""); r.id() != "732" {
		t.Fatalf("id %q", r.id())
	}
}

func TestTheIndexAndTheDirectReadLagEachOnTheirOwn(t *testing.T) {
	t.Parallel()
	clk := newClock()
	b := start(t, simulator.Config{Now: clk.now, Settings: simulator.Settings{
		IndexLag: simulator.Duration(10 * time.Second), ReadLag: simulator.Duration(5 * time.Second),
	}})
	id := b.create("a", "").id()
	want := func(read, found int) {
		t.Helper()
		if r := b.read(id); r.status != read {
			t.Fatalf("the read answers %d, want %d", r.status, read)
		}
		if got := len(b.search("a").items()); got != found {
			t.Fatalf("the search finds %d, want %d", got, found)
		}
	}
	want(http.StatusNotFound, 0)
	clk.advance(5 * time.Second)
	want(http.StatusOK, 0)
	clk.advance(5*time.Second - 1)
	want(http.StatusOK, 0)
	clk.advance(1)
	want(http.StatusOK, 1)
	o := b.wantObjects(1)[0]
	if o.VisibleAt.Sub(o.CreatedAt) != 10*time.Second || o.ReadableAt.Sub(o.CreatedAt) != 5*time.Second {
		t.Fatalf("row %+v", o)
	}
}

func TestAFlakyIndexIsSometimesEmpty(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{Settings: simulator.Settings{FlakyIndex: 0.5, Seed: 7}})
	b.create("a", "")
	seen := map[int]int{}
	for range 40 {
		r := b.search("a")
		b.wantStatus(r, http.StatusOK, "")
		seen[len(r.items())]++
	}
	if seen[0] == 0 || seen[1] == 0 || seen[0]+seen[1] != 40 {
		t.Fatalf("seen %v", seen)
	}
	b.set(map[string]any{"flaky_index": 1})
	if n := len(b.search("a").items()); n != 0 {
		t.Fatalf("the search finds %d", n)
	}
}

func TestASearchOutageLeavesTheRestWorking(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{Settings: simulator.Settings{SearchOutage: true}})
	id := b.create("a", "").id()
	b.wantStatus(b.search("a"), http.StatusServiceUnavailable, "search_unavailable")
	b.wantStatus(b.read(id), http.StatusOK, "")
	b.set(map[string]any{"search_outage": false})
	b.wantStatus(b.search("a"), http.StatusOK, "")
}

func TestAListIsPaged(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{Settings: simulator.Settings{PageSize: 3}})
	for i := range 7 {
		b.do(call{body: fmt.Sprintf(`{"title":"t%d","label":"x"}`, i)})
	}
	b.create("other", "")
	var titles []any
	pages, cursor := 0, ""
	for {
		r := b.do(call{method: http.MethodGet, path: tasks + "?label=x&limit=100&cursor=" + url.QueryEscape(cursor)})
		b.wantStatus(r, http.StatusOK, "")
		for _, item := range r.items() {
			titles = append(titles, item.(map[string]any)["title"])
		}
		pages++
		cursor = r.body["next_cursor"].(string)
		if cursor == "" || pages > 10 {
			break
		}
	}
	if pages != 3 || fmt.Sprint(titles) != "[t0 t1 t2 t3 t4 t5 t6]" {
		t.Fatalf("%d pages, titles %v", pages, titles)
	}
	if n := len(b.do(call{method: http.MethodGet, path: tasks + "?title=t3&label=x&limit=1"}).items()); n != 1 {
		t.Fatalf("the search by title finds %d", n)
	}
	b.wantStatus(b.do(call{method: http.MethodGet, path: tasks + "?limit=0"}), http.StatusBadRequest, "invalid_limit")
	b.wantStatus(b.do(call{method: http.MethodGet, path: tasks + "?cursor=x"}), http.StatusBadRequest, "invalid_cursor")
}

func TestAClockSkewShowsInTheAnswerAndNotInTheTruth(t *testing.T) {
	t.Parallel()
	clk := newClock()
	skew := -5 * time.Minute
	b := start(t, simulator.Config{Now: clk.now, Settings: simulator.Settings{ClockSkew: simulator.Duration(skew)}})
	r := b.create("a", "")
	shown, err := time.Parse(time.RFC3339, r.body["created_at"].(string))
	if err != nil {
		t.Fatal(err)
	}
	o := b.wantObjects(1)[0]
	if !shown.Equal(clk.now().Add(skew)) || !o.CreatedAt.Equal(clk.now()) || !o.ShownAt.Equal(shown) {
		t.Fatalf("shown %s, row %+v", shown, o)
	}
	if got := r.header.Get("Date"); got != clk.now().Add(skew).Format(http.TimeFormat) {
		t.Fatalf("Date %q", got)
	}
}

func TestATokenSwitchesItsAccountAfterSomeRequests(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	account := func() any { return b.do(call{method: http.MethodGet, path: "/v1/account"}).body["id"] }
	id := b.create("a", "").id()
	change := simulator.AccountChange{Token: simulator.DefaultToken, Account: "acct_2", After: 2}
	if err := b.admin.ChangeAccount(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint([]any{account(), account(), account()})
	if got != "[acct_1 acct_1 acct_2]" {
		t.Fatalf("accounts %s", got)
	}
	b.wantStatus(b.read(id), http.StatusNotFound, "not_found")
	if n := len(b.search("a").items()); n != 0 {
		t.Fatalf("the new account finds %d", n)
	}
	b.create("b", "")
	if rows := b.wantObjects(2); rows[1].Account != "acct_2" {
		t.Fatalf("rows %+v", rows)
	}
}

func TestARevokedTokenDoesNothing(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	revoke := simulator.AccountChange{Token: simulator.DefaultToken, Revoke: true}
	if err := b.admin.ChangeAccount(t.Context(), revoke); err != nil {
		t.Fatal(err)
	}
	b.wantStatus(b.create("a", ""), http.StatusUnauthorized, "unauthorized")
	b.wantObjects(0)
	if row := b.lastRequest(); row.Account != "" || row.Answer != "401" {
		t.Fatalf("log %+v", row)
	}
	back := simulator.AccountChange{Token: simulator.DefaultToken, Account: "acct_1"}
	if err := b.admin.ChangeAccount(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	b.wantStatus(b.create("a", ""), http.StatusCreated, "")
}

func TestAHumanEditIsSeenByTheProviderSurface(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	id := b.create("a", "").id()
	title := "renamed"
	o, err := b.admin.EditObject(t.Context(), "acct_1", id, simulator.ObjectEdit{Title: &title})
	if err != nil || o.Title != title || o.Label != "a" || o.EditedAt.IsZero() {
		t.Fatalf("row %+v, err %v", o, err)
	}
	if got := b.read(id).body["title"]; got != title {
		t.Fatalf("title %v", got)
	}
	if n := len(b.search("a").items()); n != 1 {
		t.Fatalf("the search by label finds %d", n)
	}
}

func TestS2ADeletedObjectStaysInTheTruthTable(t *testing.T) {
	t.Parallel()
	b := start(t, simulator.Config{})
	id := b.create("a", "").id()
	if _, err := b.admin.DeleteObject(t.Context(), "", id); err != nil {
		t.Fatal(err)
	}
	b.wantStatus(b.read(id), http.StatusNotFound, "not_found")
	if n := len(b.search("a").items()); n != 0 {
		t.Fatalf("the search finds %d", n)
	}
	if o := b.wantObjects(1)[0]; !o.Deleted || o.DeletedAt.IsZero() {
		t.Fatalf("row %+v", o)
	}
	var problem *simulator.APIError
	if _, err := b.admin.DeleteObject(t.Context(), "", id); !errors.As(err, &problem) || problem.Status != http.StatusNotFound {
		t.Fatalf("err %v", err)
	}
}

func TestPresetsBehaveAsTheirClass(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, name string) *bench {
		s, err := simulator.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		return start(t, simulator.Config{Settings: s})
	}
	t.Run("crm", func(t *testing.T) {
		t.Parallel()
		b := begin(t, "crm")
		b.create("a", "k")
		b.create("a", "k")
		b.wantObjects(2)
		b.wantStatus(b.put("x", "a"), http.StatusMethodNotAllowed, "method_not_allowed")
		b.eventually("the index", func() bool { return len(b.search("a").items()) == 2 })
	})
	t.Run("keyed", func(t *testing.T) {
		t.Parallel()
		b := begin(t, "keyed")
		b.create("a", "k")
		b.create("a", "k")
		b.wantObjects(1)
		if n := len(b.search("a").items()); n != 1 {
			t.Fatalf("the search finds %d", n)
		}
	})
	t.Run("unique", func(t *testing.T) {
		t.Parallel()
		b := begin(t, "unique")
		b.put("x", "a")
		b.wantStatus(b.put("x", "a"), http.StatusConflict, "exists")
		b.wantObjects(1)
	})
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		b := begin(t, "nothing")
		b.create("a", "k")
		b.create("a", "k")
		b.wantObjects(2)
		b.wantStatus(b.search("a"), http.StatusNotFound, "not_found")
	})
	for _, name := range simulator.Presets() {
		if _, err := simulator.Preset(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := simulator.Preset("other"); err == nil {
		t.Error("an unknown preset is no error")
	}
}
