package valuation

import (
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// depthOf is the amount of each currency that moves a pool's price by 2 %: the lower one of both directions.
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
		return depth // at the end of the price range there is no depth
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
	reasonHalt      = "halt"
	reasonNoPool    = "no pool"
	reasonDisagree  = "pools disagree"
	reasonStale     = "stale"
	reasonDecimals  = "decimals"
)

// refusal is the reason why there is no price.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.message }

func refuse(reason, format string, args ...any) *refusal {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

var priceUnreliable = httpapi.Code{Name: "PRICE_UNRELIABLE", Status: 503}

// quoted is the reference price of a token.
type quoted struct {
	price    price     // raw USDG per raw unit
	decimals uint8     // of the token
	kind     string    // "pool" or "two-hop"
	ways     [][]*pool // through pools: first the one that defines the price, then all others that are not thin. None: the dollar token
}

// pools are those that define the price.
func (q *quoted) pools() []*pool {
	if len(q.ways) == 0 {
		return nil
	}
	return q.ways[0]
}

// text formats a raw price of the token per whole token.
func (q *quoted) text(p price) string { return whole(p, q.decimals, contracts.USDGDecimals).String() }

const (
	kindPool   = "pool"
	kindTwoHop = "two-hop"
)

// steady returns the reason why a pool's price is unreliable now, or nil.
func (s *state) steady(p *pool) error {
	r := &s.cfg.Reference
	if deviation := max(abs(p.Tick-p.reference.low), abs(p.Tick-p.reference.high)); p.history > 0 && deviation > r.MaxDeviation {
		return refuse(reasonDeviation, "pool %s is %d ticks away from its reference price", p.ID, deviation)
	}
	return s.known(p)
}

// sound returns the reason why a pool's price is unreliable now, or little money moves it; or nil.
func (s *state) sound(p *pool) error {
	if err := s.steady(p); err != nil {
		return err
	}
	return s.settles(p)
}

// known returns the reason why a pool has no reference price, or nil.
func (s *state) known(p *pool) error {
	need := uint64(s.cfg.Reference.MinHistory / time.Second)
	if have := p.history; have == 0 || have < need {
		return refuse(reasonHistory, "pool %s has only %d s of price history", p.ID, have)
	}
	if ran := s.at.Timestamp - min(s.since, s.at.Timestamp); ran < need {
		return refuse(reasonHalt, "the chain made no block for more than %s until %d s ago", s.cfg.MaxGap, ran)
	}
	return nil
}

func abs(n int32) int32 { return max(n, -n) }

// paused returns an error if a token is paused.
func (s *state) paused(token common.Address) error {
	if a := s.assets[token]; a != nil && a.Paused != nil && *a.Paused || s.stopped[token] || token == s.cfg.Deployment.USDG && s.usdgPaused {
		return refuse(reasonPaused, "%s is paused", lower(token))
	}
	return nil
}

// referenceOf is the pool's reference price of one currency in the other, in raw units: the lower one of both ends.
func (p *pool) referenceOf(token common.Address) (price, error) {
	root, err := ammv4.SqrtPriceAtTick(p.reference.cheap(token == p.Currency0))
	if err != nil {
		return price{}, fmt.Errorf("reference of pool %s: %w", p.ID, err)
	}
	if token == p.Currency0 {
		return priceAt(root), nil
	}
	return inverse(priceAt(root)), nil
}

// other is the other currency of a pool.
func (p *pool) other(token common.Address) (common.Address, bool) {
	switch token {
	case p.Currency0:
		return p.Currency1, true
	case p.Currency1:
		return p.Currency0, true
	}
	return common.Address{}, false
}

// depthIn is the pool's depth in one of its currencies, of the liquidity that has stood.
func (p *pool) depthIn(token common.Address) *big.Int {
	if token == p.Currency0 {
		return p.depth[0].ToBig()
	}
	return p.depth[1].ToBig()
}

// reference is the price of a token: in its deepest pool with USDG, else in its deepest pool with a token that
// has such a pool. It is refused if a pool on the way is unreliable.
func (s *state) reference(token common.Address) (*quoted, error) {
	decimals, err := s.decimals(token)
	if err != nil {
		return nil, err
	}
	q, err := s.priced(token)
	if err != nil {
		return nil, err
	}
	q.decimals = decimals
	return q, nil
}

func (s *state) priced(token common.Address) (*quoted, error) {
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
		p, err := direct.pool.referenceOf(token)
		return &quoted{price: p, kind: kindPool, ways: ways(direct)}, err
	}
	return s.twoHop(token)
}

