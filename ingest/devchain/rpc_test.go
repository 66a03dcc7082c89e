package devchain

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

const patience = 10 * time.Second

// receive waits for the next of what a subscription sends.
func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// The logs that a scenario mined are those that eth_getLogs finds, over HTTP and WS.
func TestGetLogs(t *testing.T) {
	onEach(t, func(t *testing.T, b Backend) {
		m := deploy(t, b, MarketConfig{})
		s := newScenario(t, m, ScenarioConfig{})
		var want []*types.Log
		var blocks []*Block
		for range 20 {
			block := steps(t, s, 1)
			blocks = append(blocks, block)
			want = append(want, block.Logs()...)
		}
		for _, url := range []string{b.HTTP(), b.WS()} {
			got, err := dial(t, url).FilterLogs(t.Context(), ethereum.FilterQuery{
				FromBlock: bigTime(blocks[0].Number), ToBlock: bigTime(blocks[len(blocks)-1].Number),
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(want) || len(want) == 0 {
				t.Fatalf("%s: %d logs found, %d mined", url, len(got), len(want))
			}
			for i, log := range got {
				if log.BlockHash != want[i].BlockHash || log.Index != want[i].Index || log.TxHash != want[i].TxHash {
					t.Fatalf("%s: log %d is %+v, mined %+v", url, i, log, want[i])
				}
			}
		}
	})
}

// Subscribers hear of new heads and logs, and on this node of logs that a reorg removed.
func TestSubscriptions(t *testing.T) {
	ctx := t.Context()
	c := newChain(t, Config{})
	m := deploy(t, c, MarketConfig{})
	s := newScenario(t, m, ScenarioConfig{TxsPerBlock: 8})
	client := dial(t, c.WS())
	heads, logs := make(chan *types.Header, 100), make(chan types.Log, 10_000)
	headFeed, err := client.SubscribeNewHead(ctx, heads)
	if err != nil {
		t.Fatal(err)
	}
	defer headFeed.Unsubscribe()
	logFeed, err := client.SubscribeFilterLogs(ctx, ethereum.FilterQuery{Addresses: []common.Address{m.Deployment.DealVault}}, logs)
	if err != nil {
		t.Fatal(err)
	}
	defer logFeed.Unsubscribe()

	var vault []*types.Log
	for range 10 {
		block := steps(t, s, 1)
		if head := receive(t, heads); head.Hash() != block.Hash {
			t.Fatalf("head %s came, %s was mined", head.Hash(), block.Hash)
		}
		for _, log := range block.Logs() {
			if log.Address == m.Deployment.DealVault {
				vault = append(vault, log)
				if got := receive(t, logs); got.BlockHash != log.BlockHash || got.Index != log.Index || got.Removed {
					t.Fatalf("log %+v came, %+v was mined", got, log)
				}
			}
		}
	}
	if len(vault) == 0 {
		t.Fatal("the vault logged nothing")
	}
	if err := s.Rewind(ctx, 10); err != nil {
		t.Fatal(err)
	}
	removed := make(map[common.Hash]int)
	for range vault {
		if got := receive(t, logs); got.Removed {
			removed[got.BlockHash]++
		}
	}
	for _, log := range vault {
		removed[log.BlockHash]--
	}
	for hash, n := range removed {
		if n != 0 {
			t.Errorf("block %s: %+d logs too many came as removed", hash, n)
		}
	}
}

// Past state is read by block hash (EIP-1898), long after, and also of a block that a reorg dropped or that never was.
func TestCallAtBlockHash(t *testing.T) {
	ctx := t.Context()
	c := newChain(t, Config{})
	m := deploy(t, c, MarketConfig{})
	s := newScenario(t, m, ScenarioConfig{})
	client := dial(t, c.HTTP())
	nextDealID := func(at common.Hash) string {
		t.Helper()
		data, err := m.vault.abi.Pack("nextDealId")
		if err != nil {
			t.Fatal(err)
		}
		out, err := client.CallContractAtHash(ctx, ethereum.CallMsg{To: &m.vault.address, Data: data}, at)
		if err != nil {
			t.Fatal(err)
		}
		return common.BytesToHash(out).Hex()
	}
	first := steps(t, s, 1)
	then := nextDealID(first.Hash)
	last := steps(t, s, 140) // more than the 128 states that a node without an archive keeps
	if got := nextDealID(first.Hash); got != then {
		t.Errorf("nextDealId at block %d was %s, is %s", first.Number, then, got)
	}
	if now := nextDealID(last.Hash); now <= then {
		t.Errorf("nextDealId was %s and is %s, 140 blocks later", then, now)
	}
	requireCanonical := map[string]any{"blockHash": last.Hash, "requireCanonical": true}
	if err := s.Rewind(ctx, 1); err != nil {
		t.Fatal(err)
	}
	var balance string
	err := client.Client().CallContext(ctx, &balance, "eth_getBalance", m.vault.address, requireCanonical)
	if err == nil {
		t.Error("a dropped block was taken for a canonical one")
	}
	if err := client.Client().CallContext(ctx, &balance, "eth_getBalance", m.vault.address,
		rpc.BlockNumberOrHashWithHash(common.Hash{1}, false)); err == nil {
		t.Error("read the state of a block that never was")
	}
}
