package mailsink_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/lienstream/lienstream/processors/notifier/mailsink"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The page shows the last hundred mails, the newest first, each as it was written, and runs nothing that is in one.
func TestOutbox(t *testing.T) {
	browser := apitest.Browser(t)
	sink := new(mailsink.Sink)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sink.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	server := httptest.NewServer(sink)
	t.Cleanup(server.Close)
	apitest.Legible(t, browser, "outbox-empty", server.URL)

	email, err := sender.NewEmail(sender.EmailConfig{
		Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, From: "alerts@lien.example", Plain: true,
	}, nil)
	check(t, err)
	for i := range 102 {
		check(t, email.Write(t.Context(), "ann@example.com", fmt.Sprintf("Subject %d: 90 %% of ä", i), "<script>document.title = 'run'</script>\n"+strings.Repeat("long", 100)))
	}
	apitest.Legible(t, browser, "outbox", server.URL)
	var subjects []string
	var text, title string
	apitest.Drive(t, browser, "read", chromedp.Evaluate(`[...document.querySelectorAll("h2")].map(e => e.textContent)`, &subjects),
		chromedp.Evaluate(`document.querySelector("article").innerText`, &text), chromedp.Title(&title))
	if len(subjects) != 100 || subjects[0] != "Subject 101: 90 % of ä" || subjects[99] != "Subject 2: 90 % of ä" {
		t.Errorf("%d mails, from %q to %q", len(subjects), subjects[0], subjects[len(subjects)-1])
	}
	if title != "Outbox" || !strings.Contains(text, "to ann@example.com, ") || !strings.Contains(text, "<script>document.title") {
		t.Errorf("%q shows %q", title, text)
	}
}
