package simulation

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/ethereum/go-ethereum/common"
	"github.com/gorilla/websocket"
)

// serveWS answers requests over a WebSocket, and tells of new heads, until the other end is gone or sends nothing.
func (n *node) serveWS(w http.ResponseWriter, r *http.Request) {
	ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		return // it has answered
	}
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.heads, ws)
		_ = ws.Close()
	}()
	for {
		_, body, err := ws.ReadMessage()
		if err != nil || len(body) == 0 || !n.reply(ws, body) {
			return
		}
	}
}

// reply answers a request. False: the other end is gone.
func (n *node) reply(ws *websocket.Conn, body []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	var q rpcRequest
	if json.Unmarshal(body, &q) == nil && q.Method == "eth_subscribe" {
		n.heads[ws] = true
		return ws.WriteMessage(websocket.TextMessage, rpcReply{ID: q.ID, Result: subscription}.append(nil)) == nil
	}
	return ws.WriteMessage(websocket.TextMessage, n.answerAll(body)) == nil
}

const subscription = "0x1"

// tell sends new heads to whoever has subscribed. The lock is held: a write never blocks here.
func (n *node) tell(added []common.Hash) {
	for ws := range n.heads {
		for _, h := range added {
			// Who is gone is forgotten by its reader.
			_ = ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":%q,"result":%s}}`, subscription, n.rec.blocks[h].json))
		}
	}
}
