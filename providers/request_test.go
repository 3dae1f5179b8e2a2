package providers_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/providers"
	"github.com/opledger/opledger/providers/providertest"
)

const fixedURL = "http://127.0.0.1:9"

func prepare(t testing.TB, f *providers.File, args string) *providers.Request {
	t.Helper()
	r, err := newHTTP(t, f, fixedURL).Prepare(testCall(f, args))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The digests below are those of the first release. A change of them sends
// every operation whose first attempt is journaled to review: it must never
// come as a side effect.
func TestRequestDigestsStayWhatTheyWere(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"sim-crm":     "sha256:b593487345ad61795dacbca3334f12c0a010307b9e24b69fbb73d0ed1e2e4d58",
		"sim-keyed":   "sha256:ab5dd8ef16622bc6a63e858daf59feee526f25fbfe912ab27458cac687f5bc82",
		"sim-unique":  "sha256:637cbd2603b991d592d60014ef567afaa0d1b29c735d850cb4779fb2c4f9c468",
		"sim-nothing": "sha256:77e218161c9772fde955aa27646634dd276474d149f71f0f927bef146cdfedb1",
	}
	got := make(map[string]string)
	for name := range want {
		got[name] = prepare(t, load(t, name, nil), `{"title":"call back","note":"näh & <so>","priority":2}`).Digest
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("digests (-want +got):\n%s", d)
	}
}

func TestTheDigestCoversWhatIsSent(t *testing.T) {
	t.Parallel()
	f := load(t, "sim-keyed", nil)
	base := prepare(t, f, `{"title":"a"}`).Digest
	if prepare(t, f, `{"title":"b"}`).Digest == base {
		t.Error("another body: got the same digest")
	}
	c := testCall(f, `{"title":"a"}`)
	c.Intent.IdempotencyKey = strings.Replace(testKey, "9", "8", 1)
	other, err := newHTTP(t, f, fixedURL).Prepare(c)
	if err != nil || other.Digest == base {
		t.Errorf("another key: got %v, %v", other, err)
	}
	moved, err := newHTTP(t, f, "http://127.0.0.1:10").Prepare(testCall(f, `{"title":"a"}`))
	if err != nil || moved.Digest == base {
		t.Errorf("another URL: got %v, %v", moved, err)
	}
}

// I18: a request never shows arguments or secrets by itself, and only what is
// not secret or personal when it is asked to.
func TestARequestShowsNoSecretsAndNoPersonalArguments(t *testing.T) {
	t.Parallel()
	f := load(t, "sim-crm", nil)
	r := prepare(t, f, `{"title":"call back","contact":"ada@example.com"}`)
	asJSON, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "request", r)
	shown, err := json.Marshal(r.Redacted())
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprintf("%v %+v %#v %s", r, r, r, r) + string(asJSON) + log.String()
	for _, bad := range []string{testToken, "ada@example.com", "call back", testKey} {
		if strings.Contains(all, bad) {
			t.Errorf("a request shows %q: %s", bad, all)
		}
	}
	if strings.Contains(string(shown), "ada@") || strings.Contains(string(shown), testToken) {
		t.Errorf("the redacted request shows too much: %s", shown)
	}
	for _, good := range []string{"call back", `\"contact\":\"***\"`, "Bearer ${secret.token}"} {
		if !strings.Contains(string(shown), good) {
			t.Errorf("the redacted request lacks %q: %s", good, shown)
		}
	}
}

func TestAWholeReferenceKeepsItsJSONTypeAndAMissingOptionalIsLeftOut(t *testing.T) {
	t.Parallel()
	f := load(t, "sim-crm", nil)
	peer := providertest.NewPeer(t, usualCRM())
	h := newHTTP(t, f, peer.URL)
	r, err := h.Prepare(testCall(f, `{"title":"a","priority":3}`))
	if err != nil {
		t.Fatal(err)
	}
	h.Do(t.Context(), r)
	got := peer.Writes()[0]
	if want := `{"label":"` + testLabel + `","priority":3,"title":"a"}`; string(got.Body) != want {
		t.Errorf("body: got %s, want %s", got.Body, want)
	}
	if got.Header.Get("Authorization") != "Bearer "+testToken {
		t.Error("the credential is not in its header")
	}
}

