package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics/polltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDrainAnswersWhatIsInFlight(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	cfg := DefaultConfig("127.0.0.1:0")
	server := NewServer(cfg, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		_, _ = io.WriteString(w, "whole")
	}), zap.NewNop())
	if !errors.Is(server.Ready(), ErrNotServing) {
		t.Error("ready before Run")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	body := make(chan string, 1)
	url := "http://" + server.Addr()
	go func() {
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
		resp, err := client.Do(r)
		if err != nil {
			body <- err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		body <- string(b)
	}()
	<-entered
	if err := server.Ready(); err != nil {
		t.Errorf("while serving: %v", err)
	}
	cancel()
	polltest.Until(t, "it is not ready", func() bool { return server.Ready() != nil })
	close(leave)
	if got := <-body; got != "whole" {
		t.Errorf("the request in flight got %q", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestDrainHasADeadline(t *testing.T) {
	cfg := DefaultConfig("127.0.0.1:0")
	cfg.DrainTimeout = 10 * time.Millisecond
	entered := make(chan struct{})
	server := NewServer(cfg, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done() // until the connection is cut
	}), zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{}}
	cut := make(chan error, 1)
	url := "http://" + server.Addr()
	go func() {
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
		resp, err := client.Do(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		cut <- err
	}()
	<-entered
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := <-cut; err == nil {
		t.Error("the request outlived the deadline")
	}
}

func TestPortTaken(t *testing.T) {
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	server := NewServer(DefaultConfig(strings.TrimPrefix(taken.URL, "http://")), http.NotFoundHandler(), zap.NewNop())
	if err := server.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "listen on ") {
		t.Errorf("Run: %v", err)
	}
	if addr := server.Addr(); addr != "" {
		t.Errorf("address %q", addr)
	}
}

func TestOps(t *testing.T) {
	broken := errors.New("4 blocks behind")
	var state error
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "lienstream_test", Help: "A test."}))
	ops := NewOps(reg, Check{Name: "index", Run: func(context.Context) error { return state }})
	for _, c := range []struct {
		path   string
		state  error
		status int
		body   string
	}{
		{"/healthz", broken, 200, `{"ok":true}`},
		{"/readyz", nil, 200, `{"checks":{"index":"ok"},"ok":true}`},
		{"/readyz", broken, 503, `{"checks":{"index":"4 blocks behind"},"ok":false}`},
		{"/metrics", nil, 200, "# HELP lienstream_test A test.\n# TYPE lienstream_test gauge\nlienstream_test 0"},
	} {
		state = c.state
		w := do(ops, http.MethodGet, c.path, "")
		if w.Code != c.status || strings.TrimSpace(w.Body.String()) != c.body {
			t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
		}
	}
}

// A port may be taken by an outgoing connection too, so the error names what keeps the system from that.
func TestPortInUse(t *testing.T) {
	held, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	addr := held.Addr().String()
	err = NewServer(DefaultConfig(addr), http.NotFoundHandler(), zap.NewNop()).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "net.ipv4.ip_local_reserved_ports") {
		t.Errorf("listening where another does: %v", err)
	}
}
