package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// warmBalancer assigns partitions to members that have their state: a partition stays with its owner, goes to a
// member that has followed it if the owner is gone, and moves for balance to one that has followed it.
type warmBalancer struct {
	held    func() map[int32]uint64
	follows bool
	known   func(instance string) map[int32]uint64
	deaf    func() bool
	refuses func() []int32
	joins   func() // called when this member asks for a share; nil: nobody wants to know

	mu    sync.Mutex
	moves map[int32]move   // that this member has decided on as the leader; nobody owns such a partition until the next rebalance
	had   map[int32]string // the instance that owned a partition last, of those that had its state, as this member saw as the leader
}

// move is of a partition, from its owner to another member.
type move struct{ from, to string }

// ProtocolName implements kgo.GroupBalancer.
func (*warmBalancer) ProtocolName() string { return "lienstream-warm" }

// IsCooperative implements kgo.GroupBalancer.
func (*warmBalancer) IsCooperative() bool { return true }

// JoinGroupMetadata implements kgo.GroupBalancer.
func (w *warmBalancer) JoinGroupMetadata(interests []string, current map[string][]int32, generation int32) []byte {
	if w.joins != nil {
		w.joins()
	}
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics, meta.Generation = 3, interests, generation
	for _, topic := range slices.Sorted(maps.Keys(current)) {
		owned := kmsg.NewConsumerMemberMetadataOwnedPartition()
		owned.Topic, owned.Partitions = topic, current[topic]
		meta.OwnedPartitions = append(meta.OwnedPartitions, owned)
	}
	meta.UserData = memberState{held: w.held(), follows: w.follows, deaf: w.deaf(), refuses: setOf(w.refuses())}.encode()
	return meta.AppendTo(nil)
}

// ParseSyncAssignment implements kgo.GroupBalancer.
func (*warmBalancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	return kgo.ParseConsumerSyncAssignment(assignment)
}

// MemberBalancer implements kgo.GroupBalancer.
func (w *warmBalancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	b, err := kgo.NewConsumerBalancer(w, members)
	if err != nil {
		return nil, nil, err
	}
	return b, b.MemberTopics(), nil
}

// Balance implements kgo.ConsumerBalancerBalance.
func (w *warmBalancer) Balance(b *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	plan := b.NewPlan()
	for topic, partitions := range topics { // there is one
		var members []candidate
		b.EachMember(func(m *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
			c := candidate{id: m.MemberID, instance: m.MemberID, generation: meta.Generation, owned: map[int32]bool{}, takes: map[int32]bool{}, had: map[int32]bool{}}
			if m.InstanceID != nil {
				c.instance = *m.InstanceID
			}
			c.memberState, _ = decodeMemberState(meta.UserData) // a member without valid metadata has no state
			if m.InstanceID != nil && c.held != nil {
				for p, at := range w.known(*m.InstanceID) {
					c.held[p] = max(c.held[p], at)
				}
			}
			for _, o := range meta.OwnedPartitions {
				for _, p := range o.Partitions {
					c.owned[p] = c.owned[p] || o.Topic == topic
				}
			}
			members = append(members, c)
		})
		for p, i := range w.assign(members, partitions) {
			member, _ := b.MemberAt(i)
			plan.AddPartition(member, topic, int32(p))
		}
	}
	plan.AdjustCooperative(b)
	return plan
}

// assign is assignPartitions, with what was decided and seen before.
func (w *warmBalancer) assign(members []candidate, partitions int32) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := map[string]int{}
	for i, m := range members {
		at[m.id] = i
		for p, instance := range w.had {
			m.had[p] = m.instance == instance
		}
	}
	for p, m := range w.moves {
		_, goesOn := at[m.from]
		if to, ok := at[m.to]; ok && goesOn {
			members[to].takes[p] = true
		}
	}
	assigned := assignPartitions(members, partitions)
	moves := map[int32]move{}
	if w.had == nil {
		w.had = map[int32]string{}
	}
	for p, from := range owners(members, partitions) {
		p := int32(p)
		if from >= 0 {
			if _, has := members[from].held[p]; has {
				w.had[p] = members[from].instance
			}
		}
		if to := assigned[p]; from < 0 {
			if m, ok := w.moves[p]; ok {
				moves[p] = m
			}
		} else if to != from {
			moves[p] = move{members[from].id, members[to].id}
		}
	}
	w.moves = moves
	return assigned
}

