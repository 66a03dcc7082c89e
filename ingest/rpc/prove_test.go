package rpc

import (
	"bytes"
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/rawdb"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/ethereum/go-ethereum/trie"
	"github.com/ethereum/go-ethereum/triedb"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/ingest/follow"
)

// filled is a header with so many of the fields that later forks added.
func filled(r *rand.Rand, optional int) *types.Header {
	hash := func() (h common.Hash) {
		for i := range h {
			h[i] = byte(r.Uint32())
		}
		return h
	}
	a, b, c, d := hash(), hash(), hash(), hash()
	used, excess, slot := r.Uint64N(3)<<17, r.Uint64N(2)*r.Uint64(), r.Uint64()
	extra := hash()
	h := &types.Header{
		ParentHash: hash(), UncleHash: hash(), Coinbase: common.BytesToAddress(a[:20]), Root: hash(), TxHash: hash(), ReceiptHash: hash(),
		Difficulty: new(big.Int).Rsh(hash().Big(), uint(r.IntN(256))), Number: big.NewInt(r.Int64()), GasLimit: r.Uint64(), GasUsed: r.Uint64N(3),
		Time: r.Uint64(), Extra: extra[:r.IntN(33)], MixDigest: hash(), Nonce: types.EncodeNonce(r.Uint64()),
	}
	h.Bloom.Add(a[:])
	for i, set := range []func(){
		func() { h.BaseFee = big.NewInt(r.Int64N(200)) },
		func() { h.WithdrawalsHash = &a },
		func() { h.BlobGasUsed = &used },
		func() { h.ExcessBlobGas = &excess },
		func() { h.ParentBeaconRoot = &b },
		func() { h.RequestsHash = &c },
		func() { h.BlockAccessListHash = &d },
		func() { h.SlotNumber = &slot },
	} {
		if i < optional {
			set()
		}
	}
	return h
}

// TestHeaderHash: headers of every fork hash to what go-ethereum says, whatever else a node answers with them; and
// no field can be changed.
func TestHeaderHash(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		for optional := range 9 {
			want := filled(r, optional)
			var fields map[string]any
			raw, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw, &fields); err != nil {
				t.Fatal(err)
			}
			// What Arbitrum adds, what every node adds, and a field of a later fork that is not hashed.
			fields["l1BlockNumber"], fields["sendCount"], fields["size"], fields["uncles"] = "0x1", "0x2", "0x3", []string{}
			if optional < 5 {
				fields["requestsHash"] = want.Root
			}
			raw, _ = json.Marshal(fields)
			var got follow.Header
			if err := decodeHeader(&scanner{b: raw}, &got, true); err != nil {
				t.Fatalf("%d optional fields: %v: %s", optional, err, raw)
			}
			if got.Hash != want.Hash() || got.Number != want.Number.Uint64() || got.Timestamp != want.Time || got.Parent != want.ParentHash ||
				got.Bloom != want.Bloom || got.Receipts != want.ReceiptHash {
				t.Fatalf("decoded %+v of %s", got, raw)
			}
			for _, f := range headerFields[:fieldOptional] {
				was := fields[f.key]
				if s, _ := was.(string); strings.HasSuffix(s, "1") {
					fields[f.key] = s[:len(s)-1] + "2"
				} else {
					fields[f.key] = s[:len(s)-1] + "1"
				}
				if f.key == "extraData" {
					fields[f.key] = "0x01020304"
				}
				raw, _ := json.Marshal(fields)
				if err := decodeHeader(&scanner{b: raw}, &got, true); classify(err) != classLie {
					t.Fatalf("a header with a changed %s is believed: %v", f.key, err)
				}
				fields[f.key] = was
			}
		}
	}
}

// receiptsOf makes receipts of every type, known and unknown.
func receiptsOf(r *rand.Rand, n int, block common.Hash) types.Receipts {
	var all types.Receipts
	index := uint(0)
	for i := range n {
		v := &types.Receipt{
			Type: []byte{0, 1, 2, 3, 4, 0x64, 0x68, 0x6a}[r.IntN(8)], Status: r.Uint64N(2), CumulativeGasUsed: r.Uint64N(1 << 40),
			TxHash: common.BytesToHash([]byte{byte(i), 1}), TransactionIndex: uint(i), BlockHash: block, BlockNumber: big.NewInt(7),
		}
		for range r.IntN(4) {
			l := &types.Log{
				Address: common.BytesToAddress([]byte{byte(r.IntN(5) + 1)}), Data: make([]byte, []int{0, 1, 31, 32, 60, 300}[r.IntN(6)]),
				Topics: []common.Hash{}, BlockNumber: 7, BlockHash: block, TxHash: v.TxHash, TxIndex: uint(i), Index: index,
			}
			for k := range l.Data {
				l.Data[k] = byte(r.Uint32())
			}
			for range r.IntN(5) {
				l.Topics = append(l.Topics, common.BytesToHash([]byte{byte(r.Uint32())}))
			}
			index++
			v.Logs = append(v.Logs, l)
		}
		v.Bloom = types.CreateBloom(v)
		all = append(all, v)
	}
	return all
}

