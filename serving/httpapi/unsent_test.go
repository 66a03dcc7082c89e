package httpapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics/polltest"
)

// narrow is a listener whose connections have small buffers in the kernel: what is not read stays in the process.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		err = conn.(*net.TCPConn).SetWriteBuffer(64 << 10)
	}
	return conn, err
}

const large = 1 << 20

// serveLarge serves /large/{n}, each with a body of its own, /cached, with one for all, and /stream, which sends as much over and over.
func serveLarge(t *testing.T, change func(*Config)) (a *API, addr string) {
	t.Helper()
	cfg := DefaultConfig("127.0.0.1:0")
	cfg.Client.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	cfg.Client.MaxUnsentBytes, cfg.MaxUnsentBytes = 8*large, 24*large
	cfg.Listener = func(ctx context.Context, network, addr string) (net.Listener, error) {
		l, err := new(net.ListenConfig).Listen(ctx, network, addr)
		return narrow{l}, err
	}
	change(&cfg)
	a = New(cfg, Options{
		Service: "test", Logger: zap.NewNop(), Registerer: prometheus.NewRegistry(),
		Routes: []Route{{Method: http.MethodGet, Path: "/large/{n}", Handle: func(_ context.Context, _ *Request, res *Response) error {
			res.Body = append(res.Body, make([]byte, large)...)
			return nil
		}}, {Method: http.MethodGet, Path: "/cached", Handle: func(_ context.Context, _ *Request, res *Response) error {
			res.Body, res.FreshWhile = append(res.Body, make([]byte, large)...), func() bool { return true }
			return nil
		}}, {Method: http.MethodGet, Path: "/stream", Handle: func(_ context.Context, _ *Request, res *Response) error {
			res.Stream = func(s *Stream) {
				for s.Send(make([]byte, large)) == nil {
				}
				_ = s.Send([]byte("dropped"))
			}
			return nil
		}}},
	})
	server := NewServer(cfg, a, zap.NewNop())
	ctx, stop := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return server.Run(ctx) })
	t.Cleanup(func() {
		stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return a, server.Addr()
}

// askOnly asks as a client, and reads no more of the answer than its status.
func askOnly(t *testing.T, addr, from, path string) (status string, conn net.Conn) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	line := make([]byte, len("HTTP/1.1 200"))
	if _, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: %s\r\n\r\n", path, from); err == nil {
		_, err = io.ReadFull(conn, line)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(line[len("HTTP/1.1 "):]), conn
}

// TestClientThatDoesNotRead: what clients do not take is bounded for each and in all, and others are answered.
func TestClientThatDoesNotRead(t *testing.T) {
	for _, path := range []string{"/large/%d", "/stream"} {
		t.Run(strings.Trim(path, "/%d"), func(t *testing.T) {
			a, addr := serveLarge(t, func(c *Config) { c.Client.MaxStreams = 64 })
			target := func(i int) string { return strings.ReplaceAll(path, "%d", fmt.Sprint(i)) }
			heap := func() int64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			before := heap()
			met := map[string]int{}
			ask := func(from string, n int) {
				for i := range n {
					status, _ := askOnly(t, addr, from, target(i))
					met[status]++
				}
			}
			ask("192.0.2.1", 60)
			if grown := heap() - before; grown > 16*large {
				t.Errorf("a client that reads nothing takes %d MiB", grown/large)
			}
			if status, conn := askOnly(t, addr, "192.0.2.2", target(0)); status != "200" {
				t.Errorf("another client: %s", status)
			} else if n, err := io.CopyN(io.Discard, conn, large); err != nil {
				t.Errorf("another client: %v after %d bytes", err, n)
			}
			for from := range 6 {
				ask(fmt.Sprintf("198.51.100.%d", from), 8)
			}
			if grown := heap() - before; grown > 40*large {
				t.Errorf("clients that read nothing take %d MiB", grown/large)
			}
			if n := a.unsent.all.Load(); n > 24*large {
				t.Errorf("%d bytes are unsent", n)
			}
			if testutil.ToFloat64(a.metrics.unread) == 0 {
				t.Error("nobody is counted who was refused or ended")
			}
			if path != "/stream" && (met["429"] < 50 || met["503"] < 20 || met["200"]+met["429"]+met["503"] != 60+6*8) {
				t.Errorf("answers: %v", met)
			}
		})
	}
}

// TestUnsentIsGivenBack: what was read, or whose client has left, counts no more; an answer beyond the bound is sent alone.
func TestUnsentIsGivenBack(t *testing.T) {
	a, addr := serveLarge(t, func(c *Config) { c.Client.MaxUnsentBytes = large / 2 })
	status, conn := askOnly(t, addr, "192.0.2.1", "/large/1")
	if status != "200" {
		t.Fatalf("alone: %s", status)
	}
	if status, _ := askOnly(t, addr, "192.0.2.1", "/large/2"); status != "429" {
		t.Errorf("beside another: %s", status)
	}
	if _, err := io.CopyN(io.Discard, conn, large); err != nil {
		t.Fatal(err)
	}
	nothing := func() bool { return a.unsent.all.Load() == 0 }
	polltest.Until(t, "the answer is sent", nothing)
	status, conn = askOnly(t, addr, "192.0.2.1", "/large/3")
	if status != "200" {
		t.Errorf("after it was read: %s", status)
	}
	_ = conn.Close()
	polltest.Until(t, "the client is gone", nothing)
	if status, _ = askOnly(t, addr, "192.0.2.1", "/large/4"); status != "200" {
		t.Errorf("after it has left: %s", status)
	}
}

// TestCachedAnswerCountsOnce: what is in memory once for all readers counts once in the bound of all, and for each in its own.
func TestCachedAnswerCountsOnce(t *testing.T) {
	a, addr := serveLarge(t, func(*Config) {})
	var conns []net.Conn
	for from := range 6 {
		for range 7 {
			status, conn := askOnly(t, addr, fmt.Sprintf("10.%d.0.1", from), "/cached")
			if conns = append(conns, conn); status != "200" {
				t.Fatalf("request %d: %s", len(conns), status)
			}
		}
	}
	if n := a.unsent.all.Load(); n != large {
		t.Errorf("%d bytes count for all, one answer has %d", n, large)
	}
	for _, want := range []string{"200", "429"} {
		status, conn := askOnly(t, addr, "10.0.0.1", "/cached")
		if conns = append(conns, conn); status != want {
			t.Errorf("a client that has read nothing of seven or eight: %s, want %s", status, want)
		}
	}
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	polltest.Until(t, "nothing of those who are gone counts", func() bool { return a.unsent.all.Load() == 0 })
}
