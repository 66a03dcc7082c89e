package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// world is a chain that the test mines block by block, and the pipeline that follows it.
type world struct {
	backend  devchain.Backend
	market   *devchain.Market
	scenario *devchain.Scenario
	judge    *judge

	deployment string // file
	chain      []string
	servers    []string // flags that name Kafka and Redis; none: the embedded ones
}

// chains and servers are what everything must hold on.
var (
	chains  = []string{"devchain", "anvil"}
	servers = []string{"embedded", "real"}
)

// newWorld brings up a chain with the market on it, and the servers.
func newWorld(t *testing.T, chain, server string, scenario devchain.ScenarioConfig) *world {
	t.Helper()
	return newWorldWith(t, chain, server, devchain.MarketConfig{}, scenario)
}

func newWorldWith(t *testing.T, chain, server string, market devchain.MarketConfig, scenario devchain.ScenarioConfig) *world {
	t.Helper()
	t.Logf("seed %d", scenario.Seed)
	w := &world{}
	w.backend = newBackend(t, chain, scenario.Seed)
	market.NodeModules, market.Seed = filepath.Join(repository(t), "contracts", "node_modules"), scenario.Seed
	var err error
	w.market, err = devchain.Deploy(t.Context(), w.backend, market)
	if err != nil {
		t.Fatalf("deploy: %v", err)
	}
	w.scenario, err = devchain.NewScenario(w.market, scenario)
	if err != nil {
		t.Fatal(err)
	}
	w.judge = newJudge(t, w.backend.Client(), w.market.Deployment)
	w.deployment = filepath.Join(t.TempDir(), "deployment.json")
	f, err := os.Create(w.deployment)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.market.Deployment.Write(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	w.chain = []string{"--rpc=" + w.backend.WS() + "," + w.backend.HTTP(), "--deployment=" + w.deployment}
	if server == "real" {
		w.servers = []string{
			"--kafka=" + strings.Join(brokertest.Start(t, "apache"), ","),
			"--redis=" + startRedis(t).url,
		}
	}
	return w
}

func newBackend(t *testing.T, chain string, seed uint64) devchain.Backend {
	t.Helper()
	if chain == "anvil" {
		a, err := devchain.StartAnvil(t.Context(), devchain.AnvilConfig{
			Binary: filepath.Join(repository(t), "contracts/node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil"),
			Seed:   seed,
		})
		if err != nil {
			if os.Getenv("CI") == "" && errors.Is(err, os.ErrNotExist) {
				t.Skip(err)
			}
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Close() })
		return a
	}
	c, err := devchain.New(devchain.Config{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// up starts the whole pipeline in one process, with its data in dir.
func (w *world) up(t *testing.T, dir string) (*process, *api) {
	t.Helper()
	addr := address(t)
	args := append([]string{
		"up", "--data-dir=" + dir, "--indexer-addr=" + addr, "--agent-addr=127.0.0.1:0", "--valuation-addr=127.0.0.1:0", "--support-addr=127.0.0.1:0", "--notify-addr=127.0.0.1:0", "--payment-chain-addr=127.0.0.1:0", "--query-addr=" + address(t), "--ops-addr=" + address(t),
		"--log-level=info",
	}, w.chain...)
	return start(t, "up", append(args, w.servers...)...), newAPI(addr)
}

// mine plays blocks.
func (w *world) mine(ctx context.Context, t *testing.T, blocks int) {
	t.Helper()
	for range blocks {
		if _, err := w.scenario.Step(ctx); err != nil {
			t.Fatalf("step: %v", err)
		}
	}
}

// redisServer is a redis-server of the test's own.
type redisServer struct {
	url string
	cmd *exec.Cmd
}

func startRedis(t *testing.T) *redisServer {
	t.Helper()
	path, addr := redisPath(t), address(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	r := &redisServer{url: "redis://" + addr, cmd: runRedis(t, path, "--port", port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", t.TempDir(), "--maxmemory-policy", "noeviction")}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	polltest.Within(t, 30*time.Second, func() error {
		if err := client.Ping(t.Context()).Err(); err != nil {
			return fmt.Errorf("ping redis: %w", err)
		}
		return nil
	})
	return r
}

// redisPath is where redis-server is.
func redisPath(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	return path
}

// runRedis runs it until the test ends.
func runRedis(t *testing.T, path string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}
