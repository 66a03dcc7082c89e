package read

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// marked is a node that holds watermarks and no state.
type marked struct {
	Broadcast

	mu    sync.Mutex
	marks []Watermark
}

func (m *marked) Watermarks() []Watermark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.marks
}

func (m *marked) View(context.Context, int32, *topics.BlockRef) (state.View, error) {
	return nil, ErrUnavailable
}

func (m *marked) set(marks ...Watermark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.marks = marks
	m.Notify()
}

func markAt(p int32, number uint64) Watermark {
	return Watermark{Partition: p, Role: topics.RoleOwner, Incarnation: 1, At: topics.BlockRef{Number: number, Hash: [32]byte{byte(number)}}}
}

// Who has seen the watermarks as they are waits until they are others, and no longer than it asked for.
func TestWatermarksAreToldWhenTheyMove(t *testing.T) {
	m := &marked{}
	node := local{source: m}
	ask := func(seen uint64, wait time.Duration) []Watermark {
		a, err := node.ask(t.Context(), &nodeRequest{Operation: watermarks, query: &watch{Seen: seen, Wait: wait}})
		if err != nil {
			t.Error(err)
			return nil
		}
		return a.Watermarks
	}
	m.set(markAt(0, 1), markAt(1, 1))
	known := digest(m.marks)

	began := time.Now()
	if got := ask(0, maxWatch); len(got) != 2 || time.Since(began) >= maxWatch {
		t.Fatalf("the first question is answered with %v after %s", got, time.Since(began))
	}
	if got := ask(known, 0); len(got) != 2 {
		t.Fatalf("without a wait: %v", got)
	}
	for name, news := range map[string][]Watermark{
		"a block": {markAt(0, 1), markAt(1, 2)}, "a partition gone": {markAt(0, 1)}, "all gone": nil,
		"another hash":    {markAt(0, 1), {Partition: 1, Role: topics.RoleOwner, Incarnation: 1, At: topics.BlockRef{Number: 1, Hash: [32]byte{9}}}},
		"another role":    {markAt(0, 1), {Partition: 1, Role: topics.RoleStandby, Incarnation: 1, At: markAt(1, 1).At}},
		"another life":    {markAt(0, 1), {Partition: 1, Role: topics.RoleOwner, Incarnation: 2, At: markAt(1, 1).At}},
		"a revert behind": {markAt(0, 1), {Partition: 1, Role: topics.RoleOwner, Incarnation: 1, At: markAt(1, 1).At, Reverts: 1}},
	} {
		m.set(markAt(1, 1), markAt(0, 1)) // in another order: no news
		told := make(chan []Watermark, 1)
		began := time.Now()
		go func() { told <- ask(known, maxWatch) }()
		m.set(news...)
		if got := <-told; len(got) != len(news) || time.Since(began) >= maxWatch {
			t.Errorf("%s: told %v after %s", name, got, time.Since(began))
		}
	}

	// That the chain was seen again is no news; it is told when the wait ends.
	m.set(markAt(0, 1), markAt(1, 1))
	const wait = 20 * time.Millisecond
	told := make(chan []Watermark, 1)
	began = time.Now()
	go func() { told <- ask(known, wait) }()
	seen := markAt(1, 1)
	seen.Latest, seen.ObservedAt = 9, began
	m.set(markAt(0, 1), seen)
	if got := <-told; got[1].Latest != 9 || time.Since(began) < wait {
		t.Errorf("told %v after %s", got, time.Since(began))
	}
}

// What an answer showed is known from then on, although its node has not told of it yet; and a node that tells of
// an earlier time takes nothing back.
func TestAnswersAreNews(t *testing.T) {
	r := &Router{nodes: newNodes(2, nil, Application{})}
	h := &node{instance: "a", marks: map[int32]Watermark{}}
	r.nodes.others["a"] = h
	r.nodes.told(h, []Watermark{markAt(0, 1), markAt(1, 1)})
	current := func(number uint64, from ...int32) bool { return r.Current(markAt(0, number).At, from) }
	if !current(1) || !current(1, 1) {
		t.Fatal("what a node told is not known")
	}
	r.nodes.shown(Moment{Block: markAt(0, 2).At}, []int32{1})
	r.nodes.told(h, []Watermark{markAt(0, 1), markAt(1, 1)})
	if current(1, 1) || !current(2, 1) || !current(1, 0) || !current(1) {
		t.Error("what an answer showed is not known")
	}
	r.nodes.told(h, []Watermark{markAt(0, 2), markAt(1, 3)})
	if current(1) || !current(2) || !current(3, 1) {
		t.Error("what a node told later is not known")
	}
	r.nodes.told(h, nil)
	if current(2) || current(2, 0) {
		t.Error("something is current although nobody holds anything")
	}
}

// What others are shown while a node reads does not refuse its answer; what was shown before it was asked does.
func TestLongReadIsNotBehind(t *testing.T) {
	n := newNodes(1, nil, Application{})
	c := call{node: new(node), partitions: []int32{0}}
	before := n.floorOf(c.partitions)
	n.shown(moment(6, 0), c.partitions)
	if reason, _ := n.accept(c, asOf(moment(5, 0), 1), before); reason != "" {
		t.Errorf("refused as %s", reason)
	}
	if reason, _ := n.accept(c, asOf(moment(5, 0), 1), n.floorOf(c.partitions)); reason != refusedBehind {
		t.Errorf("refused as %q", reason)
	}
}

func moment(number, reverts uint64) Moment { return Moment{markAt(0, number).At, reverts} }

func asOf(m Moment, incarnation int64) *Response {
	return &Response{Moment: m, Watermarks: []Watermark{{At: m.Block, Reverts: m.Reverts, Incarnation: incarnation}}}
}

// The floor is the block, by reverts and number: a new owner may begin before what the last one showed of its
// overlay, and a block of a fork comes after the higher ones that it replaced.
func TestTheFloorOutlivesOwners(t *testing.T) {
	n := newNodes(1, nil, Application{})
	c := call{node: new(node), partitions: []int32{0}}
	n.shown(moment(100, 0), c.partitions) // by incarnation 5
	for _, v := range []struct {
		at          Moment
		incarnation int64
		want        string
	}{
		{moment(99, 0), 6, refusedBehind},
		{moment(100, 0), 6, ""},
		{moment(101, 0), 5, refusedOld},
		{moment(98, 3), 6, ""},
	} {
		if reason, _ := n.accept(c, asOf(v.at, v.incarnation), n.floorOf(c.partitions)); reason != v.want {
			t.Errorf("block %d after %d reverts, of incarnation %d: %q, want %q", v.at.Block.Number, v.at.Reverts, v.incarnation, reason, v.want)
		}
	}
	// A view may be taken back to the block of another partition, whatever the watermark says.
	back := asOf(moment(101, 0), 6)
	back.Moment = moment(99, 0)
	if reason, partition := n.accept(c, back, n.floorOf(c.partitions)); reason != refusedBehind || partition != -1 {
		t.Errorf("taken back: %q of partition %d", reason, partition)
	}
}
