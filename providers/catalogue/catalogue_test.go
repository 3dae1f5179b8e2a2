package catalogue_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/opledger/opledger/operation"
	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/catalogue"
	"github.com/opledger/opledger/providers/providertest"
)

// The class of every action, written down by a person: a change of it is a
// change of what happens after a lost answer.
func TestEveryActionHasTheClassThatWasReviewed(t *testing.T) {
	t.Parallel()
	want := map[string]operation.Class{
		"adyen payment.create":               operation.ClassKey,
		"airtable record.upsert":             operation.ClassUpsert,
		"anthropic message.create":           operation.ClassNone,
		"asana task.create":                  operation.ClassLabel,
		"braintree payment_method.charge":    operation.ClassLabel,
		"discord message.create":             operation.ClassLabel,
		"gcp-compute disk.create":            operation.ClassClientID,
		"github comment.create":              operation.ClassLabel,
		"github issue.create":                operation.ClassLabel,
		"gitlab issue.create":                operation.ClassLabel,
		"google-calendar event.insert":       operation.ClassClientID,
		"hubspot company.upsert":             operation.ClassUpsert,
		"hubspot contact.upsert":             operation.ClassUpsert,
		"hubspot note.create":                operation.ClassLabel,
		"jira issue.create":                  operation.ClassLabel,
		"kubernetes configmap.create":        operation.ClassClientID,
		"kubernetes job.create":              operation.ClassClientID,
		"linear comment.create":              operation.ClassClientID,
		"linear issue.create":                operation.ClassClientID,
		"msgraph-calendar event.create":      operation.ClassKey,
		"notion page.create":                 operation.ClassLabel,
		"openai response.create":             operation.ClassNone,
		"paypal capture.refund":              operation.ClassKey,
		"paypal order.capture":               operation.ClassKey,
		"paypal order.create":                operation.ClassKey,
		"pipedrive note.create":              operation.ClassLabel,
		"postmark email.send":                operation.ClassLabel,
		"resend email.send":                  operation.ClassKey,
		"salesforce record.upsert":           operation.ClassUpsert,
		"sendgrid mail.send":                 operation.ClassNone,
		"servicenow incident.create":         operation.ClassLabel,
		"shopify inventory.adjust":           operation.ClassKey,
		"slack message.post":                 operation.ClassLabel,
		"slack reply.post":                   operation.ClassLabel,
		"square customer.create":             operation.ClassKey,
		"square payment.create":              operation.ClassKey,
		"stripe-v1 customer.create":          operation.ClassKey,
		"stripe-v1 payment_intent.charge":    operation.ClassKey,
		"stripe-v1 payment_intent.create":    operation.ClassKey,
		"stripe-v1 refund.create":            operation.ClassKey,
		"stripe-v2 event_destination.create": operation.ClassKey,
		"todoist task.create":                operation.ClassLabel,
		"twilio message.send":                operation.ClassNone,
		"zendesk ticket.create":              operation.ClassKey,
	}
	got := make(map[string]operation.Class)
	for _, s := range subjects(t) {
		for _, action := range s.file.Actions() {
			c, _ := s.file.Contract(action)
			got[s.name+" "+action] = c.Class
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("classes (-want +got):\n%s", d)
	}
}

var dated = regexp.MustCompile(`^.{10,} \(read 20[0-9]{2}-[0-9]{2}-[0-9]{2}\)$`)

func TestEveryPromiseNamesItsSourcesAndTheDayTheyWereRead(t *testing.T) {
	t.Parallel()
	for _, s := range subjects(t) {
		if len(s.file.Cite) == 0 {
			t.Errorf("%s cites nothing", s.name)
		}
		for _, c := range s.file.Cite {
			if !dated.MatchString(c) {
				t.Errorf("%s cites %q: it must end with (read YYYY-MM-DD)", s.name, c)
			}
		}
		if s.file.Proof == operation.ProofVerifiedLive {
			t.Errorf("%s says that it was tried live: nothing of the catalogue was", s.name)
		}
		if url := s.raw.Connection.BaseURL; !strings.HasPrefix(url, "https://") && url != "${account.base_url}" {
			t.Errorf("%s is reached at %q", s.name, url)
		}
	}
}

// I4: what is not known grants no repeat, and an index proves no absence.
func TestWhatIsUnknownOrAssumedGrantsNothing(t *testing.T) {
	t.Parallel()
	provable := []string{}
	for _, s := range subjects(t) {
		for _, action := range s.file.Actions() {
			c, _ := s.file.Contract(action)
			raw := s.raw.Actions[action]
			known := raw.Retry.Retention != "unknown" && raw.Retry.Retention != "none"
			if (!known || s.file.Proof == operation.ProofAssumed) && c.MaxAttempts != 1 {
				t.Errorf("%s %s: %d attempts although the retention is %s and the proof %s",
					s.name, action, c.MaxAttempts, raw.Retry.Retention, s.file.Proof)
			}
			if c.RiskAllowed {
				t.Errorf("%s %s offers the declared risk: that is the operator's to add", s.name, action)
			}
			if c.Absence.Provable {
				provable = append(provable, s.name+" "+action)
			}
			for _, l := range raw.Lookups {
				if l.Consistency != "direct" && l.Lag == "" {
					t.Errorf("%s %s: lookup %s has no lag", s.name, action, l.Name)
				}
			}
		}
	}
	// A read through the quorum, by a name that the client chose.
	if d := cmp.Diff([]string{"kubernetes configmap.create"}, provable); d != "" {
		t.Errorf("actions whose absence can be proven (-want +got):\n%s", d)
	}
}

func TestAKeyFitsWhatTheProviderTakes(t *testing.T) {
	t.Parallel()
	eachAction(t, func(t *testing.T, s subject, action string) {
		raw := s.raw.Actions[action]
		if raw.Key == nil {
			return
		}
		r, err := s.adapter(t, s.file, "").Prepare(s.call(t, s.file, action, testKey))
		if err != nil {
			t.Fatal(err)
		}
		shown := r.Redacted()
		where := shown.Body
		if raw.Key.In == "header" {
			where = shown.Header[http.CanonicalHeaderKey(raw.Key.Name)]
		}
		if !strings.Contains(where, testKey) && !strings.Contains(where, testPlain) && !strings.Contains(where, testUUIDv4) {
			t.Errorf("the request does not carry the key in its %s: %s", raw.Key.In, where)
		}
		if raw.Key.In == "header" && raw.Key.MaxLen > 0 && len(where) > raw.Key.MaxLen {
			t.Errorf("the key has %d bytes, the provider takes %d", len(where), raw.Key.MaxLen)
		}
	})
}

// The golden files show every request of the catalogue as it goes out, and what
// the lint finds doubtful, so that a reviewer sees what a contract file makes of
// its arguments.
func TestTheRequestsAreThoseThatWereReviewed(t *testing.T) {
	t.Parallel()
	for _, s := range subjects(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			for _, w := range s.file.Warnings() {
				fmt.Fprintf(&b, "! %s: %s\n", w.Path, w.Text)
			}
			for _, action := range s.file.Actions() {
				fmt.Fprintf(&b, "== %s\n", action)
				s.showWrite(t, &b, action)
				s.showReads(t, &b, action)
			}
			for _, name := range s.Secrets {
				if strings.Contains(b.String(), secretValue(name)) {
					t.Errorf("the golden file shows the secret %s", name)
				}
			}
			golden(t, filepath.Join("testdata", s.name+".golden"), b.String())
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -update", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got), -update writes it anew:\n%s", path, d)
	}
}

