package engine

// The default sizes are for a process that takes defaultMemory, of a market with some million logs on 16 partitions:
// defaultHeap of it while it catches up, and fixedMemory whatever the sizes are (the program, connections, what lives).
const (
	defaultMemory      = 350 << 20
	defaultHeap        = 100 << 20
	measuredPartitions = 16
	fixedMemory        = 110 << 20
)

// growth is the part of what is beyond defaultMemory that the sizes grow in proportion to. The heap may grow by all of it, as long
// as there is room for what is outside of it: the collector is what more memory saves most of. Measured: a rebuild that was
// given 600 MB took 7.4 s and 348 MB with a heap that grew by 0.7 as well, and takes 5.0 s and 430 MB; in 1 GiB 4.6 s and 860 MB.
const growth = 0.7

// drainShare of what is beyond defaultMemory is what each task sends of events at a time. Measured with 600 MB, which is 1 MiB: batches
// of 43 instead of 20 kB, and a seventh less of the broker's processor time. With 2 MiB it was a fifth, but ours grew by a sixteenth.
const drainShare = 1.0 / 256

// LeastMemory is the least that Sized can keep to.
const LeastMemory = 192 << 20

// Bounds of what grows with the memory, beyond which nothing is faster.
const (
	mostFetch = 1 << 20
	mostDrain = 1 << 20
	mostLoad  = 64 << 20
)

// Sized makes commits, fetches, caches and memtables follow from the memory that the process may take in all, in proportion, and
// says how large the heap may be. 0: as they are by default.
func (c Config) Sized(memory uint64, partitions int32) (sized Config, heap uint64) {
	if memory == 0 {
		return c, defaultHeap
	}
	share := float64(max(memory, LeastMemory)-fixedMemory) / (defaultMemory - fixedMemory)
	if share > 1 {
		share = 1 + (share-1)*growth
	}
	each := share * measuredPartitions / float64(max(partitions, 1)) // what is counted once a store
	d := DefaultConfig()
	c.CommitBytes = int(float64(d.CommitBytes) * share)
	c.FetchBytes = min(int32(float64(d.FetchBytes)*share), mostFetch)
	c.Memory.Blocks = int64(float64(d.Memory.Blocks) * share)
	c.Memory.MemTable = int(float64(d.Memory.MemTable) * each)
	c.Memory.Rows = int(float64(d.Memory.Rows) * each)
	heap = uint64(defaultHeap * share)
	if memory > defaultMemory {
		outside := uint64(c.Memory.Blocks) + uint64(max(partitions, 1))*uint64(c.Memory.MemTables())
		c.DrainBytes = min(d.DrainBytes+int(float64(memory-defaultMemory)*drainShare), mostDrain)
		heap = min(memory-(defaultMemory-defaultHeap), memory-fixedMemory-outside)
	}
	c.Memory.Load = min(int(float64(d.Memory.Load)*float64(heap)/defaultHeap), mostLoad) // what spills no run is not merged
	return c, heap
}
