package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/ethereum/go-ethereum/trie"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
)

// describing are the ways in which clients describe transactions, each made from go-ethereum's. stranger: one whose authorization has a parity
// above 1 does not have its hash then.
var describing = []struct {
	client   string
	stranger bool
	describe func(tx map[string]any)
}{
	{"geth", false, func(tx map[string]any) {
		tx["blockHash"], tx["blockNumber"], tx["transactionIndex"], tx["from"] = common.Hash{1}, "0x7", "0x0", common.Address{9}
	}},
	{"Besu", true, func(tx map[string]any) {
		tx["publicKey"], tx["raw"], tx["from"] = "0x1234", "0x5678", common.Address{9}
		if tx["type"] == "0x0" {
			tx["chainId"] = nil
		}
		authorizations(tx, func(a map[string]any) {
			parity := hexutil.MustDecodeUint64(a["yParity"].(string)) & 1
			a["yParity"], a["v"] = hexutil.EncodeUint64(parity), hexutil.EncodeUint64(parity)
		})
	}},
	{"Besu, a byte with its sign", true, func(tx map[string]any) {
		authorizations(tx, func(a map[string]any) {
			parity := hexutil.MustDecodeUint64(a["yParity"].(string))
			a["yParity"] = fmt.Sprintf("%#x", uint32(int32(int8(parity)))) //nolint:gosec // as it does
		})
	}},
	{"Nethermind up to 1.31", true, func(tx map[string]any) {
		if tx["type"] != "0x0" {
			delete(tx, "yParity")
		}
		tx["data"] = tx["input"]
		delete(tx, "input")
		if list, _ := tx["accessList"].([]any); len(list) == 0 {
			delete(tx, "accessList")
		} else {
			for _, one := range list {
				if keys, _ := one.(map[string]any)["storageKeys"].([]any); len(keys) == 0 {
					one.(map[string]any)["storageKeys"] = nil
				}
			}
		}
		authorizations(tx, func(a map[string]any) {
			if a["yParity"] != "0x0" && a["yParity"] != "0x1" {
				delete(a, "yParity")
			}
		})
	}},
	{"Erigon", false, func(tx map[string]any) {
		delete(tx, "yParity")
		if list, _ := tx["accessList"].([]any); len(list) == 0 {
			tx["accessList"] = nil
		}
		authorizations(tx, func(a map[string]any) {
			a["v"] = a["yParity"]
			delete(a, "yParity")
		})
	}},
	{"Reth", false, func(tx map[string]any) {
		if tx["type"] == "0x0" {
			tx["chainId"] = "0x9"
		}
		tx["gasPrice"] = cmpOr(tx["gasPrice"], "0x1") // what was paid
	}},
	{"anvil", false, func(tx map[string]any) {
		if tx["type"] == "0x0" {
			tx["yParity"], tx["accessList"] = "0x1", []any{}
		} else {
			tx["v"] = "0x1b" // beside the parity
		}
		for _, key := range []string{"r", "s"} {
			tx[key] = "0x" + fmt.Sprintf("%064s", strings.TrimPrefix(tx[key].(string), "0x"))
		}
	}},
}

func cmpOr(v, or any) any {
	if v == nil {
		return or
	}
	return v
}

func authorizations(tx map[string]any, change func(map[string]any)) {
	list, _ := tx["authorizationList"].([]any)
	for _, one := range list {
		change(one.(map[string]any))
	}
}

// strangers is a valid transaction that clients describe in different ways.
func strangers(t *testing.T, parity uint8) *types.Transaction {
	t.Helper()
	one := uint256.NewInt(1)
	return types.NewTx(&types.SetCodeTx{
		ChainID: one, GasTipCap: one, GasFeeCap: one, Gas: 100_000, Value: new(uint256.Int), V: one, R: one, S: one,
		AuthList: []types.SetCodeAuthorization{{ChainID: *one, V: parity, R: *one, S: *one}},
	})
}

// signer is a node of one block, and knows some of the methods that return a transaction as it was signed.
type signer struct {
	raw  rawTransactions
	says []any // the transactions; nil: they are too big
	with string
	null string // in place of a transaction; empty: it has them
	lies bool   // of what was signed

	mu    sync.Mutex
	asked map[string]int
}

