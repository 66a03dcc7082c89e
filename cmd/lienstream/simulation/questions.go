package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
)

// entities are the IDs in a recording, of all branches, by the names of path parameters.
type entities struct {
	deals, wallets, tokens, pools []string

	parties map[string][]common.Address // by deal: its borrower and whoever funded it
}

func entitiesOf(rec *recording) *entities {
	deals, wallets, tokens, pools := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	e := &entities{parties: map[string][]common.Address{}}
	wallet := func(a common.Address) { wallets[strings.ToLower(a.Hex())] = true }
	party := func(deal string, a common.Address) {
		wallet(a)
		e.parties[deal] = append(e.parties[deal], a)
	}
	decoder := contracts.NewDecoder(rec.deployment)
	for _, b := range rec.blocks {
		for _, l := range b.logs {
			switch v := decoder.Decode(l.Address, l.Topics, l.Data).(type) {
			case *contracts.DealListed:
				deals[v.DealID.Dec()] = true
				party(v.DealID.Dec(), v.Borrower)
			case *contracts.DealFunded:
				party(v.DealID.Dec(), v.Lender)
			case *contracts.BidPlaced:
				wallet(v.Lender)
			case *contracts.Credited:
				wallet(v.Account)
			case *contracts.DripCreated:
				wallet(v.Account)
			case *contracts.PositionStaked:
				wallet(v.Owner)
			case *contracts.PositionTransferred:
				wallet(v.To)
			case *contracts.PoolSet:
				pools[v.PoolID.Hex()] = true
			case *contracts.AssetSet:
				tokens[strings.ToLower(v.Token.Hex())] = true
			}
		}
	}
	e.deals, e.wallets, e.tokens = slices.Sorted(maps.Keys(deals)), slices.Sorted(maps.Keys(wallets)), slices.Sorted(maps.Keys(tokens))
	e.pools = slices.Sorted(maps.Keys(pools))
	return e
}

var sortsOfListings = []string{"newest", "expiry", "cap", "cost"}

// pathsOfAll are questions of which all partitions have a part of the answer.
func pathsOfAll() []string {
	all := []string{"/deals?limit=200", "/assets?limit=200", "/pool", "/burns?limit=200", "/epochs?limit=100", "/stats", "/stats/history"}
	for _, sort := range sortsOfListings {
		all = append(all, "/listings?limit=200&sort="+sort)
	}
	return all
}

// paths are questions about every entity, with one answer each.
func (e *entities) paths() []string {
	all := pathsOfAll()
	for _, id := range e.deals {
		all = append(all, "/deals/"+id, "/deals/"+id+"/bids?limit=100", "/deals/"+id+"/drips?limit=100")
	}
	for _, w := range e.wallets {
		all = append(all, "/portfolio/"+w, "/rewards/"+w, "/positions/"+w, "/wallet/"+w+"/positions", "/deals?limit=200&wallet="+w)
	}
	for _, token := range e.tokens {
		all = append(all, "/assets/"+token+"/deals?limit=100")
	}
	return all
}

// values are questions to the valuation service, with one answer each as of a block. Facts of a token are left out: who
// created it is no state's. Of deals a fourth is asked for: a value costs more than all else that is asked.
func (e *entities) values() (all []string) {
	ask := func(path string) { all = append(all, valuationPath+path) }
	for i, id := range e.deals {
		if i%4 > 0 {
			continue
		}
		ask("/deals/" + id + "/valuation")
	}
	for _, token := range e.tokens {
		ask("/assets/" + token + "/value")
		ask("/quote/payout?usdg=1000000000&to=" + token)
	}
	for _, pool := range e.pools {
		ask("/range/suggest?term=604800&pool=" + pool)
	}
	for _, eth := range []string{"1000000000000000", "1000000000000000000"} {
		ask("/quote/entry?eth=" + eth)
	}
	for _, route := range []string{"match", "zap"} {
		ask("/quote/reinvest?amount=1000000000000000000&tickLower=-6000&tickUpper=6000&route=" + route)
	}
	return all
}

// lists are the lists with each of their filters, to be read page by page, and questions about entities that do not
// exist.
func (e *entities) lists() []string {
	const nobody = "0x00000000000000000000000000000000000dea1d"
	all := []string{
		"/deals", "/assets", "/epochs", "/burns", "/deals/0", "/deals/0/bids", "/deals/0/drips", "/deals/999999", "/portfolio/" + nobody, "/rewards/" + nobody,
		"/portfolio/" + nobody + "/bids", "/portfolio/" + nobody + "/balances", "/rewards/" + nobody + "/drips", "/positions/" + nobody, "/wallet/" + nobody + "/positions", "/assets/" + nobody + "/deals", "/deals?wallet=" + nobody,
	}
	for _, sort := range sortsOfListings {
		all = append(all, "/listings?sort="+sort, "/listings?term=604800&sort="+sort)
		for _, lane := range contracts.LaneNames {
			all = append(all, "/listings?lane="+lane+"&sort="+sort)
		}
		for _, token := range e.tokens {
			all = append(all, "/listings?asset="+token+"&sort="+sort)
		}
	}
	for _, state := range contracts.DealStateNames {
		all = append(all, "/deals?state="+state)
	}
	for _, id := range e.deals {
		all = append(all, "/deals/"+id+"/bids", "/deals/"+id+"/drips")
	}
	for _, w := range e.wallets {
		all = append(all, "/positions/"+w, "/wallet/"+w+"/positions", "/deals?wallet="+w, "/deals?state=FUNDED&wallet="+w,
			"/portfolio/"+w+"/bids", "/portfolio/"+w+"/balances", "/rewards/"+w+"/drips")
	}
	for _, token := range e.tokens {
		all = append(all, "/assets/"+token+"/deals")
	}
	return all
}

// nextPage is the path of the next page of an answer; empty: it was the last.
func nextPage(path, body string) (string, error) {
	var page struct {
		Next string `json:"nextCursor"`
	}
	if err := json.Unmarshal([]byte(body), &page); err != nil || page.Next == "" {
		return "", err
	}
	path, _, _ = strings.Cut(path, "cursor=")
	joint := "?"
	if strings.Contains(path, "?") {
		joint = "&"
	}
	return fmt.Sprint(strings.TrimRight(path, "?&"), joint, "cursor=", page.Next), nil
}
