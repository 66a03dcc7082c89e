package rpc

import (
	"bytes"
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/holiman/uint256"
)

// transactionsOf makes transactions of every type of Ethereum.
func transactionsOf(t testing.TB, r *rand.Rand, n int) types.Transactions {
	t.Helper()
	number := func() *big.Int { return new(big.Int).Rsh(new(big.Int).SetUint64(r.Uint64()), uint(r.IntN(65))) }
	small := func() *uint256.Int { return uint256.MustFromBig(number()) }
	hash := func() common.Hash { return common.BigToHash(number()) }
	data := make([]byte, []int{0, 1, 4, 55, 56, 300}[r.IntN(6)])
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	to := common.BytesToAddress(hash().Bytes())
	maybe := &to
	var all types.Transactions
	for i := range n {
		if i%3 == 0 {
			maybe = nil
		}
		list := types.AccessList{}
		for range r.IntN(3) {
			list = append(list, types.AccessTuple{Address: to, StorageKeys: append([]common.Hash{}, []common.Hash{hash(), hash()}[:r.IntN(3)]...)})
		}
		var tx types.TxData
		switch i % 5 {
		case 0:
			tx = &types.LegacyTx{Nonce: r.Uint64(), GasPrice: number(), Gas: r.Uint64N(3), To: maybe, Value: number(), Data: data, V: big.NewInt(int64(27 + r.IntN(2))), R: number(), S: number()}
		case 1:
			tx = &types.AccessListTx{ChainID: number(), Nonce: r.Uint64(), GasPrice: number(), Gas: r.Uint64(), To: maybe, Value: number(), Data: data, AccessList: list, V: big.NewInt(1), R: number(), S: number()}
		case 2:
			tx = &types.DynamicFeeTx{ChainID: number(), Nonce: r.Uint64(), GasTipCap: number(), GasFeeCap: number(), Gas: r.Uint64(), To: maybe, Value: number(), Data: data, AccessList: list, V: new(big.Int), R: number(), S: number()}
		case 3:
			tx = &types.BlobTx{ChainID: small(), Nonce: r.Uint64(), GasTipCap: small(), GasFeeCap: small(), Gas: r.Uint64(), To: to, Value: small(), Data: data, AccessList: list, BlobFeeCap: small(), BlobHashes: []common.Hash{hash()}, V: uint256.NewInt(1), R: small(), S: small()}
		default:
			tx = &types.SetCodeTx{
				ChainID: small(), Nonce: r.Uint64(), GasTipCap: small(), GasFeeCap: small(), Gas: r.Uint64(), To: to, Value: small(), Data: data, AccessList: list, V: uint256.NewInt(1), R: small(), S: small(),
				AuthList: []types.SetCodeAuthorization{{ChainID: *small(), Address: to, Nonce: r.Uint64(), V: 1, R: *small(), S: *small()}},
			}
		}
		all = append(all, types.NewTx(tx))
	}
	return all
}

// blockOf is what a node says of a block with its transactions.
func blockOf(t testing.TB, all any) []byte {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"hash": common.Hash{1}, "transactions": all})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestSignedAs: a transaction of any type of Ethereum is encoded from what a node says of it as go-ethereum encodes it, and no change of
// it keeps the root.
func TestSignedAs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 60 {
		all := transactionsOf(t, r, n)
		if all == nil {
			all = types.Transactions{}
		}
		d, err := decodeDescribed(&scanner{b: blockOf(t, all)})
		if err != nil {
			t.Fatal(err)
		}
		got := d.raw
		if len(got) != n {
			t.Fatalf("%d transactions, want %d", len(got), n)
		}
		for i := range all {
			want, err := all[i].MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got[i], want) {
				said, _ := all[i].MarshalJSON()
				t.Fatalf("encoded %x, go-ethereum says %x: %s", got[i], want, said)
			}
		}
		for i := range all {
			if d.hashes[i] != all[i].Hash() {
				t.Errorf("transaction %d is %s, go-ethereum says %s", i, d.hashes[i], all[i].Hash())
			}
		}
	}
}

