package system

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/lienstream/lienstream/contracts"
)

// judge says what the services must answer as of a block. It asks the chain alone, by eth_call at the
// block's hash and with go-ethereum's own ABI package, and shares no code with the pipeline but the ABIs.
type judge struct {
	eth *ethclient.Client
	dep contracts.Deployment

	vault, registry, token abi.ABI

	ignored map[common.Hash]bool // transactions whose logs no contract would emit
}

func newJudge(t *testing.T, eth *ethclient.Client, dep contracts.Deployment) *judge {
	t.Helper()
	parse := func(name string) abi.ABI {
		a, err := contracts.ABI(name)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	return &judge{eth: eth, dep: dep, vault: parse("DealVault"), registry: parse("AssetRegistry"), token: parse("StockToken"), ignored: map[common.Hash]bool{}}
}

// market is the contracts' state as of a block, in the shapes of the spec.
type market struct {
	Deals    map[string]object   // by ID, as in /deals
	Bids     map[string][]object // by deal ID, ascending by bid ID
	Assets   map[string]object   // by token
	Balances map[string]string   // "account asset kind [token ID]" to amount
	Accounts []string            // that were ever credited
}

// object is a JSON object; numbers are json.Number.
type object = map[string]any

var (
	kinds     = []string{"ERC20", "AMMV4_POSITION"}
	lanes     = []string{"STOCK", "ETH", "MEME", "POSITION"}
	states    = []string{"LISTED", "FUNDED", "RECLAIMED", "CLAIMED", "CANCELLED"}
	bidStates = []string{"OPEN", "WITHDRAWN", "ACCEPTED"}
	balances  = []string{"USDG", "ERC20", "NFT"}
)

type dealTuple struct {
	Borrower        common.Address
	ListedAt        *big.Int
	Term            uint32
	Kind            uint8
	State           uint8
	Lane            uint8
	FeeBps          uint16
	Token           common.Address
	ListingExpiry   *big.Int
	FundedAt        *big.Int
	AmountOrTokenId *big.Int //nolint:revive // named as the ABI names it
	Cap             *big.Int
	MinPrice        *big.Int
	Lender          common.Address
	Price           *big.Int
	Fee             *big.Int
}

type bidTuple struct {
	DealId    *big.Int //nolint:revive // named as the ABI names it
	Lender    common.Address
	Expiry    *big.Int
	PlacedAt  *big.Int
	State     uint8
	Price     *big.Int
	TermsHash common.Hash
}

// at reads the whole market as of a block.
func (j *judge) at(ctx context.Context, block common.Hash) (*market, error) {
	header, err := j.eth.HeaderByHash(ctx, block)
	if err != nil {
		return nil, fmt.Errorf("header %s: %w", block, err)
	}
	logs, err := j.logs(ctx, header.Number)
	if err != nil {
		return nil, err
	}
	m := &market{Deals: map[string]object{}, Bids: map[string][]object{}, Assets: map[string]object{}, Balances: map[string]string{}}
	if err := j.readDeals(ctx, block, header.Time, logs, m); err != nil {
		return nil, fmt.Errorf("deals at %d: %w", header.Number, err)
	}
	if err := j.readAssets(ctx, block, logs, m); err != nil {
		return nil, fmt.Errorf("assets at %d: %w", header.Number, err)
	}
	if err := j.readBalances(ctx, block, logs, m); err != nil {
		return nil, fmt.Errorf("balances at %d: %w", header.Number, err)
	}
	return m, nil
}

// logs are those of the vault and the registry up to a block: what no call tells (transactions, names of
// accounts and tokens to ask for) is taken from them.
func (j *judge) logs(ctx context.Context, to *big.Int) ([]types.Log, error) {
	logs, err := j.eth.FilterLogs(ctx, ethereum.FilterQuery{
		FromBlock: new(big.Int).SetUint64(j.dep.StartBlock), ToBlock: to,
		Addresses: []common.Address{j.dep.DealVault, j.dep.AssetRegistry},
	})
	return slices.DeleteFunc(logs, func(l types.Log) bool { return j.ignored[l.TxHash] }), err
}

func (j *judge) readDeals(ctx context.Context, block common.Hash, now uint64, logs []types.Log, m *market) error {
	var counts [2]*big.Int
	if err := j.calls(ctx, block, j.dep.DealVault, j.vault, []call{
		{method: "nextDealId", out: func(v []any) { counts[0] = v[0].(*big.Int) }},
		{method: "nextBidId", out: func(v []any) { counts[1] = v[0].(*big.Int) }},
	}); err != nil {
		return err
	}
	var grace *big.Int
	tuples := make([]dealTuple, counts[0].Int64())
	hashes := make([]common.Hash, counts[0].Int64())
	bids := make([]bidTuple, counts[1].Int64())
	asks := []call{{method: "GRACE", out: func(v []any) { grace = v[0].(*big.Int) }}}
	for id := int64(1); id < counts[0].Int64(); id++ {
		asks = append(asks,
			call{method: "deals", args: []any{big.NewInt(id)}, out: func(v []any) { tuples[id] = *abi.ConvertType(v[0], new(dealTuple)).(*dealTuple) }},
			call{method: "termsHash", args: []any{big.NewInt(id)}, out: func(v []any) { hashes[id] = v[0].([32]byte) }})
	}
	for id := int64(1); id < counts[1].Int64(); id++ {
		asks = append(asks, call{method: "bids", args: []any{big.NewInt(id)}, out: func(v []any) { bids[id] = *abi.ConvertType(v[0], new(bidTuple)).(*bidTuple) }})
	}
	if err := j.calls(ctx, block, j.dep.DealVault, j.vault, asks); err != nil {
		return err
	}
	tx := j.transactions(logs)
	open := map[string]int{}
	best := map[string]bidTuple{}
	bestBid := map[string]object{}
	for id := 1; id < len(bids); id++ {
		b := bids[id]
		deal := b.DealId.String()
		o := object{
			"id": fmt.Sprint(id), "dealId": deal, "lender": lower(b.Lender), "price": b.Price.String(),
			"expiry": number(b.Expiry), "state": bidStates[b.State], "placedAt": number(b.PlacedAt),
			"termsHash": b.TermsHash.Hex(), "tx": tx["BidPlaced "+fmt.Sprint(id)],
		}
		m.Bids[deal] = append(m.Bids[deal], o)
		if b.State != 0 || b.Expiry.Uint64() <= now || b.TermsHash != hashes[b.DealId.Int64()] {
			continue
		}
		open[deal]++
		if former, ok := best[deal]; !ok || b.Price.Cmp(former.Price) > 0 {
			best[deal], bestBid[deal] = b, o
		}
	}
	for n := 1; n < len(tuples); n++ {
		d, id := tuples[n], fmt.Sprint(n)
		o := object{
			"id": id, "borrower": lower(d.Borrower), "kind": kinds[d.Kind], "token": lower(d.Token),
			"amountOrTokenId": d.AmountOrTokenId.String(), "cap": d.Cap.String(), "term": number(new(big.Int).SetUint64(uint64(d.Term))),
			"listingExpiry": number(d.ListingExpiry), "minPrice": d.MinPrice.String(),
			"feeBps": number(new(big.Int).SetUint64(uint64(d.FeeBps))), "termsHash": hashes[n].Hex(), "state": states[d.State], "lane": lanes[d.Lane],
			"lender": nil, "price": nil, "fee": nil, "fundedAt": nil, "expiry": nil, "graceEnd": nil,
			"txs":          object{"listed": tx["DealListed "+id], "funded": orNil(tx["DealFunded "+id]), "settled": orNil(tx["settled "+id])},
			"listedAt":     number(d.ListedAt),
			"openBidCount": number(big.NewInt(int64(open[id]))), "bestBid": nil,
		}
		if b := bestBid[id]; b != nil {
			o["bestBid"] = b
		}
		if d.FundedAt.Sign() != 0 {
			expiry := new(big.Int).Add(d.FundedAt, big.NewInt(int64(d.Term)))
			o["lender"], o["price"], o["fee"] = lower(d.Lender), d.Price.String(), d.Fee.String()
			o["fundedAt"], o["expiry"], o["graceEnd"] = number(d.FundedAt), number(expiry), number(new(big.Int).Add(expiry, grace))
		}
		m.Deals[id] = o
	}
	return nil
}

// transactions maps "event ID" to the transaction that emitted it.
func (j *judge) transactions(logs []types.Log) map[string]string {
	tx := map[string]string{}
	for _, l := range logs {
		if l.Address != j.dep.DealVault || len(l.Topics) < 2 {
			continue
		}
		event, err := j.vault.EventByID(l.Topics[0])
		if err != nil {
			continue
		}
		id := l.Topics[1].Big().String()
		switch event.Name {
		case "BidPlaced":
			id = l.Topics[2].Big().String()
			tx[event.Name+" "+id] = l.TxHash.Hex()
		case "DealListed", "DealFunded":
			tx[event.Name+" "+id] = l.TxHash.Hex()
		case "DealReclaimed", "DealClaimed", "DealCancelled":
			tx["settled "+id] = l.TxHash.Hex()
		}
	}
	return tx
}

func (j *judge) readAssets(ctx context.Context, block common.Hash, logs []types.Log, m *market) error {
	for _, l := range logs {
		event, err := j.registry.EventByID(l.Topics[0])
		if l.Address != j.dep.AssetRegistry || err != nil || event.Name != "AssetSet" {
			continue
		}
		fields := map[string]any{}
		if err := event.Inputs.UnpackIntoMap(fields, l.Data); err != nil {
			return err
		}
		token := common.BytesToAddress(l.Topics[1][:])
		o := object{
			"token": lower(token), "symbol": fields["symbol"], "name": fields["name"],
			"decimals":     number(big.NewInt(int64(fields["decimals"].(uint8)))),
			"uiMultiplier": nil, "pendingMultiplier": nil, "effectiveAt": nil, "paused": nil,
		}
		if err := j.calls(ctx, block, j.dep.AssetRegistry, j.registry, []call{{method: "asset", args: []any{token}, out: func(v []any) {
			o["allowed"], o["lane"] = v[0], lanes[v[1].(uint8)]
			o["minAmount"], o["maxDealRaw"], o["maxOpenRaw"], o["openRaw"] = dec(v[3]), dec(v[4]), dec(v[5]), dec(v[6])
		}}}); err != nil {
			return err
		}
		j.readMultiplier(ctx, block, token, o)
		m.Assets[lower(token)] = o
	}
	return nil
}

// readMultiplier asks the token itself; what it does not answer stays null.
func (j *judge) readMultiplier(ctx context.Context, block common.Hash, token common.Address, o object) {
	header, err := j.eth.HeaderByHash(ctx, block)
	if err != nil {
		return
	}
	ask := func(method string) any {
		var answer any
		if err := j.calls(ctx, block, token, j.token, []call{{method: method, out: func(v []any) { answer = v[0] }}}); err != nil {
			return nil
		}
		return answer
	}
	for _, method := range []string{"paused", "oraclePaused"} {
		if v := ask(method); v != nil && o["paused"] != true {
			o["paused"] = v
		}
	}
	current, pending, at := ask("uiMultiplier"), ask("newUIMultiplier"), ask("effectiveAt")
	if current != nil {
		o["uiMultiplier"] = dec(current)
	}
	if pending != nil && at != nil && at.(*big.Int).Uint64() > header.Time && pending.(*big.Int).Cmp(current.(*big.Int)) != 0 {
		o["pendingMultiplier"] = dec(pending)
	}
	if at != nil {
		o["effectiveAt"] = number(at.(*big.Int))
	}
}

// readBalances asks for the credit of every account and asset that was ever credited.
func (j *judge) readBalances(ctx context.Context, block common.Hash, logs []types.Log, m *market) error {
	seen := map[string]bool{}
	accounts := map[string]bool{}
	var asks []call
	for _, l := range logs {
		event, err := j.vault.EventByID(l.Topics[0])
		if l.Address != j.dep.DealVault || err != nil || event.Name != "Credited" {
			continue
		}
		fields := map[string]any{}
		if err := event.Inputs.UnpackIntoMap(fields, l.Data); err != nil {
			return err
		}
		account, asset := common.BytesToAddress(l.Topics[1][:]), common.BytesToAddress(l.Topics[2][:])
		accounts[lower(account)] = true
		kind := balances[fields["kind"].(uint8)]
		key := strings.Join([]string{lower(account), lower(asset), kind}, " ")
		if kind == "NFT" {
			id := fields["amountOrTokenId"].(*big.Int)
			key += " " + id.String()
			asks = append(asks, call{method: "nftCredits", args: []any{asset, id}, out: func(v []any) {
				if v[0].(common.Address) == account {
					m.Balances[key] = id.String()
				}
			}})
			continue
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		asks = append(asks, call{method: "credits", args: []any{account, asset}, out: func(v []any) {
			if amount := v[0].(*big.Int); amount.Sign() > 0 {
				m.Balances[key] = amount.String()
			}
		}})
	}
	m.Accounts = slices.Sorted(maps.Keys(accounts))
	return j.calls(ctx, block, j.dep.DealVault, j.vault, asks)
}

// call is one eth_call of a batch.
type call struct {
	method string
	args   []any
	out    func([]any)
}

// calls makes them as of a block, by its hash (EIP-1898), in batches.
func (j *judge) calls(ctx context.Context, block common.Hash, to common.Address, a abi.ABI, asks []call) error {
	for part := range slices.Chunk(asks, 200) {
		batch := make([]rpc.BatchElem, len(part))
		answers := make([]hexutil.Bytes, len(part))
		for i, c := range part {
			data, err := a.Pack(c.method, c.args...)
			if err != nil {
				return fmt.Errorf("pack %s: %w", c.method, err)
			}
			batch[i] = rpc.BatchElem{
				Method: "eth_call",
				Args:   []any{object{"to": to, "data": hexutil.Bytes(data)}, object{"blockHash": block}},
				Result: &answers[i],
			}
		}
		if err := j.eth.Client().BatchCallContext(ctx, batch); err != nil {
			return err
		}
		for i, c := range part {
			if batch[i].Error != nil {
				return fmt.Errorf("call %s%v: %w", c.method, c.args, batch[i].Error)
			}
			values, err := a.Unpack(c.method, answers[i])
			if err != nil {
				return fmt.Errorf("unpack %s: %w", c.method, err)
			}
			c.out(values)
		}
	}
	return nil
}
