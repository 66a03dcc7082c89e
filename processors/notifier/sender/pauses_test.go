package sender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lienstream/lienstream/processors/notifier"
)

// A chat that gets too much is left alone for as long as Telegram asks for, and others are not.
func TestAChatIsLeftAlone(t *testing.T) {
	var asked, busy atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.FormValue("chat_id") == "1" {
			busy.Add(1)
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 900","parameters":{"retry_after":900}}`)
			return
		}
		_, _ = io.WriteString(w, `{"ok":true,"result":{"message_id":1,"date":1,"chat":{"id":1,"type":"private"}}}`)
	}))
	t.Cleanup(api.Close)
	keys, err := notifier.ParseKeys("1:0000000000000000000000000000000000000000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	bot, err := NewTelegram(TelegramConfig{Token: "1:token", URL: api.URL}, keys)
	if err != nil {
		t.Fatal(err)
	}
	send := func(chat int) error {
		m := samples()[0].m
		m.Channel, m.To = notifier.Telegram, fmt.Sprint(chat)
		return bot.Send(t.Context(), &m)
	}
	for i := range 3 {
		f, ok := errors.AsType[*Failure](send(1))
		if !ok || f.After < 890*time.Second || f.Dead || f.Gone || f.Unasked != (i > 0) {
			t.Errorf("failure %+v", f)
		}
	}
	if n := busy.Load(); n != 1 {
		t.Errorf("it is asked %d times", n)
	}
	if err := send(2); err != nil || asked.Load() != 2 {
		t.Errorf("the other chat: %v, asked %d times", err, asked.Load())
	}
	if err := bot.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// Where it is of all chats, all wait, but for a minute at most; one that takes a message shows that it is not.
func TestABotThatSendsTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pauses
		waits := func() time.Duration {
			began := time.Now()
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		for chat := range int64(10) {
			p.refused(chat%2, 40*time.Second, time.Now())
			p.refused(9, 40*time.Second, time.Now())
			if p.taken(); waits() != 0 {
				t.Fatal("all wait for two chats")
			}
		}
		for chat := range int64(botRow) {
			p.refused(chat, 40*time.Second, time.Now())
		}
		if d := waits(); d != 40*time.Second {
			t.Errorf("all wait %s", d)
		}
		if d := p.left(1, time.Now()); d > 0 {
			t.Errorf("a chat waits %s more", d)
		}
		for chat := range int64(botRow) {
			p.refused(chat, 40*time.Hour, time.Now())
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if p.wait(over) == nil {
			t.Error("a stop waits for Telegram")
		}
		if d := waits(); d != maxPause {
			t.Errorf("all wait %s", d)
		}
	})
}
