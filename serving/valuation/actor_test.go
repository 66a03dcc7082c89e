package valuation

import (
	"crypto/ecdsa"
	"math/big"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/serving/chain"
)

// actor is an account of the chain with money: the deployer of the market, whose key anyone can derive.
type actor struct {
	w       *world
	key     *ecdsa.PrivateKey
	address common.Address
	nonce   uint64
}

// deployer takes over from the scenario, which plays no more.
func (w *world) deployer() *actor {
	w.t.Helper()
	key := devchain.Key(1, devchain.Deployer)
	a := &actor{w: w, key: key, address: crypto.PubkeyToAddress(key.PublicKey)}
	var err error
	if a.nonce, err = w.node.Client().NonceAt(w.t.Context(), a.address, nil); err != nil {
		w.t.Fatal(err)
	}
	return a
}

// send signs the actor's next transaction. Without an address it creates a contract.
func (a *actor) send(to *common.Address, data []byte) *types.Transaction {
	a.w.t.Helper()
	tx, err := types.SignNewTx(a.key, types.LatestSignerForChainID(new(big.Int).SetUint64(a.w.dep.ChainID)), &types.DynamicFeeTx{
		ChainID: new(big.Int).SetUint64(a.w.dep.ChainID), Nonce: a.nonce, GasTipCap: big.NewInt(1e9), GasFeeCap: big.NewInt(1e12),
		Gas: 6_000_000, To: to, Data: data,
	})
	if err != nil {
		a.w.t.Fatal(err)
	}
	a.nonce++
	return tx
}

// call packs a call of a method.
func (a *actor) call(to common.Address, of abi.ABI, method string, args ...any) *types.Transaction {
	a.w.t.Helper()
	data, err := of.Pack(method, args...)
	if err != nil {
		a.w.t.Fatal(err)
	}
	return a.send(&to, data)
}

// create makes a contract of ours.
func (a *actor) create(name string, args ...any) (common.Address, *types.Transaction) {
	a.w.t.Helper()
	code, err := contracts.Bytecode(name)
	if err != nil {
		a.w.t.Fatal(err)
	}
	packed, err := own(a.w.t, name).Pack("", args...)
	if err != nil {
		a.w.t.Fatal(err)
	}
	at := crypto.CreateAddress(a.address, a.nonce)
	return at, a.send(nil, append(code, packed...))
}

// own is the interface of a contract of ours.
func own(t *testing.T, name string) abi.ABI {
	t.Helper()
	of, err := contracts.ABI(name)
	if err != nil {
		t.Fatal(err)
	}
	return of
}

// mine mines transactions, all of which succeed, so many seconds after the last block, and takes the pipeline there.
func (w *world) mine(seconds uint64, txs ...*types.Transaction) *devchain.Block {
	w.t.Helper()
	block, err := w.node.Mine(w.t.Context(), w.at.Timestamp+seconds, txs)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, r := range block.Receipts {
		if r.Status != types.ReceiptStatusSuccessful {
			w.t.Fatalf("transaction %d of block %d reverted", i, block.Number)
		}
	}
	w.sync()
	return block
}

// permit2 is what the PositionManager is paid through.
func (w *world) permit2() common.Address {
	w.t.Helper()
	answer, err := w.call("PositionManager", w.dep.PositionManager, "permit2")
	if err != nil {
		w.t.Fatal(err)
	}
	return answer[0].(common.Address)
}

// Actions of the PositionManager.
const (
	actionDecrease       = 0x01
	actionMint           = 0x02
	actionBurn           = 0x03
	actionMintFromDeltas = 0x05
	actionSettle         = 0x0b
	actionSettlePair     = 0x0d
	actionTakePair       = 0x11
	actionClose          = 0x12
)

