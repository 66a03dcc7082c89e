package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode"
)

// TestClassify holds what providers and nodes really say against what the client makes of it.
func TestClassify(t *testing.T) {
	tests := []struct {
		who  string
		code int
		text string
		want class
	}{
		{"alchemy", -32602, "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range and no limit on the response size, or you can request any block range with a cap of 10K logs in the response. Based on your parameters and the response size limit, this block range should work: [0x0, 0x1fff]", classRange},
		{"alchemy", -32600, "Under the Free tier plan, you can make eth_getLogs requests with up to a 10 block range. Based on your parameters, this block range should work: [0x1, 0xa].", classRange},
		{"alchemy", 429, "Your app has exceeded its compute units per second capacity. If you have retries enabled, you can safely ignore this message.", classRate},
		{"alchemy", -32000, "Query timeout exceeded. Consider reducing your block range.", classRange},
		{"infura", -32005, "query returned more than 10000 results. Try with this block range [0x1, 0x2].", classRange},
		{"infura", -32602, "range 1000000 exceeds limit of 10000", classRange},
		{"infura", -32005, "daily request count exceeded, request rate limited", classRate},
		{"infura", -32005, "project ID request rate exceeded", classRate},
		{"quicknode", -32614, "eth_getLogs is limited to a 10,000 range", classRange},
		{"quicknode", -32602, "eth_getLogs and eth_newFilter are limited to a 10,000 blocks range", classRange},
		{"quicknode", -32007, "50/second request limit reached - reduce calls per second or upgrade your account at quicknode.com", classRate},
		{"ankr", -32600, "block range is too wide", classRange},
		{"ankr", -32602, "query exceeds max results 20000, retry with the range 1-5", classRange},
		{"ankr", -32000, "requested range exceeds maximum [from, to] blocks distance: 1000", classRange},
		{"ankr", -32090, "Too many requests, reason: call rate limit exhausted, retry in 10s", classRate},
		{"drpc", 35, "ranges over 10000 blocks are not supported on freetier", classRange},
		{"drpc", 30, "Request timeout on the free tier, please upgrade your tier to the paid one", classOther},
		{"drpc", -32602, "query exceeds max block range 10000", classRange},
		{"publicnode", -32701, "exceed maximum block range: 50000", classRange},
		{"publicnode", -32602, "maximum block range: 1024", classRange},
		{"blast", -32600, "The requested block range 2000 exceeds the range allowed for your plan (2000 > 500).", classRange},
		{"blockpi", -32602, "eth_getLogs is limited to 1024 block range. Please check the parameter requirements at https://docs.blockpi.io", classRange},
		{"chainstack", -32602, "Block range limit exceeded. See more details at https://docs.chainstack.com", classRange},
		{"cloudflare", -32047, "Invalid eth_getLogs request. 'fromBlock'-'toBlock' range too large. Max range: 800", classRange},
		{"coinbase", -32602, "please limit the query to at most 1,000 blocks", classRange},
		{"llamarpc", -32602, "query exceeds max results 20000, retry with the range 15-20", classRange},
		{"tenderly", -32602, "range 9009594 is bigger than range limit 2000", classRange},
		{"thirdweb", -32602, "Maximum allowed number of requested blocks is 10000", classRange},
		{"1rpc", -32602, "eth_getLogs is limited to a 10,000 blocks range", classRange},
		{"1rpc", -32602, "response size should not greater than 10000000 bytes", classRange},
		{"merkle", -32602, "eth_getLogs range is too large, max is 10k blocks", classRange},
		{"base", -32020, "backend response too large", classRange},
		{"base", -32602, "block range too large", classRange},
		{"optimism", -32602, "Block range is too large", classRange},
		{"avalanche", -32000, "requested too many blocks from 1 to 5000, maximum is set to 2048", classRange},
		{"arbitrum nitro", -32000, "logs matched by query exceeds limit of 10000", classRange},
		{"polygon zkevm", -32602, "query returned more than 20000 results", classRange},
		{"zksync", -32602, "Query returned more than 10000 results. Try with this block range [0x1, 0x10].", classRange},
		{"harmony", -32000, "query must be smaller than size 1024", classRange},
		{"moonbeam", -32603, "block range is too wide (maximum 1024)", classRange},
		{"aurora", -32005, "query returned more than 10000 results", classRange},
		{"morph", -32000, "block range is larger than max block range, block range = 5120, max block range = 5000", classRange},
		{"geth", -32602, "exceed max block range 1000", classRange},
		{"geth", -32003, "response too large", classRange},
		{"erigon", -32000, "query block range exceeds server limit of 1000", classRange},
		{"nethermind", -32005, "Too many logs requested. Max logs per response is 20000.", classRange},
		{"reth", -32602, "query exceeds max block range 100000", classRange},
		{"reth", -32602, "query exceeds max results 20000", classRange},
		{"reth", -32008, "Response is too big", classRange},
		{"besu", -32005, "Requested range exceeds maximum range limit", classRange},

		{"geth", -32000, "unknown block", classGone},
		{"geth", -32000, "header not found", classGone},
		{"geth", -32000, "block not found", classGone},
		{"geth", -32000, "hash 0x12 is not currently canonical", classGone},
		{"reth", -32001, "block not found: hash 0x12", classGone},
		{"nethermind", -32001, "block not found", classGone},
		{"erigon", -32000, "block not found: 0x12", classGone},
		{"anvil", -32001, "Resource not found", classGone},
		{"alchemy", -32000, "One of the blocks specified in filter (fromBlock, toBlock or blockHash) cannot be found.", classGone},
		{"infura", -32000, "block range extends beyond current head block", classGone},

		{"geth", -39001, "finalized block not found", classTag},
		{"geth", -32000, "finalized block not found", classTag},
		{"erigon", -32000, "finalized block not found", classTag},

		{"geth", -32000, "missing trie node 12ab (path ) state 0x12 is not available", classState},
		{"geth", -32000, "historical state 12ab is not available", classState},
		{"reth", -32603, "state at block #5 is pruned", classState},
		{"nethermind", -32002, "No state available for block 0x12", classState},
		{"erigon", -32000, "old data not available due to pruning", classState},
		{"arbitrum nitro", -32000, "state unavailable, block too old", classState},
		{"infura", -32002, "project ID does not have access to archive state", classState},

		{"anyone", 3, "execution reverted", classOther}, // of eth_getLogs
		{"anyone", -32000, "block range is out of bounds, at most 1000", classRange},
		{"anyone", -32000, "out of gas units for this request: eth_getLogs range too large", classRange},
		{"anyone", -32000, "the transaction indexing is in progress, reverting to an older index", classOther},

		{"eRPC", -32000, "node is under too much load", classRate},

		{"anyone", -32601, "the method eth_getLogs does not exist/is not available", classMethod},
		{"anyone", -32603, "internal error", classOther},
		{"geth", -32000, "execution aborted (timeout = 5s)", classOther},
	}
	for _, test := range tests {
		err := fmt.Errorf("eth_getLogs: %w", &Error{Code: test.code, Message: test.text})
		if got := classify(err); got != test.want {
			t.Errorf("%s: %q is %s, want %s", test.who, test.text, got, test.want)
		}
	}
}