func (s subject) showWrite(t *testing.T, b *strings.Builder, action string) {
	t.Helper()
	r, err := s.adapter(t, s.file, "").Prepare(s.call(t, s.file, action, testKey))
	if err != nil {
		t.Fatal(err)
	}
	shown := r.Redacted()
	fmt.Fprintf(b, "%s %s\n", shown.Method, shown.URL)
	for _, name := range slices.Sorted(maps.Keys(shown.Header)) {
		fmt.Fprintf(b, "%s: %s\n", name, shown.Header[name])
	}
	fmt.Fprintf(b, "\n%s\n\n", pretty([]byte(shown.Body)))
}

// showReads shows the account probe and the lookups as they come off the wire.
func (s subject) showReads(t *testing.T, b *strings.Builder, action string) {
	t.Helper()
	peer := newPeer(t, s.world(t, action, s.success(t, action), s.Actions[action].empty()))
	h, c := s.adapter(t, s.file, peer.URL), s.call(t, s.file, action, testKey)
	if _, err := h.Probe(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	h.Lookup(t.Context(), c)
	for _, r := range peer.Seen() {
		target := r.Path
		if r.Query != "" {
			target += "?" + r.Query
		}
		fmt.Fprintf(b, "-- reads: %s %s\n", r.Method, target)
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			if name == "Accept-Encoding" || name == "User-Agent" || name == "Content-Length" {
				continue
			}
			v := r.Header.Get(name)
			for _, secret := range s.Secrets {
				v = strings.ReplaceAll(v, secretValue(secret), "${secret."+secret+"}")
			}
			fmt.Fprintf(b, "%s: %s\n", name, v)
		}
		if len(r.Body) > 0 {
			fmt.Fprintf(b, "\n%s\n", pretty(r.Body))
		}
		b.WriteString("\n")
	}
}

