package devchain

import (
	"crypto/ecdsa"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"

	"github.com/lienstream/lienstream/contracts"
)

// Gas that a transaction may use. A block has room for hundreds of them, since it counts what they do use.
const (
	callGas   = 3_000_000
	createGas = 12_000_000
)

// account signs transactions.
type account struct {
	name    string
	key     *ecdsa.PrivateKey
	signer  common.Address // the key's
	address common.Address // what contracts see: the signer, or a contract wallet of the signer
}

func newAccount(seed uint64, name string) account {
	address := actorAddress(seed, name)
	return account{name: name, key: Key(seed, name), signer: address, address: address}
}

// wallet says whether the account is a contract, which its signer tells what to call.
func (a account) wallet() bool { return a.address != a.signer }

// call is a transaction before it has a nonce. A nil to creates a contract.
type call struct {
	from  account
	to    *common.Address
	value *big.Int
	gas   uint64
	data  []byte
	label string // for errors
}

func (c call) sign(chainID *big.Int, nonce uint64) (*types.Transaction, error) {
	if c.from.wallet() && c.to != nil && *c.to != c.from.address {
		c = execute(c)
	}
	tx, err := types.SignNewTx(c.from.key, types.LatestSignerForChainID(chainID), &types.DynamicFeeTx{
		ChainID: chainID, Nonce: nonce,
		GasTipCap: big.NewInt(params.GWei), GasFeeCap: big.NewInt(10 * params.GWei),
		Gas: c.gas, To: c.to, Value: c.value, Data: c.data,
	})
	if err != nil {
		return nil, fmt.Errorf("sign %s of %s: %w", c.label, c.from.name, err)
	}
	return tx, nil
}

// callee is a contract at its address.
type callee struct {
	name    string
	address common.Address
	abi     abi.ABI
}

// call packs a call of the contract. It panics when the arguments are not the method's: they are ours.
func (c callee) call(from account, method string, args ...any) call {
	data, err := c.abi.Pack(method, args...)
	if err != nil {
		panic(fmt.Errorf("devchain: pack %s.%s: %w", c.name, method, err))
	}
	return call{from: from, to: &c.address, gas: callGas, data: data, label: c.name + "." + method}
}

// create packs the creation of a contract.
func create(from account, name string, artifact contracts.Artifact, args ...any) call {
	packed, err := artifact.ABI.Pack("", args...)
	if err != nil {
		panic(fmt.Errorf("devchain: pack constructor of %s: %w", name, err))
	}
	code := append(slices.Clip(artifact.Bytecode), packed...)
	return call{from: from, gas: createGas, data: code, label: "create " + name}
}

// walletCall is Wallet.Call.
type walletCall struct {
	To   common.Address
	Data []byte
}

// execute has the wallet of an account make its calls, all of them or none, in one transaction.
func execute(calls ...call) call {
	from := calls[0].from
	inner := make([]walletCall, len(calls))
	var gas uint64
	var labels []string
	for i, c := range calls {
		inner[i] = walletCall{*c.to, c.data}
		gas += c.gas
		labels = append(labels, c.label)
	}
	all := own("Wallet", from.address).call(from, "execute", inner)
	all.gas, all.label = gas, strings.Join(labels, ", ")
	return all
}

// transfer sends ether.
func transfer(from account, to common.Address, wei *big.Int) call {
	return call{from: from, to: &to, value: wei, gas: params.TxGas, label: "send ether"}
}

// modifyLiquidities packs a call of the PositionManager: its actions and their parameters, encoded twice.
func modifyLiquidities(manager callee, from account, deadline uint64, steps ...step) call {
	actions := make([]byte, len(steps))
	parameters := make([][]byte, len(steps))
	for i, s := range steps {
		packed, err := s.types.Pack(s.args...)
		if err != nil {
			panic(fmt.Errorf("devchain: pack action %#x: %w", s.action, err))
		}
		actions[i], parameters[i] = s.action, packed
	}
	data, err := abiUnlockData.Pack(actions, parameters)
	if err != nil {
		panic(fmt.Errorf("devchain: pack unlock data: %w", err))
	}
	return manager.call(from, "modifyLiquidities", data, new(big.Int).SetUint64(deadline))
}

// step is one action of modifyLiquidities.
type step struct {
	action byte
	types  abi.Arguments
	args   []any
}

var (
	abiUnlockData = arguments("bytes", "bytes[]")
	abiMint       = arguments("poolKey", "int24", "int24", "uint256", "uint128", "uint128", "address", "bytes")
	abiDecrease   = arguments("uint256", "uint256", "uint128", "uint128", "bytes")
	abiBurn       = arguments("uint256", "uint128", "uint128", "bytes")
	abiSettlePair = arguments("address", "address")
	abiTakePair   = arguments("address", "address", "address")
)

func arguments(names ...string) abi.Arguments {
	args := make(abi.Arguments, len(names))
	for i, name := range names {
		var fields []abi.ArgumentMarshaling
		if name == "poolKey" {
			name = "tuple"
			fields = []abi.ArgumentMarshaling{
				{Name: "currency0", Type: "address"},
				{Name: "currency1", Type: "address"},
				{Name: "fee", Type: "uint24"},
				{Name: "tickSpacing", Type: "int24"},
				{Name: "hooks", Type: "address"},
			}
		}
		t, err := abi.NewType(name, "", fields)
		if err != nil {
			panic(err) // the names above
		}
		args[i] = abi.Argument{Type: t}
	}
	return args
}

// maxUint128 is no limit on what a position may cost.
var maxUint128 = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1))

// mint takes a position over [lower, upper) and pays for it.
func (p pool) mint(manager callee, from account, deadline uint64, lower, upper int32, liquidity *big.Int) call {
	return modifyLiquidities(manager, from, deadline,
		step{actionMint, abiMint, []any{
			p.key, big.NewInt(int64(lower)), big.NewInt(int64(upper)), liquidity, maxUint128, maxUint128, from.address, []byte{},
		}},
		step{actionSettlePair, abiSettlePair, []any{p.key.Currency0, p.key.Currency1}})
}

// decrease takes liquidity out of a position.
func (p pool) decrease(manager callee, from account, deadline uint64, tokenID, liquidity *big.Int) call {
	return modifyLiquidities(manager, from, deadline,
		step{actionDecrease, abiDecrease, []any{tokenID, liquidity, new(big.Int), new(big.Int), []byte{}}},
		step{actionTakePair, abiTakePair, []any{p.key.Currency0, p.key.Currency1, from.address}})
}

// burn takes out what is left and ends the position.
func (p pool) burn(manager callee, from account, deadline uint64, tokenID *big.Int) call {
	return modifyLiquidities(manager, from, deadline,
		step{actionBurn, abiBurn, []any{tokenID, new(big.Int), new(big.Int), []byte{}}},
		step{actionTakePair, abiTakePair, []any{p.key.Currency0, p.key.Currency1, from.address}})
}

// swap sells exactly amount of one side.
func (p pool) swap(router callee, from account, zeroForOne bool, amount *big.Int) call {
	return router.call(from, "swap", p.key,
		swapParams{ZeroForOne: zeroForOne, AmountSpecified: new(big.Int).Neg(amount), SqrtPriceLimitX96: sqrtPriceLimit(zeroForOne)},
		testSettings{}, []byte{})
}
