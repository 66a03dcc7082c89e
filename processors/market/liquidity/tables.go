package liquidity

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/topics"
)

// The IDs of tables and indexes are part of every key on disk: never reuse one.
const (
	tablePools               byte = 9
	tablePositions           byte = 10
	tablePositionLiquidities byte = 11
	tableStakings            byte = 12
	tableStakes              byte = 13
	tableTicks               byte = 14
	tablePoolDays            byte = 27
	tableLiquidityDays       byte = 28
	tableYoungRanges         byte = 29
	tableYoungTicks          byte = 30
	tableTickSums            byte = 34
	tableYoungSums           byte = 35
	tableChanges             byte = 36

	// IndexAllowedPool: the pools that the registry allows, by pool ID. The value is the row.
	IndexAllowedPool byte = 0x1b
	// IndexPositionOwner: owner, then the token ID.
	IndexPositionOwner byte = 0x1c
	// IndexStakeOwner: owner, then token ID, then the pool. The value is the row.
	IndexStakeOwner byte = 0x1d
	// IndexSeed: the seeder's stakes, by stakeKey. The value is the row.
	IndexSeed byte = 0x1e
)

// Pools has a row, topics.Pool, for each pool under its ID.
var Pools = &state.Table{
	ID: tablePools, Name: "pools", Index: indexPool,
	Entity: &state.EntityTopic{Name: topics.EntityPool, Key: contracts.AppendHex, Encode: topics.EncodePool},
}

// Positions has a row, topics.Position, for each position under its token ID, in the position's partition.
var Positions = &state.Table{
	ID: tablePositions, Name: "positions", Index: indexPosition,
	Entity: &state.EntityTopic{Name: topics.EntityPosition, Key: numberKey, Encode: topics.EncodePosition},
}

// PositionLiquidities has a row, topics.PositionLiquidity, for each position that ever existed, under its token
// ID, in its pool's partition.
var PositionLiquidities = &state.Table{
	ID: tablePositionLiquidities, Name: "position liquidities",
	Entity: &state.EntityTopic{Name: topics.EntityPositionLiquidity, Key: numberKey, Encode: topics.EncodePositionLiquidity},
}

// Stakings has a row, topics.Staking, for each pool whose positions are staked, under its ID.
var Stakings = &state.Table{
	ID: tableStakings, Name: "stakings",
	Entity: &state.EntityTopic{Name: topics.EntityStaking, Key: contracts.AppendHex, Encode: topics.EncodeStaking},
}

// Stakes has a row, topics.Stake, for each staked position under stakeKey.
var Stakes = &state.Table{
	ID: tableStakes, Name: "stakes", Index: indexStake,
	Entity: &state.EntityTopic{Name: topics.EntityStake, Key: stakeEntityKey, Encode: topics.EncodeStake},
}

// positionKey is the key of a position in Positions and PositionLiquidities.
func positionKey(tokenID *uint256.Int) []byte {
	raw := tokenID.Bytes32()
	return raw[:]
}

// stakeKey is the key of a stake: the pool, then the token ID, ascending.
func stakeKey(pool common.Hash, tokenID *uint256.Int) []byte {
	raw := tokenID.Bytes32()
	return append(append(make([]byte, 0, len(pool)+len(raw)), pool[:]...), raw[:]...)
}

func indexPool(key, row []byte, to *state.IndexEntries) {
	var p topics.Pool
	mustDecode(row, &p)
	if p.Initialized && p.Limits != nil && p.Limits.Allowed {
		to.Put(IndexAllowedPool, row, key)
	}
}

func indexPosition(key, row []byte, to *state.IndexEntries) {
	var p topics.Position
	mustDecode(row, &p)
	to.Put(IndexPositionOwner, nil, p.Owner[:], key)
}

func indexStake(key, row []byte, to *state.IndexEntries) {
	var s topics.Stake
	mustDecode(row, &s)
	to.Put(IndexStakeOwner, row, s.Owner[:], positionKey(&s.TokenID), s.PoolID[:])
	if s.IsSeed {
		to.Put(IndexSeed, row, key)
	}
}

func mustDecode(data []byte, r family.Row) {
	if err := r.UnmarshalBinary(data); err != nil {
		panic("liquidity: cannot decode a stored row: " + err.Error())
	}
}

func numberKey(b, key []byte) []byte {
	return contracts.AppendNumber(b, new(uint256.Int).SetBytes(key))
}

// stakeEntityKey is "0x<pool>:<token ID>".
func stakeEntityKey(b, key []byte) []byte {
	return numberKey(append(contracts.AppendHex(b, key[:common.HashLength]), ':'), key[common.HashLength:])
}
