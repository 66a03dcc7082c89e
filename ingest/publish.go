package ingest

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// publisher turns batches into transactions. It belongs to one goroutine.
//
// Invariants:
//
//  1. Every partition gets the same barriers and reverts, in the same order; Records of a barrier is the
//     number of records that the partition got since the previous barrier.
//  2. The last barrier of a transaction, and no other, has Commit set.
//  3. A barrier names its predecessor, so that readers notice a gap.
//  4. After an error it must not be used again: what was committed is unknown, and only the topic can tell.
type publisher struct {
	tx         *kafka.Transactor
	topic      string
	partitions int32
	decoder    *contracts.Decoder
	filter     mark                  // the topic's
	unlisted   int                   // transactions since the one that named the followed tokens; 0: the next one names them
	headers    func() []kafka.Header // of a transaction's last barrier, in partition 0
	last       topics.BlockEnd       // the last barrier in force; no hash: none

	counts []uint32 // records of the current block, per partition
	out    kafka.Outbox
}

func newPublisher(tx *kafka.Transactor, topic string, partitions int32, decoder *contracts.Decoder, position published) *publisher {
	p := &publisher{tx: tx, topic: topic, partitions: partitions, decoder: decoder, last: position.last, counts: make([]uint32, partitions)}
	p.filter = markOf(decoder.Deployment())
	return p.follow(position.followed)
}

// follow sets the tokens that are followed as of the next barriers.
func (p *publisher) follow(since map[common.Address]joined) *publisher {
	if !maps.Equal(since, p.filter.followed) {
		p.unlisted = 0
	}
	p.filter.followed = since
	return p
}

// mark is the header of the next transaction. It names the followed tokens if they have changed, and every listEvery
// transactions.
func (p *publisher) mark() kafka.Header {
	m := p.filter
	m.short = p.unlisted > 0
	p.unlisted = (p.unlisted + 1) % listEvery
	return kafka.Header{Key: markHeader, Value: m.encode()}
}

// headers are those of the next transaction: its filter, and what is not proved.
func (in *Ingester) headers(p *publisher) []kafka.Header {
	all := []kafka.Header{p.mark()}
	if left := in.left(); len(left) > 0 {
		all = append(all, kafka.Header{Key: uncheckedHeader, Value: left.encode()})
	}
	if lacks := in.status.get().lacks(); len(lacks) > 0 {
		all = append(all, kafka.Header{Key: topics.UnprovedHeader, Value: []byte(strings.Join(lacks, "\n"))})
	}
	return all
}

// publish writes a batch as one transaction.
func (p *publisher) publish(ctx context.Context, b *follow.Batch) error {
	if err := p.begin(); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	for i := range b.Reverts {
		value := p.encode(&topics.BlockRevert{Block: b.Reverts[i].Block, Head: b.Reverts[i].Head})
		for partition := range p.partitions {
			p.produce(ctx, partition, nil, value)
		}
		p.last.Block = b.Reverts[i].Head
	}
	for i := range b.Blocks {
		p.block(ctx, &b.Blocks[i], b, i == len(b.Blocks)-1)
	}
	return p.commit(ctx)
}

// repeat writes the last barrier again: a heartbeat on an idle chain.
func (p *publisher) repeat(ctx context.Context, head, finalized, safe uint64) error {
	if err := p.begin(); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	clear(p.counts)
	end := p.last
	end.Head, end.Finalized, end.Safe = max(head, end.Block.Number), finalized, max(safe, end.Safe)
	p.barrier(ctx, end, true)
	return p.commit(ctx)
}

// begin begins a transaction. The memory of the one before is free: it was acknowledged.
func (p *publisher) begin() error {
	p.out.Reset()
	return p.tx.Begin()
}

func (p *publisher) commit(ctx context.Context) error {
	if err := p.tx.Commit(ctx); err != nil {
		return fmt.Errorf("publish block %d: %w", p.last.Block.Number, err)
	}
	return nil
}

// block writes a block's records and its barrier.
func (p *publisher) block(ctx context.Context, b *follow.Block, batch *follow.Batch, commit bool) {
	clear(p.counts)
	for _, item := range b.Logs {
		key := p.out.Values.Keep(p.entity(item).AppendKey(p.out.Values.Next()))
		partition := topics.Partition(key, p.partitions)
		p.counts[partition]++
		p.produce(ctx, partition, key, p.encode(item))
	}
	p.barrier(ctx, topics.BlockEnd{Block: b.BlockRef, Parent: b.Parent, Finalized: batch.Finalized, Safe: batch.Safe, Head: batch.Head}, commit)
}

// entity is the entity that a record belongs to.
func (p *publisher) entity(item follow.Item) contracts.Entity {
	switch r := item.(type) {
	case *topics.Log:
		return p.decoder.Decode(r.Address, r.Topics, r.Data).Entity()
	case *topics.Probe:
		return contracts.TokenEntity(r.Token)
	case *topics.Ledger:
		return contracts.TokenEntity(r.Token)
	}
	panic(fmt.Sprintf("ingest: unexpected %T in a block", item)) // follow.Item is sealed
}

// covering bounds the numbers of a barrier: final and safe at most its block, and final no less than in the one
// before.
func (p *publisher) covering(end topics.BlockEnd) topics.BlockEnd {
	end.Finalized, end.Safe = max(min(end.Finalized, end.Block.Number), p.last.Finalized), min(end.Safe, end.Block.Number)
	return end
}

// barrier writes a barrier to every partition.
func (p *publisher) barrier(ctx context.Context, end topics.BlockEnd, commit bool) {
	end = p.covering(end)
	end.Commit, end.Records = commit, 0
	if end.Block != p.last.Block { // a repeated barrier stays the same
		end.Previous, end.Linked = p.last.Block, true
	}
	empty := p.encode(&end)
	for partition := range p.partitions {
		value := empty
		if n := p.counts[partition]; n > 0 {
			end.Records = n
			value = p.encode(&end)
		}
		var headers []kafka.Header
		if commit && partition == 0 {
			headers = p.headers()
		}
		p.produce(ctx, partition, nil, value, headers...)
	}
	p.last = end
}

func (p *publisher) encode(r topics.Raw) []byte {
	return p.out.Values.Keep(topics.AppendRaw(p.out.Values.Next(), r))
}

// produce adds a record to the transaction. The records belong to the client until the commit, and are then
// reused. A zero timestamp becomes the current time: retention is by ingestion time.
func (p *publisher) produce(ctx context.Context, partition int32, key, value []byte, headers ...kafka.Header) {
	r := p.out.Record()
	r.Topic, r.Partition, r.Key, r.Value, r.Headers = p.topic, partition, key, value, headers
	p.tx.Produce(ctx, r)
}
