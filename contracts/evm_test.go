package contracts

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/tracing"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/params"
	"github.com/holiman/uint256"
)

// evm runs transactions of any sender on a state of its own, without blocks, fees or signatures. Time is what
// the test says.
type evm struct {
	state  *state.StateDB
	now    uint64
	gas    uint64 // that a transaction gets
	sent   uint64 // transactions
	config *params.ChainConfig
	abis   map[common.Address]abi.ABI
}

const testChainID = 4663

func newEVM(t testing.TB) *evm {
	t.Helper()
	db, err := state.New(types.EmptyRootHash, state.NewDatabaseForTesting())
	if err != nil {
		t.Fatal(err)
	}
	config := *params.MergedTestChainConfig
	config.ChainID = big.NewInt(testChainID)
	config.OsakaTime = nil // it reprices
	return &evm{state: db, now: 1_700_000_000, gas: 30_000_000, config: &config, abis: map[common.Address]abi.ABI{}}
}

// fork is a copy whose changes the original does not see.
func (e *evm) fork() *evm {
	fork := *e
	fork.state = e.state.Copy()
	return &fork
}

// transact runs one transaction; a revert leaves the state as it was. to nil creates a contract.
func (e *evm) transact(from common.Address, to *common.Address, input []byte, value uint64) (
	output []byte, created common.Address, logs []*types.Log, err error,
) {
	random := common.Hash{}
	machine := vm.NewEVM(vm.BlockContext{
		CanTransfer: core.CanTransfer, Transfer: core.Transfer,
		GetHash:     func(uint64) common.Hash { return common.Hash{} },
		BlockNumber: big.NewInt(1), Time: e.now, Difficulty: new(big.Int), GasLimit: e.gas,
		BaseFee: new(big.Int), BlobBaseFee: big.NewInt(1), Random: &random,
	}, e.state, e.config, vm.Config{})
	machine.SetTxContext(vm.TxContext{Origin: from, GasPrice: new(uint256.Int)})
	rules := e.config.Rules(big.NewInt(1), true, e.now)
	e.state.Prepare(rules, from, common.Address{}, to, vm.ActivePrecompiles(rules), nil)
	e.sent++
	hash := common.BigToHash(new(big.Int).SetUint64(e.sent))
	e.state.SetTxContext(hash, int(e.sent), 0)
	if to == nil {
		output, created, _, err = machine.Create(from, input, vm.NewGasBudget(e.gas, 0), uint256.NewInt(value))
	} else {
		output, _, err = machine.Call(from, *to, input, vm.NewGasBudget(e.gas, 0), uint256.NewInt(value))
	}
	e.state.Finalise(rules)
	if err != nil {
		return nil, common.Address{}, nil, revertError(err, output)
	}
	return output, created, e.state.GetLogs(hash, 1, common.Hash{}, e.now), nil
}

// deploy creates a contract and remembers its ABI by its address.
func (e *evm) deploy(t testing.TB, from common.Address, artifact Artifact, args ...any) common.Address {
	t.Helper()
	packed, err := artifact.ABI.Pack("", fitAll(t, artifact.ABI.Constructor.Inputs, args)...)
	if err != nil {
		t.Fatal(err)
	}
	_, created, _, err := e.transact(from, nil, append(bytes.Clone(artifact.Bytecode), packed...), 0)
	if err != nil {
		t.Fatal(err)
	}
	e.abis[created] = artifact.ABI
	return created
}

// call runs a method of a deployed contract. Numbers may be of any type.
func (e *evm) call(t testing.TB, from, to common.Address, method string, args ...any) ([]any, []*types.Log, error) {
	t.Helper()
	return e.pay(t, from, to, 0, method, args...)
}

func (e *evm) pay(t testing.TB, from, to common.Address, value uint64, method string, args ...any) ([]any, []*types.Log, error) {
	t.Helper()
	contract := e.abis[to]
	m, ok := contract.Methods[method]
	if !ok {
		t.Fatalf("%s has no method %s", to, method)
	}
	packed, err := contract.Pack(method, fitAll(t, m.Inputs, args)...)
	if err != nil {
		t.Fatalf("%s: %v", m.Sig, err)
	}
	output, _, logs, err := e.transact(from, &to, packed, value)
	if err != nil {
		return nil, nil, err
	}
	values, err := m.Outputs.Unpack(output)
	if err != nil {
		t.Fatalf("%s returned %x: %v", m.Sig, output, err)
	}
	return values, logs, nil
}

