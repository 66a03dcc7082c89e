// Package simulation runs the whole system in one process, in virtual time: every role on a host of its own,
// wired by package roles as in the binary, with a network, disks and a clock that a seed controls. An oracle and laws
// judge every answer. It must not know how a role works: it reads topics and answers alone.
package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/gorilla/websocket"

	"github.com/lienstream/lienstream/cmd/lienstream/roles"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Of every system.
const (
	prefix     = "sim"
	latency    = 2 * time.Millisecond // maximum, one way
	restart    = time.Second          // delay before a process that ended by itself is started again
	stopWithin = 10 * time.Second     // timeout of a stop
)

// size is what cannot change during a run.
type size struct {
	brokers    int
	partitions int32 // of the raw topic, and so of the processors' state
}

// system is every role on hosts of its own network. It belongs to one bubble of synctest.
type system struct {
	size
	rng         *rand.Rand
	story       *story
	net         *network
	chain       *node
	server      *http.Server
	broker      *broker.Broker
	cat         topics.Catalogue
	redis       *miniredis.Miniredis // nil: this system has none
	redisPort   net.Listener
	liar        *liar // nil: the chain has one node
	liarServer  *http.Server
	witness     *http.Server   // nil: there is none
	bot         *http.Server   // takes alerts; nil: nobody asks for any
	payments    *payments      // nil: nobody reports bugs
	servers     []*http.Server // of payments
	endPayments context.CancelFunc
	sparse      bool // of history, ingesters read what has logs alone
	forged      forgeries
	skews       map[string]time.Duration // by host: how much its clock is ahead
	tipCommit   time.Duration            // least time between two commits at the tip
	valuation   bool                     // serving nodes run the valuation service, too
	agent       bool                     // and the agent API
	heads       bool                     // the chain tells ingesters of its heads, by WebSocket; else they ask
	client      *http.Client
	streams     *http.Client // without a timeout

	mu      sync.Mutex
	procs   map[string]*process
	disks   map[string]*vfs.MemFS
	lives   map[string]int // how often a host's role was started
	crashes map[string]int // unexpected ends of processes, by error

	ailments map[string]ailment // of the disks of hosts
}

// process is a role on a host.
type process struct {
	stop context.CancelFunc
	done chan struct{} // closed when it and all its restarts have ended
	err  error         // of the stop; read after done
}

// sharedSource is a source of randomness that faults draw from beside the run.
type sharedSource struct {
	mu   sync.Mutex
	from rand.Source
}

// Uint64 implements rand.Source.
func (s *sharedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from.Uint64()
}

// newSystem starts all but the roles. Even with an error it must be closed.
func newSystem(ctx context.Context, rec *recording, seed uint64, size size, story *story) (*system, error) {
	s := &system{
		size: size,
		rng:  rand.New(&sharedSource{from: rand.NewPCG(seed, 1)}), story: story, net: newNetwork(seed, latency), chain: &node{rec: rec, heads: map[*websocket.Conn]bool{}, overtaken: map[common.Hash]time.Time{}, shown: map[common.Hash]time.Time{}},
		cat:   topics.Catalogue{Prefix: prefix, ChainID: rec.deployment.ChainID, Partitions: size.partitions},
		procs: map[string]*process{}, disks: map[string]*vfs.MemFS{}, lives: map[string]int{}, crashes: map[string]int{}, ailments: map[string]ailment{},
	}
	s.net.wire = story.wire
	s.client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: s.net.dialer("client"), DisableCompression: true}}
	s.streams = &http.Client{Transport: s.client.Transport}
	l, err := s.net.listen("chain:8545")
	if err != nil {
		return s, err
	}
	s.server = &http.Server{Handler: s.chain, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.server.Serve(l) }() // until close
	s.chain.step()
	opened := 0
	s.broker, err = broker.Open(broker.Config{Nodes: size.brokers, Listen: func(string, string) (net.Listener, error) {
		opened++
		return s.net.listen(fmt.Sprintf("kafka%d:9092", opened-1))
	}})
	if err != nil {
		return s, err
	}
	return s, kafka.ApplyCatalogue(ctx, s.kafka(), s.cat, io.Discard)
}

