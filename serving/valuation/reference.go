package valuation

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// medianTick is the time-weighted median of a pool's tick: one observation a second, carried forward, over the window
// that ends with now. On a tie it is the lower one. It says, too, for how many of these seconds there is a price.
func medianTick(seconds []query.PriceAt, now, window uint64) (tick int32, history uint64) {
	type weight struct {
		tick    int32
		seconds uint64
	}
	begin := now + 1 - min(now+1, window) // the first second of the window
	var weights []weight
	for i, o := range seconds {
		end := now + 1
		if i+1 < len(seconds) {
			end = seconds[i+1].At
		}
		if from := max(o.At, begin); end > from {
			weights = append(weights, weight{o.Tick, end - from})
			history += end - from
		}
	}
	slices.SortFunc(weights, func(a, b weight) int { return cmp.Compare(a.tick, b.tick) })
	var sum uint64
	for _, w := range weights {
		if sum += w.seconds; 2*sum >= history {
			return w.tick, history
		}
	}
	return 0, 0
}

// depthOf is what moves a pool's price by 2 %, of each currency: the lower of what moves it up and what moves it down.
func depthOf(p *ammv4.Pool) (depth [2]uint256.Int) {
	limit := func(num, den int64) uint256.Int {
		square := p.SqrtPriceX96.ToBig()
		square.Mul(square, square).Mul(square, big.NewInt(num)).Quo(square, big.NewInt(den))
		root, _ := uint256.FromBig(square.Sqrt(square))
		return *root
	}
	all := new(uint256.Int).Lsh(uint256.NewInt(1), 126)
	var fall, rise ammv4.Result
	err := p.Swap(&fall, &ammv4.Swap{ZeroForOne: true, ExactIn: true, Amount: *all, Limit: limit(98, 100)})
	if err == nil {
		err = p.Swap(&rise, &ammv4.Swap{ExactIn: true, Amount: *all, Limit: limit(102, 100)})
	}
	if err != nil {
		return depth // at the end of all prices there is none
	}
	depth[0], depth[1] = fall.In, rise.In
	if rise.Out.Lt(&depth[0]) {
		depth[0] = rise.Out
	}
	if fall.Out.Lt(&depth[1]) {
		depth[1] = fall.Out
	}
	return depth
}

// Reasons of refusals.
const (
	reasonDeviation = "deviation"
	reasonDepth     = "depth"
	reasonPaused    = "paused"
	reasonHistory   = "history"
	reasonNoPool    = "no pool"
	reasonDisagree  = "pools disagree"
	reasonStale     = "stale"
)

// refusal is why there is no price.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.message }

