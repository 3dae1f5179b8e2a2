package providers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/opledger/opledger/operation"
)

// Words of the contract format for a retention.
const (
	wordForever = "forever"
	wordNone    = "none"
	wordUnknown = "unknown"
)

// maxDuration bounds every duration of a contract but "forever".
const maxDuration = 10 * 365 * 24 * time.Hour

// duration is a length of time in a contract, such as "30s", "24h" or "7d".
// set tells a given zero from a missing field.
type duration struct {
	d   time.Duration
	set bool
}

func (d *duration) decodeNode(n *yaml.Node) error {
	v, err := parseDuration(n.Value)
	if n.Kind != yaml.ScalarNode {
		err = errors.New("must be a duration such as 30s")
	}
	*d = duration{v, true}
	return err
}

// parseDuration reads Go's notation, and whole days as "7d".
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); err != nil && ok {
		n, convErr := strconv.Atoi(days)
		if convErr == nil && n >= 0 && n <= int(maxDuration/(24*time.Hour)) {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	if err != nil {
		return 0, fmt.Errorf("must be a duration such as 30s, 24h or 7d, not %q", clip(text))
	}
	if d < 0 || d > maxDuration {
		return 0, fmt.Errorf("duration %s must be from 0 to %s", d, maxDuration)
	}
	return d, nil
}

// retention is how long a key is remembered. The zero value is unknown.
type retention struct {
	word string
	d    time.Duration
}

func (r *retention) decodeNode(n *yaml.Node) error {
	switch n.Value {
	case wordForever:
		*r = retention{wordForever, operation.Forever}
		return nil
	case wordNone, wordUnknown:
		*r = retention{word: n.Value}
		return nil
	}
	d, err := parseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d == 0 {
		return errors.New("must be a duration above zero, forever, none or unknown")
	}
	*r = retention{n.Value, d}
	return nil
}

// known reports whether a repeat by key has a time limit to rely on.
func (r retention) known() bool { return r.d > 0 }

// rate is a number of requests in a time, such as "10/s".
type rate struct {
	n   int
	per time.Duration
}

func (r *rate) decodeNode(n *yaml.Node) error {
	count, unit, ok := strings.Cut(n.Value, "/")
	v, err := strconv.Atoi(count)
	per, known := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	if n.Kind != yaml.ScalarNode || !ok || err != nil || v < 1 || !known {
		return errors.New("must be a rate such as 10/s, 100/m or 1000/h")
	}
	*r = rate{v, per}
	return nil
}

// statusSet is a list of statuses: 422, or "5xx" for a whole class.
type statusSet []statusRange

type statusRange struct{ from, to int }

func (s *statusSet) decodeNode(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		return errors.New("must be a list of statuses such as [200, 4xx]")
	}
	for _, item := range n.Content {
		class, isClass := strings.CutSuffix(item.Value, "xx")
		v, err := strconv.Atoi(class)
		switch {
		case item.Kind != yaml.ScalarNode || err != nil:
			return fmt.Errorf("%q is no status", clip(item.Value))
		case isClass && v >= 1 && v <= 5:
			*s = append(*s, statusRange{v * 100, v*100 + 99})
		case !isClass && v >= 100 && v <= 599:
			*s = append(*s, statusRange{v, v})
		default:
			return fmt.Errorf("%q is no status", clip(item.Value))
		}
	}
	return nil
}

func (s statusSet) has(status int) bool {
	return slices.ContainsFunc(s, func(r statusRange) bool { return r.from <= status && status <= r.to })
}

// within reports whether every status of the set is in the range.
func (s statusSet) within(from, to int) bool {
	return !slices.ContainsFunc(s, func(r statusRange) bool { return r.from < from || r.to > to })
}

// touches reports whether some status of the set is in the range.
func (s statusSet) touches(from, to int) bool {
	return slices.ContainsFunc(s, func(r statusRange) bool { return r.from <= to && r.to >= from })
}

// clip shortens what an error repeats of a contract file.
func clip(s string) string {
	const keep = 48
	if len(s) <= keep {
		return s
	}
	return strings.ToValidUTF8(s[:keep], "") + "…"
}