func pretty(body []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, body, "", "  ") == nil {
		return out.String()
	}
	return strings.ReplaceAll(string(body), "&", "\n&") // a form
}

// P3: every recorded answer means what the file says it means, and every rule of
// every file is decided by at least one of them.
func TestEveryRuleIsHitByARecordedAnswerWithTheExpectedWord(t *testing.T) {
	t.Parallel()
	eachAction(t, func(t *testing.T, s subject, action string) {
		hit, cut := make(map[int]bool), s.cutOff(t, action)
		for i, a := range s.Actions[action].Answers {
			o := s.judge(t, s.file, action, a)
			if string(o.Word) != a.Is {
				t.Errorf("answer %d (status %d): got %s (%s), want %s", i+1, a.Status, o.Word, o.Reason, a.Is)
			}
			if o.ExternalID != a.ID {
				t.Errorf("answer %d: external id: got %q, want %q", i+1, o.ExternalID, a.ID)
			}
			hit[s.rule(t, cut, action, a)] = true
		}
		for n := range s.raw.Actions[action].Outcomes {
			if !hit[n+1] {
				t.Errorf("no recorded answer is decided by rule %d", n+1)
			}
		}
	})
}

// judge sends the operation to a peer that gives the answer.
func (s subject) judge(t *testing.T, file *providers.File, action string, a answer) operation.Outcome {
	t.Helper()
	peer := newPeer(t, a.handler())
	h := s.adapter(t, file, peer.URL)
	r, err := h.Prepare(s.call(t, file, action, testKey))
	if err != nil {
		t.Fatal(err)
	}
	return h.Do(t.Context(), r)
}

const noRule = "no rule of the contract matches"

// rule returns the number of the rule that decides an answer: the first with
// which the contract, cut off behind it, knows the answer. 0 means none.
func (s subject) rule(t *testing.T, cut []*providers.File, action string, a answer) int {
	t.Helper()
	for n, file := range cut {
		if o := s.judge(t, file, action, a); !strings.Contains(o.Reason, noRule) {
			return n + 1
		}
	}
	return 0
}

// cutOff is the contract with the first rule of the action, with the first two,
// and so on.
func (s subject) cutOff(t *testing.T, action string) []*providers.File {
	t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal(s.file.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	spec := member[map[string]any](t, member[map[string]any](t, doc, "actions"), action)
	rules := member[[]any](t, spec, "outcomes")
	var out []*providers.File
	for n := range rules {
		// A contract needs a success; this one never comes.
		spec["outcomes"] = append(slices.Clone(rules[:n+1]), map[string]any{
			"is": "success", "status": []any{299}, "external_id": "/never",
			"body": []any{map[string]any{"at": "/never", "exists": true}},
		})
		data, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		file, err := providers.Parse(s.name+".yaml", data)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, file)
	}
	return out
}

func member[T any](t *testing.T, from map[string]any, name string) T {
	t.Helper()
	v, ok := from[name].(T)
	if !ok {
		t.Fatalf("the contract has no %s of the expected kind", name)
	}
	return v
}

// P3: what a gateway, a timeout or a server in trouble says is never taken for a
// definite answer.
func TestTroubleOfTheServerIsNeverDefinite(t *testing.T) {
	t.Parallel()
	page := "<html><body>Bad gateway</body></html>"
	eachAction(t, func(t *testing.T, s subject, action string) {
		for _, status := range []int{408, 425, 500, 502, 503, 504, 520, 529} {
			for _, a := range []answer{{Status: status, Raw: &page}, {Status: status, Body: map[string]any{}}} {
				if o := s.judge(t, s.file, action, a); o.Word != operation.OutcomeUncertain {
					t.Errorf("status %d: got %s", status, o.Word)
				}
			}
		}
		for _, status := range []int{200, 201} {
			if o := s.judge(t, s.file, action, answer{Status: status, Raw: &page}); o.Word != operation.OutcomeUncertain {
				t.Errorf("status %d with a page: got %s", status, o.Word)
			}
		}
		o := s.judge(t, s.file, action, answer{Status: http.StatusTooManyRequests, Body: map[string]any{}})
		if o.Word != operation.OutcomeNotApplied && o.Word != operation.OutcomeUncertain {
			t.Errorf("status 429: got %s", o.Word)
		}
	})
}

