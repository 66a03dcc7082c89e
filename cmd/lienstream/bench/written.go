package main

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// writer writes a market's history straight into a raw topic: the records and transactions of the ingester, without a node that
// would have to serve them.
type writer struct {
	tx         *kafka.Transactor
	out        kafka.Outbox
	topic      string
	partitions int32
	decoder    *contracts.Decoder
	vault      common.Address
	registry   common.Address

	mu     sync.Mutex // one transaction after another
	market *market
	last   topics.BlockEnd
	counts []uint32 // of the current block, by partition
	txs    int      // of the chain
	logs   int
	inTx   int // records of the transaction
}

// Sizes of what is written.
const (
	writtenBlock   = 500    // logs of a block of the history: two million in 4,000
	writtenRecords = 10_000 // of a transaction, as the ingester's
	unsettled      = 128    // the newest blocks may be reverted
)

func newWriter(ctx context.Context, p *pipeline, out *outside, m *market, d contracts.Deployment) (*writer, error) {
	cfg := kafka.DefaultConfig()
	cfg.Brokers, cfg.Prefix = []string{out.seed}, p.name
	tx, err := kafka.NewTransactor(cfg, p.name+"-writer", kafka.TransactorOptions{Timeout: time.Minute})
	if err != nil {
		return nil, err
	}
	n := int32(p.w.cfg.partitions)
	w := &writer{
		tx: tx, topic: topics.Catalogue{Prefix: p.name, ChainID: chainID, Partitions: n}.Raw(), partitions: n, decoder: contracts.NewDecoder(d),
		vault: d.DealVault, registry: d.AssetRegistry, market: m, counts: make([]uint32, n),
	}
	if err := tx.Init(ctx); err != nil {
		tx.Close()
		return nil, err
	}
	return w, nil
}

func (w *writer) close() { w.tx.Close() }

// history writes so many blocks.
func (w *writer) history(ctx context.Context, blocks uint64) error {
	assets, err := w.market.assetsSet()
	if err != nil {
		return err
	}
	for w.last.Block.Number < blocks {
		if err := w.begin(); err != nil {
			return err
		}
		for full := false; !full; {
			b := w.next()
			if b.Number == 1 {
				w.add(ctx, b, w.registry, assets)
			}
			for range writtenBlock / logsPerTx {
				w.transaction(ctx, b, logsPerTx)
			}
			full = w.inTx >= writtenRecords || b.Number == blocks
			w.end(ctx, b, blocks, full)
		}
		if err := w.tx.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// block writes a block at the tip.
func (w *writer) block(ctx context.Context, logs int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.begin(); err != nil {
		return err
	}
	b := w.next()
	w.transaction(ctx, b, logs)
	w.end(ctx, b, b.Number, true)
	return w.tx.Commit(ctx)
}

func (w *writer) begin() error {
	w.out.Reset()
	w.inTx = 0
	return w.tx.Begin()
}

// next is the block after the last one. Every block has logs.
func (w *writer) next() *written {
	clear(w.counts)
	b := &written{BlockRef: topics.BlockRef{Number: w.last.Block.Number + 1, Timestamp: w.market.now}}
	b.Hash = crypto.Keccak256Hash(w.last.Block.Hash[:], word(b.Number))
	return b
}

// written is a block that is being written.
type written struct {
	topics.BlockRef

	txs, logs uint32
}

func (w *writer) transaction(ctx context.Context, b *written, logs int) {
	if w.txs++; w.txs%registryEach == 0 {
		w.add(ctx, b, w.registry, w.market.openings(logs))
	} else {
		w.add(ctx, b, w.vault, w.market.logs(logs))
	}
}

// add writes a transaction's logs, which are as Scribe takes them.
func (w *writer) add(ctx context.Context, b *written, address common.Address, data []byte) {
	hash := crypto.Keccak256Hash(b.Hash[:], word(uint64(b.txs)))
	for len(data) > 0 {
		n := int(data[0])
		size := int(binary.BigEndian.Uint16(data[1+32*n:]))
		l := &topics.Log{Block: b.BlockRef, TxHash: hash, TxIndex: b.txs, LogIndex: b.logs, Address: address, Data: data[3+32*n : 3+32*n+size]}
		for i := range n {
			l.Topics = append(l.Topics, common.Hash(data[1+32*i:]))
		}
		data = data[3+32*n+size:]
		key := w.out.Values.Keep(w.decoder.Decode(address, l.Topics, l.Data).Entity().AppendKey(w.out.Values.Next()))
		partition := topics.Partition(key, w.partitions)
		w.counts[partition]++
		w.produce(ctx, partition, key, l)
		b.logs++
		w.logs++
	}
	b.txs++
}

// end writes the block's barriers.
func (w *writer) end(ctx context.Context, b *written, head uint64, commit bool) {
	end := topics.BlockEnd{
		Block: b.BlockRef, Parent: w.last.Block.Hash, Finalized: min(b.Number, head-min(head, unsettled)), Head: head, Commit: commit,
		Previous: w.last.Block, Linked: true,
	}
	for partition := range w.partitions {
		end.Records = w.counts[partition]
		w.produce(ctx, partition, nil, &end)
	}
	w.last = end
}

func (w *writer) produce(ctx context.Context, partition int32, key []byte, raw topics.Raw) {
	r := w.out.Record()
	r.Topic, r.Partition, r.Key = w.topic, partition, key
	r.Value = w.out.Values.Keep(topics.AppendRaw(w.out.Values.Next(), raw))
	w.inTx++
	w.tx.Produce(ctx, r)
}