// generic hashes receipts of types that go-ethereum does not know as it would if it did.
type generic types.Receipts

func (g generic) Len() int { return len(g) }

func (g generic) EncodeIndex(i int, w *bytes.Buffer) {
	v := *g[i]
	if v.Type > 0 {
		w.WriteByte(v.Type)
	}
	v.Type = 0
	types.Receipts{&v}.EncodeIndex(0, w)
}

// answerOf is what a node says of receipts.
func answerOf(t testing.TB, all types.Receipts) []byte {
	t.Helper()
	var out []map[string]any
	for _, v := range all {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		m["type"] = hexutil.Uint64(v.Type)
		if v.Logs == nil {
			m["logs"] = []any{}
		}
		out = append(out, m)
	}
	raw, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestReceiptsRoot: the root of any receipts is what go-ethereum says, and every change of a log is found.
func TestReceiptsRoot(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 150 {
		if n > 20 && n < 126 && n%10 > 0 {
			continue // what changes with the number of receipts does at 16, and at 128
		}
		block := common.BytesToHash([]byte{byte(n), 9})
		all := receiptsOf(r, n, block)
		h := follow.Header{Receipts: types.DeriveSha(generic(all), trie.NewStackTrie(nil))}
		h.Number, h.Hash = 7, block
		var got receipts
		if err := got.decode(&scanner{b: answerOf(t, all)}); err != nil && n > 0 {
			t.Fatal(err)
		}
		logs, err := got.of(&h)
		if err != nil {
			t.Fatalf("%d receipts: %v", n, err)
		}
		for name, change := range map[string]func(l *types.Log, v *types.Receipt){
			"data":      func(l *types.Log, _ *types.Receipt) { l.Data = append(l.Data, 1) },
			"address":   func(l *types.Log, _ *types.Receipt) { l.Address[3]++ },
			"topic":     func(l *types.Log, _ *types.Receipt) { l.Topics = append(l.Topics[:0:0], common.Hash{1}) },
			"left out":  func(_ *types.Log, v *types.Receipt) { v.Logs = v.Logs[1:] },
			"added":     func(l *types.Log, v *types.Receipt) { v.Logs = append(v.Logs, l) },
			"index":     func(l *types.Log, _ *types.Receipt) { l.Index++ },
			"block":     func(l *types.Log, _ *types.Receipt) { l.BlockHash[0]++ },
			"tx":        func(l *types.Log, _ *types.Receipt) { l.TxHash[0]++ },
			"its place": func(l *types.Log, _ *types.Receipt) { l.TxIndex++ },
		} {
			if len(logs) == 0 {
				break
			}
			var lying types.Receipts
			for _, v := range all {
				c := *v
				c.Logs = nil
				for _, l := range v.Logs {
					copied := *l
					c.Logs = append(c.Logs, &copied)
				}
				lying = append(lying, &c)
			}
			for _, v := range lying {
				if len(v.Logs) > 0 {
					change(v.Logs[0], v)
					break
				}
			}
			var got receipts
			if err := got.decode(&scanner{b: answerOf(t, lying)}); err != nil {
				t.Fatal(err)
			}
			if _, err := got.of(&h); classify(err) != classLie {
				t.Errorf("%d receipts with a changed log (%s) are believed: %v", n, name, err)
			}
		}
	}
}

// TestDepositReceipt: OP's deposits hash their nonce and version, since Canyon.
func TestDepositReceipt(t *testing.T) {
	items := func(more ...any) []byte {
		list := append([]any{uint64(1), uint64(0xb44f), types.Bloom{}, []*types.Log{}}, more...)
		raw, err := rlp.EncodeToBytes(list)
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{depositType}, raw...)
	}
	const answer = `[{"type":"0x7e","status":"0x1","cumulativeGasUsed":"0xb44f","logs":[],"transactionHash":"0x0000000000000000000000000000000000000000000000000000000000000001","depositNonce":"0x1c6d6","logsBloom":"0x`
	zeros := strings.Repeat("0", 2*types.BloomByteLength)
	for more, want := range map[string][]byte{
		`"}]`:                                items(),
		`","depositReceiptVersion":"0x1"}]`:  items(uint64(0x1c6d6), uint64(1)),
		`","depositReceiptVersion":null}]`:   items(),
		`","l1Fee":"0x0","l1GasUsed":null}]`: items(),
	} {
		var got receipts
		if err := got.decode(&scanner{b: []byte(answer + zeros + more)}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.encoded, want) {
			t.Errorf("%s: hashed as %x, want %x", more, got.encoded, want)
		}
	}
}