func refuse(reason, format string, args ...any) *refusal {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

var priceUnreliable = httpapi.Code{Name: "PRICE_UNRELIABLE", Status: 503}

// quoted is the reference price of a token.
type quoted struct {
	price price  // raw USDG per raw unit
	kind  string // "pool" or "two-hop"
	pools []*pool
}

const (
	kindPool   = "pool"
	kindTwoHop = "two-hop"
)

// steady says why a pool's price means nothing now, nil where it does.
func (s *state) steady(p *pool) error {
	r := &s.cfg.Reference
	if deviation := abs(p.Tick - p.reference); p.history > 0 && deviation > r.MaxDeviation {
		return refuse(reasonDeviation, "pool %s is %d ticks away from its reference price", p.ID, deviation)
	}
	if have := p.history; have == 0 || have < uint64(r.MinHistory/time.Second) {
		return refuse(reasonHistory, "pool %s has only %d s of price history", p.ID, have)
	}
	return nil
}

func abs(n int32) int32 { return max(n, -n) }

// paused says why a token does not move now.
func (s *state) paused(token common.Address) error {
	if a := s.assets[token]; a != nil && a.Paused != nil && *a.Paused || token == s.cfg.Deployment.USDG && s.usdgPaused {
		return refuse(reasonPaused, "%s is paused", token)
	}
	return nil
}

// referenceOf is the pool's own reference price of one of its currencies in the other, raw.
func (p *pool) referenceOf(token common.Address) (price, error) {
	root, err := ammv4.SqrtPriceAtTick(p.reference)
	if err != nil {
		return price{}, fmt.Errorf("reference of pool %s: %w", p.ID, err)
	}
	if token == p.Currency0 {
		return priceAt(root), nil
	}
	return inverse(priceAt(root)), nil
}

// other is the currency of a pool beside one.
func (p *pool) other(token common.Address) (common.Address, bool) {
	switch token {
	case p.Currency0:
		return p.Currency1, true
	case p.Currency1:
		return p.Currency0, true
	}
	return common.Address{}, false
}

// depthIn is the pool's depth in one of its currencies.
func (p *pool) depthIn(token common.Address) *big.Int {
	if token == p.Currency0 {
		return p.depth[0].ToBig()
	}
	return p.depth[1].ToBig()
}

// reference is what a token is worth: by its deepest pool with USDG, else by its deepest pool with a token that has
// such a pool. Both are refused where they can be moved.
func (s *state) reference(token common.Address) (*quoted, error) {
	usdg := s.cfg.Deployment.USDG
	if err := s.paused(usdg); err != nil {
		return nil, err
	}
	if token == usdg {
		return &quoted{price: par, kind: kindPool}, nil
	}
	if err := s.paused(token); err != nil {
		return nil, err
	}
	direct, err := s.deepest(token, usdg, par)
	if err != nil {
		return nil, err
	}
	if direct != nil {
		p, err := direct.referenceOf(token)
		return &quoted{price: p, kind: kindPool, pools: []*pool{direct}}, err
	}
	return s.twoHop(token)
}

// twoHop composes the price over the pair pool that is worth most.
func (s *state) twoHop(token common.Address) (*quoted, error) {
	usdg := s.cfg.Deployment.USDG
	var (
		best  *quoted
		most  *big.Int
		wrong error
	)
	hops := map[common.Address]bool{}
	for _, p := range s.pools {
		hop, ok := p.other(token)
		if !ok || hops[hop] {
			continue
		}
		hops[hop] = true
		second, err := s.deepest(hop, usdg, par)
		if second == nil && err == nil {
			continue // the hop has no pool with USDG
		}
		if err == nil {
			err = s.paused(hop)
		}
		if err != nil {
			wrong = err
			continue
		}
		inUSDG, err := second.referenceOf(hop)
		if err != nil {
			return nil, err
		}
		first, err := s.deepest(token, hop, inUSDG)
		if err != nil {
			wrong = err
			continue
		}
		depth := worth(first.depthIn(hop), inUSDG)
		if most != nil && depth.Cmp(most) <= 0 {
			continue
		}
		inHop, err := first.referenceOf(token)
		if err != nil {
			return nil, err
		}
		best, most = &quoted{price: times(inHop, inUSDG), kind: kindTwoHop, pools: []*pool{first, second}}, depth
	}
	switch {
	case best != nil:
		return best, nil
	case wrong != nil:
		return nil, wrong
	}
	return nil, refuse(reasonNoPool, "no allowed pool prices %s", token)
}

// deepest is the pool of a pair with most depth, valued at what a unit of the second token is worth, nil where the pair
// has none. It is refused where it is not steady, not deep enough, or another deep one does not agree with it.
func (s *state) deepest(token, against common.Address, inUSDG price) (*pool, error) {
	type candidate struct {
		pool  *pool
		depth *big.Int
	}
	var all []candidate
	for _, p := range s.pools {
		if other, ok := p.other(token); ok && other == against {
			all = append(all, candidate{p, worth(p.depthIn(against), inUSDG)})
		}
	}
	if len(all) == 0 {
		return nil, nil //nolint:nilnil // no pool is no error
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return b.depth.Cmp(a.depth) })
	first := all[0]
	if err := s.steady(first.pool); err != nil {
		return nil, err
	}
	floor := new(big.Int).SetUint64(s.cfg.Reference.MinDepth)
	if first.depth.Cmp(floor) < 0 {
		return nil, refuse(reasonDepth, "pool %s is too shallow: %s raw USDG move its price by 2 %%", first.pool.ID, first.depth)
	}
	for _, c := range all[1:] {
		if c.depth.Cmp(floor) < 0 {
			break
		}
		if gap := abs(c.pool.reference - first.pool.reference); gap > s.cfg.Reference.MaxDeviation {
			return nil, refuse(reasonDisagree, "pools %s and %s are %d ticks apart", first.pool.ID, c.pool.ID, gap)
		}
	}
	return first.pool, nil
}

// decimals are a token's, where the registry or the deployment knows them.
func (s *state) decimals(token common.Address) uint8 {
	if a := s.assets[token]; a != nil {
		return a.Decimals
	}
	if token == s.cfg.Deployment.USDG {
		return usdgDecimals
	}
	return tokenDecimals
}

const (
	usdgDecimals  = 6
	tokenDecimals = 18
)