// memberState is a member's position in each partition that it has state of, whether it follows partitions that it does not
// own, and so will have state of more, and which partitions it must not get: all if it is deaf and others are not, and those
// that it refuses and others do not.
type memberState struct {
	held    map[int32]uint64
	follows bool
	deaf    bool
	refuses map[int32]bool
}

const memberStateVersion = 1

// Flags of a memberState. To a former build, which knows only the first or the first two, a member with another one has no state.
const (
	memberFollows = 1 << iota
	memberDeaf
	memberRefuses // how many partitions, and which, is before what it has
)

func (h memberState) encode() []byte {
	flags := byte(0)
	if h.follows {
		flags |= memberFollows
	}
	if h.deaf {
		flags |= memberDeaf
	}
	if len(h.refuses) > 0 {
		flags |= memberRefuses
	}
	b := []byte{memberStateVersion, flags}
	if len(h.refuses) > 0 {
		b = binary.AppendUvarint(b, uint64(len(h.refuses)))
		for _, p := range slices.Sorted(maps.Keys(h.refuses)) {
			b = binary.AppendUvarint(b, uint64(uint32(p)))
		}
	}
	for _, p := range slices.Sorted(maps.Keys(h.held)) {
		b = binary.AppendUvarint(b, uint64(uint32(p)))
		b = binary.AppendUvarint(b, h.held[p])
	}
	return b
}

func decodeMemberState(b []byte) (h memberState, err error) {
	if len(b) < 2 || b[0] != memberStateVersion || b[1] > memberFollows|memberDeaf|memberRefuses {
		return h, fmt.Errorf("member metadata: unknown version, %d bytes", len(b))
	}
	flags := b[1]
	b = b[2:]
	next := func() (n uint64) {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			err = errors.New("member metadata: truncated")
			return 0
		}
		b = b[size:]
		return n
	}
	partition := func() int32 {
		p := next()
		if p > math.MaxInt32 {
			err = errors.New("member metadata: invalid partition")
		}
		return int32(p)
	}
	h.held, h.follows, h.deaf = map[int32]uint64{}, flags&memberFollows != 0, flags&memberDeaf != 0
	if flags&memberRefuses != 0 {
		h.refuses = map[int32]bool{}
		for n := next(); n > 0 && err == nil; n-- {
			h.refuses[partition()] = true
		}
	}
	for len(b) > 0 && err == nil {
		h.held[partition()] = next()
	}
	if err != nil {
		return memberState{}, err
	}
	return h, nil
}

func setOf(partitions []int32) map[int32]bool {
	set := make(map[int32]bool, len(partitions))
	for _, p := range partitions {
		set[p] = true
	}
	return set
}

// candidate is a member during an assignment.
type candidate struct {
	memberState
	id         string
	instance   string // outlives a process, where the member has one
	generation int32
	owned      map[int32]bool
	takes      map[int32]bool // what another member has let go of for it, and goes on with until it has restored that
	had        map[int32]bool // what it was the last to own with its state
}

// warmWithin is how far a member may be behind the furthest one and still count as having the state.
const warmWithin = 1024

