package httpapi

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// TestStream: a stream outlives the timeouts of a request, is no request in flight, and is one of few.
func TestStream(t *testing.T) {
	cfg := DefaultConfig("127.0.0.1:0")
	cfg.ReadTimeout, cfg.RequestTimeout, cfg.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond
	cfg.MaxInFlight, cfg.MaxStreams = 1, 1
	pieces, ended := make(chan string), make(chan error, 1)
	a := New(cfg, Options{
		Service: "test", Logger: zap.NewNop(), Registerer: prometheus.NewRegistry(),
		Routes: []Route{{Method: http.MethodGet, Path: "/stream", Handle: func(_ context.Context, _ *Request, res *Response) error {
			res.SetHeader("Content-Type", "text/event-stream")
			res.Stream = func(s *Stream) {
				for {
					select {
					case p := <-pieces:
						if err := s.Send([]byte(p)); err != nil {
							t.Error(err)
						}
					case <-s.Context.Done():
						ended <- s.Context.Err()
						return
					}
				}
			}
			return nil
		}}},
	})
	server := NewServer(cfg, a, zap.NewNop())
	ctx, stop := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error { return server.Run(ctx) })
	defer func() {
		stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}()
	get := func(ctx context.Context) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server.Addr()+"/stream", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	own, leave := context.WithCancel(t.Context())
	defer leave()
	go func() { pieces <- "first\n" }()
	resp := get(own)
	defer func() { _ = resp.Body.Close() }()
	if h := resp.Header; resp.StatusCode != 200 || h.Get("ETag") != "" || h.Get("X-Request-Id") == "" || h.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %v", resp.StatusCode, h)
	}
	lines := bufio.NewReader(resp.Body)
	for began := time.Now(); time.Since(began) < 4*cfg.ReadTimeout; { // past every timeout of a request
		if line, err := lines.ReadString('\n'); err != nil || line != "first\n" {
			t.Fatalf("%q %v", line, err)
		}
		pieces <- "first\n"
	}
	second := get(t.Context())
	body, err := io.ReadAll(second.Body)
	if second.StatusCode != 503 || !strings.Contains(string(body), "too many streams") || second.Header.Get("Retry-After") == "" || err != nil {
		t.Errorf("a second stream: %d %s %v", second.StatusCode, body, err)
	}
	_ = second.Body.Close()
	if n := testutil.ToFloat64(a.metrics.streams); n != 1 {
		t.Errorf("%v streams", n)
	}
	leave()
	if err := <-ended; err == nil {
		t.Error("the stream ended with no reason")
	}
}
