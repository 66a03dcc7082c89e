package valuation

import (
	"bytes"
	"slices"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"

	"github.com/lienstream/lienstream/contracts"
)

// Methods whose selectors in a token's code show what it can do.
var (
	mintSignatures      = []string{"mint(address,uint256)", "mint(uint256)", "issue(uint256)"}
	pauseSignatures     = []string{"pause()", "setPaused(bool)"}
	blacklistSignatures = []string{
		"blacklist(address)", "addBlackList(address)", "freeze(address)", "setBlacklist(address,bool)", "setFrozen(address,bool)",
	}
	ownerSignatures = []string{"owner()", "getOwner()", "transferOwnership(address)"}
)

// has reports whether code compares with a method's selector: PUSH4, followed by the selector.
func has(code []byte, signatures []string) *bool {
	found := slices.ContainsFunc(signatures, func(signature string) bool {
		return bytes.Contains(code, append([]byte{byte(vm.PUSH4)}, contracts.Selector(signature)...))
	})
	return &found
}

// delegates reports whether code may run other code as its own: a proxy of any kind, or an account with an EIP-7702
// delegation. It misses none: the EVM enters code only at its start and at a JUMPDEST, and runs until an instruction
// that stops or jumps. It may wrongly count data behind such an instruction, like the compiler's metadata, that by
// chance contains both bytes.
func delegates(code []byte) bool {
	if _, ok := types.ParseDelegation(code); ok {
		return true
	}
	runs := true
	for at := 0; at < len(code); at++ {
		switch op := vm.OpCode(code[at]); {
		case op == vm.JUMPDEST:
			runs = true
		case op.IsPush():
			at += int(op - vm.PUSH0)
		case runs && (op == vm.DELEGATECALL || op == vm.CALLCODE):
			return true
		case slices.Contains([]vm.OpCode{vm.STOP, vm.JUMP, vm.RETURN, vm.REVERT, vm.INVALID, vm.SELFDESTRUCT}, op):
			runs = false
		}
	}
	return false
}
