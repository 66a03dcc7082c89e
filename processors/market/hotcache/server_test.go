package hotcache

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics/freeport"
	"github.com/lienstream/lienstream/topics/polltest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// server is a redis-server that a test may kill, stop and start again.
type server struct {
	t    testing.TB
	port int
	cmd  *exec.Cmd
	args []string
}

func startRedis(t testing.TB, args ...string) *server {
	t.Helper()
	if testing.Short() {
		t.Skip("redis-server is not for short tests")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	ports, err := freeport.Find(1)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, port: ports[0], args: args}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) url() string { return fmt.Sprintf("redis://127.0.0.1:%d", s.port) }

func (s *server) start() {
	s.t.Helper()
	args := append([]string{
		"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.t.TempDir(),
	}, s.args...)
	s.cmd = exec.CommandContext(context.Background(), "redis-server", args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", s.port)})
	defer client.Close()
	polltest.Until(s.t, "redis-server answers", func() bool { return client.Ping(context.Background()).Err() == nil })
}

func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// embedded starts miniredis.
func embedded(t testing.TB) string {
	t.Helper()
	url, closer, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closer)
	return url
}

// onBoth runs a test on miniredis and on redis-server.
func onBoth(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("miniredis", func(t *testing.T) { test(t, embedded(t)) })
	t.Run("redis-server", func(t *testing.T) { test(t, startRedis(t).url()) })
}

func testConfig(url string, partitions int32) Config {
	c := DefaultConfig()
	c.URL, c.ChainID, c.Partitions = url, 4663, partitions
	return c
}

// admin is a client of a test's own.
func admin(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newTestWriter(t testing.TB, cfg Config, source Views) *Writer {
	t.Helper()
	w, err := NewWriter(cfg, source, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.client.Close() })
	return w
}

func newTestReader(t testing.TB, cfg Config) *Cache {
	t.Helper()
	r, err := NewCache(cfg, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.client.Close() })
	return r
}

// newPatientReader is a reader for which a busy machine is no slow Redis.
func newPatientReader(t testing.TB, cfg Config) *Cache {
	t.Helper()
	r := newTestReader(t, cfg)
	_ = r.client.Close()
	client, err := cfg.client(patience, 8)
	if err != nil {
		t.Fatal(err)
	}
	r.client, r.cfg.Timeout = client, patience
	t.Cleanup(func() { _ = client.Close() })
	return r
}

func missed(r *Cache, reason Miss) float64 {
	return testutil.ToFloat64(r.metrics.misses.WithLabelValues(string(reason)))
}
