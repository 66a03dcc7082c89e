package stats

import (
	"encoding/binary"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
)

// The tables. Their IDs are part of every key on disk: never reuse one. None is published: a row is only a
// partition's share.
var (
	totals     = &state.Table{ID: 17, Name: "totals"}
	collateral = &state.Table{ID: 18, Name: "collateral"}
	flows      = &state.Table{ID: 19, Name: "flows"}
	histograms = &state.Table{ID: 20, Name: "histograms"}

	// Tables of days. Of collateral, an Amount under the day and the key. Of positions, whether one was collateral
	// under the day and its token ID: 1 or 0.
	collateralDays = &state.Table{ID: 25, Name: "collateral days"}
	openDays       = &state.Table{ID: 26, Name: "open position days"}
)

// Family describes this family: only its tables. It is called for deals, not for events.
var Family = family.Family{
	Name: "stats", Tables: []*state.Table{totals, collateral, flows, histograms, collateralDays, openDays},
}

var keyTotals = []byte{0}

// CollateralKey is the key of the collateral of a lane and token.
func CollateralKey(lane contracts.Lane, token common.Address) []byte {
	return append([]byte{byte(lane)}, token[:]...)
}

// hour is the interval of Flows, in seconds. Within an hour deals.IndexFundedAt has the details.
const hour = 60 * 60

// flowKey is the key of an hour, the newest first.
func flowKey(at uint64) []byte { return binary.BigEndian.AppendUint64(nil, ^(at / hour)) }
