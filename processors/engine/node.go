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
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Node holds partitions: as owner those that the group assigns to it, and others as a standby. It implements
// read.Source.
//
// Invariants:
//  1. a replica is held by one goroutine at a time: the next starts after the previous has ended;
//  2. the group says who should own a partition, the broker who does: the last task to open has fenced all
//     others. Two nodes that both take themselves for the owner cost restarts, never duplicates.
type Node struct {
	cfg      Config
	tables   []*state.Table
	app      App        // or
	commands CommandApp // which takes them
	observer observers
	logger   *zap.Logger
	metrics  *metrics
	cache    *state.Cache
	consumer *kafka.Consumer // reads the input and changelogs of tasks and standbys
	history  *kafka.History  // looks up single records
	replicas []*replica
	changed  read.Broadcast
	took     chan struct{} // a partition: it is announced
	stands   stands

	input, changelog string
	entities         map[string]string
	events           map[string]eventTopics

	live           liveness
	catchingUp     catchingUp
	left           chan struct{} // signalled when a replica is no longer held
	version, since uint32        // of the application, and the oldest version whose state it can continue

	clock    clock        // of the writer of the raw topic
	far      atomic.Int32 // number of tasks far behind the head
	overlays atomic.Int64 // their bytes
	turns    *turns       // limits how many of them apply and commit
	loads    *turns       // limits the partitions that are loaded into empty stores

	outboxes outboxes
	joint    *joint
	scout    *scout
	ends     changelogEnds

	membership atomic.Pointer[kafka.Membership] // nil: not in the group
}

// eventTopics are the topics of a family; one of them is empty if the family publishes only final events, or
// only at the head.
type eventTopics struct {
	head, final string
	routed      bool // the first bytes of a key name the record's partition
}

// committers is how many tasks far behind the head apply and commit at a time: each holds its records in memory twice,
// and a broker is no faster with more of them.
const committers = 4

// New makes a node that applies the raw topic. It does nothing before Run.
func New(cfg Config, app App, observer ...Observer) (*Node, error) {
	n, err := newNode(cfg, app, app.Tables(), observer)
	if err == nil {
		n.app, n.input = app, n.cfg.Catalogue.Raw()
	}
	return n, err
}

// NewCommands makes a node that applies the commands of an application. It does nothing before Run.
func NewCommands(cfg Config, app CommandApp, observer ...Observer) (*Node, error) {
	if cfg.Rebuild {
		return nil, errors.New("processors: rebuild: command topics expire, so there is nothing to rebuild from")
	}
	n, err := newNode(cfg, app, app.Tables(), observer)
	if err == nil {
		n.commands, n.input = app, n.cfg.Catalogue.Commands(n.cfg.AppName)
		for _, r := range n.replicas {
			r.apart = true
		}
	}
	return n, err
}

func newNode(cfg Config, app any, tables []*state.Table, observer observers) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, tables: tables, observer: observer, metrics: newMetrics(cfg.Registerer, cfg.AppName),
		logger:   cfg.Logger.Named("engine").With(zap.String("application", cfg.AppName), zap.Uint64("chain", cfg.Catalogue.ChainID)),
		entities: map[string]string{}, events: map[string]eventTopics{},
		left: make(chan struct{}, 1), took: make(chan struct{}, 1), live: newLiveness(), catchingUp: catchingUp{behind: map[int32]bool{}},
		turns: &turns{free: committers}, outboxes: newOutboxes(), scout: newScout(), loads: &turns{free: min(max(runtime.GOMAXPROCS(0), 2), maxLoads)},
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
			partition: p, lease: cfg.Lease, changed: &n.changed, took: n.took, stands: &n.stands, version: n.version,
			dir: filepath.Join(cfg.Dir, fmt.Sprint(p)), again: make(chan struct{}, 1),
		})
	}
	return n, nil
}

// Run holds partitions until ctx is done, then releases them in bounded time.
//
//	membership ──► assign ──┬─► hold(0): own or follow ──► store, views
//	owners topic ─► live ───┘   hold(1): …
//	announce: what is held ──► owners topic
func (n *Node) Run(ctx context.Context) (err error) {
	n.cache = state.NewCache(n.cfg.Memory, len(n.replicas))
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
	g.Go(func() error { return n.runScout(ctx) })
	g.Go(func() error { return n.lookUpEnds(ctx) })
	g.Go(func() error { return n.lookForRebuilds(ctx) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// The consumer buffers one fetch ahead of the tasks, and half as much per partition, as long as the total is less than eight
// times that.
const fetchedPartitions = 8 // partitions that fit into one fetch

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
		return err
	}
	n.joint = newJoint(n)
	return nil
}

func (n *Node) disconnect() {
	n.joint.close()
	n.consumer.Close()
	n.history.Close()
}

// Stopped returns the errors that stopped tasks until an operator acts, or nil.
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
	role topics.HolderRole
	stop context.CancelFunc
	done chan struct{}
}

// ended reports whether the goroutine ended by itself, because its partition was to be given up.
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
			n.logger.Info("partitions assigned", zap.Int32s("partitions", parts))
		case <-tick.C: // standbys change as nodes come and go
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
			// The next holder waits for the previous one; this loop does not, since closing a store may take
			// time.
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
