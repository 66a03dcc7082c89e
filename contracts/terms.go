package contracts

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/holiman/uint256"
)

// DealTerms are what the parties of a deal agree to.
type DealTerms struct {
	DealID          uint256.Int
	Borrower        common.Address
	Kind            Kind
	Token           common.Address
	AmountOrTokenID uint256.Int
	Cap, MinPrice   uint256.Int
	Term            uint32
	ListingExpiry   uint64
	FeeBps          uint16
	Grace           uint64
}

// termsType is the type that the vault hashes.
const termsType = "DealTerms(uint256 chainId,address vault,uint256 dealId,address borrower,uint8 kind,address token,uint256 amountOrTokenId,uint256 cap,uint256 minPrice,uint256 term,uint256 listingExpiry,uint256 feeBps,uint256 grace,address usdg)"

// Hash is what the deployment's vault says in termsHash.
func (t *DealTerms) Hash(dep *Deployment) common.Hash {
	typehash := crypto.Keccak256Hash([]byte(termsType))
	data := typehash[:]
	number := func(n *uint256.Int) { word := n.Bytes32(); data = append(data, word[:]...) }
	small := func(n uint64) { number(uint256.NewInt(n)) }
	address := func(a common.Address) { word := common.BytesToHash(a[:]); data = append(data, word[:]...) }
	small(dep.ChainID)
	address(dep.DealVault)
	number(&t.DealID)
	address(t.Borrower)
	small(uint64(t.Kind))
	address(t.Token)
	number(&t.AmountOrTokenID)
	number(&t.Cap)
	number(&t.MinPrice)
	small(uint64(t.Term))
	small(t.ListingExpiry)
	small(uint64(t.FeeBps))
	small(t.Grace)
	address(dep.USDG)
	return crypto.Keccak256Hash(data)
}
