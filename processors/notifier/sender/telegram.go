package sender

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/lienstream/lienstream/processors/notifier"
)

// TelegramConfig configures the Telegram bot.
type TelegramConfig struct {
	Token string
	URL   string // of the Bot API; empty: Telegram's own

	Dial Dial // nil: the machine's network

	Links Links
}

// Telegram is the Telegram channel, by the Bot API.
type Telegram struct {
	cfg  TelegramConfig
	keys *notifier.Keys
	bot  *bot.Bot

	pauses pauses
}

// NewTelegram makes the channel. It connects on Send.
func NewTelegram(cfg TelegramConfig, keys *notifier.Keys) (*Telegram, error) {
	options := []bot.Option{
		bot.WithSkipGetMe(), bot.WithHTTPClient(0, apiClient{newHTTPClient(&http.Transport{DialContext: cfg.Dial})}),
		bot.WithErrorsHandler(func(error) {}), // Send returns all errors
	}
	if cfg.URL != "" {
		options = append(options, bot.WithServerURL(cfg.URL))
	}
	b, err := bot.New(cfg.Token, options...)
	if err != nil {
		return nil, errors.New("telegram: the bot token is required")
	}
	return &Telegram{cfg: cfg, keys: keys, bot: b}, nil
}

// maxAnswerBytes bounds the headers of a response, and as much of its body as is read.
const maxAnswerBytes = 64 << 10

// newHTTPClient follows no redirects: a message is meant for one server.
func newHTTPClient(t *http.Transport) *http.Client {
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.IdleConnTimeout = 64, 8, time.Minute
	t.TLSHandshakeTimeout, t.MaxResponseHeaderBytes = 10*time.Second, maxAnswerBytes
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// apiClient limits the size of responses.
type apiClient struct{ *http.Client }

// Do implements bot.HttpClient.
func (c apiClient) Do(req *http.Request) (*http.Response, error) {
	res, err := c.Client.Do(req)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswerBytes), res.Body}
	}
	return res, err
}

// Send delivers a message. Telegram has no deduplication key, so the text contains the alert's ID.
func (t *Telegram) Send(ctx context.Context, m *Message) error {
	if m.Alert.Stage == notifier.ToConfirm {
		return errConfirmChannel
	}
	chat, err := strconv.ParseInt(m.To, 10, 64)
	if err != nil {
		return &Failure{Reason: "the address is not a chat ID", Gone: true}
	}
	if left := t.pauses.left(chat, time.Now()); left > 0 {
		return &Failure{Reason: "Telegram asked for a pause of this chat", After: left, Busy: true, Unasked: true}
	}
	text, err := render(m, t.cfg.Links)
	if err != nil {
		return &Failure{Reason: "the message cannot be encoded", Dead: true}
	}
	body := text.Subject + "\n\n" + text.Body
	if link := t.cfg.Links.unsubscribe(t.keys, m); link != "" {
		body += "\nEnd these alerts: " + link + "\n"
	}
	body += "\nAlert " + m.ID
	off := true
	_, err = t.bot.SendMessage(ctx, &bot.SendMessageParams{ChatID: chat, Text: body, LinkPreviewOptions: &models.LinkPreviewOptions{IsDisabled: &off}})
	if many, ok := errors.AsType[*bot.TooManyRequestsError](err); ok {
		t.pauses.refused(chat, time.Duration(many.RetryAfter)*time.Second, time.Now())
	} else if err == nil || tookIt(err) {
		t.pauses.taken()
		return nil
	}
	return refusedChat(err)
}

// tookIt reports whether Telegram has accepted the message: the answer is ok, and only the library could not decode the
// message in it.
func tookIt(err error) bool { return strings.HasPrefix(err.Error(), "error decode response result ") }

// Wait implements Pausing.
func (t *Telegram) Wait(ctx context.Context) error { return t.pauses.wait(ctx) }

// Parts of Telegram's undocumented descriptions of errors with status 400: ofChat are permanent, until the chat's owner
// opens the bot or lets it write; ofMessage concern the message. All others may concern us.
var (
	ofChat = []string{
		"chat not found", "user not found", "chat was deactivated", "chat was deleted", "rights to send", "administrator rights", // of a chat that has not opened the bot: the first
		"PEER_ID_INVALID", "CHAT_WRITE_FORBIDDEN", "CHAT_SEND_PLAIN_FORBIDDEN", "CHAT_RESTRICTED", "CHAT_ADMIN_REQUIRED", "TOPIC_CLOSED",
	}
	ofMessage = []string{"message is too long", "message text is empty", "can't parse"}
)

// refusedChat distinguishes a permanent refusal of the chat or message from other errors. 401 and 404 are about
// our token.
func refusedChat(err error) error {
	if many, ok := errors.AsType[*bot.TooManyRequestsError](err); ok {
		return &Failure{Reason: "Telegram responded with 429", After: time.Duration(many.RetryAfter) * time.Second, Busy: true}
	}
	if _, ok := errors.AsType[*bot.MigrateError](err); ok {
		return &Failure{Reason: "the group was migrated to another chat", Gone: true}
	}
	switch {
	case errors.Is(err, bot.ErrorForbidden):
		return &Failure{Reason: "Telegram responded with 403", Gone: true}
	case errors.Is(err, bot.ErrorBadRequest):
		says := func(part string) bool { return strings.Contains(strings.ToLower(err.Error()), strings.ToLower(part)) }
		switch {
		case slices.ContainsFunc(ofChat, says):
			return &Failure{Reason: "Telegram has no such chat, or the bot may not write there: open the bot, and subscribe again", Gone: true}
		case slices.ContainsFunc(ofMessage, says):
			return &Failure{Reason: "Telegram does not take the message", Dead: true}
		}
		return &Failure{Reason: "Telegram responded with 400", Doubtful: true}
	case errors.Is(err, bot.ErrorUnauthorized), errors.Is(err, bot.ErrorNotFound):
		return &Failure{Reason: "Telegram rejects the bot's token"}
	}
	return unreached(err)
}
