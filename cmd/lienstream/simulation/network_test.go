package simulation

import (
	"cmp"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// What is on its way over a WebSocket when a system ends arrives before the time stands.
func TestEndsWithDataInFlight(t *testing.T) {
	rec, _ := judge(t)
	inBubble(t, func(t *testing.T) {
		s, err := newSystem(t.Context(), rec, 1, size{1, fewPartitions}, &story{})
		if err != nil {
			t.Fatal(err)
		}
		dialer := websocket.Dialer{NetDialContext: s.net.dialer("client")}
		ws, answer, err := dialer.DialContext(t.Context(), "ws://chain:8545", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		s.net.slow("client", time.Hour)
		if err := ws.WriteMessage(websocket.TextMessage, []byte(`{"id":1,"method":"eth_chainId"}`)); err != nil {
			t.Fatal(err)
		}
		if err := ws.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// The end of who sent arrives when a partition heals. Until then nobody is busy, else time would stand.
func TestEndsAfterPartition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := newNetwork(1, latency)
		l, err := n.listen("there:1")
		if err != nil {
			t.Fatal(err)
		}
		from, err := n.dialer("here")(t.Context(), "tcp", "there:1")
		if err != nil {
			t.Fatal(err)
		}
		to, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		n.block("here", "there", true)
		if err := cmp.Or(from.Close(), to.SetReadDeadline(time.Now().Add(time.Second))); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := to.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v, want a timeout after a second", err, time.Since(began))
		}
		time.AfterFunc(time.Hour, func() { n.block("here", "there", false) })
		if err := to.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(began) != time.Second+time.Hour {
			t.Errorf("%v after %v, want the end after an hour and a second", err, time.Since(began))
		}
	})
}
