package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// An owner that starts again behind what it showed goes on with that in its new incarnation, which a standby tells of as soon as it
// has read its open record. One that somebody else was ahead of does not, nor who takes over as a standby.
func TestOwnerCarriesOnWithItsViews(t *testing.T) {
	ref := func(n uint64) topics.BlockRef {
		return topics.BlockRef{Number: n, Hash: common.Hash{byte(n)}}
	}
	for name, tc := range map[string]struct {
		role        topics.HolderRole
		from        progress
		incarnation int64
	}{
		"behind its views":     {topics.RoleOwner, progress{At: ref(45)}, 7},
		"where its views are":  {topics.RoleOwner, progress{At: ref(48)}, 7},
		"beyond its views":     {topics.RoleOwner, progress{At: ref(49)}, 3},
		"after another revert": {topics.RoleOwner, progress{At: ref(45), Reverts: 1}, 3},
		"as a standby":         {topics.RoleStandby, progress{At: ref(45)}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := state.Open(state.Options{Dir: "state", Tables: []*state.Table{toyTable}, FS: vfs.NewMem()})
			check(t, err)
			r := &replica{changed: new(read.Broadcast), stands: new(stands), took: make(chan struct{}, 1), store: store}
			r.carryOn(7, tc.from) // nothing is shown yet
			r.publish(read.Watermark{Role: tc.role, Incarnation: 3, At: ref(48), Latest: 48}, store.Snapshot())
			changed := r.changed.Moved()
			r.carryOn(7, tc.from)
			m, is := r.watermark()
			if !is || m.Incarnation != tc.incarnation || !m.At.Same(ref(48)) || m.Role != tc.role {
				t.Errorf("it shows block %d as %s in incarnation %d, want 48 as %s in %d", m.At.Number, m.Role, m.Incarnation, tc.role, tc.incarnation)
			}
			select {
			case <-changed:
				if tc.incarnation == 3 {
					t.Error("it tells of nothing")
				}
			default:
				if tc.incarnation != 3 {
					t.Error("it tells nobody")
				}
			}
			check(t, r.close())
		})
	}
}
