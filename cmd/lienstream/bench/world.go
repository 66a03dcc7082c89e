package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lienstream/lienstream/topics/broker"
)

// world is a chain and the servers that a pipeline runs on.
type world struct {
	cfg     config
	chain   *chain
	kind    string // embedded or real
	servers []string
	kafka   *broker.Apache // nil: embedded
	closers []func()
	runs    int
}

// newWorld starts Apache Kafka and redis-server where the kind is real.
func newWorld(ctx context.Context, cfg config, c *chain, kind string) (*world, error) {
	w := &world{cfg: cfg, chain: c, kind: kind}
	if kind == embedded {
		return w, nil
	}
	kafka, err := broker.StartApache(ctx, broker.ApacheConfig{
		LibsDir: filepath.Join(cfg.repository, "docker/kafka/libs"), Dir: filepath.Join(cfg.dir, "kafka"),
	})
	if err != nil {
		return nil, err
	}
	w.kafka = kafka
	w.closers = append(w.closers, kafka.Kill)
	url, err := w.startRedis(ctx)
	if err != nil {
		w.close()
		return nil, err
	}
	w.servers = []string{"--kafka=" + strings.Join(kafka.Addrs(), ","), "--redis=" + url}
	return w, nil
}

func (w *world) startRedis(ctx context.Context) (string, error) {
	addr := address()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", //nolint:noctx // it lives until close; our own arguments
		"--appendonly", "no", "--dir", w.cfg.dir, "--maxmemory-policy", "noeviction")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	w.closers = append(w.closers, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if err = client.Ping(ctx).Err(); err == nil {
			return "redis://" + addr, nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("redis: %w", err)
		}
	}
}

func (w *world) close() {
	for _, c := range w.closers {
		c()
	}
}

// pipeline is every role in one process, with a data directory and topics of its own.
type pipeline struct {
	*process

	w    *world
	name string
	addr string // of the indexer
	ops  string // of the metrics
	args []string

	topics []string // flags that say which
}

// fresh starts an empty pipeline.
func (w *world) fresh(extra ...string) (*pipeline, error) {
	return w.freshOn(append(w.chain.flags(false), extra...))
}

// freshOn starts one on the chain that the flags name.
func (w *world) freshOn(chain []string) (*pipeline, error) {
	w.runs++
	name := fmt.Sprintf("%s-%d", w.kind, w.runs)
	p := &pipeline{w: w, name: name, addr: address(), ops: address()}
	p.topics = append([]string{fmt.Sprintf("--kafka-partitions=%d", w.cfg.partitions), "--kafka-prefix=" + name}, w.servers...)
	p.args = append([]string{
		"up", "--data-dir=" + filepath.Join(w.cfg.dir, name), "--indexer-addr=" + p.addr, "--services=indexer", "--applications=market",
		"--query-addr=" + address(), "--ops-addr=" + p.ops, "--log-level=info",
	}, p.topics...)
	if err := w.provision(p); err != nil {
		return nil, err
	}
	return p, p.start(chain...)
}

// provisioned is a pipeline of topics alone.
func (w *world) provisioned() (*pipeline, error) {
	w.runs++
	p := &pipeline{w: w, name: fmt.Sprintf("%s-%d", w.kind, w.runs)}
	p.topics = append([]string{fmt.Sprintf("--kafka-partitions=%d", w.cfg.partitions), "--kafka-prefix=" + p.name}, w.servers...)
	return p, w.provision(p)
}

// provision creates the topics on real brokers, as is done once before the first start. Fresh brokers on a busy machine may take
// longer than it waits.
func (w *world) provision(p *pipeline) (err error) {
	if w.kind == embedded {
		return nil
	}
	for range 3 {
		apply, err2 := start(w.cfg, p.name, append([]string{"topics", "apply"}, p.topics...)...)
		if err2 != nil {
			return err2
		}
		select {
		case <-apply.done:
			if err = apply.err; err == nil {
				return nil
			}
		case <-time.After(patience):
			apply.kill()
			return fmt.Errorf("topics apply: not within %s", patience)
		}
	}
	return fmt.Errorf("topics apply: %w", err)
}

func (p *pipeline) start(extra ...string) (err error) {
	p.process, err = start(p.w.cfg, p.name, append(p.args, extra...)...)
	return err
}

// ready waits until the whole chain is served and in Redis, and returns how long it took.
func (p *pipeline) ready(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := until(ctx, p.process, indexed(p.addr, p.w.chain.head))
	if err == nil {
		err = until(ctx, p.process, p.inRedis)
	}
	return time.Since(began), err
}

// inRedis reports whether every partition was written to Redis as of the head.
func (p *pipeline) inRedis(ctx context.Context) error {
	text, _, _, err := fetch(ctx, "http://"+p.ops+"/metrics")
	if err != nil {
		return err
	}
	partitions := 0
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "lienstream_hotcache_partition_block{")
		if !ok {
			continue
		}
		_, value, _ := strings.Cut(strings.TrimSpace(rest), " ")
		block, err := strconv.ParseFloat(value, 64)
		if err != nil || uint64(block) < p.w.chain.head {
			return fmt.Errorf("in redis: %s", line)
		}
		partitions++
	}
	if partitions != p.w.cfg.partitions {
		return fmt.Errorf("in redis: %d partitions", partitions)
	}
	return nil
}

// patience is the timeout of whatever is not measured.
const patience = 5 * time.Minute
