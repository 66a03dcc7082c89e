package topics

import "encoding/binary"

// Partition is the partition of a key among n. It is Kafka's murmur2, so that foreign clients get the same
// result.
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

// CommandFamily is the family under which an application emits commands for another one, with keys made by
// Routed.
func CommandFamily(app string) string { return string(KindCommand) + "." + app }

// Routed makes the key of an event with an explicit partition.
func Routed(partition int32, key []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(partition)), key...)
}

// Unrouted splits a key made by Routed.
func Unrouted(routed []byte) (partition int32, key []byte, ok bool) {
	if len(routed) < 4 {
		return 0, nil, false
	}
	return int32(binary.BigEndian.Uint32(routed)), routed[4:], true
}
