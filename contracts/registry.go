package contracts

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// registryEvents are the AssetRegistry's.
var registryEvents = []eventSpec{
	{signature: "AssetSet(address,uint8,uint8,bool,uint8,uint256,uint256,uint256,string,string)", topics: 3, words: 8, strings: true, read: readAssetSet},
	{signature: "OpenRawChanged(address,uint256)", topics: 2, words: 1, read: readOpenRawChanged},
	{signature: "PoolSet(bytes32,bool,uint128,uint128)", topics: 2, words: 3, read: readPoolSet},
	{signature: "VaultSet(address)", topics: 1, words: 1, read: readVaultSet},
}

// Events of the AssetRegistry.
type (
	AssetSet struct {
		Token      common.Address
		Kind       Kind
		Lane       Lane
		Allowed    bool
		Decimals   uint8
		MinAmount  uint256.Int
		MaxDealRaw uint256.Int
		MaxOpenRaw uint256.Int
		Symbol     string
		TokenName  string
	}
	OpenRawChanged struct {
		Token   common.Address
		OpenRaw uint256.Int
	}
	PoolSet struct {
		PoolID       common.Hash
		Allowed      bool
		MinLiquidity uint256.Int
		MaxLiquidity uint256.Int
	}
	VaultSet struct {
		Registry common.Address
		Vault    common.Address
	}
)

func (e *AssetSet) Entity() Entity       { return TokenEntity(e.Token) }
func (e *OpenRawChanged) Entity() Entity { return TokenEntity(e.Token) }
func (e *PoolSet) Entity() Entity        { return PoolEntity(e.PoolID) }
func (e *VaultSet) Entity() Entity       { return contract(e.Registry) }

func (*AssetSet) Name() string       { return "AssetSet" }
func (*OpenRawChanged) Name() string { return "OpenRawChanged" }
func (*PoolSet) Name() string        { return "PoolSet" }
func (*VaultSet) Name() string       { return "VaultSet" }

func readAssetSet(w *words, _ common.Address) Event {
	return &AssetSet{
		Token:      w.topicAddress(),
		Kind:       Kind(w.enum(uint8(KindPosition))),
		Lane:       Lane(w.topicEnum(uint8(LanePosition))),
		Allowed:    w.bool(),
		Decimals:   w.uint8(),
		MinAmount:  w.uint256(),
		MaxDealRaw: w.uint256(),
		MaxOpenRaw: w.uint256(),
		Symbol:     w.string(),
		TokenName:  w.string(),
	}
}

func readOpenRawChanged(w *words, _ common.Address) Event {
	return &OpenRawChanged{
		Token:   w.topicAddress(),
		OpenRaw: w.uint256(),
	}
}

func readPoolSet(w *words, _ common.Address) Event {
	return &PoolSet{
		PoolID:       w.topicHash(),
		Allowed:      w.bool(),
		MinLiquidity: w.uint128(),
		MaxLiquidity: w.uint128(),
	}
}

func readVaultSet(w *words, address common.Address) Event {
	return &VaultSet{Registry: address, Vault: w.address()}
}
