package engine

import "testing"

// Nobody who says nothing gets other sizes than before --memory, nor who says as much as that takes.
func TestSizedByDefault(t *testing.T) {
	d := DefaultConfig()
	for _, memory := range []uint64{0, defaultMemory} {
		c, heap := d.Sized(memory, measuredPartitions)
		if c.CommitBytes != d.CommitBytes || c.FetchBytes != d.FetchBytes || c.Memory != d.Memory || heap != defaultHeap {
			t.Errorf("%d bytes: %+v, heap %d", memory, c.Memory, heap)
		}
	}
}

// What is sized fits into the memory, however many partitions there are, and no size falls as the memory grows.
func TestSizedFits(t *testing.T) {
	for _, partitions := range []int32{1, 4, 16, 64} {
		var last Config
		for memory := uint64(LeastMemory); memory <= 4<<30; memory += 32 << 20 {
			c, heap := DefaultConfig().Sized(memory, partitions)
			outside := uint64(c.Memory.Blocks) + uint64(partitions)*3*uint64(c.Memory.MemTable) // of the heap
			if outside+heap+fixedMemory/2 > memory {
				t.Fatalf("%d partitions in %d bytes: %+v, heap %d", partitions, memory, c.Memory, heap)
			}
			rows := uint64(partitions) * uint64(c.Memory.Rows)
			if rows+uint64(c.CommitBytes)+uint64(c.FetchBytes)*fetchedPartitions > heap {
				t.Fatalf("%d partitions in %d bytes: the heap of %d is less than what is kept in it", partitions, memory, heap)
			}
			if c.CommitBytes < last.CommitBytes || c.FetchBytes < last.FetchBytes || c.Memory.Blocks < last.Memory.Blocks ||
				c.Memory.MemTable < last.Memory.MemTable || c.Memory.Rows < last.Memory.Rows || c.Memory.Load < last.Memory.Load {
				t.Fatalf("%d partitions: less in %d bytes than in 32 MiB less: %+v, %+v", partitions, memory, c.Memory, last.Memory)
			}
			last = c
		}
	}
}
