package topics

import (
	"embed"
	"slices"
)

// Schema is an Avro schema of the embedded registry. Its ID is on the wire in every value: it is fixed
// for good, and a schema that must change gets a new ID. Its topic gets a new version, unless all who read it
// read both.
type Schema struct {
	ID   uint32
	Name string // of the file in schemas/, without .avsc
}

// The schemas.
var (
	SchemaLog          = &Schema{ID: 1, Name: "raw_log"}
	SchemaProbe        = &Schema{ID: 2, Name: "raw_probe"}
	SchemaBlockEnd     = &Schema{ID: 3, Name: "raw_block_end"}
	SchemaBlockRevert  = &Schema{ID: 4, Name: "raw_block_revert"}
	SchemaLinkedEnd    = &Schema{ID: 5, Name: "raw_block_end_linked"}
	SchemaDeal         = &Schema{ID: 10, Name: "ent_deal"}
	SchemaBid          = &Schema{ID: 11, Name: "ent_bid"}
	SchemaBalance      = &Schema{ID: 12, Name: "ent_balance"}
	SchemaAsset        = &Schema{ID: 13, Name: "ent_asset"}
	SchemaDealEvent    = &Schema{ID: 20, Name: "evt_deals"}
	SchemaBalanceEvent = &Schema{ID: 21, Name: "evt_balances"}
	SchemaAssetEvent   = &Schema{ID: 22, Name: "evt_assets"}

	SchemaLiquidityEvent = &Schema{ID: 23, Name: "evt_liquidity"}
	SchemaEpochEvent     = &Schema{ID: 24, Name: "evt_epochs"}
	SchemaBurnEvent      = &Schema{ID: 25, Name: "evt_burns"}

	SchemaAlert = &Schema{ID: 26, Name: "evt_alert"}

	SchemaDrip              = &Schema{ID: 30, Name: "ent_drip"}
	SchemaReward            = &Schema{ID: 31, Name: "ent_reward"}
	SchemaEpoch             = &Schema{ID: 32, Name: "ent_epoch"}
	SchemaBurn              = &Schema{ID: 33, Name: "ent_burn"}
	SchemaPool              = &Schema{ID: 34, Name: "ent_pool"}
	SchemaObservation       = &Schema{ID: 35, Name: "ent_observation"}
	SchemaPosition          = &Schema{ID: 36, Name: "ent_position"}
	SchemaPositionLiquidity = &Schema{ID: 37, Name: "ent_position_liquidity"}
	SchemaStaking           = &Schema{ID: 38, Name: "ent_staking"}
	SchemaStake             = &Schema{ID: 39, Name: "ent_stake"}

	rawSchemas = []*Schema{SchemaLog, SchemaProbe, SchemaBlockEnd, SchemaBlockRevert, SchemaLinkedEnd}

	schemas = append(slices.Clip(rawSchemas), SchemaDeal, SchemaBid, SchemaBalance, SchemaAsset,
		SchemaDealEvent, SchemaBalanceEvent, SchemaAssetEvent, SchemaLiquidityEvent, SchemaEpochEvent, SchemaBurnEvent, SchemaAlert,
		SchemaDrip, SchemaReward, SchemaEpoch, SchemaBurn,
		SchemaPool, SchemaObservation, SchemaPosition, SchemaPositionLiquidity, SchemaStaking, SchemaStake)
)

//go:embed schemas/*.avsc
var schemaFiles embed.FS

// Text is the schema as JSON.
func (s *Schema) Text() string {
	b, err := schemaFiles.ReadFile("schemas/" + s.Name + ".avsc")
	if err != nil {
		panic(err) // embedded at build time
	}
	return string(b)
}

// ownSchemaIDs is below which all IDs are ours, those to come included.
const ownSchemaIDs = 1000

// Schemas lists the registry, ascending by ID.
func Schemas() []*Schema { return schemas }

// SchemaByID returns the schema of that ID.
func SchemaByID(id uint32) (*Schema, bool) {
	for _, s := range schemas {
		if s.ID == id {
			return s, true
		}
	}
	return nil, false
}