// TestSignedElsewhere: OP's deposits and Arbitrum's types, and what is not known.
func TestSignedElsewhere(t *testing.T) {
	a, h := common.Address{1, 2}, common.Hash{3, 4}
	nobody, nothing := []byte{}, []byte{}
	data := []byte{1, 2, 3}
	for name, test := range map[string]struct {
		says map[string]any
		want []any // nil: unknown
	}{
		"deposit":    {map[string]any{"type": "0x7e", "sourceHash": h, "from": a, "to": a, "mint": "0x5", "value": "0x6", "gas": "0x7", "isSystemTx": true, "input": hexutil.Bytes(data)}, []any{h, a, a, uint(5), uint(6), uint(7), true, data}},
		"to nobody":  {map[string]any{"type": "0x7e", "sourceHash": h, "from": a, "to": nil, "value": "0x0", "gas": "0x7", "input": "0x"}, []any{h, a, nobody, uint(0), uint(0), uint(7), false, nothing}},
		"to L2":      {map[string]any{"type": "0x64", "chainId": "0x9", "requestId": h, "from": a, "to": a, "value": "0x6"}, []any{uint(9), h, a, a, uint(6)}},
		"unsigned":   {map[string]any{"type": "0x65", "chainId": "0x9", "from": a, "nonce": "0x3", "gasPrice": "0x4", "gas": "0x5", "to": a, "value": "0x6", "input": "0x"}, []any{uint(9), a, uint(3), uint(4), uint(5), a, uint(6), nothing}},
		"contract's": {map[string]any{"type": "0x66", "chainId": "0x9", "requestId": h, "from": a, "gasPrice": "0x4", "gas": "0x5", "to": nil, "value": "0x6", "input": "0x010203"}, []any{uint(9), h, a, uint(4), uint(5), nobody, uint(6), data}},
		"retry": {
			map[string]any{"type": "0x68", "chainId": "0x9", "nonce": "0x1", "from": a, "maxFeePerGas": "0x4", "gasPrice": "0x2", "gas": "0x5", "to": a, "value": "0x6", "input": "0x010203", "ticketId": h, "refundTo": a, "maxRefund": "0x7", "submissionFeeRefund": "0x8"},
			[]any{uint(9), uint(1), a, uint(4), uint(5), a, uint(6), data, h, a, uint(7), uint(8)},
		},
		"submission": {
			map[string]any{"type": "0x69", "chainId": "0x9", "requestId": h, "from": a, "l1BaseFee": "0x1", "depositValue": "0x2", "maxFeePerGas": "0x3", "gas": "0x4", "retryTo": a, "retryValue": "0x5", "beneficiary": a, "maxSubmissionFee": "0x6", "refundTo": a, "retryData": "0x010203", "to": a, "input": "0xff", "nonce": "0x0"},
			[]any{uint(9), h, a, uint(1), uint(2), uint(3), uint(4), a, uint(5), a, uint(6), a, data},
		},
		"internal":        {map[string]any{"type": "0x6a", "chainId": "0x9", "input": "0x010203"}, []any{uint(9), data}},
		"unknown":         {map[string]any{"type": "0x55", "chainId": "0x9"}, nil},
		"of other fields": {map[string]any{"type": "0x6a", "chain": "0x9"}, nil},
	} {
		var want []byte
		if test.want != nil {
			list, err := rlp.EncodeToBytes(test.want)
			if err != nil {
				t.Fatal(err)
			}
			want = append(hexutil.MustDecode(test.says["type"].(string)), list...)
		}
		test.says["hash"] = crypto.Keccak256Hash(want)
		got, err := decodeDescribed(&scanner{b: blockOf(t, []any{test.says})})
		if err != nil || len(got.raw) != 1 {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		if !bytes.Equal(got.raw[0], want) {
			t.Errorf("%s: encoded %x, want %x", name, got.raw[0], want)
		}
	}
}

// FuzzSigned: whatever a node says of a block's transactions, what is taken for signed is one list behind its type and has the hash that
// is named.
func FuzzSigned(f *testing.F) {
	f.Add(blockOf(f, transactionsOf(f, rand.New(rand.NewPCG(5, 6)), 6)))
	f.Add(blockOf(f, []any{map[string]any{"type": "0x6a", "chainId": "0x9", "input": "0x010203"}, map[string]any{"type": "0x55"}, common.Hash{1}}))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeDescribed(&scanner{b: b})
		if err != nil {
			return
		}
		if len(d.raw) != len(d.hashes) {
			t.Fatalf("%d transactions and %d hashes", len(d.raw), len(d.hashes))
		}
		for i, raw := range d.raw {
			if raw == nil {
				continue
			}
			list := raw
			if raw[0] < 0xc0 {
				list = raw[1:]
			}
			if _, rest, err := rlp.SplitList(list); err != nil || len(rest) > 0 {
				t.Errorf("transaction %d is %x: %v", i, raw, err)
			}
			if crypto.Keccak256Hash(raw) != d.hashes[i] {
				t.Errorf("transaction %d is %x, not %s", i, raw, d.hashes[i])
			}
		}
	})
}

// FuzzEncodeSigned: whatever the fields of a transaction are, what they are encoded to is one list behind its type.
func FuzzEncodeSigned(f *testing.F) {
	for _, tx := range transactionsOf(f, rand.New(rand.NewPCG(5, 6)), 5) {
		b, err := tx.MarshalJSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"type":"0x69","chainId":"0x9","requestId":"0x00","l1BaseFee":"0x1"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(b, &fields) != nil {
			return
		}
		var values [len(allTxKeys)][]byte
		for name, value := range fields {
			if at, known := txKeys[name]; known {
				values[at] = value
			}
		}
		raw := encodeSigned(&values)
		if raw == nil {
			return
		}
		list := raw
		if raw[0] < 0xc0 {
			list = raw[1:]
		}
		if _, rest, err := rlp.SplitList(list); err != nil || len(rest) > 0 {
			t.Errorf("%s is %x: %v", b, raw, err)
		}
		if size := len(raw); size > 4*len(b)+4*len(allTxKeys) {
			t.Errorf("%d bytes of %d", size, len(b))
		}
	})
}
