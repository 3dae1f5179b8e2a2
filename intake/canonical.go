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
	// exactDigits is how many digits of an integer every double holds.
	exactDigits = 15
)

// errNotIJSON is wrapped by every refusal of the guard.
var errNotIJSON = errors.New("not I-JSON")

// guard refuses JSON that two readers could understand differently: invalid
// UTF-8, duplicate keys, numbers that a double does not hold, nesting beyond
// MaxDepth, what has no canonical form (a lone surrogate), anything after the
// document. Errors name the place, never a value.
//
// folded is a member of the request's own that is not in lower case: the decoder
// behind would take such a one for its lower-case twin, and the last one wins.
// Arguments, labels and results have names of their own.
func guard(doc []byte) (folded string, err error) {
	if !utf8.Valid(doc) {
		return "", fmt.Errorf("%w: invalid UTF-8", errNotIJSON)
	}
	g := guardian{dec: json.NewDecoder(bytes.NewReader(doc))}
	g.dec.UseNumber()
	if err := g.value("", 0, true); err != nil {
		return "", err
	}
	if _, err := g.dec.Token(); !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("%w: something follows the document at byte %d", errNotIJSON, g.dec.InputOffset())
	}
	// A surrogate can only stand in an escape; all else that passed has a
	// canonical form.
	if bytes.Contains(doc, []byte(`\u`)) {
		if _, err := canonical(doc); err != nil {
			return "", err
		}
	}
	return g.folded, nil
}

// guardian walks through a document.
type guardian struct {
	dec    *json.Decoder
	folded string
}

// value checks the next value. Its members are the request's own, or somebody
// else's.
func (g *guardian) value(path string, depth int, own bool) error {
	if depth > MaxDepth {
		return fmt.Errorf("%w: nested deeper than %d at %s", errNotIJSON, MaxDepth, place(path))
	}
	tok, err := g.dec.Token()
	if err != nil {
		return g.broken()
	}
	switch t := tok.(type) {
	case json.Delim:
		if t == '{' {
			return g.object(path, depth, own)
		}
		for i := 0; g.dec.More(); i++ {
			if err := g.value(path+"/"+strconv.Itoa(i), depth+1, false); err != nil {
				return err
			}
		}
		return g.end()
	case json.Number:
		return guardNumber(string(t), path)
	}
	return nil
}

func (g *guardian) object(path string, depth int, own bool) error {
	seen := make(map[string]bool)
	for g.dec.More() {
		tok, err := g.dec.Token()
		if err != nil {
			return g.broken()
		}
		key, _ := tok.(string)
		if seen[key] {
			return fmt.Errorf("%w: the key %q stands twice at %s", errNotIJSON, cut(key), place(path))
		}
		seen[key] = true
		if own && g.folded == "" && key != strings.ToLower(key) {
			g.folded = key
		}
		theirs := key == "args" || key == "labels" || key == "result"
		if err := g.value(path+"/"+cut(key), depth+1, own && !theirs); err != nil {
			return err
		}
	}
	return g.end()
}

func (g *guardian) end() error {
	if _, err := g.dec.Token(); err != nil {
		return g.broken()
	}
	return nil
}

func (g *guardian) broken() error {
	return fmt.Errorf("%w: not JSON at byte %d", errNotIJSON, g.dec.InputOffset())
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
	if len(lit) <= exactDigits && !strings.ContainsAny(lit, ".eE") {
		return nil // every integer of so few digits
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
