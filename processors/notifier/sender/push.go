package sender

import (
	"context"
	"crypto/ecdh"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/SherClockHolmes/webpush-go"

	"github.com/lienstream/lienstream/processors/notifier"
)

// PushConfig configures Web Push.
type PushConfig struct {
	Private string // VAPID key, made by `lienstream notify keys`
	Contact string // email address or https URL for push services to contact us

	AllowLoopback bool          // allow endpoints on this machine, at any port: for tests
	TLS           *tls.Config   // nil: the system's roots are trusted
	Resolver      *net.Resolver // nil: the system's

	Links Links
}

// Push is the Web Push channel.
type Push struct {
	cfg    PushConfig
	public string
	client *http.Client
}

// VAPIDPublic is the public key in the format that browsers need to subscribe.
func VAPIDPublic(private string) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(private)
	if err == nil {
		var key *ecdh.PrivateKey
		if key, err = ecdh.P256().NewPrivateKey(raw); err == nil {
			return base64.RawURLEncoding.EncodeToString(key.PublicKey().Bytes()), nil
		}
	}
	return "", errors.New("push: the VAPID key is not 32 bytes of P-256 in base64url") // and is not repeated
}

// NewPush makes the channel. It connects on Send.
func NewPush(cfg PushConfig) (*Push, error) {
	public, err := VAPIDPublic(cfg.Private)
	if err != nil {
		return nil, err
	}
	if cfg.Contact == "" {
		return nil, errors.New("push: a contact is required")
	}
	p := &Push{cfg: cfg, public: public}
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: p.guard, Resolver: cfg.Resolver} //nolint:forbidigo // the guard checks the resolved address
	p.client = newHTTPClient(&http.Transport{DialContext: dialer.DialContext, TLSClientConfig: cfg.TLS, ForceAttemptHTTP2: true})
	return p, nil
}

var errNotPublic = errors.New("not a public address")

// guard refuses addresses in our network. It checks the resolved address of each connection, since a name may
// resolve differently each time.
func (p *Push) guard(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return errNotPublic
	}
	if p.cfg.AllowLoopback && at.Addr().Unmap().IsLoopback() {
		return nil
	}
	if at.Port() != 443 || !notifier.PublicAddr(at.Addr()) {
		return errNotPublic
	}
	return nil
}

// How long a push service keeps a message for a browser that is off.
const (
	maxPushTTL = 24 * time.Hour
	minPushTTL = time.Minute
)

// pushTTL is the time during which a message helps.
func pushTTL(m *Message) time.Duration {
	if m.Until == 0 {
		return maxPushTTL
	}
	left := min(m.Until-min(m.Until, m.Now), uint64(maxPushTTL/time.Second))
	return max(time.Duration(left)*time.Second, minPushTTL)
}

// pushed is the payload: the text that a service worker shows, and the facts for a program.
type pushed struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Body  string `json:"body"`
	URL   string `json:"url,omitempty"`
	Facts facts  `json:"facts"`
}

func (p *Push) payload(m *Message) ([]byte, error) {
	f := factsOf(m, p.cfg.Links)
	text, err := f.render()
	if err != nil {
		return nil, err
	}
	return json.Marshal(&pushed{ID: m.ID, Title: text.Subject, Body: text.Body, URL: f.Link, Facts: f})
}

// Send delivers a message with its ID as the topic, so that a repeated one replaces the first in the push
// service's queue.
func (p *Push) Send(ctx context.Context, m *Message) error {
	if m.Alert.Stage == notifier.ToConfirm {
		return errConfirmChannel
	}
	var sub webpush.Subscription
	if err := json.Unmarshal([]byte(m.To), &sub); err != nil {
		return &Failure{Reason: "the address is not a push subscription", Gone: true}
	}
	endpoint, err := url.Parse(sub.Endpoint)
	if err != nil || endpoint.Scheme != "https" {
		return &Failure{Reason: "the push endpoint is not an https URL", Gone: true}
	}
	payload, err := p.payload(m)
	if err != nil {
		return &Failure{Reason: "the message cannot be encoded", Dead: true}
	}
	res, err := webpush.SendNotificationWithContext(ctx, payload, &sub, &webpush.Options{
		HTTPClient: p.client, Subscriber: p.cfg.Contact, Topic: m.ID, TTL: int(pushTTL(m) / time.Second), Urgency: webpush.UrgencyHigh,
		VAPIDPublicKey: p.public, VAPIDPrivateKey: p.cfg.Private,
	})
	if errors.Is(err, errNotPublic) { // the name may resolve to another address next time
		_, fixed := netip.ParseAddr(endpoint.Hostname())
		return &Failure{Reason: "the push endpoint is not on a public host", Dead: fixed == nil || endpoint.Port() != "" && endpoint.Port() != "443"}
	}
	if err != nil {
		if _, asked := errors.AsType[*url.Error](err); !asked { // invalid keys, which an older build accepted
			return &Failure{Reason: "the keys of the push subscription cannot be read", Gone: true, Unasked: true}
		}
		return unreached(err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswerBytes)) // so that the connection can be reused
	_ = res.Body.Close()
	return refusedPush(res, time.Now())
}

// deadCodes are answers that concern the message itself. All others may be temporary: a redirect, for example, may come
// from a proxy in between.
var deadCodes = []int{
	http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusLengthRequired, http.StatusRequestEntityTooLarge,
	http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusRequestHeaderFieldsTooLarge,
}

// refusedPush distinguishes a permanent refusal of the subscription or message from other errors. 401 and 403 concern
// our key, or the subscription was made with another key.
func refusedPush(res *http.Response, now time.Time) error {
	f := &Failure{Reason: fmt.Sprintf("the push service responded with %d", res.StatusCode)}
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusNotFound || code == http.StatusGone:
		f.Gone = true
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		f.Doubtful = true
	case code == http.StatusTooManyRequests || code >= 500:
		f.Busy, f.After = true, retryAfter(res.Header.Get("Retry-After"), now)
	default:
		f.Dead = slices.Contains(deadCodes, code)
	}
	return f
}

// retryAfter parses the header: seconds or a date.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(header), 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
