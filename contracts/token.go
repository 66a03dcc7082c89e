package contracts

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// tokenEvents are those of tokens of any address. Nothing in them is indexed by token: the entity is the
// emitting address.
var tokenEvents = []eventSpec{
	{signature: "UIMultiplierUpdated(uint256,uint256,uint256)", topics: 1, words: 3, read: readUIMultiplierUpdated},
	{signature: "Paused(address)", topics: 1, words: 1, read: readTokenPaused},
	{signature: "Unpaused(address)", topics: 1, words: 1, read: readTokenUnpaused},
}

// Events of a token.
type (
	UIMultiplierUpdated struct {
		Token         common.Address
		OldMultiplier uint256.Int
		NewMultiplier uint256.Int
		EffectiveAt   uint256.Int
	}
	TokenPaused   struct{ Token common.Address }
	TokenUnpaused struct{ Token common.Address }

	// TokenTransferred is an ERC-20's Transfer. From is zero where the amount was minted, To where it was burnt.
	TokenTransferred struct {
		Token  common.Address
		From   common.Address
		To     common.Address
		Amount uint256.Int
	}
	// TransferMalformed is a log that has the topic of Transfer and is no ERC-20's: what the token's accounts hold
	// does not follow from its logs.
	TransferMalformed struct{ Token common.Address }
)

func (e *UIMultiplierUpdated) Entity() Entity { return TokenEntity(e.Token) }
func (e *TokenPaused) Entity() Entity         { return TokenEntity(e.Token) }
func (e *TokenUnpaused) Entity() Entity       { return TokenEntity(e.Token) }
func (e *TokenTransferred) Entity() Entity    { return TokenEntity(e.Token) }
func (e *TransferMalformed) Entity() Entity   { return TokenEntity(e.Token) }

func (*UIMultiplierUpdated) Name() string { return "UIMultiplierUpdated" }
func (*TokenPaused) Name() string         { return "TokenPaused" }
func (*TokenUnpaused) Name() string       { return "TokenUnpaused" }
func (*TokenTransferred) Name() string    { return "TokenTransferred" }
func (*TransferMalformed) Name() string   { return "TransferMalformed" }

func readUIMultiplierUpdated(w *words, address common.Address) Event {
	return &UIMultiplierUpdated{
		Token:         address,
		OldMultiplier: w.uint256(),
		NewMultiplier: w.uint256(),
		EffectiveAt:   w.uint256(),
	}
}

func readTokenPaused(w *words, address common.Address) Event {
	w.address() // who paused it
	return &TokenPaused{Token: address}
}

func readTokenUnpaused(w *words, address common.Address) Event {
	w.address() // who paused it
	return &TokenUnpaused{Token: address}
}

// transferred is the Transfer of any ERC-20. It is not among tokenEvents, because it is wanted of some tokens only.
var (
	transferred     = eventSpec{signature: "Transfer(address,address,uint256)", topics: 3, words: 1, read: readTokenTransferred}
	transferredHash = transferred.topic()
)

// TransferTopic is the first topic of an ERC-20's Transfer.
func TransferTopic() common.Hash { return transferredHash }

func readTokenTransferred(w *words, address common.Address) Event {
	return &TokenTransferred{Token: address, From: w.topicAddress(), To: w.topicAddress(), Amount: w.uint256()}
}
