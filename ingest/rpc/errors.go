package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/lienstream/lienstream/contracts/nodetext"
)

var (
	// ErrGone: no endpoint has the block, or the endpoints disagree about it: it was reorganised away, or is
	// too new. Continue from the head.
	ErrGone = errors.New("no endpoint has the block")

	// ErrNoState: no endpoint has the state of the block, as an archive node would, or serves what asks for it.
	ErrNoState = errors.New("no endpoint has the state of the block")

	// ErrTooBig: no endpoint returns the receipts of a block, neither at once nor one by one.
	ErrTooBig = errors.New("no endpoint returns the receipts of the block, which are too big: add one that does")

	// ErrDense: the blocks have more logs than may be held at once. Ask for fewer blocks; a single one never fails so.
	ErrDense = errors.New("more logs than are held at once")

	errNoBlock = errors.New("block is null")
	// errNoLogs: the endpoints that answer do not support eth_getLogs. Receipts have the logs too.
	errNoLogs = errors.New("no endpoint that answers supports eth_getLogs")
	// errNotServed: the endpoint does not serve requests for a state. It may answer everything else.
	errNotServed  = errors.New("the endpoint does not serve it")
	errNoReceipts = errors.New("the endpoint does not support eth_getBlockReceipts")
	// errNobodyElse: all endpoints but one fail, or are paused for long.
	errNobodyElse = errors.New("no other endpoint answers")
	errOneTooBig  = errors.New("the logs of a single block are more than the endpoint returns at once")
	errTooBig     = errors.New("response exceeds the size limit")
)

// Error is a JSON-RPC error of a node.
type Error struct {
	Code    int
	Message string
	Data    string // JSON; some providers put the details there
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("node answered %d: %s", e.Code, e.Message) }