func (s *signer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rpctest.Serve(w, r, func(m rpctest.Message) string {
		s.mu.Lock()
		s.asked[m.Method]++
		s.mu.Unlock()
		var at int
		switch m.Method {
		case "eth_chainId":
			return `"0x7"`
		case "eth_getBlockByHash":
			if s.says == nil {
				return "null" + strings.Repeat(" ", DefaultConfig().MaxBody)
			}
			b, _ := json.Marshal(map[string]any{"hash": common.Hash{1}, "transactions": s.says})
			return string(b)
		case "eth_getRawTransactionByBlockHashAndIndex":
			var n hexutil.Uint64
			_ = json.Unmarshal(m.Params[1], &n)
			at = int(n) //nolint:gosec // of a few
		default:
			var hash common.Hash
			_ = json.Unmarshal(m.Params[0], &hash)
			at = slices.IndexFunc(s.raw, func(raw []byte) bool { return crypto.Keccak256Hash(raw) == hash })
		}
		switch {
		case !strings.Contains(s.with, m.Method):
			return `null,"error":{"code":-32601,"message":"the method does not exist/is not available"}`
		case s.lies:
			return `"0x02c0"`
		case at < 0 || at >= len(s.raw):
			return "null"
		case s.null != "":
			return s.null
		}
		return fmt.Sprintf("%q", hexutil.Bytes(s.raw[at]))
	})
}

// hashes asks for the hashes of the node's block, which has so many receipts.
func (s *signer) hashes(t *testing.T, n int) ([]common.Hash, error) {
	t.Helper()
	s.asked = map[string]int{}
	e := piped(t, func(*Config) {}, s).endpoints[0]
	h := follow.Header{BlockRef: topics.BlockRef{Number: 1}, Transactions: types.DeriveSha(s.raw, trie.NewStackTrie(nil))}
	blocks, err := e.blocks(t.Context(), []follow.Header{h})
	if err != nil {
		return nil, err
	}
	return e.hashes(t.Context(), &h, blocks[0], n, false)
}

const everyMethod = "eth_getRawTransactionByHash eth_getRawTransactionByBlockHashAndIndex debug_getRawTransaction"

// asSaid returns transactions as a client describes them, and as they were signed.
func asSaid(t *testing.T, all types.Transactions, describe func(map[string]any)) (raw rawTransactions, says []any) {
	t.Helper()
	for _, tx := range all {
		b, err := tx.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, b)
		said, err := tx.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(said, &fields); err != nil {
			t.Fatal(err)
		}
		describe(fields)
		says = append(says, fields)
	}
	return raw, says
}

