package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/trie"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// maxTransactions bounds the transactions of a block that are decoded to prove one: as many take 1.4 billion gas.
const maxTransactions = 1 << 16

// classicType is of transactions of Arbitrum before Nitro, whose hash is not that of their bytes.
const classicType = 0x78

// errUnsigned: the endpoint does not have a block's transactions as they were signed. It may be honest: which ways to describe one there are is
// a matter of the node, and what is in a block of strangers.
var errUnsigned = errors.New("it does not have the transactions of the block as they were signed")

// rawTransactions are a block's transactions as they were signed. It implements types.DerivableList: a transaction of any type is
// hashed as it was signed.
type rawTransactions [][]byte

func (r rawTransactions) Len() int                           { return len(r) }
func (r rawTransactions) EncodeIndex(i int, w *bytes.Buffer) { w.Write(r[i]) }

// naming is what receipts say is the transaction of a log.
type naming struct {
	at   uint32
	hash common.Hash
}

// namings appends the transactions of logs.
func namings(all []naming, logs []topics.Log) []naming {
	for i := range logs {
		if n := (naming{logs[i].TxIndex, logs[i].TxHash}); len(all) == 0 || all[len(all)-1] != n {
			all = append(all, n)
		}
	}
	return all
}

// same checks what receipts say against the hashes of a block's transactions.
func same(h *follow.Header, named []naming, hashes []common.Hash) error {
	for _, n := range named {
		if int(n.at) >= len(hashes) || n.hash != hashes[n.at] {
			return lied(lieHash, "transaction %d of block %d is not %s", n.at, h.Number, n.hash)
		}
	}
	return nil
}

// blockCall is for the transactions of a block.
func blockCall(h *follow.Header, into **described) call {
	return call{
		method: "eth_getBlockByHash", params: append(appendHex([]byte{'['}, h.Hash[:]), ",true]"...),
		result: func(s *scanner) (err error) {
			was := *s
			if *into, err = decodeDescribed(s); err != nil {
				*into, *s = nil, was
				return s.skip()
			}
			return nil
		},
		failed: func(answer *Error) bool {
			switch answer.class() {
			case classRange, classBatch, classRate:
				return false
			default:
				return true
			}
		},
	}
}

// blocks fetches the transactions of blocks in one request, as the endpoint describes them; nil: it does not, for whatever reason, or there are more
// than it returns at once.
func (e *endpoint) blocks(ctx context.Context, headers []follow.Header) ([]*described, error) {
	all, calls := make([]*described, len(headers)), make([]call, len(headers))
	for i := range headers {
		calls[i] = blockCall(&headers[i], &all[i])
	}
	err := e.do(ctx, calls)
	if err != nil && classify(err) == classRange {
		err = nil
		for i := range headers {
			if all[i] == nil && len(headers) > 1 && err == nil {
				var one []*described
				if one, err = e.blocks(ctx, headers[i:i+1]); err == nil {
					all[i] = one[0]
				}
			}
		}
	}
	return all, err
}

// hashes returns the hashes of a block's transactions, which its header's root proves. n is how many there are, as the receipts prove. Those that
// the endpoint does not describe as they were signed are fetched like that: only what is signed and does not match is a lie.
func (e *endpoint) hashes(ctx context.Context, h *follow.Header, d *described, n int) ([]common.Hash, error) {
	if d == nil {
		d = &described{make(rawTransactions, n), make([]common.Hash, n)}
	}
	if len(d.raw) != n {
		return nil, lied(lieRoot, "block %d has %d transactions and %d receipts", h.Number, len(d.raw), n)
	}
	var others []int
	for i, raw := range d.raw {
		if raw == nil {
			others = append(others, i)
		}
	}
	if len(others) > e.client.cfg.MaxRaw {
		return nil, fmt.Errorf("%w: %d of them are to be fetched one by one", errUnsigned, len(others))
	}
	if len(others) > 0 {
		if err := e.asSigned(ctx, h, d, others); err != nil {
			return nil, err
		}
	}
	for _, i := range others {
		if d.raw[i][0] == classicType {
			return nil, fmt.Errorf("%w: transaction %d of block %d is of type %#x", errUnsigned, i, h.Number, classicType)
		}
	}
	if root := types.DeriveSha(d.raw, trie.NewStackTrie(nil)); root != h.Transactions {
		err := fmt.Errorf("transactions of block %d have root %s, the header %s", h.Number, root, h.Transactions)
		return nil, &lie{kind: lieRoot, err: err, calls: len(others)}
	}
	for _, i := range others {
		d.hashes[i] = crypto.Keccak256Hash(d.raw[i])
	}
	return d.hashes, nil
}