// TestReverted: what nodes say of a contract that calls fail in is the contract's result, and what they say of themselves is not.
func TestReverted(t *testing.T) {
	for _, test := range []struct {
		who  string
		code int
		text string
		want bool
	}{
		{"geth", 3, "execution reverted", true},
		{"geth", -32000, "execution reverted: Pausable: paused", true},
		{"geth", -32000, "execution reverted: execution aborted (timeout = 5s)", true}, // the contract's words
		{"geth", -32000, "invalid opcode: INVALID", true},
		{"geth", -32000, "invalid jump destination", true},
		{"geth", -32000, "out of gas", true},
		{"geth", -32000, "stack underflow (0 <=> 1)", true},
		{"geth", -32000, "stack limit reached 1024 (1023)", true},
		{"geth", -32000, "write protection", true},
		{"geth", -32000, "return data out of bounds", true},
		{"geth", -32000, "gas uint64 overflow", true},
		{"geth", -32000, "max call depth exceeded", true},
		{"nethermind", -32015, "VM execution error.", true},
		{"anvil", 3, "execution reverted: EvmError: Revert", true},
		{"anvil", -32603, "EVM error InvalidFEOpcode", true},
		{"reth", -32003, "OutOfOffset", true},
		{"reth", -32003, "OpcodeNotFound", true},
		{"reth", -32003, "StackOverflow", true},
		{"hardhat", -32603, "VM Exception while processing transaction: reverted with reason string 'paused'", true},

		{"geth", -32000, "execution aborted (timeout = 5s)", false},
		{"geth", -32000, "execution aborted", false},
		{"anyone", -32603, "Internal error: index out of bounds: the len is 3 but the index is 5", false},
		{"anyone", -32603, "Index 5 out of bounds for length 3", false},
		{"anyone", -32603, "StackOverflowError", false},
		{"anyone", -32000, "write protection: database is read-only", false},
		{"anyone", -32000, "the transaction indexing is in progress, reverting to an older index", false},
	} {
		if got := (&Error{Code: test.code, Message: test.text}).reverted(); got != test.want {
			t.Errorf("%s: %q is the contract's: %t", test.who, test.text, got)
		}
	}
}

func TestClassifyTransport(t *testing.T) {
	tests := []struct {
		err  error
		want class
	}{
		{&statusError{status: 429}, classRate},
		{&statusError{status: 413}, classRange},
		{&statusError{status: 503, retry: 1}, classRate},
		{&statusError{status: 502, body: "rate limit"}, classOther},
		{&statusError{status: 400, body: "block range is too large"}, classRange},
		{errTooBig, classRange},
		{errNoBlock, classGone},
		{lied("order", "x"), classLie},
		{errors.New("connection refused"), classOther},
		{parseErrorOf(`{"code":-32602,"message":"invalid params","data":{"payload":"range 9009594 is bigger than range limit 2000"}}`), classRange},
		{parseErrorOf(`"a string"`), classOther},
	}
	for _, test := range tests {
		if got := classify(test.err); got != test.want {
			t.Errorf("%v is %s, want %s", test.err, got, test.want)
		}
	}
}

func parseErrorOf(s string) error { return parseError([]byte(s)) }

// TestErrorsPrint: the text of a node's error is printed without characters that move a terminal's cursor, begin a
// line or reverse the text, and is still classified.
func TestErrorsPrint(t *testing.T) {
	const hostile = "\x1b[2J\x1b[Hblock\nrange is\r\ttoo \u202elarge\x7f\u009b31m\x00"
	message, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"an answer": parseErrorOf(`{"code":-32000,"message":` + string(message) + `,"data":` + string(message) + `}`),
		"no object": parseErrorOf(hostile),
		"a status":  statusOf(&http.Response{StatusCode: http.StatusBadRequest}, []byte(hostile)),
	} {
		text := err.Error()
		if at := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }); at >= 0 {
			t.Errorf("%s: %q has %q", name, text, text[at:])
		}
		if classify(err) != classRange || !strings.Contains(text, "block range is") {
			t.Errorf("%s: %q is %s", name, text, classify(err))
		}
	}
	if got := clip("señor, 链: ok"); got != "señor, 链: ok" {
		t.Errorf("%q", got)
	}
}
