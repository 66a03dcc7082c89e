package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Node holds partitions: those that the group gives it as their owner, and those that it follows as a
// standby. It implements read.Source.
//
// Invariants:
//  1. a replica is held by one goroutine at a time: the next begins when the last has ended;
//  2. who should own a partition, the group says; who does, the broker: the last to open a task has
//     fenced all others. Two nodes that both believe in it cost restarts, never a duplicate.
type Node struct {
	cfg      Config
	tables   []*state.Table
	app      App        // or
	commands CommandApp // which takes them
	observer observers
	logger   *zap.Logger
	metrics  *metrics
	cache    *state.Cache
	consumer *kafka.Consumer // of what tasks and standbys read on and on
	history  *kafka.History  // of what they look up
	replicas []*replica
	moves    read.Notifier

	input, changelog string
	entities         map[string]string
	events           map[string]eventTopics

	live           liveness
	catchingUp     catchingUp
	left           chan struct{} // a replica is held no longer
	version, since uint32        // of the application, and the oldest whose state it carries on

	clock clock         // of whoever writes the raw topic
	far   atomic.Int32  // tasks that are far behind the head
	turn  chan struct{} // holds a token for each of them that commits
	loads *turns        // of partitions that are restored from nothing
}

// eventTopics of a family; one of them is empty where nothing is published at the head, or nothing is taken back.
type eventTopics struct {
	head, final string
	routed      bool // the first bytes of a key say which partition the record is for
}

// committers is how many tasks far behind the head commit at a time: what they send is in memory twice over,
// and a broker takes it no sooner from all of them at once.
const committers = 4

// New makes a node that applies the raw topic; it does nothing before Run.
func New(cfg Config, app App, observer ...Observer) (*Node, error) {
	n, err := newNode(cfg, app, app.Tables(), observer)
	if err == nil {
		n.app, n.input = app, n.cfg.Catalogue.Raw()
	}
	return n, err
}

// NewCommands makes a node that applies the commands of an application; it does nothing before Run.
func NewCommands(cfg Config, app CommandApp, observer ...Observer) (*Node, error) {
	if cfg.Rebuild {
		return nil, errors.New("processors: rebuild: command topics expire, so there is nothing to rebuild from")
	}
	n, err := newNode(cfg, app, app.Tables(), observer)
	if err == nil {
		n.commands, n.input = app, n.cfg.Catalogue.Commands(n.cfg.AppName)
	}
	return n, err
}

func newNode(cfg Config, app any, tables []*state.Table, observer observers) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.AppName != topics.AppMarket { // whose state was here before there was another application
		cfg.Dir = cfg.FS.PathJoin(cfg.Dir, cfg.AppName)
	}
	n := &Node{
		cfg: cfg, tables: tables, observer: observer, metrics: newMetrics(cfg.Registerer, cfg.AppName),
		logger:   cfg.Logger.Named("engine").With(zap.Uint64("chain", cfg.Catalogue.ChainID)),
		entities: map[string]string{}, events: map[string]eventTopics{},
		left: make(chan struct{}, 1), live: newLiveness(), catchingUp: catchingUp{behind: map[int32]bool{}},
		turn: make(chan struct{}, committers), loads: &turns{free: min(max(runtime.GOMAXPROCS(0), 2), maxLoads)},
	}
	if v, ok := app.(Versioned); ok {
		n.version, n.since = v.Version()
	}
	n.changelog = cfg.Catalogue.Changelog(cfg.AppName)
	for _, t := range tables {
		if t.Entity != nil {
			n.entities[t.Entity.Name] = cfg.Catalogue.Ent(t.Entity.Name)
		}
	}
	for _, t := range cfg.Catalogue.Topics() {
		if t.Kind == topics.KindCommand {
			of := eventTopics{routed: true, final: t.Name()}
			if cfg.HeadCommands {
				of.head, of.final = of.final, ""
			}
			n.events[topics.CommandFamily(t.Entity)] = of
		}
		if family, final := strings.CutSuffix(t.Entity, ".final"); t.Kind == topics.KindEvent {
			of := n.events[family]
			if final {
				of.final = t.Name()
			} else {
				of.head = t.Name()
			}
			n.events[family] = of
		}
	}
	for p := range cfg.Catalogue.Partitions {
		n.replicas = append(n.replicas, &replica{
			partition: p, lease: cfg.Lease, moves: &n.moves, version: n.version,
			dir: filepath.Join(cfg.Dir, fmt.Sprint(p)),
		})
	}
	return n, nil
}

