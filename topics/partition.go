package topics

import "encoding/binary"

// Partition says in which of n partitions a record of that key belongs. It is Kafka's murmur2, so that
// clients that nobody here wrote agree with it.
func Partition(key []byte, n int32) int32 {
	return int32(murmur2(key)&0x7fffffff) % n
}

func murmur2(b []byte) uint32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
	)
	h := seed ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		k *= m
		k ^= k >> 24
		k *= m
		h = h*m ^ k
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}

// CommandFamily is how an application emits commands for another: with keys that Routed makes.
func CommandFamily(app string) string { return string(KindCommand) + "." + app }

// Routed is the key of an event that belongs in a partition of its own.
func Routed(partition int32, key []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(partition)), key...)
}

// Unrouted takes apart what Routed made.
func Unrouted(routed []byte) (partition int32, key []byte, ok bool) {
	if len(routed) < 4 {
		return 0, nil, false
	}
	return int32(binary.BigEndian.Uint32(routed)), routed[4:], true
}
