package sender_test

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
)

// receiver is a mail server that keeps what it takes, and refuses what it is told to.
type receiver struct {
	mu     sync.Mutex
	taken  []string
	refuse map[string]*smtp.SMTPError // by receiver, once each
	gone   string
}

type session struct {
	r  *receiver
	to string
}

func (r *receiver) NewSession(*smtp.Conn) (smtp.Session, error) { return &session{r: r}, nil }

func (s *session) Mail(string, *smtp.MailOptions) error { return nil }
func (s *session) Reset()                               {}
func (s *session) Logout() error                        { return nil }

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if err := s.r.refuse[to]; err != nil {
		delete(s.r.refuse, to)
		return err
	}
	if to == s.r.gone {
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user " + to}
	}
	return nil
}

func (s *session) Data(body io.Reader) error {
	raw, err := io.ReadAll(body)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.taken = append(s.r.taken, string(raw))
	return err
}

func (r *receiver) mails() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.taken...)
}

// An alert reaches a real mail server once, in spite of a refusal that passes; an address that is gone is told no more.
func TestEmail(t *testing.T) {
	r := &receiver{refuse: map[string]*smtp.SMTPError{
		"ann@example.com": {Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "later"},
	}, gone: "bob@example.com"}
	server := smtp.NewServer(r)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })

	h := newHouse(t, sender.DefaultConfig(), func(keys *notifier.Keys) map[notifier.Channel]sender.Channel {
		email, err := sender.NewEmail(sender.EmailConfig{
			Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, From: "Lien alerts <alerts@lien.example>", Plain: true, Links: links,
		}, keys)
		check(t, err)
		return map[notifier.Channel]sender.Channel{notifier.Email: email}
	})
	ann, bob := common.Address{1}, common.Address{2}
	h.subscribe(ann, notifier.Email, "ann@example.com", "m")
	h.subscribe(bob, notifier.Email, "bob@example.com", "m")
	h.fire(ann, bob)
	h.settled(1)
	mails := r.mails()
	if len(mails) != 1 {
		t.Fatalf("%d mails, want 1", len(mails))
	}
	got, err := mail.ReadMessage(strings.NewReader(mails[0]))
	check(t, err)
	for name, want := range map[string]string{
		"To":                    "<ann@example.com>",
		"From":                  `"Lien alerts" <alerts@lien.example>`,
		"Subject":               "Deal 7 expires in 6 hours",
		"Message-Id":            "<" + alertID(ann, "email") + "@lien.example>",
		"List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
	} {
		if is := got.Header.Get(name); is != want {
			t.Errorf("%s: %q, want %q", name, is, want)
		}
	}
	letters, err := sender.NewEmail(sender.EmailConfig{
		Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, From: "alerts@lien.example", Plain: true,
	}, nil)
	check(t, err)
	check(t, letters.Write(t.Context(), "cleo@example.com", "An answer", "There is one."))
	if mails := r.mails(); len(mails) != 2 || !strings.Contains(mails[1], "There is one.") || !strings.Contains(mails[1], "<cleo@example.com>") {
		t.Errorf("the letter: %q", mails)
	}
	if err := letters.Write(t.Context(), "cleo@example.com\r\nBcc: x@example.com", "x", "y"); err == nil || strings.Contains(err.Error(), "Bcc") {
		t.Errorf("a line feed in an address: %v", err)
	}
	subs, err := h.client.Subscriptions(t.Context(), ann)
	check(t, err)
	if link := got.Header.Get("List-Unsubscribe"); !strings.Contains(strings.ReplaceAll(link, " ", ""), h.keys.Link(ann, notifier.Email, subs[0].CreatedAt, "ann@example.com")) {
		t.Errorf("List-Unsubscribe: %q", link)
	}
	body, err := io.ReadAll(got.Body)
	check(t, err)
	if !bytes.Contains(body, []byte("Repay 1234.5 USDG before the grace period ends")) || !bytes.Contains(body, []byte("https://app.example/deals/7")) {
		t.Errorf("body: %s", body)
	}
	if why := h.disabled(bob); why != "the mail server responded with 550" {
		t.Errorf("the address that is gone: %q", why)
	}
}

// A server that refuses us, for any recipient, ends no subscription.
func TestAMailServerRefusesUs(t *testing.T) {
	t.Parallel()
	refusals := map[string]*smtp.SMTPError{
		"ann@example.com":  {Code: 554, EnhancedCode: smtp.EnhancedCode{5, 7, 1}, Message: "Relay access denied"},
		"bob@example.com":  {Code: 550, EnhancedCode: smtp.EnhancedCode{5, 7, 1}, Message: "Sending has been suspended for this account"},
		"cleo@example.com": {Code: 530, EnhancedCode: smtp.EnhancedCode{5, 7, 0}, Message: "Authentication required"},
		"dora@example.com": {Code: 550, EnhancedCode: smtp.NoEnhancedCode, Message: "not here"},
	}
	r := &receiver{refuse: maps.Clone(refusals)}
	server := smtp.NewServer(r)
	listener, port := listen(t)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	h := newHouse(t, sender.DefaultConfig(), func(keys *notifier.Keys) map[notifier.Channel]sender.Channel {
		email, err := sender.NewEmail(sender.EmailConfig{Host: "127.0.0.1", Port: port, From: "alerts@lien.example", Plain: true, Links: links}, keys)
		check(t, err)
		return map[notifier.Channel]sender.Channel{notifier.Email: email}
	})
	var wallets []common.Address
	for address := range refusals {
		wallet := common.Address{address[0]}
		wallets = append(wallets, wallet)
		h.subscribe(wallet, notifier.Email, address, "m")
	}
	h.fire(wallets...)
	h.settled(len(wallets))
	for _, wallet := range wallets {
		if why := h.disabled(wallet); why != "" {
			t.Errorf("the subscription of %c is disabled: %s", wallet[0], why)
		}
	}
	if n := h.gauge("lienstream_sender_doubtful_refusals_total", "channel", "email"); n != 3 {
		t.Errorf("%v refusals may be of us, want all but that without a password", n)
	}
	if h.logged.FilterMessageSnippet("may refuse all of ours").Len() == 0 {
		t.Error("the operator is not told")
	}
}
