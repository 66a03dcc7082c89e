package notifier

import (
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// assetPrefix is the prefix of the rows of tallies with the symbols of tokens: prefix ‖ token. A new table would stop a
// node of a older build.
const assetPrefix = "asset"

func assetKey(token common.Address) []byte { return append([]byte(assetPrefix), token[:]...) }

func putAsset(w state.Writer, a *Asset) error { return putRow(w, tallies, assetKey(a.Token), a) }

// getAsset returns nil if the token is unknown.
func getAsset(r rowReader, token common.Address) (*Asset, error) {
	var a Asset
	if err := getRow(r, tallies, assetKey(token), &a); err != nil || a.Symbol == "" {
		return nil, err
	}
	return &a, nil
}
