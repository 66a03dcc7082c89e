package state

import (
	"encoding/binary"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/lienstream/lienstream/topics/polltest"
)

// A store whose disk takes nothing tries again at intervals, not as fast as a core can, and is written once it does.
func TestARefusedWriteWaits(t *testing.T) {
	for name, fails := range map[string]errorfs.OpKind{"full": errorfs.OpCreate, "broken": errorfs.OpFileSync} {
		t.Run(name, func(t *testing.T) {
			var refuses atomic.Bool
			var tries atomic.Int64
			s := open(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind != fails || !refuses.Load() {
					return nil
				}
				tries.Add(1)
				return syscall.ENOSPC
			})))
			refuses.Store(true)
			began := time.Now()
			row := make([]byte, 64<<10)
			for i := range 2 * DefaultMemory().MemTable / len(row) {
				o := s.NewOverlay()
				o.Put(plain, binary.BigEndian.AppendUint32(nil, uint32(i)), row)
				check(t, s.Commit(o, nil))
			}
			const some = 4
			polltest.Until(t, "some tries", func() bool { return tries.Load() >= some })
			if took, least := time.Since(began), (some-1)*refusedPause; took < least {
				t.Errorf("%d tries in %s, less than %s", some, took, least)
			}
			refuses.Store(false)
			check(t, s.Close())
		})
	}
}
