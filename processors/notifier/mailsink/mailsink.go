// Package mailsink is the embedded SMTP server: it keeps the mails that it receives in memory, to be viewed in a
// browser. It must not deliver any.
package mailsink

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

const (
	maxMails     = 100     // number of mails kept, the newest ones
	maxMailBytes = 1 << 20 // maximum size of a mail
)

// Sink is the server, and the handler of its page.
type Sink struct {
	mu    sync.Mutex
	taken []receivedMail
}

// receivedMail is a mail as it is displayed.
type receivedMail struct{ At, To, Subject, Text string }

// Serve accepts mails until the context ends.
func (s *Sink) Serve(ctx context.Context, listener net.Listener) error {
	server := smtp.NewServer(s)
	server.Domain, server.MaxMessageBytes, server.MaxRecipients = "localhost", maxMailBytes, 1
	server.ReadTimeout, server.WriteTimeout = 10*time.Second, 10*time.Second
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Close returns nothing of use
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, smtp.ErrServerClosed) && ctx.Err() == nil {
		return fmt.Errorf("mail sink: %w", err)
	}
	return nil
}

// NewSession implements smtp.Backend.
func (s *Sink) NewSession(*smtp.Conn) (smtp.Session, error) { return &sinkSession{sink: s}, nil }

type sinkSession struct {
	sink *Sink
	to   string
}

func (s *sinkSession) Mail(string, *smtp.MailOptions) error { return nil }
func (s *sinkSession) Reset()                               { s.to = "" }
func (s *sinkSession) Logout() error                        { return nil }

func (s *sinkSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	return nil
}

func (s *sinkSession) Data(body io.Reader) error {
	m, err := readMail(s.to, body)
	if err != nil {
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "the message cannot be parsed"}
	}
	s.sink.mu.Lock()
	defer s.sink.mu.Unlock()
	s.sink.taken = append(s.sink.taken, m)
	s.sink.taken = slices.Clone(s.sink.taken[max(0, len(s.sink.taken)-maxMails):])
	return nil
}

// readMail reads the visible part of a mail: its first part, which is plain text.
func readMail(to string, body io.Reader) (receivedMail, error) {
	read, err := mail.ReadMessage(body)
	if err != nil {
		return receivedMail{}, err
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(read.Header.Get("Subject"))
	if err != nil {
		return receivedMail{}, err
	}
	kind, options, err := mime.ParseMediaType(read.Header.Get("Content-Type"))
	if err != nil {
		return receivedMail{}, err
	}
	text, encoding := read.Body, read.Header.Get("Content-Transfer-Encoding")
	if strings.HasPrefix(kind, "multipart/") {
		part, err := multipart.NewReader(read.Body, options["boundary"]).NextRawPart()
		if err != nil {
			return receivedMail{}, err
		}
		text, encoding = part, part.Header.Get("Content-Transfer-Encoding")
	}
	if strings.EqualFold(encoding, "quoted-printable") {
		text = quotedprintable.NewReader(text)
	}
	plain, err := io.ReadAll(io.LimitReader(text, maxMailBytes))
	return receivedMail{At: read.Header.Get("Date"), To: to, Subject: subject, Text: string(plain)}, err
}

//go:embed outbox.html
var outboxText string

var outboxPage = template.Must(template.New("outbox").Parse(outboxText))

// ServeHTTP shows the received mails, the newest first.
func (s *Sink) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	taken := slices.Clone(s.taken)
	s.mu.Unlock()
	slices.Reverse(taken)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	_ = outboxPage.Execute(w, taken) // the client disconnected
}
