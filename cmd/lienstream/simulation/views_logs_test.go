package simulation

import (
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// logged is what only the logs of a block and those before it tell. It is never changed: the next block has another.
type logged struct {
	owed        map[[2]common.Address]bool // account and asset of every credit so far
	nfts        map[nft]bool               // that were ever owed
	drips       map[string]fields          // what the contract does not keep, by ID
	rewards     map[string]fields          // by deal
	txs         map[string]fields          // by deal: by which it became what it is
	bidTxs      map[string]string          // by bid
	checkpoints map[string]string          // when, by the position's token ID
	burns       []fields                   // the oldest first
	pools       map[common.Hash]fields     // keys of the pools with a price
	minted      *big.Int                   // of sTKN
}

type nft struct {
	asset common.Address
	id    string
}

// logs adds what a block's logs say.
func (v *viewer) logs(before logged, r *recording, b *block) (logged, error) {
	after := logged{
		owed: cloned(before.owed), nfts: cloned(before.nfts), drips: cloned(before.drips), rewards: cloned(before.rewards),
		txs: cloned(before.txs), bidTxs: cloned(before.bidTxs), checkpoints: cloned(before.checkpoints), burns: slices.Clone(before.burns), pools: cloned(before.pools), minted: before.minted,
	}
	names := map[common.Address]string{r.deployment.PoolManager: "PoolManager"}
	for name, at := range contractsOf(r.deployment) {
		names[at] = name
	}
	for i := range b.logs {
		l := &b.logs[i]
		of, ours := v.abis[names[l.Address]]
		if !ours {
			continue
		}
		event, err := of.EventByID(l.Topics[0])
		if err != nil {
			continue // of its owner
		}
		said, err := eventOf(of, event, l)
		if err != nil {
			return after, fmt.Errorf("%s.%s: %w", names[l.Address], event.Name, err)
		}
		after.add(event.Name, said, l, b.header.Time)
	}
	return after, nil
}

func cloned[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

// eventOf decodes a log.
func eventOf(of abi.ABI, event *abi.Event, l *types.Log) (map[string]any, error) {
	said := map[string]any{}
	var indexed abi.Arguments
	for _, input := range event.Inputs {
		if input.Indexed {
			indexed = append(indexed, input)
		}
	}
	if err := abi.ParseTopicsIntoMap(said, indexed, l.Topics[1:]); err != nil {
		return nil, err
	}
	return said, of.UnpackIntoMap(said, event.Name, l.Data)
}

func (g *logged) add(event string, said map[string]any, l *types.Log, now uint64) {
	switch event {
	case "Credited":
		account, asset := said["account"].(common.Address), said["asset"].(common.Address)
		if said["kind"].(uint8) == 2 {
			g.nfts[nft{asset, printed(said["amountOrTokenId"])}] = true
		} else {
			g.owed[[2]common.Address{account, asset}] = true
		}
	case "DealListed":
		g.txs[printed(said["dealId"])] = fields{"listed": l.TxHash.Hex(), "funded": none, "settled": none}
	case "DealFunded", "DealReclaimed", "DealClaimed", "DealCancelled":
		txs, step := maps.Clone(g.txs[printed(said["dealId"])]), "settled"
		if event == "DealFunded" {
			step = "funded"
		}
		txs[step] = l.TxHash.Hex()
		g.txs[printed(said["dealId"])] = txs
	case "BidPlaced":
		g.bidTxs[printed(said["bidId"])] = l.TxHash.Hex()
	case "DripCreated":
		drip := fields{"source": sourceNames[said["source"].(uint8)], "granted": printed(said["total"]), "dealId": none, "tokenId": none}
		if drip["source"] == "deal" {
			drip["dealId"] = printed(said["dealId"])
		} else {
			drip["tokenId"] = printed(said["tokenId"])
		}
		g.drips[printed(said["dripId"])] = drip
	case "RewardReserved":
		g.rewards[printed(said["dealId"])] = fields{
			"total": printed(said["granted"]), "lender": printed(said["lenderAmount"]), "borrower": printed(said["borrowerAmount"]),
			"epoch": printed(said["n"]), "budgetExhausted": printed(said["budgetExhausted"]),
		}
	case "PositionStaked", "PositionCheckpointed":
		g.checkpoints[printed(said["tokenId"])] = fmt.Sprint(now)
	case "Burned":
		burn := only(said, "at", "usdgSpent", "tknBought", "stknBurned", "caller")
		burn["tx"] = l.TxHash.Hex()
		g.burns = append(g.burns, burn)
	case "Initialize":
		g.pools[said["id"].([32]byte)] = only(said, "currency0", "currency1", "fee", "tickSpacing", "hooks")
	case "Transfer":
		if value, of20 := said["value"]; of20 && said["from"] == (common.Address{}) {
			g.minted = new(big.Int).Add(g.minted, value.(*big.Int))
		}
	}
}
