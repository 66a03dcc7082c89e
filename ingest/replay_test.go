package ingest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	ethrpc "github.com/ethereum/go-ethereum/rpc"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// replay is what a reader of one partition of the raw topic makes of it. It holds every rule that the
// topic promises its readers.
type replay struct {
	blocks    []replayed
	pending   []topics.Raw
	finalized uint64
	highest   uint64 // barrier
	commit    bool   // the last barrier ended a transaction
	reverts   int
	deep      int  // of them, of final blocks
	rewound   bool // since the last barrier
}

type replayed struct {
	end     topics.BlockEnd
	records []topics.Raw
}

func (r *replay) top() *replayed {
	if len(r.blocks) == 0 {
		return &replayed{}
	}
	return &r.blocks[len(r.blocks)-1]
}

func (r *replay) take(raw topics.Raw) error {
	switch raw := raw.(type) {
	case *topics.BlockEnd:
		if raw.Finalized < r.finalized && !r.rewound {
			return fmt.Errorf("finalized fell from %d to %d", r.finalized, raw.Finalized)
		}
		if r.highest = max(r.highest, raw.Block.Number); raw.Finalized > r.highest {
			return fmt.Errorf("block %d is final, the highest barrier is %d", raw.Finalized, r.highest)
		}
		r.finalized, r.rewound = raw.Finalized, false
		r.commit = raw.Commit
		if int(raw.Records) != len(r.pending) {
			return fmt.Errorf("barrier %d says %d records, there are %d", raw.Block.Number, raw.Records, len(r.pending))
		}
		if top := r.top(); len(r.blocks) > 0 && top.end.Block == raw.Block {
			if len(r.pending) > 0 {
				return fmt.Errorf("repeated barrier %d has records", raw.Block.Number)
			}
			return nil
		} else if len(r.blocks) > 0 && (raw.Block.Number <= top.end.Block.Number || raw.Block.Number == top.end.Block.Number+1 && raw.Parent != top.end.Block.Hash) {
			return fmt.Errorf("barrier %d %s does not follow %d %s", raw.Block.Number, raw.Block.Hash, top.end.Block.Number, top.end.Block.Hash)
		}
		for _, p := range r.pending {
			if ref := refOf(p); ref != raw.Block {
				return fmt.Errorf("barrier %d after a record of block %d", raw.Block.Number, ref.Number)
			}
		}
		r.blocks = append(r.blocks, replayed{*raw, r.pending})
		r.pending = nil
	case *topics.BlockRevert:
		if len(r.pending) > 0 {
			return fmt.Errorf("revert of %d inside a block", raw.Block.Number)
		}
		if raw.Block.Number <= r.finalized {
			r.deep, r.rewound = r.deep+1, true
		}
		if r.top().end.Block != raw.Block {
			return fmt.Errorf("revert of %d %s, last barrier is %d", raw.Block.Number, raw.Block.Hash, r.top().end.Block.Number)
		}
		r.blocks = r.blocks[:len(r.blocks)-1]
		r.reverts++
		if r.top().end.Block != raw.Head {
			return fmt.Errorf("revert of %d to %d, barrier before it is %d", raw.Block.Number, raw.Head.Number, r.top().end.Block.Number)
		}
	default:
		r.pending = append(r.pending, raw)
	}
	return nil
}

func refOf(r topics.Raw) topics.BlockRef {
	switch r := r.(type) {
	case *topics.Log:
		return r.Block
	case *topics.Probe:
		return r.Block
	case *topics.Ledger:
		return r.Block
	}
	return topics.BlockRef{}
}

// stalledAfter is for how long no block may come while one is waited for.
const stalledAfter = slowness * 2 * time.Minute

var errStalled = errors.New("no block came for too long")

