package kafka

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func member(follows bool, owned []int32, held ...int32) candidate {
	c := candidate{memberState: memberState{held: map[int32]uint64{}, follows: follows}, owned: map[int32]bool{}, takes: map[int32]bool{}, had: map[int32]bool{}}
	for _, p := range owned {
		c.owned[p] = true
	}
	for _, p := range append(held, owned...) {
		c.held[p] = 5000
	}
	return c
}

// Of a node that is gone, every partition goes to the one that followed it, and no other moves.
func TestWarmTakeover(t *testing.T) {
	members := []candidate{
		member(true, []int32{0, 1, 2}, 9, 10), member(true, []int32{3, 4, 5}, 11), member(true, []int32{6, 7, 8}),
	}
	if got := assignPartitions(members, 12); !slices.Equal(got, []int{0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 1}) {
		t.Fatal(got)
	}
	members[2].held[9], members[0].held[9] = 5000+warmWithin+1, 5000 // it is far ahead of the other that has it
	if got := assignPartitions(members, 12); got[9] != 2 {
		t.Fatal(got)
	}
}

// What members have followed since they joined counts, too: a rebalance waits for one that is gone for as long as a session.
func TestWarmTakeoverAfterALongRebalance(t *testing.T) {
	joined := func(instance string) kmsg.JoinGroupResponseMember {
		w := warmBalancer{held: func() map[int32]uint64 { return nil }, follows: true, deaf: func() bool { return false }, refuses: func() []int32 { return nil }}
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID, m.InstanceID, m.ProtocolMetadata = instance, &instance, w.JoinGroupMetadata([]string{"t"}, nil, 1)
		return m
	}
	leader := &warmBalancer{known: func(instance string) map[int32]uint64 {
		return map[string]map[int32]uint64{"a": {1: 7, 3: 7}, "b": {0: 7, 2: 7}}[instance]
	}}
	b, _, err := leader.MemberBalancer([]kmsg.JoinGroupResponseMember{joined("a"), joined("b")})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := b.(*kgo.ConsumerBalancer).BalanceOrError(map[string]int32{"t": 4})
	if err != nil {
		t.Fatal(err)
	}
	got := plan.(*kgo.BalancePlan).AsMemberIDMap()
	for instance, want := range map[string][]int32{"a": {1, 3}, "b": {0, 2}} {
		if !slices.Equal(got[instance]["t"], want) {
			t.Errorf("%s gets %d, and had followed %d", instance, got[instance]["t"], want)
		}
	}
}

// That a member owns little is no reason to give it what nobody goes on with while it restores that.
func TestWarmTakeoverBesideAMemberWithLittle(t *testing.T) {
	members := []candidate{
		member(true, []int32{0, 8, 9}, 2, 6), member(true, []int32{3, 4, 5, 6}, 1, 7, 8, 10, 11), member(true, []int32{2}),
	}
	got := assignPartitions(members, 12)
	little := 0
	for p, i := range got {
		if m := members[i]; i == 2 {
			little++
		} else if _, warm := m.held[int32(p)]; !warm {
			t.Errorf("partition %d goes to %d, which has not followed it", p, i)
		}
	}
	for _, p := range []int{1, 7, 10, 11} {
		if got[p] != 1 {
			t.Errorf("partition %d goes to %d, and 1 had followed it", p, got[p])
		}
	}
	if little != 2 {
		t.Errorf("the member with little owns %d: half a share is 2", little)
	}
}

// A member that is deaf keeps nothing and gets nothing; where all are, nothing moves.
func TestShareOfTheDeaf(t *testing.T) {
	members := []candidate{member(true, []int32{0, 1}, 2, 3), member(true, []int32{2}, 0, 1), member(true, []int32{3}, 1)}
	members[0].deaf = true
	if got := assignPartitions(members, 4); !slices.Equal(got, []int{1, 2, 1, 2}) {
		t.Fatal(got)
	}
	for i := range members {
		members[i].deaf = true
	}
	if got := assignPartitions(members, 4); !slices.Equal(got, []int{0, 0, 1, 2}) {
		t.Fatal(got)
	}
	// What was decided goes on where all are deaf, too.
	two := []candidate{member(false, nil), member(false, nil, 0, 1)}
	for i := range two {
		two[i].id, two[i].deaf = strconv.Itoa(i), true
	}
	w := new(warmBalancer)
	settle(t, w, two, w.assign(two, 2))
}

// A member that refuses a partition does not get it, and what it has besides stays; where all refuse one, it stays, too.
func TestShareOfWhoRefuses(t *testing.T) {
	members := []candidate{member(true, []int32{0, 1, 2}), member(true, []int32{3, 4}, 0), member(true, []int32{5})}
	members[0].refuses = map[int32]bool{0: true}
	if got := assignPartitions(members, 6); !slices.Equal(got, []int{1, 0, 0, 1, 1, 2}) {
		t.Fatal(got)
	}
	for i := range members {
		members[i].refuses = map[int32]bool{0: true, 3: true}
	}
	if got := assignPartitions(members, 6); !slices.Equal(got, []int{0, 0, 0, 1, 1, 2}) {
		t.Fatal(got)
	}
}

