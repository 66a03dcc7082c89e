package agent

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestABodyThatIsBroken: a body that ends early or is no chunks is the caller's fault, not ours.
func TestABodyThatIsBroken(t *testing.T) {
	w, _, _ := listed(t)
	server := httptest.NewServer(w.agent)
	defer server.Close()
	for _, path := range []string{prepareRoute, mcpRoute} {
		for _, rest := range []string{
			"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
			"Content-Length: 100\r\n\r\n{",
		} {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%s", path, rest)
			_ = conn.(*net.TCPConn).CloseWrite()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Log(path, rest, err)
				continue
			}
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s %q: %d", path, rest, resp.StatusCode)
			}
			_ = conn.Close()
		}
	}
	for _, l := range w.logs.All() {
		if l.Message == "request failed" {
			t.Errorf("logged: %v", l.ContextMap())
		}
	}
}