// abiTypes are ABI types by name; "key" is a PoolKey.
func abiTypes(t *testing.T, names ...string) (all abi.Arguments) {
	t.Helper()
	for _, name := range names {
		var kind abi.Type
		var err error
		if name == "key" {
			kind = own(t, "SaleProbe").Methods["swap"].Inputs[0].Type
		} else {
			kind, err = abi.NewType(name, "", nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, abi.Argument{Type: kind})
	}
	return all
}

func pack(t *testing.T, types abi.Arguments, args ...any) []byte {
	t.Helper()
	packed, err := types.Pack(args...)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// idOf is a pool's ID.
func idOf(t *testing.T, p *pool) common.Hash {
	t.Helper()
	return crypto.Keccak256Hash(pack(t, abiTypes(t, "key"), keyOf(p)))
}

// mint takes a position of a pool, at most for so much of each currency.
func (a *actor) mint(p *pool, lower, upper int32, liquidity, most0, most1 *big.Int) *types.Transaction {
	a.w.t.Helper()
	t := a.w.t
	minted := pack(t, abiTypes(t, "key", "int24", "int24", "uint256", "uint128", "uint128", "address", "bytes"),
		keyOf(p), big.NewInt(int64(lower)), big.NewInt(int64(upper)), liquidity, most0, most1, a.address, []byte{})
	settled := pack(t, abiTypes(t, "address", "address"), p.Currency0, p.Currency1)
	unlock := pack(t, abiTypes(t, "bytes", "bytes[]"), []byte{actionMint, actionSettlePair}, [][]byte{minted, settled})
	return a.call(a.w.dep.PositionManager, a.w.uniswap["PositionManager"].ABI, "modifyLiquidities", unlock, big.NewInt(1<<40))
}

// swapRouter makes a router of Uniswap's own for tests.
func (a *actor) swapRouter() (common.Address, *types.Transaction) {
	return a.createRouter("PoolSwapTest")
}

func (a *actor) createRouter(name string) (common.Address, *types.Transaction) {
	a.w.t.Helper()
	artifact := a.w.uniswap[name]
	at := crypto.CreateAddress(a.address, a.nonce)
	return at, a.send(nil, append(slices.Clip(artifact.Bytecode), common.LeftPadBytes(a.w.dep.PoolManager[:], 32)...))
}

// swap sells exactly amount of one side of a pool, or buys it where it is negative, until the price reaches a tick.
func (a *actor) swap(router common.Address, p *pool, zeroForOne bool, amount *big.Int, until int32) *types.Transaction {
	a.w.t.Helper()
	limit, err := ammv4.SqrtPriceAtTick(until)
	if err != nil {
		a.w.t.Fatal(err)
	}
	return a.swapTo(router, p, zeroForOne, amount, limit)
}

// swapTo is swap until a price.
func (a *actor) swapTo(router common.Address, p *pool, zeroForOne bool, amount *big.Int, limit *uint256.Int) *types.Transaction {
	a.w.t.Helper()
	type params struct {
		ZeroForOne                         bool
		AmountSpecified, SqrtPriceLimitX96 *big.Int
	}
	type settings struct{ TakeClaims, SettleUsingBurn bool }
	return a.call(router, a.w.uniswap["PoolSwapTest"].ABI, "swap", keyOf(p), params{zeroForOne, new(big.Int).Neg(amount), limit.ToBig()}, settings{}, []byte{})
}

// withdraw takes liquidity out of a position, nil is all that is left, and ends the position.
func (a *actor) withdraw(p *pool, tokenID *big.Int, liquidity *big.Int) *types.Transaction {
	a.w.t.Helper()
	t, none := a.w.t, new(big.Int)
	action := byte(actionBurn)
	step := pack(t, abiTypes(t, "uint256", "uint128", "uint128", "bytes"), tokenID, none, none, []byte{})
	if liquidity != nil {
		action = actionDecrease
		step = pack(t, abiTypes(t, "uint256", "uint256", "uint128", "uint128", "bytes"), tokenID, liquidity, none, none, []byte{})
	}
	taken := pack(t, abiTypes(t, "address", "address", "address"), p.Currency0, p.Currency1, a.address)
	unlock := pack(t, abiTypes(t, "bytes", "bytes[]"), []byte{action, actionTakePair}, [][]byte{step, taken})
	return a.call(a.w.dep.PositionManager, a.w.uniswap["PositionManager"].ABI, "modifyLiquidities", unlock, big.NewInt(1<<40))
}

// deposit takes a position for all of two amounts, and gets back what it did not take.
func (a *actor) deposit(p *pool, lower, upper int32, amount0, amount1 *big.Int) *types.Transaction {
	a.w.t.Helper()
	t, most := a.w.t, new(big.Int).Lsh(big.NewInt(1), 120)
	settle, closing := abiTypes(t, "address", "uint256", "bool"), abiTypes(t, "address")
	steps := [][]byte{
		pack(t, settle, p.Currency0, amount0, true), pack(t, settle, p.Currency1, amount1, true),
		pack(t, abiTypes(t, "key", "int24", "int24", "uint128", "uint128", "address", "bytes"),
			keyOf(p), big.NewInt(int64(lower)), big.NewInt(int64(upper)), most, most, a.address, []byte{}),
		pack(t, closing, p.Currency0), pack(t, closing, p.Currency1),
	}
	actions := []byte{actionSettle, actionSettle, actionMintFromDeltas, actionClose, actionClose}
	if amount1.Sign() == 0 { // to settle nothing is to settle all that is owed
		actions, steps = slices.Delete(actions, 1, 2), slices.Delete(steps, 1, 2)
	}
	if amount0.Sign() == 0 {
		actions, steps = actions[1:], steps[1:]
	}
	unlock := pack(t, abiTypes(t, "bytes", "bytes[]"), actions, steps)
	return a.call(a.w.dep.PositionManager, a.w.uniswap["PositionManager"].ABI, "modifyLiquidities", unlock, big.NewInt(1<<40))
}

// balance is what the actor has of a token.
func (a *actor) balance(token common.Address) *big.Int {
	a.w.t.Helper()
	data, err := own(a.w.t, "TKN").Pack("balanceOf", a.address)
	if err != nil {
		a.w.t.Fatal(err)
	}
	answer, err := a.w.client.Call(a.w.t.Context(), a.w.at.Hash, chain.Call{To: token, Data: data})
	if err != nil {
		a.w.t.Fatal(err)
	}
	return new(big.Int).SetBytes(answer)
}

// approve lets the PositionManager and a router take all of a token.
func (a *actor) approve(token, router common.Address) []*types.Transaction {
	a.w.t.Helper()
	permit2, all := a.w.permit2(), new(big.Int).Lsh(big.NewInt(1), 150)
	return []*types.Transaction{
		a.call(token, own(a.w.t, "TKN"), "approve", permit2, all),
		a.call(token, own(a.w.t, "TKN"), "approve", router, all),
		a.call(permit2, a.w.uniswap["Permit2"].ABI, "approve", token, a.w.dep.PositionManager, all, big.NewInt(1<<47)),
	}
}