// view reads one value; the method must not change anything.
func (e *evm) view(t testing.TB, to common.Address, method string, args ...any) any {
	t.Helper()
	values, _, err := e.call(t, common.Address{0xee}, to, method, args...)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return values[0]
}

func (e *evm) number(t testing.TB, to common.Address, method string, args ...any) *big.Int {
	t.Helper()
	return e.view(t, to, method, args...).(*big.Int)
}

// viewInto reads a struct into one with the same fields in the same order.
func viewInto[T any](t testing.TB, e *evm, to common.Address, method string, args ...any) T {
	t.Helper()
	return *abi.ConvertType(e.view(t, to, method, args...), new(T)).(*T)
}

func (e *evm) setCode(address common.Address, code []byte) {
	e.state.SetCode(address, code, tracing.CodeChangeUnspecified)
}

func (e *evm) endow(address common.Address, wei uint64) {
	e.state.AddBalance(address, uint256.NewInt(wei), tracing.BalanceChangeUnspecified)
}

// fitAll converts numbers to the Go types that go-ethereum packs.
func fitAll(t testing.TB, inputs abi.Arguments, args []any) []any {
	t.Helper()
	if len(inputs) != len(args) {
		t.Fatalf("%d arguments for %d parameters", len(args), len(inputs))
	}
	fitted := make([]any, len(args))
	for i, arg := range args {
		fitted[i] = fit(inputs[i].Type, arg)
	}
	return fitted
}

func fit(typ abi.Type, arg any) any {
	if typ.T != abi.UintTy && typ.T != abi.IntTy {
		return arg
	}
	n, ok := arg.(*big.Int)
	if !ok {
		v := reflect.ValueOf(arg)
		switch {
		case v.CanInt():
			n = big.NewInt(v.Int())
		case v.CanUint():
			n = new(big.Int).SetUint64(v.Uint())
		default:
			return arg
		}
	}
	goType := typ.GetType()
	if goType == reflect.TypeFor[*big.Int]() {
		return n
	}
	if typ.T == abi.IntTy {
		return reflect.ValueOf(n.Int64()).Convert(goType).Interface()
	}
	return reflect.ValueOf(n.Uint64()).Convert(goType).Interface()
}

// reverted is a refusal, decoded: "NotFundable(1, 2)".
type reverted string

func (r reverted) Error() string { return string(r) }

var customErrors = sync.OnceValue(func() map[[4]byte]abi.Error {
	all := map[[4]byte]abi.Error{}
	for _, artifact := range artifacts() {
		for _, e := range artifact.ABI.Errors {
			all[[4]byte(e.ID[:4])] = e
		}
	}
	return all
})

func revertError(err error, output []byte) error {
	if !errors.Is(err, vm.ErrExecutionReverted) || len(output) < 4 {
		return err
	}
	if custom, ok := customErrors()[[4]byte(output)]; ok {
		values, err := custom.Inputs.Unpack(output[4:])
		if err != nil {
			return fmt.Errorf("%s: %w", custom.Sig, err)
		}
		parts := make([]string, len(values))
		for i, v := range values {
			if raw, ok := v.([32]byte); ok {
				v = common.Hash(raw)
			}
			parts[i] = fmt.Sprint(v)
		}
		return reverted(custom.Name + "(" + strings.Join(parts, ", ") + ")")
	}
	if reason, err := abi.UnpackRevert(output); err == nil {
		return reverted(reason)
	}
	return reverted(fmt.Sprintf("%x", output))
}

// uniswapArtifacts skips the test where `npm ci` has not run, but not in CI.
func uniswapArtifacts(t testing.TB) map[string]Artifact {
	t.Helper()
	if _, err := os.Stat("node_modules/@uniswap"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("contracts/node_modules is missing: run npm ci in contracts")
		}
		t.Skip("contracts/node_modules is missing: run npm ci in contracts")
	}
	all, err := UniswapArtifacts("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	return all
}
