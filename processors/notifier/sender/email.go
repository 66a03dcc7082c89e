package sender

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
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
		return &Failure{Err: err, Dead: true}
	}
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

// refusedMail tells a refusal of the receiver (5xx) from what may pass.
func refusedMail(err error) error {
	var refused *mail.SendError
	if !errors.As(err, &refused) {
		return err
	}
	if code := refused.ErrorCode(); code >= 500 && code < 600 {
		return &Failure{Err: err, Gone: refused.Reason == mail.ErrSMTPRcptTo, Dead: true}
	}
	return err
}

func (e *Email) compose(m *Message) (*mail.Msg, error) {
	text, err := render(m, e.cfg.Links)
	if err != nil {
		return nil, err
	}
	msg := mail.NewMsg()
	if err := errors.Join(msg.From(e.cfg.From), msg.To(m.To)); err != nil {
		return nil, errors.New("an address cannot be written into a header") // and is not repeated
	}
	_, domain, _ := strings.Cut(e.cfg.From, "@")
	msg.SetMessageIDWithValue(m.ID + "@" + domain)
	msg.SetDate()
	msg.Subject(text.Subject)
	if e.cfg.Links.Notify != "" {
		link := fmt.Sprintf("%s/unsubscribe?wallet=%s&channel=email&token=%s", strings.TrimRight(e.cfg.Links.Notify, "/"),
			strings.ToLower(m.Event.Wallet.Hex()), e.keys.Link(m.Event.Wallet, notifier.Email, m.CreatedAt))
		msg.SetGenHeader("List-Unsubscribe", "<"+link+">")
		msg.SetGenHeader("List-Unsubscribe-Post", "List-Unsubscribe=One-Click")
	}
	msg.SetBodyString(mail.TypeTextPlain, text.Body)
	msg.AddAlternativeString(mail.TypeTextHTML, text.HTML)
	return msg, nil
}

// reasonOf is why an attempt failed, without anything that a receiver said: it may repeat the address.
func reasonOf(err error) string {
	var (
		sent    *mail.SendError
		smtp    *textproto.Error
		network net.Error
	)
	switch {
	case errors.As(err, &sent) && sent.ErrorCode() > 0:
		return fmt.Sprintf("the mail server answered %d", sent.ErrorCode())
	case errors.As(err, &smtp):
		return fmt.Sprintf("the mail server answered %d", smtp.Code)
	case errors.Is(err, notifier.ErrSealed):
		return notifier.ErrSealed.Error()
	case errors.As(err, &network) && network.Timeout():
		return "the receiver did not answer in time"
	}
	return "the receiver could not be reached"
}
