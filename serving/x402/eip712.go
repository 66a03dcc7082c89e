package x402

import (
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

var (
	domainType   = crypto.Keccak256Hash([]byte("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"))
	transferType = crypto.Keccak256Hash([]byte("TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"))
)

// Authorization is a transfer signed by its payer, which anyone can submit once (EIP-3009).
type Authorization struct {
	From        common.Address
	To          common.Address
	Value       *big.Int
	ValidAfter  uint64 // Unix seconds, exclusive
	ValidBefore uint64 // Unix seconds, exclusive
	Nonce       common.Hash
}

// Signed is an authorization that its payer signed.
type Signed struct {
	Authorization
	Signature []byte
	// Contract: no key signed, so the wallet contract must check the signature (EIP-1271).
	Contract bool
}

// DomainSeparator is the EIP-712 domain separator of a token.
func DomainSeparator(d Domain, chainID uint64, token common.Address) common.Hash {
	return crypto.Keccak256Hash(
		domainType[:], crypto.Keccak256([]byte(d.Name)), crypto.Keccak256([]byte(d.Version)),
		word(new(big.Int).SetUint64(chainID)), common.LeftPadBytes(token[:], 32),
	)
}

// Digest is the hash that the payer of an authorization signs.
func (t *Terms) Digest(a *Authorization) common.Hash {
	message := crypto.Keccak256(append(transferType.Bytes(), a.words()...))
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, t.separator[:], message)
}

// words are the ABI-encoded fields, which both the token and EIP-712 use.
func (a *Authorization) words() []byte {
	out := make([]byte, 0, 6*32)
	out = append(out, common.LeftPadBytes(a.From[:], 32)...)
	out = append(out, common.LeftPadBytes(a.To[:], 32)...)
	out = append(out, word(a.Value)...)
	out = append(out, word(new(big.Int).SetUint64(a.ValidAfter))...)
	out = append(out, word(new(big.Int).SetUint64(a.ValidBefore))...)
	return append(out, a.Nonce[:]...)
}

func word(n *big.Int) []byte { return n.FillBytes(make([]byte, 32)) }
