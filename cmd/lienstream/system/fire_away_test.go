package system

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics/polltest"
)

// outage is how long a server is away: a minute in a soak, long enough to be noticed otherwise.
func outage() time.Duration {
	if os.Getenv("LIENSTREAM_SOAK") != "" {
		return time.Minute
	}
	return 2 * time.Second
}

// told waits until /health/indexer is healthy, or until it is not.
func (f *fleet) told(t *testing.T, well bool, within time.Duration) {
	t.Helper()
	polltest.Within(t, within, func() error {
		res, err := f.api.health(t.Context())
		if err != nil {
			return err
		}
		if res.Body["ok"].(bool) != well || (res.Status == http.StatusOK) != well {
			return fmt.Errorf("/health/indexer says %d %v", res.Status, res.Body)
		}
		return nil
	})
}

// well checks that the state equals the chain and the service is healthy.
func (f *fleet) well(t *testing.T) {
	t.Helper()
	stateEqualsChain(t.Context(), t, f.api, f.w.judge, time.Minute)
	f.told(t, true, 30*time.Second)
}

// away mines and reads while something is away. With lag the state stands still meanwhile, and the service must say so.
func (f *fleet) away(t *testing.T, what string, lag bool, leave, back func(), paths ...string) {
	t.Helper()
	read := readOn(t, f.api, paths...)
	leave()
	stop := f.w.load(t, 100*time.Millisecond)
	if lag {
		f.told(t, false, 30*time.Second)
	}
	<-time.After(outage())
	if !lag {
		f.told(t, true, 30*time.Second)
	}
	stop()
	back()
	began := time.Now()
	f.well(t)
	t.Logf("%s: recovered within %v", what, time.Since(began).Round(time.Millisecond))
	if gap := read.stop(t, what); gap > standbyGap {
		t.Errorf("%s: reads failed for %v", what, gap)
	}
	read.judge(t.Context(), t, f.w.judge)
}

// TestDependenciesAway takes Kafka, Redis and the chain's node away, each in turn and in several ways.
// Reads go on as of the last block, /health/indexer says so, and everything recovers by itself.
func TestDependenciesAway(t *testing.T) {
	w := newWorld(t, "devchain", "embedded", devchain.ScenarioConfig{Seed: seed(t), TxsPerBlock: 4, TimePerBlock: 6 * time.Hour})
	kafka := w.onKafka(t)
	redisServer, redisWire := w.onRedis(t)
	node := startProxy(t, hostport(t, w.backend.HTTP()))
	w.chain = []string{"--rpc=ws://" + node.addr, "--deployment=" + w.deployment}
	w.mine(t.Context(), t, 60)
	f := newFleet(t, w)
	f.join(t, "ingest", "ingest", "--rpc-timeout=2s")
	f.processors(t, "a", "--session-timeout=3s")
	f.serving(t, "--max-head-age=3s")
	paths := []string{"/deals?limit=200", "/listings?limit=200&sort=cost", "/deals/7"}
	f.well(t)

	away := func(t *testing.T, what string, lag bool, leave, back func()) {
		t.Helper()
		f.away(t, what, lag, leave, back, paths...)
	}

	t.Run("kafka paused", func(t *testing.T) { away(t, "kafka paused", true, kafka.Pause, kafka.Resume) })
	t.Run("kafka killed", func(t *testing.T) {
		away(t, "kafka killed", true, kafka.Kill, func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := kafka.Restart(ctx); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("redis cut off", func(t *testing.T) { away(t, "redis cut off", false, redisWire.cut, redisWire.mend) })
	t.Run("redis slow", func(t *testing.T) {
		away(t, "redis slow", false, func() { redisWire.slow(200 * time.Millisecond) }, func() { redisWire.slow(0) })
	})
	t.Run("redis paused", func(t *testing.T) {
		signal := func(s syscall.Signal) func() { return func() { _ = redisServer.cmd.Process.Signal(s) } }
		away(t, "redis paused", false, signal(syscall.SIGSTOP), signal(syscall.SIGCONT))
	})
	t.Run("redis flushed", func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: strings.TrimPrefix(redisServer.url, "redis://")})
		defer func() { _ = client.Close() }()
		flush := func() {
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Error(err)
			}
		}
		away(t, "redis flushed", false, flush, flush)
		polltest.Within(t, 30*time.Second, func() error { // and it is filled again
			n, err := client.DBSize(t.Context()).Result()
			if err == nil && n == 0 {
				err = errors.New("redis is empty")
			}
			return err
		})
	})
	t.Run("the chain's node cut off", func(t *testing.T) { away(t, "node cut off", true, node.cut, node.mend) })
	w.mine(t.Context(), t, 130) // more than may be reverted: something is final
	f.serves(t)
	topicsEqualChain(t, w)
	for _, name := range []string{"serving", "a", "ingest"} {
		f.nodes[name].interrupt(t)
	}
}
