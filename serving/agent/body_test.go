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
			if status := sendRaw(t, server.Listener.Addr().String(), path, rest); status != http.StatusBadRequest {
				t.Errorf("%s %q: %d", path, rest, status)
			}
		}
	}
	for _, l := range w.logs.All() {
		if l.Message == "request failed" {
			t.Errorf("logged: %v", l.ContextMap())
		}
	}
}

// sendRaw posts the rest of a request, headers and body, and sends no more. It returns the status.
func sendRaw(t *testing.T, addr, path, rest string) int {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%s", path, rest); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