// readUntil replays a partition, read-committed, until its last barrier is that block.
func readUntil(ctx context.Context, cfg kafka.Config, topic string, partition int32, hash common.Hash) (*replay, error) {
	reader, err := kafka.NewReader(cfg, topic, partition, 0, kafka.ReaderOptions{MaxWait: 50 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	r := &replay{}
	// However slow the machine is, it comes nearer: what ends the wait is that no block came for long.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	last, stalled := r.top().end.Block, time.AfterFunc(stalledAfter, func() { cancel(errStalled) })
	defer stalled.Stop()
	var records []*kafka.Record
	for r.top().end.Block.Hash != hash || !r.commit {
		if records, err = reader.Poll(ctx, records); err != nil {
			return r, fmt.Errorf("partition %d at block %d, waiting for %s: %w", partition, r.top().end.Block.Number, hash, errors.Join(context.Cause(ctx), err))
		}
		for _, record := range records {
			raw, err := topics.DecodeRaw(record.Value)
			if err == nil {
				err = r.take(raw)
			}
			if err != nil {
				return r, fmt.Errorf("partition %d offset %d: %w", partition, record.Offset, err)
			}
			if top := r.top().end.Block; top != last {
				last = top
				stalled.Reset(stalledAfter)
			}
			if l, ok := raw.(*topics.Log); ok && topics.Partition(record.Key, partitions) != partition {
				return r, fmt.Errorf("partition %d has log %d of block %d with key %q", partition, l.LogIndex, l.Block.Number, record.Key)
			}
		}
	}
	return r, nil
}

// checkTopic waits until every partition ends at the chain's head and holds the topic against the chain:
// the same barriers everywhere, and exactly the canonical chain's logs.
func checkTopic(t *testing.T, cfg kafka.Config, topic string, d contracts.Deployment, client *ethclient.Client) (reverts int) {
	t.Helper()
	reverts, deep := checkRewound(t, cfg, topic, d, client)
	if deep > 0 {
		t.Errorf("%d final blocks were reverted", deep)
	}
	return reverts
}

// checkRewound is checkTopic where final blocks may have been reverted.
func checkRewound(t *testing.T, cfg kafka.Config, topic string, d contracts.Deployment, client *ethclient.Client) (reverts, deep int) {
	t.Helper()
	ctx := t.Context()
	head, err := client.HeaderByNumber(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []*topics.Log
	var ledgers []*topics.Ledger
	var barriers []topics.BlockRef
	for partition := range int32(partitions) {
		r, err := readUntil(ctx, cfg, topic, partition, head.Hash())
		if err != nil {
			t.Fatal(err)
		}
		var refs []topics.BlockRef
		for _, b := range r.blocks {
			refs = append(refs, b.end.Block)
			for _, raw := range b.records {
				switch r := raw.(type) {
				case *topics.Log:
					got = append(got, r)
				case *topics.Ledger:
					ledgers = append(ledgers, r)
				}
			}
		}
		if partition == 0 {
			barriers, reverts, deep = refs, r.reverts, r.deep
		} else if !slices.Equal(refs, barriers) || r.reverts != reverts {
			t.Fatalf("partition %d has other barriers than partition 0", partition)
		}
	}
	slices.SortFunc(got, func(a, b *topics.Log) int {
		return cmp.Or(cmp.Compare(a.Block.Number, b.Block.Number), cmp.Compare(a.LogIndex, b.LogIndex))
	})
	for _, ref := range barriers {
		h, err := client.HeaderByHash(ctx, ref.Hash)
		if err != nil {
			t.Fatal(err)
		}
		if h.Number.Uint64() != ref.Number || h.Time != ref.Timestamp {
			t.Fatalf("barrier %+v is not the chain's block %d of time %d", ref, h.Number, h.Time)
		}
	}
	want, joins := canonical(t, client, d, head)
	checkLedgers(t, client, head.Number.Uint64(), joins, ledgers)
	for i := range min(len(want), len(got)) {
		if err := sameLog(want[i], got[i]); err != nil {
			t.Fatalf("log %d: %v", i, err)
		}
	}
	if len(want) != len(got) {
		t.Fatalf("chain has %d logs, topic %d", len(want), len(got))
	}
	return reverts, deep
}

func sameLog(a, b *topics.Log) error {
	if a.Block.Number != b.Block.Number || a.Block.Hash != b.Block.Hash || a.TxHash != b.TxHash || a.TxIndex != b.TxIndex ||
		a.LogIndex != b.LogIndex || a.Address != b.Address || !slices.Equal(a.Topics, b.Topics) || string(a.Data) != string(b.Data) {
		return fmt.Errorf("chain has %+v, topic has %+v", a, b)
	}
	return nil
}

// told is what a block's own receipts say, for the blocks after it.
type told struct {
	parent common.Hash
	logs   []*topics.Log
}

var toldBlocks sync.Map // block hash → told

// canonical asks the node, by way of another client than the ingester's, for the receipts of every block, and keeps what
// the topic should hold by rules of its own: no filter of the ingester's, or of the node's, has a say in it.
func canonical(t *testing.T, client *ethclient.Client, d contracts.Deployment, head *types.Header) (logs []*topics.Log, joins map[common.Address]uint64) {
	t.Helper()
	var blocks [][]*topics.Log
	hash := head.Hash()
	for number := head.Number.Uint64(); number >= d.StartBlock; number-- {
		block, known := toldBlocks.Load(hash)
		if !known {
			block = tell(t, client, hash)
			toldBlocks.Store(hash, block)
		}
		blocks = append(blocks, block.(told).logs)
		hash = block.(told).parent
	}
	slices.Reverse(blocks)
	return wanted(d, slices.Concat(blocks...))
}

func tell(t *testing.T, client *ethclient.Client, hash common.Hash) told {
	t.Helper()
	header, err := client.HeaderByHash(t.Context(), hash)
	if err != nil {
		t.Fatal(err)
	}
	receipts, err := client.BlockReceipts(t.Context(), ethrpc.BlockNumberOrHashWithHash(hash, false))
	if err != nil {
		t.Fatal(err)
	}
	block := told{parent: header.ParentHash}
	for _, receipt := range receipts {
		for _, l := range receipt.Logs {
			block.logs = append(block.logs, &topics.Log{
				Block: topics.BlockRef{Number: l.BlockNumber, Hash: l.BlockHash}, TxHash: l.TxHash, TxIndex: uint32(l.TxIndex),
				LogIndex: uint32(l.Index), Address: l.Address, Topics: l.Topics, Data: l.Data,
			})
		}
	}
	return block
}

// wanted are the logs of the market's contracts, of anybody what tokens announce, and the transfers of meme tokens after
// the block in which the registry first allowed them.
func wanted(d contracts.Deployment, logs []*topics.Log) (_ []*topics.Log, joins map[common.Address]uint64) {
	ours := map[common.Address]bool{
		d.DealVault: true, d.AssetRegistry: true, d.PoolManager: true, d.PositionManager: true,
		d.EpochController: true, d.RewardDistributor: true, d.LiquidityStaking: true, d.Burner: true,
	}
	delete(ours, common.Address{}) // of what the deployment lacks
	hash := func(signature string) common.Hash { return crypto.Keccak256Hash([]byte(signature)) }
	anybodys := map[common.Hash]bool{}
	for _, signature := range []string{"UIMultiplierUpdated(uint256,uint256,uint256)", "Paused(address)", "Unpaused(address)"} {
		anybodys[hash(signature)] = true
	}
	set := hash("AssetSet(address,uint8,uint8,bool,uint8,uint256,uint256,uint256,string,string)")
	joins = map[common.Address]uint64{}
	return slices.DeleteFunc(logs, func(l *topics.Log) bool {
		if len(l.Topics) == 0 {
			return !ours[l.Address]
		}
		const meme = 2
		if l.Address == d.AssetRegistry && l.Topics[0] == set && l.Topics[2][31] == meme && l.Data[31] == 0 && l.Data[63] == 1 {
			if token := common.Address(l.Topics[1][12:]); joins[token] == 0 {
				joins[token] = l.Block.Number
			}
		}
		since := joins[l.Address]
		return !ours[l.Address] && !anybodys[l.Topics[0]] &&
			(since == 0 || l.Block.Number <= since || l.Topics[0] != hash("Transfer(address,address,uint256)"))
	}), joins
}

// checkLedgers holds the ledger of each meme token against the transfers that the node has of it, from the first on. Its first
// part is in the block that the token joins with, and each other one in the next; those of blocks to come are not there yet.
func checkLedgers(t *testing.T, client *ethclient.Client, head uint64, joins map[common.Address]uint64, ledgers []*topics.Ledger) {
	t.Helper()
	parts, later := map[common.Address][]*topics.Ledger{}, map[common.Address]common.Hash{}
	for _, l := range ledgers {
		if l.Parts == 0 {
			if _, twice := later[l.Token]; twice || l.First == (common.Hash{}) || len(parts[l.Token]) == 0 {
				t.Errorf("an origin of %s in block %d: %s", l.Token, l.Block.Number, l.First)
			}
			later[l.Token] = l.First
			continue
		}
		joined := joins[l.Token]
		n := len(parts[l.Token])
		since := uint64(0)
		if l.Parts > 1 {
			since = joined
		}
		if joined == 0 || l.Block.Number != joined+uint64(n) || l.Fault != "" || int(l.Part) != n || l.Since != since || l.Part >= l.Parts {
			t.Errorf("part %d of %d of a ledger of %s in block %d, want part %d in block %d (%s)", l.Part, l.Parts, l.Token, l.Block.Number, n, joined+uint64(n), l.Fault)
		}
		parts[l.Token] = append(parts[l.Token], l)
	}
	for token, joined := range joins {
		if len(parts[token]) == 0 {
			t.Errorf("no ledger of %s in block %d", token, joined)
			continue
		}
		for _, l := range parts[token] {
			if l.First == (common.Hash{}) {
				l.First = later[token]
			}
		}
		checkLedger(t, client, joined, parts[token], min(int(parts[token][0].Parts), int(head-joined)+1))
	}
}

func checkLedger(t *testing.T, client *ethclient.Client, joined uint64, parts []*topics.Ledger, want int) {
	t.Helper()
	l := parts[0]
	if len(parts) != want {
		t.Errorf("%d parts of a ledger of %s, want %d of %d", len(parts), l.Token, want, l.Parts)
	}
	logs, err := client.FilterLogs(t.Context(), ethereum.FilterQuery{
		ToBlock: new(big.Int).SetUint64(joined), Addresses: []common.Address{l.Token},
		Topics: [][]common.Hash{{crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var origin common.Hash
	if at := slices.IndexFunc(logs, func(l types.Log) bool { return new(big.Int).SetBytes(l.Data).Sign() != 0 }); at >= 0 {
		origin = logs[at].TxHash
	}
	held := map[common.Hash]*big.Int{{}: new(big.Int)}
	for _, log := range logs {
		amount := new(big.Int).SetBytes(log.Data)
		for i, sign := range []int64{-1, 1} {
			if held[log.Topics[1+i]] == nil {
				held[log.Topics[1+i]] = new(big.Int)
			}
			held[log.Topics[1+i]].Add(held[log.Topics[1+i]], new(big.Int).Mul(amount, big.NewInt(sign)))
		}
	}
	delete(held, common.Hash{})
	maps.DeleteFunc(held, func(_ common.Hash, amount *big.Int) bool { return amount.Sign() == 0 })
	var last common.Address
	for _, part := range parts {
		if part.First != origin {
			t.Errorf("the first of %d transfers of %s is not in transaction %s, but in %s", len(logs), l.Token, part.First, origin)
		}
		for _, s := range part.Shares {
			of := common.BytesToHash(s.Account[:])
			if held[of] == nil || held[of].Cmp(s.Amount.ToBig()) != 0 || s.Account.Cmp(last) <= 0 {
				t.Errorf("%s holds %s of %s, the chain says %s", s.Account, s.Amount.Dec(), l.Token, held[of])
			}
			delete(held, of)
			last = s.Account
		}
	}
	for account, amount := range held {
		if len(parts) == int(l.Parts) || common.BytesToAddress(account[:]).Cmp(last) < 0 {
			t.Errorf("%s holds %s of %s, which the ledger lacks", account, amount, l.Token)
		}
	}
}
