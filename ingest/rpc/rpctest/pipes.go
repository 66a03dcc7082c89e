package rpctest

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"
)

// Pipes serves nodes by the name of their host, at http://NAME, until the test ends. It returns what dials them: connections within this
// process, so that the time of a bubble goes on.
func Pipes(t testing.TB, nodes map[string]http.Handler) (dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	t.Helper()
	servers := map[string]pipes{}
	for name, n := range nodes {
		l := pipes{make(chan net.Conn), make(chan struct{})}
		servers[name+":80"] = l
		s := &http.Server{Handler: n, ReadHeaderTimeout: time.Minute}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() {
			close(l.done)
			_ = s.Close()
		})
	}
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		here, there := net.Pipe()
		select {
		case servers[addr].conns <- there:
			return here, nil
		case <-servers[addr].done: // a connection that nobody waits for any more
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// pipes is a listener.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }
