package topics

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// The entities of meme tokens: who holds them, from their Transfer logs.

// Holding is what an account holds of a meme token. It is never zero.
//
//entity:topic 41 token and account
//entity:doc What an account holds of a meme token of the registry.
type Holding struct {
	Token   common.Address
	Account common.Address
	Amount  uint256.Int
}

// Holders is what is known of all holdings of a meme token.
//
//entity:topic 42 token
//entity:doc What is known of the holders of a meme token.
type Holders struct {
	Token   common.Address
	Count   uint64
	Supply  uint256.Int `doc:"the sum of all holdings"`                                     // the sum of all holdings
	First   common.Hash `avro:"first_tx" zero:"null" doc:"of the first transfer"`           // the transaction of the first transfer of more than nothing; zero: there was none when its transfers began to be followed, or it is not proved
	Since   uint64      `doc:"the block from which on its transfers are followed"`          // the block from which on its transfers are followed
	Faulted bool        `doc:"its transfers contradict each other, so no holding is valid"` // its transfers contradict each other, so no holding is valid
}
