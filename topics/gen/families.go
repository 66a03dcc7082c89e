package main

import "github.com/lienstream/lienstream/contracts"

// family is what goes into one pair of evt topics.
type family struct {
	id     int    // of the schema: on the wire in every value, fixed for good
	name   string // of the topics
	record string // its Avro name
	doc    string
	events []any
}

// families is what there is. A column is added only at the end, with a new schema ID: consumers have the
// old one.
var families = []family{
	{
		id: 20, name: "deals", record: "DealEvent", doc: "An event that concerns a deal.",
		events: []any{
			contracts.DealListed{},
			contracts.DealTermsUpdated{},
			contracts.DealFunded{},
			contracts.DealReclaimed{},
			contracts.DealClaimed{},
			contracts.DealCancelled{},
			contracts.BidPlaced{},
			contracts.BidWithdrawn{},
			contracts.BidAccepted{},
			contracts.RewardReserved{},
			contracts.RewardReturned{},
		},
	},
	{
		id: 21, name: "balances", record: "BalanceEvent", doc: "An event that concerns an account.",
		events: []any{
			contracts.Credited{},
			contracts.Withdrawn{},
			contracts.DripCreated{},
			contracts.DripCut{},
			contracts.DripClaimed{},
		},
	},
	{
		id: 22, name: "assets", record: "AssetEvent", doc: "An event that concerns a token.",
		events: []any{
			contracts.AssetSet{},
			contracts.OpenRawChanged{},
			contracts.UIMultiplierUpdated{},
			contracts.TokenPaused{},
			contracts.TokenUnpaused{},
		},
	},
	{
		id: 23, name: "liquidity", record: "LiquidityEvent",
		doc: "An event that concerns a pool, a staked position or a position's holder.",
		events: []any{
			contracts.PoolInitialized{},
			contracts.LiquidityModified{},
			contracts.Swapped{},
			contracts.PoolSet{},
			contracts.PositionTransferred{},
			contracts.PositionStaked{},
			contracts.PositionCheckpointed{},
			contracts.PositionUnstaked{},
			contracts.EmissionsNotified{},
			contracts.CreatorFeesNotified{},
			contracts.EmissionsClaimed{},
			contracts.CreatorFeeClaimed{},
		},
	},
	{
		id: 24, name: "epochs", record: "EpochEvent", doc: "An event that concerns an epoch.",
		events: []any{
			contracts.EpochOpened{},
			contracts.EpochRatesSet{},
			contracts.EpochReserved{},
			contracts.EpochReturned{},
			contracts.LiquidityReleased{},
			contracts.EpochClosed{},
		},
	},
	{
		id: 25, name: "burns", record: "BurnEvent", doc: "A burn.",
		events: []any{contracts.Burned{}},
	},
	{
		id: 27, name: "holders", record: "HolderEvent", doc: "A transfer of a meme token.",
		events: []any{contracts.TokenTransferred{}, contracts.TransferMalformed{}},
	},
}
