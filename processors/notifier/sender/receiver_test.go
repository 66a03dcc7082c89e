package sender_test

import (
	"net/mail"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"

	"github.com/lienstream/lienstream/processors/notifier/sender"
)

// A mail goes to a domain by the name that all servers know, however the subscriber spelt it.
func TestADomainInOtherLetters(t *testing.T) {
	r := &receiver{}
	server := smtp.NewServer(r)
	listener, port := listen(t)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	email, err := sender.NewEmail(sender.EmailConfig{Host: "127.0.0.1", Port: port, From: "alerts@lien.example", Plain: true}, nil)
	check(t, err)
	message := alert
	message.To = "Ann@Ｂücher.example"
	check(t, email.Send(t.Context(), &message))
	m, err := mail.ReadMessage(strings.NewReader(r.mails()[0]))
	check(t, err)
	to, err := m.Header.AddressList("To")
	check(t, err)
	if len(to) != 1 || to[0].Address != "Ann@xn--bcher-kva.example" {
		t.Errorf("to %v", to)
	}
}
