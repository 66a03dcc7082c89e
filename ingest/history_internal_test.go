package ingest

import (
	"encoding/binary"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zaptest"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
)

// minter is a contract that writes as many transfers of 1 as the first word of its calldata says, and one other log.
func minter() []byte {
	code := []byte{0x60, 1, 0x60, 0, 0x52, 0x60, 32, 0x60, 0, 0xa0, 0x60, 0, 0x35} // MSTORE(0, 1) LOG0(0, 32) CALLDATALOAD(0)
	loop := byte(len(code))
	code = append(code, 0x5b, 0x80, 0x15, 0x60, 0, 0x57) // JUMPDEST DUP1 ISZERO PUSH1 end JUMPI
	end := len(code) - 2
	code = append(code, 0x60, 7, 0x60, 0, 0x7f) // PUSH1 to PUSH1 from PUSH32 topic
	code = append(code, contracts.TransferTopic().Bytes()...)
	code = append(code, 0x60, 32, 0x60, 0, 0xa3, 0x60, 1, 0x90, 0x03, 0x60, loop, 0x56) // LOG3 PUSH1 1 SWAP1 SUB PUSH1 loop JUMP
	code[end] = byte(len(code))
	return append(code, 0x5b, 0x00)
}

// TestHistoryOfABurst: after a quiet time, in which ranges grow, a token has thousands of transfers in a few blocks.
// No range that is read holds more than its bound, except a single block; none is missing, and only transfers come.
func TestHistoryOfABurst(t *testing.T) {
	token := common.HexToAddress("0x7e11")
	key, err := crypto.ToECDSA(crypto.Keccak256([]byte("minter")))
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		t.Skip("takes a chain")
	}
	chain, err := devchain.New(devchain.Config{Seed: 7, SafeBlocks: 4, FinalizedBlocks: 8, Alloc: types.GenesisAlloc{
		crypto.PubkeyToAddress(key.PublicKey): {Balance: new(big.Int).Lsh(big.NewInt(1), 90)},
		token:                                 {Balance: new(big.Int), Code: minter()},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = chain.Close() })
	market, err := devchain.Deploy(t.Context(), chain, devchain.MarketConfig{NodeModules: "../contracts/node_modules", Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	const burst, each, one = 60, 30, 200 // one block has more than a range may have
	id, nonce, total := new(big.Int).SetUint64(market.Deployment.ChainID), uint64(0), 0
	head, err := chain.Client().HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	mine := func(transfers int) {
		var txs []*types.Transaction
		if transfers > 0 {
			data := make([]byte, 32)
			binary.BigEndian.PutUint64(data[24:], uint64(transfers))
			txs = append(txs, types.MustSignNewTx(key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
				ChainID: id, Nonce: nonce, GasTipCap: big.NewInt(1e9), GasFeeCap: big.NewInt(1e12), Gas: 1_000_000, To: &token, Data: data,
			}))
			nonce++
		}
		block, err := chain.Mine(t.Context(), head.Time+1, txs)
		if err != nil {
			t.Fatal(err)
		}
		head.Time = block.Timestamp
		for _, r := range block.Receipts {
			if r.Status != types.ReceiptStatusSuccessful || len(r.Logs) != transfers+1 {
				t.Fatalf("%d logs of %d transfers, status %d", len(r.Logs), transfers, r.Status)
			}
		}
		total += transfers
	}
	for range 300 {
		mine(0)
	}
	for range burst {
		mine(each)
	}
	mine(one)
	for range 20 {
		mine(0)
	}
	at, err := chain.Client().HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, proof := range []rpc.Proof{rpc.ProofTip, rpc.ProofAll, rpc.ProofSparse, rpc.ProofOff} {
		t.Run(string(proof), func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Deployment, cfg.Kafka.Brokers = market.Deployment, []string{"127.0.0.1:1"}
			cfg.RPC.Proof, cfg.RPC.Endpoints = proof, []rpc.Endpoint{{URL: chain.HTTP(), Name: "node"}}
			cfg.Ranges, cfg.RangeLogs = 2, 20
			in, err := New(cfg, zaptest.NewLogger(t), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			h := in.history(token, 0, at.Number.Uint64(), at.Number.Uint64()-8)
			got := 0
			for h.next <= h.to {
				blocks, err := h.read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				held, most := 0, 0
				for i := range blocks {
					held, most = held+len(blocks[i].Logs), max(most, len(blocks[i].Logs))
				}
				if bound := cfg.Ranges*densest*cfg.RangeLogs + most; held > bound {
					t.Errorf("%d logs of %d blocks are held, at most %d may be", held, len(blocks), bound)
				}
				got += held
			}
			if got != total || h.last.Hash != at.Hash() {
				t.Errorf("%d transfers up to block %s, want %d up to %s", got, h.last.Hash, total, at.Hash())
			}
		})
	}
}
