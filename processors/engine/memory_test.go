package engine

import "testing"

// Without --memory, and with the memory that the defaults take, the sizes are the defaults.
func TestSizedByDefault(t *testing.T) {
	d := DefaultConfig()
	for _, memory := range []uint64{0, defaultMemory} {
		c, heap := d.Sized(memory, measuredPartitions)
		if c.CommitBytes != d.CommitBytes || c.FetchBytes != d.FetchBytes || c.DrainBytes != d.DrainBytes || c.Memory != d.Memory || heap != defaultHeap {
			t.Errorf("%d bytes: %+v, heap %d", memory, c.Memory, heap)
		}
	}
}

// Beyond the default more events are sent at a time, up to what no broker gains from.
func TestSizedDrain(t *testing.T) {
	for _, tc := range []struct{ memory, drain uint64 }{
		{LeastMemory, 384 << 10}, {defaultMemory, 384 << 10}, {512 << 20, 1 << 20}, {1 << 30, mostDrain}, {4 << 30, mostDrain},
	} {
		if c, _ := DefaultConfig().Sized(tc.memory, measuredPartitions); uint64(c.DrainBytes) != tc.drain {
			t.Errorf("in %d MiB %d bytes of events are sent at a time, want %d", tc.memory>>20, c.DrainBytes, tc.drain)
		}
	}
}

// What is sized fits into the memory, however many partitions there are, and no size falls as the memory grows.
func TestSizedFits(t *testing.T) {
	for _, partitions := range []int32{1, 4, 16, 64} {
		var (
			last     Config
			lastHeap uint64
		)
		for memory := uint64(LeastMemory); memory <= 4<<30; memory += 32 << 20 {
			c, heap := DefaultConfig().Sized(memory, partitions)
			outside := uint64(c.Memory.Blocks) + uint64(partitions)*uint64(c.Memory.MemTables()) // of the heap
			if outside+heap+fixedMemory/2 > memory {
				t.Fatalf("%d partitions in %d bytes: %+v, heap %d", partitions, memory, c.Memory, heap)
			}
			rows := uint64(partitions) * uint64(c.Memory.Rows)
			sent := uint64(committers) * uint64(c.DrainBytes)
			if rows+uint64(c.CommitBytes)+uint64(c.FetchBytes)*fetchedPartitions+2*sent > heap { // what is sent is encoded, too
				t.Fatalf("%d partitions in %d bytes: the heap of %d is less than what is kept in it", partitions, memory, heap)
			}
			if heap < lastHeap || c.CommitBytes < last.CommitBytes || c.FetchBytes < last.FetchBytes || c.DrainBytes < last.DrainBytes || c.Memory.Blocks < last.Memory.Blocks ||
				c.Memory.MemTable < last.Memory.MemTable || c.Memory.Rows < last.Memory.Rows || c.Memory.Load < last.Memory.Load {
				t.Fatalf("%d partitions: less in %d bytes than in 32 MiB less: heap %d, %d, %+v, %+v", partitions, memory, heap, lastHeap, c.Memory, last.Memory)
			}
			last, lastHeap = c, heap
		}
	}
}

// Beyond the default nearly all that there is more of is the heap's, and a restore has its part of that: nothing else is in the heap.
func TestSizedHeap(t *testing.T) {
	for _, tc := range []struct{ memory, heap, load uint64 }{
		{defaultMemory + 1<<20, defaultHeap + 1<<20, 8 << 20}, {512 << 20, 260 << 20, 20 << 20}, {1 << 30, 670 << 20, 50 << 20}, {2 << 30, 1400 << 20, mostLoad},
	} {
		c, heap := DefaultConfig().Sized(tc.memory, measuredPartitions)
		if heap < tc.heap || uint64(c.Memory.Load) < tc.load {
			t.Errorf("in %d MiB a heap of %d MiB, of which a load has %d, want %d and %d", tc.memory>>20, heap>>20, c.Memory.Load>>20, tc.heap>>20, tc.load>>20)
		}
	}
}
