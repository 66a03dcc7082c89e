package simulation

import (
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
