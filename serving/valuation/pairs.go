package valuation

import "github.com/ethereum/go-ethereum/common"

// pairs finds pools by their currencies: a search of all pools for each of them would make a block's state cost the
// square of their number. All are in the order of the pools.
type pairs struct {
	pools  map[[2]common.Address][]*pool // by currencies, the lower one first
	others map[common.Address][]common.Address
}

func pairsOf(pools []*pool) pairs {
	all := pairs{make(map[[2]common.Address][]*pool, len(pools)), make(map[common.Address][]common.Address, len(pools))}
	for _, p := range pools {
		pair := pairOf(p.Currency0, p.Currency1)
		if all.pools[pair] == nil {
			all.others[p.Currency0] = append(all.others[p.Currency0], p.Currency1)
			all.others[p.Currency1] = append(all.others[p.Currency1], p.Currency0)
		}
		all.pools[pair] = append(all.pools[pair], p)
	}
	return all
}

// of are the pools of two tokens.
func (p pairs) of(a, b common.Address) []*pool {
	return p.pools[pairOf(a, b)]
}

func pairOf(a, b common.Address) [2]common.Address {
	if b.Cmp(a) < 0 {
		a, b = b, a
	}
	return [2]common.Address{a, b}
}
