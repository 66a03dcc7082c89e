package sender_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/topics/certtest"
)

func listen(t *testing.T) (listener net.Listener, port int) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener, listener.Addr().(*net.TCPAddr).Port
}

// guarded is a receiver that accepts mails only with the password.
type guarded struct {
	*receiver
	tried atomic.Int32 // passwords
}

type guardedSession struct {
	session
	g  *guarded
	in bool
}

func (g *guarded) NewSession(*smtp.Conn) (smtp.Session, error) {
	return &guardedSession{session: session{r: g.receiver}, g: g}, nil
}

func (s *guardedSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *guardedSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		s.g.tried.Add(1)
		if s.in = user == "lien" && password == "open sesame"; !s.in {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}

func (s *guardedSession) Mail(from string, options *smtp.MailOptions) error {
	if !s.in {
		return smtp.ErrAuthRequired
	}
	return s.session.Mail(from, options)
}

var alert = sender.Message{
	ID: "1", To: "ann@example.com", Channel: notifier.Email,
	Alert: notifier.Alert{Deal: &notifier.Deal{ID: "7", Cap: "1"}},
}

// A password and a mail go over TLS only, to a server whose certificate is good; a refusal of us does not count against
// an address.
func TestEmailIsEncrypted(t *testing.T) {
	cert, file, _ := certtest.New(t)
	text, err := os.ReadFile(file)
	check(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	trusted := &tls.Config{ServerName: "localhost", RootCAs: roots, MinVersion: tls.VersionTLS12}
	for _, c := range []struct {
		name     string
		offered  *tls.Config // by the server
		client   *tls.Config
		password string
		reason   string // of the refusal
		tried    int32
	}{
		{name: "all is well", offered: &tls.Config{Certificates: []tls.Certificate{cert}}, client: trusted, password: "open sesame", tried: 1},
		{name: "a wrong password", offered: &tls.Config{Certificates: []tls.Certificate{cert}}, client: trusted, password: "open barley", reason: "the mail server responded with 535", tried: 1},
		{name: "no STARTTLS", client: trusted, password: "open sesame", reason: "the mail server does not offer STARTTLS"},
		{name: "a certificate of a stranger", offered: &tls.Config{Certificates: []tls.Certificate{cert}}, client: &tls.Config{ServerName: "localhost"}, password: "open sesame", reason: "the server's certificate is not valid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &guarded{receiver: &receiver{}}
			server := smtp.NewServer(g)
			server.TLSConfig, server.AllowInsecureAuth = c.offered, true
			listener, port := listen(t)
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(func() { _ = server.Close() })
			email, err := sender.NewEmail(sender.EmailConfig{
				Host: "127.0.0.1", Port: port, User: "lien", Password: c.password, From: "alerts@lien.example", TLS: c.client,
			}, nil)
			check(t, err)
			err = email.Send(t.Context(), &alert)
			if c.reason == "" {
				check(t, err)
				if n := len(g.mails()); n != 1 || g.tried.Load() != 1 {
					t.Errorf("%d mails, %d passwords", n, g.tried.Load())
				}
				return
			}
			failure, ok := errors.AsType[*sender.Failure](err)
			if !ok || failure.Reason != c.reason || failure.Dead || failure.Gone {
				t.Errorf("%+v, want %q", failure, c.reason)
			}
			if n := len(g.mails()); n != 0 || g.tried.Load() != c.tried {
				t.Errorf("%d mails, %d passwords", n, g.tried.Load())
			}
		})
	}
}

// A mail server that is silent at any point costs an attempt its time and no more, and its connection is closed.
func TestSilentMailServer(t *testing.T) {
	for _, last := range []string{"", "EHLO", "MAIL", "RCPT", "DATA", "."} {
		t.Run("after "+last, func(t *testing.T) {
			listener, port := listen(t)
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				talk(listener, func(command string) string {
					if command == last {
						return "" // and waits
					}
					return replies[command]
				})
			}()
			email, err := sender.NewEmail(sender.EmailConfig{Host: "127.0.0.1", Port: port, From: "alerts@lien.example", Plain: true}, nil)
			check(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			sent := make(chan error, 1)
			go func() { sent <- email.Send(ctx, &alert) }()
			select {
			case err = <-sent:
			case <-time.After(10 * time.Second):
				t.Fatal("it waits for ever")
			}
			failure, ok := errors.AsType[*sender.Failure](err)
			if !ok || failure.Reason != "the server did not respond in time" || failure.Dead || failure.Gone {
				t.Errorf("%+v after %s", failure, time.Since(began))
			}
			select {
			case <-closed:
			case <-time.After(10 * time.Second):
				t.Error("the connection is still open")
			}
		})
	}
}

// What the server has taken was sent, however the connection ends: the result does not wait for that, and the mail is
// not sent again.
func TestAMailServerThatSaysNoFarewell(t *testing.T) {
	t.Parallel()
	for name, farewell := range map[string]string{"hangs up": "hang up", "is silent": "", "refuses": "500 no"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, port := listen(t)
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				talk(listener, func(command string) string {
					if command == "QUIT" {
						return farewell
					}
					return replies[command]
				})
			}()
			email, err := sender.NewEmail(sender.EmailConfig{Host: "127.0.0.1", Port: port, From: "alerts@lien.example", Plain: true}, nil)
			check(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			if err := email.Send(ctx, &alert); err != nil {
				t.Error(err)
			}
			select {
			case <-closed:
			case <-time.After(30 * time.Second):
				t.Errorf("the connection is still open after %s", time.Since(began))
			}
		})
	}
}

