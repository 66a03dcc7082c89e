package notifier

import (
	"crypto/ecdh"
	"encoding/base64"
	"net/netip"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// HostName is the name by which a host is looked up; IDNA allows many spellings of it. A text that is not a name stays
// as it is, except for the case of ASCII letters.
func HostName(host string) string {
	name, err := idna.Lookup.ToASCII(host)
	if err != nil {
		name = lower(host)
	}
	return strings.TrimSuffix(name, ".")
}

// lower changes ASCII letters only: the lower case of another letter may be the ASCII letter that it looks like.
func lower(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, text)
}

// IsASCII reports whether a text is all ASCII.
func IsASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}

// reserved are networks that are not public, or that lead to other addresses, besides those that netip knows.
var reserved = func() (all []netip.Prefix) {
	for _, text := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}()

// assigned is the part of IPv6 that IANA assigns. Outside it are, among others, the prefixes under which translators
// reach IPv4.
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

// GoodPushKeys reports whether messages can be encrypted for a browser's keys: a point of P-256 and 16 bytes, in
// base64url, padded or not.
func GoodPushKeys(p256dh, auth string) bool {
	point, ok := decodeKey(p256dh)
	if !ok {
		return false
	}
	_, err := ecdh.P256().NewPublicKey(point)
	secret, ok := decodeKey(auth)
	return err == nil && ok && len(secret) == 16
}

// decodeKey accepts the two spellings of a key that every decoder accepts: only Go's skips line breaks.
func decodeKey(text string) (key []byte, ok bool) {
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	return key, err == nil && (text == base64.RawURLEncoding.EncodeToString(key) || text == base64.URLEncoding.EncodeToString(key))
}
