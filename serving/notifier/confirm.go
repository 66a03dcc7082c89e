package notifier

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// confirmQuery are the query parameters of a link that confirms an address.
var confirmQuery = []string{"wallet", "channel", "at", "code"}

//go:embed confirm.html
var confirmText string

var confirmPage = template.Must(template.New("confirm").Parse(confirmText))

var errChanged = errors.New("the subscription changes too fast")

// maxChanges bounds how often a subscription may change while it is decided whether its address is confirmed.
const maxChanges = 3

// asked is how an address is to be confirmed before alerts go there; nil: it need not be.
type asked struct {
	By   string `json:"by"`
	Code string `json:"code,omitempty"` // of a chat
	Sent *bool  `json:"sent,omitempty"` // of a mail; false: use the link of a recent mail; nil: not known yet
}

// subscribe writes a subscription. The address of a browser needs no confirmation, since the browser made it; nor does
// one that is confirmed already and stays.
func (s *Service) subscribe(ctx context.Context, client netip.Addr, c *notifier.Subscribe, address string) (outcome notifier.Outcome, how *asked, err error) {
	if c.ID = newID(); !s.cfg.Confirm || c.Channel == notifier.Push {
		// If the present address cannot be read it counts as another one, so that the request need not wait for a
		// takeover twice.
		if was, err := s.stored(ctx, c.Wallet, c.Channel); err == nil {
			if stored, err := s.keys.Open(c.Wallet, c.Channel, was.Sealed); err == nil && stored == address {
				c.Keeps = was.Of()
			}
		}
		outcome, err = s.store.Subscribe(ctx, c)
		return outcome, nil, err
	}
	for range maxChanges {
		was, err := s.stored(ctx, c.Wallet, c.Channel)
		if err != nil {
			return outcome, nil, err
		}
		if c.Unix <= was.Unix {
			return notifier.Reused, nil, nil
		}
		confirmed, err := s.confirmed(c.Wallet, &was, address)
		if err != nil {
			return outcome, nil, err
		}
		if !confirmed && c.Channel == notifier.Email && !s.mayAsk(client) {
			return outcome, nil, &httpapi.Error{Code: httpapi.RateLimited, Message: "this client requested too many confirmation mails: try again later", RetryAfter: time.Hour / time.Duration(s.cfg.Asks)}
		}
		if !confirmed {
			if err := s.admit(ctx, c, address); err != nil {
				return outcome, nil, err
			}
			return s.ask(ctx, c, address)
		}
		c.ID, c.Since, c.Keeps = newID(), was.CreatedAt, was.Of()
		if outcome, err = s.store.Subscribe(ctx, c); err != nil || outcome != notifier.Changed {
			return outcome, nil, err
		}
	}
	return notifier.Changed, nil, nil
}

// stored is the subscription of a wallet and channel; without one, a zero value.
func (s *Service) stored(ctx context.Context, wallet common.Address, channel notifier.Channel) (notifier.Subscription, error) {
	all, err := s.store.Subscriptions(ctx, wallet)
	for _, sub := range all {
		if sub.Channel == channel {
			return sub, err
		}
	}
	return notifier.Subscription{}, err
}

// confirmed reports whether a subscription has this address, and alerts may go there.
func (s *Service) confirmed(wallet common.Address, sub *notifier.Subscription, address string) (bool, error) {
	if !sub.Active() || sub.ConfirmBy != 0 {
		return false, nil
	}
	stored, err := s.open(wallet, sub)
	return stored == address, err
}

// admit counts a mail that asks for an address to be confirmed, before anything changes: anyone can make up any number
// of mailboxes of a domain, and its server must not take us for a spammer.
func (s *Service) admit(ctx context.Context, c *notifier.Subscribe, address string) error {
	if c.Channel != notifier.Email {
		return nil
	}
	outcome, err := s.store.Admit(ctx, &notifier.Admission{ID: newID(), Wallet: c.Wallet, Domain: s.keys.Domain(address), Most: s.cfg.Admits})
	if err == nil && outcome == notifier.Limited {
		return &httpapi.Error{Code: httpapi.RateLimited, Message: `too many confirmation mails went to the domain of "address", or in all, for wallets without an open deal: try again in an hour`, RetryAfter: time.Hour}
	}
	return err
}

// mailWait is how long a request waits to learn whether its mail is sent.
const mailWait = 3 * time.Second