// kafka is how the test itself reads topics.
func (s *system) kafka() kafka.Config {
	c := kafka.DefaultConfig()
	c.Brokers, c.Prefix, c.Dial = s.broker.Addrs(), prefix, s.net.dialer("client")
	return c
}

// args are the command line of a role on a host.
func (s *system) args(host string) []string {
	all := []string{
		"--kafka=" + strings.Join(s.broker.Addrs(), ","), "--kafka-prefix=" + prefix, fmt.Sprint("--kafka-partitions=", s.partitions),
		fmt.Sprint("--chain-id=", s.chain.rec.deployment.ChainID), "--deployment=/deployment.json",
		"--instance=" + host, "--ops-addr=" + host + ":9464", "--log-format=json", "--log-level=" + s.story.level(),
		"--query-token-file=/secret",
	}
	if s.redis != nil && kindOf(host) != "ingester" {
		all = append(all, "--redis=redis://"+redisHost+":6379")
	}
	switch kindOf(host) {
	case "ingester":
		scheme := "http"
		if s.heads {
			scheme = "ws"
		}
		if s.sparse {
			all = append(all, "--rpc-proof=sparse")
		}
		return append([]string{"ingest", s.rpc(scheme), "--ingest-standby", fmt.Sprint("--reorg-window=", reorgWindow), fmt.Sprint("--ledger-shares=", ledgerShares)}, all...)
	case "processor":
		applications := "--applications=market"
		if s.bot != nil {
			applications += ",notifier"
			all = append(all, "--notify-keys-file=/notify-keys", "--telegram-token-file=/telegram-token", "--telegram-url=http://"+telegramHost+":80", "--telegram-rate=1000")
		}
		if s.payments != nil {
			applications += ",support"
		}
		all = append(all, applications)
		return append([]string{"processors", "--tip-commit-interval=" + s.tipCommit.String(), "--data-dir=/data", "--query-addr=" + host + ":42070", "--advertise=" + host + ":42070"}, all...)
	default:
		services := "--services=indexer"
		if s.valuation { // the chain's clock is not ours, and goes faster
			services += ",valuation"
			all = append(all, "--valuation-addr="+host+valuationPort, "--valuation-max-age=0", "--valuation-max-gap=0", s.rpc("http"))
		}
		if s.agent {
			services += ",agent"
			all = append(all, agentArgs(host)...)
		}
		if s.payments != nil {
			services += ",support"
			all = append(all, reportArgs(host)...)
		}
		return slices.Concat([]string{"serving", "--indexer-addr=" + host + ":80", "--cursor-secret-file=/secret", services}, all)
	}
}

// valuationPort is the valuation service's, and valuationPath begins what is asked of it.
const (
	valuationPort = ":81"
	valuationPath = "/valuation"
)

// reorgWindow is less than the chain's finality, and more than its deepest reorg.
const reorgWindow = finality - 4

// ledgerShares is less than a token's holders, so that the ledger of one that joins comes with several blocks.
const ledgerShares = 2

// disk is the disk of a host, with the files that its command line names.
func (s *system) disk(host string) (*vfs.MemFS, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.disks[host]; d != nil {
		return d, nil
	}
	d := vfs.NewCrashableMem()
	var deployment bytes.Buffer
	err := s.chain.rec.deployment.Write(&deployment)
	for name, text := range map[string][]byte{"/deployment.json": deployment.Bytes(), "/secret": []byte("of all nodes that serve"), "/notify-keys": []byte(notifyKeys), "/telegram-token": []byte(telegramToken), "/report-keys": []byte(reportKeys)} {
		f, err2 := d.Create(name, vfs.WriteCategoryUnspecified)
		if err = errors.Join(err, err2); err != nil {
			return nil, err
		}
		_, err2 = f.Write(text)
		err = errors.Join(err, err2, f.Sync(), f.Close())
	}
	root, err2 := d.OpenDir("/")
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	s.disks[host] = d
	return d, errors.Join(root.Sync(), root.Close())
}

