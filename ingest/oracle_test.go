package ingest_test

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
)

// oraclePaused is the code of a contract that is a token, but for its oraclePaused(), which is true.
func oraclePaused(token common.Address) []byte {
	code := append([]byte{0x60, 0, 0x35, 0x60, 0xe0, 0x1c, 0x63}, contracts.Selector("oraclePaused()")...) // PUSH1 0 CALLDATALOAD PUSH1 224 SHR PUSH4 selector
	code = append(code, 0x14, 0x60, 0, 0x57)                                                               // EQ PUSH1 yes JUMPI
	yes := len(code) - 2
	code = append(code, 0x36, 0x60, 0, 0x60, 0, 0x37)                               // CALLDATASIZE PUSH1 0 PUSH1 0 CALLDATACOPY
	code = append(append(code, 0x60, 0, 0x60, 0, 0x36, 0x60, 0, 0x73), token[:]...) // PUSH1 0 PUSH1 0 CALLDATASIZE PUSH1 0 PUSH20 token
	code = append(code, 0x5a, 0xfa, 0x3d, 0x60, 0, 0x60, 0, 0x3e)                   // GAS STATICCALL RETURNDATASIZE PUSH1 0 PUSH1 0 RETURNDATACOPY
	code = append(code, 0x60, byte(len(code)+7), 0x57, 0x3d, 0x60, 0, 0xfd)         // PUSH1 ok JUMPI RETURNDATASIZE PUSH1 0 REVERT
	code = append(code, 0x5b, 0x3d, 0x60, 0, 0xf3)                                  // ok: JUMPDEST RETURNDATASIZE PUSH1 0 RETURN
	code[yes] = byte(len(code))
	code = append(code, 0x5b, 0x60, 1, 0x60, 0, 0x52, 0x60, 32, 0x60, 0, 0xf3)                          // yes: JUMPDEST PUSH1 1 PUSH1 0 MSTORE PUSH1 32 PUSH1 0 RETURN
	return append([]byte{0x60, byte(len(code)), 0x80, 0x60, 11, 0x60, 0, 0x39, 0x60, 0, 0xf3}, code...) // PUSH1 size DUP1 PUSH1 11 PUSH1 0 CODECOPY PUSH1 0 RETURN
}

// TestOraclePaused: of two stocks neither is paused, and the oracle of one is. That one is in the topic as paused, the other, which has
// no such function, as not.
func TestOraclePaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kfake", 7, devchain.ScenarioConfig{})
	_ = run(t, w.config())
	w.step(t, 2)
	o := newOwner(t, w, 7)
	stock, create := o.create("StockToken", o.address(), "Halted", "HALT")
	halted := crypto.CreateAddress(o.address(), o.nonce+1)
	o.mine(create, &types.DynamicFeeTx{Data: oraclePaused(stock)})
	o.mine(o.set(stock, true, contracts.LaneStock), o.set(halted, true, contracts.LaneStock))
	checkTopic(t, w.kafka, w.topic, w.market.Deployment, w.chain.Client())
	paused := map[common.Address]bool{}
	for _, p := range w.probes(t) {
		switch {
		case p.Token != stock && p.Token != halted:
		case p.Paused == nil || p.UIMultiplier == nil:
			t.Errorf("token %s: paused %v, multiplier %v", p.Token, p.Paused, p.UIMultiplier)
		default:
			paused[p.Token] = *p.Paused
		}
	}
	if is, known := paused[halted]; !is || !known {
		t.Errorf("the one whose oracle is paused: paused %t, known %t", is, known)
	}
	if is, known := paused[stock]; is || !known {
		t.Errorf("the other one: paused %t, known %t", is, known)
	}
}