// ask writes a subscription whose address must be confirmed, and requests a mail to an email address. An address gets
// few such mails per hour, for all wallets together, so that it is not flooded. If no mail is sent, the link of any
// recent mail confirms the subscription. The code of a chat works for that chat only.
func (s *Service) ask(ctx context.Context, c *notifier.Subscribe, address string) (outcome notifier.Outcome, how *asked, err error) {
	c.ID, c.Since, c.Keeps = newID(), 0, 0
	if c.Channel == notifier.Email {
		place := s.keys.Place(address)
		sealed, err := s.keys.Seal(place, c.Channel, address)
		if err != nil {
			return notifier.Unknown, nil, err
		}
		c.Mail = &notifier.Permit{ID: newID(), Place: place, Mail: &notifier.Request{Wallet: c.Wallet, Sealed: sealed}}
	}
	if outcome, err = s.store.Await(ctx, c); err != nil || outcome != notifier.Accepted {
		return outcome, nil, err
	}
	if c.Channel == notifier.Telegram {
		return outcome, &asked{By: "start", Code: startCode(c.Wallet, s.keys.Code(c.Wallet, c.Channel, c.Unix))}, nil
	}
	how = &asked{By: "link"}
	waiting, cancel := context.WithTimeout(ctx, mailWait)
	defer cancel()
	if permitted, err := s.store.Permitted(waiting, c.Mail); err == nil { // on an error the mail is sent all the same
		sent := permitted == notifier.Accepted
		how.Sent = &sent
	}
	return outcome, how, nil
}

// requested finds the subscription that a link confirms; open: it is not confirmed yet. nil: the link is not valid.
// other is the wallet, if it is not that of the link.
func (s *Service) requested(ctx context.Context, req *httpapi.Request, other *common.Address) (wallet common.Address, sub *notifier.Subscription, open bool, err error) {
	given := req.Query("wallet").Address()
	number := httpapi.Enum[uint8](req.Query("channel"), channelNames)
	at := req.Query("at").Integer(0, math.MaxInt64)
	if err := req.Err(); err != nil {
		return wallet, nil, false, err
	}
	if given == nil || number == nil {
		return wallet, nil, false, invalid("code", "needs a wallet and a channel")
	}
	channel := notifier.Channels[*number]
	if other != nil {
		given = other
	}
	if channel != notifier.Email {
		return *given, nil, false, nil // a chat is confirmed by its message
	}
	one, err := s.stored(ctx, *given, channel)
	if err != nil {
		return *given, nil, false, s.unavailable(err)
	}
	if !one.Active() {
		return *given, nil, false, nil
	}
	code := req.HTTP.URL.Query().Get("code")
	if at == nil { // from an older build: for this request alone
		if one = one.Named(); !s.keys.GoodCode(code, *given, channel, one.Unix) {
			return *given, nil, false, nil
		}
		return *given, &one, one.ConfirmBy != 0, nil
	}
	is, err := s.with(*given, &one, func(address string) bool { return fresh(at) && s.keys.GoodMailCode(code, address, *at) })
	return *given, is, is != nil && is.ConfirmBy != 0, err
}

// askConfirm shows a page with a button that confirms an address, since programs may follow links automatically.
func (s *Service) askConfirm(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	wallet, sub, open, err := s.requested(ctx, req, nil)
	if err != nil {
		return err
	}
	switch {
	case sub == nil || open && time.Now().Unix() > sub.ConfirmBy:
		return showConfirm(req, res, wallet, sub, "gone")
	case !open:
		return showConfirm(req, res, wallet, sub, "done")
	}
	return showConfirm(req, res, wallet, sub, "open")
}

// confirmLink confirms an address.
func (s *Service) confirmLink(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	form, err := req.Body()
	if err != nil {
		return err
	}
	fields, err := url.ParseQuery(strings.TrimSpace(string(form)))
	if err != nil || fields.Get("confirm") != "yes" {
		return invalid("body", "must be confirm=yes, and may have a wallet")
	}
	var other *common.Address
	if text := strings.TrimSpace(fields.Get("wallet")); text != "" {
		wallet, err := parseWallet(text)
		if err != nil {
			return err
		}
		other = &wallet
	}
	wallet, sub, open, err := s.requested(ctx, req, other)
	if err != nil {
		return err
	}
	if sub == nil {
		return showConfirm(req, res, wallet, nil, "gone")
	}
	if open {
		good, err := s.confirmAddress(ctx, wallet, sub)
		if err != nil {
			return err
		}
		if !good {
			return showConfirm(req, res, wallet, nil, "gone")
		}
	}
	return showConfirm(req, res, wallet, sub, "done")
}