// TestDescribed: however an honest client describes a block's transactions, their hashes are proved; with the signed
// form also if the description does not have the hash. Without that, nothing counts as a lie. A hash, an order or an
// index that is not the block's is refused.
func TestDescribed(t *testing.T) {
	for _, d := range describing {
		for _, parity := range []uint8{0, 1, 2, 27, 228, 255} {
			for with, raw := range map[string]int{
				everyMethod: 1, "eth_getRawTransactionByHash": 1, "eth_getRawTransactionByBlockHashAndIndex": 1, "debug_getRawTransaction": 1, "nothing": -1,
			} {
				inBubble(t, fmt.Sprintf("%s/parity %d/with %s", d.client, parity, with), func(t *testing.T) {
					all := append(transactionsOf(t, rand.New(rand.NewPCG(1, uint64(parity))), 10), strangers(t, parity))
					odd := d.stranger && parity > 1
					if strings.HasSuffix(d.client, "sign") {
						odd = parity > 127
					}
					s := &signer{with: with}
					s.raw, s.says = asSaid(t, all, d.describe)
					got, err := s.hashes(t, len(all))
					if odd && raw < 0 {
						if !errors.Is(err, errUnsigned) || classify(err) == classLie || classify(err) == classGone {
							t.Fatalf("%v", err)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					for i, tx := range all {
						if got[i] != tx.Hash() {
							t.Errorf("transaction %d is %s, want %s", i, got[i], tx.Hash())
						}
					}
					n := 0
					for method, times := range s.asked {
						if strings.Contains(with, method) {
							n += times
						}
					}
					if want := map[bool]int{true: 1}[odd]; n != want {
						t.Errorf("%d were fetched as they were signed, want %d", n, want)
					}
					for i, tx := range all {
						h := &follow.Header{}
						if err := same(h, []namedTransaction{{uint32(i), tx.Hash()}}, got); err != nil { //nolint:gosec // of a few
							t.Error(err)
						}
						for _, n := range []namedTransaction{{uint32(i), common.Hash{7}}, {uint32(i), all[(i+1)%len(all)].Hash()}, {uint32(i + 1), tx.Hash()}} { //nolint:gosec // of a few
							if err := same(h, []namedTransaction{n}, got); classify(err) != classLie {
								t.Errorf("%v is believed: %v", n, err)
							}
						}
					}
				})
			}
		}
	}
}

// TestDescribedWrong: whatever is changed in a node's description of transactions, the result is the block's own
// hashes, a lie, or no proof.
func TestDescribedWrong(t *testing.T) {
	for _, d := range describing[:2] {
		all := transactionsOf(t, rand.New(rand.NewPCG(1, 2)), 5)
		for name, change := range map[string]func(says []any) []any{
			"another order":   func(says []any) []any { says[0], says[1] = says[1], says[0]; return says },
			"one twice":       func(says []any) []any { says[0] = says[1]; return says },
			"one left out":    func(says []any) []any { return says[1:] },
			"one more":        func(says []any) []any { return append(says, says[0]) },
			"another's hash":  func(says []any) []any { says[0].(map[string]any)["hash"] = all[1].Hash(); return says },
			"a made up hash":  func(says []any) []any { says[0].(map[string]any)["hash"] = common.Hash{7}; return says },
			"no hash":         func(says []any) []any { delete(says[0].(map[string]any), "hash"); return says },
			"a made up type":  func(says []any) []any { says[0].(map[string]any)["type"] = "0x55"; return says },
			"a made up nonce": func(says []any) []any { says[0].(map[string]any)["nonce"] = "0x777"; return says },
			"hashes alone": func(says []any) []any {
				for i := range says {
					says[i] = all[i].Hash()
				}
				return says
			},
		} {
			for _, with := range []string{everyMethod, "debug_getRawTransaction", "nothing"} {
				for _, lies := range []bool{false, true} {
					inBubble(t, fmt.Sprintf("%s/%s/with %s/lies %t", d.client, name, with, lies), func(t *testing.T) {
						s := &signer{with: with, lies: lies}
						s.raw, s.says = asSaid(t, all, d.describe)
						s.says = change(s.says)
						got, err := s.hashes(t, len(all))
						if err != nil && classify(err) != classLie && !errors.Is(err, errUnsigned) {
							t.Fatal(err)
						}
						for i := range got {
							if got[i] != all[i].Hash() {
								t.Errorf("transaction %d is %s, want %s", i, got[i], all[i].Hash())
							}
						}
					})
				}
			}
		}
	}
}

// TestTransactionsOfOthers: transactions of unknown or misjudged types, and of blocks too large for one response, are
// fetched in signed form, up to a limit; only signed ones that are not the block's are a lie. A null is none.
func TestTransactionsOfOthers(t *testing.T) {
	all := transactionsOf(t, rand.New(rand.NewPCG(1, 2)), 4)
	raw, says := asSaid(t, all, func(map[string]any) {})
	to := common.Address{1, 2}
	list, err := rlp.EncodeToBytes([]any{common.Hash{3}, to, to, uint(5), uint(6), uint(7), true, []byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	deposit := append([]byte{depositType}, list...)
	saysDeposit := map[string]any{
		"type": "0x7e", "hash": crypto.Keccak256Hash(deposit), "sourceHash": common.Hash{3}, "from": to, "to": to, "mint": "0x5", "value": "0x6", "gas": "0x7", "isSystemTx": true, "input": "0x01", "nonce": "0x9",
	}
	submission, err := rlp.EncodeToBytes([]any{uint(9), common.Hash{3}, to, uint(1), uint(2), uint(3), uint(4), to, uint(5), to, uint(6), to, []byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	submission = append([]byte{0x69}, submission...)
	saysSubmission := map[string]any{
		"type": "0x69", "hash": crypto.Keccak256Hash(submission), "chainId": "0x9", "requestId": common.Hash{3}, "from": to, "l1BaseFee": "0x1", "depositValue": "0x2", "maxFeePerGas": "0x3", "gas": "0x4", "retryTo": to,
		"retryValue": "0x5", "beneficiary": to, "maxSubmissionFee": "0x6", "refundTo": to, "retryData": "0x01", "input": "0xff",
	}
	unknown, internal := []byte{0x55, 0xc1, 7}, []byte{0x6a, 0xc2, 9, 8} // nobody encodes the second like this
	others := []any{
		map[string]any{"type": "0x55", "hash": crypto.Keccak256Hash(unknown)},
		map[string]any{"type": "0x6a", "chainId": "0x9", "input": "0x0102", "hash": crypto.Keccak256Hash(internal)},
	}
	many, saysMany := slices.Clone(raw), slices.Clone(says)
	for i := range DefaultConfig().MaxRaw + 1 {
		one := []byte{0x55, 0xc2, 7, byte(i)}
		many, saysMany = append(many, one), append(saysMany, map[string]any{"type": "0x55", "hash": crypto.Keccak256Hash(one)})
	}
	for name, test := range map[string]struct {
		node  *signer
		calls int // for single transactions
		want  class
	}{
		"Ethereum's":         {&signer{raw: raw, says: says}, 0, classOther},
		"OP's":               {&signer{raw: append(slices.Clone(raw), deposit), says: append(slices.Clone(says), saysDeposit)}, 0, classOther},
		"Arbitrum's":         {&signer{raw: append(slices.Clone(raw), submission), says: append(slices.Clone(says), saysSubmission)}, 0, classOther},
		"of unknown types":   {&signer{raw: append(slices.Clone(raw), unknown, internal), says: append(slices.Clone(says), others...)}, 2, classOther},
		"too big":            {&signer{raw: raw}, 4, classOther},
		"many unknown":       {&signer{raw: many, says: saysMany}, 0, classUnsigned},
		"as many as allowed": {&signer{raw: many[1:], says: saysMany[1 : len(saysMany)-1]}, 0, classLie},
		"Arbitrum's of old":  {&signer{raw: append(slices.Clone(raw), []byte{0x78, 0xc1, 7}), says: append(slices.Clone(says), map[string]any{"type": "0x78", "hash": common.Hash{9}})}, 2, classUnsigned},
		"null":               {&signer{raw: append(slices.Clone(raw), unknown), says: append(slices.Clone(says), others[0]), null: "null"}, 3, classUnsigned},
		"empty":              {&signer{raw: append(slices.Clone(raw), unknown), says: append(slices.Clone(says), others[0]), null: `"0x"`}, 3, classUnsigned},
		"wrong":              {&signer{raw: append(slices.Clone(raw), unknown), says: append(slices.Clone(says), others[0]), lies: true}, 1, classLie},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := test.node
			s.with = everyMethod
			got, err := s.hashes(t, len(s.raw))
			if (err == nil) != (test.want == classOther) || err != nil && classify(err) != test.want {
				t.Fatalf("%v", err)
			}
			asked := maps.Clone(s.asked)
			delete(asked, "eth_chainId")
			delete(asked, "eth_getBlockByHash")
			n := 0
			for _, times := range asked {
				n += times
			}
			if n != test.calls {
				t.Errorf("%d transactions are asked for, want %d", n, test.calls)
			}
			for i := range got {
				if got[i] != crypto.Keccak256Hash(s.raw[i]) {
					t.Errorf("transaction %d is %s", i, got[i])
				}
			}
		})
	}
}

// TestCallsOfSigned: the only node describes as many transactions of a block in its own way as may be fetched in
// signed form, and answers those requests wrongly. It gets 60 requests in 12 s in the long run.
func TestCallsOfSigned(t *testing.T) {
	chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	defer chain.Close()
	for name, says := range map[string]string{"another one": `"0x02c0"`, "none but the first": "null"} {
		inBubble(t, name, func(t *testing.T) {
			calls, signed := 0, 0
			c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rpctest.Serve(w, r, func(m rpctest.Message) string {
					calls++
					if strings.Contains(m.Method, "RawTransaction") {
						if signed++; signed%2 == 1 && says == "null" {
							return `"0x02c0"`
						}
						return says
					}
					return chain.Answer(m)
				})
			}))
			e := c.endpoints[0]
			d := func() *described {
				d := &described{}
				for i := range DefaultConfig().MaxRaw {
					d.raw, d.hashes = append(d.raw, nil), append(d.hashes, common.Hash{byte(i), 1})
				}
				return d
			}
			const minutes = 10
			for began := time.Now(); time.Since(began) < minutes*time.Minute; {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				err := c.try(ctx, choice{receipts: true}, func(ctx context.Context, e *endpoint) error {
					_, err := e.hashes(ctx, &follow.Header{BlockRef: topics.BlockRef{Number: 1}, Transactions: common.Hash{7}}, d(), DefaultConfig().MaxRaw, false)
					return err
				})
				if err == nil {
					t.Fatal("it is believed")
				}
				<-ctx.Done()
				cancel()
			}
			if most := minutes * 60 / 12 * 60; calls > most {
				t.Errorf("%d calls in %d minutes, at most %d", calls, minutes, most)
			} else {
				t.Logf("%d calls, %d for signed transactions, batches of %d", calls, signed, e.limits.batch.now())
			}
		})
	}
}

// TestNoProof: the only node is honest, and a part of the proof of a transaction's hash fails for good: the
// description of the block, or the signed form. The block soon comes in all the same, and the node is not counted as a
// liar.
func TestNoProof(t *testing.T) {
	chain := rpctest.NewSparse(7, 20, 2, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	defer chain.Close()
	const described, signed = "eth_getBlockByHash", "RawTransaction"
	status := func(code int) func(http.ResponseWriter, json.RawMessage) {
		return func(w http.ResponseWriter, _ json.RawMessage) { http.Error(w, "no", code) }
	}
	says := func(result string) func(http.ResponseWriter, json.RawMessage) {
		return func(w http.ResponseWriter, id json.RawMessage) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, id, result)
		}
	}
	for _, test := range []struct {
		method string
		name   string
		fail   func(http.ResponseWriter, json.RawMessage)
	}{
		{described, "internal error", says(`"error":{"code":-32603,"message":"Internal error"}`)},
		{described, "server error", says(`"error":{"code":-32000,"message":"Error serializing transaction"}`)},
		{described, "null", says(`"result":null`)},
		{described, "no transactions", says(`"result":{"hash":"0x00"}`)},
		{described, "null for transactions", says(`"result":{"hash":"0x00","transactions":null}`)},
		{described, "null for one", says(`"result":{"hash":"0x00","transactions":[null]}`)},
		{described, "502", status(http.StatusBadGateway)},
		{signed, "502", status(http.StatusBadGateway)},
		{signed, "500", status(http.StatusInternalServerError)},
		{signed, "429", status(http.StatusTooManyRequests)},
		{signed, "403", status(http.StatusForbidden)},
		{signed, "quota", says(`"error":{"code":-32005,"message":"debug methods: monthly quota of your plan is 0"}`)},
		{signed, "empty", says(`"result":""`)},
		{signed, "half a byte", says(`"result":"0x2"`)},
		{signed, "nothing", func(w http.ResponseWriter, id json.RawMessage) { fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s}`, id) }},
		{signed, "an object", says(`"result":{"raw":"0x02"}`)},
		{signed, "a page", func(w http.ResponseWriter, _ json.RawMessage) { fmt.Fprint(w, "<html>method blocked</html>") }},
		{signed, "text for an error", says(`"error":"no such method"`)},
	} {
		inBubble(t, test.method+"/"+test.name, func(t *testing.T) {
			odd := &oddly{Sparse: chain}
			c := piped(t, func(*Config) {}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				var m struct {
					ID     json.RawMessage
					Method string
					Params []json.RawMessage
				}
				if json.Unmarshal(body, &m) == nil && strings.Contains(m.Method, test.method) && (test.method == signed || string(m.Params[1]) == "true") {
					test.fail(w, m.ID)
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				odd.ServeHTTP(w, r)
			}))
			if got := hashWithin(t, c, 4, 5*time.Second); got != chain.Signed(4) {
				t.Errorf("the hash is %s", got)
			}
			if n := testutil.ToFloat64(c.metrics.unproved); n != 1 {
				t.Errorf("%v blocks are counted", n)
			}
			if n := testutil.CollectAndCount(c.metrics.lies); n > 0 {
				t.Errorf("%d lies are counted", n)
			}
		})
	}
}

// TestNotDescribed: a node that does not describe a block proves it by the signed form.
func TestNotDescribed(t *testing.T) {
	raw, _ := asSaid(t, transactionsOf(t, rand.New(rand.NewPCG(1, 2)), 3), func(map[string]any) {})
	for name, says := range map[string][]any{"null for one": {nil, nil, nil}, "a number": {7}} {
		inBubble(t, name, func(t *testing.T) {
			s := &signer{raw: raw, says: says, with: everyMethod}
			got, err := s.hashes(t, len(raw))
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if got[i] != crypto.Keccak256Hash(raw[i]) {
					t.Errorf("transaction %d is %s", i, got[i])
				}
			}
		})
	}
}
