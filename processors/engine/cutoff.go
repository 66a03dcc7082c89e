package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/topics"
)

// A network may fail between one node and one broker. The node's heartbeats go to another broker, the group's coordinator,
// so the group leaves the node partitions that it can neither commit nor restore. An owner therefore leaves the group if
// another node could do better: a standby that knows newer blocks, and that is answered by the broker which does not answer
// the owner. If a broker answers nobody, no owner leaves.
//
// If that broker also leads the owners topic, the owner receives no announcements, not even its own: it is deaf. It tells the
// group, whose leader gives its partitions to members that are not deaf, and none to it until it receives announcements again.
// If all members are deaf, they keep their partitions.

// cutOff is why a node leaves the group: brokers that others hear do not answer it.
type cutOff struct {
	partition int32
	since     time.Time
}

func (c *cutOff) Error() string {
	return fmt.Sprintf("brokers that answer others have not answered the owner of partition %d since %s", c.partition, c.since.Format(time.TimeOnly))
}

// await notes that the holder waits for brokers, unless it does already. What fails is still waited for.
func (r *replica) await() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.awaits.IsZero() {
		r.awaits = time.Now()
	}
}

// heard notes that they answered.
func (r *replica) heard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awaits = time.Time{}
}

// awaiting is since when an owner has waited for brokers, and how far it is; zero: it does not.
func (r *replica) awaiting() (since time.Time, at read.Point) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.role != topics.RoleOwner || r.stopped != nil {
		return since, at
	}
	return r.awaits, read.Point{Reverts: r.mark.Reverts, Number: r.mark.At.Number}
}

// ahead reports whether another instance could own a partition whose owner here gets no answer from some brokers: an instance
// that such a broker answers, and that is further ahead as a standby. Without standbys, and for commands, which a standby learns
// from the owner, the broker's answer is enough.
func (l *liveness) ahead(self string, r *replica, at read.Point, silent []string, standbys bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for instance, seen := range l.seen {
		theirs := l.unheard[instance]
		heard := slices.ContainsFunc(silent, func(addr string) bool { return !slices.Contains(theirs, addr) })
		if instance == self || !heard || time.Since(seen) >= 2*announceInterval {
			continue
		}
		s, follows := l.follow[r.partition][instance]
		further := r.apart || at.Before(s.at)
		if !standbys || follows && further && time.Since(s.said) < 2*announceInterval {
			return true
		}
	}
	return false
}

// behind returns an error for a partition whose owner here has been waiting for brokers for half a session, while another
// instance could do better. since is kept from one call to the next.
func (n *Node) behind(since map[int32]time.Time) error {
	silent := n.cfg.Kafka.Silent()
	for _, r := range n.replicas {
		waits, at := r.awaiting()
		if waits.IsZero() || r.leaving.Load() || !n.live.ahead(n.cfg.Instance, r, at, silent, n.cfg.Standbys > 0) {
			delete(since, r.partition)
			continue
		}
		if since[r.partition].IsZero() {
			since[r.partition] = time.Now()
		}
		if patience := n.cfg.SessionTimeout / 2; time.Since(waits) > patience && time.Since(since[r.partition]) > patience {
			r.fail() // its lease starts to expire
			return &cutOff{r.partition, waits}
		}
	}
	return nil
}

// deafAfter is the time without announcements, not even of this node, after which the node is deaf. Nodes that lose the owners
// topic for the same reason are all deaf within it, before one of them has asked the group for another assignment.
const deafAfter = 3 * announceInterval

// deaf returns the time since the last announcement was received, and whether the node is deaf.
func (l *liveness) deaf() (since time.Duration, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since = time.Since(l.heard)
	return since, since > deafAfter
}

// helpless reports whether an owner has been deaf and waiting for brokers for half a session.
func (n *Node) helpless() bool {
	patience := n.cfg.SessionTimeout / 2
	since, is := n.live.deaf()
	return is && since > patience && slices.ContainsFunc(n.replicas, func(r *replica) bool {
		waits, _ := r.awaiting()
		return !waits.IsZero() && time.Since(waits) > patience && !r.leaving.Load()
	})
}

// hears waits until the leader of a partition's changelog answers this node, for maxAway at most: then the group decides.
func (n *Node) hears(ctx context.Context, partition int32) {
	ctx, cancel := context.WithTimeout(ctx, maxAway)
	defer cancel()
	for {
		if _, err := n.lastOffset(ctx, n.changelog, partition); err == nil || !wait(ctx, time.Second) {
			return
		}
	}
}
