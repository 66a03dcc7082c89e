package rpc

import (
	"slices"
	"sync/atomic"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// filter says which logs are wanted: those of some addresses, and those of some first topics from any address.
type filter struct {
	addresses map[common.Address]bits
	topics    map[common.Hash]bits
	only      *entry       // the first topic that logs of the addresses must have; nil: any
	noBloom   *atomic.Bool // the headers have no usable bloom filters
	all       bool         // every log
	queries   [][]byte     // the inner JSON of each query
	listed    []common.Address
}

// entry is a first topic, and its place in bloom filters.
type entry struct {
	topic common.Hash
	bits  bits
}

// bits are the three bit positions of an entry in a bloom filter.
type bits [3]struct {
	at   int
	mask byte
}

func bitsOf(entry []byte) (b bits) {
	h := crypto.Keccak256(entry)
	for i := range b {
		v := (int(h[2*i])<<8 | int(h[2*i+1])) & 2047
		b[i].at, b[i].mask = types.BloomByteLength-1-v/8, 1<<(v%8)
	}
	return b
}

func (b *bits) in(bloom *types.Bloom) bool {
	return bloom[b[0].at]&b[0].mask != 0 && bloom[b[1].at]&b[1].mask != 0 && bloom[b[2].at]&b[2].mask != 0
}

func newFilter(addresses []common.Address, first []common.Hash, noBloom *atomic.Bool) filter {
	f := filter{noBloom: noBloom, addresses: map[common.Address]bits{}, topics: map[common.Hash]bits{}, listed: addresses}
	for _, a := range addresses {
		f.addresses[a] = bitsOf(a[:])
	}
	f.queries = append(f.queries, ofAddresses(addresses))
	if len(first) == 0 {
		return f
	}
	q := []byte(`"topics":[[`)
	for i, t := range first {
		f.topics[t] = bitsOf(t[:])
		if i > 0 {
			q = append(q, ',')
		}
		q = appendHex(q, t[:])
	}
	f.queries = append(f.queries, append(q, "]]"...))
	return f
}

// onlyOf is a filter for the logs of one contract with one first topic.
func onlyOf(address common.Address, topic common.Hash, noBloom *atomic.Bool) filter {
	f := newFilter([]common.Address{address}, nil, noBloom)
	f.only = &entry{topic: topic, bits: bitsOf(topic[:])}
	q := appendHex([]byte(`"address":`), address[:])
	q = appendHex(append(q, `,"topics":[`...), topic[:])
	f.queries = [][]byte{append(q, ']')}
	return f
}

// ofAddresses is the inner JSON of a query for all logs of some addresses.
func ofAddresses(addresses []common.Address) []byte {
	q := []byte(`"address":[`)
	for i, a := range addresses {
		if i > 0 {
			q = append(q, ',')
		}
		q = appendHex(q, a[:])
	}
	return append(q, ']')
}

// byNumber returns the parameters of eth_getLogs for a range, each with at most this many addresses.
func (f *filter) byNumber(from, to uint64, most int) [][]byte {
	var all [][]byte
	queries := f.queries
	if most < len(f.listed) {
		queries = nil
		for part := range slices.Chunk(f.listed, most) {
			queries = append(queries, ofAddresses(part))
		}
		queries = append(queries, f.queries[1:]...)
	}
	for _, q := range queries {
		p := appendQuantity([]byte(`[{"fromBlock":`), from)
		p = appendQuantity(append(p, `,"toBlock":`...), to)
		all = append(all, append(append(append(p, ','), q...), "}]"...))
	}
	return all
}

// byHash returns the parameters of eth_getLogs for blocks, in chain order. It skips queries that the bloom
// filter rules out, unless that are all.
func (f *filter) byHash(headers []follow.Header) [][]byte {
	var all [][]byte
	for i := range headers {
		h := &headers[i]
		ours, others := f.hits(h)
		if f.noBloom.Load() {
			ours, others = true, true
		}
		for k, q := range f.queries {
			if k == 0 && !ours && others || k == 1 && !others && ours {
				continue
			}
			p := appendHex([]byte(`[{"blockHash":`), h.Hash[:])
			all = append(all, append(append(append(p, ','), q...), "}]"...))
		}
	}
	return all
}

// hits reports whether the bloom filter matches one of our addresses, or one of the topics.
func (f *filter) hits(h *follow.Header) (ours, others bool) {
	for _, b := range f.addresses {
		if b.in(&h.Bloom) {
			ours = f.only == nil || f.only.bits.in(&h.Bloom)
			break
		}
	}
	for _, b := range f.topics {
		if b.in(&h.Bloom) {
			others = true
			break
		}
	}
	return ours, others
}

func (f *filter) wants(h *follow.Header) bool {
	ours, others := f.hits(h)
	return ours || others
}

// wanted reports whether the filter matches a log, by address or by topic, and whether the bloom filter of its
// block contains it.
func (f *filter) wanted(l *topics.Log, h *follow.Header) (inBloom, byAddress, byTopic bool) {
	if f.all {
		return true, true, false
	}
	inBloom = true
	b, byAddress := f.addresses[l.Address]
	if byAddress && f.only != nil {
		byAddress = len(l.Topics) > 0 && l.Topics[0] == f.only.topic
		inBloom = f.only.bits.in(&h.Bloom)
	}
	if byAddress {
		inBloom = inBloom && b.in(&h.Bloom)
	}
	if len(f.topics) > 0 && len(l.Topics) > 0 {
		if b, byTopic = f.topics[l.Topics[0]]; byTopic {
			inBloom = inBloom && b.in(&h.Bloom)
		}
	}
	return inBloom, byAddress, byTopic
}

// match checks logs against the headers of their blocks, which may have gaps.
func (f *filter) match(headers []follow.Header, logs []topics.Log) error {
	at := 0
	for i := range logs {
		for at < len(headers) && headers[at].Number < logs[i].Block.Number {
			at++
		}
		if at == len(headers) {
			return lied("out_of_range", "log of block %d", logs[i].Block.Number)
		}
		if err := f.one(&headers[at], &logs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (f *filter) one(h *follow.Header, l *topics.Log) error {
	if l.Block.Number != h.Number || l.Block.Hash != h.Hash {
		return lied("block_hash", "log %d of block %d has block hash %s, the header %s", l.LogIndex, l.Block.Number, l.Block.Hash, h.Hash)
	}
	inBloom, byAddress, byTopic := f.wanted(l, h)
	if !byAddress && !byTopic {
		return lied("unasked", "log %d of block %d from %s does not match the filter", l.LogIndex, l.Block.Number, l.Address)
	}
	if !inBloom && !f.noBloom.Load() {
		return lied("bloom", "log %d of block %d from %s is not in the bloom filter of the header", l.LogIndex, l.Block.Number, l.Address)
	}
	return nil
}

// ascending checks the order of a response: by block, then by index, without duplicates.
func ascending(logs []topics.Log) error {
	for i := 1; i < len(logs); i++ {
		a, b := &logs[i-1], &logs[i]
		if b.Block.Number < a.Block.Number || b.Block.Number == a.Block.Number && b.LogIndex <= a.LogIndex {
			return lied("order", "log %d of block %d after log %d of block %d", b.LogIndex, b.Block.Number, a.LogIndex, a.Block.Number)
		}
	}
	return nil
}

// inRange checks the first and last log of an ascending response.
func inRange(logs []topics.Log, from, to uint64) error {
	if n := len(logs); n > 0 && (logs[0].Block.Number < from || logs[n-1].Block.Number > to) {
		return lied("out_of_range", "logs of blocks %d-%d, requested %d-%d", logs[0].Block.Number, logs[n-1].Block.Number, from, to)
	}
	return nil
}

// compare orders logs by block and index.
func compare(a, b *topics.Log) int {
	if a.Block.Number != b.Block.Number {
		return cmpUint(a.Block.Number, b.Block.Number)
	}
	return cmpUint(uint64(a.LogIndex), uint64(b.LogIndex))
}

func cmpUint(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// merge joins two ascending lists without duplicates.
func merge(a, b []topics.Log) []topics.Log {
	if len(b) == 0 {
		return a
	}
	if len(a) == 0 || compare(&a[len(a)-1], &b[0]) < 0 {
		return append(a, b...)
	}
	all := make([]topics.Log, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch compare(&a[0], &b[0]) {
		case -1:
			all, a = append(all, a[0]), a[1:]
		case 1:
			all, b = append(all, b[0]), b[1:]
		default:
			all, a, b = append(all, a[0]), a[1:], b[1:]
		}
	}
	return append(append(all, a...), b...)
}
