package sender

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/lienstream/lienstream/processors/notifier"
)

// EmailConfig says how mail leaves.
type EmailConfig struct {
	Host     string
	Port     int
	User     string // empty: without authentication
	Password string
	From     string // an address
	Plain    bool   // without TLS: for a sink on this machine

	TLS *tls.Config // nil: the system's roots are trusted

	Links Links
}

// Links are where messages lead to.
type Links struct {
	App    string // of the front end: <App>/deals/<id>
	Notify string // of this service: <Notify>/unsubscribe
}

// unsubscribe is the link that ends the subscription; empty: nobody said where this service is reached.
func (l Links) unsubscribe(keys *notifier.Keys, m *Message) string {
	if l.Notify == "" {
		return ""
	}
	return fmt.Sprintf("%s/unsubscribe?wallet=%s&channel=%s&token=%s", strings.TrimRight(l.Notify, "/"),
		strings.ToLower(m.Event.Wallet.Hex()), m.Event.Channel, keys.Link(m.Event.Wallet, m.Channel, m.CreatedAt))
}

// Email is the channel by SMTP.
type Email struct {
	cfg  EmailConfig
	keys *notifier.Keys
}

// NewEmail makes the channel; it reaches no server before Send.
func NewEmail(cfg EmailConfig, keys *notifier.Keys) (*Email, error) {
	if cfg.Host == "" || cfg.From == "" || cfg.Port <= 0 {
		return nil, errors.New("email: host, port and from are required")
	}
	return &Email{cfg, keys}, nil
}

// Send delivers a message over a connection of its own.
func (e *Email) Send(ctx context.Context, m *Message) error {
	msg, err := e.compose(m)
	if err != nil {
		return &Failure{Reason: "the message cannot be encoded", Dead: true}
	}
	return e.deliver(ctx, msg)
}

// Write sends what is no alert: a letter to somebody who is no subscriber.
func (e *Email) Write(ctx context.Context, to, subject, text string) error {
	msg := mail.NewMsg()
	if err := errors.Join(msg.From(e.cfg.From), msg.To(to)); err != nil {
		return errors.New("an address is not valid in a header") // and is not repeated
	}
	msg.SetMessageID()
	msg.SetDate()
	msg.Subject(subject)
	msg.SetBodyString(mail.TypeTextPlain, text)
	return e.deliver(ctx, msg)
}

func (e *Email) deliver(ctx context.Context, msg *mail.Msg) error {
	policy := mail.TLSMandatory
	if e.cfg.Plain {
		policy = mail.NoTLS
	}
	options := []mail.Option{mail.WithPort(e.cfg.Port), mail.WithTLSPolicy(policy)}
	if e.cfg.TLS != nil {
		options = append(options, mail.WithTLSConfig(e.cfg.TLS))
	}
	if e.cfg.User != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(e.cfg.User), mail.WithPassword(e.cfg.Password))
	}
	client, err := mail.NewClient(e.cfg.Host, options...)
	if err != nil {
		return err
	}
	return refusedMail(client.DialAndSendWithContext(ctx, msg))
}

// refusedMail tells a refusal of this receiver or message (5xx) from what may pass. A server that refuses us, our
// sender or our password, says nothing about the receiver.
func refusedMail(err error) error {
	var refused *mail.SendError
	if !errors.As(err, &refused) || refused.ErrorCode() <= 0 {
		return err
	}
	f := &Failure{Reason: fmt.Sprintf("the mail server responded with %d", refused.ErrorCode())}
	f.Gone = refused.ErrorCode() >= 500 && refused.ErrorCode() < 600 && (refused.Reason == mail.ErrSMTPRcptTo || refused.Reason == mail.ErrSMTPData || refused.Reason == mail.ErrSMTPDataClose)
	return f
}

func (e *Email) compose(m *Message) (*mail.Msg, error) {
	text, err := render(m, e.cfg.Links)
	if err != nil {
		return nil, err
	}
	msg := mail.NewMsg()
	if err := errors.Join(msg.From(e.cfg.From), msg.To(m.To)); err != nil {
		return nil, errors.New("an address is not valid in a header") // and is not repeated
	}
	_, domain, _ := strings.Cut(e.cfg.From, "@")
	msg.SetMessageIDWithValue(m.ID + "@" + domain)
	msg.SetDate()
	msg.Subject(text.Subject)
	if e.cfg.Links.Notify != "" {
		msg.SetGenHeader("List-Unsubscribe", "<"+e.cfg.Links.unsubscribe(e.keys, m)+">")
		msg.SetGenHeader("List-Unsubscribe-Post", "List-Unsubscribe=One-Click")
	}
	msg.SetBodyString(mail.TypeTextPlain, text.Body)
	msg.AddAlternativeString(mail.TypeTextHTML, text.HTML)
	return msg, nil
}
