package providers

// The types of this file are the shape of a contract file, field by field. They
// are read strictly (node.go), then compiled (load.go) and judged (lint.go).

// formatV1 is the value of the field contract.
const formatV1 = "opledger/v1"

type fileSpec struct {
	Contract   string                `yaml:"contract"`
	Provider   string                `yaml:"provider"`
	APIVersion string                `yaml:"api_version"`
	Revision   int                   `yaml:"revision"`
	Proof      string                `yaml:"proof"`
	Cite       []string              `yaml:"cite"`
	Connection connectionSpec        `yaml:"connection"`
	Actions    map[string]actionSpec `yaml:"actions"`
}

type connectionSpec struct {
	// Remote: workers on the bus carry the actions out; see remote_spec.go.
	Remote          bool       `yaml:"remote"`
	BaseURL         string     `yaml:"base_url"`
	AllowLoopback   bool       `yaml:"allow_loopback"`
	TLS             tlsSpec    `yaml:"tls"`
	Auth            *authSpec  `yaml:"auth"`
	RequestIDHeader string     `yaml:"request_id_header"`
	AccountProbe    *probeSpec `yaml:"account_probe"`
}

type tlsSpec struct {
	MinVersion string `yaml:"min_version"`
}

type authSpec struct {
	Header string `yaml:"header"`
	Value  string `yaml:"value"`
}

type probeSpec struct {
	Request requestSpec `yaml:"request"`
	Account string      `yaml:"account"`
	Cache   duration    `yaml:"cache"`
}

type requestSpec struct {
	Method   string            `yaml:"method"`
	Path     string            `yaml:"path"`
	Query    map[string]string `yaml:"query"`
	Headers  map[string]string `yaml:"headers"`
	Encoding string            `yaml:"encoding"`
	Body     plain             `yaml:"body"`
}

type actionSpec struct {
	Class      string        `yaml:"class"`
	Scope      string        `yaml:"scope"`
	Uniqueness string        `yaml:"uniqueness"`
	Verify     float64       `yaml:"verify"`
	Side       bool          `yaml:"side_objects"`
	Args       argsSpec      `yaml:"args"`
	Request    requestSpec   `yaml:"request"`
	Key        *keySpec      `yaml:"key"`
	Timing     timingSpec    `yaml:"timing"`
	ErrorCode  string        `yaml:"error_code"`
	Outcomes   []outcomeSpec `yaml:"outcomes"`
	Result     resultSpec    `yaml:"result"`
	Retry      retrySpec     `yaml:"retry"`
	Lookups    []lookupSpec  `yaml:"lookups"`
	Absence    absenceSpec   `yaml:"absence"`
	OnUnknown  []string      `yaml:"on_unknown"`
	Approval   approvalSpec  `yaml:"approval"`
	Limits     limitsSpec    `yaml:"limits"`
}

type argsSpec struct {
	Schema   plain    `yaml:"schema"`
	Secret   []string `yaml:"secret"`
	Personal []string `yaml:"personal"`
	Ignore   []string `yaml:"ignore"`
}

type keySpec struct {
	In      string   `yaml:"in"`
	Name    string   `yaml:"name"`
	Value   string   `yaml:"value"`
	MaxLen  int      `yaml:"max_len"`
	Methods []string `yaml:"methods"`
}

type timingSpec struct {
	Total          duration `yaml:"total"`
	LateApply      duration `yaml:"late_apply"`
	ConcurrentSafe bool     `yaml:"concurrent_safe"`
}

type outcomeSpec struct {
	Is         string          `yaml:"is"`
	Status     statusSet       `yaml:"status"`
	Header     []conditionSpec `yaml:"header"`
	Body       []conditionSpec `yaml:"body"`
	ExternalID string          `yaml:"external_id"`
	Final      bool            `yaml:"final"`
	Answers    string          `yaml:"answers"`
}

type conditionSpec struct {
	At       *string `yaml:"at"`
	Name     string  `yaml:"name"`
	Equals   plain   `yaml:"equals"`
	Prefix   *string `yaml:"prefix"`
	Contains *string `yaml:"contains"`
	Exists   *bool   `yaml:"exists"`
	Absent   *bool   `yaml:"absent"`
	Soft     bool    `yaml:"soft"`
}

type resultSpec struct {
	Redact []string `yaml:"redact"`
}

type retrySpec struct {
	Retention   retention   `yaml:"retention"`
	Margin      duration    `yaml:"margin"`
	Clock       string      `yaml:"clock"`
	MaxAttempts int         `yaml:"max_attempts"`
	Deadline    duration    `yaml:"deadline"`
	Backoff     backoffSpec `yaml:"backoff"`
	Honour      *[]string   `yaml:"honour"`
}

type backoffSpec struct {
	First  duration `yaml:"first"`
	Factor float64  `yaml:"factor"`
	Max    duration `yaml:"max"`
	Jitter float64  `yaml:"jitter"`
}

type lookupSpec struct {
	Name        string          `yaml:"name"`
	Request     requestSpec     `yaml:"request"`
	Consistency string          `yaml:"consistency"`
	Lag         duration        `yaml:"lag"`
	Skew        duration        `yaml:"skew"`
	Proves      string          `yaml:"proves"`
	Paging      *pagingSpec     `yaml:"paging"`
	Items       string          `yaml:"items"`
	Match       []conditionSpec `yaml:"match"`
	ExternalID  string          `yaml:"external_id"`
	CreatedAt   string          `yaml:"created_at"`
	Schedule    []duration      `yaml:"schedule"`
	Sentinel    *sentinelSpec   `yaml:"sentinel"`
}

// pagingSpec is one of four kinds: next, last_id, link, page.
type pagingSpec struct {
	Next   string `yaml:"next"`
	LastID string `yaml:"last_id"`
	More   string `yaml:"more"`
	Param  string `yaml:"param"`
	In     string `yaml:"in"`
	Link   bool   `yaml:"link"`
	Page   string `yaml:"page"`
	Size   int    `yaml:"size"`
	Max    int    `yaml:"max"`
}

type sentinelSpec struct {
	Request requestSpec `yaml:"request"`
	Items   *string     `yaml:"items"`
	AtLeast int         `yaml:"at_least"`
}

type absenceSpec struct {
	Provable   bool     `yaml:"provable"`
	Settle     duration `yaml:"settle"`
	EmptyReads int      `yaml:"empty_reads"`
	Spacing    duration `yaml:"spacing"`
}

type approvalSpec struct {
	Required bool     `yaml:"required"`
	Deadline duration `yaml:"deadline"`
}

type limitsSpec struct {
	Concurrency int  `yaml:"concurrency"`
	Rate        rate `yaml:"rate"`
}