// confirmAddress confirms the address of a subscription; false: it is too late.
func (s *Service) confirmAddress(ctx context.Context, wallet common.Address, sub *notifier.Subscription) (bool, error) {
	if !s.turns.Take(wallet) {
		return false, tooManyWrites()
	}
	defer s.turns.Release(wallet)
	outcome, err := s.store.Confirm(ctx, &notifier.Confirmation{ID: newID(), Wallet: wallet, Channel: sub.Channel, Unix: sub.Unix})
	if err != nil {
		return false, s.unavailable(err)
	}
	return outcome == notifier.Accepted, nil
}

// fresh reports whether the code in a mail of that time may be good.
func fresh(at *int64) bool { return time.Now().Unix() <= *at+notifier.MailSeconds }

// showConfirm shows a page. While the code of a mail may be valid, its reader can name another wallet: the wallet of
// the mail may have used up the mails to this address, and have named another address since.
func showConfirm(req *httpapi.Request, res *httpapi.Response, wallet common.Address, sub *notifier.Subscription, state string) error {
	at := req.Query("at").Integer(0, math.MaxInt64)
	other := state != "done" && at != nil && fresh(at)
	facts := map[string]any{"State": state, "Wallet": wallet.Hex(), "Other": other}
	if sub != nil {
		facts["Mask"] = sub.Mask
	}
	return showPage(res, confirmPage, facts)
}

// startCode is the text after /start: at most 64 characters of base64url, Telegram's limit.
func startCode(wallet common.Address, code string) string {
	return base64.RawURLEncoding.EncodeToString(append(wallet[:], common.FromHex(code)...))
}

// readStart reads what a chat sends. In a group its client names the bot: /start@bot.
func readStart(text string) (wallet common.Address, code string, ok bool) {
	command, sent, _ := strings.Cut(text, " ")
	bot, named := strings.CutPrefix(command, "/start@")
	found := command == "/start" || named && bot != ""
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(sent))
	if !found || err != nil || len(raw) != startBytes {
		return wallet, "", false
	}
	return common.Address(raw[:common.AddressLength]), fmt.Sprintf("%x", raw[common.AddressLength:]), true
}

const startBytes = common.AddressLength + 16

// hookHeader is the header with the secret that the bot gave to Telegram.
const hookHeader = "X-Telegram-Bot-Api-Secret-Token"

// maxUpdateBytes exceeds the largest update: 4,096 letters as \uXXXX, and those of the message that it replies to.
const maxUpdateBytes = 1 << 20

// telegram receives the messages of chats to the bot from Telegram, which repeats those that are not answered. A chat
// confirms itself by /start and its wallet's code. The answer is the bot's reply to the chat.
func (s *Service) telegram(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	if !s.keys.GoodHook(req.HTTP.Header.Get(hookHeader)) {
		return fault(InvalidSignature, "the header %s is not the secret of this bot", hookHeader)
	}
	body, err := req.Body()
	if err != nil {
		return err
	}
	update, err := decodeUpdate(body)
	if err != nil {
		return invalid("body", "must be an update of the Bot API")
	}
	wallet, code, ok := readStart(update.Message.Text)
	if !ok {
		return answer(res, map[string]any{})
	}
	said, err := s.started(ctx, wallet, code, strconv.FormatInt(update.Message.Chat.ID, 10))
	if err != nil {
		return err
	}
	return answer(res, map[string]any{"method": "sendMessage", "chat_id": update.Message.Chat.ID, "text": said})
}

// update is the part of a Bot API update that is read. An update that is not a message has no text.
type update struct {
	Message struct {
		Chat struct {
			ID int64 `json:"id"`
		} `json:"chat"`
		Text string `json:"text"`
	} `json:"message"`
}

func decodeUpdate(body []byte) (u update, err error) {
	err = json.Unmarshal(body, &u)
	return u, err
}

// started confirms a chat, and returns the reply to it.
func (s *Service) started(ctx context.Context, wallet common.Address, code, chat string) (string, error) {
	const stale = "This code is not for this chat, or it is no longer good. The wallet can ask for a new one."
	sub, err := s.stored(ctx, wallet, notifier.Telegram)
	if err != nil {
		return "", s.unavailable(err)
	}
	if sub = sub.Named(); !sub.Active() || !s.keys.GoodCode(code, wallet, notifier.Telegram, sub.Unix) {
		return stale, nil
	}
	address, err := s.open(wallet, &sub)
	if err != nil {
		return "", err
	}
	if address != chat {
		return stale, nil
	}
	if sub.ConfirmBy != 0 {
		good, err := s.confirmAddress(ctx, wallet, &sub)
		if err != nil {
			return "", err
		}
		if !good {
			return stale, nil
		}
	}
	return "Alerts of the wallet " + wallet.Hex() + " come to this chat now.", nil
}
