package stub_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opledger/opledger/bench/internal/front"
	"github.com/opledger/opledger/bench/internal/stub"
	"github.com/opledger/opledger/providers"
)

func table(t *testing.T, url string) map[string][]string {
	t.Helper()
	resp, err := http.Get(url + "/table")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var made map[string][]string
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil {
		t.Fatal(err)
	}
	return made
}

// Goal: the answer is lost after the effect was made, the first time only, and
// nothing protects from a second effect.
func TestALostAnswerHasItsEffect(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(stub.New(0, time.Now))
	defer s.Close()
	p := front.NewProvider(s.URL)
	op := stub.LostPrefix + "1"
	if id, err := p.Effect(t.Context(), op); err == nil {
		t.Errorf("the answer was not lost: %s", id)
	}
	if got := table(t, s.URL)[op]; len(got) != 1 {
		t.Fatalf("effects after the lost answer: %v", got)
	}
	id, err := p.Effect(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	if got := table(t, s.URL)[op]; len(got) != 2 || got[1] != id {
		t.Errorf("effects after the second call: %v, its answer %s", got, id)
	}
}

// Goal: a key gives the stored answer and no second effect, also when the first
// answer was lost; for another operation it is refused.
func TestAKeyMakesOneEffect(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(stub.New(0, time.Now))
	defer s.Close()
	post := func(op, key string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/effect", strings.NewReader(`{"op":"`+op+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.GetBody = nil // the transport repeats nothing
		req.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return 0, ""
		}
		defer resp.Body.Close()
		var a front.Answer
		_ = json.NewDecoder(resp.Body).Decode(&a)
		return resp.StatusCode, a.ID
	}
	op := stub.LostPrefix + "1"
	if status, _ := post(op, "k"); status != 0 {
		t.Errorf("the answer was not lost: %d", status)
	}
	status, id := post(op, "k")
	if got := table(t, s.URL)[op]; status != http.StatusOK || !slices.Equal(got, []string{id}) {
		t.Errorf("effects %v, answer %d %s", got, status, id)
	}
	if status, _ := post("another", "k"); status != http.StatusUnprocessableEntity {
		t.Errorf("the key of another operation: %d", status)
	}
}

// Goal: other operations are answered, after the delay.
func TestAnAnswerTakesItsTime(t *testing.T) {
	t.Parallel()
	const delay = 20 * time.Millisecond
	s := httptest.NewServer(stub.New(delay, time.Now))
	defer s.Close()
	began := time.Now()
	id, err := front.NewProvider(s.URL).Effect(t.Context(), "op")
	if err != nil || time.Since(began) < delay {
		t.Fatalf("%s, %v after %s", id, err, time.Since(began))
	}
	if got := table(t, s.URL)["op"]; !slices.Equal(got, []string{id}) {
		t.Errorf("effects %v, answer %s", got, id)
	}
}

// Goal: the contract of the provider is one that the ledger accepts.
func TestTheContractIsAccepted(t *testing.T) {
	t.Parallel()
	const path = "../../provider.yaml"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := providers.Parse(path, data); err != nil {
		t.Fatal(err)
	}
}
