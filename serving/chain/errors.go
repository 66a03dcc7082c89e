package chain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
)

// Errors. The package comment says how to handle each.
var (
	ErrUnavailable = errors.New("no endpoint of the chain responds")
	ErrBlockGone   = errors.New("the block is no longer on the chain, or its state was pruned")
	ErrUnsupported = errors.New("no endpoint supports this method")

	errMalformed = fmt.Errorf("%w: a malformed response", ErrUnavailable)
)

// DisagreementError: endpoints have different blocks at the same height, or different headers of one block.
type DisagreementError struct {
	Number uint64
	Hashes []common.Hash // in the order of the endpoints, without duplicates; a single one: its headers differ
}

func (e *DisagreementError) Error() string {
	if len(e.Hashes) == 1 {
		return fmt.Sprintf("endpoints disagree about the header of block %d %s", e.Number, e.Hashes[0])
	}
	return fmt.Sprintf("endpoints disagree about block %d: %s and %s", e.Number, e.Hashes[0], e.Hashes[1])
}

// ChainError: a node is on another chain.
type ChainError struct{ Got, Want uint64 }

func (e *ChainError) Error() string {
	return fmt.Sprintf("the endpoint is on chain %d, expected %d", e.Got, e.Want)
}

// RevertError is the revert of a call, or another failure of the code that it ran. Data is the contract's revert data:
// empty, Error(string), Panic(uint256) or a custom error.
type RevertError struct{ Data []byte }

func (e *RevertError) Error() string {
	if reason, ok := e.Reason(); ok {
		return "reverted: " + reason
	}
	return "reverted: " + hexutil.Encode(e.Data)
}

// Reason is the message of Error(string) or Panic(uint256), if it is one of them.
func (e *RevertError) Reason() (string, bool) {
	reason, err := abi.UnpackRevert(e.Data)
	return reason, err == nil
}

// Selector is the selector of a custom error; zero: there is none.
func (e *RevertError) Selector() (selector [4]byte) {
	if len(e.Data) >= len(selector) {
		copy(selector[:], e.Data)
	}
	return selector
}

// NodeError is a JSON-RPC error of the node.
type NodeError struct {
	Code    int
	Message string
}

// OfTransaction reports whether the reason lies in the transaction, and not in the node: any node would refuse it.
func (e *NodeError) OfTransaction() bool {
	return slices.Contains(transactionCodes, e.Code) || mentions(strings.ToLower(e.Message), transactionTexts)
}

func (e *NodeError) Error() string { return fmt.Sprintf("node: %s (%d)", e.Message, e.Code) }

// Relevant error codes of JSON-RPC and EIP-1474.
const (
	codeMethodMissing  = -32601
	codeUnsupported    = -32004
	codeResourceAbsent = -32001
	codeRateLimited    = -32005
	codeTooMany        = 429    // Alchemy
	codeThrottled      = -32007 // QuickNode
	codeInternal       = -32603
	codeReverted       = 3
)

// Error messages for unknown blocks and pruned state, of geth, Nitro, anvil and reth.
var goneTexts = []string{
	"header not found", "header for hash not found", "not currently canonical", "block not found", "blocknotfound",
	"unknown block", "resource not found", "missing trie node", "state not available", "historical state",
}

// failedTexts are the messages for a call whose code failed without REVERT, of geth, Nitro, anvil and reth.
var failedTexts = []string{
	"out of gas", "outofgas", "invalid opcode", "invalidfeopcode", "opcodenotfound", "invalid jump", "invalidjump",
	"stack underflow", "stackunderflow", "stack limit reached", "stack overflow", "stackoverflow", "write protection",
	"return data out of bounds", "outofoffset", "max call depth", "calltoodeep", "gas uint64 overflow", "vm execution error",
}

// throttleCodes and throttleTexts are how providers report too many requests.
var (
	throttleCodes = []int{codeRateLimited, codeTooMany, codeThrottled}
	throttleTexts = []string{"too many", "request limit", "rate limit", "requests per second", "throttled"}
)

// transactionCodes and transactionTexts are how a node refuses a transaction before it runs it: eth_simulateV1's codes
// for gas, funds and sender, and the messages of geth, Nitro, anvil and reth.
var (
	transactionCodes = []int{-38013, -38014, -38015, -38024, -38025}
	transactionTexts = []string{
		"insufficient funds", "gas required exceeds allowance", "intrinsic gas too low", "exceeds block gas limit",
		"sender not an eoa", "max initcode size exceeded",
	}
)

func mentions(text string, texts []string) bool {
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(text, t) })
}

// errThrottled: the endpoint got too many requests. Ask another, and this one again after a pause.
var errThrottled = fmt.Errorf("%w: too many requests", ErrUnavailable)

// answered classifies a node's error. retry: another endpoint may succeed.
func answered(err rpc.Error) (retry bool, ours error) {
	text := strings.ToLower(err.Error())
	in := func(texts []string) bool { return mentions(text, texts) }
	data, hasData := revertData(err)
	switch code := err.ErrorCode(); {
	case code == codeReverted, hasData && strings.Contains(text, "revert"), strings.HasPrefix(text, "execution reverted"):
		return false, &RevertError{Data: data}
	case in(failedTexts):
		return false, &RevertError{}
	case slices.Contains(throttleCodes, code), !in(transactionTexts) && (in(throttleTexts) || code == codeInternal && strings.Contains(text, "limit")):
		return true, errThrottled
	case code == codeMethodMissing, code == codeUnsupported, strings.Contains(text, "method") && strings.Contains(text, "not "):
		return true, ErrUnsupported
	case code == codeResourceAbsent, in(goneTexts):
		return true, ErrBlockGone
	default:
		refused := &NodeError{Code: code, Message: clip(err.Error())}
		return !refused.OfTransaction(), refused
	}
}

// answered classifies a node's error of a request. A method that runs no code cannot revert, and a call without a
// sender cannot lack funds: such an error lies in the node, and another may answer.
func (r *Request) answered(err rpc.Error) (retry bool, ours error) {
	retry, ours = answered(err)
	_, reverted := errors.AsType[*RevertError](ours)
	_, refused := errors.AsType[*NodeError](ours)
	if reverted && !slices.Contains(runMethods, r.Method) || refused && !r.sends {
		return true, &NodeError{Code: err.ErrorCode(), Message: clip(err.Error())}
	}
	return retry, ours
}

// runMethods run code, which may revert.
var runMethods = []string{"eth_call", "eth_estimateGas", "eth_simulateV1"}

func revertData(err rpc.Error) ([]byte, bool) {
	with, ok := err.(rpc.DataError)
	if !ok {
		return nil, false
	}
	text, ok := with.ErrorData().(string)
	if !ok {
		return nil, false
	}
	data, decodeErr := hexutil.Decode(text)
	return data, decodeErr == nil
}

const maxText = 200 // bytes of a node's message

func clip(text string) string {
	if len(text) > maxText {
		return text[:maxText]
	}
	return text
}
