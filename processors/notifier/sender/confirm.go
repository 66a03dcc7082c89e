package sender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/notifier"
)

// Reasons why a request to confirm an address is not sent.
var (
	errConfirmExpired = &Failure{Reason: "the request to confirm the address has expired", Dead: true}
	errConfirmNoLink  = &Failure{Reason: "the notifier's public URL is not configured"}
	errConfirmChannel = &Failure{Reason: "the channel has no requests to confirm an address", Dead: true}
)

// confirmText is the text of a request to confirm an email address. The wallet is the only part that the sender of the
// request chose.
func confirmText(m *Message, links Links, keys *notifier.Keys) (Text, error) {
	if time.Now().Unix() > m.ConfirmBy {
		return Text{}, errConfirmExpired
	}
	if links.Notify == "" {
		return Text{}, errConfirmNoLink
	}
	at := int64(m.Event.Due)
	code := "&code=" + keys.Code(m.Event.Wallet, m.Channel, at) // of an older build
	if m.Alert.Request != nil {
		code = fmt.Sprintf("&at=%d&code=%s", at, keys.MailCode(m.To, at))
	}
	facts := struct{ Wallet, Link, By string }{
		Wallet: m.Event.Wallet.Hex(), By: when(uint64(m.ConfirmBy)),
		Link: fmt.Sprintf("%s/confirm?wallet=%s&channel=%s%s", strings.TrimRight(links.Notify, "/"),
			strings.ToLower(m.Event.Wallet.Hex()), m.Channel, code),
	}
	var body, html bytes.Buffer
	err := errors.Join(plainTexts.ExecuteTemplate(&body, "confirm.txt", facts), htmlTexts.ExecuteTemplate(&html, "confirm.html", facts))
	return Text{Subject: "Confirm this address for alerts", Body: body.String(), HTML: html.String()}, err
}

// hookPath is the notifier service's path for messages of chats to the bot.
const hookPath = "/telegram"

// Listen sets Telegram's webhook, so that the notifier service gets the messages by which chats confirm themselves. It
// returns once Telegram has accepted it.
func (t *Telegram) Listen(ctx context.Context, log *zap.Logger) error {
	retry := time.NewTicker(hookRetry)
	defer retry.Stop()
	for {
		asking, cancel := context.WithTimeout(ctx, hookTimeout)
		_, err := t.bot.SetWebhook(asking, &bot.SetWebhookParams{
			URL: strings.TrimRight(t.cfg.Links.Notify, "/") + hookPath, SecretToken: t.keys.Hook(), AllowedUpdates: []string{"message"},
		})
		cancel()
		if err == nil || ctx.Err() != nil {
			return nil
		}
		log.Warn("Telegram does not accept the webhook: chats cannot confirm themselves", zap.Error(refusedChat(err)))
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil
		}
	}
}

const (
	hookRetry   = 30 * time.Second
	hookTimeout = 20 * time.Second
)
