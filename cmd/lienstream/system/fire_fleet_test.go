package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// fleet is several nodes of each role as processes of their own. Their connections can be cut.
type fleet struct {
	t     *testing.T // whose end ends the nodes, whichever subtest started them
	w     *world
	api   *api // of the node "serving"
	nodes map[string]*member
	build string // the binary of nodes that join; empty: the one under test
}

// member is a node: it may be killed, stopped, and started again as it was.
type member struct {
	*process
	role  string
	build string
	args  []string
	ops   string // address of metrics and health
}

func newFleet(t *testing.T, w *world) *fleet {
	t.Helper()
	run(t, append([]string{"topics", "apply"}, w.servers...)...)
	return &fleet{t: t, w: w, nodes: map[string]*member{}}
}

// join starts a node. Flags that come later win, so that extra may replace what the world says.
func (f *fleet) join(t *testing.T, name, role string, extra ...string) *member {
	t.Helper()
	m := &member{role: role, build: cmp.Or(f.build, binaryPath), ops: address(t)}
	m.args = append([]string{role, "--ops-addr=" + m.ops}, f.w.chain...)
	m.args = append(append(m.args, f.w.servers...), extra...)
	f.nodes[name] = m
	m.process = startBuild(f.t, m.build, name, m.args...)
	return m
}

// processors starts a processor node with a data directory of its own. The wire is what others reach it by.
func (f *fleet) processors(t *testing.T, name string, extra ...string) {
	t.Helper()
	query := address(t)
	wire := startProxy(f.t, query)
	f.join(t, name, "processors", append([]string{
		"--instance=" + name, "--data-dir=" + f.t.TempDir(), "--query-addr=" + query, "--advertise=" + wire.addr,
	}, extra...)...)
}

func (f *fleet) serving(t *testing.T, extra ...string) {
	t.Helper()
	addr := address(t)
	f.join(t, "serving", "serving", append([]string{"--services=indexer", "--indexer-addr=" + addr}, extra...)...)
	f.api = newAPI(addr)
}

// whole waits until every answer is what the chain says.
func (f *fleet) whole(t *testing.T) {
	t.Helper()
	stateEqualsChain(t.Context(), t, f.api, f.w.judge, time.Minute)
}

// restart starts a node again that was killed or has ended.
func (f *fleet) restart(name string, extra ...string) {
	f.t.Helper()
	m := f.nodes[name]
	m.kill()
	m.process = startBuild(f.t, m.build, name, append(m.args, extra...)...)
}

// pause freezes a node, which does not notice that time passes; resume ends that.
func (m *member) pause()  { _ = m.cmd.Process.Signal(syscall.SIGSTOP) }
func (m *member) resume() { _ = m.cmd.Process.Signal(syscall.SIGCONT) }

// metric adds up the samples of a metric whose labels include all of these, such as `endpoint="liar"`.
func (m *member) metric(ctx context.Context, name string, labels ...string) (float64, error) {
	text, _, err := fetch(ctx, "http://"+m.ops+"/metrics")
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
lines:
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ') // values of labels have spaces
		if at < 0 {
			continue
		}
		series, value := line[:at], line[at+1:]
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(series, l) {
				continue lines
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("no metric %s %v", name, labels)
	}
	return sum, nil
}

// ofMarket are the series of the market; the support application has partitions of its own.
const ofMarket = `application="market"`

// holds waits until a node holds so many of the market's partitions in a role.
func (m *member) holds(t *testing.T, within time.Duration, role string, least int) {
	t.Helper()
	polltest.Within(t, within, func() error {
		v, err := m.metric(t.Context(), "lienstream_processors_held", ofMarket, `role="`+role+`"`)
		if err == nil && v < float64(least) {
			err = fmt.Errorf("%s is %s of %v partitions, want %d", m.name, role, v, least)
		}
		return err
	})
}

func fetch(ctx context.Context, url string) (body string, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = res.Body.Close() }()
	all, err := io.ReadAll(res.Body)
	return string(all), res.StatusCode, err
}

// load mines blocks at a pace until the returned function is called.
func (w *world) load(t *testing.T, every time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-tick.C:
			}
			// Not ctx: the scenario has to know what became of a step.
			if _, err := w.scenario.Step(context.WithoutCancel(ctx)); err != nil {
				done <- err
				return
			}
		}
	}()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Fatalf("step: %v", err)
		}
	}
}

// pass mines blocks for a while.
func (w *world) pass(t *testing.T, d time.Duration) {
	t.Helper()
	stop := w.load(t, 100*time.Millisecond)
	<-time.After(d)
	stop()
}

// onKafka gives the world a broker that the test can kill and pause, in place of its own.
func (w *world) onKafka(t *testing.T) *broker.Apache {
	t.Helper()
	k := brokertest.Apache(t)
	w.servers = append(w.servers, "--kafka="+strings.Join(k.Addrs(), ","))
	return k
}

// onRedis gives the world a redis-server behind a wire.
func (w *world) onRedis(t *testing.T) (*redisServer, *proxy) {
	t.Helper()
	r := startRedis(t)
	wire := startProxy(t, strings.TrimPrefix(r.url, "redis://"))
	w.servers = append(w.servers, "--redis=redis://"+wire.addr)
	return r, wire
}

// health returns the answer of /health/indexer.
func (a *api) health(ctx context.Context) (answer, error) {
	res, err := a.get(ctx, "/health/indexer")
	if err != nil {
		return res, err
	}
	if _, ok := res.Body["ok"].(bool); !ok {
		return res, errors.New("/health/indexer does not say whether all is well")
	}
	return res, nil
}

// hostport returns the host and port of a URL.
func hostport(t *testing.T, url string) string {
	t.Helper()
	_, addr, ok := strings.Cut(url, "://")
	if _, _, err := net.SplitHostPort(addr); !ok || err != nil {
		t.Fatalf("URL %q", url)
	}
	return addr
}
