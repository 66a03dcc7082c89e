package notifier

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// preferences are all seven, and all are required.
type preferences map[string]json.RawMessage

type postBody struct {
	Wallet    *string     `json:"wallet"`
	Channel   *string     `json:"channel"`
	Address   *string     `json:"address"`
	Prefs     preferences `json:"prefs"`
	Signature *string     `json:"signature"`
	Message   *string     `json:"message"`
}

type deleteBody struct {
	Signature *string `json:"signature"`
	Message   *string `json:"message"`
}

// required returns an error for the first missing field.
func required(fields ...any) error {
	for i := 0; i < len(fields); i += 2 {
		name, _ := fields[i].(string)
		if value, _ := fields[i+1].(*string); value == nil {
			return invalid(name, "is required")
		}
	}
	return nil
}

func (s *Service) post(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	var body postBody
	if err := req.JSON(&body); err != nil {
		return err
	}
	if err := required("wallet", body.Wallet, "channel", body.Channel, "address", body.Address, "signature", body.Signature, "message", body.Message); err != nil {
		return err
	}
	wallet, err := parseWallet(*body.Wallet)
	if err != nil {
		return err
	}
	channel, ok := notifier.ParseChannel(*body.Channel)
	if !ok {
		return invalid("channel", "must be email, telegram or push")
	}
	mask, err := checkAddress(channel, *body.Address)
	if err != nil {
		return err
	}
	prefs, err := body.Prefs.read()
	if err != nil {
		return err
	}
	signed, err := readMessage(s.cfg.Word, *body.Message, wallet, channel.String())
	if err != nil {
		return err
	}
	if signed.address != *body.Address {
		return anotherMessage(s.cfg.Word)
	}
	if err := s.authorize(ctx, req.Client(), wallet, *body.Message, *body.Signature, signed.unix); err != nil {
		return err
	}
	if !s.mayWrite(req.Client()) {
		return &httpapi.Error{Code: httpapi.RateLimited, Message: "too many subscriptions of one client", RetryAfter: time.Duration(float64(time.Second) / s.cfg.Writes)}
	}
	if !s.turns.Take(wallet) {
		return tooManyWrites()
	}
	defer s.turns.Release(wallet)
	sealed, err := s.keys.Seal(wallet, channel, *body.Address)
	if err != nil {
		return err
	}
	c := &notifier.Subscribe{Wallet: wallet, Channel: channel, Sealed: sealed, Mask: mask, Prefs: prefs, Unix: signed.unix}
	outcome, how, err := s.subscribe(ctx, req.Client(), c, *body.Address)
	if err == nil && outcome == notifier.Accepted && how != nil {
		return answer(res, map[string]any{"ok": true, "confirm": how})
	}
	return s.written(res, outcome, err)
}

func (s *Service) remove(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	given := req.Path("wallet").Address()
	number := httpapi.Enum[uint8](req.Path("channel"), channelNames)
	if err := req.Err(); err != nil {
		return err
	}
	wallet, channel := *given, notifier.Channels[*number]
	var body deleteBody
	if err := req.JSON(&body); err != nil {
		return err
	}
	if err := required("signature", body.Signature, "message", body.Message); err != nil {
		return err
	}
	signed, err := readMessage(s.cfg.Word, *body.Message, wallet, channel.String())
	if err != nil {
		return err
	}
	all, err := s.store.Subscriptions(ctx, wallet)
	if err != nil {
		return s.unavailable(err)
	}
	for _, sub := range all {
		if sub.Channel != channel || !sub.Active() {
			continue
		}
		// The signature comes before the address: only the wallet may learn whether it is the stored one.
		if err := s.authorize(ctx, req.Client(), wallet, *body.Message, *body.Signature, signed.unix); err != nil {
			return err
		}
		stored, err := s.with(wallet, &sub, func(address string) bool { return address == signed.address })
		if err != nil {
			return err
		}
		if stored == nil {
			return anotherMessage(s.cfg.Word)
		}
		if !s.turns.Take(wallet) {
			return tooManyWrites()
		}
		defer s.turns.Release(wallet)
		outcome, err := s.store.Unsubscribe(ctx, &notifier.Unsubscribe{ID: newID(), Wallet: wallet, Channel: channel, Unix: signed.unix, Of: sub.Unix})
		return s.written(res, outcome, err)
	}
	return fault(httpapi.NotFound, "the wallet has no subscription on this channel")
}

// with is a subscription with the given address, which may be its unconfirmed one or the one that alerts go to. Nil: it
// is neither.
func (s *Service) with(wallet common.Address, sub *notifier.Subscription, is func(address string) bool) (*notifier.Subscription, error) {
	for _, one := range []notifier.Subscription{sub.Named(), *sub} {
		address, err := s.open(wallet, &one)
		if err != nil {
			return nil, err
		}
		if is(address) {
			return &one, nil
		}
	}
	return nil, nil //nolint:nilnil // neither is
}

// open decrypts the address of a subscription. If its key is missing, the operator must add it: nothing changes until
// then.
func (s *Service) open(wallet common.Address, sub *notifier.Subscription) (string, error) {
	address, err := s.keys.Open(wallet, sub.Channel, sub.Sealed)
	if err == nil {
		return address, nil
	}
	key, has := s.keys.KeyOf(sub.Sealed)
	s.log.Error("cannot decrypt an address: notify-keys-file must hold every key in use", zap.Uint8("key", key), zap.Bool("has", has))
	return "", &httpapi.Error{Code: httpapi.UpstreamUnavailable, Message: "the stored address cannot be read now, ask again later", RetryAfter: time.Minute}
}

// maxWrites bounds the changes of a wallet that wait at once. The state keeps the outcomes of a wallet's last 32
// commands, so with more on a few nodes one could be evicted before its writer has read it.
const maxWrites = 8

