package contracts

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

func number(family Family, n *uint256.Int) Entity { return Entity{family, n.Bytes32()} }

func addressed(family Family, a common.Address) Entity {
	return Entity{family, common.BytesToHash(a[:])}
}

func epoch(n uint32) Entity      { return number(FamilyEpoch, uint256.NewInt(uint64(n))) }
func pool(id common.Hash) Entity { return Entity{FamilyPool, id} }

// TokenEntity is what the registry's and the token's own events of a token concern.
func TokenEntity(token common.Address) Entity { return addressed(FamilyToken, token) }

// What each event concerns: it implements Event.

func (e *DealListed) Entity() Entity               { return number(FamilyDeal, &e.DealID) }
func (e *DealTermsUpdated) Entity() Entity         { return number(FamilyDeal, &e.DealID) }
func (e *DealFunded) Entity() Entity               { return number(FamilyDeal, &e.DealID) }
func (e *DealReclaimed) Entity() Entity            { return number(FamilyDeal, &e.DealID) }
func (e *DealClaimed) Entity() Entity              { return number(FamilyDeal, &e.DealID) }
func (e *DealCancelled) Entity() Entity            { return number(FamilyDeal, &e.DealID) }
func (e *BidPlaced) Entity() Entity                { return number(FamilyDeal, &e.DealID) }
func (e *BidWithdrawn) Entity() Entity             { return number(FamilyDeal, &e.DealID) }
func (e *BidAccepted) Entity() Entity              { return number(FamilyDeal, &e.DealID) }
func (e *RewardReserved) Entity() Entity           { return number(FamilyDeal, &e.DealID) }
func (e *RewardReturned) Entity() Entity           { return number(FamilyDeal, &e.DealID) }
func (e *Credited) Entity() Entity                 { return addressed(FamilyAccount, e.Account) }
func (e *Withdrawn) Entity() Entity                { return addressed(FamilyAccount, e.Account) }
func (e *DripCreated) Entity() Entity              { return addressed(FamilyAccount, e.Account) }
func (e *DripCut) Entity() Entity                  { return addressed(FamilyAccount, e.Account) }
func (e *DripClaimed) Entity() Entity              { return addressed(FamilyAccount, e.Account) }
func (e *AssetSet) Entity() Entity                 { return addressed(FamilyToken, e.Token) }
func (e *OpenRawChanged) Entity() Entity           { return addressed(FamilyToken, e.Token) }
func (e *UIMultiplierUpdated) Entity() Entity      { return addressed(FamilyToken, e.Token) }
func (e *TokenPaused) Entity() Entity              { return addressed(FamilyToken, e.Token) }
func (e *TokenUnpaused) Entity() Entity            { return addressed(FamilyToken, e.Token) }
func (e *PoolSet) Entity() Entity                  { return pool(e.PoolID) }
func (e *PositionStaked) Entity() Entity           { return pool(e.PoolID) }
func (e *PositionCheckpointed) Entity() Entity     { return pool(e.PoolID) }
func (e *PositionUnstaked) Entity() Entity         { return pool(e.PoolID) }
func (e *EmissionsNotified) Entity() Entity        { return pool(e.PoolID) }
func (e *CreatorFeesNotified) Entity() Entity      { return pool(e.PoolID) }
func (e *EmissionsClaimed) Entity() Entity         { return pool(e.PoolID) }
func (e *CreatorFeeClaimed) Entity() Entity        { return pool(e.PoolID) }
func (e *PoolInitialized) Entity() Entity          { return pool(e.PoolID) }
func (e *LiquidityModified) Entity() Entity        { return pool(e.PoolID) }
func (e *Swapped) Entity() Entity                  { return pool(e.PoolID) }
func (e *PositionTransferred) Entity() Entity      { return number(FamilyPosition, &e.TokenID) }
func (e *EpochOpened) Entity() Entity              { return epoch(e.N) }
func (e *EpochRatesSet) Entity() Entity            { return epoch(e.N) }
func (e *EpochReserved) Entity() Entity            { return epoch(e.N) }
func (e *EpochReturned) Entity() Entity            { return epoch(e.N) }
func (e *LiquidityReleased) Entity() Entity        { return epoch(e.N) }
func (e *EpochClosed) Entity() Entity              { return epoch(e.N) }
func (e *Burned) Entity() Entity                   { return addressed(FamilyBurner, e.Caller) }
func (e *FeeSet) Entity() Entity                   { return addressed(FamilyContract, e.Vault) }
func (e *RewardsSet) Entity() Entity               { return addressed(FamilyContract, e.Vault) }
func (e *VaultPaused) Entity() Entity              { return addressed(FamilyContract, e.Vault) }
func (e *VaultUnpaused) Entity() Entity            { return addressed(FamilyContract, e.Vault) }
func (e *ControllerSet) Entity() Entity            { return addressed(FamilyContract, e.Staking) }
func (e *FeesWithdrawn) Entity() Entity            { return addressed(FamilyContract, e.Staking) }
func (e *EmissionsOwed) Entity() Entity            { return addressed(FamilyContract, e.Staking) }
func (e *VaultSet) Entity() Entity                 { return addressed(FamilyContract, e.Registry) }
func (e *SourceSet) Entity() Entity                { return addressed(FamilyContract, e.Distributor) }
func (e *OwnershipTransferStarted) Entity() Entity { return addressed(FamilyContract, e.Contract) }
func (e *OwnershipTransferred) Entity() Entity     { return addressed(FamilyContract, e.Contract) }
func (e *Unknown) Entity() Entity                  { return addressed(FamilyUnknown, e.Address) }