// muchDeeper is the ratio of depths from which a shallow pool cannot contradict a deep one. If they disagree, anyone
// gains by trading one against the other, which moves the shallow pool long before the deep one. So setting up a deep
// pool at a false price costs as much as moving it.
const muchDeeper = 20

// contradicts reports whether a pool of one depth can stop the price of a pool of another depth.
func contradicts(depth, other *big.Int) bool {
	return new(big.Int).Mul(depth, big.NewInt(muchDeeper)).Cmp(other) >= 0
}

// candidate is a pool that may price a token.
type candidate struct {
	pool   *pool
	depth  *big.Int // in raw USDG: the largest of those at its price and at the ends of its reference
	least  *big.Int // the smallest of these
	thin   bool     // depth is below the floor: little money moves it, and its price does not count
	beside []*pool  // the other pools of the pair that are not thin
}

// deepest is the deepest pool of a pair, with depth valued at the second token's price; nil: the pair has none. It is
// refused, and returned with the refusal, if it is unreliable or too shallow, or if a pool that is less than muchDeeper
// times shallower disagrees with it.
//
// A pool whose price was moved to where there is no liquidity still counts with its depth at the reference price. So
// disturbing one pool does not make another one the deepest.
func (s *state) deepest(token, against common.Address, inUSDG price) (*candidate, error) {
	floor := new(big.Int).SetUint64(s.cfg.Reference.MinDepth)
	var all []*candidate
	for _, p := range s.pairs.of(token, against) {
		c := &candidate{pool: p, depth: worth(p.depthIn(against), inUSDG)}
		c.least = c.depth
		for _, fair := range p.fair.both() {
			depth := new(big.Int)
			if fair != nil {
				depth = worth(fair.depthIn(against), inUSDG)
			}
			if depth.Cmp(c.depth) > 0 {
				c.depth = depth
			}
			if depth.Cmp(c.least) < 0 {
				c.least = depth
			}
		}
		c.thin = c.depth.Cmp(floor) < 0
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, nil //nolint:nilnil // a missing pool is no error
	}
	slices.SortStableFunc(all, func(a, b *candidate) int { return b.depth.Cmp(a.depth) })
	first := all[0]
	if err := s.steady(first.pool); err != nil {
		return first, err
	}
	if first.least.Cmp(floor) < 0 {
		return first, refuse(reasonDepth, "pool %s is too shallow: %s raw USDG move its price by 2 %%", first.pool.ID, first.least)
	}
	for _, c := range all[1:] {
		if c.thin {
			break
		}
		if gap := c.pool.reference.apart(first.pool.reference); gap > s.cfg.Reference.MaxDeviation {
			if !contradicts(c.depth, first.least) {
				continue
			}
			return first, refuse(reasonDisagree, "pools %s and %s are %d ticks apart", first.pool.ID, c.pool.ID, gap)
		}
		first.beside = append(first.beside, c.pool)
	}
	return first, nil
}

// decimals are a token's decimals: of the registry or the protocol, else those that its contract returned.
func (s *state) decimals(token common.Address) (uint8, error) {
	if a := s.assets[token]; a != nil && a.Kind == contracts.KindERC20 {
		return a.Decimals, nil
	}
	switch token {
	case s.cfg.Deployment.USDG:
		return contracts.USDGDecimals, nil
	case common.Address{}:
		return etherDecimals, nil
	}
	if told, ok := s.scales[token]; ok {
		return told, nil
	}
	return 0, refuse(reasonDecimals, "the decimals of %s are unknown", lower(token))
}

const etherDecimals = 18
