package providers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ErrEgress is returned for a destination that no request may go to.
var ErrEgress = errors.New("providers: destination refused")

// refusedPrefixes lists places that no provider is at, whatever a contract
// allows. Private networks are not among them: providers inside a house are
// meant to be reached, and allow-lists narrow that down.
func refusedPrefixes() []netip.Prefix {
	return []netip.Prefix{
		// Where clouds serve credentials to whoever asks, outside the link-local
		// ranges: AWS (IPv6), Google (IPv6), Alibaba, Azure, Oracle.
		netip.MustParsePrefix("fd00:ec2::/32"),
		netip.MustParsePrefix("fd20:ce::254/128"),
		netip.MustParsePrefix("100.100.100.200/32"),
		netip.MustParsePrefix("168.63.129.16/32"),
		netip.MustParsePrefix("192.0.0.192/32"),
		// Addresses that hide an IPv4 address at a place that can't be known:
		// local NAT64 (RFC 8215) and Teredo (RFC 4380).
		netip.MustParsePrefix("64:ff9b:1::/48"),
		netip.MustParsePrefix("2001::/32"),
		// Reserved addresses, with broadcast (RFC 6890).
		netip.MustParsePrefix("240.0.0.0/4"),
	}
}

// checkBaseURL reads a base URL: https, or http to this machine; a host, and
// nothing that hides credentials or a query.
func checkBaseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the base URL can't be read", ErrEgress)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%w: the base URL must begin with http:// or https://", ErrEgress)
	case u.Hostname() == "" || u.Opaque != "":
		return nil, fmt.Errorf("%w: the base URL names no host", ErrEgress)
	case u.User != nil:
		return nil, fmt.Errorf("%w: the base URL must not hold credentials", ErrEgress)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("%w: the base URL must not have a query or a fragment", ErrEgress)
	}
	if err := checkHost(u.Hostname()); err != nil {
		return nil, err
	}
	if dotSegments(u.EscapedPath()) {
		return nil, fmt.Errorf("%w: the base URL has a path segment . or ..", ErrEgress)
	}
	if u.Scheme == "http" && !thisMachine(u.Hostname()) {
		return nil, fmt.Errorf("%w: the base URL must be https; http would send the credential in the clear", ErrEgress)
	}
	return u, nil
}

// checkHost takes a host in one spelling only, so that what a person reviews is
// what a resolver reads: a name in ASCII, or an address in its usual form.
func checkHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return fmt.Errorf("%w: an address with a zone is one of this machine's links", ErrEgress)
		}
		return nil
	}
	if len(host) > 253 {
		return fmt.Errorf("%w: the host is too long", ErrEgress)
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if label == "" {
			return fmt.Errorf("%w: the host has an empty part or ends with a dot", ErrEgress)
		}
		for _, c := range label {
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				return fmt.Errorf("%w: the host must be written in ASCII letters, digits, - and _ (an international name as xn--…)", ErrEgress)
			}
		}
		last = label
	}
	// Resolvers read 2130706433, 0x7f.1 and 0177.0.0.1 as addresses.
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || strings.Trim(last, "0123456789") == "" {
		return fmt.Errorf("%w: the host is an address in an unusual spelling", ErrEgress)
	}
	return nil
}

// dotSegments reports whether a path has a segment . or .., also where dots and
// slashes are written as escapes or as backslashes.
func dotSegments(path string) bool {
	if !strings.ContainsAny(path, ".%") {
		return false
	}
	plain := strings.NewReplacer("%2e", ".", "%2f", "/", "%5c", "/", `\`, "/").Replace(strings.ToLower(path))
	return slices.ContainsFunc(strings.Split(plain, "/"), func(s string) bool { return s == "." || s == ".." })
}

// thisMachine reports whether a host can only be this machine.
func thisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && addr.Unmap().IsLoopback())
}

// CheckHostPattern returns nil if a text is a host, or "*." and a host, which
// stands for every name below it.
func CheckHostPattern(pattern string) error {
	host, below := strings.CutPrefix(pattern, "*.")
	err := checkHost(host)
	if _, notAddr := netip.ParseAddr(host); err == nil && below && notAddr == nil {
		err = fmt.Errorf("%w: an address has no names below it", ErrEgress)
	}
	if err != nil {
		return fmt.Errorf("host pattern %q must be like api.example.com or *.example.com: %w", clip(pattern), err)
	}
	return nil
}

// hostAllowed reports whether a host is on the list. An empty list allows every
// host: requests go only where a contract or an account leads anyway.
func hostAllowed(patterns []string, host string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		if below, ok := strings.CutPrefix(p, "*"); ok {
			return len(host) > len(below) && strings.EqualFold(host[len(host)-len(below):], below)
		}
		a, errA := netip.ParseAddr(p)
		b, errB := netip.ParseAddr(host)
		return strings.EqualFold(p, host) || errA == nil && errB == nil && a == b
	})
}

// checkAddress judges an address at dial time, after names were resolved, so
// that no name can lead to a place that is refused.
func checkAddress(addr netip.Addr, allowLoopback bool) error {
	addr = embedded(addr.WithZone(""))
	switch {
	case addr.IsLinkLocalUnicast(), addr.IsLinkLocalMulticast(), addr.IsInterfaceLocalMulticast(), addr.IsMulticast():
		return fmt.Errorf("%w: link-local or multicast address", ErrEgress)
	case slices.ContainsFunc(refusedPrefixes(), func(p netip.Prefix) bool { return p.Contains(addr) }):
		return fmt.Errorf("%w: metadata, tunnel or reserved address", ErrEgress)
	case addr.Is4() && addr.As4()[0] == 0 && !addr.IsUnspecified():
		return fmt.Errorf("%w: an address of this network", ErrEgress)
	case (addr.IsLoopback() || addr.IsUnspecified()) && !allowLoopback:
		return fmt.Errorf("%w: loopback address without allow_loopback", ErrEgress)
	}
	return nil
}

// embedded returns the IPv4 address inside an IPv6 address, or the address:
// mapped (::ffff:0:0/96) and compatible (::/96) ones (RFC 4291), translated ones
// (::ffff:0:0:0/96, RFC 2765), NAT64 (RFC 6052), 6to4 (RFC 3056) and ISATAP
// (RFC 5214).
func embedded(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if addr.Is4() || addr.IsUnspecified() || addr.IsLoopback() {
		return addr
	}
	b := addr.As16()
	last := netip.AddrFrom4([4]byte(b[12:]))
	for _, p := range []string{"::/96", "::ffff:0:0:0/96", "64:ff9b::/96"} {
		if netip.MustParsePrefix(p).Contains(addr) {
			return last
		}
	}
	switch {
	case b[0] == 0x20 && b[1] == 0x02:
		return netip.AddrFrom4([4]byte(b[2:6]))
	case b[8]&^0x03 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe:
		return last
	}
	return addr
}

// dialControl is called by the dialer with the resolved address.
func dialControl(allowLoopback bool) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: address can't be read", ErrEgress)
		}
		return checkAddress(at.Addr(), allowLoopback)
	}
}