// A member that refuses a partition that was moved to it gets no other partition of that owner, because it would refuse each in
// turn. The partition goes back to its former owner, even if that has stopped its task or restarted: other members of the
// refusing build would refuse it too.
func TestRefusedPartitionGoesBack(t *testing.T) {
	for _, goesOn := range []bool{true, false} {
		members := []candidate{member(false, []int32{3, 4, 5}), member(false, []int32{0, 1, 2}), member(false, nil)}
		const older, newer, joins = 0, 1, 2
		w := new(warmBalancer)
		begins := func(restarted string) {
			for i := range members {
				members[i].id, members[i].instance = strconv.Itoa(i)+restarted, strconv.Itoa(i)
				members[i].takes, members[i].had = map[int32]bool{}, map[int32]bool{}
			}
		}
		begins("")
		if got := w.assign(members, 6); !slices.Equal(got, []int{joins, newer, newer, joins, older, older}) {
			t.Fatalf("a member that joins: %v", got)
		}
		members[newer].owned, members[older].owned = setOf([]int32{1, 2}), setOf([]int32{4, 5})
		begins("")
		if got := w.assign(members, 6); !slices.Equal(got, []int{joins, newer, newer, joins, older, older}) {
			t.Fatalf("with the next rebalance: %v", got)
		}
		members[joins].owned, members[joins].refuses, members[joins].held = setOf([]int32{0, 3}), setOf([]int32{0, 70000}), map[int32]uint64{3: 5000}
		restarted := ""
		if !goesOn {
			delete(members[newer].held, 0)
			restarted = "again"
		}
		begins(restarted)
		got := w.assign(members, 6)
		if !slices.Equal(got, []int{newer, newer, newer, joins, older, older}) {
			t.Errorf("the former owner goes on %v, and of what the new one refuses: %v", goesOn, got)
		}
		settle(t, w, members, got)
	}
}

// A node that joins gets half a share of what it has not followed, and the rest when it has followed it; all of it at
// once where nobody follows.
func TestWarmJoin(t *testing.T) {
	all := []int32{0, 1, 2, 3, 4, 5, 6, 7}
	for _, tc := range []struct {
		follows bool
		held    []int32
		want    int
	}{{true, nil, 2}, {true, []int32{3, 4, 5}, 3}, {true, all, 4}, {false, nil, 4}} {
		got := assignPartitions([]candidate{member(tc.follows, all), member(tc.follows, nil, tc.held...)}, 8)
		n := 0
		for _, i := range got {
			n += i
		}
		if n != tc.want {
			t.Errorf("follows %v, has %v: gets %d, want %d", tc.follows, tc.held, n, tc.want)
		}
	}
}

// Whatever members say: every partition has one owner, a warm one where it had none and there is a warm one, and
// sharing out again ends at once.
func TestShareOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.Int32Range(1, 40).Draw(t, "partitions")
		members := make([]candidate, rapid.IntRange(1, 8).Draw(t, "members"))
		for i := range members {
			set := rapid.SliceOf(rapid.Int32Range(0, partitions-1))
			members[i] = member(rapid.Bool().Draw(t, "follows"), set.Draw(t, "owned"), set.Draw(t, "held")...)
			members[i].id, members[i].instance, members[i].deaf = strconv.Itoa(i), strconv.Itoa(i), rapid.Bool().Draw(t, "deaf")
			members[i].refuses = setOf(set.Draw(t, "refuses"))
			members[i].generation = rapid.Int32Range(0, 3).Draw(t, "generation")
		}
		hears := func(m candidate) bool { return !m.deaf }
		if !slices.ContainsFunc(members, hears) {
			hears = func(candidate) bool { return true }
		}
		w := new(warmBalancer)
		got := w.assign(members, partitions)
		for p, i := range got {
			if i < 0 || i >= len(members) {
				t.Fatalf("partition %d goes to %d", p, i)
			}
			if !hears(members[i]) {
				t.Fatalf("partition %d goes to %d, which is deaf", p, i)
			}
			takes := func(m candidate) bool { return hears(m) && !m.refuses[int32(p)] }
			if !slices.ContainsFunc(members, takes) {
				takes = hears
			}
			if !takes(members[i]) {
				t.Fatalf("partition %d goes to %d, which refuses it", p, i)
			}
			if slices.ContainsFunc(members, func(m candidate) bool { return m.owned[int32(p)] }) {
				continue
			}
			if holds := func(m candidate) bool { return m.held[int32(p)] > 0 && takes(m) }; slices.ContainsFunc(members, holds) && !holds(members[i]) {
				t.Fatalf("partition %d, which had no owner, goes to %d, which has not followed it", p, i)
			}
		}
		settle(t, w, members, got)
	})
}

// settle shares out again as a group does it, until nothing changes: who owns a partition lets go of it, and the other gets it with the
// next rebalance.
func settle(t rapid.TB, w *warmBalancer, members []candidate, got []int) {
	t.Helper()
	partitions := int32(len(got))
	for round, last := 0, []int(nil); !slices.Equal(got, last); round++ {
		if round > 4 {
			t.Fatalf("%v, then %v", last, got)
		}
		before := owners(members, partitions)
		for i := range members {
			members[i].owned, members[i].takes, members[i].had = map[int32]bool{}, map[int32]bool{}, map[int32]bool{}
		}
		for p, to := range got {
			if before[p] < 0 || before[p] == to {
				members[to].owned[int32(p)], members[to].held[int32(p)] = true, 5000
			}
		}
		last, got = got, w.assign(members, partitions)
	}
}

func FuzzMemberState(f *testing.F) {
	f.Add(memberState{held: map[int32]uint64{3: 9, 70000: 1 << 60}, follows: true}.encode())
	f.Add(memberState{deaf: true}.encode())
	f.Add(memberState{held: map[int32]uint64{1: 2}, refuses: map[int32]bool{0: true, 70000: true}}.encode())
	f.Add([]byte{memberStateVersion, 0, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeMemberState(b)
		if err != nil {
			return
		}
		if again, err := decodeMemberState(h.encode()); err != nil || again.follows != h.follows || again.deaf != h.deaf || !maps.Equal(again.held, h.held) || !maps.Equal(again.refuses, h.refuses) {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}