// The names of events, as the evt topics carry them.

func (*DealListed) Name() string               { return "DealListed" }
func (*DealTermsUpdated) Name() string         { return "DealTermsUpdated" }
func (*DealFunded) Name() string               { return "DealFunded" }
func (*DealReclaimed) Name() string            { return "DealReclaimed" }
func (*DealClaimed) Name() string              { return "DealClaimed" }
func (*DealCancelled) Name() string            { return "DealCancelled" }
func (*BidPlaced) Name() string                { return "BidPlaced" }
func (*BidWithdrawn) Name() string             { return "BidWithdrawn" }
func (*BidAccepted) Name() string              { return "BidAccepted" }
func (*RewardReserved) Name() string           { return "RewardReserved" }
func (*RewardReturned) Name() string           { return "RewardReturned" }
func (*Credited) Name() string                 { return "Credited" }
func (*Withdrawn) Name() string                { return "Withdrawn" }
func (*DripCreated) Name() string              { return "DripCreated" }
func (*DripCut) Name() string                  { return "DripCut" }
func (*DripClaimed) Name() string              { return "DripClaimed" }
func (*AssetSet) Name() string                 { return "AssetSet" }
func (*OpenRawChanged) Name() string           { return "OpenRawChanged" }
func (*UIMultiplierUpdated) Name() string      { return "UIMultiplierUpdated" }
func (*TokenPaused) Name() string              { return "TokenPaused" }
func (*TokenUnpaused) Name() string            { return "TokenUnpaused" }
func (*PoolSet) Name() string                  { return "PoolSet" }
func (*PositionStaked) Name() string           { return "PositionStaked" }
func (*PositionCheckpointed) Name() string     { return "PositionCheckpointed" }
func (*PositionUnstaked) Name() string         { return "PositionUnstaked" }
func (*EmissionsNotified) Name() string        { return "EmissionsNotified" }
func (*CreatorFeesNotified) Name() string      { return "CreatorFeesNotified" }
func (*EmissionsClaimed) Name() string         { return "EmissionsClaimed" }
func (*CreatorFeeClaimed) Name() string        { return "CreatorFeeClaimed" }
func (*PoolInitialized) Name() string          { return "PoolInitialized" }
func (*LiquidityModified) Name() string        { return "LiquidityModified" }
func (*Swapped) Name() string                  { return "Swapped" }
func (*PositionTransferred) Name() string      { return "PositionTransferred" }
func (*EpochOpened) Name() string              { return "EpochOpened" }
func (*EpochRatesSet) Name() string            { return "EpochRatesSet" }
func (*EpochReserved) Name() string            { return "EpochReserved" }
func (*EpochReturned) Name() string            { return "EpochReturned" }
func (*LiquidityReleased) Name() string        { return "LiquidityReleased" }
func (*EpochClosed) Name() string              { return "EpochClosed" }
func (*Burned) Name() string                   { return "Burned" }
func (*FeeSet) Name() string                   { return "FeeSet" }
func (*RewardsSet) Name() string               { return "RewardsSet" }
func (*VaultPaused) Name() string              { return "VaultPaused" }
func (*VaultUnpaused) Name() string            { return "VaultUnpaused" }
func (*ControllerSet) Name() string            { return "ControllerSet" }
func (*FeesWithdrawn) Name() string            { return "FeesWithdrawn" }
func (*EmissionsOwed) Name() string            { return "EmissionsOwed" }
func (*VaultSet) Name() string                 { return "VaultSet" }
func (*SourceSet) Name() string                { return "SourceSet" }
func (*OwnershipTransferStarted) Name() string { return "OwnershipTransferStarted" }
func (*OwnershipTransferred) Name() string     { return "OwnershipTransferred" }
func (*Unknown) Name() string                  { return "Unknown" }