// Run holds partitions until ctx is done, then lets go of them in bounded time.
//
//	membership ──► assign ──┬─► hold(0): own or follow ──► store, views
//	owners topic ─► live ───┘   hold(1): …
//	announce: what is held ──► owners topic
func (n *Node) Run(ctx context.Context) (err error) {
	n.cache = state.NewCache(n.cfg.CacheBytes, len(n.replicas))
	defer n.cache.Close()
	defer func() {
		for _, r := range n.replicas {
			err = errors.Join(err, r.close())
		}
	}()
	if err := n.connect(); err != nil { //nolint:contextcheck // they live until disconnect
		return err
	}
	defer n.disconnect()
	assigned := make(chan []int32)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.member(ctx, assigned) })
	g.Go(func() error { return n.assign(ctx, assigned) })
	g.Go(func() error { return n.measure(ctx) })
	g.Go(func() error { return n.followOwners(ctx) })
	g.Go(func() error { return n.announce(ctx) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// What a node holds of the topics ahead of its tasks: a fetch, and of each partition half as much.
const fetchedPartitions = 8 // that a fetch has room for

// connect makes the clients that all tasks share.
func (n *Node) connect() (err error) {
	n.consumer, err = kafka.NewConsumer(n.cfg.Kafka, "processors", kafka.ConsumerOptions{
		MaxBytes: fetchedPartitions * n.cfg.FetchBytes, MaxPartitionBytes: n.cfg.FetchBytes,
		Unread: fetchedPartitions / 2 * int(n.cfg.FetchBytes),
	})
	if err != nil {
		return err
	}
	if n.history, err = kafka.NewHistory(n.cfg.Kafka); err != nil {
		n.consumer.Close()
	}
	return err
}

func (n *Node) disconnect() {
	n.consumer.Close()
	n.history.Close()
}

// Stopped reports the faults that stopped tasks until a person acts; nil: none.
func (n *Node) Stopped() error {
	var errs []error
	for _, r := range n.replicas {
		if _, err := r.status(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// holding is a goroutine that holds a replica.
type holding struct {
	role topics.Role
	stop context.CancelFunc
	done chan struct{}
}

// ended says that it is over: it was not stopped, but gave up a partition that it was to leave.
func (h *holding) ended() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// assign gives every replica the role that it should have, whenever that changes.
func (n *Node) assign(ctx context.Context, assignments <-chan []int32) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	held := map[int32]*holding{}
	owned := map[int32]bool{}
	tick := time.NewTicker(announceInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case parts := <-assignments:
			clear(owned)
			for _, p := range parts {
				owned[p] = true
			}
			n.logger.Info("assignment", zap.Int32s("partitions", parts))
		case <-tick.C: // nodes come and go, and with them standbys
		case <-n.left:
		}
		for _, r := range n.replicas {
			role := n.role(r, owned)
			last := held[r.partition]
			if last == nil && role == "" || last != nil && last.role == role && (role == "" || !last.ended()) {
				r.leaving.Store(false)
				continue
			}
			if last != nil && last.role == topics.RoleOwner && !last.ended() && n.lingers(r) {
				r.leaving.Store(true)
				continue
			}
			// The next holder waits for the last, never this loop: a store may take its time to close.
			if last != nil {
				last.stop()
			}
			hctx, stop := context.WithCancel(ctx)
			h := &holding{role: role, stop: stop, done: make(chan struct{})}
			held[r.partition] = h
			r.leaving.Store(false)
			wg.Go(func() {
				if last != nil {
					<-last.done
				}
				n.hold(hctx, r, role)
				close(h.done)
				select {
				case n.left <- struct{}{}:
				default:
				}
			})
		}
	}
}

// Pauses between starts of a task that fails.
const (
	minPause    = 20 * time.Millisecond
	fencedPause = 500 * time.Millisecond
	maxPause    = 5 * time.Second
)

// hold runs a replica in a role until ctx is done.
func (n *Node) hold(ctx context.Context, r *replica, role topics.Role) {
	if role == "" {
		if err := r.close(); err != nil {
			n.logger.Warn("close state", partitionField(r.partition), zap.Error(err))
		}
		return
	}
	held := n.metrics.held.WithLabelValues(label(r.partition), string(role))
	held.Set(1)
	defer held.Set(0)
	r.take(role)
	pause := minPause
	for ctx.Err() == nil {
		r.worked = false
		var err error
		if role == topics.RoleOwner {
			err = n.own(ctx, r)
		} else {
			err = n.follow(ctx, r)
		}
		if ctx.Err() != nil {
			return
		}
		if r.leaving.Load() { // whatever it was, the partition is another node's
			r.fail()
			n.logger.Info("partition was taken over by another node", partitionField(r.partition), zap.Error(err))
			return
		}
		if err = n.mend(r, err); err == nil {
			continue
		}
		if stops(err) {
			n.logger.Error("task stopped", partitionField(r.partition), zap.Error(err))
			n.metrics.stopped.WithLabelValues(label(r.partition)).Set(1)
			r.setState(topics.StateStopped, err)
			<-ctx.Done()
			n.metrics.stopped.WithLabelValues(label(r.partition)).Set(0)
			return
		}
		r.fail()
		r.refused(reason(err) == reasonDisk)
		n.metrics.restarts.WithLabelValues(label(r.partition), reason(err)).Inc()
		n.logger.Warn("restarting task", partitionField(r.partition), zap.String("role", string(role)), zap.Error(err))
		switch {
		case errors.Is(err, kafka.ErrFenced):
			// Another node believes that the partition is its own. The group will have told one of us
			// otherwise before long; until then, do not fight over it.
			pause = max(pause, fencedPause)
		case r.worked:
			pause = minPause
		}
		wait(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

// mend wipes a store that cannot be trusted, or whose place in a log is gone, so that it is restored from
// the start. Once: what comes again after that is not the disk's fault.
func (n *Node) mend(r *replica, err error) error {
	if errors.Is(err, state.ErrNewer) {
		return err // it is good, for a build that can read it
	}
	if !errors.Is(err, state.ErrCorrupt) && !errors.Is(err, errChangelog) && !errors.Is(err, kafka.ErrOutOfRange) {
		return err
	}
	if r.wiped {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	r.wiped = true
	r.rewind = errors.Is(err, kafka.ErrOutOfRange)
	n.metrics.restarts.WithLabelValues(label(r.partition), reason(err)).Inc()
	n.logger.Warn("wiping the state and restoring it from the changelog", partitionField(r.partition), zap.Error(err))
	return n.wipe(r)
}

const reasonDisk = "disk"

// reason is an error as a label.
func reason(err error) string {
	switch {
	case errors.Is(err, kafka.ErrFenced):
		return "fenced"
	case errors.Is(err, kafka.ErrUnknown):
		return "unknown"
	case errors.Is(err, kafka.ErrOutOfRange):
		return "range"
	case errors.Is(err, state.ErrCorrupt):
		return "corrupt"
	case errors.Is(err, errChangelog):
		return "changelog"
	case errors.Is(err, errCompacted):
		return "compacted"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EIO), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EROFS):
		return reasonDisk
	}
	return "other"
}

func (n *Node) transactionalID(partition int32) string {
	c := n.cfg.Catalogue
	return fmt.Sprintf("%s.%d.%s.%d", c.Prefix, c.ChainID, n.cfg.AppName, partition)
}
