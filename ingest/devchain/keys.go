package devchain

import (
	"bytes"
	"crypto/ecdsa"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/params"
)

// Deployer is the actor who owns the contracts and hands out the money.
const Deployer = "deployer"

// deployerFunds is a billion ether.
func deployerFunds() *big.Int {
	return new(big.Int).Mul(big.NewInt(1_000_000_000), big.NewInt(params.Ether))
}

// Key derives the key of the named actor of a chain with a seed. Everybody can: the keys are worth nothing elsewhere.
func Key(seed uint64, name string) *ecdsa.PrivateKey {
	for i := 0; ; i++ {
		key, err := crypto.ToECDSA(crypto.Keccak256(fmt.Appendf(nil, "lienstream devchain %d %s %d", seed, name, i)))
		if err == nil { // all but a few in 2^128 are valid keys
			return key
		}
	}
}

func actorAddress(seed uint64, name string) common.Address {
	return crypto.PubkeyToAddress(Key(seed, name).PublicKey)
}

// sortedEvents are an ABI's events by name.
func sortedEvents(a abi.ABI) []abi.Event {
	return slices.SortedFunc(maps.Values(a.Events), func(a, b abi.Event) int { return strings.Compare(a.Name, b.Name) })
}

func sortedAddresses[V any](m map[common.Address]V) []common.Address {
	return slices.SortedFunc(maps.Keys(m), func(a, b common.Address) int { return bytes.Compare(a[:], b[:]) })
}
