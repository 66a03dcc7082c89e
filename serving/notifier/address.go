package notifier

import (
	"encoding/json"
	"net/mail"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lienstream/lienstream/processors/notifier"
)

const (
	maxEmailBytes = 254
	maxNameBytes  = 64      // before the @, by RFC 5321: servers refuse more, so such mails would only use up the limit of the mailbox's tags
	maxPushBytes  = 2 << 10 // a browser's subscription takes a few hundred
	hidden        = "•••"
)

// checkAddress checks the address of a channel, and returns a mask for public display.
func checkAddress(channel notifier.Channel, address string) (mask string, err error) {
	for _, r := range address {
		if !unicode.IsPrint(r) || r == utf8.RuneError { // this includes line separators and bidirectional controls
			return "", invalid("address", "must contain printable characters only")
		}
	}
	switch channel {
	case notifier.Email:
		return checkEmail(address)
	case notifier.Telegram:
		return checkChat(address)
	default:
		return checkPush(address)
	}
}

// checkEmail accepts a plain address: no name, no comment, no quoting, a domain with a dot.
func checkEmail(address string) (string, error) {
	parsed, err := mail.ParseAddress(address)
	name, domain, _ := strings.Cut(address, "@")
	host := notifier.HostName(domain)
	if err != nil || parsed.Address != address || parsed.Name != "" || len(address) > maxEmailBytes || len(name)+len("@")+len(host) > maxEmailBytes || len(name) > maxNameBytes ||
		strings.ContainsAny(address, " \"(),:;<>[\\]") || !strings.Contains(host, ".") || !notifier.IsASCII(host) || strings.Contains(domain, "@") || name == "" {
		return "", invalid("address", "must be an email address such as a@example.com")
	}
	if !notifier.IsASCII(name) { // one server on the way that does not accept it would lose the alert
		return "", invalid("address", "must be ASCII before the @: not all mail servers take other characters there")
	}
	return name[:1] + hidden + "@" + domain, nil
}

// checkChat accepts a Telegram chat ID.
func checkChat(address string) (string, error) {
	id, err := strconv.ParseInt(address, 10, 64)
	if err != nil || id == 0 || strconv.FormatInt(id, 10) != address {
		return "", invalid("address", "must be the ID of a Telegram chat, a number")
	}
	return hidden + address[max(0, len(address)-4):], nil
}

// checkPush accepts a browser's PushSubscription as JSON.
func checkPush(address string) (string, error) {
	var sub struct {
		Endpoint       string `json:"endpoint"`
		ExpirationTime *int64 `json:"expirationTime"`
		Keys           struct {
			P256dh string `json:"p256dh"`
			Auth   string `json:"auth"`
		} `json:"keys"`
	}
	if len(address) > maxPushBytes || json.Unmarshal([]byte(address), &sub) != nil {
		return "", invalid("address", "must be a PushSubscription as JSON")
	}
	endpoint, err := url.Parse(sub.Endpoint)
	if err != nil || endpoint.Scheme != "https" || endpoint.User != nil || endpoint.Fragment != "" ||
		endpoint.Port() != "" && endpoint.Port() != "443" || !publicName(endpoint.Hostname()) {
		return "", invalid("address", "must have an https endpoint on a public host")
	}
	if !notifier.GoodPushKeys(sub.Keys.P256dh, sub.Keys.Auth) {
		return "", invalid("address", "must have the keys p256dh (a P-256 point) and auth (16 bytes)")
	}
	return endpoint.Hostname(), nil
}

// publicName reports whether a host name may be public. The resolved address is checked when connecting.
func publicName(host string) bool {
	host = notifier.HostName(host)
	if ip, err := netip.ParseAddr(host); err == nil {
		return notifier.PublicAddr(ip)
	}
	at := strings.LastIndexByte(host, '.')
	if at <= 0 || !notifier.IsASCII(host) {
		return false
	}
	switch host[at+1:] {
	case "localhost", "local", "internal", "lan", "home", "corp", "arpa", "test", "invalid", "example", "onion":
		return false
	}
	// A host whose last label is a number is parsed as an IP address.
	_, err := strconv.ParseUint(host[at+1:], 0, 64)
	return err != nil
}
