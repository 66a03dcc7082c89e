package x402

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"
)

// ChainReader reads the payment chain; ethclient.Client is one.
type ChainReader interface {
	ChainID(ctx context.Context) (*big.Int, error)
	CodeAt(ctx context.Context, account common.Address, block *big.Int) ([]byte, error)
	CallContract(ctx context.Context, msg ethereum.CallMsg, block *big.Int) ([]byte, error)
	HeaderByNumber(ctx context.Context, number *big.Int) (*types.Header, error)
	FilterLogs(ctx context.Context, q ethereum.FilterQuery) ([]types.Log, error)
	TransactionReceipt(ctx context.Context, hash common.Hash) (*types.Receipt, error)
}

// Selectors of the token's functions and topics of its events.
var (
	selTransferVRS    = selector("transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)")
	selTransferBytes  = selector("transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)")
	selState          = selector("authorizationState(address,bytes32)")
	selBalance        = selector("balanceOf(address)")
	selSeparator      = selector("DOMAIN_SEPARATOR()")
	selValidSignature = selector("isValidSignature(bytes32,bytes)")

	TopicUsed     = crypto.Keccak256Hash([]byte("AuthorizationUsed(address,bytes32)"))
	topicCanceled = crypto.Keccak256Hash([]byte("AuthorizationCanceled(address,bytes32)"))
	TopicTransfer = crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))
)

func selector(signature string) []byte { return crypto.Keccak256([]byte(signature))[:4] }

// transferGas is enough for the token, and for most contract wallets. It bounds what a stranger's wallet costs the node
// that is asked about it, and the relayer.
const transferGas = 200_000

// Token reads the payment token on its chain.
type Token struct {
	terms *Terms
	chain ChainReader
	span  atomic.Uint64 // blocks of the last search that the node answered; 0: of none yet
}

// NewToken returns the token of terms.
func NewToken(terms *Terms, chain ChainReader) *Token { return &Token{terms: terms, chain: chain} }

// ErrWrongToken: the chain or the token does not match the terms, so that payments would fail or go elsewhere.
var ErrWrongToken = errors.New("token does not match the payment requirement")

// Verify compares the chain ID and the token's domain separator with the terms. Call it first; ErrWrongToken is
// fatal.
func (t *Token) Verify(ctx context.Context) error {
	id, err := t.chain.ChainID(ctx)
	if err != nil {
		return fmt.Errorf("read the payment chain's ID: %w", err)
	}
	if !id.IsUint64() || id.Uint64() != t.terms.ChainID {
		return fmt.Errorf("%w: the payment node is on chain %s, the network is %s", ErrWrongToken, id, t.terms.Network)
	}
	separator, err := t.call(ctx, t.terms.Token, selSeparator)
	if err == nil && len(separator) != common.HashLength { // a node that still syncs has no token yet
		err = fmt.Errorf("%s answers %d bytes", t.terms.Token, len(separator))
	}
	if err != nil {
		return fmt.Errorf("read the token's domain separator: %w", err)
	}
	if !bytes.Equal(separator, t.terms.separator[:]) {
		return fmt.Errorf("%w: the domain separator of %s is %#x, that of name %q and version %q is %s",
			ErrWrongToken, t.terms.Token, separator, t.terms.Extra.Name, t.terms.Extra.Version, t.terms.separator)
	}
	return nil
}

// CheckSignature checks a contract wallet's signature with the contract (EIP-1271). A *Refusal means that it is
// invalid; any other error, that the result is unknown.
func (t *Token) CheckSignature(ctx context.Context, s *Signed) error {
	if !s.Contract {
		return nil
	}
	code, err := t.chain.CodeAt(ctx, s.From, nil)
	if err != nil {
		return fmt.Errorf("read the code of payer %s: %w", s.From, err)
	}
	refusal := refuse(ReasonSignature, "the signature is not valid for %s", s.From).by(s.From)
	if len(code) == 0 {
		return refusal
	}
	digest := t.terms.Digest(&s.Authorization)
	input := append(bytes.Clone(selValidSignature), digest[:]...)
	input = append(input, dynamic(2, s.Signature)...)
	out, err := t.chain.CallContract(ctx, ethereum.CallMsg{To: &s.From, Gas: transferGas, Data: input}, nil)
	switch {
	case err != nil && isRevert(err):
		return refusal
	case err != nil:
		return fmt.Errorf("check the signature with wallet %s: %w", s.From, err)
	case len(out) != 32 || !bytes.Equal(out[:4], selValidSignature) || !zeros(out[4:]):
		return refusal
	}
	return nil
}

// Simulate checks whether the payment would succeed now: the authorization is unused, the balance sufficient,
// the transfer possible, all as of one block. A *Refusal means no; any other error, that the result is unknown.
func (t *Token) Simulate(ctx context.Context, s *Signed, from common.Address) error {
	err := t.simulate(ctx, s, from)
	if refusal, ok := errors.AsType[*Refusal](err); !ok || refusal.Reason == ReasonNonceUsed {
		return err
	}
	// Where it was used since, that is why.
	if used := t.unspent(ctx, s, nil); used != nil {
		return used
	}
	return err
}