func tooManyWrites() error {
	return &httpapi.Error{Code: httpapi.RateLimited, Message: fmt.Sprintf("at most %d changes of a wallet at once", maxWrites), RetryAfter: time.Second}
}

var channelNames = func() (names []string) {
	for _, c := range notifier.Channels {
		names = append(names, c.String())
	}
	return names
}()

// authorize checks that a message is fresh, and signed by the wallet.
func (s *Service) authorize(ctx context.Context, client netip.Addr, wallet common.Address, message, signature string, unix int64) error {
	raw, err := hexutil.Decode(signature)
	if err != nil || len(raw) == 0 || len(raw) > maxSignatureBytes {
		return invalid("signature", "must be 0x and hex digits")
	}
	if err := s.fresh(unix, time.Now()); err != nil {
		return err
	}
	return s.verify(ctx, client, wallet, message, raw)
}

func (p preferences) read() (prefs notifier.Prefs, err error) {
	for _, k := range notifier.Kinds {
		switch string(p[k.String()]) {
		case "true":
			prefs = prefs.With(k, true)
		case "false":
		default:
			return 0, invalid("prefs."+k.String(), "is required: true or false")
		}
	}
	if len(p) > len(notifier.Kinds) {
		return 0, invalid("prefs", "must have exactly the seven preferences")
	}
	return prefs, nil
}

// parseWallet parses an address; in mixed case its checksum must be right.
func parseWallet(text string) (common.Address, error) {
	digits, prefixed := strings.CutPrefix(text, "0x")
	if !prefixed || len(digits) != 2*common.AddressLength || !common.IsHexAddress(text) {
		return common.Address{}, invalid("wallet", "must be an address: 0x and 40 hex digits")
	}
	wallet := common.HexToAddress(text)
	if digits != strings.ToLower(digits) && digits != strings.ToUpper(digits) && wallet.Hex() != text {
		return common.Address{}, invalid("wallet", "must be an address: its EIP-55 checksum is wrong")
	}
	return wallet, nil
}

func newID() (id notifier.ID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// written maps the outcome of a write to a response.
func (s *Service) written(res *httpapi.Response, outcome notifier.Outcome, err error) error {
	if err != nil {
		return s.unavailable(err)
	}
	switch outcome {
	case notifier.Accepted:
		res.Body = append(res.Body, `{"ok":true}`...)
		return nil
	case notifier.Changed:
		return s.unavailable(errChanged)
	case notifier.Limited:
		return &httpapi.Error{Code: httpapi.RateLimited, Message: "the wallet named too many unconfirmed addresses: try again in an hour", RetryAfter: time.Hour}
	case notifier.Missing:
		return fault(httpapi.NotFound, "the wallet has no subscription on this channel")
	default:
		return fault(SignatureReused, "a message with this time or a later one was used before: sign a new one")
	}
}

// unavailable is the response if the state is unavailable, or the outcome of a write unknown.
func (s *Service) unavailable(err error) error {
	if _, known := errors.AsType[*httpapi.Error](err); known {
		return err
	}
	s.log.Warn("cannot reach the notifier's state", zap.Error(err))
	return &httpapi.Error{Code: httpapi.UpstreamUnavailable, Message: "subscriptions cannot be reached now, ask again shortly", RetryAfter: time.Second}
}

// subscription is the public view of a subscription.
type subscription struct {
	Channel   string          `json:"channel"`
	Address   string          `json:"address"`
	Prefs     json.RawMessage `json:"prefs"`
	CreatedAt int64           `json:"createdAt"`
	Disabled  *string         `json:"disabled"`
	ConfirmBy *int64          `json:"confirmBy"`
	Awaited   *awaited        `json:"awaited"`
}

// awaited is what a subscription will be once its owner has confirmed the address.
type awaited struct {
	Address   string          `json:"address"`
	Prefs     json.RawMessage `json:"prefs"`
	ConfirmBy int64           `json:"confirmBy"`
}

func (s *Service) get(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	wallet := req.Path("wallet").Address()
	if err := req.Err(); err != nil {
		return err
	}
	all, err := s.store.Subscriptions(ctx, *wallet)
	if err != nil {
		return s.unavailable(err)
	}
	shown := []subscription{}
	for _, sub := range all {
		if !sub.Active() {
			continue
		}
		one := subscription{Channel: sub.Channel.String(), Address: sub.Mask, Prefs: writePrefs(sub.Prefs), CreatedAt: sub.CreatedAt}
		if sub.Disabled != "" {
			one.Disabled = &sub.Disabled
		}
		if sub.ConfirmBy != 0 {
			one.ConfirmBy = &sub.ConfirmBy
		}
		if a := sub.Awaited; a != nil {
			one.Awaited = &awaited{Address: a.Mask, Prefs: writePrefs(a.Prefs), ConfirmBy: a.ConfirmBy}
		}
		shown = append(shown, one)
	}
	return answer(res, map[string]any{"subscriptions": shown})
}

// writePrefs keeps the order of the user interface.
func writePrefs(p notifier.Prefs) json.RawMessage {
	var b bytes.Buffer
	for i, k := range notifier.Kinds {
		b.WriteByte("{,,,,,,"[i])
		b.WriteString(strconv.Quote(k.String()) + ":" + strconv.FormatBool(p.Has(k)))
	}
	return append(b.Bytes(), '}')
}

func (s *Service) health(ctx context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	h, err := s.store.Health(ctx)
	if err != nil {
		return s.unavailable(err)
	}
	return answer(res, map[string]any{"ok": true, "pending": h.Pending, "sentLastHour": h.SentLastHour})
}

func answer(res *httpapi.Response, v any) error {
	body, err := json.Marshal(v)
	res.Body = append(res.Body, body...)
	return err
}
