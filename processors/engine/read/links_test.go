package read

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

// briefly is a remote that asks a node for a brief read, and the request.
func briefly(t *testing.T, addr string) (*remote, *nodeRequest) {
	op := toy(nil).Operations[0].Brief()
	to := &remote{addr: addr, client: http.DefaultClient, dial: inTime(nil), timeout: time.Minute, token: "0123456789abcdef"}
	t.Cleanup(to.links.close)
	return to, &nodeRequest{Application: "toy", Operation: op.name, Partitions: []int32{0}, op: op, query: &page{Limit: 1}}
}

// Who waits over an upgraded connection for a node that is frozen gives up with its context, and the connection is not used again.
func TestAFrozenLinkIsGivenUp(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	asked := make(chan bool)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(asked)
				return
			}
			defer func() { _ = c.Close() }() // when the test ends
			in := bufio.NewReader(c)
			r, err := http.ReadRequest(in)
			token := err == nil && r.Header.Get("Authorization") == "Bearer 0123456789abcdef"
			_, _ = c.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lienstream-read\r\n\r\n"))
			_, err = readFrame(in, nil, maxBriefBytes)
			asked <- token && err == nil
		}
	}()
	to, request := briefly(t, l.Addr().String())
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { _, err := to.ask(ctx, request); done <- err }()
		if !<-asked {
			t.Fatal("no request comes, or no token")
		}
		cancel()
		if err := <-done; !errors.Is(err, ErrUnavailable) {
			t.Errorf("after it was given up: %v", err)
		}
	}
}

// What a node lacks is told alike over an upgraded connection and by HTTP. Connections end with the node, and then HTTP says so.
func TestLinksEndWithTheNode(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	h := NewHandler(ctx, zap.NewNop(), Served{&marked{}, toy(nil)})
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		if r.Method == http.MethodGet {
			ended <- struct{}{}
		}
	})}
	go func() { _ = server.Serve(l) }()
	defer func() { _ = server.Close() }()
	to, request := briefly(t, l.Addr().String())
	lacks := func() {
		t.Helper()
		_, err := to.ask(t.Context(), request)
		if lacking, ok := errors.AsType[*lackingError](err); !ok || lacking.partition != 0 || !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "503") {
			t.Fatalf("partition 0 is not there, but: %v", err)
		}
	}
	lacks()
	lacks()
	if n := len(to.links.idle); n != 1 {
		t.Fatalf("%d connections for one read after the other", n)
	}
	end()
	<-ended
	go func() { <-ended }() // who asks for an upgrade now is refused
	lacks()
	if _, err := to.links.take(); !errors.Is(err, errPlain) {
		t.Errorf("a node that ends is asked to upgrade: %v", err)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 6, 0, 200, 255, 255, 255, 255})
	f.Add([]byte{0, 1, 0, 1, 0, 200, 255, 255, 255, 255})
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := readFrame(bufio.NewReader(bytes.NewReader(b)), nil, outcomeBytes+maxAnswerBytes)
		if err != nil {
			return
		}
		if len(frame) > len(b)-lengthBytes || cap(frame) > max(2*len(b), maxBriefBytes) {
			t.Fatalf("%d bytes in memory of %d, out of %d", len(frame), cap(frame), len(b))
		}
		if a, err := (&remote{}).outcome(frame); err == nil && a == nil {
			t.Fatal("neither a response nor an error")
		}
	})
}
