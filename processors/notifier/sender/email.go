package sender

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wneessen/go-mail"

	"github.com/lienstream/lienstream/processors/notifier"
)

// EmailConfig configures SMTP.
type EmailConfig struct {
	Host     string
	Port     int
	User     string // empty: no authentication
	Password string
	From     string // an address, which may have a name
	Plain    bool   // without TLS: for an SMTP sink on this machine

	TLS *tls.Config // nil: the system's roots are trusted

	Dial Dial // nil: the machine's network

	Links Links
}

// Dial connects to a server.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// Links are the base URLs of links in messages.
type Links struct {
	App    string // URL of the front end: <App>/deals/<id>
	Notify string // URL of the notifier: <Notify>/unsubscribe
}

// unsubscribe is the unsubscribe link; empty: the notifier's URL is unknown.
func (l Links) unsubscribe(keys *notifier.Keys, m *Message) string {
	if l.Notify == "" {
		return ""
	}
	if m.Alert.Stage == notifier.ToConfirm { // it ends the request
		at := int64(m.Event.Due)
		return fmt.Sprintf("%s/unsubscribe?wallet=%s&channel=%s&at=%d&token=%s", strings.TrimRight(l.Notify, "/"),
			strings.ToLower(m.Event.Wallet.Hex()), m.Event.Channel, at, keys.Refusal(m.Event.Wallet, at, m.To))
	}
	return fmt.Sprintf("%s/unsubscribe?wallet=%s&channel=%s&token=%s", strings.TrimRight(l.Notify, "/"),
		strings.ToLower(m.Event.Wallet.Hex()), m.Event.Channel, keys.Link(m.Event.Wallet, m.Channel, m.CreatedAt, m.To))
}

// Email is the email channel, by SMTP.
type Email struct {
	cfg    EmailConfig
	keys   *notifier.Keys
	domain string // of From
}

// NewEmail makes the channel. It connects on Send.
func NewEmail(cfg EmailConfig, keys *notifier.Keys) (*Email, error) {
	if cfg.Host == "" || cfg.From == "" || cfg.Port <= 0 {
		return nil, errors.New("email: host, port and from are required")
	}
	from, err := netmail.ParseAddress(cfg.From)
	if err != nil {
		return nil, fmt.Errorf("email: from: %w", err)
	}
	_, domain, _ := strings.Cut(from.Address, "@")
	return &Email{cfg, keys, domain}, nil
}

// Send delivers a message over a new connection.
func (e *Email) Send(ctx context.Context, m *Message) error {
	msg, err := e.compose(m)
	if refusal, ok := errors.AsType[*Failure](err); ok {
		return refusal
	}
	if err != nil {
		return &Failure{Reason: "the message cannot be encoded", Dead: true}
	}
	return e.deliver(ctx, msg, m.Written)
}

// Write sends an email that is not an alert.
func (e *Email) Write(ctx context.Context, to, subject, text string) error {
	msg := mail.NewMsg()
	if err := errors.Join(msg.From(e.cfg.From), msg.To(receiver(to))); err != nil {
		return errors.New("an address is not valid in a header") // and is not repeated
	}
	msg.SetMessageID()
	msg.SetDate()
	msg.Subject(subject)
	msg.SetBodyString(mail.TypeTextPlain, text)
	end := func() {}
	defer func() { end() }()
	return e.deliver(ctx, msg, func() (waiting context.Context) {
		waiting, end = context.WithTimeout(ctx, answerTime)
		return waiting
	})
}

const (
	mailTime   = time.Minute      // bounds a delivery whose context does not
	answerTime = 10 * time.Minute // for which a server is waited for that has the mail
	byeTime    = 5 * time.Second  // bounds the end of a session
	never      = time.Hour        // is longer than a connection may be open
)