func FuzzReceipts(f *testing.F) {
	f.Add(answerOf(f, receiptsOf(rand.New(rand.NewPCG(5, 6)), 3, common.Hash{1})))
	f.Add([]byte(`[]`))
	f.Add([]byte(`{"hash":"0x1","transactions":["` + common.Hash{1}.Hex() + `"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if all, err := decodeTransactions(&scanner{b: b}); err == nil && len(all)*(2+2*common.HashLength) > len(b) {
			t.Errorf("%d hashes of %d bytes", len(all), len(b))
		}
		var r receipts
		if r.decode(&scanner{b: b}) != nil {
			return
		}
		if r.root(); len(r.ends) != len(r.upTo) || len(r.ends) != len(r.hashes) {
			t.Errorf("%d receipts, %d ends of logs, %d hashes", len(r.ends), len(r.upTo), len(r.hashes))
		}
	})
}

func FuzzHeaderHash(f *testing.F) {
	raw, _ := json.Marshal(filled(rand.New(rand.NewPCG(7, 8)), 8))
	f.Add(raw)
	f.Fuzz(func(t *testing.T, b []byte) {
		var got follow.Header
		var want types.Header
		if decodeHeader(&scanner{b: b}, &got, true) != nil || strings.ContainsRune(string(b), '\\') || json.Unmarshal(b, &want) != nil {
			return
		}
		if got.Hash != want.Hash() {
			t.Errorf("believed %s, go-ethereum says %s", got.Hash, want.Hash())
		}
	})
}

// FuzzAccountProof: whatever a node calls a proof, either it leads from the root to the account or it is refused.
func FuzzAccountProof(f *testing.F) {
	state := trie.NewEmpty(triedb.NewDatabase(rawdb.NewMemoryDatabase(), nil))
	address := common.Address{7}
	account, err := rlp.EncodeToBytes(&types.StateAccount{Balance: new(uint256.Int), Root: types.EmptyRootHash, CodeHash: crypto.Keccak256([]byte{1})})
	if err != nil {
		f.Fatal(err)
	}
	state.MustUpdate(crypto.Keccak256(address[:]), account)
	for i := range byte(20) {
		state.MustUpdate(crypto.Keccak256([]byte{i}), account)
	}
	root := state.Hash()
	var nodes proofNodes
	if err := state.Prove(crypto.Keccak256(address[:]), &nodes); err != nil {
		f.Fatal(err)
	}
	whole := `{"balance":"0x0","accountProof":["` + strings.Join(nodes, `","`) + `"],"codeHash":"0x"}`
	f.Add([]byte(whole))
	f.Add([]byte(strings.Replace(whole, nodes[0], "0x", 1)))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeProof(&scanner{b: b})
		if err != nil {
			return
		}
		if is, err := codeOf(root, address, got); err == nil && !is {
			t.Errorf("proved that there is no account: %s", b)
		}
		if is, err := codeOf(root, common.Address{8}, got); err == nil && is {
			t.Errorf("proved an account that is not there: %s", b)
		}
	})
}

// proofNodes are the nodes of a proof, as a node answers.
type proofNodes []string

func (p *proofNodes) Put(_, node []byte) error {
	*p = append(*p, hexutil.Encode(node))
	return nil
}

func (p *proofNodes) Delete([]byte) error { return nil }

// TestLongExtraData: a chain keeps the seals of its validators in the headers.
func TestLongExtraData(t *testing.T) {
	want := filled(rand.New(rand.NewPCG(1, 2)), 8)
	want.Extra = bytes.Repeat([]byte{7}, 64<<10)
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got follow.Header
	if err := decodeHeader(&scanner{b: raw}, &got, true); err != nil || got.Hash != want.Hash() {
		t.Fatalf("%v, hash %s, want %s", err, got.Hash, want.Hash())
	}
}
