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

// Dial opens a connection to a server.
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
	if m.Alert.Stage == notifier.ToConfirm { // the link ends the request
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
	answerTime = 10 * time.Minute // maximum wait for the answer of a server that has got the mail
	byeTime    = 5 * time.Second  // bounds the end of a session
	never      = time.Hour        // longer than a connection may be open
)

// deliver sends a mail. Once the server has got it, written returns the context for waiting for the answer: a server
// may take minutes to accept a mail, so RFC 5321 4.5.3.2.6 grants ten, and a client that gives up earlier sends the
// mail again. For the same reason nothing is awaited after that answer.
func (e *Email) deliver(ctx context.Context, msg *mail.Msg, written func() context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, mailTime)
	defer cancel()
	open := ctx // the connection is closed when it is done
	var conn net.Conn
	hangUp := func() { _ = conn.Close() }
	kept := func() bool { return false } // stops closing the connection
	client, err := e.client(func(connecting context.Context, network, address string) (net.Conn, error) {
		connect := e.cfg.Dial
		if connect == nil {
			connect = new(net.Dialer).DialContext //nolint:forbidigo // the default
		}
		// The client obeys its context while it connects, but not when it waits for an answer.
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
			return unreached(context.DeadlineExceeded) // the reason why the connection was closed
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
		open = written() //nolint:contextcheck // the context of the waiting for the answer
		kept = context.AfterFunc(open, hangUp)
	}
	if err := body.Close(); err != nil {
		return failed(err, true)
	}
	return nil
}

// client makes an SMTP client for a session.
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

// enhanced matches the code of RFC 3463 at the beginning of the quoted text of a permanent refusal. Not all servers
// announce the extension.
var enhanced = regexp.MustCompile(`\b5\d\d[ -]"?(5\.\d{1,3}\.\d{1,3})\b`)

// mailboxCodes are the codes of RFC 3463 and 7505 for an address that does not exist, or no longer does, and that of
// RFC 6531 for one that not all servers can write (5.6.7). The codes of senders (5.1.7, 5.1.8), systems (5.3), routes
// (5.4), protocols (5.5) and policies (5.7) may concern us. A full mailbox (5.2.2) is not permanent, nor is a disabled
// one (5.2.1): Gmail uses that for a mailbox that gets too many mails for now.
var mailboxCodes = []string{"5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10", "5.6.7"}

// refusedMail distinguishes a permanent refusal of this recipient or message from other errors; ofMail: it may be one.
// A refusal of us, our sender or our password does not concern the recipient.
func refusedMail(err error, ofMail bool) error {
	if strings.Contains(err.Error(), "does not support STARTTLS") { // the library has no type for this error
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
	case code != 530 && code != 535 && code != 538: // otherwise the server asks for a password, or rejects ours
		f.Doubtful = true
	}
	return f
}

// receiver is an email address with its domain in ASCII form: not all servers accept other letters.
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
