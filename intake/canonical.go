package intake

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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
	var whole json.RawMessage
	if err := json.Unmarshal(doc, &whole); err != nil {
		at := int64(len(doc))
		if se, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = se.Offset
		}
		return "", fmt.Errorf("%w: not JSON at byte %d", errNotIJSON, at)
	}
	g := guardian{doc: doc}
	if err := g.value(true); err != nil {
		return "", err
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

// guardian walks through a document that is JSON.
type guardian struct {
	doc    []byte
	at     int
	path   []string
	folded string
}

// value passes over the next value. Its members are the request's own, or
// somebody else's.
func (g *guardian) value(own bool) error {
	if len(g.path) > MaxDepth {
		return fmt.Errorf("%w: nested deeper than %d at %s", errNotIJSON, MaxDepth, g.place())
	}
	switch g.next() {
	case '{':
		return g.object(own)
	case '[':
		return g.list()
	case '"':
		g.text()
	case 't', 'n':
		g.at += len("true")
	case 'f':
		g.at += len("false")
	default:
		from := g.at
		for g.at < len(g.doc) && strings.IndexByte("+-.eE0123456789", g.doc[g.at]) >= 0 {
			g.at++
		}
		if !exact(string(g.doc[from:g.at])) {
			return fmt.Errorf("%w: the number at %s is not held exactly by a double; send it as a string", errNotIJSON, g.place())
		}
	}
	return nil
}

func (g *guardian) object(own bool) error {
	seen := make(map[string]bool)
	for g.more('}') {
		key, err := g.key()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("%w: the key %q stands twice at %s", errNotIJSON, cut(key), g.place())
		}
		seen[key] = true
		if own && g.folded == "" && key != strings.ToLower(key) {
			g.folded = key
		}
		g.next()
		g.at++ // the colon
		theirs := key == "args" || key == "labels" || key == "result"
		if err := g.within(key, own && !theirs); err != nil {
			return err
		}
	}
	return nil
}

func (g *guardian) list() error {
	for i := 0; g.more(']'); i++ {
		if err := g.within(strconv.Itoa(i), false); err != nil {
			return err
		}
	}
	return nil
}

// within is value, one level deeper.
func (g *guardian) within(name string, own bool) error {
	g.path = append(g.path, name)
	err := g.value(own)
	g.path = g.path[:len(g.path)-1]
	return err
}

// more goes to the next member of what ends with a closing mark, and past the
// mark at its end. It begins at the opening mark or behind a member.
func (g *guardian) more(closing byte) bool {
	if g.next() != closing {
		g.at++ // the opening mark, or the comma
	}
	if g.next() == closing {
		g.at++
		return false
	}
	return true
}

// next returns the first byte of what comes next.
func (g *guardian) next() byte {
	for {
		switch c := g.doc[g.at]; c {
		case ' ', '\t', '\n', '\r':
			g.at++
		default:
			return c
		}
	}
}

// text passes over a text and returns it with its quotes.
func (g *guardian) text() []byte {
	from := g.at
	for g.at++; g.doc[g.at] != '"'; g.at++ {
		if g.doc[g.at] == '\\' {
			g.at++
		}
	}
	g.at++
	return g.doc[from:g.at]
}

func (g *guardian) key() (string, error) {
	text := g.text()
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text[1 : len(text)-1]), nil
	}
	var key string
	if err := json.Unmarshal(text, &key); err != nil {
		return "", fmt.Errorf("%w: not a key at %s", errNotIJSON, g.place())
	}
	return key, nil
}

// place names the place where the guardian is.
func (g *guardian) place() string {
	var b strings.Builder
	for _, name := range g.path {
		b.WriteByte('/')
		b.WriteString(cut(name))
	}
	if b.Len() == 0 {
		return "the top"
	}
	return b.String()
}

// exact reports whether a double holds the value of a number: canonical JSON
// would silently make two different numbers equal otherwise.
func exact(lit string) bool {
	if len(lit) > maxNumberLength {
		return false
	}
	if len(lit) <= exactDigits && !strings.ContainsAny(lit, ".eE") {
		return true // every integer of so few digits
	}
	f, err := strconv.ParseFloat(lit, 64)
	if err != nil || math.IsInf(f, 0) {
		return false
	}
	if f == 0 {
		mantissa, _, _ := strings.Cut(strings.ToLower(lit), "e")
		return !strings.ContainsAny(mantissa, "123456789")
	}
	if !strings.ContainsAny(lit, ".eE") && math.Abs(f) > 1<<53-1 {
		return false
	}
	got, ok := new(big.Rat).SetString(lit)
	canonical, ok2 := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	return ok && ok2 && got.Cmp(canonical) == 0 && (!got.IsInt() || math.Abs(f) <= 1<<53-1)
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
