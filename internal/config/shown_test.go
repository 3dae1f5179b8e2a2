package config

import "testing"

// I18: an address is shown without its password, in whatever form it was given.
func TestAnAddressIsShownWithoutItsPassword(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"nats://127.0.0.1:4222": "nats://127.0.0.1:4222", "": "",
		"nats://ops:secret@h:4222":             "nats://ops:xxxxx@h:4222",
		"tls://a:secret@h1, tls://b:geheim@h2": "tls://a:xxxxx@h1,tls://b:xxxxx@h2",
		"ops:secret@h:4222":                    "xxxxx@h:4222",
		"nats://ops:se%cret@h:4222":            "xxxxx@h:4222",
	} {
		if got := ShownURL(given); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}
