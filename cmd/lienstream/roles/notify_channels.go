package roles

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/SherClockHolmes/webpush-go"
	"github.com/peterbourgon/ff/v4"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
)

// channels returns the configured channels, each with its rate.
func (p *Process) channels() (map[notifier.Channel]*sender.Line, error) {
	n := &p.notify
	channels := map[notifier.Channel]*sender.Line{}
	keys, err := p.NotifyKeys()
	if err != nil {
		return nil, err
	}
	if p.Servers.SMTP != "" {
		email, err := p.email(keys)
		if err != nil {
			return nil, err
		}
		channels[notifier.Email] = sender.NewLine(email, n.rates.Email)
	}
	if n.telegramTokenFile != "" {
		token, err := p.secretOf("telegram-token-file", n.telegramTokenFile)
		if err != nil {
			return nil, err
		}
		telegram, err := sender.NewTelegram(sender.TelegramConfig{Token: token, URL: n.telegramURL, Dial: p.Dial, Links: n.links()}, keys)
		if err != nil {
			return nil, err
		}
		channels[notifier.Telegram] = sender.NewLine(telegram, n.rates.Telegram)
	}
	if n.vapidFile != "" {
		text, err := p.secretOf("vapid-file", n.vapidFile)
		if err != nil {
			return nil, err
		}
		private, _, _ := strings.Cut(text, "\n") // the public key may follow it
		push, err := sender.NewPush(sender.PushConfig{Private: private, Contact: n.pushContact, Links: n.links()})
		if err != nil {
			return nil, err
		}
		channels[notifier.Push] = sender.NewLine(push, n.rates.Push)
	}
	return channels, nil
}

func (s *notifySettings) links() sender.Links { return sender.Links{App: s.app, Notify: s.url} }

// secretOf reads the secret from the file that a flag names.
func (p *Process) secretOf(flag, file string) (string, error) {
	text, err := p.readFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	return strings.TrimSpace(string(text)), nil
}

func (p *Process) email(keys *notifier.Keys) (*sender.Email, error) {
	n := &p.notify
	host, port, err := net.SplitHostPort(p.Servers.SMTP)
	if err != nil {
		return nil, fmt.Errorf("smtp: %w", err)
	}
	c := sender.EmailConfig{Host: host, User: n.smtpUser, From: n.from, Plain: n.smtpPlain, Dial: p.Dial, Links: n.links()}
	if c.Port, err = strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("smtp: %w", err)
	}
	if n.smtpPasswordFile != "" {
		if c.Password, err = p.secretOf("smtp-password-file", n.smtpPasswordFile); err != nil {
			return nil, err
		}
	}
	return sender.NewEmail(c, keys)
}

// notifyCommand is `lienstream notify keys`.
func (g *program) notifyCommand(env Environment, f *Flags) *ff.Command {
	command := &ff.Command{Name: "notify", Usage: "lienstream notify keys", ShortHelp: "make keys for the notifier", Exec: unknown}
	command.Subcommands = []*ff.Command{{
		Name: "keys", Usage: "lienstream notify keys", ShortHelp: "make a VAPID key pair for Web Push: the first line is for --vapid-file, the second for browsers",
		Flags: ff.NewFlagSet("keys").SetParent(f.set),
		Exec: func(_ context.Context, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("notify keys: unexpected argument %q", args[0])
			}
			private, public, err := webpush.GenerateVAPIDKeys()
			if err == nil {
				_, err = fmt.Fprintf(env.Stdout, "%s\npublic %s\n", private, public)
			}
			return err
		},
	}}
	return command
}