func parseError(v []byte) *Error {
	var e struct {
		Code    json.Number     `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(v, &e); err != nil {
		return &Error{Message: clip(string(v))}
	}
	code, _ := e.Code.Int64()
	return &Error{Code: int(code), Message: clip(e.Message), Data: clip(string(e.Data))}
}

// clip bounds external text before it is logged, and replaces unprintable characters: the text may reach a terminal.
func clip(s string) string {
	const most = 512
	if len(s) > most {
		s = s[:most]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "?"))
}

// statusError is an HTTP status other than 200.
type statusError struct {
	status int
	retry  time.Duration // Retry-After; 0: none
	body   string
}

func (e *statusError) Error() string { return fmt.Sprintf("HTTP status %d: %s", e.status, e.body) }

// lie is a response that contradicts itself, the header chain or another endpoint.
type lie struct {
	kind  string // metric label
	err   error
	calls int // that it took to detect it, where these were many
}

func (e *lie) Error() string { return e.kind + ": " + e.err.Error() }
func (e *lie) Unwrap() error { return e.err }

// lieFork: its block is not the one that most endpoints have.
const lieFork = "fork"

// lieRoot: its transactions are not the block's. lieHash: it assigns a log to another transaction.
const (
	lieRoot = "transactions_root"
	lieHash = "transaction_hash"
)

// relative reports whether the response contradicts another endpoint's headers or blocks, and not itself. Those may be
// made up, and an endpoint must not silence others with made-up data.
func (e *lie) relative() bool {
	return e.kind == "block_hash" || e.kind == "stale_head" || e.kind == "disagreement" || e.kind == "missing_logs"
}

func lied(kind, format string, args ...any) error {
	return &lie{kind: kind, err: fmt.Errorf(format, args...)}
}

// class says how to react to an error.
type class uint8

const (
	classOther     class = iota // the endpoint is in trouble: use another one, and this one later
	classRange                  // the range is too large: use a smaller one
	classRate                   // too many requests: use another endpoint, and this one after a pause
	classGone                   // the block is unknown
	classState                  // the state of the block is not available
	classLie                    // the response is wrong
	classTag                    // the tag finalized or safe is unknown
	classMethod                 // the method is unknown
	classBatch                  // too many calls in a batch
	classAddresses              // too many addresses in a query
	classUnsigned               // it lacks the signed form of transactions
)

// String is the metric label.
func (c class) String() string {
	return [...]string{"failure", "range", "rate", "gone", "state", "lie", "tag", "method", "batch", "addresses", "unsigned"}[c]
}

// errorPhrases maps error messages of nodes and providers, in lower case, to a class. The first line with a phrase that
// occurs in the text wins, so the order matters: "block range" is in many texts, "rate limit" in few. Every
// phrase has its text in the tests.
var errorPhrases = []struct {
	class   class
	phrases []string
}{
	{classBatch, []string{"batch too large", "batch of more than", "batch size", "batch limit", "requests in batch", "batch request", "batch is too", "too large batch", "batched requests"}},
	{classAddresses, []string{"max addresses", "number of addresses", "too many addresses"}},
	{classMethod, []string{"does not exist/is not available", "method not found", "unsupported method", "method is not supported", "method not supported", "not whitelisted", "method is not available"}},
	{classTag, []string{"finalized block not found", "safe block not found", "block tag finalized", "finalized is not", "finalized tag", "block not found: finalized", "invalid block number: finalized"}},
	{classState, []string{
		"missing trie node", "historical state", "state not available", "state is not available", "state unavailable", "pruned", "archive",
		"old data not available", "distance to target block exceeds", "no state available", "state already discarded", "blockoutofrange",
	}},
	{classRate, nodetext.Throttled},
	{classGone, []string{"beyond current head", "beyond the head"}},
	{classRange, []string{
		"query returned more than", "returned more than", "exceeds max results", "exceed maximum block range", "exceeds limit of",
		"block range", "range limit", "range is too", "range too", "ranges over", "max range", "maximum range", "exceeds the range", "exceed the range",
		"requested too many blocks", "number of requested blocks", "limited to a", "limited to 0 -", "limit the query to", "at most", "10,000 range",
		"blocks distance", "query must be smaller", "blocks range", "logs matched by query", "too many logs", "too many results", "response size", "response too large",
		"response is too big", "response is too large", "result set", "query timeout exceeded", "query timed out", "larger than max", "eth_getlogs is limited",
		"try with this", "narrow", "request timed out", "limited to a", "block range limit", "too much load to", "specify less", "max results", "exceeds max log", "exceeded max allowed", "result limit",
	}},
	{classGone, []string{
		"unknown block", "header not found", "block not found", "header for hash not found", "unknown header", "no block with", "resource not found",
		"block does not exist", "cannot find block", "could not find block", "cannot be found", "is greater than latest",
		"exceeds head", "after last accepted block", "not currently canonical", "no header found",
	}},
}

// Error codes with a meaning of their own.
const (
	codeLimit       = -32005 // Infura, Alchemy and others: too many results, or too often
	codeTimeout     = -32002 // geth: request timed out
	codeNoMethod    = -32601 // JSON-RPC: method not found
	codeNoTag       = -39001 // geth: "finalized block not found"
	codeReverted    = 3      // geth and everyone: execution reverted
	codeInternal    = -32603 // JSON-RPC: internal error, also where a node's own code fails
	codeBigResponse = -32008 // reth, Base: response too large
)

// perhapsSize reports whether a request for logs that keeps failing with this class may just be too large: some
// endpoints answer it as if it came too often, or with a page of HTML.
func (c class) perhapsSize() bool {
	return c == classOther || c == classRate || c == classLie || c == classState
}

// isAnswer reports whether the error is a response of the endpoint, and not a failure to respond.
func isAnswer(err error) bool {
	status, ok := errors.AsType[*statusError](err)
	if ok {
		return status.status < 500
	}
	_, ok = errors.AsType[*Error](err)
	return ok
}

// notServed marks the error of a request for a state that an endpoint does not serve.
func notServed(err error) error {
	if classify(err) != classMethod || errors.Is(err, errNotServed) {
		return err
	}
	return fmt.Errorf("%w: %w", errNotServed, err)
}

// classify returns the class of a call's error.
func classify(err error) class {
	var (
		answer *Error
		status *statusError
		lied   *lie
	)
	switch {
	case errors.As(err, &lied):
		return classLie
	case errors.Is(err, errUnsigned):
		return classUnsigned
	case errors.Is(err, errNoLogs), errors.Is(err, errNoReceipts), errors.Is(err, errNotServed):
		return classMethod
	case errors.Is(err, errNoBlock), errors.Is(err, ErrGone):
		return classGone
	case errors.Is(err, errTooBig):
		return classRange
	case errors.As(err, &answer):
		return answer.class()
	case errors.As(err, &status):
		switch text := strings.ToLower(status.body); {
		case match(text) == classBatch:
			return classBatch
		case status.status == 429:
			return classRate
		case status.status == 413:
			return classRange
		case status.status == 503 && status.retry > 0:
			return classRate
		case status.status < 500:
			return match(text)
		}
	}
	return classOther
}

func (e *Error) class() class {
	text := strings.ToLower(e.Message + " " + e.Data)
	switch {
	case e.Code == codeNoTag && (strings.Contains(text, "finalized") || strings.Contains(text, "safe")):
		return classTag
	case e.Code == codeNoMethod:
		return classMethod
	case e.Code == codeBigResponse:
		return classRange
	case e.Code == 429:
		return classRate
	}
	c := match(text)
	if c == classOther && e.Code == codeTimeout {
		return classRange
	}
	if c == classOther && e.Code == codeLimit {
		return classRate
	}
	return c
}

func match(text string) class {
	for _, s := range errorPhrases {
		for _, phrase := range s.phrases {
			if strings.Contains(text, phrase) {
				return s.class
			}
		}
	}
	return classOther
}

var (
	reverts = regexp.MustCompile(`\brevert(ed)?\b|vm execution error|evm error|vm exception`)
	// halts is how nodes name what ends a contract's execution, at the beginning of the text: elsewhere it may be of the node's own code.
	halts = regexp.MustCompile(`^(invalid opcode|invalid jump|invalidjump|invalidfeopcode|opcodenotfound|stack underflow|stack overflow|stackunderflow|stackoverflow|stack limit reached` +
		`|out of gas|outofgas|outofoffset|return data out of bounds|gas uint64 overflow|write protection$|max call depth|contract validation failure)`)
)

// reverted reports whether an error of eth_call is what the contract did, which is a valid result.
func (e *Error) reverted() bool {
	text := strings.ToLower(e.Message)
	return e.Code == codeReverted || reverts.MatchString(text) || e.Code != codeInternal && halts.MatchString(text)
}
