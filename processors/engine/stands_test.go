package engine

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// What readers answer as of is kept for as long as they say so, however many blocks come; then it goes.
func TestWhatReadersStandOnIsKept(t *testing.T) {
	store, err := state.Open(state.Options{Dir: "state", Tables: []*state.Table{toyTable}, FS: vfs.NewMem()})
	check(t, err)
	r := &replica{changed: new(read.Broadcast), stands: new(stands), store: store}
	ref := func(n uint64) topics.BlockRef {
		return topics.BlockRef{Number: n, Hash: common.BigToHash(common.Big1), Timestamp: n}
	}
	next := uint64(0)
	publish := func(blocks int) {
		for range blocks {
			next++
			r.publish(read.Watermark{At: ref(next), Latest: next}, store.Snapshot())
		}
	}
	want := func(n uint64, sentinel error) {
		t.Helper()
		at := ref(n)
		v, err := r.view(&at)
		if !errors.Is(err, sentinel) {
			t.Errorf("block %d: %v, want %v", n, err, sentinel)
		}
		if v != nil {
			v.Close()
		}
		m, _ := r.watermark()
		if told := slices.Contains(m.Kept, read.Point{Number: n}); told != (err == nil) {
			t.Errorf("block %d is told: %t", n, told)
		}
	}
	publish(3)
	r.stands.keep(read.Point{Number: 2}, time.Now())
	publish(2 * ringBlocks)
	want(1, ErrNotKept)
	want(2, nil)
	want(3, ErrNotKept)
	want(next, nil)
	want(next-toldBlocks+1, nil)

	now := time.Now() // readers that move fast leave many behind, and none takes the place of one that is still told of
	for n := range uint64(2 * maxStands) {
		now = now.Add(time.Millisecond)
		r.stands.keep(read.Point{Number: 1000 + n}, now)
		r.stands.keep(read.Point{Number: 2}, now)
	}
	on := r.stands.on()
	if len(on) != maxStands || !slices.Contains(on, read.Point{Number: 2}) || !slices.Contains(on, read.Point{Number: 1000 + 2*maxStands - 1}) {
		t.Errorf("kept are %v", on)
	}
	// A view that a reader comes to stand on is told of, although no block comes.
	early := next - 2*toldBlocks
	r.stands.keep(read.Point{Number: early}, now)
	want(early, nil)
	r.stands.keep(read.Point{Number: 2}, time.Now().Add(-2*standsFor)) // nobody has said so since
	publish(1)
	want(2, ErrNotKept)
	if len(r.ring) != ringBlocks {
		t.Errorf("%d views are kept, want %d", len(r.ring), ringBlocks)
	}
	check(t, r.close())
}

// A standby that is one too many goes once an owner serves, but not for the silence of the owners topic: then nobody
// is known to.
func TestStandbysOutliveTheOwnersTopic(t *testing.T) {
	e := newEnv(t, 1)
	cfg := e.config("a", vfs.NewMem())
	cfg.Standbys = 0
	n, err := New(cfg, toy{})
	check(t, err)
	r := n.replicas[0]
	r.ring, r.mark.Incarnation = []barrier{{}}, 7
	heard := func(ago time.Duration) {
		for _, o := range []topics.Owner{
			{Instance: "b", Role: topics.RoleOwner, Incarnation: 7, State: topics.StateRunning},
			{Instance: "a", Role: topics.RoleStandby, Incarnation: 7, State: topics.StateRunning},
		} {
			n.live.note(o, false, time.Now().Add(-ago))
		}
	}
	heard(0)
	if role := n.role(r, nil); role != "" {
		t.Errorf("beside an owner that serves it is %q", role)
	}
	heard(2 * topics.OwnerAlive)
	if role := n.role(r, nil); role != topics.RoleStandby {
		t.Errorf("while nobody is heard of it is %q", role)
	}
}