// unspent is an error where the authorization was used or cancelled.
func (t *Token) unspent(ctx context.Context, s *Signed, block *big.Int) error {
	used, err := t.used(ctx, &s.Authorization, block)
	if err == nil && used {
		err = refuse(ReasonNonceUsed, "the authorization was used or cancelled").by(s.From)
	}
	return err
}

func (t *Token) simulate(ctx context.Context, s *Signed, from common.Address) error {
	head, err := t.chain.HeaderByNumber(ctx, nil)
	if err != nil {
		return fmt.Errorf("read the payment chain's head: %w", err)
	}
	// A node's backends may differ by some blocks: unused by one and paid for by another would be a payer without
	// money.
	if err := t.unspent(ctx, s, head.Number); err != nil {
		return err
	}
	balance, err := t.balanceAt(ctx, s.From, head.Number)
	if err != nil {
		return err
	}
	if balance.Cmp(s.Value) < 0 {
		return refuse(ReasonInsufficientBalance, "the balance of %s is below the amount", s.From).by(s.From)
	}
	_, err = t.chain.CallContract(ctx, ethereum.CallMsg{From: from, To: &t.terms.Token, Gas: transferGas, Data: s.Calldata()}, head.Number)
	switch {
	case err != nil && isRevert(err):
		return refuse(ReasonSimulation, "the token rejects the transfer").by(s.From)
	case err != nil:
		return fmt.Errorf("simulate the transfer of %s: %w", s.From, err)
	}
	return nil
}

// Balance is an account's balance of the token.
func (t *Token) Balance(ctx context.Context, account common.Address) (*big.Int, error) {
	return t.balanceAt(ctx, account, nil)
}

func (t *Token) balanceAt(ctx context.Context, account common.Address, block *big.Int) (*big.Int, error) {
	input := append(bytes.Clone(selBalance), common.LeftPadBytes(account[:], 32)...)
	out, err := t.chain.CallContract(ctx, ethereum.CallMsg{To: &t.terms.Token, Data: input}, block)
	if err == nil && len(out) != 32 {
		err = fmt.Errorf("%d bytes", len(out))
	}
	if err != nil {
		return nil, fmt.Errorf("read the balance of %s: %w", account, err)
	}
	return new(big.Int).SetBytes(out), nil
}

func (t *Token) used(ctx context.Context, a *Authorization, block *big.Int) (bool, error) {
	input := append(bytes.Clone(selState), common.LeftPadBytes(a.From[:], 32)...)
	input = append(input, a.Nonce[:]...)
	out, err := t.chain.CallContract(ctx, ethereum.CallMsg{To: &t.terms.Token, Data: input}, block)
	if err != nil {
		return false, fmt.Errorf("read the state of authorization %s: %w", a.Nonce, err)
	}
	if len(out) != 32 {
		return false, fmt.Errorf("read the state of authorization %s: %d bytes", a.Nonce, len(out))
	}
	return !zeros(out), nil
}

func (t *Token) call(ctx context.Context, to common.Address, input []byte) ([]byte, error) {
	return t.chain.CallContract(ctx, ethereum.CallMsg{To: &to, Data: input}, nil)
}

// Calldata is the calldata that submits the authorization. A key's signature is passed in three parts, which
// every version of the token accepts; a contract wallet's as bytes.
func (s *Signed) Calldata() []byte {
	if !s.Contract && len(s.Signature) == signatureLen {
		out := append(bytes.Clone(selTransferVRS), s.words()...)
		out = append(out, word(big.NewInt(int64(s.Signature[64])))...)
		return append(out, s.Signature[:64]...)
	}
	out := append(bytes.Clone(selTransferBytes), s.words()...)
	return append(out, dynamic(7, s.Signature)...)
}

// dynamic ABI-encodes bytes as the last of n arguments.
func dynamic(n int64, data []byte) []byte {
	out := append(word(big.NewInt(32*n)), word(big.NewInt(int64(len(data))))...)
	out = append(out, data...)
	return append(out, make([]byte, (32-len(data)%32)%32)...)
}

func zeros(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// What nodes say of a call that a contract did not let pass, or that did not get through its code.
var reverts = []string{
	"revert", "vm execution error", "evm error", "out of gas", "gas uint64 overflow", "invalid opcode", "opcodenotfound", "invalid jump", "invalidjump",
	"stack underflow", "stackunderflow", "stack limit reached", "stack overflow", "stackoverflow", "out of bounds", "outofoffset",
	"write protection", "call depth", "execution aborted",
}

// isRevert tells what a contract refused, or failed at, from a node that failed. Nodes differ in the code and hardly in
// the words; the data of other errors is not that of a revert, which is hex.
func isRevert(err error) bool {
	coded, ok := errors.AsType[rpc.Error](err)
	if !ok {
		return false
	}
	if data, ok := errors.AsType[rpc.DataError](err); ok {
		if text, ok := data.ErrorData().(string); ok && strings.HasPrefix(text, "0x") {
			return true
		}
	}
	text := strings.ToLower(coded.Error())
	return coded.ErrorCode() == 3 || slices.ContainsFunc(reverts, func(phrase string) bool { return strings.Contains(text, phrase) })
}
