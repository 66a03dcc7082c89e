package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethdb/memorydb"
	"github.com/ethereum/go-ethereum/rlp"
	"github.com/ethereum/go-ethereum/trie"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics/pause"
)

// maxProof bounds the nodes of an account's proof: a path has at most 64 nibbles.
const maxProof = 65

// errNoAccount: no endpoint proves the state of an account.
var errNoAccount = errors.New("no endpoint proves the account")

// unableTries is how often each endpoint may fail before an account counts as unprovable.
const unableTries = 8

// provedCode reports whether an account has code as of a block, as the state root proves. It is true, and not proved, if
// no endpoint delivers a proof within Config.Silence: an endpoint without proofs, or one that lies, must not suppress
// what another one found.
func (c *Client) provedCode(ctx context.Context, block common.Hash, address common.Address) (is, proved bool, err error) {
	var (
		failed = map[*endpoint]int{}
		there  bool  // an endpoint has the block
		none   error // why no endpoint proves it
	)
	bounded, cancel := allow(ctx, c.cfg.Silence)
	defer cancel()
	for wait := minRest; ; wait = min(2*wait, maxRound) {
		err = c.try(bounded, choice{}, func(ctx context.Context, e *endpoint) (err error) {
			var has bool
			is, has, err = e.provedCode(ctx, block, address)
			if there = there || has; err == nil || ctx.Err() != nil {
				return err
			}
			failed[e]++
			if class := classify(err); class == classMethod || class == classState || class == classGone && has {
				failed[e] = unableTries
			}
			for _, o := range c.endpoints {
				if failed[o] < unableTries {
					return err
				}
			}
			none = e.redact(err)
			return nil
		})
		if err == nil && none == nil {
			return is, true, nil
		}
		again := errors.Is(err, ErrNoState) || errors.Is(err, ErrGone) && there
		if again && pause.For(bounded, wait) == nil {
			continue
		}
		if ctx.Err() != nil || err != nil && !again && bounded.Err() == nil {
			return false, false, fmt.Errorf("prove the code of %s at block %s: %w", address, block, err)
		}
		c.log.Warn("no endpoint proves whether a contract has code, assuming that it has",
			zap.Stringer("contract", address), zap.Error(fmt.Errorf("%w: %w", errNoAccount, cmp.Or(none, err))))
		return true, false, nil
	}
}

// provedCode asks for the block's header, which its hash proves, and for a proof of the account by the header's state
// root. has: the endpoint has the block.
func (e *endpoint) provedCode(ctx context.Context, block common.Hash, address common.Address) (is, has bool, err error) {
	var h follow.Header
	var nodes [][]byte
	hash := appendHex([]byte{'['}, block[:])
	account := append(appendHex([]byte{'['}, address[:]), `,[],`...)
	err = e.do(ctx, []call{
		{method: "eth_getBlockByHash", params: append(hash, ",false]"...), result: func(s *scanner) error { return decodeHeader(s, &h, true) }},
		{method: "eth_getProof", params: append(append(appendHex(append(account, `{"blockHash":`...), block[:]), '}'), ']'), result: func(s *scanner) (err error) {
			nodes, err = decodeProof(s)
			return err
		}},
	})
	switch has = h.Hash == block; {
	case err != nil:
		return false, has, err
	case !has:
		return false, false, lied("wrong_block", "requested block %s, got %s", block, h.Hash)
	}
	is, err = codeOf(h.State, address, nodes)
	return is, true, err
}

// decodeProof decodes the nodes of an account's proof.
func decodeProof(s *scanner) (nodes [][]byte, err error) {
	if s.null() {
		return nil, errNoBlock
	}
	err = s.field("proof", "accountProof", func() error {
		nodes = nil
		return s.list("nodes", maxProof, func() error {
			digits, err := s.digits()
			if err != nil {
				return err
			}
			node := make([]byte, len(digits)/2)
			nodes = append(nodes, node)
			return unhex(node, digits)
		})
	})
	return nodes, err
}

// codeOf reports whether the account has code, by the nodes from the state root to it.
func codeOf(root common.Hash, address common.Address, nodes [][]byte) (bool, error) {
	known := memorydb.New()
	for _, node := range nodes {
		_ = known.Put(crypto.Keccak256(node), node) // memory does not fail
	}
	value, err := trie.VerifyProof(root, crypto.Keccak256(address[:]), known)
	if err != nil {
		return false, lied("state_root", "the proof of account %s: %w", address, err)
	}
	if value == nil {
		return false, nil
	}
	var account types.StateAccount
	if err := rlp.DecodeBytes(value, &account); err != nil {
		return false, lied("state_root", "account %s: %w", address, err)
	}
	return common.BytesToHash(account.CodeHash) != types.EmptyCodeHash, nil
}
