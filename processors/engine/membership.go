package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics/kafka"
)

// How long a disk may take nothing before the node gives its partitions to others, how often that is looked at, and
// how long the node stays away at the least and at the most.
const (
	diskPatience = 3 * time.Second
	diskLook     = 250 * time.Millisecond
	minAway      = 2 * time.Second
	maxAway      = time.Minute

	// How long to wait before the group is asked to share out again, at the least and at the most.
	minAsk = 3 * time.Second
	maxAsk = 5 * time.Minute
)

var errDisk = errors.New("disk is not writable")

// member keeps the node's place in the group for as long as its disk takes what is written. A store whose disk is
// full waits, and its task with it, while the group has no reason to think that anything is wrong: so the node
// leaves where there are others, and joins again when it can write.
func (n *Node) member(ctx context.Context, assigned chan<- []int32) error {
	away := minAway
	for {
		began := time.Now()
		err := n.join(ctx, assigned)
		if ctx.Err() != nil || !errors.Is(err, errDisk) {
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
		if !wait(ctx, away) {
			return ctx.Err()
		}
		away = min(2*away, maxAway)
		for _, r := range n.replicas {
			r.refused(false)
		}
		for n.stuck() != nil || n.tryDisk(ctx) != nil {
			if !wait(ctx, time.Second) {
				return ctx.Err()
			}
		}
		n.logger.Info("disk is writable again, rejoining the consumer group")
	}
}

// join is one time of being a member; errDisk: it has to end.
func (n *Node) join(ctx context.Context, assigned chan<- []int32) error {
	c := n.cfg.Catalogue
	m, err := kafka.JoinGroup(n.cfg.Kafka, fmt.Sprintf("%s.%d.%s", c.Prefix, c.ChainID, n.cfg.AppName), c.TasksTopic(), kafka.MembershipOptions{
		Instance: n.cfg.Instance, SessionTimeout: n.cfg.SessionTimeout,
		Held: n.held, Follows: n.cfg.Standbys > 0,
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.Run(ctx) })
	g.Go(func() error {
		look := time.NewTicker(diskLook)
		defer look.Stop()
		owned, asked, pause := 0, time.Now(), minAsk
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case parts := <-m.Assignments():
				owned, pause = len(parts), minAsk
				select {
				case assigned <- parts:
				case <-ctx.Done():
					return ctx.Err()
				}
			case <-look.C:
				if err := n.stuck(); err != nil && n.live.others(n.cfg.Instance) {
					return err
				}
				if time.Since(asked) > pause && n.couldOwn(owned) {
					asked, pause = time.Now(), min(2*pause, maxAsk)
					m.Rejoin()
				}
			}
		}
	})
	return g.Wait()
}

// held is how far this node has come in what it can answer for.
func (n *Node) held() map[int32]uint64 {
	held := map[int32]uint64{}
	for _, w := range n.Watermarks() {
		held[w.Partition] = w.At.Number
	}
	return held
}

// couldOwn says that a node owns less than its share, and follows partitions that it could own: the group gives a
// partition to a node that has it, and hears of that only when it shares out.
func (n *Node) couldOwn(owned int) bool {
	return n.cfg.Standbys > 0 && owned < len(n.replicas)/n.live.count() && len(n.held()) > owned
}

// stuck says which partition's disk has taken nothing for too long.
func (n *Node) stuck() error {
	for _, r := range n.replicas {
		if since := r.waiting(); !since.IsZero() && time.Since(since) > diskPatience {
			r.fail() // it cannot commit: its lease ends
			return fmt.Errorf("%w of partition %d since %s", errDisk, r.partition, since.Format(time.TimeOnly))
		}
	}
	return nil
}

// tryBytes is what a disk must take to count as writable.
const tryBytes = 4 << 20

// tryDisk writes a file beside the stores and removes it. A disk that hangs is waited for.
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