// rawMethod returns a transaction as it was signed.
type rawMethod struct {
	name   string
	byHash bool // or by its block and index
}

// Nodes have some of these: the second needs no index of transactions, which some keep for the newest blocks only.
var rawMethods = [...]rawMethod{
	{"eth_getRawTransactionByHash", true},
	{"eth_getRawTransactionByBlockHashAndIndex", false},
	{"debug_getRawTransaction", true},
}

// rawAgain is when a node that has none of them is asked again.
const rawAgain = 10 * time.Minute

// asSigned fetches transactions of a block as they were signed, those of these indices.
func (e *endpoint) asSigned(ctx context.Context, h *follow.Header, d *described, indices []int) error {
	e.mu.Lock()
	first, never := e.rawMethod, time.Now().Before(e.noRaw)
	e.mu.Unlock()
	if never {
		return errUnsigned
	}
	named := !slices.ContainsFunc(indices, func(i int) bool { return d.hashes[i] == (common.Hash{}) })
	last, unknown := errUnsigned, 0
	for k := range rawMethods {
		at := (first + k) % len(rawMethods)
		m := &rawMethods[at]
		if m.byHash && !named {
			continue
		}
		err := e.signedBy(ctx, m, h, d, indices[:1]) // the others once it is known that it has one
		if err == nil {
			e.mu.Lock()
			e.rawMethod = at
			e.mu.Unlock()
			if len(indices) > 1 {
				err = e.signedBy(ctx, m, h, d, indices[1:])
			}
			if err != nil && lacksRaw(err) {
				e.mu.Lock()
				e.noRaw = time.Now().Add(time.Duration(len(indices)) * time.Second / eachRate)
				e.mu.Unlock()
				return fmt.Errorf("%w: %w", errUnsigned, err)
			}
			return err
		}
		switch {
		case !lacksRaw(err):
			return err
		case classify(err) == classMethod:
			unknown++
		}
		last = fmt.Errorf("%w: %w", errUnsigned, err)
	}
	if unknown == len(rawMethods) {
		e.mu.Lock()
		e.noRaw = time.Now().Add(rawAgain)
		e.mu.Unlock()
	}
	return last
}

// lacksRaw reports whether an endpoint's answer says that it has not what was asked for, whatever its reason, or is none.
func lacksRaw(err error) bool {
	if l, ok := errors.AsType[*lie](err); ok {
		return l.kind == "malformed" || l.kind == "batch" || l.kind == "id"
	}
	switch classify(err) {
	case classGone, classRange, classMethod, classState, classTag, classRevert:
		return true
	case classOther:
		_, answered := errors.AsType[*Error](err)
		status, refused := errors.AsType[*statusError](err)
		return answered || refused && status.status >= 400 && status.status < 500
	default:
		return false
	}
}

// signedBy fetches transactions with one method.
func (e *endpoint) signedBy(ctx context.Context, m *rawMethod, h *follow.Header, d *described, indices []int) error {
	calls, size := make([]call, len(indices)), 0
	for k, i := range indices {
		var params []byte
		if m.byHash {
			params = appendHex([]byte{'['}, d.hashes[i][:])
		} else {
			params = appendQuantity(append(appendHex([]byte{'['}, h.Hash[:]), ','), uint64(i))
		}
		calls[k] = call{
			method: m.name, params: append(params, ']'),
			result: func(s *scanner) error {
				if s.null() {
					return errNoBlock
				}
				v, err := s.digits()
				if err != nil {
					return err
				}
				if len(v) == 0 {
					return errNoBlock
				}
				if len(v)%2 > 0 {
					return errJSON
				}
				if size += len(v)/2 - len(d.raw[i]); size > e.client.cfg.MaxBody {
					return fmt.Errorf("transaction %d of block %d: %w", i, h.Number, errTooBig)
				}
				d.raw[i] = make([]byte, len(v)/2)
				return unhex(d.raw[i], v)
			},
		}
	}
	return e.do(ctx, calls)
}

// hasRaw finds out whether an endpoint returns transactions as they were signed: one that nobody has, which is null.
func (e *endpoint) hasRaw(ctx context.Context) error {
	e.mu.Lock()
	e.noRaw = time.Time{}
	e.mu.Unlock()
	var h follow.Header
	h.Hash = common.Hash{1}
	d := &described{make(rawTransactions, 1), []common.Hash{h.Hash}}
	err := e.asSigned(ctx, &h, d, []int{0})
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && e.noRaw.IsZero() && errors.Is(err, errUnsigned) {
		return nil
	}
	return err
}
