package kafka

import (
	"encoding/binary"
	"fmt"
	"maps"
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
	deaf    func() bool

	mu    sync.Mutex
	moves map[int32]move // that this member has decided on as the leader; nobody owns such a partition until the next rebalance
}

// move is of a partition, from its owner to another member.
type move struct{ from, to string }

// ProtocolName implements kgo.GroupBalancer.
func (*warmBalancer) ProtocolName() string { return "lienstream-warm" }

// IsCooperative implements kgo.GroupBalancer.
func (*warmBalancer) IsCooperative() bool { return true }

// JoinGroupMetadata implements kgo.GroupBalancer.
func (w *warmBalancer) JoinGroupMetadata(interests []string, current map[string][]int32, generation int32) []byte {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics, meta.Generation = 3, interests, generation
	for _, topic := range slices.Sorted(maps.Keys(current)) {
		owned := kmsg.NewConsumerMemberMetadataOwnedPartition()
		owned.Topic, owned.Partitions = topic, current[topic]
		meta.OwnedPartitions = append(meta.OwnedPartitions, owned)
	}
	meta.UserData = memberState{held: w.held(), follows: w.follows, deaf: w.deaf()}.encode()
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
			c := candidate{id: m.MemberID, generation: meta.Generation, owned: map[int32]bool{}, takes: map[int32]bool{}}
			c.memberState, _ = decodeMemberState(meta.UserData) // a member without valid metadata has no state
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

// assign is assignPartitions, with what was decided before.
func (w *warmBalancer) assign(members []candidate, partitions int32) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	hears, _ := hearing(members)
	at := map[string]int{}
	for i, m := range members {
		at[m.id] = i
	}
	for p, m := range w.moves {
		_, goesOn := at[m.from]
		if to, ok := at[m.to]; ok && goesOn && hears(to) {
			members[to].takes[p] = true
		}
	}
	assigned := assignPartitions(members, partitions)
	moves := map[int32]move{}
	for p, from := range owners(members, partitions) {
		p := int32(p)
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

// memberState is how far a member has come in the partitions that it has state of, whether it follows partitions that it does
// not own, and so will have state of more, and whether it is deaf: it gets nothing while others hear.
type memberState struct {
	held    map[int32]uint64
	follows bool
	deaf    bool
}

const memberStateVersion = 1

// Flags of a memberState. To a former build, which knows only the first, a member with the second one has no state.
const (
	memberFollows = 1 << iota
	memberDeaf
)

func (h memberState) encode() []byte {
	flags := byte(0)
	if h.follows {
		flags |= memberFollows
	}
	if h.deaf {
		flags |= memberDeaf
	}
	b := []byte{memberStateVersion, flags}
	for _, p := range slices.Sorted(maps.Keys(h.held)) {
		b = binary.AppendUvarint(b, uint64(uint32(p)))
		b = binary.AppendUvarint(b, h.held[p])
	}
	return b
}

func decodeMemberState(b []byte) (h memberState, err error) {
	if len(b) < 2 || b[0] != memberStateVersion || b[1] > memberFollows|memberDeaf {
		return h, fmt.Errorf("member metadata: unknown version, %d bytes", len(b))
	}
	h.held, h.follows, h.deaf = map[int32]uint64{}, b[1]&memberFollows != 0, b[1]&memberDeaf != 0
	for b = b[2:]; len(b) > 0; {
		p, n := binary.Uvarint(b)
		if n <= 0 || p > 1<<31-1 {
			return memberState{}, fmt.Errorf("member metadata: partition")
		}
		at, m := binary.Uvarint(b[n:])
		if m <= 0 {
			return memberState{}, fmt.Errorf("member metadata: position in partition %d", p)
		}
		h.held[int32(p)], b = at, b[n+m:]
	}
	return h, nil
}

// candidate is a member during an assignment.
type candidate struct {
	memberState
	id         string
	generation int32
	owned      map[int32]bool
	takes      map[int32]bool // what another member has let go of for it, and goes on with until it has restored that
}

// warmWithin is how far a member may be behind the furthest one and still count as having the state.
const warmWithin = 1024

// hearing says which members can get partitions, and how many they are: those that are not deaf, or all where all are.
func hearing(members []candidate) (hears func(int) bool, able int) {
	for _, m := range members {
		if !m.deaf {
			able++
		}
	}
	if able == 0 {
		return func(int) bool { return true }, len(members)
	}
	return func(i int) bool { return !members[i].deaf }, able
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
// state, to the one that owns the fewest. Then surplus partitions move to members that have their state. To other members they
// move only up to half a share if these follow partitions that they do not own, since they will have more state
// before long, and up to a full share if not; and only if somebody goes on with them until they are restored. Members that are
// deaf get nothing and keep nothing, if there are others: where all are, the broker is away that they do not hear.
func assignPartitions(members []candidate, partitions int32) []int {
	owner := owners(members, partitions)
	hears, able := hearing(members)
	load := make([]int, len(members))
	warm := make([][]bool, partitions)
	orphaned := make([]bool, partitions) // there is state of them, but nobody goes on with them
	for p := range owner {
		if owner[p] >= 0 && !hears(owner[p]) {
			owner[p] = -1
		}
		var furthest uint64
		for i, m := range members {
			furthest = max(furthest, m.held[int32(p)])
			if owner[p] < 0 && m.takes[int32(p)] {
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
	least := func(may func(i int) bool) int {
		best := -1
		for i := range members {
			if may(i) && (best < 0 || load[i] < load[best]) {
				best = i
			}
		}
		return best
	}
	for p := range owner {
		if owner[p] >= 0 {
			continue
		}
		if owner[p] = least(func(i int) bool { return hears(i) && warm[p][i] }); owner[p] < 0 {
			owner[p] = least(hears)
		} else {
			orphaned[p] = true
		}
		load[owner[p]]++
	}
	share := int(partitions) / able
	move := func(to int, cold bool) bool {
		from := -1
		for p, i := range owner {
			if load[i] > load[to]+1 && (warm[p][to] || cold && !orphaned[p]) && (from < 0 || load[i] > load[owner[from]]) {
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
			moved = moved || hears(i) && (move(i, false) || (!members[i].follows || load[i] < share/2) && move(i, true))
		}
	}
	return owner
}
