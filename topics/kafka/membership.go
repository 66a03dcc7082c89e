package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// DefaultSessionTimeout is how long a member of a group may be silent where nothing says otherwise.
const DefaultSessionTimeout = 10 * time.Second

// MembershipOptions tune a Membership.
type MembershipOptions struct {
	Instance       string        // group.instance.id: a returning member keeps its partitions
	SessionTimeout time.Duration // after which a silent member's partitions go to others; DefaultSessionTimeout
	Registerer     prometheus.Registerer

	// Held returns how far this member has come in the partitions that it has state of; nil: it has none.
	// Follows means that it will get state of partitions that it does not own.
	Held    func() map[int32]uint64
	Follows bool

	// Known returns how far another member has said meanwhile that it has come, by its Instance: what it said as it joined is old
	// where a rebalance waited for a member that is gone. Nil: nothing.
	Known func(instance string) map[int32]uint64

	// Deaf reports that this member hears nothing of the others: it gets no partitions, and gives up those that it has, if
	// there are members that hear; nil: it is not.
	Deaf func() bool

	// Refuses returns the partitions that this member cannot own: it gets them only where all members refuse them. Nil: none.
	Refuses func() []int32
}

// Membership is a membership in a consumer group over a topic without records: the assigned partitions say
// which tasks to run. This is advice, not safety: for a moment two members may both consider a partition
// theirs. Fencing decides.
//
// Invariants:
//  1. the group's callbacks only record the assignment, so that the session survives whatever acting on it
//     takes;
//  2. Assignments holds at most the latest assignment: a slow reader skips some, and never blocks the group.
type Membership struct {
	cl       *kgo.Client
	conns    *dialer
	group    string
	instance string
	close    sync.Once

	mu       sync.Mutex
	assigned map[int32]bool
	owed     time.Time // since when the group has not answered what this member asked; zero: it has
	out      chan []int32
}

// JoinGroup makes a Membership; it joins in Run.
func JoinGroup(cfg Config, group, topic string, opt MembershipOptions) (*Membership, error) {
	opt.SessionTimeout = cmp.Or(opt.SessionTimeout, DefaultSessionTimeout)
	if opt.Held == nil {
		opt.Held = func() map[int32]uint64 { return nil }
	}
	if opt.Known == nil {
		opt.Known = func(string) map[int32]uint64 { return nil }
	}
	if opt.Deaf == nil {
		opt.Deaf = func() bool { return false }
	}
	if opt.Refuses == nil {
		opt.Refuses = func() []int32 { return nil }
	}
	m := &Membership{group: group, instance: opt.Instance, assigned: map[int32]bool{}, owed: time.Now(), out: make(chan []int32, 1)}
	warm := &warmBalancer{held: opt.Held, follows: opt.Follows, known: opt.Known, deaf: opt.Deaf, refuses: opt.Refuses, joins: m.asks}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.Balancers(warm, kgo.CooperativeStickyBalancer()), // former builds know only the second
		kgo.SessionTimeout(opt.SessionTimeout),
		kgo.HeartbeatInterval(min(opt.SessionTimeout/3, time.Second)),
		kgo.RebalanceTimeout(2 * opt.SessionTimeout),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			m.answered()
			m.note(parts[topic], true)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { m.note(parts[topic], false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { m.note(parts[topic], false) }),
	}
	if opt.Instance != "" {
		opts = append(opts, kgo.InstanceID(opt.Instance))
	}
	cl, conns, err := cfg.client("membership", opt.Registerer, opts...)
	if err != nil {
		return nil, err
	}
	m.cl, m.conns = cl, conns
	return m, nil
}

// Assignments delivers the member's partitions, ascending, whenever they change. A member that lost its session
// gets an empty list.
func (m *Membership) Assignments() <-chan []int32 { return m.out }

// Owed is since when this member has waited for the group to say what its share is, after it joined or was asked to join anew;
// zero: it does not wait. Meanwhile it keeps what it had.
func (m *Membership) Owed() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owed
}

func (m *Membership) asks() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owed.IsZero() {
		m.owed = time.Now()
	}
}

// answered is called at the end of a rebalance, whatever its result is.
func (m *Membership) answered() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owed = time.Time{}
}

// Run keeps the membership until ctx is done, then leaves in bounded time. It returns an error only if the
// group rejects the member for good.
func (m *Membership) Run(ctx context.Context) error {
	defer m.Close()
	tick := time.NewTicker(errorsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return m.leave(context.WithoutCancel(ctx))
		case <-m.cl.Context().Done():
			return ErrKilled
		case <-tick.C:
		}
		var now context.Context                               // nil: take what is there, and do not wait
		for _, e := range m.cl.PollRecords(now, 1).Errors() { //nolint:contextcheck // it does not wait
			if _, lost := errors.AsType[*kgo.ErrGroupSession](e.Err); !lost {
				return fmt.Errorf("group %s: %w", m.group, classify(e.Err))
			}
			// The session was lost: the client rejoins by itself, and the callbacks have reported it.
		}
	}
}

// errorsEvery is how often the group's errors are looked for. A poll that waits for them wakes up while the client ends
// a session, and both want its lock: a simulation in virtual time then stands still.
const errorsEvery = 500 * time.Millisecond

// Rejoin triggers a rebalance, because what the member says of itself has changed.
func (m *Membership) Rejoin() { m.cl.ForceRebalance() }

// leave gives up the partitions at once; a member that just stops keeps them for a session timeout. A static
// member can leave only through an admin request.
func (m *Membership) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	err := supervise(ctx, func(ctx context.Context) error {
		if m.instance == "" {
			return m.cl.LeaveGroupContext(ctx)
		}
		_, err := kadm.NewClient(m.cl).LeaveGroup(ctx, kadm.LeaveGroup(m.group).InstanceIDs(m.instance))
		return err
	})
	if err != nil {
		return fmt.Errorf("leave group %s: %w", m.group, err)
	}
	return nil
}

// Close releases the client, in bounded time, without leaving.
func (m *Membership) Close() { m.close.Do(func() { closeClient(m.cl, m.conns) }) }

func (m *Membership) note(parts []int32, held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.assigned)
	for _, p := range parts {
		if held {
			m.assigned[p] = true
		} else {
			delete(m.assigned, p)
		}
	}
	if len(m.assigned) == before {
		return // the rebalance did not concern this member
	}
	now := make([]int32, 0, len(m.assigned))
	for p := range m.assigned {
		now = append(now, p)
	}
	slices.Sort(now)
	select {
	case <-m.out: // the previous one was not received
	default:
	}
	m.out <- now // has room: only this function sends, under the lock
}
