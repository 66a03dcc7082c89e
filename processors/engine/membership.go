package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics/kafka"
)

// How long a disk may be unwritable before the node leaves the group, how often that is checked, and the minimum
// and maximum time until it rejoins.
const (
	diskPatience = 3 * time.Second
	diskLook     = 250 * time.Millisecond
	minAway      = 2 * time.Second
	maxAway      = time.Minute

	// Minimum and maximum wait before the group is asked to rebalance.
	minAsk = 3 * time.Second
	maxAsk = 5 * time.Minute
)

var errDisk = errors.New("disk failure")

// member keeps the node in the consumer group while its disk is writable and the brokers hear it. A store with a full disk
// blocks, and its task with it, but the node's heartbeats go on and the group notices nothing. So the node leaves if there
// are others, and rejoins when it can write. The same goes for an owner that one broker does not hear (cutoff.go), and for one that
// stopped for a reason that other nodes do not have.
func (n *Node) member(ctx context.Context, assigned chan<- []int32) error {
	away := minAway
	for {
		began := time.Now()
		err := n.join(ctx, assigned)
		cut, _ := errors.AsType[*cutOff](err)
		if ctx.Err() != nil || cut == nil && !errors.Is(err, errDisk) && !errors.Is(err, errUnfit) {
			return err
		}
		if time.Since(began) > maxAway {
			away = minAway
		}
		n.logger.Error("left the consumer group so that other nodes take over", zap.Duration("atLeast", away), zap.Error(err))
		select {
		case assigned <- nil:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !wait(ctx, away+rand.N(away/4)) { //nolint:gosec // it only spreads them
			return ctx.Err()
		}
		away = min(2*away, maxAway)
		if cut != nil {
			n.hears(ctx, cut.partition)
		} else if !n.fit(ctx) {
			return ctx.Err()
		}
		n.logger.Info("rejoining the consumer group")
	}
}

// fit waits until the disk is writable, and no task has stopped for a reason of this node's own. False: ctx is done.
func (n *Node) fit(ctx context.Context) bool {
	for _, r := range n.replicas {
		r.refused(false)
	}
	for n.stuck() != nil || n.unfit(func(int32) bool { return true }) != nil || n.tryDisk(ctx) != nil {
		if !wait(ctx, time.Second) {
			return false
		}
	}
	return true
}

// join is one membership; it returns errDisk, errUnfit or a cutOff if it must end.
func (n *Node) join(ctx context.Context, assigned chan<- []int32) error {
	c := n.cfg.Catalogue
	var told atomic.Bool                // that it is deaf: the group knows, or will
	var refused atomic.Pointer[[]int32] // what it knows of that, or will
	m, err := kafka.JoinGroup(n.cfg.Kafka, fmt.Sprintf("%s.%d.%s", c.Prefix, c.ChainID, n.cfg.AppName), c.TasksTopic(), kafka.MembershipOptions{
		Instance: n.cfg.Instance, SessionTimeout: n.cfg.SessionTimeout,
		Held: n.held, Follows: n.cfg.Standbys > 0, Known: n.live.followed,
		Deaf: func() bool {
			_, is := n.live.deaf()
			told.Store(is)
			return is
		},
		Refuses: func() []int32 {
			now := n.refuses()
			refused.Store(&now)
			return now
		},
	})
	if err != nil {
		return err
	}
	n.membership.Store(m)
	defer n.membership.Store(nil)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.Run(ctx) })
	g.Go(func() error {
		look := time.NewTicker(diskLook)
		defer look.Stop()
		owned, asked, pause := []int32(nil), time.Now(), minAsk
		behind := map[int32]time.Time{}
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case parts := <-m.Assignments():
				owned, pause = parts, minAsk
				select {
				case assigned <- parts:
				case <-ctx.Done():
					return ctx.Err()
				}
			case <-look.C:
				if err := n.stuck(); err != nil && n.live.others(n.cfg.Instance) {
					return err
				}
				if err := n.unfit(func(p int32) bool { return slices.Contains(owned, p) }); err != nil {
					return err
				}
				if err := n.behind(behind); err != nil {
					return err
				}
				if _, is := n.live.deaf(); told.Load() && !is || !told.Load() && len(owned) > 0 && n.helpless() {
					told.Store(is)
					n.logger.Warn("rejoining the consumer group for another assignment", zap.Bool("deaf", is))
					m.Rejoin()
				}
				if now, last := n.refuses(), refused.Load(); last != nil && !slices.Equal(now, *last) {
					refused.Store(&now)
					n.logger.Warn("rejoining the consumer group without partitions that this build cannot own", zap.Int32s("partitions", now))
					m.Rejoin()
				}
				if time.Since(asked) > pause && n.couldOwn(len(owned)) {
					asked, pause = time.Now(), min(2*pause, maxAsk)
					m.Rejoin()
				}
			}
		}
	})
	return g.Wait()
}

// patientWithGroup is for how many sessions a node waits for its share and is ready all the same: a rebalance may last two, and
// another for each member that falls silent meanwhile.
const patientWithGroup = 4

// waitsForGroup is since when the group has not said what this node's share is, if that is long; zero: it has, or the node has left
// it. While one member does not take part in a rebalance, it goes on for all, and nobody takes over what another leaves.
func (n *Node) waitsForGroup() time.Time {
	m := n.membership.Load()
	if m == nil {
		return time.Time{}
	}
	if since := m.Owed(); time.Since(since) > patientWithGroup*n.cfg.SessionTimeout {
		return since
	}
	return time.Time{}
}

// held is how far this node has come in each partition that it can answer for.
func (n *Node) held() map[int32]uint64 {
	held := map[int32]uint64{}
	for _, w := range n.Watermarks() {
		held[w.Partition] = w.At.Number
	}
	return held
}

// couldOwn reports whether a node owns less than its share although it follows partitions that it could own.
// The group prefers a node that has a partition, but learns that only in a rebalance.
func (n *Node) couldOwn(owned int) bool {
	if _, deaf := n.live.deaf(); deaf {
		return false // nobody is known
	}
	return n.cfg.Standbys > 0 && owned < len(n.replicas)/n.live.count() && len(n.held()) > owned
}

// stuck returns an error for a partition whose disk has been unwritable for too long.
func (n *Node) stuck() error {
	for _, r := range n.replicas {
		if since := r.waiting(); !since.IsZero() && time.Since(since) > diskPatience {
			r.fail() // it cannot commit, so its lease starts to expire
			return fmt.Errorf("%w of partition %d since %s", errDisk, r.partition, since.Format(time.TimeOnly))
		}
	}
	return nil
}

// tryBytes is the size of the file that a writable disk must accept.
const tryBytes = 4 << 20

// tryDisk writes a file beside the stores and removes it. A hanging disk is waited for.
func (n *Node) tryDisk(ctx context.Context) error {
	done := make(chan error, 1)
	go func() {
		fs, path := n.cfg.FS, n.cfg.FS.PathJoin(n.cfg.Dir, "try")
		done <- func() (err error) {
			if err := fs.MkdirAll(n.cfg.Dir, 0o750); err != nil {
				return err
			}
			f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, fs.Remove(path)) }()
			_, err = f.Write(make([]byte, tryBytes))
			if err == nil {
				err = f.Sync()
			}
			return errors.Join(err, f.Close())
		}()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