// exotic is a contract that uses every corner of the request format.
func exotic(t testing.TB) *providers.File {
	t.Helper()
	f, err := providers.Parse("exotic.yaml", []byte(`
contract: opledger/v1
provider: exotic
api_version: "1"
revision: 3
proof: verified_live
cite: [a test]
connection:
  base_url: https://api.example.com/base/
  auth: {header: X-Api-Key, value: "${secret.token}"}
actions:
  thing.make:
    class: K1
    args:
      schema:
        type: object
        required: [where, text]
        properties:
          where: {type: string}
          text: {type: string}
          tag: {type: string}
          deep: {type: object, default: {n: 1}, properties: {n: {type: integer, default: 7}}, required: [n]}
      secret: [/tag]
    request:
      method: POST
      path: "/a/${args.where}/b"
      query: {q: "${args.text}", "t[]": "${args.tag?}", fixed: "$${literal}"}
      headers: {X-Text: "v ${args.text}", X-Own: "${op.uuid_plain}"}
      encoding: form
      body: {n: "${args.deep.n}", "meta[key]": "${op.label}", on: true, acct: "${account.region}"}
    key: {in: body, name: "meta[key]", value: "${op.label}", max_len: 40}
    timing: {total: 5s, late_apply: 0s}
    outcomes: [{is: success, status: [2xx], external_id: /id}]
    retry: {retention: unknown, max_attempts: 1}
`))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func exoticCall(f *providers.File, args string) providers.Call {
	c := testCall(f, args)
	c.Intent.Action = "thing.make"
	return c
}

func exoticHTTP(t testing.TB, f *providers.File) *providers.HTTP {
	t.Helper()
	h, err := providers.NewHTTP(providers.HTTPConfig{File: f, Accounts: map[string]providers.Account{
		"main": {Values: map[string]string{"region": "eu"}, Secrets: map[string]providers.SecretRef{"token": secretRef(t, testToken)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestValuesAreEscapedWhereTheyStand(t *testing.T) {
	t.Parallel()
	f := exotic(t)
	args, err := f.Bind("thing.make", []byte(`{"where":"x/y?z#é","text":"a&b=c d"}`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := exoticHTTP(t, f).Prepare(exoticCall(f, string(args)))
	if err != nil {
		t.Fatal(err)
	}
	got := r.Redacted()
	want := providers.Redacted{
		Method: "POST",
		URL:    "https://api.example.com/base/a/x%2Fy%3Fz%23%C3%A9/b?fixed=%24%7Bliteral%7D&q=a%26b%3Dc+d",
		Header: map[string]string{
			"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded", "User-Agent": "opledger",
			"X-Api-Key": "${secret.token}", "X-Own": strings.ReplaceAll(testKey, "-", ""), "X-Text": "v a&b=c d",
		},
		Body: "acct=eu&meta%5Bkey%5D=" + testLabel + "&n=1&on=true",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("request (-want +got):\n%s", d)
	}
}

func TestAValueThatDoesNotFitIsAnErrorThatDoesNotRepeatIt(t *testing.T) {
	t.Parallel()
	f := exotic(t)
	h := exoticHTTP(t, f)
	for name, args := range map[string]string{
		"line end in a header": `{"where":"w","text":"VALUE\r\nX-Evil: 1","deep":{"n":1}}`,
		"NUL in a header":      `{"where":"w","text":"VALUE\u0000","deep":{"n":1}}`,
		"empty path part":      `{"where":"","text":"VALUE","deep":{"n":1}}`,
		"dot path part":        `{"where":"..","text":"VALUE","deep":{"n":1}}`,
		"dots with slashes":    `{"where":"x/../VALUE","text":"VALUE","deep":{"n":1}}`,
		"dots, backslashes":    `{"where":"x\\..\\VALUE","text":"VALUE","deep":{"n":1}}`,
		"escaped dots":         `{"where":"%2e%2E","text":"VALUE","deep":{"n":1}}`,
		"escaped dot, mixed":   `{"where":".%2e","text":"VALUE","deep":{"n":1}}`,
		"escaped slashes":      `{"where":"VALUE%2f..%2Fx","text":"VALUE","deep":{"n":1}}`,
		"escaped backslashes":  `{"where":"VALUE%5c..%5Cx","text":"VALUE","deep":{"n":1}}`,
		"one dot":              `{"where":".","text":"VALUE","deep":{"n":1}}`,
		"NUL in a path":        `{"where":"VALUE\u0000","text":"VALUE","deep":{"n":1}}`,
		"line end in a path":   `{"where":"VALUE\r\nHost: evil","text":"VALUE","deep":{"n":1}}`,
		"missing":              `{"where":"w","text":"VALUE"}`,
		"object in a text":     `{"where":{"VALUE":1},"text":"x","deep":{"n":1}}`,
		"null in a form":       `{"where":"w","text":"VALUE","deep":{"n":null}}`,
		"no object":            `["VALUE"]`,
		"no JSON":              `VALUE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := h.Prepare(exoticCall(f, args))
			if err == nil {
				t.Fatalf("got %s", r.Redacted().URL)
			}
			if strings.Contains(err.Error(), "VALUE") {
				t.Errorf("the error repeats the value: %v", err)
			}
		})
	}
}

func TestAnIntentOfAnotherRevisionOrProviderIsNotPrepared(t *testing.T) {
	t.Parallel()
	f := load(t, "sim-crm", nil)
	h := newHTTP(t, f, fixedURL)
	for name, spoil := range map[string]func(*providers.Call){
		"provider": func(c *providers.Call) { c.Intent.Provider = "other" },
		"revision": func(c *providers.Call) { c.Intent.Digest = "sha256:00" },
		"account":  func(c *providers.Call) { c.Intent.Account.Name = "other" },
		"action":   func(c *providers.Call) { c.Intent.Action = "task.delete" },
		"key":      func(c *providers.Call) { c.Intent.IdempotencyKey = "" },
	} {
		c := testCall(f, `{"title":"a"}`)
		spoil(&c)
		if _, err := h.Prepare(c); err == nil {
			t.Errorf("another %s: got no error", name)
		}
	}
}

// FuzzRender: whatever the arguments hold, a request stays under its base URL,
// no header is split, and the same arguments give the same digest.
func FuzzRender(f *testing.F) {
	for _, s := range []string{"x", "..", "a/b", "%2e%2e", "//evil", "a\r\nb", "?#", "${secret.token}", "\x00", "@evil.com", "é", "\\", "a;b", " "} {
		f.Add(s, s)
	}
	file := exotic(f)
	h := exoticHTTP(f, file)
	f.Fuzz(func(t *testing.T, where, text string) {
		args, err := json.Marshal(map[string]any{"where": where, "text": text, "tag": where, "deep": map[string]any{"n": 1}})
		if err != nil {
			return
		}
		first, err := h.Prepare(exoticCall(file, string(args)))
		if err != nil {
			return
		}
		again, err := h.Prepare(exoticCall(file, string(args)))
		if err != nil || again.Digest != first.Digest {
			t.Fatalf("second Prepare: got %v", err)
		}
		shown := first.Redacted()
		u, err := url.Parse(shown.URL)
		if err != nil || u.Host != "api.example.com" || !strings.HasPrefix(u.EscapedPath(), "/base/a/") || u.User != nil || u.Fragment != "" {
			t.Errorf("URL %q", shown.URL)
		}
		for name, v := range shown.Header {
			if strings.ContainsAny(v, "\r\n\x00") {
				t.Errorf("header %s is split: %q", name, v)
			}
		}
	})
}