// loseDisk has a host begin with an empty disk.
func (s *system) loseDisk(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.disks, host)
}

// start runs a host's role until stop. It restarts one that ends by itself, as a supervisor does. A host runs one.
func (s *system) start(ctx context.Context, host string) error {
	s.net.up(host)
	disk, err := s.disk(host)
	if err != nil {
		return err
	}
	env := roles.Environment{
		Dial:     s.net.dialer(host),
		Listen:   func(_ context.Context, _, addr string) (net.Listener, error) { return s.net.listen(addr) },
		FS:       s.ailing(host, disk),
		Hostname: func() (string, error) { return host, nil },
		Stdout:   io.Discard, Stderr: s.story.of(host), Shared: true,
	}
	skew := s.skews[host]
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &process{stop: cancel, done: make(chan struct{})}
	s.mu.Lock()
	runs := s.procs[host] != nil
	if !runs {
		s.procs[host] = p
	}
	s.mu.Unlock()
	if runs {
		cancel()
		return fmt.Errorf("%s is started, and runs already", host)
	}
	go func() {
		defer close(p.done)
		setSkew(skew)
		for {
			s.mu.Lock()
			s.lives[host]++
			s.mu.Unlock()
			err := roles.Run(ctx, env, s.args(host))
			if ctx.Err() != nil {
				p.err = err
				return
			}
			s.story.tell(host, "ended", fmt.Sprint(err))
			s.mu.Lock()
			s.crashes[fmt.Sprintf("%s: %v", kindOf(host), err)]++
			s.mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-time.After(restart):
			}
		}
	}()
	return nil
}

// startsWithoutBrokers reports whether a process ended because it found no brokers as it started: it is to be started again.
func startsWithoutBrokers(what string) bool {
	_, err, _ := strings.Cut(what, ": ")
	return strings.HasPrefix(err, "list topics: ") || strings.HasPrefix(err, "describe topics: ")
}

// life counts the starts of a host's role.
func (s *system) life(host string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lives[host]
}

// kill ends a process like a power cut: its connections fall silent, and its disk keeps what was synced and perhaps some
// of the rest. Its goroutines are ended out of sight.
func (s *system) kill(host string) error {
	s.net.cut(host)
	s.mu.Lock()
	if d := s.disks[host]; d != nil {
		s.disks[host] = d.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: s.rng.IntN(101), RNG: s.rng})
	}
	s.mu.Unlock()
	_, err := s.end(host)
	return err
}

// stop ends a process like SIGTERM: within stopWithin, and without an error.
func (s *system) stop(host string) error {
	said, err := s.end(host)
	return errors.Join(said, err)
}

// end cancels a process and returns what it said.
func (s *system) end(host string) (said, err error) {
	s.mu.Lock()
	p := s.procs[host]
	delete(s.procs, host)
	s.mu.Unlock()
	if p == nil {
		return nil, nil
	}
	p.stop()
	select {
	case <-p.done:
		return p.err, nil
	case <-time.After(stopWithin):
		return nil, fmt.Errorf("%s does not end within %s", host, stopWithin)
	}
}

// close ends everything.
func (s *system) close() error {
	s.mu.Lock()
	hosts := slices.Sorted(maps.Keys(s.procs))
	s.mu.Unlock()
	var errs []error
	for _, host := range hosts {
		if err := s.stop(host); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", host, err))
		}
	}
	s.client.CloseIdleConnections()
	if s.endPayments != nil {
		s.endPayments()
	}
	for _, server := range append(s.servers, s.liarServer, s.witness, s.bot, s.server) {
		if server != nil {
			errs = append(errs, server.Close())
		}
	}
	errs = append(errs, s.closeRedis())
	if s.broker != nil {
		errs = append(errs, s.broker.Close())
	}
	s.net.drain()
	return errors.Join(errs...)
}
