package providers

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
)

// MaxSecretBytes is the largest secret.
const MaxSecretBytes = 64 << 10

// ErrSecret is returned for a reference that is none, and for a secret that
// can't be read. Its text never holds a secret.
var ErrSecret = errors.New("providers: secret")

// Secret is a credential. However it is written, logged or marshalled, it shows
// as "***" (I18).
type Secret struct{ value string }

// NewSecret wraps a value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value itself.
func (s Secret) Reveal() string { return s.value }

// String hides the value.
func (Secret) String() string { return redacted }

// GoString hides the value.
func (Secret) GoString() string { return redacted }

// Format hides the value, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue hides the value.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the value.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON hides the value.
func (Secret) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }

// MarshalYAML hides the value.
func (Secret) MarshalYAML() (any, error) { return redacted, nil }

// SecretRef says where a secret is: in an environment variable or in a file.
// The reference itself is no secret.
type SecretRef struct{ scheme, where string }

// The schemes of a secret reference.
const (
	schemeEnv  = "env"
	schemeFile = "file"
)

var _ encoding.TextUnmarshaler = (*SecretRef)(nil)

// ParseRef reads "env://NAME" or "file:///path". A literal is refused, and not
// repeated in the error.
func ParseRef(text string) (SecretRef, error) {
	if name, ok := strings.CutPrefix(text, "env://"); ok && envName(name) {
		return SecretRef{schemeEnv, name}, nil
	}
	if path, ok := strings.CutPrefix(text, "file://"); ok && strings.HasPrefix(path, "/") {
		if plain, err := url.PathUnescape(path); err == nil && !strings.Contains(plain, "\x00") {
			return SecretRef{schemeFile, plain}, nil
		}
	}
	return SecretRef{}, fmt.Errorf("%w: must be env://NAME or file:///path, never the value itself", ErrSecret)
}

func envName(name string) bool {
	for i, c := range name {
		digit := c >= '0' && c <= '9'
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (!digit || i == 0) {
			return false
		}
	}
	return name != ""
}

// UnmarshalText reads a reference from a configuration.
func (r *SecretRef) UnmarshalText(text []byte) error {
	v, err := ParseRef(string(text))
	*r = v
	return err
}

// String returns the reference.
func (r SecretRef) String() string {
	if r.scheme == schemeFile {
		return "file://" + (&url.URL{Path: r.where}).EscapedPath()
	}
	return r.scheme + "://" + r.where
}

// Resolve reads the secret anew each time, so that a rotated one is used at
// once. One line end at the end of a file is dropped.
func (r SecretRef) Resolve() (Secret, error) {
	var value string
	switch r.scheme {
	case schemeEnv:
		value = os.Getenv(r.where)
	case schemeFile:
		f, err := os.Open(r.where)
		if err != nil {
			return Secret{}, fmt.Errorf("%w %s can't be read: %w", ErrSecret, r, err)
		}
		data, err := io.ReadAll(io.LimitReader(f, MaxSecretBytes+1))
		_ = f.Close() // it was only read
		if err != nil {
			return Secret{}, fmt.Errorf("%w %s can't be read: %w", ErrSecret, r, err)
		}
		value = strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	default:
		return Secret{}, fmt.Errorf("%w: the reference is empty", ErrSecret)
	}
	switch {
	case value == "":
		return Secret{}, fmt.Errorf("%w %s is empty", ErrSecret, r)
	case len(value) > MaxSecretBytes:
		return Secret{}, fmt.Errorf("%w %s has more than %d bytes", ErrSecret, r, MaxSecretBytes)
	case !safeHeader(value):
		return Secret{}, fmt.Errorf("%w %s has a control character", ErrSecret, r)
	}
	return Secret{value}, nil
}
