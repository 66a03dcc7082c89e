package roles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/lienstream/lienstream/processors/market/hotcache"
	"github.com/lienstream/lienstream/processors/notifier/mailsink"
	"github.com/lienstream/lienstream/topics/broker"
)

// embedded describes the embedded servers of `up`, for the banner.
type embedded struct {
	servers Servers
	names   []string
	history string // continues from stored state, or starts from scratch
}

// embeddedTopicBytes is the retention of each partition that is not compacted, for an embedded chain: it may run for
// weeks, and its history is deleted at the end anyway.
const embeddedTopicBytes = 512 << 10

// lockData keeps every other `up` out of the data folder until this one has ended.
func lockData(p *Process) error {
	if err := p.FS.MkdirAll(p.DataDir, 0o750); err != nil {
		return fmt.Errorf("data-dir: %w", err)
	}
	lock, err := p.FS.Lock(filepath.Join(p.DataDir, "lock"))
	if err != nil {
		return fmt.Errorf("data-dir: %s is in use: does another lienstream run? %w", p.DataDir, err)
	}
	p.Closing(lock.Close)
	return nil
}

// checkStateIsOfEmbedded returns an error where there is state and never was an embedded broker: it is derived from the
// topics of other brokers, and a fresh one would have it deleted.
func (p *Process) checkStateIsOfEmbedded(brokerDir string) error {
	dir := stateDir(p)
	files, err := p.FS.List(dir)
	if err != nil || len(files) == 0 || p.EmbeddedChain() {
		return nil //nolint:nilerr // there is none; who writes it says what is wrong
	}
	if _, err = p.FS.Stat(brokerDir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("data-dir: %s is the state of topics on other brokers: name them with --kafka, choose another folder, or delete it", dir)
}

// embed starts a server for each that no flag names, and returns the addresses of all.
func embed(ctx context.Context, p *Process, chain *chainRole) (embedded, error) {
	e := embedded{servers: p.Servers, history: "continues with the state in " + p.DataDir}
	if err := lockData(p); err != nil {
		return e, err
	}
	// State derived from an embedded server that starts from scratch must be deleted too.
	forget := func() error { return p.FS.RemoveAll(stateDir(p)) }
	if len(e.servers.RPC) == 0 {
		if err := forget(); err != nil { // a run before this one may have crashed
			return e, err
		}
		p.Closing(func() error { return errors.Join(forget(), p.FS.RemoveAll(e.servers.Deployment)) })
		var err error
		if e.servers.RPC, err = chain.start(ctx, p, e.servers.Deployment); err != nil {
			return e, err
		}
		e.names = append(e.names, "an EVM chain with the market deployed, "+e.servers.RPC[1])
		e.history = "starts from scratch: the embedded chain is new"
		if len(e.servers.Brokers) > 0 { // brokers may hold the embedded chain of an earlier run
			e.servers.Prefix = fmt.Sprintf("%s-%d", e.servers.Prefix, time.Now().Unix())
		}
	}
	if len(e.servers.Brokers) == 0 {
		cfg := broker.Config{Dir: filepath.Join(p.DataDir, "kafka")}
		if p.EmbeddedChain() {
			cfg = broker.Config{Dir: filepath.Join(p.DataDir, "kafka-scratch"), Scratch: true}
			p.topicBytes = embeddedTopicBytes
		}
		if err := p.checkStateIsOfEmbedded(cfg.Dir); err != nil {
			return e, err
		}
		b, err := broker.Open(cfg)
		if err != nil {
			return e, err
		}
		p.Closing(b.Close)
		if cfg.Scratch {
			p.Group.Go(func() error { return b.Run(ctx) })
		}
		e.servers.Brokers = b.Addrs()
		e.names = append(e.names, "a Kafka broker, "+b.Addrs()[0])
		if b.Fresh() && !cfg.Scratch {
			e.history = "starts from scratch: the embedded broker found no cleanly closed log in " + cfg.Dir
			if err := forget(); err != nil {
				return e, err
			}
		}
	}
	if p.EmbeddedChain() && e.servers.SMTP == "" {
		listener, err := p.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return e, fmt.Errorf("mail sink: %w", err)
		}
		p.Closing(func() error { _ = listener.Close(); return nil }) // it may be closed
		p.sink, e.servers.SMTP = new(mailsink.Sink), listener.Addr().String()
		p.Group.Go(func() error { return p.sink.Serve(ctx, listener) })
	}
	if e.servers.Redis == "" {
		url, closer, err := hotcache.Embedded()
		if err != nil {
			return e, err
		}
		p.Closing(func() error { closer(); return nil })
		e.servers.Redis = url
		e.names = append(e.names, "Redis, "+url)
	}
	return e, nil
}
