package devchain

import (
	"context"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
	"go.uber.org/goleak"
)

func newChain(t *testing.T, cfg Config) *Chain {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a chain")
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// mine puts n blocks without transactions on the head.
func mine(t *testing.T, b Backend, n int) *Block {
	t.Helper()
	head, err := b.Client().HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var block *Block
	for i := range n {
		if block, err = b.Mine(t.Context(), head.Time+uint64(i)+1, nil); err != nil {
			t.Fatal(err)
		}
	}
	return block
}

func TestConfigNamesEveryFault(t *testing.T) {
	err := Config{
		Port: 70_000, GasLimit: 1, SafeBlocks: 5, FinalizedBlocks: 4,
		Alloc: types.GenesisAlloc{common.Address{}: {}},
	}.Validate()
	for _, key := range []string{"port 70000", "gasLimit 1", "safeBlocks 5", "alloc"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%v does not name %q", err, key)
		}
	}
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

func TestTimestampsIncrease(t *testing.T) {
	c := newChain(t, Config{})
	head := mine(t, c, 1)
	if _, err := c.Mine(t.Context(), head.Timestamp, nil); err == nil {
		t.Fatal("mined a block at its parent's time")
	}
	const far = 10_000_000
	block, err := c.Mine(t.Context(), head.Timestamp+far, nil)
	if err != nil {
		t.Fatal(err)
	}
	if block.Timestamp != head.Timestamp+far || block.Parent != head.Hash || block.Number != head.Number+1 {
		t.Errorf("%+v does not follow %+v", block, head)
	}
}

// A rewound chain grows other blocks, even empty ones at the same time, down to the safe block and no deeper.
func TestRewind(t *testing.T) {
	ctx := t.Context()
	c := newChain(t, Config{SafeBlocks: 10, FinalizedBlocks: 20})
	before := mine(t, c, 40)
	if err := c.Rewind(ctx, 11); !errors.Is(err, ErrBelowSafe) {
		t.Fatalf("rewind below the safe block: %v", err)
	}
	if err := c.Rewind(ctx, 41); !errors.Is(err, ErrBelowGenesis) {
		t.Fatalf("rewind below genesis: %v", err)
	}
	if err := c.Rewind(ctx, 10); err != nil {
		t.Fatal(err)
	}
	if head, _ := c.Client().BlockNumber(ctx); head != 30 {
		t.Fatalf("head %d after the rewind", head)
	}
	after := mine(t, c, 10)
	if after.Number != before.Number || after.Timestamp != before.Timestamp || after.Hash == before.Hash {
		t.Errorf("block %d %s replaced %d %s", after.Number, after.Hash, before.Number, before.Hash)
	}
	// Both tags stayed where the longer chain had put them.
	for tag, want := range map[rpc.BlockNumber]uint64{rpc.SafeBlockNumber: 30, rpc.FinalizedBlockNumber: 20} {
		header, err := c.Client().HeaderByNumber(ctx, big.NewInt(tag.Int64()))
		if err != nil {
			t.Fatal(err)
		}
		if header.Number.Uint64() != want {
			t.Errorf("%s is block %d, want %d", tag, header.Number, want)
		}
	}
}

// A transaction that somebody sends over JSON-RPC is in the next block, after the given ones.
func TestPooledTransactions(t *testing.T) {
	ctx := t.Context()
	c := newChain(t, Config{Seed: 7})
	admin := newAccount(7, Deployer)
	chainID := c.Traits().ChainID
	given, err := transfer(admin, common.Address{1}, big.NewInt(params.Ether)).sign(chainID, 0)
	if err != nil {
		t.Fatal(err)
	}
	pooled, err := transfer(admin, common.Address{2}, big.NewInt(params.Ether)).sign(chainID, 1)
	if err != nil {
		t.Fatal(err)
	}
	remote := dial(t, c.HTTP())
	// The first alone makes the second executable: the pool holds both.
	for _, tx := range []*types.Transaction{given, pooled} {
		if err := remote.SendTransaction(ctx, tx); err != nil {
			t.Fatal(err)
		}
	}
	head, err := c.Client().HeaderByNumber(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := c.Mine(ctx, head.Time+1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(block.Receipts) != 2 || block.Receipts[0].TxHash != given.Hash() || block.Receipts[1].TxHash != pooled.Hash() {
		t.Fatalf("%d transactions mined", len(block.Receipts))
	}
	// Mined again as given ones, they are not offered by the pool a second time.
	if err := c.Rewind(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if block, err = c.Mine(ctx, head.Time+1, []*types.Transaction{given}); err != nil {
		t.Fatal(err)
	}
	if len(block.Receipts) != 1 {
		t.Errorf("%d transactions mined after the rewind", len(block.Receipts))
	}
}

func TestRefusesInvalidTransaction(t *testing.T) {
	c := newChain(t, Config{})
	tx, err := transfer(newAccount(0, "pauper"), common.Address{1}, big.NewInt(1)).sign(c.Traits().ChainID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Mine(t.Context(), defaultGenesisTime+1, []*types.Transaction{tx}); err == nil {
		t.Fatal("mined a transaction that nobody can pay for")
	}
	if block := mine(t, c, 1); block.Number != 1 {
		t.Errorf("block %d after nothing was mined", block.Number)
	}
}

func TestRunEndsWithContext(t *testing.T) {
	// leveldb, in which go-ethereum keeps the peers that we have none of, ends this one half a minute later.
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(),
		goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	listening, err := ethclient.DialContext(ctx, c.WS()) // an open connection does not hold it up
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listening.BlockNumber(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	listening.Close()
}

func dial(t *testing.T, url string) *ethclient.Client {
	t.Helper()
	client, err := ethclient.DialContext(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
