package notifier

import "net/netip"

// reserved are networks that are not public, or that lead to other addresses, apart from those that netip
// knows.
var reserved = func() (all []netip.Prefix) {
	for _, text := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}()

// assigned is what IANA gives out of IPv6. Beyond it are, among others, the prefixes under which translators reach IPv4.
var assigned = netip.MustParsePrefix("2000::/3")

// PublicAddr reports whether an address is public. A push endpoint must be, or users could make us send
// requests into our own network.
func PublicAddr(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.Is6() && !assigned.Contains(a) {
		return false
	}
	for _, network := range reserved {
		if network.Contains(a) {
			return false
		}
	}
	return true
}
