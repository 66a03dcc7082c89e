package engine

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// announceInterval is how often a node announces what it holds.
const announceInterval = time.Second

// liveness tracks who is alive and who owns what, from the owners topic.
type liveness struct {
	mu    sync.Mutex
	seen  map[string]time.Time   // by instance: when it was last heard of, by our clock
	owner map[int32]topics.Owner // of the newest incarnation

	serves  map[int32]map[string]time.Time // by partition and instance: when it last announced that it can be read there
	follow  map[int32]map[string]reached   // the same of standbys
	unheard map[string][]string            // by instance: the brokers that do not answer it
	heard   time.Time                      // when anybody was heard of last, this instance included
}

// reached is how far a standby is.
type reached struct {
	at   read.Point
	said time.Time
}

func newLiveness() liveness {
	return liveness{seen: map[string]time.Time{}, owner: map[int32]topics.Owner{}, serves: map[int32]map[string]time.Time{}, follow: map[int32]map[string]reached{}, unheard: map[string][]string{}, heard: time.Now()}
}

// listen says that nobody could be heard before.
func (l *liveness) listen(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = now
}

func (l *liveness) note(o topics.Owner, gone bool, heard time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = heard
	if gone {
		if l.owner[o.Partition].Instance == o.Instance {
			delete(l.owner, o.Partition)
		}
		delete(l.serves[o.Partition], o.Instance)
		delete(l.follow[o.Partition], o.Instance)
		return
	}
	l.seen[o.Instance] = heard
	if l.serves[o.Partition] == nil {
		l.serves[o.Partition], l.follow[o.Partition] = map[string]time.Time{}, map[string]reached{}
	}
	if delete(l.serves[o.Partition], o.Instance); o.State == topics.StateRunning {
		l.serves[o.Partition][o.Instance] = heard
	}
	if delete(l.follow[o.Partition], o.Instance); o.State == topics.StateRunning && o.Role == topics.RoleStandby {
		l.follow[o.Partition][o.Instance] = reached{read.Point{Reverts: o.Reverts, Number: o.At.Number}, heard}
	}
	l.unheard[o.Instance] = strings.Split(o.Silent, ",")
	if o.Role == topics.RoleOwner && o.Incarnation >= l.owner[o.Partition].Incarnation {
		l.owner[o.Partition] = o
	}
}

// followed is how far an instance has said just now that it has come in the partitions that it follows.
func (l *liveness) followed(instance string) map[int32]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := map[int32]uint64{}
	for p, by := range l.follow {
		if s, follows := by[instance]; follows && time.Since(s.said) < 2*announceInterval {
			held[p] = s.at.Number
		}
	}
	return held
}

// standby reports whether this instance is among the first n live ones for a partition, without the owner. All
// nodes rank by the same hash, so that few standbys move when a node comes or goes.
func (l *liveness) standby(self string, partition int32, n int) bool {
	if n == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var live []string
	for instance, seen := range l.seen {
		if instance != l.owner[partition].Instance && time.Since(seen) < topics.OwnerAlive {
			live = append(live, instance)
		}
	}
	slices.SortFunc(live, func(a, b string) int {
		return cmp.Or(cmp.Compare(rendezvous(b, partition), rendezvous(a, partition)), cmp.Compare(a, b))
	})
	return slices.Contains(live[:min(n, len(live))], self)
}

func rendezvous(instance string, partition int32) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(instance))
	_, _ = h.Write([]byte{byte(partition >> 8), byte(partition)})
	// FNV mixes the last byte mostly into the low bits, but ranks are decided by the high ones.
	v := h.Sum64()
	v = (v ^ v>>33) * 0xff51afd7ed558ccd
	return v ^ v>>33
}

// count is the number of live instances, including this one.
func (l *liveness) count() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, seen := range l.seen {
		if time.Since(seen) < topics.OwnerAlive {
			n++
		}
	}
	return max(n, 1)
}

// others reports whether other instances are alive.
func (l *liveness) others(self string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for instance, seen := range l.seen {
		if instance != self && time.Since(seen) < topics.OwnerAlive {
			return true
		}
	}
	return false
}

// served reports whether another instance can be read for a partition.
func (l *liveness) served(self string, partition int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for instance, said := range l.serves[partition] {
		if instance != self && time.Since(said) < topics.OwnerAlive {
			return true
		}
	}
	return false
}

// succeeded reports whether another instance owns and serves a partition in that incarnation or a later one.
func (l *liveness) succeeded(self string, partition int32, incarnation int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.owner[partition]
	return o.Instance != "" && o.Instance != self && o.Incarnation >= incarnation && o.State == topics.StateRunning
}

// owned reports whether another instance owns a partition and was heard of just now.
func (l *liveness) owned(self string, partition int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.owner[partition]
	return o.Instance != "" && o.Instance != self && time.Since(l.seen[o.Instance]) < 2*announceInterval
}

// silent says that not even what this instance tells comes back: nothing is known of the others either.
func (l *liveness) silent(self string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.seen[self]) >= topics.OwnerAlive
}

// role is what this node should be to a partition. One that can be read here stays, as a standby, until
// another owner serves it: whoever takes over may have to restore it first, and meanwhile there may be
// nobody else to read from. It stays, too, while the owners topic is silent: where its broker is away all nodes
// seem dead, and a standby may be further than an owner that cannot commit.
func (n *Node) role(r *replica, owned map[int32]bool) topics.HolderRole {
	if owned[r.partition] {
		return topics.RoleOwner
	}
	m, readable := r.watermark()
	if n.live.standby(n.cfg.Instance, r.partition, n.cfg.Standbys) ||
		readable && (n.live.silent(n.cfg.Instance) || !n.live.succeeded(n.cfg.Instance, r.partition, m.Incarnation)) {
		return topics.RoleStandby
	}
	return ""
}

