package providers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
)

// ErrEgress is returned for a destination that no request may go to.
var ErrEgress = errors.New("providers: destination refused")

// metadata lists addresses outside the link-local ranges where clouds serve
// credentials to whoever asks: AWS (IPv6), Alibaba, Azure.
func metadata() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("fd00:ec2::254"),
		netip.MustParseAddr("100.100.100.200"),
		netip.MustParseAddr("168.63.129.16"),
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
	case u.Scheme == "http" && !thisMachine(u.Hostname()):
		return nil, fmt.Errorf("%w: the base URL must be https; http would send the credential in the clear", ErrEgress)
	case u.User != nil:
		return nil, fmt.Errorf("%w: the base URL must not hold credentials", ErrEgress)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("%w: the base URL must not have a query or a fragment", ErrEgress)
	}
	return u, nil
}

// thisMachine reports whether a host can only be this machine.
func thisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && addr.Unmap().IsLoopback())
}

// checkAddress judges an address at dial time, after names were resolved, so
// that no name can lead to a place that is refused.
func checkAddress(addr netip.Addr, allowLoopback bool) error {
	addr = embedded(addr.Unmap().WithZone(""))
	switch {
	case addr.IsLinkLocalUnicast(), addr.IsLinkLocalMulticast(), addr.IsInterfaceLocalMulticast(), addr.IsMulticast():
		return fmt.Errorf("%w: link-local or multicast address", ErrEgress)
	case slices.Contains(metadata(), addr):
		return fmt.Errorf("%w: metadata address", ErrEgress)
	case (addr.IsLoopback() || addr.IsUnspecified()) && !allowLoopback:
		return fmt.Errorf("%w: loopback address without allow_loopback", ErrEgress)
	}
	return nil
}

// embedded returns the IPv4 address inside a NAT64 address, or the address.
func embedded(addr netip.Addr) netip.Addr {
	if !netip.MustParsePrefix("64:ff9b::/96").Contains(addr) {
		return addr
	}
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
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
