package query

import (
	"fmt"

	"github.com/lienstream/lienstream/processors/epochs"
	"github.com/lienstream/lienstream/processors/state"
)

// readMarket answers the requests of MarketReader from views that are all of one block.
func readMarket(views []state.View, req *request) ([]item, error) {
	switch req.Op {
	case opRewardedDeal:
		return readRewardedDeal(views, req)
	case opAssetDeals:
		return readAssetDeals(views, req)
	case opPortfolio:
		return readPortfolio(views, req)
	case opOverview:
		return readOverview(views, req)
	case opEpochs:
		return readRows(views, req, epochs.Epochs)
	case opStakes:
		return readStakes(views, req)
	case opPositions:
		return readPositions(views, req)
	case opStats:
		return readStats(views, req)
	case opObservations:
		return readObservations(views, req)
	default:
		return nil, fmt.Errorf("%w: operation %d", errBadRequest, req.Op)
	}
}

// readRows lists a table in the order of its keys.
func readRows(views []state.View, req *request, table *state.Table) ([]item, error) {
	found, err := lowest(views, req.Limit, func(v state.View, visit visitor) error {
		return v.Scan(table, nil, req.After, func(key, row []byte) bool { return visit(key, row, true) })
	})
	items := make([]item, len(found))
	for i, p := range found {
		items[i] = p.item
	}
	return items, err
}