// replies are those of a mail server, to each command, to the connection and to the end of a mail.
var replies = map[string]string{
	"": "220 here", "EHLO": "250 here", "MAIL": "250 yes", "RCPT": "250 yes", "DATA": "354 go on", ".": "250 taken", "QUIT": "221 bye",
}

// talk is a mail server for one connection, until that is closed.
func talk(listener net.Listener, reply func(command string) string) {
	conn, err := listener.Accept()
	if err != nil {
		return
	}
	converse(conn, reply)
}

// converse is a mail server's side of a connection.
func converse(conn net.Conn, reply func(command string) string) {
	defer func() { _ = conn.Close() }()
	read := bufio.NewReader(conn)
	for command := ""; ; {
		switch said := reply(command); said {
		case "":
			_, _ = io.Copy(io.Discard, read)
			return
		case "hang up":
			return
		default:
			if _, err := io.WriteString(conn, said+"\r\n"); err != nil {
				return
			}
		}
		mail := command == "DATA"
		for {
			line, err := read.ReadString('\n')
			if err != nil {
				return
			}
			command = strings.TrimSpace(line)
			if !mail {
				command, _, _ = strings.Cut(command, " ")
				break
			}
			if command == "." {
				break
			}
		}
	}
}

// A refusal ends a subscription at once where its code says that the address is none. The code of a mailbox that takes
// nothing (5.2.1) Gmail also gives while a mailbox is flooded.
func TestRefusedRecipients(t *testing.T) {
	for said, want := range map[string]sender.Failure{
		"550-5.2.1 The user you are trying to contact is receiving mail at a rate that\r\n550-5.2.1 prevents additional messages from being delivered.\r\n550 5.2.1 gsmtp": {Doubtful: true},
		"550 5.2.1 The email account that you tried to reach is disabled":                                                                                                  {Doubtful: true},
		"550-5.1.1 The email account that you tried to reach does not exist.\r\n550 5.1.1 gsmtp":                                                                           {Gone: true},
		"553 5.6.7 Must declare SMTPUTF8 to permit unicode address":                                                                                                        {Gone: true},
		"552 5.2.2 The email account that you tried to reach is over quota":                                                                                                {Doubtful: true},
	} {
		listener, port := listen(t)
		go talk(listener, func(command string) string {
			if command == "RCPT" {
				return said
			}
			return replies[command]
		})
		email, err := sender.NewEmail(sender.EmailConfig{Host: "127.0.0.1", Port: port, From: "alerts@lien.example", Plain: true}, nil)
		check(t, err)
		failure, ok := errors.AsType[*sender.Failure](email.Send(t.Context(), &alert))
		if !ok || failure.Gone != want.Gone || failure.Doubtful != want.Doubtful || failure.Dead {
			t.Errorf("%q: %+v", said, failure)
		}
	}
}