// I8: the account probe reads the account, and an operation of another account
// is not looked for.
func TestTheProbeReadsTheAccount(t *testing.T) {
	t.Parallel()
	eachAction(t, func(t *testing.T, s subject, action string) {
		x := s.Actions[action]
		peer := newPeer(t, s.world(t, action, s.success(t, action), x.found()))
		h, c := s.adapter(t, s.file, peer.URL), s.call(t, s.file, action, testKey)
		got, err := h.Probe(t.Context(), c)
		if err != nil || got != s.Account {
			t.Errorf("account: got %q, %v, want %q", got, err, s.Account)
		}
		if probed := len(peer.Seen()) > 0; probed != (s.raw.Connection.Probe != nil) {
			t.Errorf("a request went out for the probe: got %t", probed)
		}
		c.Intent.ProviderID = "somebody-else"
		if look := h.Lookup(t.Context(), c); s.Account != "" && len(look.Matches) > 0 {
			t.Errorf("a look under another account names %v", look.Matches)
		}
	})
}

// I9: a lookup finds the operation by its own mark, and takes nobody else's
// object for it.
func TestALookupFindsTheObjectByItsMarkAndNoOther(t *testing.T) {
	t.Parallel()
	eachAction(t, func(t *testing.T, s subject, action string) {
		if len(s.raw.Actions[action].Lookups) == 0 {
			return
		}
		x := s.Actions[action]
		contract, _ := s.file.Contract(action)
		look := func(key string, a answer) operation.Look {
			peer := newPeer(t, s.world(t, action, s.success(t, action), a))
			return s.adapter(t, s.file, peer.URL).Lookup(t.Context(), s.call(t, s.file, action, key))
		}
		found := look(testKey, x.found())
		named := found.Matches
		if contract.Class == operation.ClassUpsert {
			// The external key is not the operation's own mark: it confirms nothing.
			if len(found.Matches) > 0 {
				t.Errorf("an upsert was confirmed by its external key: %v", found.Matches)
			}
			named = found.Weak
		}
		if d := cmp.Diff([]string{x.FoundID}, named); d != "" || found.Failed || !found.PagesComplete {
			t.Errorf("look: %+v; matches (-want +got):\n%s", found, d)
		}
		if other := look(otherKey, x.found()); len(other.Matches) > 0 {
			t.Errorf("another operation took the object for its own: %v", other.Matches)
		}
		if none := look(testKey, x.empty()); len(none.Matches)+len(none.Weak) > 0 ||
			contract.Lookup.Available && (none.Failed || !none.PagesComplete) {
			t.Errorf("a look that finds nothing: %+v", none)
		}
	})
}

// Every action passes the suite that every adapter must pass: what a lost, cut
// or refused answer means, and that one attempt is one request on the wire. An
// action that reads by POST is left to the other tests, because the suite counts
// every POST as a write.
func TestEveryActionPassesTheSuite(t *testing.T) {
	t.Parallel()
	eachAction(t, func(t *testing.T, s subject, action string) {
		raw := s.raw.Actions[action]
		if s.readsByPost(raw) {
			t.Log("reads by POST")
			return
		}
		contract, _ := s.file.Contract(action)
		ok := s.success(t, action)
		f := providertest.Features{
			Usual: s.world(t, action, ok, s.Actions[action].empty()), ExternalID: ok.ID, Probe: s.Account,
			Key: contract.KeySupported, Lookup: contract.Lookup.Available,
		}
		if raw.Key != nil && raw.Key.In == "header" {
			f.KeyHeader = raw.Key.Name
		}
		providertest.Run(t, func(t *testing.T, baseURL string) (providers.Adapter, providers.Call) {
			return s.adapter(t, s.file, baseURL), s.call(t, s.file, action, testKey)
		}, f)
	})
}

func (s subject) readsByPost(raw rawAction) bool {
	probe := s.raw.Connection.Probe
	if probe != nil && probe.Request.Method != http.MethodGet {
		return true
	}
	for _, l := range raw.Lookups {
		if l.Request.Method != http.MethodGet {
			return true
		}
	}
	return false
}

func TestAnUnknownNameSaysWhatThereIs(t *testing.T) {
	t.Parallel()
	_, err := catalogue.Load("../stripe-v1")
	if err == nil || !strings.Contains(err.Error(), "stripe-v2") {
		t.Errorf("got %v", err)
	}
}

// The schedule of looks goes on long enough to see what the lag allows.
func TestLooksGoOnLongerThanTheLag(t *testing.T) {
	t.Parallel()
	eachAction(t, func(t *testing.T, s subject, action string) {
		c, _ := s.file.Contract(action)
		if !c.Lookup.Available {
			return
		}
		var whole time.Duration
		for _, d := range c.Lookup.Schedule {
			whole += d
		}
		if whole < 2*(c.Lookup.Lag+c.LateApply) {
			t.Errorf("looks end after %s; lag %s and late apply %s need twice their sum", whole, c.Lookup.Lag, c.LateApply)
		}
	})
}