// eligible returns which members may own a partition: those that are not deaf (all, if all are), and of these those that do not
// refuse it (all, if all do). refused are the partitions that some members must not get, able is the number of members that are
// not deaf.
func eligible(members []candidate) (may func(p int32, i int) bool, refused map[int32]bool, able int) {
	for _, m := range members {
		if !m.deaf {
			able++
		}
	}
	all := able == 0
	if all {
		able = len(members)
	}
	hears := func(m *candidate) bool { return all || !m.deaf }
	refused = map[int32]bool{} // but for partitions that all refuse
	for i := range members {
		for p := range members[i].refuses {
			refused[p] = slices.ContainsFunc(members, func(m candidate) bool { return hears(&m) && !m.refuses[p] })
		}
	}
	return func(p int32, i int) bool { m := &members[i]; return hears(m) && (!refused[p] || !m.refuses[p]) }, refused, able
}

// owners says which member owns each partition; -1: none does.
func owners(members []candidate, partitions int32) []int {
	owner := make([]int, partitions)
	for p := range owner {
		owner[p] = -1
		for i, m := range members {
			if m.owned[int32(p)] && (owner[p] < 0 || m.generation > members[owner[p]].generation) {
				owner[p] = i
			}
		}
	}
	return owner
}

// assignPartitions says which member gets each partition. Owners keep theirs. A partition without an owner goes to the
// member that it is moving to, else to the one with its state that owns the fewest, regardless of balance; if no member has its
// state, to the last owner that had it, else to the one that owns the fewest. Then surplus partitions move to members that have
// their state. To other members they move only up to half a share if these follow partitions that they do not own, since they will
// have more state before long, and up to a full share if not; and only if somebody goes on with them until they are restored. Members
// that are deaf get nothing and keep nothing, if there are others: where all are, the broker is away that they do not hear. The same
// goes for a partition and who refuses it. Who refuses one gets no other from its owner without its state: what that owner writes, a
// build does not know of one partition and not of the next.
func assignPartitions(members []candidate, partitions int32) []int {
	owner := owners(members, partitions)
	may, refused, able := eligible(members)
	load := make([]int, len(members))
	warm := make([][]bool, partitions)
	orphaned := make([]bool, partitions) // there is state of them, but nobody goes on with them
	for p := range owner {
		if owner[p] >= 0 && !may(int32(p), owner[p]) {
			owner[p] = -1
		}
		var furthest uint64
		for i, m := range members {
			furthest = max(furthest, m.held[int32(p)])
			if owner[p] < 0 && m.takes[int32(p)] && may(int32(p), i) {
				owner[p] = i
			}
		}
		warm[p] = make([]bool, len(members))
		for i, m := range members {
			at, has := m.held[int32(p)]
			warm[p][i] = has && at+warmWithin >= furthest
		}
		if owner[p] >= 0 {
			load[owner[p]]++
		}
	}
	least := func(fits func(i int) bool) int {
		best := -1
		for i := range members {
			if fits(i) && (best < 0 || load[i] < load[best]) {
				best = i
			}
		}
		return best
	}
	for p := range owner {
		if owner[p] >= 0 {
			continue
		}
		if owner[p] = least(func(i int) bool { return may(int32(p), i) && warm[p][i] }); owner[p] >= 0 {
			orphaned[p] = true
		} else if owner[p] = least(func(i int) bool { return may(int32(p), i) && members[i].had[int32(p)] }); owner[p] < 0 {
			owner[p] = least(func(i int) bool { return may(int32(p), i) })
		}
		load[owner[p]]++
	}
	share := int(partitions) / able
	move := func(to int, cold bool) bool {
		from := -1
		foreign := map[int]bool{} // who owns what it refuses
		for p := range refused {
			if p < partitions && refused[p] && members[to].refuses[p] {
				foreign[owner[p]] = true
			}
		}
		for p, i := range owner {
			if load[i] > load[to]+1 && may(int32(p), to) && (warm[p][to] || cold && !orphaned[p] && !foreign[i]) && (from < 0 || load[i] > load[owner[from]]) {
				from = p
			}
		}
		if from < 0 {
			return false
		}
		load[owner[from]]--
		owner[from] = to
		load[to]++
		return true
	}
	for moved := true; moved; {
		moved = false
		for i := range members {
			moved = moved || move(i, false) || (!members[i].follows || load[i] < share/2) && move(i, true)
		}
	}
	return owner
}
