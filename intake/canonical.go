package intake

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// Bounds of what a request may hold.
const (
	// MaxRequestSize is the largest request, in bytes.
	MaxRequestSize = 384 << 10
	// MaxArgsSize is the largest argument document, in bytes.
	MaxArgsSize = 256 << 10
	// MaxDepth is the deepest nesting of a request.
	MaxDepth = 32
	// maxNumberLength is the longest number literal, in bytes.
	maxNumberLength = 64
)

// errNotIJSON is wrapped by every refusal of the guard.
var errNotIJSON = errors.New("not I-JSON")

// guard refuses JSON that two readers could understand differently: invalid
// UTF-8, duplicate keys, numbers that a double does not hold, nesting beyond
// MaxDepth, anything after the document. Errors name the place, never a value.
func guard(doc []byte) error {
	if !utf8.Valid(doc) {
		return fmt.Errorf("%w: invalid UTF-8", errNotIJSON)
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	if err := guardValue(dec, "", 0); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the document at byte %d", errNotIJSON, dec.InputOffset())
	}
	return nil
}

func guardValue(dec *json.Decoder, path string, depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("%w: nested deeper than %d at %s", errNotIJSON, MaxDepth, place(path))
	}
	tok, err := dec.Token()
	if err != nil {
		return fmt.Errorf("%w: not JSON at byte %d", errNotIJSON, dec.InputOffset())
	}
	switch t := tok.(type) {
	case json.Delim:
		if t == '{' {
			return guardObject(dec, path, depth)
		}
		for i := 0; dec.More(); i++ {
			if err := guardValue(dec, path+"/"+strconv.Itoa(i), depth+1); err != nil {
				return err
			}
		}
		return closeDelim(dec)
	case json.Number:
		return guardNumber(string(t), path)
	}
	return nil
}

func guardObject(dec *json.Decoder, path string, depth int) error {
	seen := make(map[string]bool)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return fmt.Errorf("%w: not JSON at byte %d", errNotIJSON, dec.InputOffset())
		}
		key, _ := tok.(string)
		if seen[key] {
			return fmt.Errorf("%w: the key %q stands twice at %s", errNotIJSON, cut(key), place(path))
		}
		seen[key] = true
		if err := guardValue(dec, path+"/"+cut(key), depth+1); err != nil {
			return err
		}
	}
	return closeDelim(dec)
}

func closeDelim(dec *json.Decoder) error {
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("%w: not JSON at byte %d", errNotIJSON, dec.InputOffset())
	}
	return nil
}

// guardNumber refuses a number whose value a double does not hold: canonical
// JSON would silently make two different numbers equal.
func guardNumber(lit, path string) error {
	refuse := func() error {
		return fmt.Errorf("%w: the number at %s is not held exactly by a double; send it as a string", errNotIJSON, place(path))
	}
	if len(lit) > maxNumberLength {
		return refuse()
	}
	f, err := strconv.ParseFloat(lit, 64)
	if err != nil || math.IsInf(f, 0) {
		return refuse()
	}
	if f == 0 {
		mantissa, _, _ := strings.Cut(strings.ToLower(lit), "e")
		if strings.ContainsAny(mantissa, "123456789") {
			return refuse()
		}
		return nil
	}
	if !strings.ContainsAny(lit, ".eE") && math.Abs(f) > 1<<53-1 {
		return refuse()
	}
	got, ok := new(big.Rat).SetString(lit)
	canonical, ok2 := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	if !ok || !ok2 || got.Cmp(canonical) != 0 || (got.IsInt() && math.Abs(f) > 1<<53-1) {
		return refuse()
	}
	return nil
}

func place(path string) string {
	if path == "" {
		return "the top"
	}
	return path
}

func cut(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// canonical returns the RFC 8785 form of a document that passed the guard.
func canonical(doc []byte) ([]byte, error) {
	out, err := jcs.Transform(doc)
	if err != nil {
		return nil, fmt.Errorf("%w: no canonical form", errNotIJSON)
	}
	return out, nil
}

// digest returns the digest of a canonical document; it names its algorithm.
func digest(canonicalDoc []byte) string {
	sum := sha256.Sum256(canonicalDoc)
	return "sha256-jcs:" + hex.EncodeToString(sum[:])
}

// sameBut reports whether two documents are equal in all but some members.
func sameBut(ignored []string, a, b []byte) bool {
	if len(ignored) == 0 {
		return false
	}
	strip := func(doc []byte) string {
		var members map[string]json.RawMessage
		if json.Unmarshal(doc, &members) != nil || members == nil {
			return ""
		}
		for _, name := range ignored {
			delete(members, name)
		}
		left, err := json.Marshal(members)
		if err != nil {
			return ""
		}
		if left, err = canonical(left); err != nil {
			return ""
		}
		return string(left)
	}
	left := strip(a)
	return left != "" && left == strip(b)
}