// deliver sends a mail. Once the server has it, written tells for how long its answer is awaited: a server may take minutes until it says
// that it has taken a mail, so RFC 5321 4.5.3.2.6 grants ten, and who does not wait sends the mail again. Nothing is awaited after that
// answer, for the same reason.
func (e *Email) deliver(ctx context.Context, msg *mail.Msg, written func() context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, mailTime)
	defer cancel()
	open := ctx // the connection is, for as long as it is not done
	var conn net.Conn
	hangUp := func() { _ = conn.Close() }
	kept := func() bool { return false } // no longer closed then
	client, err := e.client(func(connecting context.Context, network, address string) (net.Conn, error) {
		connect := e.cfg.Dial
		if connect == nil {
			connect = new(net.Dialer).DialContext //nolint:forbidigo // of who names none
		}
		// The client goes by its context while it connects, and not when it waits for an answer.
		var err error
		if conn, err = connect(connecting, network, address); err == nil {
			kept = context.AfterFunc(ctx, hangUp)
		}
		return conn, err
	})
	if err != nil {
		return &Failure{Reason: "the SMTP settings are not valid"}
	}
	failed := func(err error, ofMail bool) error {
		if open.Err() != nil {
			return unreached(context.DeadlineExceeded) // the connection was closed for that
		}
		return refusedMail(err, ofMail)
	}
	session, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return failed(err, false)
	}
	defer func() {
		if kept() {
			go func() {
				defer hangUp()
				_ = conn.SetDeadline(time.Now().Add(byeTime))
				_ = session.Quit()
			}()
		}
	}()
	from, err := msg.GetSender(false)
	to, noneErr := msg.GetRecipients()
	if err := errors.Join(err, noneErr); err != nil {
		return &Failure{Reason: "the message has no sender or receiver", Dead: true}
	}
	if err := session.Mail(from); err != nil {
		return failed(err, false)
	}
	for _, one := range to {
		if err := session.Rcpt(one); err != nil {
			return failed(err, true)
		}
	}
	body, err := session.Data()
	if err != nil {
		return failed(err, true)
	}
	if _, err := msg.WriteTo(body); err != nil {
		return failed(err, false)
	}
	if written != nil && kept() {
		open = written() //nolint:contextcheck // of whoever sends
		kept = context.AfterFunc(open, hangUp)
	}
	if err := body.Close(); err != nil {
		return failed(err, true)
	}
	return nil
}

// client makes one for a session.
func (e *Email) client(dial Dial) (*mail.Client, error) {
	policy := mail.TLSMandatory
	if e.cfg.Plain {
		policy = mail.NoTLS
	}
	options := []mail.Option{mail.WithPort(e.cfg.Port), mail.WithTLSPolicy(policy), mail.WithDialContextFunc(dial), mail.WithTimeout(never)}
	if e.cfg.TLS != nil {
		options = append(options, mail.WithTLSConfig(e.cfg.TLS))
	}
	if e.cfg.User != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(e.cfg.User), mail.WithPassword(e.cfg.Password))
	}
	return mail.NewClient(e.cfg.Host, options...)
}

// enhanced is the code of RFC 3463 that begins the text, quoted, of a permanent refusal. Not all servers say beforehand that they have it.
var enhanced = regexp.MustCompile(`\b5\d\d[ -]"?(5\.\d{1,3}\.\d{1,3})\b`)

// mailboxCodes are those of RFC 3463 and 7505 that say of an address that it is none, or no more, and that of RFC 6531 for one which not
// all servers can write (5.6.7). Those of senders (5.1.7, 5.1.8),
// systems (5.3), routes (5.4), protocols (5.5) and policies (5.7) are about us, or may be; a full mailbox (5.2.2) is not for good,
// nor one that takes nothing (5.2.1), which Gmail says of one that gets too many mails for now.
var mailboxCodes = []string{"5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10", "5.6.7"}

// refusedMail distinguishes a permanent refusal of this recipient or message, which ofMail may be, from other errors. A refusal of us, our
// sender or our password says nothing about the recipient.
func refusedMail(err error, ofMail bool) error {
	if strings.Contains(err.Error(), "does not support STARTTLS") { // which is no type of error
		return &Failure{Reason: "the mail server does not offer STARTTLS"}
	}
	said, answered := errors.AsType[*textproto.Error](err)
	if !answered {
		return unreached(err)
	}
	code := said.Code
	f := &Failure{Reason: fmt.Sprintf("the mail server responded with %d", code)}
	if !ofMail || code < 500 || code >= 600 {
		return f
	}
	why := ""
	if found := enhanced.FindStringSubmatch(err.Error()); found != nil {
		why = found[1]
	}
	switch {
	case slices.Contains(mailboxCodes, why):
		f.Gone = true
	case strings.HasPrefix(why, "5.6."): // the content
		f.Dead = true
	case code != 530 && code != 535 && code != 538: // the server asks for a password, or another
		f.Doubtful = true
	}
	return f
}

// receiver is an email address whose domain is as it is looked up: not all servers know other letters.
func receiver(address string) string {
	name, domain, found := strings.Cut(address, "@")
	if !found {
		return address
	}
	return name + "@" + notifier.HostName(domain)
}

func (e *Email) text(m *Message) (Text, error) {
	if m.Alert.Stage == notifier.ToConfirm {
		return confirmText(m, e.cfg.Links, e.keys)
	}
	f := factsOf(m, e.cfg.Links)
	f.Unsubscribe = e.cfg.Links.unsubscribe(e.keys, m)
	return f.render()
}

func (e *Email) compose(m *Message) (*mail.Msg, error) {
	text, err := e.text(m)
	if err != nil {
		return nil, err
	}
	msg := mail.NewMsg()
	if err := errors.Join(msg.From(e.cfg.From), msg.To(receiver(m.To))); err != nil {
		return nil, errors.New("an address is not valid in a header") // and is not repeated
	}
	msg.SetMessageIDWithValue(m.ID + "@" + e.domain)
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
