package providers

import (
	"crypto/tls"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/operation"
)

// Bounds of a contract.
const (
	maxActions  = 256
	maxOutcomes = 128
	maxLookups  = 8
	maxSchedule = 64
	maxRequests = 100 // attempts that a contract may allow
)

// Parse reads, compiles and judges a contract file. The name stands in errors
// and, without ".yaml", becomes the file's name. Every fault is a [LoadError]
// with file, line and field; what can't be safe is refused (P4).
func Parse(name string, data []byte) (*File, error) {
	d := &decoder{file: name, lines: make(map[string]int)}
	var spec fileSpec
	if err := d.document(data, &spec); err != nil {
		return nil, err
	}
	c := &compiler{d: d, spec: &spec}
	short := strings.TrimSuffix(strings.TrimSuffix(name, ".yaml"), ".yml")
	f := c.file(short[strings.LastIndexByte(short, '/')+1:])
	f.data, f.digest = slices.Clone(data), digestOf(data)
	for _, name := range f.Actions() {
		f.actions[name].contract.Digest = f.digest
		c.lint(f, f.actions[name], spec.Actions[name], "actions["+name+"]")
	}
	if err := errors.Join(c.faults...); err != nil {
		return nil, err
	}
	f.secrets, f.warnings = f.names(spaceSecret), c.warnings(f)
	return f, nil
}

// compiler turns the spec into a File and collects every fault on the way.
type compiler struct {
	d      *decoder
	spec   *fileSpec
	faults []error
}

// refuse notes a fault at a path.
func (c *compiler) refuse(path, format string, args ...any) {
	const enough = 20
	if len(c.faults) < enough {
		c.faults = append(c.faults, c.d.at(path, format, args...))
	}
}

func (c *compiler) try(path string, err error) {
	if err != nil {
		c.refuse(path, "%s", err)
	}
}

func (c *compiler) template(path, text string, where place) template {
	t, err := compile(text, where)
	c.try(path, err)
	return t
}

func (c *compiler) pointer(path, text string) pointer {
	p, err := parsePointer(text)
	c.try(path, err)
	return p
}

func (c *compiler) pointers(path string, texts []string) []pointer {
	var out []pointer
	for i, text := range texts {
		out = append(out, c.pointer(path+"["+strconv.Itoa(i)+"]", text))
	}
	return out
}

func (c *compiler) header(path, name string) string {
	canon, ok := canonical(name)
	if !ok || ownHeader(canon) {
		c.refuse(path, "%q is no header that a contract may use", clip(name))
	}
	return canon
}

// word checks a value against a closed list.
func word[T ~string](c *compiler, path, value string, allowed ...T) T {
	if !slices.Contains(allowed, T(value)) {
		c.refuse(path, "must be one of %v, not %q", allowed, clip(value))
	}
	return T(value)
}

func (c *compiler) file(name string) *File {
	s := c.spec
	if s.Connection.Remote {
		c.remote()
	}
	if s.Contract != formatV1 {
		c.refuse("contract", "must be %s", formatV1)
	}
	c.try("provider", events.CheckID("provider", s.Provider))
	if s.APIVersion == "" {
		c.refuse("api_version", "is missing")
	}
	if s.Revision < 1 {
		c.refuse("revision", "must be 1 or more")
	}
	proof := word(c, "proof", s.Proof, operation.ProofDocumented, operation.ProofVerifiedLive, operation.ProofAssumed)
	if proof != operation.ProofAssumed && len(s.Cite) == 0 {
		c.refuse("cite", "a promise that is %s needs a source", proof)
	}
	f := &File{
		Name: name, Provider: s.Provider, APIVersion: s.APIVersion, Revision: s.Revision,
		Proof: proof, Cite: s.Cite, conn: c.connection(), actions: make(map[string]*action),
	}
	if len(s.Actions) == 0 || len(s.Actions) > maxActions {
		c.refuse("actions", "there must be 1 to %d actions", maxActions)
		return f
	}
	for _, name := range slices.Sorted(maps.Keys(s.Actions)) {
		c.try("actions["+name+"]", events.CheckAction(name))
		f.actions[name] = c.action(f, name, s.Actions[name], "actions["+name+"]")
	}
	return f
}

func (c *compiler) connection() connection {
	s := c.spec.Connection
	if s.Remote {
		return connection{remote: true}
	}
	out := connection{
		baseURL:       c.template("connection.base_url", s.BaseURL, inConnection()),
		allowLoopback: s.AllowLoopback,
		minTLS:        tls.VersionTLS12,
	}
	if s.BaseURL == "" {
		c.refuse("connection.base_url", "is missing")
	}
	if text, err := (scope{}).text(out.baseURL); err == nil {
		_, err := checkBaseURL(text)
		c.try("connection.base_url", err)
	}
	switch s.TLS.MinVersion {
	case "", "1.2":
	case "1.3":
		out.minTLS = tls.VersionTLS13
	default:
		c.refuse("connection.tls.min_version", `must be "1.2" or "1.3"`)
	}
	if s.Auth != nil {
		out.authHeader = c.header("connection.auth.header", s.Auth.Header)
		out.authValue = c.template("connection.auth.value", s.Auth.Value, inConnectionHeader())
		if len(out.authValue) == 0 {
			c.refuse("connection.auth.value", "is missing")
		}
	}
	if s.RequestIDHeader != "" {
		out.requestIDHeader = c.header("connection.request_id_header", s.RequestIDHeader)
	}
	if p := s.AccountProbe; p != nil {
		path := "connection.account_probe"
		out.probe = &probe{
			request: c.request(path+".request", p.Request, inConnection(), inConnectionHeader(), true),
			account: c.pointer(path+".account", p.Account),
			cache:   p.Cache.d,
		}
		if p.Account == "" {
			c.refuse(path+".account", "must say where the account's id is")
		}
	}
	return out
}

// ErrUnknownAction is returned for an action that no contract describes.
var ErrUnknownAction = errors.New("providers: unknown action")
