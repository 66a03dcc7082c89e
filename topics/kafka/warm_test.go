package kafka

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func member(follows bool, owned []int32, held ...int32) candidate {
	c := candidate{memberState: memberState{held: map[int32]uint64{}, follows: follows}, owned: map[int32]bool{}}
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
// sharing out again changes nothing.
func TestShareOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.Int32Range(1, 40).Draw(t, "partitions")
		members := make([]candidate, rapid.IntRange(1, 8).Draw(t, "members"))
		for i := range members {
			set := rapid.SliceOf(rapid.Int32Range(0, partitions-1))
			members[i] = member(rapid.Bool().Draw(t, "follows"), set.Draw(t, "owned"), set.Draw(t, "held")...)
			members[i].generation = rapid.Int32Range(0, 3).Draw(t, "generation")
		}
		got := assignPartitions(members, partitions)
		again := slices.Clone(members)
		for i := range again {
			again[i].owned = map[int32]bool{}
		}
		for p, i := range got {
			if i < 0 || i >= len(members) {
				t.Fatalf("partition %d goes to %d", p, i)
			}
			again[i].owned[int32(p)] = true
		}
		if next := assignPartitions(again, partitions); !slices.Equal(next, got) {
			t.Fatalf("%v, then %v", got, next)
		}
	})
}

func FuzzMemberState(f *testing.F) {
	f.Add(memberState{held: map[int32]uint64{3: 9, 70000: 1 << 60}, follows: true}.encode())
	f.Add([]byte{memberStateVersion, 0, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeMemberState(b)
		if err != nil {
			return
		}
		if again, err := decodeMemberState(h.encode()); err != nil || again.follows != h.follows || !maps.Equal(again.held, h.held) {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}