// lingerDisk is the longest write that lets an owner linger.
const lingerDisk = time.Second

// lingers reports whether an owner whose partition was reassigned continues until the new owner fences it,
// because the new owner may have to restore the partition first.
func (n *Node) lingers(r *replica) bool {
	m, readable := r.watermark()
	since := r.waiting()
	_, stopped := r.status()
	return stopped == nil && readable && m.Role == topics.RoleOwner && (since.IsZero() || time.Since(since) < lingerDisk) &&
		!n.live.succeeded(n.cfg.Instance, r.partition, m.Incarnation)
}

// followOwners reads the owners topic.
func (n *Node) followOwners(ctx context.Context) error {
	n.live.listen(time.Now())
	for ctx.Err() == nil {
		err := n.readOwners(ctx)
		if ctx.Err() == nil {
			n.logger.Warn("reading the owners topic failed, retrying", zap.Error(err))
			wait(ctx, announceInterval)
		}
	}
	return ctx.Err()
}

func (n *Node) readOwners(ctx context.Context) error {
	reader, err := kafka.NewReader(n.cfg.Kafka, n.cfg.Catalogue.OwnersTopic(), 0, startOffset, kafka.ReaderOptions{})
	if err != nil {
		return err
	}
	defer reader.Close()
	var records []*kafka.Record
	for {
		if records, err = reader.Poll(ctx, records); err != nil {
			return err
		}
		for _, rec := range records {
			o, gone, err := topics.DecodeOwner(rec.Key, rec.Value)
			if err != nil {
				n.logger.Warn("skipped an invalid record of the owners topic", zap.Int64("offset", rec.Offset), zap.Error(err))
				continue
			}
			if o.Application == n.cfg.AppName {
				n.live.note(o, gone, time.Now())
			}
		}
	}
}

// announce publishes what this node holds every second, and when it has taken a partition, so that no owner is unheard of however
// briefly it owns it, and deletes it when the node leaves.
func (n *Node) announce(ctx context.Context) error {
	var (
		tx   *kafka.Transactor
		told = map[int32]bool{}
	)
	defer func() {
		if tx == nil {
			return
		}
		defer tx.Close()
		// Readers should not have to wait until this node times out.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceInterval)
		defer cancel()
		if err := n.tell(last, tx, nil, told); err != nil {
			n.logger.Debug("cannot withdraw what this node announced", zap.Error(err))
		}
	}()
	for {
		err := func() (err error) {
			if tx == nil {
				if tx, err = kafka.NewTransactor(n.cfg.Kafka, n.transactionalID(-1)+"."+n.cfg.Instance, kafka.TransactorOptions{Logger: n.logger}); err != nil {
					return err
				}
				if err := tx.Init(ctx); err != nil {
					return err
				}
			}
			return n.tell(ctx, tx, n.holdings(), told)
		}()
		if err != nil && tx != nil {
			tx.Close()
			tx = nil
		}
		if err != nil && ctx.Err() == nil {
			n.logger.Warn("cannot announce what this node holds", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.took:
		case <-time.After(announceInterval):
		}
	}
}

// holdings is what this node announces: the partitions it holds, and itself as one more partition.
func (n *Node) holdings() []topics.Owner {
	self := topics.Owner{
		Application: n.cfg.AppName, Partition: n.cfg.Catalogue.Partitions, Instance: n.cfg.Instance, Addr: n.cfg.Addr, State: topics.StateRunning,
		Silent: strings.Join(n.cfg.Kafka.Silent(), ","),
	}
	all := []topics.Owner{self}
	for _, r := range n.replicas {
		state, _ := r.status()
		m, serving := r.watermark()
		if state == "" || !serving && state == topics.StateRunning {
			continue
		}
		o := self
		o.Partition, o.State, o.Role = r.partition, state, m.Role
		var role topics.HolderRole
		if o.Fault, role = r.fault(); o.Role == "" || o.Fault != "" {
			o.Role = role // it may never have served
		}
		o.Incarnation, o.At, o.Latest, o.ObservedAt, o.Reverts = m.Incarnation, m.At, m.Latest, m.ObservedAt, m.Reverts
		all = append(all, o)
	}
	return all
}

// tell writes what is held, and tombstones for what is no longer held.
func (n *Node) tell(ctx context.Context, tx *kafka.Transactor, held []topics.Owner, told map[int32]bool) error {
	if err := tx.Begin(); err != nil {
		return err
	}
	topic := n.cfg.Catalogue.OwnersTopic()
	now := map[int32]bool{}
	for _, o := range held {
		value, err := o.Encode()
		if err != nil {
			return err
		}
		now[o.Partition] = true
		tx.Produce(ctx, &kafka.Record{Topic: topic, Key: o.Key(), Value: value})
	}
	for p := range told {
		if !now[p] {
			tx.Produce(ctx, &kafka.Record{Topic: topic, Key: topics.Owner{Application: n.cfg.AppName, Partition: p, Instance: n.cfg.Instance}.Key()})
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	clear(told)
	for p := range now {
		told[p] = true
	}
	return nil
}

// wait waits, and reports whether it was not cancelled.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
