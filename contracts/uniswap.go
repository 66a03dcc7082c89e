package contracts

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
)

// uniswapFiles are the builds that npm's v4-periphery ships, under its foundry-out.
var uniswapFiles = map[string]string{
	"PoolManager":     "PoolManager.sol/PoolManager.default.json",
	"PositionManager": "PositionManager.sol/PositionManager.json",
	"StateView":       "StateView.sol/StateView.json",
	"V4Quoter":        "V4Quoter.sol/V4Quoter.json",
	"PoolSwapTest":    "PoolSwapTest.sol/PoolSwapTest.default.json", // Uniswap's own routers for tests
	"PoolDonateTest":  "PoolDonateTest.sol/PoolDonateTest.json",
	"Permit2":         "IAllowanceTransfer.sol/IAllowanceTransfer.default.json",
}

// UniswapArtifacts reads the real Uniswap v4 contracts, and the Permit2 that its PositionManager pays through, from
// nodeModules as `npm ci` in this folder leaves it. Their licence forbids production use and so their bytecode
// is never part of this repository: they serve development chains and tests.
//
// The map's keys are PoolManager, PositionManager, StateView, V4Quoter, PoolSwapTest, PoolDonateTest and
// Permit2.
func UniswapArtifacts(nodeModules string) (map[string]Artifact, error) {
	periphery := filepath.Join(nodeModules, "@uniswap", "v4-periphery")
	all := make(map[string]Artifact, len(uniswapFiles))
	var faults []error
	for name, file := range uniswapFiles {
		artifact, err := readFoundryArtifact(filepath.Join(periphery, "foundry-out", filepath.FromSlash(file)))
		if err != nil {
			faults = append(faults, fmt.Errorf("uniswap artifact %s: %w", name, err))
			continue
		}
		all[name] = artifact
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	creation, err := permit2Creation(filepath.Join(periphery, "lib/permit2/test/utils/DeployPermit2.sol"))
	if err != nil {
		return nil, fmt.Errorf("uniswap artifact Permit2: %w", err)
	}
	all["Permit2"] = Artifact{ABI: all["Permit2"].ABI, Bytecode: creation}
	return all, nil
}

func readFoundryArtifact(path string) (Artifact, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Artifact{}, err
	}
	var file struct {
		ABI      abi.ABI `json:"abi"`
		Bytecode struct {
			Object hexutil.Bytes `json:"object"`
		} `json:"bytecode"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return Artifact{}, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return Artifact{ABI: file.ABI, Bytecode: file.Bytecode.Object}, nil
}

var hexLiteral = regexp.MustCompile(`hex"([0-9a-f]+)"`)

// permit2Creation wraps the runtime code that Permit2's own test helper carries in code that returns it. Permit2
// is built by another compiler version, so npm has it in no other ready form.
func permit2Creation(path string) ([]byte, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	match := hexLiteral.FindSubmatch(source)
	if match == nil {
		return nil, fmt.Errorf("%s: no bytecode in it", filepath.Base(path))
	}
	runtime, err := hex.DecodeString(string(match[1]))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	if len(runtime) > 0xffff {
		return nil, fmt.Errorf("%s: %d bytes of code", filepath.Base(path), len(runtime))
	}
	// PUSH2 len, DUP1, PUSH1 10, RETURNDATASIZE (0), CODECOPY, RETURNDATASIZE (0), RETURN
	prefix := []byte{0x61, 0, 0, 0x80, 0x60, 0x0a, 0x3d, 0x39, 0x3d, 0xf3}
	binary.BigEndian.PutUint16(prefix[1:], uint16(len(runtime)))
	return append(prefix, runtime...), nil
}

const (
	hookBits  = 1<<14 - 1 // of an address: what a pool's hook is called for
	afterSwap = 1 << 6
)

// Create2Maker creates a contract that creates others, from a salt and their code: on a development chain.
// https://github.com/Arachnid/deterministic-deployment-proxy
var Create2Maker = common.FromHex("604580600e600039806000f350fe7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe03601600081602082378035828234f58015156039578182fd5b8082525050506014600cf3")

// HookAddress is where maker creates a hook that is called after swaps and for nothing else, and the salt for it. It
// tries some 16,000 salts.
func HookAddress(maker common.Address, code []byte) (at common.Address, salt common.Hash) {
	hash := crypto.Keccak256(code)
	for n := uint64(0); ; n++ {
		binary.BigEndian.PutUint64(salt[24:], n)
		at = crypto.CreateAddress2(maker, salt, hash)
		if binary.BigEndian.Uint16(at[18:])&hookBits == afterSwap {
			return at, salt
		}
	}
}
